"""Points from a Google location history (``Records.json`` of Takeout)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from quiltdp.domains.trace.readers.rows import Rows
from quiltdp.domains.trace.units import many
from quiltdp.errors import FileFormatError

__all__ = ["google_rows"]


def google_rows(locations: Sequence[Any], path: Path) -> Rows:
    """Read the records of a location history: ``latitudeE7``, ``longitudeE7``, ``timestamp``.

    Records without a position are left out and counted.
    """
    rows = Rows(str(path), provenance={"format": "google-records"})
    empty = 0
    for number, record in enumerate(locations, start=1):
        if not isinstance(record, dict):
            raise FileFormatError(path, None, f"record {number} is not an object")
        lat, lon = record.get("latitudeE7"), record.get("longitudeE7")
        time = record.get("timestamp", record.get("timestampMs"))
        if lat is None or lon is None or time is None:
            empty += 1
            continue
        try:
            rows.lat.append(float(lat) / 1e7)
            rows.lon.append(float(lon) / 1e7)
        except (TypeError, ValueError, OverflowError):
            raise FileFormatError(
                path, None, f"record {number}: {lat!r:.60}, {lon!r:.60} are not coordinates"
            ) from None
        rows.time.append(str(time))
        rows.user.append("user")
        rows.line.append(number)
    if empty:
        rows.notes.append(f"{many(empty, 'record')} without a position or a time left out")
    return rows
