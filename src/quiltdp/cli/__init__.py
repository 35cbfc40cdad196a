"""The command line: ``quiltdp COMMAND MODEL …``."""

from __future__ import annotations

import _thread
import atexit
import gc
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from sys import UnraisableHookArgs
    from types import FrameType

_YOUNG = 10_000  # objects between two looks for cycles: a start makes many, and nearly all of them stay


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave with its exit code; 130 when it is interrupted, however early."""
    # Many small tables: more threads only wait for each other, at twice the processor time.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    gc.set_threshold(_YOUNG)
    atexit.register(gc.freeze)  # the process ends: its memory goes at once, not cycle by cycle
    for name in ("stdout", "stderr"):  # closed by the shell (>&-): write to nowhere
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - open to the end
    sys.unraisablehook = _interrupted_again
    pressed: list[int] = []  # Ctrl-C: a module that is interrupted while it loads may raise what it likes

    def note(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        signal.default_int_handler(number, frame)

    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    try:
        if usual and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, note)
        from quiltdp.cli.app import main as run

        run(arguments)
    except (KeyboardInterrupt, Exception) as error:
        if not pressed and not isinstance(error, KeyboardInterrupt):
            raise
        print("quiltdp: interrupted", file=sys.stderr)
        sys.exit(130)
    finally:
        if signal.getsignal(signal.SIGINT) is note:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupted_again(lost: UnraisableHookArgs) -> None:
    """An interruption where Python cannot raise it (a finaliser, a weak reference) comes again soon."""
    if issubclass(lost.exc_type, KeyboardInterrupt):
        again = threading.Timer(0.01, _interrupt_main)  # once this hook has returned
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(lost)


def _interrupt_main() -> None:
    if hasattr(signal, "pthread_kill"):  # a signal that is sent ends a sleep, too
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        _thread.interrupt_main()
