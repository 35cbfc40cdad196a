"""networkx in and out: graphs, quilts of a graph, models with tables as attributes."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from strategies import bayesian_networks, models

import quiltdp as qd
from quiltdp.errors import InvalidArgument, InvalidModel
from quiltdp.graph.components import connected_components
from quiltdp.graph.types import DependencyGraph
from quiltdp.io.networkx import from_networkx, to_networkx


@settings(max_examples=40, deadline=None)
@given(models())
def test_a_graph_goes_out_and_comes_back(model: qd.Model) -> None:
    graph = qd.moralize(model)
    made = graph.to_networkx()
    assert DependencyGraph.from_networkx(made) == graph
    assert {frozenset(c) for c in nx.connected_components(made)} == set(graph.components())
    target = next(iter(model.records))
    assert list(qd.quilts(made, target, max_nearby=2)) == list(qd.quilts(graph, target, max_nearby=2))
    assert qd.markov_blanket(made, target) == qd.markov_blanket(graph, target)


@settings(max_examples=40, deadline=None)
@given(bayesian_networks())
def test_a_network_goes_out_and_comes_back(model: qd.Model) -> None:
    made = to_networkx(model)
    back = from_networkx(made)
    assert back.fingerprint == model.fingerprint
    assert qd.moralize(made) == qd.moralize(model)


def test_tables_beside_the_graph_and_their_axes() -> None:
    graph = nx.DiGraph([("B", "C"), ("A", "C")])
    table = np.array([[[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]]] * 2)  # axes B (2), A (3), C
    model = from_networkx(graph, {"A": [0.2, 0.3, 0.5], "B": [0.4, 0.6], "C": table}, records=["C"])
    assert model.factors[1].scope == ("B", "A", "C")
    assert model.records == ("C",)
    graph.nodes["C"]["parents"] = ("A", "B")
    with pytest.raises(InvalidModel):
        from_networkx(graph, {"A": [0.2, 0.3, 0.5], "B": [0.4, 0.6], "C": table})
    graph.nodes["C"]["parents"] = ("A",)
    with pytest.raises(InvalidModel, match="not those of the graph"):
        from_networkx(graph, {"A": [0.2, 0.3, 0.5], "B": [0.4, 0.6], "C": table})


def test_refusals() -> None:
    with pytest.raises(InvalidArgument, match="moralize"):
        DependencyGraph.from_networkx(nx.DiGraph([("A", "B")]))
    with pytest.raises(InvalidArgument, match="undirected"):
        qd.moralize(nx.Graph([("A", "B")]))
    with pytest.raises(InvalidModel, match="cycle: A → B → A"):
        qd.moralize(nx.DiGraph([("A", "B"), ("B", "A")]))
    with pytest.raises(InvalidModel, match="must be a string"):
        DependencyGraph.from_networkx(nx.path_graph(3))
    with pytest.raises(InvalidModel, match="'B' has no table"):
        from_networkx(nx.DiGraph([("A", "B")]), {"A": [0.5, 0.5]})
    with pytest.raises(InvalidArgument, match="undirected"):
        from_networkx(nx.Graph([("A", "B")]))
    square = qd.Model.from_potentials({"A": 2, "B": 2}, [(["A", "B"], [[2, 1], [1, 2]])])
    with pytest.raises(InvalidArgument, match="no directions"):
        to_networkx(square)


@pytest.mark.parametrize("edges", [0, 5, 60, 400])
@pytest.mark.parametrize("large", [False, True])
def test_components_by_both_ways(edges: int, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if large:
        monkeypatch.setattr("quiltdp.graph.components._SCIPY", 0)
    random = nx.gnm_random_graph(200, edges, seed=edges)
    pairs = np.array(random.edges, dtype=np.int64).reshape(-1, 2)
    labels = connected_components(200, pairs)
    groups = sorted(sorted(c) for c in nx.connected_components(random))  # by their first node
    assert [np.flatnonzero(labels == k).tolist() for k in range(len(groups))] == groups


def test_quilts_of_a_model_are_those_of_its_moral_graph() -> None:
    asia = qd.example("asia")
    assert list(qd.quilts(asia, "lung")) == list(qd.quilts(qd.moralize(asia), "lung"))
    with pytest.raises(InvalidArgument, match="a model is needed, not int"):
        list(qd.quilts(3, "lung"))
