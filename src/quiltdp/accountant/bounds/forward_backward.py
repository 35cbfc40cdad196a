"""Forward–backward on a directed model of any size, against the prior adversary.

With T the lossy transport of :mod:`.transport`, in reverse topological order, for all values u of c's other
parents,

    fw_j(x, x') = α_j·1[x ≠ x'] + Σ_{children c of j} max_u T( P(c | x, u), P(c | x', u); fw_c ),

and from the founders down

    bk_i(x, x') = T( P(pa_i | x), P(pa_i | x'); D ),
    D(z, z') = above(z, z') + Σ_{a ∈ pa_i} side_a(z_a, z'_a),
    side_a = α_a·1 + Σ_{c ∈ ch(a), c ≠ i} max_u T(…; fw_c) + bk_a,
    Leakage(i) ≤ max over possible x, x' of fw_i + bk_i.

*Why.*  Order the nodes as ancestors of i, then i, then the rest, and sum the rest out one node at a
time from the end: when c is summed out, each of its parents j gains max_u T(…; fw_c), so the
function of (ancestors, i) that is left moves by at most ℓ_j when j changes, ℓ_j = α_j plus the gains
of j's children that are no ancestors of i.  Changing x_i costs fw_i there.  What remains is the law
of the ancestors given x_i.  Given all parents of i their lines (the parent with its ancestors) are
independent *if they are disjoint*, so parents are changed one at a time: above = 0.

**Lines that meet.**  Where lines overlap, knowing one parent tells about the other's ancestors.  Then
``above`` is the distance between parents' states that the loop of ancestors above them allows, summed out in
reverse order (:mod:`.loops`) with the distances ℓ_u, and bk_a enters at the top of the loop.  Where a loop is
too wide every member u is charged max ℓ_u once, whatever the laws.

*Prices.*  A record whose changes cost α_j·price_j(x, x') has that in the place of α_j·1[x ≠ x'].

*Assumes*: a Bayesian network, no evidence.  *Cost*: one batch of transports per height and distinct table;
loops up to the width that the work budget allows.  *Reference*: docs/prior_adversary.md, forward–backward.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from quiltdp.accountant.adversaries import PRIOR
from quiltdp.accountant.bounds.contract import ALL, Bounds, Need, Problem, Vector, register
from quiltdp.accountant.bounds.loops import LoopMessages
from quiltdp.accountant.bounds.network_simplex import Array
from quiltdp.accountant.bounds.transport import transport
from quiltdp.accountant.trade_offs import (
    BACKWARD_AT_ONCE,
    BACKWARD_SOLVED,
    DESCENDANTS_COUNTED,
    ROWS_AT_ONCE,
    ROWS_LISTED,
    ROWS_SOLVED,
)
from quiltdp.inference.ancestry import Ancestry, Loop
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Table
from quiltdp.numbers import EPS, up, up_array
from quiltdp.work import NO_GUARD, Guard, WorkBudget

_SLACK = 1e-12  # how far ln of a conditional probability may be from the truth, before roundings are counted
_PAIR_BYTES = 48  # of one entry of a pair of rows, with what is made on the way


@register(
    "forward-backward",
    against=PRIOR,
    kind="certified bound",
    says="forward–backward over the directed model",
)
class ForwardBackwardBound:
    """The forward–backward method (method ``"forward-backward"``, prior adversary).

    Parameters
    ----------
    problem
        A Bayesian network of any size and width.  A set of several records gets the sum of all α
        (this method is about single records).
    max_entries, max_work
        Limits on the loops of ancestors where lines meet, see
        :class:`~quiltdp.inference.ancestry.Ancestry`.
    max_group
        The joint states of one table kept there, see :mod:`.loops`; larger is tighter and slower.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp import Model
    >>> m = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.9, 0.1], [0.1, 0.9]])})
    >>> from quiltdp.accountant.bounds.contract import ready
    >>> ready(ForwardBackwardBound, m).evaluate(np.array([1.0, 1.0])).values.round(6).tolist()
    [1.776137, 1.776137]
    """

    def __init__(
        self, problem: Problem, *, max_entries: int = 2**17, max_work: int = 2**21, max_group: int = 27
    ) -> None:
        self._model = problem.model
        self._units = [tuple(self._model.index[n] for n in unit) for unit in problem.listed()]
        self._prices = [problem.price(n) for n in self._model.nodes]
        self._max_entries, self._max_work, self._max_group = max_entries, max_work, max_group

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Find the laws of families and of the loops above them, and the pairs of rows to compare."""
        guard = self._guard = workspace.guard
        tree = self._tree = Ancestry(
            self._model, max_entries=self._max_entries, max_work=self._max_work, guard=guard
        )
        self._forward = ChildTransports(tree, guard)
        roundings = max((loop.roundings for loop in tree.loops.values()), default=0)
        slack = _SLACK + 64 * EPS * (roundings + max(tree.depth, default=0))
        self._loops = {
            couple: LoopMessages(loop, max_group=self._max_group, roundings=roundings, slack=slack)
            for couple, loop in tree.loops.items()
        }
        families: dict[int, _FamilyLaw] = {}
        waves: dict[tuple[int, int], list[int]] = defaultdict(list)
        self._family: list[_FamilyLaw | None] = [None] * len(tree.parents)
        for i in tree.order:
            guard.check()
            joint = tree.families[i]
            if joint is not None and np.count_nonzero(joint) <= budget.states:
                if id(joint) not in families:
                    families[id(joint)] = _FamilyLaw(joint, slack)
                self._family[i] = families[id(joint)]
            if tree.parents[i]:
                waves[tree.depth[i], id(self._family[i])].append(i)
        self._waves = [waves[key] for key in sorted(waves)]  # by depth, those of one law together
        met = [
            i
            for i, couple in enumerate(tree.parents)
            if couple and len(tree.loops[couple].members) > len(couple)
        ]
        lost = sum(1 for i, f in enumerate(self._family) if f is None and tree.parents[i])
        notes = [f"forward-backward: ancestor lines meet above {len(met)} nodes"] if met else []
        notes += [f"forward-backward: the law of {lost} families is too wide, passed through"] if lost else []
        self._notes = tuple(notes)

    def evaluate(self, alpha: Vector, need: Need = ALL) -> Bounds:
        """Return the leakage of the units above ``low``; if the forward half exceeds ``high``, group's."""
        known, low, high = need.fill_unknown(len(self._units))
        alpha = np.asarray(alpha, dtype=np.float64)
        group = up(float(alpha.sum()), 8.0 + len(alpha))
        values = np.minimum(known, group)
        own = [a * price for a, price in zip(alpha.tolist(), self._prices, strict=True)]
        forward, messages = self._forward.run(own, self._guard)
        asked = [k for k, unit in enumerate(self._units) if len(unit) == 1 and values[k] > low]
        whole = max((forward[self._units[k][0]].max() for k in asked), default=0.0) <= high
        if whole:
            backward = self._backward(forward, messages, self._depends_on([self._units[k][0] for k in asked]))
            for k in asked:
                i = self._units[k][0]
                law = self._tree.marginals[i]
                alive = slice(None) if law is None else np.flatnonzero(law > 0)
                top = float((forward[i] + backward[i])[alive][:, alive].max())  # 0 for one possible value
                values[k] = min(values[k], up(top))
        partial = not whole or bool((known <= low).any())
        return Bounds(values, "forward-backward", notes=self._notes, partial=partial)

    def _depends_on(self, nodes: list[int]) -> set[int]:
        """Return the nodes whose bk the bk of ``nodes`` is made from, themselves included."""
        found, stack = set(nodes), list(nodes)
        while stack:
            couple = self._tree.parents[stack.pop()]
            more = [u for u in self._tree.loops[couple].tops if u not in found] if couple else []
            found.update(more)
            stack.extend(more)
        return found

    def _backward(self, forward: list[Array], messages: list[Array], wanted: set[int]) -> list[Array]:
        """Return bk of the wanted nodes, from the founders down."""
        tree = self._tree
        backward = [np.zeros_like(table) for table in forward]
        known: dict[bytes, Array] = {}
        above: dict[tuple[int, ...], Array] = {}

        def cost(loop: Loop, u: int, *more: int) -> Array:
            """ℓ_u, with bk_u for the top of a line; edges ``more`` lead into the loop too."""
            rest, inside = forward[u], [*loop.inner[u], *more]
            for e in inside:
                rest = rest - messages[e]
            rest = np.maximum(rest, 0.0) + forward[u] * (EPS * (8 + len(inside)))
            return up_array(rest + backward[u], 4.0) if u in loop.tops else rest

        for nodes in self._waves:
            asked, family, sides = [i for i in nodes if i in wanted], self._family[nodes[0]], {}
            for i in asked:
                self._guard.check()
                couple = tree.parents[i]
                loop = tree.loops[couple]
                sides[i] = [cost(loop, a, e) for a, e in zip(couple, tree.edge_of[i], strict=True)]
                if family is not None and couple in above:
                    continue  # known from a sibling
                others = {u: cost(loop, u) for u in loop.members if u not in couple}
                if family is not None:
                    above[couple] = self._loops[couple].run(others, known, self._guard)
                else:  # whatever the laws: every member of the loop changes
                    tops = [float(t.max()) for t in (*sides[i], *others.values())]
                    backward[i] = up(sum(tops), 4.0 + len(tops)) * (1.0 - np.eye(len(forward[i])))
            if family is not None:
                step = max(1, BACKWARD_AT_ONCE // family.cells)
                for some in (asked[k : k + step] for k in range(0, len(asked), step)):
                    found = family.distances([above[tree.parents[i]] for i in some], [sides[i] for i in some])
                    for i, value in zip(some, found, strict=True):
                        backward[i] = value
        return backward


class _FamilyLaw:
    """The law of a node's parents given its value, as transports read it."""

    def __init__(self, joint: Table, slack: float) -> None:
        self._slack = slack
        couples = joint.reshape(-1, joint.shape[-1])
        self._shape = joint.shape
        alive = np.flatnonzero(couples.any(axis=0))
        width = int((couples > 0).sum(axis=0).max())
        states = np.argsort(couples.T <= 0, axis=1, kind="stable")[:, :width]  # the possible ones first
        law = np.take_along_axis(couples.T, states, axis=1)
        law[alive] /= law[alive].sum(axis=1, keepdims=True)
        first, second = np.nonzero(~np.eye(len(alive), dtype=bool))
        self._first, self._second = alive[first], alive[second]
        self._states, self._law = states, law
        self.cells = max(1, len(first) * width**2)

    def distances(self, above: Sequence[Array], sides: Sequence[Sequence[Array]]) -> Array:
        """Return bk of nodes with this law, from ``above`` of their couples and the sides of the parents."""
        size = self._shape[-1]
        count, pairs, width = len(above), len(self._first), self._law.shape[1]
        z, y = self._states[self._first][:, :, None], self._states[self._second][:, None, :]
        d = np.zeros((count, pairs, width, width))
        for k, table in enumerate(above):
            d[k] = table[z, y]
        here, there = np.unravel_index(z, self._shape[:-1]), np.unravel_index(y, self._shape[:-1])
        for slot, tables in enumerate(zip(*sides, strict=True)):
            d += np.array(tables)[:, here[slot], there[slot]]
        costs = up_array(d, 8.0 + len(self._shape)).reshape(-1, width, width)
        p, q = (np.tile(self._law[side], (count, 1)) for side in (self._first, self._second))
        value = transport(p, q, costs, effort=BACKWARD_SOLVED * count)
        result = np.zeros((count, size, size))
        result[:, self._first, self._second] = np.where(value > 0.0, value + 2.0 * self._slack, 0.0).reshape(
            count, -1
        )
        return result


class ChildTransports:
    """The forward half: what a node's children, and theirs, give away about it.

    All children of one height that share a table are answered in one batch: the pairs of parent values
    and the values of the other parents are the same for all, only the child's own distance differs.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp import Model
    >>> m = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.9, 0.1], [0.1, 0.9]])})
    >>> forward, _ = ChildTransports(Ancestry(m)).run([1.0 - np.eye(2)] * 2)
    >>> forward[0].round(6).tolist()
    [[0.0, 1.776137], [1.776137, 0.0]]
    """

    def __init__(self, tree: Ancestry, guard: Guard = NO_GUARD) -> None:
        self._tree = tree
        self._pairs: dict[tuple[int, int], _RowPairs] = {}
        levels: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for i in tree.order:
            table = tree.tables[i]
            levels[tree.height[i]][id(table)].append(i)
            for slot in range(len(tree.parents[i])):
                if (id(table), slot) not in self._pairs:
                    guard.check()
                    self._pairs[id(table), slot] = _RowPairs(table, slot, guard)
        self._levels = [levels[height] for height in sorted(levels)]
        users = Counter(id(t) for t in tree.tables)
        costs = sorted(pairs.cost * users[table] for (table, _), pairs in self._pairs.items())
        affordable = [
            c for c, total in zip(costs, itertools.accumulate(costs), strict=True) if total <= ROWS_SOLVED
        ]
        self._effort = max(affordable, default=0.0)  # the cheapest tables are solved, ceilings for the rest
        self._descendants = np.eye(len(tree.order)) if len(tree.order) <= DESCENDANTS_COUNTED else None
        if self._descendants is not None:
            for p, c, _ in reversed(tree.edges):
                np.maximum(self._descendants[p], self._descendants[c], out=self._descendants[p])

    def run(self, own: Sequence[Array], guard: Guard = NO_GUARD) -> tuple[list[Array], list[Array]]:
        """Return fw of every node and the message of every edge, rounded up, from the nodes' own prices."""
        tree = self._tree
        forward: list[Array] = list(own)
        messages: list[Array] = [np.zeros((0, 0))] * len(tree.edges)
        most = np.full(len(own), np.inf)  # what a node and its descendants cost: no change can tell more
        if self._descendants is not None:
            most = up_array(self._descendants @ [table.max() for table in own], 4.0 + len(own))
        for level in self._levels:
            for table, nodes in level.items():
                for i in nodes:
                    for e in tree.children[i]:
                        forward[i] = forward[i] + messages[e]
                    forward[i] = up_array(forward[i], 4.0 + len(tree.children[i]))
                distances, same = np.unique(
                    np.array([np.minimum(forward[i], most[i]) for i in nodes]), axis=0, return_inverse=True
                )
                for slot in range(len(tree.parents[nodes[0]])):
                    found = self._pairs[table, slot].largest_transport(distances, self._effort, guard)
                    for i, k in zip(nodes, same.ravel(), strict=True):
                        messages[tree.edge_of[i][slot]] = found[k]
        return forward, messages


class _RowPairs:
    """max_u T(P(c | x, u), P(c | x', u); ·) for one table and parent slot: its distinct pairs of rows."""

    def __init__(self, table: Table, slot: int, guard: Guard) -> None:
        rows = np.moveaxis(table, slot, 0).reshape(table.shape[slot], -1, table.shape[-1])
        self._size, others, states = rows.shape
        self._listed = self._size**2 * others <= ROWS_LISTED  # else the largest distance must do
        self.cost = 0.0  # in transports of four states; those of three are all solved
        if not self._listed:
            return
        distinct, which = np.unique(rows.reshape(-1, states), axis=0, return_inverse=True)
        which = which.reshape(self._size, others)
        x, y = np.nonzero(~np.eye(self._size, dtype=bool))
        first, second = which[x].ravel(), which[y].ravel()
        place = np.repeat(x * self._size + y, others)
        keep = first != second
        code = np.unique((first[keep] * len(distinct) + second[keep]) * self._size**2 + place[keep])
        pairs, index = np.unique(code // self._size**2, return_inverse=True)
        guard.check(planned_bytes=_PAIR_BYTES * len(pairs) * states)
        self._p, self._q = distinct[pairs // len(distinct)], distinct[pairs % len(distinct)]
        self._row, self._place = index.ravel(), code % self._size**2  # the pair behind each (x, x')
        self.cost = len(pairs) * states**3 / 64.0 if states > 3 else 0.0

    def largest_transport(self, d: Array, effort: float, guard: Guard) -> Array:
        """Return max_u T for every child and (x, x'); ``d`` has axes (child, state, state)."""
        result = np.zeros((len(d), self._size**2))
        if not self._listed:
            result[:] = d.max(axis=(1, 2))[:, None]
            result[:, :: self._size + 1] = 0.0
        elif len(self._p):
            count, states = self._p.shape
            value = np.empty((len(d), count))
            step = max(1, ROWS_AT_ONCE // states**2)
            for k in range(0, value.size, step):
                guard.check()
                child, pair = np.divmod(np.arange(k, min(k + step, value.size)), count)
                share = effort * len(child) / value.size if self.cost else np.inf
                value.ravel()[k : k + step] = transport(self._p[pair], self._q[pair], d[child], effort=share)
            np.maximum.at(result.T, self._place, value.T[self._row])
        return result.reshape(len(d), self._size, self._size)
