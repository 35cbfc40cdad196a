"""Faults of the surroundings: a read-only disk, a clock set back, a closed folder, a killed export.

Faults in the middle of an answer are in ``tests/mechanisms/test_faults.py``.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from ledger_fakes import filled, terms

from quiltdp.accountant.ledger import Ledger, visit
from quiltdp.accountant.ledger.anchor import _SEEN
from quiltdp.errors import LedgerCorrupt, Refused

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture
def path(quick_path: Path) -> Path:
    return quick_path / "study.db"


def as_nobody(work: Callable[[], str]) -> str:
    """Return what ``work`` says in a child process that has no rights."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            os.write(write, work().encode())
        except BaseException as error:
            os.write(write, f"broke {type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as pipe:
        return pipe.read()


@needs_fork
def test_a_read_only_ledger_can_be_read_and_not_charged(path: Path) -> None:
    filled(path, 2).close()
    path.chmod(0o444)
    path.parent.chmod(0o555)

    def work() -> str:
        ledger = Ledger.open(path)
        try:
            ledger.charge(0.1)
        except Refused as error:
            return f"{ledger.verify().seq} {type(error).__name__} {error}"
        return "charged"

    try:
        said = as_nobody(work)
    finally:
        path.parent.chmod(0o755)
    assert said.startswith("2 Refused")
    assert "cannot be used now" in said
    assert Ledger.open(path).head.seq == 2


@needs_fork
def test_a_folder_that_cannot_be_searched_is_one_line(path: Path) -> None:
    filled(path, 1).close()
    path.parent.chmod(0o600 if os.getuid() == 0 else 0)

    def work() -> str:
        try:
            Ledger.open(path)
        except Refused as error:
            return f"refused {error}"
        return "opened"

    try:
        said = as_nobody(work)
    finally:
        path.parent.chmod(0o755)
    assert said.startswith("refused")
    assert "\n" not in said


def test_a_clock_set_back_changes_no_order(path: Path, monkeypatch: Any) -> None:
    ledger = Ledger.create(path, terms())
    for now in ("2030-01-01T00:00:00Z", "1999-01-01T00:00:00Z", "2031-01-01T00:00:00Z"):
        monkeypatch.setattr(visit, "now", lambda now=now: now)
        ledger.charge(0.125)
    times = [e.time for e in ledger.entries()]
    assert times == ["2030-01-01T00:00:00Z", "2030-01-01T00:00:00Z", "2031-01-01T00:00:00Z"]
    assert Ledger.open(path).verify().spent == Fraction(3, 8)


@pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL and a slow pipe")
def test_an_interrupted_export_leaves_what_was_there(path: Path) -> None:
    filled(path, 4).close()
    target = path.with_name("study.json")
    target.write_text("the export of last week")
    script = (
        "import os, signal, sys\n"
        "def killed(draft):\n"
        "    os.ftruncate(draft, os.fstat(draft).st_size // 2)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "os.fsync = killed\n"
        "from quiltdp.cli import main\n"
        "main(['ledger', 'export', sys.argv[1], '-o', sys.argv[2]])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    done = subprocess.run([sys.executable, "-c", script, path, target], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert target.read_text() == "the export of last week"
    assert Ledger.open(path).verify().seq == 4


def test_a_deleted_journal_is_noticed_or_harmless(path: Path) -> None:
    """Pages half written by a killed process, and the journal that would undo them deleted."""
    ledger = filled(path, 3)
    ledger.close()
    before = path.read_bytes()
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("PRAGMA cache_size = 1")
        ledger = Ledger.open(path)
        ledger.charge(0.125)
        ledger.close()
    other.close()
    after = path.read_bytes()
    pages = [k for k in range(len(after) // 4096) if after[k * 4096 :][:4096] != before[k * 4096 :][:4096]]
    assert len(pages) >= 3
    for chosen in range(1, 2 ** len(pages) - 1):  # every half-written state
        mixed = bytearray(before.ljust(len(after), b"\0"))
        for bit, k in enumerate(pages):
            if chosen >> bit & 1:
                mixed[k * 4096 : (k + 1) * 4096] = after[k * 4096 : (k + 1) * 4096]
        path.write_bytes(bytes(mixed))
        _SEEN.clear()  # as another process finds it
        try:
            found = Ledger.open(path).verify()
        except LedgerCorrupt:
            continue
        assert found.seq in (3, 4)
        assert found.spent == Fraction(found.seq, 8)


def test_an_anchor_that_is_behind_is_moved_and_one_ahead_is_refused(path: Path) -> None:
    anchor = path.with_name("anchor.json")
    ledger = Ledger.create(path, terms(), anchor=anchor)
    before = anchor.read_text()
    ledger.charge(0.125)
    anchor.write_text(before)
    assert Ledger.open(path, anchor=anchor).head.seq == 1
    assert json.loads(anchor.read_text())["seq"] == 1
    anchor.write_text(json.dumps({**json.loads(before), "seq": 2, "digest": "0" * 64}))
    with pytest.raises(LedgerCorrupt, match="older copy"):
        Ledger.open(path, anchor=anchor)
