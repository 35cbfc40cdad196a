"""What the report says, as one JSON-ready dictionary: every number in it is a certified one."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

from quiltdp import __version__
from quiltdp.accountant.attack import attack
from quiltdp.accountant.bracket import quick_bracket
from quiltdp.accountant.calibration import Calibration
from quiltdp.accountant.result import jsonable
from quiltdp.errors import QuiltdpError
from quiltdp.graph.components import component_classes
from quiltdp.graph.moral import moralize
from quiltdp.graph.quilt import Quilt
from quiltdp.graph.quilts import quilts
from quiltdp.graph.types import DependencyGraph
from quiltdp.inference.influence import quilt_influence
from quiltdp.inference.witness import QuiltInfluence
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model
from quiltdp.numbers import format_down
from quiltdp.report.places import Picture, place_nodes, state_map
from quiltdp.report.report_analyses import (
    STEPS,
    ReportAnswers,
    ReportRequest,
    answer_report_questions,
    attackable_part,
    noise_for_wrong_models,
    theorem_of,
)

_DETAILS = 200  # records whose quilt is described
_ROWS = 20_000  # records in the table
_REMOTE = 12  # remote records named


def report_data(
    request: ReportRequest,
    progress: Callable[[str, float], None] | None = None,
    executor: Executor | None = None,
) -> dict[str, Any]:
    """Return what the page shows: answer, comparison, curves, picture, records, assumptions."""
    tell = progress or (lambda label, share: None)
    cal, model = request.calibration, request.model
    answers = answer_report_questions(request, executor, lambda label, share: tell(label, 0.8 * share))
    tell("picture", 0.8)
    leaks = dict(answers.leakage.get(cal.adversary, {}))
    picture = place_nodes(model, leaks)
    rows, says = _record_rows(cal, answers)
    tell("models nearby", 0.85)
    wrong = noise_for_wrong_models(cal, model, request.options, executor)
    tell("quilts", 0.9)
    data = {
        "title": request.name,
        "sigma": cal.sigma,
        "scale_name": cal.mechanism.scale_name + cal.each,
        "sentence": _promise_sentence(cal, len(model.records)),
        "bars": _comparison_bars(cal, answers),
        "bracket": bracket_facts(cal, model),
        "targets": _sigma_by_target(cal, answers),
        "leakage": _leakage_curves(request, answers),
        "graph": _graph_data(model, picture, leaks),
        "records": rows,
        "records_say": says,
        "details": _record_details(model, cal, [r["name"] for r in rows[:_DETAILS]]),
        "binding": cal.binding.unit if cal.binding.unit in leaks else None,
        "assumptions": [*_assumption_rows(cal, model), *_limit_notes(answers)],
        "how": _method_rows(cal),
        "command": request.command,
        "theorem": theorem_of(cal),
        "map": state_map(model),
        "wrong": wrong,
    }
    tell("done", 1.0)
    plain: dict[str, Any] = jsonable(data)
    return plain


def _sigma_by_target(cal: Calibration, answers: ReportAnswers) -> dict[str, Any]:
    sigmas = {step: cal.sigma if step == 1.0 else answers.sigma[cal.adversary, step] for step in STEPS}
    pairs = [(cal.epsilon * step, sigma) for step, sigma in sigmas.items() if sigma is not None]
    return {
        "epsilon": [e for e, _ in pairs],
        "sigma": [s for _, s in pairs],
        "chosen": next(k for k, (e, _) in enumerate(pairs) if e == cal.epsilon),
    }


def _leakage_curves(request: ReportRequest, answers: ReportAnswers) -> dict[str, Any]:
    """Return leakage against α, one line per adversary; nothing where the mechanism is not pure."""
    alpha = request.calibration.dp_epsilon
    if alpha is None:
        return {"alpha": [], "series": []}
    top = max(alpha.values()) if isinstance(alpha, Mapping) else alpha
    alphas = [top * step for step in STEPS]
    series = [
        {"label": f"to the {who} adversary", "values": [answers.epsilon[who, step] for step in STEPS]}
        for who in request.adversaries
    ]
    return {"alpha": alphas, "series": [*series, {"label": "independent records", "values": alphas}]}


def _promise_sentence(cal: Calibration, records: int) -> str:
    unit = "a record" if cal.protected == "single records" else f"a protected unit ({cal.protected})"
    promise = f"ε = {cal.epsilon:g}" + (f", δ = {cal.delta:g}" if cal.delta else "")
    who = {
        "informed": "someone who knows the model and any of the other records",
        "prior": "someone who knows the model but none of the records",
    }.get(cal.adversary, f"someone who knows the model and {cal.adversary.removeprefix('knows').strip(':=')}")
    return (
        f"With noise of this size, what is published about these {records:,} correlated records moves the"
        f" odds that {who} gives to any two values of {unit} by a factor of at most"
        f" {math.exp(min(cal.epsilon, 700.0)):.4g} ({promise})."
    )


def _comparison_bars(cal: Calibration, answers: ReportAnswers) -> list[dict[str, Any]]:
    compared = cal.compared
    bars: list[dict[str, Any]] = []

    def add_bar(label: str, sigma: float | None, remark: str, ours: bool = False) -> None:
        if sigma is not None:
            bars.append({"label": label, "sigma": sigma, "remark": remark, "ours": ours})

    add_bar("independent records", compared.get("independent"), "too little if records are correlated")
    lines: list[tuple[str, float | None, bool]] = [(cal.adversary, cal.sigma, True)]
    lines += [(who, sigma, False) for (who, step), sigma in answers.sigma.items() if step == 1.0]
    for who, sigma, ours in sorted(lines, key=lambda line: line[0] != "prior"):
        add_bar(f"quiltdp, {who}", sigma, "this answer" if ours else "for comparison", ours)
    add_bar("published lemma", compared.get("published"), "|C| α + 4 b of the best quilt")
    add_bar("group privacy", compared.get("group"), "the whole component as one record")
    return bars


def bracket_facts(cal: Calibration, model: Model) -> dict[str, Any]:
    """Say how close the certified number is to what an explicit attack attains."""
    attained = _attained_leakage(cal, model)
    if not attained:
        says = "No attack was run beside this answer: the true leakage may be smaller than the certified one."
        return {"certified": cal.leakage, "attained": None, "says": says}
    more, part = 100.0 * (cal.leakage / attained - 1.0), attained / cal.leakage
    close = "less than 0.1 %" if more < 0.1 else f"at most {more:.3g} %"
    leaks = "as much" if part >= 0.999 else f"{format_down(100.0 * part, 3)} % of it"
    who = (
        "no mechanism with this noise"
        if cal.delta == 0.0
        else f"at δ = {cal.delta:g} no query with this noise"
    )
    return {
        "certified": cal.leakage,
        "attained": attained,
        "says": f"Certified: {who} leaks more. Attained: an explicit attack leaks {leaks}."
        f" The answer is {close} above the best possible.",
    }


def _attained_leakage(cal: Calibration, model: Model) -> float | None:
    """Return what an attack beside the answer attains, on what forces it or on what is protected."""
    if cal.mechanism.prices(model):  # an attack would choose a mechanism of its own, not this sum
        return None
    try:
        if cal.dp_epsilon is None or cal.protected != "single records":
            bracket = quick_bracket(cal, model)
            return None if bracket is None else bracket.attained
        part = attackable_part(model, cal.binding.unit)
        if part is None:
            return None
        alpha = cal.dp_epsilon
        own = {n: alpha[n] for n in part.records} if isinstance(alpha, Mapping) else alpha
        return attack(part, own, cal.adversary, work="quick").leakage
    except QuiltdpError:  # no junction tree of affordable width, or records that are known elsewhere
        return None


def _graph_data(model: Model, picture: Picture, leaks: Mapping[str, float]) -> dict[str, Any]:
    nodes = []
    for mark, (x, y) in picture.places.items():
        inside = picture.parts.get(mark, (mark,))
        known = [leaks[n] for n in inside if n in leaks]
        latent = len(inside) == 1 and not model.is_record(mark)
        nodes.append(
            {
                "id": mark,
                "label": mark if len(mark) <= 24 else mark[:23] + "…",
                "x": x,
                "y": y,
                "shape": "round-rectangle" if len(inside) > 1 else "ellipse",
                "latent": latent,
                "leaks": max(known) if known else None,
            }
        )
    says = {
        "pedigree": "Parents stand above their children.",
        "strip": "Time runs from left to right"
        + (
            "; each mark stands for many steps, coloured by the one that leaks most."
            if picture.parts
            else "."
        ),
        "network": "Parents stand above their children."
        if model.directed
        else "Neighbours depend on each other.",
    }[picture.kind]
    left = f" {picture.left_out:,} nodes are not drawn; all records are in the table." * bool(
        picture.left_out
    )
    return {
        "kind": picture.kind,
        "says": f"{says} Redder records leak more.{left}",
        "nodes": nodes,
        "edges": [list(e) for e in picture.edges],
        "bins": {mark: list(names) for mark, names in picture.parts.items()},
    }


def _record_rows(cal: Calibration, answers: ReportAnswers) -> tuple[list[dict[str, Any]], str]:
    """Return the table's rows, the ones that leak most to the chosen adversary first."""
    if not answers.leakage:
        return [], "Every record has the same (ε, δ): there is no table for this mechanism."
    own = answers.leakage[cal.adversary]
    rows: list[dict[str, Any]] = []
    for name, leak in own.top(_ROWS):
        to = {who: leaks[name] for who, leaks in answers.leakage.items()}
        rows.append({"name": name, "leaks": leak, "leaks_to": to, "method": None})
    if rows:
        rows[0]["method"] = cal.binding.method
    left = len(own) - len(rows)
    return rows, f"{len(own):,} in all" + (f"; the {left:,} that leak least are left out" if left else "")


def _record_details(model: Model, cal: Calibration, names: Sequence[str]) -> dict[str, Any]:
    """Describe a quilt of each record: the one that forces the answer, or the record's Markov blanket."""
    details: dict[str, Any] = {}
    parts = _ComponentQuilts(model)
    for name in names:
        if name not in model.index:
            continue  # a window or a named set
        described = parts.describe_quilt(name)
        if described is not None:
            details[name] = described
    witness = cal.binding.witness
    if cal.binding.unit in details and "closed" in witness:
        separator, closed = frozenset(witness["separator"]), frozenset(witness["closed"])
        rest = [n for n in model.nodes if n not in separator and n not in closed]
        described = _quilt_data(separator, closed - {cal.binding.unit}, rest, None, witness["swing"])
        details[cal.binding.unit] = described
    if witness and cal.binding.unit in model.index:
        own = details.setdefault(cal.binding.unit, {})
        own["known"] = [str(n) for n in witness["known"]] if "known" in witness else None
        own["told_apart"] = _worst_pair_of_states(model, cal.binding.unit, witness.get("values"))
    return details


class _ComponentQuilts:
    """The connected components of a model, each kind once, with the quilts that were described in them."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._classes = component_classes(model)
        self._known: dict[tuple[int, int], tuple[Quilt, QuiltInfluence] | None] = {}
        self._tools: dict[int, tuple[DependencyGraph, Workspace]] = {}
        self._where: dict[int, tuple[int, int, int]] = {}  # node → class, copy, place in it
        for c, kind in enumerate(self._classes):
            for k, copy in enumerate(kind.copies):
                self._where.update((j, (c, k, at)) for at, j in enumerate(copy))

    def describe_quilt(self, name: str) -> dict[str, Any] | None:
        """Return the quilt of a record's Markov blanket in words; ``None`` if it is too large."""
        c, k, at = self._where[self._model.index[name]]
        if (c, at) not in self._known:
            self._known[c, at] = self._blanket_quilt(c, at)
        known = self._known[c, at]
        if known is None:
            return None
        quilt, influence = known
        kind, nodes = self._classes[c], self._model.nodes
        place = kind.model.index
        copy = kind.copies[k]

        def names_in_copy(inside: Collection[str]) -> list[str]:
            return [nodes[int(copy[place[n]])] for n in inside]

        separator, nearby, remote = map(names_in_copy, (quilt.separator, quilt.nearby, quilt.remote))
        described = _quilt_data(separator, nearby, remote, influence.b, influence.swing)
        others = len(nodes) - len(kind.model.nodes)  # other components are remote from everything
        return {**described, "remote_count": described["remote_count"] + others}

    def _blanket_quilt(self, c: int, at: int) -> tuple[Quilt, QuiltInfluence] | None:
        part = self._classes[c].model
        if c not in self._tools:
            self._tools[c] = (moralize(part), Workspace(part))
        graph, space = self._tools[c]
        try:
            quilt = next(iter(quilts(graph, part.nodes[at], max_nearby=0)))
            return quilt, quilt_influence(part, quilt, max_entries=2**14, workspace=space)
        except (QuiltdpError, StopIteration):
            return None  # too large to describe; the leakage itself does not need it


def _worst_pair_of_states(model: Model, unit: str, values: Any) -> list[str] | None:
    """Return the names of the two states that the worst case tells apart, if the witness has them."""
    states = model.states[unit]
    if not isinstance(values, (list, tuple)) or not all(isinstance(v, int) for v in values):
        return None
    return [str(states[v]) for v in values] if all(0 <= v < len(states) for v in values) else None


def _quilt_data(
    separator: Collection[str],
    nearby: Collection[str],
    remote: Collection[str],
    b: float | None,
    swing: float,
) -> dict[str, Any]:
    return {
        "separator": sorted(separator),
        "nearby": sorted(nearby),
        "remote": sorted(remote)[:_REMOTE],
        "remote_count": len(remote),
        "influence": b,
        "swing": swing,
    }


def _assumption_rows(cal: Calibration, model: Model) -> list[list[str]]:
    who = {
        "informed": "knows the model and may know any of the other records",
        "prior": "knows the model, and none of the records",
    }.get(cal.adversary, f"knows the model, and {cal.adversary}")
    return [
        ["protected", f"{cal.protected}; replacing one may change the published numbers as stated below"],
        ["against", f"an adversary who {who}"],
        [
            "the model",
            "is taken as true (what if not: see above): its tables, and which records depend on which",
        ],
        ["the noise", f"is drawn afresh, with the stated scale, by {cal.mechanism.single()}"],
        ["released", _releases_phrase(cal)],
        *[["note", n] for n in (*model.notes, *cal.notes)],
    ]


def _releases_phrase(cal: Calibration) -> str:
    often = "once" if cal.releases == 1 else f"{cal.releases:,} times"
    where = " on disjoint records" if cal.disjoint > 1 else ""
    return f"{often}{where}; costs add up before they are converted: for more, ask for that many releases"


def _limit_notes(answers: ReportAnswers) -> list[list[str]]:
    """Say which numbers beside the answer are those of an earlier stage."""
    notes = answers.cut_short.items()
    return [["note", f"numbers beside the answer, {who} adversary: {why}"] for who, why in notes]


def _method_rows(cal: Calibration) -> list[list[str]]:
    alpha = cal.dp_epsilon
    work = cal.certificate.to_dict().get("work") or {}
    work = work if isinstance(work, Mapping) else {"level": work}
    cost = "unequal, per record" if isinstance(alpha, Mapping) else "–" if alpha is None else f"{alpha:.12g}"
    return [
        ["method", cal.method],
        ["certificate", str(cal.certificate)],
        ["forced by", str(cal.binding)],
        ["plain DP cost α", cost],
        ["certified leakage", f"{cal.leakage:.12g}"],
        ["work budget", ", ".join(f"{k} {v}" for k, v in work.items() if v != "") or "–"],
        ["model fingerprint", cal.fingerprint],
        ["version", f"quiltdp {__version__}"],
    ]
