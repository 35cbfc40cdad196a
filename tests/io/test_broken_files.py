"""Broken files: each gives one clear line that names the file, and exit code 2, never a traceback."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from quiltdp import load_model
from quiltdp.errors import FileFormatError, InvalidModel, QuiltdpError, UnknownNode

ASIA = (Path(__file__).parents[2] / "models/asia.bif").read_text()
HEAD = (
    "network n {\n}\n"
    "variable A {\n  type discrete [ 2 ] { x, y };\n}\n"
    "variable B {\n  type discrete [ 2 ] { u, v };\n}\n"
)
P_A = "probability ( A ) {\n  table 0.5, 0.5;\n}\n"  # lines 9 to 11
P_B = "probability ( B | A ) {\n  (x) 0.5, 0.5;\n  (y) 0.25, 0.75;\n}\n"  # lines 12 to 15
GOOD = HEAD + P_A + P_B


def changed(old: str, new: str, text: str = GOOD) -> str:
    assert old in text
    return text.replace(old, new)


def node(**fields: object) -> str:
    entry = {"name": "A", "states": ["x", "y"], "parents": [], "table": [0.5, 0.5], **fields}
    return json.dumps({"nodes": [entry]})


# name of the file -> (its content, what the message says); {file} stands for the path
BROKEN: dict[str, tuple[str | bytes, str]] = {
    # nothing, or something else
    "empty.bif": ("", "{file}: the file is empty"),
    "blank.bif": (" \n\t\n", "{file}: the file is empty"),
    "empty.json": ("", "{file}: the file is empty"),
    "empty.uai": ("", "{file}: the file is empty"),
    "empty.net": ("", "{file}: the file is empty"),
    "empty.xmlbif": ("", "{file}: the file is empty"),
    "junk.bif": (bytes(range(256)) * 40, "{file}:1: this is binary data"),
    "junk.json": (b"\x00\x01\x02", "{file}:1: this is binary data"),
    "junk.xdsl": (b"\xff\xd8\xff\xe0 jpeg", "{file}:1: this is not well-formed XML"),
    "picture.bif": (b"\x89PNG\r\n\x1a\n" + b"\x00" * 50, "{file}:"),
    "prose.bif": (
        "Dear reader,\nthis is a letter.",
        "{file}:1: expected 'network', 'variable' or 'probability'",
    ),
    "prose.xyz": ("Dear reader", "neither the suffix '.xyz' nor the beginning of the file"),
    "huge_line.bif": ("x" * 5_000_000, "{file}:1: expected 'network'"),
    "huge_blank.bif": ("probability" + " " * 3_000_000 + "x", "{file}:1: expected 'network'"),
    "huge_quotes.bif": ('variable "' + '" "' * 300_000, "{file}:1:"),
    # encodings
    "latin1.bif": (changed("A", "Ä").encode("latin-1"), "{file}:3: byte 0xc4 is not utf-8"),
    "utf16.bif": (GOOD.encode("utf-16")[:-9], "{file}:"),
    "latin1.json": (node(name="Ä").replace("\\u00c4", "Ä").encode("latin-1"), "is not utf-8"),
    # compressed
    "plain.bif.gz": (GOOD, "{file}: the name ends in .gz but this is not a gzip file"),
    "cut.bif.gz": (gzip.compress(ASIA.encode())[:200], "{file}: the gzip file is broken or cut short"),
    "cut.json.gz": (gzip.compress(node().encode())[:-9], "{file}: the gzip file is broken or cut short"),
    "flipped.bif.gz": (gzip.compress(ASIA.encode())[:100] + b"\x00" * 200, "{file}: the gzip file is broken"),
    # BIF, truncated
    "cut_header.bif": (GOOD[: GOOD.index("probability ( B") + 14], "{file}:12: expected 'network'"),
    "cut_block.bif": (GOOD[: GOOD.index("(y)")], "{file}:12: this block is never closed"),
    "cut_row.bif": (GOOD[: GOOD.index("0.75")], "{file}:12: this block is never closed"),
    "cut_variable.bif": (GOOD[: GOOD.index("u, v")], "{file}:6: variable 'B': expected 'type discrete"),
    "cut_quote.bif": (changed("{ u, v", '{ "u, v'), "{file}:6:"),
    "no_tables.bif": (HEAD, "{file}:3: variable 'A' has no probability block"),
    "no_variables.bif": ("network n {\n}\n", "there is no variable in this file"),
    # BIF, wrong counts and names
    "few_numbers.bif": (
        changed("(y) 0.25, 0.75", "(y) 0.25"),
        "{file}:14: node 'B': found 1 numbers, expected 2",
    ),
    "many_numbers.bif": (changed("0.25, 0.75", "0.25, 0.5, 0.25"), "{file}:14: node 'B': found 3 numbers"),
    "few_in_table.bif": (changed("table 0.5, 0.5", "table 1.0"), "{file}:10: node 'A': found 1 numbers"),
    "no_number.bif": (changed("0.75", "0.7S"), "{file}:14: node 'B': expected a number, found '0.7S'"),
    "comma_decimals.bif": (changed("0.25, 0.75", "0,25, 0,75"), "{file}:14: node 'B': found 4 numbers"),
    "missing_row.bif": (changed("  (y) 0.25, 0.75;\n", ""), "{file}:12: node 'B': the row (y) is missing"),
    "missing_table.bif": (changed("  table 0.5, 0.5;\n", ""), "{file}:9: node 'A': the table is missing"),
    "row_twice.bif": (changed("(y)", "(x)"), "{file}:14: node 'B': this row is given twice"),
    "missing_state.bif": (
        changed("{ x, y }", "{ x }"),
        "{file}:4: variable 'A' announces 2 states and names 1",
    ),
    "unknown_state.bif": (
        changed("(y)", "(z)"),
        "{file}:14: node 'B': 'z' is not a state of 'A', which has x, y",
    ),
    "wide_row.bif": (changed("(y)", "(y, u)"), "{file}:14: node 'B': the row names 2 states"),
    "same_state.bif": (changed("{ x, y }", "{ x, x }"), "{file}"),
    "unknown_parent.bif": (changed("| A )", "| C )"), "{file}:12: parent of 'B' 'C' has no variable block"),
    "unknown_node.bif": (changed("( B |", "( C |"), "{file}:12: node 'C' has no variable block"),
    "declared_twice.bif": (
        changed("variable B", "variable A"),
        "{file}:6: variable 'A' is declared twice, first on line 3",
    ),
    "table_twice.bif": (GOOD + P_B, "{file}:16: a second table for node 'B', the first is on line 12"),
    "parent_twice.bif": (changed("| A )", "| A, A )"), "{file}:1"),
    "no_semicolon.bif": (changed("0.25, 0.75;", "0.25, 0.75"), "{file}:14: expected ';' after"),
    "no_brace.bif": (
        changed("0.5, 0.5;\n}", "0.5, 0.5;\n"),
        "{file}:12: expected 'table', 'default' or '( state",
    ),
    "no_bracket.bif": (changed("( B | A )", "B | A"), "{file}:12: expected 'probability ( NODE | PARENT"),
    "continuous.bif": (
        changed("type discrete [ 2 ] { u, v }", "type continuous"),
        "{file}:6: variable 'B': expected",
    ),
    "bad_key.bif": (changed("(y) ", "(y "), "{file}:14:"),
    "word.bif": (changed("  (y)", "  row (y)"), "{file}:14: expected 'table', 'default'"),
    "stray.bif": (GOOD + "end of file", "{file}:16: expected 'network', 'variable' or 'probability'"),
    # BIF, well formed and wrong
    "cycle.bif": (
        changed(P_A, "probability ( A | B ) {\n (u) 0.5, 0.5;\n (v) 0.5, 0.5;\n}\n"),
        "the parents form a cycle",
    ),
    "own_parent.bif": (
        changed(P_A, "probability ( A | A ) {\n (x) 0.5, 0.5;\n (y) 0.5, 0.5;\n}\n"),
        "{file}:9: node 'A'",
    ),
    "sum.bif": (
        changed("0.25, 0.75", "0.25, 0.65"),
        "{file}:12: node 'B': row (1,) sums to 0.9, it must sum to 1",
    ),
    "sum_root.bif": (
        changed("table 0.5, 0.5", "table 0.5, 0.4"),
        "{file}:9: node 'A': the table sums to 0.9",
    ),
    "negative.bif": (
        changed("0.25, 0.75", "1.25, -0.25"),
        "{file}:12: node 'B': the table has a negative entry at (1, 1)",
    ),
    "nan.bif": (
        changed("0.25, 0.75", "nan, 0.75"),
        "{file}:12: node 'B': the table has a NaN or infinite entry at (1, 0)",
    ),
    "infinite.bif": (
        changed("0.25, 0.75", "inf, 0.75"),
        "{file}:12: node 'B': the table has a NaN or infinite",
    ),
    "overflow.bif": (changed("0.25, 0.75", "1e308, 1e308"), "{file}:12: node 'B': row (1,) sums to inf"),
    "zeros.bif": (changed("0.25, 0.75", "0, 0"), "{file}:12: node 'B': row (1,) sums to 0"),
    # JSON
    "cut.json": (node()[:-5], "{file}:1: this is not JSON"),
    "deep.json": ("[" * 200_000 + "]" * 200_000, "{file}: the document is nested too deeply"),
    "deep_object.json": ('{"nodes": ' * 50_000, "{file}: the document is nested too deeply"),
    "nan.json": (node(table=[0.5, float("nan")]), "{file}:1: NaN is not a number"),
    "minus_infinity.json": (node(table=[0.5, float("-inf")]), "-Infinity is not a number"),
    "sum.json": (node(table=[0.5, 0.4]), "{file}:1: node 'A': the table sums to 0.9"),
    "ragged.json": (
        node(table=[[0.5, 0.5], [1.0]]),
        "{file}:1: node 'A': the table is not a rectangular array",
    ),
    "text_table.json": (node(table="0.5 0.5"), "{file}: node 'A': 'table' must be a list"),
    "unknown_parent.json": (node(parents=["Z"]), "{file}:1: node 'A': its parent 'Z' has no table"),
    "unknown_record.json": (node()[:-1] + ', "records": ["Z"]}', "{file}: record 'Z' is not a node"),
    "no_records.json": (node()[:-1] + ', "records": []}', "{file}: the model has no records"),
    "list.json": ("[1, 2]", "{file}: the document must be an object"),
    "number.json": ("3", "{file}: the document must be an object"),
    "length.json": (
        '{"transition": [[1]], "length": 1e3}',
        "{file}: the document: 'length' must be a whole number",
    ),
    "endless.json": ('{"transition": [[1]], "length": 1' + "0" * 40 + "}", "{file}: chain 'X': the length"),
    "not_square.json": (
        '{"transition": [[0.5, 0.5]], "length": 3}',
        "{file}: the transition matrix has shape (1, 2)",
    ),
    "two_laws.json": (
        '{"transition": [[1, 0], [0, 1]], "length": 3}',
        "{file}: the chain has 2 closed classes",
    ),
    # UAI, NET, XMLBIF, XDSL
    "cut.uai": (
        "MARKOV\n2\n2 2\n1\n2 0 1\n4\n1 2 3\n",
        "{file}:7: expected 4 numbers for table 0, found the end",
    ),
    "variable.uai": (
        "MARKOV\n2\n2 2\n1\n2 0 7\n4\n1 2 3 4\n",
        "{file}:5: expected a variable below 2, found '7'",
    ),
    "huge_count.uai": ("MARKOV\n999999999999\n2 2", "{file}:3: expected the number of states"),
    "cut.net": (
        'net\n{\n}\nnode A\n{\n states = ("x" "y");\n',
        "{file}:4: this block is never closed",
    ),
    "no_potential.net": ('net { }\nnode A { states = ("x" "y"); }', "{file}: node 'A' has 0 tables"),
    "cut.xmlbif": (
        '<?xml version="1.0"?>\n<BIF VERSION="0.3">\n<NETWORK>',
        "{file}:3: this is not well-formed XML",
    ),
    "other.xml": ("<html><body/></html>", "{file}: expected <BIF> with <NETWORK> in it, found <html>"),
    "bomb.xmlbif": (
        '<!DOCTYPE BIF [<!ENTITY a "b">]>\n<BIF>&a;</BIF>',
        "{file}:1: XML entities are not allowed",
    ),
    "bomb16.xmlbif": (
        '<?xml version="1.0" encoding="utf-16"?><!DOCTYPE BIF [<!ENTITY a "b">]>\n<BIF>&a;</BIF>'.encode(
            "utf-16"
        ),
        "{file}:1: XML entities are not allowed",
    ),
    "bomb16.xdsl": (
        '<?xml version="1.0" encoding="utf-16"?><!DOCTYPE s [<!ENTITY % a "b">]>\n<smile/>'.encode(
            "utf-16-be"
        ),
        "{file}:",
    ),
    "deep.xmlbif": ("<BIF>" + "<a>" * 100_000, "{file}:1: elements stand 65 deep"),
    "no_nodes.xdsl": ("<smile><extensions/></smile>", "{file}: expected <smile> with <nodes>"),
}


@pytest.fixture
def broken(tmp_path: Path) -> Callable[[str], Path]:
    def make(name: str) -> Path:
        content = BROKEN[name][0]
        file = tmp_path / name
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    return make


def check(message: str, words: str, file: Path) -> None:
    assert words.replace("{file}", str(file)) in message
    assert str(file) in message
    assert "\n" not in message
    assert len(message) < 600


def test_there_are_enough_of_them():
    assert len(BROKEN) >= 40


def test_the_file_they_are_made_from_is_good(tmp_path):
    file = tmp_path / "good.bif"
    file.write_text(GOOD)
    assert load_model(file).factors[1].table.tolist() == [[0.5, 0.5], [0.25, 0.75]]


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_gives_one_clear_line(name, broken):
    file = broken(name)
    with pytest.raises((FileFormatError, InvalidModel, UnknownNode)) as caught:
        load_model(file)
    check(str(caught.value), BROKEN[name][1], file)


@pytest.mark.parametrize("name", BROKEN)
def test_the_command_line_leaves_with_code_2(name, broken, cli):
    file = broken(name)
    result = cli("info", file)
    assert result.code == 2
    assert result.out == ""
    assert result.err.count("\n") == 1
    assert result.err.startswith("quiltdp: ")
    assert "Traceback" not in result.err
    check(result.err.strip(), " ".join(BROKEN[name][1].split()), file)


def test_no_file_a_folder_and_an_impossible_name(tmp_path, cli):
    for name, words in (
        (tmp_path / "absent.bif", "there is no such file"),
        (tmp_path / "absent.fam", "there is no such file"),
        (tmp_path, "this is a directory"),
        (tmp_path / ("x" * 300 + ".bif"), "cannot be read"),
    ):
        with pytest.raises(FileFormatError, match=words):
            load_model(name)
        result = cli("info", name)
        assert result.code == 2
        assert words in result.err
    (tmp_path / "folder.bif").mkdir()
    with pytest.raises(FileFormatError, match="directory"):
        load_model(tmp_path / "folder.bif")
    with pytest.raises(FileFormatError, match="cannot be read"):
        load_model("a\0b.bif")


def test_a_file_beyond_the_limit(tmp_path, monkeypatch):
    from quiltdp.io import text

    file = tmp_path / "bomb.bif.gz"
    file.write_bytes(gzip.compress(b" " * 1_000_000))
    with pytest.raises(FileFormatError, match="more than 1,000 bytes"):
        text.read_bytes(file, max_bytes=1000)


def complaint(file: Path) -> str | None:
    """Return what is wrong with a file, ``None`` if nothing; any other exception is a bug."""
    try:
        load_model(file)
    except QuiltdpError as error:
        return str(error)
    return None


def test_every_prefix_of_a_good_file_is_refused(tmp_path):
    file = tmp_path / "cut.bif"
    for stop in range(len(GOOD.rstrip())):
        file.write_text(GOOD[:stop])
        message = complaint(file)
        assert message is not None
        assert message.startswith(str(file))


@pytest.mark.parametrize("text", [GOOD, node(), "BAYES\n1\n2\n1\n1 0\n2\n.5 .5"])
def test_any_character_changed_is_refused_or_read(text, tmp_path):
    file = tmp_path / "changed.bif"
    for k in range(0, len(text), 2):
        for wrong in ('"', "}", "\x01", ""):
            file.write_text(text[:k] + wrong + text[k + 1 :])
            message = complaint(file)
            assert message is None or message.startswith(str(file))
            assert message is None or "\n" not in message
