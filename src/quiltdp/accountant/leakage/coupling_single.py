"""Sequential coupling along single changes, for networks with wide junction trees.

The theorem is that of :mod:`.coupling`; states of a separator are compared only where they differ in one
node (or in one block of nodes that cannot change alone, :mod:`quiltdp.inference.blocks`), and further
pairs go through possible states by the triangle inequality (:mod:`.single_changes`).  The work is linear
in the entries of the junction tree.

*Why.*  For fixed values a of the records elsewhere let U(a, z) be the mean of h(a, ·) given z.  The claim
is ln U(a, z) / U(a, z') ≤ M_y(z, z') for every a and all possible z, z' that differ in block y alone.  With the
next block x revealed, U(a, z) = Σ_x P(x | z) U((a, x), (z, x)), where x stands twice: as a record, which may
change at the price ℓ_x(x, x'), and as a condition.  Changing the condition from (z, x) to (z', x') along single
changes through possible states costs the sum of their messages, for the same records (a, x').  So D of
:mod:`.single_changes` bounds ln U((a, x), (z, x)) / U((a, x'), (z', x')), and T(P(· | z), P(· | z'); D) bounds M_y.
"""

from __future__ import annotations

import numpy as np

from quiltdp.accountant.adversaries import PRIOR
from quiltdp.accountant.bounds import Bounds, Problem, Vector, register
from quiltdp.accountant.leakage.single_changes import (
    SingleChanges,
    largest_leakages,
    plain_distances,
    prices_of,
)
from quiltdp.errors import ModelTooWide, option
from quiltdp.inference.blocks import blocks_of, joined_nodes
from quiltdp.inference.change_tree import change_tree, changes_of_plan
from quiltdp.inference.clique_states import conditional_slack
from quiltdp.inference.coupling_tree import reading_order
from quiltdp.inference.trees import junction_tree, plan_junction_tree
from quiltdp.inference.workspace import Workspace
from quiltdp.work import WorkBudget

__all__ = ["SingleCouplingBound"]

_ENTRIES = 8  # times the budget's entries may a clique have


@register(
    "coupling-single",
    against=PRIOR,
    kind="certified bound",
    says="sequential coupling along single changes, transports checked",
    unless=("coupling", "exact", "chain"),
)
class SingleCouplingBound:
    """Sequential coupling along single changes (method ``"coupling-single"``, prior adversary).

    Raises
    ------
    ModelTooWide
        Before any work on α, naming the clique or the number of changes.
    """

    def __init__(self, problem: Problem) -> None:
        self._model = problem.model
        self._units = problem.listed()

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Join nodes to blocks, and read the junction tree of the blocks in every direction."""
        model = self._model
        entries = _ENTRIES * budget.entries
        sets = [u for u in self._units if len(u) > 1]
        tree = junction_tree(model, join=sets, max_entries=entries, workspace=workspace)
        joined = _merged([*joined_nodes(model, tree), *sets])
        rank = reading_order(model)
        blocks = blocks_of(model, tree, joined, rank)
        plan = plan_junction_tree(blocks.model, max_entries=entries)
        plan.check()
        effort = changes_of_plan(plan, {n: blocks.model.cardinality(n) for n in blocks.model.nodes})
        if effort > budget.pairs:
            raise ModelTooWide(
                f"the junction tree has about {effort:,.0f} single changes, the limit is {budget.pairs:,}",
                f"raise {option('work')}",
                f"use another {option('method')}",
            )
        self._tree = change_tree(blocks, max_entries=entries, workspace=workspace)
        home = {n: k for k, b in enumerate(blocks.blocks) for n in b.nodes}
        self._asked = [
            (home[u[0]], [blocks.blocks[home[u[0]]].nodes.index(n) for n in u]) for u in self._units
        ]
        self._slack = conditional_slack(model)
        self._workspace = workspace

    def evaluate(self, alpha: Vector) -> Bounds:
        """Return the leakage of every unit."""
        sizes = [self._model.cardinality(n) for n in self._model.nodes]
        distances = plain_distances(sizes, np.asarray(alpha, dtype=np.float64))
        prices = prices_of(self._tree, distances, dict(self._model.index))
        sweep = SingleChanges(self._tree, prices, self._slack, self._workspace.guard)
        values = list(largest_leakages(self._tree, self._asked, sweep, self._slack))
        return Bounds(np.array(values), "coupling-single")


def _merged(sets: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return disjoint sets: those that share a node become one."""
    found: list[set[str]] = []
    for nodes in sets:
        touching = [s for s in found if s & set(nodes)]
        found = [s for s in found if not s & set(nodes)]
        found.append(set(nodes).union(*touching))
    return [tuple(sorted(s)) for s in found]
