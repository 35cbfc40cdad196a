"""The order in which nodes are revealed around a few nodes T: each after the ones above it, with its law.

All nodes but T are eliminated; z_k are the neighbours of node k when its turn comes, and its parent is the
first of them to be eliminated.  Revealed the other way round, x_k depends on z_k alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from quiltdp.errors import ModelTooWide
from quiltdp.graph.orders import eliminations
from quiltdp.inference.trees import junction_tree
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model

__all__ = ["RevealOrder"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
_LEAST = 1e-250  # a product of conditional probabilities that is smaller may have lost its digits


class RevealOrder:
    """The nodes in the order of their elimination, what is above each, and P(x_k | z_k)."""

    def __init__(self, model: Model, unit: Sequence[str], rule: str = "fill") -> None:
        self.unit = tuple(unit)
        self.sizes = {n: model.cardinality(n) for n in model.nodes}
        scopes = [*(tuple(f.scope) for f in model.factors), self.unit]
        rest = [n for n in model.nodes if n not in unit]
        found = list(eliminations(scopes, self.sizes, nodes=rest, rule=rule))
        turn = {n: k for k, (n, _) in enumerate(found)}
        self.last = len(found)
        self.by_position = list(self.sizes.values())
        self.position = dict(model.index)
        self.names = [n for n, _ in found]
        self.node = [model.index[n] for n in self.names]
        self.above = [tuple(sorted(near, key=model.index.__getitem__)) for _, near in found]
        self.children: list[list[int]] = [[] for _ in range(self.last + 1)]
        for k, z in enumerate(self.above):
            self.children[min((turn.get(n, self.last) for n in z), default=self.last)].append(k)

    def read_laws(self, model: Model, workspace: Workspace) -> None:
        """Compute P(x_k | z_k), axes (z, x); a row of zeros where z is impossible."""
        tree = junction_tree(model, workspace=workspace)
        self.laws: list[Array] = []
        least = 1.0
        for n, z in zip(self.names, self.above, strict=True):
            log_p = tree.log_marginal((*z, n)).reshape(-1, self.sizes[n])
            top = log_p.max(axis=1, keepdims=True)
            p = np.exp(log_p - np.where(np.isfinite(top), top, 0.0))
            law = p / np.maximum(p.sum(axis=1, keepdims=True), 0.5)  # 1 at least, or the row is impossible
            least *= float(law[law > 0].min(initial=1.0))
            self.laws.append(law)
            if least < _LEAST or ((law == 0) & np.isfinite(log_p)).any():
                raise ModelTooWide("some states are too improbable to list all that may be known")
        self.unit_possible = np.isfinite(tree.log_marginal(self.unit)).ravel()

    def tree(self) -> dict[int, frozenset[int]]:
        """Return for every node the nodes above it: what is computed depends on nothing else of the order."""
        return {
            n: frozenset(map(self.position.__getitem__, z))
            for n, z in zip(self.node, self.above, strict=True)
        }

    def subtree(self, top: int) -> list[int]:
        """Return a node and everything below it, children first."""
        found, queue = [], [top]
        while queue:
            k = queue.pop()
            found.append(k)
            queue.extend(self.children[k])
        return sorted(found)

    def size_at(self, node: int) -> int:
        """Return how many states a node of the model has."""
        return self.by_position[node]

    def states(self, k: int) -> int:
        """Return how many states z_k has."""
        return prod(self.sizes[n] for n in self.above[k])

    def pairs(self, k: int) -> int:
        """Return how many pairs of states are compared at a node, for each thing that may be known."""
        return (self.states(k) * self.sizes[self.names[k]]) ** 2

    def seen(self, k: int, names: Sequence[str]) -> Ints:
        """Return the state of z_k for every joint state of ``names``, the last one counting fastest."""
        grid = np.indices([self.sizes[n] for n in names]).reshape(len(names), -1)
        code = np.zeros(grid.shape[1], dtype=np.int64)
        for n in self.above[k]:
            code = code * self.sizes[n] + grid[names.index(n)]
        return code
