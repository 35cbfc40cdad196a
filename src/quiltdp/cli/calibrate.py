"""``quiltdp calibrate MODEL --epsilon E``: how much noise is enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from quiltdp.cli.accounting import (
    Adversary,
    AsJson,
    Method,
    ModelFile,
    Protect,
    TimeLimit,
    Window,
    progress_bar,
    protection,
    witness_facts,
)
from quiltdp.cli.app import emit_json, guarded
from quiltdp.cli.model_options import load, model_options
from quiltdp.cli.twins import most_people, people, twin_warning

if TYPE_CHECKING:
    from quiltdp.accountant.calibration import Calibration
    from quiltdp.accountant.specs import MechanismSpec
    from quiltdp.model import Model

__all__ = ["calibrate"]


@model_options
def calibrate(
    model: ModelFile,
    *,
    epsilon: Annotated[float, typer.Option(metavar="E", help="The Bayesian DP target: the leakage allowed.")],
    budget: Annotated[
        int | None,
        typer.Option(metavar="B", min=1, help="Thresholdout: how many answers may come from the holdout."),
    ] = None,
    sensitivity: Annotated[
        float | None,
        typer.Option(
            metavar="D",
            help="How far one record moves the query; default 1, for Thresholdout 1/records"
            " (times 2 where monozygotic twins share a record).",
            show_default=False,
        ),
    ] = None,
    mechanism: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="laplace, gaussian or thresholdout; default laplace, thresholdout with --budget.",
            show_default=False,
        ),
    ] = None,
    delta: Annotated[
        float | None, typer.Option(metavar="D", help="Gaussian: the δ allowed.", show_default=False)
    ] = None,
    method: Method = "auto",
    adversary: Adversary = "informed",
    window: Window = 1,
    protect: Protect = None,
    time_limit: TimeLimit = 30.0,
    json: AsJson = False,
    options: dict[str, Any],
) -> None:
    """Find the noise that is enough: the smallest σ certified to leak at most ε about any record.

    The answer names the record that forces it, compares it with what independent records, group
    privacy and the published lemma would ask for, and says how it was certified.

    Examples
    --------
    $ quiltdp calibrate models/asia.bif --epsilon 1 --budget 10
    $ quiltdp calibrate models/location_chain.json --epsilon 1 --window 6
    $ quiltdp calibrate models/pedigree/ceph1463.fam --allele-frequency 0.1 --epsilon 1
    $ quiltdp calibrate models/asia.bif --epsilon 1 --mechanism gaussian --delta 1e-6 --json
    """
    with guarded():
        import quiltdp as qd

        loaded = load(model, **options)
        spec = _spec(loaded, mechanism, budget, sensitivity, delta)
        warning = twin_warning(loaded, "--sensitivity", spec.max_sensitivity, chosen=sensitivity is None)
        with progress_bar() as progress:
            found = qd.calibrate(
                loaded,
                epsilon,
                spec,
                method=method,
                adversary=adversary,
                protect=protection(loaded, protect),
                window=window,
                time_limit=time_limit,
                progress=progress,
            )
        if json:
            document = {k: v for k, v in found.to_dict().items() if k not in ("schema", "version")}
            emit_json("calibration", {**document, "notes": [*warning, *loaded.notes, *found.notes]})
        else:
            _show(model, loaded, found, warning)


def _spec(
    model: Model, mechanism: str | None, budget: int | None, sensitivity: float | None, delta: float | None
) -> MechanismSpec:
    """Return the mechanism the options describe, or refuse options that do not belong together."""
    from quiltdp.accountant.specs import Gaussian, Laplace, Thresholdout
    from quiltdp.errors import InvalidArgument

    kind = mechanism or ("thresholdout" if budget is not None else "laplace")
    if kind not in ("laplace", "gaussian", "thresholdout"):
        raise InvalidArgument(f"--mechanism {kind!r}: choose laplace, gaussian or thresholdout")
    if budget is not None and kind != "thresholdout":
        raise InvalidArgument(f"--budget belongs to thresholdout, not to {kind}")
    if delta is not None and kind != "gaussian":
        raise InvalidArgument(f"--delta belongs to gaussian, not to {kind}")
    most = most_people(model)
    if kind == "thresholdout":
        if budget is None:
            raise InvalidArgument("thresholdout needs --budget: how many answers may come from the holdout")
        return Thresholdout(budget, sensitivity if sensitivity is not None else most / people(model))
    if kind == "gaussian":
        if delta is None:
            raise InvalidArgument("gaussian needs --delta, for example --delta 1e-6")
        return Gaussian(sensitivity if sensitivity is not None else float(most), delta)
    return Laplace(sensitivity if sensitivity is not None else float(most))


def _show(path: str, model: Model, found: Calibration, warning: tuple[str, ...]) -> None:
    from quiltdp.accountant.specs import Gaussian
    from quiltdp.cli.show import number, show_facts, show_line, show_table

    kind = "standard deviation" if isinstance(found.mechanism, Gaussian) else "Laplace scale"
    promise = f"ε = {found.epsilon:g}" + (f", δ = {found.delta:g}" if found.delta else "")
    show_line(f"σ = {found.sigma:.6g}   ({kind}, for {promise})", style="bold green")
    for line in warning:
        show_line(line, style="bold yellow")
    facts = [
        ("model", f"{path}: {len(model.records):,} records of {len(model.nodes):,} nodes"),
        ("mechanism", str(found.mechanism)),
        ("adversary", f"{found.adversary}; protects {found.protected}"),
    ]
    if isinstance(found.dp_epsilon, float):
        facts.append(("plain DP", f"α = {found.dp_epsilon:.6g} converts to a leakage of {found.leakage:.6g}"))
    facts.append(("forced by", f"{found.binding.unit}, method {found.binding.method}"))
    facts.extend(witness_facts(found.binding.witness))
    facts.append(("certificate", str(found.certificate)))
    facts.extend(("note", n) for n in (*model.notes, *found.notes))
    show_facts(facts)
    rows = [("this answer", f"{found.sigma:.6g}", "1", _remark("this answer"))]
    for name, sigma in found.compared.items():
        known = f"{name}, prior" if (found.adversary, name) == ("prior", "published") else name
        rows.append((_NAMES[known], f"{sigma:.6g}", f"{sigma / found.sigma:.3g}", _remark(known)))
    show_table(["answer", "σ", "× this", "remark"], rows, title="\nHow it compares", right=["σ", "× this"])
    if found.per_record:
        top = [(n, number(v, 6)) for n, v in found.per_record]
        show_table(["record", "leakage"], top, title="Largest leakages", right=["leakage"])


_NAMES = {
    "independent": "independent records",
    "group": "group privacy",
    "published": "published lemma",
    "published, prior": "Markov Quilt Mechanism",
}


def _remark(name: str) -> str:
    return {
        "this answer": "certified for correlated records",
        "independent": "plain DP: too little noise if records are correlated",
        "group": "treats the whole component as one record",
        "published": "|C| α + 4 b of the best quilt",
        "published, prior": "|C| α + influence of the best quilt",
    }.get(name, "")
