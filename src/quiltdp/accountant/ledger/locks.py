"""Who may use a ledger file now: one thread of one process, and nobody who was forked in the middle.

SQLite locks its file with POSIX locks, and the system drops those as soon as *anything* in the process
closes the same file: a backup, an upload, a careless ``open()``.  So a lock of another kind (``flock``)
is held on a small file beside the ledger, ``NAME-lock``, which no such accident can take away: alone by
writers, together by readers.  SQLite's own locks stay: losing the small file is not losing the ledger.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from quiltdp.errors import Refused

__all__ = ["FileLock", "ThreadLock", "refuse_after_fork", "under_way"]

# Visits under way, as (process, token).  A child that was forked in the middle of one inherits the
# entry: SQLite's lock table in its memory is then wrong, and no ledger may be used there.
_UNDER_WAY: set[tuple[int, object]] = set()


@contextmanager
def under_way() -> Iterator[None]:
    """Note that SQLite is at work: a child that is forked meanwhile must use no ledger."""
    process, token = os.getpid(), (os.getpid(), object())
    _UNDER_WAY.add(token)
    try:
        yield
    finally:
        if os.getpid() == process:  # a forked child keeps the note
            _UNDER_WAY.discard(token)


def refuse_after_fork(path: str) -> None:
    """Refuse in a process that was forked while its parent was using a ledger."""
    if any(process != os.getpid() for process, _ in _UNDER_WAY.copy()):
        raise Refused(
            f"{path}: this process was forked while its parent was using a ledger;"
            " start processes between questions, or with the spawn method"
        )


class ThreadLock:
    """One thread of this process at a time; asking for it twice in one thread is refused."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None

    @contextmanager
    def held(self, path: str, timeout: float) -> Iterator[None]:
        """Hold the lock, or say who has it."""
        refuse_after_fork(path)
        if self._owner == threading.get_ident():
            raise Refused(f"{path}: this thread is in the middle of using the ledger already")
        if not self._lock.acquire(timeout=min(timeout, threading.TIMEOUT_MAX)):
            raise Refused(f"{path}: other threads held the ledger for {timeout:g} s; try again")
        process, self._owner = os.getpid(), threading.get_ident()
        try:
            with under_way():
                yield
        finally:
            if os.getpid() == process:  # a forked child has nothing to give back
                self._owner = None
                self._lock.release()


class FileLock:
    """``flock`` on ``NAME-lock``, held for one visit; where the system has none, SQLite's locks remain."""

    def __init__(self, path: str) -> None:
        self.path = f"{path}-lock"

    def make(self) -> None:
        """Make the file, so that the first readers find it."""
        with self.held(self.path, 60.0, alone=True):
            pass

    @contextmanager
    def held(self, name: str, timeout: float, *, alone: bool) -> Iterator[None]:
        """Hold the lock, or say that others have it."""
        try:
            import fcntl
        except ImportError:  # Windows: closing a file there drops no lock
            yield
            return
        descriptor = self._opened(name, alone)
        if descriptor is None:
            yield
            return
        kind = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
        process, end = os.getpid(), time.monotonic() + timeout
        try:
            while True:
                try:
                    fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= end:
                        raise Refused(
                            f"{name}: other processes held the ledger for {timeout:g} s; try again"
                        ) from None
                    time.sleep(random.uniform(0.0005, 0.005))
            yield
        finally:
            if os.getpid() == process:
                # said aloud: a child forked meanwhile has a copy of the descriptor, which would keep it
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def _opened(self, name: str, alone: bool) -> int | None:
        flags = os.O_RDWR | os.O_CREAT if alone else os.O_RDONLY
        try:
            return os.open(self.path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if not alone:  # readers leave no trace: beside what is no ledger, or on a read-only disk
                return None
            raise Refused(
                f"{name}: the ledger cannot be used now: its lock {self.path} cannot be opened"
                f" ({error.strerror})"
            ) from None
