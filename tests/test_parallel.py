"""One ordered map over any executor: the same answers, errors and order, whatever happens to workers."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from quiltdp.errors import InvalidArgument, ModelTooWide, WorkerLost
from quiltdp.parallel import Workers, each, workers


class Table:
    """Something shared that notices how often it was unpickled in this process."""

    def __init__(self, values: list[int]) -> None:
        self.values = values
        self.seen: list[int] = []

    def __getstate__(self) -> dict[str, Any]:
        return {"values": self.values, "seen": []}


def look_up(table: Table, k: int) -> tuple[int, int, int]:
    table.seen.append(k)
    return table.values[k], os.getpid(), len(table.seen)


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
    calls: dict[int, int] = {}
    for _, process, _ in found:
        calls[process] = calls.get(process, 0) + 1
    largest = {process: max(n for _, p, n in found if p == process) for process in calls}
    assert largest == calls  # every call of a process saw one and the same object


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


def test_one_worker_is_this_process() -> None:
    for count in (None, 1):
        with workers(count) as pool:
            assert pool is None
    for count in (0, -1, 10**6, 1.5, True):
        with pytest.raises(InvalidArgument, match="workers"):
            Workers(count)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="chunk"):
        list(each(pow, [1], shared=2, chunk=0))


def process(_: None, k: int) -> tuple[int, int]:
    return k, os.getpid()


def test_items_of_one_place_meet_one_process() -> None:
    """Places go to and fro over the processes: of four places two workers get 0, 3 and 1, 2."""
    with Workers(2) as pool:
        found = [dict(each(process, range(4), executor=pool, place=lambda k: k)) for _ in range(2)]
    assert found[0] == found[1]
    pids = found[0]
    assert pids[0] == pids[3] != pids[1] == pids[2]
