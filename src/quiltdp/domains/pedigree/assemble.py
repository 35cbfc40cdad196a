"""From rows to people: resolve ids, complete the couples, name everybody once, merge identical twins.

No link is cut silently.  A parent without a row becomes a person without one; a person with one
known parent gets an unknown founder as the other; both are latent in the model.  Monozygotic twins
have one genome, hence one node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

from quiltdp.domains.pedigree.people import Pedigree, Person, Row, RowFile, Sex, grouped
from quiltdp.errors import FileFormatError, InvalidArgument, InvalidModel, option

Key = tuple[str, str]


def assemble(
    file: RowFile,
    *,
    twins: Collection[Collection[str]] = (),
    unknown_parents: str = "separate",
    join_families: bool = False,
) -> Pedigree:
    """Return the checked pedigree of a file's rows.

    Parameters
    ----------
    file
        What a reader returned.
    twins
        Groups of monozygotic twins, by id, beside those the file marks.
    unknown_parents
        What to assume about the unknown parents of half-known siblings: ``"separate"`` gives each
        person a founder of their own (half-sibs), ``"shared"`` one founder to all children of one
        known parent (full sibs: more correlation, more noise).  Children of one GEDCOM family
        always share.
    join_families
        Whether a parent who is not in the person's own family but in another one is that namesake
        (joining the families), or, as PLINK has it, somebody without a row.

    Raises
    ------
    FileFormatError
        For a duplicate id, father = mother, an own ancestor, or a code for 'unknown' read as a person.
    """
    if unknown_parents not in ("separate", "shared"):
        raise InvalidArgument(
            f"{option('unknown_parents')} must be 'separate' or 'shared', not {unknown_parents!r}"
        )
    build = _PedigreeBuilder(file, shared=unknown_parents == "shared", join=join_families)
    _refuse_duplicates(file, build.keys)
    _refuse_same_parents(file)
    _refuse_missing_code_as_parent(file, build.absent)
    parents = {build.names[k]: [build.names[p] for p in ps if p] for k, ps in build.parents.items()}
    _refuse_cycle(file.source, parents, {build.names[k]: r.line for k, r in build.rows.items()})
    people, notes = merge_twins(file.source, build.build_people(), build.twin_groups(twins))
    warnings = (*file.warnings, *build.warnings, *build.notes_on_added_people(), *notes)
    return Pedigree(
        tuple(people), file.source, file.format, warnings, loci=file.loci, facts=build.count_facts()
    )


class _PedigreeBuilder:
    """The bookkeeping of one file: which row is which person, who was added, what was noticed."""

    def __init__(self, file: RowFile, *, shared: bool, join: bool) -> None:
        self.file, self.shared, self.join = file, shared, join
        self.warnings: list[str] = []
        self.added: dict[str, Person] = {}
        self.keys = self._choose_person_keys()
        self.by_family = any(family for family, _ in self.keys)
        self.rows: dict[Key, Row] = dict(zip(self.keys, file.rows, strict=True))
        self.namesakes = grouped((key[1], key) for key in self.rows)
        self.absent: list[tuple[Key, Row, str]] = []
        self.parents: dict[Key, tuple[Key | None, Key | None]] = {
            key: (
                self._resolve_parent(row, row.father, "father"),
                self._resolve_parent(row, row.mother, "mother"),
            )
            for key, row in self.rows.items()
        }
        self.half = [k for k, (f, m) in self.parents.items() if (f is None) != (m is None)]
        self.names = self._name_people()
        self.taken = frozenset(self.names.values())

    def _choose_person_keys(self) -> list[Key]:
        by_id = [("", r.id) for r in self.file.rows]
        by_family = [(r.family, r.id) for r in self.file.rows]
        unique = len(set(by_id)) == len(by_id) or len(set(by_family)) < len(by_family)
        return by_id if self.file.global_ids and unique else by_family

    def _resolve_parent(self, row: Row, parent: str | None, role: str) -> Key | None:
        if parent is None:
            return None
        key = (row.family if self.by_family else "", parent)
        if key in self.rows:
            return key
        others = self.namesakes.get(parent, ())
        if others:
            home = f"is in family {others[0][0]!r}, not {row.family!r}"
            where = f"line {row.line}: the {role} {parent!r} of {row.id!r} {home}"
            if self.join and len(others) == 1:
                self.warnings.append(f"{where}; the families are joined")
                return others[0]
            if self.join:
                which = f"and in {others[1][0]!r}: {option('join_families')} cannot tell which"
                raise InvalidArgument(f"{self.file.source}: {where}, {which}")
            self.warnings.append(
                f"{where}: taken to be somebody without a row, because ids count within families; if it is"
                " the same person, join the families (join_families, --join-families), or the correlation"
                " between the families is missed"
            )
        elif self.join:
            key = ("", parent)  # one id, one person, whichever family mentions it
        self.absent.append((key, row, role))
        return key

    def _name_people(self) -> dict[Key, str]:
        reused = next((keys for keys in self.namesakes.values() if len(keys) > 1), ())
        if reused:
            (a, same), (b, _) = reused[:2]
            lines = [self.rows[key].line for key in reused]
            self.warnings.append(
                f"ids are unique only within families ({same!r} is in {a!r}, line {lines[0]},"
                f" and in {b!r}, line {lines[1]}): people are called family/id"
            )
        names: dict[Key, str] = {}
        taken: set[str] = set()
        for key in dict.fromkeys([*self.keys, *(key for key, _, _ in self.absent)]):
            name = f"{key[0]}/{key[1]}" if key[0] and (reused or key[1] in taken) else key[1]
            names[key] = _unused_name(name, taken)
            taken.add(names[key])
        return names

    def build_people(self) -> list[Person]:
        """Return everybody: the rows in file order, then those only mentioned, then those added."""
        sexes = self._infer_sexes()
        siblings = Counter((r.family, r.couple) for r in self.file.rows if r.couple)
        people = []
        for key, row in self.rows.items():
            dad, mum = (self.names[p] if p else None for p in self.parents[key])
            known = dad
            if dad is None and (mum is not None or (row.couple and siblings[row.family, row.couple] > 1)):
                dad = self._add_unknown_parent("father", key, row, mum)
            if mum is None and dad is not None:
                mum = self._add_unknown_parent("mother", key, row, known)
            who = Person(self.names[key], dad, mum, sexes[key], row.family, row.id, row.line)
            people.append(replace(who, alleles=row.alleles, label=row.label))
        mentioned = {
            k: Person(self.names[k], sex=sexes[k], family=k[0], id=k[1], stated=False)
            for k, _, _ in self.absent
        }
        return [*people, *mentioned.values(), *self.added.values()]

    def _add_unknown_parent(self, role: str, key: Key, row: Row, other: str | None) -> str:
        if row.couple:
            whose = f"family {row.couple}"
        else:
            whose = f"the children of {other}" if self.shared and other is not None else self.names[key]
        name = _unused_name(f"{role} of {whose}", self.taken)
        sex: Sex = "male" if role == "father" else "female"
        self.added.setdefault(name, Person(name, sex=sex, family=row.family, stated=False))
        return name

    def _infer_sexes(self) -> dict[Key, Sex]:
        """Take the sex from the row; where it is unknown, from the role as a parent."""
        sexes: dict[Key, Sex] = {k: self.rows[k].sex if k in self.rows else "unknown" for k in self.names}
        roles: tuple[Sex, Sex] = ("male", "female")
        for parents in self.parents.values():
            for parent, sex in zip(parents, roles, strict=True):
                if parent is not None and sexes[parent] == "unknown":
                    sexes[parent] = sex
        return sexes

    def twin_groups(self, declared: Collection[Collection[str]]) -> list[tuple[tuple[str, ...], str]]:
        """Return (names, zygosity) of every set of twins: marked in the file, or declared by the caller.

        The zygosity is "mz", "dz", or "" where the file does not say.
        """
        groups = []
        for rows in grouped((row.twins, (key, row)) for key, row in self.rows.items() if row.twins).values():
            kinds = {_parse_zygosity(row.zygosity) for _, row in rows} - {""}
            groups.append((tuple(self.names[k] for k, _ in rows), kinds.pop() if len(kinds) == 1 else ""))
        by_id = grouped((key[1], name) for key, name in self.names.items())
        for group in declared:
            members: list[str] = []
            for person in group:
                names = (person,) if person in self.taken else by_id.get(person, ())
                if len(names) != 1:
                    where = "in several families" if names else "not in the pedigree"
                    raise InvalidArgument(f"{option('twins')}: {person!r} is {where}")
                members += names
            groups.append((tuple(members), "mz"))
        return groups

    def notes_on_added_people(self) -> list[str]:
        """Say who was added, in one line per reason."""
        notes = []
        if self.absent:
            key, row, role = self.absent[0]
            count = len({k for k, _, _ in self.absent})
            notes.append(
                f"{_people_phrase(count)} mentioned as parents without a row of their own were added as"
                f" latents (first: {self.names[key]!r}, {role} of {row.id!r}, line {row.line})"
            )
        if self.half:
            row = self.rows[self.half[0]]
            how, advice = "one founder for all children of a known parent", ""
            if not self.shared:
                how, advice = "each a founder of their own", (
                    "; if they are full sibs, sharing them is the safe choice"
                    " (unknown_parents='shared', --unknown-parents shared)"
                )  # fmt: skip
            notes.append(
                f"{_people_phrase(len(self.half))} with one known parent: the other is unknown and was added"
                f" as a latent founder, {how} (first: {row.id!r}, line {row.line}){advice}"
            )
        return notes

    def count_facts(self) -> Mapping[str, int]:
        """Count what the file says, before anybody was added."""
        absent = len({k for k, _, _ in self.absent})
        return {
            "rows": len(self.rows),
            "founders": absent + list(self.parents.values()).count((None, None)),
            "one_parent": len(self.half),
            "missing_parent_rows": absent,
            "sex_unknown": sum(r.sex == "unknown" for r in self.file.rows),
            "families": len({r.family for r in self.file.rows}),
        }


def _people_phrase(count: int) -> str:
    return "1 person" if count == 1 else f"{count:,} people"


def _unused_name(name: str, taken: Collection[str]) -> str:
    """Return the name, marked until nobody has it."""
    while name in taken:
        name += "'"
    return name


def _parse_zygosity(word: str) -> str:
    if word.startswith(("mz", "mono", "ident")) or word == "1":
        return "mz"
    return "dz" if word.startswith(("dz", "di", "frat")) or word == "2" else ""


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
    for members, zygosity in groups:
        if len(members) < 2 or zygosity == "dz":
            continue
        first, *rest = (by_name[n] for n in members)
        shown = " and ".join(repr(n) for n in members)
        if zygosity == "":
            notes.append(
                f"line {first.line}: {shown} are twins of unstated zygosity, kept as ordinary siblings; if"
                f" they are monozygotic, say so (twins=[{list(members)}], --twins {','.join(members)})"
            )
            continue
        for twin in rest:
            if twin.parents != first.parents:
                raise InvalidModel(f"{source}: monozygotic twins {shown} have different parents")
            if {twin.sex, first.sex} == {"male", "female"}:
                raise InvalidModel(f"{source}: monozygotic twins {shown} have different sexes")
            stands_for[twin.name] = first.name
        notes.append(
            f"{shown} are monozygotic twins: one node, {first.name!r}. One record stands for {len(members)}"
            f" people: a sensitivity or an α for one person counts {len(members)} times there"
        )
    also = grouped((first, twin) for twin, first in stands_for.items())
    link: dict[str | None, str | None] = {None: None, **{n: stands_for.get(n, n) for n in by_name}}
    merged = [
        replace(p, father=link[p.father], mother=link[p.mother], also=(*p.also, *also.get(p.name, ())))
        for p in people
        if p.name not in stands_for
    ]
    return merged, notes


# -- what a family tree cannot be, by line and person ------------------------------------------------


def _refuse_duplicates(file: RowFile, keys: Sequence[Key]) -> None:
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


def _refuse_same_parents(file: RowFile) -> None:
    """Refuse a person whose father and mother are one."""
    for row in file.rows:
        if row.father is not None and row.father == row.mother:
            unknown = f"if {row.father!r} means 'unknown', declare it with {option('missing', row.father)}"
            reason = f"{row.id!r} has {row.father!r} as father and as mother; {unknown}"
            raise FileFormatError(file.source, row.line, reason)


def _refuse_missing_code_as_parent(file: RowFile, absent: Iterable[tuple[Key, Row, str]]) -> None:
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


def _refuse_cycle(source: str, parents: Mapping[str, Sequence[str]], lines: Mapping[str, int | None]) -> None:
    """Refuse a person who is their own ancestor, and print the way round."""
    try:
        TopologicalSorter(parents).prepare()
    except CycleError as error:
        cycle = error.args[1][::-1]  # there a parent comes before the child
        shown = " ← ".join(f"{n} (line {lines[n]})" if lines.get(n) else n for n in cycle)
        reason = f"{cycle[0]!r} is their own ancestor: {shown} (child ← parent)"
        raise FileFormatError(source, lines.get(cycle[0]), reason) from None
