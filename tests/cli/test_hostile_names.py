"""Names from files never command the terminal: escapes, bidirectional marks, forged lines, odd bytes."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

import quiltdp as qd
from quiltdp.errors import FileFormatError
from quiltdp.printable import json_text, printable

HOSTILE = "a\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\u2066\u200b\u2028x"
FORGED = "b\nquiltdp: all is well\r\t"
BYTES = "c\udcff"


def hidden(text: str) -> set[str]:
    """Return the characters of an output that a terminal would obey, line ends aside."""
    return {c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")}


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"m{HOSTILE}{FORGED}\udcfe.json"
    tables = {
        HOSTILE: ([], [0.3, 0.7]),
        FORGED: ([HOSTILE], [[0.9, 0.1], [0.2, 0.8]]),
        BYTES: ([FORGED], [[0.6, 0.4], [0.5, 0.5]]),
    }
    states = dict.fromkeys(tables, (f"s{HOSTILE}", f"t{FORGED}"))
    qd.save_model(qd.Model.from_tables(tables, states=states, notes=[f"note {HOSTILE}"]), path)
    return path


COMMANDS = [
    ("calibrate", "--epsilon", 1),
    ("leakage", "--dp-epsilon", 0.1),
    ("leakage", "--audit"),
    ("info",),
    ("quilts", HOSTILE),
    ("quilts", HOSTILE, "--on", FORGED),
    ("leakage", "--dp-epsilon", 0.1, "--protect", f"{HOSTILE}={FORGED}"),
    ("leakage", "--dp-epsilon", 0.1, "--protect", f"x=q{HOSTILE}"),
    ("quilts", f"nobody{HOSTILE}"),
    ("calibrate", "--epsilon", HOSTILE),
    ("calibrate", "--epsilon", 1, f"--{HOSTILE}"),
    ("plan", "--epsilon", 1, "--records", HOSTILE),
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda w: str(w[0]))
@pytest.mark.parametrize("as_json", [False, True])
def test_no_command_shows_a_name_raw(cli, model: Path, words: tuple[object, ...], as_json: bool) -> None:
    before = sorted(os.listdir(b"."))
    result = cli(words[0], model, *words[1:], *(["--json"] if as_json else []))
    assert hidden(result.out + result.err) == set()
    assert "\nquiltdp: all is well" not in result.out + result.err
    assert result.err.count("\n") <= 1
    assert sorted(os.listdir(b".")) == before  # a name is never a path
    if as_json and result.code == 0:
        assert json.loads(result.out)
        if words[0] == "leakage" and "--audit" not in words:
            assert HOSTILE in json.loads(result.out)["per_record"]


def test_a_pedigree_and_a_trace_with_hostile_names(cli, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    bad = HOSTILE.replace("\u2028", "")
    fam = tmp_path / "f.csv"
    fam.write_text(
        f"id,father,mother,sex\n{bad}d,,,1\n{bad}m,,,2\n{bad}k,{bad}d,{bad}m,1\n", encoding="utf-8"
    )
    for words in (
        ("--dp-epsilon", 0.5),
        ("--kin", f"{bad}k"),
        ("--kin", f"{bad}z"),
        ("-o", "t.tsv", "--epsilon", 1),
    ):
        result = cli("pedigree", fam, "--allele-frequency", 0.1, *words)
        assert hidden(result.out + result.err) == set()
    assert hidden((tmp_path / "t.tsv").read_text(encoding="utf-8")) <= {"\t"}
    rows = [f"{bad},2020-01-01T00:{m:02d}:00Z,47.3{m % 2},8.5" for m in range(40)]
    trace = tmp_path / "t.csv"
    trace.write_text("user,time,lat,lon\n" + "\n".join(rows) + "\n", encoding="utf-8")
    result = cli("trace", trace, "--cell", "h3:5", "--interval", "1min", "-o", "chain.json")
    assert hidden(result.out + result.err) == set()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["chain.json", "f.csv", "t.csv", "t.tsv"]


def test_errors_and_representations_are_escaped() -> None:
    with pytest.raises(FileFormatError) as caught:
        qd.load_model(f"no{HOSTILE}{FORGED}.bif")
    assert hidden(str(caught.value)) == set()
    assert "\n" not in str(caught.value)
    assert caught.value.path.startswith(f"no{HOSTILE}")  # the program still knows the name
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    m = qd.Model.from_tables({HOSTILE: ([], [0.3, 0.7]), "B": ([HOSTILE], [[0.9, 0.1], [0.2, 0.8]])})
    found = qd.leakage(m, 0.1)
    shown = [repr(m.factors), str(found), str(qd.calibrate(m, 1.0, qd.Laplace(1.0)))]
    shown += [repr(q) for q in qd.quilts(qd.moralize(m), "B")]
    assert hidden("".join(shown)) == set()
    assert hidden(found.to_json()) == set()
    assert HOSTILE in json.loads(found.to_json())["per_record"]
    with pytest.raises(qd.errors.QuiltdpError) as named:
        m.require([FORGED])
    assert hidden(str(named.value)) == set()


def test_bytes_that_are_not_text_are_refused_unless_a_file_has_the_name(tmp_path: Path) -> None:
    def run(*words: bytes) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable.encode(), b"-m", b"quiltdp", *words],
            capture_output=True,
            cwd=tmp_path,
            check=False,
        )

    refused = run(b"calibrate", b"\xff.bif", b"--epsilon", b"1")
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert refused.stderr == (
        b"quiltdp: the argument '\\udcff.bif' is not text in UTF-8, and no file has this name\n"
    )
    (tmp_path / os.fsdecode(b"\xff.bif")).write_text(Path("models/cancer.bif").read_text())
    assert b"\\udcff.bif: 5 records" in run(b"calibrate", b"\xff.bif", b"--epsilon", b"1").stdout
    told = run(b"leakage", b"\xff.bif", b"--dp-epsilon", b"1", b"--json").stdout
    assert json.loads(told)["model"] == "\udcff.bif"


MARKS = [0xAD, 0x61C, 0x200E, 0x2029, 0x202A, 0x2069, 0xD800, 0xE000, 0xFEFF, 0xFFF9, 0xE0001, 0x10FFFF]


@pytest.mark.parametrize("code", [*range(0x20), *range(0x7F, 0xA0), *MARKS])
def test_every_hidden_character_is_escaped(code: int) -> None:
    text = f"a{chr(code)}b"
    assert printable(text).isascii()
    assert printable(text) != text
    assert json_text(text).isascii()
    assert json.loads(json_text(text)) == text


@pytest.mark.parametrize(
    "text",
    ["Müller", "Σωκράτης", "שלום", "王小明", "na\u00efve café", "ε ≤ 1 → σ", "👩\U0001f469", "e\u0301"],
)
def test_letters_of_all_languages_stay(text: str) -> None:
    assert printable(text) == text
    assert json.loads(json_text([text])) == [text]
    assert text in json_text([text])
