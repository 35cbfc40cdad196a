"""The smallest noise scale, or ε, whose δ is small enough: quick bounds first, then all of them."""

from __future__ import annotations

import math
from collections.abc import Callable

from quiltdp.errors import NoCertificate

__all__ = ["TOLERANCE", "smallest_passing"]

TOLERANCE = 1e-9
"""How far (relatively) a noise scale or an ε may stay above the smallest that passes."""


def smallest_passing(
    worst: Callable[[float, bool], float],
    delta: float,
    start: float,
    what: str,
    *,
    costly: bool = False,
    known: float | None = None,
) -> float:
    """Return about the smallest x ≥ start with worst(x, …) ≤ δ: by the quick bounds first, then by all.

    ``worst`` is told whether ``costly`` bounds take part; ``known`` is what the quick ones found before.
    """
    found = _smallest(lambda x: worst(x, False), delta, start, what) if known is None else known
    if costly and found > start:
        found = _smallest(lambda x: worst(x, True), delta, start, what, known=found)
    return found


def _smallest(
    worst: Callable[[float], float], delta: float, start: float, what: str, known: float | None = None
) -> float:
    """Return about the smallest x ≥ start with worst(x) ≤ δ; the returned x was checked.

    Doubling from the start, or steps down from an x that is ``known`` to pass; then the secant of
    ln worst against ln x, with a bisection whenever it gains too little.
    """

    def excess(x: float) -> float:
        return math.log(max(worst(x), 1e-300) / delta)

    if known is None:
        low, high, above, over = _doubled(excess, start, what, delta)
    else:
        low, high, above, over = _lowered(excess, start, known)
    halve = False
    while high - low > TOLERANCE * high:
        a, b = math.log(low), math.log(high)
        reach = 0.3 * TOLERANCE  # step a little over the root, so that both ends close in
        share = 0.5 if halve else min(max(above / (above - over), 0.01), 0.99)
        middle = math.exp(min(max(a + (b - a) * share + (0.0 if halve else reach), a + reach), b - reach))
        found = excess(middle)
        if found <= 0.0:
            high, over = middle, found
        else:
            low, above = middle, found
        halve = math.log(high) - math.log(low) > 0.5 * (b - a)
    return high


def _doubled(
    excess: Callable[[float], float], start: float, what: str, delta: float
) -> tuple[float, float, float, float]:
    """Return (low, high, …) with high passing and low not, by doubling; both the start if that passes."""
    high, over = start, excess(start)
    if over <= 0.0:
        return high, high, over, over
    for _ in range(80):
        low, above = high, over
        high *= 2.0
        over = excess(high)
        if over <= 0.0:
            return low, high, above, over
    raise NoCertificate(f"no {what} up to {high:.3g} reaches δ = {delta:g}")


def _lowered(
    excess: Callable[[float], float], start: float, known: float
) -> tuple[float, float, float, float]:
    """Return (low, high, …) with high passing and low not, by steps down from what is known to pass."""
    high, over = known, excess(known)
    if over > 0.0:  # a search that went another way this time
        return known, known, 0.0, 0.0
    while high > start:
        low = max(start, 0.6 * high)
        above = excess(low)
        if above > 0.0:
            return low, high, above, over
        high, over = low, above
    return high, high, over, over
