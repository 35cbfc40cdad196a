"""From a model to its dependency graph."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from quiltdp.chain import ChainModel
from quiltdp.errors import InvalidArgument, InvalidModel
from quiltdp.graph.types import DependencyGraph, Ints
from quiltdp.model import Model

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["moralize"]


def moralize(model: Model | nx.DiGraph) -> DependencyGraph:
    """Return the moral graph: every factor's scope is a clique.

    For a Bayesian network this joins every node to its parents and the parents to each other; for
    a Markov network it joins the nodes of every potential; a Markov chain is a path, made without
    looking at its tables.

    Parameters
    ----------
    model
        The model; its records become the graph's records.  Or a directed networkx graph, parents
        before children; the attribute ``record`` of a node says whether it is one (default: yes).

    Returns
    -------
    DependencyGraph
        Nodes in the model's order.

    References
    ----------
    Lauritzen and Spiegelhalter (1988), Local computations with probabilities on graphical
    structures, section 4.

    Examples
    --------
    >>> from quiltdp import Model, moralize
    >>> half = [0.5, 0.5]
    >>> m = Model.from_tables(
    ...     {"A": ([], half), "B": ([], half), "C": (["A", "B"], [[half, half], [half, half]])}
    ... )
    >>> list(moralize(m).edges())
    [('A', 'B'), ('A', 'C'), ('B', 'C')]
    """
    if not isinstance(model, Model):
        return _moral_graph(model)
    if isinstance(model, ChainModel):
        mask = np.ones(len(model.nodes), dtype=np.bool_)
        return DependencyGraph.from_pairs(model.nodes, model.index, _chain_pairs(model), mask)
    mask = np.fromiter((model.is_record(n) for n in model.nodes), dtype=np.bool_, count=len(model.nodes))
    return DependencyGraph.from_pairs(model.nodes, model.index, _factor_pairs(model), mask)


def _moral_graph(graph: nx.DiGraph) -> DependencyGraph:
    """Return the moral graph of a directed networkx graph."""
    import networkx as nx

    if not graph.is_directed():
        raise InvalidArgument("an undirected graph needs no moralizing: see DependencyGraph.from_networkx")
    if not nx.is_directed_acyclic_graph(graph):
        cycle = [a for a, _ in nx.find_cycle(graph)]
        raise InvalidModel(f"the parents form a cycle: {' → '.join(map(str, [*cycle, cycle[0]]))}")
    return DependencyGraph.from_networkx(nx.moral_graph(graph))


def _chain_pairs(model: ChainModel) -> Ints:
    """Return (t, t + 1) for every step that does not cross from one chain to the next."""
    lengths = np.array([s.length for s in model.segments], dtype=np.int64)
    steps = np.arange(int(lengths.sum()) - 1, dtype=np.int64)
    inside = np.delete(steps, np.cumsum(lengths)[:-1] - 1)
    return np.stack((inside, inside + 1), axis=1)


def _factor_pairs(model: Model) -> Ints:
    """Return every pair of nodes that share a factor, factors of one width at a time."""
    index = model.index
    by_width: dict[int, list[int]] = {}
    for factor in model.factors:
        by_width.setdefault(len(factor.scope), []).extend([index[n] for n in factor.scope])
    parts = [np.empty((0, 2), dtype=np.int64)]
    for width, flat in by_width.items():
        if width >= 2:
            scopes = np.array(flat, dtype=np.int64).reshape(-1, width)
            parts += [scopes[:, [a, b]] for a, b in combinations(range(width), 2)]
    return np.concatenate(parts)
