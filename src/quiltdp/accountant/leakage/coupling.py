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

*Forms.*  All pairs of possible states are compared where the work budget allows it, otherwise chosen ones
(:mod:`.coupling_choice`), otherwise single changes (:mod:`.coupling_single`); what is not compared is bounded
by the triangle inequality or by the Σ α of the records beyond.  The witness says which form it was.

*Why the triangle inequality.*  For fixed values a of the records let U(a, z) be the mean of h(a, ·) under
the law of what lies beyond, given z.  The induction above bounds ln U(a, z) / U(a, z') by m(z, z') for every
a, so ln U(a, z) / U(a, z'') ≤ m(z, z') + m(z', z'') through any possible z'.

*Assumes*: the prior adversary, who knows no record beforehand, and a junction tree within the work budget.
*Cost*: one transport per compared pair of states of every clique, at each α.  *Reference*: docs/theory.md,
section 16, and docs/prior_adversary.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from quiltdp.accountant.adversaries import PRIOR
from quiltdp.accountant.bounds import Bounds, Problem, Vector, register
from quiltdp.accountant.leakage.coupling_all import AllPairs
from quiltdp.accountant.leakage.coupling_chosen import ChosenPairs
from quiltdp.accountant.leakage.ties import MOST_NODES
from quiltdp.accountant.trade_offs import (
    COUPLING_ENTRIES,
    COUPLING_FINER,
    COUPLING_NODES,
    COUPLING_PAIR,
    COUPLING_STATES,
    COUPLING_WORTH,
)
from quiltdp.errors import ModelTooWide, option
from quiltdp.inference.coupling_tree import CouplingTree, TreeReader
from quiltdp.inference.trees import plan_junction_tree
from quiltdp.inference.workspace import Workspace
from quiltdp.work import WorkBudget

__all__ = ["CouplingBound", "form"]


@register(
    "coupling",
    against=PRIOR,
    kind="certified bound",
    says="sequential coupling along a junction tree, transports checked",
    settles=True,
    near=1e-8,
    otherwise="coupling@wide",
)
class CouplingBound:
    """Sequential coupling (method ``"coupling"``, prior adversary).

    Parameters
    ----------
    problem
        Any model with a junction tree.  A set of records is made a clique first.
    chosen
        Compare chosen pairs only, those with at least this mass, also where all could be compared.

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

    near, settles = 1e-8, True

    def __init__(self, problem: Problem, *, chosen: float | None = None) -> None:
        if len(problem.model.nodes) > COUPLING_NODES:
            raise ModelTooWide(
                f"sequential coupling takes at most {COUPLING_NODES:,} nodes",
                f"use another {option('method')}",
            )
        self._model = problem.model
        self._units = problem.listed()
        self._chosen = chosen

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Read the junction tree in every direction; decide what is compared, or revealed together."""
        most = budget.pairs // COUPLING_PAIR
        reader = self._reader(workspace, budget)
        self._form = "all pairs of states"
        if reader.work() > most or self._chosen is not None:
            self._pairs: AllPairs | ChosenPairs = self._choice(reader.read(), workspace, most)
            self._form = "chosen pairs of states"
            self.near, self.settles = 1e-3, False  # an evaluation takes a second; records of little mass lose
            return
        how: dict[str, Any] = {}
        for together, both, share in COUPLING_FINER:
            finer: dict[str, Any] = {"together": together, "both_orders": both}
            if reader.work(**finer) <= most // share:
                how = finer
                break
        self._pairs = AllPairs(reader.read(**how), workspace.guard)

    def _reader(self, workspace: Workspace, budget: WorkBudget) -> TreeReader:
        """Return the reader of the junction tree; refuse cliques that are too large together."""
        entries = COUPLING_ENTRIES * budget.entries
        plan = plan_junction_tree(
            self._model, join=[u for u in self._units if len(u) > 1], max_entries=entries, workspace=workspace
        )
        if plan.fits and plan.total_entries > entries:
            raise ModelTooWide(
                f"all cliques together need {plan.total_entries:,} entries, the limit is {entries:,}",
                f"raise {option('work')}",
                f"use another {option('method')}",
            )
        states = COUPLING_STATES * budget.states
        return TreeReader(
            self._model, self._units, max_entries=entries, max_states=states, workspace=workspace
        )

    def _choice(self, tree: CouplingTree, workspace: Workspace, most: int) -> ChosenPairs:
        widest = max((s.slots for rs in (*tree.messages, *tree.units) for s in rs[0].steps), default=1)
        if 2 * widest > MOST_NODES:
            raise ModelTooWide(
                f"the junction tree has {tree.pairs:,} pairs of possible states to compare, the limit is"
                f" {most:,}; a node has {widest} values, chosen pairs take at most {MOST_NODES // 2}",
                f"raise {option('work')}",
                f"use another {option('method')}",
            )
        weights = np.array([1.0 if self._model.is_record(n) else 0.0 for n in self._model.nodes])
        worth = COUPLING_WORTH if self._chosen is None else self._chosen
        return ChosenPairs(tree, workspace.guard, weights, worth, most)

    def evaluate(self, alpha: Vector) -> Bounds:
        """Return the leakage of every unit."""
        values = self._pairs.evaluate(np.asarray(alpha, dtype=np.float64))
        return Bounds(values, "coupling", witness=form(self._form, len(values)))


def form(name: str, units: int) -> dict[int, dict[str, object]]:
    """Return a witness for every unit that says which form of sequential coupling gave its value."""
    return {k: {"form": name} for k in range(units)}
