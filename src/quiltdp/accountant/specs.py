"""Mechanism specifications: what one use of a mechanism costs in DP, before any noise is drawn.

A specification knows how far one record can move the query (*sensitivity*) and turns a noise scale
into the DP cost and back.  Costs and scales are both rounded up, from exact rational arithmetic.
``sensitivity`` may also be a mapping ``record -> Δ_j`` for a query that touches records unequally;
the cost is then a mapping too, and a record the query never reads has Δ_j = 0 and costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

from quiltdp.errors import InvalidArgument, option

__all__ = [
    "Gaussian",
    "Laplace",
    "MechanismSpec",
    "Sensitivities",
    "Thresholdout",
    "gaussian_delta",
    "mechanism_from_dict",
    "round_up",
]


class Sensitivities(Mapping[str, float]):
    """An immutable, hashable mapping record → Δ_j, every Δ_j finite and ≥ 0, not all zero."""

    __slots__ = ("_items",)

    def __init__(self, values: Mapping[str, float]) -> None:
        self._items = {str(name): _sensitivity(value, name) for name, value in values.items()}
        if not any(self._items.values()):
            raise InvalidArgument("sensitivity: no record has a sensitivity above 0")

    def __getitem__(self, name: str) -> float:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        if len(self._items) <= 3:
            return repr(self._items)
        return f"<sensitivities of {len(self._items)} records, largest {max(self._items.values()):.6g}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Sensitivities, (dict(self._items),))


SMALLEST_DELTA = 1e-300  # below it, the tails of the noise leave the range of doubles
Sensitivity: TypeAlias = "float | Mapping[str, float]"


def round_up(value: Fraction) -> float:
    """Return the smallest double that is not below ``value`` (∞ above the range of doubles)."""
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def _positive(value: object, name: str) -> float:
    """Return ``value`` as a double in (0, ∞), or refuse it by name."""
    number = _number(value, name)
    if not (0.0 < number < math.inf):
        raise InvalidArgument(f"{option(name)} must be a positive finite number, not {value!r}")
    return number


def _number(value: object, name: str) -> float:
    if isinstance(value, bool):
        raise InvalidArgument(f"{option(name)} must be a number, not {value!r}")
    try:
        return float(value)  # type: ignore[arg-type]  # whatever has __float__ is welcome
    except (TypeError, ValueError):
        raise InvalidArgument(f"{option(name)} must be a number, not {value!r}") from None
    except OverflowError:
        raise InvalidArgument(f"{option(name)} is too large for a floating-point number") from None


def _sensitivity(value: object, record: object) -> float:
    number = _number(value, f"sensitivity of record {record!r}")
    if not (0.0 <= number < math.inf):
        raise InvalidArgument(f"sensitivity of record {record!r} must be finite and ≥ 0, not {value!r}")
    return number


def _frozen_sensitivity(value: Sensitivity) -> float | Sensitivities:
    if isinstance(value, Sensitivities):
        return value
    if isinstance(value, Mapping):
        return Sensitivities(value)
    return _positive(value, "sensitivity")


@dataclass(frozen=True)
class _Additive:
    """What Laplace and Thresholdout share: a pure DP cost ``factor · Δ / scale``."""

    def _factor(self) -> Fraction:
        raise NotImplementedError

    def _sensitivities(self) -> float | Sensitivities:
        raise NotImplementedError

    @property
    def max_sensitivity(self) -> float:
        """The largest Δ of any record."""
        delta = self._sensitivities()
        return max(delta.values()) if isinstance(delta, Sensitivities) else delta

    def exact_dp_epsilon(self, scale: float) -> Fraction | dict[str, Fraction]:
        """Return the cost as an exact rational: what a ledger adds up."""
        sigma = Fraction(_positive(scale, "scale"))
        delta = self._sensitivities()
        if not isinstance(delta, Sensitivities):
            return self._factor() * Fraction(delta) / sigma
        cost = {d: self._factor() * Fraction(d) / sigma for d in set(delta.values())}
        return {name: cost[d] for name, d in delta.items()}

    def _dp_epsilon(self, scale: float) -> float | dict[str, float]:
        exact = self.exact_dp_epsilon(scale)
        if not isinstance(exact, dict):
            return round_up(exact)
        rounded = {cost: round_up(cost) for cost in set(exact.values())}
        return {name: rounded[cost] for name, cost in exact.items()}

    def _scale(self, dp_epsilon: float | Mapping[str, float]) -> float:
        delta = self._sensitivities()
        if not isinstance(dp_epsilon, Mapping):
            alpha = _positive(dp_epsilon, "dp_epsilon")
            return round_up(self._factor() * Fraction(self.max_sensitivity) / Fraction(alpha))
        if not isinstance(delta, Sensitivities):
            delta = Sensitivities(dict.fromkeys(dp_epsilon, delta))
        pairs = set()
        for name, d in delta.items():
            if d > 0.0 and name not in dp_epsilon:
                raise InvalidArgument(f"dp_epsilon: record {name!r} has a sensitivity but no dp_epsilon")
            if d > 0.0:
                pairs.add((d, _positive(dp_epsilon[name], f"dp_epsilon of record {name!r}")))
        return max(round_up(self._factor() * Fraction(d) / Fraction(alpha)) for d, alpha in pairs)


@dataclass(frozen=True)
class Laplace(_Additive):
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

    sensitivity: Sensitivity

    def __post_init__(self) -> None:
        object.__setattr__(self, "sensitivity", _frozen_sensitivity(self.sensitivity))

    def _factor(self) -> Fraction:
        return Fraction(1)

    def _sensitivities(self) -> float | Sensitivities:
        return self.sensitivity  # type: ignore[return-value]  # frozen in __post_init__

    def dp_epsilon(self, scale: float) -> float | dict[str, float]:
        """Return α = Δ / scale, rounded up; a mapping when the sensitivity is one."""
        return self._dp_epsilon(scale)

    def scale(self, dp_epsilon: float | Mapping[str, float]) -> float:
        """Return the smallest scale that costs no record more than ``dp_epsilon``, rounded up."""
        return self._scale(dp_epsilon)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description; :func:`mechanism_from_dict` reads it back."""
        return {"mechanism": "laplace", "sensitivity": _plain(self.sensitivity)}


@dataclass(frozen=True)
class Thresholdout(_Additive):
    """The reusable holdout: α = 9 B Δ / (4 σ) for a budget of B noisy answers, and this is tight.

    Each spend costs Δ/σ for the threshold, 2Δ/(2σ) for the comparison and Δ/(4σ) for the answer.

    Parameters
    ----------
    budget
        B, how many answers may come from the holdout.
    sensitivity
        Δ of every query: 1/n for the mean of n values in [0, 1], or ``record -> Δ_j``.

    Examples
    --------
    >>> from quiltdp import Thresholdout
    >>> Thresholdout(budget=10, sensitivity=0.001).scale(dp_epsilon=0.9)
    0.025...
    """

    budget: int
    sensitivity: Sensitivity

    def __post_init__(self) -> None:
        if isinstance(self.budget, bool) or not hasattr(self.budget, "__index__"):
            raise InvalidArgument(f"{option('budget')} must be a whole number, not {self.budget!r}")
        object.__setattr__(self, "budget", int(self.budget.__index__()))
        if self.budget < 1:
            raise InvalidArgument(f"{option('budget')} must be at least 1, not {self.budget}")
        object.__setattr__(self, "sensitivity", _frozen_sensitivity(self.sensitivity))

    def _factor(self) -> Fraction:
        return Fraction(9 * self.budget, 4)

    def _sensitivities(self) -> float | Sensitivities:
        return self.sensitivity  # type: ignore[return-value]  # frozen in __post_init__

    def dp_epsilon(self, scale: float) -> float | dict[str, float]:
        """Return α = 9 B Δ / (4 scale), rounded up; a mapping when the sensitivity is one."""
        return self._dp_epsilon(scale)

    def scale(self, dp_epsilon: float | Mapping[str, float]) -> float:
        """Return σ = 9 B Δ / (4 dp_epsilon), rounded up."""
        return self._scale(dp_epsilon)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description; :func:`mechanism_from_dict` reads it back."""
        return {
            "mechanism": "thresholdout",
            "budget": self.budget,
            "sensitivity": _plain(self.sensitivity),
        }


@dataclass(frozen=True)
class Gaussian:
    """The Gaussian mechanism: query + N(0, std²).  It has no pure α, only a profile δ_k(ε).

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
    >>> f"{spec.profile(1.0, gaussian_std=3.730632):.4g}"
    '1e-05'
    >>> spec.profile(-2.0, gaussian_std=3.730632) > 0.86
    True
    """

    sensitivity: Sensitivity
    delta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "sensitivity", _frozen_sensitivity(self.sensitivity))
        delta = _number(self.delta, "delta")
        if not 0.0 < delta < 1.0:
            raise InvalidArgument(f"{option('delta')} must lie strictly between 0 and 1, not {self.delta!r}")
        if delta < SMALLEST_DELTA:
            raise InvalidArgument(
                f"{option('delta')} must be at least {SMALLEST_DELTA:g}, not {self.delta!r}"
            )
        object.__setattr__(self, "delta", delta)

    @property
    def max_sensitivity(self) -> float:
        """The largest Δ of any record."""
        delta = self.sensitivity
        return max(delta.values()) if isinstance(delta, Mapping) else delta

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

    def profile(self, epsilon: float, gaussian_std: float, group: int | Collection[str] = 1) -> float:
        """Return δ_k(ε) of k records changing together, rounded up; ε may be negative."""
        std = _positive(gaussian_std, "gaussian_std")
        return gaussian_delta(epsilon, round_up(Fraction(self.group_sensitivity(group)) / Fraction(std)))

    def dp_epsilon(self, scale: float) -> float | dict[str, float]:
        """Refuse: Gaussian noise satisfies no pure α-DP; use :meth:`profile`."""
        raise InvalidArgument("Gaussian noise has no pure dp_epsilon: use its profile(epsilon, gaussian_std)")

    def scale(self, dp_epsilon: float | Mapping[str, float]) -> float:
        """Return the smallest standard deviation that is (dp_epsilon, delta)-DP for one record.

        This is plain approximate DP; calibration for correlated records works from
        :meth:`profile`.  The returned value passed its own check.
        """
        if isinstance(dp_epsilon, Mapping):
            raise InvalidArgument("dp_epsilon must be one number for Gaussian noise")
        target = _number(dp_epsilon, "dp_epsilon")
        if not 0.0 <= target < math.inf:
            raise InvalidArgument(f"dp_epsilon must be finite and ≥ 0, not {dp_epsilon!r}")
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

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description; :func:`mechanism_from_dict` reads it back."""
        return {"mechanism": "gaussian", "sensitivity": _plain(self.sensitivity), "delta": self.delta}


MechanismSpec: TypeAlias = "Laplace | Gaussian | Thresholdout"


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
    >>> from quiltdp.accountant.specs import gaussian_delta
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


def _up(value: float) -> float:
    """Return ``value`` raised by a few units in its last place."""
    return value + abs(value) * 2.0**-50


def _plain(sensitivity: Sensitivity) -> float | dict[str, float]:
    return dict(sensitivity) if isinstance(sensitivity, Mapping) else sensitivity


def mechanism_from_dict(document: Mapping[str, Any]) -> MechanismSpec:
    """Read back what ``to_dict`` wrote.

    Raises
    ------
    InvalidArgument
        If the mechanism is unknown or a field is missing, naming it.

    Examples
    --------
    >>> from quiltdp.accountant.specs import Laplace, mechanism_from_dict
    >>> mechanism_from_dict(Laplace(sensitivity=2.0).to_dict())
    Laplace(sensitivity=2.0)
    """
    try:
        kind = document["mechanism"]
        if kind == "laplace":
            return Laplace(document["sensitivity"])
        if kind == "gaussian":
            return Gaussian(document["sensitivity"], document["delta"])
        if kind == "thresholdout":
            return Thresholdout(document["budget"], document["sensitivity"])
    except KeyError as error:
        raise InvalidArgument(f"mechanism: the field {error.args[0]!r} is missing") from None
    raise InvalidArgument(f"mechanism {kind!r} is not one of laplace, gaussian, thresholdout")
