"""Models from networkx graphs and back: nodes carry their tables as attributes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from quiltdp.errors import InvalidArgument, InvalidModel
from quiltdp.interface import any_model
from quiltdp.model import Model

if TYPE_CHECKING:
    import networkx as nx


def from_networkx(
    graph: nx.DiGraph,
    tables: Mapping[str, ArrayLike] | None = None,
    *,
    records: Collection[str] | None = None,
) -> Model:
    """Build a Bayesian network from a directed networkx graph.

    Parameters
    ----------
    graph
        Edges lead from parents to children.  Node attributes: ``table`` (axes: parents…, node), ``parents``
        (their order in the table; default: the order of ``graph.predecessors``), ``states`` (names;
        default ``"0"``, ``"1"``, …) and ``record`` (default: true).
    tables
        The tables, where they are not attributes.
    records
        The rows of the database, where they are not told by attributes.

    Raises
    ------
    InvalidModel
        Naming a node without a table, or whose ``parents`` are not those of the graph.

    Examples
    --------
    >>> import networkx as nx
    >>> from quiltdp.io.networkx import from_networkx
    >>> g = nx.DiGraph([("A", "B")])
    >>> from_networkx(g, {"A": [0.3, 0.7], "B": [[0.9, 0.1], [0.2, 0.8]]})
    <Bayesian network: 2 nodes, 2 records>
    """
    if not graph.is_directed():
        raise InvalidArgument("a Bayesian network needs a directed graph, this one is undirected")
    found = {}
    states = {}
    for node, data in graph.nodes(data=True):
        table = data.get("table") if tables is None or node not in tables else tables[node]
        if table is None:
            raise InvalidModel(f"node {node!r} has no table", str(node))
        parents = list(data.get("parents", graph.predecessors(node)))
        if sorted(map(str, parents)) != sorted(map(str, graph.predecessors(node))):
            raise InvalidModel(f"node {node!r}: its parents {parents} are not those of the graph", str(node))
        found[node] = (parents, table)
        if "states" in data:
            states[node] = data["states"]
    chosen = [n for n, kept in graph.nodes(data="record", default=True) if kept]
    return Model.from_tables(found, records=chosen if records is None else records, states=states)


@any_model
def to_networkx(model: Model) -> nx.DiGraph:
    """Return a Bayesian network as a directed networkx graph, with the attributes of :func:`from_networkx`.

    Raises
    ------
    InvalidArgument
        For a Markov network, which has no directions: ``moralize(model).to_networkx()`` is its graph.

    Examples
    --------
    >>> from quiltdp import markov_chain
    >>> from quiltdp.io.networkx import to_networkx
    >>> list(to_networkx(markov_chain([[0.9, 0.1], [0.2, 0.8]], 3)).edges)
    [('X0', 'X1'), ('X1', 'X2')]
    """
    import networkx as nx

    if not model.directed:
        raise InvalidArgument("a Markov network has no directions: see moralize(model).to_networkx()")
    made = nx.DiGraph()
    made.add_nodes_from(model.nodes)
    for factor in model.factors:
        *parents, node = factor.scope
        made.add_edges_from((p, node) for p in parents)
        made.nodes[node].update(
            table=np.array(factor.table),
            parents=tuple(parents),
            states=model.states[node],
            record=model.is_record(node),
        )
    return made
