from __future__ import annotations

import json
import math
import pickle
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms import Gaussian, Laplace, Thresholdout, gaussian_delta, mechanism_from_dict
from quiltdp.mechanisms.sensitivities import Sensitivities

positive = st.floats(1e-9, 1e9)


@settings(deadline=None)
@given(positive, positive)
def test_laplace_cost_is_never_below_the_exact_ratio(delta: float, sigma: float) -> None:
    alpha = Laplace(delta).dp_epsilon(sigma)
    assert isinstance(alpha, float)
    exact = Fraction(delta) / Fraction(sigma)
    assert exact <= Fraction(alpha) <= exact * (1 + Fraction(1, 2**50))


@settings(deadline=None)
@given(st.integers(1, 10**6), positive, positive)
def test_scale_then_cost_never_exceeds_the_target(budget: int, delta: float, alpha: float) -> None:
    spec = Thresholdout(budget, delta)
    sigma = spec.scale(alpha)
    assert Fraction(9 * budget, 4) * Fraction(delta) / Fraction(sigma) <= Fraction(alpha)
    assert spec.dp_epsilon(sigma) <= alpha  # type: ignore[operator]


def test_thresholdout_constant() -> None:
    assert Thresholdout(4, 1.0).dp_epsilon(9.0) == 1.0


def test_unequal_records() -> None:
    spec = Thresholdout(4, {"a": 1.0, "b": 0.0, "c": 0.5})
    assert spec.dp_epsilon(9.0) == {"a": 1.0, "b": 0.0, "c": 0.5}
    assert spec.scale(1.0) == 9.0
    assert spec.scale({"a": 1.0, "c": 0.25}) == 18.0
    with pytest.raises(InvalidArgument, match="'c'"):
        spec.scale({"a": 1.0})


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, "x", None, True])
def test_bad_numbers_are_refused(bad: object) -> None:
    with pytest.raises(InvalidArgument):
        Laplace(bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        Laplace(1.0).dp_epsilon(bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        Laplace(1.0).scale(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "3"])
def test_bad_budget_is_refused(bad: object) -> None:
    with pytest.raises(InvalidArgument, match="budget"):
        Thresholdout(bad, 1.0)  # type: ignore[arg-type]


def test_sensitivities_are_checked_frozen_and_pickled() -> None:
    with pytest.raises(InvalidArgument, match="'x'"):
        Laplace({"x": -1.0})
    with pytest.raises(InvalidArgument, match="no record"):
        Laplace({"x": 0.0})
    spec = Laplace({"x": 1.0, "y": 2.0})
    assert isinstance(spec.sensitivity, Sensitivities)
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert hash(spec) == hash(Laplace({"y": 2.0, "x": 1.0}))


@pytest.mark.parametrize(
    "spec", [Laplace(2.0), Gaussian(1.0, 1e-6), Thresholdout(3, 0.1), Thresholdout(3, {"a": 0.1, "b": 0.0})]
)
def test_round_trip_through_json(spec: Laplace) -> None:
    assert mechanism_from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_unknown_mechanism_and_missing_field() -> None:
    with pytest.raises(InvalidArgument, match="'staircase'"):
        mechanism_from_dict({"mechanism": "staircase"})
    with pytest.raises(InvalidArgument, match="'budget'"):
        mechanism_from_dict({"mechanism": "thresholdout"})


def exact_gaussian_delta(epsilon: float, shift: float) -> mpmath.mpf:
    with mpmath.workdps(400):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(shift)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


@settings(deadline=None)
@given(st.floats(-60, 60), st.floats(1e-6, 60))
def test_gaussian_profile_is_an_upper_bound_and_close(epsilon: float, shift: float) -> None:
    exact = exact_gaussian_delta(epsilon, shift)
    found = gaussian_delta(epsilon, shift)
    assert found >= min(exact, 1)
    if exact > 1e-290:
        # the cancelling terms are of order φ(a); their last digits are all that may be lost
        a = shift / 2 - abs(epsilon) / shift
        lost = 1e-12 * (1 + a * a) * (1 + 1 / shift**3 + (abs(epsilon) / shift**2) ** 3)
        assert found <= exact * (1 + lost) + 1e-300


@pytest.mark.parametrize("shift", [1e-300, 1e-12, 1.0, 30.0, 1e3, 1e12, 1e300, math.inf])
@pytest.mark.parametrize("epsilon", [-math.inf, -1e300, -800.0, 0.0, 1e-300, 5.0, 800.0, 1e300])
def test_gaussian_profile_at_extremes(epsilon: float, shift: float) -> None:
    value = gaussian_delta(epsilon, shift)
    assert 0.0 <= value <= 1.0
    assert gaussian_delta(epsilon, shift * 2) >= value - 1e-12


def test_gaussian_scale_passes_its_own_check_and_is_tight() -> None:
    spec = Gaussian(1.0, 1e-5)
    std = spec.scale(1.0)
    assert spec.profile(1.0, std) <= 1e-5 < spec.profile(1.0, std * (1 - 1e-9))
    assert std == pytest.approx(3.730632, rel=1e-6)
    with pytest.raises(InvalidArgument, match="pure"):
        spec.dp_epsilon(1.0)
