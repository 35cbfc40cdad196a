"""Eight processes ask at once and are killed at random: nothing released is ever missing in the ledger."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import pytest
from holdout_fakes import terms

from quiltdp import Ledger
from quiltdp.mechanisms.holdout import checked_settings

HERE = Path(__file__).parent
PROCESSES = 8


def massacre(folder: Path, seconds: float, budget: int, pause: float) -> tuple[Path, list[Path], int]:
    """Run eight workers, kill a random one every ``pause`` seconds or so, and put another in its place."""
    ledger, rng, kills = folder / "study.db", random.Random(0), 0
    received = [folder / f"received-{k}.txt" for k in range(PROCESSES)]
    Ledger.create(
        ledger,
        terms(budget=budget, sensitivity=1.0, dp_epsilon=5e4),
        settings=checked_settings(0.2, 0.05, None),
    )
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1] / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(HERE / "kill_worker.py"), str(ledger), str(budget)]
    parent = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    workers: list[int] = []
    try:
        workers += [fork(parent, path) for path in received]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(pause * rng.uniform(0.5, 1.5))
            k = rng.randrange(PROCESSES)
            os.kill(workers[k], signal.SIGKILL)
            kills += 1
            workers[k] = fork(parent, received[k])
    finally:
        for worker in workers:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        parent.communicate()
    return ledger, received, kills


def fork(parent: subprocess.Popen[str], received: Path) -> int:
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write(f"{received}\n")
    return int(parent.stdout.readline())


def check(ledger_path: Path, received: list[Path], kills: int, budget: int) -> dict[str, int]:
    assert [path.read_text() for path in ledger_path.parent.glob("*.failed")] == []
    ledger = Ledger.open(ledger_path)
    head = ledger.verify()
    entries = ledger.entries()
    booked = {e.label: (e.kind, e.value.hex()) for e in entries if e.value is not None}
    kinds = Counter(e.kind for e in entries)
    got: Counter[str] = Counter()
    for path in filter(Path.exists, received):
        text = path.read_text()
        for line in text[: text.rfind("\n") + 1].splitlines():
            key, source, value = line.split()
            got[source] += 1
            if source != "spent":
                assert booked[key] == (source, value)  # the very answer, booked
    lost = head.lost + (0 if head.pending is None else head.pending.answers)
    assert got["holdout"] <= kinds["holdout"] == head.answers - lost <= budget
    assert got["train"] <= kinds["train"]
    assert kinds["reserve"] == kinds["holdout"] + kinds["train"] + lost  # killed in between: stays charged
    assert Fraction(head.answers, budget) <= head.spent <= 1
    ledger.head  # noqa: B018 - the ledger reopens and reads
    return {
        "processes": PROCESSES,
        "kills": kills,
        "entries": head.seq,
        "received from the holdout": got["holdout"],
        "charged from the holdout": kinds["holdout"],
        "received from training": got["train"],
        "charged from training": kinds["train"],
        "charged, never told": lost,
        "budget": budget,
        "answers ⊥": got["spent"],
    }


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
@pytest.mark.parametrize(
    ("seconds", "budget", "pause"),
    [
        pytest.param(6.0, 10_000, 0.2, id="short"),
        pytest.param(60.0, 1_000_000, 0.3, id="a minute", marks=pytest.mark.slow),
        pytest.param(30.0, 100, 0.3, id="budget spent on the way", marks=pytest.mark.slow),
    ],
)
def test_kills_never_lose_an_entry(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seconds: float, budget: int, pause: float
) -> None:
    counts = check(*massacre(tmp_path, seconds, budget, pause), budget)
    with capsys.disabled():
        print("\n" + ", ".join(f"{name}: {count}" for name, count in counts.items()))
    assert counts["kills"] >= seconds / 2
    assert counts["received from training"] > 0
