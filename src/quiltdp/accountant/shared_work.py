"""One work budget and one time limit for an answer that several analyses make together.

A panel asks a family at many frequencies, a plan asks a model at many α and about two adversaries.  Such
an answer is first sought with the whole budget.  Where the limit strikes in any of its analyses it is
sought stage by stage, *every* analysis ending with the same stage, and the answer is that of the last
stage which all of them finished: a budget that ends there (``normal:STAGE``) gives it again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from quiltdp.accountant.adversaries import INFORMED, PRIOR, Adversary, adversary_from
from quiltdp.accountant.leakage import AUTOMATIC
from quiltdp.accountant.methods import method_names
from quiltdp.accountant.profile import LeakageProfile
from quiltdp.accountant.units import positive_epsilon
from quiltdp.errors import InvalidArgument, Refused, WorkerLost, option
from quiltdp.work import Guard, GuardStruck, WorkBudget

__all__ = [
    "ON_NETWORKS",
    "STAGES",
    "SharedWork",
    "WorkDone",
    "ask_until",
    "budget_against",
    "end_for",
    "seconds_until",
]

_Answer = TypeVar("_Answer")
_AT_ONCE = 0.7  # the share of the limit for the whole budget; the rest is for going stage by stage
_FOREVER = 1e9  # seconds

_TWICE = {name for _, name, _ in AUTOMATIC if sum(1 for _, other, _ in AUTOMATIC if other == name) > 1}
STAGES = tuple(
    f"{name}@{against}" if against != PRIOR.name and name in _TWICE else name
    for against, name, _ in AUTOMATIC
)
"""The stages of all adversaries in one order, by the names that they have against the prior one."""

ON_NETWORKS = tuple(stage for stage in STAGES if stage.partition("@")[0] != "chain")
"""Those worth going through one by one on a network: parts of it that are chains are done on the way."""


def end_for(adversary: Adversary, stage: str) -> str:
    """Return the stage of ``adversary`` that a common stage ends with: its own last one up to there.

    Examples
    --------
    >>> end_for(PRIOR, "coupling"), end_for(INFORMED, "coupling"), end_for(INFORMED, "quilts@informed")
    ('coupling', 'exact', 'quilts')
    """
    name = stage.removesuffix("~")
    if name not in STAGES:
        return name if name in method_names(adversary) else ""
    last = STAGES.index(name)
    own = [k for k in range(last + 1) if adversary_from(AUTOMATIC[k][0]).covers(adversary)][-1]
    return AUTOMATIC[own][1] if AUTOMATIC[own][0] == adversary.name else STAGES[own]


def budget_against(adversary: Adversary, work: str | WorkBudget) -> WorkBudget:
    """Return the budget for one of several adversaries: a stage that is another's ends its own before it.

    Examples
    --------
    >>> budget_against(INFORMED, "quick:coupling").until, budget_against(PRIOR, "quick:coupling").until
    ('exact', 'coupling')
    """
    budget = WorkBudget.named(work)
    if not budget.until or budget.until.removesuffix("~") in method_names(adversary):
        return budget
    return replace(budget, until=end_for(adversary, budget.until) or budget.until)


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
        again = f"{self.work.level}:{self.stage}"
        return (
            f"{self.reason} after stage {self.stage!r}, whose answer this is;"
            f" work={again!r} (--work {again}) gives it again",
        )

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
        Seconds for an answer as a whole (:meth:`answer`); ``None`` for no limit.
    stages
        Which stages are worth going through one by one.

    Attributes
    ----------
    budget
        What analyses may spend now.
    deadline
        When they must end, in seconds since the epoch, so that it holds in workers too; ``None``: never.

    Examples
    --------
    >>> shared = SharedWork("normal:coupling", 30.0)
    >>> shared.budget_for(INFORMED).until, shared.answer(lambda: 7), shared.done.notes
    ('exact', 7, ())
    """

    def __init__(
        self,
        work: str | WorkBudget = "normal",
        time_limit: float | None = None,
        stages: Sequence[str] = STAGES,
    ) -> None:
        self._stages = stages
        self.asked = self.budget = WorkBudget.named(work)
        self.time_limit = None if time_limit is None else positive_epsilon(time_limit, "time_limit")
        name = self.asked.until.removesuffix("~")
        if name and name not in (*STAGES, *method_names(PRIOR), *method_names(INFORMED)):
            raise InvalidArgument(
                f"{option('work')}: {name!r} is not a stage; stages are among {', '.join(STAGES)}"
            )
        self.deadline: float | None = None
        self._answering = False
        self._done = WorkDone(self.asked)

    @classmethod
    def within(cls, budget: WorkBudget, deadline: float | None) -> SharedWork:
        """Return a part of an answer that is being sought elsewhere: a limit that strikes is told there."""
        part = cls(budget)
        part.deadline, part._answering = deadline, True
        return part

    @property
    def done(self) -> WorkDone:
        """How far the last answer went; the next one begins with the whole budget again."""
        return self._done

    def budget_for(self, adversary: Adversary, most: str = "") -> WorkBudget:
        """Return the budget against an adversary, ended by the stage ``most`` at the latest."""
        places = [STAGES.index(s) for s in (self.budget.until.removesuffix("~"), most) if s in STAGES]
        stage = STAGES[min(places)] if places else self.budget.until
        return replace(self.budget, until=end_for(adversary, stage) if stage else "")

    def answer(self, question: Callable[[], _Answer], *adversaries: Adversary) -> _Answer:
        """Return the answer to a question that asks analyses, all with one budget and one deadline.

        ``adversaries`` are those that it is about, where not all are: only their stages count then.
        The question raises :class:`~quiltdp.work.GuardStruck` where one of them was cut short
        (:func:`ask_until`).  A question inside a question belongs to the outer one.
        """
        if self._answering:
            return question()
        began, limit = time.time(), math.inf if self.time_limit is None else self.time_limit
        self._answering, self._done = True, WorkDone(self.asked)
        try:
            self.deadline = began + _AT_ONCE * limit if math.isfinite(limit) else None
            try:
                return question()
            except GuardStruck as struck:
                about = adversaries or (INFORMED, PRIOR)
                return self._stage_by_stage(question, str(struck), began + limit, about)
        finally:
            self._answering, self.deadline, self.budget = False, None, self.asked

    def _stage_by_stage(
        self, question: Callable[[], _Answer], reason: str, end: float, about: Sequence[Adversary]
    ) -> _Answer:
        """Return the answer of the last stage that was finished in time; of the first in any case."""
        until = self.asked.until.removesuffix("~")
        ahead = [s for s in STAGES[: STAGES.index(until) if until in STAGES else None] if _concerns(s, about)]
        found: Callable[[], _Answer] | None = None
        last = STAGES[0]
        for stage in [s for s in self._stages if s in ahead] or STAGES[:1]:
            self.budget = replace(self.asked, until=stage)
            self.deadline = end if found is not None and math.isfinite(end) else None
            try:
                value = question()
                found, last = (lambda value=value: value), stage
            except GuardStruck:
                break
            except WorkerLost:
                raise
            except Refused as error:  # a later stage may allow it
                found, last = _refusal(error, WorkDone(self.asked, stage, reason)), stage
        self._done = WorkDone(self.asked, last, reason)
        if found is None:
            raise Refused(f"{reason} before the first stage was finished: raise {option('time_limit')}")
        return found()


def _concerns(stage: str, adversaries: Sequence[Adversary]) -> bool:
    """Return whether a stage adds something against one of the adversaries."""
    against = adversary_from(AUTOMATIC[STAGES.index(stage)][0])
    return any(against.covers(a) for a in adversaries)


def _refusal(error: Refused, done: WorkDone) -> Callable[[], Any]:
    def refuse() -> Any:
        raise type(error)("; ".join((str(error), *done.notes))) from error

    return refuse


def seconds_until(deadline: float | None) -> float:
    """Return the seconds that a new analysis may take."""
    return _FOREVER if deadline is None else max(1e-6, deadline - time.time())


def ask_until(deadline: float | None, profile: LeakageProfile, question: Callable[[], _Answer]) -> _Answer:
    """Ask a profile something; raise :class:`GuardStruck` if it was cut short, now or before."""
    profile.workspace.guard.restart(Guard(seconds_until(deadline)))
    found = question()
    if profile.struck:
        raise GuardStruck("the time limit was reached")
    return found
