"""One ordered map over any executor: the same answers, errors and order, whatever happens to workers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import quiltdp as qd
from quiltdp.errors import InvalidArgument, ModelTooWide, WorkerLost
from quiltdp.parallel import Workers, each, worker_count, workers


class Table:
    """Something shared that notices how often it was unpickled in this process."""

    def __init__(self, values: list[int]) -> None:
        self.values = values
        self.seen: list[int] = []

    def __getstate__(self) -> dict[str, Any]:
        return {"values": self.values, "seen": []}


def look_up(table: Table, k: int) -> tuple[int, tuple[int, int], int]:
    table.seen.append(k)
    return table.values[k], (os.getpid(), threading.get_ident()), len(table.seen)


def refuse_odd(_: None, k: int) -> int:
    if k % 2:
        raise ModelTooWide(f"item {k} is odd", "take even ones")
    return k


def die_once(marker: str, k: int) -> int:
    """Kill the worker at item 3, the first time."""
    if k == 3 and not os.path.exists(marker):
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return k * k


def die(_: None, k: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return k


def slow_look_up(table: Table, k: int) -> bool:
    """Return whether nobody else used the table meanwhile."""
    table.seen.append(k)
    time.sleep(0.005)
    return table.seen[-1] == k


def slowly(_: None, k: int) -> int:
    time.sleep(0.05)
    return k


@pytest.fixture(scope="module", params=["threads", "processes", "workers"])
def pool(request: pytest.FixtureRequest) -> Iterator[Executor]:
    made = {
        "threads": lambda: ThreadPoolExecutor(2),
        "processes": lambda: ProcessPoolExecutor(2, mp_context=get_context("spawn")),
        "workers": lambda: Workers(2),
    }[request.param]()
    with made:
        yield made


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_answers_come_in_the_order_of_the_items(pool: Executor, chunk: int) -> None:
    items = list(range(40))
    here = list(each(pow, items, shared=3))
    assert list(each(pow, iter(items), shared=3, executor=pool, chunk=chunk)) == here


def test_what_is_shared_stays_in_a_worker_between_chunks(pool: Executor) -> None:
    table = Table(list(range(10_000)))  # too large to go along with every chunk
    found = list(each(look_up, range(60), shared=table, executor=pool))
    assert [value for value, _, _ in found] == list(range(60))
    calls = Counter(worker for _, worker, _ in found)
    largest = {worker: max(n for _, w, n in found if w == worker) for worker in calls}
    assert largest == calls  # every call of a worker saw one and the same object, which is nobody else's


@pytest.mark.parametrize("size", [10, 10_000], ids=["small", "large"])
def test_threads_do_not_share_what_they_keep(size: int) -> None:
    """What a worker prepares is made for one at a time: the threads of a process have their own."""
    with ThreadPoolExecutor(4) as pool:
        found = each(slow_look_up, range(64), shared=Table(list(range(size))), executor=pool, chunk=2)
        assert all(found)


def test_the_first_error_in_the_order_of_the_items_is_raised(pool: Executor) -> None:
    found = each(refuse_odd, [0, 2, 4, 5, 6, 7], executor=pool, chunk=2)
    assert [next(found) for _ in range(3)] == [0, 2, 4]
    with pytest.raises(ModelTooWide, match="item 5 is odd: take even ones"):
        next(found)


def test_endless_items_are_taken_as_they_are_needed(pool: Executor) -> None:
    taken: list[int] = []

    def endless() -> Iterator[int]:
        while True:
            taken.append(len(taken))
            yield taken[-1]

    found = each(pow, endless(), shared=1, executor=pool)
    assert [next(found) for _ in range(5)] == [1] * 5
    found.close()  # type: ignore[attr-defined]
    assert len(taken) < 50


def test_progress_is_told_and_can_cancel(pool: Executor) -> None:
    told: list[float] = []
    assert list(each(pow, range(8), shared=2, executor=pool, progress=lambda _, share: told.append(share)))
    assert told[-1] == 1.0
    assert told == sorted(told)

    def stop(label: str, share: float) -> None:
        assert label == "counting"
        if share > 0.2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(each(slowly, range(10), executor=pool, progress=stop, label="counting"))


def test_a_dead_workers_part_is_done_again(tmp_path: Path) -> None:
    marker = tmp_path / "died"
    with Workers(2) as pool:
        assert list(each(die_once, range(12), shared=str(marker), executor=pool)) == [
            k * k for k in range(12)
        ]
    assert marker.exists()


def test_work_that_kills_every_worker_ends_in_a_clear_error() -> None:
    with Workers(1) as pool, pytest.raises(WorkerLost, match=r"3 times in a row.*a part would be missing"):
        list(each(die, [1], executor=pool))


def test_a_pool_that_cannot_be_replaced_ends_in_a_clear_error() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool, pytest.raises(WorkerLost):
        list(each(die, range(5), executor=pool))


def test_what_cannot_be_sent_is_told() -> None:
    with Workers(1) as pool, pytest.raises(WorkerLost, match=r"pickle|local object"):  # 3.13 says so
        list(each(lambda _, k: k, [1], executor=pool))


def test_an_interrupt_ends_what_is_under_way() -> None:
    def interrupted() -> int:
        with contextlib.suppress(KeyboardInterrupt), Workers(1) as pool:
            process = pool.submit(os.getpid).result()
            pool.submit(time.sleep, 3600.0)
            raise KeyboardInterrupt
        return process

    process = interrupted()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_a_process_that_is_stopped_does_not_hold_up_an_interrupt() -> None:
    def interrupted() -> int:
        with contextlib.suppress(KeyboardInterrupt), Workers(1) as pool:
            process = pool.submit(os.getpid).result()
            os.kill(process, signal.SIGSTOP)  # what is sent to it waits until it goes on
            raise KeyboardInterrupt
        return process

    process = interrupted()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_a_process_that_dies_while_it_begins_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    usual, failed = ProcessPoolExecutor.submit, []

    def submit(pool: ProcessPoolExecutor, *args: Any, **kwargs: Any) -> Future[Any]:
        if not failed:
            failed.append(pool)
            raise BrokenPipeError(32, "Broken pipe")  # its pipe is closed before it was told what to import
        return usual(pool, *args, **kwargs)

    monkeypatch.setattr(ProcessPoolExecutor, "submit", submit)
    with Workers(2) as pool:
        assert list(each(pow, range(6), shared=2, executor=pool)) == [1, 2, 4, 8, 16, 32]
    assert failed


def test_one_worker_is_this_process() -> None:
    for count in (None, 1):
        with workers(count) as pool:
            assert pool is None
    for count in (0, -1, 10**6, 1.5, True):
        with pytest.raises(InvalidArgument, match="workers"):
            Workers(count)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="chunk"):
        list(each(pow, [1], shared=2, chunk=0))


def die_at(shared: tuple[str, list[int]], k: int) -> int:
    marker, table = shared
    if k == 2 and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return table[k]


def test_what_is_shared_is_sent_again_to_a_new_process(tmp_path: Path) -> None:
    table = list(range(10, 20_010))
    with Workers(2) as pool:
        for _ in range(2):
            shared = (str(tmp_path / "died"), table)
            assert list(each(die_at, range(6), shared=shared, executor=pool)) == table[:6]


class Inline(Executor):
    """Works at once, and tells how many workers it has only if it is told."""

    def __init__(self, count: int | None = None) -> None:
        self.tasks: list[tuple[Any, ...]] = []
        if count is not None:
            self._max_workers = count

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.tasks.append(args)
        future: Future[Any] = Future()
        future.set_result(self.answer(fn(*args, **kwargs)))
        return future

    def answer(self, found: Any) -> Any:
        return found


def test_tasks_are_large_while_much_is_left_and_single_items_at_the_end() -> None:
    pool = Inline(2)
    assert list(each(pow, range(400), shared=1, executor=pool)) == [1] * 400
    sizes = [len(items) for _, _, _, items in pool.tasks]
    assert sum(sizes) == 400
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 16
    assert sizes[-14:] == [1] * 14
    assert len(sizes) < 60
    for other in (Inline(), Inline(64)):  # it does not say how many work there, or they are many
        list(each(pow, range(400), shared=1, executor=other))
        assert {len(items) for *_, items in other.tasks} == {1}


class Raises(Executor):
    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        raise OSError(24, "too many open files")


class Cancelled(Executor):
    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(asyncio.CancelledError())
        return future


class Shortened(Inline):
    def answer(self, found: Any) -> Any:
        return found[0][:-1], found[1]


class Garbage(Inline):
    def answer(self, found: Any) -> Any:
        return None


@pytest.mark.parametrize(
    ("pool", "said"),
    [
        (Raises(), "too many open files"),
        (Cancelled(), "CancelledError"),
        (Shortened(2), "something else"),
        (Garbage(), "something else: 'None'"),
    ],
    ids=lambda p: type(p).__name__,
)
@pytest.mark.parametrize("shared", [1, 2**200_000], ids=["small", "large"])
def test_an_executor_that_does_not_do_its_work_ends_in_a_clear_error(
    pool: Executor, said: str, shared: int
) -> None:
    with pytest.raises(WorkerLost, match=f"{said}.*a part would be missing"):
        list(each(minimum, range(40), shared=shared, executor=pool))


def minimum(a: int, b: int) -> int:
    return min(a, b)


def test_a_pool_that_is_shut_down_midway_ends_in_a_clear_error() -> None:
    pool = ThreadPoolExecutor(2)
    found = each(pow, range(1000), shared=1, executor=pool)
    assert next(found) == 1
    pool.shutdown(cancel_futures=True)
    with pytest.raises(WorkerLost, match="a part would be missing"):
        list(found)


@pytest.mark.parametrize("wrong", [42, "dask", ThreadPoolExecutor])
def test_what_is_no_executor_is_refused_in_one_line(wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"executor must be a concurrent\.futures\.Executor"):
        list(each(pow, [1], shared=1, executor=wrong))
    with pytest.raises(InvalidArgument, match="executor must be"):
        qd.leakage(qd.example("asia"), 0.1, "group", executor=wrong)
    assert worker_count(ThreadPoolExecutor(3)) == 3
