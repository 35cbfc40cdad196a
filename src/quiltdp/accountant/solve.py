"""One root finder for every search: the largest x at which a certified, increasing value still passes.

For pure noise x is the scale of α and the value a leakage; for (ε, δ) it is the inverse of a noise scale,
or of ε, and the value is δ.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from quiltdp.errors import NoCertificate, option
from quiltdp.numbers import round_down_digits

TOLERANCE = 1e-10
"""How far (relatively) an answer may stay below the largest that passes."""

_STEPS = 200
_HALVINGS = 100  # from the start, until something passes
_AFAR, _OVER = 0.01, 0.0015  # how far (relatively) below the target it is aimed so far above it
_JUMP = 1e9  # the longest step, as a factor, while the slope of the curve is not known


def largest_passing(
    evaluate: Callable[[float], tuple[float, bool]],
    target: float,
    start: float,
    ceiling: float,
    tolerance: float = TOLERANCE,
) -> float:
    """Return the largest x found, of twelve digits, with a value of at most ``target``; it was evaluated.

    The logarithm of the value is smooth in that of x, so the parabola through the three points nearest to
    the target (x as a function of the value) needs a handful of evaluations; where it stalls or leaves the
    interval that is known to hold the root, the interval is halved.

    Parameters
    ----------
    evaluate
        The value at x, and whether it is the value itself; else it is only known to be no larger.
    start
        Where to look first: something that is likely to pass.
    ceiling
        Nothing larger can pass.

    Raises
    ------
    NoCertificate
        If values are infinite, or nothing passes.
    """
    points: dict[float, float] = {}  # ln(value / target) → ln x

    def evaluate_point(x: float) -> float:
        value, exact = evaluate(x)
        if exact and 0.0 < value < math.inf:
            points[math.log(value / target)] = math.log(x)
        return value

    low, high = min(start, ceiling), ceiling
    value = evaluate_point(low)
    for k in range(_HALVINGS):
        if value <= target:
            break
        if math.isinf(value) and k == 0 and math.isinf(evaluate_point(low * 2.0**-30)):
            raise NoCertificate(
                "this method gives no finite bound for this model", f"use another {option('method')}"
            )
        high, low = low, round_down_digits(low * (0.98 if value < 1.01 * target else 0.5))
        value = evaluate_point(low)
    else:
        raise NoCertificate("nothing passed its own certificate, not even by group privacy")
    stalled = 0
    for _ in range(_STEPS):
        slope = _log_slope(points)
        if value >= target * (1.0 - tolerance * slope) or high - low <= tolerance * low:
            break
        # from afar a little above the target: values there are ceilings of all below; then half a tolerance
        # below it, so that what comes out passes
        goal = _OVER if value < target * (1.0 - _AFAR) and high >= ceiling else -0.5 * tolerance * slope
        guess = _interpolate_crossing(points, goal) if points else None
        if guess is None:
            guess = low * max(1.25, min(_JUMP, target / value if value > 0.0 else 2.0))
        if stalled > 1 or not low < guess or (guess >= high and high < ceiling):
            guess = math.sqrt(low * high)
        x = round_down_digits(min(max(guess, low * (1.0 + 0.25 * tolerance)), high))
        if not low < x or (x >= high and high < ceiling):
            break
        width, gap = high / low - 1.0, target - value
        found = evaluate_point(x)
        if found <= target:
            low, value = x, found
            if x >= ceiling:
                break
        else:
            high = x
        progress = high / low - 1.0 <= 0.5 * width or target - value <= 0.5 * gap
        stalled = 0 if progress else stalled + 1
    return low


def _log_slope(points: dict[float, float]) -> float:
    """Return the slope of the curve between the two points nearest to the target, at least 1."""
    near = sorted(points, key=abs)[:2]
    if len(near) < 2 or points[near[0]] == points[near[1]]:
        return 1.0
    return max(1.0, (near[0] - near[1]) / (points[near[0]] - points[near[1]]))


def _interpolate_crossing(points: dict[float, float], goal: float) -> float | None:
    """Return where the curve through the three points nearest to the goal reaches it (one point: slope 1)."""
    near = sorted(points, key=lambda y: abs(y - goal))[:3]
    first = near[0]
    where = points[first]
    if len(near) == 1:
        return math.exp(where + min(goal - first, math.log(_JUMP)))
    slope = (points[near[1]] - where) / (near[1] - first)
    if slope <= 0.0:
        return None
    line = where + (goal - first) * slope
    if len(near) == 3:
        bend = (points[near[2]] - points[near[1]]) / (near[2] - near[1]) - slope
        curve = line + (goal - first) * (goal - near[1]) * bend / (near[2] - first)
        if abs(curve - line) <= 0.5 * abs(line - where):  # a strong bend is no parabola
            line = curve
    return math.exp(line) if line < 700.0 else None
