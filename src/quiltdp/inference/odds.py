"""The log-odds of a target given everything observed around it, as a sum of small tables.

Observe a set O.  The hidden nodes that the targets T still reach fall into connected components,
and ln P(x_T | x_O) is, up to a term that does not depend on x_T, the sum of

- the factors that contain a target and otherwise only observed nodes, and
- one table per such component: the component summed out, given its boundary in T ∪ O.

Nothing beyond the observed nodes is touched.  The difference between two values x_T and x_T' of
this sum is what every influence and every swing is a maximum of.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from quiltdp.chain import ChainModel
from quiltdp.inference.elimination import LogTable, sum_out
from quiltdp.inference.kept import kept_with_model
from quiltdp.inference.tables import log_ratio, log_table
from quiltdp.model import Model, Table

__all__ = ["BIG", "FactorLogs", "OddsTables", "TargetOdds", "barrier", "factor_logs", "moved", "other"]

BIG = 1e150
"""Stands for +∞ inside sums, so that +∞ and −∞ never meet: −∞ (impossible) always wins."""


_ROOM = 2**22  # entries of summed components kept per model (32 MiB)


def other(node: str) -> str:
    """Return the axis name of the second copy x' of a node."""
    return node + "\0"


@dataclass(frozen=True)
class _Entry:
    logs: LogTable
    barrier: LogTable | None


class FactorLogs:
    """The logarithms of a model's tables, each distinct table once, and who touches whom."""

    def __init__(self, model: Model) -> None:
        self._factors = model.factors
        self._of = None if isinstance(model, ChainModel) else model.factors_of
        self._index = model.index
        self._entries: dict[int, _Entry] = {}
        self.has_zeros = any(not t.all() for t in _distinct_tables(model))
        self._scopes: dict[int, frozenset[str]] = {}
        self._names = model.states
        self._states: dict[str, int] = {}
        self._sums: dict[frozenset[str], list[LogTable]] = {}
        self._room = _ROOM

    def near(self, node: str) -> Sequence[int]:
        """Return the positions of the factors that contain ``node``."""
        if self._of is not None:
            return self._of[node]
        k = self._index[node]
        following = k + 1 < len(self._factors) and node in self._factors[k + 1].scope
        return (k, k + 1) if following else (k,)

    def scope(self, position: int) -> tuple[str, ...]:
        """Return the nodes of a factor."""
        return self._factors[position].scope

    def scope_set(self, position: int) -> frozenset[str]:
        """Return the nodes of a factor as a set."""
        found = self._scopes.get(position)
        if found is None:
            found = self._scopes[position] = frozenset(self._factors[position].scope)
        return found

    def table(self, position: int) -> Table:
        """Return the factor as it is."""
        return self._factors[position].table

    def states(self, node: str) -> int:
        """Return the number of states of a node."""
        found = self._states.get(node)
        if found is None:
            found = self._states[node] = len(self._names[node])
        return found

    def size(self, position: int) -> float:
        """Return a bound on the logarithms of the possible entries of a factor."""
        return self._entry(position).logs.size

    def with_zeros(self, position: int) -> bool:
        """Return whether a factor has a zero."""
        return self._entry(position).barrier is not None

    def shape(self, position: int) -> tuple[int, ...]:
        """Return the number of states of each node of a factor."""
        return self._factors[position].table.shape

    def logs(self, position: int) -> LogTable:
        """Return the factor as a log table."""
        return self._entry(position).logs._replace(scope=self.scope(position))

    def barrier(self, position: int) -> LogTable | None:
        """Return 0 where the factor is possible and −∞ where it is not; None if all is possible."""
        wall = self._entry(position).barrier
        return None if wall is None else wall._replace(scope=self.scope(position))

    def summed(self, component: frozenset[str], limit: int) -> list[LogTable]:
        """Return the component summed out of its factors; kept, because other targets ask again."""
        known = self._sums.get(component)
        if known is None:
            factors = dict.fromkeys(f for n in sorted(component) for f in self.near(n))
            known = sum_out([self.logs(f) for f in factors], component, limit=limit)
            size = sum(t.array.size for t in known)
            if size > self._room:
                self._sums.clear()
                self._room = _ROOM
            if size <= self._room:
                self._sums[component] = known
                self._room -= size
        return known

    def _entry(self, position: int) -> _Entry:
        factor = self._factors[position]
        known = self._entries.get(id(factor.table))
        if known is None:  # the model keeps its tables alive, so their ids stay taken
            logs = LogTable.of(factor.scope, log_table(factor.table))
            known = self._entries[id(factor.table)] = _Entry(logs, barrier(logs))
        return known


def _distinct_tables(model: Model) -> Iterable[Table]:
    """Return every table object of the model once; a chain names its few without listing its steps."""
    if isinstance(model, ChainModel):
        return [t for s in model.segments for t in (s.initial, *s.transitions)]
    return {id(f.table): f.table for f in model.factors}.values()


@kept_with_model
def factor_logs(model: Model) -> FactorLogs:
    """Return the logarithms of the model's tables, made once per model."""
    return FactorLogs(model)


def barrier(table: LogTable) -> LogTable | None:
    """Return 0 where a table is possible and −∞ where it is not, or None if everything is possible."""
    possible = table.array > -np.inf
    if possible.all():
        return None
    return LogTable(table.scope, np.where(possible, 0.0, -np.inf))


def moved(table: LogTable, targets: Collection[str]) -> LogTable:
    """Return ln φ(x_T, z) − ln φ(x_T', z) over (x_T, x_T', z), for maxima over z.

    An impossible numerator is −∞, a possible numerator over an impossible denominator is ``BIG``.
    """
    inside = [k for k, n in enumerate(table.scope) if n in targets]
    rest = [k for k, n in enumerate(table.scope) if n not in targets]
    array = table.array.transpose(inside + rest)
    shape, tail = array.shape[: len(inside)], array.shape[len(inside) :]
    ones = (1,) * len(inside)
    ratio = log_ratio(array.reshape(shape + ones + tail), array.reshape(ones + shape + tail))
    names = tuple(table.scope[k] for k in inside)
    scope = (*names, *map(other, names), *(table.scope[k] for k in rest))
    error = 2 * table.error + 2 * table.size * 2**-52
    return LogTable(scope, np.minimum(ratio, BIG), 2 * table.size, error)


@dataclass(frozen=True)
class OddsTables:
    """The tables that move with x_T → x_T', and the positions of the factors they are made of."""

    moves: tuple[LogTable, ...]
    used: frozenset[int]
    wide: tuple[frozenset[str], ...] = ()  # components left alone because their table is large


class TargetOdds:
    """Log-odds tables of one set of targets for any observed set; components are summed out once."""

    def __init__(
        self,
        model: Model,
        targets: Collection[str],
        *,
        limit: int,
        wide_from: int | None = None,
        among: Collection[int] | None = None,
    ) -> None:
        self.targets = tuple(sorted(targets))
        self._set = frozenset(targets)
        self._logs = factor_logs(model)
        self._limit = limit
        self._sizes = model.cardinality
        self._wide_from = wide_from  # components with larger tables are named, not summed out
        self._among = among  # the only factors used, if given
        self._components: dict[frozenset[str], tuple[LogTable, ...]] = {}
        self._direct: dict[int, LogTable] = {}

    def given(self, observed: Collection[str]) -> OddsTables:
        """Return the tables given the observed nodes."""
        moves: list[LogTable] = []
        used: set[int] = set()
        seen: set[str] = set()
        wide: list[frozenset[str]] = []
        for f in self._near(self.targets):
            hidden = [n for n in self._logs.scope(f) if n not in self._set and n not in observed]
            if not hidden:
                used.add(f)
                moves.append(self._moved_factor(f))
                continue
            for start in hidden:
                if start not in seen:
                    component = self._component(start, observed)
                    seen |= component
                    used.update(self._near(component))
                    if self.is_wide(component):
                        wide.append(component)
                    else:
                        moves.extend(self.summed(component))
        return OddsTables(tuple(moves), frozenset(used), tuple(wide))

    def is_wide(self, component: frozenset[str]) -> bool:
        """Return whether the table of a component is beyond ``wide_from``."""
        if self._wide_from is None or component in self._components:
            return False
        return self.width(component) > self._wide_from

    def width(self, component: frozenset[str]) -> int:
        """Return the entries of the table of a component, with the targets twice."""
        around = {m for f in self._near(component) for m in self._logs.scope(f)} - component
        return math.prod(self._sizes(m) ** (2 if m in self._set else 1) for m in around)

    def factors(self, component: Iterable[str]) -> list[LogTable]:
        """Return the factors that contain a node of the component."""
        return [self._logs.logs(f) for f in self._near(sorted(component))]

    def _near(self, nodes: Iterable[str]) -> list[int]:
        found = dict.fromkeys(f for n in nodes for f in self._logs.near(n))
        return [f for f in found if self._among is None or f in self._among]

    def _component(self, start: str, observed: Collection[str]) -> frozenset[str]:
        found = {start}
        reached = [start]
        for n in reached:  # grows while it is walked
            for f in self._near((n,)):
                for m in self._logs.scope(f):
                    if m not in found and m not in self._set and m not in observed:
                        found.add(m)
                        reached.append(m)
        return frozenset(found)

    def _moved_factor(self, position: int) -> LogTable:
        table = self._direct.get(position)
        if table is None:
            table = self._direct[position] = moved(self._logs.logs(position), self._set)
        return table

    def summed(self, component: frozenset[str]) -> tuple[LogTable, ...]:
        """Return the move of a component after summing it out (one table, unless it is empty)."""
        known = self._components.get(component)
        if known is None:
            if self._among is None:
                left = self._logs.summed(component, self._limit)
            else:
                left = sum_out(self.factors(component), component, limit=self._limit)
            known = self._components[component] = tuple(moved(t, self._set) for t in left)
        return known
