"""What data *are*: a digest of their content.

A ledger keeps a keyed hash of it.  Data are the same if every cell is, whether they came from a CSV file, a
DataFrame or arrays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import numpy as np

from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms.cells import columns_of, number_of, text_of

__all__ = ["data_identity"]

_DEEPEST = 60


class _Unidentifiable(InvalidArgument):
    """An object whose content cannot be told: an open file, a generator, a lock."""


def _digest(value: Any) -> str:
    """Return a digest of a value's content, the same in every process of one Python version."""
    walk = _Walk()
    try:
        walk.feed(value, 0)
    except RecursionError:
        raise _Unidentifiable("it is nested too deeply") from None
    return walk.hash.hexdigest()


class _Walk:
    """One pass over a value; what was met before is named by when it was met."""

    def __init__(self) -> None:
        self.hash = hashlib.blake2b(digest_size=32)
        self._met: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no address is used twice
        self._number = count()

    def put(self, tag: str, content: bytes = b"") -> None:
        self.hash.update(f"{tag}:{len(content)}:".encode() + content)

    def feed(self, value: Any, depth: int) -> None:
        """Add a value and everything that it is made of."""
        if depth > _DEEPEST:
            raise _Unidentifiable("it is nested too deeply")
        if self._plain(value):
            return
        if id(value) in self._met:
            self.put("again", str(self._met[id(value)]).encode())
            return
        self._met[id(value)] = next(self._number)
        self._kept.append(value)
        parts = _parts(value)
        self.put(type(value).__qualname__, str(len(parts)).encode())
        for part in parts:
            self.feed(part, depth + 1)

    def _plain(self, value: Any) -> bool:
        """Add a value that has no parts; return whether it was one."""
        if value is None or isinstance(value, (bool, float, complex, type(Ellipsis))):
            self.put(type(value).__name__, repr(value).encode())
        elif isinstance(value, int):
            self.put("int", f"{value:x}".encode())
        elif isinstance(value, str):
            self.put("str", value.encode("utf-8", "surrogatepass"))
        elif isinstance(value, (bytes, bytearray)):
            self.put("bytes", bytes(value))
        elif isinstance(value, type):
            self.put("name", f"{value.__module__}.{value.__qualname__}".encode())
        elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
            self.put(f"array {value.dtype.str} {value.shape}", np.ascontiguousarray(value).tobytes())
        else:
            return False
        return True


def _parts(value: Any) -> list[Any]:
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
    return [type(value), None, *_listed(reduced)]  # None: ledgers are bound to data by this digest


def _listed(made: tuple[Any, ...]) -> list[Any]:
    builder: Callable[..., Any] = made[0]
    name = f"{getattr(builder, '__module__', '')}.{getattr(builder, '__qualname__', '')}"
    items = [list(part) if part is not None else None for part in made[3:5]]
    return [name, made[1], made[2] if len(made) > 2 else None, *items]


def data_identity(data: Any) -> str | None:
    """Return a digest of a data set, or None if its content cannot be told.

    Cells of named columns count by what they say: 1, 1.0, "1" and True are the same cell.
    """
    columns = columns_of(data)
    if columns is None:
        try:
            return _digest(data)
        except _Unidentifiable:
            return None
    walk = _Walk()
    for name in sorted(columns):
        cells = columns[name]
        if cells.dtype.kind in "biuf":
            numbers = cells.astype(np.float64)
        else:
            numbers = np.fromiter(map(number_of, cells), dtype=np.float64, count=len(cells))
        odd = np.flatnonzero(np.isnan(numbers))
        numbers = np.where(np.isnan(numbers), 0.0, numbers) + 0.0  # one NaN, one zero
        walk.put("column", name.encode("utf-8", "surrogatepass"))
        walk.put("numbers", numbers.tobytes())
        walk.put("places", odd.astype(np.int64).tobytes())
        for k in odd:
            walk.put("text", text_of(cells[k]).encode("utf-8", "surrogatepass"))
    return walk.hash.hexdigest()
