"""Chains whose matrices repeat: short ones that stand for long ones, and laws that settle (``periodic``)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.accountant.bounds import ready
from quiltdp.accountant.leakage import chain_contraction, chain_curves
from quiltdp.accountant.leakage.chain_contraction import ContractionBound
from quiltdp.accountant.leakage.chain_curves import backward_side, forward_side
from quiltdp.accountant.leakage.chain_prior import ChainPriorBound
from quiltdp.accountant.leakage.threshold import ThresholdCurve
from quiltdp.inference.chains import ChainLaws, Path
from quiltdp.inference.periodic import period_of, settled_law, short_length, shortened_path, shortened_segment

NEAR = 2e-11


def by_hour(length: int, hours: int, an_hour: int, states: int, seed: int, start: object = None) -> qd.Model:
    rng = np.random.default_rng(seed)
    day = [0.5 * rng.dirichlet(np.ones(states), size=states) + 0.5 * np.eye(states) for _ in range(hours)]
    steps = [day[t // an_hour % hours] for t in range(length - 1)]
    initial = np.full(states, 1.0 / states) if start is None else np.asarray(start)
    return qd.markov_chain(steps, initial=initial)


def test_the_smallest_period_of_the_same_objects_is_found() -> None:
    a, b = np.eye(2), np.eye(2)
    assert period_of([a] * 9) == 1
    assert period_of([a, a, b] * 5 + [a]) == 3
    assert period_of([a, b] * 2) == 0  # seen twice only
    assert period_of([a, b] * 5 + [b]) == 0
    assert period_of([a]) == 0


@pytest.mark.parametrize("length", [50, 73, 100, 101, 102, 5000])
def test_a_short_length_differs_by_whole_periods_and_holds_enough_of_them(length: int) -> None:
    short = short_length(length, 6, 32)
    assert short <= length
    assert (length - short) % 6 == 0
    assert short == length or 32 + 4 * 6 < short <= 32 + 5 * 6


def test_a_shorter_chain_has_the_same_beginning_and_the_same_end() -> None:
    segment = by_hour(1001, 4, 3, 2, 0).segments[0]
    short = shortened_segment(segment, 20)
    assert short.length < 100
    assert all(x is y for x, y in zip(short.transitions, segment.transitions, strict=False))
    assert all(x is y for x, y in zip(short.transitions[::-1], segment.transitions[::-1], strict=False))
    start = segment.initial
    path = shortened_path(Path(range(1001), segment.transitions, start, start), 20)  # type: ignore[arg-type]  # only counted
    assert path.tables == short.transitions
    one = qd.markov_chain(np.full((2, 2), 0.5), length=1000).segments[0]
    assert shortened_segment(one, 20) is one


@pytest.mark.parametrize("seed", range(4))
def test_every_later_law_is_as_near_as_is_said_in_exact_numbers(seed: int) -> None:
    model = by_hour(160, 3, 2, 3, seed, start=[0.7, 0.3, 0.0])
    laws = ChainLaws(model.segments[0])
    late = settled_law(laws, 6, NEAR)
    assert late is not None
    assert late > 0
    law = [Fraction(float(x)) for x in model.segments[0].initial]
    for t in range(159):
        if t >= late:
            seen = laws.marginal(late + (t - late) % 6)
            away = np.log([float(x / Fraction(float(m))) for x, m in zip(law, seen, strict=True)])
            assert np.ptp(away) <= NEAR + laws.slack(late + 6)
        step = model.segments[0].transition(t)
        law = [sum((law[x] * Fraction(float(step[x, y])) for x in range(3)), Fraction(0)) for y in range(3)]


def test_laws_that_do_not_settle_are_not_said_to() -> None:
    turn = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    still = 0.999999 * np.eye(3) + 0.000001 / 3
    for steps in ([turn, turn] * 200, [still, still.copy()] * 200):
        chain = qd.markov_chain(steps, initial=[0.5, 0.3, 0.2])
        assert settled_law(ChainLaws(chain.segments[0]), 2, NEAR) is None


@pytest.mark.parametrize("alpha", [0.1])
@pytest.mark.parametrize(("hours", "an_hour", "start"), [(4, 3, None), (5, 1, [0.9, 0.1, 0.0]), (1, 7, None)])
def test_both_adversaries_say_what_the_whole_chain_says(
    monkeypatch: pytest.MonkeyPatch, alpha: float, hours: int, an_hour: int, start: object
) -> None:
    """The twin makes the curves of every step and walks all of them."""
    model = by_hour(4800, hours, an_hour, 3, 7, start)
    each = np.full(4800, alpha)
    few = [ready(kind, model).evaluate(each).values for kind in (ContractionBound, ChainPriorBound)]
    monkeypatch.setattr(chain_contraction, "shortened_path", lambda path, reach: path)
    monkeypatch.setattr(chain_curves, "period_of", lambda tables: 0)
    whole = [ready(kind, model).evaluate(each).values for kind in (ContractionBound, ChainPriorBound)]
    assert few[0].tobytes() == whole[0].tobytes()
    assert few[1] == pytest.approx(whole[1], rel=1e-9)
    assert (few[1] <= whole[1] * (1 + 1e-12)).all()  # late laws have no larger errors than early ones


@pytest.mark.parametrize("seed", range(2))
def test_a_side_is_the_formula_with_the_law_of_every_step(seed: int) -> None:
    model, a, steps = by_hour(300, 4, 3, 3, seed, start=[0.2, 0.5, 0.3]), 0.2, 6
    laws = ChainLaws(model.segments[0])
    sides = [side(laws, max_step=steps, check=lambda: None) for side in (forward_side, backward_side)]
    assert all(len(side._curves.which) < 200 for side in sides)
    for side, rows in zip(sides, (lambda k, d: laws.forward(299 - k, d), laws.backward), strict=True):
        value = np.zeros(300)
        for k in range(1, 300):
            told = [
                (d - 1) * a + ThresholdCurve(rows(k, d), slack=0.0)(a + value[k - d])
                for d in range(1, min(k, steps) + 1)
            ]
            value[k] = min(k * a, *told)
        found = side.leak(np.full(300, a))
        assert (found >= value * (1 - 1e-13)).all()
        assert found == pytest.approx(value, rel=1e-8)


@pytest.mark.parametrize("adversary", ["informed", "prior"])
def test_the_answer_does_not_depend_on_how_many_days_there_are(adversary: str) -> None:
    few, many = (by_hour(n, 4, 6, 3, 3) for n in (6001, 60001))
    some, more = (qd.leakage(m, 0.05, adversary=adversary, work="normal:chain").epsilon for m in (few, many))
    assert more == some
    unequal = np.full(6001, 0.05)
    unequal[17] *= 1 - 1e-12  # so that every step is walked
    kind = {"informed": ContractionBound, "prior": ChainPriorBound}[adversary]
    equal = ready(kind, few).evaluate(np.full(6001, 0.05)).values.max()
    assert ready(kind, few).evaluate(unequal).values.max() == pytest.approx(equal, rel=1e-8)
