"""Points from JSON: GeoJSON points and lines, OGC Moving Features, a Google location history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from quiltdp.domains.trace.readers.rows import Layout, Rows, first_property
from quiltdp.errors import FileFormatError
from quiltdp.io.text import parse_json, read_source

_TIMES = ("time", "timestamp", "datetime", "tracked_at", "recorded_at", "t", "date")
_LISTS = ("coordtimes", "times", "datetimes", "timestamps")
_USERS = ("user", "user_id", "uid", "userid", "id", "tracker", "name")


def read_geojson(path: Path, layout: Layout = Layout()) -> Rows:  # noqa: B008 - frozen
    """Read a FeatureCollection, Feature, or a list of Moving Features.

    A Moving Feature is one user (its ``id``).  A Point feature has its time in its properties; a
    LineString has one time per vertex in ``coordTimes``.  Coordinates are longitude, latitude.

    Raises
    ------
    FileFormatError
        Naming the feature: no times, times and coordinates of different number, unknown geometry.
    """
    document = parse_json(read_source(path))
    if isinstance(document, dict) and isinstance(document.get("locations"), list):
        return read_google_locations(document["locations"], path)
    rows = Rows(str(path), provenance={"format": "geojson"})
    for number, feature in enumerate(_list_features(document, path), start=1):
        _add_feature(rows, feature, number, path, layout.columns)
    if rows.provenance["format"] == "geojson" and len(set(rows.user)) == 1 and rows.user[0] == "user":
        rows.notes.append("no user property: all points are taken as one user's")
    return rows


def _list_features(document: Any, path: Path) -> Iterable[Any]:
    if isinstance(document, list):
        return document
    kind = document.get("type") if isinstance(document, dict) else None
    if kind == "FeatureCollection" and isinstance(document.get("features"), list):
        return list(document["features"])
    if kind == "Feature":
        return [document]
    raise FileFormatError(path, None, "not a trace in JSON: a Feature or a FeatureCollection is expected")


def _add_feature(
    rows: Rows, feature: Any, number: int, path: Path, columns: Mapping[str, str | None]
) -> None:
    """Add the points of one feature."""
    if not isinstance(feature, dict):
        raise FileFormatError(path, None, f"feature {number} is not an object")
    properties, geometry = feature.get("properties") or {}, feature.get("geometry") or {}
    if not isinstance(properties, dict) or not isinstance(geometry, dict):
        raise FileFormatError(path, None, f"feature {number}: properties and geometry must be objects")
    moving = feature.get("temporalGeometry")
    if moving is not None:
        rows.provenance["format"] = "moving-features"
        user = str(_feature_user(feature, properties, columns) or number)
        prisms = moving.get("prisms", [moving]) if isinstance(moving, dict) else [moving]
        for part in prisms if isinstance(prisms, list) else [prisms]:
            if not isinstance(part, dict) or part.get("type") not in ("MovingPoint", "MovingGeomPoint"):
                raise FileFormatError(path, None, f"feature {number}: only MovingPoint has a trace")
            _add_positions(
                rows, part.get("coordinates"), part.get("datetimes"), user, number=number, path=path
            )
        return
    user = str(_feature_user(feature, properties, columns, point=True) or "user")
    kind = geometry.get("type")
    if kind == "Point":
        time = properties.get(columns["time"]) if columns.get("time") else first_property(properties, _TIMES)
        _add_positions(rows, [geometry.get("coordinates")], [time], user, number=number, path=path)
    elif kind in ("LineString", "MultiPoint"):
        times = properties.get(columns["time"]) if columns.get("time") else first_property(properties, _LISTS)
        nested = properties.get("coordinateProperties")
        if times is None and isinstance(nested, dict):
            times = first_property(nested, _LISTS)
        _add_positions(rows, geometry.get("coordinates"), times, user, number=number, path=path)
    else:
        raise FileFormatError(
            path, None, f"feature {number}: geometry {kind!r} has no trace (Point or LineString do)"
        )


def _feature_user(
    feature: Mapping[str, Any],
    properties: Mapping[str, Any],
    columns: Mapping[str, str | None],
    *,
    point: bool = False,
) -> object | None:
    """Return whose feature it is; an ``id`` of a single point numbers the point, not the user."""
    if columns.get("user"):
        return properties.get(str(columns["user"]))
    names = tuple(n for n in _USERS if not (point and n in ("id", "name")))
    user = first_property(properties, names)
    return user if user is not None or point else feature.get("id")


def _add_positions(rows: Rows, coordinates: Any, times: Any, user: str, *, number: int, path: Path) -> None:
    """Append timed positions, longitude first."""
    if not isinstance(coordinates, list) or not coordinates:
        raise FileFormatError(path, None, f"feature {number} has no coordinates")
    if not isinstance(times, list) or any(t is None for t in times):
        raise FileFormatError(path, None, f"feature {number} has no times: a chain needs them")
    if len(times) != len(coordinates):
        raise FileFormatError(
            path, None, f"feature {number} has {len(coordinates)} positions but {len(times)} times"
        )
    for position, time in zip(coordinates, times, strict=True):
        try:
            lon, lat = (float(x) for x in position[:2] if isinstance(position, list))
        except (TypeError, ValueError, LookupError, OverflowError):
            shown = f"{position!r:.60}"
            raise FileFormatError(path, None, f"feature {number}: {shown} is not a position") from None
        rows.add(lat, lon, str(time), user, number)


def read_google_locations(locations: Sequence[Any], path: Path) -> Rows:
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
            rows.add(float(lat) / 1e7, float(lon) / 1e7, str(time), "user", number)
        except (TypeError, ValueError, OverflowError):
            raise FileFormatError(
                path, None, f"record {number}: {lat!r:.60}, {lon!r:.60} are not coordinates"
            ) from None
    rows.note(empty, "record", "without a position or a time left out")
    return rows
