"""Two servers, four clients each, killed and cut off at random: told and lost is what was booked."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from server_fakes import new_member, new_study
from test_exactly_once import accounted, end_sessions

from quiltdp.server.asking import Study
from quiltdp.server.database import opened

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")


class Servers:
    """Two servers of one study, started again whenever they end before everything is answered."""

    def __init__(self, url: str, study: str, member: str, folder: Path, keys: list[str]) -> None:
        self._job = {"url": url, "study": study, "member": member, "threads": 4}
        self._folder, self._keys = folder, keys
        worker = Path(__file__).with_name("storm_worker.py")
        self._fork = subprocess.Popen(
            [sys.executable, worker], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.running: dict[int, int] = {}
        self.started = 0

    def lines(self) -> list[list[str]]:
        """Return what was received so far, in whole lines."""
        texts = [path.read_text() for path in self._folder.glob("*.told")]
        return [line.split() for text in texts for line in text.splitlines() if line]

    def waiting(self) -> list[str]:
        known = {line[0] for line in self.lines()}
        return [key for key in self._keys if key not in known]

    def start(self) -> None:
        """Start every server that is not there; both are asked about a third of the questions."""
        assert self._fork.stdin is not None
        assert self._fork.stdout is not None
        keys = self.waiting()
        for k in (0, 1):
            if keys and not self._alive(self.running.get(k, 0)):
                mine = [key for n, key in enumerate(keys) if n % 3 in (k, 2)]
                job = {**self._job, "keys": mine, "received": str(self._folder / f"{self.started}.told")}
                self._fork.stdin.write(json.dumps(job) + "\n")
                self._fork.stdin.flush()
                self.running[k] = int(self._fork.stdout.readline())
                self.started += 1

    @staticmethod
    def _alive(process: int) -> bool:
        return bool(process) and Path(f"/proc/{process}").exists()

    def kill(self, k: int) -> None:
        with suppress(ProcessLookupError, KeyError):
            os.kill(self.running[k], signal.SIGKILL)

    def stop(self) -> None:
        for k in (0, 1):
            self.kill(k)
        assert self._fork.stdin is not None
        self._fork.stdin.close()
        self._fork.wait(30)


def storm(url: str, folder: Path, questions: int, budget: int) -> tuple[int, int]:
    """Ask while servers are killed and sessions ended; return how often either was done."""
    engine, study, _ = new_study(url, budget)
    member = new_member(engine, study)
    Study(engine, study)  # the data are bound
    servers = Servers(url, study, member.id, folder, [f"{k}" for k in range(questions)])
    chance, kills, ended = random.Random(0), 0, 0
    end = time.monotonic() + 60 + 3 * questions  # of a machine that does much else
    try:
        while servers.waiting():
            assert time.monotonic() < end, "the storm does not end"
            servers.start()
            time.sleep(chance.uniform(0.3, 1.2))
            if chance.random() < 0.5:
                servers.kill(chance.randrange(2))
                kills += 1
            elif url.startswith("postgresql"):
                ended += end_sessions(engine)
    finally:
        servers.stop()
    engine.dispose()
    assert not [path.read_text() for path in folder.glob("*.failed")]
    values: dict[str, set[str]] = defaultdict(set)
    for key, source, *more in servers.lines():
        if source in ("train", "holdout"):
            values[key].add(f"{source} {more}")
    assert all(len(found) == 1 for found in values.values()), "one key has two answers"
    told = {key for key, found in values.items() if "holdout" in next(iter(found))}
    lost = {key for key, source, *_ in servers.lines() if source == "lost"}
    assert not lost & {*values}
    booked, settled, gone = accounted(Study(opened(url), study))
    assert booked == settled + gone <= budget
    assert settled == len(told)
    assert gone <= len(lost)
    return kills, ended


@needs_fork
def test_told_and_lost_is_what_was_booked(database: str, tmp_path: Path) -> None:
    storm(database, tmp_path, 200, 120)


@needs_fork
@pytest.mark.slow
def test_told_and_lost_is_what_was_booked_in_a_long_storm(database: str, tmp_path: Path) -> None:
    kills, ended = storm(database, tmp_path, 2000, 1300)
    assert kills + ended > 20


@needs_fork
def test_a_process_killed_at_any_statement_charges_once_at_most(database: str, tmp_path: Path) -> None:
    """SIGKILL before a statement of a question, at nine places over reserve and settle."""
    engine, study, _ = new_study(database, 40)
    member = new_member(engine, study)
    Study(engine, study)
    engine.dispose()
    worker, told = Path(__file__).with_name("kill_server_worker.py"), {}
    job: dict[str, Any] = {"url": database, "study": study, "member": member.id}
    job["places"] = [*range(18, 52, 4)]
    done = subprocess.run(
        [sys.executable, worker, json.dumps(job)], capture_output=True, text=True, check=True
    )
    for line in done.stdout.splitlines():
        key, value = line.split()
        told[key] = value
    assert len(told) < len(job["places"])
    booked, settled, gone = accounted(Study(opened(database), study))
    assert booked == settled + gone
    assert {*told.values()} <= {str(e.value) for e in Study(opened(database), study).ledger.entries()}
    assert gone > 0
