"""Queries by name, each with its sensitivity per person.

Every query is a sum over the records of a small vector that depends on one genotype, so changing one
person moves it by at most Δ = max over pairs of genotypes of the L1 distance of their vectors.
Divide by the noise scale to get the person's own dp_epsilon.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from quiltdp.errors import InvalidArgument, option
from quiltdp.model import Model, Table

__all__ = [
    "QUERIES",
    "GenotypeQuery",
    "allele_count",
    "carrier_count",
    "chi_square_cells",
    "genotype_histogram",
    "query_by_name",
    "twin_counts",
]


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
        For every record it reads, a read-only table, genotypes × cells.
    """

    name: str
    cells: tuple[str, ...]
    terms: Mapping[str, Table]

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

    @property
    def sensitivities(self) -> dict[str, float]:
        """L1 change of the answer when one record changes, for every record."""
        return {record: _spread(table) for record, table in self.terms.items()}

    @property
    def sensitivity(self) -> float:
        """The largest of :attr:`sensitivities`."""
        return max(self.sensitivities.values(), default=0.0)


def _spread(table: Table) -> float:
    return float(np.abs(table[:, None, :] - table[None, :, :]).sum(axis=-1).max())


def twin_counts(model: Model) -> dict[str, int]:
    """Return how many people a record stands for, where monozygotic twins make it more than one."""
    twins = json.loads(model.provenance.get("twins", "{}"))
    counts = {person: len(people) for person, people in twins.items()}
    return {r: k for r in model.records if (k := counts.get(r) or counts.get(r.rpartition("@")[0], 1)) > 1}


def _sum(model: Model, name: str, cells: tuple[str, ...], rows: Mapping[int, Table]) -> GenotypeQuery:
    """Build a query whose vector depends only on the number of genotypes (3, or 2 on a male's X)."""
    people = twin_counts(model)
    terms = {}
    for record in model.records:
        size = model.cardinality(record)
        if size not in rows:
            raise InvalidArgument(f"query {name}: record {record!r} has {size} states, not genotypes")
        terms[record] = rows[size] * people.get(record, 1)
    return GenotypeQuery(name, cells, terms)


def allele_count(model: Model) -> GenotypeQuery:
    """Number of alternative alleles in the study; Δ = 2 (1 for a male on the X).

    Examples
    --------
    >>> from quiltdp.domains.pedigree import Pedigree, Person, pedigree
    >>> m = pedigree(Pedigree((Person("a"), Person("b"))), allele_frequency=0.1)
    >>> q = allele_count(m)
    >>> q({"a": 2, "b": 1}).tolist(), q.sensitivities
    ([3.0], {'a': 2.0, 'b': 2.0})
    """
    return _sum(
        model, "allele count", ("alternative alleles",), {k: np.arange(float(k))[:, None] for k in (2, 3)}
    )


def carrier_count(model: Model) -> GenotypeQuery:
    """Number of people with at least one alternative allele; Δ = 1."""
    rows = {k: (np.arange(k) > 0).astype(np.float64)[:, None] for k in (2, 3)}
    return _sum(model, "carrier count", ("carriers",), rows)


def genotype_histogram(model: Model) -> GenotypeQuery:
    """Number of people with 0, 1 and 2 alternative alleles; Δ = 2 (one cell loses, one gains)."""
    return _sum(model, "genotype histogram", ("0", "1", "2"), {k: np.eye(3)[:k] for k in (2, 3)})


def chi_square_cells(model: Model, cases: Collection[str], *, allelic: bool = False) -> GenotypeQuery:
    """Cells of the case–control table: genotype × status (Δ = 2), or allele × status (Δ = 4).

    Publish the noisy cells and compute the statistic from them: the χ² statistic itself has no useful
    sensitivity.

    Parameters
    ----------
    cases
        Records that are cases; every other record is a control.
    allelic
        Count alleles (2 × 2) instead of genotypes (2 × 3).
    """
    model.require(cases)
    kinds = ("reference", "alternative") if allelic else ("0", "1", "2")
    cells = tuple(f"{status} {kind}" for status in ("case", "control") for kind in kinds)
    people = twin_counts(model)
    chosen = frozenset(cases)
    terms = {}
    for record in model.records:
        size = model.cardinality(record)
        own = np.stack([size - 1 - np.arange(size), np.arange(size)], axis=1) if allelic else np.eye(3)[:size]
        table = np.zeros((size, len(cells)))
        start = 0 if record in chosen else len(kinds)
        table[:, start : start + len(kinds)] = own * people.get(record, 1)
        terms[record] = table
    return GenotypeQuery("chi-square cells", cells, terms)


QUERIES = {
    "allele-count": allele_count,
    "carrier-count": carrier_count,
    "genotype-histogram": genotype_histogram,
}


def query_by_name(model: Model, name: str, *, cases: Collection[str] = ()) -> GenotypeQuery:
    """Return a query by the name the command line uses."""
    if name == "chi-square-cells":
        return chi_square_cells(model, cases)
    make = QUERIES.get(name.replace("_", "-"))
    if make is None:
        known = ", ".join([*QUERIES, "chi-square-cells"])
        raise InvalidArgument(f"{option('query')} {name!r} does not exist; choose from {known}")
    return make(model)
