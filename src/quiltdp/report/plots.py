"""Results and maps as pictures (matplotlib axes), and as HTML tables for notebooks; drawn when called."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from quiltdp.errors import InvalidArgument, need
from quiltdp.numbers import format_up
from quiltdp.printable import printable

if TYPE_CHECKING:
    from quiltdp.accountant.calibration import Calibration
    from quiltdp.accountant.leakage import LeakageProfile
    from quiltdp.accountant.result import Leakage
    from quiltdp.graph.quilt import Quilt
    from quiltdp.graph.types import DependencyGraph


Outline = Sequence[tuple[float, float]]

_BELOW_ZERO = "#f2b48a"
_METRES_PER_DEGREE = 111_320.0  # of latitude; the scale bar is for the eye


def new_axes(ax: Any = None) -> Any:
    """Return ``ax``, or fresh axes; say which extra is missing when there is no matplotlib."""
    if ax is not None:
        return ax
    return need("matplotlib.pyplot", "drawing", "plot").subplots(figsize=(6.4, 4.2), layout="constrained")[1]


def plot_profile(profile: LeakageProfile, dp_epsilons: Any = None, *, ax: Any = None) -> Any:
    """Draw the largest leakage against α on logarithmic axes, one line per method.

    The thick line is the smallest bound; the dotted one is what independent records would leak.
    """
    ax = new_axes(ax)
    alphas = np.geomspace(1e-3, 3.0, 25) if dp_epsilons is None else np.asarray(dp_epsilons, dtype=float)
    curve = profile.curve(alphas)
    names = list(dict.fromkeys(name for point in curve for name in point.by_method))
    for name in names:
        ax.plot(alphas, [point.by_method.get(name, np.nan) for point in curve], lw=1, label=name)
    ax.plot(alphas, [point.epsilon for point in curve], lw=2.5, color="black", label="certified")
    ax.plot(alphas, alphas, ls=":", color="grey", label="independent records")
    ax.set(xscale="log", yscale="log", xlabel="α of the mechanism (dp_epsilon)", ylabel="leakage ε")
    ax.set_title(f"{profile.adversary} adversary, {profile.units.kind}")
    ax.legend(fontsize="small")
    return ax


def plot_calibration(calibration: Calibration, *, ax: Any = None) -> Any:
    """Draw the calibrated scale beside those of other answers, as bars on a logarithmic axis."""
    ax = new_axes(ax)
    names = ["this answer", *calibration.compared]
    values = [calibration.sigma, *calibration.compared.values()]
    colours = ["#2a6f97", *("#c9c9c9" for _ in calibration.compared)]
    ax.barh(names[::-1], values[::-1], color=colours[::-1])
    for k, value in enumerate(values[::-1]):
        ax.text(value, k, f" {format_up(value, 3)}", va="center")
    ax.set(xscale="log", xlabel="noise scale σ")
    ax.set_title(f"ε = {calibration.epsilon:g}, {calibration.adversary} adversary")
    ax.margins(x=0.15)
    return ax


def plot_leakage(leakage: Leakage, *, top: int = 20, ax: Any = None) -> Any:
    """Draw the units that leak most as bars, with the mechanism's own α as a line."""
    ax = new_axes(ax)
    rows = leakage.per_record.top(top)[::-1]
    ax.barh([n for n, _ in rows], [v for _, v in rows], color="#2a6f97")
    if isinstance(leakage.dp_epsilon, float):
        ax.axvline(leakage.dp_epsilon, ls=":", color="grey", label="α of the mechanism")
        ax.legend(fontsize="small")
    ax.set_xlabel("leakage ε")
    left = len(leakage.per_record) - len(rows)
    ax.set_title(f"{leakage.adversary} adversary" + (f", {left:,} smaller ones left out" if left else ""))
    return ax


_PARTS = {"target": "#8c1d40", "separator": "#1f5f8b", "nearby": "#d98c5f", "remote": "#d7dde2"}


def plot_graph(graph: DependencyGraph, *, highlight: Quilt | None = None, ax: Any = None) -> Any:
    """Draw a dependency graph; with ``highlight``, the parts of a quilt in their own colours.

    The layout is networkx's Kamada–Kawai, the same every time.
    """
    import networkx as nx

    ax = new_axes(ax)
    drawn = graph.to_networkx()
    places = nx.kamada_kawai_layout(drawn) if len(drawn) > 1 else dict.fromkeys(drawn, (0.0, 0.0))
    part = dict.fromkeys(drawn, "remote")
    if highlight is not None:
        part.update(dict.fromkeys(highlight.separator, "separator"))
        part.update(dict.fromkeys(highlight.nearby, "nearby"))
        part[highlight.target] = "target"
    for a, b in drawn.edges:
        (x, y), (u, v) = places[a], places[b]
        ax.plot([x, u], [y, v], color="#9aa4ae", lw=1, zorder=1)
    for kind, colour in _PARTS.items():
        inside = [n for n in drawn if part[n] == kind]
        if inside:
            spots = np.array([places[n] for n in inside])
            label = kind if highlight is not None else None
            ax.scatter(
                spots[:, 0], spots[:, 1], s=160, color=colour, edgecolors="#444", zorder=2, label=label
            )
    for n in drawn:
        ax.annotate(n, places[n], fontsize=8, xytext=(0, 9), textcoords="offset points", ha="center")
    if highlight is not None:
        ax.legend(fontsize="small", frameon=False)
    ax.set_axis_off()
    return ax


def leakage_table(title: str, facts: Sequence[tuple[str, str]], rows: Sequence[tuple[str, float]]) -> str:
    """Return a title, facts, and the units that leak most, as HTML; names are only names.

    Examples
    --------
    >>> leakage_table("σ = 1", [("adversary", "prior")], [("<b>", 0.5)]).count("&lt;b&gt;")
    1
    """
    lines = "".join(f"<tr><th>{_html_text(k)}</th><td>{_html_text(v)}</td></tr>" for k, v in facts)
    shown = "".join(f"<tr><td>{_html_text(n)}</td><td>{format_up(v)}</td></tr>" for n, v in rows)
    leaks = f"<table><tr><th>record</th><th>leakage</th></tr>{shown}</table>" if rows else ""
    return f"<p><b>{_html_text(title)}</b></p><table>{lines}</table>{leaks}"


def _html_text(text: str) -> str:
    return escape(printable(text))


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
    _frame_map(axes, corners)
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


def _frame_map(axes: Any, corners: np.ndarray) -> None:
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
    metres = _scale_bar_length(0.25 * (east - west) * shrink * _METRES_PER_DEGREE)
    width = metres / (shrink * _METRES_PER_DEGREE)
    y = south - 0.75 * pad_y
    axes.plot([west, west + width], [y, y], color="#22303a", linewidth=2, solid_capstyle="butt")
    text = f"{metres / 1000:g} km" if metres >= 1000 else f"{metres:g} m"
    axes.text(west + width * 1.08, y, text, fontsize=7, va="center", color="#22303a")


def _scale_bar_length(metres: float) -> float:
    """Return 1, 2 or 5 times a power of ten, just below."""
    power = 10.0 ** math.floor(math.log10(max(metres, 1e-3)))
    return max(f for f in (1.0, 2.0, 5.0) if f * power <= metres * 1.0000001 or f == 1.0) * power


def check_map(path: str | os.PathLike[str]) -> str:
    """Return the format that the ending of a file names; refuse others, and a missing matplotlib."""
    kind = os.path.splitext(path)[1].lower().removeprefix(".")
    if kind not in ("png", "svg", "pdf"):
        raise InvalidArgument(f"{os.fspath(path)}: a map is written as .png, .svg or .pdf")
    need("matplotlib", "drawing a map", "plot")
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
