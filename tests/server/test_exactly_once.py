"""One question, one charge, one answer: whatever breaks in between, and who asks it where."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from server_fakes import (
    HOLDOUT,
    LUCK,
    SKILL,
    TRAIN,
    Stop,
    ask,
    new_member,
    new_study,
    ready,
    stopped_at,
    terms,
)
from sqlalchemy import Engine, event, select, text, update
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from quiltdp.accountant.ledger import verify_export
from quiltdp.accountant.ledger.anchor import _SEEN
from quiltdp.errors import BudgetSpent, InvalidArgument, LedgerCorrupt, Refused
from quiltdp.mechanisms.queries import TablePair
from quiltdp.server import database as db
from quiltdp.server.asking import Conflict, Study
from quiltdp.server.database import grant, make_tables, opened
from quiltdp.server.studies import add_member, close_study, create_study, find_member, members_of, revoke


def end_sessions(engine: Engine) -> int:
    """End every session of a database of PostgreSQL but this one; return how many there were."""
    ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    mine = opened(engine.url.set(drivername="postgresql").render_as_string(hide_password=False))
    with mine.connect() as connection:
        found = connection.execute(text(f"{ended} AND datname = current_database()")).scalar_one()
    mine.dispose()
    return int(found)


def accounted(study: Study) -> tuple[int, int, int]:
    """Return (answers booked, settled, lost) of a study that is opened anew and verified."""
    _SEEN.clear()
    again = Study(opened(study.engine.url.render_as_string(hide_password=False)), study.id)
    head = again.ledger.verify()
    verify_export(again.ledger.export())
    told = sum(entry.kind == "holdout" for entry in again.ledger.entries())
    lost = head.lost + (0 if head.pending is None else head.pending.answers)
    return head.answers, told, lost


def stop() -> None:
    raise Stop


def test_a_stop_between_any_two_statements_charges_once_at_most(database: str) -> None:
    study, member = ready(database, 200)
    told: dict[str, float] = {}
    for number in range(200):
        key = f"{number}"
        with stopped_at(study.engine, number, stop) as seen:
            try:
                told[key] = ask(study, member, key).value
                if seen() <= number:
                    break
            except (Stop, Refused):
                pass
        _SEEN.clear()
        try:
            again = ask(study, member, key)
        except Conflict:
            assert key not in told
        else:
            assert told.setdefault(key, again.value) == again.value
    assert number > 30
    booked, settled, lost = accounted(study)
    assert settled == len(told)
    assert booked == settled + lost
    assert lost > 3


@pytest.fixture
def pg(new_postgres: Any) -> tuple[Study, Any]:
    return ready(new_postgres(), 20)


@contextmanager
def while_reading(monkeypatch: pytest.MonkeyPatch, act: Any) -> Iterator[None]:
    """Act between reserve and settle, where the holdout is read."""
    reading = TablePair.on_holdout

    def on_holdout(self: TablePair, *arguments: Any) -> Any:
        act()
        return reading(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(TablePair, "on_holdout", on_holdout)
        yield


def test_a_session_that_ended_settles_nothing(pg: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    study, member = pg
    ended = []
    with (
        while_reading(monkeypatch, lambda: ended.append(end_sessions(study.engine))),
        pytest.raises(Conflict, match="charged, not told"),
    ):
        ask(study, member, "a")
    assert ended[0] >= 1
    assert accounted(study) == (1, 0, 1)
    with pytest.raises(Conflict, match="charged, not told"):
        ask(study, member, "a")
    assert ask(study, member, "b").source == "holdout"  # the pool has replaced what ended
    assert accounted(study) == (2, 1, 1)


def test_another_server_goes_on_at_once_where_one_lost_its_session(
    pg: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, member = pg
    other = Study(opened(study.engine.url.set(drivername="postgresql").render_as_string(False)), study.id)
    acted = []

    def act() -> None:
        if not acted:
            acted.append(end_sessions(study.engine))
            acted.append(ask(other, member, "b").value)

    with while_reading(monkeypatch, act), pytest.raises(Conflict):
        ask(study, member, "a")
    assert accounted(study) == (2, 1, 1)
    assert ask(study, member, "b").value == acted[1]


def test_no_session_writes_without_the_lock(pg: Any) -> None:
    """What SQLAlchemy would do by itself after a lost session: go on in a new one."""
    study, _ = pg
    store = study.store

    def two_transactions() -> None:
        with store.held(5, writing=True):
            end_sessions(study.engine)
            with pytest.raises(Refused, match="cannot be used now"), store.transaction(writing=True) as rows:
                rows.head()
            with store.transaction(writing=True) as rows:
                rows.head()

    with pytest.raises(Refused, match="ended this session"):
        two_transactions()


def test_sessions_that_ended_in_the_pool_are_not_noticed(pg: Any) -> None:
    study, member = pg
    ask(study, member, "a")
    end_sessions(study.engine)
    assert ask(study, member, "b").source == "holdout"


def test_no_lock_is_left_in_the_pool(pg: Any) -> None:
    study, member = pg
    with pytest.raises(InvalidArgument):
        ask(study, member, "a", type(LUCK)("no_such_column"))
    with stopped_at(study.engine, 20, stop), pytest.raises(Stop):
        ask(study, member, "b")
    with study.engine.connect() as connection:
        held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
        assert connection.execute(text(held)).scalar_one() == 0


def test_a_lock_that_others_hold_is_waited_for_as_long_as_was_said(database: str) -> None:
    study, member = ready(database)
    other = Study(opened(database), study.id)
    other.ledger.timeout = 0.2
    with study.ledger.visit(), pytest.raises(Refused, match="try again"):
        ask(other, member, "a")
    other.ledger.timeout = 0.0  # and 0 is no time, not for ever
    with study.ledger.visit(), pytest.raises(Refused, match="try again"):
        ask(other, member, "a")
    assert ask(study, member, "a").source == "holdout"


def one_key(url: str, rounds: int) -> None:
    study, member = ready(url, rounds)
    servers = [study, Study(opened(url), study.id)]
    for k in range(rounds):
        found: list[Any] = []
        meet = threading.Barrier(2)

        def work(server: Study, key: str, meet: Any = meet, found: list[Any] = found) -> None:
            meet.wait()
            found.append(ask(server, member, key))

        threads = [threading.Thread(target=work, args=(server, f"{k}")) for server in servers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({receipt.value for receipt in found}) == 1
        assert sorted(receipt.repeated for receipt in found) == [False, True]
    assert accounted(study) == (rounds, rounds, 0)


def test_two_servers_and_one_key_charge_once(database: str) -> None:
    one_key(database, 50)


@pytest.mark.slow
def test_two_servers_and_one_key_charge_once_a_thousand_times(database: str) -> None:
    one_key(database, 1000)


def test_a_key_belongs_to_one_question_of_one_member(database: str) -> None:
    study, member = ready(database)
    first = ask(study, member, "k")
    with pytest.raises(Conflict, match="another question"):
        ask(study, member, "k", SKILL)
    assert ask(study, member, "k") == type(first)(**{**vars(first), "repeated": True})
    other = new_member(study.engine, study.id)
    assert ask(study, other, "k", SKILL).source == "train"
    for key in ("", "x" * 501, "a\0b", "\ud800"):
        with pytest.raises(InvalidArgument):
            ask(study, member, key)
    assert accounted(study) == (1, 1, 0)


def test_an_exception_after_the_reservation_is_one_lost_answer(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, member = ready(database)

    def broken() -> None:
        raise MemoryError

    with while_reading(monkeypatch, broken), pytest.raises(MemoryError):
        ask(study, member, "a")
    with pytest.raises(Conflict, match="not told"):
        ask(study, member, "a")
    assert study.answers_of(member)[0]["source"] == "charged, not told"
    assert accounted(study) == (1, 0, 1)


def test_what_travels_to_the_database_does_not_tell_what_came_out(database: str) -> None:
    study, member = ready(database, 30)
    sent: list[tuple[Any, ...]] = []

    def note(_: Any, __: Any, statement: str, values: Any, *___: Any) -> None:
        rows = values if isinstance(values, list) else [values]
        plain = [[*row.values()] if isinstance(row, dict) else [*row] for row in rows]
        sent.append(
            (statement, [[len(v) if isinstance(v, (str, bytes)) else type(v) for v in row] for row in plain])
        )

    traffic = []
    for k, question in enumerate((LUCK, SKILL) * 10):  # from 20 answers that are left to 10, then to 9
        label = "the same"
        event.listen(study.engine, "before_cursor_execute", note)
        study.ask(member, question, f"{k:02d}", label)
        event.remove(study.engine, "before_cursor_execute", note)
        traffic.append((len(question.text), [*sent]))
        sent.clear()
    for (_, holdout), (_, train) in zip(traffic[2::2], traffic[3::2], strict=True):
        assert holdout == train


# -- who may ask -----------------------------------------------------------------------------------


def test_a_closed_study_answers_nothing_new(database: str) -> None:
    study, member = ready(database)
    first = ask(study, member, "a")
    with study.engine.begin() as connection:
        close_study(connection, study.id)
    with pytest.raises(Refused, match="closed"):
        ask(study, member, "b")
    assert ask(study, member, "a").digest == first.digest
    assert accounted(study) == (1, 1, 0)


def test_a_token_that_was_taken_away_charges_nothing(database: str) -> None:
    study, _ = ready(database)
    late, gone = new_member(study.engine, study.id, days=1), new_member(study.engine, study.id)
    with study.engine.begin() as connection:
        revoke(connection, study.id, gone.id)
        mine = update(db.members).where(db.members.c.id == late.id)
        connection.execute(mine.values(expires="2020-01-01T00:00:00Z"))
    for member in (late, gone):
        with pytest.raises(Refused, match="taken no more"):
            ask(study, member, "a")
    with pytest.raises(Refused, match="auditor"):
        ask(study, new_member(study.engine, study.id, "auditor"), "a")
    assert accounted(study) == (0, 0, 0)


def test_tokens_are_hashed_expire_and_can_be_revoked(database: str) -> None:
    engine, study, owner = new_study(database)
    with engine.begin() as connection:
        member, token = add_member(connection, study, "ann", "analyst", days=1)
        assert len(token) > 43
        stored = connection.execute(select(db.members.c.token)).scalars().all()
        assert not {token, owner} & {*stored}
        assert find_member(connection, token) == member
        assert find_member(connection, token + "x") is None
        revoke(connection, study, member.id)
        assert find_member(connection, token) is None
        boss = find_member(connection, owner)
        assert boss is not None
        with pytest.raises(Refused, match="last owner"):
            revoke(connection, study, boss.id)
        with pytest.raises(InvalidArgument, match="no active member"):
            revoke(connection, study, member.id)


@pytest.mark.parametrize(
    "wrong",
    [
        {"role": "boss"}, {"name": " "}, {"name": "x" * 101}, {"name": "a\0"}, {"days": 0}, {"days": 10**6},
        {"days": 1.5}, {"cap": 0}, {"cap": True}, {"role": "auditor", "cap": 3},
    ],
)  # fmt: skip
def test_a_member_that_makes_no_sense_is_refused(quick_path: Any, wrong: dict[str, Any]) -> None:
    engine, study, _ = new_study(f"sqlite:///{quick_path / 'study.db'}")
    with engine.begin() as connection:
        with pytest.raises(InvalidArgument):
            add_member(connection, study, **{"name": "ann", "role": "analyst", **wrong})
        assert len(members_of(connection, study)) == 1


def test_two_owners_cannot_take_each_others_token_at_once(database: str) -> None:
    engine, study, _ = new_study(database)
    new_member(engine, study, "owner")
    with engine.connect() as connection:
        owners = members_of(connection, study)
    meet, refused = threading.Barrier(2), []

    def work(member: str) -> None:
        meet.wait()
        try:
            with engine.begin() as connection:
                revoke(connection, study, member)
        except Refused:
            refused.append(member)

    threads = [threading.Thread(target=work, args=(owner.id,)) for owner in owners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 1


def test_a_cap_holds_inside_the_account_of_all(database: str) -> None:
    study, _ = ready(database, 5)
    capped, free = new_member(study.engine, study.id, cap=2), new_member(study.engine, study.id)
    for key in "ab":
        ask(study, capped, key)
    with pytest.raises(BudgetSpent, match="your 2 answers"):
        ask(study, capped, "c")
    for key in "abc":
        ask(study, free, key)
    with pytest.raises(BudgetSpent, match="used up"):
        ask(study, free, "d")
    assert accounted(study) == (5, 5, 0)
    assert len(study.answers_of()) == 5
    assert {line["member"] for line in study.answers_of(capped)} == {capped.id}


def test_a_lost_answer_counts_towards_the_cap(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    study, _ = ready(database)
    member = new_member(study.engine, study.id, cap=1)

    def broken() -> None:
        raise MemoryError

    with while_reading(monkeypatch, broken), pytest.raises(MemoryError):
        ask(study, member, "a")
    with pytest.raises(BudgetSpent, match="your 1"):
        ask(study, member, "b")


def test_the_same_data_have_one_account(database: str) -> None:
    engine, _, _ = new_study(database)
    for name in ("study", "another name"):
        with pytest.raises(Refused, match="same holdout data"):
            create_study(engine, name, TRAIN, HOLDOUT, terms(), train_is_public=True)
    with pytest.raises(InvalidArgument, match="may see the training data"):
        create_study(engine, "s", TRAIN, HOLDOUT, terms(), train_is_public=False)
    with pytest.raises(InvalidArgument, match="no column 'nope'"):
        create_study(engine, "s", TRAIN, HOLDOUT, terms(), train_is_public=True, target="nope")
    with pytest.raises(InvalidArgument, match="two rows of train"):
        create_study(engine, "s", TRAIN, HOLDOUT, terms(), train_is_public=True, row_id="luck")


def test_an_anchor_is_written_before_the_study_or_there_is_none(database: str, quick_path: Any) -> None:
    engine = opened(database)
    make_tables(engine)
    if engine.dialect.name == "sqlite":
        for odd in (quick_path / "study.db", quick_path / "study.db-journal"):
            with pytest.raises(InvalidArgument, match="another file"):
                create_study(engine, "s", TRAIN, HOLDOUT, terms(), train_is_public=True, anchor=odd)
    nowhere = quick_path / "no" / "anchor"
    with pytest.raises(Refused, match="cannot be opened"):
        create_study(engine, "s", TRAIN, HOLDOUT, terms(), train_is_public=True, anchor=nowhere)
    guard = quick_path / "anchor"
    study, _ = create_study(engine, "s", TRAIN, HOLDOUT, terms(), train_is_public=True, anchor=guard)
    ask(Study(engine, study, guard), new_member(engine, study), "a")
    with pytest.raises(Refused, match="knows another account"):
        create_study(engine, "s", HOLDOUT, TRAIN, terms(), train_is_public=True, anchor=guard)


def test_an_old_dump_is_refused_by_the_anchor(database: str, new_postgres: Any, quick_path: Any) -> None:
    guard = quick_path / "anchor"
    study, member = ready(database, anchor=guard)
    ask(study, member, "a")
    study.engine.dispose()
    if database.startswith("sqlite"):
        old = quick_path / "old.db"
        old.write_bytes((quick_path / "study.db").read_bytes())
        url = f"sqlite:///{old}"
    else:
        url = new_postgres(make_url(database).database)
    ask(study, member, "b")
    _SEEN.clear()
    with pytest.raises(LedgerCorrupt, match="older copy"):
        Study(opened(url), study.id, guard)
    with pytest.raises(Refused, match="anchor"):
        Study(opened(url), study.id)


def test_the_role_of_a_server_asks_and_changes_no_entry(pg: Any) -> None:
    study, member = pg
    ask(study, member, "a")
    role = f"app {study.id[:6]}"
    with study.engine.begin() as connection:
        connection.exec_driver_sql(f'CREATE ROLE "{role}" LOGIN')
    grant(study.engine, role)
    url = make_url(study.engine.url).set(drivername="postgresql", username=role)
    app = opened(url.render_as_string(hide_password=False))
    assert ask(Study(app, study.id), member, "b").source == "holdout"
    with app.begin() as connection:
        revoke(connection, study.id, add_member(connection, study.id, "x", "analyst")[0].id)
        close_study(connection, study.id)
    for refused in (
        "UPDATE entries SET value = ''",
        "DELETE FROM entries",
        "TRUNCATE entries",
        "DELETE FROM questions",
        "DELETE FROM members",
        "UPDATE heads SET budget = 1000",
        "UPDATE genesis SET document = '{}'",
        "UPDATE studies SET holdout = ''",
        "UPDATE members SET cap = NULL",
        "UPDATE secrets SET salt = ''",
        "INSERT INTO genesis VALUES ('x', '{}', '')",
        "ALTER TABLE entries DISABLE TRIGGER ALL",
        "DROP TABLE entries",
    ):
        with pytest.raises(DBAPIError, match=r"permission denied|must be owner"), app.begin() as connection:
            connection.exec_driver_sql(refused)
    with pytest.raises(Refused, match="does not exist"):
        grant(study.engine, "nobody")
    assert accounted(study) == (2, 2, 0)


def test_rights_belong_to_postgresql(tmp_path: Any) -> None:
    engine = opened(f"sqlite:///{tmp_path / 's.db'}")
    make_tables(engine)
    with pytest.raises(InvalidArgument, match="PostgreSQL"):
        grant(engine, "app")


def test_a_forked_child_uses_no_session_of_its_parent(database: str) -> None:
    study, member = ready(database)
    study.store._process += 1  # as a child finds it
    with pytest.raises(Refused, match="forked"):
        ask(study, member, "a")
