"""Directed rounding against exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from quiltdp.numbers import above, above_array, down, up, up_array

NUMBERS = st.floats(-1e300, 1e300)


@given(NUMBERS, st.floats(0, 1e300))
def test_above_adds_the_error(value: float, error: float) -> None:
    found = above(value, error)
    assert math.isinf(found) or Fraction(found) >= Fraction(value) + Fraction(error)
    assert above_array(np.array([value]), np.array([error]))[0] == found


@given(NUMBERS)
def test_up_and_down_enclose(value: float) -> None:
    assert down(value) < value < up(value)
    assert value <= up_array(np.array([value]))[0]


def test_infinity_and_zero_stay() -> None:
    assert (up(math.inf), down(math.inf), above(math.inf, 1.0), above(2.0, 0.0)) == (
        math.inf,
        math.inf,
        math.inf,
        2.0,
    )
    assert up_array(np.array([0.0, math.inf])).tolist() == [0.0, math.inf]
