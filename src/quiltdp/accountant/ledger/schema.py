"""The tables of a ledger file, and the check that a file has these and nothing else.

A trigger or a view that somebody added runs whenever the ledger is written; a missing trigger lets
entries be changed by accident.  So the schema is compared word by word.
"""

from __future__ import annotations

import sqlite3
from functools import lru_cache

from quiltdp.errors import LedgerCorrupt, NotALedger

__all__ = ["APPLICATION_ID", "SCHEMA", "VERSION", "check_kind", "check_schema"]

APPLICATION_ID = 0x51445031  # "QDP1"
VERSION = 2

SCHEMA = """
CREATE TABLE genesis (id INTEGER PRIMARY KEY CHECK (id = 1), document TEXT NOT NULL, digest TEXT NOT NULL);
CREATE TABLE entries (
  seq INTEGER PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL, share TEXT NOT NULL,
  count INTEGER NOT NULL, answers INTEGER NOT NULL, value TEXT NOT NULL,
  key TEXT UNIQUE, request TEXT, label TEXT, commitment TEXT NOT NULL, digest TEXT NOT NULL);
CREATE TABLE head (id INTEGER PRIMARY KEY CHECK (id = 1), document TEXT NOT NULL);
CREATE TABLE secret (
  id INTEGER PRIMARY KEY CHECK (id = 1), salt BLOB NOT NULL, threshold TEXT NOT NULL, nonce BLOB NOT NULL);
CREATE TABLE room (id INTEGER PRIMARY KEY CHECK (id = 1), empty BLOB NOT NULL);
CREATE TRIGGER entries_stay BEFORE UPDATE ON entries
  BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END;
CREATE TRIGGER entries_last BEFORE DELETE ON entries
  BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END;
"""

_QUERY = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"


@lru_cache(maxsize=1)
def _expected() -> list[tuple[str, ...]]:
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(SCHEMA)
        return connection.execute(_QUERY).fetchall()
    finally:
        connection.close()


def check_kind(connection: sqlite3.Connection, path: str) -> None:
    """Refuse what is no ledger, or one of another version; nothing in the file is changed by looking.

    The header is read by SQLite and never by ``open()``, see :mod:`quiltdp.accountant.ledger.locks`.
    """
    try:
        kind = connection.execute("PRAGMA application_id").fetchone()[0]
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.DatabaseError as error:
        if "not a database" in str(error):
            raise NotALedger(f"{path}: this is not a quiltdp ledger") from None
        raise
    if pages == 0:
        raise NotALedger(f"{path}: this file is empty, not a quiltdp ledger; if it was one, restore a copy")
    if kind != APPLICATION_ID:
        raise NotALedger(f"{path}: this is a database, but not a quiltdp ledger")
    if version in (0, 1):
        raise LedgerCorrupt(
            f"{path}: this ledger was made by an older version of quiltdp (format 1) and is not changed;"
            " end the study with that version, or calibrate what it has not spent for a new ledger"
        )
    if version != VERSION:
        raise LedgerCorrupt(
            f"{path}: ledger format {version}, this version of quiltdp reads {VERSION}; install a newer one"
        )


def check_schema(connection: sqlite3.Connection, path: str) -> None:
    """Refuse a file whose tables, indexes or triggers are not exactly those of a ledger."""
    objects = connection.execute(_QUERY).fetchall()
    if objects == _expected():
        return
    ours = {row[1]: row for row in _expected()}
    names = {row[1]: row for row in objects}
    odd = next((n for n in [*names, *ours] if names.get(n) != ours.get(n)), "?")
    what = "was added" if odd not in ours else "is missing" if odd not in names else "was changed"
    raise LedgerCorrupt(f"{path}: the schema was changed: {odd!r} {what}")
