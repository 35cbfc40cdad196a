"""Points of a location trace: who was where, when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quiltdp.errors import InvalidArgument

__all__ = ["Points", "Trace"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def _frozen(values: ArrayLike, dtype: type, owner: str, length: int | None = None) -> NDArray[np.generic]:
    array: NDArray[np.generic] = np.array(values, dtype=dtype)
    if array.ndim != 1 or (length is not None and len(array) != length):
        raise InvalidArgument(f"points: {owner} has shape {array.shape}, expected ({length},)")
    array.flags.writeable = False
    return array


@dataclass(frozen=True, eq=False)
class Trace:
    """The points of one user in strictly increasing time order (seconds since 1970, UTC)."""

    user: str
    time: Floats
    lat: Floats
    lon: Floats

    def __post_init__(self) -> None:
        """Refuse times that do not increase."""
        if len(self.time) > 1 and not (np.diff(self.time) > 0).all():
            raise InvalidArgument(f"trace of user {self.user!r}: the times do not increase")

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self.time)


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
        keep(self, "time", _frozen(self.time, np.float64, "time"))
        n = len(self.time)
        keep(self, "who", _frozen(self.who, np.int64, "who", n))
        keep(self, "lat", _frozen(self.lat, np.float64, "lat", n))
        keep(self, "lon", _frozen(self.lon, np.float64, "lon", n))
        lines = self.line if self.line is not None else np.arange(1, n + 1)
        keep(self, "line", _frozen(lines, np.int64, "line", n))
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
        return (
            float(self.lat.min()),
            float(self.lon.min()),
            float(self.lat.max()),
            float(self.lon.max()),
        )

    def select(self, keep: NDArray[np.bool_] | Ints, notes: tuple[str, ...] = ()) -> Points:
        """Return some of the points (users without a point left out), with ``notes`` added."""
        who = self.who[keep]
        used = np.unique(who)
        return Points(
            tuple(self.users[k] for k in used),
            np.searchsorted(used, who),
            self.time[keep],
            self.lat[keep],
            self.lon[keep],
            self.lines[keep],
            self.source,
            (*self.notes, *notes),
            self.provenance,
        )

    def by_user(self) -> list[Ints]:
        """Return, for every user, the positions of the points, in file order."""
        order = np.argsort(self.who, kind="stable")
        ends = np.cumsum(np.bincount(self.who, minlength=len(self.users)))
        return np.split(order, ends[:-1]) if len(self.users) else []

    def traces(self) -> tuple[Trace, ...]:
        """Return one time-ordered trace per user (needs checked points: no duplicate times)."""
        found = []
        for user, points in zip(self.users, self.by_user(), strict=True):
            mine = points[np.argsort(self.time[points], kind="stable")]
            found.append(Trace(user, self.time[mine], self.lat[mine], self.lon[mine]))
        return tuple(found)
