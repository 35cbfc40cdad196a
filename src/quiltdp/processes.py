"""Processes of this machine as an executor: replaced when one of them dies."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from typing import Any

from quiltdp.errors import InvalidArgument, option

__all__ = ["Workers"]

_DIED = (BrokenExecutor, BrokenPipeError)
"""What a pool says whose process is gone: before the call, or while it was told what to import."""

_GRACE = 1.0  # seconds that a process has to end by itself


class Workers(Executor):
    """Processes on this machine; where one is killed, new ones take its place.

    Each works with one thread, leaves interrupts to the process that made it, and ends with it.  Scripts
    that use it keep their own work under ``if __name__ == "__main__":``, as multiprocessing asks.

    Examples
    --------
    >>> with Workers(2) as pool:
    ...     sum(pool.map(abs, [-1, 2, -3]))
    6
    """

    def __init__(self, count: int) -> None:
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= 10_000:
            raise InvalidArgument(
                f"{option('workers')} must be a whole number from 1 to 10,000, not {count!r}"
            )
        self._max_workers = count
        self._lock = threading.Lock()
        self._pool = self._new()

    def _new(self) -> ProcessPoolExecutor:
        import multiprocessing

        # Not forked: a progress bar is a thread, and threads do not survive a fork in good order.
        fresh = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self._max_workers, mp_context=fresh, initializer=_begin)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Schedule a call, in new processes if the old ones broke."""
        with self._lock:
            try:
                return self._pool.submit(fn, *args, **kwargs)
            except _DIED:
                self._pool.shutdown(wait=False)
                self._pool = self._new()
                return self._pool.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the processes go when they are done; ``cancel_futures`` drops what has not begun."""
        self._pool.shutdown(wait=wait, cancel_futures=cancel_futures)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Wait for what is under way; after an error or an interrupt, end it."""
        if kind is not None:
            processes = list((getattr(self._pool, "_processes", None) or {}).values())
            self.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.terminate()
            for process in processes:
                process.join(_GRACE)
                process.kill()  # one that is stopped, or does not listen
                process.join()
        else:
            self.shutdown()


def _begin() -> None:
    """Set a worker process up, before it imports anything large."""
    import multiprocessing

    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as many threads as processes, not their product
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)
