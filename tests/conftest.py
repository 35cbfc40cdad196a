"""Fixtures for every test."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parents[1]
_NUMBER = count()

settings.register_profile("quiltdp", deadline=None)  # a busy machine is not a bug
settings.load_profile("quiltdp")


@dataclass(frozen=True)
class CliResult:
    """What a command did."""

    code: int
    out: str
    err: str


@pytest.fixture
def quick_path() -> Iterator[Path]:
    """Return a folder whose files are synced at once where the system has such: ledgers sync all the time."""
    memory = Path("/dev/shm")
    where = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as folder:
        yield Path(folder)


@pytest.fixture
def cli(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., CliResult]:
    """Run the command line in this process, in the repository root: ``cli("info", "models/asia.bif")``."""
    from quiltdp.cli import main

    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / f"state-{next(_NUMBER)}"))

    def run(*arguments: object) -> CliResult:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main([str(a) for a in arguments])
        caught = capsys.readouterr()
        return CliResult(int(stop.value.code or 0), caught.out, caught.err)

    return run
