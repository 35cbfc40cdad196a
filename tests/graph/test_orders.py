"""Elimination orders: widths against networkx and known graphs, and the bound on the work."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quiltdp as qd
from quiltdp.errors import InvalidArgument
from quiltdp.graph.orders import adjacency_lists, eliminate, treewidth_estimate


def width_of(adjacency: list[list[int]], order: tuple[int, ...]) -> int:
    """Replay an order slowly."""
    graph = nx.Graph()
    graph.add_nodes_from(range(len(adjacency)))
    graph.add_edges_from((a, b) for a, around in enumerate(adjacency) for b in around)
    width = 0
    for node in order:
        around = list(graph[node])
        width = max(width, len(around))
        graph.add_edges_from(itertools.combinations(around, 2))
        graph.remove_node(node)
    return width


@st.composite
def adjacencies(draw: st.DrawFn) -> list[list[int]]:
    n = draw(st.integers(1, 9))
    pairs = list(itertools.combinations(range(n), 2))
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    found: list[list[int]] = [[] for _ in range(n)]
    for a, b in edges:
        found[a].append(b)
        found[b].append(a)
    return found


@given(adjacencies(), st.sampled_from(["auto", "min-degree", "min-fill"]), st.sampled_from([0, 10, 10**6]))
@settings(max_examples=200, deadline=None)
def test_the_width_is_that_of_the_order(adjacency: list[list[int]], rule: str, work: int) -> None:
    found = eliminate(adjacency, rule=rule, max_work=work)
    assert sorted(found.order) == list(range(len(adjacency)))
    replayed = width_of(adjacency, found.order)
    assert replayed <= found.width
    if found.complete:
        assert replayed == found.width


@pytest.mark.parametrize(("rows", "columns"), [(1, 5), (2, 7), (3, 9), (5, 5)])
def test_grids(rows: int, columns: int) -> None:
    grid = nx.convert_node_labels_to_integers(nx.grid_2d_graph(rows, columns))
    graph = qd.DependencyGraph([str(k) for k in grid], [(str(a), str(b)) for a, b in grid.edges])
    assert min(rows, columns) <= treewidth_estimate(graph) <= min(rows, columns) + 1


def test_known_widths() -> None:
    names = [str(k) for k in range(6)]
    clique = qd.DependencyGraph(names, itertools.combinations(names, 2))
    assert treewidth_estimate(clique) == 5
    assert treewidth_estimate(qd.DependencyGraph(names)) == 0
    assert treewidth_estimate(qd.DependencyGraph(names, [("0", "1")])) == 1
    ring = qd.DependencyGraph(names, [*itertools.pairwise(names), ("5", "0")])
    assert treewidth_estimate(ring) == 2


def test_no_wider_than_networkx_by_much() -> None:
    for seed in range(5):
        random = nx.gnm_random_graph(40, 80, seed=seed)
        adjacency = [sorted(random[k]) for k in range(40)]
        theirs, _ = nx.algorithms.approximation.treewidth_min_fill_in(random)
        assert eliminate(adjacency).width <= theirs


def test_a_million_step_chain_needs_no_elimination() -> None:
    graph = qd.moralize(qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=1_000_000))
    assert treewidth_estimate(graph) == 1


def test_large_and_wide_graphs_stop_in_time() -> None:
    rng = np.random.default_rng(1)
    n = 20_000
    pairs = rng.integers(0, n, size=(4 * n, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    names = [str(k) for k in range(n)]
    graph = qd.DependencyGraph.from_pairs(
        names, {x: k for k, x in enumerate(names)}, pairs, np.ones(n, dtype=bool)
    )
    found = eliminate(adjacency_lists(graph), max_work=2_000_000)
    assert not found.complete
    assert sorted(found.order) == list(range(n))
    assert found.width < n


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="min-fill"):
        eliminate([[]], rule="luck")
