"""One contract for every store of a ledger: the file, and a SQL database of either kind."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from server_fakes import sql_ledger
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from quiltdp.accountant.ledger import Entry, Head, Ledger, Outcome, Request, Terms, verify_export
from quiltdp.accountant.ledger.anchor import _SEEN, Anchor
from quiltdp.accountant.ledger.visit import NOT_TOLD
from quiltdp.errors import BudgetSpent, InvalidArgument, LedgerCorrupt, Refused
from quiltdp.mechanisms import Laplace
from quiltdp.server.database import opened
from quiltdp.server.store import SqlStore

SPEC = Laplace(1.0)
TERMS = Terms(SPEC, SPEC.scale(1.0), 2.0, 1.0, 0.0, "informed", "test", "a" * 64)
STORES = ("file", "sqlite", "postgresql")
QUARTER = Fraction(1, 4)


@dataclass
class Made:
    """A new ledger, and ways to reach its rows."""

    ledger: Ledger
    url: str | None
    path: Path
    anchor: Path | None

    def again(self, url: str | None = None) -> Ledger:
        """Return the ledger as another server opens it."""
        guard = None if self.anchor is None else Anchor(self.anchor)
        if self.url is None:
            return Ledger.open(self.path, anchor=self.anchor)
        assert isinstance(self.ledger.store, SqlStore)
        return Ledger(SqlStore(opened(url or self.url), self.ledger.store.study), guard)

    def execute(self, *statements: str) -> None:
        """Change rows behind the ledger's back."""
        if self.url is None:
            import sqlite3

            with closing(sqlite3.connect(self.path)) as connection, connection:
                for statement in statements:
                    connection.execute(statement)
            return
        engine = opened(self.url)
        with engine.begin() as connection:
            for statement in statements:
                connection.execute(text(statement))
        engine.dispose()


@pytest.fixture(params=STORES)
def make(request: pytest.FixtureRequest, quick_path: Path) -> Callable[..., Made]:
    """Make a ledger in one of the stores."""

    def made(anchored: bool = False) -> Made:
        path, anchor = quick_path / "study.db", quick_path / "anchor.json" if anchored else None
        if request.param == "file":
            return Made(Ledger.create(path, TERMS, anchor=anchor), None, path, anchor)
        url = f"sqlite:///{path}"
        if request.param == "postgresql":
            url = request.getfixturevalue("new_postgres")()
        return Made(sql_ledger(url, TERMS, anchor), url, path, anchor)

    return made


def asked(ledger: Ledger, key: str, *outcomes: Outcome) -> None:
    """Reserve a quarter for a question, and settle it if something came out."""
    with ledger.visit([Request(f"expression {key}", key, key)]) as visit:
        pledge = visit.reserve([Request(f"expression {key}", key, key)], QUARTER, 1)
        if outcomes:
            pledge.settle(outcomes, 17)


def test_entries_follow_each_other_and_can_be_verified(make: Any, tmp_path: Path, cli: Any) -> None:
    made = make()
    for k in range(3):
        made.ledger.charge(0.125, label=f"release {k}", key=f"{k}")
    again = made.again()
    assert again.verify().spent == Fraction(3, 8)
    assert again.entries() == made.ledger.entries()
    export = tmp_path / "export.json"
    export.write_text(json.dumps(again.export()))
    assert verify_export(json.loads(export.read_text())) == again.head
    assert cli("ledger", "verify", export).code == 0


def test_a_reservation_is_charged_until_what_came_out_replaces_it(make: Any) -> None:
    made = make()
    asked(made.ledger, "a", Outcome("holdout", Fraction(1, 8), 1, 0.5))
    assert made.again().head.spent == Fraction(1, 8)
    asked(made.ledger, "b")
    head = made.again().head
    assert (head.spent, head.pending is not None) == (Fraction(3, 8), True)
    asked(made.ledger, "c", Outcome("train", Fraction(0), 0, 0.25))
    head = made.again().verify()
    assert (head.spent, head.lost, head.answers) == (Fraction(3, 8), 1, 2)
    with made.ledger.visit() as visit:
        assert visit.threshold == 17


def test_a_key_is_recalled_and_not_charged_again(make: Any) -> None:
    made = make()
    first = made.ledger.charge(0.125, key="may")
    again = made.again().charge(0.125, key="may")
    assert again.repeated
    assert again.digest == first.digest
    with pytest.raises(Refused, match="another request"):
        made.again().charge(0.25, key="may")
    assert made.ledger.head.seq == 1


def test_more_than_there_is_is_refused(make: Any) -> None:
    made = make()
    made.ledger.charge(0.75)
    with pytest.raises(BudgetSpent):
        made.again().charge(0.5)
    assert made.ledger.head.spent == Fraction(3, 4)


def test_what_breaks_before_the_end_leaves_nothing(make: Any) -> None:
    made = make()

    def broken() -> None:
        with made.ledger.visit() as visit:
            visit.reserve([Request("q")], QUARTER, 1)
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        broken()
    assert made.again().head.pending is not None
    made.ledger.charge(0.125)
    assert made.again().verify().spent == Fraction(3, 8)


def test_entries_are_neither_changed_nor_removed(make: Any) -> None:
    made = make()
    made.ledger.charge(0.125)
    for statement in ("UPDATE entries SET value = ''", "DELETE FROM entries"):
        with pytest.raises(Exception, match="append-only"):
            made.execute(statement)
    assert made.again().verify().seq == 1


_DISARM = {
    "file": "DROP TRIGGER entries_stay",
    "sqlite": "DROP TRIGGER entries_stay",
    "postgresql": "ALTER TABLE entries DISABLE TRIGGER ALL",
}


def test_a_change_by_an_administrator_is_noticed(make: Any, request: Any) -> None:
    made = make()
    made.ledger.charge(0.125)
    made.ledger.charge(0.125)
    store = request.node.callspec.params["make"]
    made.execute(_DISARM[store], "UPDATE entries SET share = '1/16' WHERE seq = 1")
    with pytest.raises(LedgerCorrupt):
        made.again()
    with pytest.raises(LedgerCorrupt):
        made.ledger.verify()


def test_a_copy_that_is_older_is_refused_by_the_anchor(
    make: Any, request: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(anchored=True)
    made.ledger.charge(0.125)
    made.ledger.close()
    if made.url is not None:
        made.ledger.store.engine.dispose()  # type: ignore[attr-defined]
    copy, url = made.path.with_name("copy.db"), None
    if made.url is not None and made.url.startswith("postgresql"):
        url = request.getfixturevalue("new_postgres")(made.url.partition("?")[0].rpartition("/")[2])
    else:
        shutil.copy(made.path, copy)
        url = None if made.url is None else f"sqlite:///{copy}"
    made.again().charge(0.125)
    _SEEN.clear()  # another process
    with pytest.raises(LedgerCorrupt, match="older copy"):
        made.again(url) if made.url is not None else Ledger.open(copy, anchor=made.anchor)
    monkeypatch.setattr(made, "anchor", None)
    _SEEN.clear()
    with pytest.raises(Refused, match="made with an anchor"):
        made.again()


def test_many_threads_and_two_servers_share_one_account(make: Any) -> None:
    made = make()
    servers = [made.ledger, made.again()]
    granted: list[str] = []

    def work(number: int) -> None:
        for k in range(6):
            try:
                servers[number % 2].charge(1 / 16, label=f"{number}.{k}", key=f"{number}.{k}")
                granted.append(f"{number}.{k}")
            except BudgetSpent:
                continue

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    again = made.again()
    assert again.verify().spent == 1
    assert sorted(granted) == sorted(str(e.label) for e in again.entries())


# -- what only a SQL database can do ---------------------------------------------------------------


@pytest.fixture
def sql(database: str) -> Made:
    return Made(sql_ledger(database, TERMS), database, Path(), None)


def test_the_database_itself_refuses_an_account_that_is_overspent(sql: Made) -> None:
    for change in ("answers = budget + 1", "spent = 1.01"):
        with pytest.raises(DBAPIError, match="within_budget"):
            sql.execute(f"UPDATE heads SET {change}")


def elsewhere(store: SqlStore, quick_path: Path) -> None:
    """Let a store take another lock than its like: as if a session had lost its own unnoticed."""
    from quiltdp.accountant.ledger.locks import FileLock

    store._number += 1
    if store._others is not None:
        store._others = FileLock(str(quick_path / "another-lock"))


def test_a_server_without_the_lock_settles_nothing(sql: Made, quick_path: Path) -> None:
    other = sql.again()
    assert isinstance(other.store, SqlStore)
    elsewhere(other.store, quick_path)
    request = Request("expression a", "a")
    with sql.ledger.visit([request]) as visit:
        pledge = visit.reserve([request], QUARTER, 1)
        asked(other, "b", Outcome("holdout", Fraction(1, 8), 1, 0.5))
        with pytest.raises(Refused, match=NOT_TOLD):
            pledge.settle([Outcome("holdout", Fraction(1, 8), 1, 0.75)], 17)
    again = sql.again()
    assert [e.value for e in again.entries() if e.kind == "holdout"] == [0.5]
    assert (again.verify().spent, again.head.lost) == (Fraction(3, 8), 1)


def test_the_head_moves_from_where_it_was_or_not_at_all(sql: Made) -> None:
    """The fence alone, behind the walk over the chain: the update of the head touches no row."""
    sql.ledger.charge(0.125)
    store, late = sql.ledger.store, Entry.after(Head(5, "0" * 64), "charge", time="t")

    def write() -> None:
        with store.held(5, writing=True), store.transaction(writing=True) as rows:
            rows.write([late], Head(6, late.digest), "", b"")

    with pytest.raises(Refused, match="in between"):
        write()
    assert sql.again().verify().seq == 1


def test_a_missing_row_is_told_by_its_table(sql: Made) -> None:
    sql.ledger.charge(0.125)
    for table in ("heads", "secrets", "genesis"):
        other = Made(sql_ledger(str(sql.url), TERMS), sql.url, Path(), None)
        sql.execute(f"DELETE FROM {table} WHERE study = '{other.ledger.genesis['id']}'")
        with pytest.raises(LedgerCorrupt, match=table):
            other.again()
    assert sql.again().verify().seq == 1


def test_a_strange_head_or_genesis_is_refused(sql: Made) -> None:
    for table, said in (("heads", "head"), ("genesis", "genesis")):
        other = Made(sql_ledger(str(sql.url), TERMS), sql.url, Path(), None)
        sql.execute(f"UPDATE {table} SET document = '[1' WHERE study = '{other.ledger.genesis['id']}'")
        with pytest.raises(LedgerCorrupt, match=said):
            other.again()


@pytest.mark.parametrize("url", ["mysql://x", "nonsense", "sqlite://", "sqlite:///:memory:"])
def test_an_address_of_something_else_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument, match="sqlite:///"):
        opened(url)


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="there is no database here"):
        opened(f"sqlite:///{tmp_path / 'no.db'}").connect()
    assert not (tmp_path / "no.db").exists()
    with pytest.raises(Refused, match="cannot be used now"):
        Ledger(SqlStore(opened("postgresql://nobody@localhost:1/none"), "s"))


def test_the_file_of_a_database_is_private(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    sql_ledger(f"sqlite:///{path}", TERMS).charge(0.125)
    assert path.stat().st_mode & 0o777 == 0o600
