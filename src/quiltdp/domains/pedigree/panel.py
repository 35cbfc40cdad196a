"""Many loci of one family: what a release at all of them tells about a person.

Unlinked loci are independent given the pedigree, so what a person loses at all of them together is the
sum of what is lost at each, at that locus's own α (theory, *Many independent loci of one person*):

    Leakage(person) = Σ_l Leakage_l(person; α_l).

A locus is its allele frequency.  Few distinct frequencies are analysed one by one, with all bounds of the
engine; of more, some are, and what lies between two of them is certified too (:mod:`.panel_loci`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import INFORMED, PRIOR, Adversary, parse_adversary
from quiltdp.accountant.shared_work import SharedWork, WorkDone
from quiltdp.domains.pedigree.frequencies import Panel, read_frequencies
from quiltdp.domains.pedigree.panel_loci import Kind
from quiltdp.domains.pedigree.people import Pedigree, study_members
from quiltdp.domains.pedigree.read import read_pedigree
from quiltdp.errors import InvalidArgument, option
from quiltdp.journal import Journal
from quiltdp.numbers import round_up_digits_array, up, up_array
from quiltdp.parallel import Progress
from quiltdp.work import Limit, WorkBudget

ADVERSARIES = (INFORMED.name, PRIOR.name)

NODES = 128
"""How many frequencies are analysed at most, where a panel has more."""

Vector = NDArray[np.float64]
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, eq=False)
class PanelProfile:
    """What a release at all loci of a panel leaks about each person, for any noise.

    Made by :func:`analyze_panel`.

    Attributes
    ----------
    family, panel, query
        Whose, where, and what is released at each locus.
    people
        The records, in order: each a person, or twins who share a genome.
    members
        Everybody in the study, twins each by their own name.
    assumed
        What was assumed, for people to read.
    shared
        The work budget and the time limit of every question; questions with one :meth:`answer` share one.
    """

    family: Pedigree
    panel: Panel
    query: str
    people: tuple[str, ...]
    kinds: tuple[Kind, ...]
    members: tuple[str, ...]
    assumed: tuple[str, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)
    shared: SharedWork = field(default_factory=SharedWork)

    @property
    def done(self) -> WorkDone:
        """How far the last answer went: the work budget, and the stage where a limit was reached."""
        return self.shared.done

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed, and whether the last answer met a limit, for people to read."""
        return (*self.assumed, *self.done.notes)

    def answer(self, question: Callable[[], _Answer]) -> _Answer:
        """Return the answer to a question that asks this profile several times, with one time limit.

        Where it is reached, all parts of the partial answer are group privacy's; :attr:`notes` say so.
        """
        return self.shared.answer(question)

    @property
    def unit(self) -> str:
        """What the leakage is about, in words."""
        return "one person" if self.panel.loci == 1 else f"one person, all {self.panel.loci:,} loci together"

    @property
    def sensitivity(self) -> float:
        """How far one person moves all numbers of the release together."""
        return math.fsum(kind.size * kind.query.sensitivity for kind in self.kinds)

    @property
    def largest_count(self) -> float:
        """The largest number the release can have at any locus, without noise."""
        return max(kind.query.largest for kind in self.kinds)

    @property
    def numbers(self) -> int:
        """How many numbers a release has."""
        return sum(kind.size * len(kind.query.cells) for kind in self.kinds)

    def leakage(self, sigma: float, adversary: str | Adversary, weights: Vector | None = None) -> Vector:
        """Return the certified leakage of every person when locus l gets Laplace noise weights_l · σ."""
        if not (sigma > 0 and math.isfinite(sigma)):
            raise InvalidArgument(f"sigma must be a finite number above 0, not {sigma!r}")
        who, scale = parse_adversary(adversary), up(1.0 / sigma, 4.0)
        w = np.ones(len(self.panel)) if weights is None else weights

        def sum_over_loci() -> Vector:
            total = np.zeros(len(self.people))
            for kind, at in self._kinds_with_positions():
                total[at] += kind.leakage(who, w[kind.loci], scale)
            return round_up_digits_array(up_array(total, 8.0))

        return self.answer(sum_over_loci)

    def leakage_per_locus(self, sigma: float, adversary: str | Adversary) -> Vector:
        """Return the certified leakage of every person at the worst single locus, noise σ at each."""
        who, scale = parse_adversary(adversary), up(1.0 / sigma, 4.0)

        def take_worst_locus() -> Vector:
            worst = np.zeros(len(self.people))
            for kind, at in self._kinds_with_positions():
                worst[at] = np.maximum(worst[at], kind.worst_locus(who, scale))
            return round_up_digits_array(up_array(worst, 8.0))

        return self.answer(take_worst_locus)

    def _kinds_with_positions(self) -> Iterator[tuple[Kind, NDArray[np.intp]]]:
        """Yield every kind of loci, and where its records stand among the people."""
        place = {name: k for k, name in enumerate(self.people)}
        for kind in self.kinds:
            yield kind, np.array([place[r] for r in kind.model.records], dtype=np.intp)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the family's models and of the loci."""
        digest = hashlib.sha256(b"quiltdp panel v1\0")
        for kind in self.kinds:
            digest.update(kind.model.fingerprint.encode())
        digest.update(repr((self.query, self.panel.names)).encode())
        digest.update(self.panel.frequency.astype("<f8").tobytes())
        if self.panel.loci != len(self.panel):
            digest.update(self.panel.counts.astype("<i8").tobytes())
        return digest.hexdigest()


def analyze_panel(
    source: str | Path | Pedigree,
    panel: str | Path | Panel | Mapping[str, float],
    query: str = "allele-count",
    *,
    mutation_rate: float = 0.0,
    error_rate: float = 0.0,
    inbreeding: float = 0.0,
    study: str | Path | Collection[str] | None = None,
    nodes: int = NODES,
    work: str | WorkBudget = "normal",
    time_limit: Limit = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
    journal: Journal | None = None,
    **reading: Any,
) -> PanelProfile:
    """Take a family at all loci of a panel; the profile answers for any noise, each frequency analysed once.

    Parameters
    ----------
    source
        A pedigree file or a :class:`Pedigree`.
    panel
        A table of frequencies (:func:`read_frequencies`), a :class:`Panel`, or locus → frequency.
    query
        What is released at each locus: ``allele-count``, ``carrier-count`` or ``genotype-histogram``.
    mutation_rate, error_rate, inbreeding, study
        As for :func:`quiltdp.pedigree`.
    nodes
        How many frequencies are analysed at most; more is tighter and slower.
    work
        How far searches go at every frequency, as for :func:`quiltdp.analyze`; ``level:stage`` ends both
        adversaries at that place of one list of stages
        (:data:`~quiltdp.accountant.shared_work.STAGES`).
    time_limit
        Seconds for every question as a whole (:meth:`PanelProfile.answer` makes one of several); none by
        default.  When they are over, :class:`~quiltdp.errors.LimitReached` carries what group privacy says.
    progress
        Called with a label and a fraction in [0, 1].
    executor, journal
        Where frequencies are analysed (any ``concurrent.futures.Executor``), and a file that remembers
        what was found; both must be open as long as the profile is asked.

    Examples
    --------
    >>> from quiltdp.domains.pedigree import Pedigree, Person
    >>> trio = Pedigree((Person("dad"), Person("mum"), Person("kid", "dad", "mum")))
    >>> profile = analyze_panel(trio, {"rs1": 0.1, "rs2": 0.3, "rs3": 0.3})
    >>> profile.unit, profile.sensitivity
    ('one person, all 3 loci together', 6.0)
    >>> profile.leakage(sigma=20.0, adversary="informed").round(2).tolist()
    [0.45, 0.45, 0.6]
    """
    family = source if isinstance(source, Pedigree) else read_pedigree(source, **reading)
    genetics = {"mutation_rate": mutation_rate, "error_rate": error_rate, "inbreeding": inbreeding}
    if isinstance(panel, Mapping):
        panel = Panel.of(dict(panel))
    loci = panel if isinstance(panel, Panel) else read_frequencies(panel)
    return panel_profile(
        family, loci, query, study=study, genetics=genetics, nodes=nodes,
        shared=SharedWork(work, time_limit), progress=progress, executor=executor, journal=journal,
    )  # fmt: skip


def panel_profile(
    family: Pedigree,
    loci: Panel,
    query: str,
    *,
    study: str | Path | Collection[str] | None = None,
    genetics: Mapping[str, float],
    nodes: int,
    shared: SharedWork,
    **how: Any,
) -> PanelProfile:
    """Return the profile of :func:`analyze_panel` with a work budget and a limit that others share."""
    if nodes < 1:
        raise InvalidArgument(f"{option('nodes')} must be at least 1, not {nodes!r}")
    how["shared"] = shared
    kinds = []
    for x_linked in (False, True):
        at = np.flatnonzero(loci.x_linked == x_linked)
        if len(at):
            here = {**genetics, "x_linked": x_linked}
            kinds.append(
                Kind.of(family, query, at, loci.frequency[at], loci.counts[at], study, here, nodes, **how)
            )
    people = dict.fromkeys(r for kind in kinds for r in kind.model.records)
    notes = (*loci.notes, *kinds[0].model.notes[1:], *_panel_notes(loci, kinds))
    members = study_members(family, study)
    provenance = kinds[0].model.provenance
    return PanelProfile(family, loci, query, tuple(people), tuple(kinds), members, notes, provenance, shared)


def _panel_notes(panel: Panel, kinds: Sequence[Kind]) -> tuple[str, ...]:
    unlinked = (
        f"{panel.loci:,} loci, taken as unlinked: independent of each other given the pedigree; what linked"
        " loci tell about each other is not counted"
    )
    distinct, analysed = sum(k.distinct for k in kinds), sum(len(k.nodes) for k in kinds)
    how = ", each analysed"
    if analysed < distinct:
        how = (
            f": {analysed} were analysed, and what lies between two of them is bounded by both, its certified"
        )
        how += " price included"
    notes = (unlinked, f"{distinct:,} distinct frequencies{how}")
    unknown = sum(int(k.counts[np.isnan(k.frequency)].sum()) for k in kinds)
    if not unknown:
        return notes
    without = f"{unknown:,} loci have no frequency, or one of 0 or 1"
    return (*notes, f"{without}: a bound that holds for every frequency is used for them")
