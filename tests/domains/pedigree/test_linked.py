"""Linked loci: haplotypes, recombination, and what independence would have missed, against enumeration."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.domains.pedigree import Pedigree, Person, pedigree
from quiltdp.domains.pedigree.linked import LinkedLoci, linkage_cost, transmitted_haplotype_table
from quiltdp.domains.pedigree.network import frequencies_of
from quiltdp.domains.pedigree.queries import allele_count, records_by_person
from quiltdp.errors import InvalidArgument, ModelTooWide
from quiltdp.inference.brute_force import marginal as by_joint
from quiltdp.inference.trees import junction_tree

DAD, MUM = Person("dad", sex="male"), Person("mum", sex="female")
TRIO = Pedigree((DAD, MUM, Person("kid", "dad", "mum", "female")))
SON = Pedigree((DAD, MUM, Person("kid", "dad", "mum", "male")))
TWINS = Pedigree((DAD, MUM, Person("kid", "dad", "mum", "male", also=("bro",))))
LOCI = {"a": 0.1, "b": 0.3}


def genotypes_by_enumeration(law, theta, mu=0.0):
    """P(genotypes of dad, mum, kid at two loci), walking every haplotype, side and mutation of a trio."""
    rows = list(product((0, 1), repeat=2))
    found = np.zeros((3,) * 6)

    def passed(first, second):
        for side, switch in product((0, 1), repeat=2):
            row = [(first, second)[side][0], (first, second)[side ^ switch][1]]
            for flips in product((0, 1), repeat=2):
                chance = 0.5 * (theta if switch else 1 - theta)
                for f in flips:
                    chance *= mu if f else 1 - mu
                yield tuple(r ^ f for r, f in zip(row, flips, strict=True)), chance

    for (f1, p1), (f2, p2), (m1, p3), (m2, p4) in product(zip(rows, law, strict=True), repeat=4):
        if p1 * p2 * p3 * p4 == 0:
            continue
        for (h, q), (g, r) in product(passed(f1, f2), passed(m1, m2)):
            at = [x[k] + y[k] for k in (0, 1) for x, y in ((f1, f2), (m1, m2), (h, g))]
            found[tuple(at)] += p1 * p2 * p3 * p4 * q * r
    return found


@pytest.mark.parametrize(("ld", "theta", "mu"), [(1.0, 0.01, 0.0), (-0.6, 0.2, 0.01), (0.4, 0.0, 0.0)])
def test_the_model_is_what_enumerating_every_haplotype_gives(ld, theta, mu):
    model = pedigree(TRIO, LOCI, recombination=theta, ld=ld, mutation_rate=mu)
    law = LinkedLoci.of(LOCI, recombination=theta, ld=ld).haplotypes
    expected = genotypes_by_enumeration(law.tolist(), theta, mu)
    found = junction_tree(model).marginal(model.records)
    assert model.records == ("dad@a", "mum@a", "kid@a", "dad@b", "mum@b", "kid@b")
    assert found == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("family", [TRIO, SON, TWINS])
@pytest.mark.parametrize("genetics", [{}, {"error_rate": 0.02, "inbreeding": 0.2}, {"x_linked": True}])
def test_every_locus_alone_is_the_model_of_one_locus(family, genetics):
    model = pedigree(family, LOCI, recombination=0.1, ld=0.7, mutation_rate=0.01, **genetics)
    for locus, p in LOCI.items():
        one = pedigree(family, p, mutation_rate=0.01, **genetics)
        own = [f"{r}@{locus}" for r in one.records]
        assert [model.people.get(r) for r in own] == [one.people.get(r) for r in one.records]
        assert junction_tree(model).marginal(own) == pytest.approx(by_joint(one, one.records), abs=1e-12)


def test_half_recombination_and_no_disequilibrium_is_unlinked():
    linked = pedigree(TRIO, LOCI, recombination=0.5)
    unlinked = pedigree(TRIO, LOCI)
    assert linked.records == unlinked.records
    one, other = (junction_tree(m).marginal(linked.records) for m in (linked, unlinked))
    assert one == pytest.approx(other, abs=1e-14)


def test_a_gamete_recombines_each_interval_on_its_own():
    table = transmitted_haplotype_table(3, [0.1, 0.2])
    assert table.sum(axis=-1) == pytest.approx(np.ones((8, 8)))
    assert table[0b000, 0b111, 0b010] == pytest.approx(0.5 * 0.1 * 0.2)
    assert table[0b000, 0b111, 0b011] == pytest.approx(0.5 * 0.1 * 0.8)


def test_the_exact_limit_shows_what_independence_misses():
    study = ["dad", "kid"]
    unlinked = pedigree(TRIO, {"a": 0.1, "b": 0.1}, study=study)
    linked = pedigree(TRIO, {"a": 0.1, "b": 0.1}, recombination=0.01, ld=1.0, study=study)
    cost = linkage_cost(linked, unlinked, epsilon=1.0, adversary="prior", query="genotype-histogram")
    assert cost.exact
    assert cost.sigma > cost.sigma_if_unlinked
    assert cost.missed_leakage > 0.004
    assert cost.one_locus > 1.9 * cost.one_locus_if_unlinked
    alpha = {r: d / cost.sigma for r, d in allele_count(linked).sensitivities.items()}
    kept = qd.leakage(linked, alpha, adversary="prior", method="exact", protect=records_by_person(linked))
    assert 0.999 < kept.epsilon <= 1.0
    attained = qd.attack(linked, 2 / cost.sigma, adversary="prior").leakage
    assert cost.one_locus_if_unlinked < attained <= cost.one_locus  # independence is wrong, not only loose


def test_haplotype_frequencies_say_the_same_as_their_disequilibrium():
    by_ld = pedigree(TRIO, LOCI, recombination=0.01, ld=1.0)
    rows = {"00": 0.7, "01": 0.2, "11": 0.1}
    by_rows = pedigree(TRIO, ["a", "b"], recombination=0.01, haplotypes=rows)
    assert frequencies_of(by_rows) == pytest.approx(LOCI)
    for one, other in zip(by_ld.factors, by_rows.factors, strict=True):
        assert one.scope == other.scope
        assert one.table == pytest.approx(other.table)


@pytest.mark.parametrize(
    ("frequency", "options", "words"),
    [
        (0.1, {"recombination": 0.1}, "needs two loci"),
        ({"a": 0.1}, {"recombination": 0.1}, "two loci or more"),
        (LOCI, {"recombination": 0.6}, "recombination must lie between 0 and 0.5"),
        (LOCI, {"recombination": [0.1, 0.1]}, "1 pairs of neighbours, 2 numbers"),
        (LOCI, {"recombination": 0.1, "ld": 2.0}, "ld must lie between -1 and 1"),
        (LOCI, {"ld": 1.0}, "ld is about linked loci"),
        (LOCI, {"recombination": 0.1, "ld": 1.0, "haplotypes": {"00": 1.0}}, "both say"),
        (LOCI, {"recombination": 0.1, "haplotypes": {"00": 0.5, "12": 0.5}}, "'12' is not a row of 2"),
        (LOCI, {"recombination": 0.1, "haplotypes": {"00": 0.5, "11": 0.4}}, "sum to 1"),
        (LOCI, {"recombination": 0.1, "haplotypes": {"00": 0.5, "11": 0.5}}, "'a' has 0.1, the haplotypes"),
        (["a", "b"], {}, "every locus needs a frequency"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(frequency, options, words):
    with pytest.raises(InvalidArgument) as refused:
        pedigree(TRIO, frequency, **options)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_more_loci_than_one_model_takes():
    with pytest.raises(ModelTooWide, match="at most 5 loci"):
        pedigree(TRIO, {str(k): 0.1 for k in range(9)}, recombination=0.1)
