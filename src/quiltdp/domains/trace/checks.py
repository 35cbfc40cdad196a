"""Pitfalls of real traces, each named: order, duplicates, impossible speeds, several users joined."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from quiltdp.domains.trace.extras import need
from quiltdp.domains.trace.points import Floats, Points
from quiltdp.domains.trace.units import many
from quiltdp.errors import FileFormatError, option

__all__ = ["JOINED_SHARE", "MAX_SPEED", "check_points", "move_distances"]

MAX_SPEED = 300.0
"""Metres per second (1,080 km/h): faster than an airliner is not one person's movement."""

JOINED_SHARE = 0.1
"""When more than this share of moves is impossible, the file joins several users."""

_NULL_ISLAND = 1e-9


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
    points = _in_order(points)
    points = _without_duplicates(points, max_speed)
    return points if max_speed is None else _speeds(points, max_speed)


def _in_order(points: Points) -> Points:
    """Sort by user and time; count the rows that were not."""
    behind = sum(int((np.diff(points.time[mine]) < 0).sum()) for mine in points.by_user())
    order = np.lexsort((np.arange(len(points)), points.time, points.who))
    said = (f"{many(behind, 'row')} earlier than the row before them: sorted by time",) if behind else ()
    return points.select(order, said)


def _without_duplicates(points: Points, max_speed: float | None) -> Points:
    """Keep the first of several points of a user at one time."""
    same = (np.diff(points.who) == 0) & (np.diff(points.time) == 0)
    if not same.any():
        return points
    apart = same & ((np.diff(points.lat) != 0) | (np.diff(points.lon) != 0))
    repeated, moved = int(same.sum() - apart.sum()), int(apart.sum())
    if max_speed is not None and moved > JOINED_SHARE * len(points) and len(points) > 10:
        far = _distances(points)[apart]
        if float(np.median(far)) > 1000.0:
            raise FileFormatError(
                points.source,
                int(points.lines[1:][apart][0]),
                f"{moved} of {len(points)} points are at a second place at the same time: several users are"
                f" joined in one trace (name the user column with {option('user')}, or accept any speed:"
                f" {option('max_speed', None)})",
            )
    said = []
    if repeated:
        said.append(f"{many(repeated, 'repeated point')} dropped")
    if moved:
        line = int(points.lines[1:][apart][0])
        said.append(
            f"{many(moved, 'point')} at a second place at the same time dropped (first at line {line})"
        )
    return points.select(np.concatenate([[True], ~same]), tuple(said))


def _speeds(points: Points, max_speed: float) -> Points:
    """Note impossible speeds; refuse when they are the rule."""
    moves = np.diff(points.who) == 0
    if not moves.any():
        return points
    seconds = np.diff(points.time)
    speed = np.divide(_distances(points), seconds, out=np.zeros(len(seconds)), where=moves & (seconds > 0))
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
    said = f"{many(count, 'move')} faster than {max_speed * 3.6:,.0f} km/h (first: {where})"
    return points.select(np.ones(len(points), dtype=np.bool_), (said,))


def _distances(points: Points) -> Floats:
    return move_distances(points.lat, points.lon)


def move_distances(lat: Floats, lon: Floats) -> NDArray[np.float64]:
    """Return the geodesic distance in metres from every point to the next, on the WGS 84 ellipsoid."""
    geod = need("pyproj", "measuring distances").Geod(ellps="WGS84")
    return np.asarray(geod.inv(lon[:-1], lat[:-1], lon[1:], lat[1:])[2], dtype=np.float64)
