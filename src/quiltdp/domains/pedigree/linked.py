"""Linked loci: haplotypes that founders draw from a population and parents recombine.

A person has two haplotypes, one from each parent, and each is a node: a row of alleles, one for every
locus, in the order of the chromosome.  The genotype at a locus, a record, is the number of alternative
alleles that the two carry there.  Founders draw haplotypes independently from the population, where
alleles of neighbouring loci go together (linkage disequilibrium).  A parent passes on a row that begins
on either haplotype with equal chance and changes sides between two neighbouring loci with probability
θ, the recombination fraction, independently between all neighbours (Haldane's model, no interference).

With θ = ½ everywhere and independent alleles this is the model of unlinked loci.

Unlinked loci add up; linked ones do not: alleles that go together tell about each other, and relatives
share whole stretches.  :func:`linkage_cost` compares two numbers, each in the linked model and in the
unlinked one with the same allele frequencies: what is leaked about all loci of a person together, and about
one genotype alone, which independence believes safe from counts at other loci.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise, product
from typing import Any

import numpy as np

from quiltdp.accountant.calibration import calibrate
from quiltdp.accountant.result import Leakage
from quiltdp.accountant.units import without_partial_answer
from quiltdp.accountant.verify import leakage_of
from quiltdp.domains.pedigree import mendel
from quiltdp.domains.pedigree.people import Pedigree, Person
from quiltdp.domains.pedigree.queries import query_by_name, records_by_person
from quiltdp.errors import InvalidArgument, ModelTooWide, option
from quiltdp.model import Model, Table
from quiltdp.work import Limit, WorkBudget

PATERNAL, MATERNAL = ":paternal", ":maternal"
MOST_LOCI = 5
"""How many loci one model takes: the table of a gamete has 8^loci entries."""

Tables = dict[str, tuple[list[str], Table]]


@dataclass(frozen=True, eq=False)
class LinkedLoci:
    """Loci of one chromosome, in order: who carries what together, and how it is passed on.

    Attributes
    ----------
    names
        The loci, in the order of the chromosome.
    haplotypes
        P(haplotype) among founders, 2^loci numbers; the first locus is the highest binary digit.
    recombination
        θ between each two neighbours, 0 to ½.
    mutation_rate, error_rate, inbreeding, x_linked
        As for one :class:`~quiltdp.domains.pedigree.network.Locus`; with inbreeding F a founder's two
        haplotypes are copies of one with probability F.

    Examples
    --------
    >>> pair = LinkedLoci.of({"rs1": 0.1, "rs2": 0.3}, recombination=0.01, ld=1.0)
    >>> pair.haplotypes.round(6).tolist()  # 00, 01, 10, 11: whoever has rs1 has rs2
    [0.7, 0.2, 0.0, 0.1]
    """

    names: tuple[str, ...]
    haplotypes: Table
    recombination: tuple[float, ...]
    mutation_rate: float = 0.0
    error_rate: float = 0.0
    inbreeding: float = 0.0
    x_linked: bool = False
    frequencies: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        """Check every number; refuse loci at which nobody varies."""
        size = len(self.names)
        if size < 2:
            raise InvalidArgument(f"{option('recombination')} needs two loci or more, {size} given")
        _refuse_too_many_loci(size)
        law = np.array(self.haplotypes, dtype=np.float64)
        if law.shape != (2**size,) or not np.all(law >= 0) or abs(float(law.sum()) - 1.0) > 1e-6:
            raise InvalidArgument(
                f"haplotypes: {size} loci need {2**size} frequencies that sum to 1, not to {law.sum():g}"
            )
        law = law / law.sum()
        law.flags.writeable = False
        object.__setattr__(self, "haplotypes", law)
        object.__setattr__(self, "recombination", _check_recombination(self.recombination, size))
        bits = alleles(size)
        marginal = {n: float(law[bits[:, k] == 1].sum()) for k, n in enumerate(self.names)}
        object.__setattr__(self, "frequencies", marginal)
        for p in marginal.values():
            mendel.founder_table(p, inbreeding=self.inbreeding)
        mendel.gamete(2, self.mutation_rate)
        mendel.genotype_call_table(self.error_rate)

    @classmethod
    def of(
        cls,
        allele_frequency: Mapping[str, float],
        *,
        recombination: float | Sequence[float],
        ld: float | Sequence[float] = 0.0,
        **genetics: object,
    ) -> LinkedLoci:
        """Build from allele frequencies and D' between neighbours: alleles along a haplotype are a chain.

        Parameters
        ----------
        ld
            Lewontin's D' of neighbouring loci, −1 to 1, one number or one per pair of neighbours: 0 is
            linkage equilibrium, 1 the strongest association of the two alternative alleles that their
            frequencies allow.
        """
        names = tuple(allele_frequency)
        _refuse_too_many_loci(len(names))
        size = max(len(names), 2)
        strength = _check_values_per_pair("ld", ld, size, -1.0, 1.0)
        p = [float(allele_frequency[n]) for n in names]
        for value in p:
            mendel.founder_table(value)
        law = np.array([1.0 - p[0], p[0]])
        for k in range(1, len(p)):
            joint = _neighbour_allele_law(p[k - 1], p[k], strength[k - 1])
            rows = joint / joint.sum(axis=1, keepdims=True)
            law = (law.reshape(-1, 2, 1) * rows[None]).reshape(-1)
        return cls(names, law, _check_recombination(recombination, size), **genetics)  # type: ignore[arg-type]  # by name

    @classmethod
    def of_haplotypes(
        cls,
        haplotypes: Mapping[str, float],
        names: Sequence[str] | None = None,
        *,
        recombination: float | Sequence[float],
        **genetics: object,
    ) -> LinkedLoci:
        """Build from the frequencies of haplotypes written as digits, 1 for the alternative allele.

        Examples
        --------
        >>> loci = LinkedLoci.of_haplotypes({"00": 0.5, "01": 0.25, "11": 0.25}, recombination=0.01)
        >>> loci.frequencies
        {'locus 1': 0.25, 'locus 2': 0.5}
        """
        rows = [str(h) for h in haplotypes]
        size = len(rows[0]) if rows else 0
        for row in rows:
            if len(row) != size or set(row) - {"0", "1"}:
                digits = f"a row of {size} digits 0 or 1, one for every locus"
                raise InvalidArgument(f"haplotypes: {row!r} is not {digits}")
        called = tuple(names) if names is not None else tuple(f"locus {k + 1}" for k in range(size))
        if len(called) != size:
            raise InvalidArgument(f"haplotypes: rows have {size} digits for {len(called)} loci")
        _refuse_too_many_loci(size)
        law = np.zeros(2**size)
        for row, share in zip(rows, haplotypes.values(), strict=True):
            law[int(row, 2)] += float(share)
        return cls(called, law, _check_recombination(recombination, max(size, 2)), **genetics)  # type: ignore[arg-type]  # by name

    @property
    def explanation(self) -> tuple[str, ...]:
        """What was assumed, in words."""
        where = "X-linked" if self.x_linked else "autosomal"
        loci = ", ".join(f"{n} {p:g}" for n, p in self.frequencies.items())
        theta = ", ".join(f"{t:g}" for t in self.recombination)
        notes = [
            f"{len(self.names)} linked {where} loci in this order, frequency of alternative alleles: {loci};"
            f" recombination fraction {theta}; inbreeding {self.inbreeding:g}, mutation rate"
            f" {self.mutation_rate:g}, genotyping error {self.error_rate:g}",
            "correlation of neighbouring alleles among founders: "
            + ", ".join(f"{a} and {b} r = {r:.3g}" for (a, b), r in self.correlations.items()),
        ]
        return (*notes, *mendel.exactness_notes(self.mutation_rate, self.error_rate))

    @property
    def correlations(self) -> dict[tuple[str, str], float]:
        """The correlation r of the alleles of neighbouring loci on one haplotype."""
        bits = alleles(len(self.names))
        correlations = {}
        for k, (a, b) in enumerate(pairwise(self.names)):
            p, q = self.frequencies[a], self.frequencies[b]
            both = float(self.haplotypes[(bits[:, k] == 1) & (bits[:, k + 1] == 1)].sum())
            correlations[a, b] = (both - p * q) / math.sqrt(p * (1 - p) * q * (1 - q))
        return correlations


def _refuse_too_many_loci(loci: int) -> None:
    if loci > MOST_LOCI:
        many = f"{loci} linked loci have {2**loci:,} haplotypes; one model takes at most {MOST_LOCI} loci"
        raise ModelTooWide(many, "leave loci out")


def alleles(loci: int) -> Table:
    """Return the alleles of every haplotype, haplotypes × loci."""
    return np.array(list(product((0, 1), repeat=loci)))


def transmitted_haplotype_table(
    loci: int, recombination: Sequence[float], mutation_rate: float = 0.0
) -> Table:
    """P(haplotype passed on | the parent's two): axes first, second, passed on.

    Sum over the sides s ∈ {1, 2}^loci that each allele is taken from: P(s) = ½ Π (θ_k where the side
    changes, 1 − θ_k where it stays); then every allele mutates with probability μ.

    Examples
    --------
    >>> transmitted_haplotype_table(2, [0.1])[0b00, 0b11].tolist()  # 00, 01, 10, 11
    [0.45, 0.05, 0.05, 0.45]
    """
    bits = alleles(loci)
    size = len(bits)
    weight = 2 ** np.arange(loci)[::-1]
    table = np.zeros((size, size, size))
    first, second = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
    for sides in product((0, 1), repeat=loci):
        chance = 0.5
        for k, theta in enumerate(recombination):
            chance *= theta if sides[k] != sides[k + 1] else 1.0 - theta
        taken = np.where(np.array(sides) == 0, bits[:, None, :], bits[None, :, :]) @ weight
        np.add.at(table, (first, second, taken), chance)
    return np.asarray(table @ _mutation_table(loci, mutation_rate))


def linked_network_tables(family: Pedigree, loci: LinkedLoci, members: Collection[str]) -> Tables:
    """Return the network: haplotypes of everybody, genotypes of the members at every locus.

    Records are called ``person@locus``; of monozygotic twins one record, or with genotyping error one each.
    """
    chosen = frozenset(members)
    tables: Tables = {}
    size = len(loci.names)
    founder = loci.haplotypes
    second = loci.inbreeding * np.eye(2**size) + (1.0 - loci.inbreeding) * founder[None, :]
    gamete = transmitted_haplotype_table(size, loci.recombination, loci.mutation_rate)
    mutated = _mutation_table(size, loci.mutation_rate)
    for p in family.people:
        if _has_one_copy(loci, p):
            tables[p.name + MATERNAL] = (
                (_haplotype_nodes(loci, family[p.mother]), gamete) if p.mother else ([], founder)
            )
        elif p.founder:
            tables[p.name + PATERNAL] = ([], founder)
            tables[p.name + MATERNAL] = ([p.name + PATERNAL], second) if loci.inbreeding else ([], founder)
        else:
            father, mother = family[str(p.father)], family[str(p.mother)]
            tables[p.name + PATERNAL] = (
                _haplotype_nodes(loci, father), mutated if _has_one_copy(loci, father) else gamete
            )  # fmt: skip
            tables[p.name + MATERNAL] = (_haplotype_nodes(loci, mother), gamete)
    for k, locus in enumerate(loci.names):
        for p in family.people:
            who = (p.name, *p.also) if loci.error_rate > 0 else (p.name,)
            called = _genotype_table(loci, k, copies=1 if _has_one_copy(loci, p) else 2)
            for name in who:
                if name in chosen or (loci.error_rate == 0 and chosen & {p.name, *p.also}):
                    tables[f"{name}@{locus}"] = (_haplotype_nodes(loci, p), called)
    return tables


def _has_one_copy(loci: LinkedLoci, person: Person) -> bool:
    return loci.x_linked and person.sex == "male"


def _haplotype_nodes(loci: LinkedLoci, person: Person) -> list[str]:
    sides = (MATERNAL,) if _has_one_copy(loci, person) else (PATERNAL, MATERNAL)
    return [person.name + side for side in sides]


def _genotype_table(loci: LinkedLoci, locus: int, *, copies: int) -> Table:
    """P(called genotype at a locus | haplotypes)."""
    call = mendel.genotype_call_table(loci.error_rate, copies + 1)
    own = alleles(len(loci.names))[:, locus]
    return np.asarray(call[own] if copies == 1 else call[own[:, None] + own[None, :]])


def _mutation_table(loci: int, mutation_rate: float) -> Table:
    """P(row of alleles after mutation | before): every allele on its own."""
    low, high = mendel.gamete(1, mutation_rate).tolist()
    one = np.array([[1.0 - low, low], [1.0 - high, high]])
    table = np.ones((1, 1))
    for _ in range(loci):
        table = np.kron(table, one)
    return table


def _neighbour_allele_law(p: float, q: float, strength: float) -> Table:
    """P(allele of one locus, allele of the next) with Lewontin's D' = strength."""
    most = min(p * (1 - q), (1 - p) * q) if strength >= 0 else min(p * q, (1 - p) * (1 - q))
    d = strength * most
    table = np.array([[(1 - p) * (1 - q) + d, (1 - p) * q - d], [p * (1 - q) - d, p * q + d]])
    table[np.abs(table) < 1e-15] = 0.0  # the corner that |D'| = 1 empties, exactly
    return table


def _check_recombination(recombination: float | Sequence[float], loci: int) -> tuple[float, ...]:
    return _check_values_per_pair("recombination", recombination, loci, 0.0, 0.5)


def _check_values_per_pair(
    name: str, numbers: float | Sequence[float], loci: int, low: float, high: float
) -> tuple[float, ...]:
    values = [numbers] if isinstance(numbers, int | float) else list(numbers)
    if len(values) == 1:
        values = values * (loci - 1)
    if len(values) != loci - 1:
        pairs = f"{loci} loci have {loci - 1} pairs of neighbours, {len(values)} numbers given"
        raise InvalidArgument(f"{option(name)}: {pairs}")
    for value in values:
        if not low <= float(value) <= high:
            raise InvalidArgument(f"{option(name)} must lie between {low:g} and {high:g}, not {value!r}")
    return tuple(map(float, values))


# -- what taking linked loci for independent would have missed ---------------------------------------

_EXACT_STATES = 81  # joint genotypes of the others up to which the limit is asked for: a trio at two loci
_EXACT_RECORDS = 8


@dataclass(frozen=True)
class LinkageCost:
    """Noise and leakage of linked loci, beside those of the unlinked model.

    Attributes
    ----------
    sigma, sigma_if_unlinked
        The Laplace scale of each count that keeps ε about a person in the linked model, and the one
        that independence asks for.
    leakage_if_unlinked
        What is really leaked about a person (in the linked model) with the noise of independence.
    one_locus, one_locus_if_unlinked
        With the noise ``sigma``: the leakage about one genotype of one person, and what independence
        believes it to be.
    exact
        Whether ``leakage_if_unlinked`` is the exact limit; otherwise it is an upper bound.
    """

    adversary: str
    epsilon: float
    query: str
    sigma: float
    sigma_if_unlinked: float
    leakage_if_unlinked: float
    one_locus: float
    one_locus_if_unlinked: float
    exact: bool

    @property
    def missed_leakage(self) -> float:
        """By how much the noise of independence breaks its promise; 0 if it keeps it."""
        return max(0.0, self.leakage_if_unlinked - self.epsilon)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        return {**asdict(self), "missed": self.missed_leakage}


@without_partial_answer()
def linkage_cost(
    linked: Model,
    unlinked: Model,
    epsilon: float,
    *,
    query: str = "allele-count",
    adversary: str = "informed",
    work: str | WorkBudget = "normal",
    time_limit: Limit = None,
) -> LinkageCost:
    """Compare a model of linked loci with the unlinked one of the same people, loci and frequencies.

    Examples
    --------
    >>> from quiltdp.domains.pedigree import Pedigree, Person, pedigree
    >>> family = Pedigree((Person("dad"), Person("mum"), Person("kid", "dad", "mum")))
    >>> loci = {"rs1": 0.1, "rs2": 0.1}
    >>> tight = pedigree(family, loci, recombination=0.01, ld=1.0, study=["dad", "kid"])
    >>> cost = linkage_cost(tight, pedigree(family, loci, study=["dad", "kid"]), epsilon=1.0)
    >>> cost.exact, cost.sigma > cost.sigma_if_unlinked, cost.leakage_if_unlinked > 1.0
    (True, True, True)
    >>> cost.one_locus > 1.9 * cost.one_locus_if_unlinked
    True
    """
    if linked.records != unlinked.records:
        raise InvalidArgument("the linked and the unlinked model must have the same records")
    people = records_by_person(linked)
    mechanism = query_by_name(linked, query).mechanism
    options: dict[str, Any] = {"adversary": adversary, "work": work, "time_limit": time_limit}
    cal = calibrate(linked, epsilon, mechanism, protect=people, **options)
    naive = calibrate(unlinked, epsilon, mechanism, protect=people, **options)

    def leakage_at(model: Model, sigma: float, protect: Mapping[str, tuple[str, ...]] | None) -> Leakage:
        return leakage_of(
            model, mechanism, sigma, method=_leakage_method(model, protect), protect=protect, **options
        )

    really = leakage_at(linked, naive.sigma, people)
    return LinkageCost(
        adversary, epsilon, query, cal.sigma, naive.sigma, really.epsilon,
        leakage_at(linked, cal.sigma, None).epsilon, leakage_at(unlinked, cal.sigma, None).epsilon,
        exact=really.certificate.kind == "exact",
    )  # fmt: skip


def _leakage_method(model: Model, protect: Mapping[str, tuple[str, ...]] | None) -> str:
    """Return the exact limit where few enough genotypes are left beside the protected ones."""
    sizes = {r: model.cardinality(r) for r in model.records}
    units = protect.values() if protect else [(r,) for r in model.records]
    whole = math.prod(sizes.values())
    others = max((whole // math.prod(sizes[r] for r in unit) for unit in units), default=1)
    return "exact" if others <= _EXACT_STATES and len(sizes) <= _EXACT_RECORDS else "auto"
