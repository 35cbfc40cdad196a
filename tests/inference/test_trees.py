import math
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import example_models, markov_networks, models, random_network

from quiltdp import Model, markov_chain
from quiltdp.chain import markov_chains
from quiltdp.errors import InvalidArgument, InvalidModel, ModelTooWide, UnknownNode
from quiltdp.inference import brute_force
from quiltdp.inference.trees import JunctionTree, junction_tree, plan_junction_tree


def check_tree(tree: JunctionTree, model: Model) -> None:
    """Cliques cover the factors, edges make a forest with running intersection, tables agree."""
    for f in model.factors:
        assert any(set(f.scope) <= set(c) for c in tree.cliques)
    for u, v, separator in tree.edges:
        assert set(separator) == set(tree.cliques[u]) & set(tree.cliques[v]) != set()
    for n in model.nodes:
        holding = {k for k, c in enumerate(tree.cliques) if n in c}
        inside = sum(n in s for _, _, s in tree.edges)
        assert len(holding) == inside + 1  # a connected subtree
    for a, b in combinations(tree.cliques, 2):
        assert not set(a) <= set(b)
        assert not set(b) <= set(a)
    for k, clique in enumerate(tree.cliques):
        table = np.exp(tree.clique_log_marginal(k))
        np.testing.assert_allclose(table, brute_force.marginal(model, clique), rtol=1e-10, atol=1e-14)
        np.testing.assert_array_equal(
            tree.clique_log_marginal(k) > -np.inf, brute_force.log_marginal(model, clique) > -np.inf
        )
        assert not tree.clique_log_marginal(k).flags.writeable


@pytest.mark.parametrize("name", example_models())
def test_tree_of_every_shape(name):
    model = example_models()[name]
    tree = junction_tree(model)
    check_tree(tree, model)
    for size in range(4):
        for nodes in combinations(reversed(model.nodes), size):
            wanted = brute_force.marginal(model, nodes)
            np.testing.assert_allclose(tree.marginal(nodes), wanted, rtol=1e-10, atol=1e-14)


@settings(max_examples=60, deadline=None)
@given(st.one_of(models(), markov_networks()), st.data())
def test_marginals_agree_with_the_joint(model, data):
    tree = junction_tree(model)
    check_tree(tree, model)
    nodes = data.draw(st.permutations(list(model.nodes)))[: data.draw(st.integers(0, 4))]
    found = tree.marginal(nodes)
    np.testing.assert_allclose(found, brute_force.marginal(model, nodes), rtol=1e-10, atol=1e-14)
    np.testing.assert_array_equal(
        tree.log_marginal(nodes) > -np.inf, brute_force.log_marginal(model, nodes) > -np.inf
    )


@settings(max_examples=40, deadline=None)
@given(models(), st.data())
def test_joined_nodes_share_a_clique(model, data):
    joined = data.draw(st.lists(st.sets(st.sampled_from(list(model.nodes)), max_size=3), max_size=2))
    tree = junction_tree(model, join=joined)
    check_tree(tree, model)
    for nodes in joined:
        assert any(nodes <= set(c) for c in tree.cliques)


def test_long_chain_against_matrix_powers():
    step = np.array([[0.93, 0.07], [0.21, 0.79]])
    tree = junction_tree(markov_chain(step, 5000, [0.2, 0.8]))
    for t in (0, 1, 17, 4999):
        law = np.array([0.2, 0.8]) @ np.linalg.matrix_power(step, t)
        np.testing.assert_allclose(tree.marginal([f"X{t}"]), law, rtol=1e-11)
    both = law_at(step, 100)[:, None] * np.linalg.matrix_power(step, 50)
    np.testing.assert_allclose(tree.marginal(["X100", "X150"]), both, rtol=1e-11)


def law_at(step: np.ndarray, t: int) -> np.ndarray:
    return np.array([0.2, 0.8]) @ np.linalg.matrix_power(step, t)


def test_heavy_potentials_do_not_lose_precision():
    count = 3000  # the total mass is about e^{600,000}: unscaled logarithms would keep 10 digits
    names = [f"X{k}" for k in range(count)]
    pairs = [((a, b), [[1e87, 3e86], [2e86, 1e87]]) for a, b in pairwise(names)]
    tree = junction_tree(Model.from_potentials(dict.fromkeys(names, 2), pairs))
    step = np.array([[1.0, 0.3], [0.2, 1.0]])
    value, left = np.linalg.eig(step.T)
    right = np.linalg.eig(step)[1][:, np.argmax(value)]
    law = np.abs(left[:, np.argmax(value)] * right)
    np.testing.assert_allclose(tree.marginal(["X1500"]), law / law.sum(), rtol=1e-12)


def test_tiny_entries_keep_their_support_and_their_ratios():
    tiny = 1e-300
    chain = {
        f"X{k}": ([f"X{k - 1}"], [[1 - tiny, tiny], [tiny, 1 - tiny]]) if k else ([], [1.0, 0.0])
        for k in range(6)
    }
    tree = junction_tree(Model.from_tables(chain))
    # X0 = 0 for sure, so each flip costs 1e-300: 0 1 0 1 0 has probability 1e-1200
    logs = tree.log_marginal(["X1", "X2", "X3", "X4"])
    assert logs[1, 0, 1, 0] == pytest.approx(4 * math.log(tiny), rel=1e-12)
    assert tree.log_marginal(["X0"])[1] == -math.inf
    assert all((tree.clique_log_marginal(k) > -np.inf).any() for k in range(len(tree.cliques)))


def test_separate_chains_are_a_forest_and_independent():
    tree = junction_tree(markov_chains([[0.9, 0.1], [0.4, 0.6]], {"a/": 3, "b/": 4}))
    assert len(tree.edges) == len(tree.cliques) - 2
    both = tree.marginal(["a/1", "b/2"])
    np.testing.assert_allclose(both, np.outer(tree.marginal(["a/1"]), tree.marginal(["b/2"])), rtol=1e-13)


def test_too_wide_names_the_clique_before_any_work():
    count = 40
    names = [f"X{k}" for k in range(count)]
    parents = dict.fromkeys(names, ()) | {"Y": tuple(names[:12])}
    model = random_network(1, parents, dict.fromkeys([*names, "Y"], 2))
    with pytest.raises(ModelTooWide, match=r"X0.*8,192 entries.*limit is 1,000"):
        junction_tree(model, max_entries=1000)
    plan = plan_junction_tree(model, max_entries=1000)
    assert not plan.fits
    assert max(plan.sizes) == 2**13
    assert "too wide" in str(plan)
    huge = plan_junction_tree(model, join=[names])
    assert huge.sizes[huge.largest] == 2**40
    with pytest.raises(ModelTooWide, match=r"1\.10e\+12 entries"):
        huge.check()


def test_marginal_too_wide():
    tree = junction_tree(markov_chain([[0.5, 0.5], [0.1, 0.9]], 40), max_entries=64)
    with pytest.raises(ModelTooWide, match="fewer nodes"):
        tree.marginal([f"X{k}" for k in range(0, 40, 3)])


def test_refusals():
    model = example_models()["chain"]
    tree = junction_tree(model)
    with pytest.raises(InvalidArgument):
        tree.marginal("X0")
    with pytest.raises(InvalidArgument):
        tree.marginal(["X0", "X0"])
    with pytest.raises(InvalidArgument, match="nobody"):
        tree.marginal(["nobody"])
    with pytest.raises(UnknownNode):
        junction_tree(model, join=[["X0", "nobody"]])
    with pytest.raises(InvalidArgument, match="string"):
        junction_tree(model, join=["X0"])
    clash = Model.from_potentials({"A": 2}, [(["A"], [1, 0]), (["A"], [0, 1])])
    with pytest.raises(InvalidModel, match="impossible"):
        junction_tree(clash)
