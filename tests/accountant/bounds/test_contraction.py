"""Φ against its definition in high precision, and against the two-point extreme it describes."""

from __future__ import annotations

import math

import mpmath
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from quiltdp.accountant.bounds.contraction import phi

spreads = st.floats(min_value=1e-14, max_value=5e3)


@given(spreads, spreads)
def test_phi_is_never_below_the_true_value_and_hardly_above(c: float, o: float) -> None:
    with mpmath.workdps(60):
        big, small = mpmath.mpf(c), mpmath.mpf(o)
        true = 2 * mpmath.log(mpmath.cosh((big + small) / 4) / mpmath.cosh((big - small) / 4))
        found = mpmath.mpf(float(phi(c, o)))
        assert found >= true * (1 - mpmath.mpf(10) ** -40)
        assert found <= true * (1 + mpmath.mpf(10) ** -13)


@given(spreads, spreads)
def test_phi_is_symmetric_and_below_both(c: float, o: float) -> None:
    assert phi(c, o) == phi(o, c)
    assert phi(c, o) <= min(c, o)


def test_infinite_arguments_pass_through() -> None:
    assert phi(math.inf, 2.0) == 2.0
    assert phi(3.0, math.inf) == 3.0
    assert phi(math.inf, math.inf) == math.inf
    assert phi(0.0, math.inf) == 0.0


@given(
    st.lists(st.floats(0.01, 1.0), min_size=2, max_size=6),
    st.integers(0, 2**32 - 1),
)
def test_no_pair_of_laws_beats_phi(weights: list[float], seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = np.array(weights) / sum(weights)
    q = p * np.exp(rng.uniform(-1, 1, len(p)))
    q /= q.sum()
    logs, a = np.log(p / q), rng.uniform(-2, 2, len(p))
    gain = math.log(p @ np.exp(a)) - math.log(q @ np.exp(a))
    assert gain <= float(phi(np.ptp(logs), np.ptp(a))) + 1e-12


def test_two_points_attain_phi() -> None:
    c, o = 1.3, 0.7
    # p : p' = e^{c/2} apart, split so that the ratio of means is largest
    best = 0.0
    for t in np.linspace(0.01, 0.99, 2000):
        p = np.array([t, 1 - t])
        q = p * np.array([1.0, math.exp(c)])
        q /= q.sum()
        a = np.array([math.exp(o), 1.0])
        best = max(best, math.log(p @ a) - math.log(q @ a))
    assert abs(best - float(phi(c, o))) < 1e-5
