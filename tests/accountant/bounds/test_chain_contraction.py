"""The scalar recursion against its slow twin: every distance at every position, nothing repeated."""

import math

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.accountant.adversaries import INFORMED, PRIOR
from quiltdp.accountant.bounds import chain_contraction
from quiltdp.accountant.bounds.chain_contraction import ContractionBound, ScalarSide
from quiltdp.accountant.bounds.contract import ready
from quiltdp.accountant.bounds.threshold import ThresholdCurve
from quiltdp.inference.chains import Path


def slow_side(length, distances, curve, a):
    """V_k by its formula, without shortcuts."""
    value = np.zeros(length)
    for k in range(1, length):
        value[k] = a[:k].sum()
        for j, d in enumerate(distances):
            if d <= k:
                passed = a[k - d + 1 : k].sum()
                value[k] = min(value[k], passed + curve(k, j, a[k - d] + value[k - d]))
    return value


def by_hour(length, hours, an_hour, seed, start=None):
    rng = np.random.default_rng(seed)
    day = [0.3 * rng.dirichlet(np.ones(3), size=3) + 0.7 * np.eye(3) for _ in range(hours)]
    steps = [day[(t // an_hour) % hours] for t in range(length - 1)]
    return qd.markov_chain(steps, initial=np.full(3, 1 / 3) if start is None else start)


def phi_at(c, o):
    return 4.0 * math.atanh(math.tanh(c / 4.0) * math.tanh(o / 4.0))


@pytest.mark.parametrize("seed", range(12))
def test_a_constant_chain_is_the_formula(seed):
    rng = np.random.default_rng(seed)
    distances = np.array([1, 2, 3, 5, 8, 13])
    spreads = 4.0 * rng.random() * np.exp(-distances * rng.random() / 3)
    side = ScalarSide(300, distances, spreads[None], 1)
    for a in (np.full(300, 0.3), rng.random(300) * (rng.random(300) < 0.7)):
        found = side.leakages(a)
        wanted = slow_side(300, distances, lambda k, j, o: phi_at(spreads[j], o), a)
        assert (found >= wanted * (1 - 1e-13)).all()
        assert found == pytest.approx(wanted, rel=1e-4)
        assert found.max() == pytest.approx(wanted.max(), rel=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_a_repeating_chain_settles_on_the_formula(seed):
    rng = np.random.default_rng(seed)
    period, length, distances = int(rng.integers(2, 9)), 500, np.array([1, 2, 4])
    spreads = 2.0 * rng.random((period, 3))
    side, a = ScalarSide(length, distances, spreads, period), np.full(length, 0.2)
    wanted = slow_side(length, distances, lambda k, j, o: phi_at(spreads[k % period, j], o), a)
    assert (side.leakages(a) >= wanted * (1 - 1e-13)).all()
    assert side.leakages(a) == pytest.approx(wanted, rel=1e-2)
    assert side.leakages(a)[100:] == pytest.approx(wanted[100:], rel=1e-9)


@pytest.mark.parametrize("spread", [2.0, 20.0, np.inf])
def test_positions_that_are_not_walked_pay_no_more_than_all_records_beyond(spread, monkeypatch):
    side = ScalarSide(90, np.array([1]), np.array([[spread]]), 1)
    alone = np.full(90, 0.5)
    alone[-1] = 0.5 + 1e-13
    walked = side.leakages(alone)
    monkeypatch.setattr(chain_contraction, "CHAIN_WALKED", 8)
    found = side.leakages(np.full(90, 0.5))
    assert (found >= walked * (1 - 1e-11)).all()
    assert (found <= 0.5 * np.arange(90) * (1 + 1e-12)).all()


@pytest.mark.parametrize(("hours", "an_hour", "start"), [(4, 3, None), (5, 1, [0.9, 0.1, 0.0])])
@pytest.mark.parametrize("adversary", [INFORMED, PRIOR])
def test_a_few_periods_say_what_the_whole_chain_says(monkeypatch, hours, an_hour, start, adversary):
    """The twin looks at the tables and the law of every step."""
    model, each = by_hour(240, hours, an_hour, 7, start), np.full(240, 0.1)
    monkeypatch.setattr(chain_contraction, "CHAIN_DISTANCE", 24)
    monkeypatch.setattr(chain_contraction, "CHAIN_WALKED", 60)
    monkeypatch.setattr(chain_contraction, "_FEW_STEPS", 6)
    few = ready(ContractionBound, model, adversary=adversary).evaluate(each).values
    monkeypatch.setattr(Path, "shortened", lambda path, reach: (path, 0))
    monkeypatch.setattr(chain_contraction, "CHAIN_CURVES", 1e9)
    whole = ready(ContractionBound, model, adversary=adversary).evaluate(each).values
    assert (few >= whole * (1 - 1e-9)).all()
    assert few == pytest.approx(whole, rel=1e-2)
    assert few.max() == pytest.approx(whole.max(), rel=1e-8)


@pytest.mark.parametrize("seed", range(2))
def test_the_prior_side_is_the_formula_with_the_law_of_every_step(seed):
    """Laws of every step by multiplication, their threshold curves, and nothing shared."""
    model, a = by_hour(40, 4, 3, seed, start=[0.2, 0.5, 0.3]), np.full(40, 0.2)
    moves, laws = model.segments[0].transitions, [np.array([0.2, 0.5, 0.3])]
    for p in moves:
        laws.append(laws[-1] @ p)
    steps = [*range(1, 13), 16, 24, 32]

    def backward(k, j, o):
        table = np.linalg.multi_dot([np.eye(3), *moves[k - steps[j] : k], np.eye(3)])
        rows = (laws[k - steps[j]][:, None] * table).T
        return ThresholdCurve(rows / rows.sum(1, keepdims=True), slack=0.0)(o)

    def forward(k, j, o):
        table = np.linalg.multi_dot([np.eye(3), *moves[39 - k : 39 - k + steps[j]], np.eye(3)])
        return ThresholdCurve(table, slack=0.0)(o)

    wanted = slow_side(40, steps, forward, a)[::-1] + slow_side(40, steps, backward, a) + 0.2
    found = ready(ContractionBound, model, adversary=PRIOR).evaluate(a).values
    assert (found >= wanted * (1 - 1e-12)).all()
    assert found == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("adversary", ["informed", "prior"])
def test_no_chain_is_below_its_limit(seed, adversary):
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(3, 6)), int(rng.integers(2, 4))
    steps = [p / p.sum(1, keepdims=True) for p in rng.dirichlet(np.full(k, 0.4), size=(n - 1, k)) + 1e-4]
    if seed % 2:
        steps = [steps[0]] * (n - 1)
    model = qd.markov_chain(steps, initial=rng.dirichlet(np.ones(k)))
    alpha = rng.choice([0.0, 0.2, 1.0], n) if seed % 3 else np.full(n, 0.5)
    who = {"informed": INFORMED, "prior": PRIOR}[adversary]
    found = ready(ContractionBound, model, adversary=who).evaluate(alpha).values
    if alpha.any():
        limit = qd.leakage(model, dict(zip(model.nodes, alpha, strict=True)), "exact", adversary).per_record
        assert (found >= np.array([limit[x] for x in model.nodes]) - 1e-9).all()
