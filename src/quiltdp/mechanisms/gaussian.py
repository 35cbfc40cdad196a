r"""The Gaussian mechanism: no pure α, only a profile δ_k(ε); and discrete noise that the profile covers.

The profile is that of *continuous* noise of standard deviation s.  What is drawn is discrete, on the grid,
with variance s'² + (6·step)².  Draw a continuous Gaussian of deviation s' around the (rounded) value and
round the result at random, to a discrete Gaussian of parameter 6 steps around it: that is post-processing,
and by Poisson summation the outcome is the discrete Gaussian with the two variances added, up to a factor
1 ± 4·exp(−2π²·36) < 1 ± 10⁻³⁰⁷.  So the continuous profile holds, and s' = s·(1 + √d·step/Δ) charges the
rounding of the values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from quiltdp.errors import InvalidArgument, option
from quiltdp.mechanisms.additive import AdditiveMechanism, AdditiveNoise
from quiltdp.mechanisms.contract import Mechanism, checked_order, register, smallest_scale
from quiltdp.mechanisms.noise import charged_scale
from quiltdp.mechanisms.profiles import GroupProfile, Vector
from quiltdp.mechanisms.sensitivities import (
    Sensitivity,
    check_number,
    check_positive,
    check_single_epsilon,
    frozen_sensitivity,
    largest_ratio,
)
from quiltdp.numbers import round_up, up, up_array

__all__ = ["Gaussian", "GaussianMechanism", "GaussianProfile", "gaussian_delta", "gaussian_deltas"]

_SMALLEST_DELTA = 1e-300  # below it, the tails of the noise leave the range of doubles
_RANDOM_ROUNDING = 6  # deviation, in steps, of the random rounding in the argument above


class GaussianCost(AdditiveNoise):
    """Gaussian noise, continuous or discrete: no pure α, and Δ²/(2σ²) of concentrated DP.

    Reference
    ---------
    Canonne, Kamath and Steinke, The discrete Gaussian for differential privacy, 2020, Theorem 14.
    """

    pure: ClassVar[bool] = False

    delta: float

    @property
    def target_delta(self) -> float:
        """The δ that a calibration aims at."""
        return self.delta

    def zcdp(self, scale: float) -> float:
        """Return Δ²/(2σ²), rounded up."""
        ratio = Fraction(self.max_sensitivity) / Fraction(check_positive(scale, "scale"))
        return round_up(ratio**2 / 2)

    def rdp(self, scale: float, order: float) -> float:
        """Return order · Δ²/(2σ²)."""
        return up(checked_order(order) * self.zcdp(scale), 4)


@register("gaussian", says="query + N(0, σ²): (ε, δ) from the exact profile, for groups too")
@dataclass(frozen=True)
class Gaussian(GaussianCost):
    """The Gaussian mechanism: query + N(0, σ²).  It has no pure α, only a profile δ_k(ε).

    Parameters
    ----------
    sensitivity
        Δ, how far one record moves the query (in the L2 norm for a vector), or ``record -> Δ_j``.
    delta
        The δ that a calibration aims at, in (0, 1).

    Examples
    --------
    >>> from quiltdp import Gaussian
    >>> spec = Gaussian(sensitivity=1.0, delta=1e-5)
    >>> f"{spec.profile(1.0, scale=3.730632):.4g}"
    '1e-05'
    >>> spec.profile(-2.0, scale=3.730632) > 0.86
    True
    """

    scale_name: ClassVar[str] = "standard deviation"
    law: ClassVar[str] = "gaussian"

    sensitivity: Sensitivity
    delta: float

    def __post_init__(self) -> None:
        """Refuse a sensitivity that is no positive finite number or mapping, and δ outside (0, 1)."""
        object.__setattr__(self, "sensitivity", frozen_sensitivity(self.sensitivity))
        object.__setattr__(self, "delta", checked_delta(self.delta))

    def profile(self, epsilon: float, scale: float) -> float:
        """Return δ(ε) of one record, rounded up; ε may be negative."""
        std = Fraction(check_positive(scale, "scale"))
        return gaussian_delta(epsilon, round_up(Fraction(self.max_sensitivity) / std))

    def group_profile(self, scale: float) -> GroupProfile:
        """Return δ(ε) for groups of any total sensitivity."""
        return GaussianProfile(check_positive(scale, "scale"))

    def as_gaussian(self, scale: float) -> float | None:
        """Return the standard deviation itself."""
        return check_positive(scale, "scale")

    def repeated_profile(self, scale: float, times: int, kept: dict[Any, Any]) -> GroupProfile:
        """Return δ(ε) of many uses: they are one, with √times the sensitivity."""
        return self.group_profile(check_positive(scale, "scale") / math.sqrt(times) * (1.0 - 2.0**-50))

    def scale(self, dp_epsilon: float | Mapping[str, float]) -> float:
        """Return the smallest standard deviation that is (dp_epsilon, delta)-DP for one record.

        This is plain approximate DP; calibration for correlated records works from
        :meth:`profile`.  The returned value passed its own check.
        """
        target = check_single_epsilon(dp_epsilon, "Gaussian noise")
        return smallest_scale(lambda s: self.profile(target, s) <= self.delta, self.max_sensitivity, 1e-12)

    def scale_for_share(self, scale: float, share: Fraction) -> float:
        """Return scale / √share, rounded up: the squares (Δ/σ)² of uses on the same records add."""
        sigma = Fraction(check_positive(scale, "scale"))
        larger = float(sigma) / math.sqrt(share)
        while Fraction(larger) ** 2 * share < sigma**2:
            larger = math.nextafter(larger, math.inf)
        return larger

    def spent_share(self, scale: float, calibrated: Mechanism, calibrated_scale: float) -> Fraction:
        """Return the ratio of the squares (Δ/σ)², the largest over the records.

        If every Δ_j of this release is at most r times the calibration's, a group moves this query by
        at most r times as much, so (r · calibrated_scale / scale)² of the privacy is spent.
        """
        if not isinstance(calibrated, Gaussian):
            raise InvalidArgument("the calibration is for pure DP: Gaussian noise has no pure cost")
        ratio = largest_ratio(self.deltas, calibrated.deltas)
        std = Fraction(check_positive(scale, "scale"))
        return (ratio * Fraction(check_positive(calibrated_scale, "scale")) / std) ** 2


def checked_delta(given: object) -> float:
    """Return a δ in (0, 1), or refuse it."""
    delta = check_number(given, "delta")
    if not 0.0 < delta < 1.0:
        raise InvalidArgument(f"{option('delta')} must lie strictly between 0 and 1, not {given!r}")
    if delta < _SMALLEST_DELTA:
        raise InvalidArgument(f"{option('delta')} must be at least {_SMALLEST_DELTA:g}, not {given!r}")
    return delta


@dataclass(frozen=True)
class GaussianProfile:
    """Gaussian noise of one standard deviation: the analytic Gaussian, exact for groups.

    A group whose sensitivities sum to w has δ(ε) = Φ(w/2s − εs/w) − e^ε Φ(−w/2s − εs/w).
    """

    scale: float

    def __post_init__(self) -> None:
        """Refuse a standard deviation that is not positive and finite."""
        check_positive(self.scale, "scale")

    def delta(self, epsilon: float, weight: float) -> float:
        """Return δ(ε) for a group of this total sensitivity, rounded up."""
        return gaussian_delta(epsilon, up(weight / self.scale) if weight else 0.0)

    def deltas(self, epsilon: Vector, weight: Vector) -> Vector:
        """Return δ for many pairs (ε, weight), rounded up."""
        return gaussian_deltas(np.asarray(epsilon), up_array(np.asarray(weight) / self.scale))


_TINY = 1e-300  # below it products lose digits: a δ this small is given as this


def gaussian_delta(epsilon: float, shift: float) -> float:
    r"""Return δ(ε) between N(0, 1) and N(μ, 1), rounded up and clipped to 1.

    .. math:: δ(ε) = Φ(μ/2 − ε/μ) − e^{ε} Φ(−μ/2 − ε/μ)

    Parameters
    ----------
    epsilon
        Any real number, negative ones and ±∞ included.
    shift
        μ ≥ 0, the sensitivity in standard deviations.

    Notes
    -----
    For ε < 0, δ(ε) = 1 − e^ε + e^ε δ(−ε), a sum of positive terms.  For ε ≥ 0 put a = μ/2 − ε/μ,
    b = a − μ; then e^ε φ(b) = φ(a) and δ = φ(a) [R(a) − R(b)] with Mills' ratio R = Φ/φ, so nothing
    overflows.  The rounding error of every term is bounded and added.

    Reference
    ---------
    Balle and Wang, Improving the Gaussian mechanism for differential privacy, 2018, Theorem 8.

    Examples
    --------
    >>> from quiltdp.mechanisms import gaussian_delta
    >>> gaussian_delta(0.0, 0.0), gaussian_delta(float("-inf"), 1.0), gaussian_delta(float("inf"), 1.0)
    (0.0, 1.0, 0.0)
    """
    return float(gaussian_deltas(np.array([epsilon]), np.array([shift]))[0])


def gaussian_deltas(epsilon: Vector, shift: Vector) -> Vector:
    """Return :func:`gaussian_delta` of many pairs, each rounded up."""
    from scipy.special import erfcx, ndtr

    signed = np.asarray(epsilon, dtype=np.float64)
    if np.isnan(signed).any() or not (shift >= 0.0).all():
        raise InvalidArgument("gaussian_deltas needs numbers, and shifts ≥ 0")
    size, unit, mills = np.abs(signed), 2.0**-50, math.sqrt(math.pi / 2.0)
    with np.errstate(all="ignore"):
        ratio = size / shift
        a, b = 0.5 * shift - ratio, -0.5 * shift - ratio
        density = np.exp(-0.5 * a * a) / math.sqrt(2.0 * math.pi)
        slack = unit * (1.0 + np.abs(a) * (0.5 * shift + ratio) + a * a)
        far = density * mills * erfcx(-b / math.sqrt(2.0))
        near = np.where(a > 0.0, ndtr(a), density * mills * erfcx(-a / math.sqrt(2.0)))
        value = near - far + slack * (near + far)
        value = np.minimum(1.0, np.maximum(value + np.abs(value) * unit, _TINY))
        value = np.where(np.isnan(value), 1.0, value)
        value = np.where((a < -1e8) | np.isinf(ratio), _TINY, value)
        value = np.where((shift == 0.0) | np.isinf(size), np.where(np.isinf(shift), 1.0, 0.0), value)
        value = np.where(np.isinf(shift), 1.0, value)
        below = -np.expm1(-size) + np.exp(-size) * value
    return np.where(signed >= 0.0, value, np.minimum(1.0, below * (1.0 + unit)))


class GaussianMechanism(AdditiveMechanism):
    """Release numbers with Gaussian noise; one release has the profile ``spec.profile(ε, scale)``.

    Examples
    --------
    >>> from quiltdp import Gaussian
    >>> from quiltdp.mechanisms import GaussianMechanism
    >>> mechanism = GaussianMechanism(Gaussian(sensitivity=1.0, delta=1e-6), scale=5.0, dimension=2)
    >>> mechanism.release([3.0, 4.0]).shape
    (2,)
    """

    of = Gaussian

    @property
    def noise_std(self) -> float:
        """The standard deviation that is drawn: the stated one and the price of the grid."""
        return self._units * self.grid.step

    def _drawn_scale(self) -> float:
        root = math.isqrt(self.dimension - 1) + 1  # ≥ √dimension
        inner = Fraction(charged_scale(self.scale, self.grid, self._smallest, root))
        # √(x² + 36) ≤ x + 18/x
        return round_up(inner + Fraction(_RANDOM_ROUNDING**2, 2) / inner)

    def _add_drawn_noise(self, centres: list[int]) -> list[int]:
        return self._noise.gaussian(centres, self._units)
