"""What a command works with: limits, worker processes, a progress bar.

Where a limit that somebody set is reached, the answer is a partial one: printed, marked in its first line,
and left with exit code 3.  Nothing is written or charged, unless ``--allow-partial`` says so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from quiltdp.cli.app import Exit
from quiltdp.cli.show import say
from quiltdp.errors import LimitReached
from quiltdp.work import Guard

if TYPE_CHECKING:
    from quiltdp.accountant.request import Progress

_Answer = TypeVar("_Answer")


class Limits:
    """The limits of a command, and whether one was reached.

    Parameters
    ----------
    guard
        For every analysis of the command.
    allow_partial
        Whether a partial answer may be written and charged.
    json
        Whether :func:`~quiltdp.cli.app.emit_json` marks it (with ``reached``), and no line for people.
    """

    def __init__(self, guard: Guard, *, allow_partial: bool = False, json: bool = False) -> None:
        self.guard, self.reached = guard, ""
        self._allow_partial, self._json = allow_partial, json

    def answer(self, question: Callable[[], _Answer]) -> _Answer:
        """Return an answer; where a limit is reached, the partial one, marked before anything is printed."""
        try:
            return question()
        except LimitReached as limit:
            if limit.partial is None:
                raise
            if not self.reached:
                self.reached = limit.reason
                if not self._json:
                    say(f"PARTIAL ANSWER: {self.reached}")
            found: _Answer = limit.partial
            return found

    def may_write(self, what: str = "") -> bool:
        """Return whether the answer may be written or charged; if not, say that ``what`` was not."""
        if self._allow_partial or not self.reached:
            return True
        if what:
            say(f"quiltdp: {what} was not written: the answer is partial", err=True)
        return False


@contextmanager
def limited(time_limit: float | None, *, allow_partial: bool = False, json: bool = False) -> Iterator[Limits]:
    """Yield the limits of a command, which begin now; leave with exit code 3 if one was reached."""
    limits = Limits(Guard(time_limit, None), allow_partial=allow_partial, json=json)
    yield limits
    if limits.reached:
        raise Exit(LimitReached.exit_code)


def worker_pool(count: int | None) -> AbstractContextManager[Any]:
    """Return worker processes for a ``with`` block, or none; their machinery is loaded when needed."""
    if count is None or count == 1:
        return nullcontext()
    from quiltdp import parallel

    return parallel.workers(count)


@contextmanager
def progress_bar() -> Iterator[Progress | None]:
    """Show a bar on stderr while long work runs; nothing when stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=1.0)

        def report(label: str, share: float) -> None:
            bar.update(task, description=label, completed=share)

        yield report
