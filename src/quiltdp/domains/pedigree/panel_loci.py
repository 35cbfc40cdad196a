r"""All loci of one kind, autosomal or on the X: frequencies that are analysed, and the loci between them.

**Claim.** Let i be a person of a family at one locus, θ = ln p/(1 − p) the logit of the allele frequency,
a ≤ θ ≤ b, λ = (b − θ)/(b − a).  Against every adversary (informed, prior, whoever knows some)

    Leakage_θ(i) ≤ λ Leakage_a(i) + (1 − λ) Leakage_b(i) + ½ (θ − a)(b − θ) K_i,

    K_i = 2 M_i² min( A_i / 6√3, 1/4 ),

A_i = Σ α_j over the other records of i's family, M_i the number of founder alleles in it (without i's own
two, if i is a founder whose genotype is read without error).

**Proof.** Draw the family as founder alleles, each alternative with probability p, and everything else R
(who passes which copy on, mutations, wrong calls, an inbred founder's use of one allele twice), whose law
does not know p.  With N the number of alternative founder alleles, the law of (alleles, R) is that of R
times e^{θN} (1 + e^θ)^{−M}.  Fix what is known, e, values x, x' and a likelihood h of the family's
records (people of other families are independent: averaged over them, h is such a one).  Then

    f(θ) = ln E[h | x, e] − ln E[h | x', e],    (ln E[h | x, e])'' = Var_h(N) − Var(N),

both variances given (x, e), the first under the law weighted by h.  From one to the other along the weights
h^s the variance changes at the rate Cov(ln h, (N − μ)²).  For a law of N on [0, M] and 0 ≤ ψ ≤ 1 this
covariance is at most M²/6√3: it is largest for an indicator ψ, of an event S with probability s, where it is

    s(1 − s) ( E[(N−μ)² | S] − E[(N−μ)² | not S] ) ≤ s(1 − s) ( (1 − 2s) d² + m (M − m) ),

m = E[N | S], d the distance of the two means.  For s ≥ ½ that is at most M²/16; else d ≤ max(m, M − m), say
m, and s(1 − s)(m M − 2s m²) has its maximum M²/6√3 at m = M, s = ½ − 1/√12.  ln h has range at most A, so
|Var_h − Var| ≤ M² A/6√3; and it is at most M²/4 anyhow.  So |f''| ≤ K, f lies below its chord plus
½ (θ − a)(b − θ) K, and the leakage is the largest f.  ∎
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import Adversary
from quiltdp.accountant.leakage import LeakageProfile
from quiltdp.accountant.shared_work import SharedWork, ask_within_guard
from quiltdp.domains.pedigree.network import Locus, pedigree
from quiltdp.domains.pedigree.people import Pedigree, study_members
from quiltdp.domains.pedigree.queries import GenotypeQuery, query_by_name
from quiltdp.journal import Journal, hash_key, map_journaled
from quiltdp.model import Model
from quiltdp.numbers import EPS, up, up_array
from quiltdp.parallel import Progress
from quiltdp.work import NO_GUARD, Guard, WorkBudget

Vector = NDArray[np.float64]

_CLOSE = 0.005  # what lies between the nodes may add this share of group privacy
_KEPT = 128  # analyses that are remembered

ANY_FREQUENCY = "any frequency"
"""Stands where an adversary does: anybody, at any frequency."""


def drop_uninformative_people(family: Pedigree, members: Collection[str]) -> Pedigree:
    """Return the family without people outside the study who have no descendants in it.

    Nothing is released about them and nobody descends from them: they tell nothing, and two people who
    meet in such children only are independent.

    Examples
    --------
    >>> from quiltdp.domains.pedigree import Pedigree, Person
    >>> trio = Pedigree((Person("dad"), Person("mum"), Person("kid", "dad", "mum")))
    >>> [p.name for p in drop_uninformative_people(trio, ["dad", "mum"]).people]
    ['dad', 'mum']
    """
    chosen, kept = frozenset(members), set()
    for p in reversed(family.ordered):
        if p.name in kept or chosen & {p.name, *p.also}:
            kept |= {p.name, *p.parents}
    return replace(family, people=tuple(p for p in family.people if p.name in kept), facts={})


def choose_frequencies(frequencies: Vector, most: int, counts: NDArray[np.int64] | None = None) -> Vector:
    """Return frequencies to analyse: all different ones, or at most ``most`` (never fewer than two).

    The least and the largest are among them, and those between lie denser where there are more loci:
    at distances in proportion to density^(−1/3), which makes the sum of the squares of distances least.

    Examples
    --------
    >>> import numpy as np
    >>> choose_frequencies(np.array([0.1, 0.3, 0.1, 0.31, 0.11, np.nan]), 3).tolist()
    [0.1, 0.3, 0.31]
    """
    known = ~np.isnan(frequencies)
    distinct, place = np.unique(frequencies[known], return_inverse=True)
    if len(distinct) <= max(2, most):
        return distinct
    many = np.bincount(place, None if counts is None else counts[known])
    way = np.cumsum(np.cbrt(many[1:] + many[:-1]) * np.diff(_logit(distinct)) ** (2 / 3))
    steps = np.searchsorted(way, np.linspace(0.0, way[-1], max(2, most))[1:-1] * (1.0 + 4 * EPS))
    return np.asarray(distinct[np.unique([0, *(steps + 1), len(distinct) - 1])])


def _logit(p: Vector) -> Vector:
    return np.asarray(np.log(p) - np.log1p(-p))


@dataclass(frozen=True, eq=False)
class Kind:
    """All loci of one kind (autosomal, or on the X): who is a record there, and what moves it.

    Attributes
    ----------
    model
        The network at one of the frequencies: its records and who stands behind them.
    query
        The query at one locus of this kind.
    loci, counts
        Positions in the panel, and how many loci each of them stands for.
    frequency
        That of each; NaN where it is unknown or nobody varies.  Where the query cannot tell which allele is
        the alternative one, p and 1 − p are alike, and it is the smaller.
    nodes
        The frequencies that are analysed.
    whole, others
        Σ of sensitivities over the family of each record, and without the record itself.
    alleles
        M of every record.
    """

    model: Model
    query: GenotypeQuery
    loci: NDArray[np.intp]
    counts: NDArray[np.int64]
    frequency: Vector
    nodes: Vector
    whole: Vector
    others: Vector
    alleles: Vector
    analyses: NodeAnalyses

    @classmethod
    def of(
        cls,
        family: Pedigree,
        query: str,
        loci: NDArray[np.intp],
        frequency: Vector,
        counts: NDArray[np.int64],
        study: Any,
        genetics: Mapping[str, Any],
        most: int,
        **how: Any,
    ) -> Kind:
        """Look at a family once, and choose the frequencies where it will be analysed."""
        model = pedigree(family, 0.25, study=study, **genetics)
        counted = query_by_name(model, query)
        prices = counted.mechanism.prices(model)
        folded = frequency.copy()
        if all(np.array_equal(table, table[::-1, ::-1]) for table in prices.values()):
            folded = np.minimum(frequency, 1.0 - frequency)
        folded[(folded == 0.0) | (folded == 1.0)] = np.nan
        seen = drop_uninformative_people(family, study_members(family, study))
        whole, others, alleles = _family_totals(seen, Locus(0.25, **genetics), counted.sensitivities)
        wanted = _sufficient_frequency_count(folded, float(alleles.max(initial=0.0, where=others > 0)))
        nodes = choose_frequencies(folded, min(most, wanted), counts)
        analyses = NodeAnalyses(seen, study, genetics, counted, model.fingerprint, **how)
        return cls(model, counted, loci, counts, folded, nodes, whole, others, alleles, analyses)

    @property
    def size(self) -> int:
        """How many loci there are."""
        return int(self.counts.sum())

    @property
    def distinct(self) -> int:
        """How many different frequencies are known."""
        return len(np.unique(self.frequency[~np.isnan(self.frequency)]))

    def leakage(self, adversary: Adversary, weights: Vector, scale: float) -> Vector:
        """Return Σ over the loci of this kind, for every record; noise of locus l is weights_l / scale."""
        low, *parts = self._interpolation_weights
        groups, place = np.unique(np.stack([low, weights]), axis=1, return_inverse=True)
        loci = [self.counts * part for part in (np.ones(len(low)), *parts)]
        sums = np.array([np.bincount(place.ravel(), part) for part in loci], dtype=np.float64)
        total = np.zeros(len(self.model.records))
        for one, (count, share, rest, gap) in zip(
            self._bracket_leakages(adversary, groups, scale),
            up_array(sums, 8.0 * (len(low) + 8)).T,
            strict=True,
        ):
            total += np.minimum(count * one.group, share * one.below + rest * one.above + gap * one.bend)
        return up_array(total, 8.0 * (len(sums[0]) + 8))

    def worst_locus(self, adversary: Adversary, scale: float) -> Vector:
        """Return the largest leakage at one locus of this kind, for every record."""
        low, share, rest, gap = self._interpolation_weights
        groups, place = np.unique(low, return_inverse=True)
        worst = np.zeros(len(self.model.records))
        for k, one in enumerate(
            self._bracket_leakages(adversary, np.stack([groups, np.ones(len(groups))]), scale)
        ):
            here = place == k
            ends = np.maximum(one.below * (share[here].max() > 0), one.above * (rest[here].max() > 0))
            worst = np.maximum(worst, np.minimum(one.group, ends + up(float(gap[here].max())) * one.bend))
        return up_array(worst)

    def leakage_slopes(self, adversary: Adversary, scale: float) -> Vector:
        """Return about what the worst-off record loses at each locus, the same for loci between two nodes."""
        groups, place = np.unique(self._interpolation_weights[0], return_inverse=True)
        brackets = self._bracket_leakages(adversary, np.stack([groups, np.ones(len(groups))]), scale)
        return np.array([one.below.max() for one in brackets])[place]

    def _bracket_leakages(
        self, adversary: Adversary, groups: Vector, scale: float
    ) -> list[_FrequencyBracket]:
        """Return what is certified at both ends of brackets, and of the noise 1/scale in each."""
        last = len(self.nodes) - 1
        ends = {}
        for low, w in groups.T.tolist():
            for k in (int(low), min(int(low) + 1, last)) if low >= 0 else (-1,):
                who = (adversary, float(self.nodes[k])) if low >= 0 else (ANY_FREQUENCY, 0.25)
                ends[k, w] = (*who, up(scale / w))
        at = dict(zip(ends, self.analyses.leakages(list(ends.values())), strict=True))
        brackets = []
        for low, w in groups.T.tolist():
            cost = up(scale / w) * self.others
            bend = 2.0 * self.alleles**2 * np.minimum(cost / (6.0 * math.sqrt(3.0)), 0.25)
            high = min(int(low) + 1, last) if low >= 0 else -1
            group = up(scale / w) * self.whole
            brackets.append(_FrequencyBracket(up_array(group), at[int(low), w], at[high, w], up_array(bend)))
        return brackets

    @cached_property
    def _interpolation_weights(self) -> tuple[Vector, Vector, Vector, Vector]:
        """For each locus: the node below it (−1: unknown), λ, 1 − λ and ½ (θ − a)(b − θ), rounded up."""
        low = np.full(len(self.frequency), -1.0)
        share, rest, gap = np.ones(len(low)), np.zeros(len(low)), np.zeros(len(low))
        known = np.flatnonzero(~np.isnan(self.frequency))
        low[known] = np.searchsorted(self.nodes, self.frequency[known], side="right") - 1
        inside = known[self.nodes[low[known].astype(np.intp)] != self.frequency[known]]
        below = low[inside].astype(np.intp)
        logits, theta = _logit(self.nodes), _logit(self.frequency[inside])
        a, b = logits[below], logits[below + 1]
        error = 16.0 * EPS * (1.0 + np.abs(a) + np.abs(b))  # logits are rounded
        share[inside] = np.minimum(1.0, (b - theta + error) / (b - a))
        rest[inside] = np.minimum(1.0, (theta - a + error) / (b - a))
        gap[inside] = 0.5 * (b - theta + error) * (theta - a + error)
        return low, share, rest, gap


class _FrequencyBracket(NamedTuple):
    """What is certified of every record: group privacy, at both ends of a bracket, and K."""

    group: Vector
    below: Vector
    above: Vector
    bend: Vector


def _sufficient_frequency_count(frequencies: Vector, alleles: float) -> int:
    """Return so many nodes that what lies between them adds little: ½ h²/6 of K for distances h."""
    logits = _logit(frequencies[~np.isnan(frequencies)])
    if not len(logits):
        return 2
    distance = math.sqrt(12.0 * _CLOSE * 3.0 * math.sqrt(3.0)) / max(alleles, 1.0)
    return 2 + math.ceil(float(np.ptp(logits)) / distance)


def _family_totals(
    family: Pedigree, locus: Locus, weights: Mapping[str, float]
) -> tuple[Vector, Vector, Vector]:
    """Return, for every record, Σ of weights over its family, the same without its own, and M."""
    exact = locus.error_rate == 0.0 and locus.inbreeding == 0.0
    whole, alleles = {}, {}
    for component in family.components:
        inside = [(r, family[n]) for n in component for r in (n, *family[n].also) if r in weights]
        total = math.fsum(weights[r] for r, _ in inside)
        copies = sum(locus.copies(family[n]) for n in component if not family[n].parents)
        for record, person in inside:
            whole[record] = total
            alleles[record] = copies - (locus.copies(person) if exact and not person.parents else 0)
    both = np.array([[whole[r], alleles[r]] for r in weights]).reshape(-1, 2)
    others = np.maximum(0.0, both[:, 0] - np.array(list(weights.values())))
    return both[:, 0], others, both[:, 1]


class _NodeQuestion(NamedTuple):
    """An adversary (or ``ANY_FREQUENCY``), a frequency, 1/σ, and the budget and limit for them."""

    adversary: Adversary | str
    frequency: float
    scale: float
    budget: WorkBudget
    guard: Guard


class NodeAnalyses:
    """A family at some frequencies: what each record leaks there; each analysed when it is first asked about.

    Frequencies and adversaries are independent, so they may be asked in workers, and answers may be kept in
    a journal.  An analysis that a limit cuts short has none (:class:`~quiltdp.work.GuardReached`), so nothing
    of it is kept.

    Parameters
    ----------
    family, study, genetics
        As for :func:`quiltdp.pedigree`.
    query
        What is released at each locus.
    name
        What stands for the family in a journal.
    shared
        The work budget and the limit of all questions.
    executor, journal, progress
        Where to ask, and what remembers; neither is sent to a worker.
    """

    def __init__(
        self,
        family: Pedigree,
        study: Any,
        genetics: Mapping[str, Any],
        query: GenotypeQuery,
        name: str,
        *,
        shared: SharedWork,
        executor: Executor | None = None,
        journal: Journal | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.query = query
        self.shared: SharedWork | None = shared
        self.executor, self.journal, self.progress = executor, journal, progress
        self._source, self._name = (family, study, dict(genetics)), name
        self._profiles: OrderedDict[tuple[Any, ...], LeakageProfile] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        """Send what is asked about, not what was found here or how long it may take."""
        mine: dict[str, Any] = dict.fromkeys(("executor", "journal", "progress", "shared"))
        return {**self.__dict__, **mine, "_profiles": OrderedDict()}

    def leakages(self, points: Sequence[tuple[Adversary | str, float, float]]) -> list[Vector]:
        """Return the leakage of every record, for every adversary, frequency and 1/σ.

        Raises
        ------
        GuardReached
            If one of them was cut short.
        """
        assert self.shared is not None, "questions are put where the analyses were made"
        limits = {True: (self.shared.asked, NO_GUARD), False: (self.shared.budget, self.shared.guard)}
        # at any frequency it is one pass, which is never cut short
        questions = [_NodeQuestion(*point, *limits[isinstance(point[0], str)]) for point in points]
        answers = map_journaled(
            NodeAnalyses.ask,
            questions,
            key=self._journal_key,
            journal=self.journal,
            shared=self,
            executor=self.executor,
            progress=self.progress if len(questions) > 1 else None,
            label="what the noise leaks, frequency by frequency",
            total=len(questions),
        )
        return [np.array(values) for _, values in answers]

    def _journal_key(self, question: _NodeQuestion) -> str:
        who, frequency, scale, budget, _ = question
        name = who if isinstance(who, str) else who.name
        return hash_key(self._name, self.query.name, name, frequency, scale, budget.to_dict())

    def ask(self, question: _NodeQuestion) -> list[float]:
        """Return the leakage of every record from the analysis behind it, made now if it is not there."""
        place = (question.adversary, question.frequency, question.budget)
        if place not in self._profiles:
            self._profiles[place] = self._leakage_profile(question)
            if len(self._profiles) > _KEPT:
                self._profiles.popitem(last=False)
        self._profiles.move_to_end(place)
        profile = self._profiles[place]
        alpha = {r: up(d * question.scale, 4.0) for r, d in self.query.sensitivities.items()}
        try:
            leakage = ask_within_guard(question.guard, profile, lambda: profile.per_unit(alpha))
        finally:
            if profile.reached:  # what was finished of it answers nothing
                del self._profiles[place]
        return [leakage[r] for r in self.query.terms]

    def _leakage_profile(self, question: _NodeQuestion) -> LeakageProfile:
        family, study, genetics = self._source
        model = pedigree(family, question.frequency, study=study, **genetics)
        if isinstance(question.adversary, str):  # a founder's own table has spread 0: the frequency cancels
            return LeakageProfile(model, method="propagation")
        prices = self.query.mechanism.prices(model)
        return LeakageProfile(model, adversary=question.adversary, work=question.budget, prices=prices)
