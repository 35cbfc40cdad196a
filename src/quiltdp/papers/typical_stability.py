"""Typical stability: noise calibrated to how a query concentrates, not to how one record moves it.

A mechanism A is (η, τ, ν)-typically stable for a law of the data when there is a set T of datasets
with P[X ∈ T]² ≥ 1 − ν on which A is (η, τ)-indistinguishable: for x, x' ∈ T and events S,
P[A(x) ∈ S] ≤ e^η P[A(x') ∈ S] + τ.  The *reference form* compares with one fixed law R instead:
A(x) and R are (η, τ)-indistinguishable for all x but a share ν.

It promises that the output generalizes, for any dependence between the records.  It does not
promise privacy against someone who knows other records: for that, use the leakage.  First the query classes
(what is known about how a statistic concentrates), then noise for them, then composition: of mechanisms
chosen beforehand, or each by the answers of the earlier ones.  Bassily and Freund (2016).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from quiltdp.errors import InvalidArgument
from quiltdp.generalization._checks import count, non_negative, positive, probability, round_up, within
from quiltdp.generalization.concentration import concentration
from quiltdp.generalization.sum_law import sum_law
from quiltdp.mechanisms import gaussian_delta


@dataclass(frozen=True)
class QueryClass:
    """Queries q with P[|q(X) − E q(X)| > radius(p)] ≤ p, however dependent the records are.

    Attributes
    ----------
    name
        What the class is, for people.
    radius
        p ↦ a; never too small.
    """

    name: str
    radius: Callable[[float], float]


def concentrated_queries(tail: Callable[[float], float], *, most: float = 1e12) -> QueryClass:
    """Return the class with P[|q − E q| ≥ t] ≤ ``tail(t)``, a falling function (γ_n-concentrated).

    Examples
    --------
    >>> cls = concentrated_queries(lambda t: 2 * math.exp(-t))
    >>> round(cls.radius(0.02), 4)        # ln 100
    4.6052
    """

    def radius(chance: float) -> float:
        p = probability("chance", chance)
        low, high = 0.0, 1.0
        while tail(high) > p:
            low, high = high, 2 * high
            if high > most:
                raise InvalidArgument(f"the tail does not fall below {p:g} before t = {most:g}")
        for _ in range(200):
            middle = (low + high) / 2
            if middle in (low, high):
                break
            low, high = (low, middle) if tail(middle) <= p else (middle, high)
        return round_up(high)

    return QueryClass("concentrated", radius)


def sensitive_queries(sensitivity: float, n: int) -> QueryClass:
    """Return the Δ-sensitive queries of n **independent** records: tail 2 exp(−2t²/(nΔ²)).

    The source (line 95) drops the factor 2 of the two-sided inequality; it is needed.

    Examples
    --------
    >>> round(sensitive_queries(0.01, 100).radius(0.05), 6)     # 0.1 √(ln 40 / 2)
    0.13581
    """
    delta, n = positive("sensitivity", sensitivity), count("n", n)

    def radius(chance: float) -> float:
        return round_up(delta * math.sqrt(n * math.log(2 / probability("chance", chance)) / 2))

    return QueryClass(f"{delta:g}-sensitive, {n} independent records", radius)


def subgaussian_queries(std: float) -> QueryClass:
    """Return the σ-subgaussian queries: tail 2 exp(−t²/2σ²)."""
    sigma = positive("std", std)

    def radius(chance: float) -> float:
        return round_up(sigma * math.sqrt(2 * math.log(2 / probability("chance", chance))))

    return QueryClass(f"{sigma:g}-subgaussian", radius)


def subexponential_queries(std: float, scale: float) -> QueryClass:
    """Return the (σ, b)-subexponential queries: tail 2 exp(−min(t²/2σ², t/2b)).

    Examples
    --------
    >>> cls = subexponential_queries(1.0, 3.0)
    >>> round(cls.radius(0.02), 4)                              # 2b ln 100 rules
    27.631
    """
    sigma, b = positive("std", std), positive("scale", scale)

    def radius(chance: float) -> float:
        logs = math.log(2 / probability("chance", chance))
        return round_up(max(sigma * math.sqrt(2 * logs), 2 * b * logs))

    return QueryClass(f"({sigma:g}, {b:g})-subexponential", radius)


def model_queries(model: object, sensitivity: float | None = None) -> QueryClass:
    """Return the Δ-sensitive queries of correlated records, concentrated under this model.

    a = Δ √(Σ h_i² ln(2/p)/2) from :func:`~quiltdp.generalization.concentration`; Δ = 1/n unless given.

    Examples
    --------
    >>> from quiltdp import markov_chain
    >>> cls = model_queries(markov_chain([[0.9, 0.1], [0.1, 0.9]], length=10_000))
    >>> round(cls.radius(0.05), 4)
    0.0679
    """
    found = concentration(model)
    return QueryClass(
        f"concentrated under this model (n_eff {found.effective_sample_size:.4g})",
        lambda chance: found.radius(chance, sensitivity=sensitivity),
    )


def exact_sum_query(model: object, weights: Mapping[str, Sequence[int]], *, scale: float = 1.0) -> QueryClass:
    """Return the class of one sum query, scale · Σ w_j(X_j), with its exact radius.

    Examples
    --------
    >>> from quiltdp import markov_chain
    >>> m = markov_chain([[0.01, 0.99], [0.99, 0.01]], length=1000)          # a rota that alternates
    >>> cls = exact_sum_query(m, {node: (0, 1) for node in m.nodes}, scale=1 / 1000)
    >>> round(cls.radius(0.005), 4)                                          # independent: 0.0443
    0.005
    """
    law = sum_law(model, weights)
    factor = positive("scale", scale)
    distance = np.abs(law.values - law.mean)
    order = np.argsort(-distance)
    beyond = np.concatenate([[0.0], np.cumsum(law.chances[order])])

    def radius(chance: float) -> float:
        p = probability("chance", chance)
        # the mass strictly beyond the k-th largest distance; a hair of p pays for rounding
        k = int(np.searchsorted(beyond, p * (1 - 1e-9), side="right")) - 1
        return round_up(factor * float(distance[order[k]]) * (1 + 1e-9)) if k < len(order) else 0.0

    return QueryClass("one sum query, exact law", radius)


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
        >>> from quiltdp.papers.typical_stability import subgaussian_queries
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
    >>> from quiltdp.papers.typical_stability import subgaussian_queries
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
    >>> from quiltdp.papers.typical_stability import subgaussian_queries
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


def compose_typical(steps: Sequence[TypicalStability]) -> TypicalStability:
    """Add the stability of mechanisms chosen **before** any answer: (Σ η, Σ τ, Σ ν).

    References
    ----------
    Bassily and Freund (2016), Lemma 2.5.
    """
    if not steps:
        raise InvalidArgument("a composition needs at least one step")
    if len({s.reference for s in steps}) > 1:
        raise InvalidArgument("all steps must be in one form: use as_pairs() on the reference ones")
    return TypicalStability(
        round_up(math.fsum(s.eta for s in steps)),
        round_up(math.fsum(s.tau for s in steps)),
        round_up(math.fsum(s.nu for s in steps)),
        steps[0].reference,
    )


def compose_typical_adaptively(
    step: TypicalStability,
    k: int,
    *,
    slack: float,
    method: Literal["sharp", "published"] = "sharp",
) -> TypicalStability:
    """Compose k pure steps, each chosen by the earlier answers (reference form, τ = 0).

    Claim, ``sharp``: with τ' = ``slack``, η_t = √(2t ln(1/τ')) η + tη(e^η − 1) and
    M = kτ' + ν(1 + Σ_{t<k} e^{η_t}), the composition is (η_k, √(2M), √(2M)) in the reference form.
    ``published``: η_t = 3√(2t ln(1/τ')) η + 3tη(e^η − 1) and
    τ_k = ν_k = 5 (kτ'/η + ν/η + Σ_{t<k} e^{η_t} ν/η)^{1/2}.

    Parameters
    ----------
    step
        Each step's (η, 0, ν), reference form (``noise.reference``).
    k
        The number of steps.
    slack
        τ', 0 < τ' < 1.

    Examples
    --------
    >>> step = TypicalStability(0.01, 0.0, 1e-9, reference=True)
    >>> ours = compose_typical_adaptively(step, 100, slack=1e-9)
    >>> round(ours.eta, 4), round(ours.tau, 6)
    (0.6538, 0.000715)
    >>> compose_typical_adaptively(step, 100, slack=1e-9, method="published").tau > 10 * ours.tau
    True

    References
    ----------
    Bassily and Freund (2016), Theorem 3.2, (3) and (4) (lines 184-186); in our copy (3) has η inside the
    root, and (4) an η_t that looks like ηt.
    """
    if not step.reference or step.tau > 0:
        raise InvalidArgument(
            "this theorem needs the reference form with τ = 0 (Laplace noise, noise.reference);"
            " for τ > 0 use compose_typical_adaptively_approximate"
        )
    k, slack = count("k", k), probability("slack", slack)
    eta = positive("eta", step.eta)
    factor = {"sharp": 1.0, "published": 3.0}.get(method)
    if factor is None:
        raise InvalidArgument(f"method must be 'sharp' or 'published', not {method!r}")
    etas = [factor * _advanced_composition(eta, t, slack) for t in range(k + 1)]
    try:
        growth = math.fsum(math.exp(e) for e in etas[1:k])
    except OverflowError:
        growth = math.inf
    mass = k * slack + step.nu * (1 + growth)
    share = math.sqrt(2 * mass) if method == "sharp" else 5 * math.sqrt(mass / eta)
    return TypicalStability(round_up(etas[k]), round_up(share), round_up(share), reference=True)


def _advanced_composition(eta: float, t: int, slack: float) -> float:
    return math.sqrt(2 * t * math.log(1 / slack)) * eta + t * eta * math.expm1(eta)


def compose_typical_adaptively_approximate(
    step: TypicalStability,
    k: int,
    *,
    slack: float | None = None,
    method: Literal["sharp", "published"] = "sharp",
) -> TypicalStability:
    """Compose k steps with τ > 0, each chosen by the earlier answers (reference form).

    Claim, ``sharp``: let (η_k, τ_k) be the DP composition of k (η, τ) steps: (kη, kτ), or with τ' = ``slack``
    (√(2k ln(1/τ')) η + kη(e^η − 1), kτ + τ').  The whole is (η_k, 2τ_k + e^{η_k} √(kν), √(kν)).

    Proof: draw the answers from the references, independently of X; some step then meets a dataset
    outside its good set with probability at most kν.  By Markov's inequality all x but a share
    √(kν) meet one with probability at most √(kν).  For such an x replace the steps at bad
    answers by their references: the result is (η_k, τ_k)-close to the reference, it differs from
    the true run only after a bad answer, and that has probability at most e^{η_k} √(kν) + τ_k.

    ``published``, as printed (its proof is deferred in the source): with u = e^η, τ̂ = 2τ/(1 − 1/u) and
    ψ = τ(2u + 1) + τ²(1 + 2(4u⁴ + 4u³ − 3u² − 2u + 1)/(u − 1)²),
    η_k = 6√(2k ln(1/τ')) η + 3k(2η(u²/(1 − τ̂) − 1) + ψ) and
    τ_k = ν_k = 5 (k(τ̂ + τ'/2η) + ν/2η + Σ_{t<k} e^{η_t} ν/2η)^{1/2}.

    Examples
    --------
    >>> step = TypicalStability(0.05, 1e-8, 1e-12, reference=True)
    >>> whole = compose_typical_adaptively_approximate(step, 10)
    >>> round(whole.eta, 3), f"{whole.tau:.1e}", f"{whole.nu:.1e}"
    (0.5, '5.4e-06', '3.2e-06')
    >>> printed = compose_typical_adaptively_approximate(step, 10, slack=1e-9, method="published")
    >>> round(printed.eta, 3), f"{printed.tau:.1e}"
    (6.423, '1.0e-02')

    References
    ----------
    Bassily and Freund (2016), Theorem 3.8, (12) and (13) (lines 340-350).
    """
    if not step.reference:
        raise InvalidArgument("this theorem needs the reference form (noise.reference)")
    k = count("k", k)
    if method == "published":
        return _published_composition(step, k, slack)
    if method != "sharp":
        raise InvalidArgument(f"method must be 'sharp' or 'published', not {method!r}")
    if slack is None:
        eta, tau = k * step.eta, k * step.tau
    else:
        slack = probability("slack", slack)
        eta, tau = _advanced_composition(step.eta, k, slack), k * step.tau + slack
    share = math.sqrt(k * step.nu)
    growth = math.exp(eta) if eta < 700 else math.inf
    return TypicalStability(
        round_up(eta), round_up(2 * tau + (growth * share if share > 0 else 0.0)), round_up(share), True
    )


def _published_composition(step: TypicalStability, k: int, slack: float | None) -> TypicalStability:
    """Evaluate (12) and (13)."""
    if slack is None:
        raise InvalidArgument("the published theorem needs slack, its τ'")
    eta, small = positive("eta", step.eta), probability("slack", slack)
    wide = 2 * step.tau / -math.expm1(-eta)
    if wide >= 1:
        raise InvalidArgument(f"2τ/(1 − e^−η) = {wide:.3g} must be below 1: use a smaller τ or a larger η")
    u = math.exp(eta)
    square = (4 * u**4 + 4 * u**3 - 3 * u**2 - 2 * u + 1) / math.expm1(eta) ** 2
    psi = step.tau * (2 * u + 1) + step.tau**2 * (1 + 2 * square)
    drift = 2 * eta * (u * u / (1 - wide) - 1) + psi
    etas = [6 * math.sqrt(2 * t * math.log(1 / small)) * eta + 3 * t * drift for t in range(k + 1)]
    try:
        growth = math.fsum(math.exp(e) for e in etas[1:k])
    except OverflowError:
        growth = math.inf
    noise = step.nu / (2 * eta)
    mass = k * (wide + small / (2 * eta)) + noise + (growth * noise if noise > 0 else 0.0)
    share = 5 * math.sqrt(mass)
    return TypicalStability(round_up(etas[k]), round_up(share), round_up(share), reference=True)
