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
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import INFORMED
from quiltdp.accountant.bounds import Bounds, Problem, Vector, register
from quiltdp.accountant.leakage.informed_messages import MessageRequest, leakages_of_many, messages_of_many
from quiltdp.accountant.leakage.informed_tasks import Cell, Task, assign_programs, levels
from quiltdp.chain import ChainModel
from quiltdp.errors import ModelTooWide, option
from quiltdp.inference.cliques import Choice, Views, clique_forest
from quiltdp.inference.interaction import Interaction, cross_ratios, interaction, rectangles
from quiltdp.inference.workspace import Workspace
from quiltdp.numbers import up
from quiltdp.work import WorkBudget

__all__ = ["InformedTreeBound"]

Array = NDArray[np.float64]
Key = tuple[int, int]
_WORTH = 4  # one pair here takes as long as so many where only transports are solved
_CLIQUES = 2  # how many cliques that hold a unit are tried, the smallest first
_UNITS = 4  # units that are looked at together at first; then twice as many each time
_BESIDE = 0.97  # how much of what another unit leaks need not be told exactly


@dataclass(frozen=True, eq=False)
class _AtAlpha:
    """What has been computed at one α: messages by edge, leakages of units at cliques with their floors."""

    messages: dict[Key, list[Array]]
    leakages: dict[Task, tuple[float, float]]


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
        assign_programs([c for cells in self._cells.values() for c in cells], budget.programs // _WORTH)
        levels_known = 2 if self._most is None else self._most + 1
        self._bytes = sum(8 * levels_known * task.view.count**2 for task in self._tasks.values())
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
        return self._worst_first(alpha, known, low, high, len(self._units))

    def largest(self, alpha: Vector, known: Vector, count: int) -> Bounds:
        """Return the leakage of the units that leak most."""
        return self._worst_first(alpha, known, 0.0, np.inf, count)

    def _worst_first(self, alpha: Vector, known: Vector, low: float, high: float, count: int) -> Bounds:
        """Return the leakage of units above ``low``, until one exceeds ``high`` or ``count`` all the rest."""
        alpha = np.asarray(alpha, dtype=np.float64)
        if self._unbudgeted is not None:
            known = self._unbudgeted._worst_first(alpha, known, low, high, count).values
        of = dict(zip(self._model.nodes, alpha.tolist(), strict=True))
        here = self._workspace.keep(
            "informed-tree", (self, tuple(of.values())), lambda: _AtAlpha({}, {}), lambda _: self._bytes
        )
        asked = [k for k in np.argsort(-known, kind="stable").tolist() if known[k] > low]
        values = np.array(known)
        witness: dict[int, dict[str, object]] = {}
        partial = low > 0.0 or high < np.inf
        start, step = 0, _UNITS
        while start < len(asked):
            told = np.sort(values[asked[:start]])[::-1]
            worst = float(told[0]) if start else 0.0
            if worst > high or np.count_nonzero(told > known[asked[start]] * (1.0 + 1e-8)) >= count:
                break  # units that tie are all told, or none of them
            floor = max(low, _BESIDE * worst) if partial else 0.0
            if not partial and start >= count:
                floor = float(told[count - 1]) * (1.0 - 1e-7)  # so many leak more: this one is not asked for
            some = asked[start : start + step]
            self._last_steps([task for k in some for task in self._roots[k]], of, here, floor)
            for k in some:
                for task in self._roots[k]:
                    leak = here.leakages[task][0]
                    if leak < values[k]:
                        values[k], witness[k] = leak, {"clique": task.view.clique.nodes}
            start, step = start + step, 2 * step
        return Bounds(values, "informed-tree", "certified bound", witness, self._notes)

    def _caps(self, of: Mapping[str, float]) -> dict[Key, tuple[float, float]]:
        """Return what all records beyond every edge cost, and what is left if one of them is known."""
        records = self._model.records
        cheapest = min((of[n] for n in self._may_know), default=0.0)
        beyond = self._views.beyond({n: of[n] for n in records})
        most = {key: up(cost, 16.0 + len(records)) for key, cost in beyond.items()}
        return {key: (cost, max(0.0, up(cost - cheapest))) for key, cost in most.items()}

    def messages_at(self, of: Mapping[str, float]) -> Mapping[Key, list[Array]]:
        """Return all messages that some unit reads, where α of every node is ``of``; for checks."""
        here = _AtAlpha({}, {})
        self._add_messages([task for some in self._roots for task in some], of, here)
        return here.messages

    def _last_steps(
        self, tasks: Sequence[Task], of: Mapping[str, float], here: _AtAlpha, floor: float
    ) -> None:
        """Add the leakages of units at cliques, and the messages that these read, none above its cap.

        A leakage below ``floor`` counts as that.
        """
        due = []
        for task in dict.fromkeys(tasks):
            leak, before = here.leakages.get(task, (0.0, np.inf))
            if task.view.count < 2:
                here.leakages[task] = (0.0, 0.0)  # only one possible value: there is nothing to tell apart
            elif leak <= up(before, 64.0) and floor < before:  # not told yet, or only that it is below
                due.append(task)
        asked = self._add_messages(due, of, here)
        due.sort(key=lambda task: task.view.clique.nodes)  # those of one clique read the same messages
        for task, leak in zip(due, leakages_of_many(due, asked, floor), strict=True):
            here.leakages[task] = (leak, floor)

    def _add_messages(self, tasks: Sequence[Task], of: Mapping[str, float], here: _AtAlpha) -> MessageRequest:
        """Add the messages that last steps read, none above its cap; return what they are read with."""
        needed = {b.key for task in tasks for b in task.view.branches} - here.messages.keys()
        for key in reversed(self._order if needed else ()):
            if key in needed:
                branches = self._tasks[key].view.branches
                needed.update(b.key for b in branches if b.key not in here.messages)
        caps = self._caps(of) if needed else {}
        asked = MessageRequest(
            self._cells, of, here.messages, self._most, self._tilts, self._workspace.guard.check
        )
        left = [key for key in self._order if key in needed]
        while left:
            ready = [k for k in left if all(b.key in here.messages for b in self._tasks[k].view.branches)]
            found = messages_of_many([self._tasks[k] for k in ready], asked)
            for key, (none, *some) in zip(ready, found, strict=True):
                free, told = caps[key]
                here.messages[key] = [np.minimum(none, free), *(np.minimum(m, told) for m in some)]
            left = [key for key in left if key not in here.messages]
        return asked
