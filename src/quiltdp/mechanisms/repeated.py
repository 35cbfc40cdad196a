"""Several uses of one mechanism on the same records, each with noise of the same scale.

Pure costs add up (:class:`PureRepeated`); under (ε, δ) privacy-loss distributions compose
(:class:`Repeated`).  The scale is that of each use, the cost that of all of them together.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

from quiltdp.errors import InvalidArgument, option
from quiltdp.mechanisms.contract import (
    Mechanism,
    PureMechanism,
    import_dp_accounting,
    mechanism_from_dict,
    register,
    smallest_scale,
)
from quiltdp.mechanisms.gaussian import checked_delta
from quiltdp.mechanisms.profiles import GroupProfile
from quiltdp.mechanisms.sensitivities import (
    Sensitivity,
    check_positive,
    check_single_epsilon,
    whole_at_least_one,
)
from quiltdp.numbers import up

__all__ = ["PureRepeated", "Repeated", "repeat_mechanism"]

_MOST_RELEASES = 10**6


def repeat_mechanism(mechanism: Mechanism, releases: int) -> Mechanism:
    """Return the mechanism of that many releases on the same records; one stays what it is.

    Examples
    --------
    >>> from quiltdp import Laplace
    >>> from quiltdp.mechanisms import repeat_mechanism
    >>> repeat_mechanism(Laplace(sensitivity=1.0), 12).scale(dp_epsilon=1.0)
    12.0
    """
    times = whole_at_least_one(releases, "releases")
    if times > _MOST_RELEASES:
        raise InvalidArgument(f"{option('releases')}: at most {_MOST_RELEASES:,}, not {times:,}")
    if times in (1, mechanism.releases):
        return mechanism
    if mechanism.pure:
        return PureRepeated(mechanism, times)
    return Repeated(mechanism, times, mechanism.target_delta)


@dataclass(frozen=True)
class RepeatedUses(Mechanism):
    """What ``times`` uses of ``base`` on the same records have in common, however their cost is counted."""

    base: Mechanism
    times: int

    def __post_init__(self) -> None:
        """Refuse what is not a mechanism that is used once, and fewer than one use."""
        if isinstance(self.base, Mapping):
            object.__setattr__(self, "base", mechanism_from_dict(self.base))
        if not isinstance(self.base, Mechanism) or isinstance(self.base, RepeatedUses):
            raise InvalidArgument(f"base must be a mechanism that is used once, not {self.base!r}")
        object.__setattr__(self, "times", whole_at_least_one(self.times, "releases"))

    @property
    def scale_name(self) -> str:  # type: ignore[override]  # it is the base's
        """What the noise scale of each use is called."""
        return self.base.scale_name

    @property
    def releases(self) -> int:
        """How many uses there are."""
        return self.times

    @property
    def deltas(self) -> Sensitivity:
        """Δ of one use."""
        return self.base.deltas

    @property
    def answers(self) -> int | None:
        """How many answers all uses give, where that is limited."""
        return None if self.base.answers is None else self.base.answers * self.times

    def prices(self, model: Any) -> Mapping[str, Any]:
        """Return what each change of a record costs in every use."""
        return self.base.prices(model)

    def with_sensitivity(self, sensitivity: Sensitivity) -> Mechanism:
        """Return the same for another sensitivity."""
        return dataclasses.replace(self, base=self.base.with_sensitivity(sensitivity))

    def single(self) -> Mechanism:
        """Return the mechanism that is used."""
        return self.base

    def rdp(self, scale: float, order: float) -> float:
        """Return the Rényi DP of all uses: it adds up."""
        return up(self.times * self.base.rdp(scale, order), 4)

    def zcdp(self, scale: float) -> float:
        """Return ρ of all uses: it adds up."""
        return up(self.times * self.base.zcdp(scale), 4)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}
        return {"mechanism": self.kind, **fields, "base": self.base.to_dict()}

    def to_dp_event(self, scale: float) -> Any:
        """Return the event of all uses."""
        return import_dp_accounting().SelfComposedDpEvent(self.base.to_dp_event(scale), self.times)


@register("pure-repeated", says="several uses of one pure mechanism on the same records: α's add up")
@dataclass(frozen=True)
class PureRepeated(RepeatedUses, PureMechanism):
    """``times`` uses of a pure mechanism on the same records: α = times · α(base).

    Examples
    --------
    >>> from quiltdp import Laplace
    >>> from quiltdp.mechanisms import PureRepeated
    >>> PureRepeated(Laplace(sensitivity=1.0), times=12).dp_epsilon(scale=24.0)
    0.5
    """

    def __post_init__(self) -> None:
        """Refuse a base without a pure cost, and fewer than one use."""
        super().__post_init__()
        if not isinstance(self.base, PureMechanism):
            raise InvalidArgument(f"base must be a mechanism with a pure cost, not {self.base!r}")

    def _cost_factor(self) -> Fraction:
        assert isinstance(self.base, PureMechanism)
        return self.times * self.base._cost_factor()

    def scale_for_share(self, scale: float, share: Fraction) -> float:
        """Return the scale of one use that costs that share of all of them."""
        return self.base.scale_for_share(scale, share * self.times)

    def equivalent_scale(self, scale: float) -> float | None:
        """Return scale / times: one release that costs as much as all."""
        return self.scale_for_share(scale, Fraction(1))


@register(
    "repeated", says="several uses of one mechanism on the same records: (ε, δ) by privacy-loss distributions"
)
@dataclass(frozen=True)
class Repeated(RepeatedUses):
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
    >>> from quiltdp.mechanisms import Repeated
    >>> many = Repeated(Laplace(sensitivity=1.0), times=100, delta=1e-6)
    >>> many.scale(dp_epsilon=1.0) < Laplace(1.0).scale_for_uses(1.0, 100)
    True
    """

    pure: ClassVar[bool] = False

    delta: float
    losses: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Privacy-loss distributions made so far; they change no answer."""

    def __post_init__(self) -> None:
        """Refuse what is not a mechanism, fewer than one use, and δ outside (0, 1)."""
        super().__post_init__()
        object.__setattr__(self, "delta", checked_delta(self.delta))

    @property
    def target_delta(self) -> float:
        """The δ that a calibration aims at."""
        return self.delta

    def group_profile(self, scale: float) -> GroupProfile:
        """Return δ(ε) of all uses together."""
        return self.base.repeated_profile(check_positive(scale, "scale"), self.times, self.losses)

    def as_pure(self) -> Mechanism | None:
        """Return the uses whose α's add up, where each has one."""
        return PureRepeated(self.base, self.times) if self.base.pure else None

    def as_gaussian(self, scale: float) -> float | None:
        """Return the standard deviation of all uses as one, where they are Gaussian."""
        one = self.base.as_gaussian(scale)
        return None if one is None else one / math.sqrt(self.times)

    def scale(self, dp_epsilon: float | Mapping[str, float]) -> float:
        """Return the smallest scale of each use that is (dp_epsilon, delta)-DP for one record."""
        target = check_single_epsilon(dp_epsilon, "(ε, δ)")
        weight = self.max_sensitivity

        def fits(scale: float) -> bool:
            return self.group_profile(scale).delta(target, weight) <= self.delta

        composed, pure = smallest_scale(fits, weight, 1e-6), self.as_pure()
        return composed if pure is None or target == 0.0 else min(composed, pure.scale(target))

    def scale_for_share(self, scale: float, share: Fraction) -> float:
        """Return the scale of one use that costs that share of all; only Gaussian uses have other shares."""
        if share * self.times == 1:
            return check_positive(scale, "scale")
        if self.base.as_gaussian(scale) is not None:
            return self.base.scale_for_share(scale, share * self.times)
        raise InvalidArgument(
            f"this was calibrated for {self.times} uses: make it for as many as there will be"
        )

    def equivalent_scale(self, scale: float) -> float | None:
        """Return the scale of the one Gaussian release that all uses are; other noise has none."""
        return None if self.base.as_gaussian(scale) is None else self.scale_for_share(scale, Fraction(1))

    def spent_share(self, scale: float, calibrated: Mechanism, calibrated_scale: float) -> Fraction:
        """Return the whole: all uses together, at the calibrated scale or more."""
        if calibrated != self or scale < calibrated_scale:
            raise InvalidArgument("only the calibrated uses, at the calibrated scale, can be charged")
        return Fraction(1)

    def spent_share_of(self, use: Mechanism, scale: float, own_scale: float) -> Fraction:
        """Return what one use takes: of Gaussian uses its part, of others 1/times if it costs no more."""
        if use == self:
            return self.spent_share(scale, self, own_scale)
        part = self.base.spent_share_of(use, scale, own_scale) if use.kind == self.base.kind else None
        if part is not None and self.base.as_gaussian(own_scale) is not None:
            return part / self.times
        if part is None or part > 1:
            raise InvalidArgument(
                f"this was calibrated for {self.times} uses of {self.base!r} at scale {own_scale:.6g} or more"
            )
        return Fraction(1, self.times)
