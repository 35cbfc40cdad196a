"""The inverse of a certified, monotone bound: the largest scale that still passes."""

from __future__ import annotations

import math
from collections.abc import Callable

from quiltdp.accountant.leakage.base import Vector
from quiltdp.errors import NoCertificate
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
    low = down(target / float(weights.sum()), 64.0 + 4 * len(weights))
    high_value = bound(high)
    if high_value <= target:
        return high
    low_value = bound(low)
    if math.isinf(low_value):
        raise NoCertificate("this method gives no finite bound for this model: use another method")
    if low_value > target:
        low, low_value = _rescue(bound, target, low)
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


def _rescue(bound: Callable[[float], float], target: float, low: float) -> tuple[float, float]:
    """Step below group privacy by rounding errors only."""
    for k in range(1, 30):
        trial = low * (1.0 - 2.0 ** (k - 45))
        value = bound(trial)
        if value <= target:
            return trial, value
    raise NoCertificate("no α passed its own certificate, not even that of group privacy")


def _between(low: float, low_value: float, high: float, high_value: float, target: float, step: int) -> float:
    """Return the next point: false position on logarithms, every third step the middle."""
    middle = math.sqrt(low * high)
    if step % 3 == 2 or low_value <= 0.0 or math.isinf(high_value) or high_value <= low_value:
        return middle
    share = math.log(target / low_value) / math.log(high_value / low_value)
    share = min(max(share, 1e-3), 1.0 - 1e-3)
    guess = low * (high / low) ** share
    # stand a little below the crossing now and then, so that the lower end moves too
    guess *= 1.0 - 1e-10 if step % 3 == 0 else 1.0 + 1e-10
    return guess if low < guess < high else middle
