"""Points from tables: CSV with any usual separator, decimal commas, with a header; Parquet, through pyarrow.

Latitude, longitude, time and user are recognised by their usual names.
"""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quiltdp.domains.trace.readers.rows import Layout, Rows
from quiltdp.domains.trace.times import many
from quiltdp.errors import FileFormatError, InvalidArgument, need, option
from quiltdp.io.columns import Role, find_column, listed, recognise
from quiltdp.io.text import is_number, read_text
from quiltdp.user_files import opened

_COMMA_NUMBER = re.compile(r"\s*[+-]?[0-9]+,[0-9]+\s*")
_EMPTY = frozenset({"", "nan", "na", "null", "none"})
_MOST_ROWS = 5_000_000  # beyond what the bytes could spell out: repeated values take no room

_NO_USER = "no user column: all points are taken as one user's"
_LEFT_OUT = "without a coordinate or a time left out"

_ROLES = {
    "lat": Role("latitude", "lat latitude latdeg locationlat gpslat latitudedeg", "y"),
    "lon": Role("longitude", "lon lng long longitude londeg locationlong gpslon gpslng longitudedeg", "x"),
    "time": Role(
        "time",
        "time timestamp datetime trackedat recordedat t utc checkintime ts",
        "date createdat eventtime timeutc",
    ),
    "user": Role(
        "user",
        "user userid uid person personid",
        "tracker trackerid device deviceid individuallocalidentifier individualid animalid vehicleid"
        " mmsi taxiid",
    ),
}


@dataclass(frozen=True)
class Columns:
    """The position of each role; ``user`` is None when the file has no such column.

    ``time`` holds two positions where date and clock time are columns of their own.
    """

    lat: int
    lon: int
    time: tuple[int, ...]
    user: int | None


def find_columns(header: Sequence[str], source: object, given: Mapping[str, str | None]) -> Columns:
    """Return where latitude, longitude, time and user are.

    ``given`` names columns by role; a role that is not given is recognised by name.

    Raises
    ------
    FileFormatError
        If a role has no column, or several would fit.
    InvalidArgument
        If a given column is absent.
    """
    named = {role: name for role, name in given.items() if name}
    parts = _date_and_clock_columns(header, named.get("time", ""))
    clock = tuple(find_column(header, part, source, _role_phrase("time", part)) for part in parts)
    if clock:
        named.pop("time")
    names = [name.strip().strip('"') for name in header]
    roles = {role: kind for role, kind in _ROLES.items() if not (role == "time" and clock)}
    place = recognise(names, roles, named, source=source, line=1, say=_role_phrase)
    for role in ("lat", "lon", *(() if clock else ("time",))):
        if role not in place:
            what = _ROLES[role].says
            raise FileFormatError(
                source, 1, f"no {what} column among {listed(header)}: name it with {option(role)}"
            )
    time = clock or (place["time"],)
    if len({place["lat"], place["lon"], *time}) < 2 + len(time):
        raise FileFormatError(source, 1, "latitude, longitude and time must be three different columns")
    return Columns(place["lat"], place["lon"], time, place.get("user"))


def _date_and_clock_columns(header: Sequence[str], said: str) -> list[str]:
    """Return the two columns of ``date+clock``, nothing if that is a column's own name."""
    if "+" not in said or said.strip().lower() in [name.strip().lower() for name in header]:
        return []
    return said.split("+")


def _role_phrase(role: str, name: str | int = "") -> str:
    return f"{option(role)} {name!r}" if name != "" else option(role)


def read_csv(path: Path, layout: Layout = Layout()) -> Rows:  # noqa: B008 - frozen
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
    header = layout.header
    mark = layout.separator or max(";,\t|", key=first.count)
    if len(mark) != 1 or mark in '\r\n"':
        raise InvalidArgument(f"{option('separator')} must be one character, not {mark!r}")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark)
    names = _read_header(reader, header, path)
    if header is None and any(is_number(n.replace(",", ".")) for n in names):
        raise FileFormatError(
            path,
            1,
            "the first line holds numbers, not column names: name the columns with "
            + option("header", "user,time,lon,lat"),
        )
    columns = find_columns(names, path, layout.columns)
    rows = Rows(str(path), provenance={"format": "csv"})
    try:
        _add_rows(rows, reader, columns, width=len(names), mark=mark, path=path)
    except csv.Error as error:
        raise FileFormatError(path, reader.line_num, f"not a table ({error})") from None
    if columns.user is None:
        rows.notes.append(_NO_USER)
    return rows


def _read_header(reader: Any, header: str | None, path: Path) -> list[str]:
    """Return the names of the columns: those given, or the first line that is not empty."""
    if header is not None:
        return [n.strip() for n in header.split(",")]
    try:
        first = next((row for row in reader if any(field.strip() for field in row)), None)
    except csv.Error as error:
        raise FileFormatError(path, reader.line_num, f"not a table ({error})") from None
    if first is None:
        raise FileFormatError(path, None, "the file has no column names and no rows")
    return [str(name) for name in first]


def _add_rows(rows: Rows, reader: Any, columns: Columns, *, width: int, mark: str, path: Path) -> None:
    """Take every row apart."""
    commas = empty = 0
    for fields in reader:
        line = int(reader.line_num)
        if not fields or (len(fields) == 1 and not fields[0].strip()):
            continue
        if len(fields) != width:
            raise FileFormatError(path, line, _wrong_width_reason(fields, width, mark))
        texts = fields[columns.lat].strip(), fields[columns.lon].strip()
        time = " ".join(fields[k].strip() for k in columns.time).strip()
        if any(t.lower() in _EMPTY for t in texts) or not time:
            empty += 1
            continue
        if mark != "," and any(_COMMA_NUMBER.fullmatch(t) for t in texts):
            texts = texts[0].replace(",", "."), texts[1].replace(",", ".")
            commas += 1
        lat = _read_number(texts[0], "latitude", path, line)
        lon = _read_number(texts[1], "longitude", path, line)
        rows.add(lat, lon, time, _read_user(fields, columns.user, path, line), line)
    if commas:
        rows.notes.append(f"decimal commas read as decimal points in {many(commas, 'row')}")
    rows.note(empty, "row", _LEFT_OUT)


def _read_user(fields: list[str], column: int | None, path: Path, line: int) -> str:
    if column is None:
        return "user"
    name = fields[column].strip()
    if not name:
        raise FileFormatError(path, line, "the user is empty: whose point is it?")
    return name


def _wrong_width_reason(fields: list[str], width: int, mark: str) -> str:
    reason = f"the row has {len(fields)} fields, the header has {width}"
    if mark == "," and len(fields) > width:
        return f"{reason}: decimal commas in a comma-separated file? Use another separator or decimal points"
    return reason


def _read_number(text: str, what: str, path: Path, line: int) -> float:
    try:
        return float(text)
    except ValueError:
        raise FileFormatError(path, line, f"the {what} {text!r} is not a number") from None


def read_parquet(path: Path, layout: Layout = Layout()) -> Rows:  # noqa: B008 - frozen
    """Read latitude, longitude, time and user columns of a Parquet file.

    A timestamp column with a time zone is exact; one without is treated like a text without a zone.
    """
    parquet = need("pyarrow.parquet", "reading Parquet", "parquet")
    arrow = need("pyarrow", "reading Parquet", "parquet")
    try:
        with opened(path) as stream:
            file = parquet.ParquetFile(stream)
            rows_there, schema = file.metadata.num_rows, file.schema_arrow
            if rows_there > _MOST_ROWS + os.fstat(stream.fileno()).st_size:
                raise FileFormatError(
                    path, None, f"the file claims {rows_there:,} rows, more than it can hold"
                )
            columns = find_columns(schema.names, path, layout.columns)
            if len(columns.time) > 1:
                raise FileFormatError(path, None, "the time of a Parquet file is one column")
            wanted = [k for k in (columns.lat, columns.lon, columns.time[0], columns.user) if k is not None]
            table = file.read(columns=[schema.names[k] for k in wanted])
            lat, lon, time, *more = (column.to_pylist() for column in table.columns)
    except (arrow.ArrowException, OSError, ValueError) as error:
        if isinstance(error, (FileFormatError, InvalidArgument)):
            raise
        raise FileFormatError(
            path, None, f"not a Parquet file ({' '.join(str(error).split())[:80]})"
        ) from None
    user = more[0] if more else ["user"] * len(lat)
    rows = Rows(str(path), provenance={"format": "parquet"})
    empty = 0
    for number, (y, x, t, u) in enumerate(zip(lat, lon, time, user, strict=True), start=1):
        if y is None or x is None or t is None or _is_nan(y) or _is_nan(x):
            empty += 1
            continue
        try:
            when = t.isoformat() if hasattr(t, "isoformat") else str(t)
            rows.add(float(y), float(x), when, str(u), number)
        except (TypeError, ValueError, OverflowError):
            raise FileFormatError(
                path, number, f"row {number}: {y!r:.60}, {x!r:.60} are not coordinates"
            ) from None
    rows.note(empty, "row", _LEFT_OUT)
    if columns.user is None:
        rows.notes.append(_NO_USER)
    return rows


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)
