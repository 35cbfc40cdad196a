"""Which column is which: recognised by name, given by the caller, never guessed when ambiguous."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quiltdp.errors import FileFormatError, option

__all__ = ["Columns", "find_columns"]

# One rank per tuple: a role is decided by the first rank that has a column.
_LAT = (("lat", "latitude", "lat_deg", "location-lat", "location_lat", "gps_lat", "latitude_deg"), ("y",))
_LON = (
    (
        "lon",
        "lng",
        "long",
        "longitude",
        "lon_deg",
        "location-long",
        "location_long",
        "gps_lon",
        "gps_lng",
        "longitude_deg",
    ),
    ("x",),
)
_TIME = (
    (
        "time",
        "timestamp",
        "datetime",
        "date_time",
        "tracked_at",
        "recorded_at",
        "t",
        "utc",
        "check-in_time",
        "ts",
    ),
    ("date", "created_at", "event_time", "time_utc"),
)
_USER = (
    ("user", "user_id", "userid", "uid", "person", "person_id"),
    (
        "tracker",
        "tracker_id",
        "device",
        "device_id",
        "individual-local-identifier",
        "individual_id",
        "animal_id",
        "vehicle_id",
        "mmsi",
        "taxi_id",
    ),
)
_SAY = {"lat": "latitude", "lon": "longitude", "time": "time", "user": "user"}


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
        If a given column is absent, a role has no column, or several would fit.
    """
    names = [h.strip().strip('"').lower() for h in header]

    def one(role: str, ranks: Sequence[Sequence[str]]) -> int | None:
        wanted = given.get(role)
        return _named(names, header, wanted, source, role) if wanted else _known(names, ranks, source, role)

    lat, lon = (_required(one(r, ranks), r, header, source) for r, ranks in (("lat", _LAT), ("lon", _LON)))
    wanted = given.get("time") or ""
    if "+" in wanted and wanted.lower() not in names:
        time = tuple(_named(names, header, part.strip(), source, "time") for part in wanted.split("+"))
    else:
        time = (_required(one("time", _TIME), "time", header, source),)
    if len({lat, lon, *time}) < 2 + len(time):
        raise FileFormatError(source, 1, "latitude, longitude and time must be three different columns")
    return Columns(lat, lon, time, one("user", _USER))


def _required(found: int | None, role: str, header: Sequence[str], source: object) -> int:
    if found is None:
        raise FileFormatError(
            source, 1, f"no {_SAY[role]} column among {_list(header)}: name it with {option(role)}"
        )
    return found


def _named(names: list[str], header: Sequence[str], wanted: str, source: object, role: str) -> int:
    exact = [k for k, h in enumerate(header) if h.strip() == wanted]
    if len(exact) == 1:
        return exact[0]
    same = [k for k, n in enumerate(names) if n == wanted.lower()]
    if len(same) == 1:
        return same[0]
    what = "is not a column" if not same else "names several columns"
    raise FileFormatError(source, 1, f"{option(role)} {wanted!r} {what}; the columns are {_list(header)}")


def _known(names: list[str], ranks: Sequence[Sequence[str]], source: object, role: str) -> int | None:
    for rank in ranks:
        fits = [k for k, n in enumerate(names) if n in rank]
        if len(fits) > 1:
            several = " and ".join(repr(names[k]) for k in fits)
            raise FileFormatError(
                source, 1, f"{several} could each be the {_SAY[role]}: say which with {option(role)}"
            )
        if fits:
            return fits[0]
    return None


def _list(header: Sequence[str]) -> str:
    shown = [h.strip() for h in header[:12]]
    more = f", … ({len(header)} columns)" if len(header) > 12 else ""
    return ", ".join(repr(h) for h in shown) + more
