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
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.mechanisms.sensitivities import Sensitivities, Sensitivity, plain, positive
from quiltdp.errors import DependencyMissing, InvalidArgument, option
from quiltdp.numbers import round_up, up

__all__ = [
    "GroupProfile",
    "Mechanism",
    "OneByOne",
    "PureMechanism",
    "check_mechanism",
    "mechanism_from_dict",
    "mechanism_from_options",
    "mechanism_kinds",
    "register",
]


Vector: TypeAlias = NDArray[np.float64]


class GroupProfile(Protocol):
    """δ of a mechanism, at one noise scale, when a group of records changes together."""

    def delta(self, epsilon: float, weight: float) -> float:
        """Return δ, rounded up, for a group whose sensitivities sum to ``weight``; ε may be negative."""
        ...

    def deltas(self, epsilon: Vector, weight: Vector) -> Vector:
        """Return δ for many pairs (ε, weight) at once; the same numbers up to rounding, rounded up."""
        ...


class OneByOne:
    """A profile without a formula for arrays: ``deltas`` calls ``delta``."""

    def delta(self, epsilon: float, weight: float) -> float:
        """Return δ of one pair; a profile says how."""
        raise InvalidArgument(f"{type(self).__name__} has no delta")

    def deltas(self, epsilon: Vector, weight: Vector) -> Vector:
        """Return δ for many pairs (ε, weight), one by one."""
        pairs = zip(np.asarray(epsilon).tolist(), np.asarray(weight).tolist(), strict=True)
        return np.array([self.delta(e, w) for e, w in pairs], dtype=np.float64)


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

    @abstractmethod
    def group_profile(self, scale: float) -> GroupProfile:
        """Return δ_k(ε) of one use at a scale, for any group of records."""

    def single(self) -> Mechanism:
        """Return the mechanism of one release; this one, unless it stands for several."""
        return self

    def alone(self, scale: float) -> float | None:
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
        from quiltdp.accountant.mechanisms.losses import LossProfile

        return LossProfile(self, scale, times, kept)

    def group(self, sensitivity: Sensitivity) -> Mechanism:
        """Return the same mechanism for another sensitivity (a group of records as one)."""
        return dataclasses.replace(self, sensitivity=sensitivity)  # type: ignore[call-arg]  # as above

    def repeated(self, scale: float, times: int) -> float:
        """Return the scale at which ``times`` uses on the same records cost one use at ``scale``."""
        return self.scaled(scale, Fraction(1, checked_times(times)))

    @abstractmethod
    def scaled(self, scale: float, share: Fraction) -> float:
        """Return the smallest scale, rounded up, at which one use costs that share of one at ``scale``."""

    @abstractmethod
    def share(self, scale: float, calibrated: Mechanism, calibrated_scale: float) -> Fraction:
        """Return the part of a calibrated budget that one use of this at ``scale`` takes, exactly."""

    def share_of(self, use: Mechanism, scale: float, own_scale: float) -> Fraction:
        """Return the part of this mechanism's budget at ``own_scale`` that one ``use`` at ``scale`` takes."""
        return use.share(scale, self, own_scale)

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
        return {"mechanism": self.kind, **fields, "sensitivity": plain(self.deltas)}

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
    def _factor(self) -> Fraction:
        """Return the factor of the cost."""

    def exact_dp_epsilon(self, scale: float) -> Fraction | dict[str, Fraction]:
        """Return the cost as an exact rational: what a ledger adds up."""
        sigma = Fraction(positive(scale, "scale"))
        delta = self.deltas
        if not isinstance(delta, Mapping):
            return self._factor() * Fraction(delta) / sigma
        cost = {d: self._factor() * Fraction(d) / sigma for d in set(delta.values())}
        return {name: cost[d] for name, d in delta.items()}

    def dp_epsilon(self, scale: float) -> float | dict[str, float]:
        """Return α = factor · Δ / scale, rounded up; a mapping when the sensitivity is one."""
        exact = self.exact_dp_epsilon(scale)
        if not isinstance(exact, dict):
            return round_up(exact)
        rounded = {cost: round_up(cost) for cost in set(exact.values())}
        return {name: rounded[cost] for name, cost in exact.items()}

    def scale(self, dp_epsilon: float | Mapping[str, float]) -> float:
        """Return the smallest scale that costs no record more than ``dp_epsilon``, rounded up."""
        delta = self.deltas
        if not isinstance(dp_epsilon, Mapping):
            alpha = positive(dp_epsilon, "dp_epsilon")
            return round_up(self._factor() * Fraction(self.max_sensitivity) / Fraction(alpha))
        if not isinstance(delta, Mapping):
            delta = Sensitivities(dict.fromkeys(dp_epsilon, delta))
        pairs = set()
        for name, d in delta.items():
            if d > 0.0 and name not in dp_epsilon:
                raise InvalidArgument(f"dp_epsilon: record {name!r} has a sensitivity but no dp_epsilon")
            if d > 0.0:
                pairs.add((d, positive(dp_epsilon[name], f"dp_epsilon of record {name!r}")))
        return max(round_up(self._factor() * Fraction(d) / Fraction(alpha)) for d, alpha in pairs)

    def zcdp(self, scale: float) -> float:
        """Return α²/2: an α-DP mechanism is that much zCDP."""
        return up(0.5 * self._largest(scale) ** 2, 8)

    def rdp(self, scale: float, order: float) -> float:
        """Return min(α, order · α²/2), which holds for every α-DP mechanism."""
        alpha = self._largest(scale)
        return up(min(alpha, 0.5 * checked_order(order) * alpha**2), 8)

    def _largest(self, scale: float) -> float:
        alpha = self.dp_epsilon(scale)
        return max(alpha.values()) if isinstance(alpha, dict) else alpha

    def privacy_loss(self, scale: float, weight: float, interval: float) -> Any:
        """Return the distribution that dominates every mechanism with this α."""
        pld = dp_accounting().pld
        alpha = up(float(self._factor()) * weight / scale)
        pure = pld.common.DifferentialPrivacyParameters(alpha)
        return pld.privacy_loss_distribution.from_privacy_parameters(pure, interval)

    def scaled(self, scale: float, share: Fraction) -> float:
        """Return scale / share, rounded up: costs of uses on the same records add."""
        return round_up(Fraction(positive(scale, "scale")) / share)

    def share(self, scale: float, calibrated: Mechanism, calibrated_scale: float) -> Fraction:
        """Return α(this) / α(calibrated), the largest over the records."""
        if not calibrated.pure or not isinstance(calibrated, PureMechanism):
            raise InvalidArgument(f"the calibration is for {calibrated.kind} noise, not for {self!r}")
        own, whole = self.exact_dp_epsilon(scale), calibrated.exact_dp_epsilon(calibrated_scale)
        if not isinstance(own, dict) and not isinstance(whole, dict):
            return own / whole
        names = own if isinstance(own, dict) else whole
        assert isinstance(names, dict)
        shares = [Fraction(0)]
        for name in names:
            cost = own.get(name) if isinstance(own, dict) else own
            total = whole.get(name) if isinstance(whole, dict) else whole
            if cost is None or total is None:
                raise InvalidArgument(f"sensitivity: record {name!r} is not in both mechanisms")
            if cost and not total:
                raise InvalidArgument(f"sensitivity: the calibration says that record {name!r} is never read")
            shares.append(cost / total if total else Fraction(0))
        return max(shares)


def checked_times(times: object) -> int:
    """Return a whole number ≥ 1 of releases, or refuse it."""
    if isinstance(times, bool) or not hasattr(times, "__index__"):
        raise InvalidArgument(f"{option('releases')} must be a whole number, not {times!r}")
    found = int(times.__index__())
    if found < 1:
        raise InvalidArgument(f"{option('releases')} must be at least 1, not {found}")
    return found


def checked_order(order: object) -> float:
    """Return the order of a Rényi divergence, a number above 1, or refuse it."""
    found = positive(order, "order")
    if found <= 1.0:
        raise InvalidArgument(f"{option('order')} must be above 1, not {order!r}")
    return found


def dp_accounting() -> Any:
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

    def add(made: _Class) -> _Class:
        if kind in _KINDS:
            raise ValueError(f"the mechanism {kind!r} is registered twice")
        made.kind, made.says = kind, says
        _KINDS[kind] = made
        return made

    return add


def mechanism_kinds() -> Mapping[str, type[Mechanism]]:
    """Return every registered mechanism by name."""
    return MappingProxyType(_KINDS)


def _kind(kind: object, where: str, kinds: Mapping[str, type[Mechanism]]) -> type[Mechanism]:
    found = kinds.get(kind) if isinstance(kind, str) else None
    if found is None:
        raise InvalidArgument(f"{where} {kind!r} is not one of {', '.join(kinds)}")
    return found


def _options(made: type[Mechanism]) -> list[dataclasses.Field[Any]]:
    """Return what a mechanism is made from."""
    return [f for f in dataclasses.fields(made) if f.init]


def check_mechanism(mechanism: object) -> None:
    """Refuse what is not a specification."""
    if not isinstance(mechanism, Mechanism):
        names = [made.__name__ for made in _KINDS.values()]
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
    >>> from quiltdp.accountant.mechanisms import Laplace, mechanism_from_dict
    >>> mechanism_from_dict(Laplace(sensitivity=2.0).to_dict())
    Laplace(sensitivity=2.0)
    """
    try:
        made = _kind(document["mechanism"], "mechanism", _KINDS)
        values = {}
        for f in _options(made):
            if f.name in document or f.default is dataclasses.MISSING:
                values[f.name] = document[f.name]
    except KeyError as error:
        raise InvalidArgument(f"mechanism: the field {error.args[0]!r} is missing") from None
    return made(**values)


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
    single = {k: m for k, m in _KINDS.items() if "base" not in {f.name for f in _options(m)}}
    made = _kind(kind, "--mechanism", single)
    fields = {f.name: f for f in _options(made)}
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if name not in fields:
            owner = " or ".join(
                "several --releases" if k == "repeated" else k
                for k, m in _KINDS.items()
                if name in {f.name for f in _options(m)}
            )
            raise InvalidArgument(f"--{name} belongs to {owner}, not to {kind}")
    if "sensitivity" not in given:
        given["sensitivity"] = made.default_sensitivity(most=most, people=people)
    for name, field in fields.items():
        if name not in given and field.default is dataclasses.MISSING:
            raise InvalidArgument(f"{kind} needs --{name}, for example {_EXAMPLES.get(name, f'--{name} 1')}")
    return made(**given)
