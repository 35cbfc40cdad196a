"""``quiltdp pedigree`` at one locus, or a few named ones: leakage and kin table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from quiltdp.accountant.adversaries import Adversary, knows, parse_adversary

if TYPE_CHECKING:
    from quiltdp.cli.pedigree import Question
    from quiltdp.cli.running import Limits
    from quiltdp.domains.pedigree import Pedigree
    from quiltdp.model import Model

_MOST_KIN = 100


def account_for_loci(
    payload: dict[str, Any], family: Pedigree, genetics: dict[str, Any], asked: Question
) -> None:
    """Fill in leakage and kin table, whichever were asked for."""
    from quiltdp.domains.pedigree import pedigree
    from quiltdp.domains.pedigree.queries import query_by_name

    model = pedigree(family, **genetics)
    payload["_model"] = model
    payload["genetics"] = {k: v for k, v in model.provenance.items() if k != "source"}
    payload["notes"] = list(model.notes)
    query_by_name(model, asked.query)  # refused before the work
    if asked.kin is not None:
        family.find(asked.kin, "--kin: ")
    alone = _unlinked_model(model, family, genetics) if "recombination" in genetics else model
    if asked.dp_epsilon is not None or asked.epsilon is not None:
        _add_leakages(payload, model, alone, family, asked)
    if alone is not model and asked.epsilon is not None and not asked.limits.reached:
        payload["linkage"] = _linkage_costs(model, alone, asked.epsilon, asked)
    if asked.kin is not None:
        payload["kin"] = _kin_facts(model, family, asked.kin)


def _unlinked_model(model: Model, family: Pedigree, genetics: dict[str, Any]) -> Model:
    """Return the same people and loci as if the loci were independent."""
    from quiltdp.domains.pedigree import pedigree
    from quiltdp.domains.pedigree.network import frequencies_of

    linked = ("recombination", "ld", "haplotypes", "allele_frequency")
    rest = {k: v for k, v in genetics.items() if k not in linked}
    return pedigree(family, frequencies_of(model), **rest)


def _linkage_costs(linked: Model, unlinked: Model, epsilon: float, asked: Question) -> list[dict[str, Any]]:
    from quiltdp.domains.pedigree.linked import linkage_cost

    how: dict[str, Any] = {"query": asked.query, "work": asked.work, "time_limit": asked.limits.guard}
    return [
        linkage_cost(linked, unlinked, epsilon, adversary=who, **how).to_dict()
        for who in ("informed", "prior")
    ]


def _kin_facts(model: Model, family: Pedigree, who: str) -> dict[str, Any]:
    from quiltdp.domains.pedigree.kin import kin_table, relatives

    person = family[family.find(who)]
    everybody = len(relatives(family, person.name))
    rows = kin_table(model, family, person.name, limit=_MOST_KIN)
    relations = [{"shown": family[k.relative].shown, **asdict(k)} for k in rows]
    return {"person": person.name, "shown": person.shown, "of": everybody, "relatives": relations}


def _add_leakages(
    payload: dict[str, Any], model: Model, shape: Model, family: Pedigree, asked: Question
) -> None:
    """Account for both adversaries, and the one asked for, at one α: the given one or the largest for ε."""
    from quiltdp.accountant.leakage import analyze
    from quiltdp.cli.running import progress_bar
    from quiltdp.domains.pedigree.output import as_json, person_table
    from quiltdp.domains.pedigree.queries import records_by_person
    from quiltdp.numbers import down, up

    answer, adversary = asked.limits.answer, asked.adversary
    own = records_by_person(model)
    loci = max(map(len, own.values()))
    how: dict[str, Any] = {"work": asked.work, "time_limit": asked.limits.guard}
    how["protect"] = own if loci > 1 else None
    against = _adversaries_to_compare(adversary, own, family)
    with progress_bar() as progress:
        profiles = {
            a: answer(partial(analyze, model, adversary=who, progress=progress, **how))
            for a, who in against.items()
        }
    if asked.epsilon is not None:
        shares = {a: answer(partial(p.dp_epsilon, asked.epsilon)) for a, p in profiles.items()}  # of a locus
        largest = {a: down(loci * s, 160.0) if loci > 1 else s for a, s in shares.items()}
        payload["dp_epsilon_for"] = {"epsilon": asked.epsilon, **largest}
        payload["noise"] = _noise_by_query(model, asked.epsilon, largest, against, asked.limits, how)
        alpha = largest[adversary]
    else:
        assert asked.dp_epsilon is not None
        alpha = asked.dp_epsilon
    each = up(alpha / loci) if loci > 1 else alpha
    results = {a: answer(partial(p.leakage, each)) for a, p in profiles.items()}
    payload["unit"] = "one person" if loci == 1 else f"one person, all {loci} loci together"
    payload["leakage"] = {"dp_epsilon": alpha}
    for a, r in results.items():
        said = {"certificate": str(r.certificate), "binding": str(r.binding), "notes": list(r.notes)}
        payload["leakage"][a] = {"epsilon": r.epsilon, "method": r.method, **said}
    payload["width"] = _width_facts(model, {a: r.method for a, r in results.items()})
    third = None if adversary in ("informed", "prior") else results[adversary].per_record
    rows = person_table(shape, family, results["informed"].per_record, results["prior"].per_record, third)
    payload["people"] = as_json(rows)
    payload["_rows"] = rows


def _adversaries_to_compare(
    asked: str, own: Mapping[str, tuple[str, ...]], family: Pedigree
) -> dict[str, str | Adversary]:
    """Return informed, prior and the adversary asked for; who is known is known at all loci."""
    found: dict[str, str | Adversary] = {"informed": "informed", "prior": "prior"}
    who = parse_adversary(asked)
    if who.records:
        records = [own.get(n) or own.get(family.find(n, "--adversary: "), (n,)) for n in sorted(who.records)]
        who = knows(*(r for some in records for r in some))
    return {**found, asked: who} if asked not in found else found


def _noise_by_query(
    model: Model,
    epsilon: float,
    alphas: Mapping[str, float],
    adversaries: Mapping[str, str | Adversary],
    limits: Limits,
    how: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Return the Laplace scale of every query by name: by what its changes cost, else σ = Δ/α.

    Δ is the most that one person moves it.
    """
    from quiltdp.accountant.calibration import calibrate
    from quiltdp.domains.pedigree.queries import QUERIES, query_by_name

    rows = []
    for name in QUERIES:
        query = query_by_name(model, name)
        delta, noise = query.sensitivity, query.mechanism
        scales = {a: math.nextafter(delta / x, math.inf) if x else math.inf for a, x in alphas.items()}
        if noise.prices(model) and not limits.reached:
            for a, who in adversaries.items():
                ask = partial(calibrate, model, epsilon, noise, adversary=who, compare=False, **how)
                scales[a] = min(scales[a], limits.answer(ask).sigma)
        rows.append(
            {
                "query": name,
                "sensitivity": delta,
                "unit": query.unit,
                "largest_count": query.largest / query.loci,
                "numbers": len(query.cells) * query.loci,
                **{f"sigma_{a}": scale for a, scale in scales.items()},
            }
        )
    return rows


def _width_facts(model: Model, methods: dict[str, str]) -> dict[str, Any]:
    """Say how wide the network is, and which method stands in where a clique tree does not fit."""
    from quiltdp.inference.trees import plan_junction_tree

    plan = plan_junction_tree(model)
    width = len(plan.cliques[plan.largest]) - 1
    found: dict[str, Any] = {"treewidth": width, "largest_table": plan.sizes[plan.largest], "fits": plan.fits}
    if not plan.fits:
        found["note"] = (
            f"treewidth about {width}: a clique tree needs a table of {plan.sizes[plan.largest]:.3g} entries,"
            f" over the limit of {plan.limit:,}; used instead: {methods['informed']} against the informed"
            f" adversary, {methods['prior']} against the prior one"
        )
    return found
