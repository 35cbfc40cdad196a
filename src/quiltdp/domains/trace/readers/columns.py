"""Which column of a trace is which: latitude, longitude, time and user by their usual names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quiltdp.errors import FileFormatError, option
from quiltdp.io.columns import Role, find_column, listed, recognise

__all__ = ["Columns", "find_columns"]

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
    said = {role: name for role, name in given.items() if name}
    parts = _clock(header, said.get("time", ""))
    clock = tuple(find_column(header, part, source, _said("time", part)) for part in parts)
    if clock:
        said.pop("time")
    names = [name.strip().strip('"') for name in header]
    roles = {role: kind for role, kind in _ROLES.items() if not (role == "time" and clock)}
    found = recognise(names, roles, said, source=source, line=1, say=_said)
    for role in ("lat", "lon", *(() if clock else ("time",))):
        if role not in found:
            what = _ROLES[role].says
            raise FileFormatError(
                source, 1, f"no {what} column among {listed(header)}: name it with {option(role)}"
            )
    time = clock or (found["time"],)
    if len({found["lat"], found["lon"], *time}) < 2 + len(time):
        raise FileFormatError(source, 1, "latitude, longitude and time must be three different columns")
    return Columns(found["lat"], found["lon"], time, found.get("user"))


def _clock(header: Sequence[str], said: str) -> list[str]:
    """Return the two columns of ``date+clock``, nothing if that is a column's own name."""
    if "+" not in said or said.strip().lower() in [name.strip().lower() for name in header]:
        return []
    return said.split("+")


def _said(role: str, name: str | int = "") -> str:
    return f"{option(role)} {name!r}" if name != "" else option(role)
