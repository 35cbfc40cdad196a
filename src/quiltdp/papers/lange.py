"""The newest published comparison on Markov chains: α + 4 ln γ (Lange et al. 2025).

For a Markov chain whose transition probabilities are all positive, with γ = the largest over the
smallest of them, an α-DP mechanism is (α + 4 ln γ)-Bayesian private: every neighbour moves the odds of a
record by at most γ² on each side.  It says nothing for a target ε ≤ 4 ln γ, and ∞ where a transition is
impossible.  (Its other form, m α for groups of at most m correlated records, is ``group``.)

*Assumes*: a Markov chain with positive transitions, as printed.  *Cost*: one look at the transition tables.

References
----------
M. Lange, P. Guerra-Balboa, J. Parra-Arnau, T. Strufe, PVLDB 2025.
"""

from __future__ import annotations

import math

import numpy as np

from quiltdp.accountant.adversaries import INFORMED
from quiltdp.accountant.bounds.contract import ALL, Bounds, Need, Problem, Vector, register
from quiltdp.chain import as_chain
from quiltdp.inference.workspace import Workspace
from quiltdp.numbers import up, up_array
from quiltdp.work import WorkBudget

__all__ = ["LangeBound"]


@register(
    "lange",
    against=INFORMED,
    kind="published",
    says="α + 4 ln(largest / smallest transition probability)",
)
class LangeBound:
    """Leakage(i) ≤ α_i + 4 ln γ on a Markov chain with positive transitions.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp import markov_chain
    >>> from quiltdp.accountant.bounds.contract import ready
    >>> bound = ready(LangeBound, markov_chain([[0.6, 0.4], [0.4, 0.6]], length=100))
    >>> round(float(bound.evaluate(np.full(100, 0.1)).values.max()), 4)       # 0.1 + 4 ln 1.5
    1.7219
    """

    def __init__(self, problem: Problem) -> None:
        model = as_chain(problem.model)
        records = problem.single_records("lange")
        self._places = np.array([model.index[r] for r in records], dtype=np.intp)
        self._added = max((_four_logs(s.transitions) for s in model.segments if s.length > 1), default=0.0)

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Nothing is left to be done."""

    def evaluate(self, alpha: Vector, need: Need = ALL) -> Bounds:
        """Return α + 4 ln γ for every record."""
        return Bounds(up_array(alpha[self._places] + self._added), "lange", "published")


def _four_logs(transitions: tuple[Vector, ...]) -> float:
    smallest = min(float(np.min(t)) for t in transitions)
    largest = max(float(np.max(t)) for t in transitions)
    return up(4.0 * math.log(largest / smallest)) if smallest > 0.0 else math.inf
