"""Sequential coupling: the prior adversary's main method.

Root a junction tree at a clique that holds the unit T and reveal its nodes one at a time: T first, each
clique's new nodes after its separator.  For node k, with z the nodes of its clique that came earlier,

    m_k(z, z') = T( P(x_k | z), P(x_k | z'); D ),     D(x, x') = α_k·1[x ≠ x'] + m_next((z,x), (z',x')),

where m_next is the message of the clique's next node and, after its last one, the sum of the messages of
the cliques beyond; T(p, q; D) is lossy transport (:mod:`.transport`).  Then

    Leakage(T) ≤ max over possible x_T ≠ x_T' of Σ_{t∈T} α_t·1[x_t ≠ x_t'] + m(x_T, x_T').

*Why.*  Let h be the likelihood of an output of an α-DP mechanism and V(u) = E[h | u] for the values u of
the nodes revealed so far.  Claim: for two possible prefixes u, u' of the same nodes
ln V(u) / V(u') ≤ Σ_{revealed j} α_j·1[u_j ≠ u'_j] + Σ of the pending messages at (u, u').  After the last
node this is the definition of α-DP.  One node earlier, V(u) = Σ_x P(x | z) V(u, x): by the claim one step
later H(x) = V(u, x) and G(x') = V(u', x') obey ln H(x) / G(x') ≤ D(x, x') + everything that does not
depend on x, which is the program of T.  Beyond a clique the branches are independent given it and are
revealed one after the other.  Only possible states occur.  No message exceeds the Σ α of the records
beyond it.
"""

from __future__ import annotations

import numpy as np

from quiltdp.accountant.adversaries import PRIOR
from quiltdp.accountant.bounds import Bounds, Problem, Vector, register
from quiltdp.accountant.leakage.coupling_all import AllPairs
from quiltdp.errors import ModelTooWide, option
from quiltdp.inference.coupling_tree import CouplingTree, coupling_tree
from quiltdp.inference.workspace import Workspace
from quiltdp.work import WorkBudget

__all__ = ["CouplingBound"]

_MOST_NODES = 20_000
_COST = 16  # a pair is counted as so many: it takes a transport problem
_FINER = ((30, True, 16), (8, False, 1))  # reveal so many values together, in both orders, for a share


@register(
    "coupling",
    against=PRIOR,
    kind="certified bound",
    says="sequential coupling along a junction tree, transports checked",
    settles=True,
    near=1e-8,
)
class CouplingBound:
    """Sequential coupling (method ``"coupling"``, prior adversary).

    Parameters
    ----------
    problem
        Any model with a junction tree.  A set of records is made a clique first.

    Raises
    ------
    ModelTooWide
        Before any work on α, naming the clique.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp import Model
    >>> m = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.9, 0.1], [0.1, 0.9]])})
    >>> from quiltdp.accountant.bounds import ready
    >>> ready(CouplingBound, m).evaluate(np.array([1.0, 1.0])).values.round(6).tolist()
    [1.776137, 1.776137]
    """

    def __init__(self, problem: Problem) -> None:
        if len(problem.model.nodes) > _MOST_NODES:
            raise ModelTooWide(
                f"sequential coupling takes at most {_MOST_NODES:,} nodes", f"use another {option('method')}"
            )
        self._model = problem.model
        self._units = problem.listed()

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Read the junction tree in every direction; decide how much is revealed together."""
        most = budget.pairs // _COST
        tree = self._read(workspace, budget, together=1)
        if tree.work > most:
            raise ModelTooWide(
                f"the junction tree has {tree.pairs:,} pairs of possible states to compare,"
                f" the limit is {most:,}",
                f"raise {option('work')}",
                f"use another {option('method')}",
            )
        for together, both, share in _FINER:
            finer = self._read(workspace, budget, together=together, both_orders=both)
            if finer.work <= most // share:
                tree = finer
                break
        self._pairs = AllPairs(tree, workspace.guard)

    def _read(
        self, workspace: Workspace, budget: WorkBudget, *, together: int, both_orders: bool = False
    ) -> CouplingTree:
        return coupling_tree(
            self._model,
            self._units,
            together=together,
            both_orders=both_orders,
            max_entries=8 * budget.entries,
            workspace=workspace,
        )

    def evaluate(self, alpha: Vector) -> Bounds:
        """Return the leakage of every unit."""
        return Bounds(self._pairs.evaluate(np.asarray(alpha, dtype=np.float64)), "coupling")
