"""Studies for tests: a calibration made by hand, and two columns of which one is luck."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event, insert

from quiltdp.accountant.ledger import Ledger, Terms
from quiltdp.accountant.ledger.anchor import Anchor
from quiltdp.accountant.ledger.entries import genesis_digest
from quiltdp.accountant.ledger.ledger import new_genesis
from quiltdp.mechanisms import Thresholdout
from quiltdp.server import database as db
from quiltdp.server.asking import Receipt, Study
from quiltdp.server.database import make_tables, opened
from quiltdp.server.questions import ExpressionQuestion
from quiltdp.server.store import SqlStore, create_account
from quiltdp.server.studies import Member, add_member, create_study, find_member

TRAIN = {"id": ["a", "b"], "luck": ["0.9", "0.9"], "skill": ["0.9", "0.9"], "ill": ["1", "0"]}
HOLDOUT = {"id": ["c", "d"], "luck": ["0.4", "0.4"], "skill": ["0.9", "0.9"], "ill": ["0", "0"]}
LUCK, SKILL = ExpressionQuestion("luck"), ExpressionQuestion("skill")  # the first costs, the second does not


def terms(budget: int = 5, **fields: Any) -> dict[str, Any]:
    """Return what a study is made from: noise that decides nothing, for two rows."""
    spec = Thresholdout(budget, 0.5)
    made = Terms(spec, spec.scale(5e4), 1e5, 5e4, 0.0, "informed", "test", "f" * 64)
    return {"calibration": made, "threshold": 0.2, "failure": 0.05, "queries": None, **fields}


def new_study(url: str, budget: int = 5, **options: Any) -> tuple[Engine, str, str]:
    """Make a study; return its engine, its id and the owner's token."""
    engine = opened(url)
    make_tables(engine)
    train, holdout = options.pop("train", TRAIN), options.pop("holdout", HOLDOUT)
    options = {"train_is_public": True, **options}
    return engine, *create_study(engine, "study", train, holdout, terms(budget), **options)


def new_member(engine: Engine, study: str, role: str = "analyst", **options: Any) -> Member:
    """Add a member of a study."""
    with engine.begin() as connection:
        token = add_member(connection, study, f"{role} {os.urandom(3).hex()}", role, **options)[1]
        found = find_member(connection, token)
    assert found is not None
    return found


def ready(url: str, budget: int = 5, **options: Any) -> tuple[Study, Member]:
    """Return a new study as a server has it, and an analyst of it."""
    engine, study, _ = new_study(url, budget, **options)
    return Study(engine, study, options.get("anchor")), new_member(engine, study)


def sql_ledger(url: str, calibration: Any, anchor: Any = None) -> Ledger:
    """Return a ledger in a SQL database, without a study around it."""
    engine = opened(url)
    make_tables(engine)
    genesis, salt = new_genesis(calibration, None, anchor is not None)
    study = str(genesis["id"])
    row = {
        "id": study,
        "name": "",
        "identity": study,
        "created": "",
        "facts": "{}",
        "train": b"",
        "holdout": b"",
    }
    with engine.begin() as connection:
        connection.execute(insert(db.studies), row)
        create_account(connection, study, genesis, salt, 1000)
    if anchor is not None:
        Anchor(anchor).advance(study, 0, genesis_digest(genesis))
    return Ledger(SqlStore(engine, study), None if anchor is None else Anchor(anchor))


class Stop(BaseException):
    """What a test raises in the middle of everything."""


@contextmanager
def stopped_at(engine: Engine, number: int, stop: Callable[[], None]) -> Iterator[Callable[[], int]]:
    """Call ``stop`` before the statement of this number, from 0; what is yielded counts statements."""
    seen = [0]

    def before(*_: Any) -> None:
        seen[0] += 1
        if seen[0] == number + 1:
            stop()

    event.listen(engine, "before_cursor_execute", before)
    event.listen(engine, "commit", before)
    try:
        yield lambda: seen[0]
    finally:
        event.remove(engine, "before_cursor_execute", before)
        event.remove(engine, "commit", before)


def ask(study: Study, member: Member, key: str, question: Any = LUCK) -> Receipt:
    return study.ask(member, question, key)
