"""Sequential coupling along single changes, for networks with wide junction trees.

The theorem is that of :mod:`.coupling`; states of a separator are compared only where they differ in one
node (or in one block of nodes that cannot change alone, :mod:`quiltdp.inference.change_tree`), and further
pairs go through possible states by the triangle inequality (:mod:`.single_changes`).  The work is linear
in the entries of the junction tree.

*Why.*  For fixed values a of the records elsewhere let U(a, z) be the mean of h(a, ·) given z.  The claim
is ln U(a, z) / U(a, z') ≤ M_y(z, z') for every a and all possible z, z' that differ in block y alone.  With
the next block x revealed, U(a, z) = Σ_x P(x | z) U((a, x), (z, x)), where x stands twice: as a record, which
may change at the price ℓ_x(x, x'), and as a condition.  Changing the condition from (z, x) to (z', x') along
single changes through possible states costs the sum of their messages, for the same records (a, x').  So D
of :mod:`.single_changes` bounds ln U((a, x), (z, x)) / U((a, x'), (z', x')), and T(P(· | z), P(· | z'); D)
bounds M_y.

**Narrower trees.**  In a Bayesian network any set B of nodes that is closed under descendants may be left
out.  Summed out in reverse topological order, the likelihood becomes H(x_A) = E[h | x_A], A the rest, and

    ln H(x_A) − ln H(x_A') ≤ Σ_{j ∈ A: x_j ≠ x_j'} ℓ_j(x_j, x_j'),
    ℓ_j = α_j·1[x_j ≠ x_j'] + Σ_{children c ∈ B of j} max_u K( P(c | x_j, u), P(c | x_j', u); fw_c )

(:mod:`.forward`; rows of a table exist for every combination of parents, so nodes may be changed one at a
time, possible or not), and no ℓ_j exceeds α_j plus the Σ α of its descendants in B.  The law of A is the
product of its own tables.  So the claim above holds for A with ℓ_j in the place of α_j, and for its records.
Records in B are answered by other sets A that hold them with their ancestors.

*Assumes*: the prior adversary; for narrower trees a Bayesian network.  *Cost*: linear in the entries of the
junction tree, at each α.  *Reference*: docs/theory.md, section 16.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from quiltdp.accountant.adversaries import PRIOR
from quiltdp.accountant.bounds import Bounds, Problem, Vector, register
from quiltdp.accountant.leakage.coupling import form
from quiltdp.accountant.leakage.forward import ChildKernels
from quiltdp.accountant.leakage.single_changes import (
    SingleChanges,
    largest_leakages,
    plain_distances,
    prices_of,
)
from quiltdp.accountant.leakage.ties import Array
from quiltdp.accountant.trade_offs import SINGLE_ENTRIES, SINGLE_NODES, SINGLE_TREES
from quiltdp.errors import ModelTooWide, option
from quiltdp.inference.ancestry import Ancestry
from quiltdp.inference.change_tree import (
    ChangeTree,
    Narrower,
    blocks_of,
    change_tree,
    changes_of_plan,
    joined_nodes,
)
from quiltdp.inference.cliques import conditional_slack
from quiltdp.inference.coupling_tree import reading_order
from quiltdp.inference.trees import junction_tree, plan_junction_tree
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model
from quiltdp.numbers import up, up_array
from quiltdp.work import WorkBudget

__all__ = ["SingleCouplingBound"]


@dataclass(frozen=True, eq=False)
class _Tree:
    """A tree of single changes, the units it answers, and what of the model is left out."""

    tree: ChangeTree
    asked: tuple[int, ...]
    units: tuple[tuple[int, tuple[int, ...]], ...]
    edges: tuple[tuple[int, int], ...] = ()  # (kept parent, number of the edge to a child left out)
    below: tuple[tuple[int, tuple[int, ...]], ...] = ()  # a kept node and its descendants left out


@register(
    "coupling@wide",
    against=PRIOR,
    kind="certified bound",
    says="sequential coupling along single changes, transports checked",
    unless=("exact", "chain"),
    near=1e-3,
)
class SingleCouplingBound:
    """Sequential coupling along single changes: a form of the method ``"coupling"``.

    Parameters
    ----------
    problem
        Any model with a junction tree, and Bayesian networks whose records' ancestors have one.
    share
        Where one tree is too wide, each of several narrower ones gets the budget divided by this.

    Raises
    ------
    ModelTooWide
        Before any work on α, naming the clique or the number of changes.
    """

    def __init__(self, problem: Problem, *, share: float = 16.0) -> None:
        self._share = share
        self._model = problem.model
        self._units = problem.listed()

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Join nodes to blocks and read their junction tree; where it is too wide, trees of fewer nodes."""
        self._workspace = workspace
        self._slack = conditional_slack(self._model)
        self._rank = reading_order(self._model)
        self._forward: ChildKernels | None = None
        everything = tuple(range(len(self._units)))
        try:
            self._trees = [self._whole(self._model, everything, budget, budget.pairs, workspace)]
        except ModelTooWide:
            large = len(self._model.nodes) > SINGLE_NODES
            if large or not self._model.directed or any(len(u) > 1 for u in self._units):
                raise
            self._trees = self._narrower(budget)
            self._forward = ChildKernels(Ancestry(self._model, max_entries=1, max_work=0), workspace.guard)

    def _whole(
        self, model: Model, asked: tuple[int, ...], budget: WorkBudget, most: float, workspace: Workspace
    ) -> _Tree:
        """Return the tree of a whole model for some units, or refuse it."""
        entries = SINGLE_ENTRIES * budget.entries
        units = [self._units[k] for k in asked]
        sets = [u for u in units if len(u) > 1]
        tree = junction_tree(model, join=sets, max_entries=entries, workspace=workspace)
        for joined in (joined_nodes(model, tree), []):  # nodes that cannot change alone, if there is room
            blocks = blocks_of(model, tree, _merged([*joined, *sets]), self._rank)
            plan = plan_junction_tree(blocks.model, max_entries=entries)
            effort = changes_of_plan(plan, {n: blocks.model.cardinality(n) for n in blocks.model.nodes})
            if plan.fits and effort <= most:
                break
        plan.check()
        if effort > most:
            raise ModelTooWide(
                f"the junction tree has about {effort:,.0f} single changes, the limit is {most:,.0f}",
                f"raise {option('work')}",
                f"use another {option('method')}",
            )
        found = change_tree(blocks, max_entries=entries, workspace=workspace)
        home = {n: k for k, b in enumerate(blocks.blocks) for n in b.nodes}
        nodes = [blocks.blocks[home[u[0]]].nodes for u in units]
        places = tuple(
            (home[u[0]], tuple(inside.index(n) for n in u)) for u, inside in zip(units, nodes, strict=True)
        )
        return _Tree(found, asked, places)

    def _narrower(self, budget: WorkBudget) -> list[_Tree]:
        """Return trees of some of the nodes, until every record is in one of them."""
        most = budget.pairs / self._share
        guard = self._workspace.guard
        choice = Narrower(self._model, entries=SINGLE_ENTRIES * budget.entries, effort=most, guard=guard)
        left = list(range(len(self._units)))
        found: list[_Tree] = []
        wanted: str | None = None
        while left:
            kept = choice.keep(wanted) if len(found) < SINGLE_TREES else None
            if kept is None:
                raise ModelTooWide(
                    f"the ancestors of {len(left)} records have too wide a junction tree",
                    f"raise {option('work')}",
                    f"use another {option('method')}",
                )
            inside = set(kept)
            asked = tuple(k for k in left if self._units[k][0] in inside)
            if asked:
                network = choice.network(inside)
                space = self._workspace.part(("kept", kept), network)
                tree = self._whole(network, asked, budget, 2.0 * most, space)
                found.append(self._with_prices(tree, inside, choice))
            left = [k for k in left if self._units[k][0] not in inside]
            wanted = self._units[left[-1]][0] if left else None
        return found

    def _with_prices(self, tree: _Tree, kept: set[str], choice: Narrower) -> _Tree:
        """Note which edges lead out of the kept nodes, and what lies below them."""
        index = self._model.index
        edges = []
        ancestry = Ancestry(self._model, max_entries=1, max_work=0)
        for number, (parent, child, _) in enumerate(ancestry.edges):
            if self._model.nodes[parent] in kept and self._model.nodes[child] not in kept:
                edges.append((parent, number))
        parents = sorted({parent for parent, _ in edges})
        below = tuple(
            (p, tuple(index[n] for n in choice.left_out_below(self._model.nodes[p], kept))) for p in parents
        )
        return replace(tree, edges=tuple(edges), below=below)

    def evaluate(self, alpha: Vector) -> Bounds:
        """Return the leakage of every unit."""
        return self.refine(alpha, np.full(len(self._units), np.inf), 0.0, np.inf)

    def refine(self, alpha: Vector, known: Vector, low: float, high: float) -> Bounds:
        """Return the leakage of the units above ``low``, tree by tree, until one is above ``high``."""
        alpha = np.asarray(alpha, dtype=np.float64)
        values = np.array(known)
        messages = [] if self._forward is None else self._forward.run(alpha, self._workspace.guard)[1]
        for number, tree in enumerate(self._trees):
            asked = [(k, unit) for k, unit in zip(tree.asked, tree.units, strict=True) if known[k] > low]
            if not asked:
                continue
            sweep = self._workspace.keep(
                "single changes",
                (self, number, alpha.tobytes()),
                # mypy infers no type for a tree that is bound by its default
                lambda tree=tree: self._sweep(tree, alpha, messages),  # type: ignore[misc]
                lambda made: made.nbytes,
            )
            found = largest_leakages(tree.tree, [unit for _, unit in asked], sweep, self._slack)
            for (k, _), leakage in zip(asked, found, strict=True):
                values[k] = min(values[k], leakage)
            if values.max(initial=0.0, where=np.isin(np.arange(len(values)), tree.asked)) > high:
                break
        return Bounds(values, "coupling", witness=form("single changes", len(values)))

    def _sweep(self, tree: _Tree, alpha: Vector, messages: list[Array]) -> SingleChanges:
        prices = prices_of(tree.tree, self._distances(tree, alpha, messages), dict(self._model.index))
        return SingleChanges(tree.tree, prices, self._slack, self._workspace.guard)

    def _distances(self, tree: _Tree, alpha: Vector, messages: list[Array]) -> list[Array]:
        """Return ℓ of every node: its own α, and what its children that are left out say about it."""
        distances = plain_distances([self._model.cardinality(n) for n in self._model.nodes], alpha)
        for parent, number in tree.edges:
            distances[parent] = distances[parent] + messages[number]
        for parent, below in tree.below:
            most = up(float(alpha[parent] + alpha[list(below)].sum()), 8.0 + len(below))
            distances[parent] = np.minimum(up_array(distances[parent], 8.0 + len(below)), most)
        return distances


def _merged(sets: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return disjoint sets: those that share a node become one."""
    found: list[set[str]] = []
    for nodes in sets:
        touching = [s for s in found if s & set(nodes)]
        found = [s for s in found if not s & set(nodes)]
        found.append(set(nodes).union(*touching))
    return [tuple(sorted(s)) for s in found]
