"""From rows to people: resolve ids, complete the couples, name everybody once.

No link is cut silently.  A parent without a row becomes a person without one; a person with one
known parent gets an unknown founder as the other; both are latent in the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from quiltdp.domains.pedigree import checks
from quiltdp.domains.pedigree.twins import merge_twins, twin_groups
from quiltdp.domains.pedigree.types import Pedigree, Person, Row, RowFile, Sex
from quiltdp.errors import InvalidArgument, option

__all__ = ["assemble"]

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
    build = _Build(file, unknown_parents == "shared", join_families)
    checks.refuse_duplicates(file, build.keys)
    checks.refuse_same_parents(file)
    checks.refuse_missing_code_as_parent(file, build.absent)
    parents = {build.names[k]: build.stated_parents(k) for k in build.keys}
    checks.refuse_cycle(file.source, parents, {build.names[k]: r.line for k, r in build.rows.items()})
    people = build.people()
    groups = twin_groups(file, build.names, build.keys, twins)
    people, twin_notes = merge_twins(file.source, people, groups)
    warnings = (*file.warnings, *build.warnings, *build.summaries(), *twin_notes)
    return Pedigree(tuple(people), file.source, file.format, warnings, loci=file.loci, facts=build.facts())


@dataclass
class _Build:
    """The bookkeeping of one file: which row is which person, who was added, what was noticed."""

    file: RowFile
    shared: bool
    join: bool
    warnings: list[str] = field(default_factory=list)
    added: dict[str, Person] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Resolve ids to keys, and keys to names."""
        file = self.file
        self.keys = self._keys()
        self.by_family = any(key[0] for key in self.keys)
        self.rows: dict[Key, Row] = dict(zip(self.keys, file.rows, strict=True))
        self.elsewhere: dict[str, list[Key]] = {}
        for key in self.rows:
            self.elsewhere.setdefault(key[1], []).append(key)
        self.reused = any(len(ks) > 1 for ks in self.elsewhere.values())
        self.parent_keys: dict[Key, tuple[Key | None, Key | None]] = {}
        self.absent: list[tuple[Key, Row, str]] = []
        for key, row in self.rows.items():
            self.parent_keys[key] = (
                self._find(row, row.father, "father"),
                self._find(row, row.mother, "mother"),
            )
        self.names = self._names()
        self.taken = frozenset(self.names.values())

    def _keys(self) -> list[Key]:
        rows = self.file.rows
        by_id = [("", r.id) for r in rows]
        by_family = [(r.family, r.id) for r in rows]
        if not self.file.global_ids:
            return by_family
        if len(set(by_id)) == len(by_id) or len(set(by_family)) < len(by_family):
            return by_id
        return by_family

    def _find(self, row: Row, parent: str | None, role: str) -> Key | None:
        if parent is None:
            return None
        key = (row.family if self.by_family else "", parent)
        if key in self.rows:
            return key
        others = self.elsewhere.get(parent, [])
        if others:
            where = (
                f"line {row.line}: the {role} {parent!r} of {row.id!r} is in family {others[0][0]!r},"
                f" not {row.family!r}"
            )
            if self.join and len(others) == 1:
                self.warnings.append(f"{where}; the families are joined")
                return others[0]
            if self.join:
                raise InvalidArgument(
                    f"{self.file.source}: {where}, and in {others[1][0]!r}:"
                    f" {option('join_families')} cannot tell which"
                )
            self.warnings.append(
                f"{where}: taken to be somebody without a row, because ids count within families; if it is"
                " the same person, join the families (join_families, --join-families), or the correlation"
                " between the families is missed"
            )
        elif self.join:
            key = ("", parent)  # one id, one person, whichever family mentions it
        self.absent.append((key, row, role))
        return key

    def _names(self) -> dict[Key, str]:
        mentioned = dict.fromkeys([*self.keys, *(key for key, _, _ in self.absent)])
        if self.reused:
            first = next(i for i, ks in self.elsewhere.items() if len(ks) > 1)
            a, b = self.elsewhere[first][:2]
            self.warnings.append(
                f"ids are unique only within families ({first!r} is in {a[0]!r}, line {self.rows[a].line},"
                f" and in {b[0]!r}, line {self.rows[b].line}): people are called family/id"
            )
        names: dict[Key, str] = {}
        taken: set[str] = set()
        for key in mentioned:
            name = f"{key[0]}/{key[1]}" if key[0] and (self.reused or key[1] in taken) else key[1]
            while name in taken:
                name += "'"
            taken.add(name)
            names[key] = name
        return names

    def stated_parents(self, key: Key) -> tuple[str, ...]:
        return tuple(self.names[p] for p in self.parent_keys[key] if p is not None)

    def people(self) -> list[Person]:
        """Return everybody: the rows in file order, then those only mentioned, then those added."""
        sexes = self._sexes()
        siblings = Counter((r.family, r.couple) for r in self.file.rows if r.couple)
        people = []
        for key, row in self.rows.items():
            father, mother = self.parent_keys[key]
            dad = self.names[father] if father else None
            mum = self.names[mother] if mother else None
            many = bool(row.couple) and siblings[row.family, row.couple] > 1
            if dad is None and (mum is not None or many):
                dad = self._unknown("father", key, row, mum)
            if mum is None and dad is not None:
                mum = self._unknown("mother", key, row, dad if father else None)
            people.append(
                Person(
                    self.names[key],
                    dad,
                    mum,
                    sexes[key],
                    row.family,
                    row.id,
                    row.line,
                    alleles=row.alleles,
                    label=row.label,
                )
            )
        mentioned = {
            k: Person(self.names[k], sex=sexes[k], family=k[0], id=k[1], stated=False)
            for k, _, _ in self.absent
        }
        return [*people, *mentioned.values(), *self.added.values()]

    def _unknown(self, role: str, key: Key, row: Row, other: str | None) -> str:
        if row.couple:
            name = f"{role} of family {row.couple}"
        elif self.shared and other is not None:
            name = f"{role} of the children of {other}"
        else:
            name = f"{role} of {self.names[key]}"
        while name in self.taken:
            name += "'"
        sex: Sex = "male" if role == "father" else "female"
        self.added.setdefault(name, Person(name, sex=sex, family=row.family, stated=False))
        return name

    def _sexes(self) -> dict[Key, Sex]:
        """Take the sex from the row; where it is unknown, from the role as a parent."""
        sexes: dict[Key, Sex] = {k: self.rows[k].sex if k in self.rows else "unknown" for k in self.names}
        for father, mother in self.parent_keys.values():
            if father is not None and sexes[father] == "unknown":
                sexes[father] = "male"
            if mother is not None and sexes[mother] == "unknown":
                sexes[mother] = "female"
        return sexes

    def summaries(self) -> list[str]:
        """Say who was added, in one line per reason."""
        notes = []
        absent = dict.fromkeys(k for k, _, _ in self.absent)
        if absent:
            _, row, role = self.absent[0]
            key = self.absent[0][0]
            notes.append(
                f"{_people(len(absent))} mentioned as parents without a row of their own were added as"
                f" latents (first: {self.names[key]!r}, {role} of {row.id!r}, line {row.line})"
            )
        half = self.one_parent()
        if half:
            row = self.rows[half[0]]
            how = (
                "one founder for all children of a known parent"
                if self.shared
                else "each a founder of their own"
            )
            notes.append(
                f"{_people(len(half))} with one known parent: the other is unknown and was added as a latent"
                f" founder, {how} (first: {row.id!r}, line {row.line})"
                + (
                    ""
                    if self.shared
                    else "; if they are full sibs, sharing them is the safe choice"
                    " (unknown_parents='shared', --unknown-parents shared)"
                )
            )
        return notes

    def one_parent(self) -> list[Key]:
        return [k for k, (f, m) in self.parent_keys.items() if (f is None) != (m is None)]

    def facts(self) -> Mapping[str, int]:
        """Count what the file says, before anybody was added."""
        absent = {k for k, _, _ in self.absent}
        return {
            "rows": len(self.rows),
            "founders": len(absent) + sum(1 for f, m in self.parent_keys.values() if f is None and m is None),
            "one_parent": len(self.one_parent()),
            "missing_parent_rows": len(absent),
            "sex_unknown": sum(1 for r in self.file.rows if r.sex == "unknown"),
            "families": len({r.family for r in self.file.rows}),
        }


def _people(count: int) -> str:
    return "1 person" if count == 1 else f"{count:,} people"
