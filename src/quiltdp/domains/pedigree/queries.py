"""Queries by name, each with how far one person moves it.

Every query is a sum over the records of a small vector that depends on one genotype, so changing one
record moves it by at most Δ = max over pairs of genotypes of the L1 distance of their vectors.  A person
has one record at each locus, and changing the person changes them all: Δ of a person is the sum over
the loci.  ``GenotypeQuery.unit`` says in words which of the two a number is about.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from quiltdp.domains.pedigree.people import grouped
from quiltdp.errors import InvalidArgument, option
from quiltdp.mechanisms import Laplace
from quiltdp.model import Model, Table


def records_by_person(model: Model) -> dict[str, tuple[str, ...]]:
    """Return every person's records, one for each locus: what is protected together.

    Examples
    --------
    >>> from quiltdp.domains.pedigree import Pedigree, Person, pedigree
    >>> m = pedigree(Pedigree((Person("a"), Person("b"))), allele_frequency={"rs1": 0.1, "rs2": 0.3})
    >>> records_by_person(m)
    {'a': ('a@rs1', 'a@rs2'), 'b': ('b@rs1', 'b@rs2')}
    """
    named = all("@" in r for r in model.records)
    return grouped((r.rpartition("@")[0] if named else r, r) for r in model.records)


@dataclass(frozen=True)
class GenotypeQuery:
    """A sum over records: ``terms[record][genotype]`` is what the record adds to the cells.

    Attributes
    ----------
    name
        What it is called.
    cells
        The names of the numbers it returns.
    terms
        For every record it reads, a read-only table, genotypes × cells, everybody behind it counted.
    people
        The records that stand for several people (monozygotic twins), and for how many.
    protect
        Whose records they are: person → records, one for each locus.
    """

    name: str
    cells: tuple[str, ...]
    terms: Mapping[str, Table]
    people: Mapping[str, int] = field(default_factory=dict)
    protect: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Freeze the tables."""
        frozen = {}
        for record, table in self.terms.items():
            array = np.array(table, dtype=np.float64)
            if array.ndim != 2 or array.shape[1] != len(self.cells):
                raise InvalidArgument(f"query {self.name}: {record!r} has a table of shape {array.shape}")
            array.flags.writeable = False
            frozen[record] = array
        object.__setattr__(self, "terms", frozen)
        object.__setattr__(self, "people", dict(self.people))
        object.__setattr__(self, "protect", dict(self.protect) or {r: (r,) for r in frozen})

    def __call__(self, genotypes: Mapping[str, int]) -> Table:
        """Return the cells for the genotypes of everybody the query reads."""
        total = np.zeros(len(self.cells))
        for record, table in self.terms.items():
            if record not in genotypes:
                raise InvalidArgument(f"query {self.name}: the genotype of {record!r} is missing")
            value = genotypes[record]
            if not 0 <= value < len(table):
                raise InvalidArgument(f"query {self.name}: {record!r} has the genotype {value!r}")
            total += table[value]
        return total

    @cached_property
    def loci(self) -> int:
        """How many records a person has at most: the loci that are protected together."""
        return max(map(len, self.protect.values()), default=1)

    @property
    def unit(self) -> str:
        """What :attr:`sensitivity` is about, in words."""
        return "one person" if self.loci == 1 else f"one person, all {self.loci} loci together"

    @cached_property
    def sensitivities(self) -> dict[str, float]:
        """L1 change of the answer when one record (a person at one locus) changes, twins together.

        ``calibrate(model, ε, query.mechanism, protect=query.protect)`` is the calibration that protects a
        person's loci together.
        """
        return {record: _largest_change(table) for record, table in self.terms.items()}

    @property
    def mechanism(self) -> Laplace:
        """Laplace noise on the answer; of a single number, a change costs as much as it moves it."""
        if len(self.cells) > 1:
            return Laplace(self.sensitivities)
        return Laplace(values={record: table[:, 0].tolist() for record, table in self.terms.items()})

    @property
    def sensitivity(self) -> float:
        """The most that one person moves the answer, all their loci together."""
        one = self._sensitivities_per_twin
        return max((math.fsum(one[r] for r in own if r in one) for own in self.protect.values()), default=0.0)

    @property
    def largest(self) -> float:
        """The largest number that any cell can have, without noise."""
        cells = sum(t.max(axis=0) for t in self.terms.values())
        return float(np.max(cells)) if len(self.terms) else 0.0

    @property
    def sensitivity_per_locus(self) -> float:
        """The most that one person's genotype at one locus moves the answer."""
        return max(self._sensitivities_per_twin.values(), default=0.0)

    @cached_property
    def _sensitivities_per_twin(self) -> dict[str, float]:
        """Return the sensitivities for one of the people behind each record."""
        return {r: d / self.people.get(r, 1) for r, d in self.sensitivities.items()}


def _largest_change(table: Table) -> float:
    return float(np.abs(table[:, None, :] - table[None, :, :]).sum(axis=-1).max())


@dataclass(frozen=True)
class QueryKind:
    """A query by name: its cells, the columns of a released table as PLINK calls them, and what they count.

    ``table[g]`` is what a person with g = 0, 1, 2 alternative alleles adds to the cells.
    """

    name: str
    cells: tuple[str, ...]
    columns: tuple[str, ...]
    table: tuple[tuple[int, ...], ...]

    def of(self, model: Model) -> GenotypeQuery:
        """Return the query of everybody in a model; a man has two genotypes on the X, not three."""
        table = np.array(self.table, dtype=np.float64)
        terms = {}
        for record in model.records:
            size = model.cardinality(record)
            if size not in (2, 3):
                raise InvalidArgument(
                    f"query {self.name}: record {record!r} has {size} states, not genotypes"
                )
            terms[record] = table[:size] * model.people.get(record, 1)  # everybody behind it
        return GenotypeQuery(self.name, self.cells, terms, model.people, records_by_person(model))


QUERIES = {
    "allele-count": QueryKind("allele count", ("alternative alleles",), ("ALT_CTS",), ((0,), (1,), (2,))),
    "carrier-count": QueryKind("carrier count", ("carriers",), ("CARRIER_CT",), ((0,), (1,), (1,))),
    "genotype-histogram": QueryKind(
        "genotype histogram",
        ("0", "1", "2"),
        ("HOM_REF_CT", "HET_REF_ALT_CTS", "TWO_ALT_GENO_CTS"),
        ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    ),
}


def allele_count(model: Model) -> GenotypeQuery:
    """Number of alternative alleles in the study; one person moves it by 2 per locus (1 on a male's X).

    Examples
    --------
    >>> from quiltdp.domains.pedigree import Pedigree, Person, pedigree
    >>> m = pedigree(Pedigree((Person("a"), Person("b"))), allele_frequency=0.1)
    >>> q = allele_count(m)
    >>> q({"a": 2, "b": 1}).tolist(), q.sensitivities
    ([3.0], {'a': 2.0, 'b': 2.0})
    >>> two = pedigree(Pedigree((Person("a"),)), allele_frequency={"rs1": 0.1, "rs2": 0.3})
    >>> allele_count(two).sensitivity, allele_count(two).unit
    (4.0, 'one person, all 2 loci together')
    """
    return QUERIES["allele-count"].of(model)


def carrier_count(model: Model) -> GenotypeQuery:
    """Number of people with at least one alternative allele; one person moves it by 1 per locus."""
    return QUERIES["carrier-count"].of(model)


def genotype_histogram(model: Model) -> GenotypeQuery:
    """Number of people with 0, 1 and 2 alternative alleles; Δ = 2 per locus (one cell loses, one gains)."""
    return QUERIES["genotype-histogram"].of(model)


def query_by_name(model: Model, name: str) -> GenotypeQuery:
    """Return a query by the name the command line uses."""
    if name not in QUERIES:
        raise InvalidArgument(f"{option('query')} {name!r} does not exist; choose from {', '.join(QUERIES)}")
    return QUERIES[name].of(model)
