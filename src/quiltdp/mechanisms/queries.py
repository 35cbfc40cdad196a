"""Asking data: what a query is, and its exact value in [0, 1].

A query is a callable on the data, or an expression over columns.  If it gives one value per row, it
is a *statistical query*: its value is the mean, computed exactly on row values rounded to 2⁻³⁰, so
that one row moves it by at most 1/n, with no floating-point exception.  If it gives a single number,
the caller states how far one record moves it, and vouches for that.

On the training data a query that makes no sense is refused with its reasons, and costs nothing; so is a
callable of rows whose answers do not follow the rows.  On the holdout every query has a value: a *row*
that makes no sense counts 0, whether its value is missing or the callable fails because of it, and so does
a single number that fails.  One record moves the mean by 1/n, and by nothing else, and nobody is told that
anything failed.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from quiltdp.errors import InvalidArgument, Refused, option
from quiltdp.mechanisms.cells import Table, number_of, unmasked
from quiltdp.mechanisms.expressions import Expression
from quiltdp.mechanisms.predictions import Part, Predictions
from quiltdp.mechanisms.rows import copy_rows, data_identity, describe_rows, row_count

__all__ = ["Query", "TablePair", "Value", "describe", "parsed"]

Query: TypeAlias = "str | Expression | Predictions | Callable[[Any], Any]"

_ROW_BITS = 30
_SAME = 2.0**-20  # single precision: a matrix product rounds a row by the shape of the whole
_FEW = 128
_NOT_BY_ROW = (
    "the query does not treat rows one by one: among other rows, in another order or asked again a training"
    " row gets another value{}; compute it from the row's own columns (predictions by model.predict inside"
    " the query, or from a column that holds them), or ask with an expression"
)


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
        self.train_rows, self.rows = row_count(train, "train"), row_count(holdout, "holdout")
        self._alike = describe_rows(train) == describe_rows(holdout)
        self._train_table = Table.from_training(train, types)
        self._holdout_table = None if self._train_table is None else self._train_table.read_like(holdout)
        self.identity = data_identity(holdout)
        if train is holdout or (self.identity is not None and self.identity == data_identity(train)):
            raise InvalidArgument(
                f"{option('train')} and {option('holdout')} are the same data: a holdout is what was"
                " kept apart before training"
            )

    def fixed(self) -> TablePair:
        """Return the same tables with a holdout that no query can reach, or refuse one that was changed."""
        if data_identity(self.holdout) != self.identity:
            raise Refused(
                "the holdout data were changed after they were given;"
                " give the data that the ledger was begun with"
            )
        pair = copy.copy(self)
        pair.holdout = copy_rows(self.holdout, np.arange(self.rows))
        return pair

    # -- training --------------------------------------------------------------------------

    def on_training(self, query: Query) -> Value:
        """Return the value on the training data, or refuse the query before anything is spent."""
        if isinstance(query, (str, Expression, Predictions)):
            asked = parsed(query)
            if self._train_table is None:
                raise InvalidArgument(
                    f"query {asked.text!r}: the data have no named columns; ask with a callable"
                )
            rows = _by_row(asked, self._train_table, self.train_rows, "train")
            return _value(_numbers(rows, self.train_rows, f"query {asked.text!r}"))
        if not callable(query):
            raise InvalidArgument(f"a query is a callable or an expression over columns, not {query!r}")
        if not self._alike:
            raise InvalidArgument(
                "train and holdout differ in kind, columns or shape of a row: a callable needs two alike"
            )
        answers = self._trained(query, np.arange(self.train_rows))
        if answers.ndim:
            self._require_row_by_row(query, answers)
        elif self._trained(query, np.arange(self.train_rows)) != answers:
            raise InvalidArgument("asked again on the same training data the query gives another number")
        return _value(answers)

    def _trained(self, query: Callable[[Any], Any], rows: NDArray[np.intp]) -> NDArray[np.float64]:
        return _numbers(query(copy_rows(self.train, rows)), len(rows), "the query")

    def _require_row_by_row(self, query: Callable[[Any], Any], answers: NDArray[np.float64]) -> None:
        for rows in filter(len, self._samples(answers)):
            try:
                again = self._trained(query, rows)
            except Exception as error:
                why = " ".join(f"{type(error).__name__}: {error}".split())
                raise InvalidArgument(_NOT_BY_ROW.format(f", or none ({why})")) from error
            if again.ndim != 1 or np.abs(again - answers[rows]).max() > _SAME:
                raise InvalidArgument(_NOT_BY_ROW.format(""))

    def _samples(self, answers: NDArray[np.float64]) -> Iterator[NDArray[np.intp]]:
        """Yield rows to ask for again: as many as the holdout; few; few among copies of one; like answers.

        A mean, a deviation, a rank or a mode differs much between these.  They are the same every time, so
        that a query that was refused is refused again.
        """
        random = np.random.default_rng(0)
        yield random.integers(self.train_rows, size=self.rows)
        few = random.permutation(self.train_rows)[:_FEW]
        yield from np.split(few, 2 ** np.arange(len(few).bit_length()))
        for row in few[:8]:
            yield np.append(few, np.full(9 * len(few), row))
        yield from np.array_split(np.argsort(answers, kind="stable"), 2)

    # -- holdout ---------------------------------------------------------------------------

    def on_holdout(self, query: Query, like: Value) -> Fraction:
        """Return the value on the holdout.

        Single rows that make no sense count 0 or are clipped.  A query fails by an exception, a wrong
        shape, a number outside [0, 1], or a number where the training data gave rows.  A callable of
        rows that fails is asked again for parts of the data, down to single rows: those on which it
        fails alone count 0, and so does a single number that fails.
        """
        if isinstance(query, (str, Expression, Predictions)):
            asked, table = parsed(query), self._holdout_table
            value = table and _attempt(lambda: _by_row(asked, table, self.rows, "holdout"), self.rows, like)
            return value or Fraction(0)
        total, waiting = Fraction(0), [(0, self.rows)]
        while waiting:
            first, end = waiting.pop()
            rows = np.arange(first, end)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # whatever it says may be about a record
                value = _attempt(lambda: query(copy_rows(self.holdout, rows)), len(rows), like)  # noqa: B023
            if value is not None:
                total += value * len(rows)
            elif like.statistical and len(rows) > 1:
                middle = (first + end) // 2
                waiting += [(first, middle), (middle, end)]
        return total / self.rows


def _attempt(ask: Callable[[], Any], rows: int, like: Value) -> Fraction | None:
    """Return the value of a query on so many rows of the holdout, or None if it failed."""
    try:
        value = _value(_numbers(ask(), rows, "the query", strict=False))
    except KeyboardInterrupt:
        raise
    except BaseException:  # an exit would tell as much as an exception
        return None
    return value.exact if value.statistical == like.statistical else None


def parsed(query: str | Expression | Predictions) -> Expression | Predictions:
    """Return a query of rows that no code of its author computes."""
    return Expression(query) if isinstance(query, str) else query


def _by_row(query: Expression | Predictions, table: Table, rows: int, part: Part) -> NDArray[np.float64]:
    return query.scores(table, part) if isinstance(query, Predictions) else query.rows(table, rows)


def describe(query: Query, *, keyed: bool) -> str:
    """Return what identifies a request: the text of the expression, a digest of predictions.

    Raises
    ------
    InvalidArgument
        For a callable, if the answer is to be kept under a key: what it computes also depends on whatever it
        reads (globals, files, the versions of libraries), and that cannot be compared.
    """
    if isinstance(query, Expression):
        return f"expression {query.text}"
    if isinstance(query, Predictions):
        return f"predictions {query.digest}"
    if isinstance(query, str):
        return f"expression {query.strip()}"
    if keyed and callable(query):
        raise InvalidArgument(
            "callables cannot be told apart, so the answer to one cannot be kept under a key:"
            f" leave {option('key')} out, or ask with an expression"
        )
    return "callable"


def _numbers(result: Any, rows: int, name: str, *, strict: bool = True) -> NDArray[np.float64]:
    """Return one number in [0, 1] per row, or a single one; refuse NaN and values outside [0, 1].

    With ``strict`` off, single *rows* that are NaN or out of range are read as 0 or clipped.
    """
    array = np.asarray(unmasked(result))
    if array.dtype.kind == "O" and array.shape == (rows,):  # pandas: numbers or truth values, some missing
        array = np.fromiter(map(number_of, array), dtype=np.float64, count=rows)
    if array.dtype.kind not in "biuf":
        raise InvalidArgument(f"{name} gives {array.dtype} values, it must give numbers in [0, 1]")
    if array.shape not in ((), (rows,)):
        raise InvalidArgument(f"{name} gives values of shape {array.shape} for {rows} rows")
    numbers = array.astype(np.float64)
    if not ((numbers >= 0.0) & (numbers <= 1.0)).all():
        if not numbers.ndim:
            raise InvalidArgument(f"{name} must give a value in [0, 1]; on the training data it does not")
        if strict:
            raise InvalidArgument(f"{name} has rows outside [0, 1] or NaN on the training data")
        numbers = np.clip(np.nan_to_num(numbers, nan=0.0), 0.0, 1.0)
    return numbers


def _value(numbers: NDArray[np.float64]) -> Value:
    """Return the exact mean of one number per row, or a single number."""
    if not numbers.ndim:
        return Value(Fraction(float(numbers)), False)
    total = np.rint(numbers * 2.0**_ROW_BITS).astype(np.int64).sum()
    return Value(Fraction(int(total), len(numbers) << _ROW_BITS), True)
