"""The chain recursion against its slow twin: every distance at every position, nothing repeated."""

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.accountant.bounds import ready
from quiltdp.accountant.leakage import chain_recursion
from quiltdp.accountant.leakage.chain import ChainBound
from quiltdp.accountant.leakage.chain_curves import backward_side, forward_side
from quiltdp.accountant.leakage.chain_prior import ChainPriorBound
from quiltdp.accountant.leakage.chain_recursion import Curves, PhiCurve, Side
from quiltdp.inference.chains import ChainLaws
from quiltdp.numbers import up_array


def slow_side(length, distances, curve_at, a):
    """V_k by its formula, without shortcuts."""
    value = np.zeros(length)
    for k in range(1, length):
        value[k] = a[:k].sum()
        for j, d in enumerate(distances):
            if d <= k and curve_at(k, j) is not None:
                passed = a[k - d + 1 : k].sum()
                value[k] = min(value[k], passed + curve_at(k, j)(a[k - d] + value[k - d]))
    return value


@pytest.mark.parametrize("seed", range(12))
def test_a_constant_chain_is_the_formula(seed):
    rng = np.random.default_rng(seed)
    distances = [1, 2, 3, 5, 8, 13]
    made = [PhiCurve(c) for c in 4.0 * rng.random() * np.exp(-np.array(distances) * rng.random() / 3)]
    side = Side(300, Curves.constant(distances, made))
    for a in (np.full(300, 0.3), rng.random(300) * (rng.random(300) < 0.7)):
        found, wanted = side.leak(a), slow_side(300, distances, lambda k, j: made[j], a)
        assert (found >= wanted * (1 - 1e-13)).all()
        assert found == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_a_repeating_chain_settles_on_the_formula(seed):
    rng = np.random.default_rng(seed)
    period, length, distances = int(rng.integers(2, 9)), 500, [1, 2, 4]
    made = [PhiCurve(c) for c in rng.random(3 * period) * 2.0]
    which = np.arange(3 * period).reshape(period, 3)[np.arange(length) % period]
    curves = Curves.by_position(distances, made, which)
    assert curves.period == period
    side, a = Side(length, curves), np.full(length, 0.2)
    wanted = slow_side(length, distances, lambda k, j: made[which[k, j]], a)
    assert (side.leak(a) >= wanted * (1 - 1e-13)).all()
    assert side.leak(a) == pytest.approx(wanted, rel=1e-9)


def test_what_does_not_repeat_is_walked_to_the_end():
    which = np.arange(40)[:, None]
    curves = Curves.by_position([1], [PhiCurve(0.1 * k) for k in range(40)], which)
    assert curves.settled == 40


@pytest.mark.parametrize("adversary", [ChainBound, ChainPriorBound])
def test_one_matrix_per_step_equals_the_homogeneous_chain(adversary):
    """The same chain told twice; the repeated copies are distinct objects, so nothing can be shared."""
    p = np.array([[0.8, 0.2, 0.0], [0.1, 0.8, 0.1], [0.0, 0.3, 0.7]])
    start = np.array([0.2, 0.5, 0.3])
    once = qd.markov_chain(p, length=60, initial=start)
    each = qd.markov_chain([p.copy() for _ in range(59)], initial=start)
    alpha = np.full(60, 0.1)
    a, b = (ready(adversary, m).evaluate(alpha).values for m in (once, each))
    assert b == pytest.approx(a, rel=5e-3)


def test_a_year_by_time_of_day_repeats():
    """Twenty-four matrices, each for twelve steps, day after day: it settles once the law has."""
    rng = np.random.default_rng(2)
    hours = [0.3 * rng.dirichlet(np.ones(3), size=3) + 0.7 * np.eye(3) for _ in range(4)]
    steps = [hours[(t // 3) % 4] for t in range(2399)]
    model = qd.markov_chain(steps, initial=np.full(3, 1 / 3))
    laws = ChainLaws(model.segments[0])
    for side in (forward_side, backward_side):
        curves = side(laws, max_step=8, check=lambda: None)._curves
        assert curves.period == 12
        assert curves.settled < 1200


@pytest.mark.parametrize("spread", [2.0, 20.0, np.inf])
def test_positions_that_are_not_walked_pay_no_more_than_all_records_beyond(spread, monkeypatch):
    """Where the fixed point is above group privacy, later positions grow until they reach it."""
    side = Side(90, Curves.constant([1], [PhiCurve(spread)]))
    walked = side.leak(np.full(90, 0.5))
    monkeypatch.setattr(chain_recursion, "CHAIN_WALKED", 8)
    found = side.leak(np.full(90, 0.5))
    assert (found >= walked).all()
    group = up_array(0.5 * np.arange(90))
    assert (found <= group).all()
    last = found[-1]
    assert found[8:].tolist() == np.minimum(group, last)[8:].tolist()
