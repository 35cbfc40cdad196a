"""What the field expects back: a table per person (TSV, JSON), what a pedigree file contains."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from decimal import ROUND_CEILING, Context
from typing import Any

from quiltdp.domains.pedigree.people import Pedigree
from quiltdp.domains.pedigree.queries import records_by_person
from quiltdp.graph.moral import moralize
from quiltdp.graph.quilts import markov_blanket
from quiltdp.model import Model
from quiltdp.printable import printable

_SIX_UP = Context(prec=6, rounding=ROUND_CEILING)  # a leakage is never shown below its value


@dataclass(frozen=True, slots=True)
class PersonLeakage:
    """One line of the table per person.

    Attributes
    ----------
    family, person, locus
        FID, IID, and what the leakage is about where the model has several loci: one of them by name,
        or ``"all 3 loci"`` together.
    informed, prior
        Leakage against the informed and the prior adversary.
    quilt
        The nearest quilt: the people who separate this one from all others (parents, children, the
        other parents of the children).
    driver
        The relatives in the study that drive the leakage, nearest first.
    name, label
        The person's own name in the pedigree, and what people call them where the file tells.
    asked
        Leakage against a third adversary, if one was asked for.
    """

    family: str
    person: str
    locus: str
    informed: float
    prior: float
    quilt: tuple[str, ...]
    driver: str
    name: str = ""
    label: str = ""
    asked: float | None = None


def person_table(
    model: Model,
    family: Pedigree,
    informed: Mapping[str, float],
    prior: Mapping[str, float],
    asked: Mapping[str, float] | None = None,
) -> tuple[PersonLeakage, ...]:
    """Join the leakages per record with who the person is and what drives them.

    Parameters
    ----------
    informed, prior
        ``leakage(model, dp_epsilon=α, adversary=…).per_record`` for the two adversaries: by record, or
        by person where ``protect=records_by_person(model)`` protects the loci together.
    asked
        The same for a third adversary.
    """
    graph = moralize(model)
    place = {p.name: k for k, p in enumerate(family)}
    members = {family[_person_and_locus(family, r)[0]].name for r in model.records}
    rows = []
    own = records_by_person(model)
    single = all(len(records) == 1 for records in own.values())
    units = {r: (r,) for r in model.records} if single or own.keys() != set(informed) else own
    for unit, (record, *others) in units.items():
        name, locus = _person_and_locus(family, record)
        locus = f"all {len(others) + 1} loci" if others else locus
        person = family[name]
        node = f"{record}:true" if f"{record}:true" in model.states else record
        blanket = {family[_person_and_locus(family, n)[0]].name for n in markov_blanket(graph, node)} - {
            person.name
        }
        quilt = tuple(sorted(blanket, key=place.__getitem__))
        rows.append(
            PersonLeakage(
                person.family, person.id if name == person.name and person.id else name, locus,
                informed[unit], prior[unit], quilt, _relatives_in_study(family, person.name, members),
                name, person.label, None if asked is None else asked[unit],
            )
        )  # fmt: skip
    return tuple(rows)


def _person_and_locus(family: Pedigree, node: str) -> tuple[str, str]:
    """Return person and locus of a node."""
    name = node.removesuffix(":true")
    if name in family.by_name:
        return name, ""
    person, _, locus = name.rpartition("@")
    return person, locus


def _relatives_in_study(family: Pedigree, name: str, members: set[str]) -> str:
    """Return the near relatives in the study, counted by what they are."""
    me = family[name]
    children = family.children.get(name, ())
    sibs = dict.fromkeys(c for q in me.parents for c in family.children.get(q, ()) if c != name)
    near = [(q, "parent") for q in me.parents] + [(c, "child") for c in children]
    near += [(c, "full sib" if family[c].parents == me.parents else "half-sib") for c in sibs]
    if not members & {n for n, _ in near}:
        above = dict.fromkeys(g for q in me.parents for g in family[q].parents)
        below = dict.fromkeys(c for q in children for c in family.children.get(q, ()))
        near = [(n, "grandparent") for n in above] + [(n, "grandchild") for n in below]
    counts = Counter(word for n, word in near if n in members)
    if me.also:
        counts["monozygotic twin"] = len(me.also)
    words = (_counted_noun(count, word) for word, count in counts.items())
    return ", ".join(words) or "no near relative in the study"


def _counted_noun(count: int, word: str) -> str:
    if count == 1:
        return f"1 {word}"
    return f"{count} {word[:-5]}children" if word.endswith("child") else f"{count} {word}s"


def leakage_tsv(rows: Iterable[PersonLeakage]) -> str:
    """Return the table per person as tab-separated text, ``inf`` where the leakage is unbounded."""
    listed = list(rows)
    labelled = any(r.label for r in listed)
    name = ("NAME",) if labelled else ()
    header = ("FID", "IID", *name, "LOCUS", "LEAKAGE_INFORMED", "LEAKAGE_PRIOR", "NEAREST_QUILT", "DRIVEN_BY")
    out = io.StringIO()
    writer = csv.writer(out, delimiter="\t", lineterminator="\n")
    writer.writerow(header)
    for r in listed:
        label = (r.label,) if labelled else ()
        row = (r.family, r.person, *label, r.locus, r.informed, r.prior, ",".join(r.quilt), r.driver)
        writer.writerow([_tsv_cell(c) for c in row])
    return out.getvalue()


def _tsv_cell(value: str | float) -> str:
    if isinstance(value, float):
        return "inf" if math.isinf(value) else f"{_SIX_UP.create_decimal_from_float(value):g}"
    return printable(value)


def summary(family: Pedigree) -> dict[str, Any]:
    """Return what a pedigree file contains, ready for JSON."""
    sizes = [len(c) for c in family.components]
    return {
        "source": family.source,
        "format": family.format,
        "people": len(family),
        "rows": family.facts.get("rows", len(family)),
        "founders": family.facts.get("founders", len(family.founders)),
        "one_known_parent": family.facts.get("one_parent", 0),
        "parents_without_row": family.facts.get("missing_parent_rows", 0),
        "added_latents": sum(1 for p in family if not p.stated),
        "components": len(sizes),
        "largest_component": sizes[0],
        "generations": max(family.generation.values()) + 1,
        "loops": family.loops,
        "twins": sum(len(p.also) for p in family),
        "warnings": list(family.warnings),
    }


def as_json(rows: Iterable[PersonLeakage]) -> list[dict[str, Any]]:
    """Return the rows of the table as dictionaries."""
    return [{k: v for k, v in asdict(row).items() if k != "asked" or v is not None} for row in rows]
