"""From a model to its dependency graph."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from quiltdp.chain import ChainModel
from quiltdp.errors import InvalidArgument, InvalidModel
from quiltdp.graph.types import DependencyGraph, Ints
from quiltdp.interface import as_model
from quiltdp.model import Model

if TYPE_CHECKING:
    import networkx as nx


def moralize(model: Any) -> DependencyGraph:
    """Return the moral graph: every factor's scope is a clique.

    For a Bayesian network this joins every node to its parents and the parents to each other; for
    a Markov network it joins the nodes of every potential; a Markov chain is a path, made without
    looking at its tables.

    Parameters
    ----------
    model
        Any model; its records become the graph's records.  Or a directed networkx graph without tables,
        parents before children; the attribute ``record`` of a node says whether it is one (default: yes).

    Returns
    -------
    DependencyGraph
        Nodes in the model's order; ``to_networkx()`` is the same graph as networkx has it, ``joined`` the
        edges that moralization added.

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
    >>> g = moralize(m)
    >>> list(g.edges()), g.joined
    ([('A', 'B'), ('A', 'C'), ('B', 'C')], (('A', 'B'),))
    """
    if _is_networkx_graph(model) and not any("table" in data for _, data in model.nodes(data=True)):
        return _moral_graph(model)
    model = as_model(model)
    if isinstance(model, ChainModel):
        mask = np.ones(len(model.nodes), dtype=np.bool_)
        return DependencyGraph.from_pairs(model.nodes, model.index, _chain_edges(model), mask)
    mask = np.fromiter((model.is_record(n) for n in model.nodes), dtype=np.bool_, count=len(model.nodes))
    pairs, drawn = _moral_edges(model)
    return DependencyGraph.from_pairs(
        model.nodes, model.index, pairs, mask, drawn if model.directed else None
    )


def as_graph(thing: Any) -> DependencyGraph:
    """Return a dependency graph as it is, an undirected networkx graph as one of ours, a model moralized."""
    if isinstance(thing, DependencyGraph):
        return thing
    if _is_networkx_graph(thing) and not thing.is_directed():
        return DependencyGraph.from_networkx(thing)
    return moralize(thing)


def _is_networkx_graph(thing: Any) -> bool:
    """Return whether this is a graph of networkx itself: pgmpy's networks are models."""
    return type(thing).__module__.startswith("networkx.")


def _moral_graph(graph: nx.DiGraph) -> DependencyGraph:
    """Return the moral graph of a directed networkx graph."""
    import networkx as nx

    if not graph.is_directed():
        raise InvalidArgument("an undirected graph needs no moralizing: see DependencyGraph.from_networkx")
    if not nx.is_directed_acyclic_graph(graph):
        cycle = [a for a, _ in nx.find_cycle(graph)]
        raise InvalidModel(f"the parents form a cycle: {' → '.join(map(str, [*cycle, cycle[0]]))}")
    moral = DependencyGraph.from_networkx(nx.moral_graph(graph))
    drawn = [(moral.index[a], moral.index[b]) for a, b in graph.edges()]
    moral.__dict__["_drawn"] = np.array(drawn, dtype=np.int64).reshape(-1, 2)
    return moral


def _chain_edges(model: ChainModel) -> Ints:
    """Return (t, t + 1) for every step that does not cross from one chain to the next."""
    lengths = np.array([s.length for s in model.segments], dtype=np.int64)
    steps = np.arange(int(lengths.sum()) - 1, dtype=np.int64)
    inside = np.delete(steps, np.cumsum(lengths)[:-1] - 1)
    return np.stack((inside, inside + 1), axis=1)


def _moral_edges(model: Model) -> tuple[Ints, Ints]:
    """Return every pair of nodes that share a factor, and those that end in its last node.

    The last node of a conditional table is the child: these pairs are the edges of the network.
    """
    index = model.index
    by_width: dict[int, list[int]] = {}
    for factor in model.factors:
        by_width.setdefault(len(factor.scope), []).extend([index[n] for n in factor.scope])
    parts, drawn = [np.empty((0, 2), dtype=np.int64)], [np.empty((0, 2), dtype=np.int64)]
    for width, flat in by_width.items():
        if width >= 2:
            scopes = np.array(flat, dtype=np.int64).reshape(-1, width)
            parts += [scopes[:, [a, b]] for a, b in combinations(range(width), 2)]
            drawn += [scopes[:, [a, width - 1]] for a in range(width - 1)]
    return np.concatenate(parts), np.concatenate(drawn)
