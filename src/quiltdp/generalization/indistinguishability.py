"""Two laws that cannot be told apart: the two definitions, how one follows from the other, and conditioning.

Rogers et al. (2016) write X ≈_{ε,δ} Y when every event has P[X ∈ O] ≤ e^ε P[Y ∈ O] + δ and the reverse,
and call X and Y *pointwise* (ε, δ)-indistinguishable when e^{−ε} P[Y = a] ≤ P[X = a] ≤ e^ε P[Y = a] for all a
but a set of probability δ under X.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from quiltdp.errors import InvalidArgument
from quiltdp.generalization._checks import distribution, non_negative, positive, probability, round_up

__all__ = [
    "conditioning_failure",
    "indistinguishability",
    "pointwise_failure",
    "pointwise_parameters",
]


def indistinguishability(first: ArrayLike, second: ArrayLike, epsilon: float) -> float:
    """Return the smallest δ with ``first`` ≈_{ε,δ} ``second``, for two laws on one finite set.

    Examples
    --------
    >>> round(indistinguishability([0.6, 0.4], [0.5, 0.5], 0.0), 6)     # total variation
    0.1

    References
    ----------
    Rogers et al. (2016), Definition 2.1; with ε = 0 it is Definition A.5, total variation.
    """
    p, q = _pair(first, second)
    grow = math.exp(min(non_negative("epsilon", epsilon), 700.0))
    return float(max(np.maximum(p - grow * q, 0).sum(), np.maximum(q - grow * p, 0).sum()))


def pointwise_failure(first: ArrayLike, second: ArrayLike, epsilon: float) -> float:
    """Return the smallest δ with which two laws are *pointwise* (ε, δ)-indistinguishable.

    Examples
    --------
    >>> pointwise_failure([0.6, 0.4], [0.5, 0.5], 0.2), pointwise_failure([0.6, 0.4], [0.5, 0.5], 0.0)
    (0.4, 1.0)

    References
    ----------
    Rogers et al. (2016), Definition 2.2.
    """
    p, q = _pair(first, second)
    grow = math.exp(min(non_negative("epsilon", epsilon), 700.0))
    slack = 1 + 1e-12
    bad = (p > grow * q * slack) | (q > grow * p * slack)
    return float(p[bad].sum())


def pointwise_parameters(epsilon: float, delta: float) -> tuple[float, float]:
    """Return (2ε, 2δ/(1 − e^{−ε})): what (ε, δ)-indistinguishable laws are pointwise.

    Examples
    --------
    >>> twice, failure = pointwise_parameters(0.5, 0.001)
    >>> twice, round(failure, 6)
    (1.0, 0.005083)

    References
    ----------
    Rogers et al. (2016), Lemma A.6(2), from Kasiviswanathan and Smith (2014).
    """
    eps = positive("epsilon", epsilon)
    small = probability("delta", delta, zero=True)
    return 2 * eps, min(1.0, round_up(2 * small / -math.expm1(-eps)))


def conditioning_failure(epsilon: float, delta: float, delta_hat: float) -> float:
    """Return 2δ/δ̂ + 2δ/(1 − e^{−ε}): how often conditioning leaves laws further apart than (3ε, δ̂).

    Claim: if (X, Z) ≈_{ε,δ} (X', Z'), then X given Z = t and X' given Z' = t are (3ε, δ̂)-indistinguishable
    except for a set of t of at most this probability.

    Examples
    --------
    >>> round(conditioning_failure(0.5, 1e-6, 1e-3), 6)
    0.002005

    References
    ----------
    Rogers et al. (2016), Lemma A.7 (the Conditioning Lemma); Claim 3.4 calls it δ'.
    Bassily and Freund (2016), Lemma 3.6, prints it with one symbol for both δ's (in our copy).
    """
    eps, hat = positive("epsilon", epsilon), positive("delta_hat", delta_hat)
    small = probability("delta", delta, zero=True)
    return min(1.0, round_up(2 * small / hat + 2 * small / -math.expm1(-eps)))


def _pair(first: ArrayLike, second: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    p, q = distribution("first", first), distribution("second", second)
    if p.shape != q.shape:
        raise InvalidArgument(f"two laws on one set need equal shapes, not {p.shape} and {q.shape}")
    return p.ravel(), q.ravel()
