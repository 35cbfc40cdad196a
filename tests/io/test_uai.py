"""The UAI reader, against the format's own rule: the last variable of a scope moves fastest."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import bayesian_networks

from quiltdp import Model, load_model
from quiltdp.errors import FileFormatError, InvalidModel
from quiltdp.io.uai import read_uai

MARKOV = """MARKOV
3
2 2 3
2
2 0 1
2 1 2

4
 0.436 0.128
 0.920 0.1

6
 0.210 0.333 0.457
 0.811 0.000 0.189
"""

BAYES = """BAYES
3
2 2 3
3
1 0
2 0 1
2 1 2

2
 0.436 0.564

4
 0.128 0.872
 0.920 0.080

6
 0.210 0.333 0.457
 0.811 0.000 0.189
"""


@pytest.fixture
def read(tmp_path):
    def reader(text: str, **options) -> Model:
        file = tmp_path / "net.uai"
        file.write_text(text)
        return load_model(file, **options)

    return reader


def test_the_markov_example_of_the_format(read):
    m = read(MARKOV)
    assert m.nodes == ("X0", "X1", "X2")
    assert m.states["X2"] == ("0", "1", "2")
    assert not m.directed
    assert [f.scope for f in m.factors] == [("X0", "X1"), ("X1", "X2")]
    assert m.factors[0].table.tolist() == [[0.436, 0.128], [0.920, 0.1]]
    assert m.factors[1].table.tolist() == [[0.210, 0.333, 0.457], [0.811, 0.0, 0.189]]


def test_the_bayes_example_of_the_format(read):
    m = read(BAYES)
    assert m.directed
    tables = {f.child: f for f in m.factors}
    assert tables["X1"].parents == ("X0",)
    assert tables["X1"].table.tolist() == [[0.128, 0.872], [0.920, 0.080]]
    assert tables["X2"].table[1].tolist() == [0.811, 0.0, 0.189]
    assert m.provenance["format"] == "UAI BAYES"


def test_layout_does_not_matter(read):
    assert read(" ".join(BAYES.split())).fingerprint == read(BAYES).fingerprint
    assert read("\n".join(BAYES.split())).fingerprint == read(BAYES).fingerprint


def test_records(read):
    assert read(BAYES, records=["X1"]).records == ("X1",)


def written(m: Model, kind: str) -> str:
    """Write a model entry by entry, as the format's description says."""
    number = {n: k for k, n in enumerate(m.nodes)}
    words = [kind, len(m.nodes), *(m.cardinality(n) for n in m.nodes), len(m.factors)]
    for f in m.factors:
        words += [len(f.scope), *(number[n] for n in f.scope)]
    for f in m.factors:
        words.append(f.table.size)
        for index in product(*(range(m.cardinality(n)) for n in f.scope)):  # last one fastest
            words.append(repr(float(f.table[index])))
    return " ".join(map(str, words))


@given(bayesian_networks(latents=False), st.sampled_from(["BAYES", "MARKOV"]))
def test_any_network_is_read_bit_for_bit(tmp_path_factory, m, kind):
    renamed = {n: f"X{k}" for k, n in enumerate(m.nodes)}
    file = tmp_path_factory.mktemp("uai") / "drawn.uai"
    file.write_text(written(m, kind))
    again = read_uai(file)
    assert len(again.factors) == len(m.factors)
    by_scope = {frozenset(f.scope): f for f in again.factors} if kind == "BAYES" else None
    for k, f in enumerate(m.factors):
        scope = tuple(renamed[n] for n in f.scope)
        other = (
            next(g for g in again.factors if g.scope == scope) if by_scope is not None else again.factors[k]
        )
        assert other.scope == scope
        assert np.array_equal(other.table, f.table)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("MARCOV\n1\n2\n0", "expected 'MARKOV' or 'BAYES', found 'MARCOV'"),
        ("MARKOV", ":1: expected the number of variables, found the end of the file"),
        ("MARKOV\nx", ":2: expected the number of variables .a whole number., found 'x'"),
        ("MARKOV\n0", "found '0'"),
        ("MARKOV\n2\n2 -2", ":3: expected the number of states of variable 1"),
        ("MARKOV\n2\n2 2\n1\n2 0 2\n", ":5: expected a variable below 2, found '2'"),
        ("MARKOV\n2\n2 2\n1\n2 0 0\n", ":5: expected each variable once in table 0, found '0'"),
        ("MARKOV\n2\n2 2\n1\n2 0 1\n5\n1 2 3 4 5", ":6: expected 4 entries for table 0"),
        (
            "MARKOV\n2\n2 2\n1\n2 0 1\n4\n1 2 3",
            ":7: expected 4 numbers for table 0, found the end of the file",
        ),
        ("MARKOV\n2\n2 2\n1\n2 0 1\n4\n1 2\nthree 4", ":8: expected a number of table 0, found 'three'"),
        ("MARKOV\n2\n2 2\n1\n2 0 1\n4\n1 2 3 4\n5", ":8: expected the end of the file, found '5'"),
        (
            "BAYES\n2\n2 2\n2\n1 0\n2 1 0\n2\n.5 .5\n4\n.5 .5 .5 .5",
            ":6: expected one table with 'X0' as its last",
        ),
        ("BAYES\n2\n2 2\n1\n1 0\n2\n.5 .5", "expected a table with 'X1' as its last variable, found none"),
    ],
)
def test_mistakes_name_line_and_expectation(read, text, words):
    with pytest.raises(FileFormatError, match=words):
        read(text)


def test_wrong_networks(read):
    with pytest.raises(InvalidModel, match=r"net.uai:5: node 'X0': the table sums to 0.9"):
        read("BAYES\n1\n2\n1\n1 0\n2\n.5 .4")
    with pytest.raises(InvalidModel, match=r"net.uai: factor over \('X0',\): the table has a negative"):
        read("MARKOV\n1\n2\n1\n1 0\n2\n1 -1")
    with pytest.raises(InvalidModel, match="cycle"):
        read("BAYES\n2\n2 2\n2\n2 1 0\n2 0 1\n4\n.5 .5 .5 .5\n4\n.5 .5 .5 .5")
