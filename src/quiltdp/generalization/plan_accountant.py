"""The accountant as the planner asks it: leakage per record at a DP cost, each asked once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import INFORMED, PRIOR, Adversary
from quiltdp.accountant.leakage import LeakageProfile
from quiltdp.accountant.shared_work import SharedWork, ask_until
from quiltdp.errors import QuiltdpError, WorkerLost
from quiltdp.model import Model
from quiltdp.work import Limit, WorkBudget

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["ProfileAccountant"]

_Found = TypeVar("_Found")
_KEPT = 2**26  # bytes of leakages that are remembered


class ProfileAccountant:
    """Leakage of a model from its profiles, analysed on first use and remembered per α.

    Parameters
    ----------
    model
        The model of the correlation.
    work, time_limit
        How far searches go; seconds for every question (inside :meth:`SharedWork.answer`: for all).
    shared
        The same as one, where several accountants make one answer.
    executor
        Where components of the model are analysed, as for :func:`quiltdp.analyze`.
    """

    def __init__(
        self,
        model: Model,
        *,
        work: str | WorkBudget = "normal",
        time_limit: Limit = None,
        shared: SharedWork | None = None,
        executor: Executor | None = None,
    ) -> None:
        self.model = model
        self._executor = executor
        self.shared = SharedWork(work, time_limit) if shared is None else shared
        self._budget = self.shared.budget
        self._profiles: dict[Adversary, LeakageProfile] = {}
        self._known: OrderedDict[tuple[Adversary, float], NDArray[np.float64]] = OrderedDict()

    def _profile(self, adversary: Adversary) -> LeakageProfile:
        """Return the analysis against an adversary with the budget of now."""
        if self._budget != self.shared.budget:
            self._profiles.clear()
            self._known.clear()
            self._budget = self.shared.budget
        if adversary not in self._profiles:
            try:
                self._profiles[adversary] = self._prepared(adversary)
            except QuiltdpError as error:
                if adversary != PRIOR or isinstance(error, WorkerLost):
                    raise
                self._profiles[PRIOR] = self._profile(INFORMED)  # he knows more: his bound covers it
        return self._profiles[adversary]

    def _prepared(self, adversary: Adversary) -> LeakageProfile:
        profile = LeakageProfile(
            self.model,
            adversary=adversary,
            work=self.shared.budget_up_to(),
            executor=self._executor,
        )
        ask_until(self.shared.guard, profile, profile.prepare)
        return profile

    def _ask(self, adversary: Adversary, dp_epsilon: float) -> NDArray[np.float64]:
        def question() -> NDArray[np.float64]:
            profile, key = self._profile(adversary), (adversary, dp_epsilon)
            if key not in self._known:
                found = self._until(profile, lambda: profile.leakage(dp_epsilon)).per_record.values_array
                self._known[key] = found
                while len(self._known) > 1 and len(self._known) * found.nbytes > _KEPT:
                    self._known.popitem(last=False)
            return self._known[key]

        return self.shared.answer(question)

    def _until(self, profile: LeakageProfile, question: Callable[[], _Found]) -> _Found:
        try:
            return ask_until(self.shared.guard, profile, question)
        finally:
            if profile.reached:  # the next question begins anew
                self._profiles.clear()

    def prior(self, dp_epsilon: float) -> NDArray[np.float64]:
        """Return the leakage to the prior adversary, one number per record."""
        return self._ask(PRIOR, dp_epsilon)

    def informed(self, dp_epsilon: float) -> NDArray[np.float64]:
        """Return the leakage to the informed adversary, one number per record."""
        return self._ask(INFORMED, dp_epsilon)

    def dp_epsilon(self, epsilon: float) -> float:
        """Return the largest DP cost that leaks at most ε to the informed adversary."""

        def question() -> float:
            profile = self._profile(INFORMED)
            return self._until(profile, lambda: profile.dp_epsilon(epsilon))

        return self.shared.answer(question)
