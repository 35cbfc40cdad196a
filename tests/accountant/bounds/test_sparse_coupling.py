"""Sequential coupling on few pairs of states: sound whatever is compared, and close to all pairs."""

import numpy as np
import pytest
from prior_oracle import alphas, attained_limit, exact_prior_limit, random_dag

from quiltdp import Model, load_model, markov_chain
from quiltdp.accountant.bounds.contract import ready
from quiltdp.accountant.bounds.coupling import CouplingBound
from quiltdp.errors import ModelTooWide
from quiltdp.work import WorkBudget


def few(model, alpha, units=None, worth=1.0):
    return ready(CouplingBound, model, units, sparse=worth).evaluate(alpha).values


@pytest.mark.parametrize("worth", [1e6, 1.0, 0.1, 1e-6])
def test_no_mechanism_leaks_more_whatever_is_compared(worth):
    for seed in range(200, 220):
        model, alpha = random_dag(seed)
        found = few(model, alpha, worth=worth)
        assert np.all(found >= attained_limit(model, alpha) - 1e-12), seed
        assert np.all(found <= alpha.sum() + 1e-9)


@pytest.mark.slow
def test_no_mechanism_leaks_more_on_five_thousand_records():
    below = 0
    seed = 20_000
    while below < 5_000:
        model, alpha = random_dag(seed)
        found = few(model, alpha, worth=(1.0, 0.3, 1e-3)[seed % 3])
        assert np.all(found >= attained_limit(model, alpha) - 1e-12), seed
        below += int((found < 0.95 * alpha.sum()).sum())
        seed += 1


def test_protected_sets():
    for seed in range(300, 310):
        model, alpha = random_dag(seed, max_nodes=5, max_joint=48)
        units = [tuple(model.records[:2]), tuple(model.records[-3:])]
        found = few(model, alpha, units, 0.1)
        assert np.all(found >= exact_prior_limit(model, alpha, units) - 1e-7), seed


def test_a_chain_has_single_changes_only():
    """Separators of one node: nothing is lost."""
    chain = markov_chain([[0.9, 0.1], [0.2, 0.8]], 5)
    alpha = np.full(5, 0.7)
    assert few(chain, alpha) == pytest.approx(exact_prior_limit(chain, alpha), rel=1e-6)


def test_nodes_that_cannot_change_alone_need_pairs():
    """Of three indicators exactly one is on: a way of single changes does not exist, a pair does."""
    one = np.zeros((2, 2, 2))
    for a in range(2):
        for b in range(2):
            one[a, b, 1 if a + b == 0 else 0] = 1.0
    model = Model.from_tables(
        {
            "A": ([], [0.6, 0.4]),
            "B": (["A"], [[0.5, 0.5], [1.0, 0.0]]),
            "C": (["A", "B"], one),
            "D": (["A", "B", "C"], np.broadcast_to([[[[0.5, 0.5]]]], (2, 2, 2, 2))),
        },
        records=["A", "D"],
    )
    alpha = alphas(model, 1.0)
    assert few(model, alpha, worth=1e-6) == pytest.approx([1.0, 1.0], abs=1e-9)


def test_close_to_all_pairs_on_a_real_network():
    model = load_model("models/alarm.bif")
    alpha = alphas(model, 0.09)
    every = ready(CouplingBound, model).evaluate(alpha).values
    assert few(model, alpha, worth=1e-4).max() <= 1.03 * every.max()


def test_evaluation_is_pure_and_grows_with_alpha():
    model, _ = random_dag(230)
    bound, again = (ready(CouplingBound, model, sparse=0.1) for _ in range(2))
    values = [bound.evaluate(alphas(model, a)).values.max() for a in (0.01, 0.2, 1.0, 5.0, 60.0)]
    assert values == sorted(values)
    alpha = alphas(model, 0.2)
    assert bound.evaluate(alpha).values.tobytes() == again.evaluate(alpha).values.tobytes()


def test_refuses_too_many_single_changes():
    with pytest.raises(ModelTooWide, match="single changes"):
        ready(CouplingBound, load_model("models/asia.bif"), sparse=0.1, budget=WorkBudget(pairs=10))
