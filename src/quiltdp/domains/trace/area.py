"""A fixed area: every cell in it is published, visited or not, so that empty cells tell nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quiltdp.domains.trace.cells import Cells, Rings, ring, square_corners
from quiltdp.domains.trace.queries import CellQuery
from quiltdp.errors import FileFormatError, InvalidArgument, need, option
from quiltdp.io.text import parse_json, read_source

__all__ = ["Area", "AreaQuery", "Rings", "over_area", "parse_area"]

Box = tuple[float, float, float, float]

_LARGEST_AREA = 20_000


@dataclass(frozen=True, eq=False)
class AreaQuery:
    """A query over every cell of an area, and the outlines of those cells.

    ``left_out`` is the number of visited cells outside the area; it is a fact about the data, not for
    publication.
    """

    query: CellQuery
    outlines: Rings
    left_out: int


@dataclass(frozen=True)
class Area:
    """A public area: a box in degrees (south, west, north, east), and rings (lat, lon) inside it, if any.

    With rings, a cell belongs to the area when its centre lies in an odd number of them.
    """

    box: Box
    rings: Rings = ()

    def __post_init__(self) -> None:
        """Refuse a box that is empty or off the globe."""
        south, west, north, east = self.box
        if not (-90 <= south < north <= 90 and -180 <= west < east <= 180):
            raise InvalidArgument(
                f"{option('area')} {','.join(f'{v:g}' for v in self.box)}: south must be below north and west"
                " before east, in degrees"
            )

    def holds(self, lat: float, lon: float) -> bool:
        """Return whether a point lies in the area."""
        south, west, north, east = self.box
        if not (south <= lat <= north and west <= lon <= east):
            return False
        return not self.rings or sum(_point_in_ring(ring, lat, lon) for ring in self.rings) % 2 == 1


def _point_in_ring(points: tuple[tuple[float, float], ...], lat: float, lon: float) -> bool:
    """Return whether a point lies in a ring (even–odd rule)."""
    crossed = (
        (a > lat) != (c > lat) and lon < b + (lat - a) / (c - a) * (d - b)
        for (a, b), (c, d) in zip(points, (*points[1:], points[0]), strict=True)
    )
    return sum(crossed) % 2 == 1


def parse_area(text: str) -> Area:
    """Return the area of ``"47.36,8.51,47.39,8.56"`` (south, west, north, east) or of a GeoJSON file.

    Examples
    --------
    >>> parse_area("47.36, 8.51, 47.39, 8.56").box
    (47.36, 8.51, 47.39, 8.56)
    """
    if text.lower().endswith((".geojson", ".json")):
        return _read_area_file(text)
    parts = text.split(",")
    try:
        south, west, north, east = (float(p) for p in parts)
    except ValueError:
        raise InvalidArgument(
            f"{option('area')} {text!r} must be four numbers (south,west,north,east) or a .geojson file"
        ) from None
    return Area((south, west, north, east))


def _read_area_file(path: str) -> Area:
    """Return the polygons of a GeoJSON file as an area."""
    document = parse_json(read_source(path))
    rings: list[tuple[tuple[float, float], ...]] = []
    pending: list[Any] = [document]
    while pending:
        item = pending.pop()
        if not isinstance(item, dict):
            continue
        pending.extend(item.get("features") or [])
        pending.extend(item.get("geometries") or [])
        if isinstance(item.get("geometry"), dict):
            pending.append(item["geometry"])
        if item.get("type") in ("Polygon", "MultiPolygon"):
            rings.extend(_polygon_rings(path, item))
    if not rings:
        raise FileFormatError(path, None, "no Polygon or MultiPolygon is in it: an area needs one")
    lats, lons = ([p[k] for ring in rings for p in ring] for k in (0, 1))
    return Area((min(lats), min(lons), max(lats), max(lons)), tuple(rings))


def _polygon_rings(path: str, polygon: dict[str, Any]) -> list[tuple[tuple[float, float], ...]]:
    whole: Any = polygon.get("coordinates")
    parts = [whole] if polygon["type"] == "Polygon" else whole
    try:
        return [tuple((float(lat), float(lon)) for lon, lat, *_ in ring) for part in parts for ring in part]
    except (TypeError, ValueError):
        raise FileFormatError(path, None, "the coordinates of a polygon are not pairs of numbers") from None


def over_area(query: CellQuery, cells: Cells, area: Area | Box) -> AreaQuery:
    """Return the query on all cells of an area that is chosen without looking at the data.

    A cell belongs to the area when its centre does.  Cells never visited have value 0 and get noise
    like all others; visits outside the area are left out.  One step still moves at most two counts,
    so the sensitivities are the same.

    Parameters
    ----------
    query
        Visits or time per cell.
    cells
        The cells of the steps the query was asked on.
    area
        The area, or south, west, north, east in degrees.

    Raises
    ------
    InvalidArgument
        Stay points have no fixed cells; an area with no cell or with too many.
    """
    public = area if isinstance(area, Area) else Area(area)
    if cells.shape == "square":
        names, outlines = _squares_in_area(cells, public.box)
    elif cells.shape == "h3":
        names, outlines = _hexagons_in_area(int(cells.size), public.box)
    else:
        raise InvalidArgument("area: stay points are places found in the data; use squares or h3 cells")
    if public.rings:
        kept = [k for k, r in enumerate(outlines) if public.holds(*np.mean(r, axis=0).tolist())]
        names, outlines = tuple(names[k] for k in kept), tuple(outlines[k] for k in kept)
    if not names:
        raise InvalidArgument(
            f"{option('area')} {','.join(f'{v:g}' for v in public.box)} holds no cell's centre: choose a"
            " larger area or smaller cells"
        )
    known = dict(zip(query.cells, query.values.tolist(), strict=True))
    values = np.array([known.get(n, 0.0) for n in names])
    values.flags.writeable = False
    left_out = len(set(query.cells) - set(names))
    return AreaQuery(replace(query, cells=names, values=values), outlines, left_out)


def _squares_in_area(cells: Cells, area: Box) -> tuple[tuple[str, ...], Rings]:
    """Return the squares whose centre is in the area."""
    pyproj = need("pyproj", "a square grid", "geo")
    transform = pyproj.Transformer.from_crs("EPSG:4326", cells.plane, always_xy=True)
    south, west, north, east = area
    bounds = transform.transform_bounds(west, south, east, north, densify_pts=21)
    if not np.isfinite(bounds).all():
        raise InvalidArgument(f"{option('area')} {area}: the plane {cells.plane} does not reach it")
    left, bottom, right, top = np.floor(np.asarray(bounds) / cells.size).astype(np.int64).tolist()
    _check_cell_count((right - left + 1) * (top - bottom + 1))
    index = np.array([(a, b) for a in range(left, right + 1) for b in range(bottom, top + 1)])
    lats, lons = square_corners(index, cells.size, transform)
    inside = (lats[:, 4] >= south) & (lats[:, 4] <= north) & (lons[:, 4] >= west) & (lons[:, 4] <= east)
    keep = np.flatnonzero(inside)
    names = tuple(f"x{index[k, 0]}y{index[k, 1]}" for k in keep)
    return names, tuple(ring(lats[k, :4], lons[k, :4]) for k in keep)


def _hexagons_in_area(resolution: int, area: Box) -> tuple[tuple[str, ...], Rings]:
    """Return the H3 cells whose centre is in the area."""
    h3 = need("h3", "hexagonal cells", "geo")
    south, west, north, east = area
    box = h3.LatLngPoly([(south, west), (south, east), (north, east), (north, west)])
    names = tuple(sorted(h3.polygon_to_cells(box, resolution)))
    _check_cell_count(len(names))
    return names, tuple(ring(*zip(*h3.cell_to_boundary(n), strict=True)) for n in names)


def _check_cell_count(cells: int) -> None:
    if cells > _LARGEST_AREA:
        raise InvalidArgument(
            f"{option('area')}: {cells} cells, the limit is {_LARGEST_AREA}: use larger cells"
        )
