"""Who may use a ledger file now: one thread of one process, and nobody who was forked in the middle.

SQLite locks its file with POSIX locks, and the system drops those as soon as *anything* in the process
closes the same file: a backup, an upload, a careless ``open()``.  So a lock of another kind (``flock``)
is held on a small file beside the ledger, ``NAME-lock``, which no such accident can take away: alone by
writers, together by readers.  SQLite's own locks stay: losing the small file is not losing the ledger.

Whoever uses a ledger makes a :class:`Use` first, and every lock is held by that object: where it is
gone, however its thread ended, nothing is locked.
"""

from __future__ import annotations

import io
import os
import random
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from weakref import ref

from quiltdp.accountant.ledger.interrupts import interruptible, uninterrupted
from quiltdp.errors import Refused

__all__ = ["FileLock", "ThreadLock", "Use", "refuse_after_fork", "under_way"]


class Use:
    """Somebody who uses a ledger: a thread of a process."""

    def __init__(self) -> None:
        self.process, self.thread = os.getpid(), threading.get_ident()


def _living(places: Iterable[ref[Use]]) -> Iterator[Use]:
    return filter(None, (place() for place in places))


# Uses under way.  A child that was forked in the middle of one inherits it: SQLite's lock table in its
# memory is then wrong, and no ledger may be used there.
_UNDER_WAY: set[ref[Use]] = set()
_INHERITED: list[Use] = []  # in such a child: they live for ever
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _INHERITED.extend(_living(_UNDER_WAY.copy())))


@contextmanager
def under_way() -> Iterator[Use]:
    """Note that SQLite is at work: a child that is forked meanwhile must use no ledger."""
    use = Use()
    noted = ref(use, _UNDER_WAY.discard)
    try:
        _UNDER_WAY.add(noted)
        yield use
    finally:
        if os.getpid() == use.process:  # a forked child keeps the note
            _UNDER_WAY.discard(noted)


def refuse_after_fork(path: str) -> None:
    """Refuse in a process that was forked while its parent was using a ledger."""
    if any(use.process != os.getpid() for use in _living(_UNDER_WAY.copy())):
        raise Refused(
            f"{path}: this process was forked while its parent was using a ledger;"
            " start processes between questions, or with the spawn method"
        )


def _tries(timeout: float) -> Iterator[None]:
    """Wait a little between two tries, as often as the time allows."""
    end = time.monotonic() + timeout
    while True:
        yield
        if time.monotonic() >= end:
            return
        with interruptible():
            time.sleep(random.uniform(0.0005, 0.005))


class ThreadLock:
    """One thread of this process at a time, in the order they came; asking twice in one is refused."""

    def __init__(self) -> None:
        self._queue: list[ref[Use]] = []  # the first that lives holds the lock

    @contextmanager
    def held(self, path: str, timeout: float) -> Iterator[None]:
        """Hold the lock, or say who has it."""
        refuse_after_fork(path)
        with uninterrupted(), under_way() as use:
            mine = ref(use)
            try:
                self._queue.append(mine)
                self._wait(mine, path, timeout)
                yield
            finally:
                with suppress(ValueError):
                    self._queue.remove(mine)

    def _wait(self, mine: ref[Use], path: str, timeout: float) -> None:
        for _ in _tries(timeout):
            queue = self._queue.copy()
            ahead = {use.thread for use in _living(queue[: queue.index(mine)])}
            if not ahead:
                return
            if threading.get_ident() in ahead:
                raise Refused(f"{path}: this thread is in the middle of using the ledger already")
        raise Refused(f"{path}: other threads held the ledger for {timeout:g} s; try again")


class FileLock:
    """``flock`` on a file of its own; where the system has none, SQLite's locks remain."""

    def __init__(self, path: str) -> None:
        self.path = path

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
        with uninterrupted():
            file, process = self._opened(name, alone), os.getpid()
            try:
                if file is not None:
                    self._wait(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH, name, timeout)
                yield
            finally:
                if file is not None:
                    with file, suppress(OSError):
                        if os.getpid() == process:
                            # said aloud: a child forked meanwhile has a copy of the file, and would keep it
                            fcntl.flock(file, fcntl.LOCK_UN)

    def _opened(self, name: str, alone: bool) -> io.FileIO | None:
        flags = os.O_RDWR | os.O_CREAT if alone else os.O_RDONLY
        flags |= os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # no link, no child, no pipe to wait for
        try:
            return io.FileIO(self.path, opener=lambda path, _: os.open(path, flags, 0o600))
        except OSError as error:
            if not alone:  # readers leave no trace: beside what is no ledger, or on a read-only disk
                return None
            raise Refused(
                f"{name}: the ledger cannot be used now: its lock {self.path} cannot be opened"
                f" ({error.strerror})"
            ) from None

    def _wait(self, file: io.FileIO, kind: int, name: str, timeout: float) -> None:
        import fcntl

        for _ in _tries(timeout):
            try:
                return fcntl.flock(file, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            except OSError as error:  # a network drive without locks
                raise Refused(
                    f"{name}: the ledger cannot be used here: {self.path} cannot be locked"
                    f" ({error.strerror}); put it on a local file system"
                ) from None
        raise Refused(f"{name}: other processes held the ledger for {timeout:g} s; try again")
