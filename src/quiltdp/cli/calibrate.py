"""``quiltdp calibrate MODEL --epsilon E``: how much noise is enough."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

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
    timed,
    witness_facts,
    worker_pool,
)
from quiltdp.cli.app import emit_json, guarded
from quiltdp.cli.limits import MemoryLimit, TimeLimit, limited
from quiltdp.cli.model_options import load, model_options
from quiltdp.cli.option_words import opt, switch

if TYPE_CHECKING:
    from quiltdp.accountant.alternatives import Alternatives
    from quiltdp.accountant.bracket import Bracket
    from quiltdp.accountant.calibration import Calibration
    from quiltdp.accountant.composition import Concentrated
    from quiltdp.accountant.result import Binding
    from quiltdp.mechanisms import Mechanism
    from quiltdp.model import Model

__all__ = ["calibrate", "chosen_mechanism"]


@model_options
def calibrate(
    model: ModelFile,
    *,
    epsilon: Epsilon,
    budget: Budget = None,
    sensitivity: Annotated[
        float | None,
        opt(
            "D",
            "How far one record moves the query; default 1, for Thresholdout 1/records. A pedigree needs it"
            " or --query; of twins who share a record, how far each of them moves it.",
        ),
    ] = None,
    query: QueryName = None,
    values: Annotated[
        str | None,
        opt(
            "V,V,…",
            "What each state of a record adds to the sum that gets Laplace noise, in the order of the states:"
            " less noise than --sensitivity, for this sum only.",
        ),
    ] = None,
    mechanism: Annotated[
        str | None,
        opt(
            "KIND",
            "laplace, gaussian, discrete-gaussian or thresholdout; default laplace, thresholdout with"
            " --budget.",
        ),
    ] = None,
    delta: Annotated[
        float | None, opt("D", "Gaussian, or several Laplace releases together: the δ allowed.")
    ] = None,
    releases: Annotated[
        int, opt("K", "How many equal releases share ε; σ is the scale to draw each of them with.", min=1)
    ] = 1,
    disjoint: Annotated[bool, switch("--disjoint", "No record is read by two of the releases.")] = False,
    renyi: Annotated[
        bool, switch("--renyi", "Also the Rényi DP (RDP) of one release and of all, order by order.")
    ] = False,
    method: Method = "auto",
    adversary: Adversary = "informed",
    window: Window = 1,
    protect: Protect = None,
    work: Work = "normal",
    time_limit: TimeLimit = None,
    memory_limit: MemoryLimit = None,
    workers: WorkerCount = 1,
    bracket: Annotated[
        bool | None,
        switch(
            "--bracket/--no-bracket",
            "Also attack: what no method can be below; by default a short attack on narrow models.",
        ),
    ] = None,
    adversaries: Annotated[
        bool, switch("--adversaries", "Also σ against prior, knows:1, knows:2 and informed adversaries.")
    ] = False,
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
    $ quiltdp calibrate models/pedigree/ceph1463.fam --allele-frequency 0.1 --query allele-count --epsilon 1
    $ quiltdp calibrate models/asia.bif --epsilon 1 --mechanism gaussian --delta 1e-6 --json
    $ quiltdp calibrate models/location_chain.json --epsilon 1 --mechanism gaussian --delta 1e-6 --releases 12
    """
    with guarded(), limited(time_limit, memory_limit, json=json) as limits:
        import quiltdp as qd
        from quiltdp.accountant.alternatives import alternatives, at_group_privacy
        from quiltdp.errors import InvalidArgument

        if disjoint and releases == 1:
            raise InvalidArgument("--disjoint is about several releases: give --releases K too")
        loaded = load(model, **options)
        several = releases if not disjoint else 1
        spec, together = chosen_mechanism(
            loaded, mechanism, budget, sensitivity, query, delta, several, values
        )
        with worker_pool(workers) as executor, progress_bar() as progress:
            asked: dict[str, Any] = {
                "method": method,
                "protect": protection(loaded, protect) or together,
                "window": window,
                "work": work,
                "time_limit": limits.guard,
                "progress": progress,
                "executor": executor,
            }
            asked |= {"adversary": adversary}
            shares: dict[str, Any] = {"releases": releases, "disjoint": disjoint}
            found = limits.answer(lambda: qd.calibrate(loaded, epsilon, spec, **shares, **asked))
            others: tuple[Calibration, ...] = ()
            if adversaries:
                from quiltdp.accountant.compare import calibrate_adversaries

                rest = {"compare": False, "known": [found], **asked}
                del rest["adversary"]
                noise = found.mechanism
                others = limits.answer(lambda: calibrate_adversaries(loaded, epsilon, noise, **rest))
            instead = None
            if at_group_privacy(found) and not limits.reached:
                how: dict[str, Any] = {"time_limit": limits.guard, "executor": executor}
                instead = limits.answer(lambda: alternatives(found, **how))
        attained = None if limits.reached else _bracket(loaded, found, bracket)
        if json:
            shared: dict[str, Any] = {"concentrated": found.concentrated().to_dict()}
            shared["bracket"] = None if attained is None else attained.to_dict()
            notes = [*loaded.notes, *found.notes]
            if instead is not None:
                shared |= instead.to_dict()
                notes = [*instead.says(attained), *notes, *instead.notes]
            if adversaries:
                shared["adversaries"] = [_compared(c) for c in others]
            emit_json("calibration", {**found.to_dict(), **shared, "notes": notes}, limits.reached)
        else:
            cost = found.concentrated() if releases > 1 or renyi or found.delta else None
            _show(model, loaded, found, attained, instead, cost)
            if cost is not None and renyi:
                _show_renyi(cost)
            if others:
                _show_adversaries(others, found.notes)


def chosen_mechanism(
    model: Model,
    mechanism: str | None,
    budget: int | None,
    sensitivity: float | None,
    query: str | None,
    delta: float | None,
    releases: int = 1,
    values: str | None = None,
) -> tuple[Mechanism, dict[str, tuple[str, ...]] | None]:
    """Return the mechanism that the options describe, and what is protected together.

    Several releases of a pure mechanism with a δ are composed under (ε, δ).
    """
    from quiltdp.mechanisms import Repeated, mechanism_from_options, mechanism_kinds

    kind = mechanism or ("thresholdout" if budget is not None else "laplace")
    if values is None:
        moves, together = _moves(model, sensitivity, query, budget, laplace=kind == "laplace")
    else:
        moves, together = {"values": _numbers(values, sensitivity, query)}, None
    made = mechanism_kinds().get(kind)
    composed = releases > 1 and delta is not None and made is not None and made.pure
    given = {"budget": budget, **moves, "delta": None if composed else delta}
    spec = mechanism_from_options(kind, given, people=model.headcount)
    return Repeated(spec, releases, delta) if composed and delta is not None else spec, together


def _numbers(values: str, sensitivity: float | None, query: str | None) -> list[float]:
    from quiltdp.errors import InvalidArgument

    if sensitivity is not None or query is not None:
        raise InvalidArgument("--values say what moves their sum: leave --sensitivity and --query out")
    try:
        return [float(v) for v in values.split(",")]
    except ValueError:
        raise InvalidArgument(f"--values must be numbers between commas, not {values!r}") from None


def _moves(
    model: Model, sensitivity: float | None, query: str | None, budget: int | None, *, laplace: bool
) -> tuple[dict[str, Any], dict[str, tuple[str, ...]] | None]:
    """Return how far a record moves the query and what is protected together, or ask for the query."""
    from quiltdp.errors import InvalidArgument

    genetic = model.provenance.get("format", "").endswith(" pedigree")
    if query is None:
        if genetic and sensitivity is None and budget is None:
            raise InvalidArgument(
                "a genotype moves every query by its own amount: name the query (--query allele-count moves"
                " by 2 per person and locus, carrier-count by 1), or give --sensitivity"
            )
        return {"sensitivity": sensitivity}, None
    if sensitivity is not None or budget is not None:
        raise InvalidArgument("--query knows its sensitivity: leave --sensitivity and --budget out")
    if not genetic:
        raise InvalidArgument("--query is for pedigrees: give --sensitivity for other models")
    from quiltdp.domains.pedigree.queries import query_by_name

    chosen = query_by_name(model, query)
    together = dict(chosen.protect) if chosen.loci > 1 else None
    values = chosen.mechanism.values
    if laplace and isinstance(values, Mapping):
        of_one = {tuple(v / model.people.get(r, 1) for v in own) for r, own in values.items()}
        return {"values": of_one.pop() if len(of_one) == 1 and together is None else values}, together
    if together is None and len({d / model.people.get(r, 1) for r, d in chosen.sensitivities.items()}) == 1:
        return {"sensitivity": chosen.sensitivity}, None
    return {"sensitivity": dict(chosen.sensitivities)}, together


def _bracket(model: Model, found: Calibration, asked: bool | None) -> Bracket | None:
    """Return what an attack at the same cost attains, beside what was certified, if asked or if cheap."""
    from quiltdp.accountant.bracket import quick_bracket

    if asked:
        return found.bracket()
    if asked is False:
        return None
    return quick_bracket(found, model)


def _compared(found: Calibration) -> dict[str, Any]:
    """Return what is told of a calibration that stands beside others."""
    return {
        "adversary": found.adversary,
        "sigma": found.sigma,
        "leakage": found.leakage,
        "dp_epsilon": found.dp_epsilon,
        "method": found.method,
        "binding": found.binding.unit,
        "stage": found.certificate.stage,
        "notes": list(found.notes),
    }


def _show_renyi(cost: Concentrated) -> None:
    from quiltdp.cli.show import show_table

    rows = [(f"{a:g}", f"{each:.6g}", f"{together:.6g}") for a, each, together in cost.curve]
    title = "Rényi DP in one record, before any correlation"
    show_table(
        ["order", "one release", "together"], rows, title=title, right=["order", "one release", "together"]
    )


def _show_adversaries(found: tuple[Calibration, ...], said: tuple[str, ...]) -> None:
    """Show one row per adversary, and beneath what their notes say that was not ``said`` yet."""
    from quiltdp.cli.show import show_facts, show_table
    from quiltdp.numbers import shown_up

    says = {
        "prior": "knows the model only",
        "knows:1": "knows any one record",
        "knows:2": "knows any two records",
        "informed": "knows any records",
    }
    rows = [
        (c.adversary, shown_up(c.sigma), c.binding.unit, c.method, says.get(c.adversary, "")) for c in found
    ]
    columns = ["adversary", "σ", "forced by", "method", "remark"]
    show_table(columns, rows, title="What the adversary may know", right=["σ"])
    stages = ", ".join(f"{c.adversary} {c.certificate.stage}" for c in found)
    notes = [(c.adversary, note) for c in found for note in c.notes if note not in said]
    show_facts([("stages", stages), *notes])


def _show(
    path: str,
    model: Model,
    found: Calibration,
    bracket: Bracket | None = None,
    instead: Alternatives | None = None,
    cost: Concentrated | None = None,
) -> None:
    from quiltdp.accountant.adversaries import adversary_from
    from quiltdp.cli.show import number, show_facts, show_line, show_table
    from quiltdp.numbers import shown_up

    promise = f"ε = {found.epsilon:g}" + (f", δ = {found.delta:g}" if found.delta else "")
    show_line(
        f"σ = {shown_up(found.sigma)}{found.each}   ({found.mechanism.scale_name}, for {promise})",
        style="bold green",
    )
    for line in () if instead is None else instead.says(bracket):
        show_line(line, style="bold yellow")
    facts = [
        ("model", f"{path}: {len(model.records):,} records of {len(model.nodes):,} nodes"),
        ("mechanism", str(found.mechanism)),
        ("adversary", f"{found.adversary}; protects {found.protected}"),
    ]
    alone = found.mechanism.alone(found.sigma)
    if found.mechanism.releases > 1 and alone is not None:
        facts.append(("one release", f"alone would take σ = {shown_up(alone)}"))
    if isinstance(found.dp_epsilon, float):
        every = ", of all releases," if found.mechanism.releases > 1 else ""
        facts.append(
            (
                "plain DP",
                f"α = {found.dp_epsilon:.6g}{every} converts to a leakage of {shown_up(found.leakage)}",
            )
        )
    if cost is not None:
        facts.append(("zCDP", str(cost)))
    facts.append(("forced by", f"{timed(model, found.binding.unit)}, method {found.binding.method}"))
    if bracket is not None:
        facts.append(("bracket", str(bracket)))
    facts.extend(witness_facts(found.binding.witness))
    facts.append(("certificate", str(found.certificate)))
    beside = () if instead is None else instead.notes
    facts.extend(("note", n) for n in (*model.notes, *found.notes, *beside))
    show_facts(facts)
    rows = [("this answer", shown_up(found.sigma), "1", _remark("this answer"))]
    prior = adversary_from(found.adversary).knows_nothing
    for name, sigma in found.compared.items():
        known = f"{name}, prior" if prior and name == "published" else name
        remark = _remark(known)
        if name == "published" and found.published is not None:
            remark += _quilt(found.published)
        rows.append((_NAMES[known], f"{sigma:.6g}", f"{sigma / found.sigma:.3g}", remark))
    show_table(["answer", "σ", "× this", "remark"], rows, title="\nHow it compares", right=["σ", "× this"])
    if found.per_record:
        top = [(timed(model, n), number(v, 6, up=True)) for n, v in found.per_record]
        show_table(["record", "leakage"], top, title="Largest leakages", right=["leakage"])


def _quilt(forced: Binding) -> str:
    """Return which quilt a published number used, with |N| and b."""
    from quiltdp.cli.show import listed, number

    quilt = forced.witness
    if "nearby_records" not in quilt:
        return ""
    around = f"{{{listed(quilt['separator'])}}}" if quilt["separator"] else "the whole component"
    return f": {forced.unit}, {around}, |N| = {quilt['nearby_records']:,}, b = {number(quilt['b'], up=True)}"


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
