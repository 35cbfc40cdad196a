"""Composing typically stable mechanisms: chosen beforehand, or each by the answers of the earlier ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from quiltdp.errors import InvalidArgument
from quiltdp.generalization._checks import count, positive, probability, round_up
from quiltdp.generalization.typical_stability import TypicalStability

__all__ = [
    "compose_typical",
    "compose_typical_adaptively",
    "compose_typical_adaptively_approximate",
]


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
        return _published_approximate(step, k, slack)
    if method != "sharp":
        raise InvalidArgument(f"method must be 'sharp' or 'published', not {method!r}")
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


def _published_approximate(step: TypicalStability, k: int, slack: float | None) -> TypicalStability:
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
