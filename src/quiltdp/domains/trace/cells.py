"""Cells: a square grid in a projected plane (pyproj), H3 hexagons, or the places where people stay.

A cell system turns every point into a cell number and knows, for each cell, its name, its centre
and its outline.  Square cells have names ``x<column>y<row>`` counted from the origin of the
projection, so the same place has the same name in every file that uses the same projection.

Places where people stay follow trackintel's conventions: a sliding window, then places that touch.
A stay begins at a point and lasts while the following points are within ``distance`` of it; it is a
stay point when the user leaves after at least ``duration`` (Li et al. 2008; a stay that ends with a
gap or with the trace counts too here, because a chain needs a state for every step).  Stay points
closer than ``distance`` to one another, of whichever user, are one place (DBSCAN with one sample,
that is, connected pairs).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from quiltdp.domains.trace.points import Floats, Ints, Points
from quiltdp.domains.trace.times import format_duration, parse_duration, parse_length
from quiltdp.errors import InvalidArgument, need, option

__all__ = ["MOVING", "Cells", "Rings", "assign_cells", "find_stays", "projection_for", "square_corners"]

MOVING = "moving"
"""The state of a step that belongs to no stay."""

Rings = tuple[tuple[tuple[float, float], ...], ...]

_GRID = re.compile(r"\s*(?:grid|square)[:_ -]*", re.IGNORECASE)
_H3 = re.compile(r"h3(?:[:r_-]*)([0-9]{1,2})", re.IGNORECASE)
_UTM_REACH = 4.5  # degrees from the central meridian: scale error below 0.2 %


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells that points fall in.

    Attributes
    ----------
    names
        One name per cell.
    lat, lon
        The centre of each cell, degrees.
    outlines
        The corners of each cell, (lat, lon) pairs; empty for a state that is not a place.
    of_point
        For every point, its cell.
    system
        What the cells are, in words a person can repeat: ``square 500 m, EPSG:32632``.
    notes
        What to know about them.
    shape, size, plane
        ``square`` with the side in metres and the plane, ``h3`` with the resolution, or ``stay``.
    """

    names: tuple[str, ...]
    lat: Floats
    lon: Floats
    outlines: Rings
    of_point: Ints
    system: str
    notes: tuple[str, ...] = ()
    shape: str = "stay"
    size: float = 0.0
    plane: str = ""

    def __post_init__(self) -> None:
        """Check that the columns agree."""
        sizes = {len(self.names), len(self.lat), len(self.lon), len(self.outlines)}
        if len(sizes) != 1:
            raise InvalidArgument(f"cells: the columns have different lengths {sorted(sizes)}")
        if len(set(self.names)) != len(self.names):
            raise InvalidArgument("cells: a cell is named twice")
        for array in (self.lat, self.lon, self.of_point):
            array.flags.writeable = False


def assign_cells(
    points: Points,
    cell: str | float,
    *,
    crs: str | None = None,
    stay_distance: str | float = "100m",
    stay_time: str | float = "5min",
    stay_gap: str | float = "15min",
) -> Cells:
    """Return the cell of every point.

    Parameters
    ----------
    points
        Checked points (in time order per user).
    cell
        A length (``500m`` or ``grid500m``: squares in a plane), ``h3:7`` (H3 resolution 0 to 15), or
        ``stay`` (places where someone stayed, and one state ``moving`` for the rest).
    crs
        The plane of the squares, for example ``EPSG:32632``; by default the UTM zone of the points,
        or an equal-area plane around them when they reach far beyond one zone.
    stay_distance, stay_time, stay_gap
        Stay points as trackintel finds them: within ``stay_distance`` of the first point, for at
        least ``stay_time``, with no gap longer than ``stay_gap`` inside.

    Raises
    ------
    InvalidArgument
        Not a cell, or an H3 resolution that does not exist.
    DependencyMissing
        pyproj or h3 is not installed.
    """
    if isinstance(cell, str):
        if cell.strip().lower() in ("stay", "stays", "staypoints"):
            return _stay_cells(points, distance=stay_distance, duration=stay_time, gap=stay_gap)
        match = _H3.fullmatch(cell.strip())
        if match:
            return _h3_cells(points, int(match[1]))
        cell = _GRID.sub("", cell, count=1)
        if not cell.strip()[:1].isdigit():
            raise InvalidArgument(
                f"{option('cell')} {cell!r} is not a length such as 500m, nor h3:7, nor stay"
            )
    return _square_cells(points, parse_length(cell, "cell"), crs)


def projection_for(points: Points, crs: str | None) -> tuple[str, Any, tuple[str, ...]]:
    """Return the name of a plane for these points, the transformer into it, and a note."""
    pyproj = need("pyproj", "a square grid", "geo")
    name, notes = _default_plane(points) if crs is None else (crs, ())
    try:
        plane = pyproj.CRS.from_user_input(name)
    except pyproj.exceptions.CRSError:
        raise InvalidArgument(
            f"{option('grid_crs')} {name!r} is not a coordinate system: use for example EPSG:32632"
        ) from None
    if not plane.is_projected:
        raise InvalidArgument(f"crs {name!r} measures degrees: square cells need a plane in metres")
    return name, pyproj.Transformer.from_crs("EPSG:4326", plane, always_xy=True), notes


def _default_plane(points: Points) -> tuple[str, tuple[str, ...]]:
    """Choose the UTM zone of the median point, or an equal-area plane when one zone is too narrow."""
    lat, lon = float(np.median(points.lat)), float(np.median(points.lon))
    zone = min(int((lon + 180.0) // 6.0) + 1, 60)
    central = 6.0 * zone - 183.0
    reach = float(np.abs(points.lon - central).max())
    if reach <= _UTM_REACH and points.lat.min() >= -80 and points.lat.max() <= 84:
        return f"EPSG:{32600 + zone if lat >= 0 else 32700 + zone}", ()
    name = f"+proj=laea +lat_0={round(lat)} +lon_0={round(lon)} +datum=WGS84 +units=m"
    return name, (
        f"the points reach {reach:.0f}° from the middle of a UTM zone: squares lie in an equal-area plane",
    )


def _square_cells(points: Points, size: float, crs: str | None) -> Cells:
    """Lay a square grid over the projected points."""
    name, transform, notes = projection_for(points, crs)
    x, y = transform.transform(points.lon, points.lat)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise InvalidArgument(f"crs {name!r} does not reach all points: choose one made for their region")
    index = np.stack([np.floor(np.asarray(x) / size), np.floor(np.asarray(y) / size)], axis=1).astype(
        np.int64
    )
    unique, of_point = np.unique(index, axis=0, return_inverse=True)
    lat, lon = square_corners(unique, size, transform)
    return Cells(
        tuple(f"x{a}y{b}" for a, b in unique.tolist()),
        lat[:, 4].copy(),
        lon[:, 4].copy(),
        tuple(ring(lat[k, :4], lon[k, :4]) for k in range(len(unique))),
        np.asarray(of_point, dtype=np.int64).reshape(-1),
        f"square {size:g} m, {name}",
        notes,
        "square",
        size,
        name,
    )


def square_corners(index: Ints, size: float, transform: Any) -> tuple[Floats, Floats]:
    """Return latitude and longitude of the four corners and the centre of squares, one row each."""
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0.5, 0.5]])
    around = (index[:, None, :] + corners[None, :, :]) * size
    lon, lat = transform.transform(around[:, :, 0], around[:, :, 1], direction="INVERSE")
    return np.asarray(lat), np.asarray(lon)


def _h3_cells(points: Points, resolution: int) -> Cells:
    """Put every point into its H3 cell."""
    if not 0 <= resolution <= 15:
        raise InvalidArgument(f"{option('cell')}: H3 has resolutions 0 to 15, not {resolution}")
    h3 = need("h3", "hexagonal cells", "geo")
    cells = [
        h3.latlng_to_cell(a, b, resolution)
        for a, b in zip(points.lat.tolist(), points.lon.tolist(), strict=True)
    ]
    names, of_point = np.unique(np.array(cells), return_inverse=True)
    centres = np.array([h3.cell_to_latlng(c) for c in names.tolist()], dtype=np.float64)
    return Cells(
        tuple(names.tolist()),
        centres[:, 0].copy(),
        centres[:, 1].copy(),
        tuple(ring(*zip(*h3.cell_to_boundary(c), strict=True)) for c in names.tolist()),
        np.asarray(of_point, dtype=np.int64).reshape(-1),
        f"H3 resolution {resolution}",
        (),
        "h3",
        resolution,
    )


def ring(lat: Sequence[float] | Floats, lon: Sequence[float] | Floats) -> tuple[tuple[float, float], ...]:
    """Return corners as (lat, lon) pairs."""
    return tuple((float(a), float(b)) for a, b in zip(lat, lon, strict=True))


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


def _stay_cells(
    points: Points,
    *,
    distance: str | float,
    duration: str | float,
    gap: str | float,
) -> Cells:
    """Return the place of every point: where someone stayed, or :data:`MOVING`.

    Raises
    ------
    InvalidArgument
        If nobody stayed anywhere.
    """
    metres, seconds = parse_length(distance, "stay_distance"), parse_duration(duration, "stay_time")
    longest = parse_duration(gap, "stay_gap")
    name, transform, notes = projection_for(points, None)
    x, y = (np.asarray(v) for v in transform.transform(points.lon, points.lat))
    stay, total = np.full(len(points), -1, dtype=np.int64), 0
    for mine in points.by_user():
        own = find_stays(x[mine], y[mine], points.time[mine], distance=metres, duration=seconds, gap=longest)
        stay[mine] = np.where(own >= 0, own + total, -1)
        total += int(own.max(initial=-1)) + 1
    if not total:
        raise InvalidArgument(
            f"{option('cell', 'stay')}: nobody stayed within {metres:g} m for {format_duration(seconds)};"
            " use a grid or smaller limits"
        )
    inside = stay >= 0
    weight = np.bincount(stay[inside], minlength=total)
    centre = np.stack(
        [np.bincount(stay[inside], weights=v[inside], minlength=total) / weight for v in (x, y)], axis=1
    )
    near = scipy.spatial.cKDTree(centre).query_pairs(metres, output_type="ndarray")
    links = scipy.sparse.coo_matrix((np.ones(len(near)), (near[:, 0], near[:, 1])), shape=(total, total))
    places, place = scipy.sparse.csgraph.connected_components(links, directed=False)
    middle = np.array([centre[place == k].mean(axis=0) for k in range(places)])
    angle = np.linspace(0, 2 * np.pi, 16, endpoint=False)
    circle = middle[:, None, :] + metres * np.stack([np.cos(angle), np.sin(angle)], axis=1)[None]
    around = np.concatenate([circle, middle[:, None, :]], axis=1)
    lon, lat = (
        np.asarray(v) for v in transform.transform(around[:, :, 0], around[:, :, 1], direction="INVERSE")
    )
    of_point = np.where(inside, place[np.where(inside, stay, 0)], places).astype(np.int64)
    names = tuple(f"place{k + 1}" for k in range(places))
    outlines = tuple(ring(lat[k, :-1], lon[k, :-1]) for k in range(places))
    system = f"stay points within {metres:g} m for {format_duration(seconds)}, {name}"
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
