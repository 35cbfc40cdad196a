"""Interrupts wait while a ledger is held, except where it waits or works for its user.

Python runs a signal's handler in the main thread between any two instructions: also after a lock was
taken and before that is remembered, and at the first instruction of whatever would give it back.  Ctrl-C
there would leave the ledger locked.  So while a ledger is held, signals whose handlers could raise are
noted, and delivered once everything is given back.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar
from weakref import ref

__all__ = ["interruptible", "uninterrupted"]

Handler = Callable[[int, Any], Any]

_SIGNALS = tuple(signal.valid_signals())


class _Delay:
    """Signals wait as long as this object lives, or until :meth:`end`; made in the main thread."""

    current: ClassVar[ref[_Delay] | None] = None

    def __init__(self) -> None:
        self.open = False
        self.waiting: list[int] = []
        every = [(number, signal.getsignal(number)) for number in _SIGNALS]
        self._handlers = [(n, h, self._noting(h)) for n, h in every if callable(h)]

    def _noting(self, previous: Handler) -> Handler:
        """Return the handler that takes the place of another."""
        found, process = ref(self), os.getpid()

        def note(number: int, frame: Any) -> None:
            delay = found()
            if delay is None or os.getpid() != process:  # abandoned, or in a child forked meanwhile
                previous(number, frame)
            elif delay.open:
                delay.open = False  # what unwinds now is not interrupted again
                previous(number, frame)
                delay.open = True
            elif number not in delay.waiting:
                delay.waiting.append(number)

        return note

    def begin(self) -> None:
        """Let signals wait from now on."""
        for number, _, note in self._handlers:
            signal.signal(number, note)

    def deliver(self) -> None:
        """Deliver what waits, all of it, whatever one of the handlers raises."""
        if self.waiting:
            number = self.waiting.pop(0)
            handler = signal.getsignal(number)
            try:
                if callable(handler):  # not raised anew: an event loop would hear it twice
                    handler(number, sys._getframe())
            finally:
                self.deliver()

    def end(self) -> None:
        """Put the handlers back, all of them, whatever one that is back raises; then deliver."""
        try:
            while self._handlers:
                number, previous, note = self._handlers[-1]
                if signal.getsignal(number) is note:
                    signal.signal(number, previous)
                self._handlers.pop()
        finally:
            if self._handlers:
                self.end()
            else:
                self.deliver()


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _delay() -> _Delay | None:
    """Return what makes signals of this thread wait, if anything does."""
    return None if _Delay.current is None or not _in_main_thread() else _Delay.current()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let signals wait until the end of a block; other threads than the main one are never interrupted."""
    known = _delay()
    if not _in_main_thread() or (known is not None and not known.open):  # they wait already
        yield
        return
    delay, outer = _Delay(), _Delay.current
    try:
        delay.begin()
        _Delay.current = ref(delay)
        yield
    finally:
        _Delay.current = outer
        delay.end()


@contextmanager
def interruptible() -> Iterator[None]:
    """Let signals through in a part of an uninterrupted block: what waits, and what comes."""
    delay = _delay()
    if delay is None:
        yield
        return
    delay.open = True
    try:
        delay.deliver()
        yield
    finally:
        delay.open = False
