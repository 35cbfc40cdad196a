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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from quiltdp.accountant.specs import gaussian_delta
from quiltdp.errors import InvalidArgument
from quiltdp.generalization._checks import count, non_negative, positive, probability, round_up, within
from quiltdp.generalization.query_classes import QueryClass

__all__ = [
    "TypicalNoise",
    "TypicalStability",
    "compose_typical",
    "compose_typical_adaptively",
    "compose_typical_adaptively_approximate",
    "gaussian_typical",
    "laplace_typical",
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
        """Return the stability of any function of the output: the same."""
        return self

    def as_pairs(self) -> TypicalStability:
        """Turn the reference form into the pair form: (2η, (1 + e^η)τ, 2ν).

        The source writes 3τ, which needs η ≤ ln 2.

        References
        ----------
        Bassily and Freund, "Typical stability" (2016), after Definition 2.3.
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
    Bassily and Freund (2016), Theorem 4.1.
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
    Bassily and Freund (2016), Theorem 4.2; Balle and Wang (2018), Theorem 8.
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


def compose_typical(steps: Sequence[TypicalStability]) -> TypicalStability:
    """Add the stability of mechanisms chosen **before** any answer: (Σ η, Σ τ, Σ ν).

    References
    ----------
    Bassily and Freund (2016), Theorem 3.1.
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
    Bassily and Freund (2016), Theorem 3.2; its (3) prints η inside the root.
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
    etas = [factor * _advanced(eta, t, slack) for t in range(k + 1)]
    try:
        growth = math.fsum(math.exp(e) for e in etas[1:k])
    except OverflowError:
        growth = math.inf
    mass = k * slack + step.nu * (1 + growth)
    share = math.sqrt(2 * mass) if method == "sharp" else 5 * math.sqrt(mass / eta)
    return TypicalStability(round_up(etas[k]), round_up(share), round_up(share), reference=True)


def _advanced(eta: float, t: int, slack: float) -> float:
    return math.sqrt(2 * t * math.log(1 / slack)) * eta + t * eta * math.expm1(eta)


def compose_typical_adaptively_approximate(
    step: TypicalStability, k: int, *, slack: float | None = None
) -> TypicalStability:
    """Compose k steps with τ > 0, each chosen by the earlier answers (reference form).

    Claim: let (η_k, τ_k) be the DP composition of k (η, τ) steps: (kη, kτ), or with τ' = ``slack``
    (√(2k ln(1/τ')) η + kη(e^η − 1), kτ + τ').  The whole is (η_k, 2τ_k + e^{η_k} √(kν), √(kν)).

    Proof: draw the answers from the references, independently of X; some step then meets a dataset
    outside its good set with probability at most kν.  By Markov's inequality all x but a share
    √(kν) meet one with probability at most √(kν).  For such an x replace the steps at bad
    answers by their references: the result is (η_k, τ_k)-close to the reference, it differs from
    the true run only after a bad answer, and that has probability at most e^{η_k} √(kν) + τ_k.

    Examples
    --------
    >>> step = TypicalStability(0.05, 1e-8, 1e-12, reference=True)
    >>> whole = compose_typical_adaptively_approximate(step, 10)
    >>> round(whole.eta, 3), f"{whole.tau:.1e}", f"{whole.nu:.1e}"
    (0.5, '5.4e-06', '3.2e-06')

    References
    ----------
    In the place of Bassily and Freund (2016), Theorem 3.8, whose proof is deferred in the source.
    """
    if not step.reference:
        raise InvalidArgument("this theorem needs the reference form (noise.reference)")
    k = count("k", k)
    if slack is None:
        eta, tau = k * step.eta, k * step.tau
    else:
        slack = probability("slack", slack)
        eta, tau = _advanced(step.eta, k, slack), k * step.tau + slack
    share = math.sqrt(k * step.nu)
    growth = math.exp(eta) if eta < 700 else math.inf
    return TypicalStability(
        round_up(eta), round_up(2 * tau + (growth * share if share > 0 else 0.0)), round_up(share), True
    )


def typical_generalization(
    stability: TypicalStability,
    gamma: float,
    *,
    method: Literal["sharp", "published"] = "sharp",
) -> float:
    """Bound the chance that an output chosen by the mechanism is wrong about the data.

    Claim: if for every fixed output the bad event has probability at most e^{−γ}, then for the
    output A(X) it has probability at most, ``sharp``: e^{η−γ}/√(1−ν) + τ + 1 − √(1−ν) (pair form) or
    e^{η−γ} + τ + ν (reference form).  ``published``: e^{η−γ} + 4e^{−γ} + τ for η < 1, ν < 1/10; its
    lack of ν needs ν ≤ 4e^{−γ}, which is checked here.

    Examples
    --------
    >>> s = TypicalStability(0.5, 1e-6, 1e-3)
    >>> round(typical_generalization(s, 7.0), 6), round(typical_generalization(s, 7.0, method="published"), 6)
    (0.002005, 0.005152)

    References
    ----------
    Bassily and Freund (2016), Theorem 2.7.
    """
    gamma = non_negative("gamma", gamma)
    if stability.reference and method == "sharp":
        bound = math.exp(min(stability.eta - gamma, 700)) + stability.tau + stability.nu
        return min(1.0, round_up(bound))
    pairs = stability.as_pairs()
    if method == "published":
        sharp = "use method='sharp', which has no condition"
        within("eta", pairs.eta, 0.0, 1.0 - 1e-15, instead=sharp)
        within("nu", pairs.nu, 0.0, min(0.1 - 1e-15, 4 * math.exp(-gamma)), instead=sharp)
        bound = math.exp(pairs.eta - gamma) + 4 * math.exp(-gamma) + pairs.tau
    elif method == "sharp":
        if pairs.nu >= 1:
            return 1.0
        root = math.sqrt(1 - pairs.nu)
        bound = math.exp(min(pairs.eta - gamma, 700)) / root + pairs.tau + pairs.nu / (1 + root)
    else:
        raise InvalidArgument(f"method must be 'sharp' or 'published', not {method!r}")
    return min(1.0, round_up(bound))
