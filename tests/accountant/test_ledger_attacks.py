"""Attempts to spend more than the budget, or to forget what was spent; each one worked once, or was tried."""

from __future__ import annotations

import copy
import dataclasses
import math
import os
import pickle
import shutil
import sqlite3
import stat
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ledger_fakes import PRINT, edit, filled, terms

import quiltdp as qd
from quiltdp.accountant.ledger import Ledger, Outcome, Request, Terms
from quiltdp.errors import BudgetSpent, InvalidArgument, LedgerCorrupt, QuiltdpError, Refused
from quiltdp.mechanisms import (
    Gaussian,
    GaussianMechanism,
    InsecureDeterministicNoise,
    Laplace,
    LaplaceMechanism,
)

COPIES = qd.Model.from_tables({"a": ([], [0.5, 0.5]), "b": (["a"], [[1.0, 0.0], [0.0, 1.0]])})


@pytest.fixture
def path(quick_path: Path) -> Path:
    return quick_path / "study.db"


# -- what a charge is worth ---------------------------------------------------------------------


def test_one_number_charges_every_record_or_none(path: Path) -> None:
    """On two copies of one record, charging 'a' alone booked half of what both leak together."""
    cal = qd.calibrate(COPIES, epsilon=1.0, mechanism=Laplace({"a": 1.0, "b": 0.0}))
    ledger = Ledger.create(path, cal, model=COPIES)
    for amount in (0.1, 1e-9):
        with pytest.raises(InvalidArgument, match="'b' is never read"):
            ledger.charge(amount)
    with pytest.raises(InvalidArgument, match=r"sensitivity|never read"):
        ledger.charge_mechanism(Laplace(1.0), 100.0)
    assert ledger.head.seq == 0
    ledger.charge({"a": 0.1, "b": 0.0})


@pytest.mark.parametrize(
    "amounts", [{}, {"a": 0.1}, {"a": 0.1, "b": 0.1, "c": 0.1}, {"a": 0.1, "B": 0.1}, {"b": 0.1}]
)
def test_a_mapping_names_every_record_and_no_other(path: Path, amounts: dict[str, float]) -> None:
    ledger = Ledger.create(path, terms(sensitivity={"a": 1.0, "b": 0.5}))
    with pytest.raises(InvalidArgument, match="record"):
        ledger.charge(amounts)
    if any(amounts.values()):
        with pytest.raises(InvalidArgument, match="record"):
            ledger.charge_mechanism(Laplace(amounts), 100.0)
    with pytest.raises(InvalidArgument, match="one number"):
        Ledger.create(path.with_name("b.db"), terms()).charge(amounts or {"a": 0.1})
    gaussian = Gaussian({"a": 1.0, "b": 0.5}, 1e-6)
    account = Ledger.create(
        path.with_name("c.db"), Terms(gaussian, 9.0, 1.0, None, 1e-6, "informed", "test", PRINT)
    )
    if any(amounts.values()):
        with pytest.raises(InvalidArgument, match="record"):
            account.charge_mechanism(Gaussian(amounts, 1e-6), 100.0)
    assert ledger.head.seq == account.head.seq == 0


KS = [*range(2, 40), 49, 64, 97, 100, 127, 128, 250, 333, 365, 500, 512, 720, 997, 999, 1000]


@pytest.mark.parametrize("sigma", [1.0, 0.1, 1 / 3, math.pi, 1e-7, 123456.789, 0.7000000000000001])
def test_equal_shares_always_fit_as_often_as_they_are_equal(sigma: float) -> None:
    """k releases at k·σ, or √k·σ for Gaussian noise, are the whole budget, whatever the doubles do."""
    pure, normal = Laplace(0.1), Gaussian(0.1, 1e-6)
    laplace = Terms(pure, sigma, 1e9, pure.dp_epsilon(sigma), 0.0, "informed", "test", PRINT)
    for k in KS:
        ledger = Ledger.create(":memory:", laplace)
        for scale in (k * sigma, sum([sigma] * k) if k < 20 else k * sigma):
            single = ledger.terms
            from quiltdp.accountant.ledger.account import mechanism_share, total_dp_epsilon

            share = mechanism_share(pure, scale, single, total_dp_epsilon(single))
            assert k * share <= 1 < k * share * (1 + Fraction(1, 2**40))
        ledger.charge_mechanism(pure, k * sigma, count=k)
        with pytest.raises(BudgetSpent):
            ledger.charge_mechanism(pure, 1e6 * sigma, count=10)
        gaussian = Terms(normal, sigma, 1e9, None, 1e-6, "informed", "test", PRINT)
        share = mechanism_share(normal, math.sqrt(k) * sigma, gaussian, None)
        assert k * share <= 1 < k * share * (1 + Fraction(1, 2**40))


@pytest.mark.parametrize("k", [12, 49])
def test_releases_fit_one_by_one(path: Path, k: int) -> None:
    chain = qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], length=4)
    for name, spec in (("laplace", Laplace(1.0)), ("gaussian", Gaussian(1.0, 1e-6))):
        cal = qd.calibrate(chain, epsilon=1.0, mechanism=spec)
        ledger = Ledger.create(":memory:", cal)
        mechanism: Any = (
            LaplaceMechanism(spec, k * cal.sigma)
            if isinstance(spec, Laplace)
            else GaussianMechanism(spec, math.sqrt(k) * cal.sigma)
        )
        for _ in range(k):
            mechanism.release(1.0, ledger=ledger)
        with pytest.raises(BudgetSpent):
            mechanism.release(1.0, ledger=ledger)
        least = 1 - Fraction(1, 10**11)  # the calibrated α is rounded up to twelve digits
        assert least < ledger.head.spent <= 1, name


@pytest.mark.parametrize("scale", [0.1, 3.0, 7e5])
def test_the_noise_drawn_covers_the_share_that_is_booked(scale: float) -> None:
    """A share is rounded to 1/k when the scale is off by 2⁻⁵⁰; the noise is larger by more than that."""
    for spec in (Laplace(1.0), Laplace({"a": 1.0, "b": 0.25})):
        mechanism = LaplaceMechanism(spec, scale, dimension=3)
        drawn = Fraction(mechanism._units) * mechanism.grid.exact_step
        smallest = Fraction(
            0.25 if isinstance(spec.sensitivity, dict) or hasattr(spec.sensitivity, "items") else 1
        )
        cost = (smallest + 3 * mechanism.grid.exact_step) / drawn
        assert cost * (1 + Fraction(1, 2**50)) < smallest / Fraction(scale)


HUGE = [10**5000, Fraction(10**5000, 3), 10**400, -(10**400), Fraction(1, 10**5000), 1e308, np.float64(9e99)]


@pytest.mark.parametrize("number", range(len(HUGE)))  # their own names have too many digits
def test_huge_and_tiny_numbers_are_one_line(path: Path, number: int) -> None:
    amount: Any = HUGE[number]
    ledger = Ledger.create(path, terms())
    if 0 < amount < 1:
        ledger.charge(amount)
        assert Ledger.open(path).verify().spent > 0
        return
    with pytest.raises(QuiltdpError) as caught:
        ledger.charge(amount)
    assert len(str(caught.value)) < 300
    with pytest.raises(BudgetSpent):
        ledger.charge(0.5, count=10**4000)
    assert ledger.head.seq == 0


def test_a_thousand_different_scales_stay_exact_enough_and_sound(path: Path) -> None:
    """Sums of many different fractions once had more digits than Python writes."""
    ledger = Ledger.create(":memory:", terms())
    exact = Fraction(0)
    rng = np.random.default_rng(0)
    for _ in range(600):
        scale = float(rng.uniform(2000, 4000))
        ledger.charge_mechanism(Laplace(1.0), scale)
        exact += 1 / Fraction(scale)
    assert exact <= ledger.head.spent <= exact * (1 + Fraction(1, 10**40))


def test_a_value_that_is_no_number_is_charged_before_it_is_refused(path: Path) -> None:
    """A refusal that depends on the data tells something: it costs a release, like everything told."""
    ledger = Ledger.create(path, terms())
    mechanism = LaplaceMechanism(Laplace(1.0), 4.0)
    with pytest.raises(InvalidArgument, match="charged"):
        mechanism.release(math.nan, ledger=ledger)
    assert ledger.head.spent == Fraction(1, 4)
    with pytest.raises(InvalidArgument, match="1 numbers"):
        mechanism.release([1.0, 2.0], ledger=ledger)
    assert ledger.head.spent == Fraction(1, 4)


def test_predictable_noise_is_not_charged_to_a_real_ledger(path: Path) -> None:
    ledger = Ledger.create(path, terms())
    with pytest.raises(InvalidArgument, match="predictable"):
        LaplaceMechanism(Laplace(1.0), 4.0, noise=InsecureDeterministicNoise(0)).release(1.0, ledger=ledger)


# -- calibrations that were changed -------------------------------------------------------------


@pytest.mark.slow
def test_an_edited_calibration_is_refused(path: Path) -> None:
    asia = qd.load_model("models/asia.bif")
    cal = qd.calibrate(asia, epsilon=1.0, mechanism=qd.Thresholdout(10, 1e-3))
    edited = dataclasses.replace(cal, sigma=2.8e-7, epsilon=8.0, dp_epsilon=cal.mechanism.dp_epsilon(2.8e-7))
    nameless = dataclasses.replace(cal, fingerprint="")
    subtle = dataclasses.replace(
        cal, sigma=cal.sigma / 1.5, dp_epsilon=cal.mechanism.dp_epsilon(cal.sigma / 1.5)
    )
    for bad in (edited, nameless):
        with pytest.raises(InvalidArgument, match="calibration"):
            Ledger.create(path, bad)
    for bad in (edited, nameless, subtle):
        with pytest.raises(InvalidArgument, match="calibration"):
            Ledger.create(path, bad, model=asia)
    with pytest.raises(InvalidArgument, match="another model"):
        Ledger.create(path, cal, model=qd.load_model("models/cancer.bif"))
    assert not path.exists()
    assert Ledger.create(path, cal, model=asia).genesis["checked"] == "model"


@pytest.mark.parametrize("spec", [Laplace(1.0), Gaussian(1.0, 1e-6)], ids=lambda s: s.kind)
def test_a_true_calibration_is_certified_again(spec: Any) -> None:
    """The round trip never exceeds: what calibrate promised, leakage_of confirms."""
    chain = qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], length=6)
    for epsilon in (0.1, 1.0, 3.0):
        cal = qd.calibrate(chain, epsilon=epsilon, mechanism=spec)
        assert Ledger.create(":memory:", cal, model=chain).genesis["checked"] == "model"
    window = qd.calibrate(chain, epsilon=2.0, mechanism=spec, window=2)
    assert Ledger.create(":memory:", window, model=chain).genesis["checked"] == "model"
    with pytest.raises(InvalidArgument, match="protects"):
        Ledger.create(":memory:", window, model=chain, window=1)


def test_a_gaussian_calibration_that_cannot_be_true_is_refused(path: Path) -> None:
    with pytest.raises(InvalidArgument, match="too little noise"):
        Ledger.create(path, Terms(Gaussian(1.0, 1e-6), 1.0, 1.0, None, 1e-6, "informed", "test", PRINT))


def test_an_interrupt_between_two_lines_leaves_a_ledger_that_works(path: Path) -> None:
    """Ctrl-C after BEGIN: the transaction stayed open, and every later use was refused."""
    ledger = Ledger.create(path, terms())
    with ledger.store.held(1.0, writing=True):
        connection = ledger.store._own()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE head SET document = 'half of something'")
    ledger.charge(0.5)
    assert ledger.verify().seq == 1


# -- anchors ------------------------------------------------------------------------------------


def test_a_ledger_made_with_an_anchor_is_never_used_without_it(path: Path) -> None:
    anchor = path.with_name("anchor.json")
    ledger = Ledger.create(path, terms(), anchor=anchor)
    ledger.charge(0.1, key="k")
    for use in (Ledger.open, lambda p: Ledger.open_or_create(p, terms())):
        with pytest.raises(Refused, match="made with an anchor"):
            use(path)
    assert stat.S_IMODE(anchor.stat().st_mode) == 0o600
    assert stat.S_IMODE(Path(f"{anchor}.lock").stat().st_mode) == 0o600
    assert pickle.loads(pickle.dumps(ledger)).head.seq == 1


def anchored_seq(anchor: Path) -> int:
    import json

    return int(json.loads(anchor.read_text())["seq"])


@pytest.mark.parametrize("how", ["charge again", "entries", "export", "head", "open"])
def test_nothing_recorded_is_told_before_the_anchor_knows_it(path: Path, how: str, monkeypatch: Any) -> None:
    """Killed between commit and anchor: then the replay must move it, or a copied-back file forgets."""
    from quiltdp.accountant.ledger.anchor import Anchor

    anchor = path.with_name("anchor.json")
    ledger = Ledger.create(path, terms(), anchor=anchor)
    shutil.copyfile(path, path.with_name("before.db"))

    advance = Anchor.advance

    def killed(self: Anchor, name: str, seq: int, digest: str) -> None:
        if seq > 0:
            raise SystemExit
        advance(self, name, seq, digest)

    with monkeypatch.context() as patched:
        patched.setattr(Anchor, "advance", killed)
        with pytest.raises(SystemExit):
            ledger.charge(0.5, key="k")
    assert anchored_seq(anchor) == 0
    fresh = Ledger.open(path, anchor=anchor)
    {
        "charge again": lambda: fresh.charge(0.5, key="k"),
        "entries": fresh.entries,
        "export": fresh.export,
        "head": lambda: fresh.head,
        "open": lambda: None,
    }[how]()
    assert anchored_seq(anchor) == 1
    shutil.copyfile(path.with_name("before.db"), path)
    with pytest.raises(LedgerCorrupt, match="older copy"):
        Ledger.open(path, anchor=anchor)


# -- older copies, noticed by a process that has seen more ----------------------------------------


def test_an_older_copy_is_refused_under_any_name_by_every_object(path: Path) -> None:
    ledger = filled(path, 2)
    old = path.with_name("old.db")
    shutil.copyfile(path, old)
    ledger.charge(0.5, label="not in the copy")
    ledger.close()
    del ledger
    shutil.copyfile(old, path)
    for place in (old, path):
        for use in (Ledger.open, lambda p: Ledger.open_or_create(p, terms())):
            with pytest.raises(LedgerCorrupt, match=r"has seen entry 3, .* an older copy"):
                use(place)


def test_copies_that_went_separate_ways_are_refused(path: Path) -> None:
    """Each has the whole budget: the process takes the first that went on, and no other."""
    filled(path, 2).close()
    twin = path.with_name("twin.db")
    shutil.copyfile(path, twin)
    one, other = Ledger.open(path), Ledger.open(twin)
    one.charge(0.25)
    with pytest.raises(LedgerCorrupt, match="an older copy"):
        other.charge(0.25)
    one.charge(0.25)
    assert one.verify().spent == Fraction(3, 4)


def test_of_copies_that_are_charged_at_one_moment_one_is_told(path: Path) -> None:
    """Nobody else can come between the look and the entry of one file, but somebody can at its copy."""
    filled(path, 2).close()
    twin = path.with_name("twin.db")
    shutil.copyfile(path, twin)
    one, other = Ledger.open(path), Ledger.open(twin)
    with one.visit() as visit:
        other.charge(0.25)
        with pytest.raises(LedgerCorrupt, match="an older copy"):
            visit.charge(Fraction(1, 4), Request("charge"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_remembers_what_its_parent_has_seen(path: Path) -> None:
    ledger = filled(path, 2)
    old = path.with_name("old.db")
    shutil.copyfile(path, old)
    ledger.charge(0.25)
    child = os.fork()
    if child == 0:
        try:
            Ledger.open(old)
        except LedgerCorrupt:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_the_anchor_moves_before_anything_is_drawn(path: Path) -> None:
    anchor = path.with_name("anchor.json")
    ledger = Ledger.create(path, terms(), anchor=anchor)
    with ledger.visit() as visit:
        reserved = visit.reserve([Request("q")], Fraction(1, 2), 1)
        assert anchored_seq(anchor) == 1
        reserved.settle([Outcome("train", value=0.5)], None)
        assert anchored_seq(anchor) == 2


def test_an_anchor_that_cannot_be_written_stops_the_answer(path: Path, monkeypatch: Any) -> None:
    from quiltdp.accountant.ledger.anchor import Anchor

    ledger = Ledger.create(path, terms(), anchor=path.with_name("anchor.json"))

    def full(self: Anchor, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Anchor, "_write", full)
    with pytest.raises(Refused, match="anchor cannot be written"):
        ledger.charge(0.5)
    monkeypatch.undo()
    assert ledger.head.spent == Fraction(1, 2)


@pytest.mark.parametrize("end", ["", "-journal", "-lock"])
def test_the_anchor_is_another_file(path: Path, end: str) -> None:
    with pytest.raises(InvalidArgument, match="another file"):
        Ledger.create(path, terms(), anchor=f"{path}{end}")
    assert not path.exists()


# -- names of one file --------------------------------------------------------------------------


def test_every_name_of_a_file_is_one_account(path: Path, monkeypatch: Any) -> None:
    filled(path, 1)
    (path.parent / "deep").mkdir()
    (path.parent / "link.db").symlink_to(path)
    (path.parent / "way").symlink_to(path.parent)
    monkeypatch.chdir(path.parent)
    names = ["study.db", "./study.db", "deep/../study.db", "link.db", "way/study.db", str(path), path]
    held = os.open(path, os.O_RDWR)
    if Path("/proc/self/fd").exists():
        names += [f"/proc/self/fd/{held}", "/proc/self/cwd/study.db"]
    ledgers = [Ledger.open(name) for name in names]
    os.close(held)
    assert len({id(ledger.store) for ledger in ledgers}) == 1
    for k, ledger in enumerate(ledgers):
        ledger.charge(1 / 64)
        assert all(other.head.seq == k + 2 for other in ledgers)


def test_a_hard_link_is_refused_while_it_is_there(path: Path) -> None:
    """SQLite's journal follows the name: a crash under one name is not undone under the other."""
    ledger = filled(path, 1)
    twin = path.with_name("twin.db")
    os.link(path, twin)
    for use in (lambda: ledger.charge(0.1), lambda: Ledger.open(twin), lambda: Ledger.open(path)):
        with pytest.raises(Refused, match="more than one name"):
            use()
    twin.unlink()
    ledger.charge(0.1)


def test_a_name_left_by_a_killed_maker_is_dropped(path: Path) -> None:
    filled(path, 1)
    os.link(path, path.with_name("study.db.0123.new"))
    assert Ledger.open(path).head.seq == 1
    assert not path.with_name("study.db.0123.new").exists()


def test_a_renamed_ledger_goes_on(path: Path) -> None:
    ledger = filled(path, 1)
    moved = path.with_name("moved.db")
    path.rename(moved)
    with pytest.raises(LedgerCorrupt, match="gone"):
        ledger.charge(0.1)
    again = Ledger.open(moved)
    again.charge(0.1)
    assert again.verify().seq == 2


@pytest.mark.parametrize(
    "name",
    ["file:study.db?mode=memory", "file::memory:?cache=shared", ":memory:?", "a b%20c?.db", "é\u0301.db"],
)
def test_odd_names_are_names_of_files(path: Path, name: str, monkeypatch: Any) -> None:
    monkeypatch.chdir(path.parent)
    Ledger.create(name, terms()).charge(0.5)
    assert (path.parent / name).is_file()
    assert Ledger.open(name).head.spent == Fraction(1, 2)
    with pytest.raises(FileExistsError):
        Ledger.create(name, terms())


def test_a_name_that_is_none_is_refused() -> None:
    for name in ("a\0b", "", "."):
        for make in (lambda n: Ledger.create(n, terms()), Ledger.open):
            with pytest.raises((InvalidArgument, Refused, FileExistsError)):
                make(name)
    with pytest.raises(InvalidArgument):
        Ledger.open(":memory:")


def test_copies_of_the_object_are_the_same_account(path: Path) -> None:
    ledger = filled(path, 1)
    for other in (copy.copy(ledger), copy.deepcopy(ledger), pickle.loads(pickle.dumps(ledger))):
        other.charge(0.125)
    assert ledger.head.seq == 4


# -- the file -----------------------------------------------------------------------------------


def test_added_and_missing_triggers_are_noticed(path: Path) -> None:
    """A trigger could undo every charge as it is written."""
    additions = [
        "CREATE TRIGGER quiet AFTER INSERT ON entries BEGIN UPDATE head SET document = document; END",
        "CREATE VIEW more AS SELECT * FROM entries",
        "CREATE TABLE notes (x)",
        "CREATE INDEX fast ON entries (time)",
        "DROP TRIGGER entries_stay",
        "DROP TABLE room",
    ]
    for k, statement in enumerate(additions):
        place = path.with_name(f"{k}.db")
        running = filled(place, 1)
        with sqlite3.connect(place) as connection:
            connection.execute(statement)
        connection.close()
        for use in (lambda p=place: Ledger.open(p), running.verify, lambda r=running: r.charge(0.1)):
            with pytest.raises(LedgerCorrupt, match="schema"):
                use()


def test_a_deleted_or_foreign_log_changes_nothing(path: Path) -> None:
    """Turned into a write-ahead log by hand, the ledger is turned back before it is used."""
    ledger = filled(path, 2)
    ledger.close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    ledger = Ledger.open(path)
    ledger.charge(0.125)
    ledger.close()
    for end in ("-wal", "-shm", "-journal", "-lock"):
        Path(f"{path}{end}").unlink(missing_ok=True)
    assert Ledger.open(path).verify().seq == 3


def test_every_outcome_is_as_wide_as_every_other(path: Path) -> None:
    """Whatever came out, each column of its row has the same number of characters."""
    ledger = Ledger.create(path, terms())
    unit = Fraction(1, 100)
    outcomes = [
        Outcome("train", value=0.5),
        Outcome("train", 4 * unit / 9, 0, 1 / 3),
        Outcome("holdout", 5 * unit / 9, 1, -0.123456789),
        Outcome("holdout", unit, 1, 1e-300),
        Outcome("failed", unit, 1),
        Outcome("unasked"),
    ]
    for threshold in (None, 5, -(2**62)):
        with ledger.visit() as visit:
            requests = [Request("q", f"{threshold}-{k}", "label") for k in range(len(outcomes))]
            visit.reserve(requests, 6 * unit, 6).settle(outcomes, threshold)
    rows = [entry.fields() for entry in ledger.entries() if entry.kind != "reserve"]
    assert len({tuple(len(cell) for cell in row if isinstance(cell, str)) for row in rows}) == 1
    with sqlite3.connect(path) as connection:
        width = connection.execute("SELECT length(threshold), length(nonce) FROM secret").fetchone()
    connection.close()
    assert width == (64, 32)


def test_answers_need_a_reservation(path: Path) -> None:
    """An answer written without one, or for more than was reserved, breaks the account."""
    ledger = filled(path, 1)
    with ledger.visit() as visit:
        reserved = visit.reserve([Request("q")], Fraction(1, 8), 1)
        with pytest.raises(LedgerCorrupt, match="more than was reserved"):
            reserved.settle([Outcome("holdout", Fraction(1, 4), 1, 0.5)], None)
        with pytest.raises(LedgerCorrupt, match="more than was reserved"):
            reserved.settle([Outcome("holdout", Fraction(1, 8), 2, 0.5)], None)
        reserved.settle([Outcome("holdout", Fraction(1, 8), 1, 0.5)], None)
        with pytest.raises(LedgerCorrupt, match="more than was reserved"):
            reserved.settle([Outcome("train", Fraction(0), 0, 0.5)], None)
    assert ledger.verify().spent == Fraction(1, 4)


def test_a_reservation_is_charged_until_it_is_settled(path: Path) -> None:
    ledger = Ledger.create(path, terms())
    with ledger.visit() as visit:
        visit.reserve([Request("q")], Fraction(3, 4), 2)
    assert ledger.head.spent == Fraction(3, 4)
    with pytest.raises(BudgetSpent):
        ledger.charge(0.5)
    ledger.charge(0.25)  # the reservation is lost for good
    assert ledger.verify().spent == 1
    with ledger.visit() as visit, pytest.raises(BudgetSpent):
        visit.reserve([Request("q")], Fraction(1, 10**9), 0)


def test_settling_late_is_refused_when_another_came_between(path: Path) -> None:
    """Without the lock file (deleted, or another system) two may meet: then nobody gets a free answer."""
    ledger = Ledger.create(path, terms())
    with ledger.visit() as visit:
        reserved = visit.reserve([Request("q")], Fraction(1, 2), 1)
    Ledger.open(path).charge(0.25)
    with ledger.store.held(1.0, writing=True), pytest.raises(Refused, match="stays charged"):
        reserved.settle([Outcome("train", value=0.5)], None)
    assert ledger.verify().spent == Fraction(3, 4)


def test_an_export_must_not_forget_a_reservation(path: Path) -> None:
    from quiltdp.accountant.ledger import verify_export

    ledger = Ledger.create(path, terms())
    with ledger.visit() as visit:
        visit.reserve([Request("q")], Fraction(1, 2), 1)
    assert verify_export(ledger.export()).spent == Fraction(1, 2)


def test_what_was_read_before_an_edit_is_not_believed_after_it(path: Path) -> None:
    ledger = filled(path)
    edit(path, "UPDATE entries SET label = 'other' WHERE seq = 2")
    with pytest.raises(LedgerCorrupt):
        ledger.verify()
    with pytest.raises(LedgerCorrupt):
        Ledger.open(path)


class _Disguised(str):
    """A text that says of itself what is not so."""

    __slots__ = ()

    def encode(self, *_: object) -> bytes:
        return b"harmless"


@pytest.mark.parametrize("bad", ["\ud800", "a\0b"])
def test_a_text_is_judged_by_what_it_holds(path: Path, bad: str) -> None:
    """Numpy's texts are fine; one with an ``encode`` of its own is looked through before the draw."""
    ledger = Ledger.create(path, terms())
    for field in ("key", "label"):
        with pytest.raises(InvalidArgument, match="UTF-8"):
            ledger.charge(0.1, **{field: _Disguised(bad)})
    assert ledger.head.seq == 0
    entry = ledger.charge(0.1, label=np.str_("first"), key=_Disguised("k"))
    assert ledger.charge(0.1, label="again", key="k") == entry
    assert type(entry.label) is str


def test_a_schema_that_is_no_text_is_refused_in_one_line(path: Path) -> None:
    """SQLite quotes what it stumbles over; some of that was a traceback, or a message of two lines."""
    Ledger.create(path, terms()).close()
    whole = path.read_bytes()
    start = whole.index(b"CREATE TABLE entries")
    for place in range(start, start + 60, 3):
        broken = path.with_name(f"{place}.db")
        broken.write_bytes(whole[:place] + b"\xab" + whole[place + 1 :])
        with pytest.raises(QuiltdpError) as refused:
            Ledger.open(broken)
        assert "\n" not in str(refused.value)
