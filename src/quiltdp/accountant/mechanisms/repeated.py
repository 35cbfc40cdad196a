"""Several uses of one mechanism on the same records, under (ε, δ): privacy-loss distributions compose."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

from quiltdp.accountant.mechanisms.contract import (
    GroupProfile,
    Mechanism,
    checked_times,
    dp_accounting,
    mechanism_from_dict,
    register,
)
from quiltdp.accountant.mechanisms.gaussian import checked_delta
from quiltdp.accountant.mechanisms.sensitivities import Sensitivity, positive, single_epsilon
from quiltdp.errors import InvalidArgument
from quiltdp.numbers import up

__all__ = ["Repeated"]


@register(
    "repeated", says="several uses of one mechanism on the same records: (ε, δ) by privacy-loss distributions"
)
@dataclass(frozen=True)
class Repeated(Mechanism):
    """``times`` uses of a mechanism on the same records, adaptively, for (ε, δ) together.

    For many Laplace releases this needs less noise than pure DP, where the costs add up.  A group of
    total sensitivity w shifts every one of the uses by at most w, so the group's privacy loss is that of
    the mechanism at sensitivity w, composed.  The scale is that of each use.

    Parameters
    ----------
    base
        The mechanism that is used.
    times
        How often.
    delta
        The δ that a calibration aims at, for all uses together.

    Examples
    --------
    >>> from quiltdp import Laplace
    >>> from quiltdp.accountant.mechanisms import Repeated
    >>> many = Repeated(Laplace(sensitivity=1.0), times=100, delta=1e-6)
    >>> many.scale(dp_epsilon=1.0) < Laplace(1.0).repeated(1.0, 100)
    True
    """

    pure: ClassVar[bool] = False

    base: Mechanism
    times: int
    delta: float
    losses: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Privacy-loss distributions made so far; they change no answer."""

    def __post_init__(self) -> None:
        """Refuse what is not a mechanism, fewer than one use, and δ outside (0, 1)."""
        if isinstance(self.base, Mapping):
            object.__setattr__(self, "base", mechanism_from_dict(self.base))
        if not isinstance(self.base, Mechanism) or isinstance(self.base, Repeated):
            raise InvalidArgument(f"base must be a mechanism that is used once, not {self.base!r}")
        object.__setattr__(self, "times", checked_times(self.times))
        object.__setattr__(self, "delta", checked_delta(self.delta))

    @property
    def deltas(self) -> Sensitivity:
        """Δ of one use."""
        return self.base.deltas

    @property
    def target_delta(self) -> float:
        """The δ that a calibration aims at."""
        return self.delta

    @property
    def answers(self) -> int | None:
        """How many answers all uses give, where that is limited."""
        return None if self.base.answers is None else self.base.answers * self.times

    def group(self, sensitivity: Sensitivity) -> Mechanism:
        """Return the same for another sensitivity."""
        return dataclasses.replace(self, base=self.base.group(sensitivity))

    def group_profile(self, scale: float) -> GroupProfile:
        """Return δ(ε) of all uses together."""
        return self.base.repeated_profile(positive(scale, "scale"), self.times, self.losses)

    def single(self) -> Mechanism:
        """Return the mechanism that is used."""
        return self.base

    def as_gaussian(self, scale: float) -> float | None:
        """Return the standard deviation of all uses as one, where they are Gaussian."""
        one = self.base.as_gaussian(scale)
        return None if one is None else one / math.sqrt(self.times)

    def scale(self, dp_epsilon: float | Mapping[str, float]) -> float:
        """Return the smallest scale of each use that is (dp_epsilon, delta)-DP for one record."""
        target = single_epsilon(dp_epsilon, "(ε, δ)")
        weight = self.max_sensitivity

        def fits(scale: float) -> bool:
            return self.group_profile(scale).delta(target, weight) <= self.delta

        low = high = weight
        while not fits(high):
            low, high = high, 2.0 * high
        while fits(low):
            low, high = low / 2.0, low
        while high > low * (1.0 + 1e-6):
            middle = math.sqrt(low * high)
            low, high = (low, middle) if fits(middle) else (middle, high)
        return high

    def scaled(self, scale: float, share: Fraction) -> float:
        """Return the scale of one of the uses, each 1/times of the whole; refuse other shares."""
        if share * self.times == 1:
            return positive(scale, "scale")
        raise InvalidArgument(
            f"this was calibrated for {self.times} uses: make it for as many as there will be"
        )

    def share(self, scale: float, calibrated: Mechanism, calibrated_scale: float) -> Fraction:
        """Return the whole: all uses together, at the calibrated scale or more."""
        if calibrated != self or scale < calibrated_scale:
            raise InvalidArgument("only the calibrated uses, at the calibrated scale, can be charged")
        return Fraction(1)

    def share_of(self, use: Mechanism, scale: float, own_scale: float) -> Fraction:
        """Return 1/times for one use that costs no record more than one was calibrated to cost."""
        if use == self:
            return self.share(scale, self, own_scale)
        if use.kind != self.base.kind or self.base.share_of(use, scale, own_scale) > 1:
            raise InvalidArgument(
                f"this was calibrated for {self.times} uses of {self.base!r} at scale {own_scale:.6g} or more"
            )
        return Fraction(1, self.times)

    def rdp(self, scale: float, order: float) -> float:
        """Return the Rényi DP of all uses: it adds up."""
        return up(self.times * self.base.rdp(scale, order), 4)

    def zcdp(self, scale: float) -> float:
        """Return ρ of all uses: it adds up."""
        return up(self.times * self.base.zcdp(scale), 4)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        return {
            "mechanism": self.kind,
            "base": self.base.to_dict(),
            "times": self.times,
            "delta": self.delta,
        }

    def to_dp_event(self, scale: float) -> Any:
        """Return the event of all uses."""
        return dp_accounting().SelfComposedDpEvent(self.base.to_dp_event(scale), self.times)
