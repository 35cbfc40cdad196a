"""Locks of a ledger: one writer, many readers, one thread, and nobody who was forked in the middle."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from quiltdp.accountant.ledger.locks import FileLock, ThreadLock, refuse_after_fork, under_way
from quiltdp.errors import Refused

fcntl = pytest.importorskip("fcntl")


def test_a_writer_is_alone_and_readers_are_together(tmp_path: Path) -> None:
    lock, other = FileLock(str(tmp_path / "a.db")), FileLock(str(tmp_path / "a.db"))
    lock.make()
    with lock.held("a.db", 1.0, alone=True):
        for alone in (True, False):
            held = other.held("a.db", 0.0, alone=alone)
            with pytest.raises(Refused, match="other processes held the ledger for 0 s"), held:
                pass
    with lock.held("a.db", 1.0, alone=False), other.held("a.db", 0.0, alone=False):
        third = FileLock(str(tmp_path / "a.db")).held("a.db", 0.0, alone=True)
        with pytest.raises(Refused), third:
            pass
    with other.held("a.db", 0.0, alone=True):  # everything was given back
        pass


def test_readers_leave_no_file_and_writers_follow_no_link(tmp_path: Path) -> None:
    with FileLock(str(tmp_path / "b.db")).held("b.db", 0.0, alone=False):
        assert not list(tmp_path.iterdir())
    (tmp_path / "c.db-lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused, match="cannot be opened"):
        FileLock(str(tmp_path / "c.db")).make()
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
