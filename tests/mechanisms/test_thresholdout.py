from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms import (
    InsecureDeterministicNoise,
    Thresholdout,
    ThresholdoutMechanism,
    ThresholdoutState,
)
from quiltdp.mechanisms.thresholdout import failure_probability, sample_error

# Each statistical test below fails by chance with at most this probability; seeds are fixed besides.
FALSE_ALARM = 1e-9


def mechanism(
    budget: int = 3, scale: float = 0.01, threshold: float = 0.1, seed: int | None = 0
) -> ThresholdoutMechanism:
    noise = None if seed is None else InsecureDeterministicNoise(seed)
    return ThresholdoutMechanism(Thresholdout(budget, 1e-3), scale, threshold, noise=noise)


def hoeffding(n: int) -> float:
    return math.sqrt(math.log(2 / FALSE_ALARM) / (2 * n))


def laplace_cdf(x: float, scale: float) -> float:
    return 0.5 * math.exp(x / scale) if x < 0 else 1 - 0.5 * math.exp(-x / scale)


def above_probability(gap: float, scale: float, threshold: float) -> float:
    """Return P[gap + Lap(2σ) > T + Lap(σ)] by a sum over the threshold's noise."""
    grid = np.linspace(-40 * scale, 40 * scale, 40001)
    weights = np.exp(-np.abs(grid) / scale)
    below = np.array([laplace_cdf(threshold + g - gap, 2 * scale) for g in grid])
    return float(1 - (weights * below).sum() / weights.sum())


@pytest.mark.parametrize("gap", [0.0, 0.08, 0.1, 0.13])
def test_first_comparison_has_the_right_probability(gap: float) -> None:
    runs, m = 4000, mechanism(seed=5)
    pair = (m.units(0.5 + gap), m.units(0.5))
    above = sum(m.run([pair], ThresholdoutState())[0][0].source == "holdout" for _ in range(runs))
    assert abs(above / runs - above_probability(gap, 0.01, 0.1)) < hoeffding(runs)


def test_answers_from_the_holdout_are_laplace_with_four_sigma() -> None:
    n, m = 4000, mechanism(budget=4000, seed=6)
    outcomes, state = m.run([(m.units(0.9), 0)] * n, ThresholdoutState())
    assert state.answers == n
    sample = np.sort([m.grid.value(o.units) for o in outcomes if o.units is not None]) - 0.9
    cdf = np.array([laplace_cdf(x, 0.04) for x in sample])
    distance = max(np.max(np.arange(1, n + 1) / n - cdf), np.max(cdf - np.arange(n) / n))
    assert distance < hoeffding(n)  # Dvoretzky–Kiefer–Wolfowitz–Massart


def test_the_threshold_is_fresh_after_a_spend_and_only_then() -> None:
    m = mechanism(budget=2000, seed=7)
    far, near = (m.units(0.9), 0), (m.units(0.5), m.units(0.5))
    outcomes, _ = m.run([near, near, far] * 2000, ThresholdoutState())
    opened = [k for k, o in enumerate(outcomes) if o.opened is not None]
    spends = [k for k, o in enumerate(outcomes) if o.source == "holdout"]
    assert opened == [0, *(k + 1 for k in spends[:-1])]
    sample = np.sort([m.grid.value(o.opened) for o in outcomes if o.opened is not None]) - 0.1
    n = len(sample)
    cdf = np.array([laplace_cdf(x, 0.01) for x in sample])
    assert np.max(np.abs(np.arange(1, n + 1) / n - cdf)) < hoeffding(n) + 1 / n


def test_one_threshold_serves_a_whole_epoch() -> None:
    """Comparisons of one epoch share T̂, so they are dependent in the computed way."""
    runs, count, m = 8000, 6, mechanism(seed=8)
    pair = (m.units(0.6), m.units(0.5))
    all_below = 0
    for _ in range(runs):
        outcomes, _ = m.run([pair] * count, ThresholdoutState())
        all_below += all(o.source == "train" for o in outcomes)
    grid = np.linspace(-0.4, 0.4, 40001)
    weights = np.exp(-np.abs(grid) / 0.01)
    below = np.array([laplace_cdf(g, 0.02) for g in grid])
    shared = float((weights * below**count).sum() / weights.sum())
    assert shared - 0.5**count > hoeffding(runs)  # a threshold redrawn each time would be found out
    assert abs(all_below / runs - shared) < hoeffding(runs)


def simulated_sources(gaps: list[float], budget: int, runs: int) -> np.ndarray:
    """Return how often each query is answered from the holdout: Algorithm 1 written once more."""
    rng = np.random.default_rng(123)
    threshold = 0.1 + rng.laplace(0, 0.01, runs)
    spent, found = np.zeros(runs, dtype=int), []
    for gap in gaps:
        above = (gap + rng.laplace(0, 0.02, runs) > threshold) & (spent < budget)
        found.append(above.mean())
        spent += above
        threshold = np.where(above, 0.1 + rng.laplace(0, 0.01, runs), threshold)
    return np.array(found)


@pytest.mark.parametrize("batch", [True, False])
def test_batches_have_the_law_of_single_questions(batch: bool) -> None:
    gaps, runs, answers = [0.08, 0.12, 0.1, 0.14, 0.09], 3000, np.zeros(5)
    m = mechanism(budget=2, seed=9 + batch)
    pairs = [(m.units(0.5 + g), m.units(0.5)) for g in gaps]
    for _ in range(runs):
        state, sources = ThresholdoutState(), []
        if batch:
            sources = [o.source for o in m.run(pairs, state)[0]]
        else:
            for pair in pairs:
                (outcome,), state = m.run([pair], state)
                sources.append(outcome.source)
        answers += [s == "holdout" for s in sources]
    expected = simulated_sources(gaps, 2, 400_000)
    assert np.max(np.abs(answers / runs - expected)) < hoeffding(runs) + hoeffding(400_000)


def test_budget_and_bottom() -> None:
    m = mechanism(budget=3)
    answers = [m.answer(0.9, 0.1) for _ in range(6)]
    assert [source for source, _ in answers] == ["holdout"] * 3 + ["spent"] * 3
    assert [value for _, value in answers][3:] == [None] * 3
    assert m.answer(0.5, 0.5) == ("spent", None)


def test_training_answers_are_the_training_values() -> None:
    m = mechanism()
    assert m.answer(1 / 3, 0.1 + 0.2) == ("train", 0.1 + 0.2)


@pytest.mark.parametrize("bad", [-1e-9, 1.0000001, math.nan, math.inf])
def test_values_outside_the_unit_interval_are_refused(bad: float) -> None:
    m = mechanism()
    for pair in ((bad, 0.5), (0.5, bad)):
        with pytest.raises(InvalidArgument):
            m.answer(*pair)
    assert m.state == ThresholdoutState()
    with pytest.raises(InvalidArgument):
        mechanism(threshold=bad)


def test_secure_answers_lie_on_the_grid() -> None:
    m = mechanism(budget=40, seed=None)
    assert m.secure
    for _ in range(40):
        source, value = m.answer(0.9 / 3, 0.95)
        assert source == "holdout"
        assert value in m.grid


def test_secrets_are_not_shown() -> None:
    m = mechanism()
    (outcome,), state = m.run([(m.units(0.5), m.units(0.5))], ThresholdoutState())
    assert str(outcome.opened) not in repr(outcome)
    assert str(state.threshold) not in repr(state)


# -- the privacy argument, checked by exact sums on a coarse grid --------------------------------


def transcript_probability(
    gaps: list[int], answers: list[int | None], values: list[int], scale: float
) -> float:
    """Return P(transcript) of discrete Thresholdout, T = 0: ``answers[k]`` None means from training."""
    span = np.arange(-400, 401)
    threshold_law = np.exp(-np.abs(span) / scale)
    threshold_law /= threshold_law.sum()

    def at_most(x: np.ndarray, s: float) -> np.ndarray:
        q = math.exp(-1 / s)
        tail = q ** (np.abs(x) + (x >= 0)) / (1 + q)
        return np.where(x >= 0, 1 - tail, tail)

    total, epoch = 1.0, threshold_law.copy()
    for gap, answer, value in zip(gaps, answers, values, strict=True):
        below = at_most(span - gap, 2 * scale)
        if answer is None:
            epoch = epoch * below
            continue
        q = math.exp(-1 / (4 * scale))
        noise = (1 - q) / (1 + q) * q ** abs(answer - value)
        total *= float((epoch * (1 - below)).sum()) * noise
        epoch = threshold_law.copy()
    return total * float(epoch.sum())


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.tuples(st.integers(-4, 4), st.integers(-1, 1), st.none() | st.integers(-6, 6)), max_size=7),
    st.sampled_from([1.0, 3.0, 8.0]),
)
def test_what_the_ledger_books_covers_every_transcript(
    steps: list[tuple[int, int, int | None]], scale: float
) -> None:
    """Gap and value move by at most 1 between neighbours: booked are 4/9 and 5/9 of 9/(4σ) per epoch."""
    values = [v for v, _, _ in steps]
    other = [v + move for v, move, _ in steps]
    answers = [a for _, _, a in steps]
    p = transcript_probability([abs(v) for v in values], answers, values, scale)
    q = transcript_probability([abs(v) for v in other], answers, other, scale)
    spends = sum(a is not None for a in answers)
    still_open = bool(answers) and answers[-1] is None
    booked = spends * 9 / (4 * scale) + still_open / scale
    assert abs(math.log(p) - math.log(q)) <= booked + 1e-9


def test_the_cost_of_a_spend_is_reached() -> None:
    """The constant 9/4 is tight: one long epoch costs all of it, an open one its 4/9."""
    scale, n = 8.0, 100
    answers: list[int | None] = [None] * n + [400]
    p = transcript_probability([5] * n + [5], answers, [5] * n + [5], scale)
    q = transcript_probability([6] * n + [4], answers, [6] * n + [4], scale)
    assert math.log(p / q) == pytest.approx(9 / (4 * scale), rel=1e-9)
    p = transcript_probability([5] * n, [None] * n, [5] * n, scale)
    q = transcript_probability([6] * n, [None] * n, [6] * n, scale)
    assert math.log(p / q) == pytest.approx(1 / scale, rel=1e-6)


# -- accuracy ------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    st.floats(1e-4, 1.0),
    st.floats(0.0, 1.0),
    st.integers(1, 1000),
    st.floats(1e-6, 0.9),
    st.integers(1, 10**6),
)
def test_error_and_failure_are_inverse_enough(
    sigma: float, threshold: float, budget: int, failure: float, queries: int
) -> None:
    a = sample_error(sigma, threshold, budget, failure, queries=queries)
    assert failure_probability(a, sigma, threshold, budget, queries=queries) <= failure * (1 + 1e-9)
    by_source = [sample_error(sigma, threshold, budget, failure, s, queries) for s in ("train", "holdout")]
    assert a == max(by_source)


def test_error_bounds_hold_in_simulation() -> None:
    """failure = 0.2: among 300 runs of 40 queries, at most 0.2 + Hoeffding may break their bounds."""
    rng, broken, runs = np.random.default_rng(11), 0, 300
    for seed in range(runs):
        m = mechanism(budget=5, seed=seed)
        h, t = rng.random(40), rng.random(40)
        t = np.where(rng.random(40) < 0.8, np.clip(h + rng.normal(0, 0.05, 40), 0, 1), t)
        for number, (x, y) in enumerate(zip(h, t, strict=True), start=1):
            source, value = m.answer(float(x), float(y))
            if value is not None and abs(value - x) > m.error_bound(source, failure=0.2, number=number):
                broken += 1
                break
    assert broken / runs <= 0.2 + hoeffding(runs)


def test_accuracy_refuses_nonsense() -> None:
    for bad in (0.0, 1.0, math.nan):
        with pytest.raises(InvalidArgument):
            sample_error(0.1, 0.1, 1, bad)
    with pytest.raises(InvalidArgument):
        sample_error(0.1, 0.1, 1, 0.1, queries=0)
    with pytest.raises(InvalidArgument):
        sample_error(-0.1, 0.1, 1, 0.1)
    assert failure_probability(0.05, 0.01, 0.1, 3, queries=10) == 1.0
