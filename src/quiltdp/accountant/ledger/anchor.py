"""An anchor: a small file outside the ledger that remembers how far the ledger had come.

A chain of hashes cannot notice that the whole file was replaced by an older copy of itself.  A head
written to another place (another disk, another owner) can.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quiltdp.errors import LedgerCorrupt, Refused

__all__ = ["Anchor"]


class Anchor:
    """The file ``path`` holds ledger id, entry number and digest; it only ever moves forward."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def read(self) -> tuple[str, int, str] | None:
        """Return (ledger id, entry number, digest), or None if there is no anchor yet."""
        try:
            document = json.loads(self.path.read_text(encoding="utf-8"))
            return str(document["id"]), int(document["seq"]), str(document["digest"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            raise LedgerCorrupt(
                f"{self.path}: this anchor cannot be read; restore it or the ledger"
            ) from None

    def advance(self, ledger: str, seq: int, digest: str) -> None:
        """Write a later head durably; an earlier one than the file's own changes nothing."""
        with self._locked():
            known = self.read()
            if known is not None and known[0] != ledger:
                raise LedgerCorrupt(f"{self.path}: this anchor belongs to another ledger")
            if known is not None and known[1] >= seq:
                return
            temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
            with temporary.open("w", encoding="utf-8") as file:
                json.dump({"id": ledger, "seq": seq, "digest": digest}, file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
            sync_directory(self.path.parent)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            import fcntl
        except ImportError:
            raise Refused(f"{self.path}: anchors need POSIX file locks, which this system lacks") from None
        with self.path.with_name(self.path.name + ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


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
