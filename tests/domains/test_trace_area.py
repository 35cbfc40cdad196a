"""Queries over a fixed area, and the picture of the cells."""

from __future__ import annotations

from pathlib import Path

import h3
import numpy as np
import pytest

from quiltdp.domains.trace import location_study, visits_per_cell
from quiltdp.domains.trace.area import over_area
from quiltdp.errors import InvalidArgument
from quiltdp.report.plots import draw_cells

GOOGLE = Path(__file__).parents[2] / "models" / "location" / "trackintel_google_trajectory.csv"
AREA = (47.36, 8.51, 47.39, 8.57)


@pytest.mark.parametrize("cell", ["500m", "1km", "h3:8"])
def test_the_area_holds_every_visit_and_more(cell: str) -> None:
    steps = location_study(GOOGLE, cell, "5min").steps
    query = visits_per_cell(steps)
    wide = over_area(query, steps.cells, AREA)
    assert wide.left_out == 0
    assert wide.query.values.sum() == query.values.sum() == steps.total
    assert len(wide.query.cells) > len(query.cells)
    assert len(set(wide.query.cells)) == len(wide.outlines) == len(wide.query.values)
    assert wide.query.sensitivity == query.sensitivity
    known = dict(zip(steps.cells.names, steps.cells.outlines, strict=True))
    found = dict(zip(wide.query.cells, wide.outlines, strict=True))
    for name, outline in known.items():
        assert np.allclose(found[name], outline, atol=1e-9)


def test_the_area_does_not_depend_on_the_data() -> None:
    steps = location_study(GOOGLE, "500m", "5min").steps
    small = (47.365, 8.535, 47.38, 8.56)
    wide = over_area(visits_per_cell(steps), steps.cells, small)
    assert wide.left_out > 0
    assert wide.query.values.sum() < steps.total
    south, west, north, east = small
    for ring in wide.outlines:
        lat, lon = np.mean(ring, axis=0)
        assert south - 1e-4 <= lat <= north + 1e-4
        assert west - 1e-4 <= lon <= east + 1e-4
    # neighbours of the middle cell are all there: no hole in the grid
    hexes = location_study(GOOGLE, "h3:9", "5min").steps
    cells = set(over_area(visits_per_cell(hexes), hexes.cells, AREA).query.cells)
    assert set(h3.grid_disk(h3.latlng_to_cell(47.375, 8.54, 9), 3)) <= cells
    with pytest.raises(InvalidArgument, match="holds no cell's centre"):
        over_area(visits_per_cell(steps), steps.cells, (47.37, 8.54, 47.3701, 8.5401))


def test_pictures_refuse_what_does_not_fit() -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    axes = figure.add_subplot()
    square = [(0.0, 0.0), (0.0, 1.0), (1.0, 1.0), (1.0, 0.0)]
    with pytest.raises(InvalidArgument, match="1 cells but 2 values"):
        draw_cells(axes, [square], [1, 2], unit="steps")
    with pytest.raises(InvalidArgument, match="no cell has an outline"):
        draw_cells(axes, [[]], [1], unit="steps")
    draw_cells(axes, [square, []], [-3.0, 5.0], unit="steps", labels=["x", None], title="t")
    (patches,) = axes.collections
    assert patches.get_array().tolist() == [-3.0]
    assert patches.to_rgba(-3.0) != patches.to_rgba(0.0), "a negative noisy count is shown as such"
