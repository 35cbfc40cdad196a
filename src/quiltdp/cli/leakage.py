"""``quiltdp leakage MODEL --dp-epsilon A``: what a DP mechanism really gives away."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from quiltdp.cli.accounting import (
    Adversary,
    AsJson,
    MemoryLimit,
    Method,
    ModelFile,
    Protect,
    TimeLimit,
    Window,
    Work,
    WorkerCount,
    memory_bytes,
    progress_bar,
    protection,
    witness_facts,
    worker_pool,
)
from quiltdp.cli.app import emit_json, guarded
from quiltdp.cli.model_options import load, model_options

__all__ = ["leakage"]


@model_options
def leakage(
    model: ModelFile,
    *,
    dp_epsilon: Annotated[
        float,
        typer.Option(
            metavar="A",
            help="α, the mechanism's DP guarantee for one record (of twins who share one: for each).",
        ),
    ],
    method: Method = "auto",
    adversary: Adversary = "informed",
    window: Window = 1,
    protect: Protect = None,
    top: Annotated[int, typer.Option(metavar="N", min=0, help="How many records to list.")] = 10,
    work: Work = "normal",
    time_limit: TimeLimit = 30.0,
    memory_limit: MemoryLimit = None,
    workers: WorkerCount = 1,
    json: AsJson = False,
    options: dict[str, Any],
) -> None:
    """Tell how much an α-DP mechanism leaks about each record, certified.

    Examples
    --------
    $ quiltdp leakage models/asia.bif --dp-epsilon 0.1
    $ quiltdp leakage models/alarm.bif --dp-epsilon 0.1 --adversary prior --top 5
    $ quiltdp leakage models/asia.bif --dp-epsilon 0.1 --method published --json
    """
    with guarded():
        import quiltdp as qd

        loaded = load(model, **options)
        with worker_pool(workers) as executor, progress_bar() as progress:
            found = qd.leakage(
                loaded,
                dp_epsilon,
                method=method,
                adversary=adversary,
                protect=protection(loaded, protect),
                window=window,
                work=work,
                time_limit=time_limit,
                memory_limit=memory_bytes(memory_limit),
                progress=progress,
                executor=executor,
            )
        if json:
            document = found.to_dict(top if len(found.per_record) > 10_000 else None)
            notes = [*loaded.notes, *found.notes]
            emit_json("leakage", {"model": model, **document, "notes": notes})
            return
        from quiltdp.cli.show import number, show_facts, show_line, show_table

        show_line(f"leakage ≤ {found.epsilon:.6g} at α = {dp_epsilon:g}", style="bold green")
        facts = [
            ("model", f"{model}: {len(loaded.records):,} records of {len(loaded.nodes):,} nodes"),
            ("adversary", f"{found.adversary}; protects {found.protected}"),
            ("binding", f"{found.binding.unit}, method {found.binding.method}"),
            *witness_facts(found.binding.witness),
            ("certificate", str(found.certificate)),
            *(("note", n) for n in (*loaded.notes, *found.notes)),
        ]
        show_facts(facts)
        if top:
            rows = [(n, number(v, 6), _ratio(v, dp_epsilon)) for n, v in found.per_record.top(top)]
            show_table(
                ["record", "leakage", "in α"], rows, title="\nLargest leakages", right=["leakage", "in α"]
            )
        if len(found.by_method) > 1:
            by = [(n, number(v, 6)) for n, v in sorted(found.by_method.items(), key=lambda i: i[1])]
            show_table(
                ["method", "largest leakage"],
                by,
                title="\nThe whole model by each method (where one was not tried, by the best that was)",
                right=["largest leakage"],
            )


def _ratio(value: float, alpha: float) -> str:
    return f"{value / alpha:.4g}" if alpha > 0 else "–"
