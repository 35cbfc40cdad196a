"""The Laplace mechanism."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from quiltdp.mechanisms.additive import AdditiveMechanism, AdditiveNoise
from quiltdp.mechanisms.contract import PureMechanism, checked_order, register
from quiltdp.mechanisms.noise import charged_units
from quiltdp.mechanisms.profiles import GroupProfile, PureProfile
from quiltdp.mechanisms.sensitivities import Sensitivity, frozen_sensitivity
from quiltdp.numbers import EPS, round_up, up

__all__ = ["Laplace", "LaplaceMechanism", "LaplaceProfile"]


@register("laplace", says="query + Lap(σ): pure DP with α = Δ/σ")
@dataclass(frozen=True)
class Laplace(AdditiveNoise, PureMechanism):
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
        return LaplaceProfile(round_up(self._rate(scale)))

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
class LaplaceProfile(PureProfile):
    """Laplace noise of one scale: δ = 1 − e^{(ε − w/σ)/2} for a group of total sensitivity w, |ε| ≤ w/σ.

    Exact for one number.  For a vector with L1 sensitivity w it is a bound: shift one coordinate at a
    time; the trade-off functions of the shifts compose to that of one shift of length w.

    Reference
    ---------
    Dong, Roth and Su, Gaussian differential privacy, 2022, Theorem 2.14 (group privacy) and
    Proposition A.3 (shifts of log-concave noise).
    """

    def _inside(self, epsilon: float, alpha: float) -> float:
        return -math.expm1(0.5 * (epsilon - alpha))


class LaplaceMechanism(AdditiveMechanism):
    """Release numbers with discrete Laplace noise on a grid; one release costs Δ / scale.

    Examples
    --------
    >>> from quiltdp import Laplace
    >>> from quiltdp.mechanisms import LaplaceMechanism
    >>> mechanism = LaplaceMechanism(Laplace(sensitivity=1.0), scale=2.0)
    >>> mechanism.dp_epsilon, mechanism.release(41.3) in mechanism.grid
    (0.5, True)
    """

    of = Laplace

    @property
    def dp_epsilon(self) -> float | dict[str, float]:
        """α of one release."""
        return self.spec.dp_epsilon(self.scale)

    @property
    def noise_scale(self) -> float:
        """The Laplace scale that is drawn: the stated one and the price of rounding."""
        return self._units * self.grid.step

    def _drawn_units(self) -> float:
        return charged_units(self.scale, self.grid, self._smallest, self.dimension)

    def _draw(self, centres: list[int]) -> list[int]:
        return self._noise.laplace(centres, self._units)
