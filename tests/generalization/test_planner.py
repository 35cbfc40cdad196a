"""The planner: promises kept on simulated holdouts, the i.i.d. rate on mixing chains, refusals."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quiltdp as qd
from quiltdp import Model, markov_chain
from quiltdp.errors import InvalidArgument, Refused
from quiltdp.generalization import (
    Task,
    expected_excess,
    plan,
    plan_length,
    published_chain_distance,
    published_plan,
    published_records,
    sample_failure,
)
from quiltdp.inference.gibbs_dependence import gibbs_dependence


class Proportional:
    """An accountant of a chain that mixes: leakage = factor × α, as for small α."""

    def __init__(self, factor: float = 9.0) -> None:
        self.factor = factor

    def prior(self, dp_epsilon):
        return np.array([self.factor * dp_epsilon])

    def informed(self, dp_epsilon):
        return np.array([self.factor * dp_epsilon])

    def published(self, dp_epsilon):
        return math.inf


def chain(length, stay=0.9):
    return markov_chain([[stay, 1 - stay], [1 - stay, stay]], length)


def test_a_plan_keeps_its_own_arithmetic():
    found = plan(chain(200_000), queries=1000, budget=10, accuracy=0.4, accountant=Proportional())
    assert found.route == "any joint law"
    assert found.threshold >= 0.2
    # the promise, recomputed from the formulas alone
    bias = math.tanh(9 * found.dp_epsilon / 4)
    best = 1.0
    for c in np.linspace(0.5, 8, 151) * found.sigma:
        a = 0.4 - bias - c
        excess = expected_excess(a, sigma=found.sigma, threshold=found.threshold, queries=1000, budget=10)
        best = min(best, excess / c)
    assert best <= 0.05 * (1 + 1e-9)
    assert found.dp_epsilon == pytest.approx(9 * 10 / (4 * found.sigma * 200_000))


def test_promised_accuracy_holds_when_thresholdout_runs():
    """Simulate Thresholdout on a mixing chain with an analyst who overfits to what he has seen."""
    rng = np.random.default_rng(6)
    n, m, budget = 20_000, 60, 10
    model = chain(n, 0.7)
    found = plan(model, queries=m, budget=budget, confidence=0.9, accountant=Proportional(2.4))
    failures = 0
    for _ in range(40):
        flips = rng.random(n) < 0.3
        data = (np.cumsum(flips) + rng.integers(2)) % 2
        answers, spent = [], 0
        threshold = found.threshold + rng.laplace(scale=found.sigma)
        mask = np.zeros(n, bool)
        for _ in range(m):
            if spent == budget:
                break
            chosen = rng.random(n) < 0.5
            if answers and answers[-1][0] > 0.5:
                chosen |= mask  # lean towards what looked large
            query = float(np.mean(np.where(chosen, data, 0.5)))
            truth, train = 0.5, 0.5 + rng.choice([0.0, 2 * found.threshold])
            if abs(query - train) + rng.laplace(scale=2 * found.sigma) > threshold:
                answer, spent = query + rng.laplace(scale=4 * found.sigma), spent + 1
                threshold = found.threshold + rng.laplace(scale=found.sigma)
                mask = chosen
            else:
                answer = train
            answers.append((answer, truth))
        failures += any(abs(a - t) > found.accuracy for a, t in answers)
    assert failures / 40 <= 0.1


def test_iid_rate_on_a_mixing_chain_without_the_logarithm_of_accuracy():
    """Double n: the same τ-scaling 1/√n; n τ² stays constant over two decades, no ln(1/τ)."""
    taus = [
        plan(chain(n), queries=1000, budget=10, accountant=Proportional()).accuracy
        for n in (10**5, 2 * 10**5, 10**7, 2 * 10**7, 10**9)
    ]
    assert taus[0] / taus[1] == pytest.approx(math.sqrt(2), rel=0.01)
    assert taus[2] / taus[3] == pytest.approx(math.sqrt(2), rel=0.01)
    assert taus[0] / taus[4] == pytest.approx(100, rel=0.03)


def test_inverses_agree():
    options = {"budget": 10, "accountant": Proportional()}
    best = plan(chain(10**6), queries=500, **options)
    again = plan(chain(10**6), queries=500, accuracy=best.accuracy * 1.02, **options)
    assert again.threshold >= again.accuracy / 2 * (1 - 1e-9)
    with pytest.raises(Refused, match="the best is"):
        plan(chain(10**6), queries=500, accuracy=best.accuracy * 0.9, **options)
    most = plan(chain(10**6), accuracy=best.accuracy * 1.02, **options)
    assert 500 <= most.queries < 1000
    plan(chain(10**6), queries=most.queries, accuracy=most.accuracy, **options)
    with pytest.raises(Refused):
        plan(chain(10**6), queries=2 * most.queries, accuracy=most.accuracy, **options)


def test_alternatives_are_named_and_the_published_ones_warned_about():
    found = plan(chain(10**6), queries=100, budget=5, accuracy=0.1, accountant=Proportional())
    by_name = {a.name: a for a in found.alternatives}
    assert set(by_name) == {
        "max-information and concentration",
        "Gibbs dependence",
        "independent records",
        "published",
    }
    assert "not independent" in by_name["independent records"].note
    assert not by_name["published"].valid
    assert "not valid for dependent" in by_name["published"].note
    assert "n_*" in by_name["published"].note
    assert "Markov-chain form" in by_name["published"].note
    text = str(found)
    assert "accuracy" in text
    assert "budget" in text
    assert found.to_dict()["answers"]["error"] == found.accuracy


def test_independent_records_may_use_the_classical_theorem():
    model = Model.from_tables({f"R{k}": ([], [0.5, 0.5]) for k in range(2000)})
    found = plan(model, queries=10, budget=2, accountant=Proportional(1.0))
    assert "independent records" in {a.name for a in found.alternatives}
    assert all("not independent" not in a.note for a in found.alternatives)
    assert found.effective_sample_size == pytest.approx(2000)


def test_two_promises_are_apart():
    found = plan(chain(10**7), queries=100, budget=5, accuracy=0.2, accountant=Proportional())
    assert found.budget_lasts.overfit is not None
    assert 0 < found.budget_lasts.overfit < found.threshold
    # identical bits: answers can be accurate about nothing, and nothing concentrates
    rigid = chain(10**5, 1 - 1e-9)
    found = plan(rigid, queries=10, budget=1, accuracy=0.3, accountant=Proportional(2.0))
    assert found.budget_lasts.overfit is None
    assert "deviation" in found.budget_lasts.reason


def test_asking_for_the_second_promise_too():
    free = plan(chain(10**7), queries=100, budget=5, accountant=Proportional())
    both = plan(chain(10**7), queries=100, budget=5, overfit=0.05, accountant=Proportional())
    assert both.budget_lasts.overfit is not None
    assert both.budget_lasts.overfit >= 0.05 * (1 - 1e-6)
    assert both.accuracy > free.accuracy
    most = plan(chain(10**6), budget=5, accuracy=0.25, overfit=0.01, accountant=Proportional())
    assert most.budget_lasts.overfit >= 0.01 * (1 - 1e-6)
    more = plan(chain(10**6), budget=5, accuracy=0.25, accountant=Proportional())
    assert more.queries > most.queries >= 5
    with pytest.raises(Refused):
        plan(chain(10**5), queries=100, budget=5, accuracy=0.5, overfit=0.49, accountant=Proportional())


def test_markov_network_keeps_the_main_theorem():
    names = [f"X{k}" for k in range(8)]
    pairs = [((a, b), [[2, 1], [1, 2]]) for a, b in pairwise(names)]
    model = Model.from_potentials(dict.fromkeys(names, 2), pairs)
    with pytest.raises(Refused, match="records"):
        plan(model, queries=10, budget=5, accuracy=0.1, accountant=Proportional(2.0))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"budget": 5}, "queries or accuracy"),
        ({"budget": 5, "queries": 3}, "below budget"),
        ({"budget": 0, "queries": 3}, "budget"),
        ({"budget": 1, "queries": 3, "accuracy": 1.5}, "accuracy"),
        ({"budget": 1, "queries": 3, "confidence": 1.0}, "confidence"),
        ({"budget": 1, "queries": 3, "threshold_share": -0.1}, "threshold_share"),
    ],
)
def test_bad_requests(options, words):
    with pytest.raises(InvalidArgument, match=words):
        plan(chain(100), accountant=Proportional(), **options)


@pytest.mark.slow
def test_half_the_error_takes_four_times_the_records():
    model = markov_chain([[0.6, 0.4], [0.4, 0.6]], length=10)
    a, b = (plan_length(model, queries=10, budget=1, accuracy=t).records for t in (0.4, 0.2))
    assert 3.6 < b / a < 4.4


def test_smallest_length_needs_one_chain():
    two = qd.markov_chains([[0.9, 0.1], [0.1, 0.9]], {"a/": 3, "b/": 3})
    with pytest.raises(InvalidArgument, match="homogeneous"):
        plan_length(two, queries=10, budget=1, accuracy=0.1)


@settings(max_examples=60, deadline=None)
@given(
    st.floats(1e-4, 0.02), st.floats(0, 0.1), st.integers(1, 10**5), st.integers(1, 100), st.floats(0, 0.5)
)
def test_sample_failure_uses_the_best_split(sigma, threshold, m, budget, room):
    spends = min(m, budget)
    a = threshold + room
    found = sample_failure(a, sigma=sigma, threshold=threshold, queries=m, budget=budget)
    for s1 in np.linspace(0, room, 41):
        b = 0.5 * spends * math.exp(-s1 / sigma) + 0.5 * m * math.exp(-(room - s1) / (2 * sigma))
        assert found <= b + spends * math.exp(-a / (4 * sigma)) + 1e-9
    steps = np.linspace(a, a + 120 * sigma, 1201)
    curve = [sample_failure(x, sigma=sigma, threshold=threshold, queries=m, budget=budget) for x in steps]
    excess = expected_excess(a, sigma=sigma, threshold=threshold, queries=m, budget=budget)
    assert np.trapezoid(curve, steps) <= excess * 1.001 + 1e-12


def test_sample_failure_agrees_with_the_mechanism():
    from quiltdp.mechanisms.thresholdout import failure_probability

    for a in (0.08, 0.12):
        ours = sample_failure(a, sigma=0.003, threshold=0.05, queries=200, budget=7)
        theirs = failure_probability(a, 0.003, threshold=0.05, queries=200, budget=7)
        assert ours <= theirs * (1 + 1e-6)


def test_task_cost_is_thresholdouts():
    assert Task(1000, 50, 10, 0.05).dp_epsilon(0.01) == pytest.approx(
        qd.Thresholdout(budget=10, sensitivity=1 / 1000).dp_epsilon(0.01)
    )


def test_published_numbers():
    assert published_records(0.1, 0.05) == pytest.approx(900 * math.log(80))
    p = published_plan(queries=10, accuracy=0.2, failure=0.1, slack=0.5)
    assert p.sigma == pytest.approx(0.1 / (12 * math.log(400)))
    assert p.threshold == pytest.approx(0.15)
    assert p.records_needed == pytest.approx(144 * math.log(800) / (0.25 * 0.04))
    s = published_chain_distance(chain(100), 0.6)
    delta = math.exp(-0.2 * s) / 0.5
    assert 3 * math.log((1 + delta) / (1 - delta)) <= 0.3 + 1e-9
    shorter = math.exp(-0.2 * (s - 1)) / 0.5
    assert shorter >= 1 or 3 * math.log((1 + shorter) / (1 - shorter)) > 0.3
    with pytest.raises(InvalidArgument, match="mix"):
        published_chain_distance(markov_chain([[0.0, 1.0], [1.0, 0.0]], 10), 0.5)
    with pytest.raises(InvalidArgument, match="reversible"):
        published_chain_distance(markov_chain([[0, 0.9, 0.1], [0.1, 0, 0.9], [0.9, 0.1, 0]], 10), 0.5)


def test_gibbs_dependence_against_brute_force():
    import itertools

    rng = np.random.default_rng(2)
    matrix = rng.dirichlet(np.ones(3), size=3)
    models = [
        markov_chain(matrix, 4, initial=[0.2, 0.3, 0.5]),
        Model.from_tables(
            {
                "A": ([], [0.3, 0.7]),
                "B": (["A"], [[0.9, 0.1], [0.2, 0.8]]),
                "C": (["A", "B"], [[[0.5, 0.5], [0.1, 0.9]], [[0.7, 0.3], [0.4, 0.6]]]),
            }
        ),
    ]
    for model in models:
        nodes = list(model.nodes)
        sizes = [len(model.states[v]) for v in nodes]
        joint = np.ones(sizes)
        for f in model.factors:
            shape = [f.table.shape[f.scope.index(v)] if v in f.scope else 1 for v in nodes]
            order = sorted(range(len(f.scope)), key=lambda k, f=f: nodes.index(f.scope[k]))
            joint = joint * f.table.transpose(order).reshape(shape)
        worst = 0.0
        for x in itertools.product(*map(range, sizes)):
            total = 0.0
            for i in range(len(nodes)):
                index = (*x[:i], slice(None), *x[i + 1 :])
                given_rest = joint[index] / joint[index].sum()
                marginal = joint.sum(axis=tuple(k for k in range(len(nodes)) if k != i))
                total += 0.5 * np.abs(given_rest - marginal).sum()
            worst = max(worst, total / len(nodes))
        found = gibbs_dependence(model)
        assert worst <= found + 1e-12
        assert found <= 1.8 * worst
