"""``quiltdp leakage MODEL --dp-epsilon A``: what a DP mechanism really gives away; calibrations, checked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from quiltdp.cli.accounting import (
    Adversary,
    AsJson,
    Method,
    ModelFile,
    Protect,
    Window,
    Work,
    WorkerCount,
    progress_bar,
    protection,
    timed,
    witness_facts,
    worker_pool,
)
from quiltdp.cli.app import emit_json, guarded
from quiltdp.cli.limits import Limits, MemoryLimit, TimeLimit, limited
from quiltdp.cli.model_options import load, model_options
from quiltdp.cli.option_words import opt
from quiltdp.errors import InvalidArgument

if TYPE_CHECKING:
    from quiltdp.model import Model

__all__ = ["leakage"]


@model_options
def leakage(
    model: ModelFile,
    *,
    dp_epsilon: Annotated[
        float | None,
        opt("A", "α, the mechanism's DP guarantee for one record (of twins who share one: for each)."),
    ] = None,
    calibration: Annotated[
        Path | None,
        opt("FILE", "Instead: what 'quiltdp calibrate --json' printed, certified anew by its own search."),
    ] = None,
    method: Method = "auto",
    adversary: Adversary = "informed",
    window: Window = 1,
    protect: Protect = None,
    top: Annotated[int, opt("N", "How many records to list.", min=0)] = 10,
    work: Work = "normal",
    time_limit: TimeLimit = None,
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
    $ quiltdp leakage models/asia.bif --calibration calibration.json
    """
    with guarded(), limited(time_limit, memory_limit, json=json) as limits:
        import quiltdp as qd

        if (dp_epsilon is None) == (calibration is None):
            raise InvalidArgument("give either --dp-epsilon or --calibration")
        loaded = load(model, **options)
        if calibration is not None:
            said = {
                "--method": (method, "auto"),
                "--adversary": (adversary, "informed"),
                "--work": (work, "normal"),
            }
            _check(loaded, model, calibration, said, protection(loaded, protect), window, json, limits)
            return
        assert dp_epsilon is not None
        with worker_pool(workers) as executor, progress_bar() as progress:
            asked: dict[str, Any] = {
                "method": method,
                "adversary": adversary,
                "protect": protection(loaded, protect),
                "window": window,
                "work": work,
                "time_limit": limits.guard,
                "progress": progress,
                "executor": executor,
            }
            found = limits.answer(lambda: qd.leakage(loaded, dp_epsilon, **asked))
        if json:
            document = found.to_dict(top if len(found.per_record) > 10_000 else None)
            notes = [*loaded.notes, *found.notes]
            emit_json("leakage", {"model": model, **document, "notes": notes}, limits.reached)
            return
        from quiltdp.cli.show import number, show_facts, show_line, show_table
        from quiltdp.numbers import shown_up

        show_line(f"leakage ≤ {shown_up(found.epsilon)} at α = {dp_epsilon:g}", style="bold green")
        facts = [
            ("model", f"{model}: {len(loaded.records):,} records of {len(loaded.nodes):,} nodes"),
            ("adversary", f"{found.adversary}; protects {found.protected}"),
            ("binding", f"{timed(loaded, found.binding.unit)}, method {found.binding.method}"),
            *witness_facts(found.binding.witness),
            ("certificate", str(found.certificate)),
            *(("note", n) for n in (*loaded.notes, *found.notes)),
        ]
        show_facts(facts)
        if top:
            rows = [
                (timed(loaded, n), number(v, 6, up=True), _ratio(v, dp_epsilon))
                for n, v in found.per_record.top(top)
            ]
            show_table(
                ["record", "leakage", "in α"], rows, title="\nLargest leakages", right=["leakage", "in α"]
            )
        if len(found.by_method) > 1:
            by = [(n, number(v, 6, up=True)) for n, v in sorted(found.by_method.items(), key=lambda i: i[1])]
            show_table(
                ["method", "largest leakage"],
                by,
                title="\nThe whole model by each method (where one was not tried, by the best that was)",
                right=["largest leakage"],
            )


def _check(
    loaded: Model,
    model: str,
    calibration: Path,
    said: dict[str, tuple[str, str]],
    protect: Any,
    window: int,
    json: bool,
    limits: Limits,
) -> None:
    """Certify a calibration anew, and refuse one that leaks more than it says."""
    from quiltdp.accountant.verify import leakage_of
    from quiltdp.cli.holdout import read_calibration
    from quiltdp.cli.show import show_facts, show_line
    from quiltdp.numbers import shown_up

    given = next((name for name, (value, usual) in said.items() if value != usual), None)
    if given is not None:
        raise InvalidArgument(f"{given}: a calibration says its own; leave it out")
    read = read_calibration(calibration)
    span = window if window > 1 else None
    found = limits.answer(
        lambda: leakage_of(loaded, read, protect=protect, window=span, time_limit=limits.guard)
    )
    if found.epsilon > read.epsilon and not limits.reached:
        raise InvalidArgument(
            f"{calibration}: σ = {read.sigma:.6g} leaks up to {found.epsilon:.6g} on this model, more than"
            f" its ε = {read.epsilon:g}; calibrate again"
        )
    if json:
        extra = {"sigma": read.sigma, "promised": read.epsilon, "delta": read.delta}
        document = found.to_dict(10 if len(found.per_record) > 10_000 else None)
        notes = [*loaded.notes, *found.notes]
        emit_json("leakage", {"model": model, **document, **extra, "notes": notes}, limits.reached)
        return
    promise = f"ε = {read.epsilon:g}" + (f", δ = {read.delta:g}" if read.delta else "")
    holds = f"{promise} holds" if found.epsilon <= read.epsilon else f"{promise} is not decided"
    show_line(
        f"leakage ≤ {shown_up(found.epsilon)} at σ = {shown_up(read.sigma)}{read.each}: {holds}",
        style="bold green",
    )
    show_facts(
        [
            ("model", f"{model}: {len(loaded.records):,} records of {len(loaded.nodes):,} nodes"),
            ("mechanism", str(read.mechanism)),
            ("adversary", f"{found.adversary}; protects {found.protected}"),
            ("binding", f"{found.binding.unit}, method {found.binding.method}"),
            ("certificate", f"{found.certificate}; searched for as the calibration was made"),
            *(("note", n) for n in (*loaded.notes, *found.notes)),
        ]
    )


def _ratio(value: float, alpha: float) -> str:
    return f"{value / alpha:.4g}" if alpha > 0 else "–"
