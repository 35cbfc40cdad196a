"""A fault at every single call that changes a file: nothing told is unbooked, nothing read is uncharged.

The calls are counted by a small C library (``fault_shim.c``) loaded before SQLite.  At the chosen one the
process is killed, killed in the middle of a write, or the call fails for want of space or by an I/O error.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from fault_server import BUDGET, holdout

from quiltdp import Ledger
from quiltdp.accountant.ledger.anchor import _SEEN

HERE = Path(__file__).parent
MODES = {"killed before": 1, "killed in a write": 2, "no space": 3, "input/output error": 4}
CALLS = {False: 150, True: 170}  # an upper bound on the calls of one question, without and with an anchor

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs a C compiler and LD_PRELOAD"
)


class Faults:
    """The forking server, and the files that every question starts from."""

    def __init__(self, folder: Path) -> None:
        library = folder / "fault_shim.so"
        source = HERE / "fault_shim.c"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        path = os.pathsep.join([str(HERE.parents[1] / "src"), str(HERE)])
        environment = {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "fault_server.py")],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.starts: dict[bool, Fraction] = {}
        for anchored in (False, True):
            anchor = str(folder / "first-anchor.json") if anchored else None
            made = holdout(folder / f"first-{anchored}.db", anchor)
            made.ask(lambda t: t[:, 0] * 0.0)
            self.starts[anchored] = made.ledger.head.spent
            made.ledger.close()

    def ask(self, mode: int, call: int, gap: float, anchored: bool) -> tuple[list[str], Path, str | None]:
        """Ask one question with a fault, from the same start every time."""
        path, anchor = self.folder / "study.db", str(self.folder / "anchor.json") if anchored else None
        for end in ("-journal", "-lock"):
            Path(f"{path}{end}").unlink(missing_ok=True)
        copies = [(str(self.folder / f"first-{anchored}.db"), str(path))]
        if anchor is not None:
            copies.append((str(self.folder / "first-anchor.json"), anchor))
        order = {
            "path": str(path),
            "anchor": anchor,
            "mode": mode,
            "call": call,
            "gap": gap,
            "copies": copies,
        }
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline()), path, anchor


@pytest.fixture(scope="module")
def faults() -> Iterator[Faults]:
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as folder:
        made = Faults(Path(folder))
        yield made
        made.process.communicate()


def check(faults: Faults, said: list[str], path: Path, anchor: str | None) -> dict[str, Any]:
    """Check one ended question against its ledger."""
    assert not any(line.startswith("broke") for line in said), said
    _SEEN.clear()  # every fault begins with the same copy
    ledger = Ledger.open(path, anchor=anchor)
    head = ledger.verify()
    start = faults.starts[anchor is not None]
    told = next((line.split() for line in said if line.startswith("told")), None)
    booked = [e for e in ledger.entries() if e.label == "the one"]
    if told is not None:  # what was told is booked, to the last bit
        assert [(e.kind, e.value.hex()) for e in booked if e.value is not None] == [(told[1], told[2])]
    if "read" in said and not booked:  # what was read and not booked is charged as the worst case
        assert head.spent == start + Fraction(5, 9 * BUDGET)
        assert head.answers == 1
    if not booked and "read" not in said:
        assert head.spent in (start, start + Fraction(5, 9 * BUDGET))
    ledger.close()
    again = holdout(path, anchor)  # and the study goes on
    assert again.ask(lambda t: t[:, 0] * 0.0).source == "train"
    again.ledger.close()
    return {
        "told": bool(told),
        "read": "read" in said,
        "refused": [line for line in said if line.startswith("refused")],
        "calls": [int(line.split()[1]) for line in said if line.startswith("calls")],
    }


def sweep(faults: Faults, name: str, anchored: bool, step: int) -> dict[str, int]:
    counts = {"calls": 0, "told": 0, "charged": 0, "uncharged": 0}
    for call in range(1 + MODES[name] % step, CALLS[anchored], step):
        found = [check(faults, *faults.ask(MODES[name], call, gap, anchored)) for gap in (0.0, 0.9)]
        low, high = found
        # whatever happens at this call, it happens alike for an answer from training and from the holdout
        assert {k: low[k] for k in ("told", "read", "refused")} == {
            k: high[k] for k in ("told", "read", "refused")
        }
        counts["calls"] += 2
        counts["told"] += 2 * low["told"]
        counts["charged" if low["read"] else "uncharged"] += 0 if low["told"] else 2
        if low["told"] and low["calls"] and low["calls"][0] < call:
            break  # beyond the last call
    else:
        raise AssertionError("more calls than expected: raise CALLS")
    return counts


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("anchored", [False, True], ids=["alone", "anchored"])
def test_a_fault_at_some_calls(faults: Faults, name: str, anchored: bool) -> None:
    counts = sweep(faults, name, anchored, 11)
    assert counts["calls"] > 6


@pytest.mark.slow
@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("anchored", [False, True], ids=["alone", "anchored"])
def test_a_fault_at_every_call(
    faults: Faults, name: str, anchored: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = sweep(faults, name, anchored, 1)
    with capsys.disabled():
        print(f"\n{name}, {'anchored' if anchored else 'alone'}: {counts}")
    assert counts["charged"] > 0
    assert counts["uncharged"] > 0
