"""What a family tree cannot be, and what looks like a mistake: each named by line and person."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from quiltdp.domains.pedigree.types import Alleles, Pedigree, Row, RowFile
from quiltdp.errors import FileFormatError, InvalidModel, option

__all__ = [
    "mendel_violations",
    "refuse_cycle",
    "refuse_duplicates",
    "refuse_missing_code_as_parent",
    "refuse_same_parents",
    "sex_against_role",
]

Key = tuple[str, str]


def refuse_duplicates(file: RowFile, keys: Sequence[Key]) -> None:
    """Refuse a second row for one person."""
    first: dict[Key, Row] = {}
    for key, row in zip(keys, file.rows, strict=True):
        if not row.id:
            raise FileFormatError(file.source, row.line, "the id is empty")
        if key in first:
            where = f" of family {row.family!r}" if row.family and not file.global_ids else ""
            raise FileFormatError(
                file.source,
                row.line,
                f"{row.id!r}{where} already has a row on line {first[key].line}; keep one, or give the two"
                " people different ids",
            )
        first[key] = row


def refuse_same_parents(file: RowFile) -> None:
    """Refuse a person whose father and mother are one."""
    for row in file.rows:
        if row.father is not None and row.father == row.mother:
            raise FileFormatError(
                file.source,
                row.line,
                f"{row.id!r} has {row.father!r} as father and as mother; if {row.father!r} means"
                f" 'unknown', declare it with {option('missing', row.father)}",
            )


def refuse_missing_code_as_parent(file: RowFile, absent: Iterable[tuple[Key, Row, str]]) -> None:
    """Refuse a parent without a row who is father to some and mother to others: a code for 'unknown'."""
    roles: dict[Key, dict[str, Row]] = {}
    for key, row, role in absent:
        roles.setdefault(key, {}).setdefault(role, row)
    for key, by_role in roles.items():
        if len(by_role) == 2:
            dad, mum = by_role["father"], by_role["mother"]
            raise FileFormatError(
                file.source,
                mum.line,
                f"{key[1]!r} has no row, and is the mother of {mum.id!r} and the father of {dad.id!r} (line"
                f" {dad.line}); if it means 'unknown', declare it with {option('missing', key[1])}",
            )


def refuse_cycle(source: str, parents: Mapping[str, Sequence[str]], lines: Mapping[str, int | None]) -> None:
    """Refuse a person who is their own ancestor, and print the way round."""
    state: dict[str, int] = {}
    for start in parents:
        if state.get(start):
            continue
        path = [start]
        while path:
            node = path[-1]
            state[node] = 1
            fresh = next((p for p in parents.get(node, ()) if state.get(p, 0) < 2), None)
            if fresh is None:
                state[node] = 2
                path.pop()
            elif state.get(fresh) == 1:
                cycle = [*path[path.index(fresh) :], fresh]
                way = " ← ".join(f"{n} (line {lines[n]})" if lines.get(n) else n for n in cycle)
                raise FileFormatError(
                    source, lines.get(fresh), f"{fresh!r} is their own ancestor: {way} (child ← parent)"
                )
            else:
                path.append(fresh)


def sex_against_role(pedigree: Pedigree) -> tuple[str, ...]:
    """Return one line per person whose sex contradicts being a father or a mother; suggest the cause."""
    fathers = {p.father: p for p in reversed(pedigree.people) if p.father}
    mothers = {p.mother: p for p in reversed(pedigree.people) if p.mother}
    wrong: list[str] = []
    counts = {"father": 0, "mother": 0}
    for role, found, expected in (("father", fathers, "male"), ("mother", mothers, "female")):
        for name, child in found.items():
            person = pedigree[name]
            if person.sex not in (expected, "unknown"):
                counts[role] += 1
                wrong.append(
                    f"line {person.line}: {name!r} is {person.sex} and the {role} of {child.name!r}"
                    f" (line {child.line})"
                )
    both = [n for n in fathers if n in mothers]
    wrong += [
        f"line {pedigree[n].line}: {n!r} is the father of {fathers[n].name!r} and the mother of"
        f" {mothers[n].name!r}"
        for n in both
    ]
    if not wrong:
        return ()
    stated = sum(1 for found in (fathers, mothers) for n in found if pedigree[n].sex != "unknown")
    total = counts["father"] + counts["mother"]
    if total == stated and total:
        hint = "every parent disagrees: are the father and mother columns swapped, or is sex coded 0/1?"
    else:
        hint = "is it a swapped pair of columns for these rows, sex coded 0/1, or a typing error?"
    return tuple(f"{text}; {hint}" for text in wrong)


def mendel_violations(pedigree: Pedigree) -> tuple[str, ...]:
    """Return one line per trio and locus whose genotypes Mendel forbids (missing alleles pass)."""
    found = []
    for p in pedigree.people:
        if p.founder or not p.alleles:
            continue
        father, mother = pedigree[p.parents[0]], pedigree[p.parents[1]]
        for k, locus in enumerate(pedigree.loci):
            child = _typed(p.alleles, k)
            if child is None:
                continue
            dad, mum = _typed(father.alleles, k), _typed(mother.alleles, k)
            if not any(
                (dad is None or a in dad) and (mum is None or b in mum) for a, b in (child, child[::-1])
            ):
                found.append(
                    f"line {p.line}: at {locus}, {p.name!r} has {_show(child)}, which the parents"
                    f" {father.name!r} {_show(dad)} and {mother.name!r} {_show(mum)} cannot give"
                )
    return tuple(found)


def _typed(alleles: Sequence[Alleles], k: int) -> Alleles | None:
    if k >= len(alleles) or any(a in {"0", "-9", ".", "N", "n", "-"} for a in alleles[k]):
        return None
    return alleles[k]


def _show(genotype: Alleles | None) -> str:
    return "untyped" if genotype is None else "/".join(genotype)


def refuse_if_any(source: str, problems: Sequence[str], what: str) -> None:
    """Refuse with the first problem, and the number of others."""
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise InvalidModel(f"{source}: {what}: {problems[0]}{more}")
