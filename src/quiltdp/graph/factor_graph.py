"""The factor graph as integer arrays: one edge per (node, factor) pair.

It is what message passing runs on.  Factors over a single node carry no correlation and are left
out.  A model of a million nodes becomes a few flat arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quiltdp.model import Model

__all__ = ["FactorGraph", "factor_graph"]

Ints = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class FactorGraph:
    """Edges (node, factor) of a model, sorted by factor.

    ``edge_node[e]`` and ``edge_factor[e]`` are the ends of edge ``e``; ``factor_position[f]`` is the
    place of factor ``f`` in ``model.factors``; ``component[j]`` numbers the connected component of
    node ``j``.
    """

    nodes: int
    edge_node: Ints
    edge_factor: Ints
    factor_position: Ints
    component: Ints
    components: int

    @property
    def factors(self) -> int:
        """The number of factors with at least two nodes."""
        return len(self.factor_position)

    @property
    def is_forest(self) -> bool:
        """Whether no two nodes are joined by two different ways."""
        return len(self.edge_node) == self.nodes + self.factors - self.components

    def depths(self) -> tuple[Ints, Ints]:
        """Return the depth of every node and of every factor, one root node per component.

        Nodes have even depth, factors odd; only meaningful for a forest.
        """
        from scipy.sparse import csr_matrix
        from scipy.sparse.csgraph import breadth_first_order

        n, f, e = self.nodes, self.factors, len(self.edge_node)
        _, roots = np.unique(self.component, return_index=True)
        hub = n + f  # one extra vertex joined to every root makes a single search reach everything
        rows = np.concatenate([self.edge_node, np.full(len(roots), hub)])
        cols = np.concatenate([self.edge_factor + n, roots])
        graph = csr_matrix((np.ones(e + len(roots), dtype=np.int8), (rows, cols)), shape=(hub + 1,) * 2)
        order, before = breadth_first_order(graph, hub, directed=False)
        rank = np.empty(hub + 1, dtype=np.intp)
        rank[order] = np.arange(len(order))
        behind = rank[before[order[1:]]]  # never falls: breadth first
        depth = np.full(hub + 1, -1, dtype=np.intp)
        start, stop, level = 0, 1, -1
        while stop < len(order):
            start, stop = stop, 1 + int(np.searchsorted(behind, stop))
            level += 1
            depth[order[start:stop]] = level
        return depth[:n], depth[n : n + f]


def factor_graph(model: Model) -> FactorGraph:
    """Return the factor graph of ``model``, leaving out factors over a single node."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    index = model.index
    edge_node: list[int] = []
    sizes: list[int] = []
    kept: list[int] = []
    for k, factor in enumerate(model.factors):
        if len(factor.scope) > 1:
            kept.append(k)
            sizes.append(len(factor.scope))
            edge_node.extend([index[n] for n in factor.scope])
    n, f = len(model.nodes), len(kept)
    nodes = np.array(edge_node, dtype=np.intp)
    factors = np.repeat(np.arange(f, dtype=np.intp), np.array(sizes, dtype=np.intp))
    shape = (n + f, n + f)
    graph = csr_matrix((np.ones(len(nodes), dtype=np.int8), (nodes, factors + n)), shape=shape)
    count, label = connected_components(graph, directed=False)
    _, component = np.unique(label[:n], return_inverse=True)
    positions = np.array(kept, dtype=np.intp)
    return FactorGraph(n, nodes, factors, positions, component.astype(np.intp), int(count))
