"""``quiltdp calibrate MODEL --epsilon E``: how much noise is enough."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quiltdp.cli.accounting import protected_sets, with_time, witness_facts
from quiltdp.cli.app import emit_json
from quiltdp.cli.options import load
from quiltdp.cli.release import check_new_ledger
from quiltdp.cli.running import limited, progress_bar, worker_pool
from quiltdp.cli.show import listed, number, say, show_facts, show_line, show_table
from quiltdp.errors import InvalidArgument

if TYPE_CHECKING:
    from quiltdp.accountant.alternatives import Alternatives
    from quiltdp.accountant.bracket import Bracket
    from quiltdp.accountant.calibration import Calibration
    from quiltdp.accountant.composition import Concentrated
    from quiltdp.accountant.result import Binding
    from quiltdp.mechanisms import Mechanism
    from quiltdp.model import Model


def calibrate(
    model: str,
    *,
    epsilon: float,
    budget: int | None = None,
    sensitivity: float | None = None,
    query: str | None = None,
    mechanism: str | None = None,
    delta: float | None = None,
    releases: int = 1,
    method: str = "auto",
    adversary: str = "informed",
    window: int = 1,
    protect: list[str] | None = None,
    records: str | None = None,
    allele_frequency: list[str] | None = None,
    report: Path | None = None,
    ledger: Path | None = None,
    work: str = "normal",
    time_limit: float | None = None,
    allow_partial: bool = False,
    workers: int = 1,
    json: bool = False,
) -> None:
    """Find the noise that is enough: the smallest σ certified to leak at most ε about any record.

    The answer names the record that forces it, compares it with what independent records, group
    privacy and the published lemma would ask for, and says how it was certified.

    Release
    -------
    epsilon : E
        The Bayesian DP target: the leakage allowed.
    budget : B >= 1
        Thresholdout: how many answers may come from the holdout.
    sensitivity : D
        How far one record moves the query; default 1, for Thresholdout 1/records. A pedigree needs it or
        --query; of twins who share a record, how far each of them moves it.
    query : NAME|V,V,…
        Pedigrees: allele-count, carrier-count or genotype-histogram, whose sensitivity is known. Else what
        each state of a record adds to the sum that gets Laplace noise, in the order of the states: less
        noise than --sensitivity, for this sum only.
    mechanism : KIND
        laplace, gaussian, discrete-gaussian or thresholdout; default laplace, thresholdout with --budget.
    delta : D
        Gaussian, or several Laplace releases together: the δ allowed.
    releases : K >= 1
        How many equal releases share ε; σ is the scale to draw each of them with.

    Output
    ------
    report : FILE
        Also write the answer, its reasons and every record as one page to hand on (.html, no network).
    ledger : FILE
        Also make the ledger of these releases; it must not exist yet. (A holdout's: 'quiltdp plan --apply'.)

    Examples
    --------
    $ quiltdp calibrate models/asia.bif --epsilon 1 --budget 10
    $ quiltdp calibrate models/asia.bif --epsilon 1 --report asia.html
    $ quiltdp calibrate models/location_chain.json --epsilon 1 --window 6
    $ quiltdp calibrate models/pedigree/ceph1463.fam --allele-frequency 0.1 --query allele-count --epsilon 1
    $ quiltdp calibrate models/asia.bif --epsilon 1 --mechanism gaussian --delta 1e-6 --json
    $ quiltdp calibrate models/location_chain.json --epsilon 1 --mechanism gaussian --delta 1e-6 --releases 12
    """
    with limited(time_limit, allow_partial=allow_partial, json=json) as limits:
        import quiltdp as qd
        from quiltdp.accountant.alternatives import alternatives, near_group_privacy
        from quiltdp.accountant.bracket import quick_bracket

        if report is not None or ledger is not None:
            _check_files(model, report, ledger)
        loaded = load(model, records, allele_frequency)
        options = {"budget": budget, "sensitivity": sensitivity, "delta": delta}
        spec, together = _choose_mechanism(loaded, mechanism, query, releases, options)
        if ledger is not None and spec.answers is not None:
            raise InvalidArgument("--ledger: a reusable holdout has its own ('quiltdp plan --apply LEDGER')")
        sets = protected_sets(loaded, protect) or together
        with worker_pool(workers) as executor, progress_bar() as progress:
            asked: dict[str, Any] = {
                "method": method, "protect": sets, "window": window, "work": work, "time_limit": limits.guard,
            }  # fmt: skip
            how: dict[str, Any] = {"progress": progress, "executor": executor}
            found = limits.answer(
                lambda: qd.calibrate(
                    loaded, epsilon, spec, releases=releases, adversary=adversary, **asked, **how
                )
            )
            instead = None
            if near_group_privacy(found) and not limits.reached:
                instead = limits.answer(
                    lambda: alternatives(found, time_limit=limits.guard, executor=executor)
                )
            if report is not None:
                page = {"options": asked, "name": Path(model).name, "allow_partial": allow_partial, **how}
                limits.answer(lambda: _write_report(limits, found, report, loaded, page))
        if ledger is not None and limits.may_write(str(ledger)):
            from quiltdp.accountant.ledger import Ledger

            Ledger.create(ledger, found, model=loaded, protect=sets, window=window)
        attained = None if limits.reached else quick_bracket(found, loaded)
        files = {"report": report, "ledger": ledger} if limits.may_write() else {}
        written = {what: str(file) for what, file in files.items() if file is not None}
        if json:
            shared: dict[str, Any] = {"concentrated": found.concentrated().to_dict()}
            shared["bracket"] = None if attained is None else attained.to_dict()
            notes = [*loaded.notes, *found.notes]
            if instead is not None:
                shared |= instead.to_dict()
                notes = [*instead.describe(attained), *notes, *instead.notes]
            emit_json("calibration", {**found.to_dict(), **shared, "notes": notes, **written}, limits.reached)
            return
        cost = found.concentrated() if releases > 1 or found.delta else None
        _show_calibration(model, loaded, found, attained, instead, cost)
        for file in written.values():
            say(f"wrote {file}")


def _check_files(model: str, report: Path | None, ledger: Path | None) -> None:
    """Refuse files that cannot be written, before any work."""
    from quiltdp.io.replace import check_writable

    if report is not None:
        check_writable(report, model, ledger)
    if ledger is not None:
        check_writable(ledger, model)
        check_new_ledger(ledger)


def _write_report(limits: Any, found: Calibration, report: Path, model: Model, page: dict[str, Any]) -> None:
    from quiltdp.report.html_report import write_report

    if limits.may_write(str(report)):
        write_report(found, report, model, command=shlex.join(["quiltdp", *sys.argv[1:]]), **page)


def _choose_mechanism(
    model: Model, mechanism: str | None, query: str | None, releases: int, options: dict[str, Any]
) -> tuple[Mechanism, dict[str, tuple[str, ...]] | None]:
    """Return the mechanism that the options describe, and what is protected together.

    Several releases of a pure mechanism with a δ are composed under (ε, δ).
    """
    from quiltdp.mechanisms import Repeated, mechanism_from_options, mechanism_kinds

    budget, sensitivity, delta = options["budget"], options["sensitivity"], options["delta"]
    kind = mechanism or ("thresholdout" if budget is not None else "laplace")
    if query is not None and _query_values(query) is not None:
        if sensitivity is not None:
            raise InvalidArgument("the values of --query say what moves their sum: leave --sensitivity out")
        moves, together = {"values": _query_values(query)}, None
    else:
        moves, together = _query_sensitivity(model, sensitivity, query, budget, laplace=kind == "laplace")
    known = mechanism_kinds().get(kind)
    composed = releases > 1 and delta is not None and known is not None and known.pure
    options = {"budget": budget, **moves, "delta": None if composed else delta}
    spec = mechanism_from_options(kind, options, people=model.headcount)
    return Repeated(spec, releases, delta) if composed and delta is not None else spec, together


def _query_values(query: str) -> list[float] | None:
    """Return the values of a query that is written as numbers; None for a name."""
    try:
        return [float(v) for v in query.split(",")]
    except ValueError:
        if "," in query:
            raise InvalidArgument(f"--query {query!r}: write a name, or numbers between commas") from None
        return None


def _query_sensitivity(
    model: Model, sensitivity: float | None, query: str | None, budget: int | None, *, laplace: bool
) -> tuple[dict[str, Any], dict[str, tuple[str, ...]] | None]:
    """Return how far a record moves the query and what is protected together, or ask for the query."""
    genetic = {"loci", "founders"} <= model.provenance.keys()
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
        raise InvalidArgument(
            f"--query {query!r}: names are for pedigrees; give --sensitivity, or what each state adds (0,1,…)"
        )
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


def _show_calibration(
    path: str,
    model: Model,
    found: Calibration,
    bracket: Bracket | None = None,
    instead: Alternatives | None = None,
    cost: Concentrated | None = None,
) -> None:
    from quiltdp.accountant.adversaries import parse_adversary
    from quiltdp.numbers import format_up

    promise = f"ε = {found.epsilon:g}" + (f", δ = {found.delta:g}" if found.delta else "")
    show_line(
        f"σ = {format_up(found.sigma)}{found.each}   ({found.mechanism.scale_name}, for {promise})",
        style="bold green",
    )
    for line in () if instead is None else instead.describe(bracket):
        show_line(line, style="bold yellow")
    facts = [
        ("model", f"{path}: {len(model.records):,} records of {len(model.nodes):,} nodes"),
        ("mechanism", str(found.mechanism)),
        ("adversary", f"{found.adversary}; protects {found.protected}"),
    ]
    alone = found.mechanism.equivalent_scale(found.sigma)
    if found.mechanism.releases > 1 and alone is not None:
        facts.append(("one release", f"alone would take σ = {format_up(alone)}"))
    if isinstance(found.dp_epsilon, float):
        every = ", of all releases," if found.mechanism.releases > 1 else ""
        facts.append(
            (
                "plain DP",
                f"α = {found.dp_epsilon:.6g}{every} converts to a leakage of {format_up(found.leakage)}",
            )
        )
    if cost is not None:
        facts.append(("zCDP", str(cost)))
    facts.append(("forced by", f"{with_time(model, found.binding.unit)}, method {found.binding.method}"))
    if bracket is not None:
        facts.append(("bracket", str(bracket)))
    facts.extend(witness_facts(found.binding.witness))
    facts.append(("certificate", str(found.certificate)))
    beside = () if instead is None else instead.notes
    facts.extend(("note", n) for n in (*model.notes, *found.notes, *beside))
    show_facts(facts)
    rows = [("this answer", format_up(found.sigma), "1", _answer_remark("this answer"))]
    prior = parse_adversary(found.adversary).knows_nothing
    for name, sigma in found.compared.items():
        known = f"{name}, prior" if prior and name == "published" else name
        remark = _answer_remark(known)
        if name == "published" and found.published is not None:
            remark += _published_quilt_phrase(found.published)
        rows.append((_NAMES[known], f"{sigma:.6g}", f"{sigma / found.sigma:.3g}", remark))
    show_table(["answer", "σ", "× this", "remark"], rows, title="\nHow it compares", right=["σ", "× this"])
    if found.per_record:
        top = [(with_time(model, n), number(v, 6, up=True)) for n, v in found.per_record]
        show_table(["record", "leakage"], top, title="Largest leakages", right=["leakage"])


def _published_quilt_phrase(forced: Binding) -> str:
    """Return which quilt a published number used, with |N| and b."""
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


def _answer_remark(name: str) -> str:
    return {
        "this answer": "certified for correlated records",
        "independent": "plain DP: too little noise if records are correlated",
        "group": "treats the whole component as one record",
        "published": "|C| α + 4 b of the best quilt",
        "published, prior": "|C| α + influence of the best quilt",
    }.get(name, "")
