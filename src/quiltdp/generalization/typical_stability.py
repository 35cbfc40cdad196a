"""Typical stability: noise calibrated to how a query concentrates, not to how one record moves it.

A mechanism A is (η, τ, ν)-typically stable for a law of the data when there is a set T of datasets
with P[X ∈ T]² ≥ 1 − ν on which A is (η, τ)-indistinguishable: for x, x' ∈ T and events S,
P[A(x) ∈ S] ≤ e^η P[A(x') ∈ S] + τ.  The *reference form* compares with one fixed law R instead:
A(x) and R are (η, τ)-indistinguishable for all x but a share ν.

It promises that the output generalizes, for any dependence between the records.  It does not
promise privacy against someone who knows other records: for that, use the leakage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from quiltdp.errors import InvalidArgument
from quiltdp.generalization._checks import non_negative, positive, probability, round_up, within
from quiltdp.generalization.query_classes import QueryClass
from quiltdp.mechanisms import gaussian_delta

__all__ = [
    "TypicalNoise",
    "TypicalStability",
    "gaussian_typical",
    "laplace_typical",
    "near_independence",
    "published_gaussian_error",
    "typical_generalization",
]


@dataclass(frozen=True)
class TypicalStability:
    """The three parameters; ``reference`` says whether they compare with one fixed law."""

    eta: float
    tau: float
    nu: float
    reference: bool = False

    def __post_init__(self) -> None:
        """Refuse what no mechanism has."""
        non_negative("eta", self.eta)
        for name in ("tau", "nu"):
            non_negative(name, getattr(self, name))

    def post_process(self) -> TypicalStability:
        """Return the stability of any function of the output: the same.

        References
        ----------
        Bassily and Freund (2016), Lemma 2.4.
        """
        return self

    def as_pairs(self) -> TypicalStability:
        """Turn the reference form into the pair form: (2η, (1 + e^η)τ, 2ν).

        The source writes 3τ, which needs η ≤ ln 2.

        References
        ----------
        Bassily and Freund, "Typicality-based stability and privacy" (2016), after Definition 2.3 (line 65).
        """
        if not self.reference:
            return self
        return TypicalStability(
            2 * self.eta, round_up((1 + math.exp(self.eta)) * self.tau), min(1.0, 2 * self.nu)
        )


@dataclass(frozen=True)
class TypicalNoise:
    """Noise that makes queries of one class typically stable.

    Attributes
    ----------
    kind
        ``"laplace"`` or ``"gaussian"``.
    scale
        The Laplace scale, or the standard deviation of the Gaussian.
    radius
        The concentration radius a, P[|q − E q| > a] ≤ ν/2.
    pairs, reference
        The stability in both forms.
    """

    kind: Literal["laplace", "gaussian"]
    scale: float
    radius: float
    pairs: TypicalStability
    reference: TypicalStability

    def error(self, failure: float) -> float:
        """Return how far the answer is from q(x) at most, except with probability ``failure``; rounded up.

        Laplace: 2a ln(1/β)/η, exact.  Gaussian: √2 σ erfc⁻¹(β) of the calibrated σ; with the published σ the
        paper's 4a√(ln(1/τ) ln(1/β))/η is larger (:func:`published_gaussian_error`).

        Examples
        --------
        >>> from quiltdp.generalization import subgaussian_queries
        >>> round(laplace_typical(subgaussian_queries(1.0), eta=0.5, nu=0.04).error(0.05), 4)
        36.3664

        References
        ----------
        Bassily and Freund (2016), Theorem 4.2 (line 381) and Theorem 4.4 (line 396).
        """
        beta = probability("failure", failure)
        if self.kind == "laplace":
            return round_up(self.scale * math.log(1 / beta))
        from scipy.special import erfcinv

        return round_up(self.scale * math.sqrt(2.0) * float(erfcinv(beta)) * (1 + 1e-10))


def published_gaussian_error(radius: float, *, eta: float, tau: float, failure: float) -> float:
    """Return 4a√(ln(1/τ) ln(1/β))/η, the published error of the Gaussian mechanism at its own σ.

    Examples
    --------
    >>> round(published_gaussian_error(1.0, eta=0.5, tau=1e-3, failure=0.05), 4)
    36.3923

    References
    ----------
    Bassily and Freund (2016), Theorem 4.4 (line 396).
    """
    logs = math.log(1 / probability("tau", tau)) * math.log(1 / probability("failure", failure))
    return round_up(4 * positive("radius", radius) * math.sqrt(logs) / positive("eta", eta))


def laplace_typical(queries: QueryClass, *, eta: float, nu: float) -> TypicalNoise:
    """Calibrate Laplace noise to the concentration radius: scale 2a/η is (η, 0, ν)-typically stable.

    Claim: on T = {|q − E q| ≤ a} two datasets have answers at most 2a apart, and E q is at most a
    from each, so the reference form (R = the noise around E q) has η/2 and ν/2.

    Examples
    --------
    >>> from quiltdp.generalization import subgaussian_queries
    >>> noise = laplace_typical(subgaussian_queries(1.0), eta=0.5, nu=0.04)
    >>> round(noise.radius, 4), round(noise.scale, 4)
    (3.0349, 12.1394)

    References
    ----------
    Bassily and Freund (2016), Theorem 4.1 (Algorithm 2, Figure 2).
    """
    eta, nu = positive("eta", eta), probability("nu", nu)
    radius = queries.radius(nu / 2)
    return TypicalNoise(
        "laplace",
        round_up(2 * radius / eta),
        radius,
        TypicalStability(eta, 0.0, nu),
        TypicalStability(eta / 2, 0.0, nu / 2, reference=True),
    )


def gaussian_typical(
    queries: QueryClass,
    *,
    eta: float,
    tau: float,
    nu: float,
    method: Literal["analytic", "published"] = "analytic",
) -> TypicalNoise:
    """Calibrate Gaussian noise to the concentration radius: (η, τ, ν)-typically stable.

    ``analytic``: the smallest standard deviation σ whose exact profile at a shift of 2a has
    δ(η) ≤ τ.  ``published``: σ = 2a√(2 ln(1/τ))/η, refused where it misses τ (large η).

    Examples
    --------
    >>> from quiltdp.generalization import subgaussian_queries
    >>> queries = subgaussian_queries(1.0)
    >>> [round(gaussian_typical(queries, eta=0.5, tau=1e-3, nu=0.04, method=m).scale, 2)
    ...  for m in ("analytic", "published")]
    [27.98, 45.12]

    References
    ----------
    Bassily and Freund (2016), Theorem 4.3 (Algorithm 3, Figure 3); Balle and Wang (2018), Theorem 8.
    """
    eta, tau, nu = positive("eta", eta), probability("tau", tau), probability("nu", nu)
    radius = queries.radius(nu / 2)
    if method == "analytic":
        shift = _largest_shift(eta, tau)
    elif method == "published":
        shift = eta / math.sqrt(2 * math.log(1 / tau))
        reached = gaussian_delta(eta, shift)
        if reached > tau:
            raise InvalidArgument(
                f"eta = {eta:g}: the published σ = 2a√(2 ln(1/τ))/η gives τ = {reached:.3g}, above {tau:g};"
                " use method='analytic'"
            )
    else:
        raise InvalidArgument(f"method must be 'analytic' or 'published', not {method!r}")
    std = round_up(2 * radius / shift)
    half = gaussian_delta(eta / 2, shift / 2)
    return TypicalNoise(
        "gaussian",
        std,
        radius,
        TypicalStability(eta, tau, nu),
        TypicalStability(eta / 2, half, nu / 2, reference=True),
    )


def _largest_shift(eta: float, tau: float) -> float:
    """Return the largest μ, in standard deviations, with δ(η) ≤ τ, rounded down."""
    low, high = 0.0, 1.0
    while gaussian_delta(eta, high) <= tau:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(eta, middle) <= tau else (low, middle)
    return low


def near_independence(stability: TypicalStability, independent: float) -> float:
    """Return e^η p + τ + 4ν, the chance of an event about data and output that has p if they are independent.

    Assumes the pair form with η < 1 and ν < 1/10.

    Examples
    --------
    >>> round(near_independence(TypicalStability(0.5, 1e-6, 1e-3), 1e-4), 6)
    0.004166

    Raises
    ------
    InvalidArgument
        Outside those ranges; :func:`typical_generalization` has no condition.

    References
    ----------
    Bassily and Freund (2016), Lemma 2.6, (2) (line 125).
    """
    pairs = stability.as_pairs()
    other = "use typical_generalization, which has no condition"
    within("eta", pairs.eta, 0.0, 1.0 - 1e-15, instead=other)
    within("nu", pairs.nu, 0.0, 0.1 - 1e-15, instead=other)
    p = probability("independent", independent, zero=True, one=True)
    return min(1.0, round_up(math.exp(pairs.eta) * p + pairs.tau + 4 * pairs.nu))


def typical_generalization(
    stability: TypicalStability,
    gamma: float,
    *,
    method: Literal["sharp", "published"] = "sharp",
) -> float:
    """Bound the chance that an output chosen by the mechanism is wrong about the data.

    Claim: if for every fixed output the bad event has probability at most e^{−γ}, then for the
    output A(X) it has probability at most, ``sharp``: e^{η−γ}/√(1−ν) + τ + 1 − √(1−ν) (pair form) or
    e^{η−γ} + τ + ν (reference form).  ``published``: e^{η−γ} + 4e^{−γ} + τ, stated for ν = e^{−γ} (so for
    any ν up to that), η < 1 and ν < 1/10.

    Examples
    --------
    >>> s = TypicalStability(0.5, 1e-6, 1e-4)
    >>> round(typical_generalization(s, 7.0), 6), round(typical_generalization(s, 7.0, method="published"), 6)
    (0.001555, 0.005152)

    References
    ----------
    Bassily and Freund (2016), Theorem 2.7 (line 145).
    """
    gamma = non_negative("gamma", gamma)
    if stability.reference and method == "sharp":
        bound = math.exp(min(stability.eta - gamma, 700)) + stability.tau + stability.nu
        return min(1.0, round_up(bound))
    pairs = stability.as_pairs()
    if method == "published":
        sharp = "use method='sharp', which has no condition"
        chance = math.exp(-gamma)
        within("eta", pairs.eta, 0.0, 1.0 - 1e-15, instead=sharp)
        within("e^−γ", chance, 0.0, 0.1 - 1e-15, instead=sharp)
        within("nu", pairs.nu, 0.0, chance, instead=sharp)
        bound = near_independence(TypicalStability(pairs.eta, pairs.tau, chance), chance)
    elif method == "sharp":
        if pairs.nu >= 1:
            return 1.0
        root = math.sqrt(1 - pairs.nu)
        bound = math.exp(min(pairs.eta - gamma, 700)) / root + pairs.tau + pairs.nu / (1 + root)
    else:
        raise InvalidArgument(f"method must be 'sharp' or 'published', not {method!r}")
    return min(1.0, round_up(bound))
