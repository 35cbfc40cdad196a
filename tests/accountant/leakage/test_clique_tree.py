"""The clique-tree method and the exact limit against the prior adversary."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prior_oracle import REFERENCE, alphas, mendelian_family, reference_model
from strategies import bayesian_networks

from quiltdp import Model
from quiltdp.accountant.leakage.clique_tree import CliqueTreeBound
from quiltdp.accountant.leakage.limit_prior import ExactPriorBound, exact_prior_limit
from quiltdp.errors import ModelTooWide


def test_exact_limit_equals_the_reference():
    for entry in REFERENCE:
        model = reference_model(entry)
        found = exact_prior_limit(model, alphas(model, entry["dp_epsilon"]))
        limit = [entry["prior_limit"][r] for r in model.records]
        assert found == pytest.approx(limit, abs=1e-7)


@pytest.mark.parametrize("cells", [0, 6000])
def test_close_to_the_limit_on_the_reference_networks(cells):
    ratios = []
    for entry in REFERENCE:
        model = reference_model(entry)
        limit = np.array([entry["prior_limit"][r] for r in model.records])
        bound = CliqueTreeBound(model, max_lp_cells=cells)
        found = bound.evaluate(alphas(model, entry["dp_epsilon"])).epsilon
        assert np.all(found >= limit - 1e-7)
        ratios.extend(found[limit > 0] / limit[limit > 0])
    assert np.median(ratios) <= 1.001
    assert np.mean(ratios) <= 1.01


def test_families():
    trio, quartet = mendelian_family(1), mendelian_family(2)
    for family, limit in ((trio, [1.81, 1.81, 2.42]), (quartet, [2.61, 2.61, 3.04, 3.04])):
        alpha = np.full(len(family.nodes), 0.1)
        assert exact_prior_limit(family, alpha) / 0.1 == pytest.approx(limit, abs=0.006)
        found = CliqueTreeBound(family).evaluate(alpha).epsilon / 0.1
        assert np.all(found >= exact_prior_limit(family, alpha) / 0.1 - 1e-9)
        assert np.all(found <= np.array(limit) * 1.05)


@given(bayesian_networks(max_nodes=5, max_states=3, max_joint=48), st.integers(0, 10**6), st.booleans())
@settings(max_examples=30, deadline=None)
def test_never_below_the_limit(model, seed, equal):
    rng = np.random.default_rng(seed)
    alpha = alphas(model, 0.4) if equal else alphas(model, rng.choice([0.0, 0.1, 0.7, 2.0], len(model.nodes)))
    limit = exact_prior_limit(model, alpha)
    for cells in (0, 3000):
        assert np.all(CliqueTreeBound(model, max_lp_cells=cells).evaluate(alpha).epsilon >= limit - 1e-7)


@given(
    bayesian_networks(min_nodes=3, max_nodes=5, max_states=2, latents=False, max_joint=32),
    st.integers(0, 10**6),
)
@settings(max_examples=25, deadline=None)
def test_protected_units(model, seed):
    rng = np.random.default_rng(seed)
    units = [tuple(rng.permutation(list(model.records))[: rng.integers(1, 4)]) for _ in range(2)]
    alpha = alphas(model, 0.3)
    limit = exact_prior_limit(model, alpha, units)
    found = CliqueTreeBound(model, units).evaluate(alpha).epsilon
    assert np.all(found >= limit - 1e-8)
    assert np.all(found <= 0.3 * len(model.records) + 1e-9)


def test_deterministic_and_independent_records():
    model = Model.from_tables(
        {"A": ([], [1.0, 0.0]), "B": ([], [0.4, 0.6]), "C": (["B"], [[0.7, 0.3], [0.7, 0.3]])}
    )
    found = CliqueTreeBound(model).evaluate(np.full(3, 0.5)).epsilon
    assert found[0] == 0.0
    assert found[1:] == pytest.approx([0.5, 0.5], abs=1e-10)


def test_markov_networks_have_the_same_answer_as_their_bayesian_twin():
    chain = Model.from_tables(
        {
            "A": ([], [0.3, 0.7]),
            "B": (["A"], [[0.9, 0.1], [0.2, 0.8]]),
            "C": (["B"], [[0.6, 0.4], [0.1, 0.9]]),
        }
    )
    potentials = [(f.scope, 3.0 * f.table) for f in chain.factors]
    twin = Model.from_potentials({"A": 2, "B": 2, "C": 2}, potentials)
    alpha = np.array([0.5, 0.2, 0.9])
    one, two = CliqueTreeBound(chain).evaluate(alpha), CliqueTreeBound(twin).evaluate(alpha)
    assert one.epsilon == pytest.approx(two.epsilon, rel=1e-9)


def test_refuses_what_is_too_wide():
    model = mendelian_family(3)
    with pytest.raises(ModelTooWide, match="possible states"):
        CliqueTreeBound(model, max_states=5)
    with pytest.raises(ModelTooWide, match="pairs"):
        CliqueTreeBound(model, max_pairs=10)
    with pytest.raises(ModelTooWide, match="joint states"):
        ExactPriorBound(model, max_entries=10)
