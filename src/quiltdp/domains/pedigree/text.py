"""From bytes to cells: encodings, byte-order marks, line ends, tabs, spaces and quotes."""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import dataclass
from pathlib import Path

from quiltdp.domains.pedigree.columns import is_header
from quiltdp.errors import FileFormatError
from quiltdp.io import text as shared

__all__ = ["Cells", "read_cells", "read_text", "without_star_comments"]

_TOKEN = re.compile(r'"([^"]*)"|(\S+)')
_MIN_COLUMNS = 3


@dataclass(frozen=True, slots=True)
class Cells:
    """The lines of a table: ``lines[k]`` is the 1-based line number of ``cells[k]``."""

    source: str
    lines: tuple[int, ...]
    cells: tuple[tuple[str, ...], ...]
    first_is_comment: bool
    """Whether the first line began with ``#`` (the mark was removed)."""


def read_text(path: Path) -> str:
    """Return the text: UTF-8 or UTF-16 with their marks, else Latin-1; every line end is a newline."""
    return shared.read_text(path, otherwise="latin-1")


def read_cells(path: Path, delimiter: str | None = None) -> Cells:
    """Split a file into cells: tabs where every line agrees on them, else any white space.

    Ids may contain spaces only in files separated by tabs or by ``delimiter``.  Lines that start with
    ``#`` are comments, except the last one above the people where it can be the header; so are lines
    that start with a star of their own, as in LINKAGE text.

    Raises
    ------
    FileFormatError
        If the file is empty, or a line has another number of columns than the first, by number.
    """
    lines = [(k, t) for k, t in enumerate(read_text(path).split("\n"), start=1) if t.strip()]
    if delimiter is None:
        lines = without_star_comments(path, lines)
    numbered = [(k, t) for k, t in lines if t.lstrip()[0] != "#"]
    people_start = numbered[0][0] if numbered else math.inf
    above = [(k, t.lstrip()[1:]) for k, t in lines if t.lstrip()[0] == "#" and k < people_start]
    commented = bool(above) and _may_be_header(above[-1][1], numbered[0][1] if numbered else "", delimiter)
    if commented:
        numbered.insert(0, above[-1])
    if not numbered:
        raise FileFormatError(path, None, "the file has no lines with people in them")
    try:
        cells = _split([text for _, text in numbered], delimiter)
    except csv.Error as error:
        raise FileFormatError(path, None, f"this is not a table of cells: {error}") from None
    if len(cells) != len(numbered):
        raise FileFormatError(path, None, "a quotation mark is left open, or a quoted cell has several lines")
    filled = [(n, row) for (n, _), row in zip(numbered, cells, strict=True) if any(row)]
    if not filled:
        raise FileFormatError(path, None, "the file has no lines with people in them")
    return _rectangular(Cells(str(path), tuple(n for n, _ in filled), tuple(r for _, r in filled), commented))


def without_star_comments(path: Path, lines: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return the lines without the remarks of LINKAGE text, which begin with a star of their own.

    A star may also be somebody's family.  A line that begins so and has as many columns as lines that do
    not could be either, and is refused: nobody is dropped silently.
    """
    starred = [(k, t.split()) for k, t in lines if t.split()[0].strip("*") == ""]
    widths = {len(t.split()) for _, t in lines if t.split()[0].strip("*") != ""}
    if not widths:  # everybody's family is a star
        return lines
    for number, words in starred:
        if len(words) in widths:
            raise FileFormatError(
                path,
                number,
                f"this line begins with {words[0]!r} and has as many columns as the others: begin a remark"
                " with #, or give the family another name than a star",
            )
    gone = {k for k, _ in starred}
    return [(k, t) for k, t in lines if k not in gone]


def _may_be_header(comment: str, first: str, delimiter: str | None) -> bool:
    """Return whether a comment names columns, or has as many words as the first line has columns."""
    words, columns = (
        t.split(delimiter or "\t") if delimiter or "\t" in t else t.split() for t in (comment, first)
    )
    return is_header(words) or len(words) == len(columns) >= _MIN_COLUMNS


def _split(texts: list[str], delimiter: str | None) -> tuple[tuple[str, ...], ...]:
    if delimiter is not None:
        return _delimited(texts, delimiter)
    if all("\t" in t for t in texts):
        by_tab = _delimited(texts, "\t")
        widths = {len(row) for row in by_tab[1:]} or {len(by_tab[0])}
        if len(widths) == 1 and min(widths) >= _MIN_COLUMNS and len(by_tab[0]) in (*widths, min(widths) - 1):
            return by_tab
    return tuple(tuple(a or b for a, b in _TOKEN.findall(t)) for t in texts)


def _delimited(texts: list[str], delimiter: str) -> tuple[tuple[str, ...], ...]:
    rows = csv.reader(io.StringIO("\n".join(texts)), delimiter=delimiter, skipinitialspace=True)
    return tuple(tuple(cell.strip() for cell in row) for row in rows)


def _rectangular(found: Cells) -> Cells:
    """Check that every line has the same number of columns; drop R's unnamed column of row names."""
    body = found.cells[1:] or found.cells
    width = len(body[0])
    for number, row in zip(found.lines[len(found.cells) - len(body) :], body, strict=False):
        if len(row) != width:
            raise FileFormatError(
                found.source,
                number,
                f"{len(row)} columns where the lines before have {width}; separate columns by one kind"
                " of white space, and ids that contain spaces by tabs",
            )
    first = found.cells[0]
    if len(first) == width - 1 and is_header(first):  # write.table(): row names without a header
        cells = (first, *(row[1:] for row in found.cells[1:]))
        return Cells(found.source, found.lines, cells, found.first_is_comment)
    if len(first) != width:
        raise FileFormatError(
            found.source, found.lines[0], f"{len(first)} columns where the lines below have {width}"
        )
    return found
