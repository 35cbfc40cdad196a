"""What a family tree cannot be, and what looks like a mistake: each named by line and person."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from quiltdp.domains.pedigree.people import Alleles, Pedigree, Row, RowFile
from quiltdp.errors import FileFormatError, InvalidModel, option

__all__ = [
    "mendel_violations",
    "refuse_cycle",
    "refuse_duplicates",
    "refuse_if_any",
    "refuse_missing_code_as_parent",
    "refuse_same_parents",
    "sex_against_role",
]

Key = tuple[str, str]
_UNTYPED = frozenset({"0", "-9", ".", "N", "n", "-"})


def refuse_duplicates(file: RowFile, keys: Sequence[Key]) -> None:
    """Refuse a second row for one person."""
    first: dict[Key, int | None] = {}
    for key, row in zip(keys, file.rows, strict=True):
        if not row.id:
            raise FileFormatError(file.source, row.line, "the id is empty")
        if key in first:
            where = f" of family {row.family!r}" if row.family and not file.global_ids else ""
            reason = f"{row.id!r}{where} already has a row on line {first[key]}; keep one, or give the two"
            raise FileFormatError(file.source, row.line, f"{reason} people different ids")
        first[key] = row.line


def refuse_same_parents(file: RowFile) -> None:
    """Refuse a person whose father and mother are one."""
    for row in file.rows:
        if row.father is not None and row.father == row.mother:
            unknown = f"if {row.father!r} means 'unknown', declare it with {option('missing', row.father)}"
            reason = f"{row.id!r} has {row.father!r} as father and as mother; {unknown}"
            raise FileFormatError(file.source, row.line, reason)


def refuse_missing_code_as_parent(file: RowFile, absent: Iterable[tuple[Key, Row, str]]) -> None:
    """Refuse a parent without a row who is father to some and mother to others: a code for 'unknown'."""
    roles: dict[Key, dict[str, Row]] = {}
    for key, row, role in absent:
        roles.setdefault(key, {}).setdefault(role, row)
    for key, child in roles.items():
        if len(child) == 2:
            dad, mum = child["father"], child["mother"]
            unknown = f"if it means 'unknown', declare it with {option('missing', key[1])}"
            both = f"the mother of {mum.id!r} and the father of {dad.id!r} (line {dad.line})"
            raise FileFormatError(file.source, mum.line, f"{key[1]!r} has no row, and is {both}; {unknown}")


def refuse_cycle(source: str, parents: Mapping[str, Sequence[str]], lines: Mapping[str, int | None]) -> None:
    """Refuse a person who is their own ancestor, and print the way round."""
    try:
        TopologicalSorter(parents).prepare()
    except CycleError as error:
        cycle = error.args[1][::-1]  # there a parent comes before the child
        shown = " ← ".join(f"{n} (line {lines[n]})" if lines.get(n) else n for n in cycle)
        reason = f"{cycle[0]!r} is their own ancestor: {shown} (child ← parent)"
        raise FileFormatError(source, lines.get(cycle[0]), reason) from None


def sex_against_role(pedigree: Pedigree) -> tuple[str, ...]:
    """Return one line per person whose sex contradicts being a father or a mother; suggest the cause."""
    fathers = {p.father: p for p in reversed(pedigree.people) if p.father}
    mothers = {p.mother: p for p in reversed(pedigree.people) if p.mother}
    wrong: list[str] = []
    for role, children, expected in (("father", fathers, "male"), ("mother", mothers, "female")):
        for name, child in children.items():
            sex, line = pedigree[name].sex, pedigree[name].line
            if sex not in (expected, "unknown"):
                whose = f"the {role} of {child.name!r} (line {child.line})"
                wrong.append(f"line {line}: {name!r} is {sex} and {whose}")
    stated = sum(pedigree[n].sex != "unknown" for n in (*fathers, *mothers))
    if wrong and len(wrong) == stated:
        hint = "every parent disagrees: are the father and mother columns swapped, or is sex coded 0/1?"
    else:
        hint = "is it a swapped pair of columns for these rows, sex coded 0/1, or a typing error?"
    for n, child in fathers.items():
        if n in mothers:
            both = f"the father of {child.name!r} and the mother of {mothers[n].name!r}"
            wrong.append(f"line {pedigree[n].line}: {n!r} is {both}")
    return tuple(f"{text}; {hint}" for text in wrong)


def mendel_violations(pedigree: Pedigree) -> tuple[str, ...]:
    """Return one line per trio and locus whose genotypes Mendel forbids (missing alleles pass)."""
    violations = []
    for p in pedigree.people:
        if p.founder or not p.alleles:
            continue
        father, mother = (pedigree[q] for q in p.parents)
        for k, locus in enumerate(pedigree.loci):
            child, dad, mum = (_typed(q.alleles, k) for q in (p, father, mother))
            ways = () if child is None else (child, child[::-1])
            if ways and not any((dad is None or a in dad) and (mum is None or b in mum) for a, b in ways):
                violations.append(
                    f"line {p.line}: at {locus}, {p.name!r} has {_show(child)}, which the parents"
                    f" {father.name!r} {_show(dad)} and {mother.name!r} {_show(mum)} cannot give"
                )
    return tuple(violations)


def _typed(alleles: Sequence[Alleles], k: int) -> Alleles | None:
    return None if k >= len(alleles) or _UNTYPED & set(alleles[k]) else alleles[k]


def _show(genotype: Alleles | None) -> str:
    return "untyped" if genotype is None else "/".join(genotype)


def refuse_if_any(source: str, problems: Sequence[str], what: str) -> None:
    """Refuse with the first problem, and the number of others."""
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise InvalidModel(f"{source}: {what}: {problems[0]}{more}")
