"""Pedigree drawings: rows, spacing, symbols."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiltdp.domains.pedigree import Pedigree, Person, read_pedigree
from quiltdp.errors import InvalidArgument
from quiltdp.report.pedigree_layout import SYMBOL, draw_lines, layout
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


def lines_through_symbols(family, people=None):
    """Return the lines that touch the symbol of somebody they do not end at."""
    drawing = draw_lines(family, layout(family, people))
    found = []
    for line in drawing.lines:
        for (x1, y1), (x2, y2) in itertools.pairwise(line.points):
            for name, (x, y) in drawing.place.items():
                beside = max(x1, x2) <= x - SYMBOL or min(x1, x2) >= x + SYMBOL
                above = max(y1, y2) <= y - SYMBOL or min(y1, y2) >= y + SYMBOL
                if not (beside or above or (x, y) in ((x1, y1), (x2, y2))):
                    found.append((line.couple, line.kind, name))
    return found


@settings(max_examples=60, deadline=None)
@given(family=families())
def test_no_line_goes_through_a_symbol(family):
    assert lines_through_symbols(family) == []


@pytest.mark.parametrize("file", ["habsburg.ged", "greek_gods.ged", "bourbon.ged", "ceph1463.fam"])
def test_no_line_goes_through_a_symbol_in_real_families(file):
    family = read_pedigree(MODELS / file)
    assert lines_through_symbols(family, family.components[0]) == []


def test_no_line_goes_through_a_symbol_where_royalty_marries_royalty():
    family = read_pedigree(MODELS / "royal92.csv")
    near = {"I1": None} if "I1" in family.by_name else {family.people[0].name: None}
    frontier = list(near)
    for name in frontier:  # the nearest relatives by blood and marriage, with all their loops
        for other in (*family[name].parents, *family.children.get(name, ())):
            if other not in near and len(near) < 200:
                near[other] = None
                frontier.append(other)
    assert len(near) == 200
    assert lines_through_symbols(family, near) == []


def test_couples_stand_in_one_row_unless_one_descends_from_the_other():
    people = [Person("a"), Person("b"), Person("c", "a", "b"), Person("d", "a", "b"), Person("w")]
    people += [
        Person("n", "c", "w"),
        Person("k", "d", "n"),
        Person("z", "a", "c"),
    ]  # uncle and niece; daughter
    place = layout(Pedigree(tuple(people)))
    assert place["d"][1] == place["n"][1]
    assert place["a"][1] > place["c"][1]


def test_equal_values_have_one_colour_and_the_scale_begins_at_zero():
    family = read_pedigree(MODELS / "ceph1463.fam")
    axes = draw_pedigree(family, {p.name: 0.7 for p in family})
    assert len({patch.get_facecolor() for patch in axes.patches}) == 1
    assert axes.figure.axes[-1].get_ylim() == pytest.approx((0.0, 0.7))


def test_people_are_called_by_the_names_that_the_file_tells():
    family = read_pedigree(MODELS / "habsburg.ged")
    texts = [t.get_text() for t in draw_pedigree(family, people=family.components[0]).texts]
    assert "Albert II" in texts
