"""Transfer theorems: answers that are private and right on the data are right about the population."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from quiltdp.errors import InvalidArgument
from quiltdp.generalization._checks import count, non_negative, round_up, within

__all__ = [
    "any_law_transfer",
    "approximate_dp_transfer",
    "iid_transfer",
    "max_information_transfer",
    "sensitive_query_transfer",
]


def any_law_transfer(leakages: float | Iterable[float]) -> float:
    """Bound |E[q(X) | transcript] − E q(X)| for every additive query, for any joint law of the data.

    Claim: let the whole transcript leak ε_i about record i to the *prior* adversary.  The posterior
    of X_i is within total variation tanh(ε_i/4) of its prior, so for every query
    q(x) = (1/n) Σ f_i(x_i) with f_i in [0, 1], however adaptively chosen,

        |E[q(X) | transcript] − E q(X)| ≤ (1/n) Σ tanh(ε_i/4) ≤ tanh(ε/4).

    Assumes nothing about independence or concentration.  It does **not** extend to queries that
    are not additive: n/2 pairs that share one hidden XOR bit refute it.

    Parameters
    ----------
    leakages
        One ε for all records, or one per record; DP costs are composed first and converted once.

    Returns
    -------
    float
        The bias bound, rounded up.

    Examples
    --------
    >>> round(any_law_transfer(0.4), 6), round(any_law_transfer([0.4, 0.0]), 6)
    (0.099668, 0.049834)
    """
    if isinstance(leakages, (int, float, np.floating, np.integer)):
        values = np.array([non_negative("leakage", float(leakages))])
    else:
        values = np.asarray(
            leakages if isinstance(leakages, np.ndarray) else list(leakages), dtype=np.float64
        )
        if values.size == 0 or np.isnan(values).any() or (values < 0).any():
            raise InvalidArgument("leakages must be numbers of zero or more, one per record")
    return min(1.0, round_up(float(np.mean(np.tanh(values / 4)))))


def max_information_transfer(
    t: float, *, effective_sample_size: float, n: int, queries: int, leakage: float | Iterable[float]
) -> float:
    """Bound the chance that some adaptively chosen query deviates, for any Δ = 1/n queries.

    Claim: with prefix leakage ε (the informed bound covers it) and n_eff effective records,

        P[ ∃ j ≤ m: |q_j(X) − q_j(P)| ≥ t ] ≤ exp( −( √(2t² n_eff − ln 2m) − ε √(n/8) )² )

    when the bracket is positive, else 1.  With one ε_i per record, ε√(n/8) becomes √(Σ ε_i²/8).

    Proof: W = ln P(y|x)/P(y) is a sum of steps with φ(λ) ≤ λ(λ−1)ε²/8 on independent data (see
    :func:`~quiltdp.generalization.bayesian_dp_max_information`), and the event has probability
    p = e^{−D}, D = 2t² n_eff − ln 2m, there.  By Hölder's inequality its true probability is at most
    exp((λ−1)nε²/8 − (1−1/λ)D) for every λ ≥ 1; the best λ gives the claim.

    Returns
    -------
    float
        The failure probability, rounded up.

    Examples
    --------
    >>> p = max_information_transfer(0.1, effective_sample_size=4000, n=10_000, queries=100, leakage=0.05)
    >>> f"{p:.1e}"
    '3.0e-21'
    """
    n, m = count("n", n), count("queries", queries)
    size = non_negative("effective_sample_size", effective_sample_size)
    shift = prefix_shift(leakage, n)
    inside = 2 * non_negative("t", t) ** 2 * size - math.log(2 * m)
    if inside <= 0 or math.isinf(shift):
        return 1.0
    bracket = math.sqrt(inside) - shift
    return min(1.0, round_up(math.exp(-(bracket**2)))) if bracket > 0 else 1.0


def prefix_shift(leakage: float | Iterable[float], n: int) -> float:
    """Return √(Σ ε_i²/8), rounded up, from one ε for all n records or one per record."""
    if isinstance(leakage, (int, float, np.floating, np.integer)):
        return round_up(non_negative("leakage", float(leakage)) * math.sqrt(n / 8))
    values = np.asarray(leakage if isinstance(leakage, np.ndarray) else list(leakage), dtype=np.float64)
    if values.size != n or np.isnan(values).any() or (values < 0).any():
        raise InvalidArgument(f"leakage must hold one number of zero or more for each of {n} records")
    return round_up(math.sqrt(float(values @ values) / 8))


def iid_transfer(epsilon: float, delta: float, n: int) -> tuple[float, float]:
    """Transfer for **independent, identically distributed** records and [0, 1] statistical queries.

    Claim: if A is (ε, δ)-DP and returns a query q, then P[|q(S) − q(D)| ≥ 6ε] ≤ max(4δ/ε, e^{−ε²n/8}),
    for ε ∈ [√(12/n), 1/8] and δ ≤ ε/16.

    Returns
    -------
    tuple of float
        The deviation 6ε and the failure probability, both rounded up.

    Raises
    ------
    InvalidArgument
        Outside the range.

    Examples
    --------
    >>> deviation, failure = iid_transfer(0.1, 1e-9, 10_000)
    >>> round(deviation, 6), f"{failure:.1e}"
    (0.6, '3.7e-06')

    References
    ----------
    Lecture on the transfer theorem, Theorem 0.2 (line 14), after Bassily et al., "Algorithmic stability for
    adaptive data analysis" (2016); its proof runs in :mod:`quiltdp.generalization.monitor_simulation`.
    """
    n = count("n", n)
    least = math.sqrt(12 / n)
    if least > 1 / 8:
        raise InvalidArgument(f"n = {n} is below 768, where the theorem starts (√(12/n) ≤ 1/8)")
    eps = within(
        "epsilon", epsilon, least, 1 / 8, instead="use any_law_transfer, which has no range, with the leakage"
    )
    d = within("delta", delta, 0.0, eps / 16, instead="the theorem needs δ ≤ ε/16: use a smaller δ")
    return round_up(6 * eps), round_up(max(4 * d / eps, math.exp(-(eps**2) * n / 8)))


def sensitive_query_transfer(
    epsilon: float, delta: float, n: int, *, sensitivity: float
) -> tuple[float, float]:
    """Transfer for **i.i.d.** records and any Δ-sensitive query chosen by an (ε, δ)-DP algorithm.

    Claim: for ε ∈ (0, 1/3), δ ∈ (0, ε/4) and n ≥ ln(4ε/δ)/ε²,  P[|q(P^n) − q(X)| ≥ 18εΔn] < δ/ε.

    Returns
    -------
    tuple of float
        The deviation 18εΔn and the failure probability δ/ε, both rounded up.

    Examples
    --------
    >>> deviation, failure = sensitive_query_transfer(0.01, 1e-6, 200_000, sensitivity=1 / 200_000)
    >>> round(deviation, 6), round(failure, 9)
    (0.18, 0.0001)

    References
    ----------
    Rogers et al. (2016), Theorem B.2 (line 722), quoted from Bassily et al. (2016).
    """
    n = count("n", n)
    other = "use any_law_transfer, which has no range, for additive queries"
    eps = within("epsilon", epsilon, 0.0, 1 / 3 - 1e-15, open_low=True, instead=other)
    if not 0 < delta < eps / 4:
        raise InvalidArgument(f"delta = {delta!r} is outside (0, ε/4), the theorem's range")
    small = float(delta)
    needed = math.log(4 * eps / small) / eps**2
    if n < needed:
        raise InvalidArgument(f"n = {n} is below ln(4ε/δ)/ε² = {needed:.6g}, which the theorem needs")
    if not sensitivity > 0:
        raise InvalidArgument(f"sensitivity must be above zero, not {sensitivity!r}")
    return round_up(18 * eps * sensitivity * n), round_up(small / eps)


def approximate_dp_transfer(epsilon: float, delta: float, n: int, *, factor: float) -> float:
    """Bound P[|q(P^n) − q(X)| ≥ CεΔn] for **i.i.d.** records and a query chosen by an (ε, δ)-DP algorithm.

    Claim, for Δ-sensitive queries: e^k · 2 exp(−2C²ε²n) + β with the k and β of Theorem 3.1.  The printed
    theorem says "some C" and "< n√(δ/ε)"; the constants are kept here, and the 2 of the two-sided
    inequality, which the proof drops.

    Parameters
    ----------
    factor
        C.

    Examples
    --------
    >>> f"{approximate_dp_transfer(0.1, 1e-20, 1000, factor=6):.2e}"
    '5.49e-05'

    References
    ----------
    Rogers et al. (2016), Theorem D.1 (line 838) and its proof (line 846).
    """
    from quiltdp.generalization.approximate_dp import rogers_theorem

    found = rogers_theorem(epsilon, delta, n)
    exponent = found.nats - 2 * (non_negative("factor", factor) * epsilon) ** 2 * n
    return min(1.0, round_up(2 * math.exp(min(exponent, 700.0)) + found.beta))
