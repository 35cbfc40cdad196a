"""Limits that somebody set: one guard for a whole command, and what it does when one is reached.

Then the answer is a partial one: printed, marked in its first line, and left with exit code 3.  Nothing is
written or charged, unless ``--allow-partial`` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, TypeVar

import typer

from quiltdp.cli.option_words import opt, switch
from quiltdp.cli.show import say
from quiltdp.errors import InvalidArgument, LimitReached
from quiltdp.work import Guard

__all__ = ["AllowPartial", "Limits", "MemoryLimit", "TimeLimit", "limited"]

TimeLimit = Annotated[
    float | None,
    opt(
        "SECONDS",
        "Stop then: the partial answer is printed, nothing is written, exit code 3. Default: no limit.",
        min=0.1,
    ),
]
MemoryLimit = Annotated[str | None, opt("SIZE", "The same for memory, for example 500M or 2G.")]
AllowPartial = Annotated[
    bool, switch("--allow-partial", "Where a limit is reached, write and charge the partial answer too.")
]

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
            say(f"quiltdp: {what} was not written: the answer is partial (--allow-partial)", err=True)
        return False


@contextmanager
def limited(
    time_limit: float | None,
    memory_limit: str | None = None,
    *,
    allow_partial: bool = False,
    json: bool = False,
) -> Iterator[Limits]:
    """Yield the limits of a command, which begin now; leave with exit code 3 if one was reached."""
    limits = Limits(Guard(time_limit, _bytes(memory_limit)), allow_partial=allow_partial, json=json)
    yield limits
    if limits.reached:
        raise typer.Exit(LimitReached.exit_code)


def _bytes(size: str | None) -> int | None:
    """Return the bytes of ``--memory-limit``, or refuse it."""
    if size is None:
        return None
    text = size.strip().upper().removesuffix("B").removesuffix("I")
    factor = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}.get(text[-1:], 1)
    try:
        number = float(text[:-1] if factor > 1 else text) * factor
    except ValueError:
        number = 0.0
    if not 0.0 < number < 2**60:
        raise InvalidArgument(f"--memory-limit {size!r}: write a size like 500M or 2G")
    return int(number)
