"""Directed rounding against exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from quiltdp.numbers import down, plus_error, up, up_array

NUMBERS = st.floats(-1e300, 1e300)


@given(NUMBERS, st.floats(0, 1e300))
def test_an_error_is_added_upwards(value: float, error: float) -> None:
    found = plus_error(value, error)
    assert math.isinf(found) or Fraction(found) >= Fraction(value) + Fraction(error)


@given(NUMBERS)
def test_up_and_down_enclose(value: float) -> None:
    assert down(value) < value < up(value)
    assert value <= up_array(np.array([value]))[0]


def test_infinity_and_zero_stay() -> None:
    assert (up(math.inf), down(math.inf), plus_error(math.inf, 1.0), plus_error(2.0, 0.0)) == (
        math.inf,
        math.inf,
        math.inf,
        2.0,
    )
    assert up_array(np.array([0.0, math.inf])).tolist() == [0.0, math.inf]
