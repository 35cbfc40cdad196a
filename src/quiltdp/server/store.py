"""The ledger of one study in a SQL database: the second store behind a ledger.

A visit holds the study's advisory lock from the first look to the last entry (SQLite: a lock on a file
beside the database).  Each of its two transactions must find the head where it left it: ``UPDATE heads …
WHERE seq = …`` has to touch one row, so a server that lost its session, and with it the lock, settles
nothing.  What was reserved then stays charged.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, Float, Integer, Table, cast, func, insert, select, text, update
from sqlalchemy.exc import SQLAlchemyError

from quiltdp.accountant.ledger.entries import OUTCOMES, Entry, Head, canonical, genesis_digest
from quiltdp.accountant.ledger.locks import FileLock, ThreadLock
from quiltdp.accountant.ledger.store import head_text, parse_genesis, parse_head, secret_texts
from quiltdp.accountant.ledger.visit import now
from quiltdp.errors import BudgetSpent, LedgerCorrupt, Refused
from quiltdp.server import database as db

__all__ = [
    "ASKED",
    "Asked",
    "CapReached",
    "SqlRows",
    "SqlStore",
    "StudyClosed",
    "create_account",
    "translated",
]

_FIELDS = tuple(c for c in db.entries.c if c.name != "study")


@dataclass(frozen=True)
class Asked:
    """Who asks what, under which keyed idempotency key: written down with the reservation.

    A value v of the query in [0, 1] is told as ``low`` + ``width`` · v.
    """

    member: str
    key: str
    request: str
    low: float = 0.0
    width: float = 1.0


class StudyClosed(Refused):
    """The study answers nothing any more."""


class CapReached(BudgetSpent):
    """The member has used up the answers that the owner allowed."""


ASKED: ContextVar[Asked | None] = ContextVar("asked", default=None)


def create_account(
    connection: Connection, study: str, genesis: Mapping[str, Any], salt: bytes, budget: int
) -> None:
    """Write the first rows of a study's account, in the transaction that makes the study."""
    digest = genesis_digest(genesis)
    written = canonical(genesis).decode()
    connection.execute(insert(db.genesis), {"study": study, "document": written, "digest": digest})
    threshold, nonce = secret_texts()
    secret = {"study": study, "salt": salt, "threshold": threshold, "nonce": nonce}
    connection.execute(insert(db.secrets), secret)
    zero = {"seq": 0, "answers": 0, "budget": budget, "spent": 0.0}
    connection.execute(insert(db.heads), {"study": study, "document": head_text(Head(0, digest)), **zero})


class SqlStore:
    """The account of one study; made once in a server, and used by all its threads."""

    def __init__(self, engine: Engine, study: str) -> None:
        self.engine, self.study = engine, study
        self.path = f"study {study}"
        self._process = os.getpid()
        self._threads, self._held = ThreadLock(), threading.local()
        file = engine.url.database if engine.dialect.name == "sqlite" else None
        self._others = None if file is None else FileLock(f"{os.path.realpath(file)}-lock")
        self._number = int.from_bytes(hashlib.sha256(study.encode()).digest()[:8], signed=True)

    def here(self) -> SqlStore:
        """Return this store: connections are the engine's, and none is kept between visits."""
        return self

    def close(self) -> None:
        """Nothing is open between visits."""

    @contextmanager
    def held(self, timeout: float, *, writing: bool) -> Iterator[None]:
        """Keep every other writer out, of this server and of all others, and readers while this writes."""
        if os.getpid() != self._process:  # its parent's sessions, and their locks, are not this process's
            raise Refused(f"{self.path}: this process was forked from a server; open the study anew")
        others = self._others.held(self.path, timeout, alone=writing) if self._others else nullcontext()
        with self._threads.held(self.path, timeout), others, translated(self.path):
            connection = self.engine.connect()
            try:
                if self._others is None:
                    self._lock(connection, timeout, writing)
                self._held.connection = connection
                yield
            finally:
                self._held.connection = None
                self._let_go(connection, locked=self._others is None)

    def _lock(self, connection: Connection, timeout: float, writing: bool) -> None:
        """Take the advisory lock of the study; it is the session's, and outlives transactions."""
        kind = "" if writing else "_shared"
        connection.execute(text(f"SET lock_timeout = {max(1, int(1000 * timeout))}"))  # 0: for ever
        connection.execute(text(f"SELECT pg_advisory_lock{kind}(:number)"), {"number": self._number})
        connection.commit()

    @staticmethod
    def _let_go(connection: Connection, *, locked: bool) -> None:
        try:
            if locked and not connection.invalidated:
                connection.rollback()
                connection.execute(text("SELECT pg_advisory_unlock_all()"))
                connection.commit()
        except BaseException as error:  # a session that may still have the lock goes back to no pool
            connection.invalidate()
            if not isinstance(error, SQLAlchemyError):
                raise
        finally:
            connection.close()

    @contextmanager
    def transaction(self, *, writing: bool, afresh: bool = False) -> Iterator[SqlRows]:
        """Run one all-or-nothing change inside :meth:`held`; durable when it ends without an error."""
        connection: Connection = self._held.connection
        if connection.invalidated:  # or SQLAlchemy would go on in a new session, without the lock
            raise Refused(f"{self.path}: the database ended this session")
        with translated(self.path), connection.begin():
            yield SqlRows(connection, self.study)


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Turn the database's errors into a refusal that says nothing of what was to be written."""
    try:
        yield
    except SQLAlchemyError:
        raise Refused(f"{path}: the database cannot be used now; try again") from None


class SqlRows:
    """What one transaction reads and writes of a study."""

    def __init__(self, connection: Connection, study: str) -> None:
        self._connection, self._study = connection, study

    def _one(self, table: Table, *names: str) -> tuple[Any, ...]:
        chosen = select(*(table.c[name] for name in names)).where(table.c.study == self._study)
        row = self._connection.execute(chosen).first()
        if row is None:
            raise LedgerCorrupt(f"study {self._study}: its row in {table.name!r} is missing")
        return tuple(row)

    def genesis(self) -> tuple[dict[str, Any], str]:
        """Return the genesis document and its digest, recomputed."""
        written, digest = self._one(db.genesis, "document", "digest")
        return parse_genesis(written, digest, f"study {self._study}"), digest

    def head(self) -> Head:
        """Return the stored totals."""
        (document,) = self._one(db.heads, "document")
        return parse_head(document, f"study {self._study}")

    def _entries(self, condition: Any) -> Iterator[Entry]:
        mine = (db.entries.c.study == self._study) & condition
        for row in self._connection.execute(select(*_FIELDS).where(mine).order_by(db.entries.c.seq)):
            yield Entry.read(tuple(row))

    def entries(self, after: int = 0) -> Iterator[Entry]:
        """Return the entries after a number, in order."""
        return self._entries(db.entries.c.seq > after)

    def find(self, key: str) -> Entry | None:
        """Return the entry with an idempotency key."""
        return next(self._entries(db.entries.c.key == key), None)

    def digest_at(self, seq: int) -> str | None:
        """Return the digest of an entry, of the genesis document for 0, or None."""
        if seq == 0:
            return str(self._one(db.genesis, "digest")[0])
        found = next(self._entries(db.entries.c.seq == seq), None)
        return None if found is None else found.digest

    def count_queries(self, until: int) -> int:
        """Return how many stored entries up to a number are answers."""
        answers = func.rtrim(db.entries.c.kind).in_(("train", "holdout"))
        mine = (db.entries.c.study == self._study) & (db.entries.c.seq <= until) & answers
        return int(self._connection.execute(select(func.count()).where(mine)).scalar_one())

    def secret(self) -> tuple[bytes, str, bytes]:
        """Return (salt, threshold or "", nonce)."""
        salt, threshold, nonce = self._one(db.secrets, "salt", "threshold", "nonce")
        return bytes(salt), threshold.rstrip(" "), bytes(nonce)

    def write(self, entries: Iterable[Entry], head: Head, threshold: str, nonce: bytes) -> None:
        """Append entries, move the head from where it was, replace the secret.

        Every statement has the same words and widths whatever came out: numbers travel as texts.
        """
        new, mine = list(entries), {"study": self._study}
        names = [c.name for c in _FIELDS]
        rows = [{**mine, **dict(zip(names, entry.fields(), strict=True))} for entry in new]
        self._connection.execute(insert(db.entries), rows)
        before = (db.heads.c.study == self._study) & (db.heads.c.seq == new[0].seq - 1)
        answers = cast(f"{head.answers:010d}", Integer)
        spent = cast(f"{float(head.spent):.17f}", Float)
        moved = update(db.heads).where(before).values(seq=head.seq, answers=answers, spent=spent)
        if self._connection.execute(moved.values(document=head_text(head))).rowcount != 1:
            raise Refused(f"study {self._study}: another server used the ledger in between")
        secret = dict(zip(("threshold", "nonce"), secret_texts(threshold, nonce), strict=True))
        self._connection.execute(update(db.secrets).where(db.secrets.c.study == self._study).values(**secret))
        self._note(new[0])

    def _note(self, entry: Entry) -> None:
        """Write down who asked, with the reservation; and that it was answered, with the outcome."""
        asked = ASKED.get()
        if asked is None:
            return
        if entry.kind == "reserve":
            self._require_allowed(asked)
            row = {"study": self._study, "reserved": entry.seq, **vars(asked)}
            self._connection.execute(insert(db.questions), row)
        elif entry.kind in OUTCOMES:
            mine = (db.questions.c.study == self._study) & (db.questions.c.key == asked.key)
            self._connection.execute(update(db.questions).where(mine).values(answered=entry.seq))

    def _require_allowed(self, asked: Asked) -> None:
        """Refuse, in the transaction that would charge it, what may not be charged any more.

        Rows are read locked: nobody closes the study or takes a token away until this is committed.
        """
        closed = select(db.studies.c.closed).where(db.studies.c.id == self._study)
        if self._connection.execute(closed.with_for_update(read=True)).scalar() is not None:
            raise StudyClosed("this study is closed: nothing more is answered")
        member = db.members.c
        chosen = select(member.role, member.revoked, member.expires, member.cap)
        mine = (member.id == asked.member) & (member.study == self._study)
        row = self._connection.execute(chosen.where(mine).with_for_update(read=True)).first()
        if row is None or row.revoked is not None or (row.expires is not None and row.expires <= now()):
            raise Refused("this token is taken no more: it was revoked, or has expired")
        if row.role == "auditor":
            raise Refused("an auditor reads the account and asks nothing")
        if row.cap is not None and self._used(asked.member) >= row.cap:
            raise CapReached(f"your {row.cap} answers of the holdout are used up")

    def _used(self, member: str) -> int:
        """Return how many answers of the holdout a member has used up, lost ones included."""
        of_study = db.entries.c.study == db.questions.c.study
        settled = of_study & (db.entries.c.seq == db.questions.c.answered)
        lost = db.questions.c.answered.is_(None)
        mine = (db.questions.c.study == self._study) & (db.questions.c.member == member)
        counted = select(func.count()).select_from(db.questions.outerjoin(db.entries, settled))
        return int(
            self._connection.execute(counted.where(mine & (lost | (db.entries.c.answers > 0)))).scalar_one()
        )

    def question(self, key: str) -> Mapping[Any, Any] | None:
        """Return what was written down with the reservation under a key."""
        mine = (db.questions.c.study == self._study) & (db.questions.c.key == key)
        return self._connection.execute(select(db.questions).where(mine)).mappings().first()

    def asked(self, member: str | None) -> Sequence[Mapping[Any, Any]]:
        """Return what one member asked, or everybody, in order, with who it was."""
        known = db.questions.join(db.members, db.members.c.id == db.questions.c.member)
        here = db.questions.c.study == self._study
        if member is not None:
            here &= db.questions.c.member == member
        chosen = select(db.questions, db.members.c.name.label("who")).select_from(known).where(here)
        return self._connection.execute(chosen.order_by(db.questions.c.reserved)).mappings().all()

    def make_room(self, rows: int, longest: int) -> None:
        """Leave room to the database."""

    def integrity(self) -> None:
        """Leave pages to the database; the chain of hashes covers every row."""
