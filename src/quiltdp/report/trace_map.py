"""A map of one number per cell: the noisy histogram of a location trace as a picture."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from quiltdp.errors import DependencyMissing, InvalidArgument

__all__ = ["check_map", "draw_cells", "map_picture"]

Outline = Sequence[tuple[float, float]]

_BELOW_ZERO = "#f2b48a"
_METRES_PER_DEGREE = 111_320.0  # of latitude; the scale bar is for the eye


def draw_cells(
    axes: Any,
    outlines: Sequence[Outline],
    values: ArrayLike,
    *,
    unit: str,
    title: str = "",
    largest: float | None = None,
    labels: Sequence[str | None] | None = None,
    colour_bar: bool = True,
    border: Sequence[Outline] = (),
) -> None:
    """Draw cells on matplotlib axes, coloured by value.

    Noise can make a count negative; such cells have a colour of their own, below the scale.

    Parameters
    ----------
    axes
        Where to draw.
    outlines
        The corners of each cell, (lat, lon); a cell without corners (someone moving) is left out.
    values
        One number per cell.
    unit
        What the numbers count, for the legend.
    largest
        The value of the darkest colour; default the largest value.  Give it to compare two maps.
    labels
        Text to write into some cells.
    colour_bar
        Whether to draw the legend.
    border
        Rings (lat, lon) to draw over the cells: the border of a city, a shore.
    """
    from matplotlib import colormaps
    from matplotlib.collections import PolyCollection

    numbers = np.asarray(values, dtype=np.float64)
    if len(numbers) != len(outlines):
        raise InvalidArgument(f"map: {len(outlines)} cells but {len(numbers)} values")
    shown = [k for k, ring in enumerate(outlines) if len(ring)]
    if not shown:
        raise InvalidArgument("map: no cell has an outline to draw")
    rings = [[(lon, lat) for lat, lon in outlines[k]] for k in shown]
    top = largest if largest is not None else max(float(numbers[shown].max()), 1e-9)
    colours = colormaps["YlGnBu"].with_extremes(under=_BELOW_ZERO)
    patches = PolyCollection(rings, edgecolors="#5b6770", linewidths=0.6, cmap=colours)
    patches.set_array(numbers[shown])
    patches.set_clim(0.0, top)
    axes.add_collection(patches)
    corners = np.array([c for ring in rings for c in ring])
    _frame(axes, corners)
    for ring in border:
        line = np.array([*ring, ring[0]], dtype=np.float64)
        axes.plot(line[:, 1], line[:, 0], color="#b0413e", linewidth=1.1, scalex=False, scaley=False)
    for k, ring in zip(shown, rings, strict=True):
        if labels is not None and labels[k]:
            x, y = np.mean(ring, axis=0)
            dark = numbers[k] > 0.6 * top
            axes.text(
                x, y, labels[k], ha="center", va="center", fontsize=7, color="white" if dark else "#22303a"
            )
    if title:
        axes.set_title(title, fontsize=10)
    if colour_bar:
        below = bool((numbers[shown] < 0).any())
        axes.figure.colorbar(
            patches,
            ax=axes,
            shrink=0.75,
            extend="min" if below else "neither",
            label=f"{unit} (orange: below 0, which is noise)" if below else unit,
        )


def _frame(axes: Any, corners: np.ndarray) -> None:
    """Set limits, true proportions at this latitude, and a scale bar."""
    (west, south), (east, north) = corners.min(axis=0), corners.max(axis=0)
    pad_x, pad_y = 0.06 * (east - west), 0.09 * (north - south)
    axes.set_xlim(west - pad_x, east + pad_x)
    axes.set_ylim(south - 1.6 * pad_y, north + pad_y)
    shrink = max(math.cos(math.radians((south + north) / 2)), 1e-3)
    axes.set_aspect(1.0 / shrink)
    axes.set_facecolor("#f4f2ec")
    axes.ticklabel_format(useOffset=False)
    axes.tick_params(labelsize=7)
    axes.set_xlabel("longitude (°)", fontsize=8)
    axes.set_ylabel("latitude (°)", fontsize=8)
    metres = _round_length(0.25 * (east - west) * shrink * _METRES_PER_DEGREE)
    width = metres / (shrink * _METRES_PER_DEGREE)
    y = south - 0.75 * pad_y
    axes.plot([west, west + width], [y, y], color="#22303a", linewidth=2, solid_capstyle="butt")
    text = f"{metres / 1000:g} km" if metres >= 1000 else f"{metres:g} m"
    axes.text(west + width * 1.08, y, text, fontsize=7, va="center", color="#22303a")


def _round_length(metres: float) -> float:
    """Return 1, 2 or 5 times a power of ten, just below."""
    power = 10.0 ** math.floor(math.log10(max(metres, 1e-3)))
    return max(f for f in (1.0, 2.0, 5.0) if f * power <= metres * 1.0000001 or f == 1.0) * power


def check_map(path: str | os.PathLike[str]) -> str:
    """Return the format that the ending of a file names; refuse others, and a missing matplotlib."""
    from importlib.util import find_spec

    kind = os.path.splitext(path)[1].lower().removeprefix(".")
    if kind not in ("png", "svg", "pdf"):
        raise InvalidArgument(f"{os.fspath(path)}: a map is written as .png, .svg or .pdf")
    if find_spec("matplotlib") is None:
        raise DependencyMissing("drawing a map needs matplotlib: pip install 'quiltdp[plot]'")
    return kind


def map_picture(
    path: str | os.PathLike[str],
    outlines: Sequence[Outline],
    values: ArrayLike,
    *,
    unit: str,
    title: str = "",
    labels: Sequence[str | None] | None = None,
    border: Sequence[Outline] = (),
) -> bytes:
    """Return a picture of the cells, in the format that the ending of ``path`` names.

    Raises
    ------
    DependencyMissing
        Without matplotlib: ``pip install 'quiltdp[plot]'``.
    InvalidArgument
        If the file name has another ending.
    """
    kind = check_map(path)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 5.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    draw_cells(figure.add_subplot(), outlines, values, unit=unit, title=title, labels=labels, border=border)
    picture = BytesIO()
    figure.savefig(picture, format=kind)
    return picture.getvalue()
