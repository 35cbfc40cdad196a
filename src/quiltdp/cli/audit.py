"""``quiltdp audit MODEL``: every bound beside the exact limit (small models) and an attack."""

from __future__ import annotations

from typing import Annotated, Any

from quiltdp.cli.accounting import Adversary, AsJson, ModelFile, Work, WorkerCount, progress_bar
from quiltdp.cli.app import emit_json, guarded
from quiltdp.cli.limits import TimeLimit, limited
from quiltdp.cli.model_options import load, model_options
from quiltdp.cli.option_words import opt

__all__ = ["audit"]


@model_options
def audit(
    model: ModelFile,
    *,
    dp_epsilon: Annotated[float, opt("A", "α, the mechanism's DP guarantee for one record.")] = 0.1,
    adversary: Adversary = "informed",
    work: Work = "normal",
    time_limit: TimeLimit = None,
    workers: WorkerCount = 1,
    json: AsJson = False,
    options: dict[str, Any],
) -> None:
    """Compare every method with the exact limit (small models) and with what an attack attains.

    The limit is the worst α-DP mechanism against the worst adversary; the Laplace-sum row is the
    exact leakage of adding up all records and adding Laplace noise. On larger models an explicit
    attack takes the place of the limit: no bound can be below what it attains.

    Examples
    --------
    $ quiltdp audit models/earthquake.bif
    $ quiltdp audit models/cancer.bif --dp-epsilon 1 --adversary prior
    """
    with guarded(), limited(time_limit, json=json) as limits:
        from quiltdp import parallel
        from quiltdp.accountant.audit import audit as audit_of

        loaded = load(model, **options)
        with parallel.workers(workers) as executor, progress_bar() as progress:
            how: dict[str, Any] = {"time_limit": limits.guard, "progress": progress, "executor": executor}
            found = limits.answer(lambda: audit_of(loaded, dp_epsilon, adversary, work=work, **how))
        if json:
            emit_json("audit", {"model": model, **found.to_dict()}, limits.reached)
            return
        from quiltdp.cli.show import number, show_line, show_table

        rows = []
        reached = None if found.bracket is None else found.bracket.attained
        yardstick = found.limit if found.limit is not None else reached
        name = "limit" if found.limit is not None else "attack"
        if found.laplace_sum is not None:
            sum_leaks = number(found.laplace_sum, 6)
            rows.append(
                ("the Laplace-sum mechanism leaks", sum_leaks, _ratio(found.laplace_sum, yardstick), "")
            )
        if reached is not None:
            told = _ratio(reached, yardstick)
            rows.append(
                ("an attack attains", number(reached, 6, down=True), told, "no bound can be below it")
            )
        if found.limit is not None:
            rows.append(("the limit", number(found.limit, 6, up=True), "1", "no α-DP mechanism leaks more"))
        for row in found.rows:
            if row.epsilon is None:
                rows.append((row.method, "–", "–", row.note))
            else:
                rows.append(
                    (row.method, number(row.epsilon, 6, up=True), _ratio(row.epsilon, yardstick), row.kind)
                )
        show_table(
            ["method", "leakage", f"× {name}", "remark"],
            rows,
            title=f"{model} at α = {dp_epsilon:g}, {adversary} adversary",
            right=["leakage", f"× {name}"],
        )
        if found.bracket is not None:
            show_line(f"bracket: {found.bracket}")
        if found.sound:
            show_line(f"no bound is below the {name}" if yardstick is not None else "there is no yardstick")
        else:
            show_line(f"A BOUND IS BELOW THE {name.upper()}: report this")


def _ratio(value: float, limit: float | None) -> str:
    return f"{value / limit:.4g}" if limit else "–"
