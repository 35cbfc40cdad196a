"""How close Thresholdout's answers stay to the holdout's own values, for planning.

With noise σ, threshold T, m queries and B' = min(B, m), any s₁, s₂ ≥ 0 and a ≥ T + s₁ + s₂, the chance
that some answered query is off its holdout value by more than a is at most

    b(a) = ½ B' e^{−s₁/σ} + ½ m e^{−s₂/2σ} + B' e^{−a/4σ}.
"""

from __future__ import annotations

import math

from quiltdp.errors import InvalidArgument
from quiltdp.generalization._checks import count, non_negative, positive, round_up

__all__ = ["expected_excess", "largest_threshold", "sample_failure"]


def _parts(a: float, sigma: float, threshold: float, queries: int, spends: int) -> tuple[float, float]:
    """Return the two halves of b(a) at the best split: threshold and comparison noise, answer noise."""
    room = a - threshold
    first = 2 * sigma / 3 * (math.log(2 * spends / queries) + room / (2 * sigma))
    first = min(max(first, 0.0), room)
    noise = 0.5 * spends * math.exp(-first / sigma) + 0.5 * queries * math.exp(-(room - first) / (2 * sigma))
    return noise, spends * math.exp(-a / (4 * sigma))


def sample_failure(a: float, *, sigma: float, threshold: float, queries: int, budget: int) -> float:
    """Return b(a), at the best s₁ + s₂ = a − T, at most 1, rounded up.

    Examples
    --------
    >>> round(sample_failure(0.1, sigma=0.002, threshold=0.05, queries=100, budget=10), 5)
    0.01058

    References
    ----------
    Theorem 2 of Zhao (2017), with every constant kept.
    """
    spends = _checked(a, sigma, threshold, queries, budget)
    return min(1.0, round_up(sum(_parts(a, sigma, threshold, queries, spends))))


def expected_excess(a: float, *, sigma: float, threshold: float, queries: int, budget: int) -> float:
    """Bound ∫_a^∞ b: the expected amount by which the worst answer is off by more than a; rounded up.

    Claim: when a grows by x, give a third of it to s₁ and two thirds to s₂: the first two terms of b fall
    like e^{−x/3σ} and the last like e^{−x/4σ}, so the integral is at most 3σ times the former plus
    4σ times the latter, which is at most 4σ b(a).

    Examples
    --------
    >>> excess = expected_excess(0.1, sigma=0.002, threshold=0.05, queries=100, budget=10)
    >>> excess <= 4 * 0.002 * sample_failure(0.1, sigma=0.002, threshold=0.05, queries=100, budget=10)
    True
    """
    spends = _checked(a, sigma, threshold, queries, budget)
    noise, answers = _parts(a, sigma, threshold, queries, spends)
    return round_up(3 * sigma * noise + 4 * sigma * answers)


def _checked(a: float, sigma: float, threshold: float, queries: int, budget: int) -> int:
    positive("sigma", sigma)
    non_negative("threshold", threshold)
    m, b = count("queries", queries), count("budget", budget)
    if not a >= threshold:
        raise InvalidArgument(f"a = {a:g} must not be below the threshold {threshold:g}")
    return min(m, b)


def largest_threshold(a: float, *, sigma: float, queries: float, budget: int, noise_failure: float) -> float:
    """Return the largest T with ½ B' e^{−s₁/σ} + ½ m e^{−s₂/2σ} ≤ ``noise_failure`` at s₁ + s₂ = a − T.

    The best split gives a third of the failure to the threshold's noise: s₁ = σ ln(3B'/2R) and
    s₂ = 2σ ln(3m/4R).  −∞ when nothing is left.
    """
    if noise_failure <= 0:
        return -math.inf
    spends = min(queries, budget)
    first = max(0.0, sigma * math.log(1.5 * spends / noise_failure))
    second = max(0.0, 2 * sigma * math.log(0.75 * queries / noise_failure))
    return (a - first - second) - 1e-12 * abs(a)
