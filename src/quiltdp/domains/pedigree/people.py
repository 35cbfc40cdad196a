"""What a family is: the rows of a file, the people they describe, the checked pedigree, the study.

A reader returns :class:`Row` objects, one per line, with the file's own words.  ``assemble`` turns
them into :class:`Person` objects with unique names and complete parents, held by a :class:`Pedigree`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from quiltdp.errors import FileFormatError, InvalidArgument, InvalidModel, UnknownNode, option
from quiltdp.io.text import read_text

Sex: TypeAlias = Literal["male", "female", "unknown"]
Alleles: TypeAlias = tuple[str, str]
_K = TypeVar("_K")
_V = TypeVar("_V")


def grouped(pairs: Iterable[tuple[_K, _V]]) -> dict[_K, tuple[_V, ...]]:
    """Return the values of every key, in order."""
    groups: dict[_K, list[_V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in groups.items()}


def reachable(start: Iterable[str], following: Callable[[str], Iterable[str]]) -> dict[str, int]:
    """Return everybody who can be reached from ``start``, with the least number of steps."""
    steps = dict.fromkeys(start, 0)
    queue = list(steps)
    for name in queue:  # grows while it is walked
        for other in following(name):
            if other not in steps:
                steps[other] = steps[name] + 1
                queue.append(other)
    return steps


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a pedigree file, before ids are resolved; ``None`` is a parent marked missing.

    ``couple`` names the parents' union where the format has one (a GEDCOM family): children of one
    union share its unknown parent.  ``twins`` labels a set of twins, ``zygosity`` is "mz", "dz" or "".
    ``label`` is what people call the person, where the format tells (a GEDCOM name).
    """

    id: str
    father: str | None = None
    mother: str | None = None
    sex: Sex = "unknown"
    family: str = ""
    line: int | None = None
    couple: str = ""
    twins: str = ""
    zygosity: str = ""
    alleles: tuple[Alleles, ...] = ()
    label: str = ""


@dataclass(frozen=True, slots=True)
class RowFile:
    """What a reader returns: the rows, where they came from, and what it noticed on the way."""

    rows: tuple[Row, ...]
    source: str
    format: str
    warnings: tuple[str, ...] = ()
    loci: tuple[str, ...] = ()
    global_ids: bool = False
    """Whether ids name one person in the whole file (family labels are decoration)."""


@dataclass(frozen=True, slots=True)
class Person:
    """A person of a pedigree: either a founder (no parents) or with both parents known by name.

    ``stated`` says whether the file has a row for the person; parents who are only mentioned and
    unknown parents who were added have none.  ``also`` names the monozygotic twins this person
    stands for.  ``label`` is what people call the person, where the file tells.
    """

    name: str
    father: str | None = None
    mother: str | None = None
    sex: Sex = "unknown"
    family: str = ""
    id: str = ""
    line: int | None = None
    stated: bool = True
    also: tuple[str, ...] = ()
    alleles: tuple[Alleles, ...] = ()
    label: str = ""

    def __post_init__(self) -> None:
        """Refuse half a couple, and a person without a name."""
        if not self.name:
            raise InvalidModel("a person needs a name")
        if (self.father is None) != (self.mother is None):
            raise InvalidModel(f"person {self.name!r}: give both parents or neither (add a founder)")
        if self.father is not None and self.father == self.mother:
            raise InvalidModel(f"person {self.name!r}: father and mother are both {self.father!r}")
        if self.name in (self.father, self.mother):
            raise InvalidModel(f"person {self.name!r} is their own parent")

    @property
    def founder(self) -> bool:
        """Whether the pedigree says nothing about the parents."""
        return self.father is None

    @property
    def shown(self) -> str:
        """How the person is called in tables: the id, and the label where there is one."""
        return f"{self.id or self.name} ({self.label})" if self.label else self.id or self.name

    @property
    def parents(self) -> tuple[str, ...]:
        """Father and mother, or nothing for a founder."""
        return () if self.father is None or self.mother is None else (self.father, self.mother)


@dataclass(frozen=True)
class Pedigree:
    """People and their parents: unique names, complete couples, nobody their own ancestor.

    Examples
    --------
    >>> from quiltdp.domains.pedigree import Pedigree, Person
    >>> trio = Pedigree((Person("dad"), Person("mum"), Person("kid", "dad", "mum")))
    >>> trio, trio.children["dad"], trio.loops
    (<Pedigree: 3 people, 2 founders, 1 family, 0 loops>, ('kid',), 0)
    """

    people: tuple[Person, ...]
    source: str = "pedigree"
    format: str = "people"
    warnings: tuple[str, ...] = ()
    loci: tuple[str, ...] = ()
    facts: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check names and parents; order people with parents first, refuse a cycle."""
        object.__setattr__(self, "people", tuple(self.people))
        object.__setattr__(self, "facts", dict(self.facts))
        if not self.people:
            raise InvalidModel(f"{self.source}: the pedigree has nobody in it")
        seen: set[str] = set()
        for p in self.people:
            if p.name in seen:
                raise InvalidModel(f"{self.source}: two people are called {p.name!r}")
            seen.add(p.name)
        for p in self.people:
            for parent in p.parents:
                if parent not in seen:
                    raise InvalidModel(f"{self.source}: {p.name!r} has the parent {parent!r}, who is missing")
        if len(self.ordered) < len(self.people):
            cyclic = min(seen - {p.name for p in self.ordered})
            raise InvalidModel(f"{self.source}: {cyclic!r} is among their own ancestors")

    def __len__(self) -> int:
        """Return the number of people, added ones included."""
        return len(self.people)

    def __iter__(self) -> Iterator[Person]:
        """Walk the people in file order."""
        return iter(self.people)

    def __getitem__(self, name: str) -> Person:
        """Return a person by name (of a twin, the person who stands for both)."""
        if name not in self.by_name:
            raise UnknownNode(f"person {name!r} is not in the pedigree {self.source}")
        return self.by_name[name]

    def named(self, family: str, person: str) -> str | None:
        """Return the name of whom a file calls so: id ``person`` in ``family`` (``""``: in any)."""
        for name in (f"{family}/{person}" if family else person, person):
            known = self.by_name.get(name)
            if known is not None and (not family or known.family in (family, "") or name != person):
                return name
        return None

    def find(self, text: str, where: str = "") -> str:
        """Return the name of the one person that is meant: by name, family and id, id, label or its words.

        Raises
        ------
        InvalidArgument
            If nobody is, or several are, with their lines.

        Examples
        --------
        >>> from quiltdp.domains.pedigree import Pedigree, Person
        >>> pair = Pedigree((Person("I1", label="Ann Lee"), Person("I2", label="Bob")))
        >>> pair.find("ann lee"), pair.find("I2")
        ('I1', 'I2')
        """
        words = text.split()
        name = text if text in self.by_name else self.named(*words) if len(words) == 2 else None
        if name is not None:
            return name
        label = set(_normalise_label(text).split())
        alike = tuple(p for p in self.people if label and label <= set(_normalise_label(p.label).split()))
        for people in (
            self.by_id.get(text, ()),
            self._people_by_label.get(_normalise_label(text), ()),
            alike,
        ):
            if len(people) == 1:
                return people[0].name
            if people:
                several = ", ".join(f"{p.name!r} (line {p.line})" for p in people[:3])
                raise InvalidArgument(f"{where}{text!r} could be {several}: write one of these")
        raise InvalidArgument(
            f"{where}{text!r} is not in the pedigree {self.source}{self._similar_names_hint(text)}"
        )

    def _similar_names_hint(self, text: str) -> str:
        """Return the people whose id, name or label is nearly this, as a question."""
        spellings = {
            _normalise_label(s): p for p in reversed(self.people) for s in (p.name, p.id, p.label) if s
        }
        close = get_close_matches(_normalise_label(text), spellings, n=3, cutoff=0.5)
        people = dict.fromkeys(spellings[s] for s in close)
        shown = [f"{p.name!r}{f' ({p.label})' if p.label else ''}" for p in people]
        return f"; did you mean {' or '.join(shown)}?" if shown else ""

    @cached_property
    def by_id(self) -> Mapping[str, tuple[Person, ...]]:
        """Everybody by the id in the file, which several families may use."""
        return grouped((p.id, p) for p in self.people if p.id)

    @cached_property
    def _people_by_label(self) -> Mapping[str, tuple[Person, ...]]:
        return grouped((_normalise_label(p.label), p) for p in self.people if p.label)

    def only(self, text: str) -> Pedigree:
        """Return the family with this label (FID), or the one this person belongs to.

        Whoever is connected with it by parenthood stays.
        """
        labelled = {p.name for p in self.people if p.family and p.family == text}
        families = dict.fromkeys(p.family for p in self.people if p.family)
        close = get_close_matches(text, families, n=1)
        if close and not labelled and text not in self.by_name:
            raise InvalidArgument(
                f"{option('family')} {text!r} is not in the pedigree {self.source};"
                f" did you mean {close[0]!r}?"
            )
        wanted = labelled or {self[self.find(text, f"{option('family')}: ")].name}
        inside = {name for part in self.components if wanted & set(part) for name in part}
        return replace(self, people=tuple(p for p in self.people if p.name in inside), facts={})

    def __repr__(self) -> str:
        """Say how large it is."""
        families = len(self.components)
        return (
            f"<Pedigree: {len(self)} people, {len(self.founders)} founders,"
            f" {families} famil{'y' if families == 1 else 'ies'}, {self.loops} loops>"
        )

    @cached_property
    def by_name(self) -> Mapping[str, Person]:
        """Every person by name, twins by either name."""
        twins = {twin: p for p in reversed(self.people) for twin in p.also}
        return {**twins, **{p.name: p for p in self.people}}

    @cached_property
    def ordered(self) -> tuple[Person, ...]:
        """The people, parents before children (people on a cycle are left out)."""
        people = {p.name: p for p in self.people}
        waiting = {p.name: len(p.parents) for p in self.people}
        order = [p for p in self.people if p.founder]
        for p in order:  # grows while it is walked: Kahn's algorithm
            for child in self.children.get(p.name, ()):
                waiting[child] -= 1
                if not waiting[child]:
                    order.append(people[child])
        return tuple(order)

    @cached_property
    def children(self) -> Mapping[str, tuple[str, ...]]:
        """The children of every parent, in file order."""
        return grouped((parent, p.name) for p in self.people for parent in p.parents)

    @property
    def founders(self) -> tuple[Person, ...]:
        """The people without parents."""
        return tuple(p for p in self.people if p.founder)

    @cached_property
    def couples(self) -> frozenset[tuple[str, str]]:
        """Every pair of parents with a child together."""
        return frozenset((p.father, p.mother) for p in self.people if p.father and p.mother)

    @cached_property
    def components(self) -> tuple[tuple[str, ...], ...]:
        """The families: sets of people connected by parenthood, largest first."""
        label: dict[str, str] = {}
        for p in self.people:
            if p.name not in label:
                label |= dict.fromkeys(reachable([p.name], self._parents_and_children), p.name)
        groups = grouped((label[p.name], p.name) for p in self.people)
        return tuple(sorted(groups.values(), key=len, reverse=True))

    def _parents_and_children(self, name: str) -> tuple[str, ...]:
        return (*self[name].parents, *self.children.get(name, ()))

    @cached_property
    def generation(self) -> Mapping[str, int]:
        """Founders are generation 0, everybody else one more than the later parent."""
        level: dict[str, int] = {}
        for p in self.ordered:
            level[p.name] = 1 + max(level[q] for q in p.parents) if p.parents else 0
        return level

    @cached_property
    def loops(self) -> int:
        """Independent cycles of the graph of people and couples: consanguinity, exchange, remarriage."""
        edges = 2 * len(self.couples) + sum(1 for p in self.people if not p.founder)
        return edges - len(self.people) - len(self.couples) + len(self.components)


def _normalise_label(label: str) -> str:
    """Return a label as people compare them: case and blanks do not matter."""
    return " ".join(label.casefold().split())


# -- the study ---------------------------------------------------------------------------------------


def read_ids(path: str | Path) -> tuple[tuple[int, str], ...]:
    """Read (line, id) pairs: one id per line, or family and id as ``FID IID``; ``#`` starts a comment."""
    lines = enumerate(read_text(Path(path), otherwise="latin-1").split("\n"), start=1)
    ids = tuple((k, text.strip()) for k, text in lines if text.strip() and text.strip()[0] != "#")
    if not ids:
        raise FileFormatError(path, None, "the study file names nobody")
    return ids


def study_members(family: Pedigree, study: str | Path | Collection[str] | None) -> tuple[str, ...]:
    """Return the names of the people in the study, in pedigree order, twins each by their own name.

    They are the records; everybody else in the pedigree is latent.

    Raises
    ------
    InvalidArgument
        For an id that is not in the pedigree, or that several families share, by line.
    """
    if study is None:
        chosen = {n for p in family.people if p.stated for n in (p.name, *p.also)}
    elif isinstance(study, (str, Path)):
        chosen = {family.find(text, f"{study}:{line}: ") for line, text in read_ids(study)}
    else:
        chosen = {family.find(str(i), "study: ") for i in study}
    members = tuple(n for p in family.people for n in (p.name, *p.also) if n in chosen)
    if not members:
        raise InvalidArgument(f"{family.source}: the study has nobody in it")
    return members
