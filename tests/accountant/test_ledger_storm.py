"""Many threads of several processes at one ledger, opened anew for every request: nothing is lost."""

from __future__ import annotations

import multiprocessing
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest
from ledger_fakes import terms

from quiltdp.accountant.ledger import Ledger
from quiltdp.errors import BudgetSpent

THREADS, PROCESSES, EACH = 4, 2, 24
BUDGET = 128  # fewer than are asked for


def requests(path: str, name: str, each: int) -> list[str]:
    """Charge again and again, opening the ledger every time; return the labels of what was granted."""
    granted = []
    for k in range(each):
        label = f"{name}-{k}"
        try:
            Ledger.open(path).charge(1 / BUDGET, label=label)
            granted.append(label)
        except BudgetSpent:
            continue
    return granted


def storm(path: str, process: int, each: int, backup: bool) -> list[str]:
    """Run the threads of one process; one more copies the file all the time, as a backup would."""
    stop = threading.Event()

    def copy() -> None:
        while not stop.is_set():
            Path(path).read_bytes()  # opens and closes: the system drops this process's POSIX locks

    copier = threading.Thread(target=copy)
    if backup:
        copier.start()
    with ThreadPoolExecutor(THREADS) as pool:
        jobs = [pool.submit(requests, path, f"{process}.{k}", each) for k in range(THREADS)]
        granted = [label for job in jobs for label in job.result()]
    stop.set()
    if backup:
        copier.join()
    return granted


@pytest.mark.skipif(not hasattr(os, "fork"), reason="POSIX locks")
@pytest.mark.parametrize("backup", [False, True], ids=["alone", "while the file is copied"])
def test_every_answer_is_booked_and_none_is_over_budget(quick_path: Path, backup: bool) -> None:
    path = quick_path / "study.db"
    Ledger.create(path, terms())
    work = [(str(path), k, EACH, backup) for k in range(PROCESSES)]
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        granted = [label for found in pool.starmap(storm, work) for label in found]
    ledger = Ledger.open(path)
    booked = [e.label for e in ledger.entries()]
    assert sorted(granted) == sorted(map(str, booked))
    assert len(granted) == BUDGET
    assert ledger.verify().spent == Fraction(1)
