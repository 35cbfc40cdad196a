"""Worst evidence: an adversary who knows records anywhere, on models with loops.

A step on the schedule of a clique tree.  Beyond the root Z of a task, W = V∖Z its clique's other nodes, there
are two messages on pairs of possible states of Z, "how far can the far side tell z from z'": m0, when nothing
beyond is known, and m1, when some record beyond is.  Choose what is known: records K of W, with their
values, and the children A with known records beyond.  With u the nodes of W in roots of A and r the rest

    D(v, v') = Σ_{records j of W} α_j(v_j, v'_j) + Σ_{c ∈ A} m1_c(v, v') + Σ_{c ∉ A} m0_c(v, v')
    μ((z,u), (z',u')) = T( P(r | z,u,K), P(r | z',u',K); D ),     r revealed as in :mod:`.coupling`
    C(z, z'; u, u') = ln of the cross ratio of P(u, K | z), plus Σ_{c ∈ A} J_c      (:mod:`.interaction`)

the choice is worth the two-point maximum (:mod:`.two_point`) over u with these μ and C, the range of t
being μ((z',u), (z',u')); without u it is worth μ.  m0 is nothing known, m1 the largest of all other
choices.  Rooted at a protected set T,

    Leakage(T) ≤ max over x_T ≠ x_T' of  Σ_{t ∈ T} α_t(x_t, x_t') + max(m0, m1)(x_T, x_T').

*Proof.*  Let h(x) be the likelihood of an output, e the evidence beyond Z, and U(a, z) = E[h(a, ·) | z, e]
for fixed values a of the other records.  The claim is U(a, z) ≤ e^{m(z,z')} U(a, z') for all a and all
z, z' that e allows.  Given v and e the children are independent, so G(v) = E[h | v, e] is changed from v
to v' one record and one child at a time: ln G is D-Lipschitz on the states that e allows.  No likelihood
touches r, so averaging over r leaves a function of (z, u) that obeys μ.  What remains is
E_f G / E_g G' for the laws f, g of u given (z, e) and (z', e), and f(u) g(u') / (f(u') g(u)) is the cross
ratio of P(u,K|z) times those of the likelihoods of A, so at most e^{C}.

An adversary who may know only some records is the same with fewer choices.  With none it is the prior
adversary's tree.

*Assumes*: a junction tree of affordable width; any evidence.  *Cost*: pairs of possible states of every
clique, per choice of what is known; chosen to fit the work budget.  *Reference*: docs/theory.md, section 15.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from quiltdp.accountant.adversaries import INFORMED
from quiltdp.accountant.bounds.contract import ALL, Bounds, Need, Problem, Vector, register
from quiltdp.accountant.bounds.coupling import Prices
from quiltdp.accountant.bounds.network_simplex import Array
from quiltdp.accountant.bounds.transport import transport_of_laws
from quiltdp.errors import ModelTooWide, option
from quiltdp.inference.cliques import CliqueStates
from quiltdp.inference.evidence import Choice, Part, Seen, seen_by_evidence
from quiltdp.inference.interaction import Interaction, cross_ratios, interaction, rectangles
from quiltdp.inference.schedule import Ints, RootedClique, schedule
from quiltdp.inference.two_point import PointPairs, raise_to_pairs
from quiltdp.inference.workspace import Workspace
from quiltdp.numbers import EPS, up, up_array
from quiltdp.work import WorkBudget

Messages = tuple[Array, Array]
"""m0 and m1 on pairs of root states."""
_WORTH = 4  # one pair here takes as long as so many where only transports are solved
_CLIQUES = 2  # how many cliques that hold a unit are tried, the smallest first
_UNITS = 4  # units that are looked at together at first; then twice as many each time
_BESIDE = 0.97  # how much of what another unit leaks need not be told exactly
_MOST_CHOICES = 12  # 2 to this many choices
_FEW = 5  # where every set of children is a choice of its own
_DISTANCES = 16  # tables of distances kept for choices that share them
_ROUNDINGS = 1e-12  # more than sums of messages in another order differ
_AT_ONCE = 1 << 18  # pairs of states, of all choices that are looked at together


@dataclass(frozen=True, eq=False)
class _PreparedChoice:
    """One choice of a task, with everything that does not depend on α."""

    seen: Seen
    choice: Choice

    @cached_property
    def part(self) -> Part:
        """The states of the choice; made when needed."""
        return self.seen.part(self.choice)

    def place_distances(self, table: Array) -> Array:
        """Return μ((z,u), (z',u')), axes (known, z, z', u, u'), from a table of pairs of prefixes."""
        prefix = self.part.prefix
        mu = table[prefix[:, :, None, :, None], prefix[:, None, :, None, :]]
        mu.ravel()[self.part.impossible] = -np.inf
        return np.asarray(mu)


class _ChildMessages:
    """Σ of the children's messages at all pairs of states of a clique, for what a choice knows."""

    def __init__(self, seen: Seen, below: Sequence[Messages]) -> None:
        states = len(seen.task.clique.states)
        self.none = np.zeros((states, states))
        self._roots = [frozenset(root) for root in seen.task.roots]
        self._gain: dict[int, Array] = {}  # m1 − m0 where positive, of children that may hold known records
        self._loss: dict[int, Array] = {}  # m0 − m1 where positive, of those where it is anywhere
        for c, ((_, label), (none, some)) in enumerate(zip(seen.task.children, below, strict=True)):
            self.none += none[label].take(label, axis=1)
            if seen.knowable[c]:
                self._gain[c] = np.maximum(some - none, 0.0)[label].take(label, axis=1)
                if (none > some).any():
                    self._loss[c] = np.maximum(none - some, 0.0)[label].take(label, axis=1)

    def distance(self, choice: Choice) -> Array:
        """Return the largest sum: records known beyond ``choice.children``, none beyond the others."""
        total = self.none + sum(self._gain[c] for c in choice.children)
        if choice.only:
            return total - sum(self._loss[c] for c in choice.children if c in self._loss)
        # A tilted node is tilted by some child that touches it; with nothing known in the clique and nothing
        # tilted, some child knows.  That one counts with m1, not with the larger of both.
        reasons = [[c for c in choice.children if n in self._roots[c]] for n in choice.tilted]
        if not choice.known and not choice.tilted:
            reasons.append(list(choice.children))
        lost: Array | float = 0.0
        for touching in (some for some in reasons if self._loss.keys() >= set(some)):
            lost = np.maximum(lost, np.minimum.reduce([self._loss[c] for c in touching]))
        return total - lost

    @property
    def distance_if_all_known(self) -> Array:
        """Σ of the messages when every child may hold known records."""
        return self.none + sum(self._gain.values())


class _TaskMessages:
    """The two messages of a task, raised choice by choice; only what exceeds ``floor`` is asked for."""

    def __init__(self, task: _Task, below: Sequence[Messages], prices: Prices, floor: Array | None) -> None:
        seen = task.seen
        new = seen.task.new
        self._children = _ChildMessages(seen, below)
        base = prices.between(new, seen.task.clique.states[:, [seen.task.columns[n] for n in new]])
        self._ulps = 8.0 + len(new) + 4.0 * len(seen.task.children)
        # differences of messages carry their rounding
        self._base = base + (base + self._children.none) * (self._ulps * EPS)
        least = np.zeros((seen.task.count,) * 2) if floor is None else np.maximum(floor, 0.0)
        np.fill_diagonal(least, np.inf)  # z = z' is no question
        self.found = (least.copy(), least.copy())
        self._seen = seen
        self._useless_evidence: list[frozenset[int]] = []
        if task.level == "coarse":
            np.maximum(self.found[1], self._distance_ceiling(()), out=self.found[1])
        self._kept: dict[object, Array] = {}

    def cannot_raise(self, known: tuple[int, ...]) -> bool:
        """Return whether these records known, evidence beyond every child would not raise m1.

        Fewer pairs of states agree on more known records: what is hopeless with some stays so with more.
        """
        if any(fewer.issubset(known) for fewer in self._useless_evidence):
            return True
        if (self._distance_ceiling(known) > self.found[1]).any():
            return False
        self._useless_evidence.append(frozenset(known))
        return True

    @cached_property
    def _farthest_distances(self) -> Array:
        d = up_array(self._base + self._children.distance_if_all_known, self._ulps)
        return d * (1.0 + _ROUNDINGS)

    def _distance_ceiling(self, known: tuple[int, ...]) -> Array:
        """Return for every pair (z, z') the largest distance between states that agree on what is known."""
        order, starts, roots, values = self._seen.group_states(known)
        rows = np.maximum.reduceat(self._farthest_distances[order], starts, axis=0)
        table = np.maximum.reduceat(rows[:, order], starts, axis=1)
        table[values[:, None] != values[None, :]] = 0.0
        found = np.zeros_like(self.found[0])
        np.maximum.at(found, (roots[:, None], roots[None, :]), table)
        return found

    def distances(self, choice: Choice) -> Array:
        """Return D of a choice, rounded up."""
        key = (choice.children, choice.only, choice.tilted, not choice.known)
        if key not in self._kept:
            total = np.maximum(self._base + self._children.distance(choice), 0.0)
            if len(self._kept) >= _DISTANCES:
                self._kept.clear()
            self._kept[key] = total + total * (self._ulps * EPS)
        return self._kept[key]

    def finished_messages(self) -> Messages:
        """Return m0 and m1."""
        for m in self.found:
            np.fill_diagonal(m, 0.0)
        return self.found


@dataclass(frozen=True, eq=False)
class _Task:
    """A task with its choices, as precise as the budget allows: each, together or coarse."""

    seen: Seen
    level: str = "coarse"

    @cached_property
    def cells(self) -> list[_PreparedChoice]:
        """Nothing known first."""
        choices = [Choice()]
        if self.level != "coarse":
            choices.extend(self.seen.choices(each=self.level == "each"))
        return [_PreparedChoice(self.seen, choice) for choice in choices]

    def pairs(self) -> int:
        """Return how many pairs of states it compares."""
        if self.level == "coarse":
            return len(self.seen.task.clique.states) ** 2
        return self.seen.pairs(each=self.level == "each")

    def has_few_choices(self) -> bool:
        """Return whether the choices are few enough to be listed at all."""
        if self.level == "each":
            return len(self.seen.may_know) + sum(self.seen.knowable) <= _FEW
        return len(self.seen.may_know) <= _MOST_CHOICES


def _refine_to_budget(tasks: Sequence[_Task], pairs: int) -> list[_Task]:
    """Return the tasks, each as precise as all of them together can be within the budget.

    First every task is made to look at what is known, the cheapest first; then, in the same order, every
    set of children becomes a choice of its own.
    """
    chosen = list(tasks)
    taken = [t.pairs() for t in tasks]
    left = pairs - sum(taken)
    for level in ("together", "each"):
        finer = [replace(t, level=level) for t in tasks]
        costs = [t.pairs() if t.has_few_choices() else pairs + 1 for t in finer]
        for k in sorted(range(len(tasks)), key=lambda k: (costs[k], k)):
            more = costs[k] - taken[k]
            if more <= left and (level == "together" or chosen[k].level == "together"):
                chosen[k], taken[k], left = finer[k], costs[k], left - more
    return chosen


@register(
    "worst-evidence",
    against=INFORMED,
    kind="certified bound",
    says="the informed clique tree: known records tilt, and no longer count",
)
class WorstEvidenceBound:
    """The informed clique tree (method ``"worst-evidence"``).

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
    >>> from quiltdp.accountant.bounds.contract import ready
    >>> m = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.9, 0.1], [0.1, 0.9]])})
    >>> ready(WorstEvidenceBound, m).evaluate(np.array([1.0, 1.0])).values.round(6).tolist()
    [1.776137, 1.776137]
    """

    def __init__(self, problem: Problem) -> None:
        self._problem, self._units = problem, problem.listed()
        model, who = problem.model, problem.adversary
        named = model.records if who.records is None else who.records
        self._may_know = {model.index[n] for n in named if n in model.index and who.at_most != 0}

    # -- what does not depend on α -----------------------------------------------------------------

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Read the tree, compute the interactions and choose what is looked at, as far as the budget goes."""
        walk = schedule(
            self._problem.model,
            self._units,
            max_entries=budget.entries,
            max_states=budget.states,
            cliques_each=_CLIQUES,
            workspace=workspace,
        )
        most = budget.pairs // _WORTH
        cliques = {task.clique: len(task.clique.states) ** 2 for task in walk.tasks}
        least = sum(cliques.values())
        if 3 * least > most:
            raise ModelTooWide(
                f"the cliques have {least:,} pairs of possible states, the limit is {most // 3:,}",
                f"raise {option('work')}",
                f"use another {option('method')}",
            )
        self._schedule, self._workspace = walk, workspace
        seen = seen_by_evidence(walk, self._may_know)
        self._tasks = dict(zip(walk.tasks, _refine_to_budget([_Task(s) for s in seen], most), strict=True))
        self._interactions = self._all_interactions(seen, most)
        coarse = sum(task.level == "coarse" for task in self._tasks.values())
        self._notes = (
            (f"worst-evidence: {coarse} of {len(seen)} messages took no account of what is known",)
            if coarse
            else ()
        )
        self._asked = b""  # the last α, and its messages
        self._messages: dict[int, Messages] = {}

    def _all_interactions(self, seen: Sequence[Seen], pairs: int) -> dict[RootedClique, list[Interaction]]:
        """Return J of the children of every task, the cheapest first as far as the budget goes."""
        edges = seen[: self._schedule.edges]
        costs = [rectangles(s) for s in edges]
        allowed, left = set(), pairs
        for k in sorted(range(len(costs)), key=lambda k: (costs[k], k)):
            left -= costs[k]
            if left >= 0:
                allowed.add(k)
        found: list[Interaction] = []
        beyond: dict[RootedClique, list[Interaction]] = {}
        for k, s in enumerate(seen):
            self._workspace.guard.check()
            beyond[s.task] = [found[c] for c, _ in s.task.children]
            if k < len(edges):
                most = pairs if k in allowed else 0
                found.append(interaction(s, beyond[s.task], slack=self._schedule.slack, most=most))
        return beyond

    def _ratios(self, cell: _PreparedChoice) -> Array:
        """Return C of one choice, kept while there is room."""
        beyond = self._interactions[cell.seen.task]
        return self._workspace.keep(
            "worst-evidence tilts",
            cell,
            lambda: cross_ratios(cell.seen, cell.part, cell.choice.children, beyond, self._schedule.slack),
            size=lambda made: made.nbytes,
        )

    # -- at one α ------------------------------------------------------------------------------------

    def evaluate(self, alpha: Vector, need: Need = ALL) -> Bounds:
        """Return the leakage of units, the largest first, as far as it is needed."""
        known, low, high = need.fill_unknown(len(self._units))
        count = need.count or len(self._units)
        alpha = np.asarray(alpha, dtype=np.float64)
        asked = [k for k in np.argsort(-known, kind="stable").tolist() if known[k] > low]
        values = np.array(known)
        witness: dict[int, dict[str, object]] = {}
        start, step = 0, _UNITS
        while start < len(asked):
            worst = np.sort(values[asked[:start]])[::-1]
            if start and (worst[0] > high or np.count_nonzero(worst > known[asked[start]]) >= count):
                break
            some = asked[start : start + step]
            floor = low
            if start and need.limited:
                floor = max(low, _BESIDE * float(worst[0]))
            elif count <= start:  # those below the last that is needed get its value
                floor = max(low, float(worst[count - 1]))
            for k, clique, leak in self._leakages(some, alpha, floor):
                if leak < values[k]:
                    values[k], witness[k] = leak, {"clique": clique.nodes}
            start, step = start + step, 2 * step
        return Bounds(values, "worst-evidence", "certified bound", witness, self._notes, need.partial)

    def messages_at(self, alpha: Vector, wanted: Collection[int]) -> dict[int, Messages]:
        """Return m0 and m1 of edges of the schedule, by number, none above its cap."""
        walk, prices = self._schedule, Prices(self._problem, alpha)
        if self._asked != alpha.tobytes():
            self._asked, self._messages = alpha.tobytes(), {}
        cheapest = min((float(alpha[n]) for n in self._may_know), default=0.0)
        caps = dict(zip(walk.tasks, walk.beyond(alpha.tolist()), strict=True))

        def step(tasks: Sequence[RootedClique], below: Sequence[Sequence[Messages]]) -> list[Messages]:
            found = self._task_messages([self._tasks[t] for t in tasks], below, prices, [None] * len(tasks))
            return [
                (np.minimum(none, caps[t]), np.minimum(some, max(0.0, up(caps[t] - cheapest))))
                for t, (none, some) in zip(tasks, found, strict=True)
            ]

        walk.add(self._messages, wanted, step)
        return self._messages

    def _leakages(
        self, units: Collection[int], alpha: Vector, floor: float
    ) -> Iterator[tuple[int, CliqueStates, float]]:
        """Yield what units leak at cliques that hold them; below ``floor`` it counts as that."""
        walk, prices = self._schedule, Prices(self._problem, alpha)
        numbers = [walk.edges + at for at, k in enumerate(walk.units) if k in units]
        messages = self.messages_at(alpha, {c for number in numbers for c in walk.under(number)})
        roots = [(walk.units[number - walk.edges], walk.tasks[number]) for number in numbers]
        own = [prices.between(task.root, task.root_states) for _, task in roots]
        below = [[messages[c] for c, _ in task.children] for _, task in roots]
        out = self._task_messages([self._tasks[t] for _, t in roots], below, prices, [floor - c for c in own])
        for (k, task), cost, (none, some) in zip(roots, own, out, strict=True):
            off = ~np.eye(task.count, dtype=bool)
            top = float((cost + np.maximum(none, some))[off].max(initial=0.0))
            yield k, task.clique, up(top, 8.0 + len(task.root)) if task.count > 1 else 0.0

    def _task_messages(
        self,
        tasks: Sequence[_Task],
        below: Sequence[Sequence[Messages]],
        prices: Prices,
        floors: Sequence[Array | None],
    ) -> list[Messages]:
        """Return the messages of some tasks, many choices at once: those that know fewer records first."""
        makings = [
            _TaskMessages(task, children, prices, floor)
            for task, children, floor in zip(tasks, below, floors, strict=True)
        ]
        rounds = max((len(cell.choice.known) for task in tasks for cell in task.cells), default=0)
        for known in range(rounds + 1):
            waiting: list[tuple[_PreparedChoice, Array, Array]] = []
            room = _AT_ONCE
            for task, making in zip(tasks, makings, strict=True):
                for cell in task.cells:
                    if len(cell.choice.known) != known or (known and making.cannot_raise(cell.choice.known)):
                        continue
                    d = making.distances(cell.choice)
                    waiting.append((cell, d, making.found[0 if cell.choice == Choice() else 1]))
                    room -= d.size
                    if room < 0:
                        self._raise_messages(waiting)
                        waiting, room = [], _AT_ONCE
            self._raise_messages(waiting)
        return [making.finished_messages() for making in makings]

    def _raise_messages(self, waiting: Sequence[tuple[_PreparedChoice, Array, Array]]) -> None:
        """Raise messages to what choices are worth, given D of each, for every pair (z, z')."""
        self._workspace.guard.check()
        pairs: list[tuple[_PreparedChoice, Array, Array]] = []
        for (cell, _, found), table in zip(waiting, self._summed_out(waiting), strict=True):
            mu = cell.place_distances(table)
            own = np.arange(mu.shape[-1])
            np.maximum(found, mu[..., own, own].max(axis=(0, 3)), out=found)
            if len(own) > 1:
                pairs.append((cell, mu, found))
        rows: list[PointPairs] = []
        messages = {id(found): found for _, _, found in pairs}
        sizes = np.cumsum([0, *(m.size for m in messages.values())]).tolist()
        starts = dict(zip(messages, sizes, strict=False))
        for cell, mu, found in pairs:
            at = np.flatnonzero(mu.max(axis=(3, 4)) > found)  # (known, z, z') that may be raised
            if len(at):
                tops = len(found)
                pair = at % tops**2
                here = at - pair + pair % tops * (tops + 1)  # G' at z': the range of t
                rows.append(PointPairs(mu, at, self._ratios(cell), at, mu, here, starts[id(found)] + pair))
        if rows:
            worth = np.concatenate([m.ravel() for m in messages.values()])
            raise_to_pairs(worth, rows)
            for key, message in messages.items():
                message[...] = worth[starts[key] : starts[key] + message.size].reshape(message.shape)

    def _summed_out(self, waiting: Sequence[tuple[_PreparedChoice, Array, Array]]) -> list[Array]:
        """Return the tables of pairs of prefixes (z, u, known), the free nodes of every choice summed out."""
        tables = [d for _, d, _ in waiting]
        left = [len(cell.part.levels) for cell, _, _ in waiting]
        places: dict[int, tuple[Ints, Ints]] = {}
        while any(left):
            alike: dict[int, list[int]] = {}
            for k, (cell, _, _) in enumerate(waiting):
                if left[k]:
                    alike.setdefault(len(cell.part.levels[left[k] - 1].law), []).append(k)
            for slots, some in sorted(alike.items()):
                parts = []
                for k in some:
                    cell, _, found = waiting[k]
                    left[k] -= 1
                    level, (first, second) = cell.part.levels[left[k]], cell.part.agreeing[left[k]]
                    d = tables[k][level.longer[:, None, first], level.longer[None, :, second]]
                    tables[k] = np.zeros((level.law.shape[1],) * 2)
                    tables[k][first, second] = top = d.max(axis=(0, 1))  # no transport costs more
                    if not left[k]:
                        z, y = cell.part.roots[first], cell.part.roots[second]
                        hot = np.eye(len(found), dtype=bool)  # ranges of t are read at z = z'
                        over = top > found[z, y]
                        hot[z[over], y[over]] = True
                        due = np.flatnonzero(hot[z, y])
                        first, second, d = first[due], second[due], d[:, :, due]
                    parts.append((level.law[:, first], level.law[:, second], d.reshape(slots**2, -1)))
                    places[k] = first, second
                p, q, d = (np.concatenate(a, axis=1) for a in zip(*parts, strict=True))
                value = transport_of_laws(p, q, d, self._schedule.slack)
                ends = np.cumsum([len(places[k][0]) for k in some])[:-1]
                for k, cost in zip(some, np.split(value, ends), strict=True):
                    tables[k][places[k]] = np.minimum(cost, tables[k][places[k]])
        return tables
