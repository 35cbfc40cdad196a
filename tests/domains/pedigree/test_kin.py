"""Closed forms, kinship against covariance, queries against their words."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiltdp import max_influence, pedigree
from quiltdp.domains.pedigree import Pedigree, Person, mendel
from quiltdp.domains.pedigree.kin import influence_of_pair, joint_table_of_pair, kin_table, kinship, relation
from quiltdp.domains.pedigree.queries import (
    allele_count,
    carrier_count,
    genotype_histogram,
    query_by_name,
)
from quiltdp.errors import InvalidArgument
from quiltdp.inference import brute_force

BIG = Pedigree(
    (
        Person("gf", sex="male"), Person("gm", sex="female"), Person("gm2", sex="female"),
        Person("dad", "gf", "gm", "male"), Person("mum", sex="female"),
        Person("aunt", "gf", "gm", "female"), Person("half", "gf", "gm2", "male"),
        Person("a", "dad", "mum", "male"), Person("b", "dad", "mum", "female"),
        Person("uncle in law", sex="male"), Person("cousin", "uncle in law", "aunt", "female"),
        Person("w", sex="female"), Person("child", "a", "w", "male"),
    )
)  # fmt: skip


@pytest.mark.parametrize("p", [0.01, 0.1, 0.3, 0.5])
def test_closed_form_influence_table(p):
    model = pedigree(BIG, p)
    low = min(p, 1 - p)
    one, two = math.log((1 + low) / low), 2 * math.log((1 + low) / low)
    expected = {
        ("a", "b"): two, ("a", "gf"): one, ("half", "dad"): one, ("aunt", "a"): one, ("a", "dad"): math.inf,
        ("a", "mum"): math.inf, ("a", "cousin"): math.log((1 + 3 * low) / (3 * low)),
        ("dad", "mum"): 0.0, ("a", "w"): 0.0,
    }  # fmt: skip
    for (of, on), value in expected.items():
        assert influence_of_pair(joint_table_of_pair(model, of, on)) == pytest.approx(
            value, rel=1e-12, abs=1e-12
        ), (
            of,
            on,
        )
        assert influence_of_pair(joint_table_of_pair(model, on, of)) == pytest.approx(
            value, rel=1e-12, abs=1e-12
        ), (
            on,
            of,
        )


def test_closed_form_table_against_the_oracle_and_the_public_function():
    small = Pedigree(BIG.people[:2] + BIG.people[3:5] + BIG.people[7:9])
    model = pedigree(small, 0.1)
    for of, on in itertools.permutations(["a", "b", "gf", "dad"], 2):
        ours = influence_of_pair(joint_table_of_pair(model, of, on))
        oracle = brute_force.max_influence(model, of=of, on=[on], given=[])
        assert ours == pytest.approx(oracle, rel=1e-12)
        assert max_influence(model, of=of, on=[on], given=[]) == pytest.approx(oracle, rel=1e-9)


@pytest.mark.parametrize("p", [0.01, 0.1, 0.3])
def test_closed_form_table_by_the_public_function(p):
    model = pedigree(BIG, p)
    ratio = math.log((1 + p) / p)
    table = [("a", "b", 2 * ratio), ("a", "gf", ratio), ("half", "dad", ratio), ("aunt", "a", ratio)]
    for of, on, value in table:
        assert max_influence(model, of=of, on=[on], given=[]) == pytest.approx(value, rel=1e-9)
    assert max_influence(model, of="a", on=["dad"], given=[]) == math.inf


@pytest.mark.parametrize(
    ("person", "relative", "word", "phi"),
    [
        ("a", "dad", "parent", 0.25), ("dad", "a", "child", 0.25), ("a", "b", "full sib", 0.25),
        ("dad", "half", "half-sib", 0.125), ("a", "gf", "grandparent", 0.125),
        ("gf", "child", "great-grandchild", 0.0625),
        ("a", "aunt", "avuncular", 0.125), ("aunt", "a", "nibling", 0.125),
        ("a", "cousin", "first cousin", 0.0625),
        ("child", "cousin", "first cousin once removed", 0.03125), ("a", "half", "half-avuncular", 0.0625),
        ("a", "w", "partner", 0.0), ("a", "gm2", "not related by blood", 0.0), ("a", "a", "self", 0.5),
    ],
)  # fmt: skip
def test_relations_and_kinship(person, relative, word, phi):
    assert relation(BIG, person, relative) == word
    assert kinship(BIG, person, relative) == pytest.approx(phi)


@st.composite
def families(draw):
    """A random pedigree, inbreeding and remarriage included."""
    people = [Person("p0", sex="male"), Person("p1", sex="female")]
    for k in range(2, draw(st.integers(3, 9))):
        sex = draw(st.sampled_from(["male", "female"]))
        if draw(st.booleans()):
            people.append(Person(f"p{k}", sex=sex))
            continue
        father = draw(st.sampled_from([p.name for p in people if p.sex == "male"]))
        mother = draw(st.sampled_from([p.name for p in people if p.sex == "female"]))
        people.append(Person(f"p{k}", father, mother, sex))
    return Pedigree(tuple(people))


@settings(max_examples=60, deadline=None)
@given(family=families(), p=st.floats(0.05, 0.95), data=st.data())
def test_covariance_of_genotypes_is_kinship(family, p, data):
    """Cov(g_i, g_j) = 4 φ p q without mutation: the network against the recursion."""
    names = [q.name for q in family]
    i, j = data.draw(st.sampled_from(list(itertools.combinations(names, 2))))
    joint = joint_table_of_pair(pedigree(family, p), i, j)
    g = np.arange(3)
    covariance = g @ joint @ g - (joint.sum(1) @ g) * (joint.sum(0) @ g)
    assert covariance == pytest.approx(4 * kinship(family, i, j) * p * (1 - p), abs=1e-12)
    assert joint.sum(1) @ g == pytest.approx(2 * p)


@settings(max_examples=40, deadline=None)
@given(family=families(), p=st.floats(0.05, 0.95), rate=st.sampled_from([0.0, 1e-3, 0.2]), x=st.booleans())
def test_pair_tables_equal_the_full_joint(family, p, rate, x):
    model = pedigree(family, p, mutation_rate=rate, x_linked=x)
    for i, j in itertools.combinations(list(model.nodes)[:4], 2):
        assert joint_table_of_pair(model, i, j) == pytest.approx(
            brute_force.marginal(model, [i, j]), abs=1e-13
        )


def test_tables_are_laws():
    for rate in (0.0, 1e-3, 0.5):
        for table in (mendel.child_table(rate), mendel.x_daughter_table(rate), mendel.x_son_table(rate)):
            assert table.sum(axis=-1) == pytest.approx(np.ones(table.shape[:-1]))
    assert mendel.genotype_call_table(0.1, 2).tolist() == [[0.9, 0.1], [0.1, 0.9]]


def test_kin_table_is_sorted_and_complete():
    model = pedigree(BIG, 0.1, study=["a", "b", "dad"])
    rows = kin_table(model, BIG, "a")
    assert {r.relative for r in rows} == {"gf", "gm", "dad", "mum", "aunt", "half", "b", "cousin", "child"}
    assert [r.influence for r in rows] == sorted((r.influence for r in rows), reverse=True)
    assert {r.relative for r in rows if r.record} == {"b", "dad"}
    assert len(kin_table(model, BIG, "a", limit=2)) == 2
    with pytest.raises(InvalidArgument, match="take one locus"):
        kin_table(pedigree(BIG, {"rs1": 0.1}), BIG, "a")


# -- queries --------------------------------------------------------------------------------

TRIO = Pedigree((Person("dad", sex="male"), Person("mum", sex="female"), Person("kid", "dad", "mum", "male")))
WITH_TWINS = Pedigree((*TRIO.people[:2], Person("kid", "dad", "mum", "male", also=("twin",))))
GENOTYPES = {"dad": 2, "mum": 1, "kid": 0}


def test_queries_and_sensitivities():
    model = pedigree(TRIO, 0.1)
    assert allele_count(model)(GENOTYPES).tolist() == [3]
    assert carrier_count(model)(GENOTYPES).tolist() == [2]
    assert genotype_histogram(model)(GENOTYPES).tolist() == [1, 1, 1]
    found = [q.sensitivity for q in (allele_count(model), carrier_count(model), genotype_histogram(model))]
    assert found == [2, 1, 2]


@pytest.mark.parametrize("make", [allele_count, carrier_count, genotype_histogram])
@pytest.mark.parametrize("x_linked", [False, True])
def test_sensitivity_is_the_largest_change(make, x_linked):
    model = pedigree(TRIO, 0.1, x_linked=x_linked)
    query = make(model)
    sizes = [range(model.cardinality(r)) for r in model.records]
    for k, record in enumerate(model.records):
        worst = 0.0
        for values in itertools.product(*sizes):
            for other in sizes[k]:
                changed = [*values[:k], other, *values[k + 1 :]]
                before = query(dict(zip(model.records, values, strict=True)))
                after = query(dict(zip(model.records, changed, strict=True)))
                worst = max(worst, float(np.abs(before - after).sum()))
        assert query.sensitivities[record] == worst


def test_twins_move_a_query_twice_as_far():
    model = pedigree(WITH_TWINS, 0.1)
    assert dict(model.people) == {"kid": 2}
    assert allele_count(model).sensitivities == {"dad": 2, "mum": 2, "kid": 4}
    assert (allele_count(model).sensitivity, allele_count(model).unit) == (2, "one person")
    assert genotype_histogram(model)(GENOTYPES).tolist() == [2, 1, 1]


@pytest.mark.parametrize("make", [allele_count, carrier_count, genotype_histogram])
@pytest.mark.parametrize("x_linked", [False, True])
def test_a_person_moves_a_query_at_every_locus(make, x_linked):
    model = pedigree(TRIO, {"rs1": 0.1, "rs2": 0.3}, x_linked=x_linked)
    query = make(model)
    assert query.unit == "one person, all 2 loci together"
    base = dict.fromkeys(model.records, 0)
    worst = 0.0
    for person in ("dad", "mum", "kid"):
        mine = [r for r in model.records if r.startswith(f"{person}@")]
        assert query.protect[person] == tuple(mine)
        for values in itertools.product(*(range(model.cardinality(r)) for r in mine)):
            moved = np.abs(query({**base, **dict(zip(mine, values, strict=True))}) - query(base)).sum()
            worst = max(worst, float(moved))
    assert query.sensitivity == worst  # the loci of a person add up
    assert query.sensitivity_per_locus == worst / 2


def test_queries_by_name_and_refusals():
    model = pedigree(TRIO, 0.1)
    assert query_by_name(model, "allele-count").name == "allele count"
    for name in ("mean", "chi-square-cells"):
        with pytest.raises(
            InvalidArgument, match=r"choose from allele-count, carrier-count, genotype-histogram$"
        ):
            query_by_name(model, name)
    with pytest.raises(InvalidArgument, match="'kid' is missing"):
        allele_count(model)({"dad": 1, "mum": 1})
    with pytest.raises(InvalidArgument, match="has the genotype 3"):
        allele_count(model)({**GENOTYPES, "kid": 3})
