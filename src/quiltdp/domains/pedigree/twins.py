"""Monozygotic twins: one genome, hence one node."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from quiltdp.domains.pedigree.types import Person, RowFile
from quiltdp.errors import InvalidArgument, InvalidModel, option

__all__ = ["merge_twins", "twin_groups"]

Key = tuple[str, str]


def twin_groups(
    file: RowFile, names: Mapping[Key, str], keys: Sequence[Key], declared: Collection[Collection[str]]
) -> list[tuple[tuple[str, ...], str]]:
    """Return (names, zygosity) of every set of twins: marked in the file, or declared by the caller.

    The zygosity is "mz", "dz", or "" where the file does not say.
    """
    marked: dict[str, list[tuple[str, str]]] = {}
    for key, row in zip(keys, file.rows, strict=True):
        if row.twins:
            marked.setdefault(row.twins, []).append((names[key], row.zygosity))
    groups = []
    for members in marked.values():
        kinds = {kind for _, z in members if (kind := _kind(z))}
        kind = kinds.pop() if len(kinds) == 1 else ""
        groups.append((tuple(n for n, _ in members), kind))
    by_id: dict[str, list[str]] = {}
    for key, name in names.items():
        by_id.setdefault(key[1], []).append(name)
    known = set(names.values())
    for group in declared:
        groups.append((tuple(_resolve(i, known, by_id) for i in group), "mz"))
    return groups


def _kind(zygosity: str) -> str:
    if zygosity.startswith(("mz", "mono", "ident")) or zygosity == "1":
        return "mz"
    return "dz" if zygosity.startswith(("dz", "di", "frat")) or zygosity == "2" else ""


def _resolve(person: str, known: set[str], by_id: Mapping[str, Sequence[str]]) -> str:
    if person in known:
        return person
    found = by_id.get(person, ())
    if len(found) != 1:
        raise InvalidArgument(
            f"{option('twins')}: {person!r} is {'in several families' if found else 'not in the pedigree'}"
        )
    return found[0]


def merge_twins(
    source: str, people: Sequence[Person], groups: Sequence[tuple[tuple[str, ...], str]]
) -> tuple[list[Person], list[str]]:
    """Let the first of every monozygotic set stand for all; keep other twins as siblings, and say so.

    Raises
    ------
    InvalidModel
        If monozygotic twins have different parents or different sexes.
    """
    by_name = {p.name: p for p in people}
    stands_for: dict[str, str] = {}
    notes = []
    for members, kind in groups:
        if len(members) < 2 or kind == "dz":
            continue
        twins = [by_name[n] for n in members]
        shown = " and ".join(repr(n) for n in members)
        if kind == "":
            notes.append(
                f"line {twins[0].line}: {shown} are twins of unstated zygosity, kept as ordinary siblings; if"
                f" they are monozygotic, say so (twins=[{list(members)}], --twins {','.join(members)})"
            )
            continue
        first = twins[0]
        for twin in twins[1:]:
            if twin.parents != first.parents:
                raise InvalidModel(f"{source}: monozygotic twins {shown} have different parents")
            if {twin.sex, first.sex} == {"male", "female"}:
                raise InvalidModel(f"{source}: monozygotic twins {shown} have different sexes")
            stands_for[twin.name] = first.name
        notes.append(
            f"{shown} are monozygotic twins: one node, {first.name!r}. One record stands for {len(twins)}"
            f" people: a sensitivity or an α for one person counts {len(twins)} times there"
        )
    return _merged(people, stands_for), notes


def _merged(people: Sequence[Person], stands_for: Mapping[str, str]) -> list[Person]:
    also: dict[str, list[str]] = {}
    for twin, first in stands_for.items():
        also.setdefault(first, []).append(twin)

    def link(name: str | None) -> str | None:
        return stands_for.get(name, name) if name is not None else None

    return [
        replace(p, father=link(p.father), mother=link(p.mother), also=(*p.also, *also.get(p.name, ())))
        for p in people
        if p.name not in stands_for
    ]
