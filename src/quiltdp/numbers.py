"""Directed rounding: how a double becomes a bound.

numpy's elementary functions are accurate to a few units in the last place, not correctly rounded.
A quantity computed with a handful of them is therefore true up to a small relative error, and
:func:`up` and :func:`down` step over that error in the direction of privacy.  Where the error is
known, :func:`plus_error` adds it.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

DIGITS = 12
"""Significant digits of a number that people get: the last bits of a library do not show in it."""

EPS = float(np.finfo(np.float64).eps)
LEAST = 1e-300  # what a possible state weighs at least, so that 0 means impossible
UNDERFLOW = 1e-280  # below it a product of doubles has lost digits: its entry counts as unknown
_TINY = 5e-324


def up(value: float, ulps: float = 64.0) -> float:
    """Return a double above ``value`` by at least ``ulps`` relative units; ∞ stays ∞.

    Examples
    --------
    >>> up(1.0) > 1.0, up(float("inf"))
    (True, inf)
    """
    return float(value + abs(value) * ulps * EPS + _TINY)


def down(value: float, ulps: float = 64.0) -> float:
    """Return a double below ``value`` by at least ``ulps`` relative units; ∞ stays ∞."""
    if np.isinf(value):
        return float(value)
    return float(value - abs(value) * ulps * EPS - _TINY)


def up_array(values: NDArray[np.float64], ulps: float = 64.0) -> NDArray[np.float64]:
    """Round a whole array up; zeros stay zero (a sum of nothing is exact), ∞ stays ∞."""
    raised = np.abs(values)
    raised *= ulps * EPS
    raised += values
    return raised


def scaled(weights: NDArray[np.float64], s: float) -> NDArray[np.float64]:
    """Return s·weights; one number that stands for all stays one."""
    if weights.strides == (0,):
        return np.broadcast_to(weights[0] * s, len(weights))
    return weights * s


def is_constant(values: NDArray[Any]) -> bool:
    """Return whether all values are equal; one number that stands for all is not compared with itself."""
    return values.strides == (0,) or bool((values == values[0]).all())


def plus_error(value: float, error: float) -> float:
    """Return a double that is no less than the true value, given a bound on the error.

    Examples
    --------
    >>> plus_error(1.0, 0.0), plus_error(1.0, 1e-16) > 1.0
    (1.0, True)
    """
    return value + error if error == 0 or value == math.inf else math.nextafter(value + error, math.inf)


def round_up(value: Fraction) -> float:
    """Return the smallest double that is not below ``value`` (∞ above the range of doubles).

    Examples
    --------
    >>> round_up(Fraction(1, 4)), round_up(Fraction(1, 3)) >= Fraction(1, 3)
    (0.25, True)
    """
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def round_down(value: Fraction) -> float:
    """Return the largest double that is not above ``value``."""
    return -round_up(-value)


def round_up_digits(value: float) -> float:
    """Return the smallest number of twelve significant digits that is not below ``value``; ∞ stays ∞.

    Examples
    --------
    >>> round_up_digits(1 / 3), round_up_digits(0.25), round_up_digits(2.0000000000000004)
    (0.333333333334, 0.25, 2.00000000001)
    """
    # the nearest double of a decimal above a double is not below that double
    return float(_CEILING.create_decimal(Decimal(value)))


def round_down_digits(value: float) -> float:
    """Return the largest number of twelve significant digits that is not above ``value``; ∞ stays ∞.

    Examples
    --------
    >>> round_down_digits(1 / 3), round_down_digits(0.25)
    (0.333333333333, 0.25)
    """
    return float(_FLOOR.create_decimal(Decimal(value)))


def format_up(value: float, digits: int = 6) -> str:
    """Return a number as people read it, in few significant digits, never below ``value``.

    Examples
    --------
    >>> format_up(31.92131), format_up(22.5), format_up(0.0457245, 3), format_up(math.inf)
    ('31.9214', '22.5', '0.0458', 'inf')
    """
    rounded = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(float(value)))
    return f"{float(rounded):.{digits}g}"


def format_down(value: float, digits: int = 6) -> str:
    """Return a number for people, never above it: what is attained, what may still be spent."""
    return format_up(-value, digits).removeprefix("-") if value > 0.0 else format_up(value, digits)


def round_up_digits_array(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round a whole array of non-negative numbers up to twelve digits; what differs by rounding only is one.

    Values closer than 1e-13 (relatively) to each other all become the largest of them first, so that
    equal numbers computed in different orders come out equal.
    """
    starts = np.flatnonzero(np.append(True, values[1:] != values[:-1])[: len(values)])  # long chains repeat
    distinct, where = np.unique(values[starts], return_inverse=True)
    with np.errstate(invalid="ignore"):  # ∞ against ∞ cannot happen among distinct values
        last = np.append(distinct[1:] > distinct[:-1] * (1 + 1e-13), True)
    group = np.cumsum(np.append(0, last[:-1])).astype(np.intp)
    tops = np.array([round_up_digits(v) for v in distinct[last].tolist()])
    if not len(distinct):
        return values.copy()
    return np.repeat(tops[group][where.ravel()], np.diff(starts, append=len(values)))


_CEILING = Context(prec=DIGITS, rounding=ROUND_CEILING, Emin=-400, Emax=400)
_FLOOR = Context(prec=DIGITS, rounding=ROUND_FLOOR, Emin=-400, Emax=400)
