"""``quiltdp report MODEL --epsilon E -o report.html``: the answer as a page to hand on."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

from quiltdp.cli.accounting import (
    Adversary,
    AsJson,
    Budget,
    Epsilon,
    Method,
    ModelFile,
    Protect,
    QueryName,
    Window,
    Work,
    WorkerCount,
    progress_bar,
    protection,
    worker_pool,
)
from quiltdp.cli.app import emit_json, guarded
from quiltdp.cli.calibrate import chosen_mechanism
from quiltdp.cli.limits import AllowPartial, TimeLimit, limited
from quiltdp.cli.model_options import load, model_options
from quiltdp.cli.option_words import opt

__all__ = ["report"]


@model_options
def report(
    model: ModelFile,
    *,
    epsilon: Epsilon,
    output: Annotated[Path, opt("FILE", "Where to write the page (.html).", "--output", "-o")] = Path(
        "report.html"
    ),
    budget: Budget = None,
    sensitivity: Annotated[float | None, opt("D", "How far one record moves the query; default 1.")] = None,
    query: QueryName = None,
    mechanism: Annotated[str | None, opt("KIND", "laplace, gaussian or thresholdout.")] = None,
    delta: Annotated[float | None, opt("D", "Gaussian: the δ allowed.")] = None,
    method: Method = "auto",
    adversary: Adversary = "informed",
    window: Window = 1,
    protect: Protect = None,
    work: Work = "normal",
    time_limit: TimeLimit = None,
    allow_partial: AllowPartial = False,
    workers: WorkerCount = 1,
    title: Annotated[str | None, opt("TEXT", "The page's title.")] = None,
    json: AsJson = False,
    options: dict[str, Any],
) -> None:
    """Write the calibration as one self-contained page: the answer, its reasons, every record.

    The page needs no network and can be mailed, archived and printed.

    Examples
    --------
    $ quiltdp report models/asia.bif --epsilon 1 -o asia.html
    $ quiltdp report models/location_chain.json --epsilon 1 --adversary prior -o trace.html
    """
    with guarded(), limited(time_limit, allow_partial=allow_partial, json=json) as limits:
        import quiltdp as qd
        from quiltdp.io.replace import check_writable
        from quiltdp.report.html_report import write_report

        check_writable(output, model)
        loaded = load(model, **options)
        spec, together = chosen_mechanism(loaded, mechanism, budget, sensitivity, query, delta)
        asked: dict[str, Any] = {
            "method": method,
            "protect": protection(loaded, protect) or together,
            "window": window,
            "work": work,
            "time_limit": limits.guard,
        }
        with worker_pool(workers) as executor, progress_bar() as progress:
            how: dict[str, Any] = {"progress": progress, "executor": executor}
            found = limits.answer(
                lambda: qd.calibrate(loaded, epsilon, spec, adversary=adversary, **how, **asked)
            )

            def page() -> bool:
                if limits.may_write(str(output)):
                    told: dict[str, Any] = {"name": title or Path(model).name, "allow_partial": allow_partial}
                    command = shlex.join(["quiltdp", *sys.argv[1:]])
                    write_report(found, output, loaded, options=asked, command=command, **told, **how)
                return limits.may_write()

            written = limits.answer(page)
        if json:
            certificate = found.certificate
            answer = {
                "file": str(output) if written else None,
                "sigma": found.sigma,
                "epsilon": found.epsilon,
            }
            told = {"work": certificate.work, "stage": certificate.stage, "notes": found.notes}
            emit_json("report", {**answer, **told}, limits.reached)
        else:
            from quiltdp.cli.show import say
            from quiltdp.numbers import shown_up

            wrote = f"wrote {output}: " if written else ""
            say(f"{wrote}σ = {shown_up(found.sigma)} for ε = {found.epsilon:g}")
            for note in found.notes:
                say(f"  note: {note}")
