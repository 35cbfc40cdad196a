"""Hot loops in C, each beside a twin in numpy that gives the same bytes.

:func:`kernel` is a function of the library, or ``None`` where that was not built, is not whole, is not of
the sources beside it, or is not wanted (``QUILTDP_PURE=1``); whoever has a kernel asks here, and falls back
on its twin.  A kernel calls neither ``exp`` nor ``log`` (numpy's differ from the C library's in the last
bit), adds in the order of its twin, and keeps nothing between calls.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import numpy as np

__all__ = ["Fixed", "fixed", "kernel", "kernels"]

_CELLS = (np.dtype(np.float64), np.dtype(np.int64), np.dtype(np.uint8), np.dtype(np.bool_))
_AT = ctypes.c_char * 0

Fixed: TypeAlias = "ctypes.Array[ctypes.c_char] | ctypes.c_void_p"
"""Where an array lies."""


@cache
def kernels() -> ctypes.CDLL | None:
    """Return the compiled library, or ``None``: then the twins do the same work, more slowly."""
    if os.environ.get("QUILTDP_PURE", "0") not in ("", "0"):
        return None
    from quiltdp.compiled.build import LIBRARY, digest, whole

    try:
        if not whole():
            print(
                f"quiltdp without compiled kernels: {LIBRARY} is damaged: install quiltdp again, or make the"
                " file anew with python -m quiltdp.compiled.build",
                file=sys.stderr,
            )
            return None
        library = ctypes.CDLL(str(LIBRARY))
        library.qd_sources.restype = ctypes.c_char_p
        made_of: bytes = library.qd_sources()
        return library if made_of.decode() == digest() else None
    except (OSError, AttributeError):  # not there, not to be read, or no such library
        return None


@cache
def kernel(name: str) -> Callable[..., int] | None:
    """Return one kernel, called with contiguous arrays (pointers), integers (int64) and floats (double)."""
    library = kernels()
    if library is None:
        return None
    function = getattr(library, name)
    function.restype = ctypes.c_int64

    def call(*arguments: np.ndarray | Fixed | int | float) -> int:
        if function.argtypes is None:
            function.argtypes = [_kind(a) for a in arguments]
        return int(function(*[_in_c(a) if type(a) is np.ndarray else a for a in arguments]))

    return call


def fixed(array: np.ndarray) -> Fixed:
    """Return an array as kernels take it, for one that they are given again and again; it is kept alive."""
    return _in_c(np.require(array, requirements=["C", "W"]))


def _kind(
    value: np.ndarray | Fixed | int | float,
) -> type[ctypes.c_void_p | ctypes.c_int64 | ctypes.c_double]:
    """Return what an argument is in C."""
    if isinstance(value, float):
        return ctypes.c_double
    return ctypes.c_int64 if isinstance(value, (int, np.integer)) else ctypes.c_void_p


def _in_c(value: np.ndarray) -> Fixed:
    if not (value.flags.c_contiguous and value.dtype in _CELLS):
        raise TypeError(f"a kernel takes contiguous arrays of {_CELLS}, not {value.dtype}")
    if value.flags.writeable:
        buffer: Any = value
        return _AT.from_buffer(buffer)  # a third of the time that ``value.ctypes`` takes
    return ctypes.c_void_p(value.ctypes.data)
