"""The moves of a quilt: how far its separator shifts the log-odds of two values of the targets.

For targets T, known records L and separator Q, with x = x_T, x' = x_T' and l = x_L,

    M(x, x', l) = max over x_Q of ln P(x_Q, x, l) − ln P(x_Q, x', l)      (up to a term that cancels).

Observe L and Q.  The hidden nodes fall into connected components, and the log-odds of T are a sum of a
few small tables (:class:`Piece`): the factors that contain a target and otherwise only observed nodes, and
each component next to a target, summed out given its boundary.  What is next to no target cancels, except
that it may forbid something.  Nothing beyond Q is touched, except for what it forbids
(:mod:`quiltdp.inference.trees`).

The first axis of a table of moves is that of the *ordered pairs* of joint states of T: first the pairs
x < x', then the same pairs the other way round.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple, TypeAlias

import numpy as np

from quiltdp.errors import ModelTooWide
from quiltdp.inference.laws import summed_law
from quiltdp.inference.plan import (
    BY_RAYS,
    CACHED_ENTRIES,
    DIFFERENCES_AT_ONCE,
    HUB_MAXIMISED,
    MANY_PIECES,
    MOVE_BYTES,
    RANGE,
    Limits,
)
from quiltdp.inference.tables import (
    LogTable,
    aligned,
    factor_tables,
    make_room,
    max_out,
    product,
    sum_out,
)
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Table
from quiltdp.numbers import EPS

__all__ = [
    "BIG",
    "PAIRS",
    "ComponentTooWide",
    "Moves",
    "Piece",
    "PieceMoves",
    "Source",
    "Wanted",
    "both_ways",
    "finite",
    "moved",
    "moved_all",
    "ordered_pairs",
    "pair_odds",
    "shared_names",
    "subsets",
]

BIG = 1e150
"""Stands for +∞ inside sums, so that +∞ and −∞ never meet: −∞ (impossible) always wins."""

PAIRS = "\0pairs"
"""The name of the axis of ordered pairs."""


_NONE: frozenset[str] = frozenset()


def subsets(nodes: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield every subset, small ones first."""
    for size in range(len(nodes) + 1):
        yield from combinations(nodes, size)


def ordered_pairs(states: int) -> tuple[list[int], list[int]]:
    """Return x and x' of the pairs x < x', then of the same pairs the other way round.

    Examples
    --------
    >>> ordered_pairs(3)
    ([0, 0, 1, 1, 2, 2], [1, 2, 2, 0, 0, 1])
    """
    pairs = list(combinations(range(states), 2))
    first, second = [x for x, _ in pairs], [y for _, y in pairs]
    return first + second, second + first


def both_ways(moves: Table) -> Table:
    """Return M(x, x', ·) + M(x', x, ·) for the pairs x < x'."""
    half = len(moves) // 2
    return np.asarray(moves[:half] + moves[half:])


def finite(best: float) -> float:
    """Return a largest entry as a number: 0 if nothing is possible, ∞ if it stands for ∞."""
    return math.inf if best >= BIG / 2 else max(best, 0.0)


def pair_odds(logs: Table, axis: int = 0) -> Table:
    """Return ln P(x, l) − ln P(x', l) for all ordered pairs x ≠ x' on the axis of x.

    +∞ where x or x' is impossible with l: taken off a move, that leaves −∞.
    """
    first, second = ordered_pairs(logs.shape[axis])
    with np.errstate(invalid="ignore"):
        odds = logs.take(first, axis=axis) - logs.take(second, axis=axis)
    if not np.isfinite(odds).all():
        odds[~np.isfinite(odds)] = np.inf
    return np.asarray(odds)


class Source(NamedTuple):
    """A table whose moves are wanted, and the nodes that stay."""

    table: LogTable
    targets: tuple[str, ...]
    shape: Sequence[int]  # the number of states of every target
    kept: Sequence[str]
    zeros: bool = False


def moved(source: Source) -> LogTable:
    """Return the moves of one table: :func:`moved_all`."""
    (found,) = moved_all([source])
    return found


def moved_all(sources: Sequence[Source]) -> list[LogTable]:
    """Return the largest ln φ(x, ·) − ln φ(x', ·) over the nodes neither in T nor kept: axes pairs, kept.

    Targets that a table lacks do not move it.  With ``zeros`` an impossible numerator is −∞, a possible
    numerator over an impossible denominator is ``BIG``.  Tables with as many states of the targets and of
    the nodes that go are one array: target, what stays, what goes.
    """
    alike: dict[tuple[int, int, bool], list[tuple[int, Table]]] = {}
    for k, (table, targets, shape, kept, zeros) in enumerate(sources):
        array, names = table.array, table.scope
        if len(targets) == 1:
            axis = names.index(targets[0])
            own = [axis, *[names.index(n) for n in kept]]
            order = own + [j for j in range(array.ndim) if j not in own]
            states = array.shape[axis]
            array = array.transpose(order)
        else:
            array, names = _joint_states_first(table, targets, shape)
            own = [0, *[1 + names.index(n) for n in kept]]
            array = array.transpose(own + [j for j in range(array.ndim) if j not in own])
            states = len(array)
        stay = math.prod(array.shape[1 : len(own)])
        gone = array.size // (states * stay)
        alike.setdefault((states, gone, zeros), []).append((k, array.reshape(states, stay, gone)))
    found: list[LogTable] = [sources[0].table] * len(sources)
    for (states, gone, zeros), group in alike.items():
        for part in _in_blocks(group, states * gone):
            arrays = [a for _, a in part]
            array = arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=1)
            made = _moves_with_zeros(array) if zeros and array.min() == -np.inf else _moves(array)
            begin = 0
            for k, a in part:
                table, _, _, kept, _ = sources[k]
                end = begin + a.shape[1]
                sizes = [table.array.shape[table.scope.index(n)] for n in kept]
                own_moves = made[:, begin:end].reshape(-1, *sizes)
                error = 2 * table.error + 2 * table.size * EPS
                found[k] = LogTable((PAIRS, *kept), own_moves, 2 * table.size, error)
                begin = end
    return found


def _in_blocks(group: list[tuple[int, Table]], row: int) -> Iterator[list[tuple[int, Table]]]:
    """Yield some tables at a time, so many that the processor's cache holds them."""
    if len(group) * row * group[0][1].shape[1] <= CACHED_ENTRIES // 4:
        yield group
        return
    block: list[tuple[int, Table]] = []
    entries = 0
    for k, array in group:
        if block and entries + array.size > CACHED_ENTRIES:
            yield block
            block, entries = [], 0
        block.append((k, array))
        entries += array.size
    yield block


def _moves(array: Table) -> Table:
    """Return the largest differences of two states (the first axis) over the last axis."""
    if len(array) == 2:
        ratio = array[0] - array[1]
        if ratio.shape[1] == 1:
            return np.stack([ratio[:, 0], -ratio[:, 0]])
        return np.stack([np.maximum.reduce(ratio, axis=1), -np.minimum.reduce(ratio, axis=1)])
    step = max(1, DIFFERENCES_AT_ONCE // max(1, array[0].size))
    up, down = [], []
    for x in range(len(array) - 1):
        for y in range(x + 1, len(array), step):
            ratio = array[x] - array[y : y + step]
            up.append(np.maximum.reduce(ratio, axis=2))
            down.append(-np.minimum.reduce(ratio, axis=2))
    return np.concatenate(up + down)


def _moves_with_zeros(array: Table) -> Table:
    """Return the same where some entries are −∞."""
    below = np.maximum(array, -BIG)
    step = max(1, DIFFERENCES_AT_ONCE // max(1, array[0].size))
    up, down = [], []
    for x in range(len(array) - 1):
        for y in range(x + 1, len(array), step):
            up.append(np.maximum.reduce(array[x] - below[y : y + step], axis=2))
            down.append(np.maximum.reduce(array[y : y + step] - below[x], axis=2))
    return np.asarray(np.minimum(np.concatenate(up + down), BIG))


def _joint_states_first(
    table: LogTable, targets: Sequence[str], shape: Sequence[int]
) -> tuple[Table, tuple[str, ...]]:
    """Return the table with one axis for the joint states of the targets, then its other nodes."""
    own = [table.scope.index(n) for n in targets if n in table.scope]
    rest = [k for k in range(len(table.scope)) if k not in own]
    array = table.array.transpose([*own, *rest])
    array = array.reshape(-1, *[table.array.shape[k] for k in rest])
    if len(own) < len(targets):  # every joint state in full
        inner = [n if t in table.scope else 1 for t, n in zip(targets, shape, strict=True)]
        array = array[np.broadcast_to(np.arange(len(array)).reshape(inner), shape).ravel()]
    return array, tuple([table.scope[k] for k in rest])


class Piece(NamedTuple):
    """A table of the sum: one factor, or hidden nodes summed out of their factors."""

    nodes: frozenset[str]  # summed out; none for a factor
    factors: tuple[int, ...]
    names: frozenset[str]  # of its axes, targets apart
    moves: bool  # whether it is next to a target; if not, it matters only through its zeros
    forbids: bool  # whether it has any


class PieceMoves(NamedTuple):
    """The table of a piece, its nodes that nobody else contains maximised away."""

    table: LogTable
    rays: bool = False  # found by rays: there is no table of the piece with all its nodes
    exact: bool = True


_UNKNOWN = PieceMoves(LogTable((), np.zeros(())))  # stands where moves will be put

Wanted: TypeAlias = "tuple[Piece, tuple[str, ...], tuple[str, ...]]"
"""A piece, the targets, and the nodes that stay, in the order of their axes."""


class ComponentTooWide(ModelTooWide):
    """A hidden component whose moves are too large for a table even with its hub maximised."""

    def __init__(self, hub: str) -> None:
        super().__init__(f"the hidden nodes around {hub!r} need too large a table")
        self.hub = hub


class Moves:
    """The pieces of a model's quilts and their moves, kept in its workspace for the other quilts."""

    def __init__(self, workspace: Workspace, limits: Limits) -> None:
        self.space = workspace
        self.limits = limits
        self.tables = factor_tables(workspace)
        self._ways = (limits.entries, limits.direct, limits.component, limits.rays, limits.rays_from)

    # -- pieces ------------------------------------------------------------------------------

    def given(self, targets: tuple[str, ...], factors: Iterable[int], hidden: frozenset[str]) -> list[Piece]:
        """Return the pieces of some factors with these nodes hidden and all others observed."""
        found = [self.piece(c, targets) for c in self.tables.components(hidden)]
        found += [self.piece(f, targets) for f in factors if hidden.isdisjoint(self.tables.scope_set(f))]
        return [p for p in found if p.moves or p.forbids]

    def for_all_known_sets(
        self, targets: tuple[str, ...], nearby: frozenset[str], records: Collection[str]
    ) -> list[Piece]:
        """Return every piece that some set of known records gives rise to.

        A factor is there when its nearby nodes are known; connected nearby nodes are a component when they
        are hidden and the nearby nodes around them known.
        """
        tables = self.tables
        found = list(self._near(targets))
        if tables.has_zeros:
            walls = dict.fromkeys([f for n in sorted(nearby) for f in tables.near_with_zeros(n)])
            found += [p for f in walls if not (p := self.piece(f, targets)).moves]
        found += [self.piece(c, targets) for c in tables.connected_subsets(nearby)]
        if len(records) < len(nearby):
            latent = nearby.difference(records)
            found = [p for p in found if latent.isdisjoint(p.names)]
        return [p for p in found if p.moves or p.forbids]

    def _near(self, targets: tuple[str, ...]) -> list[Piece]:
        """Return the pieces of the factors that contain a target."""
        found: list[Piece] | None = self.tables.pieces.get(targets)
        if found is None:
            near = self.tables.near_any(targets)
            found = [self.piece(f, targets) for f in near]
            self.tables.pieces[targets] = found
        return found

    def piece(self, part: int | frozenset[str], targets: tuple[str, ...]) -> Piece:
        """Return the piece of one factor, or of hidden nodes."""
        tables = self.tables
        found: Piece | None = tables.pieces.get((part, targets))
        if found is None:
            make_room(tables.pieces)
            nodes = _NONE if isinstance(part, int) else part
            factors = (part,) if isinstance(part, int) else tables.near_set(part)
            around = tables.scope_set(part) if isinstance(part, int) else tables.boundary(part)
            names = around.difference(targets)
            forbids = tables.has_zeros and any(map(tables.with_zeros, factors))
            found = tables.pieces[part, targets] = Piece(
                nodes, factors, names, len(names) < len(around), forbids
            )
        return found

    # -- their tables ------------------------------------------------------------------------

    def table(self, piece: Piece, targets: tuple[str, ...], kept: tuple[str, ...]) -> PieceMoves:
        """Return the largest moves of a piece over the nodes that are not kept: axes pairs, kept.

        For a piece that does not move, what it forbids.  A component whose table is too large has its hub
        maximised instead of summed: Σ_k A_k / Σ_k B_k ≤ max_k A_k / B_k, so treating a hidden node as if
        its value could be chosen never makes a ratio smaller.
        """
        (found,) = self.tables_of([(piece, targets, kept)])
        if isinstance(found, ComponentTooWide):
            raise found
        return found

    def tables_of(self, wanted: Sequence[Wanted]) -> list[PieceMoves | ComponentTooWide]:
        """Return :meth:`table` of many pieces, made together, or why one cannot be had."""
        found: list[PieceMoves | ComponentTooWide] = []
        sources: list[Source] = []
        later: list[tuple[int, Hashable]] = []
        for piece, targets, kept in wanted:
            key = (piece.nodes or piece.factors, targets if piece.moves else (), kept, self._ways)
            made = self.space.kept("move", key)
            if made is None:
                made = self._compute(piece, targets, kept)
                if isinstance(made, Source):
                    sources.append(made)
                    later.append((len(found), key))
                    made = _UNKNOWN
                elif isinstance(made, PieceMoves):
                    self._keep(key, made)
            found.append(made)
        if sources:
            for (place, own), table in zip(later, moved_all(sources), strict=True):
                found[place] = self._keep(own, PieceMoves(table))
        return found

    def _keep(self, key: Hashable, made: PieceMoves) -> PieceMoves:
        return self.space.keep("move", key, lambda: made, _moves_bytes)

    def _compute(
        self, piece: Piece, targets: tuple[str, ...], kept: tuple[str, ...]
    ) -> PieceMoves | Source | ComponentTooWide:
        """Return the moves of a piece, or the table to take them from."""
        tables, limits = self.tables, self.limits
        if not piece.moves:
            return PieceMoves(self.largest(self.walls(piece), kept))
        entries = tables.entries(tables.boundary(piece.nodes)) if piece.nodes else 0
        how = limits.how(bool(piece.nodes), entries)
        if how == BY_RAYS:
            from quiltdp.inference.rays import RayTables

            by_rays = RayTables(self.space).move(
                piece.nodes, targets, frozenset(kept), limit=limits.component
            )
            if by_rays is not None:
                scope = tuple([n for n in (PAIRS, *kept) if n in by_rays.scope])
                array = aligned((by_rays.scope, by_rays.array), scope)
                return PieceMoves(by_rays._replace(scope=scope, array=array), rays=True)
            how = replace(limits, rays=False).how(True, entries)
        source = None
        if how != HUB_MAXIMISED:
            with suppress(ModelTooWide):
                source = self.source(piece)
        if source is not None:
            shape = [tables.states(n) for n in targets]
            pairs = math.prod(shape) * (math.prod(shape) - 1)
            self.space.guard.check(planned_bytes=MOVE_BYTES * pairs * tables.entries(kept))
            return Source(source, targets, shape, kept, piece.forbids)
        try:
            return self._hub_maximised(piece, targets, kept)
        except ComponentTooWide as error:
            return error

    def walls(self, piece: Piece) -> list[LogTable]:
        """Return what the factors of a piece forbid."""
        return [w for f in piece.factors if (w := self.tables.barrier(f)) is not None]

    def source(self, piece: Piece) -> LogTable:
        """Return the table of a piece over all its nodes."""
        if not piece.nodes:
            return self.tables.logs(piece.factors[0])
        return self.summed(piece.nodes, piece.factors)

    def _hub_maximised(self, piece: Piece, targets: tuple[str, ...], kept: tuple[str, ...]) -> PieceMoves:
        """Return an upper bound on the move of a component: its hub is observed, and the worst is taken."""
        hub = max(sorted(piece.nodes), key=lambda n: len(self.tables.around(n)))
        pieces = self.given(targets, piece.factors, piece.nodes - {hub})
        shared = shared_names(pieces)
        try:
            tables = [
                self.table(p, targets, tuple(sorted(p.names & shared.union(kept)))).table for p in pieces
            ]
            return PieceMoves(self.largest(tables, kept), exact=False)
        except ModelTooWide as error:
            raise ComponentTooWide(hub) from error

    def summed(self, nodes: frozenset[str], factors: tuple[int, ...]) -> LogTable:
        """Return hidden nodes summed out of their factors; the same for every target."""

        def make() -> LogTable:
            tables, limit, guard = self.tables, self.limits.entries, self.space.guard
            logs = [tables.logs(f) for f in factors]
            if sum([t.size for t in logs]) > RANGE:
                return product(sum_out(logs, nodes, limit=limit, guard=guard), limit=limit)
            laws = [t._replace(array=tables.table(f), error=0.0) for f, t in zip(factors, logs, strict=True)]
            return _logs(summed_law(laws, nodes, limit=limit, guard=guard))

        key = (nodes, factors, self.limits.entries)
        return self.space.keep("component", key, make, _bytes)

    def largest(self, tables: Sequence[LogTable], keep: Sequence[str]) -> LogTable:
        """Return the sum of the tables, maximised over everything but pairs and ``keep``, in that order."""
        if len(tables) == 1 and tables[0].scope == (PAIRS, *keep):
            return tables[0]
        sizes: dict[str, int] = {}
        size = error = 0.0
        for t in tables:
            sizes.update(zip(t.scope, t.array.shape, strict=True))
            size += t.size
            error += t.error
        error += len(tables) * EPS * size
        stay = [n for n in (PAIRS, *keep) if n in sizes]
        gone = [n for n in sizes if n not in stay]
        if gone and math.prod(sizes.values()) > self.limits.direct:
            limit = self.limits.entries
            found = product(max_out(tables, gone, limit=limit, guard=self.space.guard), limit=limit)
            error = found.error + len(tables) * EPS * size
            return LogTable(tuple(stay), aligned((found.scope, found.array), stay), size, error)
        order = (*stay, *gone)
        total = np.zeros(()) if not tables else aligned((tables[0].scope, tables[0].array), order)
        for t in tables[1:]:
            total = total + aligned((t.scope, t.array), order)
        if gone:
            total = np.maximum.reduce(total, axis=tuple(range(len(stay), len(order))))
        return LogTable(tuple(stay), total, size, error)


def shared_names(pieces: Sequence[Piece], others: Iterable[Collection[str]] = ()) -> frozenset[str]:
    """Return the nodes that two pieces of one sum contain, or a piece and another table."""
    seen = twice = _NONE
    for p in pieces:
        twice |= seen & p.names
        seen |= p.names
    if twice:
        twice = _met_together(pieces, twice)
    for names in others:
        twice |= seen.intersection(names)
        seen = seen.union(names)
    return twice


def _met_together(pieces: Sequence[Piece], names: frozenset[str]) -> frozenset[str]:
    """Return those names that two pieces contain which can be there at the same time.

    With very many pieces all names are taken: more axes than needed, the same numbers.
    """
    if len(pieces) > MANY_PIECES:
        return names
    found = _NONE
    for one, two in combinations(pieces, 2):
        both = one.names & two.names & names
        if both and both - found:
            apart = one.nodes.isdisjoint(two.nodes) and one.nodes.isdisjoint(two.names)
            if apart and two.nodes.isdisjoint(one.names):
                found |= both
    return found


def _logs(law: LogTable) -> LogTable:
    """Return the logarithms of a table of probabilities, whose error is relative."""
    with np.errstate(divide="ignore"):
        array = np.log(law.array)
    return LogTable(law.scope, array, law.size, law.error + EPS * (1 + law.size))


def _bytes(table: LogTable) -> int:
    return int(table.array.nbytes) + 512


def _moves_bytes(found: PieceMoves) -> int:
    return _bytes(found.table)
