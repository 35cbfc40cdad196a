"""Files that somebody names: one place opens them all, and only if they are plain files.

A pipe that nobody writes to would be waited for without end, a device read without end; and what is read
twice (first words, then the rest) must be there twice.
"""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from quiltdp.errors import FileFormatError

_FILE_KINDS = {
    stat.S_IFDIR: "a directory, a file is expected",
    stat.S_IFIFO: "a pipe, a file is expected: write what it carries into a file first",
    stat.S_IFCHR: "a device, a file is expected",
    stat.S_IFBLK: "a device, a file is expected",
    stat.S_IFSOCK: "a socket, a file is expected",
}


def open_plain(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a plain file to read bytes.

    Raises
    ------
    FileFormatError
        If it is anything else; it is neither waited for nor read.
    OSError, ValueError
        As :func:`open`.
    """
    _require_plain_file(path, os.stat(path).st_mode)
    stream = open(path, "rb", opener=_open_without_waiting)  # noqa: SIM115 - the caller closes it
    try:
        _require_plain_file(path, os.fstat(stream.fileno()).st_mode)  # it may have been exchanged since
    except FileFormatError:
        stream.close()
        raise
    return stream


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a plain file to read bytes; what goes wrong with it until the end names it in one line.

    Examples
    --------
    >>> with opened("models/asia.bif") as stream:
    ...     stream.read(7)
    b'network'
    """
    try:
        try:
            stream = open_plain(path)
        except FileNotFoundError:
            raise FileFormatError(path, None, "there is no such file") from None
        except FileFormatError:
            raise
        except ValueError as error:  # a name that none can have
            raise FileFormatError(path, None, f"the file cannot be read ({error})") from None
        with stream:
            yield stream
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FileFormatError(path, None, f"the gzip file is broken or cut short ({error})") from None
    except OSError as error:
        raise FileFormatError(path, None, f"the file cannot be read ({error.strerror or error})") from None


def _open_without_waiting(name: str, flags: int) -> int:
    return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))


def _require_plain_file(path: str | os.PathLike[str], mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise FileFormatError(path, None, f"this is {_FILE_KINDS.get(stat.S_IFMT(mode), 'no plain file')}")
