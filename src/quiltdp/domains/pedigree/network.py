"""From a pedigree to a model: one node per genome, Mendel's tables between them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quiltdp.domains.pedigree import mendel
from quiltdp.domains.pedigree.people import Alleles, Pedigree, Person, study_members
from quiltdp.domains.pedigree.read import read_pedigree
from quiltdp.errors import InvalidArgument, InvalidModel, option
from quiltdp.io.columns import as_file
from quiltdp.model import Model, Table

if TYPE_CHECKING:
    from quiltdp.domains.pedigree.linked import LinkedLoci

_TRUE = ":true"
_UNTYPED = frozenset({"0", "-9", ".", "N", "n", "-"})

Tables = dict[str, tuple[list[str], Table]]


@dataclass(frozen=True)
class Locus:
    """The genetics of one biallelic locus.

    Parameters
    ----------
    allele_frequency
        Frequency p of the alternative allele among founders, 0 < p < 1.
    mutation_rate
        μ: chance that an allele changes into the other one on its way to the child.
    error_rate
        e: chance that the called genotype is not the true one; above 0 the true genotype is a
        latent node and the called genotype the record.
    inbreeding
        F: inbreeding coefficient of founders.
    x_linked
        Whether the locus is on the X chromosome (outside the pseudo-autosomal regions).
    """

    allele_frequency: float
    mutation_rate: float = 0.0
    error_rate: float = 0.0
    inbreeding: float = 0.0
    x_linked: bool = False

    def __post_init__(self) -> None:
        """Check every number, through the tables that use it."""
        mendel.founder_table(self.allele_frequency, inbreeding=self.inbreeding)
        mendel.gamete(2, self.mutation_rate)
        mendel.genotype_call_table(self.error_rate)

    def copies(self, person: Person) -> int:
        """Return how many alleles the person carries."""
        return 1 if self.x_linked and person.sex == "male" else 2

    def explanation(self) -> tuple[str, ...]:
        """Say in words what was assumed, and what exactness implies."""
        where = "X-linked" if self.x_linked else "autosomal"
        law = (
            f"{where} biallelic locus, founders in Hardy–Weinberg proportions: allele frequency"
            f" {self.allele_frequency:g}, inbreeding {self.inbreeding:g},"
            f" mutation rate {self.mutation_rate:g}, genotyping error {self.error_rate:g}"
        )
        return (law, *mendel.exactness_notes(self.mutation_rate, self.error_rate))


def pedigree(
    source: Any,
    allele_frequency: float | Mapping[str, float] | Sequence[str] | None = None,
    *,
    mutation_rate: float = 0.0,
    error_rate: float = 0.0,
    inbreeding: float = 0.0,
    x_linked: bool = False,
    recombination: float | Sequence[float] | None = None,
    ld: float | Sequence[float] | None = None,
    haplotypes: Mapping[str, float] | None = None,
    study: str | Path | Collection[str] | None = None,
    **reading: object,
) -> Model:
    """Return the Mendelian network of a family: genotype of each person given the parents'.

    Claim: with founders in Hardy–Weinberg proportions and independent transmissions, the joint law of
    all genotypes is Π_founders P(g) · Π_others P(g | g_father, g_mother).

    Parameters
    ----------
    source
        A pedigree file (PLINK .fam .ped .psam, LINKAGE, CSV, GEDCOM), a DataFrame with the columns of such
        a CSV, or a :class:`Pedigree`.
    allele_frequency
        Frequency of the alternative allele; a mapping locus → frequency builds one independent copy
        of the family per locus, nodes called ``person@locus``.
    mutation_rate, error_rate, inbreeding, x_linked
        See :class:`Locus`.  Zero rates are allowed; the model's notes say what they imply.
    recombination
        Makes the loci of a mapping *linked*, in the order given: the recombination fraction between
        neighbours, one number or one per pair; see :mod:`~quiltdp.domains.pedigree.linked`.
    ld, haplotypes
        Of linked loci, what founders carry together: Lewontin's D' between neighbours (default 0), or
        the frequency of every haplotype, written like ``{"00": 0.6, "11": 0.4}`` in the order of the
        loci (then ``allele_frequency`` may be a list of their names).
    study
        Who is in the study: ids, or a file with one id (or family and id) per line.  Everybody else
        is latent.  Default: everybody with a row in the file.
    **reading
        How to read the file: ``format``, ``columns``, ``missing``, ``male``, ``female``, ``twins``,
        ``unknown_parents``, ``join_families``; see
        :func:`~quiltdp.domains.pedigree.read.read_pedigree`.

    Returns
    -------
    Model
        A Bayesian network with states "0", "1", "2" (alternative alleles carried), its notes and
        its provenance.

    Raises
    ------
    FileFormatError
        Naming line and person.
    InvalidArgument
        For a number outside its range.
    InvalidModel
        For an X-linked locus where a sex is unknown or contradicts the role, or for genotypes that
        Mendel forbids when mutation and error are both zero.

    Examples
    --------
    >>> from quiltdp.domains.pedigree import Pedigree, Person
    >>> trio = Pedigree((Person("dad"), Person("mum"), Person("kid", "dad", "mum")))
    >>> m = pedigree(trio, allele_frequency=0.1)
    >>> m.factors, m.states["kid"]
    ((P(dad), P(mum), P(kid | dad, mum)), ('0', '1', '2'))
    """
    family = _family_of_source(source, reading)
    genetics: dict[str, Any] = {
        "mutation_rate": mutation_rate, "error_rate": error_rate,
        "inbreeding": inbreeding, "x_linked": x_linked,
    }  # fmt: skip
    linked = None
    if recombination is not None:
        linked = _build_linked_loci(allele_frequency, recombination, ld, haplotypes, genetics)
        allele_frequency = linked.frequencies
    elif ld is not None or haplotypes is not None:
        name = option("ld" if ld is not None else "haplotypes")
        raise InvalidArgument(f"{name} is about linked loci: give {option('recombination', 0.01)} too")
    loci = _named_loci(allele_frequency, family.source, genetics)
    warnings = _check_family(family, next(iter(loci.values())))
    members = study_members(family, study)
    provenance = _model_provenance(family, loci, members)
    tables: Tables = {}
    if linked is None:
        explanation = _genetics_notes(loci)
        for name, locus in loci.items():
            tables.update(_genotype_tables(family, locus, members, f"@{name}" if name else ""))
    else:
        from quiltdp.domains.pedigree.linked import linked_network_tables

        explanation = linked.explanation
        tables = linked_network_tables(family, linked, members)
        provenance["recombination"] = ", ".join(f"{t:g}" for t in linked.recombination)
        provenance["allele_frequencies"] = json.dumps(linked.frequencies)
    people = _people_per_record(family, members, list(loci), layered=error_rate > 0)
    notes = (*explanation, *_notes_on_records(family, members), *warnings)
    return Model.from_tables(tables, list(people), people=people, notes=notes, provenance=provenance)


def frequencies_of(linked: Model) -> dict[str, float]:
    """Return the allele frequencies of a model of linked loci: for the unlinked model beside it."""
    return dict(json.loads(linked.provenance["allele_frequencies"]))


def load(path: str | Path, **options: object) -> Model:
    """Load a pedigree file as a model: what ``load_model("family.fam", allele_frequency=0.1)`` calls."""
    if "records" in options:
        if "study" in options:
            both = f"{option('records')} and {option('study')} both say who is a record"
            raise InvalidArgument(f"{both}; give one of them")
        options["study"] = options.pop("records")
    return pedigree(path, **options)  # type: ignore[arg-type]  # options come by name from the caller


def _family_of_source(source: Any, reading: Mapping[str, Any]) -> Pedigree:
    if isinstance(source, Pedigree):
        for name in reading:
            raise InvalidArgument(f"{name!r} says how to read a file, and this pedigree is read")
        return source
    known = sorted(read_pedigree.__kwdefaults__ or {})
    for name in reading:
        if name not in known:
            raise InvalidArgument(f"{name!r} is not an option of pedigrees; reading takes {', '.join(known)}")
    with as_file(source) as path:
        return read_pedigree(path, **reading)


def _named_loci(
    frequency: float | Mapping[str, float] | Sequence[str] | None, source: str, genetics: Mapping[str, Any]
) -> dict[str, Locus]:
    if frequency is None:
        example = f"for example {option('allele_frequency', 0.1)}"
        raise InvalidArgument(
            f"{source}: a pedigree needs the frequency of the alternative allele, {example}"
        )
    if isinstance(frequency, Sequence):
        raise InvalidArgument(
            f"{option('allele_frequency')}: every locus needs a frequency, or give haplotypes"
        )
    named = frequency if isinstance(frequency, Mapping) else {"": frequency}
    if not named:
        raise InvalidArgument(f"{option('allele_frequency')}: the mapping of loci is empty")
    return {str(n): Locus(f, **genetics) for n, f in named.items()}


def _build_linked_loci(
    frequency: float | Mapping[str, float] | Sequence[str] | None,
    recombination: float | Sequence[float],
    ld: float | Sequence[float] | None,
    haplotypes: Mapping[str, float] | None,
    genetics: Mapping[str, Any],
) -> LinkedLoci:
    from quiltdp.domains.pedigree.linked import LinkedLoci

    if haplotypes is None:
        if not isinstance(frequency, Mapping):
            example = f"{option('allele_frequency', 0.1, key='rs1')}, and another"
            needs = "needs two loci or more with their frequencies"
            raise InvalidArgument(f"{option('recombination')} {needs}: {example}")
        return LinkedLoci.of(frequency, recombination=recombination, ld=0.0 if ld is None else ld, **genetics)
    if ld is not None:
        raise InvalidArgument(f"{option('ld')} and haplotypes both say what founders carry together")
    names = list(frequency) if isinstance(frequency, Mapping | Sequence) else None
    linked = LinkedLoci.of_haplotypes(haplotypes, names, recombination=recombination, **genetics)
    for locus, p in frequency.items() if isinstance(frequency, Mapping) else ():
        if abs(p - linked.frequencies[locus]) > 1e-6:
            both = f"{locus!r} has {p:g}, the haplotypes give {linked.frequencies[locus]:g}"
            raise InvalidArgument(f"{option('allele_frequency')}: {both}")
    return linked


def _check_family(family: Pedigree, locus: Locus) -> tuple[str, ...]:
    """Refuse what the locus cannot be computed with; return the rest as warnings."""
    sexes = _sex_conflicts(family)
    if locus.x_linked:
        _refuse_first_problem(family.source, sexes, "an X-linked locus needs the sex of everybody")
        unknown = [
            f"line {p.line}: the sex of {p.name!r} is unknown" for p in family.people if p.sex == "unknown"
        ]
        if unknown:
            needs = f"and an X-linked locus needs the sex of everybody ({len(unknown)} unknown)"
            raise InvalidModel(f"{family.source}: {unknown[0]}, {needs}")
    violations = _mendel_violations(family)
    if locus.mutation_rate == 0 and locus.error_rate == 0:
        what = "genotypes that Mendel forbids (set a mutation or an error rate)"
        _refuse_first_problem(family.source, violations, what)
    return (*family.warnings, *sexes, *violations)


def _genotype_tables(family: Pedigree, locus: Locus, members: Collection[str], suffix: str) -> Tables:
    chosen = frozenset(members)
    genome = {
        p.name: f"{p.name}{suffix}" + (_TRUE if locus.error_rate > 0 and chosen & {p.name, *p.also} else "")
        for p in family.people
    }
    law = _inheritance_tables(locus)
    called = {k: mendel.genotype_call_table(locus.error_rate, k) for k in (2, 3)}
    tables: Tables = {}
    calls: Tables = {}
    for p in family.people:
        parents = p.parents[1:] if locus.x_linked and p.sex == "male" else p.parents
        tables[genome[p.name]] = ([genome[q] for q in parents], law[len(parents), locus.copies(p)])
        if genome[p.name].endswith(_TRUE):
            call = called[locus.copies(p) + 1]
            for twin in (p.name, *p.also):
                if twin in chosen:
                    calls[f"{twin}{suffix}"] = ([genome[p.name]], call)
    return {**tables, **calls}


def _people_per_record(
    family: Pedigree, members: Sequence[str], loci: Sequence[str], *, layered: bool
) -> dict[str, int]:
    """Return how many members each record stands for: a called genotype for one, a genome for its twins."""
    counts = Counter(members if layered else (family[m].name for m in members))
    return {f"{r}@{n}" if n else r: k for n in loci for r, k in counts.items()}


def _inheritance_tables(locus: Locus) -> dict[tuple[int, int], Table]:
    """Return the table of a genotype by how many parents it depends on and how many alleles it has."""
    p, inbreeding, mutation = locus.allele_frequency, locus.inbreeding, locus.mutation_rate
    founders = {(0, k): mendel.founder_table(p, inbreeding=inbreeding, copies=k) for k in (1, 2)}
    if not locus.x_linked:
        return {**founders, (2, 2): mendel.child_table(mutation)}
    return {**founders, (1, 1): mendel.x_son_table(mutation), (2, 2): mendel.x_daughter_table(mutation)}


def _genetics_notes(loci: Mapping[str, Locus]) -> tuple[str, ...]:
    explanation = next(iter(loci.values())).explanation()
    if len(loci) == 1:
        return explanation
    frequencies = ", ".join(f"{n} {x.allele_frequency:g}" for n, x in list(loci.items())[:8])
    more = f", … {len(loci)} in all" if len(loci) > 8 else ""
    return (f"{len(loci)} unlinked loci, independent of each other: {frequencies}{more}", *explanation)


def _notes_on_records(family: Pedigree, members: Sequence[str]) -> list[str]:
    people = sum(1 + len(p.also) for p in family.people)  # twins share a genome, and are two people
    latent = people - len(members)
    text = f"{len(members):,} of {people:,} people are records"
    return [text + (f"; {latent:,} are latent (in the pedigree, not in the study)" if latent else "")]


def _model_provenance(family: Pedigree, loci: Mapping[str, Locus], members: Sequence[str]) -> dict[str, str]:
    locus = next(iter(loci.values()))
    frequencies = {f"{x.allele_frequency:g}" for x in loci.values()}
    return {
        "source": family.source,
        "format": f"{family.format} pedigree",
        "people": str(len(family)),
        "records": str(len(members)),
        "founders": str(len(family.founders)),
        "loci": str(len(loci)),
        "allele_frequency": ", ".join(sorted(frequencies)),
        "mutation_rate": f"{locus.mutation_rate:g}",
        "error_rate": f"{locus.error_rate:g}",
        "inbreeding": f"{locus.inbreeding:g}",
        "x_linked": "yes" if locus.x_linked else "no",
    }


# -- what looks like a mistake, by line and person ----------------------------------------------------


def _sex_conflicts(pedigree: Pedigree) -> tuple[str, ...]:
    """Return one line per person whose sex contradicts being a father or a mother; suggest the cause."""
    fathers = {p.father: p for p in reversed(pedigree.people) if p.father}
    mothers = {p.mother: p for p in reversed(pedigree.people) if p.mother}
    wrong: list[str] = []
    for role, children, expected in (("father", fathers, "male"), ("mother", mothers, "female")):
        for name, child in children.items():
            sex, line = pedigree[name].sex, pedigree[name].line
            if sex not in (expected, "unknown"):
                whose = f"the {role} of {child.name!r} (line {child.line})"
                wrong.append(f"line {line}: {name!r} is {sex} and {whose}")
    stated = sum(pedigree[n].sex != "unknown" for n in (*fathers, *mothers))
    if wrong and len(wrong) == stated:
        hint = "every parent disagrees: are the father and mother columns swapped, or is sex coded 0/1?"
    else:
        hint = "is it a swapped pair of columns for these rows, sex coded 0/1, or a typing error?"
    for n, child in fathers.items():
        if n in mothers:
            both = f"the father of {child.name!r} and the mother of {mothers[n].name!r}"
            wrong.append(f"line {pedigree[n].line}: {n!r} is {both}")
    return tuple(f"{text}; {hint}" for text in wrong)


def _mendel_violations(pedigree: Pedigree) -> tuple[str, ...]:
    """Return one line per trio and locus whose genotypes Mendel forbids (missing alleles pass)."""
    violations = []
    for p in pedigree.people:
        if p.founder or not p.alleles:
            continue
        father, mother = (pedigree[q] for q in p.parents)
        for k, locus in enumerate(pedigree.loci):
            child, dad, mum = (_typed_alleles(q.alleles, k) for q in (p, father, mother))
            ways = () if child is None else (child, child[::-1])
            if ways and not any((dad is None or a in dad) and (mum is None or b in mum) for a, b in ways):
                violations.append(
                    f"line {p.line}: at {locus}, {p.name!r} has {_show_alleles(child)}, which the parents"
                    f" {father.name!r} {_show_alleles(dad)} and {mother.name!r} {_show_alleles(mum)} cannot"
                    " give"
                )
    return tuple(violations)


def _typed_alleles(alleles: Sequence[Alleles], k: int) -> Alleles | None:
    return None if k >= len(alleles) or _UNTYPED & set(alleles[k]) else alleles[k]


def _show_alleles(genotype: Alleles | None) -> str:
    return "untyped" if genotype is None else "/".join(genotype)


def _refuse_first_problem(source: str, problems: Sequence[str], what: str) -> None:
    """Refuse with the first problem, and the number of others."""
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise InvalidModel(f"{source}: {what}: {problems[0]}{more}")
