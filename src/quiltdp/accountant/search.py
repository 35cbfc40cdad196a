"""The inverse of a certified, monotone bound: the largest scale that still passes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from quiltdp.accountant.bounds import Vector
from quiltdp.errors import NoCertificate, option
from quiltdp.numbers import digits_down, down

__all__ = ["NOWHERE", "Passing", "largest_scale"]

_STEPS = 200
_STRIDE = 1.25
_SURE = 2e-4  # a step that knows the slope may aim so near the target
_OVER = 3e-3  # a rough step that does not aims so far above it: below what is known little need be asked
_ROUGH = 1e-3  # tolerances from which a search is rough
_SLOPES = (0.1, 10.0)  # of the logarithm of a bound in the logarithm of α; 1 is proportional
_TRUSTED = 1.25  # times the target: leakages beyond are only known to be beyond


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
    near: Sequence[Passing] = (),
    floor: Callable[[float], float] | None = None,
) -> Passing:
    """Return the largest s found, of twelve digits, with ``bound(s) ≤ target``; it was itself evaluated.

    ``bound`` is increasing, and bound(s) ≥ s·max(weights): a record leaks at least its own α.  The
    logarithm of a leakage is nearly linear in that of α, so the secant through the last two points
    needs a handful of evaluations, and s/bound(s) is smoother still: through three points it is a parabola
    for a search that is nearly done.  Where that stalls, bisection helps.

    Parameters
    ----------
    start
        A scale that is known to pass, e.g. because a looser bound passes there; by default the one
        of group privacy.
    near
        Other scales that were looked at, and their leakages, the nearest first.
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
    before = near[0] if near else NOWHERE  # another point of the curve
    above = NOWHERE  # the one at ``high``
    told = dict(near)
    stalled = 0
    for _ in range(_STEPS):
        if low_value >= target * (1.0 - tolerance) or high - low <= tolerance * low:
            break
        sure = before[1] > 0.0 or tolerance <= _ROUGH
        aim = target * (1.0 - 0.5 * min(tolerance, _SURE) if sure else 1.0 + _OVER)
        if _is_the_leakage(low, low_value, floor):
            told[low] = low_value
            s = _through(told, aim) or _secant((low, low_value), before, aim)
        elif above[1] > 0.0 and math.isfinite(above[1]):
            # ``low`` leaks at most ``low_value``: a guess
            s = _through({low: low_value, above[0]: above[1]}, aim) or _secant(above, NOWHERE, aim)
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
            if value <= _TRUSTED * target:
                told[s] = value
        progress = target - low_value <= 0.5 * gap or high - low <= 0.5 * width
        stalled = 0 if progress else stalled + 1
    return Passing(low, low_value)


def _through(told: Mapping[float, float], goal: float) -> float:
    """Return where s/v as a parabola in v, through the three points nearest to ``goal``, reaches it.

    Through two points it is a line.  0 where fewer are known, or where it is no such curve.
    """
    shares = {v: s / v for s, v in told.items() if v > 0.0}
    points = sorted(shares.items(), key=lambda p: abs(p[0] - goal))[:3]
    if len(points) < 2:
        return 0.0
    (x, a), (y, b), *more = points
    slope = (b - a) / (y - x)
    share = a + (goal - x) * slope
    for z, c in more:
        share += (goal - x) * (goal - y) * ((c - b) / (z - y) - slope) / (z - x)
    seen = [share for _, share in points]
    return goal * share if 0.9 * min(seen) < share < 1.1 * max(seen) else 0.0


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
