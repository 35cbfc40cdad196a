"""Directed rounding: how a double becomes a bound.

numpy's elementary functions are accurate to a few units in the last place, not correctly rounded.
A quantity computed with a handful of them is therefore true up to a small relative error, and
:func:`up` and :func:`down` step over that error in the direction of privacy.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["EPS", "down", "down_array", "up", "up_array"]

EPS = float(np.finfo(np.float64).eps)
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
    return values + np.abs(values) * (ulps * EPS)


def down_array(values: NDArray[np.float64], ulps: float = 64.0) -> NDArray[np.float64]:
    """Round a whole array down; zeros stay zero, ∞ stays ∞."""
    step = np.abs(np.where(np.isinf(values), 0.0, values)) * (ulps * EPS)
    return values - step
