"""How far one record moves a query: one number for all records, or one per record."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from quiltdp.errors import InvalidArgument, option

__all__ = [
    "Sensitivities",
    "Sensitivity",
    "frozen_sensitivity",
    "number",
    "plain",
    "positive",
    "single_epsilon",
    "whole",
]

Sensitivity: TypeAlias = "float | Mapping[str, float]"


class Sensitivities(Mapping[str, float]):
    """An immutable, hashable mapping record → Δ_j, every Δ_j finite and ≥ 0, not all zero."""

    __slots__ = ("_items",)

    def __init__(self, values: Mapping[str, float]) -> None:
        self._items = {str(name): _checked(value, name) for name, value in values.items()}
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


def frozen_sensitivity(value: Sensitivity) -> float | Sensitivities:
    """Return a checked Δ: a positive number, or an immutable mapping."""
    if isinstance(value, Sensitivities):
        return value
    if isinstance(value, Mapping):
        return Sensitivities(value)
    return positive(value, "sensitivity")


def plain(sensitivity: Sensitivity) -> float | dict[str, float]:
    """Return Δ as plain data for JSON."""
    return dict(sensitivity) if isinstance(sensitivity, Mapping) else sensitivity


def positive(value: object, name: str) -> float:
    """Return ``value`` as a double in (0, ∞), or refuse it by name."""
    found = number(value, name)
    if not (0.0 < found < math.inf):
        raise InvalidArgument(f"{option(name)} must be a positive finite number, not {value!r}")
    return found


def number(value: object, name: str) -> float:
    """Return ``value`` as a double, or refuse it by name."""
    if isinstance(value, bool):
        raise InvalidArgument(f"{option(name)} must be a number, not {value!r}")
    try:
        return float(value)  # type: ignore[arg-type]  # whatever has __float__ is welcome
    except (TypeError, ValueError):
        raise InvalidArgument(f"{option(name)} must be a number, not {value!r}") from None
    except OverflowError:
        raise InvalidArgument(f"{option(name)} is too large for a floating-point number") from None


def whole(weight: float) -> int:
    """Return a sum of whole sensitivities that arrives raised by a few units in its last place."""
    return math.ceil(weight * (1.0 - 1e-9))


def single_epsilon(dp_epsilon: object, noise: str) -> float:
    """Return the one finite ε ≥ 0 that approximate DP aims at, or refuse it; one per record is none."""
    if isinstance(dp_epsilon, Mapping):
        raise InvalidArgument(f"dp_epsilon must be one number for {noise}")
    target = number(dp_epsilon, "dp_epsilon")
    if not 0.0 <= target < math.inf:
        raise InvalidArgument(f"dp_epsilon must be finite and ≥ 0, not {dp_epsilon!r}")
    return target


def _checked(value: object, record: object) -> float:
    found = number(value, f"sensitivity of record {record!r}")
    if not (0.0 <= found < math.inf):
        raise InvalidArgument(f"sensitivity of record {record!r} must be finite and ≥ 0, not {value!r}")
    return found
