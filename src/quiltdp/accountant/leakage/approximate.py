"""(ε, δ) Bayesian DP of a group: δ_w(ε) of the mechanism's profile, w the sum of all sensitivities.

Whatever is known, a unit and all records that depend on it change together at worst.

*Assumes*: a mechanism with a group-privacy profile; any model, any evidence.  *Cost*: one profile.
*Reference*: docs/theory.md, section 11.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import INFORMED
from quiltdp.accountant.bounds import Bounds, Problem, Vector
from quiltdp.accountant.delta_bounds import register_delta
from quiltdp.inference.workspace import Workspace
from quiltdp.mechanisms import GroupProfile
from quiltdp.numbers import EPS
from quiltdp.work import WorkBudget

__all__ = ["GroupDelta"]


@register_delta("group", against=INFORMED, says="group privacy: every record of the component counts")
class GroupDelta:
    """δ of the whole component as one group, for every unit."""

    def __init__(self, problem: Problem) -> None:
        self._count = problem.count

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Nothing is to be done."""

    def weigh(self, weights: Vector) -> WeighedGroup:
        """Add up all sensitivities."""
        whole = float(weights.sum()) * (1 + len(weights) * _unit_error(weights))
        return WeighedGroup(whole, np.zeros(self._count, dtype=np.intp))


@dataclass(frozen=True, eq=False)
class WeighedGroup:
    """One group of this weight, whatever the unit."""

    whole: float
    where: NDArray[np.intp]

    def evaluate(self, profile: GroupProfile, epsilon: float) -> Bounds:
        """Return δ of the group."""
        return Bounds(np.array([profile.delta(epsilon, self.whole)]), "group")


def _unit_error(weights: Vector) -> float:
    """Return the relative error of one addition: none between whole numbers (k records count as k)."""
    whole = bool(np.all(weights == np.floor(weights))) and float(weights.sum()) < 2.0**52
    return 0.0 if whole else EPS
