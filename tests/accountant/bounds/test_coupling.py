"""Sequential coupling against a slow twin, the exact limit and explicit mechanisms."""

import numpy as np
import pytest
from coupling_reference import coupled_leakage
from hypothesis import given, settings
from hypothesis import strategies as st
from prior_oracle import (
    REFERENCE,
    alphas,
    attained_limit,
    exact_prior_limit,
    mendelian_family,
    random_dag,
    random_pedigree,
    reference_model,
)
from strategies import bayesian_networks, example_models, markov_networks

from quiltdp import Model, markov_chain
from quiltdp.accountant.bounds.contract import Problem, ready
from quiltdp.accountant.bounds.coupling import AllPairs, CouplingBound, Prices
from quiltdp.errors import ModelTooWide
from quiltdp.inference.schedule import schedule
from quiltdp.work import Guard, WorkBudget


def coupled(model, alpha, units=None, **options):
    return ready(CouplingBound, model, units, **options).evaluate(alpha).values


def one_order(model, alpha, units):
    """The leakages with one node revealed at a time, in the first order."""
    walk = schedule(model, units)
    orders = [[task.order()] for task in walk.tasks]
    return AllPairs(walk, orders, Guard()).leakages(Prices(Problem(model), alpha))


@pytest.mark.parametrize("seed", range(1, 6))
def test_agrees_with_its_slow_twin(seed):
    model, alpha = random_dag(seed, max_nodes=5, max_joint=20)
    units = [(r,) for r in model.records]
    found = one_order(model, alpha, units)
    slow = [coupled_leakage(model, alpha, unit) for unit in units]
    assert found == pytest.approx(slow, abs=2e-6)


def test_agrees_with_its_slow_twin_on_a_protected_set():
    model, alpha = random_dag(11, max_nodes=5, max_joint=40)
    units = [tuple(model.records[:2])]
    found = one_order(model, alpha, units)
    assert found == pytest.approx([coupled_leakage(model, alpha, units[0])], abs=2e-6)


def test_close_to_the_limit_on_the_reference_networks():
    ratios = []
    for entry in REFERENCE:
        model = reference_model(entry)
        limit = np.array([entry["prior_limit"][r] for r in model.records])
        found = coupled(model, alphas(model, entry["dp_epsilon"]))
        assert np.all(found >= limit - 1e-7)
        ratios.extend(found[limit > 0] / limit[limit > 0])
    assert np.median(ratios) <= 1.0001
    assert np.mean(ratios) <= 1.006


@pytest.mark.parametrize("seeds", [range(100, 125)])
def test_no_mechanism_leaks_more(seeds):
    for seed in seeds:
        model, alpha = random_dag(seed)
        assert np.all(coupled(model, alpha) >= attained_limit(model, alpha) - 1e-12), seed


@pytest.mark.slow
def test_no_mechanism_leaks_more_on_five_thousand_records():
    ratios = []
    seed = 10_000
    while len(ratios) < 5_000:
        model, alpha = random_dag(seed)
        attained, found = attained_limit(model, alpha), coupled(model, alpha)
        assert np.all(found >= attained - 1e-12), seed
        ratios.extend((found / attained)[attained > 0])
        seed += 1
    assert np.median(ratios) < 1.0001


@given(st.one_of(bayesian_networks(max_nodes=5, max_states=3, max_joint=48), markov_networks(max_nodes=4)))
@settings(max_examples=30, deadline=None)
def test_never_below_the_limit(model):
    alpha = alphas(model, 0.4)
    assert np.all(coupled(model, alpha) >= exact_prior_limit(model, alpha) - 1e-7)


@given(
    bayesian_networks(min_nodes=3, max_nodes=5, max_states=2, latents=False, max_joint=32),
    st.integers(0, 10**6),
)
@settings(max_examples=20, deadline=None)
def test_protected_sets(model, seed):
    rng = np.random.default_rng(seed)
    units = [tuple(rng.permutation(list(model.records))[: rng.integers(1, 4)]) for _ in range(2)]
    alpha = alphas(model, rng.choice([0.1, 0.3, 0.9], len(model.nodes)))
    found = coupled(model, alpha, units)
    assert np.all(found >= exact_prior_limit(model, alpha, units) - 1e-7)
    assert np.all(found <= alpha.sum() + 1e-9)


@pytest.mark.parametrize("shape", sorted(example_models()))
def test_every_shape(shape):
    model = example_models()[shape]
    alpha = alphas(model, 0.7)
    found = coupled(model, alpha)
    assert np.all(found >= exact_prior_limit(model, alpha) - 1e-7)
    assert np.all(found <= alpha.sum() + 1e-9)


@pytest.mark.parametrize("inbred", [False, True])
def test_pedigrees(inbred):
    for seed in range(2):
        model = random_pedigree(np.random.default_rng(seed), 5, inbred)
        alpha = alphas(model, 0.5)
        limit = exact_prior_limit(model, alpha)
        found = coupled(model, alpha)
        assert np.all(found >= limit - 1e-7)
        assert np.median(found / limit) < 1.02


def test_families_reach_the_published_factors():
    for family, limit in (
        (mendelian_family(1), [1.81, 1.81, 2.42]),
        (mendelian_family(2), [2.61, 2.61, 3.04, 3.04]),
    ):
        alpha = np.full(len(family.nodes), 0.1)
        assert coupled(family, alpha) / 0.1 == pytest.approx(limit, abs=0.012)


def test_masses_down_to_1e_23_stay_sharp():
    """A chain whose laws reach 1e-23: the bound is still the limit, not group privacy."""
    rare = 1e-23
    chain = Model.from_tables(
        {
            "A": ([], [0.5, 0.5]),
            "B": (["A"], [[1 - rare, rare, 0.0], [0.5, 0.5 - rare, rare]]),
            "C": (["B"], [[0.9, 0.1], [0.1, 0.9], [0.5, 0.5]]),
        }
    )
    alpha = np.array([1.0, 1.0, 1.0])
    limit = exact_prior_limit(chain, alpha)
    assert coupled(chain, alpha)[0] == pytest.approx(limit[0], rel=1e-6)


def test_one_possible_state_leaks_nothing_and_independence_costs_nothing():
    model = Model.from_tables(
        {"A": ([], [1.0, 0.0]), "B": ([], [0.4, 0.6]), "C": (["B"], [[0.7, 0.3], [0.7, 0.3]])}
    )
    found = coupled(model, np.full(3, 0.5))
    assert found[0] == 0.0
    assert found[1:] == pytest.approx([0.5, 0.5], abs=1e-10)


def test_a_record_nobody_reads_is_still_attacked():
    """α = 0 for the target: what leaks is what the others tell about it."""
    copy = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.9, 0.1], [0.1, 0.9]])})
    found = coupled(copy, np.array([0.0, 1.0]))
    assert found[0] == pytest.approx(np.log((0.9 * np.e + 0.1) / (0.1 * np.e + 0.9)), rel=1e-9)


def test_markov_networks_have_the_same_answer_as_their_bayesian_twin():
    chain = Model.from_tables(
        {
            "A": ([], [0.3, 0.7]),
            "B": (["A"], [[0.9, 0.1], [0.2, 0.8]]),
            "C": (["B"], [[0.6, 0.4], [0.1, 0.9]]),
        }
    )
    twin = Model.from_potentials({"A": 2, "B": 2, "C": 2}, [(f.scope, 3.0 * f.table) for f in chain.factors])
    alpha = np.array([0.5, 0.2, 0.9])
    assert coupled(chain, alpha) == pytest.approx(coupled(twin, alpha), rel=1e-9)


def test_evaluation_is_pure():
    """The same α gives the same bytes, whatever was asked before."""
    model = example_models()["loop"]
    bound, again = ready(CouplingBound, model), ready(CouplingBound, model)
    for scale in (0.3, 3.0, 0.01, 0.31):
        bound.evaluate(alphas(model, scale))
    assert (
        bound.evaluate(alphas(model, 0.3)).values.tobytes()
        == again.evaluate(alphas(model, 0.3)).values.tobytes()
    )


def test_grows_with_alpha_and_is_homogeneous_chains_exact():
    chain = markov_chain([[0.8, 0.2], [0.3, 0.7]], 6)
    bound = ready(CouplingBound, chain)
    values = [bound.evaluate(np.full(6, a)).values.max() for a in (0.01, 0.1, 0.2, 0.21, 1.0, 5.0, 60.0)]
    assert values == sorted(values)
    assert bound.evaluate(np.full(6, 0.5)).values == pytest.approx(
        exact_prior_limit(chain, np.full(6, 0.5)), rel=1e-6
    )


def test_windows():
    chain = markov_chain([[0.8, 0.2], [0.3, 0.7]], 5)
    found = ready(CouplingBound, chain, window=2).evaluate(np.full(5, 0.5)).values
    units = [(f"X{k}", f"X{k + 1}") for k in range(4)]
    assert found == pytest.approx(exact_prior_limit(chain, np.full(5, 0.5), units), rel=1e-4)


def test_refuses_what_is_too_wide():
    with pytest.raises(ModelTooWide, match="entries"):
        ready(CouplingBound, mendelian_family(3), budget=WorkBudget(entries=1))
