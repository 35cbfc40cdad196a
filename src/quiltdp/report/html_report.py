"""One self-contained page: the report that can be handed to a committee.

The interactive parts are three maintained libraries, bundled so that the page needs no network:
cytoscape.js draws the graph, uPlot the curves, Tabulator the table (it renders only the rows in view,
so ten thousand records stay quick, and it is operable by keyboard).  Their licences are beside them.
"""

from __future__ import annotations

import html
import json
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from importlib.resources import files
from typing import Any

from quiltdp.accountant.calibration import Calibration
from quiltdp.errors import LimitReached
from quiltdp.io.replace import write_whole
from quiltdp.model import Model
from quiltdp.report.report_analyses import ReportRequest
from quiltdp.report.report_data import report_data
from quiltdp.work import Guard, GuardReached

_LIBRARIES = ("cytoscape.min.js", "uPlot.iife.min.js", "tabulator.min.js")
_STYLES = ("tabulator.min.css", "uPlot.min.css", "report.css")


def write_report(
    calibration: Calibration,
    path: str | os.PathLike[str],
    model: Model,
    *,
    options: Mapping[str, Any] | None = None,
    name: str = "",
    command: str = "",
    progress: Callable[[str, float], None] | None = None,
    executor: Executor | None = None,
    allow_partial: bool = False,
) -> None:
    """Write the report of a calibration to ``path``, whole or not at all.

    Parameters
    ----------
    calibration, model
        The answer, and the model it was made from.
    options
        The options of :func:`quiltdp.analyze` that it was made with; a limit is a guard for all of it.
    name, command
        The title, and the command that reproduces the answer.
    progress, executor
        As for :func:`quiltdp.analyze`; targets, adversaries and models nearby are looked at there.
    allow_partial
        Write a page even if a limit was reached.

    Raises
    ------
    LimitReached
        If a limit was reached; nothing is written then.
    """
    title = name or model.provenance.get("file") or model.provenance.get("source") or "Correlated records"
    request = ReportRequest(calibration, model, dict(options or {}), title, command)
    page = render(report_data(request, progress, executor))
    guard = request.options.get("time_limit")
    if isinstance(guard, Guard) and not allow_partial:
        try:
            guard.check()
        except GuardReached as struck:
            raise LimitReached(f"{struck} before the page was finished", False) from None
    write_whole(path, page.encode())


def render(data: Mapping[str, Any]) -> str:
    """Return the page for what :func:`~quiltdp.report.report_data.report_data` found."""
    page = _read_asset("report.html")
    text = json.dumps(data, ensure_ascii=True, allow_nan=False).replace("<", "\\u003c")
    for mark, filled in (
        ("title", html.escape(str(data["title"]))),
        ("style", "\n".join(_read_asset(name) for name in _STYLES)),
        (
            "libraries",
            "/*\n" + _read_asset("LICENSES.txt") + "*/\n" + "\n;\n".join(map(_read_asset, _LIBRARIES)),
        ),
        ("script", _read_asset("report.js")),
        ("data", text),  # last: what stands in it is never looked at again
    ):
        before, after = page.split(f"<!--{mark}-->", 1)
        page = before + filled + after
    return page


def _read_asset(name: str) -> str:
    return files("quiltdp.report").joinpath("assets", name).read_text(encoding="utf-8")
