"""Max-information of (ε, δ)-DP algorithms on independent records, with explicit constants."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from quiltdp.errors import InvalidArgument
from quiltdp.generalization._checks import count, positive, probability, round_up, within
from quiltdp.generalization.max_information import MaxInformation, product_dp_max_information

__all__ = [
    "RogersTheorem",
    "approximate_dp_max_information",
    "printed_drift",
    "published_drift",
    "rogers_theorem",
]


def approximate_dp_max_information(
    epsilon: float,
    delta: float,
    n: int,
    beta: float,
    *,
    method: Literal["sharp", "published"] = "sharp",
) -> MaxInformation:
    """Bound the max-information of an (ε, δ)-DP algorithm on n independent records.

    Claim, ``sharp``: for any κ, δ̂, t > 0, with c = ε + κ and δ'' = 2δ̂/(1 − e^{−κ}) < 1,

        I^β_∞ ≤ n (c²/2 − ln(1 − δ'')) + c t √n     with β = e^{−t²/2} + n (2δ/δ̂ + δ''),

    optimised here over κ and δ̂ for the given β (any choice is valid, so the search needs no proof).

    ``published``: nν + 6tε√n, β = e^{−t²/2} + n (2δ/δ̂ + 2δ/(1 − e^{−ε}) + δ''), with the drift ν
    of :func:`published_drift`, 0 < ε ≤ ½ and δ̂ ≤ ε/15.

    Assumes independent records.  For dependent ones no such bound exists
    (:mod:`quiltdp.generalization.lower_bound`); use ``bayesian_dp_max_information``.

    Raises
    ------
    InvalidArgument
        If δ is too large for this β (the message says how large it may be), or outside the
        published range.

    Examples
    --------
    >>> sharp = approximate_dp_max_information(0.01, 1e-20, 10_000, beta=0.01)
    >>> old = approximate_dp_max_information(0.01, 1e-20, 10_000, beta=0.01, method="published")
    >>> round(sharp.nats, 2), old.nats > 10 * sharp.nats
    (3.57, True)

    References
    ----------
    Rogers et al. (2016), Theorem 3.1 and its proof; :func:`rogers_theorem` has the paper's own choices.
    """
    eps = positive("epsilon", epsilon)
    delta = probability("delta", delta, zero=True)
    n = count("n", n)
    beta = probability("beta", beta)
    if method not in ("sharp", "published"):
        raise InvalidArgument(f"method must be 'sharp' or 'published', not {method!r}")
    if delta == 0:
        if method == "sharp":
            return product_dp_max_information(eps, n, beta)
        raise InvalidArgument("delta = 0: use product_dp_max_information, the bound for pure DP")
    if method == "published":
        within("epsilon", eps, 0.0, 0.5, open_low=True, instead="use method='sharp', which has no such limit")
    best = _best_sharp(eps, delta, n, beta) if method == "sharp" else _best_published(eps, delta, n, beta)
    if best is None:
        raise InvalidArgument(
            f"delta = {delta:g} is too large for beta = {beta:g} on {n} records: the bound needs about"
            f" 4 n √δ < β, so δ below {(beta / (4 * n)) ** 2:.1e}; use a smaller δ or pure DP"
        )
    return MaxInformation(round_up(best), beta, "product laws", f"(ε, δ)-DP on product data, {method}")


def _sharp(eps: float, delta: float, n: int, beta: float, *, kappa: float, hat: float) -> float:
    """Evaluate the claim at κ and δ̂; ∞ where it does not apply."""
    second = 2 * hat / -math.expm1(-kappa)
    rest = beta - n * (2 * delta / hat + second)
    if not (second < 1 and rest > 0):
        return math.inf
    t = math.sqrt(2 * math.log(1 / rest)) if rest < 1 else 0.0
    c = eps + kappa
    return n * (c * c / 2 - math.log1p(-second)) + c * t * math.sqrt(n)


def _best_sharp(eps: float, delta: float, n: int, beta: float) -> float | None:
    """Search κ and δ̂ on a logarithmic grid, refined around the best cell."""
    best, at = math.inf, (0.0, 0.0)
    low_k, high_k = math.log(1e-9), math.log(10.0)
    low_h, high_h = math.log(delta) / 2 - 14, math.log(delta) / 2 + 14
    for _ in range(4):
        for i in range(41):
            for j in range(41):
                kappa = low_k + (high_k - low_k) * i / 40
                hat = low_h + (high_h - low_h) * j / 40
                value = _sharp(eps, delta, n, beta, kappa=math.exp(kappa), hat=math.exp(hat))
                if value < best:
                    best, at = value, (kappa, hat)
        if math.isinf(best):
            return None
        width_k, width_h = (high_k - low_k) / 20, (high_h - low_h) / 20
        low_k, high_k = at[0] - width_k, at[0] + width_k
        low_h, high_h = at[1] - width_h, at[1] + width_h
    return best


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


def _best_published(eps: float, delta: float, n: int, beta: float) -> float | None:
    """Evaluate the published bound at its best δ̂ for this β."""
    best = math.inf
    top = math.log(eps / 15)
    for j in range(401):
        hat = math.exp(top - 40 * j / 400)
        second = 2 * hat / -math.expm1(-3 * eps)
        first = 2 * delta / hat + 2 * delta / -math.expm1(-eps)
        rest = beta - n * (first + second)
        if rest > 0:
            t = math.sqrt(2 * math.log(1 / rest)) if rest < 1 else 0.0
            best = min(best, n * published_drift(eps, hat) + 6 * t * eps * math.sqrt(n))
    return best if math.isfinite(best) else None
