"""Locks of a ledger: one writer, many readers, one thread, and nobody who was forked in the middle."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress
from pathlib import Path
from weakref import ref

import pytest
from ledger_fakes import terms

from quiltdp.accountant.ledger import Ledger
from quiltdp.accountant.ledger.anchor import Anchor
from quiltdp.accountant.ledger.locks import FileLock, ThreadLock, Use, refuse_after_fork, under_way
from quiltdp.errors import Refused

fcntl = pytest.importorskip("fcntl")


def test_a_writer_is_alone_and_readers_are_together(tmp_path: Path) -> None:
    lock, other = FileLock(str(tmp_path / "a.db-lock")), FileLock(str(tmp_path / "a.db-lock"))
    lock.make()
    with lock.held("a.db", 1.0, alone=True):
        for alone in (True, False):
            held = other.held("a.db", 0.0, alone=alone)
            with pytest.raises(Refused, match="other processes held the ledger for 0 s"), held:
                pass
    with lock.held("a.db", 1.0, alone=False), other.held("a.db", 0.0, alone=False):
        third = FileLock(str(tmp_path / "a.db-lock")).held("a.db", 0.0, alone=True)
        with pytest.raises(Refused), third:
            pass
    with other.held("a.db", 0.0, alone=True):  # everything was given back
        pass


def test_readers_leave_no_file_and_writers_follow_no_link(tmp_path: Path) -> None:
    with FileLock(str(tmp_path / "b.db-lock")).held("b.db", 0.0, alone=False):
        assert not list(tmp_path.iterdir())
    (tmp_path / "c.db-lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused, match="cannot be opened"):
        FileLock(str(tmp_path / "c.db-lock")).make()
    assert not (tmp_path / "elsewhere").exists()


def test_one_thread_at_a_time_and_never_twice() -> None:
    lock, said = ThreadLock(), []

    def other() -> None:
        try:
            with lock.held("d.db", 0.0):
                said.append("in")
        except Refused as error:
            said.append(str(error))

    with lock.held("d.db", 1.0):
        with pytest.raises(Refused, match="this thread is in the middle"), lock.held("d.db", 1.0):
            pass
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert "other threads held the ledger" in said.pop()
    other()
    assert said == ["in"]


def test_a_lock_lasts_no_longer_than_who_holds_it() -> None:
    """A thread that was broken off before it could give the lock back; another waits already."""
    lock, use = ThreadLock(), Use()
    use.thread = 0
    lock._queue.append(ref(use))
    said: list[str] = []

    def other() -> None:
        with lock.held("e.db", 60.0):
            said.append("in")

    thread = threading.Thread(target=other)
    thread.start()
    thread.join(0.05)
    assert said == []
    del use
    thread.join()
    assert said == ["in"]


@pytest.mark.parametrize("why", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: int
) -> None:
    """A network drive: nothing is charged, no file stays open."""
    path, anchor = tmp_path / "f.db", tmp_path / "anchor.json"
    ledger = Ledger.create(path, terms())
    anchored = Ledger.create(tmp_path / "g.db", terms(), anchor=anchor)

    def broken(file: object, operation: int) -> None:
        raise OSError(why, os.strerror(why))

    opened = Path("/proc/self/fd")
    before = len(list(opened.iterdir())) if opened.exists() else 0
    uses = [lambda: ledger.charge(0.5), lambda: ledger.head, lambda: Ledger.open(path)]
    uses += [lambda: Ledger.create(tmp_path / "h.db", terms())]
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", broken)
        for use in uses:
            with pytest.raises(Refused, match=r"cannot be locked .* local file system") as refused:
                use()
            assert "\n" not in str(refused.value)
        with pytest.raises(Refused, match=r"anchor.json.* cannot be locked"):
            Anchor(anchor).advance(anchored.genesis["id"], 1, "")
    assert not (tmp_path / "h.db").exists()
    if opened.exists():
        assert len(list(opened.iterdir())) == before
    assert ledger.charge(0.5).seq == 1


def test_a_child_forked_in_the_middle_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_after_fork("e.db")
    parent = os.getpid()
    with under_way():
        refuse_after_fork("e.db")
        with monkeypatch.context() as child:
            child.setattr(os, "getpid", lambda: parent + 1)
            with pytest.raises(Refused, match="forked while its parent"):
                refuse_after_fork("e.db")
    refuse_after_fork("e.db")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_child_is_refused_after_the_block_too_and_for_other_threads() -> None:
    inside, done = threading.Event(), threading.Event()

    def other() -> None:
        with under_way():
            inside.set()
            done.wait()

    def refused_in_a_child() -> bool:
        child = os.fork()
        if child == 0:
            with suppress(Refused):
                refuse_after_fork("f.db")
                os._exit(1)
            os._exit(7)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait()
    assert refused_in_a_child()
    done.set()
    thread.join()
    assert not refused_in_a_child()
    child = 0
    with under_way():
        child = os.fork()
    if child == 0:
        with suppress(Refused):
            refuse_after_fork("f.db")
            os._exit(1)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
