"""Independent work, here or elsewhere: one ordered map over any ``concurrent.futures.Executor``.

:func:`each` calls a function for every item and yields the answers in the order of the items, so a
run with workers gives what a run without them gives, to the last byte.  Executors are processes of
this machine (:class:`Workers`, or a ``ProcessPoolExecutor``), a Dask cluster (``client.get_executor()``)
or MPI's pool (``mpi4py.futures.MPIPoolExecutor``).

What all items share is sent to a worker once: a chunk names it by its fingerprint, and a worker that
does not have it says so and is asked again with it.  When a worker dies, its chunks are done again; when
that does not help, the run ends with :class:`~quiltdp.errors.WorkerLost`, never with a part missing.
Errors of the work itself are raised as without workers: the first in the order of the items.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import signal
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from quiltdp.errors import InvalidArgument, WorkerLost, option

__all__ = ["Workers", "each", "workers"]

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[str, float], None]

_ATTEMPTS = 3  # a chunk that has lost so many workers is not tried again
_SMALL = 2**14  # bytes that may go along with every chunk
_AHEAD = 256  # chunks under way where the number of workers is not known
_KEPT = 8  # shared things that a worker remembers


def each(
    work: Callable[[Any, Item], Result],
    items: Iterable[Item],
    *,
    shared: Any = None,
    executor: Executor | None = None,
    chunk: int = 1,
    place: Callable[[Item], int] | None = None,
    progress: Progress | None = None,
    label: str = "",
    total: int | None = None,
) -> Iterator[Result]:
    """Yield ``work(shared, item)`` for every item, in the order of the items.

    Parameters
    ----------
    work
        A function of a module (workers import it), without side effects.
    items
        May be endless: only as many are taken as are under way.
    shared
        What every call needs; sent once to every worker.  A worker keeps the object between chunks, so
        what ``work`` puts aside in it is still there for the next.
    executor
        Where to work; ``None`` is here.
    chunk
        Items per task; more where one item takes less than a few milliseconds.
    place
        Items of one place go to one process of :class:`Workers`, which has kept what it prepared for it.
    progress
        Called with ``label`` and the fraction of ``total`` that is done; what it raises cancels the rest.

    Raises
    ------
    WorkerLost
        If a worker dies and its work cannot be done again.

    Examples
    --------
    >>> list(each(pow, [0, 1, 2, 3], shared=2))
    [1, 2, 4, 8]
    >>> with workers(2) as pool:
    ...     list(each(pow, [0, 1, 2, 3], shared=2, executor=pool, chunk=2))
    [1, 2, 4, 8]
    """
    if chunk < 1:
        raise InvalidArgument(f"{option('chunk')} must be at least 1, not {chunk!r}")
    if total is None and isinstance(items, Sequence):
        total = len(items)

    def tell(done: int) -> None:
        if progress is not None:
            progress(label, min(1.0, done / total) if total else 0.0)

    if executor is None:
        for done, item in enumerate(items, 1):
            yield work(shared, item)
            tell(done)
        return
    yield from _each_elsewhere(_Sender(executor, work, shared, place), iter(items), chunk, tell)


def _each_elsewhere(
    sender: _Sender, items: Iterator[Any], chunk: int, tell: Callable[[int], None]
) -> Iterator[Any]:
    """Keep as many chunks under way as there is room for; yield what comes back, in order."""
    under_way: deque[_Task] = deque()
    done = 0
    try:
        while True:
            while len(under_way) < sender.ahead:
                part = tuple(islice(items, chunk))
                if not part:
                    break
                under_way.append(sender.send(part))
            if not under_way:
                return
            results, error = sender.receive(under_way[0])
            under_way.popleft()
            for result in results:
                yield result
                done += 1
            tell(done)
            if error is not None:
                raise error
    finally:
        for task in under_way:
            task.future.cancel()


@dataclass
class _Task:
    """A chunk under way, how often it was tried, and whether what is shared went with it."""

    items: tuple[Any, ...]
    future: Future[Any]
    attempts: int = 1
    complete: bool = True


class _Sender:
    """Sends chunks to an executor and gets their answers, whatever happens to workers on the way."""

    def __init__(
        self,
        executor: Executor,
        work: Callable[[Any, Any], Any],
        shared: Any,
        place: Callable[[Any], int] | None = None,
    ) -> None:
        self.executor = executor
        self.place = place if isinstance(executor, Workers) else None
        self.work = work
        self.payload = pickle.dumps(shared, protocol=pickle.HIGHEST_PROTOCOL)
        self.key = hashlib.sha256(self.payload).hexdigest()
        count = getattr(executor, "_max_workers", None)  # of the pools in the standard library
        self.ahead = 4 * count if isinstance(count, int) else _AHEAD
        self.first = self.ahead // 4

    def send(self, items: tuple[Any, ...]) -> _Task:
        """Submit a chunk; the first ones, and all where it is small, carry what is shared."""
        complete = self.first > 0 or len(self.payload) <= _SMALL
        self.first -= 1
        return _Task(items, self._submit(items, complete), complete=complete)

    def receive(self, task: _Task) -> tuple[list[Any], BaseException | None]:
        """Wait for the answers of a chunk; do it again where a worker died or lacked what is shared."""
        while True:
            try:
                found = task.future.result()
            except BrokenExecutor as error:
                if task.attempts >= _ATTEMPTS:
                    raise _lost(f"{task.attempts} times in a row", error) from error
                task.attempts += 1
                task.complete = True
                task.future = self._submit(task.items, True)
            except Exception as error:  # not of the work, whose errors are values
                raise _lost("", error) from error
            else:
                if found is not None:
                    return found  # type: ignore[no-any-return]  # what _chunk returned
                task.complete = True
                task.future = self._submit(task.items, True)

    def _submit(self, items: tuple[Any, ...], complete: bool) -> Future[Any]:
        payload = self.payload if complete else None
        try:
            if self.place is not None and isinstance(self.executor, Workers):
                at = self.place(items[0])
                return self.executor.submit_at(at, _chunk, self.work, self.key, payload, items)
            return self.executor.submit(_chunk, self.work, self.key, payload, items)
        except BrokenExecutor as error:
            raise _lost("", error) from error


def _lost(often: str, error: BaseException) -> WorkerLost:
    said = f"{type(error).__name__}: {error}".strip().rstrip(":")
    return WorkerLost(
        f"a worker did not finish its part{' ' + often if often else ''} ({said}); nothing is reported,"
        " because a part would be missing: run it again, with fewer workers if memory was short"
    )


_SHARED: OrderedDict[str, Any] = OrderedDict()  # in a worker: what it was sent, by fingerprint
_SENDING = threading.Lock()  # workers may be threads


def _chunk(
    work: Callable[[Any, Any], Any], key: str, payload: bytes | None, items: tuple[Any, ...]
) -> tuple[list[Any], BaseException | None] | None:
    """Run in a worker: the answers to a chunk up to the first error, or ``None`` for want of ``key``."""
    with _SENDING:
        if key not in _SHARED:
            if payload is None:
                return None
            _SHARED[key] = pickle.loads(payload)
            while len(_SHARED) > _KEPT:
                _SHARED.popitem(last=False)
        _SHARED.move_to_end(key)
        shared = _SHARED[key]
    results: list[Any] = []
    try:
        for item in items:
            results.append(work(shared, item))
    except Exception as error:
        return results, error
    return results, None


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
        self._pool = self._new(count)
        self._places: list[ProcessPoolExecutor] = []

    def _new(self, count: int) -> ProcessPoolExecutor:
        import multiprocessing

        # Not forked: a progress bar is a thread, and threads do not survive a fork in good order.
        fresh = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(count, mp_context=fresh, initializer=_begin)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Schedule a call, in new processes if the old ones broke."""
        with self._lock:
            try:
                return self._pool.submit(fn, *args, **kwargs)
            except BrokenExecutor:
                self._pool.shutdown(wait=False)
                self._pool = self._new(self._max_workers)
                return self._pool.submit(fn, *args, **kwargs)

    def submit_at(self, place: int, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Schedule a call in the process of a place: 0, 1, …, then back again, so that neighbours balance."""
        k = place % (2 * self._max_workers)
        k = min(k, 2 * self._max_workers - 1 - k)
        with self._lock:
            if not self._places:
                self._places = [self._new(1) for _ in range(self._max_workers)]
            try:
                return self._places[k].submit(fn, *args)
            except BrokenExecutor:
                self._places[k].shutdown(wait=False)
                self._places[k] = self._new(1)
                return self._places[k].submit(fn, *args)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the processes go when they are done; ``cancel_futures`` drops what has not begun."""
        for pool in (self._pool, *self._places):
            pool.shutdown(wait=wait, cancel_futures=cancel_futures)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Wait for what is under way; after an error or an interrupt, end it."""
        if kind is not None:
            pools = (self._pool, *self._places)
            processes = [p for pool in pools for p in (getattr(pool, "_processes", None) or {}).values()]
            self.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.terminate()
            for process in processes:
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


def workers(count: int | None) -> AbstractContextManager[Executor | None]:
    """Return ``count`` processes for a ``with`` block; for ``None`` or 1, none: the work is done here.

    Examples
    --------
    >>> with workers(1) as pool:
    ...     print(pool)
    None
    """
    return nullcontext() if count is None or count == 1 else Workers(count)
