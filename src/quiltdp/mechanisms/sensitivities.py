"""How far one record moves a query: one number for all, one per record, or the values of a sum."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias, TypeVar

from quiltdp.errors import InvalidArgument, option
from quiltdp.numbers import round_up

__all__ = ["RecordValues", "Sensitivities", "Sensitivity", "Values"]

Sensitivity: TypeAlias = "float | Mapping[str, float]"
Numbers: TypeAlias = tuple[float, ...]
Values: TypeAlias = "Sequence[float] | Mapping[str, Sequence[float]]"
"""What each state adds to a sum: one list for all records, or one per record."""
_Of = TypeVar("_Of")
_Value = TypeVar("_Value")


class PerRecord(Mapping[str, _Value]):
    """An immutable, hashable mapping from records."""

    __slots__ = ("_items",)
    _items: dict[str, _Value]

    def __getitem__(self, name: str) -> _Value:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (dict(self._items),))


class Sensitivities(PerRecord[float]):
    """Record → Δ_j, every Δ_j finite and ≥ 0, not all zero."""

    __slots__ = ()

    def __init__(self, values: Mapping[str, float]) -> None:
        self._items = {str(name): _check_sensitivity(value, name) for name, value in values.items()}
        if not any(self._items.values()):
            raise InvalidArgument("sensitivity: no record has a sensitivity above 0")

    def __repr__(self) -> str:
        if len(self._items) <= 3:
            return repr(self._items)
        return f"<sensitivities of {len(self._items)} records, largest {max(self._items.values()):.6g}>"


class RecordValues(PerRecord[Numbers]):
    """Record → what each of its states adds to a sum."""

    __slots__ = ()

    def __init__(self, values: Mapping[str, Sequence[float]]) -> None:
        self._items = {str(name): _check_values(row, f"of record {name!r}") for name, row in values.items()}

    def __repr__(self) -> str:
        return f"<values of {len(self._items)} records>"


def frozen_values(values: Values) -> Numbers | RecordValues:
    """Return checked values of the states: one list for all records, or one per record."""
    if isinstance(values, RecordValues):
        return values
    return RecordValues(values) if isinstance(values, Mapping) else _check_values(values, "of the states")


def value_spread(values: Numbers | RecordValues) -> Sensitivity:
    """Return how far one record moves the sum: the largest difference of its values, rounded up."""
    if isinstance(values, RecordValues):
        spreads = {row: _largest_difference(row) for row in set(values.values())}
        return {name: spreads[row] for name, row in values.items()}
    return _largest_difference(values)


def _largest_difference(values: Numbers) -> float:
    return round_up(Fraction(max(values)) - Fraction(min(values)))


def _check_values(values: Sequence[float], whose: str) -> Numbers:
    try:
        numbers = tuple(check_number(value, f"values {whose}") for value in values)
    except TypeError:
        raise InvalidArgument(f"values {whose} must be a list of numbers, not {values!r}") from None
    if not numbers or not all(map(math.isfinite, numbers)):
        raise InvalidArgument(f"values {whose} must be finite numbers, one for every state")
    return numbers


def frozen_sensitivity(value: Sensitivity) -> float | Sensitivities:
    """Return a checked Δ: a positive number, or an immutable mapping."""
    if isinstance(value, Sensitivities):
        return value
    if isinstance(value, Mapping):
        return Sensitivities(value)
    return check_positive(value, "sensitivity")


def apply_to_sensitivity(sensitivity: Sensitivity, of: Callable[[float], _Of]) -> _Of | dict[str, _Of]:
    """Return a function of Δ, or of every Δ_j: it is called once for equal ones."""
    if not isinstance(sensitivity, Mapping):
        return of(sensitivity)
    results = {d: of(d) for d in set(sensitivity.values())}
    return {name: results[d] for name, d in sensitivity.items()}


def largest_ratio(own: Sensitivity, calibrated: Sensitivity) -> Fraction:
    """Return max_j Δ_j(own) / Δ_j(calibrated): a group moves the one query by so many times as much."""
    named = next((d for d in (own, calibrated) if isinstance(d, Mapping)), ("",))
    pairs = set()
    for name in named:
        mine, whole = (d.get(name) if isinstance(d, Mapping) else d for d in (own, calibrated))
        if mine is None or whole is None or (mine > 0.0 and whole == 0.0):
            raise InvalidArgument(f"sensitivity: record {name!r} is not among those that were calibrated for")
        pairs.add((mine, whole or 1.0))
    return max(Fraction(mine) / Fraction(whole) for mine, whole in pairs)


def check_positive(value: object, name: str) -> float:
    """Return ``value`` as a double in (0, ∞), or refuse it by name."""
    checked = check_number(value, name)
    if not (0.0 < checked < math.inf):
        raise InvalidArgument(f"{option(name)} must be a positive finite number, not {value!r}")
    return checked


def check_number(value: object, name: str) -> float:
    """Return ``value`` as a double, or refuse it by name."""
    if isinstance(value, bool):
        raise InvalidArgument(f"{option(name)} must be a number, not {value!r}")
    try:
        return float(value)  # type: ignore[arg-type]  # whatever has __float__ is welcome
    except (TypeError, ValueError):
        raise InvalidArgument(f"{option(name)} must be a number, not {value!r}") from None
    except OverflowError:
        raise InvalidArgument(f"{option(name)} is too large for a floating-point number") from None


def round_up_whole(weight: float) -> int:
    """Return a sum of whole sensitivities that arrives raised by a few units in its last place."""
    return math.ceil(weight * (1.0 - 1e-9))


def whole_at_least_one(value: object, name: str) -> int:
    """Return a whole number ≥ 1, or refuse it by name."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InvalidArgument(f"{option(name)} must be a whole number, not {value!r}")
    count = int(value.__index__())
    if count < 1:
        raise InvalidArgument(f"{option(name)} must be at least 1, not {count}")
    return count


def check_single_epsilon(dp_epsilon: object, noise: str) -> float:
    """Return the one finite ε ≥ 0 that approximate DP aims at, or refuse it; one per record is none."""
    if isinstance(dp_epsilon, Mapping):
        raise InvalidArgument(f"dp_epsilon must be one number for {noise}")
    target = check_number(dp_epsilon, "dp_epsilon")
    if not 0.0 <= target < math.inf:
        raise InvalidArgument(f"dp_epsilon must be finite and ≥ 0, not {dp_epsilon!r}")
    return target


def _check_sensitivity(value: object, record: object) -> float:
    delta = check_number(value, f"sensitivity of record {record!r}")
    if not (0.0 <= delta < math.inf):
        raise InvalidArgument(f"sensitivity of record {record!r} must be finite and ≥ 0, not {value!r}")
    return delta
