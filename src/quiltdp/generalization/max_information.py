"""Max-information: how much more likely any event becomes because the analysis saw the data.

For data X and output Y, with X ⊗ Y the same two drawn independently,

    I^β_∞(X; Y) = ln max over events O with P[(X, Y) ∈ O] > β of (P[(X, Y) ∈ O] − β) / P[X ⊗ Y ∈ O].

An event of probability p for data that the analysis never touched has probability at most
e^k p + β when I^β_∞ ≤ k.  Everything is in nats; :attr:`MaxInformation.bits` converts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quiltdp.errors import InvalidArgument
from quiltdp.generalization._checks import (
    count,
    distribution,
    leakage_array,
    non_negative,
    positive,
    probability,
    round_up,
    sum_of_squares,
    within,
)

Laws: TypeAlias = Literal["every law", "product laws", "this law"]

LAW_ORDER: tuple[Laws, ...] = ("every law", "product laws", "this law")


@dataclass(frozen=True)
class MaxInformation:
    """A bound I^β_∞ ≤ ``nats``, with the data laws it holds for.

    Attributes
    ----------
    nats
        The bound; ∞ says nothing.
    beta
        The approximation β.
    laws
        ``"every law"``, ``"product laws"`` or ``"this law"`` (the joint law it was computed for).
        Only a bound for every law may follow another one (see :func:`compose_max_information`).
    theorem
        Where it comes from.
    """

    nats: float
    beta: float
    laws: Laws
    theorem: str

    def __post_init__(self) -> None:
        """Refuse NaN and a β that is no probability."""
        if math.isnan(self.nats):
            raise InvalidArgument("a max-information bound cannot be NaN")
        probability("beta", self.beta, zero=True)
        if self.laws not in LAW_ORDER:
            raise InvalidArgument(f"laws must be one of {LAW_ORDER}, not {self.laws!r}")

    @property
    def bits(self) -> float:
        """The bound in bits, rounded up."""
        return round_up(self.nats / math.log(2.0))

    def event_probability(self, independent: float) -> float:
        """Return e^k p + β, the most an event of probability p on untouched data can have."""
        p = probability("independent", independent, zero=True, one=True)
        if p == 0.0:
            return self.beta
        exponent = self.nats + math.log(p)
        return min(1.0, round_up(math.exp(exponent) + self.beta)) if exponent < 0 else 1.0

    def for_half_level(self) -> MaxInformation:
        """Return the bound that gives twice the probability: for half of a level."""
        return replace(self, nats=self.nats + math.log(2.0), beta=2 * self.beta)


def exact_max_information(joint: ArrayLike, beta: float = 0.0) -> MaxInformation:
    """Compute I^β_∞ of a finite joint distribution exactly.

    Claim: max_O (P(O) − β) / Q(O), with Q the product of the marginals, is attained by a set
    {P/Q ≥ λ}: for the optimal λ the maximum of P(O) − β − λ Q(O) is 0, and the best O keeps
    exactly the cells with P > λ Q.  So one sort by likelihood ratio is enough.

    Parameters
    ----------
    joint
        P(x, y), one row per dataset and one column per output.
    beta
        The approximation, 0 ≤ β < 1.

    Returns
    -------
    MaxInformation
        For this law.  With β > 0 independent data and output give ln(1 − β) < 0.

    Raises
    ------
    InvalidArgument
        If the table does not sum to 1, or β is no probability below 1.

    Examples
    --------
    >>> round(exact_max_information([[0.4, 0.1], [0.1, 0.4]]).nats, 6)   # ln(0.4 / 0.25)
    0.470004

    References
    ----------
    Rogers et al. (2016), Definition 1.2; Zhao (2017), (1); after Dwork et al., "Generalization in adaptive
    data analysis and holdout reuse" (2015).
    """
    beta = probability("beta", beta, zero=True)
    table = distribution("joint", joint)
    if table.ndim != 2:
        raise InvalidArgument(f"joint must be a matrix P(x, y), not an array with {table.ndim} axes")
    product = np.outer(table.sum(axis=1), table.sum(axis=0)).ravel()
    p = table.ravel()[table.ravel() > 0]
    q = product[table.ravel() > 0]
    order = np.argsort(-(np.log(p) - np.log(q)), kind="stable")
    inside = np.cumsum(p[order]) - beta
    ratio = np.log(inside[inside > 0]) - np.log(np.cumsum(q[order])[inside > 0])
    return MaxInformation(float(ratio.max()), beta, "this law", "exact (likelihood-ratio sort)")


def _leakages_of_records(epsilon: float | Iterable[float], n: int | None) -> NDArray[np.float64]:
    if n is None and not isinstance(epsilon, Iterable):
        raise InvalidArgument("one epsilon for all records needs n, the number of records")
    return leakage_array(epsilon, n, name="epsilons")


def pure_dp_max_information(epsilon: float, n: int) -> MaxInformation:
    """Bound the max-information of an ε-DP algorithm on n records: I_∞ ≤ ε n, for every law.

    Claim: changing all n records changes the log-probability of an output by at most εn, so
    ln P(y|x)/P(y) ≤ εn whatever the law of the data.  It may stand anywhere in a composition.

    Examples
    --------
    >>> round(pure_dp_max_information(0.01, 100).nats, 6)
    1.0

    References
    ----------
    Rogers et al. (2016), Theorem 1.4 (line 106), quoted from Dwork et al. (2015).
    """
    bound = round_up(non_negative("epsilon", epsilon) * count("n", n))
    return MaxInformation(bound, 0.0, "every law", "pure DP: ε n")


def product_dp_max_information(
    epsilon: float | Iterable[float],
    n: int | None,
    beta: float,
    *,
    method: Literal["sharp", "published"] = "sharp",
) -> MaxInformation:
    """Bound the max-information of an ε-DP algorithm on independent records.

    Claim, ``sharp``: I^β_∞ ≤ Σ ε_i²/8 + √(Σ ε_i² ln(1/β)/2).  ``published``: ε²n/2 + ε√(n ln(2/β)/2).

    Assumes independent (not necessarily identical) records and replace-one ε_i-DP for record i:
    for product data the leakage against adversaries who know the records before i is ε_i.

    Examples
    --------
    >>> round(product_dp_max_information(0.01, 10_000, beta=0.01).nats, 4)
    1.6424

    References
    ----------
    Rogers et al. (2016), Theorem 1.4 (line 107), quoted from Dwork et al. (2015); proof of the sharp
    constants: :func:`bayesian_dp_max_information`.
    """
    if method not in ("sharp", "published"):
        raise InvalidArgument(f"method must be 'sharp' or 'published', not {method!r}")
    bound = bayesian_dp_max_information(epsilon, n, beta, method="sharp" if method == "sharp" else "repaired")
    form = "Σε²/8 form" if method == "sharp" else "published form"
    return MaxInformation(bound.nats, bound.beta, "product laws", f"pure DP on product data: {form}")


def bayesian_dp_max_information(
    epsilon: float | Iterable[float],
    n: int | None,
    beta: float,
    *,
    method: Literal["sharp", "repaired", "published"] = "sharp",
) -> MaxInformation:
    """Bound the max-information of a Bayesian-DP algorithm, for any joint law of the data.

    Claim, ``sharp``: I^β_∞ ≤ Σ ε_i²/8 + √(Σ ε_i² ln(1/β)/2), 0 < β < 1.
    ``repaired``: ε²n/2 + ε√(n ln(2/β)/2), the published peeling with its step corrected.
    ``published``: 2ε²n + ε√(2n ln(2/β)), Theorem 3 as printed (true, its proof is not).

    Assumes ε_i is the leakage about record i against adversaries who know exactly the records
    before it in one fixed order.  The *informed* leakage covers that; the *prior* one does not.

    Proof of ``sharp``: W_i = ln P(y|x_{1:i})/P(y|x_{1:i−1}).  φ(λ) = ln E e^{λW_i} has
    φ(0) = φ(1) = 0 and φ'' ≤ ε_i²/4, so under the posterior W_i has mean φ'(1) ≤ ε_i²/8;
    Azuma–Hoeffding under the posterior with ranges ε_i bounds Σ W_i = ln P(y|x)/P(y).

    Parameters
    ----------
    epsilon
        One number for all records, or one per record.
    n
        The number of records (may be ``None`` with one ε per record).
    beta
        The approximation, 0 < β < 1; for β = 0 use :func:`pure_dp_max_information`.

    Examples
    --------
    >>> [round(bayesian_dp_max_information(0.01, 10_000, 0.01, method=m).nats, 3)
    ...  for m in ("sharp", "repaired", "published")]
    [1.642, 2.128, 5.255]

    References
    ----------
    Zhao, "Adaptive statistical learning with Bayesian differential privacy" (2017), Theorem 3 (line 213).
    """
    beta = within("beta", beta, 0.0, 1.0, open_low=True, instead="for β = 0 use pure_dp_max_information")
    beta = probability("beta", beta)
    leaks = _leakages_of_records(epsilon, n)
    size, largest = count("n", n) if n is not None else leaks.size, float(leaks.max())
    square = sum_of_squares(leaks if leaks.size > 1 else largest, size)
    if math.isinf(square):
        return MaxInformation(math.inf, beta, "this law", f"Bayesian DP, {method}")
    if method == "sharp":
        nats = square / 8 + math.sqrt(square * math.log(1 / beta) / 2)
    elif method == "repaired":
        nats = largest**2 * size / 2 + largest * math.sqrt(size * math.log(2 / beta) / 2)
    elif method == "published":
        nats = 2 * largest**2 * size + largest * math.sqrt(2 * size * math.log(2 / beta))
    else:
        raise InvalidArgument(f"method must be 'sharp', 'repaired' or 'published', not {method!r}")
    return MaxInformation(round_up(nats), beta, "this law", f"Bayesian DP, {method}")


def bayesian_dp_bounds(
    epsilon: float | Iterable[float], n: int | None, *, dp_epsilon: float | None = None
) -> tuple[MaxInformation, ...]:
    """Return the ``sharp`` bound at many β from 1e-15 to ½, and pure DP's α n if the cost is given.

    Each is valid; together they let every p-value have the β that suits it
    (:func:`~quiltdp.generalization.correct_p_values`).

    Examples
    --------
    >>> from quiltdp.generalization import correct_p_values
    >>> many = bayesian_dp_bounds(0.002, 10_000)
    >>> [float(f"{p:.2g}") for p in correct_p_values([1e-6, 1e-3, 0.02], max_information=many)]
    [1.8e-06, 0.0016, 0.03]
    """
    values = _leakages_of_records(epsilon, n)
    size = count("n", n) if n is not None else int(values.size)
    leaks = float(values[0]) if values.size == 1 else values
    found = [bayesian_dp_max_information(leaks, size, 10.0 ** (k / 8) / 2) for k in range(-118, 1)]
    if dp_epsilon is not None:
        found.append(pure_dp_max_information(dp_epsilon, size))
    return tuple(found)


def description_length_max_information(bits: float, beta: float) -> MaxInformation:
    """Bound the max-information of an output from a set of 2^k elements: k ln 2 + ln(1/β).

    Claim: ln P(y|x)/P(y) ≤ −ln P(y), and P[P(Y) ≤ β/2^k] ≤ β.  Holds for every law, so it may
    stand anywhere in a composition.

    Examples
    --------
    >>> round(description_length_max_information(10, 0.5).bits, 6)
    11.0

    References
    ----------
    Rogers et al. (2016), Theorem 3.9(1) (line 384), quoted from Dwork et al. (2015).
    """
    k = non_negative("bits", bits)
    beta = probability("beta", beta)
    return MaxInformation(
        round_up(k * math.log(2) + math.log(1 / beta)), beta, "every law", f"description length, {k:g} bits"
    )


def compose_max_information(steps: Sequence[MaxInformation]) -> MaxInformation:
    """Add the bounds of adaptively chosen steps: k's and β's add, if the order allows it.

    Claim: if step 1 has I^{β₁} ≤ k₁ for the law of X, and every later step, for every earlier
    transcript, has I^{β_j} ≤ k_j for **every** law, then the composition has I^{Σβ} ≤ Σk for
    the laws of step 1.

    The order matters: after step 1 the data given its output follow some other law, so a bound
    for product laws or for one model says nothing about step 2.
    ``benchmarks/reconstruction.py`` runs the counterexample.  Two Bayesian-DP steps
    compose by adding their DP costs first and converting once.

    Raises
    ------
    InvalidArgument
        If a step after the first is bounded only for product laws or one law, naming it.

    Examples
    --------
    >>> first = product_dp_max_information(0.01, 1000, beta=0.01)
    >>> later = description_length_max_information(8, beta=0.01)
    >>> both = compose_max_information([first, later])
    >>> round(both.nats, 3), both.beta, both.laws
    (10.643, 0.02, 'product laws')

    References
    ----------
    Rogers et al. (2016), Theorem A.3 (line 653), quoted from Dwork et al. (2015); Theorem 3.9 for the order.
    """
    if not steps:
        raise InvalidArgument("a composition needs at least one step")
    for place, step in enumerate(steps[1:], start=2):
        if step.laws != "every law":
            raise InvalidArgument(
                f"step {place} ({step.theorem}) is bounded for {step.laws} only and may come first only:"
                " put it first, bound it for every law (pure DP's εn, description length),"
                " or compose the DP costs before converting once"
            )
    nats = math.fsum(s.nats for s in steps)
    beta = math.fsum(s.beta for s in steps)
    if beta >= 1:
        raise InvalidArgument(f"the β's add up to {beta:.6g}, which is not below 1: ask for smaller β's")
    return MaxInformation(
        round_up(nats) if len(steps) > 1 else nats,
        beta,
        steps[0].laws,
        " then ".join(s.theorem for s in steps),
    )


def approximate_dp_max_information(epsilon: float, delta: float, n: int, beta: float) -> MaxInformation:
    """Bound the max-information of an (ε, δ)-DP algorithm on n independent records.

    Claim: for any κ, δ̂, t > 0, with c = ε + κ and δ'' = 2δ̂/(1 − e^{−κ}) < 1,

        I^β_∞ ≤ n (c²/2 − ln(1 − δ'')) + c t √n     with β = e^{−t²/2} + n (2δ/δ̂ + δ''),

    optimised here over κ and δ̂ for the given β (any choice is valid, so the search needs no proof).

    Assumes independent records.  For dependent ones no such bound exists
    (:func:`~quiltdp.papers.rogers.no_product_bound`); use ``bayesian_dp_max_information``.

    Raises
    ------
    InvalidArgument
        If δ is too large for this β; the message says how large it may be.

    Examples
    --------
    >>> sharp = approximate_dp_max_information(0.01, 1e-20, 10_000, beta=0.01)
    >>> round(sharp.nats, 2)
    3.57

    References
    ----------
    Rogers et al. (2016), Theorem 3.1 and its proof; :func:`rogers_theorem` has the paper's own choices.
    """
    eps = positive("epsilon", epsilon)
    delta = probability("delta", delta, zero=True)
    n = count("n", n)
    beta = probability("beta", beta)
    if delta == 0:
        return product_dp_max_information(eps, n, beta)
    best = _search_sharp(eps, delta, n, beta)
    if best is None:
        raise InvalidArgument(
            f"delta = {delta:g} is too large for beta = {beta:g} on {n} records: the bound needs about"
            f" 4 n √δ < β, so δ below {(beta / (4 * n)) ** 2:.1e}; use a smaller δ or pure DP"
        )
    return MaxInformation(round_up(best), beta, "product laws", "(ε, δ)-DP on product data")


def _evaluate_sharp(eps: float, delta: float, n: int, beta: float, *, kappa: float, hat: float) -> float:
    """Evaluate the claim at κ and δ̂; ∞ where it does not apply."""
    second = 2 * hat / -math.expm1(-kappa)
    rest = beta - n * (2 * delta / hat + second)
    if not (second < 1 and rest > 0):
        return math.inf
    t = math.sqrt(2 * math.log(1 / rest)) if rest < 1 else 0.0
    c = eps + kappa
    return n * (c * c / 2 - math.log1p(-second)) + c * t * math.sqrt(n)


def _search_sharp(eps: float, delta: float, n: int, beta: float) -> float | None:
    """Search κ and δ̂ on a logarithmic grid, refined around the best cell."""
    best, at = math.inf, (0.0, 0.0)
    low_k, high_k = math.log(1e-9), math.log(10.0)
    low_h, high_h = math.log(delta) / 2 - 14, math.log(delta) / 2 + 14
    for _ in range(4):
        for i in range(41):
            for j in range(41):
                kappa = low_k + (high_k - low_k) * i / 40
                hat = low_h + (high_h - low_h) * j / 40
                value = _evaluate_sharp(eps, delta, n, beta, kappa=math.exp(kappa), hat=math.exp(hat))
                if value < best:
                    best, at = value, (kappa, hat)
        if math.isinf(best):
            return None
        width_k, width_h = (high_k - low_k) / 20, (high_h - low_h) / 20
        low_k, high_k = at[0] - width_k, at[0] + width_k
        low_h, high_h = at[1] - width_h, at[1] + width_h
    return best


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
