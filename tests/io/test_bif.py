"""The BIF reader: every shipped network as pgmpy reads it, and the corners of the format."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import bayesian_networks

from quiltdp import Model, load_model
from quiltdp.errors import FileFormatError, InvalidModel
from quiltdp.factor import normalise_rows
from quiltdp.io import bif
from quiltdp.io.text import Source

MODELS = Path(__file__).parents[2] / "models"
SHIPPED = sorted(p.name for p in MODELS.glob("*.bif*"))
QUICK = {"alarm", "asia", "cancer", "child", "earthquake", "hepar2", "insurance", "sachs", "survey"}


def parse(text: str, **options) -> Model:
    return bif.parse_bif(Source("text.bif", text), **options)


# -- against pgmpy --------------------------------------------------------------------------


@cache
def pgmpy_grammars():
    """Return pgmpy's grammars, which take it a second to build for every file."""
    from pgmpy.readwrite import BIFReader

    reader = BIFReader.__new__(BIFReader)
    return reader.get_variable_grammar(), reader.get_probability_grammar()


def test_the_project_ships_its_networks():
    assert len(SHIPPED) == 21


@pytest.mark.parametrize(
    "name", [n if n.split(".")[0] in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in SHIPPED]
)
def test_every_table_is_the_one_that_pgmpy_reads(name, monkeypatch):
    from pgmpy.readwrite import BIFReader

    variables, probabilities = pgmpy_grammars()
    monkeypatch.setattr(BIFReader, "get_variable_grammar", lambda _: variables)
    monkeypatch.setattr(BIFReader, "get_probability_grammar", lambda _: probabilities)
    file = MODELS / name
    text = gzip.decompress(file.read_bytes()) if name.endswith(".gz") else file.read_bytes()
    other = BIFReader(string=text.decode())
    model = load_model(file)
    assert list(model.nodes) == list(other.variable_names)
    for factor in model.factors:
        child = factor.child
        assert list(factor.parents) == list(other.variable_parents[child])
        assert list(model.states[child]) == list(other.variable_states[child])
        rows = np.array(other.variable_cpds[child]).T.reshape(factor.table.shape)
        expected, _ = normalise_rows(child, np.ascontiguousarray(rows))
        assert np.array_equal(factor.table, expected)


@pytest.mark.parametrize(
    ("name", "nodes", "edges", "entries"),
    [("asia.bif", 8, 8, 36), ("child.bif", 20, 25, 344), ("link.bif", 724, 1125, 20502)],
)
def test_sizes_as_published(name, nodes, edges, entries):
    m = load_model(MODELS / name)
    assert len(m.nodes) == nodes
    assert sum(len(f.parents) for f in m.factors) == edges
    assert sum(f.table.size for f in m.factors) == entries


def test_asia_by_hand():
    m = load_model(MODELS / "asia.bif")
    tables = {f.child: f for f in m.factors}
    assert m.nodes == ("asia", "tub", "smoke", "lung", "bronc", "either", "xray", "dysp")
    assert m.states["asia"] == ("yes", "no")
    assert tables["asia"].table.tolist() == [0.01, 0.99]
    assert tables["dysp"].parents == ("bronc", "either")
    assert tables["dysp"].table.tolist() == [[[0.9, 0.1], [0.8, 0.2]], [[0.7, 0.3], [0.1, 0.9]]]
    assert m.provenance == {"file": str(MODELS / "asia.bif"), "format": "BIF"}
    assert m.notes == ()


def test_strange_states_and_rounded_rows():
    child = load_model(MODELS / "child.bif")
    assert "Asy/Patch" in child.states["ChestXray"]
    assert child.states["CO2Report"] == ("<7.5", ">=7.5")
    assert "normalised" in load_model(MODELS / "alarm.bif").notes[0]


# -- corners of the format ------------------------------------------------------------------

HEAD = """network n { }
variable A { type discrete [ 2 ] { x, y }; }
variable B { type discrete [ 3 ] { u, v, w }; }
"""
A = "probability ( A ) { table 0.25, 0.75; }\n"


def tables_of(m: Model) -> dict[str, list]:
    return {f.child: f.table.tolist() for f in m.factors}


B_TABLE = [[0.5, 0.25, 0.25], [0.125, 0.125, 0.75]]


@pytest.mark.parametrize(
    "block",
    [
        "probability ( B | A ) { (x) 0.5, 0.25, 0.25; (y) 0.125, 0.125, 0.75; }",
        "probability ( B | A ) { (y) 0.125, 0.125, 0.75; (x) 0.5, 0.25, 0.25; }",
        "probability(B|A){(x)0.5,0.25,0.25;(y)0.125,0.125,0.75;}",
        "probability ( B | A ) {\n(x)\n0.5,\n0.25,\n0.25\n;\n( y ) 0.125 , 0.125 , 0.75 ; }",
        "probability ( B | A ) { (x) 5e-1, 2.5E-1, 25e-02; (y) .125, 1.25e-1, +0.75; }",
        "probability ( B | A ) { (x) 0.5 0.25 0.25; (y) 0.125 0.125 0.75; }",
        "probability ( B | A ) { default 0.125, 0.125, 0.75; (x) 0.5, 0.25, 0.25; }",
        "probability ( B | A ) { (x) 0.5, 0.25, 0.25; default 0.125 0.125 0.75; }",
        "probability ( B | A ) { table 0.5, 0.125, 0.25, 0.125, 0.25, 0.75; }",
        'probability ( "B" | "A" ) { ("x") 0.5, 0.25, 0.25; ("y") 0.125, 0.125, 0.75; }',
        'probability ( "B" "A" ) { table 0.5 0.125 0.25 0.125 0.25 0.75 ; }',
        'probability ( B | A ) { property comment "a; b } c"; (x) 0.5, 0.25, 0.25;\n'
        " property two = 2; (y) 0.125, 0.125, 0.75; }",
        "probability ( B | A ) { // (x) 9, 9, 9;\n (x) 0.5, 0.25, 0.25; /* (y)\n 1,0,0; */"
        " (y) 0.125, 0.125, 0.75; }",
    ],
)
def test_ways_to_write_one_table(block):
    assert tables_of(parse(HEAD + A + block)) == {"A": [0.25, 0.75], "B": B_TABLE}


def test_a_table_with_parents_cycles_the_last_name_fastest():
    """As in the Interchange Format's own example: child slowest, last parent fastest."""
    text = """
    network "Dog-Problem" { property "credal-set constant-density-bounded 1.1" ; }
    variable "light-on" { type discrete[2] { "true" "false" }; property "position = (218, 195)" ; }
    variable "bowel-problem" { type discrete[2] { "true" "false" }; }
    variable "dog-out" { type discrete[2] { "true" "false" }; }
    variable "family-out" { type discrete[2] { "true" "false" }; }
    probability ( "light-on" "family-out" ) { table 0.6 0.05 0.4 0.95 ; }
    probability ( "bowel-problem" ) { table 0.01 0.99 ; }
    probability ( "dog-out" "bowel-problem" "family-out" ) { table 0.99 0.97 0.9 0.3 0.01 0.03 0.1 0.7 ; }
    probability ( "family-out" ) { table 0.15 0.85 ; }
    """
    m = parse(text)
    assert m.states["dog-out"] == ("true", "false")
    found = tables_of(m)
    assert found["light-on"] == [[0.6, 0.4], [0.05, 0.95]]
    assert found["dog-out"] == [[[0.99, 0.01], [0.97, 0.03]], [[0.9, 0.1], [0.3, 0.7]]]


def test_quoted_names_may_hold_anything():
    text = """
    variable "a b | c" { type discrete [ 2 ] { "x, y; {z}", "(q)" }; }
    variable second { type discrete [ 2 ] { "one two", three }; }
    probability ( "a b | c" ) { table 0.5, 0.5; }
    probability ( second | "a b | c" ) { ("(q)") 0.25, 0.75; ("x, y; {z}") 0.5, 0.5; }
    """
    m = parse(text)
    assert m.states == {"a b | c": ("x, y; {z}", "(q)"), "second": ("one two", "three")}
    assert tables_of(m)["second"] == [[0.5, 0.5], [0.25, 0.75]]


def test_slashes_in_names_are_not_comments():
    text = """variable A { type discrete [ 2 ] { a//b, c/d }; } // a comment
    probability ( A ) { table 0.5, 0.5; } // the end"""
    assert parse(text).states["A"] == ("a//b", "c/d")


def test_unquoted_states_may_hold_blanks():
    text = """variable A { type discrete [ 2 ] { very low, high }; }
    variable B { type discrete [ 2 ] { x, y }; }
    probability ( A ) { table 0.5, 0.5; }
    probability ( B | A ) { (very low) 0.5, 0.5; (high) 0.25, 0.75; }"""
    assert parse(text).states["A"] == ("very low", "high")


def test_probability_blocks_may_come_first():
    text = A + "variable A { type discrete [ 2 ] { x, y }; }"
    assert tables_of(parse(text)) == {"A": [0.25, 0.75]}


def test_states_called_default_and_table():
    text = """variable A { type discrete [ 2 ] { default, table }; }
    variable B { type discrete [ 2 ] { x, y }; }
    probability ( A ) { table 0.5, 0.5; }
    probability ( B | A ) { (default) 0.5, 0.5; (table) 0.25, 0.75; }"""
    assert tables_of(parse(text))["B"] == [[0.5, 0.5], [0.25, 0.75]]


def test_one_state_and_a_trailing_comma():
    text = "variable A { type discrete [ 1 ] { only, }; } probability ( A ) { table 1; }"
    assert tables_of(parse(text)) == {"A": [1.0]}


@pytest.mark.parametrize(
    "change", [lambda t: "\ufeff" + t, lambda t: t.replace("\n", "\r\n"), lambda t: t.replace("\n", "\r")]
)
def test_byte_order_marks_and_line_ends(change, tmp_path):
    file = tmp_path / "asia.bif"
    file.write_text(change((MODELS / "asia.bif").read_text()), newline="", encoding="utf-8")
    assert load_model(file).fingerprint == load_model(MODELS / "asia.bif").fingerprint


def test_encodings(tmp_path):
    file = tmp_path / "umlaut.bif"
    text = "variable Größe { type discrete [ 2 ] { groß, klein }; } probability ( Größe ) { table 0.5, 0.5; }"
    file.write_text(text, encoding="utf-8")
    assert load_model(file).states == {"Größe": ("groß", "klein")}
    file.write_text(text, encoding="latin-1")
    with pytest.raises(FileFormatError, match=r"umlaut.bif:1: byte 0xf6 is not utf-8"):
        load_model(file)
    assert load_model(file, encoding="latin-1").states == {"Größe": ("groß", "klein")}


def test_records_and_compressed_files(tmp_path):
    packed = tmp_path / "asia.bif.gz"
    packed.write_bytes(gzip.compress((MODELS / "asia.bif").read_bytes()))
    m = load_model(packed, records=["lung", "smoke"])
    assert m.records == ("smoke", "lung")
    assert m.with_records(m.nodes).fingerprint == load_model(MODELS / "asia.bif").fingerprint


def test_a_default_row_cannot_ask_for_the_whole_memory():
    many = 40
    text = "".join(f"variable V{k} {{ type discrete [ 2 ] {{ x, y }}; }}\n" for k in range(many))
    text += "".join(f"probability ( V{k} ) {{ table 0.5, 0.5; }}\n" for k in range(1, many))
    text += f"probability ( V0 | {', '.join(f'V{k}' for k in range(1, many))} ) {{ default 0.5, 0.5; }}"
    with pytest.raises(FileFormatError, match="has 39 parents, at most 31 fit"):
        parse(text)


def test_default_rows_share_one_allowance():
    many = 22
    text = "".join(f"variable V{k} {{ type discrete [ 2 ] {{ x, y }}; }}\n" for k in range(many))
    text += "probability ( V0 ) { default 0.5, 0.5; }\n"
    for k in range(1, many):
        parents = ", ".join(f"V{j}" for j in range(k))
        text += f"probability ( V{k} | {parents} ) {{ default 0.5, 0.5; }}\n"
    with pytest.raises(
        FileFormatError, match=r"text.bif:44: the table of 'V21' has more entries than the file"
    ):
        parse(text)


def test_mistakes_name_the_line_of_the_row_or_block():
    text = HEAD + A + "probability ( B | A ) {\n (x) 0.5, 0.25, 0.25;\n (y) 0.125, 0.75;\n}"
    with pytest.raises(FileFormatError, match=r"text.bif:7: node 'B': found 2 numbers, expected 3"):
        parse(text)
    text = HEAD + A + "probability ( B | A ) {\n (x) 0.5, 0.25, 0.25;\n (y) 0.125, 0.125, 0.65;\n}"
    with pytest.raises(InvalidModel, match=r"text.bif:5: node 'B': row \(1,\) sums to 0.9"):
        parse(text)


# -- any network ----------------------------------------------------------------------------


def written(m: Model, pick) -> str:
    """Write a model as BIF, layout and order of rows drawn."""
    parts = ["network drawn {\n}\n"]
    for n in m.nodes:
        parts.append(
            f"variable {n} {{\n  type discrete [ {m.cardinality(n)} ] {{ {', '.join(m.states[n])} }};\n}}\n"
        )
    for f in pick(list(m.factors)):
        given = f" | {', '.join(f.parents)}" if f.parents else ""
        parts.append(f"probability ( {f.child}{given} ) {{\n")
        if not f.parents:
            parts.append(f"  table {', '.join(map(repr, f.table.tolist()))};\n")
        for index in pick(list(np.ndindex(f.table.shape[:-1]))) if f.parents else []:
            states = ", ".join(m.states[p][k] for p, k in zip(f.parents, index, strict=True))
            parts.append(f"  ({states}) {', '.join(map(repr, f.table[index].tolist()))};\n")
        parts.append("}\n")
    return "".join(parts)


@given(bayesian_networks(latents=False), st.randoms(use_true_random=False))
def test_any_network_is_read_bit_for_bit(m, random):
    def shuffled(items):
        random.shuffle(items)
        return items

    again = parse(written(m, shuffled))
    assert again.fingerprint == m.fingerprint
    assert tuple(again.nodes) == tuple(m.nodes)
