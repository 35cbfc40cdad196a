"""Rows of data: how many there are, copies of some of them, features and target, and what they *are*.

A ledger keeps a keyed hash of a digest of the content.  Data are the same if every cell is, whether they came
from a CSV file, a DataFrame or arrays.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quiltdp.errors import InvalidArgument, option
from quiltdp.mechanisms.cells import named_columns, number_of, text_of

_MAX_ROWS = 2**32
_DEEPEST = 60  # nesting of data that have an identity


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


def describe_rows(data: Any) -> Any:
    """Return what a callable sees besides the cells: the kind of data, the columns, the shape of a row."""
    if isinstance(data, Mapping):
        return {name: describe_rows(_list_of_tuple(column)) for name, column in data.items()}
    if isinstance(data, tuple):
        return tuple(map(describe_rows, data))
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
        return {name: copy_rows(_list_of_tuple(column), rows) for name, column in data.items()}
    if isinstance(data, tuple):
        return tuple(None if part is None else copy_rows(part, rows) for part in data)
    if isinstance(data, np.ndarray):
        array = data.take(rows, axis=0)
        array = copy.deepcopy(array) if array.dtype.hasobject else array
        array.setflags(write=False)
        return array
    if hasattr(data, "iloc"):
        return _copy_frame(data.iloc[rows].reset_index(drop=True).copy())  # iloc may give a view
    if isinstance(data, Sequence):
        return [copy.deepcopy(data[k]) for k in rows]
    try:
        return copy.deepcopy(data[rows])
    except Exception as error:
        raise InvalidArgument(
            f"rows of a {type(data).__name__} cannot be copied ({error}); give an array, a table or columns"
        ) from error


def _list_of_tuple(column: Any) -> Any:
    return list(column) if isinstance(column, tuple) else column  # elsewhere a tuple is parts


def _copy_frame(frame: Any) -> Any:
    """Return a DataFrame or Series whose cells are copies too: pandas shares those that are objects."""
    if frame.ndim == 1:
        return _copy_frame(frame.to_frame()).iloc[:, 0]
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


class _Unidentifiable(InvalidArgument):
    """An object whose content cannot be told: an open file, a generator, a lock."""


def _digest(value: Any) -> str:
    """Return a digest of a value's content, the same in every process of one Python version."""
    walk = _ContentHasher()
    try:
        walk.add_value(value, 0)
    except RecursionError:
        raise _Unidentifiable("it is nested too deeply") from None
    return walk.hash.hexdigest()


class _ContentHasher:
    """One pass over a value; what was met before is named by when it was met."""

    def __init__(self) -> None:
        self.hash = hashlib.blake2b(digest_size=32)
        self._met: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no address is used twice
        self._number = count()

    def add_content(self, tag: str, content: bytes = b"") -> None:
        self.hash.update(f"{tag}:{len(content)}:".encode() + content)

    def add_value(self, value: Any, depth: int) -> None:
        """Add a value and everything that it is made of."""
        if depth > _DEEPEST:
            raise _Unidentifiable("it is nested too deeply")
        if self._add_plain_value(value):
            return
        if id(value) in self._met:
            self.add_content("again", str(self._met[id(value)]).encode())
            return
        self._met[id(value)] = next(self._number)
        self._kept.append(value)
        parts = _value_parts(value)
        self.add_content(type(value).__qualname__, str(len(parts)).encode())
        for part in parts:
            self.add_value(part, depth + 1)

    def _add_plain_value(self, value: Any) -> bool:
        """Add a value that has no parts; return whether it was one."""
        if value is None or isinstance(value, (bool, float, complex, type(Ellipsis))):
            self.add_content(type(value).__name__, repr(value).encode())
        elif isinstance(value, int):
            self.add_content("int", f"{value:x}".encode())
        elif isinstance(value, str):
            self.add_content("str", value.encode("utf-8", "surrogatepass"))
        elif isinstance(value, (bytes, bytearray)):
            self.add_content("bytes", bytes(value))
        elif isinstance(value, type):
            self.add_content("name", f"{value.__module__}.{value.__qualname__}".encode())
        elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
            self.add_content(f"array {value.dtype.str} {value.shape}", np.ascontiguousarray(value).tobytes())
        else:
            return False
        return True


def _value_parts(value: Any) -> list[Any]:
    """Return what a value is made of."""
    if isinstance(value, (list, tuple)):
        return list(value)
    if isinstance(value, (set, frozenset)):
        return sorted(_digest(item) for item in value)
    if isinstance(value, Mapping):
        return sorted(([_digest(k), v] for k, v in value.items()), key=lambda pair: str(pair[0]))
    if isinstance(value, np.ndarray):
        return [str(value.shape), *value.ravel().tolist()]
    if hasattr(value, "columns") and hasattr(value, "to_numpy"):
        return [[str(name), value[name].to_numpy()] for name in value.columns]
    return _object_parts(value)


def _object_parts(value: Any) -> list[Any]:
    """Return the class and the state of an object, as copying it would."""
    try:
        reduced = value.__reduce_ex__(2)
    except Exception as error:
        raise _Unidentifiable(f"a {type(value).__qualname__} has no content that can be told") from error
    if isinstance(reduced, str):
        return [type(value), reduced]
    return [type(value), None, *_list_reduction(reduced)]  # None: ledgers are bound to data by this digest


def _list_reduction(made: tuple[Any, ...]) -> list[Any]:
    builder: Callable[..., Any] = made[0]
    name = f"{getattr(builder, '__module__', '')}.{getattr(builder, '__qualname__', '')}"
    items = [list(part) if part is not None else None for part in made[3:5]]
    return [name, made[1], made[2] if len(made) > 2 else None, *items]


def data_identity(data: Any) -> str | None:
    """Return a digest of a data set, or None if its content cannot be told.

    Cells of named columns count by what they say: 1, 1.0, "1" and True are the same cell.
    """
    columns = named_columns(data)
    if columns is None:
        try:
            return _digest(data)
        except _Unidentifiable:
            return None
    walk = _ContentHasher()
    for name in sorted(columns):
        cells = columns[name]
        if cells.dtype.kind in "biuf":
            numbers = cells.astype(np.float64)
        else:
            numbers = np.fromiter(map(number_of, cells), dtype=np.float64, count=len(cells))
        odd = np.flatnonzero(np.isnan(numbers))
        numbers = np.where(np.isnan(numbers), 0.0, numbers) + 0.0  # one NaN, one zero
        walk.add_content("column", name.encode("utf-8", "surrogatepass"))
        walk.add_content("numbers", numbers.tobytes())
        walk.add_content("places", odd.astype(np.int64).tobytes())
        for k in odd:
            walk.add_content("text", text_of(cells[k]).encode("utf-8", "surrogatepass"))
    return walk.hash.hexdigest()
