"""The forward half: what a node's children, and theirs, give away about it.

All children of one height that share a table are answered in one batch: the pairs of parent values
and the values of the other parents are the same for all, only the child's own distance differs.

*Assumes*: a Bayesian network: rows exist for all values of the parents.  *Cost*: one batch of kernels per
height and distinct table: pairs of the parent's values times values of the others.  *Reference*:
docs/prior_adversary.md, forward–backward.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.bounds import Vector
from quiltdp.accountant.leakage.kernel import Array, closed_kernel
from quiltdp.accountant.leakage.ties import MOST_NODES
from quiltdp.accountant.leakage.transport import transport, uniform_transport
from quiltdp.accountant.trade_offs import DESCENDANTS_COUNTED, ROWS_AT_ONCE, ROWS_LISTED, ROWS_SOLVED
from quiltdp.inference.ancestry import Ancestry
from quiltdp.numbers import up_array
from quiltdp.work import NO_GUARD, Guard

__all__ = ["ChildKernels"]

_PAIR_BYTES = 48  # of one entry of a pair: two rows, their donors, and what is made on the way


@dataclass(frozen=True, eq=False)
class _RowPairs:
    """max_u K(P(c | x, u), P(c | x', u); ·) for one table and parent slot: its distinct pairs of rows.

    ``rows[r]`` is the pair behind ``places[r]``, the flat position of (x, x'); a table with too many
    pairs keeps none, and is answered by the largest distance.
    """

    p: Array
    q: Array
    sources: NDArray[np.intp]
    sinks: NDArray[np.intp]
    rows: NDArray[np.intp]
    places: NDArray[np.intp]
    size: int
    listed: bool = True
    solved: bool = True

    @property
    def effort(self) -> float:
        """What one answer takes, in transports of four states."""
        states = self.p.shape[1]
        return 0.0 if states <= 3 else len(self.p) * states**3 / 64.0

    def largest(self, d: Array, guard: Guard) -> Array:
        """Return max_u K for every child and (x, x'); ``d`` has axes (child, state, state)."""
        if not self.listed:
            top = d.max(axis=(1, 2), initial=0.0)
            return np.asarray(top[:, None, None] * (1.0 - np.eye(self.size)))
        result = np.zeros((len(d), self.size * self.size))
        if len(self.p):
            pairs = max(1, ROWS_AT_ONCE // self.p.shape[1] ** 2)
            children = max(1, pairs // len(self.p))
            for s in range(0, len(d), children):
                guard.check()
                value = np.concatenate(
                    [
                        self._kernel(d[s : s + children], slice(r, r + pairs), guard)
                        for r in range(0, len(self.p), pairs)
                    ],
                    axis=1,
                )
                np.maximum.at(result[s : s + children].T, self.places, value.T[self.rows])
        return result.reshape(len(d), self.size, self.size)

    def _kernel(self, d: Array, part: slice, guard: Guard) -> Array:
        guard.check()
        p, q = self.p[part], self.q[part]
        states = p.shape[1]
        if not self.solved:
            return self._ceiling(d, p, q)
        block = d[:, self.sources[part].T[:, None, :], self.sinks[part].T[None, :, :]]
        if states <= 3:
            rows = [p[None, :, k] for k in range(states)]
            columns = [q[None, :, k] for k in range(states)]
            return closed_kernel(rows, columns, np.moveaxis(block, 0, 2))
        flat = block.transpose(0, 3, 1, 2).reshape(-1, states, states)
        found = transport(np.tile(p, (len(d), 1)), np.tile(q, (len(d), 1)), flat)
        return found.reshape(len(d), -1)

    def _ceiling(self, d: Array, p: Array, q: Array) -> Array:
        """Return Λ(p, q; max d) for every child: d is 0 where nothing changes."""
        top = d.max(axis=(1, 2), initial=0.0)
        return np.array([np.minimum(uniform_transport(p, q, np.full(len(p), t)), t) for t in top])


def _row_pairs(table: Array, slot: int, guard: Guard) -> _RowPairs:
    """List the distinct pairs of rows that differ in one parent, and which (x, x') they answer."""
    rows = np.moveaxis(table, slot, 0).reshape(table.shape[slot], -1, table.shape[-1])
    size, others, states = rows.shape
    if size * size * others > ROWS_LISTED:
        none = np.zeros((0, states))
        empty = none.astype(np.intp)
        return _RowPairs(none, none, empty, empty, empty[:, 0], empty[:, 0], size, listed=False)
    distinct, which = np.unique(rows.reshape(-1, states), axis=0, return_inverse=True)
    which = which.reshape(size, others)
    x, y = np.nonzero(~np.eye(size, dtype=bool))
    first, second = which[x].ravel(), which[y].ravel()
    place = np.repeat(x * size + y, others)
    keep = first != second
    code = np.unique((first[keep] * len(distinct) + second[keep]) * size**2 + place[keep])
    pairs, index = np.unique(code // size**2, return_inverse=True)
    guard.check(planned_bytes=_PAIR_BYTES * len(pairs) * states)
    p, q = distinct[pairs // len(distinct)], distinct[pairs % len(distinct)]
    return _RowPairs(p, q, _donors(p), _donors(q), index.ravel(), code % size**2, size)


def _donors(p: Array) -> NDArray[np.intp]:
    """For every entry the state whose distances it uses: itself, or a possible one if it has no mass."""
    return np.where(p > 0, np.arange(p.shape[1]), (p > 0).argmax(axis=1)[:, None])


def _reach(tree: Ancestry) -> NDArray[np.float64]:
    """Return 1 where the second node is the first or descends from it."""
    reach = np.eye(len(tree.parents))
    for i in reversed(tree.order):
        for p in tree.parents[i]:
            np.maximum(reach[p], reach[i], out=reach[p])
    return reach


class ChildKernels:
    """The forward half of forward–backward, all α-independent work done.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp import Model
    >>> m = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.9, 0.1], [0.1, 0.9]])})
    >>> forward, _ = ChildKernels(Ancestry(m)).run(np.array([1.0, 1.0]))
    >>> forward[0].round(6).tolist()
    [[0.0, 1.776137], [1.776137, 0.0]]
    """

    def __init__(self, tree: Ancestry, guard: Guard = NO_GUARD) -> None:
        self._tree = tree
        self._pairs: dict[tuple[int, int], _RowPairs] = {}
        self._levels: list[tuple[list[int], dict[int, list[int]]]] = []
        levels: dict[int, list[int]] = defaultdict(list)
        for i in tree.order:
            levels[tree.height[i]].append(i)
            for slot in range(len(tree.parents[i])):
                key = (id(tree.tables[i]), slot)
                if key not in self._pairs:
                    guard.check()
                    self._pairs[key] = _row_pairs(tree.tables[i], slot, guard)
        self._spend()
        self._descendants = _reach(tree) if len(tree.parents) <= DESCENDANTS_COUNTED else None
        for height in sorted(levels):
            tables: dict[int, list[int]] = defaultdict(list)
            for i in levels[height]:
                if tree.parents[i]:
                    tables[id(tree.tables[i])].append(i)
            self._levels.append((levels[height], dict(tables)))

    def _spend(self) -> None:
        """Solve the cheapest tables, counted once for every child that has one; ceilings for the rest."""
        users = Counter(id(t) for t in self._tree.tables)
        cost = {key: found.effort * users[key[0]] for key, found in self._pairs.items()}
        left = ROWS_SOLVED
        for key in sorted(cost, key=cost.__getitem__):
            left -= cost[key]
            if 2 * self._pairs[key].p.shape[1] > MOST_NODES or (left < 0.0 < cost[key]):
                self._pairs[key] = replace(self._pairs[key], solved=False)

    def _below(self, alpha: Vector) -> Vector:
        """Return Σ α of every node and its descendants: no change of the node can tell more."""
        if self._descendants is None:
            return np.full(len(alpha), np.inf)
        return up_array(self._descendants @ alpha, 4.0 + len(alpha))

    def run(self, alpha: Vector, guard: Guard = NO_GUARD) -> tuple[list[Array], list[Array]]:
        """Return fw of every node and the message of every edge, rounded up."""
        tree = self._tree
        forward: list[Array] = [np.zeros((0, 0))] * len(tree.parents)
        messages: list[Array] = [np.zeros((0, 0))] * len(tree.edges)
        most = self._below(alpha)
        for nodes, tables in self._levels:
            for i in nodes:
                size = tree.tables[i].shape[-1]
                total = alpha[i] * (1.0 - np.eye(size))
                for e in tree.children[i]:
                    total = total + messages[e]
                forward[i] = up_array(total, 4.0 + len(tree.children[i]))
            for table, children in tables.items():
                distances, same = np.unique(
                    np.array([np.minimum(forward[c], most[c]) for c in children]),
                    axis=0,
                    return_inverse=True,
                )
                for slot in range(len(tree.parents[children[0]])):
                    found = self._pairs[(table, slot)].largest(distances, guard)
                    for c, k in zip(children, same.ravel(), strict=True):
                        messages[tree.edge_of[c][slot]] = found[k]
        return forward, messages
