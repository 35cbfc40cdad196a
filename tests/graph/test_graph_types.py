"""The dependency graph, its components, and moralization against networkx."""

from __future__ import annotations

import itertools
import pickle

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quiltdp as qd
from quiltdp.chain import markov_chains
from quiltdp.errors import InvalidModel, UnknownNode
from quiltdp.graph.types import DependencyGraph


@st.composite
def dags(draw: st.DrawFn) -> nx.DiGraph:
    n = draw(st.integers(1, 9))
    order = draw(st.permutations(range(n)))
    pairs = list(itertools.combinations(order, 2))
    dag = nx.DiGraph()
    dag.add_nodes_from(f"V{k}" for k in range(n))
    for a, b in draw(st.lists(st.sampled_from(pairs), unique=True, max_size=12)) if pairs else []:
        dag.add_edge(f"V{a}", f"V{b}")
    return dag


def model_of(dag: nx.DiGraph) -> qd.Model:
    tables = {}
    for node in dag.nodes:
        parents = list(dag.predecessors(node))
        tables[node] = (parents, np.full((2,) * (len(parents) + 1), 0.5))
    return qd.Model.from_tables(tables)


@given(dags())
@settings(max_examples=150, deadline=None)
def test_moralization_equals_networkx(dag: nx.DiGraph) -> None:
    graph = qd.moralize(model_of(dag))
    moral = nx.moral_graph(dag)
    assert set(map(frozenset, graph.edges())) == set(map(frozenset, moral.edges))
    assert set(graph.nodes) == set(moral.nodes)
    assert set(graph.components()) == set(map(frozenset, nx.connected_components(moral)))
    for node in graph.nodes:
        assert graph.neighbors(node) == set(moral[node])
        assert graph.degree(node) == moral.degree[node]


def test_moralization_of_potentials() -> None:
    model = qd.Model.from_potentials(
        {"A": 2, "B": 2, "C": 2, "D": 2}, [(["A", "B", "C"], np.ones((2, 2, 2))), (["D"], [1, 2])]
    )
    graph = qd.moralize(model)
    assert list(graph.edges()) == [("A", "B"), ("A", "C"), ("B", "C")]
    assert graph.degree("D") == 0


def test_chains_equal_their_unrolled_networks() -> None:
    model = markov_chains([[0.9, 0.1], [0.2, 0.8]], {"a/": 4, "b/": 1, "c/": 3})
    fast = qd.moralize(model)
    slow = qd.moralize(qd.Model(dict(model.states), tuple(model.factors)))
    assert fast == slow
    assert hash(fast) == hash(slow)
    assert [len(c) for c in fast.components()] == [4, 1, 3]


def test_a_million_step_chain() -> None:
    model = qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], length=1_000_000)
    graph = qd.moralize(model)
    assert graph.neighbors("X7") == {"X6", "X8"}
    assert graph.component_count == 1
    assert graph.component_record_counts.tolist() == [1_000_000]


def test_records_and_latents() -> None:
    graph = DependencyGraph("ABC", [("A", "B")], records="CA")
    assert tuple(graph.records) == ("A", "C")
    assert graph.is_record("A")
    assert not graph.is_record("B")
    assert graph.component_record_counts.tolist() == [1, 1]
    assert "B" in graph
    assert "Z" not in graph


def test_large_and_small_component_labels_agree() -> None:
    rng = np.random.default_rng(3)
    n = 60_000
    pairs = rng.integers(0, n, size=(n // 2, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    names = [str(k) for k in range(n)]
    index = {name: k for k, name in enumerate(names)}
    graph = DependencyGraph.from_pairs(names, index, pairs, np.ones(n, dtype=bool))
    slow = nx.Graph()
    slow.add_nodes_from(range(n))
    slow.add_edges_from(pairs.tolist())
    expected = sorted(nx.connected_components(slow), key=min)
    assert graph.component_count == len(expected)
    assert all(graph.component_members(k) == members for k, members in enumerate(expected))


def test_the_graph_is_checked_at_birth() -> None:
    with pytest.raises(InvalidModel, match="'A' appears twice"):
        DependencyGraph(["A", "A"])
    with pytest.raises(InvalidModel, match="no nodes"):
        DependencyGraph([])
    with pytest.raises(InvalidModel, match="'B' has an edge to itself"):
        DependencyGraph("AB", [("B", "B")])
    with pytest.raises(UnknownNode, match="'Z'"):
        DependencyGraph("AB", [("A", "Z")])
    with pytest.raises(UnknownNode, match="'Z'"):
        DependencyGraph("AB", records="Z")


def test_the_graph_is_frozen() -> None:
    graph = DependencyGraph("AB", [("A", "B")])
    with pytest.raises(AttributeError, match="frozen"):
        graph.nodes = ("C",)
    with pytest.raises(AttributeError, match="frozen"):
        del graph.nodes
    for array in (graph.indices, graph.indptr, graph.record_mask, graph.component_labels):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_repeated_edges_count_once_and_pickling_keeps_everything() -> None:
    graph = DependencyGraph("ABC", [("A", "B"), ("B", "A"), ("A", "B")], records="A")
    assert graph.edge_count == 1
    assert graph.component_count == 2
    again = pickle.loads(pickle.dumps(graph))
    assert again == graph
    assert again.neighbors("A") == {"B"}
    assert repr(again) == "<dependency graph: 3 nodes, 1 edges>"
    assert graph != DependencyGraph("ABC", [("A", "B")])
