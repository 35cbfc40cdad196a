"""All known sets at once: small tables with evidence-extended axes, one per side of the target.

Take the targets T out of a closed set C: the nearby nodes fall into connected *sides*.  Given T and
the separator the sides are independent, so the log-odds of T are a sum of one table per side, and one
per factor that holds a target and otherwise only separator nodes.  In the table of a side every
nearby record gets one more entry, "unobserved", the sum along its axis; so the sum of a few small
tables holds the moves of every known set L, and neither L nor the joint of C ∪ Q is enumerated.

A side depends on its targets and its own nodes only; it is made once per model and met again in other
quilts.  Its table is a product of probabilities, not of logarithms: that is exact to a few units in the
last place as long as nothing can underflow, which is checked first.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from quiltdp.chain import ChainModel
from quiltdp.inference.bundles import PRUNED, Bundle, Bundler
from quiltdp.inference.elimination import LogTable, max_out, product
from quiltdp.inference.odds import BIG, FactorLogs, factor_logs, other
from quiltdp.inference.tables import aligned
from quiltdp.model import Model, Table
from quiltdp.rounding import EPS

__all__ = ["ExtendedMoves", "SideTables", "extended_moves", "side_tables"]

_RANGE = 120.0  # the logarithms of a product of tables may add up to this: e^-120 to e^120
_NOTHING = 1e-230  # stands in for an impossible denominator: any ratio with it is beyond _INFINITE
_INFINITE = 1e150
_ONE_PASS = 2**14  # entries up to which all pairs x, x' are divided in one go
_DIRECT = 2**14  # entries up to which the tables are simply added up, separator and all
_SMALL = 2**11  # work up to which bundling does not pay
_MANY = 2**14  # prepared sides kept per model
_ROOM = 2**22  # entries of side tables kept per model (32 MiB)

_Key: TypeAlias = tuple[tuple[str, ...], frozenset[str] | tuple[int, ...], frozenset[str]]


class ExtendedMoves(NamedTuple):
    """M(x, x', l) for every known set: axes x, x', then one extended axis per record; and its error."""

    table: Table
    error: float


class _Piece(NamedTuple):
    """A side, or (with no nodes of its own) a factor of targets and separator."""

    nodes: frozenset[str]
    factors: tuple[int, ...]
    scope: tuple[str, ...]


class _Ready(NamedTuple):
    """A piece with its private separator nodes bundled, and the entries its move will touch."""

    factors: tuple[int, ...]
    bundles: tuple[Bundle, ...]
    work: int


class SideTables:
    """The moves of sides and single factors, kept for the quilts of one model."""

    def __init__(self, logs: FactorLogs, sizes: dict[str, int], latents: frozenset[str]) -> None:
        self._logs = logs
        self.sizes = sizes
        self._latents = latents
        self._pieces: dict[frozenset[str] | int, _Piece] = {}
        self._bundler = Bundler(logs)
        self._ready: dict[_Key, _Ready | None] = {}
        self._kept: dict[_Key, LogTable] = {}
        self._room = _ROOM

    def size(self, node: str) -> int:
        """Return the number of states of a node."""
        found = self.sizes.get(node)
        if found is None:  # a step of a long chain
            f = self._logs.near(node)[0]
            found = self._logs.shape(f)[self._logs.scope(f).index(node)]
            self.sizes[node] = found
        return found

    def pieces(self, targets: Sequence[str], nearby: Collection[str]) -> list[_Piece]:
        """Return the sides of the targets, and the factors that touch a target and no side."""
        found: list[_Piece] = []
        left = set(nearby)
        while left:
            side = self._connected(min(left), left)
            left -= side
            found.append(self._piece(side))
        used = {f for p in found for f in p.factors}
        for t in targets:
            for f in self._logs.near(t):
                if f not in used:
                    used.add(f)
                    found.append(self._factor(f))
        return found

    def move(
        self, piece: _Piece, targets: tuple[str, ...], shared: frozenset[str], work: int
    ) -> LogTable | None:
        """Return the largest ln φ(x, l, q) − ln φ(x', l, q) over the separator nodes not in ``shared``.

        None if a product of probabilities might underflow, or if it is more work than ``work`` entries.
        """
        key = (targets, piece.nodes or piece.factors, shared.intersection(piece.scope))
        if key not in self._ready:
            if len(self._ready) > _MANY:
                self._ready.clear()
            self._ready[key] = self._prepared(piece, targets, shared)
        ready = self._ready[key]
        if ready is None or ready.work > work:
            return None
        made = self._kept.get(key)
        if made is None:
            made = self._made(piece, ready, targets, shared)
            size = made.array.size + 64
            if size > self._room:
                self._kept.clear()
                self._room = _ROOM
            self._kept[key] = made
            self._room -= size
        return made

    def _connected(self, start: str, within: Collection[str]) -> frozenset[str]:
        found = {start}
        reached = [start]
        for n in reached:  # grows while it is walked
            for f in self._logs.near(n):
                for m in self._logs.scope(f):
                    if m in within and m not in found:
                        found.add(m)
                        reached.append(m)
        return frozenset(found)

    def _piece(self, side: frozenset[str]) -> _Piece:
        found = self._pieces.get(side)
        if found is None:
            factors = tuple(dict.fromkeys(f for n in sorted(side) for f in self._logs.near(n)))
            scope = tuple(dict.fromkeys(n for f in factors for n in self._logs.scope(f)))
            found = self._pieces[side] = _Piece(side, factors, scope)
        return found

    def _factor(self, f: int) -> _Piece:
        found = self._pieces.get(f)
        if found is None:
            found = self._pieces[f] = _Piece(frozenset(), (f,), self._logs.scope(f))
        return found

    def _prepared(self, piece: _Piece, targets: tuple[str, ...], shared: frozenset[str]) -> _Ready | None:
        if sum(self._logs.logs(f).size for f in piece.factors) > _RANGE:
            return None
        work = self._work(piece, piece.scope, targets)
        if work <= _SMALL or not piece.nodes:
            return _Ready(piece.factors, (), work)
        private = frozenset(piece.scope).difference(piece.nodes, targets, shared)
        found = self._bundler.bundles(piece.factors, private)
        if found is None:
            return None
        factors, bundles = found
        work = self._work(piece, [n for n in piece.scope if n not in private], targets)
        return _Ready(tuple(factors), tuple(bundles), work * math.prod(b.array.shape[-1] for b in bundles))

    def _work(self, piece: _Piece, scope: Sequence[str], targets: Sequence[str]) -> int:
        entries = 1
        for n in scope:
            k = self.size(n)
            entries *= k * k if n in targets else k + 1 if n in piece.nodes else k
        return entries

    def _made(
        self, piece: _Piece, ready: _Ready, targets: tuple[str, ...], shared: frozenset[str]
    ) -> LogTable:
        inside = [n for n in piece.scope if n in targets]
        own = [n for n in piece.scope if n in piece.nodes]
        hidden = [n for n in own if n in self._latents]
        records = [n for n in own if n not in self._latents]
        outside = [n for n in piece.scope if n not in piece.nodes and n not in targets]
        rest = [*records, *(n for n in outside if n in shared)]
        tables = [(self._logs.scope(f), self._logs.table(f)) for f in ready.factors]
        covered = {n for scope, _ in tables for n in scope}
        private = [n for n in outside if n in covered and n not in shared]
        for k, b in enumerate(ready.bundles):
            private.append(f"\0{k}")
            tables.append(((*b.scope, private[-1]), b.array))
        sizes = [self.size(n) for n in rest]
        states = math.prod(self.size(n) for n in inside)
        law, first = _law(tables, inside, hidden, private, rest, states, sizes)
        for axis in range(1 + first, 1 + first + len(records)):
            law = np.concatenate([law, law.sum(axis=axis, keepdims=True)], axis=axis)
        zeros = any(self._logs.barrier(f) is not None for f in piece.factors)
        largest = _largest_ratios(law, 1 if first else -1, zeros)
        both = [self.size(n) for n in inside] * 2
        array = largest.reshape(*both, *largest.shape[2:])
        size = float(np.abs(array[np.abs(array) < BIG / 2]).max(initial=0.0)) if zeros else _size(array)
        terms = 2 * len(piece.factors) + sum(self.size(n) + 1 for n in own)
        error = EPS * (2.1 * terms + 4 + 2 * size) + PRUNED * sum(b.pruned for b in ready.bundles)
        return LogTable((*inside, *map(other, inside), *rest), array, size, error)


def _size(array: Table) -> float:
    return max(float(array.max()), -float(array.min()))


def _law(
    tables: Sequence[tuple[Sequence[str], Table]],
    inside: Sequence[str],
    hidden: Sequence[str],
    private: Sequence[str],
    rest: Sequence[str],
    states: int,
    sizes: Sequence[int],
) -> tuple[Table, bool]:
    """Return the product of the tables, hidden nodes summed out, private ones flattened to one axis.

    That axis comes second or last, whichever leaves the longer runs for a maximum along it; the second
    value says which.
    """
    length = dict(n for scope, t in tables for n in zip(scope, t.shape, strict=True))
    cases = math.prod(length[n] for n in private)
    first = math.prod(sizes) >= cases
    order = (*inside, *hidden, *(private if first else ()), *rest, *(() if first else private))
    views = sorted((aligned(t, order) for t in tables), key=lambda t: t.size)
    law = views[0]
    for t in views[1:]:
        law = law * t
    if hidden:
        law = law.sum(axis=tuple(range(len(inside), len(inside) + len(hidden))))
    return np.asarray(law.reshape(states, *((cases, *sizes) if first else (*sizes, cases)))), first


def _largest_ratios(law: Table, axis: int, zeros: bool) -> Table:
    """Return ln max p(x, ·) / p(x', ·) along an axis: −∞ if x is impossible, BIG for p/0."""
    below = np.maximum(law, _NOTHING) if zeros else law
    if law.shape[axis] == 1:
        largest = (law[:, None] / below).squeeze(axis=axis if axis < 0 else axis + 1)
    elif law.size * len(law) <= _ONE_PASS:
        largest = (law[:, None] / below).max(axis=axis if axis < 0 else axis + 1)
    else:
        largest = np.stack([(row / below).max(axis=axis) for row in law])
    if not zeros:
        return np.asarray(np.log(largest))
    with np.errstate(divide="ignore"):
        return np.where(largest > _INFINITE, BIG, np.log(largest))


_SIDES: WeakKeyDictionary[Model, SideTables] = WeakKeyDictionary()


def side_tables(model: Model) -> SideTables:
    """Return the side tables of a model, kept with it."""
    found = _SIDES.get(model)
    if found is None:
        sizes = {} if isinstance(model, ChainModel) else {n: len(s) for n, s in model.states.items()}
        found = _SIDES[model] = SideTables(factor_logs(model), sizes, frozenset(model.latents))
    return found


def extended_moves(
    sides: SideTables,
    targets: tuple[str, ...],
    records: Sequence[str],
    nearby: Collection[str],
    beyond: Sequence[LogTable],
    *,
    work: int,
    limit: int,
) -> ExtendedMoves | None:
    """Return the moves of every known set, or None if that is not the quickest way.

    Parameters
    ----------
    records
        The nearby records: the extended axes, in this order.
    beyond
        Barriers over the separator.
    work
        The most entries to touch for one side.
    """
    pieces = sides.pieces(targets, nearby)
    inside = frozenset(targets)
    count: dict[str, int] = {}
    for scope in chain((p.scope for p in pieces), (t.scope for t in beyond)):
        for n in scope:
            count[n] = count.get(n, 0) + 1
    shared = frozenset(n for n, k in count.items() if k > 1 and n not in inside)
    tables = [*beyond]
    for p in pieces:
        table = None if inside.isdisjoint(p.scope) else sides.move(p, targets, shared, work)
        if table is None:
            return None
        tables.append(table)
    if not tables:
        return None
    axes = (*targets, *map(other, targets), *records)
    own = [sides.size(n) for n in targets]
    shape = (*own, *own, *(sides.size(n) + 1 for n in records))
    total = _maximum(tables, axes, shape, sorted(shared), sides, limit)
    states = math.prod(own)
    full = total.array if total.array.shape == shape else np.broadcast_to(total.array, shape)
    moves = full.reshape(states, states, *shape[2 * len(own) :])
    return ExtendedMoves(np.minimum(moves, BIG), total.error)


def _maximum(
    tables: Sequence[LogTable],
    axes: tuple[str, ...],
    shape: Sequence[int],
    shared: Sequence[str],
    sides: SideTables,
    limit: int,
) -> LogTable:
    """Return the sum of the tables, maximised over the shared separator nodes."""
    if math.prod(shape) * math.prod(sides.size(n) for n in shared) > _DIRECT:
        left = max_out(tables, shared, limit=limit)
        found = product(left, limit=limit)
        return found._replace(array=aligned((found.scope, found.array), axes))
    scope = (*axes, *shared)
    total = aligned((tables[0].scope, tables[0].array), scope)
    size, error = tables[0].size, tables[0].error
    for t in tables[1:]:
        total = total + aligned((t.scope, t.array), scope)
        size, error = size + t.size, error + t.error
    if shared:
        total = total.max(axis=tuple(range(len(axes), len(scope))))
    return LogTable(axes, total, size, error + len(tables) * EPS * size)
