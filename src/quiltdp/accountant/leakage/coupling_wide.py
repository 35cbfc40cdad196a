"""Sequential coupling on trees with too many pairs of states to compare them all.

The theorem is that of :mod:`.coupling`; only chosen pairs are compared, all others are bounded by the
triangle inequality or by the Σ α of the records beyond (:mod:`.coupling_choice`).

*Why the triangle inequality.*  For fixed values a of the records let U(a, z) be the mean of h(a, ·) under
the law of what lies beyond, given z.  The induction of :mod:`.coupling` bounds ln U(a, z) / U(a, z') by
m(z, z') for every a, so ln U(a, z) / U(a, z'') ≤ m(z, z') + m(z', z'') through any possible z'.
"""

from __future__ import annotations

import numpy as np

from quiltdp.accountant.adversaries import PRIOR
from quiltdp.accountant.bounds import Bounds, Problem, Vector, register
from quiltdp.accountant.leakage.coupling_chosen import ChosenPairs
from quiltdp.accountant.leakage.ties import MOST_NODES
from quiltdp.errors import ModelTooWide, option
from quiltdp.inference.coupling_tree import coupling_tree
from quiltdp.inference.workspace import Workspace
from quiltdp.work import WorkBudget

__all__ = ["WideCouplingBound"]

_COST = 16  # a pair is counted as so many: it takes a transport problem
_STATES = 10  # times the budget's states may a clique have here: most are never looked at


@register(
    "coupling-chosen",
    against=PRIOR,
    kind="certified bound",
    says="sequential coupling over chosen pairs of states, transports checked",
    unless=("coupling", "exact", "chain"),
    settles=True,
    near=1e-3,
)
class WideCouplingBound:
    """Sequential coupling over chosen pairs (method ``"coupling-chosen"``, prior adversary).

    Parameters
    ----------
    problem
        A model with a junction tree of moderate width.
    threshold
        The mass from which on a pair of states is worth a comparison.

    Raises
    ------
    ModelTooWide
        Before any work on α, naming the clique.
    """

    def __init__(self, problem: Problem, *, threshold: float = 3e-4) -> None:
        self._model = problem.model
        self._units = problem.listed()
        self._threshold = threshold

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Read the junction tree in every direction; choose the pairs."""
        model = self._model
        tree = coupling_tree(
            model,
            self._units,
            max_entries=8 * budget.entries,
            max_states=_STATES * budget.states,
            workspace=workspace,
        )
        widest = max((s.slots for rs in (*tree.messages, *tree.units) for s in rs[0].steps), default=1)
        if 2 * widest > MOST_NODES:
            raise ModelTooWide(
                f"a node has {widest} values, chosen pairs take at most {MOST_NODES // 2}",
                f"use another {option('method')}",
            )
        weights = np.array([1.0 if model.is_record(n) else 0.0 for n in model.nodes])
        most = budget.pairs // _COST
        self._pairs = ChosenPairs(tree, workspace.guard, weights, self._threshold, most)

    def evaluate(self, alpha: Vector) -> Bounds:
        """Return the leakage of every unit."""
        return Bounds(self._pairs.evaluate(np.asarray(alpha, dtype=np.float64)), "coupling-chosen")
