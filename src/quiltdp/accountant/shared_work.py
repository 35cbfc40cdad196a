"""One work budget and one time limit for an answer that several analyses make together.

A panel asks a family at many frequencies, a plan asks a model at many α and about two adversaries.  Where
a limit is reached in any of them, the partial answer is that of group privacy, the first stage, in *all*.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from quiltdp.accountant.adversaries import INFORMED, PRIOR
from quiltdp.accountant.leakage import LeakageProfile
from quiltdp.accountant.methods import automatic_stages, method_names
from quiltdp.accountant.units import make_guard
from quiltdp.errors import InvalidArgument, LimitReached, Refused, WorkerLost, option
from quiltdp.work import NO_GUARD, Guard, GuardReached, Limit, WorkBudget

_Answer = TypeVar("_Answer")

STAGES = automatic_stages(INFORMED, PRIOR)
"""The bounds of all adversaries in one order."""


@dataclass(frozen=True)
class WorkDone:
    """How far the search behind an answer went.

    Attributes
    ----------
    work
        The budget that was asked for.
    stage
        Where a limit was reached, the stage whose answer it is; else empty.
    reason
        Which limit.
    """

    work: WorkBudget
    stage: str = ""
    reason: str = ""

    @property
    def notes(self) -> tuple[str, ...]:
        """Where a limit was reached: after which stage, and how to get the same answer again."""
        if not self.stage:
            return ()
        return (self.work.describe_stop(GuardReached(self.reason), [self.stage]),)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary; ``stage`` is null where the whole budget was used."""
        return {"work": self.work.to_dict(), "stage": self.stage or None}


class SharedWork:
    """A work budget and a time limit, shared by all analyses behind an answer.

    Parameters
    ----------
    work
        How far searches go, in all of them.
    time_limit
        Seconds for an answer as a whole (:meth:`answer`), or a guard; ``None`` for no limit.

    Attributes
    ----------
    budget
        What analyses may spend now.
    guard
        What ends them.

    Examples
    --------
    >>> shared = SharedWork("normal:coupling", 30.0)
    >>> shared.budget_up_to("exact").until, shared.answer(lambda: 7), shared.done.notes
    ('exact', 7, ())
    """

    def __init__(self, work: str | WorkBudget = "normal", time_limit: Limit = None) -> None:
        self.asked = self.budget = WorkBudget.named(work)
        name = self.asked.until
        if name and name not in (*STAGES, *method_names(PRIOR), *method_names(INFORMED)):
            raise InvalidArgument(
                f"{option('work')}: {name!r} is not a stage; stages are among {', '.join(STAGES)}"
            )
        self._limit = make_guard(time_limit)
        self._shares_guard = self._limit is time_limit
        self.guard = NO_GUARD
        self._answering = False
        self._done = WorkDone(self.asked)

    @classmethod
    def inside(cls, budget: WorkBudget, guard: Guard) -> SharedWork:
        """Return a part of an answer that is being sought elsewhere: a limit that strikes is told there."""
        part = cls(budget)
        part.guard, part._answering = guard, True
        return part

    @property
    def done(self) -> WorkDone:
        """How far the last answer went; the next one begins with the whole budget again."""
        return self._done

    def budget_up_to(self, most: str = "") -> WorkBudget:
        """Return the budget, ended by the stage ``most`` at the latest."""
        places = [STAGES.index(s) for s in (self.budget.until, most) if s in STAGES]
        return replace(self.budget, until=STAGES[min(places)] if places else self.budget.until)

    def answer(self, question: Callable[[], _Answer]) -> _Answer:
        """Return the answer to a question that asks analyses, all with one budget and one limit.

        The question raises :class:`~quiltdp.work.GuardReached` where one of them was cut short
        (:func:`ask_within_guard`).  A question inside a question belongs to the outer one.

        Raises
        ------
        LimitReached
            With the answer of group privacy, if that is one.
        """
        if self._answering:
            return question()
        if not self._shares_guard:
            self._limit.restart()
        self._answering, self._done, self.guard = True, WorkDone(self.asked), self._limit
        try:
            return question()
        except GuardReached as struck:
            self.budget, self.guard = replace(self.asked, until=STAGES[0]), NO_GUARD
            self._done = WorkDone(self.asked, STAGES[0], str(struck))
            try:
                partial = question()
            except WorkerLost:
                raise
            except Refused as error:
                raise LimitReached(f"{struck}; by group privacy, which is quick: {error}") from None
            raise LimitReached(self._done.notes[0], partial) from None
        finally:
            self._answering, self.guard, self.budget = False, NO_GUARD, self.asked


def ask_within_guard(guard: Guard, profile: LeakageProfile, question: Callable[[], _Answer]) -> _Answer:
    """Ask a profile something; raise :class:`GuardReached` if it was cut short, now or before."""
    profile.workspace.guard.copy_limits(guard)
    try:
        return question()
    except LimitReached:
        raise GuardReached("the time limit was reached") from None
