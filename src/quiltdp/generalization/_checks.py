"""Range checks shared by the theorems, and rounding towards validity."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quiltdp.errors import InvalidArgument, option

RELATIVE_ROUNDING = 1e-12
"""How far a closed formula is moved towards validity: thousands of times its rounding error."""


def round_up(value: float) -> float:
    """Return a number certainly not below the exact value that ``value`` approximates."""
    return _refuse_nan(value + RELATIVE_ROUNDING * abs(value) if math.isfinite(value) else value)


def round_down(value: float) -> float:
    """Return a number certainly not above the exact value that ``value`` approximates."""
    return _refuse_nan(value - RELATIVE_ROUNDING * abs(value) if math.isfinite(value) else value)


def _refuse_nan(value: float) -> float:
    if math.isnan(value):
        raise InvalidArgument("the bound is not a number: the parameters are too extreme")
    return value


def count(name: str, value: int, *, least: int = 1) -> int:
    """Return ``value`` as a whole number of at least ``least``, or refuse it."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise InvalidArgument(f"{option(name)} must be a whole number of at least {least}, not {value!r}")
    return int(value)


def non_negative(name: str, value: float) -> float:
    """Return ``value`` as a number in [0, ∞], or refuse it."""
    number = float(value)
    if math.isnan(number) or number < 0:
        raise InvalidArgument(f"{option(name)} must be zero or more, not {value!r}")
    return number


def positive(name: str, value: float) -> float:
    """Return ``value`` as a finite number above zero, or refuse it."""
    number = float(value)
    if not math.isfinite(number) or number <= 0:
        raise InvalidArgument(f"{option(name)} must be a finite number above zero, not {value!r}")
    return number


def probability(name: str, value: float, *, zero: bool = False, one: bool = False) -> float:
    """Return ``value`` in (0, 1), with the ends where ``zero`` / ``one`` allow them, or refuse it."""
    number = float(value)
    low = number > 0 or (zero and number == 0)
    high = number < 1 or (one and number == 1)
    if not (low and high):
        interval = f"{'[' if zero else '('}0, 1{']' if one else ')'}"
        raise InvalidArgument(f"{option(name)} must be a probability in {interval}, not {value!r}")
    return number


def within(
    name: str, value: float, low: float, high: float, *, instead: str, open_low: bool = False
) -> float:
    """Return ``value`` if the theorem covers it, else refuse it, naming range and nearest theorem."""
    number = float(value)
    if math.isnan(number) or number < low or number > high or (open_low and number == low):
        bracket = "(" if open_low else "["
        raise InvalidArgument(
            f"{option(name)} = {value!r} is outside {bracket}{low:.6g}, {high:.6g}],"
            f" the theorem's range; {instead}"
        )
    return number


def distribution(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return an array of probabilities that sum to 1, or refuse it."""
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0 or not np.all(np.isfinite(array)) or np.any(array < 0):
        raise InvalidArgument(f"{option(name)} must hold probabilities: finite numbers of zero or more")
    total = float(array.sum())
    if abs(total - 1.0) > 1e-9:
        raise InvalidArgument(f"{option(name)} sums to {total:.12g}, probabilities must sum to 1")
    return array


def rows(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return a matrix whose rows are distributions, or refuse it naming the row."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or array.size == 0:
        raise InvalidArgument(
            f"{option(name)} must be a matrix, one row per dataset and one column per output"
        )
    if not np.all(np.isfinite(array)) or np.any(array < 0):
        raise InvalidArgument(f"{option(name)} must hold probabilities: finite numbers of zero or more")
    off = np.abs(array.sum(axis=1) - 1.0)
    if off.max() > 1e-9:
        bad = int(off.argmax())
        raise InvalidArgument(f"{option(name)}: row {bad} sums to {array[bad].sum():.12g}, it must sum to 1")
    return array


def leakage_array(
    values: float | Iterable[float], n: int | None = None, *, name: str = "leakages"
) -> NDArray[np.float64]:
    """Return the leakage about every record: one number that stands for all, or one for each of n."""
    if one := not isinstance(values, Iterable):
        values = [values]
    array = np.asarray(values if isinstance(values, np.ndarray) else list(values), dtype=np.float64)
    if array.ndim != 1 or array.size == 0 or np.isnan(array).any() or (array < 0).any():
        raise InvalidArgument(f"{name} must be numbers of zero or more: one for all records, or one each")
    if n is not None and not one and n != array.size:
        raise InvalidArgument(f"{array.size} {name} are given for n = {n} records")
    return array


def sum_of_squares(values: float | Iterable[float], n: int) -> float:
    """Return Σ ε_i², rounded up, of one leakage for all n records or one for each."""
    array = leakage_array(values, n)
    with np.errstate(over="ignore"):
        return round_up(float(array @ array) * (n if array.size == 1 else 1))
