"""The inverse of a certified, monotone bound: the largest scale that still passes."""

from __future__ import annotations

import math
from collections.abc import Callable

from quiltdp.accountant.leakage.base import Vector
from quiltdp.errors import NoCertificate, option
from quiltdp.rounding import down

__all__ = ["largest_scale"]


def largest_scale(
    bound: Callable[[float], float], target: float, weights: Vector, *, tolerance: float = 1e-9
) -> float:
    """Return the largest s found with ``bound(s) ≤ target``; the returned s was itself checked.

    ``bound`` is increasing, bound(s) ≥ s·max(weights) (a record leaks at least its own α), and
    bound(s) ≤ s·Σ weights (group privacy).  The logarithm of the bound is nearly linear in the
    logarithm of s, so false position with a fallback to bisection needs few evaluations.

    Raises
    ------
    NoCertificate
        If not even group privacy passes, which would mean that the bound is not monotone.
    """
    top = float(weights.max(initial=0.0))
    if top <= 0.0:
        return math.inf
    high = target / top
    high_value = bound(high)
    if high_value <= target:
        return high
    if math.isinf(high_value) and math.isinf(bound(target / float(weights.sum()))):
        raise NoCertificate(
            "this method gives no finite bound for this model", f"use another {option('method')}"
        )
    group = down(target / float(weights.sum()), 64.0 + 4 * len(weights))
    low, low_value, high, high_value = _bracket(bound, target, group, high, high_value)
    for _ in range(3):  # a wide bracket: the bound is nearly proportional to s just above the lower end
        s = low * target / low_value * 1.01 if low_value > 0.0 else high
        if high < 1.1 * low or s >= high:
            break
        value = bound(s)
        if value > target:
            high, high_value = s, value
            break
        low, low_value = s, value
    for step in range(200):
        if high - low <= tolerance * low:
            break
        s = _between(low, low_value, high, high_value, target, step)
        value = bound(s)
        if value <= target:
            low, low_value = s, value
        else:
            high, high_value = s, value
    return low


def _bracket(
    bound: Callable[[float], float], target: float, group: float, high: float, high_value: float
) -> tuple[float, float, float, float]:
    """Return a point that passes and one that fails, close together: the bound is nearly linear."""
    for k in range(60):
        s = max(group * 0.5**k, min(high * target / high_value * 0.98, 0.98 * high))
        value = bound(s)
        if value <= target:
            return s, value, high, high_value
        high, high_value = s, value
    raise NoCertificate("no α passed its own certificate, not even that of group privacy")


def _between(low: float, low_value: float, high: float, high_value: float, target: float, step: int) -> float:
    """Return the next point: false position on logarithms, every fourth step the middle.

    Even steps stand a little below the crossing and odd ones a little above, so that both ends move.
    """
    middle = math.sqrt(low * high)
    if step % 4 == 3 or low_value <= 0.0 or math.isinf(high_value) or high_value <= low_value:
        return middle
    share = math.log(target / low_value) / math.log(high_value / low_value)
    nudge = 0.02 * min(share, 1.0 - share) + 1e-4
    share += -nudge if step % 2 == 0 else nudge
    guess = low * (high / low) ** min(max(share, 1e-3), 1.0 - 1e-3)
    return guess if low < guess < high else middle
