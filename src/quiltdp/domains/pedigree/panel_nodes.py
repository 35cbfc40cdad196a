"""The frequencies that stand for all loci of a panel: each analysed when it is first asked about.

Frequencies and adversaries are independent, so they may be asked in workers, and answers may be kept in
a journal: the same family, frequency, adversary, α and work budget have the same answer.  An analysis that
a limit cuts short has none (:class:`~quiltdp.work.GuardStruck`), so nothing of it is kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import INFORMED, Adversary
from quiltdp.accountant.profile import LeakageProfile
from quiltdp.accountant.shared_work import SharedWork, ask_until
from quiltdp.domains.pedigree.network import pedigree
from quiltdp.domains.pedigree.types import Pedigree
from quiltdp.journal import Journal, each_kept, key_of
from quiltdp.parallel import Progress
from quiltdp.work import NO_GUARD, Guard, WorkBudget

__all__ = ["EVERYWHERE", "Node", "NodeAnalyses"]

EVERYWHERE = "everywhere"
"""Stands where an adversary does: the informed one at any frequency, by propagation."""

_FEW = 4  # distinct frequencies: every method is tried on each of them
_QUICK = "forward-backward"  # else the stages up to there; coupling settles it where the tree is narrow
_KEPT = 128  # analyses that are remembered

_Found = TypeVar("_Found")
Vector = NDArray[np.float64]
Who = Adversary | str
Node = tuple[Who, float, Mapping[str, float]]
"""An adversary (or ``EVERYWHERE``), a frequency, and α of every record."""


class _Question(NamedTuple):
    """A node with the budget and the limit for it."""

    adversary: Who
    frequency: float
    alpha: Mapping[str, float]
    budget: WorkBudget
    guard: Guard


class NodeAnalyses:
    """A family at some frequencies: what each record leaks there, for any α.

    Parameters
    ----------
    family, study, genetics
        As for :func:`quiltdp.pedigree`.
    distinct
        How many frequencies the panel has; where they are few, every method is tried.
    shared
        The work budget and the limit of all questions.
    executor, journal, progress
        Where to ask, and what remembers; neither is sent to a worker.
    """

    def __init__(
        self,
        family: Pedigree,
        study: Any,
        genetics: Mapping[str, Any],
        *,
        distinct: int,
        shared: SharedWork,
        executor: Executor | None = None,
        journal: Journal | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.some = pedigree(family, 0.25, study=study, **genetics)
        self.few = distinct <= _FEW
        self.shared: SharedWork | None = shared
        self.executor, self.journal, self.progress = executor, journal, progress
        self._source = (family, study, dict(genetics))
        self._profiles: OrderedDict[tuple[Who, float, WorkBudget], LeakageProfile] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        """Send what is asked about, not what was found here or how long it may take."""
        mine: dict[str, Any] = dict.fromkeys(("executor", "journal", "progress", "shared"))
        return {**self.__dict__, **mine, "_profiles": OrderedDict()}

    def leakages(self, asked: Sequence[Node]) -> list[Vector]:
        """Return the leakage of every record, for every question.

        Raises
        ------
        GuardStruck
            If one of them was cut short.
        """
        assert self.shared is not None, "questions are put where the analyses were made"
        questions = [self._question(*node) for node in asked]
        found = each_kept(
            _leakage,
            questions,
            key=self._key,
            journal=self.journal,
            shared=self,
            executor=self.executor,
            progress=self.progress if len(asked) > 1 else None,
            label="what the noise leaks, frequency by frequency",
            total=len(asked),
        )
        return [np.array(values) for _, values in found]

    def _question(self, adversary: Who, frequency: float, alpha: Mapping[str, float]) -> _Question:
        """Return what is analysed for a node: one frequency for all where it cancels."""
        assert self.shared is not None
        if isinstance(adversary, str) or (adversary == INFORMED and not self.few):
            return _Question(
                EVERYWHERE, 0.25, alpha, self.shared.asked, NO_GUARD
            )  # one pass: never cut short
        budget = self.shared.budget_for(adversary, "" if self.few else _QUICK)
        return _Question(adversary, frequency, alpha, budget, self.shared.guard)

    def _key(self, asked: _Question) -> str:
        who = asked.adversary if isinstance(asked.adversary, str) else asked.adversary.name
        alpha, work = dict(asked.alpha), asked.budget.to_dict()
        return key_of(self.some.fingerprint, self.few, who, asked.frequency, alpha, work)

    def ask(self, asked: _Question) -> Mapping[str, float]:
        """Return the leakage of every record from the analysis behind it, made now if it is not there."""
        profile = self._kept(asked)
        return self._until(asked, profile, lambda: profile.per_unit(asked.alpha))

    def _until(self, asked: _Question, profile: LeakageProfile, question: Callable[[], _Found]) -> _Found:
        """Ask an analysis; one that is cut short is not kept: what was finished of it answers nothing."""
        try:
            return ask_until(asked.guard, profile, question)
        finally:
            if profile.reached:
                del self._profiles[asked.adversary, asked.frequency, asked.budget]

    def _kept(self, asked: _Question) -> LeakageProfile:
        """Return the analysis behind a question, made now if it is not there."""
        place = (asked.adversary, asked.frequency, asked.budget)
        if place not in self._profiles:
            self._profiles[place] = self._profile(asked)
            if len(self._profiles) > _KEPT:
                self._profiles.popitem(last=False)
        self._profiles.move_to_end(place)
        return self._profiles[place]

    def _profile(self, asked: _Question) -> LeakageProfile:
        if isinstance(asked.adversary, str):
            return LeakageProfile(self.some, method="propagation")
        family, study, genetics = self._source
        model = pedigree(family, asked.frequency, study=study, **genetics)
        return LeakageProfile(model, adversary=asked.adversary, work=asked.budget)


def _leakage(analyses: NodeAnalyses, asked: _Question) -> list[float]:
    found = analyses.ask(asked)
    return [found[r] for r in analyses.some.records]
