"""``quiltdp attack MODEL --dp-epsilon A``: what an explicit attack attains."""

from __future__ import annotations

from typing import Annotated, Any

from quiltdp.cli.accounting import Adversary, AsJson, ModelFile, Protect, Window, protection
from quiltdp.cli.app import emit_json, guarded
from quiltdp.cli.model_options import load, model_options
from quiltdp.cli.option_words import opt

__all__ = ["attack"]


@model_options
def attack(
    model: ModelFile,
    *,
    dp_epsilon: Annotated[float, opt("A", "α of the mechanism that is attacked.")],
    adversary: Adversary = "informed",
    window: Window = 1,
    protect: Protect = None,
    work: Annotated[str, opt("LEVEL", "How long to search: quick, normal or thorough.")] = "normal",
    json: AsJson = False,
    options: dict[str, Any],
) -> None:
    """Find an explicit mechanism and adversary, and tell what they attain: no bound can be below it.

    The output can be replayed: it names the record, the two values told apart, what the adversary
    knows, and how the mechanism reads every record.

    Examples
    --------
    $ quiltdp attack models/asia.bif --dp-epsilon 0.1
    $ quiltdp attack models/child.bif --dp-epsilon 0.1 --adversary prior --json
    $ quiltdp attack models/asia.bif --dp-epsilon 0.1 --protect lungs=lung,bronc
    """
    with guarded():
        import quiltdp as qd
        from quiltdp.accountant.units import positive_epsilon

        positive_epsilon(dp_epsilon, "dp_epsilon")
        loaded = load(model, **options)
        sets = protection(loaded, protect)
        found = qd.attack(loaded, dp_epsilon, adversary, protect=sets, window=window, work=work)
        if json:
            emit_json("attack", found.to_dict())
            return
        from quiltdp.cli.show import number, show_facts, show_line

        show_line(
            f"leakage ≥ {number(found.leakage, 6, down=True)}   (attained, for α = {dp_epsilon:g})",
            style="bold green",
        )
        known = ", ".join(f"{n} = {v}" for n, v in found.knows.items()) or "nothing"
        read = {n: t for n, t in found.mechanism.items() if len(set(t.values())) > 1}
        show_facts(
            [
                ("adversary", f"{found.adversary}; knows {known}"),
                ("about", f"{found.target}: {found.values[0]} or {found.values[1]}"),
                ("mechanism", f"reads {len(read)} of {len(loaded.records):,} records, each by at most its α"),
                *((n, ", ".join(s for s, v in t.items() if v > 0)) for n, t in list(read.items())[:12]),
            ]
        )
