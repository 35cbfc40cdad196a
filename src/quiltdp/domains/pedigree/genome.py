"""Many families at many loci: the noise that every family needs, one family after another.

People of different families are independent, so a release about all of them needs the noise of the family
that needs most.  Families of one shape (the same people and parents under other names) have one answer.
Families are accounted for in workers where an executor is given; of a single family the frequencies are.
A journal keeps what was found, so that a run begun again goes on where it was.

Neither the loci nor the families of a large study are held in memory: what is kept of the loci is how many
there are of each frequency, and of the families one at a time.

One work budget holds for all families.  Where a limit of time strikes, all of them are accounted for stage
by stage, and every answer is of the last stage that every family finished.
"""

from __future__ import annotations

import codecs
import gzip
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from quiltdp.accountant.adversaries import Adversary, parse_adversary
from quiltdp.accountant.shared_work import SharedWork, WorkDone
from quiltdp.domains.pedigree.assemble import assemble
from quiltdp.domains.pedigree.frequencies import Panel, loci_in, notes_on
from quiltdp.domains.pedigree.network import pedigree
from quiltdp.domains.pedigree.panel import ADVERSARIES, NODES, panel_profile
from quiltdp.domains.pedigree.panel_calibration import calibrate_panel
from quiltdp.domains.pedigree.people import Pedigree, Person, RowFile, Sex
from quiltdp.domains.pedigree.read import plink_rows
from quiltdp.errors import FileFormatError, InvalidArgument, option
from quiltdp.journal import Journal, hash_key, map_journaled
from quiltdp.parallel import Progress
from quiltdp.user_files import opened
from quiltdp.work import NO_GUARD, Guard, Limit, WorkBudget

_GZIP = b"\x1f\x8b"
_LONGEST = 1 << 24  # bytes of one line: no text has longer ones

Shape = tuple[tuple[int, int, Sex, bool, int], ...]
"""For every person: father and mother (places in this list, −1 for none), sex, in the study, twins."""


@dataclass(frozen=True)
class FamilyNoise:
    """What a family needs: a Laplace scale per adversary, and the person who forces it.

    Attributes
    ----------
    family
        Its label in the file, or the first person's name.
    people
        How many of its people are in the study, twins counted each.
    sigma, binding
        By adversary: the noise at every locus, and the person with the largest leakage.
    done
        How far searches went, the same for every family of a run.
    """

    family: str
    people: int
    sigma: Mapping[str, float]
    binding: Mapping[str, str]
    done: WorkDone = field(default_factory=lambda: WorkDone(WorkBudget()))


@dataclass(frozen=True)
class _StudySettings:
    """What is the same for every family; sent to workers."""

    panel: Panel
    query: str
    epsilon: float
    adversaries: tuple[str, ...]
    nodes: int
    genetics: Mapping[str, Any]
    budget: WorkBudget

    def journal_key(self, shape: Shape) -> str:
        """Return the name of a shape's answer in a journal."""
        release = (self.query, self.epsilon, self.adversaries, self.nodes, dict(self.genetics))
        return hash_key("family", shape, self._panel_key, release, self.budget.to_dict())

    @cached_property
    def _panel_key(self) -> str:
        """The name of the panel, which may have half a million loci: found once."""
        panel = self.panel
        return hash_key(repr([panel.frequency.tolist(), panel.counts.tolist(), panel.x_linked.tolist()]))


def account_families(
    families: Iterable[Pedigree],
    panel: Panel,
    query: str = "allele-count",
    *,
    epsilon: float,
    adversaries: Sequence[str | Adversary] = ADVERSARIES,
    mutation_rate: float = 0.0,
    error_rate: float = 0.0,
    inbreeding: float = 0.0,
    nodes: int = NODES,
    work: str | WorkBudget = "normal",
    time_limit: Limit = None,
    executor: Executor | None = None,
    journal: Journal | None = None,
    progress: Progress | None = None,
    total: int | None = None,
) -> Iterator[FamilyNoise]:
    """Yield the noise that each family needs, so that no person's loci together leak more than ε.

    Parameters
    ----------
    families
        Read while they are walked (:func:`read_families`): only some
        hundreds are in memory.
    panel
        The loci; of a whole genome, counted by frequency
        (:func:`count_frequencies`).
    query, mutation_rate, error_rate, inbreeding, nodes, work
        As for :func:`quiltdp.analyze_panel`.
    time_limit
        Seconds for all families together; none by default.  With a limit, all families are in memory, the
        answers come when all are there, or :class:`~quiltdp.errors.LimitReached` carries group privacy's.
    executor, journal
        Any ``concurrent.futures.Executor``, and the file that keeps what was found.
    progress, total
        Called with a label and the fraction of ``total`` families that are done.

    Examples
    --------
    >>> trio = Pedigree((Person("dad"), Person("mum"), Person("kid", "dad", "mum")))
    >>> pair = Pedigree((Person("ann"), Person("bob")))
    >>> panel = Panel.of({"rs1": 0.1, "rs2": 0.3})
    >>> for need in account_families([trio, pair], panel, epsilon=1.0):
    ...     print(need.family, need.people, round(need.sigma["informed"], 2), need.binding["informed"])
    dad 3 8.0 kid
    ann 2 4.0 ann
    """
    genetics = {"mutation_rate": mutation_rate, "error_rate": error_rate, "inbreeding": inbreeding}
    shared = SharedWork(work, time_limit)
    against = tuple(parse_adversary(a).name for a in adversaries)
    if not set(against) <= set(ADVERSARIES):
        raise InvalidArgument(f"{option('adversaries')} must be among {', '.join(ADVERSARIES)}")
    study = _StudySettings(panel, query, epsilon, against, nodes, genetics, shared.asked)
    how = {"executor": executor, "journal": journal, "progress": progress}
    if time_limit is None:
        for family, answer in _iterate_answers(families, study, NO_GUARD, total, **how):
            yield _family_noise(family, answer, shared.done)
        return
    everybody = list(families)

    def account_all() -> list[FamilyNoise]:
        now = replace(study, budget=shared.budget)
        answers = _iterate_answers(everybody, now, shared.guard, total, **how)
        return [_family_noise(family, answer, shared.done) for family, answer in answers]

    yield from shared.answer(account_all)


def _iterate_answers(
    families: Iterable[Pedigree], study: _StudySettings, guard: Guard, total: int | None, **how: Any
) -> Iterator[tuple[Pedigree, dict[str, Any]]]:
    """Yield every family with its answer; raise ``GuardReached`` where one is not finished in time."""
    walk = iter(families)
    first = list(islice(walk, 2))
    if len(first) == 1:
        yield first[0], _calibrate_shape(study, _shape_of_family(first[0], study), guard, **how)
        return
    shapes = ((family, _shape_of_family(family, study), guard) for family in chain(first, walk))
    how |= {"shared": study, "label": "families", "total": total}
    for (family, *_), answer in map_journaled(_account_item, shapes, key=_journal_key_of_item(study), **how):
        yield family, answer


_Item = tuple[Pedigree, Shape, Guard]
"""A family, its shape, and the limit of the study."""


def _journal_key_of_item(study: _StudySettings) -> Callable[[_Item], str]:
    """Return the key of a family's shape in a journal, each computed once."""
    keys: dict[Shape, str] = {}

    def key_of_item(item: _Item) -> str:
        family, shape, _ = item
        if shape not in keys:
            pedigree(family, 0.25, x_linked=bool(study.panel.x_linked.any()))  # refused by its own names
            if len(keys) > 10_000:
                keys.clear()
            keys[shape] = study.journal_key(shape)
        return keys[shape]

    return key_of_item


def _account_item(study: _StudySettings, item: _Item) -> dict[str, Any]:
    return _calibrate_shape(study, *item[1:])


def _calibrate_shape(study: _StudySettings, shape: Shape, guard: Guard, **inside: Any) -> dict[str, Any]:
    """Return, by adversary, σ and the place of the person who forces it."""
    family = _family_of_shape(shape)
    shared = SharedWork.inside(study.budget, guard)
    how: dict[str, Any] = {"genetics": study.genetics, "nodes": study.nodes, "shared": shared}
    profile = panel_profile(family, study.panel, study.query, **how, **inside)
    place = {p.name: k for k, p in enumerate(family.people)}
    answer = {}
    for adversary in study.adversaries:
        noise = calibrate_panel(profile, study.epsilon, adversary=adversary)
        answer[adversary] = [noise.sigma, place[family[noise.binding].name]]
    return answer


def _shape_of_family(family: Pedigree, study: _StudySettings) -> Shape:
    """Return who is whose parent, by place; sex only where a locus is on the X chromosome."""
    place: dict[str | None, int] = {None: -1, **{p.name: k for k, p in enumerate(family.ordered)}}
    sexed = bool(study.panel.x_linked.any())
    return tuple(
        (place[p.father], place[p.mother], p.sex if sexed else "unknown", p.stated, len(p.also))
        for p in family.ordered
    )


def _family_of_shape(shape: Shape) -> Pedigree:
    """Return the family of a shape; people are called by their places."""
    name: dict[int, str | None] = {-1: None, **{k: f"p{k}" for k in range(len(shape))}}
    people = []
    for k, (father, mother, sex, stated, twins) in enumerate(shape):
        also = tuple(f"p{k}.{twin}" for twin in range(twins))
        people.append(Person(f"p{k}", name[father], name[mother], sex, stated=stated, also=also))
    return Pedigree(tuple(people))


def _family_noise(family: Pedigree, answer: Mapping[str, Any], done: WorkDone) -> FamilyNoise:
    people = family.ordered
    label = people[0].family or people[0].name
    return FamilyNoise(
        label,
        sum(1 + len(p.also) for p in people if p.stated),
        {adversary: float(sigma) for adversary, (sigma, _) in answer.items()},
        {adversary: people[int(place)].shown for adversary, (_, place) in answer.items()},
        done,
    )


# -- files of any length, read line by line ---------------------------------------------------------


def count_frequencies(path: str | os.PathLike[str]) -> Panel:
    """Read a panel of any length, in the formats of :func:`read_frequencies`, and count it by frequency.

    Every line of the result stands for all loci of one frequency.  Names are not kept, so a locus that
    the file has twice counts twice: more leakage, never less.

    Raises
    ------
    FileFormatError
        With the line, as :func:`read_frequencies`.
    """
    file = Path(path)
    tallies: tuple[Counter[float], Counter[float]] = (Counter(), Counter())  # autosomal loci, loci on the X
    left_out: Counter[str] = Counter()
    for locus in loci_in(file, _iterate_lines(file)):
        if locus.left_out:
            left_out[locus.left_out] += 1
        else:
            tallies[locus.on_x][locus.frequency] += 1  # unknown ones are one object, math.nan
    notes = notes_on(left_out)
    lines = [
        (f"X {p!r}" if on_x else repr(p), p, on_x, count)
        for on_x, tally in zip((False, True), tallies, strict=True)
        for p, count in sorted(tally.items(), key=lambda item: (math.isnan(item[0]), item))
    ]
    if not lines:
        raise FileFormatError(path, None, "; ".join(("there are no loci in this file", *notes)))
    names, every, x_linked, counts = zip(*lines, strict=True)
    blank = (".",) * len(names)
    numbers = (np.array(every), np.array(x_linked))
    return Panel(names, *numbers, blank, blank, blank, str(path), notes, np.array(counts))


def read_families(path: str | os.PathLike[str]) -> Iterator[Pedigree]:
    """Yield the families of a PLINK file (.fam .ped: family, id, father, mother, sex, …) one by one.

    The lines of a family stand together.

    Raises
    ------
    FileFormatError
        By line: too few columns, or a family that comes again after another one.
    """
    file = Path(path)
    finished: set[str] = set()
    rows: list[tuple[int, list[str]]] = []
    for line, text in _iterate_lines(file):
        cells = text.split()
        if not cells or cells[0].startswith("#"):
            continue
        if len(cells) < 4:
            reason = f"{len(cells)} columns, a family file has family, id, father, mother, sex"
            raise FileFormatError(file, line, reason)
        if rows and rows[0][1][0] != cells[0]:
            yield _assemble_family(file, rows)
            finished.add(rows[0][1][0])
            rows = []
        if cells[0] in finished:
            reason = f"family {cells[0]!r} comes again after others: sort the file by family"
            raise FileFormatError(file, line, reason)
        rows.append((line, cells[:5]))
    if not rows:
        raise FileFormatError(file, None, "the file has no lines with people in them")
    yield _assemble_family(file, rows)


def _assemble_family(path: Path, lines: list[tuple[int, list[str]]]) -> Pedigree:
    rows, warnings = plink_rows(lines)
    return assemble(RowFile(rows, str(path), "PLINK", warnings))


def _iterate_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file, plain or gzip, without holding it."""
    with opened(path) as plain:
        packed = plain.read(2) == _GZIP
        plain.seek(0)
        stream = gzip.GzipFile(fileobj=plain) if packed else plain
        number = 0
        while line := stream.readline(_LONGEST + 1):
            number += 1
            if len(line) > _LONGEST or b"\0" in line:
                raise FileFormatError(path, number, "this is binary data, expected a text file")
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            try:
                yield number, line.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                reason = "this line is not UTF-8: convert the file to UTF-8"
                raise FileFormatError(path, number, reason) from None
