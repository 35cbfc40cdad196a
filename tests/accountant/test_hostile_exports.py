"""Exports written by an enemy: every number is read by one bounded grammar, or refused in one line."""

from __future__ import annotations

import copy
import json
import tracemalloc
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import quiltdp as qd
from quiltdp.accountant.ledger import Entry, Ledger, verify_export
from quiltdp.accountant.ledger.entries import Head, genesis_digest, read_count, read_double, read_share
from quiltdp.cli.ledger import _verify_export
from quiltdp.errors import LedgerCorrupt, QuiltdpError

DEEP = "@deep@"  # put in as text: nested lists that no parser in Python could build
TWICE = "@twice@"
HOSTILE: tuple[Any, ...] = (
    "1e9999999", "1e-99999999", "1e-999999999999", "1E5", "1e5", "0x1p99999", "-0x1p99999", "0x1p-99999999",
    "0x1.0p+9999", "0x1." + "0" * 10**5 + "p+0", "9" * 10**5, "1/" + "9" * 10**5, "9" * 10**5 + "/7", "1/0",
    "0/0", "-1/2", "-0", "+1/2", "2/4", "01/2", " 1/2", "1 /2", "1_0/20", "\u0661/\u0662", "\uff11/\uff12",
    "\u00bd", "1/2\n", "nan", "inf", "-inf", "Infinity", "1//2", "1/2/3", "0.5", "", "x", "\x00", "\ud800",
    True, False, None, -1, 2**63, 10**350, -(10**350), 0.5, 1e308, -0.0, float("nan"), float("inf"), [], {},
    [[[[1]]]], {"a": {"a": 1}}, DEEP, TWICE,
)  # fmt: skip
NUMBERS = ("seq", "share", "count", "answers", "value", "value_hex")
TEXTS = ("time", "kind", "key", "request", "label", "commitment", "digest")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    calibration = qd.calibrate(qd.example("two_families"), 1.0, qd.Laplace(sensitivity=1.0), compare=False)
    ledger = Ledger.create(tmp_path_factory.mktemp("ledger") / "study.db", calibration)
    for k in range(3):
        ledger.charge(Fraction(calibration.dp_epsilon) / 7, label=f"release {k}")
    document: dict[str, Any] = json.loads(json.dumps(ledger.export()))
    assert verify_export(document).spent == Fraction(3, 7)
    return document


def written(document: dict[str, Any]) -> str:
    text = json.dumps(document)
    text = text.replace(f'"{DEEP}"', "[" * 100_000 + "]" * 100_000)
    return text.replace(f'"{TWICE}"', '{"a": 1, "a": 2}')


def refused(document: dict[str, Any], path: Path) -> str:
    """Verify as the command does; return the one line it ends with.

    Work is counted in bytes: a number that takes long to compute with is a number that is long.
    """
    path.write_text(written(document), encoding="utf-8")
    tracemalloc.start()
    try:
        with pytest.raises(QuiltdpError) as caught:
            _verify_export(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    line = str(caught.value)
    assert caught.value.exit_code in (1, 2)
    assert "\n" not in line
    assert len(line) < 400
    assert peak < 12 * path.stat().st_size + 2**21
    return line


@pytest.mark.parametrize(
    ("field", "value"), [("share", "1e9999999"), ("share", "1e-99999999"), ("value_hex", "0x1p99999")]
)
def test_the_command(exported: dict[str, Any], field: str, value: str, tmp_path: Path, cli: Any) -> None:
    document = copy.deepcopy(exported)
    document["entries"][1][field] = value
    path = tmp_path / "study.json"
    path.write_text(written(document))
    told = cli("ledger", "verify", path)
    assert told.code in (1, 2)
    assert told.out == ""
    assert told.err.startswith(f"quiltdp: {path}: ledger entry 2 cannot be read: ")
    assert told.err.count("\n") == 1


@pytest.mark.parametrize("field", [*NUMBERS, *TEXTS])
def test_every_field_of_an_entry(exported: dict[str, Any], field: str, tmp_path: Path) -> None:
    for value in HOSTILE:
        document = copy.deepcopy(exported)
        if document["entries"][1][field] is value:
            continue
        document["entries"][1][field] = value
        refused(document, tmp_path / "study.json")


@pytest.mark.parametrize("place", ["genesis", "entries", "head", "seq", "digest", "entry"])
def test_every_part_of_an_export(exported: dict[str, Any], place: str, tmp_path: Path) -> None:
    for value in HOSTILE:
        document = copy.deepcopy(exported)
        inside = {"seq": document["head"], "digest": document["head"], "entry": document["entries"]}
        inside.get(place, document)[1 if place == "entry" else place] = value
        refused(document, tmp_path / "study.json")
    document = copy.deepcopy(exported)
    inside = {"seq": document["head"], "digest": document["head"], "entry": document["entries"]}
    del inside.get(place, document)[1 if place == "entry" else place]
    refused(document, tmp_path / "study.json")


@pytest.mark.parametrize("text", ["", "[]", "7", "null", '"x"', "{", "\x00", "9" * 10**6, "[" * 10**6])
def test_files_that_are_no_export(text: str, tmp_path: Path, cli: Any) -> None:
    path = tmp_path / "study.json"
    path.write_text(text)
    told = cli("ledger", "verify", path)
    assert told.code == 2
    assert told.err.count("\n") == 1


def chained(genesis: Any, shares: list[Fraction], **fields: Any) -> dict[str, Any]:
    """Return an export whose hashes are right: whoever writes one can compute them."""
    head, entries = Head(0, genesis_digest(genesis)), []
    for share in shares:
        entry = Entry.after(head, "charge", time="2026-01-01T00:00:00Z", share=share, **fields)
        entries.append(entry.public())
        head = Head(entry.seq, entry.digest)
    return {"genesis": genesis, "entries": entries, "head": {"seq": head.seq, "digest": head.digest}}


def test_totals_without_end(exported: dict[str, Any]) -> None:
    """Denominators that share no factor multiply: the total would have a million digits."""
    first = 10**4000
    document = chained(exported["genesis"], [Fraction(1, first + k) for k in range(1, 200, 2)])
    with pytest.raises(LedgerCorrupt, match=r"entry [2-9] .*total"):
        verify_export(document)


def test_a_value_shown_is_the_value_signed(exported: dict[str, Any]) -> None:
    """``value`` is for people, ``value_hex`` is what the hash covers: they must agree."""
    document = chained(exported["genesis"], [Fraction(1, 9)], value=0.25)
    assert verify_export(document).spent == Fraction(1, 9)
    document["entries"][0]["value"] = 0.75
    with pytest.raises(LedgerCorrupt, match=r"entry 1 .*value"):
        verify_export(document)


def test_what_a_ledger_writes_is_read(exported: dict[str, Any]) -> None:
    """The longest shares that a ledger makes (6,200 bits), and every kind of double."""
    for value in (0.0, -0.0, 5e-324, -1.7976931348623157e308, 1 / 3, 2.0**-1022):
        document = chained(exported["genesis"], [Fraction(1, 2**6200 - 1), Fraction(0)], value=value)
        assert verify_export(json.loads(json.dumps(document))).spent == Fraction(1, 2**6200 - 1)


def test_a_number_is_what_was_written_or_refused() -> None:
    for share in (Fraction(0), Fraction(1), Fraction(1, 12), Fraction(1, 2**6200 - 1)):
        assert read_share(str(share)) == share
    for value in (0.0, -0.0, 5e-324, 1.7976931348623157e308, -1 / 3):
        assert read_double(value.hex()).hex() == value.hex()
    assert read_count(2**63 - 1) == 2**63 - 1
    for hostile in HOSTILE:
        for read in (read_share, read_double, read_count):
            with pytest.raises(ValueError, match=r"^.{10,60}$"):
                read(hostile)
