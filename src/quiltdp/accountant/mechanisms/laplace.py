"""The Laplace mechanism."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from quiltdp.accountant.mechanisms.contract import (
    GroupProfile,
    OneByOne,
    PureMechanism,
    checked_order,
    register,
)
from quiltdp.accountant.mechanisms.peers import KnownToPeers
from quiltdp.accountant.mechanisms.sensitivities import Sensitivity, frozen_sensitivity, positive
from quiltdp.numbers import EPS, up

__all__ = ["Laplace", "LaplaceProfile"]


@register("laplace", says="query + Lap(σ): pure DP with α = Δ/σ")
@dataclass(frozen=True)
class Laplace(KnownToPeers, PureMechanism):
    """The Laplace mechanism: query + Lap(σ) is α-DP with α = Δ / σ.

    Parameters
    ----------
    sensitivity
        Δ, how far one record moves the query (in the L1 norm for a vector), or ``record -> Δ_j``.

    Examples
    --------
    >>> from quiltdp import Laplace
    >>> Laplace(sensitivity=0.5).dp_epsilon(scale=2.0)
    0.25
    >>> Laplace(sensitivity={"ann": 1.0, "bob": 0.0}).dp_epsilon(scale=4.0)
    {'ann': 0.25, 'bob': 0.0}
    """

    law: ClassVar[str] = "laplace"

    sensitivity: Sensitivity

    def __post_init__(self) -> None:
        """Refuse a sensitivity that is no positive finite number or mapping."""
        object.__setattr__(self, "sensitivity", frozen_sensitivity(self.sensitivity))

    def _factor(self) -> Fraction:
        return Fraction(1)

    def group_profile(self, scale: float) -> GroupProfile:
        """Return δ_k(ε) of Laplace noise."""
        return LaplaceProfile(positive(scale, "scale"))

    def rdp(self, scale: float, order: float) -> float:
        """Return ln( a/(2a−1) e^{(a−1)α} + (a−1)/(2a−1) e^{−aα} ) / (a−1), a the order.

        Reference
        ---------
        Mironov, Rényi differential privacy, 2017, Table II.
        """
        a, alpha = checked_order(order), self._largest(scale)
        grown = (a - 1.0) * alpha
        rest = a / (2.0 * a - 1.0) + (a - 1.0) / (2.0 * a - 1.0) * math.exp(-(2.0 * a - 1.0) * alpha)
        value = (grown + math.log(rest)) / (a - 1.0)
        slack = 8.0 * EPS * (1.0 + grown) / (a - 1.0)  # two terms that cancel for small α
        return min(super().rdp(scale, order), up(max(value, 0.0) + slack))


@dataclass(frozen=True)
class LaplaceProfile(OneByOne):
    """Laplace noise of one scale: δ = 1 − e^{(ε − w/σ)/2} for a group of total sensitivity w, |ε| ≤ w/σ.

    Exact for one number.  For a vector with L1 sensitivity w it is a bound: shift one coordinate at a
    time; the trade-off functions of the shifts compose to that of one shift of length w.

    Reference
    ---------
    Dong, Roth and Su, Gaussian differential privacy, 2022, Theorem 2.14 (group privacy) and
    Proposition A.3 (shifts of log-concave noise).
    """

    scale: float

    def delta(self, epsilon: float, weight: float) -> float:
        """Return δ(ε), rounded up and at most 1."""
        alpha = up(weight / self.scale) if weight > 0.0 else 0.0
        if epsilon >= alpha:
            return 0.0
        if epsilon < -alpha:
            return min(1.0, up(-math.expm1(epsilon)))
        return min(1.0, up(-math.expm1(0.5 * (epsilon - alpha))))
