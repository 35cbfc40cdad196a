"""The Gaussian mechanism: no pure α, only a profile δ_k(ε)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from quiltdp.accountant.mechanisms.contract import (
    GroupProfile,
    Mechanism,
    Vector,
    register,
)
from quiltdp.accountant.mechanisms.peers import GaussianCost
from quiltdp.accountant.mechanisms.sensitivities import (
    Sensitivity,
    frozen_sensitivity,
    number,
    positive,
    single_epsilon,
)
from quiltdp.errors import InvalidArgument, option
from quiltdp.numbers import round_up, up, up_array

__all__ = [
    "SMALLEST_DELTA",
    "Gaussian",
    "GaussianProfile",
    "checked_delta",
    "gaussian_delta",
    "gaussian_deltas",
]

SMALLEST_DELTA = 1e-300  # below it, the tails of the noise leave the range of doubles


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

    def group_sensitivity(self, group: int | Collection[str]) -> float:
        """Return, rounded up, how far a group of records moves the query together.

        For a number k: kΔ, or the sum of the k largest Δ_j.  For a collection of record names: the
        sum of their Δ_j.
        """
        delta = self.sensitivity
        if isinstance(group, int):
            if isinstance(group, bool) or group < 0:
                raise InvalidArgument(f"group must be a number of records ≥ 0, not {group!r}")
            if not isinstance(delta, Mapping):
                return round_up(group * Fraction(delta))
            return round_up(sum(map(Fraction, sorted(delta.values(), reverse=True)[:group]), Fraction(0)))
        names = set(group)
        if not isinstance(delta, Mapping):
            return round_up(len(names) * Fraction(delta))
        unknown = sorted(names - set(delta))
        if unknown:
            raise InvalidArgument(f"group: record {unknown[0]!r} has no sensitivity")
        return round_up(sum((Fraction(delta[n]) for n in names), Fraction(0)))

    def profile(
        self,
        epsilon: float,
        scale: float | None = None,
        group: int | Collection[str] = 1,
        *,
        gaussian_std: float | None = None,
    ) -> float:
        """Return δ_k(ε) of k records changing together, rounded up; ε may be negative.

        ``scale`` is the standard deviation; ``gaussian_std`` is another name for it.
        """
        std = positive(gaussian_std if scale is None else scale, "scale")
        return gaussian_delta(epsilon, round_up(Fraction(self.group_sensitivity(group)) / Fraction(std)))

    def group_profile(self, scale: float) -> GroupProfile:
        """Return δ(ε) for groups of any total sensitivity."""
        return GaussianProfile(positive(scale, "scale"))

    def as_gaussian(self, scale: float) -> float | None:
        """Return the standard deviation itself."""
        return positive(scale, "scale")

    def repeated_profile(self, scale: float, times: int, kept: dict[Any, Any]) -> GroupProfile:
        """Return δ(ε) of many uses: they are one, with √times the sensitivity."""
        return self.group_profile(positive(scale, "scale") / math.sqrt(times) * (1.0 - 2.0**-50))

    def dp_epsilon(self, scale: float) -> float | dict[str, float]:
        """Refuse: Gaussian noise satisfies no pure α-DP; use :meth:`profile`."""
        raise InvalidArgument("Gaussian noise has no pure dp_epsilon: use its profile(epsilon, scale)")

    def scale(self, dp_epsilon: float | Mapping[str, float]) -> float:
        """Return the smallest standard deviation that is (dp_epsilon, delta)-DP for one record.

        This is plain approximate DP; calibration for correlated records works from
        :meth:`profile`.  The returned value passed its own check.
        """
        target = single_epsilon(dp_epsilon, "Gaussian noise")
        low = high = self.max_sensitivity
        while self.profile(target, high) > self.delta:
            low, high = high, 2.0 * high
        while self.profile(target, low) <= self.delta:
            low, high = low / 2.0, low
        while high > low * (1.0 + 1e-12):
            middle = 0.5 * (low + high)
            if self.profile(target, middle) <= self.delta:
                high = middle
            else:
                low = middle
        return high

    def scaled(self, scale: float, share: Fraction) -> float:
        """Return scale / √share, rounded up: the squares (Δ/σ)² of uses on the same records add."""
        sigma = Fraction(positive(scale, "scale"))
        found = float(sigma) / math.sqrt(share)
        while Fraction(found) ** 2 * share < sigma**2:
            found = math.nextafter(found, math.inf)
        return found

    def share(self, scale: float, calibrated: Mechanism, calibrated_scale: float) -> Fraction:
        """Return the ratio of the squares (Δ/σ)², the largest over the records.

        If every Δ_j of this release is at most r times the calibration's, a group moves this query by
        at most r times as much, so (r · calibrated_scale / scale)² of the budget is spent.
        """
        if not isinstance(calibrated, Gaussian):
            raise InvalidArgument("the calibration is for pure DP: Gaussian noise has no pure cost")
        ratio = _largest_ratio(self.deltas, calibrated.deltas)
        own = Fraction(positive(scale, "scale"))
        return (ratio * Fraction(positive(calibrated_scale, "scale")) / own) ** 2


def checked_delta(given: object) -> float:
    """Return a δ in (0, 1), or refuse it."""
    delta = number(given, "delta")
    if not 0.0 < delta < 1.0:
        raise InvalidArgument(f"{option('delta')} must lie strictly between 0 and 1, not {given!r}")
    if delta < SMALLEST_DELTA:
        raise InvalidArgument(f"{option('delta')} must be at least {SMALLEST_DELTA:g}, not {given!r}")
    return delta


def _largest_ratio(own: Sensitivity, whole: Sensitivity) -> Fraction:
    """Return max_j Δ_j(own) / Δ_j(whole)."""
    if not isinstance(own, Mapping) and not isinstance(whole, Mapping):
        return Fraction(own) / Fraction(whole)
    names = list(own) if isinstance(own, Mapping) else list(whole)  # type: ignore[arg-type]  # one is a mapping
    best = Fraction(0)
    for name in names:
        mine = own.get(name) if isinstance(own, Mapping) else own
        total = whole.get(name) if isinstance(whole, Mapping) else whole
        if mine is None or total is None or (mine > 0.0 and total == 0.0):
            raise InvalidArgument(f"sensitivity: the calibration says that record {name!r} is never read")
        if mine > 0.0:
            best = max(best, Fraction(mine) / Fraction(total))
    return best


@dataclass(frozen=True)
class GaussianProfile:
    """Gaussian noise of one standard deviation: the analytic Gaussian, exact for groups.

    A group whose sensitivities sum to w has δ(ε) = Φ(w/2s − εs/w) − e^ε Φ(−w/2s − εs/w).
    """

    scale: float

    def __post_init__(self) -> None:
        """Refuse a standard deviation that is not positive and finite."""
        positive(self.scale, "scale")

    @property
    def gaussian_std(self) -> float:
        """Another name for the scale."""
        return self.scale

    def delta(self, epsilon: float, weight: float) -> float:
        """Return δ(ε) for a group of this total sensitivity, rounded up."""
        if weight == 0.0:
            return 0.0 if epsilon >= 0 else min(1.0, up(-math.expm1(epsilon)))
        return gaussian_delta(epsilon, up(weight / self.scale))

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
    >>> from quiltdp.accountant.mechanisms import gaussian_delta
    >>> gaussian_delta(0.0, 0.0), gaussian_delta(float("-inf"), 1.0), gaussian_delta(float("inf"), 1.0)
    (0.0, 1.0, 0.0)
    """
    if math.isnan(epsilon) or math.isnan(shift) or shift < 0.0:
        raise InvalidArgument(f"gaussian_delta needs numbers, and shift ≥ 0: got {epsilon!r}, {shift!r}")
    if epsilon < 0.0:
        if shift == 0.0:
            return min(1.0, _up(-math.expm1(epsilon)))
        other = gaussian_delta(-epsilon, shift)
        return min(1.0, _up(-math.expm1(epsilon) + math.exp(epsilon) * other))
    if shift == 0.0 or math.isinf(epsilon):
        return 0.0 if not math.isinf(shift) else 1.0
    if math.isinf(shift):
        return 1.0
    return _gaussian_delta_positive(epsilon, shift)


def _gaussian_delta_positive(epsilon: float, shift: float) -> float:
    from scipy.special import erfcx, ndtr

    ratio = epsilon / shift
    a = 0.5 * shift - ratio
    b = -0.5 * shift - ratio
    if a < -1e8 or math.isinf(ratio):
        return _TINY
    unit = 2.0**-50  # generous: a few roundings and the last digits of erfcx
    mills = math.sqrt(math.pi / 2.0)
    density = math.exp(-0.5 * a * a) / math.sqrt(2.0 * math.pi)
    # exp(−a²/2) with a off by unit·(μ/2 + ε/μ) is off by the factor exp(|a| · that).
    slack = unit * (1.0 + abs(a) * (0.5 * shift + ratio) + a * a)
    far = density * mills * float(erfcx(-b / math.sqrt(2.0)))
    near = float(ndtr(a)) if a > 0.0 else density * mills * float(erfcx(-a / math.sqrt(2.0)))
    value = near - far + slack * (near + far)
    if math.isnan(value):
        return 1.0
    return min(1.0, max(_up(value), _TINY))


def gaussian_deltas(epsilon: Vector, shift: Vector) -> Vector:
    """Return :func:`gaussian_delta` of many pairs, each rounded up."""
    from scipy.special import erfcx, ndtr

    given = np.asarray(epsilon, dtype=np.float64)
    if np.isnan(given).any() or not (shift >= 0.0).all():
        raise InvalidArgument("gaussian_deltas needs numbers, and shifts ≥ 0")
    size, unit, mills = np.abs(given), 2.0**-50, math.sqrt(math.pi / 2.0)
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
    return np.where(given >= 0.0, value, np.minimum(1.0, below * (1.0 + unit)))


def _up(value: float) -> float:
    """Return ``value`` raised by a few units in its last place."""
    return value + abs(value) * 2.0**-50
