"""Rogers, Roth, Smith and Thakkar (2016) as printed, with the constants of the proofs.

X ≈_{ε,δ} Y when every event has P[X ∈ O] ≤ e^ε P[Y ∈ O] + δ and the reverse; X and Y are *pointwise*
(ε, δ)-indistinguishable when e^{−ε} P[Y = a] ≤ P[X = a] ≤ e^ε P[Y = a] for all a but a set of probability δ
under X.  Theorem 3.1 bounds the max-information of (ε, δ)-DP on product data; Theorem 3.9 shows that no such
bound holds for all laws (``benchmarks/reconstruction.py`` runs it on an error-correcting code).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from quiltdp.errors import InvalidArgument
from quiltdp.generalization._checks import (
    count,
    distribution,
    non_negative,
    positive,
    probability,
    round_down,
    round_up,
    within,
)
from quiltdp.generalization.max_information import (
    MaxInformation,
)


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
    p, q = _checked_pair(first, second)
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
    p, q = _checked_pair(first, second)
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


def _checked_pair(first: ArrayLike, second: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    p, q = distribution("first", first), distribution("second", second)
    if p.shape != q.shape:
        raise InvalidArgument(f"two laws on one set need equal shapes, not {p.shape} and {q.shape}")
    return p.ravel(), q.ravel()


def published_drift(epsilon: float, delta_hat: float) -> float:
    """Return ν, the drift of one record's log-ratio in Rogers et al., corrected.

    ν = 6ε (e^{6ε}/(1 − δ'') − 1) + δ̂ (2u + 1) + 2δ̂² ((2u² + u − 1)/(u − 1))², u = e^{3ε},
    δ'' = 2δ̂/(1 − 1/u).  The paper simplifies the first term to 72ε², which fails for ε > 0.21.

    Examples
    --------
    >>> published_drift(0.1, 1e-12) < 72 * 0.1**2 < 72 * 0.4**2 < published_drift(0.4, 1e-12)
    True

    References
    ----------
    Rogers et al. (2016), Lemma 3.7 and its proof.
    """
    eps = within("epsilon", epsilon, 0.0, 0.5, open_low=True, instead="use method='sharp'")
    hat = within("delta_hat", delta_hat, 0.0, eps / 15, instead="the published proof needs δ̂ ≤ ε/15")
    u = math.exp(3 * eps)
    second = 2 * hat / -math.expm1(-3 * eps)
    tail = 2 * hat**2 * ((2 * u * u + u - 1) / math.expm1(3 * eps)) ** 2
    return round_up(6 * eps * (math.exp(6 * eps) / (1 - second) - 1) + hat * (2 * u + 1) + tail)


def printed_drift(epsilon: float, delta_hat: float) -> float:
    """Return ν(δ̂) exactly as the paper prints it, with log = log₂; not valid for ε > 0.21.

    72ε² + δ̂ (24e^{6ε}/(1 − e^{−3ε}) + log(e)(2u + 1))
    + 2 log(e) δ̂² (4u⁴ + 4u³ − 3u² − 2u + 1)/(u² − 2u + 1), with u = e^{3ε}.

    Examples
    --------
    >>> round(printed_drift(0.1, 1e-6), 6), round(published_drift(0.1, 1e-6), 6)
    (0.720174, 0.493283)

    References
    ----------
    Rogers et al. (2016), Lemma 3.7, (7) (line 328).
    """
    eps = within("epsilon", epsilon, 0.0, 0.5, open_low=True, instead="the lemma covers ε ≤ ½")
    hat = within("delta_hat", delta_hat, 0.0, eps / 15, instead="the lemma covers δ̂ ≤ ε/15")
    u, log_e = math.exp(3 * eps), 1 / math.log(2)
    linear = 24 * u * u / -math.expm1(-3 * eps) + log_e * (2 * u + 1)
    square = 2 * log_e * (4 * u**4 + 4 * u**3 - 3 * u**2 - 2 * u + 1) / (u * u - 2 * u + 1)
    return 72 * eps**2 + hat * linear + hat**2 * square


@dataclass(frozen=True)
class RogersTheorem:
    """Theorem 3.1 at the paper's own choices t = ε√(2n) and δ̂ = √(εδ)/15.

    Attributes
    ----------
    delta_hat, t
        The choices.
    first, second
        δ' = 2δ/δ̂ + 2δ/(1 − e^{−ε}) and δ'' = 2δ̂/(1 − e^{−3ε}).
    beta
        e^{−t²/2} + n(δ' + δ''); may be 1 or more, and then nothing is said.
    printed
        nν(δ̂) + 6tε√n with ν as printed: the paper reads it in bits.
    nats
        The same with the drift repaired, in nats: valid.
    """

    delta_hat: float
    t: float
    first: float
    second: float
    beta: float
    printed: float
    nats: float

    @property
    def bound(self) -> MaxInformation:
        """The repaired bound, for product laws.

        Raises
        ------
        InvalidArgument
            If β ≥ 1.
        """
        if self.beta >= 1:
            raise InvalidArgument(
                f"Theorem 3.1's own β is {self.beta:.3g}, not below 1: δ is too large for it;"
                " use approximate_dp_max_information, which chooses δ̂ and t for the β you give"
            )
        return MaxInformation(self.nats, self.beta, "product laws", "(ε, δ)-DP on product data, Theorem 3.1")


def rogers_theorem(epsilon: float, delta: float, n: int) -> RogersTheorem:
    """Return Theorem 3.1 with the paper's own k, β and δ̂, as printed and with the drift repaired.

    Claim: an (ε, δ)-DP algorithm, 0 < ε ≤ ½, 0 < δ < ε, has I^β_∞ ≤ k on n i.i.d. records with k and β as in
    :class:`RogersTheorem`.

    Examples
    --------
    >>> from quiltdp.generalization.max_information import approximate_dp_max_information
    >>> found = rogers_theorem(0.1, 1e-20, 1000)
    >>> f"{found.beta:.3g}", round(found.printed, 1), round(found.nats, 1)
    ('5.49e-05', 804.9, 578.1)
    >>> round(approximate_dp_max_information(0.1, 1e-20, 1000, found.beta).nats, 1)       # our choice, same β
    19.4

    References
    ----------
    Rogers et al. (2016), Theorem 3.1 (line 186) and the end of its proof (lines 371-378).
    """
    eps = within("epsilon", epsilon, 0.0, 0.5, open_low=True, instead="use approximate_dp_max_information")
    small = within("delta", delta, 0.0, eps, open_low=True, instead="the theorem needs 0 < δ < ε")
    size = count("n", n)
    hat, t = math.sqrt(eps * small) / 15, eps * math.sqrt(2 * size)
    first = 2 * small / hat + 2 * small / -math.expm1(-eps)
    second = 2 * hat / -math.expm1(-3 * eps)
    deviation = 6 * t * eps * math.sqrt(size)
    return RogersTheorem(
        hat,
        t,
        first,
        second,
        round_up(math.exp(-t * t / 2) + size * (first + second)),
        size * printed_drift(eps, hat) + deviation,
        round_up(size * published_drift(eps, hat) + deviation),
    )


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
    >>> from quiltdp.generalization.max_information import exact_max_information
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
    found = rogers_theorem(epsilon, delta, n)
    exponent = found.nats - 2 * (non_negative("factor", factor) * epsilon) ** 2 * n
    return min(1.0, round_up(2 * math.exp(min(exponent, 700.0)) + found.beta))


def p_value_sensitivity(n: int, level: float = 0.08) -> float:
    """Return (½ − δ)/√((n/2) ln(1/δ)), which the sensitivity of any p-value exceeds: 0.37/√n at δ = 0.08.

    Claim: a p-value is uniform under the null, so it passes 1 − δ with probability δ; a statistic of
    sensitivity Δ passes ½ + Δ√((n/2) ln(1/δ)) with at most that (McDiarmid).  So p-values are no
    low-sensitivity queries, and transfer theorems for those say nothing about them.

    Examples
    --------
    >>> round(p_value_sensitivity(100) * 10, 4)
    0.3737

    References
    ----------
    Rogers et al. (2016), Lemma B.1 (line 704).
    """
    delta = probability("level", level)
    if delta >= 0.5:
        raise InvalidArgument(f"level must be below ½, not {level!r}")
    return round_down((0.5 - delta) / math.sqrt(count("n", n) / 2 * math.log(1 / delta)))


@dataclass(frozen=True)
class PrintedReconstruction:
    """The parameters of the paper's own construction (log = log₂), without a code to run it.

    Attributes
    ----------
    distance
        t = 8 log(1/δ)/ε + 1, the minimum distance of the code.
    published_bits
        r = 3 t log n.
    threshold
        w = (t − 1)/4 − log(1/δ)/ε, below which the second step answers.
    needs
        2e(t − 1) = 16e log(1/δ)/ε: what n must exceed for (17); the theorem says 64e.
    code_needs
        The least n ≥ 3 t log n, from which on the code exists.
    answer_chance
        s (4es/n)^s + δ with s = (t − 1)/4: the bound (17) on answering alone; above 2δ nothing is promised.
    """

    distance: float
    published_bits: float
    threshold: float
    needs: float
    code_needs: int
    answer_chance: float


def printed_reconstruction(*, n: int, dp_epsilon: float, delta: float) -> PrintedReconstruction:
    """Return the paper's parameters for n bits, 0 < ε ≤ ½ and 0 < δ ≤ ¼.

    Examples
    --------
    >>> small = printed_reconstruction(n=200, dp_epsilon=0.1, delta=0.01)     # n > 64e = 174, as printed
    >>> round(small.needs), small.code_needs, small.answer_chance > 1
    (2890, 23164, True)

    References
    ----------
    Rogers et al. (2016), Theorem 3.9 (line 380), its proof (lines 440, 450, 542-544).
    """
    size = count("n", n, least=2)
    eps, small = positive("dp_epsilon", dp_epsilon), probability("delta", delta)
    if eps > 0.5 or small > 0.25:
        raise InvalidArgument(f"Theorem 3.9 covers ε ≤ ½ and δ ≤ ¼, not ε = {eps:g}, δ = {small:g}")
    logs = math.log2(1 / small)
    t = 8 * logs / eps + 1
    s = (t - 1) / 4
    code = math.ceil(3 * t)  # n − 3 t log₂ n grows from here on
    while code < 3 * t * math.log2(code):
        code = math.ceil(3 * t * math.log2(code))
    ball = math.exp(min(s * math.log(4 * math.e * s / size) + math.log(s), 700.0))
    return PrintedReconstruction(
        t, 3 * t * math.log2(size), s - logs / eps, 2 * math.e * (t - 1), code, ball + small
    )


def no_product_bound(*, n: int, published_bits: float, delta: float, beta_first: float) -> float:
    """Return n − 1 − r − log₂(1/β₁) bits: some (ε, δ)-DP mechanism has that much max-information on some law.

    Claim: for every β₂ < ½ − δ − β₁.  So no bound like that for product data can hold for all laws.

    Examples
    --------
    >>> round(no_product_bound(n=10_000, published_bits=35, delta=0.05, beta_first=0.01), 1)
    9957.4

    References
    ----------
    Rogers et al. (2016), Corollary 3.10 (line 393); the proof by contradiction is on lines 860-878.
    """
    small = probability("delta", delta)
    first = probability("beta_first", beta_first)
    if first >= 0.5 - small:
        raise InvalidArgument(f"beta_first = {first:g} must be below ½ − δ = {0.5 - small:g}")
    return round_down(count("n", n) - 1 - positive("published_bits", published_bits) - math.log2(1 / first))
