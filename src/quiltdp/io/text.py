"""Reading a file, compressed or not, into text or JSON, with errors that name file and line.

JSON is as strict as a model needs: no NaN, no key twice, no nest without end, no number without end.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from quiltdp.errors import FileFormatError, InvalidArgument, InvalidModel, UnknownNode
from quiltdp.user_files import opened

MAX_BYTES = 1 << 30
"""The largest file (after decompression) that is read; a bomb stops here."""

MAX_TABLE = 1 << 22
"""The largest table, in entries, that a few words (a ``default`` row, a few counts) may ask for."""

MAX_AXES = 32
"""The most nodes of one table: what an array may have axes."""

_GZIP_MAGIC = b"\x1f\x8b"
_SMALL_GZIP = 1 << 26
_GZIP_RATIO = 128
_MOST_DIGITS = 400  # of a number in JSON: more than the largest double has


@dataclass(frozen=True)
class Source:
    """The text of a file, and the way to complain about a place in it."""

    path: str
    text: str

    def line(self, position: int) -> int:
        """Return the line number, from 1, of a position in the text."""
        return _line_number(self.text, position)

    def error(self, position: int | None, message: str) -> FileFormatError:
        """Return the error to raise for what is wrong at a position (``None``: in the whole file)."""
        return FileFormatError(self.path, None if position is None else self.line(position), message)


def read_bytes(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the content of a file, decompressed when it is gzip.

    A gzip file may hold 64 MiB, or 128 times its own size where that is more: text does, a bomb does not.

    Raises
    ------
    FileFormatError
        If the file is missing, is no plain file, cannot be read, is a broken gzip file, or holds
        more than ``max_bytes``.
    """
    with opened(path) as stream:
        fits = os.fstat(stream.fileno()).st_size <= max_bytes
        data = _read_at_most(stream, max_bytes + 1) if fits else b""
        if data.startswith(_GZIP_MAGIC):
            max_bytes = min(max_bytes, max(_SMALL_GZIP, _GZIP_RATIO * len(data)))
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
                data = _read_at_most(packed, max_bytes + 1)
        elif fits and Path(path).suffix.lower() == ".gz":
            raise FileFormatError(path, None, "the name ends in .gz but this is not a gzip file")
    if not fits or len(data) > max_bytes:
        raise FileFormatError(path, None, f"the file holds more than {max_bytes:,} bytes")
    return data


def _read_at_most(stream: BinaryIO | gzip.GzipFile, most: int) -> bytes:
    """Return up to ``most`` bytes; a plain ``read(most)`` would ask for all that memory first."""
    parts, left = [], most
    while left > 0 and (part := stream.read(min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def read_text(
    path: str | os.PathLike[str], *, encoding: str | None = None, otherwise: str | None = None
) -> str:
    """Return the text of a file, decompressed when it is gzip; every line end is a newline.

    A byte-order mark decides between UTF-8 and UTF-16.  Without one the text is in ``encoding``
    (default UTF-8), or in ``otherwise`` where it is not.

    Raises
    ------
    FileFormatError
        If the file cannot be read, is binary, or is in none of these, with the line.
    InvalidArgument
        If there is no such encoding.
    """
    data = read_bytes(path)
    marked = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else None
    chosen = encoding or marked or "utf-8"
    try:
        text = _decode(path, data, chosen)
    except FileFormatError:
        if otherwise is None or encoding is not None or marked:
            raise
        text = _decode(path, data, otherwise)
    if "\0" in text:
        raise FileFormatError(
            path, _line_number(text, text.index("\0")), "this is binary data, expected a text file"
        )
    text = text.removeprefix("\ufeff")
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _decode(path: str | os.PathLike[str], data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except LookupError:
        raise InvalidArgument(f"there is no encoding {encoding!r}") from None
    except UnicodeDecodeError as error:
        if b"\0" in data and not encoding.lower().startswith(("utf-16", "utf-32", "utf16", "utf32")):
            line = data.count(b"\n", 0, data.index(b"\0")) + 1
            raise FileFormatError(path, line, "this is binary data, expected a text file") from None
        line = data.count(b"\n", 0, error.start) + 1
        raise FileFormatError(
            path,
            line,
            f"byte 0x{data[error.start]:02x} is not {encoding};"
            " convert the file to UTF-8, or in Python give encoding='latin-1'",
        ) from None
    except (UnicodeError, ValueError, TypeError) as error:  # rare codecs raise what they like
        raise FileFormatError(path, None, f"the text is not {encoding} ({error})") from None


def _line_number(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def read_source(path: str | os.PathLike[str], *, encoding: str | None = None) -> Source:
    """Return the text of a file, as :func:`read_text`, with a way to complain about a place in it.

    Raises
    ------
    FileFormatError
        Also if the file is empty.
    """
    text = read_text(path, encoding=encoding)
    if not text or text.isspace():
        raise FileFormatError(path, None, "the file is empty")
    return Source(str(path), text)


def bounded_product(sizes: Iterable[int], most: int) -> int | None:
    """Return the product, or ``None`` once it exceeds ``most`` (a file may name thousands of factors).

    Examples
    --------
    >>> bounded_product([2, 3, 4], 100), bounded_product([2] * 100_000, 1 << 24)
    (24, None)
    """
    total = 1
    for size in sizes:
        total *= size
        if total > most:
            return None
    return total


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


def is_number(word: str) -> bool:
    """Return whether a word reads as a number."""
    try:
        float(word)
    except ValueError:
        return False
    return True


def parse_json(source: Source) -> Any:
    """Return the document that a text holds.

    Raises
    ------
    FileFormatError
        With the line where there is one.
    """

    def refuse_constant(word: str) -> Any:
        place = re.search(rf"(?<![\w\"]){re.escape(word)}\b", source.text)
        raise source.error(place and place.start(), f"{word} is not a number that a file may hold")

    def parse_whole_number(word: str) -> int:
        if len(word) > _MOST_DIGITS:
            raise source.error(source.text.find(word), f"a number has {len(word):,} digits, too many")
        return int(word)

    def refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for key, value in pairs:
            if key in members:
                raise source.error(None, f"the key {key!r} occurs twice in one object")
            members[key] = value
        return members

    try:
        return json.loads(
            source.text,
            parse_constant=refuse_constant,
            parse_int=parse_whole_number,
            object_pairs_hook=refuse_repeated_keys,
        )
    except json.JSONDecodeError as error:
        raise source.error(error.pos, f"this is not JSON: {error.msg} (column {error.colno})") from None
    except RecursionError:
        raise source.error(None, "the document is nested too deeply") from None
