"""The moves of a whole quilt, added up from its sides: all known sets at once, or one at a time.

    M(x, x', l) = max over x_Q of ln P(x_Q, x, l) − ln P(x_Q, x', l)      (up to a term that cancels)

A separator node that only one side sees has been maximised away in the side's own table
(:mod:`quiltdp.inference.sides`); those that several sides see, or that the rest of the model restricts,
stay as axes until the tables are added.  Neither L nor the joint of C ∪ Q is enumerated.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import combinations

import numpy as np

from quiltdp.inference.elimination import LogTable, max_out, product
from quiltdp.inference.odds import BIG
from quiltdp.inference.pairs import PairMoves, at_known
from quiltdp.inference.sides import Move, Piece, SideTables
from quiltdp.inference.tables import aligned
from quiltdp.model import Table
from quiltdp.rounding import EPS

__all__ = ["extended_moves", "moves_given", "subsets"]

_DIRECT = 2**15  # entries up to which the tables are simply added up, separator and all
_PAIRS = "\0pairs"
_NONE: frozenset[str] = frozenset()


def subsets(nodes: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield every subset, small ones first."""
    for size in range(len(nodes) + 1):
        yield from combinations(nodes, size)


def extended_moves(
    sides: SideTables,
    targets: tuple[str, ...],
    records: Sequence[str],
    nearby: Collection[str],
    beyond: Sequence[LogTable],
    *,
    work: int,
    alone: int,
    limit: int,
) -> PairMoves | None:
    """Return the moves of every known set, or None if that is too much work.

    Parameters
    ----------
    records
        The nearby records in sorted order: the extended axes.
    beyond
        Barriers over the separator.
    work
        The most entries to touch for one side, per known set; a side that needs more is put together
        from its known sets.
    alone
        The most entries to touch for one known set of one side.
    """
    pieces = sides.pieces(targets, nearby)
    shared = _shared(pieces, beyond, targets)
    moves = []
    for p in pieces:
        if p.scope.isdisjoint(targets):
            return None
        move = sides.move(p, targets, shared, work=work * 2 ** len(p.nodes))
        if move is None and p.nodes:
            move = _put_together(sides, p, targets, shared, alone, limit)
        if move is None:
            return None
        moves.append(move)
    return _total(sides, moves, beyond, records, sorted(shared), _NONE, limit) if moves else None


def _put_together(
    sides: SideTables, piece: Piece, targets: tuple[str, ...], shared: frozenset[str], alone: int, limit: int
) -> Move | None:
    """Return the extended move of a side from the moves of its known sets, one after the other."""
    key = (targets, shared & piece.scope, True)
    made = piece.moves.get(key)
    if made is not None:
        return made
    records, kept = sides.records(piece), tuple(sorted(key[1]))
    states = math.prod([sides.size(n) for n in targets])
    shape = (
        states * (states - 1),
        *[sides.size(n) + 1 for n in records],
        *[sides.size(n) for n in kept],
    )
    if math.prod(shape) > _DIRECT:
        return None
    array = np.empty(shape)
    error = 0.0
    for known in subsets(records):
        hidden = piece.nodes.difference(known)
        found = _given(sides, targets, known, hidden, (), key[1], piece.factors, alone, limit)
        if found is None:
            return None
        axes = sorted((*known, *kept))
        turned = found.array.transpose([0, *[1 + axes.index(n) for n in (*known, *kept)]])
        array[at_known(known, records)] = turned
        error = max(error, found.error)
    made = Move(array, records, kept, 2 * piece.size + 2 * len(piece.factors), error)
    sides.keep(piece, key, made)
    return made


def moves_given(
    sides: SideTables,
    targets: tuple[str, ...],
    known: Collection[str],
    hidden: frozenset[str],
    beyond: Sequence[LogTable],
    *,
    alone: int,
    limit: int,
) -> PairMoves | None:
    """Return the moves of one known set, or None if that is too much work.

    Also None where hidden nodes that the targets cannot reach forbid something.
    """
    near = dict.fromkeys(f for n in (*targets, *known, *hidden) for f in sides.logs.near(n))
    return _given(sides, targets, known, hidden, beyond, _NONE, near, alone, limit)


def _given(
    sides: SideTables,
    targets: tuple[str, ...],
    known: Collection[str],
    hidden: frozenset[str],
    beyond: Sequence[LogTable],
    stay: frozenset[str],
    factors: Collection[int],
    alone: int,
    limit: int,
) -> PairMoves | None:
    """Return the moves of one known set among some factors: axes pairs, then known and ``stay``, sorted."""
    pieces = [
        p
        for p in sides.pieces(targets, hidden)
        if p.factors[0] in factors and not p.scope.isdisjoint(targets)
    ]
    walls = _walls(sides, {f for p in pieces for f in p.factors}, factors, hidden)
    if walls is None or not pieces:
        return None
    walls += beyond
    fixed = stay.union(known)
    kept = _shared(pieces, walls, targets) | fixed
    moves = []
    for p in pieces:
        move = sides.move(p, targets, kept, work=alone, extended=False)
        if move is None:
            return None
        moves.append(move)
    return _total(sides, moves, walls, (), sorted(kept), fixed, limit)


def _walls(
    sides: SideTables, used: Collection[int], factors: Iterable[int], hidden: frozenset[str]
) -> list[LogTable] | None:
    """Return the barriers of factors that move nothing; None if one of them holds a hidden node."""
    found = []
    for f in factors:
        if f not in used:
            wall = sides.logs.barrier(f)
            if wall is not None:
                if not hidden.isdisjoint(wall.scope):
                    return None
                found.append(wall)
    return found


def _shared(pieces: Sequence[Piece], beyond: Sequence[LogTable], targets: Collection[str]) -> frozenset[str]:
    """Return the nodes, targets apart, that more than one table contains."""
    seen = twice = _NONE
    for p in pieces:
        twice |= seen & p.scope
        seen |= p.scope
    for t in beyond:
        twice |= seen.intersection(t.scope)
        seen |= frozenset(t.scope)
    return twice.difference(targets)


def _total(
    sides: SideTables,
    moves: Sequence[Move],
    beyond: Sequence[LogTable],
    records: Sequence[str],
    kept: Sequence[str],
    known: frozenset[str],
    limit: int,
) -> PairMoves:
    """Add up the moves and maximise over the kept nodes that are not known."""
    size = error = 0.0
    for m in moves:
        size += m.size
        error += m.error
    error += len(moves) * EPS * size
    pairs = len(moves[0].array)
    sizes = [sides.size(n) + 1 for n in records]
    if not kept:
        return PairMoves(_added(moves, records, (pairs, *sizes)), error)
    axes = (*records, *kept)
    sizes += [sides.size(n) for n in kept]
    gone = [k for k, n in enumerate(axes) if k >= len(records) and n not in known]
    walls = [_within(t, kept) for t in beyond]
    if gone and math.prod(sizes) * pairs > _DIRECT:
        array = _eliminated(moves, walls, axes, [axes[k] for k in gone], limit)
    else:
        array = _added(moves, axes, (pairs, *sizes))
        for t in walls:
            array = array + aligned((t.scope, t.array), (_PAIRS, *axes))
        if gone:
            array = np.maximum.reduce(array, axis=tuple([k + 1 for k in gone]))
    wanted = (pairs, *[n for k, n in enumerate(sizes) if k not in gone])
    if array.shape != wanted:
        array = np.broadcast_to(array, wanted)
    return PairMoves(np.minimum(array, BIG), error)


def _added(moves: Sequence[Move], axes: Sequence[str], shape: tuple[int, ...]) -> Table:
    """Return the sum of the moves; sums of ``BIG`` stay ``BIG``."""
    array = _spread(moves[0], axes, shape)
    for m in moves[1:]:
        array = array + _spread(m, axes, shape)
    if len(moves) > 1:
        array = np.minimum(array, BIG)
    return array if array.shape == shape else np.broadcast_to(array, shape)


def _spread(move: Move, axes: Sequence[str], shape: tuple[int, ...]) -> Table:
    """Return a move among more axes; its own come in the same order."""
    if move.array.shape == shape:
        return move.array
    own = (*move.records, *move.kept)
    lengths = iter(move.array.shape[1:])
    return move.array.reshape([shape[0], *[next(lengths) if n in own else 1 for n in axes]])


def _within(wall: LogTable, kept: Collection[str]) -> LogTable:
    """Return what a barrier forbids of the kept nodes; nothing else contains its other nodes."""
    gone = tuple(k for k, n in enumerate(wall.scope) if n not in kept)
    if not gone:
        return wall
    return LogTable(tuple(n for n in wall.scope if n in kept), wall.array.max(axis=gone))


def _eliminated(
    moves: Sequence[Move], walls: Sequence[LogTable], axes: Sequence[str], gone: Collection[str], limit: int
) -> Table:
    """Maximise over shared nodes one at a time, where the sum of all tables would be too large."""
    tables = [*(LogTable((_PAIRS, *m.records, *m.kept), m.array) for m in moves), *walls]
    found = product(max_out(tables, gone, limit=limit), limit=limit)
    return aligned((found.scope, found.array), [n for n in (_PAIRS, *axes) if n not in gone])
