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
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.profile import LeakageProfile, analyze
from quiltdp.domains.pedigree.bridge import Bridge
from quiltdp.domains.pedigree.frequencies import Panel, read_frequencies
from quiltdp.domains.pedigree.network import Locus, pedigree
from quiltdp.domains.pedigree.queries import GenotypeQuery, query_by_name
from quiltdp.domains.pedigree.read import read_pedigree
from quiltdp.domains.pedigree.study import study_members
from quiltdp.domains.pedigree.types import Pedigree
from quiltdp.errors import InvalidArgument, ModelTooWide, NoCertificate, option
from quiltdp.model import Model
from quiltdp.numbers import digits_up_array, up, up_array

__all__ = ["ADVERSARIES", "PanelProfile", "analyze_panel", "nodes_of"]

ADVERSARIES = ("informed", "prior")
NODES = 32
"""How many frequencies are analysed where a panel has more; the rest is bridged."""

Vector = NDArray[np.float64]
Progress = Callable[[str, float], None]


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
    nodes
        The frequencies that are analysed, and for each locus which of them it stands on.
    """

    model: Model
    query: GenotypeQuery
    loci: NDArray[np.intp]
    folded: Vector
    nodes: Vector
    stands_on: NDArray[np.intp]
    bridge: Bridge
    profiles: Mapping[str, tuple[LeakageProfile, ...]]

    def alpha(self, scale: float) -> dict[str, float]:
        """Return α of every record when the query gets noise of 1/scale: Δ_j · scale, rounded up."""
        return {r: up(d * scale, 4.0) for r, d in self.query.sensitivities.items()}

    def leakage(self, adversary: str, weights: Vector, scale: float) -> Vector:
        """Return Σ over the loci of this kind, for every record; noise of locus l is weights_l / scale."""
        total = np.zeros(len(self.model.records))
        unknown = np.isnan(self.folded)
        for w in np.unique(weights[unknown]):
            count = int((unknown & (weights == w)).sum())
            total += count * self.any_frequency(adversary, scale / w)
        for k in range(len(self.nodes)):
            here = (self.stands_on == k) & ~unknown
            for w in np.unique(weights[here]):
                chosen = here & (weights == w)
                found = self.at_node(adversary, k, scale / w)
                total += up_array(int(chosen.sum()) * found)
                if adversary == "prior":
                    total += self.bridge.cost(scale / w, self.folded[chosen], float(self.nodes[k]))
        return up_array(total, 64.0 * (len(self.nodes) + 8))

    def ways(self, weights: Vector, scale: float) -> Vector:
        """Return the price of all ways from loci to the frequencies they stand on, for every record."""
        total = np.zeros(len(self.model.records))
        for k, w in sorted(set(zip(self.stands_on.tolist(), weights.tolist(), strict=True))):
            chosen = (self.stands_on == k) & (weights == w) & ~np.isnan(self.folded)
            if chosen.any():
                total += self.bridge.cost(scale / w, self.folded[chosen], float(self.nodes[k]))
        return total

    def worst_locus(self, adversary: str, scale: float) -> Vector:
        """Return the largest leakage at one locus of this kind, for every record."""
        worst = np.zeros(len(self.model.records))
        unknown = np.isnan(self.folded)
        if unknown.any():
            worst = self.any_frequency(adversary, scale)
        for k in range(len(self.nodes)):
            here = self.folded[(self.stands_on == k) & ~unknown]
            ends = [here.min(), here.max()]
            found = self.at_node(adversary, k, scale)
            if adversary == "prior":
                price = [self.bridge.cost(scale, np.array([p]), float(self.nodes[k])) for p in ends]
                found = (
                    up_array(found + np.maximum(*price)) if self.bridge.plain else self._worst_way(k, scale)
                )
            worst = np.maximum(worst, found)
        return worst

    def _worst_way(self, node: int, scale: float) -> Vector:
        """Return the leakage at a node and the dearest way to it, looking at every locus."""
        here = np.unique(self.folded[self.stands_on == node])
        here = here[~np.isnan(here)]
        price = np.max(
            [self.bridge.cost(scale, here[k : k + 1], float(self.nodes[node])) for k in range(len(here))],
            axis=0,
        )
        return up_array(self.at_node("prior", node, scale) + price)

    def at_node(self, adversary: str, node: int, scale: float) -> Vector:
        """Return the leakage of every record at one of the nodes."""
        profiles = self.profiles[adversary]
        found = profiles[min(node, len(profiles) - 1)].leakage(self.alpha(scale))
        return np.array([found.per_record[r] for r in self.model.records])

    def any_frequency(self, adversary: str, scale: float) -> Vector:
        """Return a bound for every record that holds at any frequency."""
        if adversary == "prior":
            return self.bridge.any_frequency(up(scale, 8.0))
        return self.at_node("everywhere", 0, scale)


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
        return "one person" if len(self.panel) == 1 else f"one person, all {len(self.panel):,} loci together"

    @property
    def sensitivity(self) -> float:
        """How far one person moves all numbers of the release together."""
        return math.fsum(len(kind.loci) * kind.query.sensitivity for kind in self.kinds)

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
        return digest.hexdigest()


def nodes_of(frequencies: Vector, most: int) -> tuple[Vector, NDArray[np.intp]]:
    """Return at most ``most`` frequencies near all the others, and for each the one it stands on.

    Every distinct frequency where they are few enough; otherwise medians of neighbouring groups,
    improved until they stay (the price of a way is proportional to its length).

    Examples
    --------
    >>> import numpy as np
    >>> nodes, on = nodes_of(np.array([0.1, 0.3, 0.1, 0.31, 0.11]), 2)
    >>> nodes.tolist(), on.tolist()
    ([0.1, 0.31], [0, 1, 0, 1, 0])
    """
    known = frequencies[~np.isnan(frequencies)]
    distinct = np.unique(known)
    if len(distinct) > most:
        ordered = np.sort(known)
        nodes = np.unique(np.quantile(distinct, (np.arange(most) + 0.5) / most, method="nearest"))
        for _ in range(30):
            groups = np.split(ordered, np.searchsorted(ordered, 0.5 * (nodes[1:] + nodes[:-1])))
            better = np.unique([np.sort(g)[len(g) // 2] for g in groups if len(g)])
            if len(better) == len(nodes) and np.array_equal(better, nodes):
                break
            nodes = better
        distinct = nodes
    if not len(distinct):
        return np.zeros(0), np.zeros(len(frequencies), dtype=np.intp)
    nearest = np.searchsorted(0.5 * (distinct[1:] + distinct[:-1]), np.nan_to_num(frequencies))
    return distinct, nearest.astype(np.intp)


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
        _kind(family, query, at, folded[at], study, {**genetics, "x_linked": x},
              most=nodes, adversaries=adversaries, time_limit=time_limit, progress=progress)
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
    study: Any,
    genetics: dict[str, Any],
    *,
    most: int,
    adversaries: Sequence[str],
    time_limit: float,
    progress: Progress | None,
) -> Kind:
    """Analyse the family at the frequencies that stand for all loci of one kind."""
    some = pedigree(family, 0.25, study=study, **genetics)
    asked = query_by_name(some, query)
    bridge = Bridge.of(family, Locus(0.25, **genetics), asked.sensitivities)
    distinct = len(np.unique(folded[~np.isnan(folded)]))
    chosen, on = nodes_of(folded, most if bridge.holds else max(most, distinct))
    profiles: dict[str, tuple[LeakageProfile, ...]] = {
        "everywhere": (analyze(some, adversary="informed", method="propagation", time_limit=time_limit),)
    }
    few = distinct <= _FEW
    for adversary in adversaries:
        if adversary == "informed" and not few:
            profiles[adversary] = profiles["everywhere"]
            continue
        made = []
        for k, p in enumerate(chosen.tolist()):
            if progress is not None:
                progress(f"analysing frequencies against the {adversary} adversary", k / len(chosen))
            made.append(_profile(pedigree(family, p, study=study, **genetics), adversary, few, time_limit))
        profiles[adversary] = tuple(made)
    return Kind(some, asked, at, folded, chosen, on, bridge, profiles)


_FEW = 4  # distinct frequencies: every method is tried on each of them


def _profile(model: Model, adversary: str, few: bool, time_limit: float) -> LeakageProfile:
    """Analyse one frequency: with every method where there are few, else with the quick one that fits."""
    if few or adversary == "informed":
        return analyze(model, adversary=adversary, time_limit=time_limit)
    for method in ("coupling", "forward-backward"):
        try:
            return analyze(model, adversary=adversary, method=method, time_limit=time_limit)
        except (ModelTooWide, NoCertificate):
            continue
    return analyze(model, adversary=adversary, time_limit=time_limit)


def _notes(panel: Panel, kinds: Sequence[Kind], folded: Vector) -> tuple[str, ...]:
    said = [
        f"{len(panel):,} loci, taken as unlinked: independent of each other given the pedigree; what linked"
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
    unknown = int(np.isnan(folded).sum())
    if unknown:
        said.append(
            f"{unknown:,} loci have no frequency, or one of 0 or 1: a bound that holds for every frequency"
            " is used for them"
        )
    return tuple(said)
