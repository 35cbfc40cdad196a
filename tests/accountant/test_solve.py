"""One root finder: as large as it may be, itself evaluated, in a handful of steps."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiltdp.accountant.solve import largest_passing
from quiltdp.errors import NoCertificate


class Curve:
    """A value that counts how often it is asked; up to ``floor`` it only says that it is no larger."""

    def __init__(self, value, floor=0.0, crude=math.inf):
        self.value, self.floor, self.crude, self.seen = value, floor, crude, {}

    def __call__(self, x):
        value = self.value(x)
        if value > self.crude:
            value *= 1.7
        self.seen[x] = max(value, self.floor)
        return self.seen[x], value > self.floor


@given(st.floats(0.5, 3.0), st.floats(0.01, 1.0), st.floats(0.02, 20.0))
def test_the_largest_passes_and_was_itself_evaluated(power: float, loss: float, target: float) -> None:
    """value(s) = s + 4·loss·s^power ≤ 5 s, so group privacy passes."""
    curve = Curve(lambda s: min(s + 4 * loss * min(s, s**power), 5 * s))
    found = largest_passing(curve, target, target / 5.0 * (1 - 1e-9), target)
    assert curve.seen[found] <= target
    higher = found * (1 + 1e-9)
    assert curve.value(higher) > target * (1 - 1e-9) or higher >= target * (1 - 1e-9)
    assert len(curve.seen) <= 40


@given(st.floats(1.0, 200.0), st.floats(1e-12, 1e-2), st.floats(0.01, 100.0))
def test_steep_values_are_found_too(power: float, target: float, scale: float) -> None:
    """δ falls by many orders of magnitude where noise doubles."""
    curve = Curve(lambda x: math.exp(-power * (scale / x - 1.0)) if x < scale else 1.0)
    found = largest_passing(curve, target, 1e-3 * scale, 10.0 * scale)
    exact = scale / (1.0 - math.log(target) / power)
    assert exact * (1 - 1e-8) <= found <= exact * (1 + 1e-11)
    assert curve.seen[found] <= target
    assert len(curve.seen) <= 40


@pytest.mark.parametrize("crude", [math.inf, 1.02])
def test_values_up_to_the_floor_say_little_and_cost_little(crude: float) -> None:
    curve = Curve(lambda s: 4.0 * s**1.02, floor=0.98, crude=crude)
    found = largest_passing(curve, 1.0, 0.2, 1.0)
    assert found == pytest.approx(0.25 ** (1 / 1.02), rel=1e-9)
    assert len(curve.seen) <= 16


def test_a_smooth_curve_takes_a_handful_of_steps() -> None:
    curve = Curve(lambda s: s * (3.0 + 0.4 * s - 0.1 * s * s))
    found = largest_passing(curve, 1.0, 0.2, 1.0)
    assert 1.0 - 1e-9 <= curve.seen[found] <= 1.0
    assert len(curve.seen) <= 6
    assert min(curve.seen) == 0.2
    again = Curve(curve.value)
    assert largest_passing(again, 1.0, found, 1.0) == found  # what passed before is enough
    assert len(again.seen) == 1


def test_a_start_that_fails_is_lowered_and_the_ceiling_may_pass() -> None:
    assert largest_passing(Curve(lambda s: 5.0 * s), 1.0, 1.0, 1.0) == pytest.approx(0.2, rel=1e-9)
    assert largest_passing(Curve(lambda s: 0.5 * s), 1.0, 0.2, 1.0) == 1.0


def test_an_answer_has_twelve_digits() -> None:
    found = largest_passing(Curve(lambda s: 3.0 * s), 1.0, 0.2, 1.0)
    assert float(f"{found:.12g}") == found


def test_no_certificate_is_said_so() -> None:
    with pytest.raises(NoCertificate, match="no finite bound"):
        largest_passing(lambda s: (math.inf, True), 1.0, 0.2, 1.0)
    with pytest.raises(NoCertificate, match="not even by group privacy"):
        largest_passing(lambda s: (2.0, True), 1.0, 0.2, 1.0)


@pytest.mark.parametrize("over", [1e-9, 1e-3, 5e-3, 0.015, 0.7])
def test_a_start_hardly_above_the_target_does_not_pass(over: float) -> None:
    curve = Curve(lambda s: s * (1.0 + 0.1 * s))
    start = (1.0 + over) * (math.sqrt(1.4) - 1.0) / 0.2
    found = largest_passing(curve, 1.0, start, 10.0)
    assert curve.seen[start] > 1.0
    assert 1.0 - 1e-8 <= curve.seen[found] <= 1.0
