"""The ledger's file: SQLite, one file, rollback journal, every commit on the disk before it returns.

Why a rollback journal and not a write-ahead log: with a log the newest entries live in a second file,
and losing that file silently forgets them.  ``synchronous=EXTRA`` also syncs the directory after the
journal is removed, so that a power cut cannot bring the journal, and the older state, back.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

from quiltdp.accountant.ledger.anchor import sync_directory
from quiltdp.accountant.ledger.entries import Entry, Head, canonical, genesis_digest
from quiltdp.errors import InvalidArgument, LedgerCorrupt, NotALedger, QuiltdpError, Refused

__all__ = ["MEMORY", "Store"]

MEMORY = ":memory:"

# Transactions under way, as (process, token).  A child that was forked in the middle of one inherits
# the entry: SQLite's lock table in its memory is then wrong, and no ledger may be used there.
_UNDER_WAY: set[tuple[int, object]] = set()

_APPLICATION_ID = 0x51445031  # "QDP1"

_SCHEMA = """
CREATE TABLE genesis (id INTEGER PRIMARY KEY CHECK (id = 1), document TEXT NOT NULL, digest TEXT NOT NULL);
CREATE TABLE entries (
  seq INTEGER PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL, share TEXT NOT NULL, value TEXT,
  key TEXT UNIQUE, request TEXT, label TEXT, commitment TEXT, digest TEXT NOT NULL);
CREATE TABLE head (
  id INTEGER PRIMARY KEY CHECK (id = 1), seq INTEGER NOT NULL, digest TEXT NOT NULL, spent TEXT NOT NULL,
  answers INTEGER NOT NULL, queries INTEGER NOT NULL, refused INTEGER NOT NULL, commitment TEXT);
CREATE TABLE secret (
  id INTEGER PRIMARY KEY CHECK (id = 1), salt BLOB NOT NULL, threshold TEXT, nonce BLOB);
CREATE TRIGGER entries_stay BEFORE UPDATE ON entries
  BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END;
CREATE TRIGGER entries_last BEFORE DELETE ON entries
  BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END;
"""


class Store:
    """Rows in and out of the file; it knows nothing of privacy.

    One connection per process.  A forked child opens its own; the child of a process with an
    in-memory ledger is refused, because two copies of one budget would both be spent.
    """

    def __init__(self, path: str | Path, timeout: float) -> None:
        self.path = str(path)
        self.timeout = timeout
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._connection: sqlite3.Connection | None = None

    # -- life ------------------------------------------------------------------------------

    @classmethod
    def create(cls, path: str | Path, genesis: Mapping[str, Any], salt: bytes, *, timeout: float) -> Store:
        """Make a ledger file that appears complete or not at all; refuse to replace an existing one."""
        store = cls(path, timeout)
        if store.path == MEMORY:
            store._initialise(store._open(MEMORY), genesis, salt)
            return store
        target = Path(store.path)
        temporary = target.with_name(f"{target.name}.{uuid.uuid4().hex}.new")
        try:
            _claim(temporary, target)
            connection = store._open(str(temporary))
            store._initialise(connection, genesis, salt)
            store.close()
            _publish(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
        sync_directory(target.parent)
        return store

    def _initialise(self, connection: sqlite3.Connection, genesis: Mapping[str, Any], salt: bytes) -> None:
        digest = genesis_digest(genesis)
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.executescript(f"BEGIN IMMEDIATE;{_SCHEMA}")
        text = canonical(genesis).decode()
        connection.execute("INSERT INTO genesis VALUES (1, ?, ?)", (text, digest))
        connection.execute("INSERT INTO secret VALUES (1, ?, NULL, NULL)", (salt,))
        connection.execute("INSERT INTO head VALUES (1, 0, ?, '0', 0, 0, 0, NULL)", (digest,))
        connection.execute("COMMIT")

    def _open(self, where: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            where, timeout=self.timeout, isolation_level=None, check_same_thread=False
        )
        for setting in (
            "journal_mode = DELETE",
            "synchronous = EXTRA",
            "secure_delete = ON",
            "trusted_schema = OFF",
        ):
            connection.execute(f"PRAGMA {setting}")
        self._connection, self._pid = connection, os.getpid()
        return connection

    def connection(self) -> sqlite3.Connection:
        """Return this process's connection."""
        self._notice_fork()
        if self._connection is not None:
            return self._connection
        self._check_kind()
        return self._open(self.path)

    def _check_kind(self) -> None:
        """Refuse by its first bytes what is no ledger: SQLite would change another database's settings."""
        if os.path.isdir(self.path):
            raise NotALedger(f"{self.path}: this is a directory, not a quiltdp ledger")
        try:
            with open(self.path, "rb") as file:
                head = file.read(72)
        except FileNotFoundError:
            raise LedgerCorrupt(
                f"{self.path}: the ledger file is gone; restore it before asking anything"
            ) from None
        except OSError as error:
            raise Refused(f"{self.path}: the ledger cannot be opened: {error.strerror}") from None
        if not head:
            raise NotALedger(
                f"{self.path}: this file is empty, not a quiltdp ledger; if it was one, restore a copy"
            )
        if not head.startswith(b"SQLite format 3\0"):
            raise NotALedger(f"{self.path}: this is not a quiltdp ledger")
        if int.from_bytes(head[68:72], "big") != _APPLICATION_ID:
            raise NotALedger(f"{self.path}: this is a database, but not a quiltdp ledger")

    def _notice_fork(self) -> None:
        """In a forked child, leave the parent's connection and lock alone."""
        if any(process != os.getpid() for process, _ in tuple(_UNDER_WAY)):
            raise Refused(
                f"{self.path}: this process was forked while its parent was using a ledger;"
                " start processes between questions, or with the spawn method"
            )
        if self._pid == os.getpid():
            return
        if self.path == MEMORY:
            raise Refused("an in-memory ledger cannot be used by a second process: give it a file")
        self._lock = threading.RLock()  # another thread of the parent may have held it at the fork
        self._connection, self._pid = None, os.getpid()

    def close(self) -> None:
        """Close this process's connection."""
        if self._connection is not None and self._pid == os.getpid():
            self._connection.close()
        self._connection = None

    @contextmanager
    def transaction(self, mode: str = "IMMEDIATE") -> Iterator[sqlite3.Connection]:
        """Hold the file for one all-or-nothing change; on the disk when this returns."""
        self._notice_fork()
        token = (os.getpid(), object())
        with self._translated(), self._lock:
            connection = self.connection()
            _UNDER_WAY.add(token)
            try:
                connection.execute(f"BEGIN {mode}")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            finally:
                _UNDER_WAY.discard(token)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except QuiltdpError:
            raise
        except sqlite3.OperationalError as error:
            if "locked" in str(error) or "busy" in str(error):
                raise Refused(
                    f"{self.path}: other processes held the ledger for {self.timeout:g} s; try again"
                ) from None
            if "no such" in str(error):
                raise LedgerCorrupt(f"{self.path}: the file is damaged ({error})") from None
            raise Refused(f"{self.path}: the ledger cannot be used now: {error}") from None
        except sqlite3.DatabaseError as error:
            raise LedgerCorrupt(f"{self.path}: the file is damaged ({error})") from None

    # -- rows ------------------------------------------------------------------------------

    def genesis(self, connection: sqlite3.Connection) -> tuple[dict[str, Any], str]:
        """Return the genesis document and its digest, recomputed."""
        row = connection.execute("SELECT document, digest FROM genesis").fetchone()
        try:
            document = json.loads(row[0])
        except (TypeError, ValueError):
            raise LedgerCorrupt(f"{self.path}: the genesis document cannot be read") from None
        digest = genesis_digest(document)
        if digest != row[1]:
            raise LedgerCorrupt(f"{self.path}: the genesis document was changed")
        return document, digest

    def head(self, connection: sqlite3.Connection) -> Head:
        """Return the stored totals."""
        row = connection.execute(
            "SELECT seq, digest, spent, answers, queries, refused, commitment FROM head"
        ).fetchone()
        try:
            return Head(
                int(row[0]), str(row[1]), Fraction(row[2]), int(row[3]), int(row[4]), int(row[5]), row[6]
            )
        except (TypeError, ValueError, ZeroDivisionError):
            raise LedgerCorrupt(f"{self.path}: the head of the ledger cannot be read") from None

    def entries(self, connection: sqlite3.Connection, after: int = 0) -> Iterator[Entry]:
        """Return the entries after a number, in order."""
        rows = connection.execute(
            "SELECT seq, time, kind, share, value, key, request, label, commitment, digest"
            " FROM entries WHERE seq > ? ORDER BY seq",
            (after,),
        )
        for row in rows:
            yield Entry.read(row)

    def find(self, connection: sqlite3.Connection, key: str) -> Entry | None:
        """Return the entry with an idempotency key."""
        row = connection.execute(
            "SELECT seq, time, kind, share, value, key, request, label, commitment, digest"
            " FROM entries WHERE key = ?",
            (key,),
        ).fetchone()
        return None if row is None else Entry.read(row)

    def count_queries(self, connection: sqlite3.Connection, until: int) -> int:
        """Return how many stored entries up to a number are answers."""
        row = connection.execute(
            "SELECT COUNT(*) FROM entries WHERE seq <= ? AND kind IN ('train', 'holdout')", (until,)
        ).fetchone()
        return int(row[0])

    def secret(self, connection: sqlite3.Connection) -> tuple[bytes, str | None, bytes | None]:
        """Return (salt, threshold, nonce)."""
        row = connection.execute("SELECT salt, threshold, nonce FROM secret").fetchone()
        if row is None or not isinstance(row[0], bytes):
            raise LedgerCorrupt(f"{self.path}: the ledger's secret is missing")
        return row[0], row[1], row[2]

    def write(
        self,
        connection: sqlite3.Connection,
        entries: Iterable[Entry],
        head: Head,
        secret: tuple[str | None, bytes | None] | None,
    ) -> None:
        """Append entries, move the head, replace the secret if one is given."""
        connection.executemany(
            "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", [e.fields() for e in entries]
        )
        connection.execute(
            "UPDATE head SET seq = ?, digest = ?, spent = ?, answers = ?, queries = ?, refused = ?,"
            " commitment = ?",
            (
                head.seq,
                head.digest,
                str(head.spent),
                head.answers,
                head.queries,
                head.refused,
                head.commitment,
            ),
        )
        if secret is not None:
            connection.execute("UPDATE secret SET threshold = ?, nonce = ?", secret)

    def integrity(self, connection: sqlite3.Connection) -> None:
        """Refuse a file whose pages are damaged."""
        found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if found != "ok":
            raise LedgerCorrupt(f"{self.path}: the file is damaged ({found})")


def _claim(temporary: Path, target: Path) -> None:
    """Make the empty file, for its owner only, or say why ``target`` cannot be made there."""
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except OSError as error:
        raise InvalidArgument(f"{target}: the ledger cannot be made here ({error.strerror})") from None


def _publish(temporary: Path, target: Path) -> None:
    """Give a finished file its name; never replace a file that is there."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        temporary.replace(target)
