"""XMLBIF, NET and XDSL: what pgmpy writes is read as pgmpy had it; the rest is right, or refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from quiltdp import load_model
from quiltdp.errors import FileFormatError, InvalidModel, UnknownNode
from quiltdp.io.pgmpy import to_pgmpy

MODELS = Path(__file__).parents[2] / "models"
FORMATS = [("XMLBIFWriter", ".xmlbif"), ("NETWriter", ".net"), ("XDSLWriter", ".xdsl")]


def written(writer: str, name: str, file: Path) -> Path:
    import pgmpy.readwrite

    getattr(pgmpy.readwrite, writer)(to_pgmpy(load_model(MODELS / f"{name}.bif"))).write(str(file))
    return file


@pytest.mark.parametrize(("writer", "suffix"), FORMATS)
@pytest.mark.parametrize("name", ["asia", "survey", "sachs"])
def test_round_trips_through_pgmpys_writers(writer, suffix, name, tmp_path):
    original = load_model(MODELS / f"{name}.bif")
    m = load_model(written(writer, name, tmp_path / f"net{suffix}"))
    assert sorted(m.nodes) == sorted(original.nodes)
    assert m.states == original.states
    tables = {f.child: f for f in m.factors}
    for f in original.factors:
        assert tables[f.child].parents == f.parents
        assert tables[f.child].table == pytest.approx(f.table, rel=1e-7, abs=1e-8)


XMLBIF = """<?xml version="1.0" encoding="ISO-8859-1"?>
<!DOCTYPE BIF [
  <!ELEMENT BIF ( NETWORK )*>
  <!ATTLIST BIF VERSION CDATA #REQUIRED>
]>
<BIF VERSION="0.3"><NETWORK><NAME>Dog-Problem</NAME>
<VARIABLE TYPE="nature"><NAME> größe </NAME><OUTCOME>true</OUTCOME><OUTCOME>false</OUTCOME>
 <PROPERTY>position without an equals sign</PROPERTY></VARIABLE>
<VARIABLE TYPE="nature"><NAME>b</NAME><OUTCOME>x</OUTCOME><OUTCOME>y</OUTCOME><OUTCOME>z</OUTCOME></VARIABLE>
<VARIABLE TYPE="nature"><NAME>c</NAME><OUTCOME>0</OUTCOME><OUTCOME>1</OUTCOME></VARIABLE>
<DEFINITION><FOR>größe</FOR><TABLE>0.15 0.85</TABLE></DEFINITION>
<DEFINITION><FOR>b</FOR><GIVEN>größe</GIVEN><TABLE>0.5 0.3 0.2 <!-- the other row -->
 0.1 0.2 0.7</TABLE></DEFINITION>
<DEFINITION><FOR>c</FOR><GIVEN>größe</GIVEN><GIVEN>b</GIVEN>
 <TABLE>.9 .1 .8 .2 .7 .3 .6 .4 .5 .5 .4 .6</TABLE></DEFINITION>
</NETWORK></BIF>
"""

XDSL = """<?xml version="1.0" encoding="UTF-8"?>
<smile version="1.0" id="Network1" numsamples="10000" discsamples="10000">
  <nodes>
    <cpt id="a"><state id="true" /><state id="false" /><probabilities>0.15 0.85</probabilities></cpt>
    <cpt id="b"><state id="x" /><state id="y" /><state id="z" /><parents>a</parents>
      <probabilities>0.5 0.3 0.2
       0.1 0.2 0.7</probabilities></cpt>
    <cpt id="c"><state id="s0" /><state id="s1" /><parents>a b</parents>
      <probabilities>.9 .1 .8 .2 .7 .3 .6 .4 .5 .5 .4 .6</probabilities></cpt>
  </nodes>
</smile>
"""

NET = """% a comment { with a brace
net
{
  node_size = (80 40);
}
node a
{
  label = "node a { }";
  states = ("true" "false");
  position = (10 20);
}
node b { states = ( "x" "y" "z" ); }
node c { states = ( "s0" "s1" ); }
potential ( a ) { data = ( 0.15 0.85 ); % rows
}
potential ( b | a ) { data = (( 0.5 0.3 0.2 ) ( 0.1 0.2 0.7 )); }
potential ( c | a b ) {
  data = ((( 0.9 0.1 ) % a=true b=x
           ( 0.8 0.2 ) ( 0.7 0.3 ))
          (( 6e-1 4e-1 ) ( 0.5 0.5 ) ( 0.4 0.6 )));
}
"""

C = [[[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]], [[0.6, 0.4], [0.5, 0.5], [0.4, 0.6]]]


@pytest.mark.parametrize(("suffix", "text"), [(".xml", XMLBIF), (".xdsl", XDSL), (".net", NET)])
@pytest.mark.parametrize("packed", [False, True])
def test_files_written_by_hand(suffix, text, packed, tmp_path):
    data = text.encode("latin-1" if suffix == ".xml" else "utf-8")
    file = tmp_path / f"hand{suffix}{'.gz' if packed else ''}"
    file.write_bytes(gzip.compress(data) if packed else data)
    m = load_model(file, records=["c"])
    tables = {f.child: f.table for f in m.factors}
    first = "größe" if suffix == ".xml" else "a"
    assert m.nodes == (first, "b", "c")
    assert m.states[first] == ("true", "false")
    assert tables[first].tolist() == [0.15, 0.85]
    assert np.array_equal(tables["b"], [[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])
    assert np.array_equal(tables["c"], C)
    assert m.records == ("c",)


@pytest.mark.parametrize(
    ("text", "old", "new", "words"),
    [
        (XDSL, '<cpt id="a">', '<deterministic id="a">', "not well-formed XML"),
        (XDSL, "<nodes>", '<nodes><deterministic id="q"/>', "node 'q' is a <deterministic>, only <cpt>"),
        (XDSL, 'id="b"', 'id="a"', "node 'a' is declared twice"),
        (XDSL, "<parents>a b</parents>", "<parents>a q</parents>", "parent of 'c' 'q' is not declared"),
        (XDSL, "0.1 0.2 0.7<", "0.1 0.2<", "node 'b': found 5 numbers, expected 6"),
        (XDSL, "0.1 0.2 0.7<", "0.1 0.2 O.7<", "node 'b': expected a number, found 'O.7'"),
        (XDSL, "0.1 0.2 0.7<", "0.1 0.2 0.6<", "node 'b': row .1,. sums to 0.9"),
        (XDSL, "<probabilities>0.15 0.85</probabilities>", "", "expected one <probabilities>"),
        (XDSL, "</smile>", "", "not well-formed XML"),
        (XDSL, "<parents>a</parents>", "<parents>c</parents>", "the parents form a cycle"),
        (XMLBIF, "<FOR>c</FOR>", "<FOR>b</FOR>", "node 'b' has two tables"),
        (XMLBIF, "<OUTCOME>x</OUTCOME>", "", "node 'b': found 6 numbers, expected 4"),
        (XMLBIF, "0.15 0.85", "0.15 -0.85", "negative|sums"),
        (XMLBIF, "0.15 0.85", "nan 0.85", "NaN"),
        (XMLBIF, "<NETWORK>", "<NETWORK><VARIABLE/>", "expected one <NAME>"),
        (XMLBIF, "<!ELEMENT BIF ( NETWORK )*>", '<!ENTITY a "aaaa">', "entities are not allowed"),
        (NET, "( a ) {", "( q ) {", "node 'q' is not declared"),
        (NET, '"x" "y" "z"', '"x" "y"', "node 'b': found 6 numbers, expected 4"),
        (NET, "node b {", "node b.2 {", "node 'b' is not declared"),
        (NET, "data = ( 0.15 0.85 );", "", "potential '. a .': expected 'data"),
        (NET, 'states = ( "x" "y" "z" );', "", "node 'b': expected 'states"),
        (NET, "node c", "utility c", "expected 'net', 'node' or 'potential'|not declared"),
        (NET, "0.5 0.3 0.2", "0.5 0.3 0.1", "node 'b': row .0,. sums to 0.9"),
        (NET, "node b {", "node a {", "node 'a' is declared twice"),
        (NET, "6e-1", "six", "expected a number, found 'six'"),
    ],
)
def test_what_could_be_misread_is_refused(text, old, new, words, tmp_path):
    assert old in text
    file = tmp_path / "wrong.txt"
    file.write_text(text.replace(old, new), encoding="latin-1" if text is XMLBIF else "utf-8")
    with pytest.raises((FileFormatError, InvalidModel), match=words) as caught:
        load_model(file)
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)


def test_names_and_states_of_a_net_file_may_be_anything(tmp_path):
    file = tmp_path / "odd.net"
    file.write_text(NET.replace('"y"', '"y (y), y"').replace("b", "b.2"))
    m = load_model(file)
    assert m.nodes == ("a", "b.2", "c")
    assert m.states["b.2"] == ("x", "y (y), y", "z")


def test_unknown_records(tmp_path):
    file = tmp_path / "net.xdsl"
    file.write_text(XDSL)
    with pytest.raises(UnknownNode, match="record 'zz' is not a node"):
        load_model(file, records=["zz"])
