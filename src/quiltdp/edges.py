"""Methods of results that live at an edge: pictures and pages, found when they are asked for.

A result can be drawn (``calibration.plot()``), yet the layer that makes it knows nothing of pictures.
This table is the one place where a lower layer names an edge; nothing is imported before it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["EDGES", "edge"]

EDGES = {
    "leakage_table": "quiltdp.report.tables:leakage_table",
    "plot_calibration": "quiltdp.report.plots:plot_calibration",
    "plot_graph": "quiltdp.report.plots:plot_graph",
    "plot_leakage": "quiltdp.report.plots:plot_leakage",
    "plot_profile": "quiltdp.report.plots:plot_profile",
    "write_report": "quiltdp.report.html_report:write_report",
}


def edge(name: str) -> Callable[..., Any]:
    """Return the function of an edge by its name in :data:`EDGES`."""
    module, _, function = EDGES[name].partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found
