"""Mutual information of a finite joint law, and its conversions to and from max-information."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from quiltdp.errors import InvalidArgument
from quiltdp.generalization._checks import count, distribution, non_negative, round_down, round_up, within
from quiltdp.generalization.approximate_dp import rogers_theorem
from quiltdp.generalization.max_information import Laws, MaxInformation

__all__ = [
    "MUTUAL_INFORMATION_SLACK_BITS",
    "approximate_dp_mutual_information",
    "max_information_from_mutual_information",
    "mutual_information",
    "mutual_information_from_max_information",
]

MUTUAL_INFORMATION_SLACK_BITS = 0.54
"""−Σ p log₂(p/q) over cells with p < q is at most (log₂ e)/e = 0.5307… bits."""


def max_information_from_mutual_information(
    mutual_bits: float, bits: float, *, laws: Laws = "this law"
) -> MaxInformation:
    """Turn mutual information into max-information: I^{β(k)}_∞ ≤ k with β(k) = (m + 0.54)/k.

    Claim: ln P(x,y)/P(x)P(y) has expectation m, its negative part at most 0.54 bits, so by Markov's
    inequality it exceeds k bits with probability at most (m + 0.54)/k.

    Parameters
    ----------
    mutual_bits
        I(X; Y) ≤ m bits.
    bits
        The k to aim at, above m + 0.54 (else β would not be below 1).

    Examples
    --------
    >>> bound = max_information_from_mutual_information(0.46, 100)
    >>> round(bound.beta, 6), round(bound.bits, 6)
    (0.01, 100.0)

    References
    ----------
    Rogers et al., "Max-information, differential privacy, and post-selection hypothesis testing"
    (2016), Lemma 1.5, first half.
    """
    total = non_negative("mutual_bits", mutual_bits) + MUTUAL_INFORMATION_SLACK_BITS
    k = non_negative("bits", bits)
    if not total < k:
        raise InvalidArgument(
            f"bits = {k:g} must be above mutual information + 0.54 = {total:g}, else β is not below 1"
        )
    beta = round_up(total / k)
    return MaxInformation(round_up(k * math.log(2)), beta, laws, "mutual information, Markov's inequality")


def mutual_information_from_max_information(
    bound: MaxInformation, alphabet: int, *, method: Literal["sharp", "published"] = "sharp"
) -> float:
    """Bound mutual information by max-information, in bits.

    Claim: I(X; Y) ≤ 2k + β' log₂(|Σ|/β') with β' = 2β/(1 − 2^{−k}) ≤ 0.3 and Σ the set of
    outputs (or of datasets, whichever is smaller).  ``published``: 2k ln 2 + 2β log₂(|Σ|/2β)/(1 − 2^{−k}),
    the number as printed, in **nats**: its second term is in bits, which is more and does no harm.

    Returns
    -------
    float
        Bits, rounded up.

    Raises
    ------
    InvalidArgument
        If β' > 0.3 or k ≤ 0.

    Examples
    --------
    >>> from quiltdp.generalization import exact_max_information
    >>> exact = exact_max_information([[0.4, 0.1], [0.1, 0.4]], beta=0.0)
    >>> round(mutual_information_from_max_information(exact, alphabet=2), 4)   # true value: 0.2781
    1.3561

    References
    ----------
    Rogers et al. (2016), Lemma 1.5, second half (line 137).
    """
    size = count("alphabet", alphabet)
    if method not in ("sharp", "published"):
        raise InvalidArgument(f"method must be 'sharp' or 'published', not {method!r}")
    k = bound.bits
    if bound.beta > 0 and k <= 0:
        raise InvalidArgument("the bound must be positive: with k ≤ 0 use a smaller β")
    if math.isinf(k):
        return round_up(math.log2(size))  # log2 takes whole numbers of any size
    wide = round_up(2 * bound.beta / -math.expm1(-bound.nats)) if bound.beta > 0 else 0.0
    within("β' = 2β/(1 − 2^−k)", wide, 0.0, 0.3, instead="use a max-information bound with a smaller β")
    if method == "published":
        shown = wide * (math.log2(size) - math.log2(2 * bound.beta)) if wide > 0 else 0.0
        return 2 * bound.nats + shown
    extra = wide * (math.log2(size) - math.log2(wide)) if wide > 0 else 0.0
    return round_up(max(2 * k, 0.0) + extra)


def approximate_dp_mutual_information(epsilon: float, delta: float, n: int, alphabet: int) -> float:
    """Bound the mutual information of an (ε, δ)-DP algorithm with n i.i.d. records, in bits.

    Claim: Theorem 3.1 at its own k and β, then the second half of Lemma 1.5 with the |𝒳|^n datasets:
    the constants behind O(nε² + n√(δ/ε)(1 + ln((1/n)√(ε/δ)) + n log|𝒳|)).

    Parameters
    ----------
    alphabet
        |𝒳|, how many values one record has.

    Raises
    ------
    InvalidArgument
        If δ is not small enough (β' > 0.3; the corollary asks for δ = O(ε/n²)).

    Examples
    --------
    >>> round(approximate_dp_mutual_information(0.1, 1e-20, 1000, 2), 1)
    1668.2

    References
    ----------
    Rogers et al. (2016), Corollary 1.6 (line 143).
    """
    found = rogers_theorem(epsilon, delta, n).bound
    return mutual_information_from_max_information(found, count("alphabet", alphabet) ** count("n", n))


def mutual_information(joint: ArrayLike) -> float:
    """Return I(X; Y) of a finite joint distribution, in nats.

    Examples
    --------
    >>> round(mutual_information([[0.5, 0], [0, 0.5]]), 6)   # ln 2
    0.693147
    """
    table = distribution("joint", joint)
    product = np.outer(table.sum(axis=1), table.sum(axis=0))
    mask = table > 0
    value = float(np.sum(table[mask] * (np.log(table[mask]) - np.log(product[mask]))))
    return max(round_down(value), 0.0) if value < 1e-15 else value
