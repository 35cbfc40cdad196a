"""Which values are possible beyond a separator, from messages computed once per model.

The tables with zeros form a model of their own, of Boolean tables.  In its junction tree every edge
carries two messages: which values of the edge's nodes the factors on the far side forbid.  For a
quilt only the cliques that hold its nodes, and the paths between them, are looked at; the rest of the
model has already been summarised.  So a quilt in a large pedigree costs as much as in a small one.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from quiltdp.inference.elimination import LogTable
from quiltdp.inference.kept import kept_with_model
from quiltdp.inference.odds import factor_logs
from quiltdp.inference.plan import EliminationPlan, plan_elimination
from quiltdp.inference.tables import aligned
from quiltdp.model import Model

__all__ = ["SupportTree", "support_tree"]

_LIMIT = 2**22  # entries of one Boolean clique; in wider models only the surroundings are searched
_Forbidden: TypeAlias = NDArray[np.bool_]


@kept_with_model
def support_tree(model: Model) -> SupportTree | None:
    """Return the model's support tree, made once; None if it would be too wide."""
    logs = factor_logs(model)
    walls = {f: w for f in range(len(model.factors)) if (w := logs.barrier(f)) is not None}
    if not walls:
        return None
    sizes = {n: model.cardinality(n) for w in walls.values() for n in w.scope}
    plan = plan_elimination(sizes, [w.scope for w in walls.values()], max_entries=_LIMIT)
    return SupportTree(plan, walls) if plan.fits else None


class SupportTree:
    """The junction tree of the tables with zeros, with both messages on every edge."""

    def __init__(self, plan: EliminationPlan, walls: dict[int, LogTable]) -> None:
        self._cliques, self._parent = plan.cliques, plan.parent
        self._walls = walls
        count = len(plan.cliques)
        position = {n: k for k, n in enumerate(plan.order)}
        self._own: list[list[int]] = [[] for _ in range(count)]
        for f, wall in walls.items():
            self._own[plan.home[min(wall.scope, key=position.__getitem__)]].append(f)
        self._children: list[list[int]] = [[] for _ in range(count)]
        self._depth, self._root = [0] * count, list(range(count))
        self._separators: list[tuple[str, ...]] = [()] * count
        self._holding: dict[str, list[int]] = {n: [] for n in plan.order}
        for k, p in enumerate(self._parent):
            for n in self._cliques[k]:
                self._holding[n].append(k)
            if p >= 0:
                above = set(self._cliques[p])
                self._children[p].append(k)
                self._depth[k], self._root[k] = self._depth[p] + 1, self._root[p]
                self._separators[k] = tuple(n for n in self._cliques[k] if n in above)
        sizes = {n: s for w in walls.values() for n, s in zip(w.scope, w.array.shape, strict=True)}
        self._shapes = [tuple(sizes[n] for n in c) for c in self._cliques]
        self._up: list[_Forbidden | None] = [None] * count
        self._down: list[_Forbidden | None] = [None] * count
        self._pass_messages()

    # -- messages ----------------------------------------------------------------------------

    def _pass_messages(self) -> None:
        """Send what is forbidden up to the roots and down again, by counting the objections."""
        for k in range(len(self._parent) - 1, -1, -1):  # children come after their parents
            if self._parent[k] >= 0:
                self._up[k] = self._message(k, self._objections(k), self._separators[k])
        for k, children in enumerate(self._children):
            total = self._objections(k) if children else None
            if total is None:
                continue
            from_above = self._down[k]
            if from_above is not None:
                total = total + aligned((self._separators[k], from_above.astype(np.int32)), self._cliques[k])
            for c in children:
                own = self._up[c]
                rest = total
                if own is not None:
                    rest = total - aligned((self._separators[c], own.astype(np.int32)), self._cliques[k])
                self._down[c] = self._message(k, rest, self._separators[c])

    def _objections(self, k: int) -> NDArray[np.int32]:
        """Return how many tables of the clique and messages of its children forbid each state."""
        total = np.zeros(self._shapes[k], dtype=np.int32)
        for f in self._own[k]:
            forbidden = (self._walls[f].array == -np.inf).astype(np.int32)
            total += aligned((self._walls[f].scope, forbidden), self._cliques[k])
        for c in self._children[k]:
            message = self._up[c]
            if message is not None:
                total += aligned((self._separators[c], message.astype(np.int32)), self._cliques[k])
        return total

    def _message(self, k: int, objections: NDArray[np.int32], keep: tuple[str, ...]) -> _Forbidden | None:
        """Return which values of ``keep`` no state of the clique allows; None if none is forbidden."""
        gone = tuple(a for a, n in enumerate(self._cliques[k]) if n not in keep)
        forbidden = np.asarray((objections > 0).all(axis=gone))
        if not forbidden.any():
            return None
        names = [n for n in self._cliques[k] if n in keep]
        return aligned((names, forbidden), keep)

    # -- one quilt ---------------------------------------------------------------------------

    def beyond(self, closed: Collection[str], separator: Collection[str]) -> list[LogTable]:
        """Return 0 / −∞ tables for everything that does not touch C, as far as it concerns the quilt."""
        inside = frozenset(closed)
        region = self._connected({k for n in (*closed, *separator) for k in self._holding.get(n, ())})
        found = [
            self._walls[f] for k in region for f in self._own[k] if inside.isdisjoint(self._walls[f].scope)
        ]
        for k in region:
            for c in self._children[k]:
                if c not in region:
                    found += _wall(self._separators[c], self._up[c])
            if self._parent[k] not in region:
                found += _wall(self._separators[k], self._down[k])
        return found

    def _connected(self, cliques: set[int]) -> set[int]:
        """Return the cliques together with the tree paths between them."""
        found = set(cliques)
        by_root: dict[int, set[int]] = {}
        for k in cliques:
            by_root.setdefault(self._root[k], set()).add(k)
        for ends in by_root.values():
            heap = [(-self._depth[k], k) for k in ends]
            heapq.heapify(heap)
            while len(heap) > 1:
                _, k = heapq.heappop(heap)
                p = self._parent[k]
                found.add(p)
                if p not in ends:
                    ends.add(p)
                    heapq.heappush(heap, (-self._depth[p], p))
        return found


def _wall(scope: tuple[str, ...], forbidden: _Forbidden | None) -> list[LogTable]:
    if forbidden is None:
        return []
    return [LogTable(scope, np.where(forbidden, -np.inf, 0.0))]
