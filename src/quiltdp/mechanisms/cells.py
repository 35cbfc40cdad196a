"""Cells of a table: what a number, a truth value, a text and a missing cell are.

The kind of a column comes from the *training* data or is declared; it never comes from the holdout,
where one record could change the meaning of all others.  Holdout cells are read one by one, by the
same rules whether they stand in a CSV file, a DataFrame or an array:

- missing: an empty cell, None, NaN, NaT, pandas.NA;
- ``number``: a number, or a text that is one; true and false are 1 and 0; missing, and any other
  text, is NaN;
- ``boolean``: True, False, 1, 0, also as text in any case; missing, and anything else, is NaN;
- ``text``: the text without blanks around it; a number as its double is written shortest (``1``, not
  ``1.0``), so that whole numbers beyond 2⁵³ are not told apart; a time in the shortest ISO form; missing
  is the empty text.

One odd cell lets numpy or pandas write the others in another way before they come here: whole numbers as
doubles, doubles as complex numbers or as texts (``'1.0'``, ``'nan'``), times in a finer unit.  The rules
give the same for all of these, so that no record changes what another one says.

In a CSV file a column is boolean if every cell is true, false or empty, a number if every cell is one
or empty, otherwise text.  In a DataFrame or an array the types of the cells decide.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from quiltdp.errors import InvalidArgument, option

CellKind = Literal["boolean", "number", "text"]

_WORDS = {"true": 1.0, "false": 0.0}
_DOUBLE = re.compile(r"-?(?:(?:0|[1-9][0-9]{0,15})\.0|[1-9](?:\.[0-9]+)?e\+[0-9]{2,3})")  # by str(float)
_SECONDS = {"W": Fraction(604_800), "D": Fraction(86_400), "h": Fraction(3_600), "m": Fraction(60)} | {
    unit: Fraction(1, 1000**k) for k, unit in enumerate(("s", "ms", "us", "ns", "ps", "fs", "as"))
}
_MISSING = ("NAType", "NaTType", "MaskedConstant")  # pandas, which need not be installed, and numpy


class WrittenColumns(dict[str, Sequence[str]]):
    """Columns as they are written in a file: every cell is a text, and its type is still to be found."""


def missing(cell: object) -> bool:
    """Return whether a cell is empty."""
    if cell is None or type(cell).__name__ in _MISSING:
        return True
    if isinstance(cell, str):
        return not cell.strip()
    if isinstance(cell, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(cell))
    if isinstance(cell, Decimal):
        return cell.is_nan()
    cell = _without_imaginary_part(cell)
    return isinstance(cell, (float, np.floating)) and math.isnan(cell)


def unmasked(values: Any) -> Any:
    """Return the values, None where one is masked: to numpy it is the number that lies under the mask.

    Examples
    --------
    >>> unmasked([1.0, np.ma.array([2.0, 3.0], mask=[False, True])])
    [1.0, array([2.0, None], dtype=object)]
    """
    if hasattr(values, "__array__"):  # what it is to numpy, its mask included
        values = np.asanyarray(values)
    if isinstance(values, np.ma.MaskedArray):
        return np.where(np.ma.getmaskarray(values), np.array(None), values.data)[()]
    if isinstance(values, (list, tuple)):
        return [v if type(v) in (int, float) else unmasked(v) for v in values]
    return values


def _without_imaginary_part(cell: Any) -> Any:
    """Return a complex number without imaginary part as a double, any other cell as it is."""
    is_real = isinstance(cell, (complex, np.complexfloating)) and cell.imag == 0.0
    return float(cell.real) if is_real else cell


def number_of(cell: Any) -> float:
    """Return a cell as a number, NaN if it is missing or none.

    Examples
    --------
    >>> [number_of(c) for c in (3, "3", " 3.0 ", True, "FALSE", "three", "", None)]
    [3.0, 3.0, 3.0, 1.0, 0.0, nan, nan, nan]
    """
    if isinstance(cell, (str, bytes)):
        text = cell.decode("utf-8", "replace") if isinstance(cell, bytes) else cell
        text = text.strip().lower()
        if text in _WORDS:
            return _WORDS[text]
        try:
            return float(text) if text and "_" not in text else math.nan
        except ValueError:
            return math.nan
    cell = _without_imaginary_part(cell)
    if missing(cell) or isinstance(cell, np.timedelta64):  # which numpy counts among the whole numbers
        return math.nan
    if not isinstance(cell, (Real, Decimal, np.bool_)):
        return math.nan
    try:
        return float(cell)
    except (OverflowError, ValueError):
        return math.inf if cell > 0 else -math.inf  # type: ignore[operator]  # a whole number beyond doubles


def boolean_of(cell: Any) -> float:
    """Return a cell as 1.0 or 0.0, NaN if it is neither true nor false."""
    number = number_of(cell)
    return number if number in (0.0, 1.0) else math.nan


def text_of(cell: Any) -> str:
    """Return a cell as a text, empty if it is missing.

    Examples
    --------
    >>> [text_of(c) for c in ("Oslo ", 1, 1.0, "1.0", 2.5, True, None, np.datetime64("2020-01-01", "ns"))]
    ['Oslo', '1', '1', '1', '2.5', 'True', '', '2020-01-01']
    """
    if isinstance(cell, (str, bytes)):
        text = (cell.decode("utf-8", "replace") if isinstance(cell, bytes) else cell).strip()
        return _format_double(float(text)) if _DOUBLE.fullmatch(text) else "" if text == "nan" else text
    cell = _without_imaginary_part(cell)
    if missing(cell):
        return ""
    if isinstance(cell, (bool, np.bool_)):
        return str(bool(cell))
    time = _format_time(cell)
    if time:
        return time
    if isinstance(cell, (int, np.integer, float, np.floating)):
        return _format_double(number_of(cell))
    return str(cell).strip()


def _format_double(number: float) -> str:
    """Return a double as it is written shortest, a whole one in digits."""
    return str(int(number)) if number.is_integer() else repr(number)


def _format_time(cell: Any) -> str:
    """Return a time or a duration in a form that does not depend on its unit; empty for anything else."""
    if isinstance(cell, timedelta):
        cell = cell.to_timedelta64() if hasattr(cell, "to_timedelta64") else np.timedelta64(cell)
    elif isinstance(cell, date) and getattr(cell, "tzinfo", None) is None:
        cell = cell.to_datetime64() if hasattr(cell, "to_datetime64") else np.datetime64(cell)
    if isinstance(cell, np.datetime64):
        return str(np.datetime_as_string(cell, unit="auto"))
    if isinstance(cell, np.timedelta64) and np.datetime_data(cell)[0] not in ("generic", "Y", "M"):
        unit, step = np.datetime_data(cell)
        return f"{int(cell.astype(np.int64)) * step * _SECONDS[unit]} s"
    return ""


def _read_column(cells: NDArray[Any], kind: CellKind) -> NDArray[Any]:
    """Return a column in its kind, cell by cell."""
    if kind == "text":
        return np.array([*map(text_of, cells)], dtype=object)  # a fixed width would follow the longest
    if cells.dtype.kind == "b" or (cells.dtype.kind in "iuf" and kind == "number"):
        return cells.astype(np.float64)  # what the rules above give, at once
    reader = number_of if kind == "number" else boolean_of
    return np.fromiter(map(reader, cells), dtype=np.float64, count=len(cells))


def _infer_kind(cells: NDArray[Any], written: bool) -> CellKind:
    """Return the kind of a training column."""
    if cells.dtype.kind in "biuf":
        return "boolean" if cells.dtype.kind == "b" else "number"
    there = [c for c in cells if not missing(c)]
    if written:
        if there and all(str(c).strip().lower() in _WORDS for c in there):
            return "boolean"
        return "text" if any(math.isnan(number_of(c)) for c in there) else "number"
    if there and all(isinstance(c, (bool, np.bool_)) for c in there):
        return "boolean"
    return "number" if all(isinstance(c, (Real, Decimal, np.bool_)) for c in there) else "text"


@dataclass(frozen=True)
class Table:
    """Named columns, each with its kind: numbers and truth values as doubles, texts as objects."""

    kinds: Mapping[str, CellKind]
    values: Mapping[str, NDArray[Any]]

    @classmethod
    def from_training(cls, data: Any, types: Mapping[str, str] | None = None) -> Table | None:
        """Return training data as a table, kinds from the cells or as declared; None without names."""
        columns = named_columns(data)
        if columns is None:
            if types:
                raise InvalidArgument(f"{option('types')}: the data have no named columns")
            return None
        declared = _checked_types(types or {}, columns)
        written = isinstance(data, WrittenColumns)
        kinds = {name: declared.get(name) or _infer_kind(cells, written) for name, cells in columns.items()}
        return cls(kinds, {name: _read_column(cells, kinds[name]) for name, cells in columns.items()})

    def read_like(self, data: Any) -> Table:
        """Return other data with the kinds of this table; every cell is read by itself."""
        columns = named_columns(data)
        if columns is None:
            raise InvalidArgument("holdout: the training data have named columns, the holdout has none")
        for name in self.kinds:
            if name not in columns:
                raise InvalidArgument(f"holdout: the column {name!r} of the training data is missing")
        return Table(
            self.kinds, {name: _read_column(columns[name], kind) for name, kind in self.kinds.items()}
        )


def _checked_types(types: Mapping[str, str], columns: Mapping[str, Any]) -> dict[str, CellKind]:
    kinds = get_args(CellKind)
    for name, kind in types.items():
        if name not in columns:
            raise InvalidArgument(f"{option('types')}: there is no column {name!r}")
        if kind not in kinds:
            raise InvalidArgument(
                f"{option('types')}: column {name!r} is declared {kind!r}; there are {', '.join(kinds)}"
            )
    return dict(types)  # type: ignore[arg-type]  # checked above


def named_columns(data: Any) -> dict[str, NDArray[Any]] | None:
    """Return named columns as one-dimensional arrays of cells, or None for data without names."""
    if isinstance(data, Mapping):
        return {str(name): _column_cells(column, str(name)) for name, column in data.items()}
    if hasattr(data, "columns") and hasattr(data, "to_numpy"):
        names = [str(name) for name in data.columns]
        doubled = next((n for n in names if names.count(n) > 1), None)
        if doubled is not None:
            raise InvalidArgument(f"the column {doubled!r} is there twice")
        return {str(name): _column_cells(data[name].to_numpy(), str(name)) for name in data.columns}
    return None


def _column_cells(column: Any, name: str) -> NDArray[Any]:
    if isinstance(column, np.ndarray) or hasattr(column, "to_numpy"):
        array = np.asarray(unmasked(column))
    else:  # a list: numpy would turn [1, "x"] into two texts
        cells = list(column)
        array = np.empty(len(cells), dtype=object)
        array[:] = cells
    if array.ndim != 1:
        raise InvalidArgument(f"the column {name!r} must be one-dimensional, its shape is {array.shape}")
    return array
