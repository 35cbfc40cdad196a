"""Group privacy: the bound of last resort, sound for every model and adversary.

Leakage(T) ≤ Σ α_j over the records of T's connected components: an α-DP mechanism cannot tell two
databases apart by more than the α's of the records in which they differ, and records in other
components do not depend on T.  Where T has one possible value there is nothing to tell apart, and the
leakage is 0.

*Assumes*: nothing: any model, any adversary.  *Cost*: one sum, and one pass over tables with zeros.
*Reference*: docs/theory.md, section 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from quiltdp.accountant.adversaries import INFORMED
from quiltdp.accountant.bounds.contract import ALL, Bounds, Need, Problem, Vector, register
from quiltdp.inference.spread import determined_nodes
from quiltdp.inference.workspace import Workspace
from quiltdp.numbers import scaled, up
from quiltdp.work import WorkBudget

if TYPE_CHECKING:
    from quiltdp.inference.uncertain import TableErrors


@register(
    "group",
    against=INFORMED,
    kind="certified bound",
    says="group privacy: every record of the component counts",
)
class GroupBound:
    """Σ α over a connected model, for every unit that has several possible values."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    @classmethod
    def widened(cls, problem: Problem, errors: TableErrors) -> GroupBound:
        """Return the bound itself: it holds for every model of these nodes."""
        return cls(problem)

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Look for units with one possible value."""
        problem = self._problem
        known = workspace.keep("determined nodes", None, lambda: determined_nodes(problem.model))
        self._open: Vector = np.broadcast_to(1.0, problem.count)
        if not known or problem.window > 1:
            return
        self._open = np.ones(problem.count)
        if problem.units is None and len(problem.model.records) == len(problem.model.nodes):
            self._open[[problem.model.index[n] for n in known]] = 0.0
        else:
            for k, unit in enumerate(problem.listed()):
                self._open[k] = 0.0 if known.issuperset(unit) else 1.0

    def evaluate(self, alpha: Vector, need: Need = ALL) -> Bounds:
        """Return the sum of all α for every unit."""
        total = float(alpha.sum())
        return Bounds(scaled(self._open, up(total, len(alpha) + 8.0) if total else 0.0), "group")
