"""The forward half: what a node's children, and theirs, give away about it.

All children of one height that share a table are answered in one batch: the pairs of parent values
and the values of the other parents are the same for all, only the child's own distance differs.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.leakage.base import Vector
from quiltdp.accountant.leakage.kernel import Array, closed_kernel, kernel
from quiltdp.inference.ancestry import Ancestry
from quiltdp.rounding import up_array

__all__ = ["ChildKernels"]

_CHUNK = 1 << 18


@dataclass(frozen=True, eq=False)
class _Questions:
    """max_u K(P(c | x, u), P(c | x', u); ·) for one table and parent slot: its distinct pairs of rows."""

    p: Array
    q: Array
    sources: NDArray[np.intp]
    sinks: NDArray[np.intp]
    answers: NDArray[np.intp]
    size: int

    def ask(self, d: Array) -> Array:
        """Return max_u K for every child and pair; ``d`` has axes (child, state, state)."""
        result = np.zeros((len(d), self.size * self.size))
        if len(self.p):
            states = self.p.shape[1]
            step = max(1, _CHUNK // max(1, len(self.p) * states * states))
            for s in range(0, len(d), step):
                value = self._kernel(d[s : s + step])
                for row, place in enumerate(self.answers):
                    for k in place[place >= 0]:
                        np.maximum(result[s : s + step, k], value[:, row], out=result[s : s + step, k])
        return result.reshape(len(d), self.size, self.size)

    def _kernel(self, d: Array) -> Array:
        states = self.p.shape[1]
        block = d[:, self.sources.T[:, None, :], self.sinks.T[None, :, :]]
        if states <= 3:
            rows = [self.p[None, :, k] for k in range(states)]
            columns = [self.q[None, :, k] for k in range(states)]
            return closed_kernel(rows, columns, np.moveaxis(block, 0, 2))
        flat = block.transpose(0, 3, 1, 2).reshape(-1, states, states)
        p, q = np.tile(self.p, (len(d), 1)), np.tile(self.q, (len(d), 1))
        return kernel(p, q, flat, lp_cells=4000).reshape(len(d), -1)


def _questions(table: Array, slot: int) -> _Questions:
    """List the distinct pairs of rows that differ in one parent, and which (x, x') they answer."""
    rows = np.moveaxis(table, slot, 0).reshape(table.shape[slot], -1, table.shape[-1])
    size = len(rows)
    found: dict[bytes, tuple[Array, Array, set[int]]] = {}
    for x in range(size):
        for y in range(size):
            for p, q in zip(rows[x], rows[y], strict=True):
                if x != y and not np.array_equal(p, q):
                    key = p.tobytes() + q.tobytes()
                    found.setdefault(key, (p, q, set()))[2].add(x * size + y)
    if not found:
        empty = np.zeros((0, table.shape[-1]))
        none = np.zeros((0, table.shape[-1]), dtype=np.intp)
        return _Questions(empty, empty, none, none, np.zeros((0, 1), dtype=np.intp), size)
    p = np.array([f[0] for f in found.values()])
    q = np.array([f[1] for f in found.values()])
    most = max(len(f[2]) for f in found.values())
    answers = np.full((len(p), most), -1, dtype=np.intp)
    for k, (_, _, places) in enumerate(found.values()):
        answers[k, : len(places)] = sorted(places)
    return _Questions(p, q, _donors(p), _donors(q), answers, size)


def _donors(p: Array) -> NDArray[np.intp]:
    """For every entry the state whose distances it uses: itself, or a possible one if it has no mass."""
    return np.where(p > 0, np.arange(p.shape[1]), (p > 0).argmax(axis=1)[:, None])


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

    def __init__(self, tree: Ancestry) -> None:
        self._tree = tree
        self._questions: dict[tuple[int, int], _Questions] = {}
        self._levels: list[tuple[list[int], dict[int, list[int]]]] = []
        levels: dict[int, list[int]] = defaultdict(list)
        for i in tree.order:
            levels[tree.height[i]].append(i)
            for slot in range(len(tree.parents[i])):
                key = (id(tree.tables[i]), slot)
                if key not in self._questions:
                    self._questions[key] = _questions(tree.tables[i], slot)
        for height in sorted(levels):
            tables: dict[int, list[int]] = defaultdict(list)
            for i in levels[height]:
                if tree.parents[i]:
                    tables[id(tree.tables[i])].append(i)
            self._levels.append((levels[height], dict(tables)))

    def run(self, alpha: Vector) -> tuple[list[Array], list[Array]]:
        """Return fw of every node and the message of every edge, rounded up."""
        tree = self._tree
        forward: list[Array] = [np.zeros((0, 0))] * len(tree.parents)
        messages: list[Array] = [np.zeros((0, 0))] * len(tree.edges)
        for nodes, tables in self._levels:
            for i in nodes:
                size = tree.tables[i].shape[-1]
                total = alpha[i] * (1.0 - np.eye(size))
                for e in tree.children[i]:
                    total = total + messages[e]
                forward[i] = up_array(total, 4.0 + len(tree.children[i]))
            for table, children in tables.items():
                distances, same = np.unique(
                    np.array([forward[c] for c in children]), axis=0, return_inverse=True
                )
                for slot in range(len(tree.parents[children[0]])):
                    found = self._questions[(table, slot)].ask(distances)
                    for c, k in zip(children, same.ravel(), strict=True):
                        messages[tree.edge_of[c][slot]] = found[k]
        return forward, messages
