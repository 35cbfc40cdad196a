from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import os
import pickle
import shutil
import sqlite3
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import pytest
from ledger_fakes import PRINT, edit, filled, terms

from quiltdp.accountant.ledger import Entry, Ledger, Request, Terms, verify_export
from quiltdp.accountant.ledger.entries import canonical, link
from quiltdp.errors import BudgetSpent, InvalidArgument, LedgerCorrupt, Refused
from quiltdp.mechanisms import Gaussian, GaussianMechanism, Laplace, LaplaceMechanism, Thresholdout


@pytest.fixture
def path(quick_path: Path) -> Path:
    return quick_path / "study.db"


# -- spending --------------------------------------------------------------------------------


def test_spends_add_exactly(path: Path) -> None:
    ledger = Ledger.create(path, terms(dp_epsilon=0.7))
    ledger.charge(0.1, count=2)
    ledger.charge(0.1)
    assert ledger.head.spent == 3 * Fraction(0.1) / Fraction(0.7)
    listed = Ledger.create(path.with_name("b.db"), terms(dp_epsilon=0.7))
    for _ in range(3):
        listed.charge(0.1)
    assert listed.head.spent == ledger.head.spent
    # three doubles 0.1 are more than the double 0.3, and the ledger knows
    with pytest.raises(BudgetSpent):
        Ledger.create(path.with_name("c.db"), terms(dp_epsilon=0.3)).charge(0.1, count=3)


def test_a_budget_split_over_releases_is_not_lost_to_rounding(path: Path) -> None:
    calibration = terms(dp_epsilon=0.3)
    ledger = Ledger.create(path, calibration)
    ledger.charge_mechanism(Laplace(1.0), 7 * calibration.sigma, count=7)
    assert 1 - Fraction(1, 10**15) < ledger.head.spent <= 1


@pytest.mark.parametrize("bad", [-0.1, math.nan, math.inf, -math.inf, "0.1", None, True])
def test_bad_spends_are_refused(path: Path, bad: object) -> None:
    ledger = Ledger.create(path, terms())
    with pytest.raises(InvalidArgument):
        ledger.charge(bad)
    assert ledger.head.seq == 0


@pytest.mark.parametrize("bad", [0, -1, 1.5, True])
def test_bad_counts_are_refused(path: Path, bad: object) -> None:
    ledger = Ledger.create(path, terms())
    with pytest.raises(InvalidArgument, match="count"):
        ledger.charge(0.1, count=bad)  # type: ignore[arg-type]


def test_an_oversized_spend_is_refused_and_costs_nothing(path: Path) -> None:
    ledger = Ledger.create(path, terms())
    ledger.charge(0.75)
    with pytest.raises(BudgetSpent, match=r"0\.25 is left"):
        ledger.charge(math.nextafter(0.25, 1.0))
    assert ledger.head.spent == Fraction(3, 4)
    ledger.charge(0.25)
    with pytest.raises(BudgetSpent):
        ledger.charge(5e-324)


def test_unequal_records_pay_the_largest_share(path: Path) -> None:
    spec = Laplace({"a": 1.0, "b": 0.5, "c": 0.0})
    ledger = Ledger.create(path, Terms(spec, 2.0, 1.0, 0.5, 0.0, "informed", "test", PRINT))
    ledger.charge({"a": 0.1, "b": 0.2, "c": 0.0})
    assert ledger.head.spent == Fraction(0.2) / Fraction(0.25)
    with pytest.raises(InvalidArgument, match="'c'"):
        ledger.charge({"a": 0.0, "b": 0.0, "c": 0.1})
    reading = ledger.odometer()
    assert isinstance(reading.spent_dp_epsilon, dict)
    assert reading.spent_dp_epsilon["b"] == 0.2
    assert reading.spent_dp_epsilon["c"] == 0.0


def test_mechanisms_charge_before_they_draw(path: Path) -> None:
    class Witness:
        secure = True

        def laplace(self, values: list[int], scale: float) -> list[int]:
            assert not values or Ledger.open(path).head.seq == 1  # no values: only built
            return values

    ledger = Ledger.create(path, terms())
    LaplaceMechanism(Laplace(1.0), scale=4.0, noise=Witness()).release(1.0, ledger=ledger)  # type: ignore[arg-type]
    assert ledger.head.spent == Fraction(1, 4)
    with pytest.raises(BudgetSpent):
        LaplaceMechanism(Laplace(1.0), scale=1.0).release(1.0, ledger=ledger)


def test_gaussian_squares_add(path: Path) -> None:
    spec = Gaussian(1.0, 1e-6)
    ledger = Ledger.create(path, Terms(spec, 6.0, 1.0, None, 1e-6, "informed", "test", PRINT))
    mechanism = GaussianMechanism(spec, scale=12.0)
    for _ in range(4):
        mechanism.release(0.0, ledger=ledger)
    with pytest.raises(BudgetSpent):
        mechanism.release(0.0, ledger=ledger)
    with pytest.raises(InvalidArgument):
        ledger.charge(0.1)
    with pytest.raises(InvalidArgument):
        Ledger.create(path.with_name("b.db"), terms()).charge_mechanism(spec, 3.0)
    assert ledger.odometer().spent_dp_epsilon is None


def test_a_key_is_charged_once(path: Path) -> None:
    ledger = Ledger.create(path, terms())
    first = ledger.charge(0.5, key="monday")
    again = Ledger.open(path).charge(0.5, key="monday")
    assert again == first
    assert (first.repeated, again.repeated) == (False, True)
    assert ledger.head.spent == Fraction(1, 2)
    with pytest.raises(Refused, match="monday"):
        ledger.charge(0.25, key="monday")
    with pytest.raises(InvalidArgument):
        ledger.charge(0.25, key="")


def test_neither_keys_nor_requests_are_stored(path: Path) -> None:
    ledger = Ledger.create(path, terms())
    ledger.charge(0.5, key="patient 4711 is positive")
    assert b"4711" not in path.read_bytes()
    # a plain hash of a short text could be guessed; the stored one is keyed by a secret salt
    for guess in ("patient 4711 is positive", "key\0patient 4711 is positive"):
        assert hashlib.sha256(guess.encode()).hexdigest() not in json.dumps(ledger.export())


# -- belonging -------------------------------------------------------------------------------


def test_a_ledger_belongs_to_one_calibration_and_one_model(path: Path) -> None:
    filled(path)
    Ledger.open(path, calibration=terms())
    with pytest.raises(LedgerCorrupt, match="dp_epsilon"):
        Ledger.open(path, calibration=terms(dp_epsilon=2.0))
    with pytest.raises(LedgerCorrupt, match="fingerprint"):
        Ledger.open(path, calibration=terms(fingerprint="b" * 64))
    with pytest.raises(LedgerCorrupt, match="settings"):
        Ledger.open(path, settings={"kind": "other"})


def test_a_calibration_that_undersells_its_noise_is_refused(path: Path) -> None:
    with pytest.raises(InvalidArgument, match="costs dp_epsilon"):
        Ledger.create(path, Terms(Laplace(1.0), 0.5, 1.0, 1.0, 0.0, "informed", "test", PRINT))


def test_a_ledger_is_never_overwritten(path: Path) -> None:
    filled(path)
    with pytest.raises(FileExistsError):
        Ledger.create(path, terms())
    assert Ledger.open(path).head.seq == 4
    assert sorted(p.name for p in path.parent.iterdir()) == ["study.db", "study.db-lock"]


def test_the_file_is_private_to_its_owner(path: Path) -> None:
    filled(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


# -- integrity -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET share = '0' WHERE seq = 2",
        "UPDATE entries SET label = 'nothing happened' WHERE seq = 4",
        "UPDATE entries SET value = '0x1.0p-1' WHERE seq = 1",
        "UPDATE entries SET share = '-1/8' WHERE seq = 2",
        "UPDATE entries SET share = '1/0' WHERE seq = 2",
        "UPDATE entries SET kind = 'gift' WHERE seq = 2",
        "DELETE FROM entries WHERE seq = 2",
        "DELETE FROM entries WHERE seq = 4",
        "DELETE FROM entries",
        "UPDATE head SET document = replace(document, '1/2', '1/4')",
        "UPDATE head SET document = replace(document, '\"seq\":4', '\"seq\":3')",
        "UPDATE head SET document = '{}'",
        "DELETE FROM head",
        "DELETE FROM genesis",
        "UPDATE genesis SET document = replace(document, 'informed', 'prior')",
        "UPDATE genesis SET digest = 'x'",
        "DELETE FROM secret",
        "UPDATE secret SET salt = x'00'",
        "DROP TABLE entries",
        "INSERT INTO entries SELECT 5, time, kind, share, count, answers, value, key, request, label,"
        " commitment, digest FROM entries WHERE seq = 4",
    ],
)
def test_an_edited_file_is_refused(path: Path, statement: str) -> None:
    ledger = filled(path)
    edit(path, statement, tidy="DROP TABLE" not in statement)
    with pytest.raises(LedgerCorrupt):
        Ledger.open(path)
    with pytest.raises(LedgerCorrupt):
        ledger.verify()


def forge_the_last(path: Path, entries: list[Entry]) -> None:
    """Make the last of four charges free and repair every hash, as anybody who can write the file can."""
    forged = list(entries[-1].fields())
    forged[3] = "0".ljust(len(forged[3]))
    forged[-1] = link(entries[-2].digest, tuple(forged[:-1]))
    edit(
        path,
        f"UPDATE entries SET share = '{forged[3]}', digest = '{forged[-1]}' WHERE seq = 4",
        f"UPDATE head SET document = replace(replace(document, '{entries[-1].digest}', '{forged[-1]}'),"
        " '1/2', '3/8')",
    )


def test_a_careful_edit_of_the_tail_is_noticed_by_those_who_saw_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rewriting the last entry, its hash and the head beats the chain alone, not a running process."""
    ledger = filled(path)
    entries = ledger.entries()
    forge_the_last(path, entries)
    with pytest.raises(LedgerCorrupt, match="has seen entry 4"):
        Ledger.open(path)
    monkeypatch.setattr("quiltdp.accountant.ledger.anchor._SEEN", {})
    assert Ledger.open(path).head.spent == Fraction(3, 8)  # another process cannot know
    with pytest.raises(LedgerCorrupt, match="while in use"):
        ledger.charge(0.1)
    with pytest.raises(LedgerCorrupt):
        ledger.verify()


def test_an_anchor_notices_a_careful_forger(path: Path) -> None:
    anchor = path.with_name("anchor.json")
    ledger = Ledger.create(path, terms(), anchor=anchor)
    for k in range(4):
        ledger.charge(0.125, label=f"release {k}")
    forge_the_last(path, ledger.entries())
    with pytest.raises(LedgerCorrupt, match="anchor remembers"):
        Ledger.open(path, anchor=anchor)


def test_two_copies_without_an_anchor_are_two_budgets(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the threat model says about copies: no file can know of its twin, an anchor does."""
    for anchor in (None, path.with_name("anchor.json")):
        place, twin = path.with_name(f"{anchor is None}.db"), path.with_name(f"twin-{anchor is None}.db")
        Ledger.create(place, terms(), anchor=anchor)
        shutil.copyfile(place, twin)
        Ledger.open(place, anchor=anchor).charge(0.75)
        monkeypatch.setattr("quiltdp.accountant.ledger.anchor._SEEN", {})  # as in another process
        if anchor is None:
            Ledger.open(twin).charge(0.75)
        else:
            with pytest.raises(LedgerCorrupt, match="older copy"):
                Ledger.open(twin, anchor=anchor)


def test_append_only_triggers_stop_accidents(path: Path) -> None:
    filled(path)
    with sqlite3.connect(path) as connection:
        for statement in ("DELETE FROM entries", "UPDATE entries SET share = '0'"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                connection.execute(statement)
    connection.close()


@pytest.mark.parametrize("keep", [0, 1, 100, 4096, 8192])
def test_a_truncated_file_is_refused(path: Path, keep: int) -> None:
    filled(path)
    os.truncate(path, keep)
    with pytest.raises(LedgerCorrupt):
        Ledger.open(path)
    with pytest.raises(LedgerCorrupt):
        Ledger.open_or_create(path, terms())


def test_flipped_bytes_are_noticed_or_harmless(path: Path) -> None:
    ledger = filled(path)
    before, expected = path.read_bytes(), ledger.export()
    refused = 0
    for position in range(0, len(before), 97):
        damaged = bytearray(before)
        damaged[position] ^= 0x15
        path.write_bytes(bytes(damaged))
        try:
            assert Ledger.open(path).export() == expected  # unused space, or SQLite's own header counters
        except LedgerCorrupt:
            refused += 1
    assert refused > 5


@pytest.mark.parametrize("content", [b"hello", b"x" * 5000, b"SQLite format 3\0" + b"\0" * 4080])
def test_another_file_is_not_a_ledger(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(LedgerCorrupt):
        Ledger.open(path)


def test_another_database_is_not_a_ledger(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    with pytest.raises(LedgerCorrupt, match="not a quiltdp ledger"):
        Ledger.open(path)


def test_a_missing_ledger(path: Path) -> None:
    with pytest.raises(InvalidArgument, match="no ledger here"):
        Ledger.open(path)
    ledger = filled(path)
    path.unlink()
    with pytest.raises(LedgerCorrupt, match="gone"):
        ledger.charge(0.1)


def test_an_older_copy_is_noticed_by_a_running_process(path: Path) -> None:
    ledger = filled(path, 2)
    shutil.copy(path, path.with_name("old.db"))
    ledger.charge(0.1)
    shutil.copyfile(path.with_name("old.db"), path)
    with pytest.raises(LedgerCorrupt):
        ledger.charge(0.1)


def test_a_file_moved_into_place_is_noticed(path: Path) -> None:
    ledger = filled(path, 2)
    shutil.copy(path, path.with_name("old.db"))
    path.with_name("old.db").replace(path)
    with pytest.raises(LedgerCorrupt, match="exchanged"):
        ledger.charge(0.1)


def test_an_anchor_notices_an_older_copy(path: Path) -> None:
    anchor = path.with_name("anchor.json")
    ledger = Ledger.create(path, terms(), anchor=anchor)
    ledger.charge(0.1)
    shutil.copy(path, path.with_name("old.db"))
    ledger.charge(0.1)
    ledger.close()
    Ledger.open(path, anchor=anchor).charge(0.1)
    shutil.copyfile(path.with_name("old.db"), path)
    with pytest.raises(LedgerCorrupt, match="older copy"):
        Ledger.open(path, anchor=anchor)
    path.unlink()
    with pytest.raises(LedgerCorrupt, match="restore"):
        Ledger.open_or_create(path, terms(), anchor=anchor)


def test_an_anchor_of_another_ledger_or_none_is_refused(path: Path) -> None:
    anchor = path.with_name("anchor.json")
    Ledger.create(path, terms(), anchor=anchor)
    other = path.with_name("other.db")
    Ledger.create(other, terms())
    with pytest.raises(LedgerCorrupt, match="another ledger"):
        Ledger.open(other, anchor=anchor)
    with pytest.raises(LedgerCorrupt, match="missing"):
        Ledger.open(path, anchor=path.with_name("none.json"))
    anchor.write_text("{")
    with pytest.raises(LedgerCorrupt, match="cannot be read"):
        Ledger.open(path, anchor=anchor)


def test_an_export_can_be_verified_by_anybody(path: Path) -> None:
    document = json.loads(json.dumps(filled(path).export()))
    assert verify_export(document).spent == Fraction(1, 2)
    document["entries"][1]["share"] = "0"
    with pytest.raises(LedgerCorrupt, match="entry 2"):
        verify_export(document)
    document = json.loads(json.dumps(Ledger.open(path).export()))
    document["entries"].pop()
    with pytest.raises(LedgerCorrupt, match="missing"):
        verify_export(document)
    with pytest.raises(LedgerCorrupt):
        verify_export({})


# -- processes -------------------------------------------------------------------------------


def spend(path: Path, count: int) -> int:
    ledger = Ledger.open(path)
    done = 0
    for _ in range(count):
        try:
            ledger.charge(0.01)
            done += 1
        except BudgetSpent:
            break
    return done


def test_many_processes_share_one_budget(path: Path) -> None:
    Ledger.create(path, terms(dp_epsilon=0.4))
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        done = sum(pool.starmap(spend, [(path, 15)] * 4))
    ledger = Ledger.open(path)
    assert done == ledger.verify().seq == math.floor(Fraction(0.4) / Fraction(0.01))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_opens_its_own_connection(path: Path) -> None:
    ledger, memory = filled(path, 1), Ledger.create(":memory:", terms())
    child = os.fork()
    if child == 0:
        try:
            memory.charge(0.1)
        except Refused:
            ledger.charge(0.1)
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    ledger.charge(0.1)
    assert ledger.verify().seq == 3


def test_a_pickled_ledger_is_the_same_file(path: Path) -> None:
    ledger = filled(path, 1)
    pickle.loads(pickle.dumps(ledger)).charge(0.1)
    assert ledger.head.seq == 2
    with pytest.raises(InvalidArgument, match="in-memory"):
        pickle.dumps(Ledger.create(":memory:", terms()))


def test_a_failed_visit_leaves_nothing(path: Path) -> None:
    ledger = filled(path, 1)

    def interrupted() -> None:
        with ledger.visit():
            raise RuntimeError

    with pytest.raises(RuntimeError):
        interrupted()
    assert ledger.verify().seq == 1
    ledger.charge(0.1)


def test_a_ledger_held_by_another_is_refused_in_time(path: Path) -> None:
    filled(path, 1)
    waiting = Ledger.open(path, timeout=0.1)
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with Ledger.open(path).visit():
            held.set()
            release.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(20)
    with pytest.raises(Refused, match="held the ledger"):
        waiting.charge(0.1)
    release.set()
    thread.join()
    waiting.charge(0.1)
    with waiting.visit(), pytest.raises(Refused, match="in the middle of"):
        Ledger.open(path).charge(0.1)


def test_durability_settings(path: Path) -> None:
    ledger = filled(path)
    connection = ledger.store._own()
    assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "delete"
    assert connection.execute("PRAGMA synchronous").fetchone()[0] == 3  # EXTRA
    assert connection.execute("PRAGMA secure_delete").fetchone()[0] == 1


def test_labels_and_shares_are_checked(path: Path) -> None:
    ledger = Ledger.create(path, terms())
    for bad in ("x" * 501, "\udcff", "a\0b", 7):
        with pytest.raises(InvalidArgument, match="label"):
            ledger.charge(0.1, label=bad)  # type: ignore[arg-type]
    with ledger.visit() as visit, pytest.raises(InvalidArgument, match="negative"):
        visit.charge(Fraction(-1), Request("x"))
    assert ledger.head.seq == 0


@pytest.mark.parametrize(("version", "part"), [(1, "older version"), (3, "newer"), (0, "older")])
def test_another_format_is_refused_by_name(path: Path, version: int, part: str) -> None:
    filled(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(LedgerCorrupt, match=part):
        Ledger.open(path)
    assert path.read_bytes() == before


def test_a_genesis_of_another_format_is_refused(path: Path) -> None:
    filled(path)
    with sqlite3.connect(path) as connection:
        document = json.loads(connection.execute("SELECT document FROM genesis").fetchone()[0])
        document["format"] = 99
        digest = hashlib.sha256(b"quiltdp ledger genesis\0" + canonical(document)).hexdigest()
        connection.execute(
            "UPDATE genesis SET document = ?, digest = ?", (canonical(document).decode(), digest)
        )
    connection.close()
    with pytest.raises(LedgerCorrupt, match="99"):
        Ledger.open(path)


def test_thresholdout_budget_is_counted_in_answers(path: Path) -> None:
    spec = Thresholdout(4, 1.0)
    ledger = Ledger.create(path, Terms(spec, 9.0, 1.0, 1.0, 0.0, "informed", "test", PRINT))
    assert ledger.odometer().remaining == 4


def test_threads_share_one_ledger(path: Path) -> None:
    ledger = Ledger.create(path, terms())
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: ledger.charge(1 / 64), range(48)))
    assert ledger.verify().spent == Fraction(48, 64)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_while_a_thread_holds_the_ledger(path: Path) -> None:
    ledger = filled(path, 1)
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with ledger.visit():
            held.set()
            release.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(20)
    child = os.fork()
    if child == 0:  # SQLite's table of locks was copied in a state that is not this process's own
        for attempt in (lambda: ledger.charge(0.1), lambda: Ledger.open(path)):
            with suppress(Refused):
                attempt()
                os._exit(1)
        os._exit(0)
    release.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
    ledger.charge(0.1)
    assert ledger.verify().seq == 2


def test_without_hard_links_nothing_is_overwritten(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    filled(path, 1)
    with pytest.raises(FileExistsError):
        Ledger.create(path, terms())
    assert Ledger.open(path).head.seq == 1
    assert sorted(p.name for p in path.parent.iterdir()) == ["study.db", "study.db-lock"]


def fill(ledger: Ledger) -> None:
    for _ in range(50):
        ledger.charge(1 / 1024, label="x" * 500)


def test_a_full_disk_is_not_corruption(path: Path) -> None:
    ledger = filled(path, 1)
    connection = ledger.store._own()
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(Refused, match="full") as caught:
        fill(ledger)
    assert not isinstance(caught.value, LedgerCorrupt)
    connection.execute("PRAGMA max_page_count = 100000")
    before = ledger.verify().seq
    ledger.charge(0.1)
    assert Ledger.open(path).head.seq == before + 1
