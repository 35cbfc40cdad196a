"""Tables with named axes: what 0/0 and p/0 mean, and eliminating nodes from a product of tables.

A *named table* is a pair ``(scope, array)``: node names and one axis for each.  A :class:`LogTable`
holds natural logarithms, −∞ for impossible, with a bound on its finite entries and a bound on their
error.

*Elimination*, by sums or by maxima, never builds the joint.  Tables are logarithms, or probabilities where
nothing can underflow.  Every table carries a bound on its finite logarithms and a bound on their rounding
error, so that a result knows how far it can be from the truth (*running error analysis*):

- a logarithm of a table entry is off by at most one unit ``EPS`` of its size;
- adding tables adds their errors, and one unit of the size of every partial sum; multiplying
  probabilities adds their relative errors and one unit for every product;
- ln Σ exp over n entries keeps the largest error of its entries and adds (n + 8) units for the sum,
  the exponentials and the logarithm, and four units of the entries' size for the shifts; a sum of n
  probabilities adds n units;
- a maximum adds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from quiltdp.chain import ChainModel
from quiltdp.errors import ModelTooWide, option
from quiltdp.graph.orders import greedy_elimination
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model, Table
from quiltdp.numbers import EPS
from quiltdp.work import NO_GUARD, Guard

_Kind = TypeVar("_Kind", bound=np.generic)
NamedTable: TypeAlias = tuple[Sequence[str], Table]


class LogTable(NamedTuple):
    """A log table with named axes, a bound on its finite entries and a bound on their error."""

    scope: tuple[str, ...]
    array: Table
    size: float = 0.0
    error: float = 0.0

    @classmethod
    def of(cls, scope: Sequence[str], array: Table) -> LogTable:
        """Wrap the logarithms of a table of doubles, one unit of error each."""
        finite = np.abs(array[np.isfinite(array)])
        size = float(finite.max(initial=0.0))
        return cls(tuple(scope), array, size, size * EPS)

    def at(self, values: Mapping[str, int]) -> LogTable:
        """Return the table at the given values of some of its nodes."""
        if values.keys().isdisjoint(self.scope):
            return self
        index = tuple([values.get(n, slice(None)) for n in self.scope])
        scope = tuple([n for n in self.scope if n not in values])
        return LogTable(scope, np.asarray(self.array[index]), self.size, self.error)


def log_table(table: Table, cache: dict[int, Table] | None = None) -> Table:
    """Return ln of a table, −∞ for zeros; ``cache`` keeps one result per table object."""
    if cache is not None and id(table) in cache:
        return cache[id(table)]
    with np.errstate(divide="ignore"):
        logs = np.log(table)
    if cache is not None:
        cache[id(table)] = logs
    return logs


def barrier(table: LogTable) -> LogTable | None:
    """Return 0 where a table is possible and −∞ where it is not, or None if everything is possible."""
    possible = table.array > -np.inf
    if possible.all():
        return None
    return LogTable(table.scope, np.where(possible, 0.0, -np.inf))


def aligned(named: tuple[Sequence[str], NDArray[_Kind]], scope: Sequence[str]) -> NDArray[_Kind]:
    """Return a view of the table with the axes of ``scope``, length 1 where it has none.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp.inference.tables import aligned
    >>> aligned((("B", "A"), np.zeros((3, 2))), ("A", "C", "B")).shape
    (2, 1, 3)
    """
    own, array = named
    if own == scope or tuple(own) == tuple(scope):
        return array
    order = [own.index(n) for n in scope if n in own]
    if order != sorted(order):
        array = array.transpose(order)
    if len(order) == len(scope):
        return array
    sizes = iter(array.shape)
    return array.reshape([next(sizes) if n in own else 1 for n in scope])


def log_sum(named: NamedTable, keep: Collection[str]) -> Table:
    """Return ln Σ exp over the axes not in ``keep``, remaining axes in their order.

    The largest entry along the summed axes is taken out first, so a sum of positive numbers is
    never lost to underflow: the result is −∞ exactly when every summand is.
    """
    scope, array = named
    gone = tuple(k for k, n in enumerate(scope) if n not in keep)
    if not gone:
        return array
    top = np.maximum.reduce(array, axis=gone, keepdims=True)
    shift = np.where(top > -np.inf, top, 0.0)
    with np.errstate(divide="ignore"):
        total = np.log(np.add.reduce(np.exp(array - shift), axis=gone, keepdims=True)) + shift
    return np.asarray(total.squeeze(axis=gone))


def log_ratio(numerator: Table, denominator: Table) -> Table:
    """Return ln p − ln q entry by entry: +∞ where p/0, −∞ where 0/q, and −∞ where 0/0.

    This is the one function that decides support.  It is made for maxima: an impossible numerator
    is no candidate for the largest ratio (−∞), whatever the denominator, so 0/0 is skipped; a
    possible numerator over an impossible denominator is +∞.
    """
    with np.errstate(invalid="ignore"):
        ratio = numerator - denominator
    return np.where(numerator > -np.inf, ratio, -np.inf)


class FactorTables:
    """The logarithms of a model's tables, each distinct table once, and who touches whom."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._kinds: dict[int, tuple[LogTable, Table | None]] = {}
        self._around: dict[str, frozenset[str]] = {}
        self.distinct = tuple(_distinct_tables(model))
        self.has_zeros = any(not t.all() for t in self.distinct)

    # -- one factor --------------------------------------------------------------------------

    def scope(self, position: int) -> tuple[str, ...]:
        """Return the nodes of a factor."""
        return self._model.factors[position].scope

    def logs(self, position: int) -> LogTable:
        """Return the factor as a log table."""
        factor = self._model.factors[position]
        return self._logs_and_barrier(factor.table)[0]._replace(scope=factor.scope)

    def barrier(self, position: int) -> LogTable | None:
        """Return 0 where the factor is possible and −∞ where it is not; None if all is possible."""
        if not self.has_zeros:
            return None
        factor = self._model.factors[position]
        wall = self._logs_and_barrier(factor.table)[1]
        return None if wall is None else LogTable(factor.scope, wall)

    def _logs_and_barrier(self, table: Table) -> tuple[LogTable, Table | None]:
        """Return the logarithms of a table and its barrier, made once for factors with the same table."""
        known = self._kinds.get(id(table))
        if known is None:  # the model keeps its tables alive, so their ids stay taken
            logs = LogTable.of((), log_table(table))
            wall = barrier(logs)
            known = self._kinds[id(table)] = (logs, None if wall is None else wall.array)
        return known

    # -- nodes and sets of nodes ---------------------------------------------------------------

    def states(self, node: str) -> int:
        """Return the number of states of a node."""
        return self._model.cardinality(node)

    def entries(self, nodes: Iterable[str]) -> int:
        """Return the number of joint states of some nodes."""
        return math.prod(map(self.states, nodes))

    def near(self, node: str) -> Sequence[int]:
        """Return the positions of the factors that contain ``node``."""
        return self._model.factors_of[node]

    def near_any(self, nodes: Iterable[str]) -> list[int]:
        """Return the positions of the factors that contain one of the nodes, each once."""
        return list(dict.fromkeys([f for n in nodes for f in self.near(n)]))

    def around(self, node: str) -> frozenset[str]:
        """Return the node and its neighbours."""
        found = self._around.get(node)
        if found is None:
            found = self._around[node] = frozenset((node,)).union(*map(self.scope, self.near(node)))
        return found

    def boundary(self, nodes: frozenset[str]) -> frozenset[str]:
        """Return the neighbours of a set of nodes."""
        return frozenset().union(*map(self.around, nodes)) - nodes

    def components(self, nodes: frozenset[str]) -> list[frozenset[str]]:
        """Return the connected parts of a set of nodes, the one with the smallest name first."""
        if len(nodes) < 2:
            return [nodes] if nodes else []
        found = []
        left = set(nodes)
        while left:
            start = min(left)
            left.discard(start)
            part, edge = {start}, [start]
            for n in edge:  # grows while it is walked
                fresh = self.around(n) & left
                if fresh:
                    part |= fresh
                    left -= fresh
                    edge.extend(fresh)
            found.append(frozenset(part))
        return found


def _distinct_tables(model: Model) -> Iterable[Table]:
    """Return every table object of the model once; a chain names its few without listing its steps."""
    if isinstance(model, ChainModel):
        return [t for s in model.segments for t in (s.initial, *s.transitions)]
    return {id(f.table): f.table for f in model.factors}.values()


def factor_tables(workspace: Workspace) -> FactorTables:
    """Return the logarithms of the tables of a workspace's model, made once."""

    def size(made: FactorTables) -> int:
        return 3 * sum(t.nbytes for t in made.distinct) + 4096

    return workspace.keep("factor tables", (), lambda: FactorTables(workspace.model), size)


_Step: TypeAlias = Callable[[Sequence[LogTable], str], LogTable]


def product(tables: Sequence[LogTable], *, limit: int) -> LogTable:
    """Return the product of the tables (the sum of their logarithms) over all their nodes.

    Raises
    ------
    ModelTooWide
        If it would have more than ``limit`` entries; the message names its nodes.
    """
    if len(tables) == 1:
        return tables[0]
    scope = product_scope(tables, limit)
    total = aligned((tables[0].scope, tables[0].array), scope)
    for t in tables[1:]:
        total = total + aligned((t.scope, t.array), scope)
    size = sum([t.size for t in tables])
    return LogTable(scope, total, size, sum([t.error for t in tables]) + len(tables) * EPS * size)


def sum_out(
    tables: Iterable[LogTable], nodes: Collection[str], *, limit: int, guard: Guard = NO_GUARD
) -> list[LogTable]:
    """Return tables whose product is the sum over ``nodes`` of the product of ``tables``."""
    return eliminated(tables, nodes, lambda ts, n: _log_sum_out(product(ts, limit=limit), n), guard)


def max_out(
    tables: Iterable[LogTable],
    nodes: Collection[str],
    *,
    limit: int,
    stop_at: int | None = None,
    guard: Guard = NO_GUARD,
) -> list[LogTable]:
    """Return tables whose product is the maximum over ``nodes`` of the product of ``tables``.

    With ``stop_at``, a node whose elimination would need a table beyond it is left in.
    """
    reduced = _private_maxima(list(tables), nodes)
    return eliminated(reduced, nodes, lambda ts, n: _max_node(product(ts, limit=limit), n), guard, stop_at)


def _private_maxima(tables: Sequence[LogTable], nodes: Collection[str]) -> list[LogTable]:
    """Maximise away, all at once, the nodes that only one table contains."""
    count: dict[str, int] = {}
    for t in tables:
        for n in t.scope:
            count[n] = count.get(n, 0) + 1
    made = []
    for t in tables:
        gone = tuple([k for k, n in enumerate(t.scope) if count[n] == 1 and n in nodes])
        if gone:
            rest = tuple([n for k, n in enumerate(t.scope) if k not in gone])
            made.append(LogTable(rest, t.array.max(axis=gone), t.size, t.error))
        else:
            made.append(t)
    return made


def best_assignment(tables: Iterable[LogTable], *, limit: int) -> Mapping[str, int]:
    """Return values of all nodes that attain the maximum of the product of ``tables``."""
    trail: list[tuple[str, tuple[str, ...], Table]] = []

    def remember(joined: Sequence[LogTable], node: str) -> LogTable:
        table = product(joined, limit=limit)
        rest, axis = without(table, node)
        trail.append((node, rest, table.array.argmax(axis=axis)))
        return LogTable(rest, table.array.max(axis=axis))

    everything = list(tables)
    nodes = dict.fromkeys(n for t in everything for n in t.scope)
    eliminated(everything, nodes, remember, NO_GUARD)
    found: dict[str, int] = {}
    for node, rest, choice in reversed(trail):
        found[node] = int(choice[tuple(found[n] for n in rest)])
    return found


# -- one node at a time ----------------------------------------------------------------------


def without(table: LogTable, node: str) -> tuple[tuple[str, ...], int]:
    """Return the other nodes of a table, and the axis of this one."""
    axis = table.scope.index(node)
    return table.scope[:axis] + table.scope[axis + 1 :], axis


def _max_node(table: LogTable, node: str) -> LogTable:
    rest, axis = without(table, node)
    return LogTable(rest, table.array.max(axis=axis), table.size, table.error)


def _log_sum_out(table: LogTable, node: str) -> LogTable:
    rest, axis = without(table, node)
    top = table.array.max(axis=axis)
    shift = np.maximum(top, -1e308)  # keeps −∞ − −∞ from being NaN
    with np.errstate(divide="ignore"):
        total = np.log(np.exp(table.array - np.expand_dims(shift, axis)).sum(axis=axis)) + shift
    count = table.array.shape[axis]
    size = table.size + math.log(count) if count > 1 else table.size
    return LogTable(rest, total, size, table.error + EPS * (count + 8 + 4 * size))


def eliminated(
    tables: Iterable[LogTable],
    nodes: Collection[str],
    step: _Step,
    guard: Guard,
    stop_at: int | None = None,
) -> list[LogTable]:
    """Eliminate the node with the smallest table again and again, by ``step``."""
    live = dict(enumerate(tables))
    sizes = {n: k for t in live.values() for n, k in zip(t.scope, t.array.shape, strict=True)}
    gone = [n for n in nodes if n in sizes]
    if not gone:
        return list(live.values())
    where: dict[str, set[int]] = {n: set() for n in sizes}
    for key, t in live.items():
        for n in t.scope:
            where[n].add(key)
    fresh = len(live)
    scopes = [t.scope for t in live.values()]
    alone = len(gone) == 1 and stop_at is None
    order = gone if alone else [n for n, _ in greedy_elimination(scopes, sizes, nodes=gone, stop_at=stop_at)]
    for n in order:
        guard.check()
        used = where.pop(n)
        made = live[fresh] = step([live.pop(key) for key in sorted(used)], n)
        for m in made.scope:
            where[m] -= used
            where[m].add(fresh)
        fresh += 1
    return list(live.values())


def product_scope(tables: Sequence[LogTable], limit: int) -> tuple[str, ...]:
    """Return the nodes of a product; refuse one that is too large."""
    sizes = {n: k for t in tables for n, k in zip(t.scope, t.array.shape, strict=True)}
    entries = math.prod(sizes.values())
    if entries > limit:
        scope = tuple(sizes)
        shown = ", ".join(n.strip("\0") for n in scope[:8])
        more = f", … ({len(scope)} nodes)" if len(scope) > 8 else ""
        raise ModelTooWide(
            f"a table over {{{shown}{more}}} needs {entries:,} entries, the limit is {limit:,}",
            f"raise {option('max_entries')}",
        )
    return tuple(sizes)
