"""Valid p-values for hypotheses chosen by an analysis that saw the data.

A *correction function* γ is valid when testing "p ≤ γ(α)" rejects a true null hypothesis, chosen
by the analysis, with probability at most α.  Given a bound on how much the analysis knows about
the data, each function below returns such a γ; :func:`correct_p_values` turns raw p-values into
the smallest α they may be rejected at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quiltdp.errors import InvalidArgument
from quiltdp.generalization._checks import non_negative, positive, probability, round_down, round_up
from quiltdp.generalization.max_information import MUTUAL_INFORMATION_SLACK_BITS, MaxInformation
from quiltdp.generalization.routes import grid_answers

MutualInformationMethod: TypeAlias = Literal["sharp", "max-information", "published", "russo-zou"]
LN2 = math.log(2.0)


@dataclass(frozen=True)
class Transcripts:
    """A transcript of weight e^(−nats), among all that could have been: ln of how many there are, weighted.

    Claim: fix the noise, the training data and whatever else is independent of the data.  The transcript
    Y of an analysis is then a function of them.  Let the weights of all transcripts with which it may end
    sum to at most 1.  If the hypothesis chosen at Y is true,

        P[p_Y ≤ α w_Y] ≤ Σ_y P[p_y ≤ α w_y] ≤ Σ_y α w_y ≤ α,

    so p / w_Y is a valid p-value: Bonferroni over what could have been said, for every law of the data.  It
    needs no β, because a p-value is small with small probability for *every* y; max-information bounds
    events that are rare on average over y, and description length pays ln(1/β) there.
    """

    nats: float
    theorem: str

    def event_probability(self, independent: float) -> float:
        """Return p / w, the smallest level at which a p-value is rejected."""
        p = probability("independent", independent, zero=True, one=True)
        exponent = self.nats + math.log(p) if p > 0 else -math.inf
        return min(1.0, round_up(math.exp(exponent))) if exponent < 0 else 1.0

    def for_half_level(self) -> Transcripts:
        """Return the bound that gives twice the probability: for half of a level."""
        return replace(self, nats=self.nats + LN2)


Bound: TypeAlias = MaxInformation | Transcripts


def thresholdout_transcripts(
    requests: int, answers: int, resolution: float, *, rarely: float = 1.0
) -> Transcripts:
    """Return the weight of a run of Thresholdout: ``answers`` of its ``requests`` came from the holdout.

    Claim: with the noise fixed, the data decide only which requests the holdout answers, and with what: one
    of G multiples of the resolution, a failure, or an interruption.  The weight is the probability of the
    same run under Pólya's urn, which draws *holdout* with probability (1 + b) / (1 + c + l) after b of l,
    and then one of the G + 2 evenly:

        w = c · Beta(b + 1, l − b + c) · (G + 2)^(−b).

    It is the probability of a beginning of one random sequence, so those of all places at which an analyst
    may stop sum to at most 1, however that depends on the answers.

    Parameters
    ----------
    requests, answers
        l and b, so far; answers that failed or were lost count.
    resolution
        What answers are rounded to, or the step of the mechanism's own grid.
    rarely
        c > 0, how many requests there are for an answer; fixed before the first one (m/B of a plan).

    Examples
    --------
    >>> round(math.exp(thresholdout_transcripts(1, 1, 0.1).nats))    # ½ for the holdout, 1/13 for its answer
    26
    >>> round(thresholdout_transcripts(200, 1, 0.02, rarely=40).nats / LN2, 1)
    16.2
    """
    b, c = int(non_negative("answers", answers)), positive("rarely", rarely)
    quiet = int(non_negative("requests", requests)) - b + c
    if quiet < c:
        raise InvalidArgument("there cannot be more answers than requests")
    gammas = [math.lgamma(b + 1 + quiet), -math.lgamma(b + 1), -math.lgamma(quiet)]
    values = b * math.log(grid_answers(positive("resolution", resolution)) + 2)
    nats = math.fsum([*gammas, -math.log(c), values]) + 1e-12 * math.fsum(map(abs, gammas))
    return Transcripts(round_up(max(0.0, nats)), f"description length, {round_up(nats / LN2):.4g} bits")


def either_bound(first: Sequence[Bound], second: Sequence[Bound]) -> tuple[Bound, ...]:
    """Return both kinds of bounds at half the level each, so that the better one may be taken.

    Claim: which is better depends on what was answered, and so on the data; a true hypothesis is rejected by
    one of them with probability at most α/2 + α/2.  (Bounds of max-information need no such sharing among
    them: each bounds a probability given the answers, so the best one given the answers does.)
    """
    halves = (bound.for_half_level() for bound in (*first, *second) if getattr(bound, "beta", 0.0) < 0.5)
    return tuple(halves)


def best_correction(p: float, bounds: Sequence[Bound]) -> tuple[float, Bound]:
    """Return the corrected p-value by the best of some bounds, and that bound."""
    found, best = min(((b.event_probability(p), b) for b in bounds), key=lambda item: item[0])
    return max(p, found), best


def threshold_from_max_information(alpha: float, bound: MaxInformation) -> float:
    """Return γ(α) = max((α − β)/2^k, 0), where I^β_∞ ≤ k bits.

    Claim: the analysis that chose the hypothesis has I^β_∞ ≤ k; on data it never saw a null p-value
    is ≤ γ with probability ≤ γ, so after the choice with probability ≤ 2^k γ + β = α.

    Returns
    -------
    float
        Reject when p ≤ γ(α); rounded down.

    Examples
    --------
    >>> k = MaxInformation(nats=2 * math.log(2), beta=0.01, laws="this law", theorem="example")
    >>> round(threshold_from_max_information(0.05, k), 6)   # (0.05 − 0.01)/4
    0.01

    References
    ----------
    Rogers et al. (2016), Theorem 1.3 for product laws, Theorem C.1 for any law.
    """
    alpha = probability("alpha", alpha, zero=True, one=True)
    gap = alpha - bound.beta
    return max(0.0, round_down(gap * math.exp(-max(bound.nats, 0.0)))) if gap > 0 else 0.0


def threshold_from_mutual_information(
    alpha: float, mutual_bits: float, *, method: MutualInformationMethod = "sharp"
) -> float:
    """Return γ(α) when the mutual information of data and analysis is at most m bits.

    Claims, all valid; with M = m + 0.54:

    * ``sharp``: the largest γ with kl(α‖γ) ≥ m ln 2.  An event of probability q ≤ γ on untouched
      data has probability a with kl(a‖q) ≤ I (data processing for relative entropy).  Nothing
      larger follows from mutual information alone.
    * ``max-information``: (α − M/k) 2^{−k} at the best k,
      k = (M ln 2 + √((M ln 2)² + 4αM ln 2)) / (2α ln 2).
    * ``published``: the same at k = 2M/α: γ = (α/2) 2^{−2M/α} (Corollary C.2).
    * ``russo-zou``: the largest γ ≤ ½ with γ + √(m ln 2 / ln(1/2γ)) ≤ α.

    Returns
    -------
    float
        Reject when p ≤ γ(α); rounded down.

    Examples
    --------
    >>> for method in ("sharp", "max-information", "published", "russo-zou"):
    ...     print(f"{method:16} {threshold_from_mutual_information(0.3, 1.0, method=method):.1e}")
    sharp            1.3e-02
    max-information  7.1e-04
    published        1.2e-04
    russo-zou        2.2e-04

    References
    ----------
    Rogers et al. (2016), Corollary C.2 (line 804) and Theorem C.3 (line 816), the latter from Russo and Zou,
    "Controlling bias in adaptive data analysis using information theory" (2016), where m is in nats.
    """
    alpha = probability("alpha", alpha, zero=True, one=True)
    m = non_negative("mutual_bits", mutual_bits)
    if alpha == 0.0 or math.isinf(m):
        return 0.0
    total = m + MUTUAL_INFORMATION_SLACK_BITS
    if method == "sharp":
        return _largest_allowed(lambda g: _relative_entropy(alpha, g) >= round_up(m * LN2), alpha)
    if method == "max-information":
        root = math.sqrt((total * LN2) ** 2 + 4 * alpha * total * LN2)
        k = (total * LN2 + root) / (2 * alpha * LN2)
        return max(0.0, round_down((alpha - total / k) * 2.0**-k)) if k < 1000 else 0.0
    if method == "published":
        k = 2 * total / alpha
        return round_down(alpha / 2 * 2.0**-k) if k < 1000 else 0.0
    if method == "russo-zou":
        return _largest_allowed(
            lambda g: g < 0.5 and round_up(g + math.sqrt(m * LN2 / math.log(1 / (2 * g)))) <= alpha,
            min(alpha, 0.5),
        )
    raise InvalidArgument(
        f"method must be 'sharp', 'max-information', 'published' or 'russo-zou', not {method!r}"
    )


def correct_p_values(
    p_values: ArrayLike,
    *,
    max_information: Bound | Sequence[Bound] | None = None,
    mutual_bits: float | None = None,
    method: MutualInformationMethod = "sharp",
) -> NDArray[np.float64]:
    """Return p-values that stay valid although the hypotheses were chosen after seeing the data.

    Claim: with γ one of the valid correction functions, the smallest α with p ≤ γ(α) is a valid
    p-value: P[corrected ≤ α] = P[p ≤ γ(α)] ≤ α.  From max-information (k, β) it is 2^k p + β; from
    several bounds the smallest of these, because γ(α) may take another one at every α.

    Parameters
    ----------
    p_values
        Raw p-values in [0, 1], any shape.
    max_information
        A bound on the analysis that chose the hypotheses (:func:`thresholdout_transcripts` is one too), or
        several (:func:`~.max_information.bayesian_dp_bounds`, :func:`either_bound`) that were fixed
        before the p-values were seen; or
    mutual_bits
        a bound on its mutual information with the data, in bits.  Give exactly one.
    method
        How mutual information is used (:func:`threshold_from_mutual_information`).

    Returns
    -------
    ndarray
        Corrected p-values, same shape, rounded up and at most 1.

    Raises
    ------
    InvalidArgument
        If an entry is no probability, or not exactly one bound is given.

    Examples
    --------
    >>> from quiltdp.generalization.max_information import product_dp_max_information
    >>> bound = product_dp_max_information(0.002, 10_000, beta=0.001)   # an ε-DP analysis of i.i.d. data
    >>> [float(f"{p:.2g}") for p in correct_p_values([1e-6, 1e-3, 0.02], max_information=bound)]
    [0.001, 0.0025, 0.03]

    References
    ----------
    Rogers et al. (2016), Definition 1.1 and Theorem C.1.
    """
    raw = np.asarray(p_values, dtype=np.float64)
    if np.isnan(raw).any() or (raw < 0).any() or (raw > 1).any():
        raise InvalidArgument("p_values must be probabilities in [0, 1]")
    if (max_information is None) == (mutual_bits is None):
        raise InvalidArgument("give exactly one of max_information and mutual_bits")
    if max_information is not None:
        bounds = list(max_information) if isinstance(max_information, Sequence) else [max_information]
        if not bounds:
            raise InvalidArgument("max_information holds no bound")
        fixed = [best_correction(p, bounds)[0] for p in raw.ravel().tolist()]
    else:
        m = non_negative("mutual_bits", mutual_bits if mutual_bits is not None else 0.0)
        fixed = [_smallest_level(p, m, method) for p in raw.ravel().tolist()]
    return np.array(fixed, dtype=np.float64).reshape(raw.shape)


def _smallest_level(p: float, mutual_bits: float, method: MutualInformationMethod) -> float:
    """Return the smallest α with p ≤ γ(α), by bisection, rounded up."""

    def enough(level: float) -> bool:
        if method == "sharp" and p > 0:  # the same condition, without searching for γ first
            return level > p and _relative_entropy(level, p) >= round_up(mutual_bits * LN2)
        return p <= threshold_from_mutual_information(level, mutual_bits, method=method)

    if mutual_bits == 0 and method == "sharp":
        return p
    low, high = 0.0, 1.0
    if not enough(high):
        return 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return min(1.0, round_up(high))


def _relative_entropy(a: float, g: float) -> float:
    """Return kl(a‖g) of two coins, for g ≤ a, rounded down."""
    first = a * math.log(a / g) if g > 0 else math.inf
    second = (1 - a) * (math.log1p(-a) - math.log1p(-g)) if a < 1 else 0.0
    return first + second - 1e-12 * (abs(first) + abs(second)) if math.isfinite(first) else math.inf


def _largest_allowed(allowed: Callable[[float], bool], top: float) -> float:
    """Return the largest γ ≤ top that is ``allowed`` (a monotone condition), rounded down."""
    if allowed(top):
        return round_down(top)
    low, high = math.log(1e-300), math.log(top)
    if not allowed(math.exp(low)):
        return 0.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if allowed(math.exp(middle)) else (low, middle)
    return math.exp(low)
