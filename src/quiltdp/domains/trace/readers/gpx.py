"""Points from a GPX file, through gpxpy: tracks, each of their segments, one user per file."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path
from xml.etree import ElementTree

from quiltdp.domains.trace.extras import need
from quiltdp.domains.trace.readers.rows import Rows
from quiltdp.domains.trace.units import many
from quiltdp.errors import FileFormatError
from quiltdp.io.xml_parse import read_xml

__all__ = ["read_gpx"]


def read_gpx(path: Path) -> Rows:
    """Read the track points of a GPX file; GPX times are UTC by definition.

    Points without a time are left out and counted; a file without timed points is refused.
    """
    gpxpy = need("gpxpy", "reading GPX")
    text = ElementTree.tostring(read_xml(path), encoding="unicode")
    try:
        document = gpxpy.parse(text)
    except Exception as error:  # gpxpy raises whatever its parsing trips over
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise FileFormatError(path, None, f"not a GPX file ({reason})") from None
    rows = Rows(str(path), provenance={"format": "gpx"})
    number = untimed = naive = 0
    for track in document.tracks:
        for segment in track.segments:
            for point in segment.points:
                number += 1
                if point.time is None:
                    untimed += 1
                    continue
                stamp = point.time
                if stamp.tzinfo is None:
                    naive += 1
                    stamp = stamp.replace(tzinfo=UTC)
                rows.lat.append(float(point.latitude))
                rows.lon.append(float(point.longitude))
                rows.seconds.append(stamp.timestamp())
                rows.user.append(path.stem)
                rows.line.append(number)
    if not rows.lat:
        raise FileFormatError(path, None, f"no track point has a time ({number} points): a chain needs times")
    if untimed:
        rows.notes.append(f"{many(untimed, 'track point')} without a time left out")
    if naive:
        rows.notes.append(f"{naive} GPX times carry no time zone: read as UTC, as the format says")
    if len(document.tracks) > 1:
        rows.notes.append(f"{len(document.tracks)} tracks in the file are taken as one user's")
    return rows
