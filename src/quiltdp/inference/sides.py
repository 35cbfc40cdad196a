"""The sides of a target: small tables of moves, made once per model and met again in other quilts.

Take the targets T out of a closed set C: the nearby nodes fall into connected *sides*.  Given T and
the separator the sides are independent, so the log-odds of T are a sum of one table per side, and one
per factor that holds a target and otherwise only separator nodes.  In the table of a side every
nearby record gets one more entry, "unobserved", the sum along its axis; so the sum of a few small
tables holds the moves of every known set L.  Where that is too much work for one table, a side is
taken for one L at a time: what is hidden is summed out, what is known is kept as it is.

The table is a product of probabilities, not of logarithms: that is exact to a few units in the
last place as long as nothing can underflow, which is checked first.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np

from quiltdp.inference.bundles import PRUNED, Bundle, Bundler
from quiltdp.inference.kept import kept_with_model
from quiltdp.inference.odds import FactorLogs, factor_logs
from quiltdp.inference.pairs import largest_moves
from quiltdp.inference.tables import extended_law
from quiltdp.model import Model, Table
from quiltdp.rounding import EPS

__all__ = ["Move", "MoveKey", "Piece", "SideTables", "side_tables"]

_RANGE = 120.0  # the logarithms of a product of tables may add up to this: e^-120 to e^120
_SMALL = 2**10  # work up to which bundling does not pay
_ROOM = 2**22  # entries of side tables kept per model (32 MiB)
_NONE: frozenset[str] = frozenset()

_Named: TypeAlias = tuple[Sequence[str], Table]
MoveKey: TypeAlias = tuple[tuple[str, ...], frozenset[str], bool]
"""Targets, nodes of the piece that are kept, and whether its records are extended or all hidden."""


class Move(NamedTuple):
    """The largest moves of a piece: axes pairs, own known records (extended), kept nodes, both sorted."""

    array: Table
    records: tuple[str, ...]
    kept: tuple[str, ...]
    size: float  # a bound on the finite entries
    error: float


class _Ready(NamedTuple):
    """A piece with its private separator nodes bundled, and the entries its move will touch."""

    factors: Sequence[int]
    bundles: Sequence[Bundle]
    work: int


class Piece:
    """A side, or (with no nodes of its own) a factor of targets and separator; with its moves so far."""

    __slots__ = ("factors", "moves", "nodes", "ready", "scope", "size", "zeros")

    def __init__(self, logs: FactorLogs, nodes: frozenset[str], factors: Iterable[int]) -> None:
        self.nodes = nodes
        self.factors = tuple(factors)
        self.scope = _NONE.union(*map(logs.scope_set, self.factors))
        self.size = sum([logs.size(f) for f in self.factors])
        self.zeros = any(map(logs.with_zeros, self.factors))
        self.ready: dict[MoveKey, _Ready | None] = {}
        self.moves: dict[MoveKey, Move] = {}


class SideTables:
    """The pieces of one model and their moves, kept for its quilts."""

    def __init__(self, logs: FactorLogs, latents: frozenset[str]) -> None:
        self.logs = logs
        self.size = logs.states
        self._latents = latents
        self._sides: dict[frozenset[str], Piece] = {}
        self._factors: dict[int, Piece] = {}
        self._around: dict[str, frozenset[str]] = {}
        self._bundler = Bundler(logs)
        self._room = _ROOM

    def around(self, node: str) -> frozenset[str]:
        """Return the node and its neighbours."""
        found = self._around.get(node)
        if found is None:
            found = frozenset((node,)).union(*map(self.logs.scope_set, self.logs.near(node)))
            self._around[node] = found
        return found

    def pieces(self, targets: Sequence[str], nearby: Collection[str]) -> list[Piece]:
        """Return the sides of the targets, and the factors that touch a target and no side."""
        found = [self._side(s) for s in self._connected(nearby)]
        used = {f for p in found for f in p.factors}
        for t in targets:
            for f in self.logs.near(t):
                if f not in used:
                    used.add(f)
                    piece = self._factors.get(f)
                    if piece is None:
                        piece = self._factors[f] = Piece(self.logs, _NONE, (f,))
                    found.append(piece)
        return found

    def move(
        self,
        piece: Piece,
        targets: tuple[str, ...],
        kept: frozenset[str],
        *,
        work: int,
        extended: bool = True,
    ) -> Move | None:
        """Return the largest ln φ(x, l, q) − ln φ(x', l, q) over the nodes neither inside nor in ``kept``.

        With ``extended`` the records of the side may be known or not; without it they are all hidden.
        None if a product of probabilities might underflow, or if it is more work than ``work`` entries.
        """
        key = (targets, kept & piece.scope, extended)
        made = piece.moves.get(key)
        if made is None:
            if key not in piece.ready:
                piece.ready[key] = self._prepared(piece, *key)
            ready = piece.ready[key]
            if ready is None or ready.work > work:
                return None
            made = self._made(piece, ready, *key)
            self.keep(piece, key, made)
        return made

    def keep(self, piece: Piece, key: MoveKey, move: Move) -> None:
        """Keep a move of a piece for other quilts."""
        self._take(move.array.size + 64)
        piece.moves[key] = move

    def records(self, piece: Piece) -> tuple[str, ...]:
        """Return the records of a side, sorted."""
        return tuple([n for n in sorted(piece.nodes) if n not in self._latents])

    def _connected(self, nodes: Collection[str]) -> Iterable[frozenset[str]]:
        """Return the connected parts of a set of nodes."""
        if len(nodes) < 2:
            return [frozenset(nodes)] if nodes else []
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
                    edge.extend(sorted(fresh))
            found.append(frozenset(part))
        return found

    def _side(self, nodes: frozenset[str]) -> Piece:
        found = self._sides.get(nodes)
        if found is None:
            self._take(64)
            factors = dict.fromkeys([f for n in sorted(nodes) for f in self.logs.near(n)])
            found = self._sides[nodes] = Piece(self.logs, nodes, factors)
        return found

    def _take(self, entries: int) -> None:
        """Count what is kept; when the room is used up, begin again with nothing."""
        self._room -= entries
        if self._room < 0:
            self._sides.clear()
            self._factors.clear()
            self._room = _ROOM

    # -- one move ----------------------------------------------------------------------------

    def _prepared(
        self, piece: Piece, targets: tuple[str, ...], kept: frozenset[str], extended: bool
    ) -> _Ready | None:
        if piece.size > _RANGE:
            return None
        work = self._work(piece, piece.scope, targets, extended)
        if work <= _SMALL or not piece.nodes:
            return _Ready(piece.factors, (), work)
        private = piece.scope.difference(piece.nodes, targets, kept)
        found = self._bundler.bundles(piece.factors, private)
        if found is None:
            return None
        factors, bundles = found
        work = self._work(piece, piece.scope - private, targets, extended)
        return _Ready(factors, bundles, work * math.prod([b.array.shape[-1] for b in bundles]))

    def _work(self, piece: Piece, scope: Iterable[str], targets: Sequence[str], extended: bool) -> int:
        """Return the entries of the table of ratios; hidden nodes are counted where they are summed."""
        entries = 1
        for n in scope:
            k = self.size(n)
            if n in targets:
                entries *= k * (k - 1) // 2
            else:
                entries *= k + 1 if extended and n in piece.nodes else k
        return entries

    def _made(
        self, piece: Piece, ready: _Ready, targets: tuple[str, ...], kept: frozenset[str], extended: bool
    ) -> Move:
        own, shared = sorted(piece.nodes), sorted(kept)
        tables: list[_Named] = [(self.logs.scope(f), self.logs.table(f)) for f in ready.factors]
        inner = piece.nodes.union(targets, kept)
        private = list(dict.fromkeys([n for scope, _ in tables for n in scope if n not in inner]))
        rays: dict[str, Table] = {}
        for k, b in enumerate(ready.bundles):
            if len(b.scope) == 1 and not extended:
                rays[b.scope[0]] = b.array
            else:
                private.append(f"\0{k}")
                tables.append(((*b.scope, private[-1]), b.array))
        records = [n for n in own if n not in self._latents] if extended else []
        hidden = [n for n in own if n not in records]
        front = (*targets, *records, *shared)
        law = _summed_law(_law(tables, (*front, *private, *hidden)), hidden, rays, len(front))
        states = tuple([self.size(n) for n in targets])
        if law.shape[: len(targets)] != states:
            law = np.broadcast_to(law, (*states, *law.shape[len(targets) :]))
        law = extended_law(law, range(len(targets), len(targets) + len(records)))
        if len(targets) > 1:
            law = law.reshape(math.prod(states), *law.shape[len(targets) :])
        array = largest_moves(law, zeros=piece.zeros)
        terms = 2 * len(piece.factors) + sum([self.size(n) + 1 for n in own])
        size = 2 * piece.size + terms
        error = EPS * (2.1 * terms + 4 + 2 * size) + PRUNED * sum([b.pruned for b in ready.bundles])
        return Move(array, tuple(records), tuple(shared), size, error)


def _law(tables: Sequence[_Named], order: Sequence[str]) -> Table:
    """Return the product of the tables with the axes in this order, length 1 where no table has one."""
    place = {n: k for k, n in enumerate(order)}
    views = []
    for scope, table in tables:
        at = [place[n] for n in scope]
        shape = [1] * len(order)
        for k, length in zip(at, table.shape, strict=True):
            shape[k] = length
        ordered = sorted(at)
        turned = table if at == ordered else table.transpose([at.index(k) for k in ordered])
        views.append(turned.reshape(shape))
    if len(views) > 2:
        views.sort(key=_entries)
    law = views[0]
    for view in views[1:]:
        law = law * view
    return law


def _entries(table: Table) -> int:
    return table.size


def _summed_law(law: Table, hidden: Sequence[str], rays: Mapping[str, Table], front: int) -> Table:
    """Sum the last axes away, one hidden node each, after multiplying with its rays; cases come last."""
    for n in reversed(hidden):
        vectors = rays.get(n)
        length = law.shape[-1]
        if vectors is None:
            law = (law.reshape(-1, length) @ _ones(length)).reshape(law.shape[:-1])
            continue
        if length == 1:
            law = law * np.add.reduce(vectors, axis=0)
        else:
            law = (law.reshape(-1, length) @ vectors).reshape(*law.shape[:-1], -1)
        law = np.moveaxis(law, -1, front)
    return law.reshape(*law.shape[:front], -1)


@lru_cache(maxsize=256)
def _ones(length: int) -> Table:
    return np.ones(length)


@kept_with_model
def side_tables(model: Model) -> SideTables:
    """Return the side tables of a model, kept with it."""
    return SideTables(factor_logs(model), frozenset(model.latents))
