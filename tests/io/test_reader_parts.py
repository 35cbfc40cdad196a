"""The readers one by one, and the parsers under them, on files small enough to check by eye."""

from __future__ import annotations

from pathlib import Path

import pytest

from quiltdp import Model, save_model
from quiltdp.errors import FileFormatError, InvalidModel
from quiltdp.io.declared import MAX_DEPTH, DeclaredNetwork, parse_xml, read_net, read_xdsl, read_xmlbif
from quiltdp.io.json_models import SCHEMA_VERSION, read_json
from quiltdp.io.text import Source, parse_json

MODEL = Model.from_tables({"A": ([], [0.25, 0.75]), "B": (["A"], [[0.5, 0.5], [0.125, 0.875]])})

NET = """net { }
node A { states = ("0" "1"); }
node B { states = ("0" "1"); }
potential (A) { data = (0.25 0.75); }
potential (B | A) { data = ((0.5 0.5) (0.125 0.875)); }
"""
XMLBIF = """<BIF VERSION="0.3"><NETWORK><NAME>n</NAME>
<VARIABLE><NAME>A</NAME><OUTCOME>0</OUTCOME><OUTCOME>1</OUTCOME></VARIABLE>
<VARIABLE><NAME>B</NAME><OUTCOME>0</OUTCOME><OUTCOME>1</OUTCOME></VARIABLE>
<DEFINITION><FOR>A</FOR><TABLE>0.25 0.75</TABLE></DEFINITION>
<DEFINITION><FOR>B</FOR><GIVEN>A</GIVEN><TABLE>0.5 0.5 0.125 0.875</TABLE></DEFINITION>
</NETWORK></BIF>"""
XDSL = """<smile version="1.0" id="n"><nodes>
<cpt id="A"><state id="0"/><state id="1"/><probabilities>0.25 0.75</probabilities></cpt>
<cpt id="B"><state id="0"/><state id="1"/><parents>A</parents>
<probabilities>0.5 0.5 0.125 0.875</probabilities></cpt>
</nodes></smile>"""


@pytest.mark.parametrize(
    ("read", "name", "text"),
    [(read_net, "m.net", NET), (read_xmlbif, "m.xmlbif", XMLBIF), (read_xdsl, "m.xdsl", XDSL)],
)
def test_the_same_network_in_every_language(read, name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    found = read(path)
    assert {f.scope: f.table.tolist() for f in found.factors} == {
        f.scope: f.table.tolist() for f in MODEL.factors
    }
    assert found.states["B"] == ("0", "1")
    assert tuple(read(path, records=["B"]).records) == ("B",)
    path.write_text(text.replace("0.875", "0.975"))
    with pytest.raises((FileFormatError, InvalidModel)):
        read(path)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    save_model(MODEL, tmp_path / "m.json")
    assert read_json(tmp_path / "m.json").fingerprint == MODEL.fingerprint
    text = (tmp_path / "m.json").read_text()
    later = text.replace(f'"version": {SCHEMA_VERSION}', f'"version": {SCHEMA_VERSION + 1}')
    assert later != text
    (tmp_path / "m.json").write_text(later)
    with pytest.raises(FileFormatError, match="version"):
        read_json(tmp_path / "m.json")


@pytest.mark.parametrize(
    "text", ['{"a": NaN}', '{"a": 1, "a": 2}', "[" * 5000, '{"a": ' + "9" * 5000 + "}", "{", ""]
)
def test_json_of_strangers_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text(text)
    with pytest.raises(FileFormatError) as refused:
        parse_json(Source(path, path.read_text()))
    assert "\n" not in str(refused.value)


def test_xml_of_strangers_has_no_entities_and_no_endless_nest() -> None:
    assert parse_xml("m.xml", b"<a><b/></a>").tag == "a"
    bomb = b'<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>'
    deep = b"<a>" * (MAX_DEPTH + 1) + b"</a>" * (MAX_DEPTH + 1)
    for data in (bomb, deep, b"<a>", b""):
        with pytest.raises(FileFormatError):
            parse_xml("m.xml", data)


def test_declared_nodes_wait_for_their_tables() -> None:
    one, two = DeclaredNetwork("m.net"), DeclaredNetwork("m.net")
    one.states["A"] = ("0", "1")
    assert (two.states, two.tables, two.lines) == ({}, {}, {})
