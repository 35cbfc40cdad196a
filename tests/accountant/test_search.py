"""The inverse of a bound: as large as it may be, itself evaluated, in a handful of steps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiltdp.accountant.delta_search import smallest_passing
from quiltdp.accountant.search import Passing, largest_scale
from quiltdp.errors import NoCertificate

ONES = np.ones(5)


class Curve:
    """A bound that counts how often it is asked, told only above ``floor`` and roughly beyond the target."""

    def __init__(self, value, floor=0.0, crude=math.inf):
        self.value, self.floor, self.crude, self.seen = value, floor, crude, {}

    def __call__(self, s):
        value = self.value(s)
        if value > self.crude:
            value *= 1.7
        self.seen[s] = max(value, self.floor)
        return self.seen[s]


@given(st.floats(0.5, 3.0), st.floats(0.01, 1.0), st.floats(0.02, 20.0))
def test_the_largest_scale_passes_and_was_itself_evaluated(power: float, loss: float, target: float) -> None:
    """bound(s) = s + 4·loss·s^power ≤ 5 s, so group privacy passes."""
    bound = Curve(lambda s: min(s + 4 * loss * min(s, s**power), 5 * s))
    found = largest_scale(bound, target, ONES, tolerance=1e-10)
    assert bound.seen[found.scale] == found.leakage <= target
    higher = found.scale * (1 + 1e-9)
    assert bound.value(higher) > target * (1 - 1e-9) or higher >= target * (1 - 1e-9)
    assert len(bound.seen) <= 40


@pytest.mark.parametrize("crude", [math.inf, 1.02])
def test_values_up_to_the_floor_say_little_and_cost_little(crude: float) -> None:
    bound = Curve(lambda s: 4.0 * s**1.02, floor=0.98, crude=crude)
    found = largest_scale(bound, 1.0, ONES, tolerance=1e-10, floor=lambda s: 0.98)
    assert found.scale == pytest.approx(0.25 ** (1 / 1.02), rel=1e-9)
    assert len(bound.seen) <= 16


def test_what_passed_before_is_where_the_search_begins() -> None:
    bound = Curve(lambda s: 2.0 * s)
    found = largest_scale(bound, 1.0, ONES, start=Passing(0.4, math.nan))
    assert min(bound.seen) == 0.4
    assert found.scale == pytest.approx(0.5, rel=1e-8)
    again = Curve(lambda s: 2.0 * s)
    assert largest_scale(again, 1.0, ONES, start=found) == found
    assert not again.seen


def test_a_scale_has_twelve_digits() -> None:
    scale = largest_scale(lambda s: 3.0 * s, 1.0, ONES).scale
    assert float(f"{scale:.12g}") == scale


def test_no_certificate_is_said_so() -> None:
    with pytest.raises(NoCertificate, match="no finite bound"):
        largest_scale(lambda s: math.inf, 1.0, ONES)
    with pytest.raises(NoCertificate, match="not even that of group privacy"):
        largest_scale(lambda s: 2.0, 1.0, ONES)


def test_nothing_is_read_and_everything_passes() -> None:
    assert largest_scale(lambda s: 1e9, 1.0, np.zeros(3)) == Passing(math.inf, 0.0)


def test_the_smallest_noise_passes_and_a_little_less_does_not() -> None:
    asked: list[float] = []

    def worst(x: float, costly: bool) -> float:
        asked.append(x)
        return math.exp(-x)

    found = smallest_passing(worst, 1e-6, 0.5, "x")
    assert 6 * math.log(10) <= found <= 6 * math.log(10) * (1 + 2e-9)
    assert found in asked
    assert smallest_passing(worst, 0.9, 0.5, "x") == 0.5  # the start is enough
    with pytest.raises(NoCertificate, match="no x up to"):
        smallest_passing(lambda x, costly: 1.0, 1e-6, 0.5, "x")


def test_a_rough_search_comes_from_above_and_a_fine_one_needs_little_more() -> None:
    """What was asked before is remembered: through three points a smooth curve is as good as known."""
    bound = Curve(lambda s: s * (3.0 + 0.4 * s - 0.1 * s * s))
    rough = largest_scale(bound, 1.0, ONES, tolerance=0.015)
    assert max(bound.seen.values()) > 1.0 >= rough.leakage > 0.98
    others = [Passing(s, v) for s, v in bound.seen.items() if s != rough.scale]
    others.sort(key=lambda p: abs(p.scale - rough.scale))
    before = len(bound.seen)
    fine = largest_scale(bound, 1.0, ONES, tolerance=1e-8, start=rough, near=others[:2])
    assert 1.0 - 1e-8 <= fine.leakage <= 1.0
    assert (before, len(bound.seen)) <= (4, 5)
