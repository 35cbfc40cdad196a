"""Rows of data: how many there are, copies of some of them, features and target."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quiltdp.errors import InvalidArgument, option

__all__ = ["copy_rows", "features_and_target", "row_count", "row_form"]

_MAX_ROWS = 2**32


def row_count(data: Any, name: str) -> int:
    """Return the number of rows of a data set, all of whose columns and parts must agree."""
    if isinstance(data, Mapping):
        sizes = {len(column) for column in data.values()}
        if len(sizes) != 1:
            raise InvalidArgument(f"{name}: its columns have different lengths {sorted(sizes)}")
        rows = sizes.pop()
    elif isinstance(data, tuple):
        sizes = {row_count(part, name) for part in data if part is not None}
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


def row_form(data: Any) -> Any:
    """Return what a callable sees besides the cells: the kind of data, the columns, the shape of a row."""
    if isinstance(data, Mapping):
        return {name: row_form(_column(column)) for name, column in data.items()}
    if isinstance(data, tuple):
        return tuple(map(row_form, data))
    if isinstance(data, Sequence):
        return "sequence"
    kind = "array" if isinstance(data, np.ndarray) else type(data).__name__
    return kind, tuple(getattr(data, "shape", ()))[1:], [*getattr(data, "columns", ())]


def copy_rows(data: Any, rows: NDArray[np.intp]) -> Any:
    """Return a copy of these rows, in this order, that shares nothing with the data.

    Arrays are read-only, mappings become dictionaries, sequences lists.  The rows of a DataFrame are numbered
    from 0: what is no column is no part of the data.
    """
    if isinstance(data, Mapping):
        return {name: copy_rows(_column(column), rows) for name, column in data.items()}
    if isinstance(data, tuple):
        return tuple(None if part is None else copy_rows(part, rows) for part in data)
    if isinstance(data, np.ndarray):
        array = data.take(rows, axis=0)
        array = copy.deepcopy(array) if array.dtype.hasobject else array
        array.setflags(write=False)
        return array
    if hasattr(data, "iloc"):
        return _copied_frame(data.iloc[rows].reset_index(drop=True).copy())  # iloc may give a view
    if isinstance(data, Sequence):
        return [copy.deepcopy(data[k]) for k in rows]
    try:
        return copy.deepcopy(data[rows])
    except Exception as error:
        raise InvalidArgument(
            f"rows of a {type(data).__name__} cannot be copied ({error}); give an array, a table or columns"
        ) from error


def _column(column: Any) -> Any:
    return list(column) if isinstance(column, tuple) else column  # elsewhere a tuple is parts


def _copied_frame(frame: Any) -> Any:
    """Return a DataFrame or Series whose cells are copies too: pandas shares those that are objects."""
    if frame.ndim == 1:
        return _copied_frame(frame.to_frame()).iloc[:, 0]
    for k, kind in enumerate(frame.dtypes):
        if isinstance(kind, np.dtype) and kind.hasobject:
            frame.isetitem(k, copy.deepcopy(frame.iloc[:, k].to_numpy(copy=True)))
    return frame


def features_and_target(
    data: Any, target: Hashable | None, features: Iterable[Hashable] | None = None
) -> tuple[Any, Any]:
    """Return (X, y): a pair as it is; of a table the features (default: all other columns) and the target."""
    if isinstance(data, tuple):
        return data[0], data[1]
    if isinstance(data, np.ndarray):
        if isinstance(target, int) and data.ndim == 2 and -data.shape[1] <= target < data.shape[1]:
            return np.delete(data, target, axis=1), data[:, target]
    elif target is not None and target in data:
        names = [name for name in (data if features is None else features) if name != target]
        return ({n: data[n] for n in names} if isinstance(data, Mapping) else data[names]), data[target]
    raise InvalidArgument(
        f"there is no column {target!r} to predict: name it with {option('target', '…')},"
        " or give the data as pairs (X, y)"
    )
