"""Elimination orders: widths against networkx and known graphs, and the bound on the work."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quiltdp as qd
from quiltdp.graph.orders import treewidth_estimate
from quiltdp.graph.types import DependencyGraph


@st.composite
def graphs(draw: st.DrawFn) -> nx.Graph:
    n = draw(st.integers(1, 7))
    pairs = list(itertools.combinations(range(n), 2))
    found = nx.empty_graph(n)
    found.add_edges_from(draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else [])
    return found


def ours(graph: nx.Graph) -> DependencyGraph:
    return DependencyGraph([str(k) for k in graph], [(str(a), str(b)) for a, b in graph.edges])


def treewidth(graph: nx.Graph) -> int:
    """The least width over every order of elimination."""
    least = len(graph)
    for order in itertools.permutations(graph):
        left, width = graph.copy(), 0
        for node in order:
            around = list(left[node])
            width = max(width, len(around))
            left.add_edges_from(itertools.combinations(around, 2))
            left.remove_node(node)
        least = min(least, width)
    return least


@given(graphs(), st.sampled_from([0, 10, 10**6]))
@settings(max_examples=30, deadline=None)
def test_the_estimate_is_never_below_the_treewidth(graph: nx.Graph, work: int) -> None:
    assert treewidth(graph) <= treewidth_estimate(ours(graph), max_work=work) <= len(graph) - 1


@pytest.mark.parametrize(("rows", "columns"), [(1, 5), (2, 7), (3, 9), (5, 5)])
def test_grids(rows: int, columns: int) -> None:
    grid = nx.convert_node_labels_to_integers(nx.grid_2d_graph(rows, columns))
    assert min(rows, columns) <= treewidth_estimate(ours(grid)) <= min(rows, columns) + 1


def test_known_widths() -> None:
    names = [str(k) for k in range(6)]
    clique = DependencyGraph(names, itertools.combinations(names, 2))
    assert treewidth_estimate(clique) == 5
    assert treewidth_estimate(DependencyGraph(names)) == 0
    assert treewidth_estimate(DependencyGraph(names, [("0", "1")])) == 1
    ring = DependencyGraph(names, [*itertools.pairwise(names), ("5", "0")])
    assert treewidth_estimate(ring) == 2


def test_no_wider_than_networkx_by_much() -> None:
    for seed in range(5):
        random = nx.gnm_random_graph(40, 80, seed=seed)
        theirs, _ = nx.algorithms.approximation.treewidth_min_fill_in(random)
        assert treewidth_estimate(ours(random)) <= theirs


def test_a_million_step_chain_needs_no_elimination() -> None:
    graph = qd.moralize(qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=1_000_000))
    assert treewidth_estimate(graph) == 1


def test_large_and_wide_graphs_stop_in_time() -> None:
    rng = np.random.default_rng(1)
    n = 20_000
    pairs = rng.integers(0, n, size=(4 * n, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    names = [str(k) for k in range(n)]
    graph = DependencyGraph.from_pairs(
        names, {x: k for k, x in enumerate(names)}, pairs, np.ones(n, dtype=bool)
    )
    assert treewidth_estimate(graph, max_work=2_000_000) < n
