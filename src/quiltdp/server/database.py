"""The tables of a database of studies, and the engine that opens it.

``sqlite:///study.db`` is one file for one server; ``postgresql://…`` is shared by several.  Entries are
append-only: a trigger refuses to change or delete one, and the role of an app server has no right to.
The last guard is a CHECK: no account can be written that has used more than its answers or its privacy.
"""

from __future__ import annotations

import sqlite3
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
    text,
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
    trigger = DDL(_PLAIN.format(when=when, event=what)).execute_if(dialect="sqlite")
    event.listen(entries, "after_create", trigger)
for statement in (_REFUSE, _TRIGGER):
    event.listen(entries, "after_create", DDL(statement).execute_if(dialect="postgresql"))

# What an app server may do; nobody but the owner of the database may do more.
_RIGHTS = {
    "SELECT": metadata.tables.values(),
    "INSERT": (members, sessions, entries, questions),
    "UPDATE": (studies, members, heads, secrets, questions),
    "DELETE": (sessions,),
}


def opened(url: str) -> Engine:
    """Return the engine of a database; nothing is made or changed.

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
        engine = create_engine(address.set(drivername="postgresql+psycopg"), hide_parameters=True)
        event.listen(engine, "connect", _durable)
        return engine
    if address.database in (None, "", ":memory:"):
        raise InvalidArgument(f"{option('database')} {url!r}: name a file, sqlite:///study.db")
    engine = create_engine(address, hide_parameters=True, connect_args={"timeout": 60})
    event.listen(engine, "connect", _careful)
    event.listen(engine, "begin", _begun)
    return engine


def _durable(connection: Any, _: object) -> None:
    connection.autocommit = True
    connection.execute("SET synchronous_commit = on")
    connection.autocommit = False


def _careful(connection: sqlite3.Connection, _: object) -> None:
    connection.isolation_level = None  # transactions begin where SQLAlchemy says so
    for setting in ("foreign_keys = ON", "synchronous = EXTRA", "secure_delete = ON", "trusted_schema = OFF"):
        connection.execute(f"PRAGMA {setting}")


def _begun(connection: Any) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def make_tables(engine: Engine) -> None:
    """Make the tables that are not there yet."""
    try:
        metadata.create_all(engine)
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
                connection.execute(text(f"GRANT {right} ON {listed} TO {name}"))
    except DBAPIError as error:
        raise Refused(f"{shown(engine)}: {_first_line(error)}") from None


def shown(engine: Engine) -> str:
    """Return the address of a database, without a password."""
    return engine.url.render_as_string(hide_password=True)


def _first_line(error: DBAPIError) -> str:
    return str(error.orig).splitlines()[0]
