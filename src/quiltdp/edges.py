"""What results borrow from the report: pictures, tables and pages, imported when they are first drawn.

A result can be drawn (``calibration.plot()``), yet the layer that makes it knows nothing of pictures.
This module is the one place where a lower layer names an edge: ``edges.plot_calibration`` is the function
of that name in :mod:`quiltdp.report`, imported on its first use (PEP 562).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quiltdp.report.html_report import write_report
    from quiltdp.report.plots import leakage_table, plot_calibration, plot_graph, plot_leakage, plot_profile

__all__ = ["leakage_table", "plot_calibration", "plot_graph", "plot_leakage", "plot_profile", "write_report"]

_HOMES = dict.fromkeys(__all__, "quiltdp.report.plots") | {"write_report": "quiltdp.report.html_report"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
