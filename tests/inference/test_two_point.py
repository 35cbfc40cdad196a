"""The two-point maximum against bisection in fifty digits, and against a search over all weights."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest

from quiltdp.accountant.bounds.contraction import phi
from quiltdp.inference import two_point as module
from quiltdp.inference.two_point import PointPairs, least_rate, raise_to_pairs, two_point


def bisected(a: float, b: float, log_rho: float, t: float) -> mp.mpf:
    """The least ln λ of the inequality, by bisection in fifty digits."""
    with mp.workdps(50):
        big_a, big_b = mp.exp(mp.mpf(a)), mp.exp(mp.mpf(b))
        half, other = (mp.mpf(log_rho) + mp.mpf(t)) / 2, (mp.mpf(log_rho) - mp.mpf(t)) / 2
        need = big_a * mp.exp(half) + big_b * mp.exp(-half)

        def holds(rate: mp.mpf) -> bool:
            return 2 * rate * mp.cosh(other) + 2 * mp.sqrt((rate - big_a) * (rate - big_b)) >= need

        low = max(big_a, big_b)
        if holds(low):
            return mp.log(low)
        high = 2 * low
        while not holds(high):
            high *= 2
        for _ in range(150):
            middle = (low + high) / 2
            low, high = (low, middle) if holds(middle) else (middle, high)
        return mp.log(high)


def test_the_closed_form_is_the_least_rate_in_fifty_digits() -> None:
    rng = np.random.default_rng(5)
    size = 250
    scale = 10.0 ** rng.integers(-9, 2, (4, size))
    a, b, log_rho, t = rng.normal(size=(4, size)) * scale
    b = np.where(rng.random(size) < 0.3, a, b)
    log_rho = log_rho * np.where(rng.random(size) < 0.1, 50.0, 1.0)
    found = least_rate(a, b, log_rho, t)
    for k in range(size):
        truth = bisected(a[k], b[k], log_rho[k], t[k])
        assert float(found[k]) >= truth  # never below, not by one unit
        size_of = 4.0 + abs(a[k]) + abs(b[k]) + abs(log_rho[k]) + abs(t[k])
        assert float(found[k]) <= truth + 3e-14 * size_of


def test_equal_ends_give_phi() -> None:
    rng = np.random.default_rng(6)
    c, o = rng.exponential(2.0, (2, 50))
    zero = np.zeros(50)
    assert two_point((zero, zero), (o, o), (c, c)) == pytest.approx(phi(c, o), abs=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_no_weights_and_functions_exceed_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(40):
        mu = rng.exponential(size=4) * rng.choice([0.1, 1.0, 3.0])
        c, span = rng.exponential(size=2) * 2, rng.exponential(size=2) * rng.choice([0.3, 5.0])
        one, there, back, two = (np.array([m]) for m in mu)
        tilt, ends = (np.array([c[0]]), np.array([c[1]])), (np.array([span[0]]), np.array([span[1]]))
        found = float(two_point((one, two), (there, back), tilt, ends)[0])
        t = rng.uniform(-span[1], span[0], 20_000)
        w = 1 / (1 + np.exp(4 * rng.normal(size=20_000)))
        r = np.where(rng.random(20_000) < 0.5, c[0], -c[1])
        a, b = np.minimum(mu[0], mu[1] - t), np.minimum(mu[3], mu[2] + t)
        above = w * np.exp(r + a + t) + (1 - w) * np.exp(b)
        tried = np.log(above / ((w * np.exp(r) + 1 - w) * (w * np.exp(t) + 1 - w))).max()
        assert tried <= found
        assert found <= max(tried, mu[0], mu[3]) + 0.05 * max(1.0, found)


def test_without_a_finite_tilt_a_pair_is_worth_its_largest_corner() -> None:
    one, three, inf = np.array([1.0]), np.array([3.0]), np.array([np.inf])
    assert two_point((one, one), (three, one), (inf, one))[0] == 3.0
    assert two_point((one, -inf), (three, one), (one, one))[0] == 3.0
    assert two_point((one, one), (inf, one), (one, one))[0] == np.inf


def some_pairs(rng: np.random.Generator, cells: int) -> PointPairs:
    """Rows of random pairs of points: far apart or nearly alike, impossible points, infinite tilts."""
    rows, width = int(rng.integers(1, 60)), int(rng.integers(2, 6))
    scale = rng.choice([1e-9, 0.05, 0.4, 3.0])
    mu, tilt, span = rng.exponential(size=(3, rows, width, width)) * np.array([1.0, 10.0, 2.0])[
        :, None, None, None
    ] ** rng.integers(0, 2)
    mu *= scale
    mu[rng.random(mu.shape) < 0.05] = -np.inf
    mu[rng.random(mu.shape) < 0.02] = np.inf
    tilt[rng.random(tilt.shape) < 0.1] = np.inf
    span[rng.random(span.shape) < 0.2] = np.inf
    at = [rng.integers(0, rows, 2 * rows) for _ in range(3)]
    return PointPairs(mu, at[0], tilt, at[1], span, at[2], rng.integers(0, cells, 2 * rows))


@pytest.mark.parametrize("seed", range(60))
def test_pairs_that_are_passed_over_are_worth_no_more(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    cells = int(rng.integers(1, 40))
    rows = [some_pairs(rng, cells) for _ in range(int(rng.integers(1, 4)))]
    worth = rng.exponential(size=cells) * rng.choice([0.0, 0.1, 1.0])
    for some in rows:  # single points are in
        np.maximum.at(worth, some.cell, np.einsum("kuu->ku", some.mu[some.mu_at]).max(axis=1))
    expected = worth.copy()
    for some in rows:
        cell, *given = some.listed()
        np.maximum.at(expected, cell, two_point(*((given[k], given[k + 1]) for k in (0, 2, 4, 6))))
    by_twin = worth.copy()
    raise_to_pairs(worth, rows)
    assert np.array_equal(worth, expected)
    monkeypatch.setattr(module, "kernel", lambda name: None)
    raise_to_pairs(by_twin, rows)
    assert np.array_equal(by_twin, expected)


def test_the_ceiling_is_above_the_least_rate_in_fifty_digits() -> None:
    rng = np.random.default_rng(7)
    a, b, log_rho, t = rng.normal(size=(4, 250)) * 10.0 ** rng.integers(-9, 3, (4, 250))
    t = np.copysign(t, log_rho)
    ceiling = module._rate_ceiling(a, b, log_rho, t, np.full(250, 4.0))
    for k in range(250):
        assert float(ceiling[k]) >= bisected(a[k], b[k], log_rho[k], t[k])


def test_what_is_not_verified_is_worth_its_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    one = np.ones(1)
    exact = float(least_rate(0 * one, 0 * one, one, 2 * one)[0])
    monkeypatch.setattr(module, "_surely_holds", lambda value, *_: np.zeros(value.shape, dtype=bool))
    fallen_back = float(least_rate(0 * one, 0 * one, one, 2 * one)[0])
    assert exact < fallen_back < 1.02 * exact
