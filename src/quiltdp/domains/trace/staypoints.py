"""Places where people stay, by trackintel's conventions: sliding window, then places that touch.

A stay begins at a point and lasts while the following points are within ``distance`` of it; it is a
stay point when the user leaves after at least ``duration`` (Li et al. 2008; a stay that ends with a
gap or with the trace counts too here, because a chain needs a state for every step).  Stay points
closer than ``distance`` to one another, of whichever user, are one place (DBSCAN with one sample,
that is, connected pairs).
"""

from __future__ import annotations

import numpy as np

from quiltdp.domains.trace.cells import Cells, projection_for
from quiltdp.domains.trace.points import Floats, Ints, Points
from quiltdp.domains.trace.units import parse_duration, parse_length, say_duration
from quiltdp.errors import InvalidArgument, option

__all__ = ["MOVING", "find_stays", "stay_cells"]

MOVING = "moving"
"""The state of a step that belongs to no stay."""


def find_stays(x: Floats, y: Floats, time: Floats, *, distance: float, duration: float, gap: float) -> Ints:
    """Return for every point the number of its stay, −1 where it belongs to none.

    Examples
    --------
    >>> import numpy as np
    >>> t = np.arange(8) * 60.0
    >>> x = np.array([0, 1, 2, 500, 1000, 1500, 1501, 1502.0])
    >>> find_stays(x, 0 * x, t, distance=100, duration=120, gap=900).tolist()
    [0, 0, 0, -1, -1, 1, 1, 1]
    """
    stay = np.full(len(time), -1, dtype=np.int64)
    start = count = 0
    for k in range(1, len(time) + 1):
        ends = k == len(time)
        broken = not ends and time[k] - time[k - 1] > gap
        left = not ends and (x[k] - x[start]) ** 2 + (y[k] - y[start]) ** 2 > distance**2
        if not (ends or broken or left):
            continue
        # Leaving is observed at point k; after a gap or at the end only the last point inside is.
        until = time[k] if left and not broken else time[k - 1]
        if until - time[start] >= duration:
            stay[start:k] = count
            count += 1
        start = k
    return stay


def stay_cells(
    points: Points,
    *,
    distance: str | float = "100m",
    duration: str | float = "5min",
    gap: str | float = "15min",
) -> Cells:
    """Return the place of every point: where someone stayed, or :data:`MOVING`.

    Raises
    ------
    InvalidArgument
        If nobody stayed anywhere.
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components
    from scipy.spatial import cKDTree

    metres, seconds = parse_length(distance, "stay_distance"), parse_duration(duration, "stay_time")
    name, transform, notes = projection_for(points, None)
    x, y = (np.asarray(v) for v in transform.transform(points.lon, points.lat))
    stay = np.full(len(points), -1, dtype=np.int64)
    count = 0
    for mine in points.by_user():
        found = find_stays(
            x[mine],
            y[mine],
            points.time[mine],
            distance=metres,
            duration=seconds,
            gap=parse_duration(gap, "stay_gap"),
        )
        stay[mine] = np.where(found >= 0, found + count, -1)
        count += int(found.max(initial=-1)) + 1
    total = count
    if not total:
        raise InvalidArgument(
            f"{option('cell', 'stay')}: nobody stayed within {metres:g} m for {say_duration(seconds)};"
            " use a grid or smaller limits"
        )
    inside = stay >= 0
    weight = np.bincount(stay[inside], minlength=total)
    centre = np.stack(
        [np.bincount(stay[inside], weights=v[inside], minlength=total) / weight for v in (x, y)], axis=1
    )
    near = cKDTree(centre).query_pairs(metres, output_type="ndarray")
    links = coo_matrix((np.ones(len(near)), (near[:, 0], near[:, 1])), shape=(total, total))
    places, place = connected_components(links, directed=False)
    middle = np.array([centre[place == k].mean(axis=0) for k in range(places)])
    angle = np.linspace(0, 2 * np.pi, 16, endpoint=False)
    ring = middle[:, None, :] + metres * np.stack([np.cos(angle), np.sin(angle)], axis=1)[None]
    around = np.concatenate([ring, middle[:, None, :]], axis=1)
    lon, lat = (
        np.asarray(v) for v in transform.transform(around[:, :, 0], around[:, :, 1], direction="INVERSE")
    )
    of_point = np.where(inside, place[np.where(inside, stay, 0)], places).astype(np.int64)
    names = tuple(f"place{k + 1}" for k in range(places))
    outlines = tuple(
        tuple((float(a), float(b)) for a, b in zip(lat[k, :-1], lon[k, :-1], strict=True))
        for k in range(places)
    )
    system = f"stay points within {metres:g} m for {say_duration(seconds)}, {name}"
    if inside.all():
        return Cells(names, lat[:, -1].copy(), lon[:, -1].copy(), outlines, of_point, system, notes)
    return Cells(
        (*names, MOVING),
        np.append(lat[:, -1], np.nan),
        np.append(lon[:, -1], np.nan),
        (*outlines, ()),
        of_point,
        system,
        (*notes, f"{int((~inside).sum())} of {len(points)} points belong to no stay: one state {MOVING!r}"),
    )
