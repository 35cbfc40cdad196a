"""What remembers, outside the ledger, how far it had come: an anchor, and this process.

A chain of hashes cannot notice that the whole file was replaced by an older copy of itself.  A head
written to another place (another disk, another owner) can.  It is written before anything is drawn
and again before anything is told, a recorded answer included.  A process remembers the newest head of
every ledger it has used, so that it takes no older copy under any name, with an anchor or without.
"""

from __future__ import annotations

import json
import os
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from quiltdp.accountant.ledger.locks import FileLock, ThreadLock
from quiltdp.errors import InvalidArgument, LedgerCorrupt, Refused
from quiltdp.user_files import open_plain

__all__ = ["Anchor", "newest_seen", "note_seen"]

_LONGEST = 1 << 16  # bytes, many times what an anchor holds
_PATIENCE = 60.0  # seconds for others who do the same

_SEEN: dict[str, tuple[int, str]] = {}  # the newest (entry number, digest) by ledger id
_SEEN_LOCK = ThreadLock()


def newest_seen(ledger: str) -> tuple[int, str] | None:
    """Return (entry number, digest) of the newest head of a ledger that this process has seen."""
    return _SEEN.get(ledger)


def note_seen(ledger: str, seq: int, digest: str) -> bool:
    """Note a head; return False, nothing noted, if another or a later one was seen of the same ledger."""
    with _SEEN_LOCK.held(ledger, _PATIENCE):
        known = _SEEN.get(ledger, (-1, ""))
        if known[0] > seq or (known[0] == seq and known[1] != digest):
            return False
        _SEEN[ledger] = (seq, digest)
        return True


class Anchor:
    """The file ``path`` holds ledger id, entry number and digest; it only ever moves forward."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(os.path.realpath(path))

    def refuse_beside(self, ledger: str | Path) -> None:
        """Refuse an anchor that is the ledger itself or one of the files SQLite keeps beside it."""
        real = os.path.realpath(ledger)
        if str(self.path) in {real, *(f"{real}-{end}" for end in ("journal", "wal", "shm", "lock"))}:
            raise InvalidArgument(f"{self.path}: the anchor must be another file than the ledger")

    def read(self) -> tuple[str, int, str] | None:
        """Return (ledger id, entry number, digest), or None if there is no anchor yet."""
        try:
            with open_plain(self.path) as file:
                document = json.loads(file.read(_LONGEST))
            return str(document["id"]), int(document["seq"]), str(document["digest"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            raise LedgerCorrupt(
                f"{self.path}: this anchor cannot be read; restore it or the ledger"
            ) from None
        except OSError as error:
            raise Refused(f"{self.path}: the anchor cannot be read ({error.strerror})") from None

    def advance(self, ledger: str, seq: int, digest: str) -> None:
        """Write a later head durably; an earlier one than the file's own changes nothing."""
        if self._is_at(self.read(), ledger, seq, digest):
            return
        with self._locked():
            known = self.read()
            if self._is_at(known, ledger, seq, digest) or (known is not None and known[1] > seq):
                return
            try:
                self._write(json.dumps({"id": ledger, "seq": seq, "digest": digest}))
            except OSError as error:
                raise Refused(
                    f"{self.path}: the anchor cannot be written ({error.strerror}); nothing is told"
                ) from None

    def _is_at(self, known: tuple[str, int, str] | None, ledger: str, seq: int, digest: str) -> bool:
        """Return whether the anchor is at this head already; refuse another ledger or another past."""
        if known is None:
            return False
        if known[0] != ledger:
            raise LedgerCorrupt(f"{self.path}: this anchor belongs to another ledger")
        if known[1] == seq and known[2] != digest:
            raise LedgerCorrupt(f"{self.path}: the anchor remembers another entry {seq} than the ledger has")
        return known[1] == seq

    def _write(self, text: str) -> None:
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        try:
            with suppress(FileNotFoundError):
                temporary.unlink()  # left by a process of this number that was killed
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
            with os.fdopen(os.open(temporary, flags, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
        finally:
            temporary.unlink(missing_ok=True)
        sync_directory(self.path.parent)

    def _locked(self) -> AbstractContextManager[None]:
        if os.name != "posix":
            raise Refused(f"{self.path}: anchors need POSIX file locks, which this system lacks")
        return FileLock(f"{self.path}.lock").held(str(self.path), _PATIENCE, alone=True)


def sync_directory(directory: Path) -> None:
    """Make a new name in a directory durable, where the system can."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)
