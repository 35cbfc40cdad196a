"""The tables of a database of studies, and the engine that opens it.

``sqlite:///study.db`` is one file for one server; ``postgresql://…`` is shared by several.  Entries are
append-only: a trigger refuses to change or delete one, and the role of an app server has no right to.
The last guard is a CHECK: no account can be written that has used more than its answers or its privacy.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import (
    DDL,
    CheckConstraint,
    Column,
    Engine,
    Float,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    create_engine,
    event,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from quiltdp.errors import InvalidArgument, Refused, option

__all__ = ["grant", "make_tables", "opened"]

metadata = MetaData()


def _of_study(**options: Any) -> Column[str]:
    return Column("study", String(32), ForeignKey("studies.id"), **options)


studies = Table(
    "studies",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("name", Text, nullable=False),
    Column("identity", String(64), nullable=False, unique=True),  # one account per data set
    Column("created", Text, nullable=False),
    Column("closed", Text),
    Column("facts", Text, nullable=False),  # JSON: what is promised, against whom, what is assumed
    Column("train", LargeBinary, nullable=False),
    Column("holdout", LargeBinary, nullable=False),
)
members = Table(
    "members",
    metadata,
    Column("id", String(16), primary_key=True),
    _of_study(nullable=False),
    Column("name", Text, nullable=False),
    Column("role", String(8), nullable=False),
    Column("token", String(64), nullable=False, unique=True),  # SHA-256 of 256 random bits
    Column("created", Text, nullable=False),
    Column("expires", Text),
    Column("revoked", Text),
    Column("cap", Integer),  # answers of the holdout that this member may use up
    CheckConstraint("role IN ('owner', 'analyst', 'auditor')"),
)
sessions = Table(
    "sessions",
    metadata,
    Column("id", String(64), primary_key=True),  # SHA-256 of the cookie
    Column("member", String(16), ForeignKey("members.id"), nullable=False),
    Column("csrf", String(64), nullable=False),
    Column("expires", Text, nullable=False),
)
genesis = Table(
    "genesis",
    metadata,
    _of_study(primary_key=True),
    Column("document", Text, nullable=False),
    Column("digest", String(64), nullable=False),
)
entries = Table(
    "entries",
    metadata,
    _of_study(primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("time", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("share", Text, nullable=False),
    Column("count", Integer, nullable=False),
    Column("answers", Integer, nullable=False),
    Column("value", Text, nullable=False),
    Column("key", String(64)),
    Column("request", String(64)),
    Column("label", Text),
    Column("commitment", Text, nullable=False),
    Column("digest", String(64), nullable=False),
    UniqueConstraint("study", "key"),
)
heads = Table(
    "heads",
    metadata,
    _of_study(primary_key=True),
    Column("seq", Integer, nullable=False),
    Column("answers", Integer, nullable=False),
    Column("budget", Integer, nullable=False),
    Column("spent", Float, nullable=False),
    Column("document", Text, nullable=False),
    CheckConstraint("answers <= budget", name="answers_within_budget"),
    CheckConstraint("spent <= 1", name="privacy_within_budget"),
)
secrets = Table(
    "secrets",
    metadata,
    _of_study(primary_key=True),
    Column("salt", LargeBinary, nullable=False),
    Column("threshold", Text, nullable=False),
    Column("nonce", LargeBinary, nullable=False),
)
questions = Table(
    "questions",
    metadata,
    _of_study(primary_key=True),
    Column("key", String(64), primary_key=True),  # keyed, as in the entries
    Column("request", String(64), nullable=False),
    Column("member", String(16), ForeignKey("members.id"), nullable=False),
    Column("reserved", Integer, nullable=False),  # the entry that charged it
    Column("low", Float, nullable=False),  # a value v of the query is told as low + width · v
    Column("width", Float, nullable=False),
    Column("answered", Integer),  # the entry that settled it; none: charged, never told
)

_PLAIN = """
CREATE TRIGGER entries_{when} BEFORE {event} ON entries
BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END
"""
_REFUSE = """
CREATE OR REPLACE FUNCTION entries_are_append_only() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'entries are append-only'; END $$
"""
_TRIGGER = """
CREATE TRIGGER entries_stay BEFORE UPDATE OR DELETE OR TRUNCATE ON entries
EXECUTE FUNCTION entries_are_append_only()
"""
for when, what in (("stay", "UPDATE"), ("last", "DELETE")):
    trigger = DDL(_PLAIN.format(when=when, event=what))  # type: ignore[no-untyped-call]
    event.listen(entries, "after_create", trigger.execute_if(dialect="sqlite"))
for statement in (_REFUSE, _TRIGGER):
    trigger = DDL(statement)  # type: ignore[no-untyped-call]
    event.listen(entries, "after_create", trigger.execute_if(dialect="postgresql"))

# What an app server may do; nobody but the owner of the database may do more.
_RIGHTS = {
    "SELECT": metadata.tables.values(),
    "INSERT": (members, sessions, entries, questions),
    "UPDATE (closed)": (studies,),
    "UPDATE (revoked)": (members,),
    "UPDATE (seq, answers, spent, document)": (heads,),
    "UPDATE (threshold, nonce)": (secrets,),
    "UPDATE (answered)": (questions,),
    "DELETE": (sessions,),
}

# A server that vanished gives its lock back within half a minute: nobody waits two hours for TCP to notice.
_SESSION = (
    "synchronous_commit = on",
    "tcp_keepalives_idle = 10",
    "tcp_keepalives_interval = 5",
    "tcp_keepalives_count = 4",
)


def opened(url: str) -> Engine:
    """Return the engine of a database, ``sqlite:///FILE`` or ``postgresql://…``; nothing is made or changed.

    Raises
    ------
    InvalidArgument
        For an address that is neither SQLite's nor PostgreSQL's.
    """
    try:
        address = make_url(url)
    except ArgumentError:
        address = None
    if address is None or address.get_backend_name() not in ("sqlite", "postgresql"):
        raise InvalidArgument(f"{option('database')} must be sqlite:///FILE or postgresql://…, not {url!r}")
    if address.get_backend_name() == "postgresql":
        engine = create_engine(
            address.set(drivername="postgresql+psycopg"),
            hide_parameters=True,
            pool_size=20,  # for as many threads: none is opened for one question
            pool_pre_ping=True,  # a session that ended in the pool is replaced before anything is begun in it
            connect_args={"connect_timeout": 10},
        )
        event.listen(engine, "connect", _durable)
        return engine
    if address.database in (None, "", ":memory:"):
        raise InvalidArgument(f"{option('database')} {url!r}: name a file, sqlite:///study.db")
    engine = create_engine(address, hide_parameters=True, creator=partial(_careful, address.database))
    event.listen(engine, "begin", _begun)
    return engine


def _durable(connection: Any, _: object) -> None:
    connection.autocommit = True
    for setting in _SESSION:
        connection.execute(f"SET {setting}")
    connection.autocommit = False


def _careful(file: str) -> sqlite3.Connection:
    """Open a file that is there; transactions begin where SQLAlchemy says so."""
    if not os.path.isfile(file):
        raise InvalidArgument(f"{file}: there is no database here; make one with 'quiltdp study create'")
    where = f"{Path(os.path.abspath(file)).as_uri()}?mode=rw"
    connection = sqlite3.connect(where, uri=True, timeout=60, isolation_level=None, check_same_thread=False)
    for setting in ("foreign_keys = ON", "synchronous = EXTRA", "secure_delete = ON", "trusted_schema = OFF"):
        connection.execute(f"PRAGMA {setting}")
    return connection


def _begun(connection: Any) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def make_tables(engine: Engine) -> None:
    """Make the tables that are not there yet; a file is for its owner only, because it holds the holdout."""
    try:
        if engine.dialect.name == "sqlite":
            with suppress(FileExistsError):  # opening one that is there could drop this process's locks of it
                os.close(os.open(str(engine.url.database), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        metadata.create_all(engine)
    except OSError as error:
        raise InvalidArgument(
            f"{engine.url.database}: the database cannot be made ({error.strerror})"
        ) from None
    except DBAPIError as error:
        raise Refused(f"{shown(engine)}: the tables cannot be made ({_first_line(error)})") from None


def grant(engine: Engine, role: str) -> None:
    """Give the role of an app server its rights, on PostgreSQL: entries are inserted, never changed."""
    if engine.dialect.name != "postgresql":
        raise InvalidArgument(f"{option('role')} belongs to PostgreSQL: a file has the rights of its owner")
    name = engine.dialect.identifier_preparer.quote(role)
    try:
        with engine.begin() as connection:
            for right, tables in _RIGHTS.items():
                listed = ", ".join(table.name for table in tables)
                connection.exec_driver_sql(f"GRANT {right} ON {listed} TO {name}")
    except DBAPIError as error:
        raise Refused(f"{shown(engine)}: {_first_line(error)}") from None


def shown(engine: Engine) -> str:
    """Return the address of a database, without a password."""
    return engine.url.render_as_string(hide_password=True)


def _first_line(error: DBAPIError) -> str:
    return str(error.orig).splitlines()[0]
