"""The inverse of a certified, monotone bound: the largest scale that still passes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from quiltdp.accountant.bounds import Vector
from quiltdp.errors import NoCertificate, option
from quiltdp.numbers import digits_down, down

__all__ = ["NOWHERE", "Passing", "largest_scale"]

_STEPS = 200
_STRIDE = 1.25
_SURE = 1e-3  # a step that knows the slope may aim so near the target
_SLOPES = (0.1, 10.0)  # of the logarithm of a bound in the logarithm of α; 1 is proportional


class Passing(NamedTuple):
    """A scale that passed, and the leakage that was found there; NaN: only that it passes is known."""

    scale: float
    leakage: float


NOWHERE = Passing(0.0, 0.0)
"""No point of the curve but its beginning."""


def largest_scale(
    bound: Callable[[float], float],
    target: float,
    weights: Vector,
    *,
    tolerance: float = 1e-9,
    start: Passing | None = None,
    near: Passing = NOWHERE,
    floor: Callable[[float], float] | None = None,
) -> Passing:
    """Return the largest s found, of twelve digits, with ``bound(s) ≤ target``; it was itself evaluated.

    ``bound`` is increasing, and bound(s) ≥ s·max(weights): a record leaks at least its own α.  The
    logarithm of a leakage is nearly linear in that of α, so the secant through the last two points
    needs a handful of evaluations; where it stalls, bisection helps.

    Parameters
    ----------
    start
        A scale that is known to pass, e.g. because a looser bound passes there; by default the one
        of group privacy.
    near
        Another scale that was looked at, and its leakage.
    floor
        ``bound(s)`` up to ``floor(s)`` only says that the leakage is not larger.

    Raises
    ------
    NoCertificate
        If the bound is infinite, or not even tiny scales pass.
    """
    top = float(weights.max(initial=0.0))
    if top <= 0.0:
        return Passing(math.inf, 0.0)
    ceiling = digits_down(target / top)
    if start is None:
        alone = digits_down(down(target / float(weights.sum()), 64.0 + 4 * len(weights)))
        start = Passing(alone, math.nan)
    (low, low_value), high = _passing(bound, target, start, ceiling)
    before = near  # another point of the curve
    above = NOWHERE  # the one at ``high``
    stalled = 0
    for _ in range(_STEPS):
        if low_value >= target * (1.0 - tolerance) or high - low <= tolerance * low:
            break
        aim = target * (1.0 - 0.25 * (min(tolerance, _SURE) if before[1] > 0.0 else tolerance))
        if _is_the_leakage(low, low_value, floor):
            s = _secant((low, low_value), before, aim)
        elif above[1] > 0.0 and math.isfinite(above[1]):
            s = _secant(above, NOWHERE, aim)  # how far below the target ``low`` leaks is not known
        else:
            room = target / low_value if low_value > 0.0 else 2.0
            s = min(low * max(_STRIDE, room), high)
        if stalled > 1 or not low < s or (s >= high and high < ceiling):
            s = math.sqrt(low * high)
        s = digits_down(min(max(s, low * (1.0 + 0.25 * tolerance)), high))
        if not low < s <= high or (s == high and high < ceiling):
            break
        value = bound(s)
        gap, width = target - low_value, high - low
        if value <= target:
            before = Passing(low, low_value) if _is_the_leakage(low, low_value, floor) else above
            low, low_value = s, value
        else:
            before = above = Passing(s, value)
            high = s
        progress = target - low_value <= 0.5 * gap or high - low <= 0.5 * width
        stalled = 0 if progress else stalled + 1
    return Passing(low, low_value)


def _is_the_leakage(s: float, value: float, floor: Callable[[float], float] | None) -> bool:
    """Return whether ``value`` is the leakage at s, not only above it."""
    return floor is None or value > floor(s) * (1.0 + 1e-9)


def _passing(
    bound: Callable[[float], float], target: float, start: Passing, ceiling: float
) -> tuple[Passing, float]:
    """Return a scale that passes, with its value, and one that need not be exceeded."""
    s, value = start
    high = ceiling
    for _ in range(60):
        if math.isnan(value):
            value = bound(s)
        if value <= target:
            return Passing(s, value), max(s, high)
        high = s
        if math.isinf(value) and math.isinf(bound(s * 2.0**-30)):
            raise NoCertificate(
                "this method gives no finite bound for this model", f"use another {option('method')}"
            )
        s = digits_down(s * (0.5 if math.isinf(value) else min(0.98 * target / value, 0.98)))
        value = math.nan
    raise NoCertificate("no α passed its own certificate, not even that of group privacy")


def _secant(point: tuple[float, float], other: tuple[float, float], goal: float) -> float:
    """Return where the line through two points, in logarithms, reaches ``goal``; one point: slope 1."""
    s, value = point
    if value <= 0.0:
        return 2.0 * s
    slope = 1.0
    if other[1] > 0.0 and math.isfinite(other[1]) and other[0] != s and other[1] != value:
        slope = math.log(value / other[1]) / math.log(s / other[0])
        slope = min(max(slope, _SLOPES[0]), _SLOPES[1]) if slope > 0 else 1.0
    return s * math.exp(math.log(goal / value) / slope)
