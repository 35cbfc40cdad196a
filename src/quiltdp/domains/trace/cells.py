"""Cells: a square grid in a projected plane (pyproj), H3 hexagons, or the places where people stay.

A cell system turns every point into a cell number and knows, for each cell, its name, its centre
and its outline.  Square cells have names ``x<column>y<row>`` counted from the origin of the
projection, so the same place has the same name in every file that uses the same projection.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quiltdp.domains.trace.extras import need
from quiltdp.domains.trace.points import Floats, Ints, Points
from quiltdp.domains.trace.units import parse_length
from quiltdp.errors import InvalidArgument, option

__all__ = ["Cells", "assign_cells", "projection_for", "ring", "square_corners"]

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
    outlines: tuple[tuple[tuple[float, float], ...], ...]
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
            from quiltdp.domains.trace.staypoints import stay_cells

            return stay_cells(points, distance=stay_distance, duration=stay_time, gap=stay_gap)
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
    pyproj = need("pyproj", "a square grid")
    notes: tuple[str, ...] = ()
    if crs is not None:
        name = crs
    else:
        name, notes = _default_plane(points)
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
    h3 = need("h3", "hexagonal cells")
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
        tuple(tuple((float(a), float(b)) for a, b in h3.cell_to_boundary(c)) for c in names.tolist()),
        np.asarray(of_point, dtype=np.int64).reshape(-1),
        f"H3 resolution {resolution}",
        (),
        "h3",
        resolution,
    )


def ring(lat: Sequence[float] | Floats, lon: Sequence[float] | Floats) -> tuple[tuple[float, float], ...]:
    """Return corners as (lat, lon) pairs."""
    return tuple((float(a), float(b)) for a, b in zip(lat, lon, strict=True))
