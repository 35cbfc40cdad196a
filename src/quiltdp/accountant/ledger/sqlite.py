"""The ledger's file: SQLite, one file, rollback journal, every commit on the disk before it returns.

Why a rollback journal and not a write-ahead log: with a log the newest entries live in a second file,
and losing that file silently forgets them.  ``synchronous=EXTRA`` also syncs the directory after the
journal is removed, so that a power cut cannot bring the journal, and the older state, back.

A process has one store per file, whatever the number of threads, :class:`quiltdp.Ledger` objects and
names that lead to the file, and nothing but SQLite opens the file (:mod:`.locks` says why).

A trigger or a view that somebody added runs whenever the ledger is written; a missing trigger lets
entries be changed by accident.  So the schema is compared word by word.
"""

from __future__ import annotations

import ctypes
import hmac
import json
import os
import sqlite3
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary, finalize

from quiltdp.accountant.ledger.anchor import sync_directory
from quiltdp.accountant.ledger.entries import Entry, Head, canonical, genesis_digest
from quiltdp.accountant.ledger.interrupts import uninterrupted
from quiltdp.accountant.ledger.locks import FileLock, ThreadLock, refuse_after_fork, under_way
from quiltdp.accountant.ledger.requests import keyed
from quiltdp.accountant.ledger.store import (
    MEMORY,
    VERSION,
    head_text,
    parse_genesis,
    parse_head,
    secret_texts,
)
from quiltdp.errors import InvalidArgument, LedgerCorrupt, NotALedger, QuiltdpError, Refused

__all__ = ["SCHEMA", "SQLiteStore", "other_account"]

_PATIENCE = 60.0  # seconds, where nobody said how many

_ENTRIES = (
    "SELECT seq, time, kind, share, count, answers, value, key, request, label, commitment, digest"
    " FROM entries"
)

APPLICATION_ID = 0x51445031  # "QDP1"

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

_PAGE = 4096  # SQLite's; a ledger is made of whole pages, at least one for each of its tables
_MOST_FILES = 2000

_STORES: dict[int, tuple[ThreadLock, WeakValueDictionary[tuple[int, int], SQLiteStore]]] = {}
_CONNECTIONS: dict[int, sqlite3.Connection] = {}  # open ones, by id, until they are let go


def _registry() -> tuple[ThreadLock, WeakValueDictionary[tuple[int, int], SQLiteStore]]:
    """Return this process's stores by file; a forked child starts with none, and with a free lock."""
    return _STORES.setdefault(os.getpid(), (ThreadLock(), WeakValueDictionary()))


def _closed_with(store: SQLiteStore, connection: sqlite3.Connection) -> finalize[Any, SQLiteStore]:
    """Have a connection closed when its store is gone.

    Not by ``__del__``: another thread that asks for the file meanwhile could still be given the dying
    store, its connection closed.  A finalizer runs when no weak reference leads to the store any more.
    """
    if hasattr(os, "register_at_fork") and not _FORK_HOOK.is_set():
        _FORK_HOOK.set()
        os.register_at_fork(after_in_child=_keep_for_ever)
    _CONNECTIONS[id(connection)] = connection
    ending = finalize(store, _close, connection, os.getpid())
    ending.atexit = False  # a daemon thread may be in the middle of something
    return ending


def _close(connection: sqlite3.Connection, process: int) -> None:
    if os.getpid() == process:
        with uninterrupted(), under_way():
            connection.close()
        _CONNECTIONS.pop(id(connection), None)


_FORK_HOOK = threading.Event()


def _keep_for_ever() -> None:
    """In a forked child: never close the parent's connections, not even when the child ends.

    Closing one in the middle of the parent's transaction would roll that back, on the disk, even
    after the parent has committed it: the child has the journal open.
    """
    for connection in _CONNECTIONS.copy().values():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
    _CONNECTIONS.clear()


class SQLiteStore:
    """Rows in and out of the file; it knows nothing of privacy.  Made by :meth:`at` and :meth:`create`."""

    def __init__(self, path: str, file: tuple[int, int] | None) -> None:
        self.path = path
        self.file = file
        self.pid = os.getpid()
        self._threads = ThreadLock()
        self._others = None if path == MEMORY else FileLock(f"{path}-lock")
        self._connection: sqlite3.Connection | None = None
        self._let_go: finalize[Any, SQLiteStore] | None = None
        self._schema_version: int | None = None
        self._timeout = _PATIENCE

    # -- life ------------------------------------------------------------------------------

    @classmethod
    def at(cls, path: str | Path) -> SQLiteStore:
        """Return this process's one store for the file that a path leads to."""
        refuse_after_fork(str(path))
        real = os.path.realpath(path)
        file = identity(real, str(path))
        lock, stores = _registry()
        with lock.held(str(path), _PATIENCE):
            found = stores.get(file)
            if found is None:
                found = stores[file] = cls(real, file)
        if found.path != real:
            found._follow(real)
        return found

    def _follow(self, path: str) -> None:
        """Take the file's new name: the journal and the lock must be beside it."""
        self.close()
        self.path, self._others = path, FileLock(f"{path}-lock")

    @classmethod
    def create(cls, path: str | Path, genesis: Mapping[str, Any], salt: bytes) -> SQLiteStore:
        """Make a ledger file that appears complete or not at all; refuse to replace an existing one."""
        refuse_after_fork(str(path))
        if str(path) == MEMORY:
            store = cls(MEMORY, None)
            _initialise(store._own(), genesis, salt)
            return store
        target = Path(os.path.realpath(path))
        temporary = target.with_name(f"{target.name}.{uuid.uuid4().hex}.new")
        try:
            _claim(temporary, target)
            FileLock(f"{target}-lock").make()
            with _translated(str(path)):
                connection = sqlite3.connect(temporary, isolation_level=None)
                try:
                    _initialise(connection, genesis, salt)
                finally:
                    connection.close()
            _publish(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
            Path(f"{temporary}-journal").unlink(missing_ok=True)
        sync_directory(target.parent)
        return cls.at(target)

    def _connected(self, where: str) -> sqlite3.Connection:
        """Open the file, look at what it is, and only then change any setting."""
        connection = sqlite3.connect(
            where, uri=where != MEMORY, timeout=self._timeout, isolation_level=None, check_same_thread=False
        )
        try:
            if where != MEMORY:
                _check_kind(connection, self.path)
                mode = connection.execute("PRAGMA journal_mode = DELETE").fetchone()[0]
                if mode != "delete":
                    raise Refused(f"{self.path}: the journal cannot be set to 'delete', it is {mode!r}")
            for setting in ("synchronous = EXTRA", "secure_delete = ON", "trusted_schema = OFF"):
                connection.execute(f"PRAGMA {setting}")
            connection.execute("PRAGMA temp_store = MEMORY")
        except BaseException:
            connection.close()
            raise
        return connection

    def _own(self) -> sqlite3.Connection:
        """Return this process's connection; the caller holds the thread lock."""
        if self._connection is None:
            memory = self.path == MEMORY
            made = self._connected(MEMORY if memory else f"{Path(self.path).as_uri()}?mode=rw")
            self._connection, self._let_go = made, _closed_with(self, made)
            self._schema_version = None
        return self._connection

    def here(self) -> SQLiteStore:
        """Return the store of this process: in a forked child the child's own, of a file."""
        return self if self.pid == os.getpid() or self.path == MEMORY else SQLiteStore.at(self.path)

    def close(self) -> None:
        """Close this process's connection; the next use opens it again."""
        if self.pid != os.getpid() or self.path == MEMORY:
            return
        with self._threads.held(self.path, self._timeout):
            if self._let_go is not None:
                self._let_go()
            self._connection = None

    def check_name(self) -> None:
        """Refuse when the name now leads to another file than the one opened, or the file has two."""
        if self.path != MEMORY and identity(self.path, self.path) != self.file:
            raise LedgerCorrupt(f"{self.path}: the ledger file was exchanged while in use; open it again")

    # -- transactions ----------------------------------------------------------------------

    @contextmanager
    def held(self, timeout: float, *, writing: bool) -> Iterator[None]:
        """Keep other threads out, and other processes from writing, or from reading too if this writes."""
        if self.pid != os.getpid():
            raise Refused(f"{self.path}: an in-memory ledger cannot be used by a second process")
        others = self._others.held(self.path, timeout, alone=writing) if self._others else nullcontext()
        with self._threads.held(self.path, timeout), others:
            self._timeout = timeout
            try:
                yield
            finally:
                self._roll_back()

    @contextmanager
    def transaction(self, *, writing: bool, afresh: bool = False) -> Iterator[SQLiteRows]:
        """Run one all-or-nothing change inside :meth:`held`; on the disk when this returns.

        ``afresh`` reads every page from the disk, and none that this process still remembers.
        """
        with _translated(self.path):
            self.check_name()
            connection = self._own()
            if afresh:
                connection.execute("PRAGMA shrink_memory")
                self._schema_version = None
            connection.execute(f"PRAGMA busy_timeout = {int(1000 * self._timeout)}")
            self._roll_back()
            try:
                connection.execute("BEGIN IMMEDIATE" if writing else "BEGIN DEFERRED")
                self._check_schema(connection)
                yield SQLiteRows(connection, self.path)
                connection.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise

    def _roll_back(self) -> None:
        """Undo a change that was not committed: whatever broke it off, it keeps nobody out."""
        connection = self._connection
        if connection is not None and connection.in_transaction and self.pid == os.getpid():
            with _translated(self.path):
                connection.execute("ROLLBACK")

    def _check_schema(self, connection: sqlite3.Connection) -> None:
        version = connection.execute("PRAGMA schema_version").fetchone()[0]
        if version != self._schema_version:
            _check_schema(connection, self.path)
            self._schema_version = version


class SQLiteRows:
    """The rows of the file inside one transaction."""

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self.connection, self.path = connection, path

    def genesis(self) -> tuple[dict[str, Any], str]:
        """Return the genesis document and its digest, recomputed."""
        row = self.connection.execute("SELECT document, digest FROM genesis").fetchone()
        text, digest = row or ("", "")
        return parse_genesis(text, digest, self.path), digest

    def head(self) -> Head:
        """Return the stored totals."""
        row = self.connection.execute("SELECT document FROM head").fetchone()
        return parse_head("" if row is None else row[0], self.path)

    def entries(self, after: int = 0) -> Iterator[Entry]:
        """Return the entries after a number, in order."""
        for row in self.connection.execute(f"{_ENTRIES} WHERE seq > ? ORDER BY seq", (after,)):
            yield Entry.read(row)

    def find(self, key: str) -> Entry | None:
        """Return the entry with an idempotency key."""
        row = self.connection.execute(f"{_ENTRIES} WHERE key = ?", (key,)).fetchone()
        return None if row is None else Entry.read(row)

    def digest_at(self, seq: int) -> str | None:
        """Return the digest of an entry, of the genesis document for 0, or None."""
        if seq == 0:
            row = self.connection.execute("SELECT digest FROM genesis").fetchone()
        else:
            row = self.connection.execute("SELECT digest FROM entries WHERE seq = ?", (seq,)).fetchone()
        return None if row is None else str(row[0])

    def count_queries(self, until: int) -> int:
        """Return how many stored entries up to a number are answers."""
        row = self.connection.execute(
            "SELECT COUNT(*) FROM entries WHERE seq <= ? AND rtrim(kind) IN ('train', 'holdout')", (until,)
        ).fetchone()
        return int(row[0])

    def secret(self) -> tuple[bytes, str, bytes]:
        """Return (salt, threshold or "", nonce)."""
        row = self.connection.execute("SELECT salt, threshold, nonce FROM secret").fetchone()
        if row is None or [type(x) for x in row] != [bytes, str, bytes]:
            raise LedgerCorrupt(f"{self.path}: the ledger's secret is missing")
        return row[0], row[1].rstrip(" "), row[2]

    def write(self, entries: Iterable[Entry], head: Head, threshold: str, nonce: bytes) -> None:
        """Append entries, move the head, replace the secret; the same pages whatever they say."""
        places = ", ".join("?" * 12)
        self.connection.executemany(f"INSERT INTO entries VALUES ({places})", [e.fields() for e in entries])
        self.connection.execute("UPDATE head SET document = ?", (head_text(head),))
        secret = secret_texts(threshold, nonce)
        self.connection.execute("UPDATE secret SET threshold = ?, nonce = ?", secret)

    def make_room(self, rows: int, longest: int) -> None:
        """Have so many pages free in the file that a number of entries can be added without growing it."""
        size = int(self.connection.execute("PRAGMA page_size").fetchone()[0])
        wanted = 16 + rows * (longest + 1200) // size + rows // 8
        free = int(self.connection.execute("PRAGMA freelist_count").fetchone()[0])
        if free < wanted:  # deleted securely: zeros are written, so the disk has the blocks
            self.connection.execute("INSERT INTO room VALUES (1, zeroblob(?))", ((wanted + 16) * size,))
            self.connection.execute("DELETE FROM room")

    def integrity(self) -> None:
        """Refuse a file whose pages are damaged."""
        found = self.connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if found != "ok":
            raise LedgerCorrupt(f"{self.path}: the file is damaged ({found})")


@lru_cache(maxsize=1)
def _expected() -> list[tuple[str, ...]]:
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(SCHEMA)
        return connection.execute(_QUERY).fetchall()
    finally:
        connection.close()


def _check_kind(connection: sqlite3.Connection, path: str) -> None:
    """Refuse what is no ledger, or one of another version; nothing in the file is changed by looking.

    The header is read by SQLite and never by ``open()``, see :mod:`.locks`.
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


def _check_schema(connection: sqlite3.Connection, path: str) -> None:
    """Refuse a file whose tables, indexes or triggers are not exactly those of a ledger."""
    objects = connection.execute(_QUERY).fetchall()
    if objects == _expected():
        return
    ours = {row[1]: row for row in _expected()}
    names = {row[1]: row for row in objects}
    odd = next((n for n in [*names, *ours] if names.get(n) != ours.get(n)), "?")
    what = "was added" if odd not in ours else "is missing" if odd not in names else "was changed"
    raise LedgerCorrupt(f"{path}: the schema was changed: {odd!r} {what}")


def _data_binding(path: str | Path) -> tuple[bytes, str] | None:
    """Return (salt, keyed identity of the data) of another ledger, or None if it tells none.

    Nothing is changed, nothing is waited for: this only looks for a second account of the same data.
    """
    try:
        connection = sqlite3.connect(f"{Path(os.path.realpath(path)).as_uri()}?mode=ro", uri=True, timeout=1)
        try:
            _check_kind(connection, str(path))
            salt = connection.execute("SELECT salt FROM secret").fetchone()[0]
            data = json.loads(connection.execute("SELECT document FROM head").fetchone()[0])["data"]
        finally:
            connection.close()
    except (sqlite3.Error, QuiltdpError, KeyError, TypeError, ValueError):
        return None
    return (salt, data) if isinstance(salt, bytes) and isinstance(data, str) else None


def other_account(ledger: str | Path, identity: str, folders: Iterable[str | Path] = ()) -> Path | None:
    """Return a ledger of the same data beside ``ledger`` or in ``folders``, or None.

    Every ledger has a key of its own, so identities can be compared only by somebody who may read
    the other file; a ledger that lies elsewhere is not found.  A ledger that is bound to its data
    has been through this, and finds none.
    """
    if str(ledger) == MEMORY or _data_binding(ledger) is not None:
        return None
    this_path = os.path.realpath(ledger)
    for folder in dict.fromkeys(os.path.realpath(f) for f in (Path(this_path).parent, *folders)):
        for path in _candidates(folder):
            if os.path.realpath(path) == this_path:
                continue
            binding = _data_binding(path)
            if binding is not None and hmac.compare_digest(binding[1], keyed(binding[0], "data", identity)):
                return path
    return None


def _candidates(folder: str) -> list[Path]:
    """Return the files of a folder that could be ledgers by their size, without opening any."""
    paths = []
    with suppress(OSError), os.scandir(folder) as listed:
        for entry in listed:
            with suppress(OSError):
                size = entry.stat().st_size if entry.is_file() else 0
                if size and size % _PAGE == 0:
                    paths.append(Path(entry.path))
    return sorted(paths)[:_MOST_FILES]


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """Turn SQLite's errors into refusals; none of them says what was to be written."""
    try:
        yield
    except QuiltdpError:
        raise
    except sqlite3.OperationalError as error:
        if "locked" in str(error) or "busy" in str(error):
            raise Refused(f"{path}: other processes held the ledger too long; try again") from None
        if "no such" in str(error) or "decode" in str(error):
            raise LedgerCorrupt(f"{path}: the file is damaged ({error})") from None
        raise Refused(f"{path}: the ledger cannot be used now: {error}") from None
    except sqlite3.DatabaseError as error:
        raise LedgerCorrupt(f"{path}: the file is damaged ({error})") from None
    except UnicodeDecodeError:  # SQLite quotes what it stumbles over, and Python reads that as a text
        raise LedgerCorrupt(f"{path}: the file is damaged (its schema is no text)") from None


def _initialise(connection: sqlite3.Connection, genesis: Mapping[str, Any], salt: bytes) -> None:
    digest = genesis_digest(genesis)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("PRAGMA synchronous = EXTRA")
    connection.executescript(f"BEGIN IMMEDIATE;{SCHEMA}")
    connection.execute("INSERT INTO genesis VALUES (1, ?, ?)", (canonical(genesis).decode(), digest))
    connection.execute("INSERT INTO secret VALUES (1, ?, ?, ?)", (salt, *secret_texts()))
    connection.execute("INSERT INTO head VALUES (1, ?)", (head_text(Head(0, digest)),))
    connection.execute("COMMIT")


def identity(path: str, shown: str) -> tuple[int, int]:
    """Return (device, inode) of a ledger file without opening it; refuse a file of two names."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise LedgerCorrupt(f"{shown}: the ledger file is gone; restore it before asking anything") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise Refused(f"{shown}: the ledger cannot be opened: {why}") from None
    if not os.path.isfile(path):
        what = "a directory" if os.path.isdir(path) else "no regular file"
        raise NotALedger(f"{shown}: this is {what}, not a quiltdp ledger")
    if found.st_nlink > 1:
        _drop_leftovers(Path(path), found)
    return found.st_dev, found.st_ino


def _drop_leftovers(path: Path, found: os.stat_result) -> None:
    """Remove the second name that a process killed while making the ledger left; refuse any other."""
    for other in path.parent.glob(f"{_escaped(path.name)}.*.new"):
        with suppress(FileNotFoundError):  # its maker was quicker
            if os.path.samestat(os.lstat(other), found):
                other.unlink()
    if os.stat(path).st_nlink > 1:
        raise Refused(
            f"{path}: this file has more than one name (hard links); SQLite's journal follows the name,"
            " so a crash could be undone under one and not under the other: keep one name"
        )


def _escaped(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _claim(temporary: Path, target: Path) -> None:
    """Make the empty file, for its owner only, or say why ``target`` cannot be made there."""
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InvalidArgument(f"{target}: the ledger cannot be made here ({why})") from None


def _publish(temporary: Path, target: Path) -> None:
    """Give a finished file its name; never replace a file that is there."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        temporary.replace(target)
