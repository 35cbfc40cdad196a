"""The discrete Gaussian mechanism: noise on the whole numbers, P(x) ∝ exp(−x²/2σ²)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from quiltdp.errors import InvalidArgument, option
from quiltdp.mechanisms.contract import Mechanism, register, smallest_scale
from quiltdp.mechanisms.gaussian import GaussianCost, checked_delta
from quiltdp.mechanisms.profiles import GroupProfile, PrivacyLossProfile, Vector
from quiltdp.mechanisms.sensitivities import (
    Sensitivity,
    apply_to_sensitivity,
    check_positive,
    check_single_epsilon,
    frozen_sensitivity,
    largest_ratio,
    round_up_whole,
)
from quiltdp.numbers import EPS

__all__ = ["DiscreteGaussian", "DiscreteGaussianProfile"]

_REACH = 10.0  # standard deviations that are summed; what lies beyond is bounded and added
_LARGEST, _SMALLEST = 1e5, 1e-3  # of σ
_TERMS_AT_ONCE = 2**20  # of a sum over the whole numbers: memory


@register(
    "discrete-gaussian",
    says="whole number + discrete Gaussian noise of parameter σ: (ε, δ), exact for groups",
)
@dataclass(frozen=True)
class DiscreteGaussian(GaussianCost):
    """A whole number plus noise with P(x) ∝ exp(−x²/2σ²) on the whole numbers.

    Parameters
    ----------
    sensitivity
        Δ, how far one record moves the query, a whole number (in the L1 norm for a vector), or
        ``record -> Δ_j``.
    delta
        The δ that a calibration aims at, in (0, 1).

    Examples
    --------
    >>> from quiltdp import Gaussian
    >>> from quiltdp.mechanisms import DiscreteGaussian
    >>> fine = DiscreteGaussian(sensitivity=1, delta=1e-6).scale(dp_epsilon=1.0)
    >>> abs(fine / Gaussian(sensitivity=1, delta=1e-6).scale(1.0) - 1) < 0.01
    True
    """

    scale_name: ClassVar[str] = "discrete Gaussian σ"
    law: ClassVar[str] = "discrete_gaussian"
    number_type: ClassVar[type] = int

    sensitivity: Sensitivity
    delta: float

    def __post_init__(self) -> None:
        """Refuse sensitivities that are no whole numbers, and δ outside (0, 1)."""
        object.__setattr__(self, "sensitivity", frozen_sensitivity(self.sensitivity))
        sensitivity = self.sensitivity
        for value in sensitivity.values() if isinstance(sensitivity, Mapping) else (sensitivity,):
            if value != math.floor(value):
                raise InvalidArgument(
                    f"{option('sensitivity')} must be a whole number for discrete noise, not {value!r}"
                )
        object.__setattr__(self, "delta", checked_delta(self.delta))

    def with_sensitivity(self, sensitivity: Sensitivity) -> Mechanism:
        """Return the same for another sensitivity, raised to a whole number."""
        raised = math.ceil if isinstance(sensitivity, Mapping) else round_up_whole
        return DiscreteGaussian(apply_to_sensitivity(sensitivity, raised), self.delta)

    def as_discrete_gaussian(self, scale: float) -> float | None:
        """Return the scale itself."""
        return scale

    def group_profile(self, scale: float) -> GroupProfile:
        """Return δ(ε) for groups of any total sensitivity."""
        return DiscreteGaussianProfile(scale)

    def repeated_profile(self, scale: float, times: int, kept: dict[Any, Any]) -> GroupProfile:
        """Return δ(ε) of many uses: privacy-loss distributions of whole shifts, composed."""
        sigma = check_positive(scale, "scale")

        def loss(weight: float, interval: float) -> Any:
            return self.privacy_loss(sigma, weight, interval).self_compose(times)

        def loss_range(weight: float) -> float:
            return weight / sigma * (times * weight / sigma + 20.0 * math.sqrt(times))

        return PrivacyLossProfile(loss, loss_range, kept, ("discrete gaussian", sigma, times), whole=True)

    def scale(self, dp_epsilon: float | Mapping[str, float]) -> float:
        """Return a small σ, itself checked, that is (dp_epsilon, delta)-DP for one record."""
        target = check_single_epsilon(dp_epsilon, "(ε, δ)")
        weight = self.max_sensitivity

        def fits(scale: float) -> bool:
            return scale >= _SMALLEST and DiscreteGaussianProfile(scale).delta(target, weight) <= self.delta

        return smallest_scale(fits, max(1.0, 2.0 * _SMALLEST * weight), 1e-9)

    def scale_for_share(self, scale: float, share: Fraction) -> float:
        """Return the scale itself for the whole; refuse parts: they do not add up to one such release."""
        if share == 1:
            return check_positive(scale, "scale")
        raise InvalidArgument(
            "discrete Gaussian releases do not add up to one: calibrate all of them together"
            f" ({option('releases')})"
        )

    def spent_share(self, scale: float, calibrated: Mechanism, calibrated_scale: float) -> Fraction:
        """Return the whole for one use that moves no record further; its σ must be the calibrated one."""
        if not isinstance(calibrated, DiscreteGaussian):
            raise InvalidArgument(f"the calibration is for {calibrated.kind} noise, not for {self!r}")
        if scale != calibrated_scale or largest_ratio(self.deltas, calibrated.deltas) > 1:
            raise InvalidArgument(
                f"only the calibrated release, with σ = {calibrated_scale:.6g}, can be charged"
            )
        return Fraction(1)

    def shifted_distance(self, weight: float) -> float:
        """Return the weight, raised to a whole number."""
        return round_up_whole(weight)


@dataclass(frozen=True)
class DiscreteGaussianProfile:
    """Discrete Gaussian noise of one σ; δ of a group that moves the query by k is exact up to rounding.

    δ_k(ε) = Σ_x p(x) (1 − e^{ε − l(x)})₊ with the privacy loss l(x) = k (2x + k) / 2σ²: positive terms.
    For a vector of whole numbers, k is in the L1 norm: shifting one coordinate at a time composes the
    trade-off functions of the shifts to that of one shift by their sum.

    Reference
    ---------
    Canonne, Kamath and Steinke, The discrete Gaussian for differential privacy, 2020, Theorem 7.
    """

    scale: float

    def __post_init__(self) -> None:
        """Refuse a σ that is not positive, or so large or small that the sums say nothing."""
        check_positive(self.scale, "scale")
        if not _SMALLEST <= self.scale <= _LARGEST:
            raise InvalidArgument(
                f"scale of discrete noise must be from {_SMALLEST:g} to {_LARGEST:g}, not {self.scale!r}"
            )

    def delta(self, epsilon: float, weight: float) -> float:
        """Return δ(ε) for a group of this total sensitivity, rounded up."""
        return float(self.deltas(np.array([epsilon]), np.array([weight]))[0])

    def deltas(self, epsilon: Vector, weight: Vector) -> Vector:
        """Return δ for many pairs (ε, weight), rounded up and at most 1; for ε < 0 by the swapped pair."""
        signed = np.asarray(epsilon, dtype=np.float64)
        k = np.ceil(np.asarray(weight, dtype=np.float64) * (1.0 - 1e-9))
        if np.isnan(signed).any() or not (k >= 0.0).all():
            raise InvalidArgument("a profile needs numbers, and weights ≥ 0")
        size = np.minimum(np.abs(signed), 1e300)
        many = max(1, int(_TERMS_AT_ONCE / (2.0 * _REACH * self.scale + 8.0)))
        parts = [self._deltas(size[j : j + many], k[j : j + many]) for j in range(0, max(len(size), 1), many)]
        value = np.concatenate(parts)
        with np.errstate(under="ignore"):
            below = -np.expm1(-size) + np.exp(-size) * value
        return np.where(signed >= 0.0, value, np.minimum(1.0, below * (1.0 + 64.0 * EPS)))

    def _deltas(self, epsilon: Vector, k: Vector) -> Vector:
        """Return δ for ε ≥ 0."""
        sigma = self.scale
        width = math.ceil(_REACH * sigma) + 2
        steps = np.arange(2 * width + 1, dtype=np.float64)
        half = 0.5 / sigma**2
        with np.errstate(all="ignore"):
            mass = np.exp(-half * np.arange(-width, width + 1, dtype=np.float64) ** 2)
            total = float(mass.sum()) * (1.0 - (2.0 * width + 16.0) * EPS - 1e-15 * half)
            cut = epsilon / (2.0 * half * np.maximum(k, 1.0)) - 0.5 * k  # the loss exceeds ε beyond it
            first = np.clip(np.floor(cut) - 1.0, -width, 1e15)
            x = first[:, None] + steps
            loss = half * k[:, None] * (2.0 * x + k[:, None])
            room = epsilon[:, None] - loss
            error = 16.0 * EPS * (epsilon[:, None] + half * k[:, None] * (2.0 * np.abs(x) + k[:, None]))
            share = np.clip(-np.expm1(np.minimum(room, 0.0)) + error, 0.0, 1.0)
            p = np.exp(-half * x * x * (1.0 - 8.0 * EPS)) / total
            value = (p * share).sum(axis=1) * (1.0 + (len(steps) + 64.0) * EPS)
            last = np.maximum(x[:, -1], 1.0)  # Σ beyond: a geometric series
            beyond = np.exp(-half * last * last * (1.0 - 8.0 * EPS)) / total / -np.expm1(-2.0 * half * last)
            under = np.where(first <= -width, 1.0, 0.0) * _tail_sum(width, half) / total
            value = value + (beyond + under) * (1.0 + 64.0 * EPS)
        value = np.where(np.isnan(value), 1.0, np.minimum(1.0, np.maximum(value, 1e-300)))
        return np.where(k == 0.0, 0.0, value)


def _tail_sum(width: int, half: float) -> float:
    """Return at least Σ_{x > width} e^{−x² half}."""
    return math.exp(-half * width * width) / -math.expm1(-2.0 * half * width)
