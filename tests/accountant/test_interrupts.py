"""Ctrl-C at any moment: the ledger is free for everybody afterwards, nothing lost, nothing charged twice."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from ledger_fakes import terms

from quiltdp.accountant.ledger import Ledger, interruptible, locks
from quiltdp.accountant.ledger.interrupts import uninterrupted

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and POSIX signals")

OURS = (os.path.dirname(locks.__file__), contextlib.__file__)
LITTLE = 1e-6


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent may ignore it
    yield
    signal.signal(signal.SIGINT, before)


def _serve(orders: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for path, key in iter(orders.recv, None):
        try:
            Ledger.open(path, timeout=5.0).charge(LITTLE, key=key)
            orders.send("charged")
        except Exception as error:
            orders.send(repr(error))


@pytest.fixture
def another_process() -> Iterator[Callable[[Path, str], str]]:
    """Return what a process that is always there says when it is to charge a key."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there,), daemon=True)
    process.start()

    def charge(path: Path, key: str) -> str:
        here.send((path, key))
        return str(here.recv())

    yield charge
    here.send(None)
    process.join()


class At:
    """Do something at the k-th step of this library's code; a step is one instruction of Python."""

    def __init__(self, k: int, what: Callable[[], None]) -> None:
        self.left, self.what = k, what

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            self.left -= 1
            if self.left == 0:
                self.what()
        return self

    def run(self, work: Callable[[], object]) -> BaseException | None:
        before = sys.gettrace()
        sys.settrace(self)
        try:
            work()
        except BaseException as error:
            return error
        finally:
            sys.settrace(before)
        return None


def work(path: Path, key: str) -> None:
    Ledger.open(path, timeout=0.0).charge(LITTLE, key=key)


class Trial:
    """One ledger, interrupted again and again."""

    def __init__(self, path: Path, another_process: Callable[[Path, str], str]) -> None:
        self.path, self.another_process = path, another_process
        self.ends: dict[str, BaseException | None] = {}
        Ledger.create(path, terms()).close()

    def interrupted(self, key: str, error: BaseException | None) -> None:
        """Note how a charge ended; then charge from another process, another object, another thread."""
        self.ends[key] = error
        assert self.another_process(self.path, f"{key}, another process") == "charged", key
        work(self.path, f"{key}, another object")
        thread = threading.Thread(target=work, args=(self.path, f"{key}, another thread"))
        thread.start()
        thread.join()
        assert not locks._UNDER_WAY, key  # and processes may be forked
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    def check(self) -> None:
        """Nothing that was told is missing, nothing is there twice."""
        ledger = Ledger.open(self.path)
        entries, again = ledger.verify().seq, {k: ledger.charge(LITTLE, key=k).repeated for k in self.ends}
        assert entries == 3 * len(self.ends) + sum(again.values())
        assert all(again[key] for key, error in self.ends.items() if error is None)


def ctrl_c_now() -> None:
    signal.raise_signal(signal.SIGINT)


def out_of_the_blue() -> None:
    """Raise whatever the handlers are, as one thread can raise something in another."""
    raise KeyboardInterrupt


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in the end of an object
@pytest.mark.parametrize(
    ("stride", "what"),
    [
        pytest.param(149, ctrl_c_now, marks=pytest.mark.slow),
        (149, out_of_the_blue),
        pytest.param(1, ctrl_c_now, marks=pytest.mark.slow),  # all of them, minutes
        pytest.param(7, out_of_the_blue, marks=pytest.mark.slow),
    ],
)
def test_an_interrupt_at_any_instruction_leaves_the_ledger_free(
    quick_path: Path, another_process: Callable[[Path, str], str], stride: int, what: Callable[[], None]
) -> None:
    """After Ctrl-C even while a traceback keeps alive whatever the interrupted code had in hand."""
    trial = Trial(quick_path / "0.db", another_process)
    for k in itertools.count(1, stride):
        if len(trial.ends) == 50:  # short chains are quick to walk
            trial.check()
            trial = Trial(quick_path / f"{k}.db", another_process)
        at = At(k, what)
        error = at.run(lambda k=k, path=trial.path: work(path, str(k)))
        if what is out_of_the_blue and error is not None:
            error = KeyboardInterrupt()  # its traceback is dropped
        trial.interrupted(str(k), error)
        if at.left > 0:
            break
    trial.check()
    assert k > 5000


@pytest.mark.parametrize("count", [100, pytest.param(5000, marks=pytest.mark.slow)])
def test_interrupts_at_random_moments(
    quick_path: Path, another_process: Callable[[Path, str], str], count: int
) -> None:
    """Signals of the system: Ctrl-C and an alarm whose handler raises, as time limits do."""
    rng = random.Random(count)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    trial, seconds, interrupted = Trial(quick_path / "0.db", another_process), 0.0, 0
    try:
        for k in range(count):
            if len(trial.ends) == 50:
                trial.check()
                trial = Trial(quick_path / f"{k}.db", another_process)
                seconds = 0.0
            error: BaseException | None = None
            try:
                start = time.perf_counter()
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, max(seconds, 1e-3)))
                try:
                    work(trial.path, str(k))
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0.0)
            except KeyboardInterrupt as caught:
                error = caught
                interrupted += 1
            seconds = max(seconds, time.perf_counter() - start)
            trial.interrupted(str(k), error)
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    trial.check()
    assert interrupted > count / 10


def test_who_waits_for_a_ledger_can_be_interrupted(quick_path: Path) -> None:
    """For another thread here; a second signal waits until the first has unwound."""
    ledger = Ledger.create(quick_path / "study.db", terms())
    inside, done = threading.Event(), threading.Event()

    def hold() -> None:
        with ledger.visit():
            inside.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    timer = threading.Timer(0.05, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            ledger.charge(0.5)
    finally:
        done.set()
        thread.join()
    assert ledger.charge(0.5).seq == 1


def _three_signals(said: list[str]) -> None:
    with uninterrupted():
        for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGUSR1):
            signal.raise_signal(number)
        with uninterrupted():
            said.append("inside")


def test_signals_wait_and_all_are_delivered() -> None:
    said: list[str] = []
    signal.signal(signal.SIGUSR1, lambda *_: said.append("usr1"))
    try:
        with pytest.raises(KeyboardInterrupt):
            _three_signals(said)
        assert said == ["inside", "usr1"]
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt), interruptible():
                said.append("not reached")
            with pytest.raises(KeyboardInterrupt), interruptible():
                signal.raise_signal(signal.SIGINT)
        assert said[-1] == "usr1"
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)


def test_an_event_loop_hears_a_signal_once(quick_path: Path) -> None:
    """It hears through a file descriptor, whatever the handler; so nothing is sent to it again."""
    said: list[str] = []

    async def wait() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, said.append, "usr1")
        with uninterrupted():
            signal.raise_signal(signal.SIGUSR1)
        await asyncio.sleep(0.01)

    asyncio.run(wait())
    assert said == ["usr1"]


def test_a_handler_that_a_query_installs_stays() -> None:
    def other(*_: object) -> None: ...

    with uninterrupted(), interruptible():
        signal.signal(signal.SIGINT, other)
    assert signal.getsignal(signal.SIGINT) is other


def test_a_child_forked_meanwhile_can_be_interrupted() -> None:
    with uninterrupted():
        child = os.fork()
        if child == 0:
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                os._exit(7)
            finally:
                os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
