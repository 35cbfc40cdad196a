"""Reading a file into text, compressed or not, with errors that name file and line."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from quiltdp.errors import FileFormatError, InvalidArgument, InvalidModel, UnknownNode

__all__ = ["MAX_BYTES", "Source", "blaming", "read_bytes", "read_source"]

MAX_BYTES = 1 << 30
"""The largest file (after decompression) that is read; a bomb stops here."""

_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class Source:
    """The text of a file, and the way to complain about a place in it."""

    path: str
    text: str

    def line(self, position: int) -> int:
        """Return the line number, from 1, of a position in the text."""
        return self.text.count("\n", 0, position) + 1

    def error(self, position: int | None, message: str) -> FileFormatError:
        """Return the error to raise for what is wrong at a position (``None``: in the whole file)."""
        return FileFormatError(self.path, None if position is None else self.line(position), message)


def read_bytes(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the content of a file, decompressed when it is gzip.

    Raises
    ------
    FileFormatError
        If the file is missing, is a directory, cannot be read, is a broken gzip file, or holds
        more than ``max_bytes``.
    """
    name = Path(path)
    try:
        with name.open("rb") as stream:
            data = stream.read(max_bytes + 1)
        if data.startswith(_GZIP_MAGIC):
            with gzip.open(name, "rb") as packed:
                data = packed.read(max_bytes + 1)
        elif name.suffix.lower() == ".gz":
            raise FileFormatError(path, None, "the name ends in .gz but this is not a gzip file")
    except FileNotFoundError:
        raise FileFormatError(path, None, "there is no such file") from None
    except IsADirectoryError:
        raise FileFormatError(path, None, "this is a directory, a model file is expected") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FileFormatError(path, None, f"the gzip file is broken or cut short ({error})") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileFormatError(path, None, f"the file cannot be read ({reason})") from None
    if len(data) > max_bytes:
        raise FileFormatError(path, None, f"the file holds more than {max_bytes} bytes")
    return data


def read_source(path: str | os.PathLike[str], *, encoding: str = "utf-8") -> Source:
    """Return the text of a file, decompressed when it is gzip.

    Raises
    ------
    FileFormatError
        If the file cannot be read, is binary, or is not in ``encoding``.
    """
    data = read_bytes(path)
    if not data.strip():
        raise FileFormatError(path, None, "the file is empty")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) and encoding.lower() in ("utf-8", "utf8"):
        raise FileFormatError(
            path,
            1,
            "this is UTF-16 text, expected UTF-8 (convert the file, or in Python give encoding='utf-16')",
        )
    if b"\0" in data and not encoding.lower().startswith(("utf-16", "utf-32")):
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise FileFormatError(path, line, "this is binary data, expected a text file")
    try:
        text = data.decode(encoding)
    except LookupError:
        raise InvalidArgument(f"there is no encoding {encoding!r}") from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FileFormatError(
            path,
            line,
            f"byte 0x{data[error.start]:02x} is not {encoding};"
            " convert the file to UTF-8, or in Python give encoding='latin-1'",
        ) from None
    return Source(str(path), text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n"))


@contextmanager
def blaming(path: object, lines: Mapping[str, int] | None = None) -> Iterator[None]:
    """Put the file, and the line of the node at fault, in front of what is wrong with a model."""
    try:
        yield
    except (InvalidModel, UnknownNode) as error:
        node = getattr(error, "node", None)
        line = lines.get(node) if lines is not None and node is not None else None
        where = f"{path}:{line}" if line is not None else f"{path}"
        raise type(error)(f"{where}: {error.text}") from None
