"""Asking data: what a query is, and its exact value in [0, 1].

A query is a callable on the data, or an expression over columns.  If it gives one value per row, it
is a *statistical query*: its value is the mean, computed exactly on row values rounded to 2⁻³⁰, so
that one row moves it by at most 1/n, with no floating-point exception.  If it gives a single number,
the caller states how far one record moves it, and vouches for that.

On the training data a query that makes no sense is refused with its reasons, and costs nothing.  On the
holdout a *row* that makes no sense counts 0, whether its value is missing or the callable fails because of
it: one record moves the mean by 1/n, and by nothing else.  A query of rows that fails on every one of them,
or of a single number that fails, *failed*, and nothing else is ever told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from quiltdp.errors import InvalidArgument, option
from quiltdp.mechanisms.cells import Table, number_of
from quiltdp.mechanisms.expressions import Expression
from quiltdp.mechanisms.identity import Unidentifiable, data_identity, digest

__all__ = ["Query", "TablePair", "Value", "describe"]

Query: TypeAlias = "str | Expression | Callable[[Any], Any]"

_ROW_BITS = 30
_MAX_ROWS = 2**32


@dataclass(frozen=True)
class Value:
    """A query's value on one data set; ``statistical`` if it is the mean of one value per row."""

    exact: Fraction
    statistical: bool


class TablePair:
    """Training data and holdout data of the same shape of rows.

    Parameters
    ----------
    train, holdout
        An array, a DataFrame, a mapping of columns, a pair ``(X, y)``, or any object with a length
        that the queries understand.
    types
        Column → ``"number"``, ``"boolean"`` or ``"text"``, where the training data should not decide.
    """

    def __init__(self, train: Any, holdout: Any, types: Mapping[str, str] | None = None) -> None:
        self.train, self.holdout = train, holdout
        self.train_rows, self.rows = _row_count(train, "train"), _row_count(holdout, "holdout")
        self._train_table = Table.learned(train, types)
        self._holdout_table = None if self._train_table is None else self._train_table.like(holdout)
        self.identity = data_identity(holdout)
        if train is holdout or (self.identity is not None and self.identity == data_identity(train)):
            raise InvalidArgument(
                f"{option('train')} and {option('holdout')} are the same data: a holdout is what was"
                " kept apart before training"
            )

    def on_training(self, query: Query) -> Value:
        """Return the value on the training data, or refuse the query before anything is spent."""
        if isinstance(query, (str, Expression)):
            expression = Expression(query) if isinstance(query, str) else query
            if self._train_table is None:
                raise InvalidArgument(
                    f"query {expression.text!r}: the data have no named columns; ask with a callable"
                )
            rows = expression.rows(self._train_table, self.train_rows)
            return _value(rows, self.train_rows, f"query {expression.text!r}")
        if not callable(query):
            raise InvalidArgument(f"a query is a callable or an expression over columns, not {query!r}")
        return _value(query(self.train), self.train_rows, "the query")

    def on_holdout(self, query: Query, like: Value) -> Fraction | None:
        """Return the value on the holdout, or None if the query failed there.

        Single rows that make no sense count 0 or are clipped.  A query fails by an exception, a wrong
        shape, a number outside [0, 1], or a number where the training data gave rows.  A callable of
        rows that fails is asked again for parts of the data, down to single rows: those on which it
        fails alone count 0, and only if it fails on all of them it failed.
        """
        if isinstance(query, (str, Expression)):
            if self._holdout_table is None:
                return None
            expression = Expression(query) if isinstance(query, str) else query
            table = self._holdout_table
            return _attempt(lambda: expression.rows(table, self.rows), self.rows, like)
        found = _attempt(lambda: query(self.holdout), self.rows, like)
        return self._row_by_row(query, like) if found is None and like.statistical else found

    def _row_by_row(self, query: Callable[[Any], Any], like: Value) -> Fraction | None:
        """Return the mean over the holdout, rows on which the query fails counted 0; None if on all."""
        total, answered = Fraction(0), False
        waiting = list(_halves(0, self.rows))
        while waiting:
            first, end = waiting.pop()
            count = end - first
            found = _attempt(lambda: query(_part(self.holdout, first, end)), count, like)  # noqa: B023
            if found is not None:
                total, answered = total + count * found, True
            elif count > 1:
                waiting.extend(_halves(first, end))
        return total / self.rows if answered else None


def _attempt(ask: Callable[[], Any], rows: int, like: Value) -> Fraction | None:
    """Return the value of a query on so many rows of the holdout, or None if it failed."""
    try:
        found = _value(ask(), rows, "the query", strict=False)
    except Exception:  # whatever it says may be about a record
        return None
    return found.exact if found.statistical == like.statistical else None


def _halves(first: int, end: int) -> tuple[tuple[int, int], ...]:
    middle = (first + end) // 2
    return ((first, middle), (middle, end)) if first < middle else ()


def _part(data: Any, first: int, end: int) -> Any:
    """Return some rows of the data, in the same form; whatever cannot be cut raises."""
    if isinstance(data, Mapping):
        return {name: _part(column, first, end) for name, column in data.items()}
    if isinstance(data, tuple):
        return tuple(None if part is None else _part(part, first, end) for part in data)
    return data.iloc[first:end] if hasattr(data, "iloc") else data[first:end]


def describe(query: Query, *, keyed: bool) -> str:
    """Return what identifies a request: the expression, or a digest of the callable's content.

    Raises
    ------
    InvalidArgument
        For a callable whose content cannot be told, if the answer is to be kept under a key.
    """
    if isinstance(query, Expression):
        return f"expression {query.text}"
    if isinstance(query, str):
        return f"expression {query.strip()}"
    if not keyed or not callable(query):
        return "callable"
    try:
        return f"callable {digest(query)}"
    except Unidentifiable as error:
        raise InvalidArgument(
            f"this callable cannot be told from another one ({error.text}), so its answer cannot be kept"
            f" under a key: leave {option('key')} out, or ask with an expression"
        ) from None


def _value(result: Any, rows: int, name: str, *, strict: bool = True) -> Value:
    """Return a mean or a number, exactly; refuse NaN and values outside [0, 1].

    With ``strict`` off, single *rows* that are NaN or out of range are read as 0 or clipped.
    """
    array = np.asarray(result)
    if array.dtype.kind == "O" and array.shape == (rows,):  # pandas: numbers or truth values, some missing
        array = np.fromiter(map(number_of, array), dtype=np.float64, count=rows)
    if array.dtype.kind not in "biuf":
        raise InvalidArgument(f"{name} gives {array.dtype} values, it must give numbers in [0, 1]")
    if array.ndim == 0:
        number = float(array)
        if not 0.0 <= number <= 1.0:
            raise InvalidArgument(f"{name} must give a value in [0, 1]; on the training data it does not")
        return Value(Fraction(number), False)
    if array.shape != (rows,):
        raise InvalidArgument(f"{name} gives values of shape {array.shape} for {rows} rows")
    return Value(_exact_mean(array, strict, name), True)


def _exact_mean(array: NDArray[Any], strict: bool, name: str) -> Fraction:
    if array.dtype.kind == "b":
        return Fraction(int(np.count_nonzero(array)), len(array))
    numbers = array.astype(np.float64)
    good = (numbers >= 0.0) & (numbers <= 1.0)
    if not good.all():
        if strict:
            raise InvalidArgument(f"{name} has rows outside [0, 1] or NaN on the training data")
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
