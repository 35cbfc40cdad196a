"""Pedigree drawings: rows, spacing, symbols."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiltdp.domains.pedigree import Pedigree, Person, read_pedigree
from quiltdp.errors import InvalidArgument
from quiltdp.report.pedigree_layout import layout
from quiltdp.report.pedigree_plot import draw_pedigree

MODELS = Path(__file__).parents[2] / "models" / "pedigree"


@pytest.fixture(autouse=True)
def no_window():
    mpl = pytest.importorskip("matplotlib")
    mpl.use("Agg")
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


@st.composite
def families(draw):
    people = [Person("p0"), Person("p1")]
    for k in range(2, draw(st.integers(2, 14))):
        pair = draw(st.lists(st.sampled_from(range(k)), min_size=0, max_size=2, unique=True))
        known = len(pair) == 2
        people.append(Person(f"p{k}", *(f"p{q}" for q in pair)) if known else Person(f"p{k}"))
    return Pedigree(tuple(people))


@settings(max_examples=60, deadline=None)
@given(family=families())
def test_layout_keeps_people_apart_and_parents_above(family):
    place = layout(family)
    assert len(place) == len(family)
    for (_, a), (_, b) in itertools.combinations(place.items(), 2):
        assert a[1] != b[1] or abs(a[0] - b[0]) > 0.99
    for person in family:
        for parent in person.parents:
            assert place[parent][1] > place[person.name][1]
    assert min(x for x, _ in place.values()) == 0


def test_grandparents_of_a_kindred_stand_in_one_row():
    family = read_pedigree(MODELS / "ceph1463.fam")
    place = layout(family)
    assert {place[n][1] for n in ("NA12889", "NA12890", "NA12891", "NA12892")} == {0.0}
    assert abs(place["NA12877"][0] - place["NA12878"][0]) == pytest.approx(1)


def test_drawing_has_one_symbol_per_person(tmp_path):
    family = read_pedigree(MODELS / "ceph1463.fam")
    values = {p.name: float(k) for k, p in enumerate(family) if k}
    axes = draw_pedigree(family, values, title="CEPH 1463")
    assert len(axes.patches) == 17
    texts = [t.get_text() for t in axes.texts]
    assert "NA12889" in texts  # without a value
    assert "NA12890\n1.00" in texts
    axes.figure.savefig(tmp_path / "family.png")
    assert (tmp_path / "family.png").stat().st_size > 5000


def test_relatives_with_children_get_a_second_line():
    people = (Person("f"), Person("m"), Person("s", "f", "m"), Person("d", "f", "m"))
    plain = len(draw_pedigree(Pedigree((*people, Person("w"), Person("c", "s", "w")))).lines)
    close = len(draw_pedigree(Pedigree((*people, Person("w"), Person("c", "s", "d")))).lines)
    assert close == plain + 1


def test_too_many_people_for_a_drawing():
    crowd = Pedigree(tuple(Person(f"p{k}") for k in range(500)))
    with pytest.raises(InvalidArgument, match="choose one family"):
        draw_pedigree(crowd)
    assert draw_pedigree(crowd, people=["p1", "p2"]) is not None
