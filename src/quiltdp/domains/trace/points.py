"""Points of a location trace: who was where, when; and the pitfalls of real traces, each named.

Order, duplicates, impossible speeds, several users joined.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quiltdp.domains.trace.times import many
from quiltdp.errors import FileFormatError, InvalidArgument, need, option

__all__ = ["JOINED_SHARE", "MAX_SPEED", "Points", "check_points"]

MAX_SPEED = 300.0
"""Metres per second (1,080 km/h): faster than an airliner is not one person's movement."""

JOINED_SHARE = 0.1
"""When more than this share of moves is impossible, the file joins several users."""

_NULL_ISLAND = 1e-9

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def _frozen_column(
    values: ArrayLike, dtype: type, owner: str, length: int | None = None
) -> NDArray[np.generic]:
    array: NDArray[np.generic] = np.array(values, dtype=dtype)
    if array.ndim != 1 or (length is not None and len(array) != length):
        raise InvalidArgument(f"points: {owner} has shape {array.shape}, expected ({length},)")
    array.flags.writeable = False
    return array


@dataclass(frozen=True, eq=False)
class Points:
    """Points of one or several users, in file order, with times in UTC seconds and WGS 84 degrees.

    Parameters
    ----------
    users
        The names of the users.
    who
        For every point, the position of its user in ``users``.
    time, lat, lon
        Seconds since 1970-01-01 UTC; degrees.
    line
        For every point, the line (or number) it had in its file, for messages.
    source
        The file, for messages.
    notes
        What was noticed or done while reading, for people to read.
    provenance
        Where the points came from.

    Examples
    --------
    >>> p = Points(("ann",), [0, 0], [0.0, 60.0], [47.37, 47.38], [8.54, 8.54])
    >>> p, len(p)
    (<Points: 2 points, 1 user>, 2)
    """

    users: tuple[str, ...]
    who: Ints
    time: Floats
    lat: Floats
    lon: Floats
    line: Ints | None = None
    source: str = "points"
    notes: tuple[str, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Copy, freeze and check the columns."""
        keep = object.__setattr__
        keep(self, "users", tuple(self.users))
        keep(self, "time", _frozen_column(self.time, np.float64, "time"))
        n = len(self.time)
        keep(self, "who", _frozen_column(self.who, np.int64, "who", n))
        keep(self, "lat", _frozen_column(self.lat, np.float64, "lat", n))
        keep(self, "lon", _frozen_column(self.lon, np.float64, "lon", n))
        lines = self.line if self.line is not None else np.arange(1, n + 1)
        keep(self, "line", _frozen_column(lines, np.int64, "line", n))
        keep(self, "notes", tuple(self.notes))
        keep(self, "provenance", dict(self.provenance))
        if len(set(self.users)) != len(self.users):
            raise InvalidArgument("points: a user is named twice")
        if n and not (self.who.min() >= 0 and self.who.max() < len(self.users)):
            raise InvalidArgument("points: 'who' points outside 'users'")
        for name in ("time", "lat", "lon"):
            if not np.isfinite(getattr(self, name)).all():
                raise InvalidArgument(f"points: {name} has a NaN or infinite value")

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self.time)

    def __repr__(self) -> str:
        """Say how many points and users."""
        plural = "" if len(self.users) == 1 else "s"
        return f"<Points: {len(self)} points, {len(self.users)} user{plural}>"

    @property
    def lines(self) -> Ints:
        """The line of every point (never missing after construction)."""
        assert self.line is not None
        return self.line

    @property
    def bounding_box(self) -> tuple[float, float, float, float]:
        """South, west, north, east in degrees."""
        south, west = float(self.lat.min()), float(self.lon.min())
        return south, west, float(self.lat.max()), float(self.lon.max())

    def select(self, keep: NDArray[np.bool_] | Ints, notes: tuple[str, ...] = ()) -> Points:
        """Return some of the points (users without a point left out), with ``notes`` added."""
        who = self.who[keep]
        used = np.unique(who)
        columns = {name: getattr(self, name)[keep] for name in ("time", "lat", "lon", "line")}
        users = tuple(self.users[k] for k in used)
        return replace(
            self, users=users, who=np.searchsorted(used, who), notes=(*self.notes, *notes), **columns
        )

    def by_user(self) -> list[Ints]:
        """Return, for every user, the positions of the points, in file order."""
        order = np.argsort(self.who, kind="stable")
        ends = np.cumsum(np.bincount(self.who, minlength=len(self.users)))
        return np.split(order, ends[:-1]) if len(self.users) else []


def check_points(points: Points, *, max_speed: float | None = MAX_SPEED) -> Points:
    """Return the points in time order per user, without duplicates, with a note on all that was found.

    - Points at exactly 0°, 0° are receivers without a fix: dropped, noted.
    - Rows out of time order are sorted, noted.
    - Repeated rows (same user, time and place) are dropped, noted; two places at one time keep the
      first and are noted.
    - Moves faster than ``max_speed`` are noted with the line of the first.  If more than a tenth of
      the moves are, several users were joined in one trace, and the file is refused:
      ``max_speed=None`` accepts it all the same.

    Raises
    ------
    FileFormatError
        No points left, or several users joined.
    """
    null = (np.abs(points.lat) < _NULL_ISLAND) & (np.abs(points.lon) < _NULL_ISLAND)
    if null.any():
        points = points.select(
            ~null, (f"{many(int(null.sum()), 'point')} at 0°, 0° (no satellite fix) dropped",)
        )
    if not len(points):
        raise FileFormatError(points.source, None, "no usable points are left")
    points = _sort_by_time(points)
    points = _drop_duplicates(points, max_speed)
    return points if max_speed is None else _check_speeds(points, max_speed)


def _sort_by_time(points: Points) -> Points:
    """Sort by user and time; count the rows that were not."""
    behind = sum(int((np.diff(points.time[mine]) < 0).sum()) for mine in points.by_user())
    order = np.lexsort((np.arange(len(points)), points.time, points.who))
    notes = (f"{many(behind, 'row')} earlier than the row before them: sorted by time",) if behind else ()
    return points.select(order, notes)


def _drop_duplicates(points: Points, max_speed: float | None) -> Points:
    """Keep the first of several points of a user at one time."""
    same = (np.diff(points.who) == 0) & (np.diff(points.time) == 0)
    if not same.any():
        return points
    apart = same & ((np.diff(points.lat) != 0) | (np.diff(points.lon) != 0))
    repeated, moved = int(same.sum() - apart.sum()), int(apart.sum())
    if max_speed is not None and moved > JOINED_SHARE * len(points) and len(points) > 10:
        far = _move_distances(points.lat, points.lon)[apart]
        if float(np.median(far)) > 1000.0:
            raise FileFormatError(
                points.source,
                int(points.lines[1:][apart][0]),
                f"{moved} of {len(points)} points are at a second place at the same time: several users are"
                f" joined in one trace (name the user column with {option('user')}, or accept any speed:"
                f" {option('max_speed', None)})",
            )
    notes = []
    if repeated:
        notes.append(f"{many(repeated, 'repeated point')} dropped")
    if moved:
        line = int(points.lines[1:][apart][0])
        notes.append(
            f"{many(moved, 'point')} at a second place at the same time dropped (first at line {line})"
        )
    return points.select(np.concatenate([[True], ~same]), tuple(notes))


def _check_speeds(points: Points, max_speed: float) -> Points:
    """Note impossible speeds; refuse when they are the rule."""
    moves = np.diff(points.who) == 0
    if not moves.any():
        return points
    seconds = np.diff(points.time)
    far = _move_distances(points.lat, points.lon)
    speed = np.divide(far, seconds, out=np.zeros(len(seconds)), where=moves & (seconds > 0))
    fast = moves & (speed > max_speed)
    count, total = int(fast.sum()), int(moves.sum())
    if not count:
        return points
    k = int(np.argmax(fast))
    where = (
        f"{speed[k] * 3.6:,.0f} km/h at line {int(points.lines[k + 1])},"
        f" {datetime.fromtimestamp(float(points.time[k + 1]), UTC):%Y-%m-%d %H:%M:%S} UTC"
    )
    if count > JOINED_SHARE * total and count > 3:
        raise FileFormatError(
            points.source,
            int(points.lines[k + 1]),
            f"{count} of {total} moves are impossibly fast ({where}): several users joined in one trace, or"
            " latitude and longitude mixed up (name the columns, or accept any speed:"
            f" {option('max_speed', None)})",
        )
    note = f"{many(count, 'move')} faster than {max_speed * 3.6:,.0f} km/h (first: {where})"
    return points.select(np.ones(len(points), dtype=np.bool_), (note,))


def _move_distances(lat: Floats, lon: Floats) -> Floats:
    """Return the geodesic distance in metres from every point to the next, on the WGS 84 ellipsoid."""
    geod = need("pyproj", "measuring distances", "geo").Geod(ellps="WGS84")
    return np.asarray(geod.inv(lon[:-1], lat[:-1], lon[1:], lat[1:])[2], dtype=np.float64)
