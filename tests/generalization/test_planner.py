"""The planner: promises kept on simulated holdouts, the i.i.d. rate on mixing chains, refusals."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quiltdp as qd
from quiltdp import Model, markov_chain
from quiltdp.accountant.verify import leakage_of
from quiltdp.chain import markov_chains
from quiltdp.errors import InvalidArgument, Refused
from quiltdp.generalization import plan, plan_length
from quiltdp.generalization.concentration import additive_concentration, contraction
from quiltdp.generalization.plan_result import plan_calibration
from quiltdp.generalization.plan_search import Contender, ThresholdNeed
from quiltdp.generalization.routes import (
    AnyLawRoute,
    Task,
    default_resolution,
    grid_answers,
    log_questions,
    split_accuracy,
)
from quiltdp.papers.zhao import expected_excess, sample_failure, with_published


class Proportional:
    """An accountant of a chain that mixes: leakage = factor × α, as for small α."""

    def __init__(self, factor: float = 9.0) -> None:
        self.factor = factor

    def prior(self, dp_epsilon):
        return np.array([self.factor * dp_epsilon])

    def informed(self, dp_epsilon):
        return np.array([self.factor * dp_epsilon])

    def dp_epsilon(self, epsilon):
        return epsilon / self.factor


def chain(length, stay=0.9):
    return markov_chain([[stay, 1 - stay], [1 - stay, stay]], length)


def any_law(model_length, task, accuracy=None, share=0.5, factor=9.0):
    """The theorem for any joint law alone, on a made-up accountant."""
    route = AnyLawRoute(Proportional(factor))
    contender = Contender(route, route)
    need = ThresholdNeed(share)
    return contender.best_offer(task, need) if accuracy is None else contender.offer_at(task, accuracy, need)


def test_the_theorem_for_any_law_keeps_its_own_arithmetic():
    task = Task(200_000, 1000, 10, 0.05)
    found = any_law(200_000, task, accuracy=0.4)
    assert found.threshold >= 0.2
    # the promise, recomputed from the formulas alone; an answer's rounding takes half a step
    alpha = 9 * 10 / (4 * found.sigma * 200_000)
    bias, step = math.tanh(9 * alpha / 4), default_resolution(0.4)
    best = 1.0
    for c in np.linspace(0.5, 8, 151) * found.sigma:
        a = 0.4 - bias - c
        options = {"sigma": found.sigma, "threshold": found.threshold, "queries": 1000, "budget": 10}
        rounding = (
            4
            * found.sigma
            * 10
            * (math.exp(-(a - step / 2) / (4 * found.sigma)) - math.exp(-a / (4 * found.sigma)))
        )
        best = min(best, (expected_excess(a, **options) + rounding) / c)
    assert best <= 0.05 * (1 + 1e-9)


def test_description_length_keeps_its_own_arithmetic():
    model = chain(200_000, 0.8)
    found = plan(model, queries=1000, budget=10, accountant=Proportional())
    assert found.route == "description length, additive queries"
    assert found.threshold >= found.accuracy / 2 * (1 - 1e-9)
    size = additive_concentration(model).effective_sample_size
    grid = round(1 / found.resolution) + 1
    asked = sum(math.comb(1000, b) * grid ** (b - 1) for b in range(1, 11))
    # some split of the failure probability between deviation and noise keeps the promise
    kept = []
    for share in np.linspace(0.01, 0.995, 200):
        t = math.sqrt(math.log(2 * asked / (share * 0.05)) / (2 * size))
        a = found.accuracy - t
        if a >= found.threshold:
            noise = sample_failure(
                a, sigma=found.sigma, threshold=found.threshold, queries=1000, budget=10
            ) + 10 * math.exp(-(a - found.resolution / 2) / (4 * found.sigma))
            kept.append(noise <= (1 - share) * 0.05)
    assert any(kept)


@pytest.mark.parametrize(("m", "budget", "step"), [(4, 1, 0.5), (4, 2, 0.5), (5, 3, 1.0), (3, 3, 0.3)])
def test_how_many_queries_can_ever_be_asked(m, budget, step):
    """Walk the tree of transcripts: every answered query is a node, its children are what can be answered."""
    grid = grid_answers(step)

    def nodes(asked, spent):
        if asked == m or spent == budget:
            return 0
        return 1 + nodes(asked + 1, spent) + grid * nodes(asked + 1, spent + 1)

    assert math.exp(log_questions(m, budget, step)) == pytest.approx(nodes(0, 0), rel=1e-9)


@pytest.mark.parametrize("step", [Fraction(1, 10), Fraction(1, 5), Fraction(3, 10), Fraction(1, 3)])
def test_how_many_answers_a_grid_has(step):
    """Round 0 and 1 with all kinds of noise, ties among them: what lies between is what can be answered."""
    noises = [Fraction(k, 8) * step for k in range(64)]
    ends = [(round(noise / step), round((noise + 1) / step)) for noise in noises]
    assert max(high - low + 1 for low, high in ends) == grid_answers(float(step))


def overfitting_run(rng, found, data, truth=0.5):
    """An analyst who follows the answers: leans on the rows that made the last query look large."""
    n = len(data)
    answers, spent = [], 0
    threshold = found.threshold + rng.laplace(scale=found.sigma)
    weight = np.full(n, 0.5)
    for _ in range(found.queries):
        if spent == found.budget:
            break
        rows = np.clip(weight + rng.uniform(-0.3, 0.3, n), 0, 1)
        query = float(np.mean(rows * data + (1 - rows) * 0.5))
        train = truth + rng.choice([0.0, 3 * found.threshold])
        if abs(query - train) + rng.laplace(scale=2 * found.sigma) > threshold:
            answer, spent = query + rng.laplace(scale=4 * found.sigma), spent + 1
            answer = round(answer / found.resolution) * found.resolution
            threshold = found.threshold + rng.laplace(scale=found.sigma)
            weight = np.clip(weight + 0.3 * (rows - 0.5) * np.sign(query - truth), 0, 1)
        else:
            answer = train
        answers.append(abs(answer - truth))
    return answers


def test_promised_accuracy_holds_when_thresholdout_runs():
    rng = np.random.default_rng(6)
    n, m, budget = 20_000, 60, 10
    found = plan(chain(n, 0.7), queries=m, budget=budget, confidence=0.9, accountant=Proportional(2.4))
    failures = 0
    for _ in range(40):
        data = (np.cumsum(rng.random(n) < 0.3) + rng.integers(2)) % 2
        failures += any(e > found.accuracy for e in overfitting_run(rng, found, data))
    assert failures / 40 <= 0.1


def test_iid_rate_on_a_mixing_chain_without_the_logarithm_of_accuracy():
    """Double n: the same τ-scaling 1/√n; n τ² stays constant over four decades, no ln(1/τ)."""
    taus = [
        any_law(n, Task(n, 1000, 10, 0.05)).accuracy for n in (10**6, 2 * 10**6, 10**7, 2 * 10**7, 10**10)
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


def test_every_route_competes_and_the_published_one_is_warned_about():
    own = plan(chain(10**6), queries=100, budget=5, accountant=Proportional())
    found = with_published(chain(10**6), own)
    by_name = {a.name: a for a in found.alternatives}
    assert own.alternatives == found.alternatives[:-1]
    assert found.route == "description length, additive queries"
    assert list(by_name) == [
        "description length",
        "any joint law",
        "max-information and concentration",
        "independent records",
        "all queries fixed in advance",
        "a fresh part after each answer",
        "the Ladder",
        "published",
    ]
    promised = [a.accuracy for a in found.alternatives[:3]]
    assert promised == sorted(promised)
    assert found.accuracy <= promised[0]
    assert by_name["all queries fixed in advance"].accuracy < found.accuracy  # adaptivity has its price
    assert "not independent" in by_name["independent records"].note
    assert not by_name["published"].valid
    for words in ("n_* = ", "n_# = ", "Markov-chain form", "not valid for dependent"):
        assert words in by_name["published"].note
    text = str(found)
    for line in ("accuracy", "budget", "privacy", "route", "this plan", "published: Theorem 2 of Zhao asks"):
        assert line in text
    assert found.to_dict()["answers"]["error"] == found.accuracy


def test_what_accuracy_leaves_goes_into_the_noise():
    tight = plan(chain(10**6), queries=100, budget=5, accountant=Proportional())
    easy = plan(chain(10**6), queries=100, budget=5, accuracy=0.3, accountant=Proportional())
    assert easy.sigma > 20 * tight.sigma
    assert easy.leakage < tight.leakage / 20
    assert easy.threshold >= 0.15 * (1 - 1e-9)
    assert easy.budget_lasts.overfit is not None


def test_privacy_can_be_asked_for():
    free = plan(chain(10**6), queries=100, budget=5, accountant=Proportional())
    kept = plan(chain(10**6), queries=100, budget=5, epsilon=0.5, accountant=Proportional())
    assert kept.sigma >= qd.Thresholdout(5, 1e-6).scale(0.5 / 9)
    assert kept.leakage <= 0.5 * (1 + 1e-9)
    assert free.accuracy <= kept.accuracy < 2 * free.accuracy
    assert "0.5 about any record" in kept.privacy
    with pytest.raises(Refused, match="for that privacy"):
        plan(chain(1000), queries=100, budget=5, epsilon=1e-4, accountant=Proportional())


def test_asked_privacy_is_kept_by_the_real_accountant():
    model = chain(5000, 0.7)
    found = plan(model, queries=20, budget=2, epsilon=1.0)
    spec = qd.Thresholdout(budget=2, sensitivity=1 / 5000)
    assert leakage_of(model, spec, found.sigma).epsilon <= 1.0 + 1e-9


@pytest.mark.parametrize("accuracy", [0.5, 0.7])
def test_a_promise_no_better_than_guessing_is_refused(accuracy):
    with pytest.raises(Refused, match="answering ½"):
        plan(chain(10**6), queries=10, budget=2, accuracy=accuracy, accountant=Proportional())
    with pytest.raises(Refused, match="answering ½"):
        plan(chain(20), queries=10, budget=2, accountant=Proportional())


def test_independent_records_may_use_the_classical_theorem():
    model = Model.from_tables({f"R{k}": ([], [0.5, 0.5]) for k in range(2000)})
    found = plan(model, queries=10, budget=2, accountant=Proportional(1.0))
    assert "independent records" in {a.name for a in found.alternatives}
    assert all("not independent" not in a.note for a in found.alternatives)
    assert found.effective_sample_size == pytest.approx(2000)


def test_two_promises_are_apart():
    found = plan(chain(10**7), queries=100, budget=5, accuracy=0.2, overfit=0.05, accountant=Proportional())
    assert found.budget_lasts.overfit is not None
    assert 0.05 * (1 - 1e-6) <= found.budget_lasts.overfit < found.threshold
    # identical bits: answers can be accurate about nothing, and nothing concentrates
    rigid = chain(10**5, 1 - 1e-9)
    found = plan(rigid, queries=10, budget=1, accuracy=0.3, accountant=Proportional(2.0))
    assert found.route == "any joint law"
    assert found.budget_lasts.overfit is None
    assert "deviation" in found.budget_lasts.reason


def test_asking_for_the_second_promise_too():
    free = plan(chain(10**6), queries=100, budget=5, accountant=Proportional())
    assert free.budget_lasts.overfit is not None  # what is right on the training set spends nothing
    both = plan(chain(10**6), queries=100, budget=5, overfit=0.05, accountant=Proportional())
    assert both.budget_lasts.overfit >= 0.05 * (1 - 1e-6)
    assert both.accuracy > free.accuracy
    options = {"budget": 20, "accuracy": 0.1, "accountant": Proportional()}
    most, more = (plan(chain(10**6), overfit=w, **options) for w in (0.005, None))
    assert most.budget_lasts.overfit >= 0.005 * (1 - 1e-6)
    assert more.queries > most.queries > 200
    with pytest.raises(Refused):
        plan(chain(10**5), queries=10**5, budget=5, accuracy=0.45, overfit=0.44, accountant=Proportional())


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
    two = markov_chains([[0.9, 0.1], [0.1, 0.9]], {"a/": 3, "b/": 3})
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


def test_parts_of_a_chain_are_nearly_independent():
    """The joint law of two stretches with a gap, exactly, against the product: within τ_{g+1}."""
    import itertools

    step = np.array([[0.7, 0.3], [0.2, 0.8]])
    law = np.array([0.4, 0.6])
    for gap in (0, 1, 3):
        jump = np.linalg.matrix_power(step, gap + 1)
        distance = 0.0
        for a, b, c, d in itertools.product((0, 1), repeat=4):
            joint = law[a] * step[a, b] * jump[b, c] * step[c, d]
            distance += abs(joint - law[a] * step[a, b] * law[c] * step[c, d]) / 2
        assert distance <= contraction(jump) + 1e-12


def test_splitting_pays_for_its_parts():
    model = markov_chain([[0.7, 0.3], [0.2, 0.8]], 10_000)
    task = Task(10_000, 40, 5, 0.05)
    t = split_accuracy(model, task) / 2
    gap = math.ceil(math.log2(4 / (0.05 * 0.01))) - 1  # (B − 1) ½^{g+1} ≤ 0.01 β
    part = additive_concentration(markov_chain([[0.7, 0.3], [0.2, 0.8]], (10_000 - 4 * gap) // 5))
    assert 0.9 * 0.05 * 0.99 < 200 * part.tail(t) <= 0.05 * 0.99 * (1 + 1e-6)
    for other in (
        markov_chain([[0.7, 0.3], [0.2, 0.8]], 10_000, initial=[1.0, 0.0]),
        markov_chains([[0.9, 0.1], [0.1, 0.9]], {"a/": 3, "b/": 3}),
    ):
        assert math.isinf(split_accuracy(other, task))


@pytest.mark.parametrize("stay", [0.5, 0.8])
def test_the_calibration_of_a_plan_is_certified_again(stay: float) -> None:
    """What a plan says it leaks is what a ledger or a study finds with the model, to the last digit."""
    rows = markov_chain([[stay, 1 - stay], [1 - stay, stay]], length=2000)
    made = plan_calibration(rows, plan(rows, queries=500, budget=5))
    assert leakage_of(rows, made).epsilon <= made.epsilon
