"""The way from one frequency to another: never below the exact limit, proved kinds and refused ones."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.domains.pedigree import Locus, Pedigree, Person, pedigree
from quiltdp.domains.pedigree.bridge import Bridge
from quiltdp.domains.pedigree.relations import kinship, kinship_matrix

TRIO = Pedigree((Person("f", sex="male"), Person("m", sex="female"), Person("c", "f", "m", "male")))
QUARTET = Pedigree((*TRIO.people, Person("d", "f", "m", "female")))
SIBS_MARRY = Pedigree((*QUARTET.people, Person("e", "c", "d", "female")))
THREE = Pedigree(
    (
        Person("f", sex="male"),
        Person("m", sex="female"),
        Person("c", "f", "m", "male"),
        Person("w", sex="female"),
        Person("g", "c", "w", "female"),
    )
)
CASES = [
    (TRIO, {}),
    (QUARTET, {}),
    (THREE, {}),
    (SIBS_MARRY, {}),
    (TRIO, {"error_rate": 0.05}),
    (TRIO, {"mutation_rate": 0.02}),
    (THREE, {"mutation_rate": 0.1}),
    (TRIO, {"mutation_rate": 0.05, "error_rate": 0.02}),
    (TRIO, {"inbreeding": 0.2}),
    (TRIO, {"x_linked": True}),
    (QUARTET, {"x_linked": True, "error_rate": 0.03}),
]


def limit(
    family: Pedigree, p: float, alpha: float, genetics: dict[str, object], study=None
) -> dict[str, float]:
    model = pedigree(family, p, study=study, **genetics)
    return dict(qd.leakage(model, alpha, method="exact", adversary="prior").per_record)


@pytest.mark.parametrize(("family", "genetics"), CASES)
@pytest.mark.parametrize("alpha", [0.01, 0.7])
def test_the_bridge_is_never_below_the_exact_limit(family, genetics, alpha):
    study = ["f", "c", "e", "d"] if family is SIBS_MARRY else None
    records = pedigree(family, 0.3, study=study, **genetics).records
    bridge = Bridge.of(family, Locus(0.3, **genetics), dict.fromkeys(records, 1.0))
    assert bridge.holds
    found = {p: limit(family, p, alpha, genetics, study) for p in (0.03, 0.12, 0.5)}
    for p, node in itertools.permutations(found, 2):
        cost = bridge.cost(alpha, np.array([p]), node)
        for k, record in enumerate(records):
            assert found[p][record] <= found[node][record] + cost[k]
    anywhere = bridge.any_frequency(alpha)
    for p in found:
        for k, record in enumerate(records):
            assert found[p][record] <= anywhere[k] * (1 + 1e-12)


def test_the_bridge_is_proportional_to_the_gap_and_to_alpha():
    """As α → 0 the price of a way is 2 α C δ: for the child of a trio C = 1 + 1, for a parent 2 + 1."""
    bridge = Bridge.of(TRIO, Locus(0.3), dict.fromkeys("fmc", 1.0))
    price = bridge.cost(1e-6, np.array([0.31]), 0.3)
    assert price / (2 * 1e-6 * 0.01) == pytest.approx([3.0, 3.0, 2.0], rel=1e-4)
    assert not bridge.cost(1.0, np.array([0.3, 0.3]), 0.3).any()
    many = bridge.cost(0.1, np.array([0.31, 0.33]), 0.3)
    single = sum(bridge.cost(0.1, np.array([p]), 0.3) for p in (0.31, 0.33))
    assert (many >= single * (1 - 1e-12)).all()  # together by concavity
    assert many == pytest.approx(single, rel=0.02)


def test_any_frequency_counts_the_copies():
    """A parent shares one allele with the child; the other parent nothing."""
    bridge = Bridge.of(TRIO, Locus(0.3), dict.fromkeys("fmc", 1.0))
    assert bridge.any_frequency(1e-6) / 1e-6 == pytest.approx([2.0, 2.0, 3.0], rel=1e-4)
    rare = limit(TRIO, 1e-7, 1e-4, {})  # and this is what a rare allele costs
    assert [rare[n] / 1e-4 for n in "fmc"] == pytest.approx([2.0, 2.0, 3.0], rel=1e-3)


def test_inbred_people_at_loci_that_mutate_have_no_bridge():
    weights = dict.fromkeys(["f", "m", "c", "d", "e"], 1.0)
    assert not Bridge.of(SIBS_MARRY, Locus(0.1, mutation_rate=0.01), weights).holds
    assert Bridge.of(SIBS_MARRY, Locus(0.1), weights).holds
    assert Bridge.of(SIBS_MARRY, Locus(0.1), weights).lines[-1][1] == pytest.approx(0.25)


@pytest.mark.parametrize("family", [TRIO, QUARTET, SIBS_MARRY, THREE])
def test_the_kinship_matrix_is_the_recursion(family):
    names = [p.name for p in family.ordered]
    phi = kinship_matrix(family, names)
    for (a, first), (b, second) in itertools.product(enumerate(names), repeat=2):
        assert phi[a, b] == pytest.approx(kinship(family, first, second))


@pytest.mark.parametrize("genetics", [{}, {"error_rate": 0.1}, {"mutation_rate": 0.1}, {"x_linked": True}])
def test_a_frequency_and_its_complement_are_alike(genetics):
    for p in (0.1, 0.37):
        assert limit(TRIO, p, 0.5, genetics) == pytest.approx(limit(TRIO, 1 - p, 0.5, genetics))
