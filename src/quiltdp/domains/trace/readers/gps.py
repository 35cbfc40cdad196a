"""Points from GPS receivers: GPX (through gpxpy, one user per file) and GeoLife PLT."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

from quiltdp.domains.trace.readers.rows import Layout, Rows
from quiltdp.errors import FileFormatError, need
from quiltdp.io.declared import read_xml
from quiltdp.io.text import read_text

_PLT_HEADER = 6  # lines before the points


def read_gpx(path: Path, _: Layout = Layout()) -> Rows:  # noqa: B008 - frozen
    """Read the track points of a GPX file; GPX times are UTC by definition.

    Points without a time are left out and counted; a file without timed points is refused.
    """
    gpxpy = need("gpxpy", "reading GPX", "geo")
    text = ElementTree.tostring(read_xml(path), encoding="unicode")
    try:
        document = gpxpy.parse(text)
    except Exception as error:  # gpxpy raises whatever its parsing trips over
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise FileFormatError(path, None, f"not a GPX file ({reason})") from None
    rows = Rows(str(path), provenance={"format": "gpx"})
    points = [p for track in document.tracks for segment in track.segments for p in segment.points]
    naive = 0
    for number, point in enumerate(points, start=1):
        stamp = point.time
        if stamp is None:
            continue
        if stamp.tzinfo is None:
            naive += 1
            stamp = stamp.replace(tzinfo=UTC)
        rows.add(float(point.latitude), float(point.longitude), stamp.timestamp(), path.stem, number)
    if not rows.lat:
        raise FileFormatError(
            path, None, f"no track point has a time ({len(points)} points): a chain needs times"
        )
    rows.note(len(points) - len(rows.lat), "track point", "without a time left out")
    if naive:
        rows.notes.append(f"{naive} GPX times carry no time zone: read as UTC, as the format says")
    if len(document.tracks) > 1:
        rows.notes.append(f"{len(document.tracks)} tracks in the file are taken as one user's")
    return rows


def user_from_path(path: Path) -> str:
    """Return GeoLife's user: the folder above ``Trajectory``, or the file's own name.

    Examples
    --------
    >>> user_from_path(Path("Data/001/Trajectory/20081023055305.plt")), user_from_path(Path("walk.plt"))
    ('001', 'walk')
    """
    if path.parent.name.lower() == "trajectory":
        return path.parent.parent.name or path.stem
    return path.stem


def read_plt(path: Path, _: Layout = Layout()) -> Rows:  # noqa: B008 - frozen
    """Read one PLT file: six header lines, then lat, lon, 0, feet, day number, date, time in GMT.

    Raises
    ------
    FileFormatError
        Naming the line that is not a PLT point.
    """
    lines = read_text(path).splitlines()
    if len(lines) < _PLT_HEADER or "wgs 84" not in " ".join(lines[:_PLT_HEADER]).lower():
        raise FileFormatError(path, 1, "not a GeoLife PLT file: six header lines naming WGS 84 are expected")
    rows = Rows(str(path), provenance={"format": "plt"})
    user = user_from_path(path)
    for number, line in enumerate(lines[_PLT_HEADER:], start=_PLT_HEADER + 1):
        if not line.strip():
            continue
        fields = line.split(",")
        if len(fields) != 7:
            raise FileFormatError(path, number, f"a PLT point has 7 fields, this line has {len(fields)}")
        try:
            lat, lon = float(fields[0]), float(fields[1])
            stamp = datetime.strptime(f"{fields[5].strip()} {fields[6].strip()}", "%Y-%m-%d %H:%M:%S")
        except ValueError as error:
            raise FileFormatError(path, number, f"not a PLT point ({error})") from None
        rows.add(lat, lon, stamp.replace(tzinfo=UTC).timestamp(), user, number)
    return rows
