"""Asking data: what a query is, and its exact value in [0, 1].

A query is a callable on the data, or an expression over columns.  If it gives one value per row, it
is a *statistical query*: its value is the mean, computed exactly on row values rounded to 2⁻³⁰, so
that one row moves it by at most 1/n, with no floating-point exception.  If it gives a single number,
the caller vouches for its sensitivity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms.expressions import Expression

__all__ = ["Query", "TablePair", "Value", "describe"]

Query: TypeAlias = "str | Expression | Callable[[Any], Any]"

_ROW_BITS = 30
_MAX_ROWS = 2**32


@dataclass(frozen=True)
class Value:
    """A query's value on one data set; ``statistical`` if it is the mean of one value per row."""

    exact: Fraction
    statistical: bool


class InvalidOnHoldout(InvalidArgument):
    """The query is fine on the training data and nonsense on the holdout: nothing was spent."""


class TablePair:
    """Training data and holdout data of the same shape of rows.

    Parameters
    ----------
    train, holdout
        An array, a DataFrame, a mapping of columns, a pair ``(X, y)``, or any object with a length
        that the queries understand.
    """

    def __init__(self, train: Any, holdout: Any) -> None:
        self.train, self.holdout = train, holdout
        self.train_rows, self.rows = _row_count(train, "train"), _row_count(holdout, "holdout")
        self._train_columns = _columns(train)
        self._holdout_columns = _columns(holdout)
        if self._train_columns is not None and self._holdout_columns is not None:
            for name in self._train_columns:
                if name not in self._holdout_columns:
                    raise InvalidArgument(f"holdout: the column {name!r} of the training data is missing")
            self._holdout_columns = {
                n: _like(self._holdout_columns[n], self._train_columns[n]) for n in self._train_columns
            }

    def evaluate(self, query: Query) -> tuple[Value, Value]:
        """Return (holdout value, training value), or refuse the query before anything is spent."""
        if isinstance(query, (str, Expression)):
            return self._expression(Expression(query) if isinstance(query, str) else query)
        if not callable(query):
            raise InvalidArgument(f"a query is a callable or an expression over columns, not {query!r}")
        train = _value(query(self.train), self.train_rows, "the training data", strict=True)
        try:
            holdout = _value(query(self.holdout), self.rows, "the holdout", strict=False)
        except InvalidArgument as error:
            raise InvalidOnHoldout(str(error)) from None
        if holdout.statistical != train.statistical:
            raise InvalidArgument(
                "the query gives one value per row on one data set and a number on the other"
            )
        return holdout, train

    def _expression(self, query: Expression) -> tuple[Value, Value]:
        if self._train_columns is None or self._holdout_columns is None:
            raise InvalidArgument(
                f"query {query.text!r}: the data have no named columns; ask with a callable"
            )
        train = query.rows(self._train_columns, self.train_rows)
        name = f"query {query.text!r}"
        holdout = query.rows(self._holdout_columns, self.rows)
        return (
            _value(holdout, self.rows, "the holdout", strict=False, name=name),
            _value(train, self.train_rows, "the training data", strict=True, name=name),
        )


def describe(query: Query) -> str:
    """Return what identifies a request: the expression, or the name of the callable; never data."""
    if isinstance(query, (str, Expression)):
        return f"expression {query if isinstance(query, str) else query.text}"
    return (
        f"callable {getattr(query, '__module__', '')}.{getattr(query, '__qualname__', type(query).__name__)}"
    )


def _value(result: Any, rows: int, where: str, *, strict: bool, name: str = "the query") -> Value:
    """Return a mean or a number, exactly; refuse NaN and values outside [0, 1].

    With ``strict`` off, single *rows* that are NaN or out of range are read as 0 or clipped: the
    query stays total on the holdout, so no error message depends on it.
    """
    array = np.asarray(result)
    if array.dtype.kind not in "biuf":
        raise InvalidArgument(f"{name} gives {array.dtype} on {where}, it must give numbers in [0, 1]")
    if array.ndim == 0:
        number = float(array)
        if math.isnan(number) or not 0.0 <= number <= 1.0:
            raise InvalidArgument(f"{name} must give a value in [0, 1]; on {where} it does not")
        return Value(Fraction(number), False)
    if array.shape != (rows,):
        raise InvalidArgument(f"{name} gives values of shape {array.shape} on {where}, which has {rows} rows")
    return Value(_exact_mean(array, where, strict, name), True)


def _exact_mean(array: NDArray[Any], where: str, strict: bool, name: str) -> Fraction:
    if array.dtype.kind == "b":
        return Fraction(int(np.count_nonzero(array)), len(array))
    numbers = array.astype(np.float64)
    good = (numbers >= 0.0) & (numbers <= 1.0)
    if not good.all():
        if strict:
            raise InvalidArgument(f"{name} has rows outside [0, 1] or NaN on {where}")
        numbers = np.clip(np.nan_to_num(numbers, nan=0.0), 0.0, 1.0)
    total = np.rint(numbers * 2.0**_ROW_BITS).astype(np.int64).sum()
    return Fraction(int(total), len(array) << _ROW_BITS)


def _row_count(data: Any, name: str) -> int:
    if isinstance(data, Mapping):
        sizes = {len(column) for column in data.values()}
        if len(sizes) != 1:
            raise InvalidArgument(f"{name}: its columns have different lengths {sorted(sizes)}")
        rows = sizes.pop()
    elif isinstance(data, tuple):
        sizes = {_row_count(part, name) for part in data if part is not None}
        if len(sizes) != 1:
            raise InvalidArgument(f"{name}: its parts have different numbers of rows {sorted(sizes)}")
        rows = sizes.pop()
    elif hasattr(data, "shape") and len(data.shape):
        rows = int(data.shape[0])
    elif isinstance(data, Sequence) or hasattr(data, "__len__"):
        rows = len(data)
    else:
        raise InvalidArgument(f"{name}: {type(data).__name__} has no rows; give an array, a table or columns")
    if not 1 <= rows <= _MAX_ROWS:
        raise InvalidArgument(f"{name}: {rows} rows, at least 1 and at most 2**32 are allowed")
    return int(rows)


def _columns(data: Any) -> dict[str, NDArray[Any]] | None:
    """Return named columns as arrays, or None for data without names."""
    if isinstance(data, Mapping):
        return {str(name): _plain_column(column) for name, column in data.items()}
    if hasattr(data, "columns") and hasattr(data, "to_numpy"):
        return {str(name): _plain_column(data[name].to_numpy()) for name in data.columns}
    return None


def _plain_column(column: Any) -> NDArray[Any]:
    array = np.asarray(column)
    if array.dtype.kind in "biuf":
        return array
    return np.array([str(v) for v in array], dtype=str)


def _like(column: NDArray[Any], model: NDArray[Any]) -> NDArray[Any]:
    """Return a holdout column in the type of the training column; what does not fit becomes NaN."""
    if model.dtype.kind not in "biuf":
        return column if column.dtype.kind == "U" else np.array([str(v) for v in column], dtype=str)
    if column.dtype.kind in "biuf":
        return column
    return np.array([_float_or_nan(str(v)) for v in column])


def _float_or_nan(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
