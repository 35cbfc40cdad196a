"""Many loci of one family: what a release at all of them tells about a person.

Unlinked loci are independent given the pedigree, so what a person loses at all of them together is the
sum of what is lost at each, at that locus's own α (theory, *Many independent loci of one person*):

    Leakage(person) = Σ_l Leakage_l(person; α_l).

A locus is its allele frequency; p and 1 − p are alike.  Up to ``nodes`` distinct frequencies are analysed
one by one.  Of more, that many are analysed, and every locus stands on the nearest one with the certified
price of the way (:mod:`.bridge`).  Against the informed adversary the frequency cancels in propagation
(a founder's own table has spread 0), so one analysis holds for every locus.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quiltdp.domains.pedigree.bridge import Bridge
from quiltdp.domains.pedigree.frequencies import Panel, read_frequencies
from quiltdp.domains.pedigree.network import Locus
from quiltdp.domains.pedigree.panel_nodes import EVERYWHERE, NodeAnalyses
from quiltdp.domains.pedigree.queries import GenotypeQuery, query_by_name
from quiltdp.domains.pedigree.read import read_pedigree
from quiltdp.domains.pedigree.study import study_members
from quiltdp.domains.pedigree.types import Pedigree
from quiltdp.errors import InvalidArgument, option
from quiltdp.journal import Journal
from quiltdp.model import Model
from quiltdp.numbers import digits_up_array, up, up_array
from quiltdp.parallel import Progress

__all__ = ["ADVERSARIES", "PanelProfile", "analyze_panel", "nodes_of"]

ADVERSARIES = ("informed", "prior")
NODES = 32
"""How many frequencies are analysed where a panel has more; the rest is bridged."""

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Kind:
    """All loci of one kind (autosomal, or on the X): who is a record there, and what moves it.

    Attributes
    ----------
    model
        The network at one of the frequencies: its records and who stands behind them.
    query
        The query at one locus of this kind.
    loci
        Positions in the panel.
    folded
        The frequency of the rarer allele at each of them; NaN where it is unknown or nobody varies.
    counts
        How many loci each of them stands for.
    nodes
        The frequencies that are analysed, and for each locus which of them it stands on.
    analyses
        The family at these frequencies.
    """

    model: Model
    query: GenotypeQuery
    loci: NDArray[np.intp]
    folded: Vector
    counts: NDArray[np.int64]
    nodes: Vector
    stands_on: NDArray[np.intp]
    bridge: Bridge
    analyses: NodeAnalyses

    @property
    def size(self) -> int:
        """How many loci there are."""
        return int(self.counts.sum())

    def alpha(self, scale: float) -> dict[str, float]:
        """Return α of every record when the query gets noise of 1/scale: Δ_j · scale, rounded up."""
        return {r: up(d * scale, 4.0) for r, d in self.query.sensitivities.items()}

    def leakage(self, adversary: str, weights: Vector, scale: float) -> Vector:
        """Return Σ over the loci of this kind, for every record; noise of locus l is weights_l / scale."""
        total = np.zeros(len(self.model.records))
        unknown = np.isnan(self.folded)
        for w in np.unique(weights[unknown]):
            count = int(self.counts[unknown & (weights == w)].sum())
            total += count * self.any_frequency(adversary, scale / w)
        places = [
            (k, w)
            for k in range(len(self.nodes))
            for w in np.unique(weights[(self.stands_on == k) & ~unknown]).tolist()
        ]
        leakages = self.at_nodes(adversary, [(k, scale / w) for k, w in places])
        for (k, w), found in zip(places, leakages, strict=True):
            chosen = (self.stands_on == k) & ~unknown & (weights == w)
            total += up_array(int(self.counts[chosen].sum()) * found)
            if adversary == "prior":
                total += self._way(chosen, k, scale / w)
        return up_array(total, 64.0 * (len(self.nodes) + 8))

    def ways(self, weights: Vector, scale: float) -> Vector:
        """Return the price of all ways from loci to the frequencies they stand on, for every record."""
        total = np.zeros(len(self.model.records))
        for k, w in sorted(set(zip(self.stands_on.tolist(), weights.tolist(), strict=True))):
            chosen = (self.stands_on == k) & (weights == w) & ~np.isnan(self.folded)
            if chosen.any():
                total += self._way(chosen, k, scale / w)
        return total

    def _way(self, chosen: NDArray[np.bool_], node: int, scale: float) -> Vector:
        """Return the price of the ways from some loci to the frequency they stand on."""
        return self.bridge.cost(
            scale, self.folded[chosen], float(self.nodes[node]), self.counts[chosen].astype(np.float64)
        )

    def worst_locus(self, adversary: str, scale: float) -> Vector:
        """Return the largest leakage at one locus of this kind, for every record."""
        worst = np.zeros(len(self.model.records))
        unknown = np.isnan(self.folded)
        if unknown.any():
            worst = self.any_frequency(adversary, scale)
        leakages = self.at_nodes(adversary, [(k, scale) for k in range(len(self.nodes))])
        for k, found in enumerate(leakages):
            price = self._dearest_way(k, scale) if adversary == "prior" else 0.0
            worst = np.maximum(worst, up_array(found + price))
        return worst

    def _dearest_way(self, node: int, scale: float) -> Vector:
        """Return the price of the dearest way to a node: of the longest, or looking at every locus."""
        here = np.unique(self.folded[(self.stands_on == node) & ~np.isnan(self.folded)])
        if self.bridge.plain:
            here = here[[0, -1]]
        price = [self.bridge.cost(scale, here[k : k + 1], float(self.nodes[node])) for k in range(len(here))]
        return np.asarray(np.max(price, axis=0), dtype=np.float64)

    def at_nodes(self, adversary: str, asked: Sequence[tuple[int, float]]) -> list[Vector]:
        """Return the leakage of every record, for nodes and scales."""
        return self.analyses.leakages([(adversary, float(self.nodes[k]), self.alpha(s)) for k, s in asked])

    def at_node(self, adversary: str, node: int, scale: float) -> Vector:
        """Return the leakage of every record at one of the nodes."""
        return self.at_nodes(adversary, [(node, scale)])[0]

    def any_frequency(self, adversary: str, scale: float) -> Vector:
        """Return a bound for every record that holds at any frequency."""
        if adversary == "prior":
            return self.bridge.any_frequency(up(scale, 8.0))
        return self.analyses.leakages([(EVERYWHERE, 0.25, self.alpha(scale))])[0]


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
    notes
        What was assumed, for people to read.
    """

    family: Pedigree
    panel: Panel
    query: str
    people: tuple[str, ...]
    kinds: tuple[Kind, ...]
    members: tuple[str, ...]
    notes: tuple[str, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)

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

    def leakage(self, sigma: float, adversary: str, weights: Vector | None = None) -> Vector:
        """Return the certified leakage of every person when locus l gets Laplace noise weights_l · σ."""
        if not (sigma > 0 and math.isfinite(sigma)):
            raise InvalidArgument(f"sigma must be a finite number above 0, not {sigma!r}")
        if adversary not in ADVERSARIES:
            raise InvalidArgument(
                f"{option('adversary')} must be one of {', '.join(ADVERSARIES)}, not {adversary!r}"
            )
        w = np.ones(len(self.panel)) if weights is None else weights
        total = np.zeros(len(self.people))
        place = {name: k for k, name in enumerate(self.people)}
        for kind in self.kinds:
            at = np.array([place[r] for r in kind.model.records], dtype=np.intp)
            total[at] += kind.leakage(adversary, w[kind.loci], up(1.0 / sigma, 4.0))
        return digits_up_array(up_array(total, 8.0))

    def leakage_per_locus(self, sigma: float, adversary: str) -> Vector:
        """Return the certified leakage of every person at the worst single locus, noise σ at each."""
        worst = np.zeros(len(self.people))
        place = {name: k for k, name in enumerate(self.people)}
        for kind in self.kinds:
            at = np.array([place[r] for r in kind.model.records], dtype=np.intp)
            worst[at] = np.maximum(worst[at], kind.worst_locus(adversary, up(1.0 / sigma, 4.0)))
        return digits_up_array(up_array(worst, 8.0))

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


def nodes_of(
    frequencies: Vector, most: int, counts: NDArray[np.int64] | None = None
) -> tuple[Vector, NDArray[np.intp]]:
    """Return at most ``most`` frequencies near all the others, and for each the one it stands on.

    Every distinct frequency where they are few enough; otherwise medians of neighbouring groups,
    improved until they stay (the price of a way is proportional to its length).  ``counts`` tells how
    many loci have each frequency.

    Examples
    --------
    >>> import numpy as np
    >>> nodes, on = nodes_of(np.array([0.1, 0.3, 0.1, 0.31, 0.11]), 2)
    >>> nodes.tolist(), on.tolist()
    ([0.1, 0.31], [0, 1, 0, 1, 0])
    """
    known = ~np.isnan(frequencies)
    weight = np.ones(len(frequencies)) if counts is None else counts.astype(np.float64)
    distinct, place = np.unique(frequencies[known], return_inverse=True)
    if len(distinct) > most:
        many = np.bincount(place, weight[known]).astype(np.float64)
        nodes = np.unique(np.quantile(distinct, (np.arange(most) + 0.5) / most, method="nearest"))
        for _ in range(30):
            cuts = np.searchsorted(distinct, 0.5 * (nodes[1:] + nodes[:-1]))
            groups = zip(np.split(distinct, cuts), np.split(many, cuts), strict=True)
            better = np.unique([_median(g, m) for g, m in groups if len(g)])
            if len(better) == len(nodes) and np.array_equal(better, nodes):
                break
            nodes = better
        distinct = nodes
    if not len(distinct):
        return np.zeros(0), np.zeros(len(frequencies), dtype=np.intp)
    nearest = np.searchsorted(0.5 * (distinct[1:] + distinct[:-1]), np.nan_to_num(frequencies))
    return distinct, nearest.astype(np.intp)


def _median(values: Vector, counts: Vector) -> float:
    """Return the upper median of ordered values, each so many times."""
    below = np.cumsum(counts)
    return float(values[np.searchsorted(below, below[-1] // 2, side="right")])


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
    adversaries: Sequence[str] = ADVERSARIES,
    time_limit: float = 30.0,
    progress: Progress | None = None,
    executor: Executor | None = None,
    journal: Journal | None = None,
    **reading: Any,
) -> PanelProfile:
    """Analyse a family at all loci of a panel, once; the profile then answers for any noise.

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
    time_limit
        Seconds that each analysis may take.
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
    [0.6, 0.6, 0.77]
    """
    family = source if isinstance(source, Pedigree) else read_pedigree(source, **reading)
    loci = panel if isinstance(panel, Panel) else _panel(panel)
    if nodes < 1:
        raise InvalidArgument(f"{option('nodes')} must be at least 1, not {nodes!r}")
    genetics = {"mutation_rate": mutation_rate, "error_rate": error_rate, "inbreeding": inbreeding}
    folded = np.minimum(loci.frequency, 1.0 - loci.frequency)
    folded[folded == 0.0] = np.nan
    wanted = [(x, np.flatnonzero(loci.x_linked == x)) for x in (False, True)]
    kinds = [
        _kind(family, query, at, folded[at], loci.counts[at], study, {**genetics, "x_linked": x},
              most=nodes, adversaries=adversaries, time_limit=time_limit, progress=progress,
              executor=executor, journal=journal)
        for x, at in wanted
        if len(at)
    ]  # fmt: skip
    people = dict.fromkeys(r for kind in kinds for r in kind.model.records)
    notes = (*loci.notes, *kinds[0].model.notes[1:], *_notes(loci, kinds, folded))
    members = study_members(family, study)
    provenance = kinds[0].model.provenance
    return PanelProfile(family, loci, query, tuple(people), tuple(kinds), members, notes, provenance)


def _panel(given: str | Path | Mapping[str, float]) -> Panel:
    return Panel.of(dict(given)) if isinstance(given, Mapping) else read_frequencies(given)


def _kind(
    family: Pedigree,
    query: str,
    at: NDArray[np.intp],
    folded: Vector,
    counts: NDArray[np.int64],
    study: Any,
    genetics: dict[str, Any],
    *,
    most: int,
    adversaries: Sequence[str],
    **how: Any,
) -> Kind:
    """Choose the frequencies that stand for all loci of one kind, and analyse the family there."""
    distinct = len(np.unique(folded[~np.isnan(folded)]))
    analyses = NodeAnalyses(family, study, genetics, distinct=distinct, **how)
    asked = query_by_name(analyses.some, query)
    bridge = Bridge.of(family, Locus(0.25, **genetics), asked.sensitivities)
    chosen, on = nodes_of(folded, most if bridge.holds else max(most, distinct), counts)
    analyses.prepare(adversaries, chosen.tolist())
    return Kind(analyses.some, asked, at, folded, counts, chosen, on, bridge, analyses)


def _notes(panel: Panel, kinds: Sequence[Kind], folded: Vector) -> tuple[str, ...]:
    said = [
        f"{panel.loci:,} loci, taken as unlinked: independent of each other given the pedigree; what linked"
        " loci tell about each other is not counted"
    ]
    distinct = sum(len(np.unique(k.folded[~np.isnan(k.folded)])) for k in kinds)
    analysed = sum(len(k.nodes) for k in kinds)
    if analysed < distinct:
        said.append(
            f"{distinct:,} distinct frequencies (p and 1 − p are alike): {analysed} were analysed, every"
            " locus stands on the nearest one, and the certified price of the difference is included"
        )
    else:
        said.append(f"{distinct:,} distinct frequencies (p and 1 − p are alike), each analysed")
    unknown = int(panel.counts[np.isnan(folded)].sum())
    if unknown:
        said.append(
            f"{unknown:,} loci have no frequency, or one of 0 or 1: a bound that holds for every frequency"
            " is used for them"
        )
    return tuple(said)
