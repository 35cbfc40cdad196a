"""Points from a table of text: CSV with any usual separator, decimal commas, with a header."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

from quiltdp.domains.trace.readers.columns import Columns, find_columns
from quiltdp.domains.trace.readers.rows import Rows
from quiltdp.domains.trace.units import many
from quiltdp.errors import FileFormatError, InvalidArgument, option
from quiltdp.io.text import read_text

__all__ = ["read_csv"]

_COMMA_NUMBER = re.compile(r"\s*[+-]?[0-9]+,[0-9]+\s*")
_EMPTY = frozenset({"", "nan", "na", "null", "none"})


def read_csv(
    path: Path, given: dict[str, str | None], *, separator: str | None = None, header: str | None = None
) -> Rows:
    """Read latitude, longitude, time and user from a table.

    The first line names the columns, unless ``header`` does (``"user,time,lon,lat"``).

    The separator is the one of ``; , tab |`` that splits the header into most columns.  Rows without
    a coordinate are left out and counted in the notes; decimal commas are read where the separator
    is not a comma, and noted.

    Raises
    ------
    FileFormatError
        Naming the line: no header, a row with another number of fields, not a number.
    """
    text = read_text(path)
    first = next((line for line in text.splitlines() if line.strip()), None)
    if first is None:
        raise FileFormatError(path, None, "the file is empty")
    mark = separator or max(";,\t|", key=first.count)
    if len(mark) != 1 or mark in '\r\n"':
        raise InvalidArgument(f"{option('separator')} must be one character, not {mark!r}")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark)
    names = _header(reader, header, path)
    if header is None and any(_is_number(n) for n in names):
        raise FileFormatError(
            path,
            1,
            "the first line holds numbers, not column names: name the columns with "
            + option("header", "user,time,lon,lat"),
        )
    columns = find_columns(names, path, given)
    rows = Rows(str(path), provenance={"format": "csv"})
    try:
        _fill(rows, reader, columns, width=len(names), mark=mark, path=path)
    except csv.Error as error:
        raise FileFormatError(path, reader.line_num, f"not a table ({error})") from None
    if columns.user is None:
        rows.notes.append("no user column: all points are taken as one user's")
    return rows


def _header(reader: Any, header: str | None, path: Path) -> list[str]:
    """Return the names of the columns: those given, or the first line that is not empty."""
    if header is not None:
        return [n.strip() for n in header.split(",")]
    try:
        found = next((row for row in reader if any(field.strip() for field in row)), None)
    except csv.Error as error:
        raise FileFormatError(path, reader.line_num, f"not a table ({error})") from None
    if found is None:
        raise FileFormatError(path, None, "the file has no column names and no rows")
    return [str(name) for name in found]


def _fill(rows: Rows, reader: object, columns: Columns, *, width: int, mark: str, path: Path) -> None:
    """Take every row apart."""
    commas = empty = 0
    for fields in reader:  # type: ignore[attr-defined]  # csv.reader's type has no public name
        line = int(reader.line_num)  # type: ignore[attr-defined]  # same
        if not fields or (len(fields) == 1 and not fields[0].strip()):
            continue
        if len(fields) != width:
            raise FileFormatError(path, line, _wrong_width(fields, width, mark))
        texts = fields[columns.lat].strip(), fields[columns.lon].strip()
        time = " ".join(fields[k].strip() for k in columns.time).strip()
        if any(t.lower() in _EMPTY for t in texts) or not time:
            empty += 1
            continue
        if mark != "," and any(_COMMA_NUMBER.fullmatch(t) for t in texts):
            texts = texts[0].replace(",", "."), texts[1].replace(",", ".")
            commas += 1
        rows.lat.append(_number(texts[0], "latitude", path, line))
        rows.lon.append(_number(texts[1], "longitude", path, line))
        rows.time.append(time)
        rows.user.append(_user(fields, columns.user, path, line))
        rows.line.append(line)
    if commas:
        rows.notes.append(f"decimal commas read as decimal points in {many(commas, 'row')}")
    if empty:
        rows.notes.append(f"{many(empty, 'row')} without a coordinate or a time left out")


def _user(fields: list[str], column: int | None, path: Path, line: int) -> str:
    if column is None:
        return "user"
    name = fields[column].strip()
    if not name:
        raise FileFormatError(path, line, "the user is empty: whose point is it?")
    return name


def _wrong_width(fields: list[str], width: int, mark: str) -> str:
    said = f"the row has {len(fields)} fields, the header has {width}"
    if mark == "," and len(fields) > width:
        return f"{said}: decimal commas in a comma-separated file? Use another separator or decimal points"
    return said


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "."))
    except ValueError:
        return False
    return True


def _number(text: str, what: str, path: Path, line: int) -> float:
    try:
        return float(text)
    except ValueError:
        raise FileFormatError(path, line, f"the {what} {text!r} is not a number") from None
