"""Many threads of several processes at one ledger, opened anew for every request: nothing is lost."""

from __future__ import annotations

import gc
import inspect
import io
import json
import multiprocessing
import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from ledger_fakes import terms

from quiltdp.accountant.ledger import Ledger, sqlite
from quiltdp.accountant.ledger.sqlite import SQLiteRows, SQLiteStore
from quiltdp.accountant.ledger.store import Rows, Store
from quiltdp.cli import main
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


def charged(path: str, key: str) -> tuple[int, bool]:
    """Return (entry, whether it was there before), as the command line tells it."""
    with redirect_stdout(io.StringIO()) as said, suppress(SystemExit):
        main(["ledger", "charge", path, "--dp-epsilon", "1e-6", "--key", key, "--json"])
    facts = json.loads(said.getvalue())
    return facts["entry"], facts["repeated"]


def same_keys(path: str, rounds: int, together: Any, told: Any) -> None:
    """Charge the keys of all rounds, each at the moment when the other processes do."""
    for k in range(rounds):
        together.wait()
        told.put((k, *charged(path, f"round {k}")))


@pytest.mark.parametrize("rounds", [50, pytest.param(1000, marks=pytest.mark.slow)])
def test_of_all_who_charge_one_key_exactly_one_may_release(quick_path: Path, rounds: int) -> None:
    path, processes = str(quick_path / "study.db"), 4
    Ledger.create(path, terms())
    context = multiprocessing.get_context("fork" if hasattr(os, "fork") else "spawn")
    together, told = context.Barrier(processes, timeout=60), context.Queue()
    workers = [
        context.Process(target=same_keys, args=(path, rounds, together, told), daemon=True)
        for _ in range(processes)
    ]
    for worker in workers:
        worker.start()
    answers = [told.get(timeout=60) for _ in range(processes * rounds)]
    for worker in workers:
        worker.join()
    assert len({(k, entry) for k, entry, _ in answers}) == rounds
    assert Counter(k for k, _, repeated in answers if not repeated) == Counter(range(rounds))
    assert Ledger.open(path).verify().seq == rounds


class _Connection:
    """A connection that does something while it is being closed, as another thread might."""

    def __init__(self, real: Any, meanwhile: Any) -> None:
        self._real, self._meanwhile = real, meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def close(self) -> None:
        self._meanwhile()
        self._real.close()


def test_a_dying_store_is_given_to_nobody(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last user of a file goes while another comes: the newcomer's connection stays open."""
    path = quick_path / "study.db"
    Ledger.create(path, terms()).close()
    connected, newcomers = SQLiteStore._connected, []

    def watched(self: SQLiteStore, where: str) -> Any:
        return _Connection(connected(self, where), lambda: newcomers.append(SQLiteStore.at(path)))

    with monkeypatch.context() as patched:
        patched.setattr(SQLiteStore, "_connected", watched)
        Ledger.open(path)  # and gone again
    assert len(newcomers) == 1
    assert Ledger(newcomers[0]).charge(0.5).share == Fraction(1, 2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_child_forked_in_the_middle_undoes_nothing_when_it_ends(quick_path: Path) -> None:
    """It has the parent's connection and journal open, and closes neither."""
    ledger = Ledger.create(quick_path / "study.db", terms())
    committed, tell = os.pipe()
    with ledger.store.held(1.0, writing=True), ledger.store.transaction(writing=True) as rows:
        rows.connection.execute("UPDATE head SET document = document || ' '")
        child = os.fork()
        if child == 0:  # as an interpreter that ends would, once the parent has committed
            os.read(committed, 1)
            del rows, ledger
            sqlite._CONNECTIONS.clear()
            gc.collect()
            os._exit(0)
    os.write(tell, b"!")
    assert os.waitpid(child, 0)[1] == 0
    for end in (committed, tell):
        os.close(end)
    with (
        ledger.store.held(1.0, writing=False),
        ledger.store.transaction(writing=False, afresh=True) as after,
    ):
        assert after.connection.execute("SELECT document FROM head").fetchone()[0].endswith("  ")
    assert ledger.charge(1.0).share == 1


def test_the_file_keeps_the_contract_of_a_store() -> None:
    """Whatever the ledger asks of a store is in the contract, and the file has it under the same names."""
    for contract, kept in ((Store, SQLiteStore), (Rows, SQLiteRows)):
        asked = {name: f for name, f in vars(contract).items() if inspect.isfunction(f) and name[0] != "_"}
        assert asked
        for name, f in asked.items():
            own = inspect.signature(getattr(kept, name)).parameters
            assert list(own) == list(inspect.signature(f).parameters), name
