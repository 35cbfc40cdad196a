"""The factor graph as integer arrays: one edge per (node, factor) pair.

It is what message passing runs on.  Factors over a single node carry no correlation and are left
out.  A model of a million nodes becomes a few flat arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quiltdp.graph.components import connected_components
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

    @property
    def factors(self) -> int:
        """The number of factors with at least two nodes."""
        return len(self.factor_position)


def factor_graph(model: Model) -> FactorGraph:
    """Return the factor graph of ``model``, leaving out factors over a single node."""
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
    starts = np.cumsum([0, *sizes[:-1]], dtype=np.intp) if f else np.zeros(0, dtype=np.intp)
    component = connected_components(n, np.stack((nodes[starts[factors]], nodes), axis=1))
    positions = np.array(kept, dtype=np.intp)
    return FactorGraph(n, nodes, factors, positions, component.astype(np.intp))
