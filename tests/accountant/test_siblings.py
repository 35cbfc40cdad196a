"""A second ledger for the same data is found beside the first, by its content and not by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

import quiltdp as qd
from quiltdp.accountant.ledger.sqlite import other_account


@pytest.fixture(scope="module")
def calibration() -> qd.Calibration:
    model = qd.markov_chain([[0.8, 0.2], [0.3, 0.7]], length=4)
    return qd.calibrate(model, 1.0, qd.Laplace(sensitivity=1.0))


def ledger(path: Path, calibration: qd.Calibration, identity: str | None) -> Path:
    made = qd.Ledger.create(path, calibration)
    if identity is not None:
        made.bind_data(identity)
    return path


def test_the_same_data_is_found_and_other_data_is_not(tmp_path: Path, calibration: qd.Calibration) -> None:
    first = ledger(tmp_path / "first.db", calibration, "data one")
    new = tmp_path / "new.db"
    assert other_account(new, "data one") == first
    assert other_account(new, "data two") is None
    assert other_account(":memory:", "data one") is None
    assert other_account(first, "data one") is None  # itself
    unbound = ledger(tmp_path / "unbound.db", calibration, None)
    assert other_account(unbound, "data one") == first


def test_other_folders_are_searched_when_they_are_named(tmp_path: Path, calibration: qd.Calibration) -> None:
    away = tmp_path / "away"
    away.mkdir()
    first = ledger(away / "first.db", calibration, "data")
    assert other_account(tmp_path / "new.db", "data") is None
    assert other_account(tmp_path / "new.db", "data", [away, tmp_path / "nowhere"]) == first


def test_files_that_are_no_ledgers_are_passed_over(tmp_path: Path, calibration: qd.Calibration) -> None:
    first = ledger(tmp_path / "z.db", calibration, "data")
    (tmp_path / "a.db").write_bytes(b"\0" * 4096)
    (tmp_path / "b.csv").write_text("x")
    whole = first.read_bytes()
    (tmp_path / "c.db").write_bytes(whole + b"\0")  # not whole pages
    assert other_account(tmp_path / "new.db", "data") == first
