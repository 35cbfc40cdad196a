"""One closed set C with its separator: the largest log-odds moves, for any set of known records.

For targets T, known records L and separator Q, with x = x_T, x' = x_T' and l = x_L, everything is
read off one table,

    M(x, x', l) = max over x_Q of ln P(x_Q, x, l) − ln P(x_Q, x', l)

(up to a term that cancels), computed by max-sum elimination over the tables of
:mod:`quiltdp.inference.odds` and the barriers of :mod:`quiltdp.inference.support`:

    s_T(C, L) = max M(x, x', l) + M(x', x, l),      b = max M(x, x', l) − ln P(x, l) + ln P(x', l).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from quiltdp.errors import InvalidArgument, ModelTooWide
from quiltdp.inference.elimination import LogTable, best_assignment, max_out, product
from quiltdp.inference.odds import TargetOdds, factor_logs, other
from quiltdp.inference.pairs import PairMoves, at_known, both_ways, ordered_pairs
from quiltdp.inference.rays import ray_tables
from quiltdp.inference.readoff import Question, finite_or_infinite, swing_of
from quiltdp.inference.support import barriers_around
from quiltdp.inference.tables import aligned
from quiltdp.model import Model, Table

__all__ = ["Region"]

_WIDE = 2**15  # a component with a larger table is handled by rays
_STILL = 2**22  # up to here by its table after all, if the rays are too many
_RAY_LIMIT = 2**22
_EXPLICIT = 2**18  # (x, x', l) is one table up to this many entries, else eliminated as well


class _Built(NamedTuple):
    """The tables of one known set, and the components that were handled by rays, with their scopes."""

    tables: tuple[LogTable, ...]
    rays: tuple[tuple[frozenset[str], tuple[str, ...]], ...]


class Region:
    """The closed set C = targets ∪ nearby with its separator, prepared for every known set L.

    Parameters
    ----------
    model
        Where the factors come from.
    targets, nearby, separator
        T, N and Q; the separator must cut T ∪ N off from everything else.
    exact_support
        Whether values that only the rest of the model forbids are left out.  Without it every
        swing is an upper bound (and exact where tables have no zeros).
    """

    def __init__(
        self,
        model: Model,
        targets: Collection[str],
        nearby: Collection[str],
        separator: Collection[str],
        *,
        exact_support: bool = True,
        max_entries: int,
        max_support_nodes: int,
    ) -> None:
        self.model = model
        self.targets = tuple(sorted(targets))
        self.separator = tuple(sorted(separator))
        self.known_records = tuple(n for n in sorted(nearby) if model.is_record(n))
        self._limit = max_entries
        self._logs = factor_logs(model)
        closed = {*targets, *nearby}
        self._inner = dict.fromkeys(f for n in sorted(closed) for f in self._logs.near(n))
        self._check_separation(closed)
        self.exact = exact_support or not self._logs.has_zeros
        self._beyond: tuple[LogTable, ...] = ()
        if exact_support and self._logs.has_zeros:
            self._beyond, self.exact = barriers_around(
                model, closed, self.separator, max_nodes=max_support_nodes
            )
        self._built: dict[tuple[str, ...], _Built] = {}
        self._nearby = frozenset(nearby)
        self._in_full = exact_support
        self._sided = all({*separator}.issuperset(t.scope) for t in self._beyond)  # try the sides first

    @cached_property
    def _question(self) -> Question:
        return Question(
            self.model,
            self.targets,
            self._nearby,
            frozenset(self.separator),
            self.known_records,
            self._beyond,
            self._limit,
            self._in_full,
        )

    @cached_property
    def _extended(self) -> PairMoves | None:
        return self._question.together()

    @cached_property
    def _odds(self) -> TargetOdds:
        return TargetOdds(self.model, self.targets, limit=self._limit, wide_from=_WIDE)

    @cached_property
    def _walls(self) -> Mapping[int, LogTable]:
        return {f: w for f in self._inner if (w := self._logs.barrier(f)) is not None}

    def _check_separation(self, closed: Collection[str]) -> None:
        inside = {*closed, *self.separator}
        for f in self._inner:
            for n in self._logs.scope(f):
                if n not in inside:
                    raise InvalidArgument(
                        f"the separator {set(self.separator) or '{}'} does not separate"
                        f" {set(self.targets)}: {n!r} is next to the nearby nodes"
                    )

    # -- numbers -----------------------------------------------------------------------------

    def swing(self, known: Sequence[str]) -> tuple[float, float]:
        """Return s_T(C, L) and a bound on its rounding error."""
        if not self.separator or all(self.model.cardinality(n) == 1 for n in self.targets):
            return 0.0, 0.0
        if self.explicit(known):
            return swing_of(self.moves(known))
        result = self._maximum(self._doubled, known, ())
        return finite_or_infinite(float(result.array.max())), result.error

    def moves(self, known: Sequence[str]) -> PairMoves:
        """Return M(x, x', l): the axis of ordered pairs, then one axis per known record."""
        if self._sided:
            if self._extended is not None:
                array = self._extended.array[at_known(known, self.known_records)]
                return self._extended._replace(array=array)
            found = self._question.given(known)
            if found is not None:
                return found
            self._sided = False
        keep = (*self.targets, *map(other, self.targets), *known)
        result = self._maximum(self.tables, known, keep)
        shape = [self.model.cardinality(n.rstrip("\0")) for n in keep]
        full = np.broadcast_to(aligned((result.scope, result.array), keep), shape)
        states = math.prod(shape[: len(self.targets)])
        square = full.reshape(states, states, *shape[2 * len(self.targets) :])
        return PairMoves(square[ordered_pairs(states)], result.error)

    def tables(self, known: Sequence[str]) -> list[LogTable]:
        """Return the tables whose sum is maximised: the moves, and the barriers of everything else."""
        return list(self._build(tuple(known)).tables)

    def _build(self, known: tuple[str, ...]) -> _Built:
        built = self._built.get(known)
        if built is None:
            if len(self._built) > 8:
                self._built.clear()
            built = self._built[known] = self._assemble(known, frozenset())
        return built

    def _assemble(self, known: tuple[str, ...], freed: frozenset[str]) -> _Built:
        """Collect the tables; hidden nodes in ``freed`` are maximised instead of summed (an upper bound).

        Σ_k A_k / Σ_k B_k ≤ max_k A_k / B_k, so treating a hidden node as if its value could be chosen
        never makes a ratio smaller.
        """
        odds = self._odds.given({*self.separator, *known, *freed})
        walls = [w for f, w in self._walls.items() if f not in odds.used]
        tables = [*odds.moves, *walls, *self._beyond]
        rays: list[tuple[frozenset[str], tuple[str, ...]]] = []
        for k, component in enumerate(odds.wide):
            later = [f for c in odds.wide[k + 1 :] for f in self._odds.factors(c)]
            made = self._component_move(component, {*known, *freed, *_names(tables), *_names(later)})
            if made is None:
                self.exact = False
                hub = max(sorted(component), key=lambda n: len(_names(self._odds.factors((n,)))))
                return self._assemble(known, freed | {hub})
            tables += made[0]
            if made[1]:
                rays.append((component, made[0][0].scope))
        return _Built(tuple(tables), tuple(rays))

    def _component_move(
        self, component: frozenset[str], shared: Collection[str]
    ) -> tuple[Sequence[LogTable], bool] | None:
        """Return the move of a wide component, and whether by rays or by its table if that still fits."""
        rays = ray_tables(self.model).move(component, self.targets, shared, limit=_RAY_LIMIT)
        if rays is not None:
            return [rays], True
        if self._odds.width(component) <= min(_STILL, self._limit):
            return self._odds.summed(component), False
        return None

    def _maximum(
        self, build: Callable[[Sequence[str]], list[LogTable]], known: Sequence[str], keep: Collection[str]
    ) -> LogTable:
        """Maximise over everything but ``keep``; if the rest is too wide, leave its zeros out for good."""
        tables = build(known)
        gone = {n for t in tables for n in t.scope} - set(keep)
        try:
            left = max_out(tables, gone, limit=self._limit)
        except ModelTooWide:
            if not self._beyond:
                raise
            self.exact, self._beyond = False, ()
            self._built.clear()
            return self._maximum(build, known, keep)
        return product(left, limit=self._limit) if left else LogTable((), np.zeros(()))

    def explicit(self, known: Sequence[str]) -> bool:
        """Return whether (x, x', l) is small enough for one table."""
        states = math.prod(self.model.cardinality(n) for n in self.targets)
        return states * states * math.prod(self.model.cardinality(n) for n in known) <= _EXPLICIT

    def _doubled(self, known: Sequence[str]) -> list[LogTable]:
        """Return the tables of M(x, x', l; x_Q) + M(x', x, l; x_Q') with everything but T, L twice."""
        first = self.tables(known)
        shared = frozenset(known)
        second = []
        for t in first:
            scope = tuple(n if n in shared else _toggled(n) for n in t.scope)
            second.append(t._replace(scope=scope))
        return [*first, *second]

    # -- witnesses ---------------------------------------------------------------------------

    def swing_values(self, known: Sequence[str]) -> Mapping[str, int] | None:
        """Return values of x, x', l, x_Q and x_Q' (as ``other(q)``) that attain the swing, if any."""
        if not self.explicit(known):
            found = best_assignment(self._doubled(known), limit=self._limit)
            if all(found[n] == found[other(n)] for n in self.targets):
                return None
            second = {n if n in known else _toggled(n): k for n, k in found.items()}
            down = self._private(known, second)
            return {**found, **self._private(known, found), **{other(n): k for n, k in down.items()}}
        moves = self.moves(known).array
        chosen = self.chosen(known, np.concatenate([both_ways(moves)] * 2))
        if chosen is None:
            return None
        up = self.separator_values(known, chosen)
        swapped = {_toggled(n) if n.rstrip("\0") in self.targets else n: k for n, k in chosen.items()}
        down = self.separator_values(known, swapped)
        return {**chosen, **up, **{other(n): k for n, k in down.items()}}

    def separator_values(self, known: Sequence[str], chosen: Mapping[str, int]) -> Mapping[str, int]:
        """Return values of x_Q that attain M at the chosen x, x' and l."""
        fixed = [_at(t, chosen) for t in self.tables(known)]
        found = best_assignment(fixed, limit=self._limit)
        private = self._private(known, {**found, **chosen})
        return {n: private.get(n, found.get(n, 0)) for n in self.separator}

    def _private(self, known: Sequence[str], values: Mapping[str, int]) -> Mapping[str, int]:
        """Return the values of the nodes that ray tables have maximised away."""
        found: dict[str, int] = {}
        for component, scope in self._build(tuple(known)).rays:
            at = {n: values.get(n, 0) for n in scope}
            found.update(ray_tables(self.model).values(component, self.targets, at, limit=_RAY_LIMIT))
        return found

    def chosen(self, known: Sequence[str], table: Table) -> Mapping[str, int] | None:
        """Return x, x' and l at the largest entry of a table with the axes of :meth:`moves`, if any."""
        best = int(table.argmax())
        if table.flat[best] == -np.inf:
            return None
        pair, *values = np.unravel_index(best, table.shape)
        shape = tuple(self.model.cardinality(n) for n in self.targets)
        x, y = (np.unravel_index(int(side[pair]), shape) for side in ordered_pairs(math.prod(shape)))
        return {
            **{n: int(k) for n, k in zip(self.targets, x, strict=True)},
            **{other(n): int(k) for n, k in zip(self.targets, y, strict=True)},
            **{n: int(k) for n, k in zip(known, values, strict=True)},
        }


def _names(tables: Iterable[LogTable]) -> set[str]:
    return {n for t in tables for n in t.scope}


def _toggled(name: str) -> str:
    return name.rstrip("\0") if name.endswith("\0") else other(name)


def _at(table: LogTable, chosen: Mapping[str, int]) -> LogTable:
    """Return the table at the chosen values."""
    index = tuple(chosen.get(n, slice(None)) for n in table.scope)
    return LogTable(tuple(n for n in table.scope if n not in chosen), np.asarray(table.array[index]))
