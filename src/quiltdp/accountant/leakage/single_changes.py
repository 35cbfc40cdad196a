"""Sequential coupling along single changes: the messages of a tree of whole tables.

For a separator z and a block y of it the message M_y(z, z') is kept only for states that differ in y.
Revealing the next block x needs D((z, x), (z', x')): a change of y where x = x', and of y and x otherwise,

    D = ℓ_x(x, x') + min( M_y at x, then M_x at z';  M_x at z, then M_y at x';  all that lies beyond ),

the two ways through possible states only.  Branches that hear of one of y and x are charged for that one;
only those that hear of both need a way.

*Assumes*: the theorem of :mod:`.coupling_single`.  *Cost*: linear in the entries of the junction tree:
pairs that differ in one block.  *Reference*: docs/theory.md, section 16.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.bounds import Vector
from quiltdp.accountant.leakage.kernel import SURE
from quiltdp.accountant.leakage.ties import MOST_NODES, Array
from quiltdp.accountant.leakage.transport import FARTHEST, transport, transport_of_columns
from quiltdp.accountant.trade_offs import CHANGES_AT_ONCE
from quiltdp.inference.change_tree import ChangeReveal, ChangeTree, Flags
from quiltdp.numbers import LEAST, up, up_array
from quiltdp.work import Guard

__all__ = ["SingleChanges", "largest_leakages", "plain_distances", "prices_of"]

_Kind = TypeVar("_Kind", bound=np.generic)
Message = dict[int, Array]
"""For every block of the start: axes (its value, its other value, the other blocks of the start)."""


class SingleChanges:
    """The messages of a tree at one α, each computed when a block first asks for it.

    Parameters
    ----------
    prices
        For every block ℓ(v, v'): what changing its value costs by itself.
    slack
        How far ln of a law may be from the truth.
    """

    def __init__(self, tree: ChangeTree, prices: Sequence[Array], slack: float, guard: Guard) -> None:
        self._tree, self._prices, self._slack, self._guard = tree, prices, 2.0 * slack, guard
        self._made: dict[int, Message] = {}
        self._caps: dict[int, float] = {}
        self._blocks: dict[int, Array] = {}

    @property
    def nbytes(self) -> int:
        """What all messages take, whether they are there yet or not."""
        starts = [m.possible[0].shape for m in self._tree.messages]
        return sum(8 * math.prod(shape) * sum(shape) for shape in starts)

    def of_block(self, block: int) -> Array:
        """Return what all else says about every pair of values of a block, its own price included."""
        if block not in self._blocks:
            root = self._tree.roots[block]
            for k in self._missing(root):
                self._made[k], self._caps[k] = self._read(self._tree.messages[k])
            message, _ = self._read(root)
            self._blocks[block] = up_array(message[block] + self._prices[block], 4.0)
        return self._blocks[block]

    def _missing(self, root: ChangeReveal) -> list[int]:
        """Return the messages that a reveal is made from and that are not there, in the order of the tree."""
        found: set[int] = set()
        stack = [root]
        while stack:
            fresh = [k for k, _ in stack.pop().beyond if k not in found and k not in self._made]
            found.update(fresh)
            stack.extend(self._tree.messages[k] for k in fresh)
        return sorted(found)

    def _read(self, reveal: ChangeReveal) -> tuple[Message, float]:
        """Return the message of a reveal and the most it can be."""
        self._guard.check()
        cap = up(sum(self._caps[k] for k, _ in reveal.beyond), 4.0 + len(reveal.beyond))
        level = _Branches(self, reveal)
        names = list(reveal.columns)
        ulps = 8.0 + len(reveal.beyond)
        found: Message | None = None
        while len(names) > reveal.known:
            x = names.pop()
            step = len(names) - reveal.known
            law, possible = reveal.laws[step], reveal.possible[step : step + 2]
            own = self._prices[x]
            after: Message = {}
            for y in names:
                parts = level.parts(y, x) if found is None else _whole(found, names, y, x)
                after[y] = self._changed(names, y, law, possible, parts, own, cap, ulps)
            found = after
            cap = up(cap + float(own.max(initial=0.0)), 4.0)
            ulps = 8.0
        return (level.message() if found is None else found), cap

    def _changed(
        self,
        names: Sequence[int],
        y: int,
        law: Array,
        possible: Sequence[Flags],
        parts: tuple[Array, Array, Array, Array, float],
        own: Array,
        cap: float,
        ulps: float,
    ) -> Array:
        """Return M_y before a block is revealed, from what is known after it."""
        at = names.index(y)
        size, new = law.shape[at], law.shape[-1]
        asked = np.moveaxis(possible[0], at, 0)
        rest = asked.shape[1:]
        asked = asked.reshape(size, -1)
        rows = np.moveaxis(law, (at, -1), (0, 1)).reshape(size, new, -1)
        alive = np.moveaxis(possible[1], (at, -1), (0, 1)).reshape(size, new, -1)
        alone, y_both, x_alone, x_both, most = parts
        count = asked.shape[1]
        result = np.full((size, size, count), np.inf)
        result[np.arange(size), np.arange(size)] = 0.0
        pairs = np.argwhere(~np.eye(size, dtype=bool))
        wide = max(1, CHANGES_AT_ONCE // max(1, count))
        for start in range(0, len(pairs), wide):
            p, q = pairs[start : start + wide].T
            for lo in range(0, count, CHANGES_AT_ONCE):
                part = slice(lo, lo + CHANGES_AT_ONCE)
                self._guard.check()
                batch = _Batch(
                    _columns(rows[p, :, part]),
                    _columns(rows[q, :, part]),
                    _columns(alive[p, :, part]),
                    _columns(alive[q, :, part]),
                    (asked[p, part] & asked[q, part]).ravel(),
                    alone[p, q, part].ravel(),
                    _columns(y_both[p, q, :, part]),
                    np.tile(x_alone[:, :, part], len(p)),
                    x_both[:, :, p, part].reshape(new, new, -1),
                    x_both[:, :, q, part].reshape(new, new, -1),
                )
                value = batch.solve(own, (most, cap, ulps), self._slack)
                result[p, q, part] = value.reshape(len(p), -1)
        return result.reshape(size, size, *rest)


def _columns(a: NDArray[_Kind]) -> NDArray[_Kind]:
    """Turn (pair, value, rest of the state) into (value, problem)."""
    return np.ascontiguousarray(np.swapaxes(a, 0, 1)).reshape(a.shape[1], -1)


@dataclass
class _Batch:
    """Some changes of y, from p to q, while x is revealed: one problem per entry of the last axis."""

    p: Array  # (values of x, problems): the laws of x on both sides, and what of x is possible there
    q: Array
    alive_p: Flags
    alive_q: Flags
    asked: Flags  # both states of the change are possible
    alone: Array  # what the branches that hear of y alone say
    change: Array  # those that hear of both, about y, at every x
    free: Array  # those that hear of x alone, about x
    first: Array  # those that hear of both, about x, at p
    second: Array  # and at q

    def solve(self, own: Array, limits: tuple[float, float, float], slack: float) -> Array:
        """Return the transports: 0 where nothing moves, ∞ where a state is impossible."""
        value = np.where(self.asked, 0.0, np.inf)
        moves = np.zeros(len(value), dtype=bool)
        for i in range(len(self.p)):
            told = (self.alone + self.change[i] > 0.0) & self.alive_p[i] & self.alive_q[i]
            moves |= (self.p[i] != self.q[i]) | told
            moves |= (self.p[i] > 0.0) & (self.p[i] < SURE)  # what has lost its digits may differ
        moves &= self.asked
        some = np.flatnonzero(moves)
        if len(some) > 0.7 * len(value):
            found = self._transports(own, limits)
            np.copyto(value, np.where(found > 0.0, found + slack, 0.0), where=moves)
        elif len(some):
            part = _Batch(*(getattr(self, f.name)[..., some] for f in fields(self)))
            found = part._transports(own, limits)
            value[some] = np.where(found > 0.0, found + slack, 0.0)
        return value

    def _transports(self, own: Array, limits: tuple[float, float, float]) -> Array:
        most, cap, ulps = limits
        new = len(self.p)
        d = np.empty((new, new, self.p.shape[1]))
        for i in range(new):
            for j in range(new):
                if i == j:
                    np.minimum(self.alone + self.change[i], cap, out=d[i, i])
                    continue
                way = np.minimum(self.change[i] + self.second[i, j], self.first[i, j] + self.change[j])
                np.minimum(way, most, out=way)
                way += self.alone
                way += self.free[i, j]
                np.minimum(way, cap, out=way)
                np.add(way, own[i, j], out=d[i, j])
        costs = up_array(_as_possible(d, self.alive_p, self.alive_q), ulps).reshape(new * new, -1)
        if 2 * new > MOST_NODES or costs.max() > FARTHEST:
            return transport(self.p.T, self.q.T, costs.T.reshape(-1, new, new))
        with np.errstate(divide="ignore", invalid="ignore"):  # impossible changes are not asked for
            return transport_of_columns(self.p, self.q, costs)


class _Branches:
    """What the cliques beyond one clique say about single changes of its blocks."""

    def __init__(self, sweep: SingleChanges, reveal: ChangeReveal) -> None:
        self._columns = reveal.columns
        self._sizes = {c: len(sweep._prices[c]) for c in reveal.columns}
        self._branches = [(shown, sweep._made[k], sweep._caps[k]) for k, shown in reveal.beyond]

    def _spread(self, block: int, shown: Sequence[int], table: Array, rest: Sequence[int]) -> Array:
        """Return a branch's message about a block with one axis for each of ``rest``."""
        others = [c for c in shown if c != block]
        order = [others.index(c) for c in rest if c in others]
        shape = [self._sizes[c] if c in others else 1 for c in rest]
        size = self._sizes[block]
        return np.transpose(table, [0, 1, *(2 + k for k in order)]).reshape(size, size, *shape)

    def _sum(
        self, block: int, rest: Sequence[int], *, other: int | None = None, hears: bool | None = None
    ) -> Array:
        """Return Σ of the messages about a block, of those that hear of ``other``, or that do not."""
        size = self._sizes[block]
        total = np.zeros((size, size, *(self._sizes[c] for c in rest)))
        for shown, message, _ in self._branches:
            if block in shown and (hears is None or (other in shown) == hears):
                total += self._spread(block, shown, message[block], rest)
        return total

    def parts(self, y: int, x: int) -> tuple[Array, Array, Array, Array, float]:
        """Return M_y of branches without x, with x (third axis), M_x without y, with y, and a limit."""
        rest = [c for c in self._columns if c not in (x, y)]
        size, new = self._sizes[y], self._sizes[x]
        alone = self._sum(y, rest, other=x, hears=False).reshape(size, size, -1)
        y_both = self._sum(y, [x, *rest], other=x, hears=True).reshape(size, size, new, -1)
        x_alone = self._sum(x, rest, other=y, hears=False).reshape(new, new, -1)
        x_both = self._sum(x, [y, *rest], other=y, hears=True).reshape(new, new, size, -1)
        most = sum(cap for shown, _, cap in self._branches if x in shown and y in shown)
        return alone, y_both, x_alone, x_both, up(most, 4.0 + len(self._branches))

    def message(self) -> Message:
        """Return the sums themselves: nothing is revealed here."""
        rest = {y: [c for c in self._columns if c != y] for y in self._columns}
        return {y: up_array(self._sum(y, rest[y]), 8.0 + len(self._branches)) for y in self._columns}


def _whole(found: Message, names: Sequence[int], y: int, x: int) -> tuple[Array, Array, Array, Array, float]:
    """Return the same parts where blocks beyond x have been revealed: everything may hear of both."""
    size, new = len(found[y]), len(found[x])
    y_both = np.moveaxis(found[y], -1, 2).reshape(size, size, new, -1)
    x_both = np.moveaxis(found[x], 2 + names.index(y), 2).reshape(new, new, size, -1)
    count = y_both.shape[3]
    return np.zeros((size, size, count)), y_both, np.zeros((new, new, count)), x_both, np.inf


def _as_possible(d: Array, alive_p: Flags, alive_q: Flags) -> Array:
    """Give every impossible source (sink) the costs of a possible one: it then changes nothing."""
    numbers = np.arange(len(alive_p))[:, None]
    if not alive_p.all():
        donor = np.where(alive_p, numbers, alive_p.argmax(axis=0)[None])
        d = np.take_along_axis(d, donor[:, None, :], axis=0)
    if not alive_q.all():
        donor = np.where(alive_q, numbers, alive_q.argmax(axis=0)[None])
        d = np.take_along_axis(d, donor[None, :, :], axis=1)
    return d


def largest_leakages(
    tree: ChangeTree, units: Sequence[tuple[int, Sequence[int]]], sweep: SingleChanges, slack: float
) -> Iterator[float]:
    """Yield the leakage of every unit (its block, and the columns of the block that it is)."""
    tables: dict[int, Array] = {}
    for block, columns in units:
        if block not in tables:
            tables[block] = sweep.of_block(block)
        values = tree.blocks.blocks[block].values
        table = tables[block]
        _, label = np.unique(values[:, list(columns)], axis=0, return_inverse=True)
        label = label.ravel()
        count = int(label.max()) + 1
        if count < 2:
            yield 0.0
            continue
        if count == len(values):
            yield up(float(table[~np.eye(count, dtype=bool)].max()))
            continue
        inside = np.where(label == np.arange(count)[:, None], tree.log_marginals[block], -np.inf)
        weight = np.exp(inside - inside.max(axis=1, keepdims=True))
        weight = np.where(inside > -np.inf, np.maximum(weight, LEAST), 0.0)
        law = weight / weight.sum(axis=1, keepdims=True)
        first, second = np.nonzero(~np.eye(count, dtype=bool))
        wide = np.broadcast_to(table, (len(first), *table.shape))
        yield up(float(transport(law[first], law[second], wide).max()) + 2.0 * slack)


def prices_of(tree: ChangeTree, distances: Sequence[Array], index: dict[str, int]) -> list[Array]:
    """Return ℓ of every block: Σ over its nodes of their distances (one table per node of the model)."""
    found = []
    for block in tree.blocks.blocks:
        total = np.zeros((len(block.values),) * 2)
        for column, n in enumerate(block.nodes):
            x = block.values[:, column]
            total += distances[index[n]][x[:, None], x[None, :]]
        found.append(up_array(total, 4.0 + len(block.nodes)))
    return found


def plain_distances(sizes: Sequence[int], alpha: Vector) -> list[Array]:
    """Return α_j·1[x ≠ x'] of every node."""
    return [float(a) * (1.0 - np.eye(k)) for k, a in zip(sizes, alpha, strict=True)]
