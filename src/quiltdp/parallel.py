"""Independent work, here or in remote workers: one ordered map over any ``concurrent.futures.Executor``.

:func:`each` calls a function for every item and yields the answers in the order of the items, so a
run with workers gives what a run without them gives, to the last byte.  Executors are processes of
this machine (:class:`Workers`, or a ``ProcessPoolExecutor``), a Dask cluster (``client.get_executor()``)
or MPI's pool (``mpi4py.futures.MPIPoolExecutor``).

What all items share goes with every task and is read once by a worker, which knows it by its fingerprint;
a Dask cluster keeps it itself and hands it on from worker to worker.  When a worker dies, its items are done
again; when that does not help, the run ends with :class:`~quiltdp.errors.WorkerLost`, never with a part
missing.  Errors of the work itself are raised as without workers: the first in the order of the items.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import pickle
import signal
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any, TypeVar

from quiltdp.errors import InvalidArgument, WorkerLost, option

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[str, float], None]

_ATTEMPTS = 3  # a task that has lost so many workers is not tried again
_SMALL = 2**14  # bytes that may go along with every task on a Dask cluster
_PIECE = 2**22  # bytes that a Dask cluster takes in one task without a warning
_AHEAD = 256  # tasks under way where the number of workers is not known
_SHARES = 4  # a task is at most this part of a worker's fair share of what is left
_MOST = 16  # items of a task
_MOST_CACHED = 8  # shared objects that a worker remembers


def each(
    work: Callable[[Any, Item], Result],
    items: Iterable[Item],
    *,
    shared: Any = None,
    executor: Executor | None = None,
    chunk: int | None = None,
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
        What every call needs.  A worker keeps the object between chunks, so what ``work`` puts aside in it is
        still there for the next.
    executor
        Where to work; ``None`` is here.
    chunk
        Items per task.  Chosen from the number of items and of workers where it is not given: up to 16
        while many are left, one at the end, so that workers end together.
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
    if chunk is not None and chunk < 1:
        raise InvalidArgument(f"{option('chunk')} must be at least 1, not {chunk!r}")
    checked_executor(executor)
    known = len(items) if isinstance(items, Sequence) else None
    total = known if total is None else total

    def report_progress(done: int) -> None:
        if progress is not None:
            progress(label, min(1.0, done / total) if total else 0.0)

    if executor is None:
        for done, item in enumerate(items, 1):
            yield work(shared, item)
            report_progress(done)
        return
    yield from _map_remotely(_TaskSender(executor, work, shared), iter(items), known, chunk, report_progress)


def checked_executor(executor: object) -> None:
    """Refuse what cannot be given work."""
    if executor is not None and not isinstance(executor, Executor):
        raise InvalidArgument(
            f"{option('executor')} must be a concurrent.futures.Executor (of a Dask client:"
            f" client.get_executor()), not {executor!r}"
        )


def worker_count(executor: Executor) -> int | None:
    """Return how many items an executor works on at a time, or ``None`` where it does not say."""
    try:
        client = _dask_client(executor)
        if client is not None:
            return sum(client.nthreads().values()) or None
        for name in ("_max_workers", "num_workers"):  # of the standard library's pools, and of MPI's
            count = getattr(executor, name, None)
            if isinstance(count, int) and count > 0:
                return count
    except Exception:  # a cluster that is gone; what is sent there tells
        return None
    return None


def _dask_client(executor: Executor) -> Any:
    client = getattr(executor, "_client", None)
    return client if hasattr(client, "get_executor") else None


def _map_remotely(
    sender: _TaskSender,
    items: Iterator[Any],
    known: int | None,
    chunk: int | None,
    report_progress: Callable[[int], None],
) -> Iterator[Any]:
    """Keep as many tasks under way as there is room for; yield what comes back, in order."""
    under_way: deque[tuple[tuple[Any, ...], Future[Any]]] = deque()
    taken = done = 0
    try:
        while True:
            while len(under_way) < sender.ahead:
                size = chunk or sender.next_task_size(None if known is None else known - taken)
                part = tuple(islice(items, size))
                if not part:
                    break
                taken += len(part)
                under_way.append((part, sender.submit(part)))
            if not under_way:
                return
            results, error = sender.receive(*under_way[0])
            under_way.popleft()
            for result in results:
                yield result
                done += 1
            report_progress(done)
            if error is not None:
                raise error
    finally:
        for _, future in under_way:
            future.cancel()


class _TaskSender:
    """Sends tasks to an executor and gets their answers, whatever happens to workers on the way."""

    def __init__(self, executor: Executor, work: Callable[[Any, Any], Any], shared: Any) -> None:
        payload: Any = pickle.dumps(shared, protocol=pickle.HIGHEST_PROTOCOL)
        key = hashlib.sha256(payload).hexdigest()
        client = _dask_client(executor)
        if client is not None and len(payload) > _SMALL:  # pieces that are made again when a worker dies
            pieces = (payload[k : k + _PIECE] for k in range(0, len(payload), _PIECE))
            payload = [client.submit(bytes, piece) for piece in pieces]
        self.executor = executor
        self.task = (work, key, payload)
        self.count = worker_count(executor)
        self.ahead = 4 * self.count if self.count else _AHEAD

    def next_task_size(self, left: int | None) -> int:
        """Return how many items the next task has, of those that are left."""
        if left is None or self.count is None:
            return 1
        return max(1, min(_MOST, left // (_SHARES * self.count)))

    def submit(self, items: tuple[Any, ...]) -> Future[Any]:
        """Submit a task."""
        try:
            return self.executor.submit(_run_task, *self.task, items)
        except Exception as error:
            raise _worker_lost("", error) from error

    def receive(self, items: tuple[Any, ...], future: Future[Any]) -> tuple[list[Any], BaseException | None]:
        """Wait for the answers of a task; do it again where a worker died."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return _checked_answer(future.result(), len(items))
            except (KeyboardInterrupt, SystemExit, WorkerLost):
                raise
            except BrokenExecutor as error:
                if attempt == _ATTEMPTS:
                    raise _worker_lost(f" {attempt} times in a row", error) from error
            except BaseException as error:  # not of the work, whose errors are values
                raise _worker_lost("", error) from error
            future = self.submit(items)
        raise AssertionError("the last attempt returns or raises")


def _checked_answer(found: Any, asked: int) -> tuple[list[Any], BaseException | None]:
    """Return an answer that is one: a result for every item, or some and the error of the next."""
    if isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], list):
        results, error = found
        if error is None and len(results) == asked:
            return results, None
        if isinstance(error, BaseException) and len(results) < asked:
            return results, error
    raise _worker_lost("", TypeError(f"the executor returned something else: {str(found)[:60]!r}"))


def _worker_lost(often: str, error: BaseException) -> WorkerLost:
    reason = f"{type(error).__name__}: {error}".strip().rstrip(":")
    return WorkerLost(
        f"a worker did not finish its part{often} ({reason}); nothing is reported,"
        " because a part would be missing: run it again, with fewer workers if memory was short"
    )


class _SharedObjectCache(threading.local):
    """In a worker: what it was sent, by fingerprint.  Threads of one process are workers of their own."""

    def __init__(self) -> None:
        self.shared: OrderedDict[str, Any] = OrderedDict()


_SHARED_OBJECTS = _SharedObjectCache()


def _run_task(
    work: Callable[[Any, Any], Any], key: str, payload: bytes | list[bytes], items: tuple[Any, ...]
) -> tuple[list[Any], BaseException | None]:
    """Run in a worker: the answers to a task up to the first error, and that."""
    cache = _SHARED_OBJECTS.shared
    if key not in cache:
        cache[key] = pickle.loads(b"".join(payload) if isinstance(payload, list) else payload)
        while len(cache) > _MOST_CACHED:
            cache.popitem(last=False)
    cache.move_to_end(key)
    shared = cache[key]
    results: list[Any] = []
    try:
        for item in items:
            results.append(work(shared, item))
    except Exception as error:
        return results, error
    return results, None


def workers(count: int | None) -> AbstractContextManager[Executor | None]:
    """Return ``count`` processes for a ``with`` block; for ``None`` or 1, none: the work is done here.

    Examples
    --------
    >>> with workers(1) as pool:
    ...     print(pool)
    None
    """
    return nullcontext() if count is None or count == 1 else Workers(count)


_POOL_BROKEN = (BrokenExecutor, BrokenPipeError)
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
        self._pool = self._new_pool()

    def _new_pool(self) -> ProcessPoolExecutor:
        # Not forked: a progress bar is a thread, and threads do not survive a fork in good order.
        fresh = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self._max_workers, mp_context=fresh, initializer=_initialise_worker)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Schedule a call, in new processes if the old ones broke."""
        with self._lock:
            try:
                return self._pool.submit(fn, *args, **kwargs)
            except _POOL_BROKEN:
                self._pool.shutdown(wait=False)
                self._pool = self._new_pool()
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


def _initialise_worker() -> None:
    """Set a worker process up, before it imports anything large."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as many threads as processes, not their product
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()


def _exit_with_parent(parent: Any) -> None:
    parent.join()
    os._exit(1)
