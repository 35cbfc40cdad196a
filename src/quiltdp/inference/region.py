"""One quilt: its plan, the moves of its known sets, the values that attain them, and its influence.

With M(x, x', l) of :mod:`quiltdp.inference.moves`,

    s(C, L) = max over x, x', l of  M(x, x', l) + M(x', x, l),
    b       = max over L, x, x', l of  M(x, x', l) − ln P(x, l) + ln P(x', l).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

import numpy as np

from quiltdp.errors import InvalidArgument, InvalidModel, ModelTooWide
from quiltdp.inference.marginals import check_disjoint
from quiltdp.inference.moves import (
    BIG,
    PAIRS,
    ComponentTooWide,
    Moves,
    Piece,
    PieceMoves,
    Wanted,
    both_ways,
    ordered_pairs,
    shared_names,
)
from quiltdp.inference.plan import Limits, PlannedPart, QuiltPlan
from quiltdp.inference.tables import LogTable, aligned, best_assignment, max_out, product
from quiltdp.inference.trees import barriers_around
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Table
from quiltdp.numbers import EPS

__all__ = [
    "Assignment",
    "Attained",
    "QuiltInfluence",
    "QuiltLike",
    "Region",
    "Witness",
    "Witnesses",
]

Assignment: TypeAlias = tuple[tuple[str, str], ...]
"""Node and state name, node after node."""


class QuiltLike(Protocol):
    """Anything with the parts of a Markov quilt, such as :class:`quiltdp.Quilt`."""

    @property
    def target(self) -> str:
        """The record under attack."""
        ...

    @property
    def separator(self) -> frozenset[str]:
        """Q, which cuts the target off from the remote nodes."""
        ...

    @property
    def nearby(self) -> frozenset[str]:
        """N, the nodes on the target's side, without the target."""
        ...


@dataclass(frozen=True)
class Witness:
    """Values that attain a swing or an influence, so that anyone can check it with probabilities.

    With K = ``known``, x = ``value``, x' = ``other``, q = ``separator`` and q' = ``separator_other``::

        swing = ln [P(q|x,K) P(q'|x',K)] / [P(q|x',K) P(q'|x,K)]
        b     = ln  P(q|x,K) / P(q|x',K)                          (``separator_other`` is None)
    """

    known: Assignment
    value: Assignment
    other: Assignment
    separator: Assignment
    separator_other: Assignment | None = None


Witnesses: TypeAlias = tuple[Witness | None, Witness | None]
"""The values that attain the swing, and those that attain b."""


@dataclass(frozen=True)
class Attained:
    """Witnesses that need no looking up."""

    witnesses: Witnesses = (None, None)

    def __call__(self) -> Witnesses:
        """Return them."""
        return self.witnesses


_LATER = ("swing_by_known", "swing_of", "find")


@dataclass(frozen=True)
class QuiltInfluence:
    """How strongly the separator of one quilt tells about its target.

    Attributes
    ----------
    b
        The published influence max_L I(X_Q ⇝ X_i | X_L).
    swing
        The largest s_i(C, L) over the sets L of nearby records an adversary may know.
    swing_upper
        ``swing`` plus a bound on its rounding error: never below the true value.
    exact
        Whether b and swing are the exact values; if not, they are upper bounds.
    swing_by_known
        Entry k is the largest swing with exactly k known nearby records, rounded up.
    swing_of
        The swing for each set of known nearby records, rounded up.
    find
        Looks up the witnesses when they are first asked for.
    """

    b: float
    swing: float
    swing_upper: float
    exact: bool
    swing_by_known: tuple[float, ...]
    swing_of: Mapping[frozenset[str], float]
    find: Callable[[], Witnesses] = field(default_factory=Attained, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse NaN and numbers below zero; freeze the mapping."""
        if not (self.b >= 0 and self.swing >= 0 and self.swing_upper >= 0):
            numbers = f"b = {self.b}, swing = {self.swing}, swing_upper = {self.swing_upper}"
            raise InvalidModel(f"a quilt came out with {numbers}: each is a number ≥ 0 or ∞")
        object.__setattr__(self, "swing_of", MappingProxyType(dict(self.swing_of)))

    @classmethod
    def trusted(
        cls, b: float, swing: float, swing_upper: float, exact: bool, later: Callable[[], dict[str, Any]]
    ) -> QuiltInfluence:
        """Return the same as the constructor, for numbers that were checked with many others.

        The other fields are made by ``later`` when one of them is first asked for.
        """
        made = object.__new__(cls)
        numbers = {"b": b, "swing": swing, "swing_upper": swing_upper, "exact": exact, "_later": later}
        object.__setattr__(made, "__dict__", numbers)
        return made

    def __getattr__(self, name: str) -> Any:
        """Make the other fields of a trusted answer when one of them is first asked for."""
        later = self.__dict__.get("_later")
        if name in _LATER and later is not None:
            self.__dict__.update(later())
            del self.__dict__["_later"]
            return self.__dict__[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @cached_property
    def _witnesses(self) -> Witnesses:
        return self.find()

    @property
    def witness(self) -> Witness | None:
        """Values that attain the swing; ``None`` if no two values of the target are possible.

        Also ``None`` where the swing is only an upper bound.
        """
        return self._witnesses[0]

    @property
    def b_witness(self) -> Witness | None:
        """Values that attain b, under the same conditions."""
        return self._witnesses[1]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle through the constructor, witnesses looked up."""
        numbers = (self.b, self.swing, self.swing_upper, self.exact, self.swing_by_known)
        return (QuiltInfluence, (*numbers, dict(self.swing_of), Attained(self._witnesses)))


_EVERY, _KNOWN = slice(None), slice(-1)  # the entries of an extended axis: all, and those of a known record


class Region:
    """The closed set C = targets ∪ nearby with its separator, ready for every known set L.

    Parameters
    ----------
    workspace
        Holds the model, and what other quilts have left.
    targets, nearby, separator
        T, N and Q; the separator must cut T ∪ N off from everything else.
    limits
        Where one way gives way to the next.
    exact_support
        Whether values that only the rest of the model forbids are left out.  Without it every
        swing is an upper bound (and exact where tables have no zeros).
    moves
        Those of the workspace with these limits, if they are at hand.

    Raises
    ------
    InvalidArgument
        If the separator does not separate.
    """

    def __init__(
        self,
        workspace: Workspace,
        targets: Collection[str],
        nearby: Collection[str],
        separator: Collection[str],
        limits: Limits,
        *,
        exact_support: bool = True,
        moves: Moves | None = None,
    ) -> None:
        self.space = workspace
        self.moves = Moves(workspace, limits) if moves is None else moves
        tables = self.moves.tables
        self.targets = tuple(sorted(targets))
        self.nearby = frozenset(nearby)
        self._separator = frozenset(separator)
        self._closed = self.nearby.union(targets)
        self.limits = limits
        self._check(targets, nearby, separator)
        self.records = tuple([n for n in sorted(self.nearby) if workspace.model.is_record(n)])
        self.states = tables.entries(self.targets)
        self.exact = exact_support or not tables.has_zeros
        self._beyond: tuple[LogTable, ...] | None = None if exact_support and tables.has_zeros else ()

    @property
    def beyond(self) -> tuple[LogTable, ...]:
        """What the rest of the model forbids of the separator, looked up when it is first needed."""
        if self._beyond is None:
            self._beyond, complete = barriers_around(
                self.space, self._closed, self._separator, max_nodes=self.limits.support_nodes
            )
            self.exact = self.exact and complete
        return self._beyond

    def _check(self, targets: Collection[str], nearby: Collection[str], separator: Collection[str]) -> None:
        """Refuse unknown nodes, nodes in two parts, and a separator that does not separate."""
        closed = self._closed
        try:
            around = self.moves.tables.boundary(closed)
        except KeyError:  # an unknown node
            around = None
        if around == self._separator and len(closed) == len(targets) + len(nearby):
            return
        check_disjoint(self.space.model, targets=targets, nearby=nearby, separator=separator)
        if around is not None and not around <= self._separator:
            culprit = min(around - self._separator)
            raise InvalidArgument(
                f"the separator {set(separator) or '{}'} does not separate"
                f" {set(self.targets)}: {culprit!r} is next to the nearby nodes"
            )

    @cached_property
    def separator(self) -> tuple[str, ...]:
        """Q, sorted."""
        return tuple(sorted(self._separator))

    # -- the plan ------------------------------------------------------------------------------

    @property
    def way(self) -> str:
        """How the numbers are found: the first of the four that fits."""
        told, tables = bool(self._separator) and self.states > 1, self.moves.tables
        shared = tables.entries(self.shared) if told else 1
        known = self._pairs * tables.entries(self.records)
        return self.limits.way(told, self._extended_entries, shared, known)

    @cached_property
    def _extended_entries(self) -> int:
        """The entries of the moves of every known set."""
        states = self.moves.tables.states
        return self._pairs * math.prod([states(n) + 1 for n in self.records])

    @property
    def _pairs(self) -> int:
        return self.states * (self.states - 1)

    def explicit(self, known: Sequence[str]) -> bool:
        """Return whether the moves (x, x', l) of a known set are small enough for one table."""
        return self._pairs * self.moves.tables.entries(known) <= self.limits.explicit

    @cached_property
    def pieces(self) -> list[Piece]:
        """The pieces of every known set."""
        return self.moves.for_all_known_sets(self.targets, self.nearby, self.records)

    @cached_property
    def shared(self) -> frozenset[str]:
        """The separator nodes (and nodes beyond) that two tables of one known set contain."""
        return shared_names(self.pieces, [t.scope for t in self.beyond]).difference(self.nearby)

    @property
    def plan(self) -> QuiltPlan:
        """What will be done, before it is done."""
        tables, found = self.moves.tables, []
        for p in self.pieces:
            around = tables.boundary(p.nodes) if p.nodes else tables.scope_set(p.factors[0])
            entries = tables.entries(around)
            how = self.limits.how(bool(p.nodes), entries)
            found.append(PlannedPart(tuple(sorted(p.nodes)), tuple(sorted(around)), entries, how))
        support = "no zeros" if not tables.has_zeros else "zeros of the rest left out"
        if self.beyond or (tables.has_zeros and self.exact):
            support = f"{len(self.beyond)} barriers beyond the separator"
        return QuiltPlan(
            self.targets,
            self.records,
            self.separator,
            self.way,
            self._extended_entries,
            tuple(sorted(self.shared)),
            tuple(found),
            support,
        )

    # -- moves ---------------------------------------------------------------------------------

    @property
    def wanted(self) -> list[Wanted]:
        """The pieces whose tables the moves of every known set are a sum of."""
        stay, targets = (*self.records, *sorted(self.shared)), self.targets
        return [(p, targets, tuple([n for n in stay if n in p.names])) for p in self.pieces]

    def together(self, parts: Sequence[PieceMoves | ComponentTooWide] | None = None) -> LogTable | None:
        """Return the moves of every known set: axes pairs, then one extended axis per nearby record.

        A piece adds to the known sets it is part of: at the entries where the records next to it are
        known and those summed out in it are not.  None if a hidden component is too large for that.

        Parameters
        ----------
        parts
            The tables that are :attr:`wanted`, if they have been made with those of other quilts.
        """
        if parts is None:
            parts = self.moves.tables_of(self.wanted)
        states = self.moves.tables.states
        near = [(n, states(n)) for n in self.records]
        shared = [(n, states(n)) for n in sorted(self.shared)]
        alone = np.zeros((1,) * (1 + len(shared)))  # the sum of what no nearby record is part of
        moving: list[tuple[tuple[int | slice, ...], Table]] = []
        size = error = 0.0
        for p, made in zip(self.pieces, parts, strict=True):
            if isinstance(made, ComponentTooWide):
                return None
            table, _, exact = made
            if not exact:
                self.exact = False
            size += table.size
            error += table.error
            own = table.scope
            at: list[int | slice] = [_EVERY]
            shape = [-1]
            for n, k in near:
                if n in p.nodes:
                    at.append(-1)
                else:
                    at.append(_KNOWN if n in p.names else _EVERY)
                    shape.append(k if n in own else 1)
            shape += [k if n in own else 1 for n, k in shared]
            if near and (p.nodes or not p.names.isdisjoint(self.records)):
                moving.append((tuple(at), table.array.reshape(shape)))
            else:
                alone = alone + table.array.reshape((-1, *shape[1 + len(near) :]))
        names = (PAIRS, *[n for n, _ in shared])
        for t in self.beyond:
            wall = self.moves.largest([t], [n for n in names if n in t.scope])
            alone = alone + aligned((wall.scope, wall.array), names)
        array = np.empty([self._pairs, *[k + 1 for _, k in near], *[k for _, k in shared]])
        array[...] = alone.reshape(len(alone), *(1,) * len(near), *alone.shape[1:])
        for place, moved in moving:
            view = array[place]
            view += moved
        if shared:
            array = np.maximum.reduce(array.reshape(*array.shape[: 1 + len(near)], -1), axis=-1)
        error += (len(self.pieces) + 1) * EPS * size
        return LogTable((PAIRS, *self.records), array, size, error)

    def given(self, known: Sequence[str]) -> LogTable:
        """Return the moves of one known set: axes pairs, then one axis per known record."""
        found = self._largest([f.table for _, f in self._sum(known)], known)
        shape = (self._pairs, *map(self.moves.tables.states, known))
        full = np.broadcast_to(aligned((found.scope, found.array), (PAIRS, *known)), shape)
        return found._replace(scope=(PAIRS, *known), array=full)

    def _sum(self, known: Sequence[str]) -> list[tuple[Piece, PieceMoves]]:
        """Return the pieces of one known set with their tables."""
        fixed = frozenset(known)
        near = self.moves.tables.near_set(self._closed)
        hidden = self.nearby - fixed
        while True:
            pieces = self.moves.given(self.targets, near, hidden)
            stay = shared_names(pieces, [t.scope for t in self.beyond]) | fixed
            try:
                found = [
                    (p, self.moves.table(p, self.targets, tuple(sorted(p.names & stay)))) for p in pieces
                ]
            except ComponentTooWide as error:  # even with its hub maximised: now that of all pieces together
                hidden, self.exact = hidden - {error.hub}, False
                continue
            self.exact = self.exact and all(f.exact for _, f in found)
            return found

    def _largest(self, tables: Sequence[LogTable], keep: Sequence[str]) -> LogTable:
        """Maximise over everything but ``keep``; if the rest is too wide, leave its zeros out for good."""
        try:
            return self.moves.largest([*tables, *self.beyond], keep)
        except ModelTooWide:
            if not self.beyond:
                raise
        self.exact, self._beyond = False, ()
        return self.moves.largest(tables, keep)

    def eliminated_swing(self, known: Sequence[str]) -> tuple[float, float]:
        """Return the largest of both ways, and its error, where (x, x', l) is too large for one table."""
        if self._pairs > self.limits.entries:
            raise ModelTooWide(
                f"{len(self.targets)} nodes protected together have {self._pairs:,} pairs of values, over the"
                f" limit of {self.limits.entries:,}",
                "protect fewer of them together",
            )
        tables = self._both_ways(known)
        names = {n for t in tables for n in t.scope}
        left = max_out(tables, names, limit=self.limits.entries, guard=self.space.guard)
        found = product(left, limit=self.limits.entries)
        return float(found.array), found.error

    def _both_ways(self, known: Sequence[str]) -> list[LogTable]:
        """Return tables over (pairs x < x', l) whose sum is M(x, x', l) + M(x', x, l)."""
        tables = [*[f.table for _, f in self._sum(known)], *self.beyond]
        gone = {n for t in tables for n in t.scope}.difference(known, (PAIRS,))
        left = max_out(tables, gone, limit=self.limits.entries, guard=self.space.guard)
        return [
            t._replace(
                array=both_ways(np.moveaxis(t.array, t.scope.index(PAIRS), 0)), scope=_pairs_first(t.scope)
            )
            if PAIRS in t.scope
            else t
            for t in left
        ]

    # -- witnesses ---------------------------------------------------------------------------

    def swing_at(self, known: Sequence[str]) -> tuple[int, Mapping[str, int]] | None:
        """Return the ordered pair and the known values that attain the swing, if any is possible."""
        if self.explicit(known):
            both = both_ways(self.given(known).array)
            return self.attained(known, both)
        if self.eliminated_swing(known)[0] == -np.inf:
            return None
        found = best_assignment(self._both_ways(known), limit=self.limits.entries)
        return found[PAIRS], {n: found.get(n, 0) for n in known}

    def attained(self, known: Sequence[str], table: Table) -> tuple[int, Mapping[str, int]] | None:
        """Return the pair and the known values at the largest entry of a table, if any is possible."""
        best = int(table.argmax())
        if table.flat[best] == -np.inf:
            return None
        pair, *values = (int(k) for k in np.unravel_index(best, table.shape))
        return pair, dict(zip(known, values, strict=True))

    def reversed_pair(self, pair: int) -> int:
        """Return the same pair the other way round."""
        half = self.states * (self.states - 1) // 2
        return (pair + half) % (2 * half)

    def target_values(self, pair: int) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """Return x and x' of an ordered pair."""
        shape = [self.moves.tables.states(n) for n in self.targets]
        ends = [np.unravel_index(side[pair], shape) for side in ordered_pairs(self.states)]
        first, second = ({n: int(k) for n, k in zip(self.targets, end, strict=True)} for end in ends)
        return first, second

    def separator_values(self, known: Mapping[str, int], pair: int) -> Mapping[str, int]:
        """Return values of x_Q that attain M at an ordered pair and the known values."""
        found = self._sum(tuple(known))
        x, y = self.target_values(pair)
        tables = [t.at(known) for t in self.beyond]
        for p, f in found:
            if not p.moves:
                tables += [w.at(known) for w in self.moves.walls(p)]
            elif f.rays:
                tables.append(f.table.at({**known, PAIRS: pair}))
            else:
                tables.append(_between(self.moves.source(p).at(known), x, y))
        values = dict(best_assignment(tables, limit=self.limits.entries))
        for p, f in found:
            if f.rays:
                from quiltdp.inference.rays import RayTables

                first, second = ordered_pairs(self.states)
                ends, at = (first[pair], second[pair]), {**values, **known}
                rays = RayTables(self.space)
                values |= rays.values(p.nodes, self.targets, ends, at, limit=self.limits.component)
        return {n: values.get(n, 0) for n in self.separator}


def _between(table: LogTable, x: Mapping[str, int], y: Mapping[str, int]) -> LogTable:
    """Return the table at x less the table at x'."""
    above, below = table.at(x), table.at(y)
    return above._replace(array=np.asarray(np.minimum(above.array - np.maximum(below.array, -BIG), BIG)))


def _pairs_first(scope: Sequence[str]) -> tuple[str, ...]:
    return (PAIRS, *[n for n in scope if n != PAIRS])
