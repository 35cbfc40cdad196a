"""Group privacy: the bound of last resort, sound for every model and adversary.

Leakage(T) ≤ Σ α_j over the records of T's connected components: an α-DP mechanism cannot tell two
databases apart by more than the α's of the records in which they differ, and records in other
components do not depend on T.
"""

from __future__ import annotations

import numpy as np

from quiltdp.accountant.adversaries import INFORMED
from quiltdp.accountant.bounds import Bounds, Problem, Vector, register
from quiltdp.inference.workspace import Workspace
from quiltdp.numbers import up
from quiltdp.work import WorkBudget

__all__ = ["GroupBound"]


@register(
    "group",
    against=INFORMED,
    kind="certified bound",
    says="group privacy: every record of the component counts",
)
class GroupBound:
    """Σ α over a connected model, for every unit."""

    def __init__(self, problem: Problem) -> None:
        self._count = problem.count

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Nothing is to be done."""

    def evaluate(self, alpha: Vector) -> Bounds:
        """Return the sum of all α for every unit."""
        total = up(float(alpha.sum()), len(alpha) + 8.0) if alpha.any() else 0.0
        return Bounds(np.full(self._count, total), "group")
