"""The contract of a mechanism, and the registry that calibration, ledger, JSON and help texts read.

A mechanism is one file in this package: a frozen dataclass that subclasses :class:`Mechanism` (or
:class:`PureMechanism`), registered by decorator.

    @register("laplace", says="query + Lap(σ), pure DP with α = Δ/σ")
    @dataclass(frozen=True)
    class Laplace(PureMechanism): ...

It states how far one record moves the query (*sensitivity*), what one use at a scale costs, which
scale a cost asks for, how uses compose, and how it is described and exported.  Costs and scales are
both rounded up, from exact rational arithmetic.  ``sensitivity`` may be a mapping ``record -> Δ_j``
for a query that touches records unequally; the cost is then a mapping too, and a record the query
never reads has Δ_j = 0 and costs nothing.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from quiltdp.errors import DependencyMissing, InvalidArgument, option
from quiltdp.mechanisms.profiles import GroupProfile, PrivacyLossProfile, PureProfile
from quiltdp.mechanisms.sensitivities import (
    Sensitivities,
    Sensitivity,
    apply_to_sensitivity,
    check_positive,
    largest_ratio,
    whole_at_least_one,
)
from quiltdp.numbers import round_up, up

if TYPE_CHECKING:
    from quiltdp.model import Model

__all__ = [
    "Mechanism",
    "PureMechanism",
    "check_mechanism",
    "mechanism_from_dict",
    "mechanism_from_options",
    "mechanism_kinds",
    "register",
]


@dataclass(frozen=True)
class Mechanism(ABC):
    """What every mechanism states.

    Attributes
    ----------
    kind, says
        Its registered name, and one line for people.
    scale_name
        What its noise scale is called: ``Laplace scale`` or ``standard deviation``.
    pure
        Whether one use has a pure DP cost α; a mechanism that has none is calibrated from its
        :meth:`group_profile` at :attr:`target_delta`.
    """

    kind: ClassVar[str] = ""
    says: ClassVar[str] = ""
    scale_name: ClassVar[str] = "Laplace scale"
    pure: ClassVar[bool] = True

    @property
    def deltas(self) -> Sensitivity:
        """Δ, how far one record moves the query: a number or an immutable mapping."""
        return self.sensitivity  # type: ignore[attr-defined,no-any-return]  # every mechanism has the field

    @property
    def max_sensitivity(self) -> float:
        """The largest Δ of any record."""
        delta = self.deltas
        return max(delta.values()) if isinstance(delta, Mapping) else delta

    @property
    def target_delta(self) -> float:
        """The δ that a calibration aims at; 0 for pure DP."""
        return 0.0

    @property
    def answers(self) -> int | None:
        """How many answers one use gives, where that is limited."""
        return None

    @property
    def releases(self) -> int:
        """How many releases this stands for, each drawn at the scale."""
        return 1

    def dp_epsilon(self, scale: float) -> float | dict[str, float]:
        """Return α of one use, rounded up; refused where there is no pure α."""
        raise InvalidArgument(f"{self.kind} noise has no pure dp_epsilon: use its group_profile(scale)")

    def exact_dp_epsilon(self, scale: float) -> Fraction | dict[str, Fraction]:
        """Return α of one use as an exact rational; refused where there is no pure α."""
        raise InvalidArgument(f"{self.kind} noise has no pure dp_epsilon: use its group_profile(scale)")

    @abstractmethod
    def scale(self, dp_epsilon: float | Mapping[str, float]) -> float:
        """Return the smallest noise scale whose cost is at most ``dp_epsilon``, rounded up."""

    def prices(self, model: Model) -> Mapping[str, NDArray[np.float64]]:
        """Return what each change of a record costs, as a share of its α: a table of pairs of its values.

        Records without one pay α for every change.
        """
        return {}

    @abstractmethod
    def group_profile(self, scale: float) -> GroupProfile:
        """Return δ_k(ε) of one use at a scale, for any group of records."""

    def single(self) -> Mechanism:
        """Return the mechanism of one release; this one, unless it stands for several."""
        return self

    def equivalent_scale(self, scale: float) -> float | None:
        """Return the scale of the one release that costs as much as all of these at ``scale``, if known."""
        return scale

    def as_gaussian(self, scale: float) -> float | None:
        """Return the standard deviation of the one Gaussian release that this is, if it is one."""
        return None

    def as_discrete_gaussian(self, scale: float) -> float | None:
        """Return σ of the one release with discrete Gaussian noise that this is, if it is one."""
        return None

    def repeated_profile(self, scale: float, times: int, kept: dict[Any, Any]) -> GroupProfile:
        """Return δ_k(ε) of many uses on the same records; distributions that were made go into ``kept``."""
        raise InvalidArgument(f"{self.kind}: several uses have no (ε, δ) together")

    def as_pure(self) -> Mechanism | None:
        """Return the pure mechanism that this is too, if costs that add up say something about it."""
        return None

    def with_sensitivity(self, sensitivity: Sensitivity) -> Mechanism:
        """Return the same mechanism for another sensitivity (a group of records as one)."""
        return dataclasses.replace(self, sensitivity=sensitivity)  # type: ignore[call-arg]  # as above

    def scale_for_uses(self, scale: float, times: int) -> float:
        """Return the scale at which ``times`` uses on the same records cost one use at ``scale``."""
        return self.scale_for_share(scale, Fraction(1, whole_at_least_one(times, "releases")))

    @abstractmethod
    def scale_for_share(self, scale: float, share: Fraction) -> float:
        """Return the smallest scale, rounded up, at which one use costs that share of one at ``scale``."""

    @abstractmethod
    def spent_share(self, scale: float, calibrated: Mechanism, calibrated_scale: float) -> Fraction:
        """Return the part of the calibrated privacy that one use of this at ``scale`` spends, exactly."""

    def spent_share_of(self, use: Mechanism, scale: float, own_scale: float) -> Fraction:
        """Return the part of what this costs at ``own_scale`` that one ``use`` at ``scale`` spends."""
        return use.spent_share(scale, self, own_scale)

    def zcdp(self, scale: float) -> float:
        """Return ρ: one use is ρ-zCDP in one record (plain DP, before any correlation), rounded up."""
        raise InvalidArgument(f"{self.kind} has no formula for zCDP")

    def rdp(self, scale: float, order: float) -> float:
        """Return the Rényi DP of one use in one record at an order above 1 (plain DP), rounded up."""
        raise InvalidArgument(f"{self.kind} has no formula for Rényi DP")

    def privacy_loss(self, scale: float, weight: float, interval: float) -> Any:
        """Return ``dp_accounting``'s privacy-loss distribution for a group of this total sensitivity."""
        raise InvalidArgument(f"{self.kind} has no privacy-loss distribution")

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description; :func:`mechanism_from_dict` reads it back."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}
        return {"mechanism": self.kind, **fields, "sensitivity": apply_to_sensitivity(self.deltas, float)}

    def to_opendp(self, scale: float) -> Any:
        """Return an OpenDP measurement that adds this noise to one number, if it is one release."""
        raise InvalidArgument(f"{self.kind} has no OpenDP measurement")

    def to_dp_event(self, scale: float) -> Any:
        """Return the ``dp_accounting`` event of one use at a scale."""
        raise InvalidArgument(f"{self.kind} has no dp_accounting event")

    @classmethod
    def default_sensitivity(cls, *, most: int, people: int) -> float:
        """Return Δ of a count: ``most`` people stand behind one record, ``people`` behind all."""
        return float(most)


@dataclass(frozen=True)
class PureMechanism(Mechanism):
    """A mechanism with a pure cost ``factor · Δ / scale``."""

    @abstractmethod
    def _cost_factor(self) -> Fraction:
        """Return the factor of the cost."""

    def _alpha_per_unit(self, scale: float) -> Fraction:
        """Return α per unit of sensitivity."""
        return self._cost_factor() / Fraction(check_positive(scale, "scale"))

    def exact_dp_epsilon(self, scale: float) -> Fraction | dict[str, Fraction]:
        """Return the cost as an exact rational: what a ledger adds up."""
        rate = self._alpha_per_unit(scale)
        return apply_to_sensitivity(self.deltas, lambda delta: rate * Fraction(delta))

    def dp_epsilon(self, scale: float) -> float | dict[str, float]:
        """Return α = factor · Δ / scale, rounded up; a mapping when the sensitivity is one."""
        rate = self._alpha_per_unit(scale)
        return apply_to_sensitivity(self.deltas, lambda delta: round_up(rate * Fraction(delta)))

    def group_profile(self, scale: float) -> GroupProfile:
        """Return δ_k(ε) of any algorithm with this α."""
        return PureProfile(round_up(self._alpha_per_unit(scale)))

    def repeated_profile(self, scale: float, times: int, kept: dict[Any, Any]) -> GroupProfile:
        """Return δ_k(ε) of many uses: privacy losses composed, and no more than their α's together allow."""

        def loss(ratio: float, interval: float) -> Any:
            return self.privacy_loss(1.0, ratio, interval).self_compose(times)

        pure = PureProfile(round_up(times * self._alpha_per_unit(scale)))
        return PrivacyLossProfile(loss, lambda ratio: times * ratio, kept, scale=scale, pure=pure)

    def scale(self, dp_epsilon: float | Mapping[str, float]) -> float:
        """Return the smallest scale that costs no record more than ``dp_epsilon``, rounded up."""
        delta = self.deltas
        if not isinstance(dp_epsilon, Mapping):
            alpha = check_positive(dp_epsilon, "dp_epsilon")
            return round_up(self._cost_factor() * Fraction(self.max_sensitivity) / Fraction(alpha))
        if not isinstance(delta, Mapping):
            delta = Sensitivities(dict.fromkeys(dp_epsilon, delta))
        pairs = set()
        for name, d in delta.items():
            if d > 0.0 and name not in dp_epsilon:
                raise InvalidArgument(f"dp_epsilon: record {name!r} has a sensitivity but no dp_epsilon")
            if d > 0.0:
                pairs.add((d, check_positive(dp_epsilon[name], f"dp_epsilon of record {name!r}")))
        return max(round_up(self._cost_factor() * Fraction(d) / Fraction(alpha)) for d, alpha in pairs)

    def zcdp(self, scale: float) -> float:
        """Return α²/2: an α-DP mechanism is that much zCDP."""
        return up(0.5 * self._largest_alpha(scale) ** 2, 8)

    def rdp(self, scale: float, order: float) -> float:
        """Return min(α, order · α²/2), which holds for every α-DP mechanism."""
        alpha = self._largest_alpha(scale)
        return up(min(alpha, 0.5 * checked_order(order) * alpha**2), 8)

    def _largest_alpha(self, scale: float) -> float:
        return round_up(self._alpha_per_unit(scale) * Fraction(self.max_sensitivity))

    def privacy_loss(self, scale: float, weight: float, interval: float) -> Any:
        """Return the distribution that dominates every mechanism with this α."""
        pld = import_dp_accounting().pld
        alpha = up(float(self._cost_factor()) * weight / scale)
        pure = pld.common.DifferentialPrivacyParameters(alpha)
        return pld.privacy_loss_distribution.from_privacy_parameters(pure, interval)

    def scale_for_share(self, scale: float, share: Fraction) -> float:
        """Return scale / share, rounded up: costs of uses on the same records add."""
        return round_up(Fraction(check_positive(scale, "scale")) / share)

    def spent_share(self, scale: float, calibrated: Mechanism, calibrated_scale: float) -> Fraction:
        """Return α(this) / α(calibrated), the largest over the records."""
        if not calibrated.pure or not isinstance(calibrated, PureMechanism):
            raise InvalidArgument(f"the calibration is for {calibrated.kind} noise, not for {self!r}")
        rates = self._alpha_per_unit(scale) / calibrated._alpha_per_unit(calibrated_scale)
        return rates * largest_ratio(self.deltas, calibrated.deltas)


def smallest_scale(fits: Callable[[float], bool], start: float, tolerance: float) -> float:
    """Return the smallest scale that fits, up to a relative tolerance; it was itself tried."""
    low = high = start
    while not fits(high):
        low, high = high, 2.0 * high
    while fits(low):
        low, high = low / 2.0, low
    while high > low * (1.0 + tolerance):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def checked_order(order: object) -> float:
    """Return the order of a Rényi divergence, a number above 1, or refuse it."""
    value = check_positive(order, "order")
    if value <= 1.0:
        raise InvalidArgument(f"{option('order')} must be above 1, not {order!r}")
    return value


def import_dp_accounting() -> Any:
    """Return the ``dp_accounting`` package, or say how to install it."""
    try:
        import dp_accounting as found
        import dp_accounting.pld  # the part that counts
    except ImportError:
        raise DependencyMissing("events need dp-accounting: pip install 'quiltdp[accounting]'") from None
    return found


_KINDS: dict[str, type[Mechanism]] = {}
_Class = TypeVar("_Class", bound=type[Mechanism])


def register(kind: str, *, says: str) -> Callable[[_Class], _Class]:
    """Register a mechanism under the name that JSON and ``--mechanism`` use."""

    def add_kind(made: _Class) -> _Class:
        if kind in _KINDS:
            raise ValueError(f"the mechanism {kind!r} is registered twice")
        made.kind, made.says = kind, says
        _KINDS[kind] = made
        return made

    return add_kind


def mechanism_kinds() -> Mapping[str, type[Mechanism]]:
    """Return every registered mechanism by name."""
    return MappingProxyType(_KINDS)


def _find_kind(kind: object, where: str, kinds: Mapping[str, type[Mechanism]]) -> type[Mechanism]:
    mechanism = kinds.get(kind) if isinstance(kind, str) else None
    if mechanism is None:
        raise InvalidArgument(f"{where} {kind!r} is not one of {', '.join(kinds)}")
    return mechanism


def _init_fields(made: type[Mechanism]) -> list[dataclasses.Field[Any]]:
    """Return what a mechanism is made from."""
    return [f for f in dataclasses.fields(made) if f.init]


def check_mechanism(mechanism: object) -> None:
    """Refuse what is not a specification."""
    if not isinstance(mechanism, Mechanism):
        names = [cls.__name__ for cls in _KINDS.values()]
        listed = ", ".join(names[:-1]) + f" or {names[-1]}"
        raise InvalidArgument(f"mechanism must be {listed}, not {mechanism!r}")


def mechanism_from_dict(document: Mapping[str, Any]) -> Mechanism:
    """Read back what ``to_dict`` wrote.

    Raises
    ------
    InvalidArgument
        If the mechanism is unknown or a field is missing, naming it.

    Examples
    --------
    >>> from quiltdp.mechanisms import Laplace, mechanism_from_dict
    >>> mechanism_from_dict(Laplace(sensitivity=2.0).to_dict())
    Laplace(sensitivity=2.0)
    """
    try:
        cls = _find_kind(document["mechanism"], "mechanism", _KINDS)
        values = {}
        for f in _init_fields(cls):
            if f.name in document or f.default is dataclasses.MISSING:
                values[f.name] = document[f.name]
    except KeyError as error:
        raise InvalidArgument(f"mechanism: the field {error.args[0]!r} is missing") from None
    return cls(**values)


_EXAMPLES = {"delta": "--delta 1e-6", "budget": "--budget 10"}


def mechanism_from_options(
    kind: str, options: Mapping[str, Any], *, most: int = 1, people: int = 1
) -> Mechanism:
    """Return the mechanism that command-line options describe; ``None`` stands for not given.

    Raises
    ------
    InvalidArgument
        For an option that does not belong to the mechanism, or one that it needs.
    """
    single = {k: m for k, m in _KINDS.items() if "base" not in {f.name for f in _init_fields(m)}}
    cls = _find_kind(kind, "--mechanism", single)
    fields = {f.name: f for f in _init_fields(cls)}
    chosen = {name: value for name, value in options.items() if value is not None}
    for name in chosen:
        if name not in fields:
            owner = " or ".join(
                "several --releases" if k == "repeated" else k
                for k, m in _KINDS.items()
                if name in {f.name for f in _init_fields(m)}
            )
            raise InvalidArgument(f"--{name} belongs to {owner}, not to {kind}")
    if "sensitivity" not in chosen and "values" not in chosen:
        chosen["sensitivity"] = cls.default_sensitivity(most=most, people=people)
    for name, field in fields.items():
        if name not in chosen and field.default is dataclasses.MISSING:
            raise InvalidArgument(f"{kind} needs --{name}, for example {_EXAMPLES.get(name, f'--{name} 1')}")
    return cls(**chosen)
