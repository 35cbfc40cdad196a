"""Independent work, here or elsewhere: one ordered map over any ``concurrent.futures.Executor``.

:func:`each` calls a function for every item and yields the answers in the order of the items, so a
run with workers gives what a run without them gives, to the last byte.  Executors are processes of
this machine (:class:`Workers`, or a ``ProcessPoolExecutor``), a Dask cluster (``client.get_executor()``)
or MPI's pool (``mpi4py.futures.MPIPoolExecutor``).

What all items share is sent to a worker once: a task names it by its fingerprint, and a worker that
does not have it says so and is asked again with it; a Dask cluster keeps it itself and hands it on from
worker to worker.  When a worker dies, its items are done again; when that does not help, the run ends with
:class:`~quiltdp.errors.WorkerLost`, never with a part missing.  Errors of the work itself are raised as
without workers: the first in the order of the items.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from quiltdp.errors import InvalidArgument, WorkerLost, option
from quiltdp.processes import KEPT, Workers

__all__ = ["Sealed", "Workers", "checked_executor", "each", "worker_count", "workers"]

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[str, float], None]

_ATTEMPTS = 3  # a task that has lost so many workers is not tried again
_SMALL = 2**14  # bytes that may go along with every task
_PIECE = 2**22  # bytes that a Dask cluster takes in one task without a warning
_AHEAD = 256  # tasks under way where the number of workers is not known
_SHARES = 4  # a task is at most this part of a worker's fair share of what is left
_MOST = 16  # items of a task


def each(
    work: Callable[[Any, Item], Result],
    items: Iterable[Item],
    *,
    shared: Any = None,
    executor: Executor | None = None,
    chunk: int | None = None,
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
        What every call needs (:class:`Sealed` where several calls of this function share it); sent once to
        every worker.  A worker keeps the object between chunks, so what ``work`` puts aside in it is still
        there for the next.
    executor
        Where to work; ``None`` is here.
    chunk
        Items per task.  Chosen from the number of items and of workers where it is not given: up to 16
        while many are left, one at the end, so that workers end together.
    place
        Items of one place go to one process of :class:`Workers`, which has kept what it prepared for it;
        all items of a process are one task.
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

    def tell(done: int) -> None:
        if progress is not None:
            progress(label, min(1.0, done / total) if total else 0.0)

    if executor is None:
        if isinstance(shared, Sealed):
            shared = pickle.loads(shared.payload)
        for done, item in enumerate(items, 1):
            yield work(shared, item)
            tell(done)
        return
    sender = _Sender(executor, work, shared, place)
    if sender.place is not None:
        yield from _each_in_its_place(sender, list(items), tell)
    else:
        yield from _each_elsewhere(sender, iter(items), known, chunk, tell)


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


def _each_elsewhere(
    sender: _Sender,
    items: Iterator[Any],
    known: int | None,
    chunk: int | None,
    tell: Callable[[int], None],
) -> Iterator[Any]:
    """Keep as many tasks under way as there is room for; yield what comes back, in order."""
    under_way: deque[_Task] = deque()
    taken = done = 0
    try:
        while True:
            while len(under_way) < sender.ahead:
                size = chunk or sender.size(None if known is None else known - taken)
                part = tuple(islice(items, size))
                if not part:
                    break
                taken += len(part)
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


def _each_in_its_place(sender: _Sender, items: list[Any], tell: Callable[[int], None]) -> Iterator[Any]:
    """Send every process its items at once; yield what comes back, in the order of the items."""
    parts: dict[int, list[int]] = {}
    for k, item in enumerate(items):
        parts.setdefault(sender.process(item), []).append(k)
    tasks = [sender.send(tuple(items[k] for k in part)) for part in parts.values()]
    found: dict[int, Any] = {}
    errors: dict[int, BaseException] = {}
    try:
        for part, task in zip(parts.values(), tasks, strict=True):
            results, error = sender.receive(task)
            found.update(zip(part, results, strict=error is None))
            if error is not None:
                errors[part[len(results)]] = error
            tell(len(found))
    finally:
        for task in tasks:
            task.future.cancel()
    for k in range(len(items)):
        if k in errors:
            raise errors[k]
        yield found[k]


class _Lacks(NamedTuple):
    """The answer of a worker that does not have what all items share: its machine, process and thread."""

    machine: str
    process: int
    thread: int


@dataclass
class _Task:
    """Items under way, how often they were tried, and whether what is shared went with them."""

    items: tuple[Any, ...]
    future: Future[Any]
    complete: bool
    attempts: int = 1
    refused: int = 0


class Sealed:
    """What items share, ready to be sent: for several calls of :func:`each` with one ``shared``."""

    def __init__(self, shared: Any) -> None:
        self.payload = pickle.dumps(shared, protocol=pickle.HIGHEST_PROTOCOL)
        self.key = hashlib.sha256(self.payload).hexdigest()
        self._kept: tuple[Executor, list[Any]] | None = None

    def kept_by(self, executor: Executor) -> list[Any] | None:
        """Return it as pieces that a Dask cluster keeps and makes again when a worker dies; else ``None``."""
        client = _dask_client(executor)
        if client is None:
            return None
        if self._kept is None or self._kept[0] is not executor:
            pieces = (self.payload[k : k + _PIECE] for k in range(0, len(self.payload), _PIECE))
            self._kept = executor, [client.submit(_keep, piece) for piece in pieces]
        return self._kept[1]


def _keep(piece: bytes) -> bytes:
    return piece


class _Sender:
    """Sends tasks to an executor and gets their answers, whatever happens to workers on the way."""

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
        self.sealed = shared if isinstance(shared, Sealed) else Sealed(shared)
        self.small = len(self.sealed.payload) <= _SMALL
        self.count = worker_count(executor)
        self.first = self.count or 1  # tasks that carry what is shared unasked
        self.ahead = 4 * self.count if self.count else _AHEAD
        self.helped: dict[_Lacks, int] = {}

    def size(self, left: int | None) -> int:
        """Return how many items the next task has, of those that are left."""
        if left is None or self.count is None:
            return 1
        return max(1, min(_MOST, left // (_SHARES * self.count)))

    def process(self, item: Any) -> int:
        """Return which process of :class:`Workers` an item with a place goes to."""
        assert self.place is not None
        assert isinstance(self.executor, Workers)
        return self.executor.process(self.place(item))

    def send(self, items: tuple[Any, ...]) -> _Task:
        """Submit a task; the first ones, and all where it is small, carry what is shared."""
        if self.place is not None and isinstance(self.executor, Workers):
            complete = self.executor.lacks(self.place(items[0]), self.sealed.key)
        else:
            complete = self.first > 0 or self.small
            self.first -= 1
        return _Task(items, self._submit(items, complete), complete)

    def receive(self, task: _Task) -> tuple[list[Any], BaseException | None]:
        """Wait for the answers of a task; do it again where a worker died or lacked what is shared."""
        while True:
            try:
                found = task.future.result()
            except (KeyboardInterrupt, SystemExit):
                raise
            except BrokenExecutor as error:
                if task.attempts >= _ATTEMPTS:
                    raise _lost(f" {task.attempts} times in a row", error) from error
                task.attempts += 1
                task.complete = True
            except BaseException as error:  # not of the work, whose errors are values
                raise _lost("", error) from error
            else:
                if not isinstance(found, _Lacks) or task.complete:
                    return _checked(found, len(task.items))
                task.complete = self._goes_along(task, found)
            task.future = self._submit(task.items, task.complete)

    def _goes_along(self, task: _Task, worker: _Lacks) -> bool:
        """Return whether what is shared goes with a task that came back for want of it.

        Many tasks of one worker come back together, and one of them is enough; it may meet another
        worker, so those that come back again are another reason.
        """
        task.refused += 1
        if task.refused < _ATTEMPTS and self.helped.get(worker, 0) >= task.refused:
            return False
        self.helped[worker] = self.helped.get(worker, 0) + 1
        return True

    def _submit(self, items: tuple[Any, ...], complete: bool) -> Future[Any]:
        try:
            kept = None if self.small else self.sealed.kept_by(self.executor)
            payload = kept or (self.sealed.payload if complete else None)
            given = (self.work, self.sealed.key, payload, items)
            if self.place is not None and isinstance(self.executor, Workers):
                return self.executor.submit_at(self.place(items[0]), _chunk, *given)
            return self.executor.submit(_chunk, *given)
        except Exception as error:
            raise _lost("", error) from error


def _checked(found: Any, asked: int) -> tuple[list[Any], BaseException | None]:
    """Return an answer that is one: a result for every item, or some and the error of the next."""
    if isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], list):
        results, error = found
        if error is None and len(results) == asked:
            return results, None
        if isinstance(error, BaseException) and len(results) < asked:
            return results, error
    raise _lost("", TypeError(f"the executor returned something else: {str(found)[:60]!r}"))


def _lost(often: str, error: BaseException) -> WorkerLost:
    said = f"{type(error).__name__}: {error}".strip().rstrip(":")
    return WorkerLost(
        f"a worker did not finish its part{often} ({said}); nothing is reported,"
        " because a part would be missing: run it again, with fewer workers if memory was short"
    )


class _Kept(threading.local):
    """In a worker: what it was sent, by fingerprint.  Threads of one process are workers of their own."""

    def __init__(self) -> None:
        self.things: OrderedDict[str, Any] = OrderedDict()


_KEPT = _Kept()


def _chunk(
    work: Callable[[Any, Any], Any], key: str, payload: bytes | list[bytes] | None, items: tuple[Any, ...]
) -> tuple[list[Any], BaseException | None] | _Lacks:
    """Run in a worker: the answers to a task up to the first error, or what it lacks for want of ``key``."""
    kept = _KEPT.things
    if key not in kept:
        if payload is None:
            import platform

            return _Lacks(platform.node(), os.getpid(), threading.get_ident())
        kept[key] = pickle.loads(b"".join(payload) if isinstance(payload, list) else payload)
        while len(kept) > KEPT:
            kept.popitem(last=False)
    kept.move_to_end(key)
    shared = kept[key]
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
