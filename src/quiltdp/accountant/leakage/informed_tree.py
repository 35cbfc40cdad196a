"""The informed clique tree: an adversary who knows records anywhere, on models with loops.

Take a junction tree with its marginals.  For the edge U → V with separator Z, W = V∖Z, there are two
messages on pairs of possible separator states, "how far can the far side tell z from z'": m0, when nothing
beyond is known, and m1, when some record beyond is.  Choose what is known: records K of W, with their
values, and the branches A that hold known records.  With u the nodes of W in separators of A and r the rest

    D(v, v') = Σ_{records j of W} α_j·1[v_j ≠ v'_j] + Σ_{c ∈ A} m1_c(v, v') + Σ_{c ∉ A} m0_c(v, v')
    μ((z,u), (z',u')) = T( P(r | z,u,K), P(r | z',u',K); D )
    C(z, z'; u, u') = ln of the cross ratio of P(u, K | z), plus Σ_{c ∈ A} J_c      (:mod:`.interaction`)

the choice is worth the two-point maximum (:mod:`.two_point`) over u with these μ and C, the range of t
being μ((z',u), (z',u')); without u it is worth μ.  m0 is nothing known, m1 the largest of all other
choices.  At a clique that holds the protected set T, seen from T itself,

    Leakage(T) ≤ max over x_T ≠ x_T' of  Σ_{t ∈ T} α_t·1[x_t ≠ x_t'] + max(m0, m1)(x_T, x_T').

*Proof.*  Let h(x) be the likelihood of an output, e the evidence beyond Z, and U(a, z) = E[h(a, ·) | z, e]
for fixed values a of the records elsewhere.  The claim is U(a, z) ≤ e^{m(z,z')} U(a, z') for all a and all
z, z' that e allows.  Given v and e the branches are independent, so G(v) = E[h | v, e] is changed from v
to v' one record and one branch at a time: ln G is D-Lipschitz on the states that e allows.  No likelihood
touches r, so averaging over r leaves a function of (z, u) that obeys μ.  What remains is
E_f G / E_g G' for the laws f, g of u given (z, e) and (z', e), and f(u) g(u') / (f(u') g(u)) is the cross
ratio of P(u,K|z) times those of the likelihoods of A, so at most e^{C}.

An adversary who may know only some records, or at most k of them, is the same with fewer choices: the
budget of known records is shared among the branches (J is not budgeted).  With none it is the prior
adversary's tree.

*Assumes*: a junction tree of affordable width; any evidence.  *Cost*: pairs of possible states of every
clique, per choice of what is known; chosen to fit the work budget.  *Reference*: docs/theory.md, section
15.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import INFORMED
from quiltdp.accountant.bounds import Bounds, Problem, Vector, register
from quiltdp.accountant.leakage.informed_tasks import Cell, Task, assign_programs, levels
from quiltdp.accountant.leakage.known_budgets import SharedMessages
from quiltdp.chain import ChainModel
from quiltdp.errors import ModelTooWide, option
from quiltdp.inference.cliques import Choice, View, Views, clique_forest
from quiltdp.inference.interaction import Interaction, cross_ratios, interaction, rectangles, two_point
from quiltdp.inference.workspace import Workspace
from quiltdp.numbers import EPS, up, up_array
from quiltdp.work import WorkBudget

__all__ = ["InformedTreeBound"]

Array = NDArray[np.float64]
Key = tuple[int, int]
_WORTH = 4  # one pair here takes as long as so many where only transports are solved
_PAIRS = 1 << 18  # two-point problems handled at once
_CLIQUES = 2  # how many cliques that hold a unit are tried, the smallest first
_DISTANCES = 16  # distances between clique states kept for choices that share them


@register(
    "informed-tree",
    against=INFORMED,
    kind="certified bound",
    says="the informed clique tree: known records tilt, and no longer count",
    auto=lambda problem: not isinstance(problem.model, ChainModel),
    near=1e-8,
)
class InformedTreeBound:
    """The informed clique tree (method ``"informed-tree"``).

    Parameters
    ----------
    problem
        Any model whose junction tree is narrow enough; any units and any adversary.

    Raises
    ------
    ModelTooWide
        In ``prepare``, naming the clique or the number of pairs.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp import Model
    >>> from quiltdp.inference.workspace import Workspace
    >>> m = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.9, 0.1], [0.1, 0.9]])})
    >>> bound = InformedTreeBound(Problem(m, None, INFORMED))
    >>> bound.prepare(Workspace(m), WorkBudget())
    >>> bound.evaluate(np.array([1.0, 1.0])).values.round(6).tolist()
    [1.776137, 1.776137]
    """

    def __init__(self, problem: Problem) -> None:
        model = problem.model
        self._model = model
        self._units = problem.listed()
        adversary = problem.adversary
        named = model.records if adversary.records is None else sorted(adversary.records)
        self._may_know = [] if adversary.at_most == 0 else [n for n in named if n in model.index]
        self._most = adversary.at_most
        # a budget of known records is shared crudely; without one the bound holds too, and may be sharper
        wider = replace(problem, adversary=replace(adversary, at_most=None))
        self._unbudgeted = InformedTreeBound(wider) if adversary.at_most else None

    # -- what does not depend on α -----------------------------------------------------------------

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Build the tree, the interactions and the parts, as far as the budget goes."""
        if self._unbudgeted is not None:
            self._unbudgeted.prepare(workspace, budget)
        join = [u for u in self._units if len(u) > 1]
        forest = clique_forest(
            self._model,
            join=join,
            max_entries=budget.entries,
            max_states=budget.states,
            workspace=workspace,
        )
        most = budget.pairs // _WORTH
        least = sum(len(c.states) ** 2 for c in forest.cliques)
        if 3 * least > most:
            raise ModelTooWide(
                f"the cliques have {least:,} pairs of possible states, the limit is {most // 3:,}",
                f"raise {option('work')}",
                f"use another {option('method')}",
            )
        self._workspace = workspace
        self._forest = forest
        self._views = Views(forest, self._may_know)
        self._order = self._views.order()
        tasks = {key: Task(self._views.edge(key), "coarse") for key in self._order}
        roots = [
            [Task(self._views.root(unit, c), "coarse") for c in forest.holding(unit)[:_CLIQUES]]
            for unit in self._units
        ]
        chosen = levels([*tasks.values(), *(task for some in roots for task in some)], most)
        self._tasks = dict(zip(tasks, chosen, strict=False))
        last = iter(chosen[len(tasks) :])
        self._roots = [[next(last) for _ in some] for some in roots]
        self._interactions = self._all_interactions(most)
        self._cells = {task: self._parts(task) for task in chosen}
        assign_programs(
            [c.summing for cells in self._cells.values() for c in cells], budget.programs // _WORTH
        )
        coarse = sum(task.level == "coarse" for task in chosen)
        self._notes = (
            (f"informed-tree: {coarse} of {len(chosen)} messages took no account of what is known",)
            if coarse
            else ()
        )

    def _all_interactions(self, pairs: int) -> Mapping[Key, Interaction]:
        """Return J of every separator in both directions, the cheapest first as far as the budget goes."""
        if not self._may_know:
            return {}
        costs = {key: rectangles(task.view) for key, task in self._tasks.items()}
        allowed, spent = set(), 0
        for key in sorted(costs, key=lambda k: (costs[k], k)):
            spent += costs[key]
            if spent <= pairs:
                allowed.add(key)
        found: dict[Key, Interaction] = {}
        for key in self._order:
            self._workspace.guard.check()
            most = pairs if key in allowed else 0
            found[key] = interaction(self._tasks[key].view, found, slack=self._forest.slack, most=most)
        return found

    def _parts(self, task: Task) -> list[Cell]:
        """Return the choices of a task: nothing known first, fewer known before more."""
        choices = [Choice((), (), (), only=True)]
        if task.level != "coarse":
            choices.extend(task.view.choices(each=task.level == "each"))
        self._workspace.guard.check()
        return [Cell(task.view, choice, self._forest.slack) for choice in choices]

    def _tilts(self, task: Task, cell: Cell) -> Array:
        """Return C of one choice, kept while there is room."""
        return self._workspace.keep(
            "informed-tree tilts",
            cell,
            lambda: cross_ratios(
                task.view, cell.part, cell.choice.branches, self._interactions, self._forest.slack
            ),
            size=lambda made: made.nbytes,
        )

    # -- at one α ------------------------------------------------------------------------------------

    def evaluate(self, alpha: Vector) -> Bounds:
        """Return the leakage of every unit."""
        return self.refine(alpha, np.full(len(self._units), np.inf), 0.0, np.inf)

    def refine(self, alpha: Vector, known: Vector, low: float, high: float) -> Bounds:
        """Return the leakage of the units that decide whether all leak between ``low`` and ``high``."""
        alpha = np.asarray(alpha, dtype=np.float64)
        if self._unbudgeted is not None:
            known = self._unbudgeted.refine(alpha, known, low, high).values
        of = dict(zip(self._model.nodes, alpha.tolist(), strict=True))
        asked = [k for k in np.argsort(-known, kind="stable").tolist() if known[k] > low]
        messages: dict[Key, list[Array]] = {}
        caps = self._caps(of)
        values = np.array(known)
        witness: dict[int, dict[str, object]] = {}
        for k in asked:
            self._workspace.guard.check()
            for task in self._roots[k]:
                self._add_messages(messages, of, caps, task)
                leak = self._leakage(task, of, messages)
                if leak < values[k]:
                    values[k], witness[k] = leak, {"clique": task.view.clique.nodes}
            if values[k] > high:
                break
        return Bounds(values, "informed-tree", "certified bound", witness, self._notes)

    def _caps(self, of: Mapping[str, float]) -> dict[Key, tuple[float, float]]:
        """Return what all records beyond every edge cost, and what is left if one of them is known."""
        records = self._model.records
        cheapest = min((of[n] for n in self._may_know), default=0.0)
        beyond = self._views.beyond({n: of[n] for n in records})
        most = {key: up(cost, 16.0 + len(records)) for key, cost in beyond.items()}
        return {key: (cost, max(0.0, up(cost - cheapest))) for key, cost in most.items()}

    def _add_messages(
        self,
        messages: dict[Key, list[Array]],
        of: Mapping[str, float],
        caps: Mapping[Key, tuple[float, float]],
        root: Task,
    ) -> None:
        """Add the messages that a last step reads, none above its cap; they are kept by α."""
        needed = {b.key for b in root.view.branches} - messages.keys()
        alphas = tuple(of.values())
        for key in reversed(self._order if needed else ()):
            if key in needed:
                needed.update(b.key for b in self._tasks[key].view.branches if b.key not in messages)
        for key in (key for key in self._order if key in needed):
            messages[key] = self._workspace.keep(
                "informed-tree message",
                (self, key, alphas),
                lambda key=key: self._capped(key, of, messages, caps[key]),  # type: ignore[misc]  # bound now
                size=lambda made: sum(m.nbytes for m in made),
            )

    def _capped(
        self,
        key: Key,
        of: Mapping[str, float],
        messages: Mapping[Key, list[Array]],
        cap: tuple[float, float],
    ) -> list[Array]:
        """Return one message, with nothing known at most the first cap, otherwise the second."""
        self._workspace.guard.check()
        none, *some = self._messages(self._tasks[key], of, messages)
        return [np.minimum(none, cap[0]), *(np.minimum(m, cap[1]) for m in some)]

    def _leakage(self, task: Task, of: Mapping[str, float], messages: Mapping[Key, list[Array]]) -> float:
        """Return max over pairs of values of the unit of what the pair costs itself plus its message."""
        if task.view.count < 2:
            return 0.0  # only one possible value: there is nothing to tell apart
        total = np.maximum.reduce(self._messages(task, of, messages))
        own = _differing_cost(task.view, task.view.top, of, by_top=True)
        off = ~np.eye(len(total), dtype=bool)
        return up(float((own + total)[off].max()), 8.0 + len(task.view.top))

    def _messages(
        self, task: Task, of: Mapping[str, float], messages: Mapping[Key, list[Array]]
    ) -> list[Array]:
        """Return m with nothing known, and with 1, …, k records known (or with some known)."""
        view = task.view
        budgets = SharedMessages(view, messages, self._most)
        rest = [n for n in view.clique.nodes if n not in view.top]
        base = _differing_cost(view, rest, of)
        ulps = 8.0 + len(rest) + 4.0 * len(view.branches)
        base = base + (base + budgets.none) * (ulps * EPS)  # differences of messages carry their rounding
        never = np.diag(np.full(view.count, np.inf))  # z = z' is no question
        found = [never.copy() for _ in range(budgets.levels + 1)]
        if task.level == "coarse":
            for b in range(1, budgets.levels + 1):
                found[b] = _largest_by_top(view, up_array(base + budgets.anything(b), ulps))
        made: dict[tuple[object, ...], Array] = {}
        for cell in self._cells[task]:
            for b in budgets.of(cell.choice):
                key = budgets.reads(cell.choice, b)
                if key not in made:
                    if len(made) >= _DISTANCES:
                        made.clear()
                    total = base + budgets.distance(cell.choice, b)
                    made[key] = up_array(np.maximum(total, 0.0), ulps)
                self._raise(task, cell, made[key], found[b])
        for b in range(2, budgets.levels + 1):
            np.maximum(found[b], found[b - 1], out=found[b])
        for m in found:
            np.fill_diagonal(m, 0.0)
        return found

    def _raise(self, task: Task, cell: Cell, d: Array, found: Array) -> None:
        """Raise ``found`` to what one choice is worth, for every pair (z, z')."""
        if cell.choice.known and not (cell.ceiling(d) > found).any():
            return
        mu = cell.mu(d)
        own = np.arange(mu.shape[-1])
        np.maximum(found, mu[..., own, own].max(axis=(0, 3)), out=found)
        u, w = np.triu_indices(len(own), 1)
        known, first, second = np.nonzero(mu.max(axis=(3, 4)) > found)
        if not len(u) or not len(first):
            return
        tilts = self._tilts(task, cell)
        step = max(1, _PAIRS // len(u))
        for start in range(0, len(first), step):
            k, z, y = (a[start : start + step, None] for a in (known, first, second))
            value = two_point(
                (mu[k, z, y, u, u], mu[k, z, y, w, w]),
                (mu[k, z, y, u, w], mu[k, z, y, w, u]),
                (tilts[k, z, y, u, w], tilts[k, z, y, w, u]),
                (mu[k, y, y, u, w], mu[k, y, y, w, u]),  # ln G'(u)/G'(u') at z'
            )
            np.maximum.at(found, (z[:, 0], y[:, 0]), value.max(axis=1))


def _differing_cost(
    view: View, nodes: Sequence[str], of: Mapping[str, float], *, by_top: bool = False
) -> Array:
    """Return Σ α over ``nodes`` of 1[differ], for pairs of states of the clique, or of the top."""
    states = view.clique.states
    if by_top:
        first = np.zeros(view.count, dtype=np.int64)
        first[view.label[::-1]] = np.arange(len(states))[::-1]
        states = states[first]
    total = np.zeros((len(states), len(states)))
    for k, n in enumerate(view.clique.nodes):
        if n in nodes and of[n] > 0:
            total += of[n] * (states[:, None, k] != states[None, :, k])
    return total


def _largest_by_top(view: View, d: Array) -> Array:
    """Return max of d over the states of every pair of values of the top."""
    order = np.argsort(view.label, kind="stable")
    starts = np.searchsorted(view.label[order], np.arange(view.count))
    rows = np.maximum.reduceat(d[order], starts, axis=0)
    return np.asarray(np.maximum.reduceat(rows[:, order], starts, axis=1))
