"""Results as pictures (matplotlib axes) and as HTML tables for notebooks; nothing is drawn on import."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from quiltdp.errors import DependencyMissing
from quiltdp.numbers import format_up
from quiltdp.printable import printable

if TYPE_CHECKING:
    from quiltdp.accountant.calibration import Calibration
    from quiltdp.accountant.leakage import LeakageProfile
    from quiltdp.accountant.result import Leakage
    from quiltdp.graph.quilt import Quilt
    from quiltdp.graph.types import DependencyGraph

__all__ = ["leakage_table", "new_axes", "plot_calibration", "plot_graph", "plot_leakage", "plot_profile"]


def new_axes(ax: Any = None) -> Any:
    """Return ``ax``, or fresh axes; say which extra is missing when there is no matplotlib."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise DependencyMissing("pictures need matplotlib: pip install 'quiltdp[plot]'") from None
    return plt.subplots(figsize=(6.4, 4.2), layout="constrained")[1]


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
    told = "".join(f"<tr><th>{_text(k)}</th><td>{_text(v)}</td></tr>" for k, v in facts)
    shown = "".join(f"<tr><td>{_text(n)}</td><td>{format_up(v)}</td></tr>" for n, v in rows)
    leaks = f"<table><tr><th>record</th><th>leakage</th></tr>{shown}</table>" if rows else ""
    return f"<p><b>{_text(title)}</b></p><table>{told}</table>{leaks}"


def _text(text: str) -> str:
    return escape(printable(text))
