"""How far a search may go: work budgets in counts, and guards in seconds and bytes.

A :class:`WorkBudget` decides how good an answer is and stands in its certificate: the same model,
request and budget give the same number on every machine.  A :class:`Guard` is a limit that somebody set;
nobody sets one by default.  Past it there is no answer, only :class:`~quiltdp.errors.LimitReached`, which
carries what had been finished.  This is the only module of the engine that reads a clock.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar

from quiltdp.errors import InvalidArgument, option


@dataclass(frozen=True)
class WorkBudget:
    """How far a search may go, in counts.

    Attributes
    ----------
    level
        The name it goes by: ``quick``, ``normal``, ``thorough``, or ``custom``.
    quilts
        The most quilts looked at for one unit.
    entries
        The most entries of any one table.
    states
        The most possible states of a clique in methods that list them.
    pairs
        The most pairs of states that one tree method may compare, over all its cliques.
    programs
        The most linear programs solved.
    evidence
        The most sets and values of known records that a model is conditioned on.
    until
        The last stage that is taken; empty for all.

    Examples
    --------
    >>> WorkBudget.named("quick").level, WorkBudget.named("normal:propagation").until
    ('quick', 'propagation')
    """

    level: str = "normal"
    quilts: int = 48
    entries: int = 2**17
    states: int = 2_000
    pairs: int = 20_000_000
    programs: int = 20_000
    evidence: int = 300
    until: str = ""
    is_comparison: ClassVar[bool] = False
    """Whether the answer only stands beside another one, and must not cost more."""

    @classmethod
    def named(cls, level: str | WorkBudget) -> WorkBudget:
        """Return the budget of that name, or the budget itself; ``level:stage`` stops after a stage."""
        if isinstance(level, WorkBudget):
            return level
        name, _, until = level.partition(":") if isinstance(level, str) else (level, "", "")
        if name not in LEVELS:
            raise InvalidArgument(f"{option('work')} must be one of {', '.join(LEVELS)}, not {level!r}")
        return replace(LEVELS[name], until=until) if until else LEVELS[name]

    @classmethod
    def from_dict(cls, given: Mapping[str, Any], until: str = "") -> WorkBudget:
        """Read back what :meth:`to_dict` wrote (nothing: the usual budget), ending with a stage.

        The version before marked rough halves of stages by ``~`` and namesakes by ``@``.
        """
        known = {f.name for f in fields(cls)}
        for name, value in given.items():
            text = name in ("level", "until")
            wrong = not isinstance(value, str) if text else type(value) is not int or not 0 <= value < 2**62
            if name not in known or wrong:
                raise InvalidArgument(f"{option('work')}: {name!r} cannot be {value!r}")
        return replace(cls(**given), until=until.partition("@")[0].removesuffix("~"))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        return asdict(self)

    def describe_stop(self, struck: GuardReached, finished: Sequence[str]) -> str:
        """Return, for people, that a limit was reached after these stages, and how to get their answer."""
        stage = finished[-1]
        again = f"{self.level}:{stage}"
        typed = f"work={again!r} (--work {again})"
        if replace(self, until="") != LEVELS.get(self.level):
            typed = f"the same work budget with until={stage!r}"
        done = f"bounds that had finished: {', '.join(finished)}"
        return f"{struck} after stage {stage!r}; {typed} gives this partial answer again; {done}"


_NORMAL = WorkBudget()
LEVELS = {
    "quick": replace(
        _NORMAL,
        level="quick",
        quilts=8,
        entries=2**14,
        states=500,
        pairs=1_000_000,
        programs=1_000,
        evidence=30,
    ),
    "normal": _NORMAL,
    "thorough": replace(
        _NORMAL,
        level="thorough",
        quilts=400,
        entries=2**22,
        states=20_000,
        pairs=1_000_000_000,
        programs=10**6,
        evidence=5_000,
    ),
}


@dataclass(frozen=True)
class ComparisonBudget(WorkBudget):
    """The budget of a comparison: what would cost more than the answer it stands beside is refused."""

    is_comparison: ClassVar[bool] = True


class GuardReached(Exception):
    """A limit was reached in the middle of some work, which has no result."""


class Guard:
    """A limit in seconds and bytes that somebody set, looked at between chunks of work.

    Several analyses may share one: it counts from when it was made.

    Parameters
    ----------
    seconds, max_bytes
        The limits; ``None`` for none.  Bytes are what the process has taken since the guard was made.

    Examples
    --------
    >>> Guard(seconds=60.0).check(planned_bytes=10**12)
    >>> Guard(max_bytes=10**6).check(planned_bytes=10**12)
    Traceback (most recent call last):
    quiltdp.work.GuardReached: the memory limit was reached
    """

    def __init__(self, seconds: float | None = None, max_bytes: int | None = None) -> None:
        self._limits = (seconds, max_bytes)
        self.restart()

    def restart(self) -> None:
        """Begin anew, for the next question."""
        seconds, max_bytes = self._limits
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._bytes = None if max_bytes is None else max_bytes + _resident_bytes()

    def copy_limits(self, other: Guard) -> None:
        """Strike when another guard does; whoever holds this one sees it."""
        self._deadline, self._bytes = other._deadline, other._bytes

    def __getstate__(self) -> dict[str, Any]:
        """Send when it strikes, by the clock on the wall, and the bytes that are left."""
        end = None if self._deadline is None else self._deadline - time.monotonic() + time.time()
        bytes_left = None if self._bytes is None else max(0, self._bytes - _resident_bytes())
        return {"_limits": self._limits, "_deadline": end, "_bytes": bytes_left}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Strike at the same time, with as many bytes more."""
        end, bytes_left = state["_deadline"], state["_bytes"]
        self._limits = state["_limits"]
        self._deadline = None if end is None else end - time.time() + time.monotonic()
        self._bytes = None if bytes_left is None else bytes_left + _resident_bytes()

    @property
    def seconds_left(self) -> float:
        """How long work that keeps time itself may take; ∞ without a limit."""
        return math.inf if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def check(self, planned_bytes: int = 0) -> None:
        """Raise :class:`GuardReached` past the time limit, or if ``planned_bytes`` more would be too many."""
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise GuardReached("the time limit was reached")
        if self._bytes is not None and _resident_bytes() + planned_bytes > self._bytes:
            raise GuardReached("the memory limit was reached")


def _resident_bytes() -> int:
    """Return the bytes of memory that the process holds (where the system does not tell: its peak)."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


NO_GUARD = Guard()
Limit = float | Guard | None
"""Seconds, or a guard that several analyses share; ``None`` for no limit."""
