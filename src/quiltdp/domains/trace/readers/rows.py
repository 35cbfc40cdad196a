"""What every reader produces, and how it becomes :class:`~quiltdp.domains.trace.points.Points`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from quiltdp.domains.trace.points import Floats, Points
from quiltdp.domains.trace.times import many, parse_times
from quiltdp.errors import FileFormatError, InvalidArgument, need, option


@dataclass(frozen=True)
class Layout:
    """What the caller says of a file: columns by role, and of a table its separator and its header."""

    columns: Mapping[str, str | None] = field(default_factory=dict)
    separator: str | None = None
    header: str | None = None


@dataclass
class Rows:
    """Columns as read: the times are texts, or seconds since 1970 when the format says so."""

    source: str
    user: list[str] = field(default_factory=list)
    time: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    lat: list[float] = field(default_factory=list)
    lon: list[float] = field(default_factory=list)
    line: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    provenance: dict[str, str] = field(default_factory=dict)

    def add(self, lat: float, lon: float, time: str | float, user: str, line: int) -> None:
        """Append one point; its time is a text as it was written, or seconds since 1970."""
        self.lat.append(lat)
        self.lon.append(lon)
        if isinstance(time, str):
            self.time.append(time)
        else:
            self.seconds.append(time)
        self.user.append(user)
        self.line.append(line)

    def note(self, count: int, thing: str, what: str) -> None:
        """Add ``3 rows without a time left out`` to the notes, if there are any such."""
        if count:
            self.notes.append(f"{many(count, thing)} {what}")


def make_points(
    rows: Rows,
    *,
    time_zone: str | None = None,
    time_format: str | None = None,
    crs: str | None = None,
    drop_invalid: bool = False,
) -> Points:
    """Turn rows into points: times to UTC, coordinates to WGS 84 degrees, each refused by line.

    Raises
    ------
    FileFormatError
        Naming file and line: no points, a bad time, a latitude or longitude outside the globe
        (with a hint when the two look swapped or projected).
    """
    if not rows.lat:
        raise FileFormatError(rows.source, None, "the file holds no points")
    notes = list(rows.notes)
    if rows.time:
        seconds, time_notes = parse_times(
            rows.time, rows.line, rows.source, time_zone=time_zone, time_format=time_format
        )
        notes.extend(time_notes)
    else:
        seconds = np.array(rows.seconds, dtype=np.float64)
    lat, lon = np.array(rows.lat, dtype=np.float64), np.array(rows.lon, dtype=np.float64)
    if crs is not None:
        lat, lon = _to_degrees(lat, lon, crs)
        notes.append(f"coordinates converted from {crs} to WGS 84")
    outside = ~((np.abs(lat) <= 90) & (np.abs(lon) <= 180))
    if outside.any() and not (drop_invalid and not outside.all()):
        raise _off_globe_error(rows, lat, lon, int(np.argmax(outside)))
    users = tuple(dict.fromkeys(rows.user))
    place = {u: k for k, u in enumerate(users)}
    points = Points(
        users,
        np.array([place[u] for u in rows.user], dtype=np.int64),
        seconds,
        np.where(outside, 0.0, lat),
        np.where(outside, 0.0, lon),
        np.array(rows.line, dtype=np.int64),
        rows.source,
        tuple(notes),
        rows.provenance if time_zone is None else {**rows.provenance, "time_zone": time_zone},
    )
    if outside.any():
        gone = (
            f"{many(int(outside.sum()), 'point')} outside the globe dropped (first at line"
            f" {rows.line[int(np.argmax(outside))]})",
        )
        points = points.select(~outside, gone)
    return points


def _to_degrees(y: Floats, x: Floats, crs: str) -> tuple[Floats, Floats]:
    """Convert projected coordinates to latitude and longitude."""
    pyproj = need("pyproj", "reading projected coordinates", "geo")
    try:
        transform = pyproj.Transformer.from_crs(crs, "EPSG:4326", always_xy=True)
    except pyproj.exceptions.CRSError:
        raise InvalidArgument(
            f"{option('crs')} {crs!r} is not a coordinate system: use for example EPSG:32650"
        ) from None
    lon, lat = transform.transform(x, y)
    return np.asarray(lat, dtype=np.float64), np.asarray(lon, dtype=np.float64)


def _off_globe_error(rows: Rows, lat: Floats, lon: Floats, k: int) -> FileFormatError:
    """Say why a pair of numbers is not a place on the globe."""
    pair = f"latitude {lat[k]:g}, longitude {lon[k]:g} is outside the globe"
    if not (math.isfinite(lat[k]) and math.isfinite(lon[k])):
        hint = "drop the point"
    elif np.abs(lon).max() <= 90 and 90 < np.abs(lat).max() <= 180:
        hint = "latitude and longitude look swapped: name the columns"
    elif min(np.abs(lat).max(), np.abs(lon).max()) > 360:
        hint = "these look like projected metres: give their crs, for example EPSG:32650"
    else:
        hint = "correct the point, or drop invalid points"
    return FileFormatError(rows.source, rows.line[k], f"{pair}: {hint}")


def first_property(properties: Mapping[str, object], names: Sequence[str]) -> object | None:
    """Return the first of some properties that is there, names compared without case."""
    lower = {k.lower(): v for k, v in properties.items()}
    return next((lower[n] for n in names if lower.get(n) is not None), None)
