"""Sequential coupling along single changes: the messages of a tree of whole tables.

For a separator z and a block y of it the message M_y(z, z') is kept only for states that differ in y.
Revealing the next block x needs D((z, x), (z', x')): a change of y where x = x', and of y and x otherwise,

    D = ℓ_x(x, x') + min( M_y at x, then M_x at z';  M_x at z, then M_y at x';  all that lies beyond ),

the two ways through possible states only.  Branches that hear of one of y and x are charged for that one;
only those that hear of both need a way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from quiltdp.accountant.bounds import Vector
from quiltdp.accountant.leakage.ties import MOST_NODES, Array
from quiltdp.accountant.leakage.transport import FARTHEST, transport, transport_of_columns
from quiltdp.inference.change_tree import ChangeReveal, ChangeTree
from quiltdp.rounding import up, up_array
from quiltdp.work import Guard

__all__ = ["SingleChanges", "largest_leakages", "plain_distances", "prices_of"]

_BLOCK = 2**17  # changes looked at together
Message = dict[int, Array]
"""For every block of the start: axes (its value, its other value, the other blocks of the start)."""


class SingleChanges:
    """One evaluation of all messages of a tree.

    Parameters
    ----------
    prices
        For every block ℓ(v, v'): what changing its value costs by itself.
    slack
        How far ln of a law may be from the truth.
    """

    def __init__(self, tree: ChangeTree, prices: Sequence[Array], slack: float, guard: Guard) -> None:
        self._tree, self._prices, self._slack, self._guard = tree, prices, 2.0 * slack, guard
        self._made: list[Message] = []
        self._caps: list[float] = []
        for reveal in tree.messages:
            message, cap = self._read(reveal)
            self._made.append(message)
            self._caps.append(cap)

    def of_block(self, block: int) -> Array:
        """Return what all else says about every pair of values of a block, its own price included."""
        message, _ = self._read(self._tree.roots[block])
        return up_array(message[block] + self._prices[block], 4.0)

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
        possible: Sequence[Array],
        parts: tuple[Array, Array, Array, Array, float],
        own: Array,
        cap: float,
        ulps: float,
    ) -> Array:
        """Return M_y before a block is revealed, from what is known after it."""
        at = names.index(y)
        before, after = (np.moveaxis(p, at, 0) for p in possible)
        size, new = before.shape[0], law.shape[-1]
        rest = before.shape[1:]
        before, after = before.reshape(size, -1), after.reshape(size, -1, new)
        rows = np.moveaxis(law, at, 0).reshape(size, -1, new)
        alone, y_both, x_alone, x_both, most = parts
        count = before.shape[1]
        result = np.full((size, size, count), np.inf)
        result[np.arange(size), np.arange(size)] = 0.0
        pairs = np.argwhere(~np.eye(size, dtype=bool))
        wide = max(1, _BLOCK // max(1, count))
        for start in range(0, len(pairs), wide):
            p, q = pairs[start : start + wide].T
            for lo in range(0, count, _BLOCK):
                part = slice(lo, lo + _BLOCK)
                self._guard.check()
                value = self._solved(
                    (rows[p, part], rows[q, part]),
                    (after[p, part], after[q, part]),
                    before[p, part] & before[q, part],
                    alone[p, q, part],
                    y_both[p, q, part],
                    x_alone[:, :, part],
                    (x_both[:, :, p, part], x_both[:, :, q, part]),
                    own,
                    (most, cap, ulps),
                )
                result[p, q, part] = value
        return result.reshape(size, size, *rest)

    def _solved(
        self,
        rows: tuple[Array, Array],
        possible: tuple[Array, Array],
        asked: Array,
        alone: Array,
        y_both: Array,
        x_alone: Array,
        x_both: tuple[Array, Array],
        own: Array,
        limits: tuple[float, float, float],
    ) -> Array:
        """Solve the transports of one batch of pairs; axes (pair, rest of the state), then the new block."""
        most, cap, ulps = limits
        stay = alone[..., None] + y_both
        both = possible[0] & possible[1]
        moves = (rows[0] != rows[1]).any(axis=-1) | ((stay > 0.0) & both).any(axis=-1)
        value = np.where(asked, 0.0, np.inf)
        k, r = np.nonzero(asked & moves)
        if not len(k):
            return value
        p, q = rows[0][k, r].T, rows[1][k, r].T
        alive_p, alive_q = possible[0][k, r].T, possible[1][k, r].T
        base, stay, change = alone[k, r], stay[k, r].T, y_both[k, r].T
        first, second = x_both[0][:, :, k, r], x_both[1][:, :, k, r]
        free = x_alone[:, :, r]
        new = len(p)
        d = np.empty((new, new, len(k)))
        for i in range(new):
            for j in range(new):
                if i == j:
                    d[i, i] = np.minimum(stay[i], cap)
                else:
                    way = np.minimum(change[i] + second[i, j], first[i, j] + change[j])
                    way = base + free[i, j] + np.minimum(way, most)
                    d[i, j] = own[i, j] + np.minimum(way, cap)
        d = up_array(_as_possible(d, alive_p, alive_q), ulps).reshape(new * new, -1)
        p, q = np.ascontiguousarray(p), np.ascontiguousarray(q)
        if 2 * new > MOST_NODES or d.max() > FARTHEST:
            found = transport(p.T, q.T, d.T.reshape(-1, new, new))
        else:
            found = transport_of_columns(p, q, d)
        value[k, r] = np.where(found > 0.0, found + self._slack, 0.0)
        return value


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
        """Return M_y of branches without x, with x (last axis), M_x without y, with y, and a limit."""
        rest = [c for c in self._columns if c not in (x, y)]
        size, new = self._sizes[y], self._sizes[x]
        alone = self._sum(y, rest, other=x, hears=False).reshape(size, size, -1)
        y_both = self._sum(y, [*rest, x], other=x, hears=True).reshape(size, size, -1, new)
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
    y_both = found[y].reshape(size, size, -1, new)
    x_both = np.moveaxis(found[x], 2 + names.index(y), 2).reshape(new, new, size, -1)
    count = y_both.shape[2]
    return np.zeros((size, size, count)), y_both, np.zeros((new, new, count)), x_both, np.inf


def _as_possible(d: Array, alive_p: Array, alive_q: Array) -> Array:
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
