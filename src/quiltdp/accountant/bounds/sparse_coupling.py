"""Sequential coupling on few pairs of states, for junction trees with too many pairs to compare them all.

The theorem is that of :mod:`.coupling`.  Two kinds of pairs of prefixes of a clique's nodes are compared:

- all *single changes*: prefixes that differ in one node;
- *pairs with mass*: a coupling that keeps values equal as far as it can, followed from every unit downwards,
  visits few pairs often.

Every other pair is bounded by the triangle inequality along single changes through possible states, one node
after the other, and by the Σ α beyond.  All of it is sound whatever is compared.

*Why the triangle inequality.*  For fixed values a of the records let U(a, z) be the mean of h(a, ·) under
the law of what lies beyond, given z.  The induction of :mod:`.coupling` bounds ln U(a, z) / U(a, z') by
m(z, z') for every a, so ln U(a, z) / U(a, z'') ≤ m(z, z') + m(z', z'') through any possible z'.  No price is
paid on the way: the records a do not change.

*Assumes*: what :mod:`.coupling` does.  *Cost*: at each α one transport per single change of every prefix and
per pair with mass; linear in the entries of the junction tree.  *Reference*: docs/theory.md, section 16.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.bounds.contract import Vector
from quiltdp.accountant.bounds.network_simplex import Array
from quiltdp.accountant.bounds.transport import transport_of_laws
from quiltdp.accountant.trade_offs import CHANGES_AT_ONCE, COUPLING_FAINT, COUPLING_LIGHT, COUPLING_PAIR
from quiltdp.errors import ModelTooWide, option
from quiltdp.inference.schedule import Ints, Order, RootedClique, Schedule
from quiltdp.numbers import up, up_array
from quiltdp.work import Guard, WorkBudget

if TYPE_CHECKING:
    from quiltdp.accountant.bounds.coupling import Prices

Places = NDArray[np.int32]


class _ListedPairs:
    """The prefixes of a clique after some levels, and the pairs of them that are listed.

    A table of single changes has a row for every value of every node, and a column for every prefix: what
    changing that node to that value costs.  A last column of ∞ stands for impossible prefixes, number −1.
    """

    def __init__(self, nodes: tuple[int, ...], states: Places, sizes: Sequence[int]) -> None:
        self.nodes, self.states = nodes, states  # (nodes, prefixes)
        self.sizes = [sizes[n] for n in nodes]
        self.count = states.shape[1]
        self.rows = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)
        self.strides = np.append(np.cumprod(self.sizes[:0:-1])[::-1], 1).astype(np.int64)[: len(nodes)]
        self._code = self.strides @ states if len(nodes) else np.zeros(self.count, dtype=np.int64)
        self._number = np.full(int(np.prod(self.sizes, dtype=np.int64)), -1, dtype=np.int32)
        self._number[self._code] = np.arange(self.count)
        self.codes = np.zeros(0, dtype=np.int64)  # first · count + second of the listed pairs, in order
        self.compared = np.zeros(0, dtype=np.int64)  # which of them have a transport of their own
        self.ways: list[Ints] = []  # places in a flat table of single changes, per order of the nodes

    def change_node(self, at: Ints, column: int, value: Ints | int) -> Ints:
        """Return the prefixes with one node changed; −1 where that is impossible (or ``at`` is −1)."""
        code = self._code[at] + (value - self.states[column, at]) * self.strides[column]
        return np.where(at < 0, -1, self._number[code]).astype(np.int64)

    def single_changes(self) -> Iterator[Ints]:
        """Yield blocks of single changes: rows of the value, of the prefix, and of the prefix it leads to."""
        every = np.arange(self.count)
        block: list[Ints] = []
        for c, size in enumerate(self.sizes):
            for value in range(size):
                target = self.change_node(every, c, value)
                a = np.flatnonzero((target >= 0) & (target != every))
                block.append(np.array([np.full(len(a), self.rows[c] + value), a, target[a]]))
                if sum(part.shape[1] for part in block) >= CHANGES_AT_ONCE:
                    yield np.concatenate(block, axis=1)
                    block = []
        if block:
            yield np.concatenate(block, axis=1)

    def change_path(self, first: Ints, second: Ints, columns: Sequence[int]) -> tuple[Ints, Ints]:
        """Return for every node the place of its change, and the pairs of prefixes it joins (−1: none)."""
        places, legs = [], []
        for c in columns:
            value = self.states[c, second]
            after = self.change_node(first, c, value)
            places.append((self.rows[c] + value) * (self.count + 1) + first)
            legs.append(np.where((after < 0) | (after == first), -1, first * self.count + after))
            first = after
        return np.array(places, dtype=np.int64).reshape(len(columns), -1), np.array(legs)

    def number_pairs(self, first: Ints, second: Ints) -> Places:
        """Return the number of every pair: listed, then the cap, then 0 for equal prefixes."""
        code = first * self.count + second
        found = np.full(code.shape, len(self.codes), dtype=np.int32)
        if len(self.codes):
            at = np.minimum(np.searchsorted(self.codes, code), len(self.codes) - 1)
            found = np.where((self.codes[at] == code) & (first >= 0) & (second >= 0), at, found)
        return np.where(first == second, len(self.codes) + 1, found).astype(np.int32)

    def list_heavy_pairs(self, codes: Ints, mass: Array, faint: float) -> Array:
        """List pairs that carry mass, compare those with enough of it; return the mass of the compared."""
        columns = range(len(self.nodes))
        light = np.flatnonzero(mass < 1.0)
        _, legs = self.change_path(*np.divmod(codes[light], self.count), columns)
        single = legs.ravel() >= 0
        more = np.broadcast_to(mass[light], legs.shape).ravel()[single]
        own = mass >= 1.0
        kept, total = _merge_mass(
            np.concatenate([codes[own], legs.ravel()[single]]), np.concatenate([mass[own], more])
        )
        stay = (total >= faint) | np.isin(kept, codes[own])
        kept, total = kept[stay], total[stay]
        self.codes = np.union1d(codes, kept)
        self.compared = np.searchsorted(self.codes, kept)
        first, second = np.divmod(self.codes, self.count)
        self.ways = [self.change_path(first, second, c)[0].astype(np.int32) for c in (columns, columns[::-1])]
        return total


def _merge_mass(codes: Ints, mass: Array) -> tuple[Ints, Array]:
    distinct, where = np.unique(codes, return_inverse=True)
    return distinct, np.bincount(where.ravel(), weights=mass, minlength=len(distinct)).astype(np.float64)


@dataclass(eq=False)
class _Task:
    """A task with its fronts, before every level and after the last, and what joins them."""

    order: Order
    fronts: list[_ListedPairs]
    down: list[Ints]  # (values, prefixes): the longer prefix, −1 where impossible
    laws: list[Array]  # (values, prefixes)
    demand: list[tuple[Ints, Array]] = field(default_factory=list)
    cells: list[Places] = field(default_factory=list)
    shown: list[Places] = field(default_factory=list)


@dataclass(eq=False)
class Message:
    """What lies beyond a root: a table of single changes, and the listed pairs, the cap and 0."""

    front: _ListedPairs
    single: Array
    listed: Array
    cap: float


class SparsePairs:
    """The messages of a schedule on single changes and on pairs with mass."""

    def __init__(
        self, plan: Schedule, sizes: Sequence[int], guard: Guard, worth: float, budget: WorkBudget
    ) -> None:
        self._schedule, self._guard = plan, guard
        orders = [task.order() for task in plan.tasks]
        effort = sum(_change_work(task, order, sizes) for task, order in zip(plan.tasks, orders, strict=True))
        if effort > budget.pairs:
            raise ModelTooWide(
                f"the junction tree has about {effort:,.0f} single changes, the limit is {budget.pairs:,}",
                f"raise {option('work')}",
                f"use another {option('method')}",
            )
        self._tasks = [_make_task(task, order, sizes) for task, order in zip(plan.tasks, orders, strict=True)]
        self._number = {task: k for k, task in enumerate(plan.tasks)}
        most = budget.pairs / COUPLING_PAIR
        while not self._list_heavy_pairs(worth, most if worth < 1.0 else np.inf):
            worth *= 10.0

    def _list_heavy_pairs(self, worth: float, most: float) -> bool:
        """List the pairs that carry mass; return whether their comparisons are within the limit."""
        for t in self._tasks:
            t.demand, t.cells, t.shown = [], [], []
        for k in range(len(self._tasks) - 1, -1, -1):
            t, task = self._tasks[k], self._schedule.tasks[k]
            if k >= self._schedule.edges:
                first, second = np.nonzero(~np.eye(t.fronts[0].count, dtype=bool))
                t.demand.append((first * t.fronts[0].count + second, np.full(len(first), 1.0 / worth)))
            codes, mass = _gather_mass(t.demand)
            for level, front in enumerate(t.fronts):
                self._guard.check()
                for (at, label), (child, _) in zip(t.order.shown, task.children, strict=True):
                    if at == level:
                        first, second = np.divmod(codes, front.count)
                        there = self._tasks[child].fronts[0].count
                        self._tasks[child].demand.append(_unequal(label[first], label[second], there, mass))
                if level == len(t.laws):
                    front.codes = codes
                    break
                mass = front.list_heavy_pairs(codes, mass, COUPLING_FAINT)
                values = len(t.laws[level])
                most -= len(front.compared) * (8 + values**3) / 72 + len(front.codes) * len(front.nodes) / 32
                if most < 0:
                    return False
                first, second = np.divmod(front.codes[front.compared], front.count)
                codes, mass = self._send_mass(t, level, first, second, mass)
        for t, task in zip(self._tasks, self._schedule.tasks, strict=True):
            for front, later, down in zip(t.fronts[:-1], t.fronts[1:], t.down, strict=True):
                first, second = np.divmod(front.codes[front.compared], front.count)
                t.cells.append(later.number_pairs(down[:, None, first], down[None, :, second]))
            for (at, label), (child, _) in zip(t.order.shown, task.children, strict=True):
                first, second = np.divmod(t.fronts[at].codes, t.fronts[at].count)
                t.shown.append(self._tasks[child].fronts[0].number_pairs(label[first], label[second]))
        return True

    def _send_mass(self, t: _Task, level: int, first: Ints, second: Ints, mass: Array) -> tuple[Ints, Array]:
        """Return where a coupling that keeps values equal as far as it can sends the mass of some pairs."""
        parts = []
        count = t.fronts[level + 1].count
        down = t.down[level]
        p, q = t.laws[level][:, first], t.laws[level][:, second]
        stay = np.minimum(p, q)
        p, q = p - stay, (q - stay) / np.maximum(1e-300, (q - stay).sum(axis=0))
        for i in range(len(down)):
            for j in range(len(down)):
                flow = (stay[i] if i == j else p[i] * q[j]) * mass
                parts.append(_unequal(down[i, first], down[j, second], count, flow))
        return _gather_mass(parts)

    def leakages(self, prices: Prices) -> Vector:
        """Return the leakage of every unit."""
        self._prices = prices

        def step(tasks: Sequence[RootedClique], below: Sequence[Sequence[Message]]) -> list[Message]:
            return [self._message(self._tasks[self._number[t]], b) for t, b in zip(tasks, below, strict=True)]

        found = self._schedule.run(step)
        values = []
        for message in found[self._schedule.edges :]:
            front = message.front
            first, second = np.divmod(front.codes, front.count)
            own = prices.between(front.nodes, front.states.T.astype(np.int64))
            top = float((message.listed[:-2] + own[first, second]).max(initial=0.0))
            values.append(up(top, 8.0 + len(front.nodes)) if top > 0.0 else 0.0)
        return np.array(values)

    def _message(self, t: _Task, below: Sequence[Message]) -> Message:
        cap = 0.0
        front = t.fronts[-1]
        single = _blank_single_changes(front, 0.0)
        listed = np.zeros(len(front.codes))
        for level in range(len(t.fronts) - 1, -1, -1):
            self._guard.check()
            if level < len(t.laws):
                node = front.nodes[-1]
                own = self._prices.between((node,), np.arange(front.sizes[-1])[:, None])
                compared = self._transports_of_compared(t, level, np.concatenate([listed, [cap, 0.0]]), own)
                single = self._single_change_table(t, level, single, cap, own)
                front = t.fronts[level]
                cap = up(cap + float(own.max(initial=0.0)), 4.0)
                listed = _costs_of_listed_pairs(front, single, compared, cap)
            here = [k for k, (at, _) in enumerate(t.order.shown) if at == level]
            for k in here:
                label, child = t.order.shown[k][1], below[k]
                for c, n in enumerate(child.front.nodes):
                    to, of = front.rows[front.nodes.index(n)], child.front.rows[c]
                    size = front.sizes[front.nodes.index(n)]
                    single[to : to + size, :-1] += child.single[of : of + size][:, label]
                listed = listed + child.listed[t.shown[k]]
                cap += child.cap
            if here:
                cap = up(cap, 4.0 + len(here))
                np.minimum(up_array(single, 4.0 + len(here)), cap, out=single, where=single < np.inf)
                listed = np.minimum(up_array(listed, 4.0 + len(here)), cap)
        return Message(front, single, np.concatenate([listed, [cap, 0.0]]), cap)

    def _transports_of_compared(self, t: _Task, level: int, after: Array, own: Array) -> Array:
        """Return the transports of the compared pairs."""
        front, law, down = t.fronts[level], t.laws[level], t.down[level]
        first, second = np.divmod(front.codes[front.compared], front.count)
        result = np.zeros(len(first))
        for at in range(0, len(first), CHANGES_AT_ONCE):
            a, b = first[at : at + CHANGES_AT_ONCE], second[at : at + CHANGES_AT_ONCE]
            d = after[t.cells[level][:, :, at : at + CHANGES_AT_ONCE]] + own[:, :, None]
            result[at : at + len(a)] = self._transports_of_pairs(law, down, a, b, d)
        return result

    def _single_change_table(self, t: _Task, level: int, after: Array, cap: float, own: Array) -> Array:
        """Return the table of single changes before a node is revealed."""
        front, later, law, down = t.fronts[level], t.fronts[level + 1], t.laws[level], t.down[level]
        found = _blank_single_changes(front)
        newest = after[later.rows[-2] :]
        for row, a, b in front.single_changes():
            here, there = down[:, a], down[:, b]
            still = after[row, here]
            d = np.empty((len(law), len(law), len(a)))
            for i in range(len(law)):
                for j in range(len(law)):
                    d[i, j] = still[i]
                    if i != j:
                        d[i, j] += newest[j, there[i]]
                        np.minimum(d[i, j], newest[j, here[i]] + still[j], out=d[i, j])
            np.minimum(d, cap, out=d)
            d += own[:, :, None]
            found[row, a] = self._transports_of_pairs(law, down, a, b, d)
        return found

    def _transports_of_pairs(self, law: Array, down: Ints, first: Ints, second: Ints, d: Array) -> Array:
        """Return T of some pairs of prefixes; ``d`` has axes value, value, pair."""
        values = len(law)
        d = up_array(_as_possible(d, down[:, first] >= 0, down[:, second] >= 0), 8.0)
        cells = d.reshape(values * values, -1)
        return transport_of_laws(law[:, first], law[:, second], cells, self._schedule.slack)


def _change_work(task: RootedClique, order: Order, sizes: Sequence[int]) -> float:
    """Return how many single changes a task has, weighted by the time a transport takes."""
    total, changes = 0.0, sum(sizes[n] - 1 for n in task.root)
    for level in order.levels:
        size = sizes[level.nodes[0]]
        total += level.law.shape[1] * changes * (size - 1 if size < 4 else size**3 / 4)
        changes += size - 1
    return total


def _make_task(task: RootedClique, order: Order, sizes: Sequence[int]) -> _Task:
    states = task.root_states.T.astype(np.int32)
    fronts = [_ListedPairs(task.root, states, sizes)]
    downs, laws = [], []
    for level in order.levels:
        node = level.nodes[0]
        value = level.values[level.value, 0]
        slots, count = level.law.shape
        law, down = np.zeros((sizes[node], count)), np.full((sizes[node], count), -1, dtype=np.int64)
        for s in range(slots - 1, -1, -1):  # a slot that repeats the first comes before it
            law[value[s], np.arange(count)] = level.law[s]
            down[value[s], np.arange(count)] = level.longer[s]
        longer = int(level.longer.max()) + 1
        new = np.empty((len(states) + 1, longer), dtype=np.int32)
        for v, row in enumerate(down):
            some = row >= 0
            new[:-1, row[some]] = states[:, some]
            new[-1, row[some]] = v
        states = new
        fronts.append(_ListedPairs((*fronts[-1].nodes, node), states, sizes))
        downs.append(down)
        laws.append(law)
    return _Task(order, fronts, downs, laws)


def _blank_single_changes(front: _ListedPairs, fill: float = np.inf) -> Array:
    """Return a table of single changes: 0 where nothing changes, ∞ where a change is impossible."""
    table = np.full((int(front.rows[-1]), front.count + 1), np.inf)
    table[front.rows[:-1, None] + front.states, np.arange(front.count)] = 0.0
    if fill < np.inf:
        for row, a, _ in front.single_changes():
            table[row, a] = fill
    return table


def _costs_of_listed_pairs(front: _ListedPairs, single: Array, compared: Array, cap: float) -> Array:
    """Return the values of the listed pairs: compared, along single changes, or the cap."""
    flat = single.ravel()
    places = front.compared
    if len(places):
        first, second = np.divmod(front.codes[places], front.count)
        differing = front.states[:, first] != front.states[:, second]
        one = np.flatnonzero(differing.sum(axis=0) == 1)
        column = differing[:, one].argmax(axis=0)
        at = (front.rows[column] + front.states[column, second[one]]) * (front.count + 1) + first[one]
        flat[at] = np.minimum(flat[at], compared[one])
    np.minimum(single, cap, out=single, where=single < np.inf)
    values = np.full(len(front.codes), cap)
    for way in front.ways:
        values = np.minimum(values, up_array(flat[way].sum(axis=0), 4.0 + len(way)))
    values[places] = np.minimum(values[places], compared)
    return values


def _unequal(first: Ints, second: Ints, count: int, mass: Array) -> tuple[Ints, Array]:
    some = (first != second) & (mass >= COUPLING_LIGHT)
    return _merge_mass(first[some] * count + second[some], mass[some])


def _gather_mass(parts: Sequence[tuple[Ints, Array]]) -> tuple[Ints, Array]:
    if not parts:
        return np.zeros(0, dtype=np.int64), np.zeros(0)
    codes, mass = (np.concatenate(a) for a in zip(*parts, strict=True))
    return _merge_mass(codes, mass)


def _as_possible(d: Array, alive_p: NDArray[np.bool_], alive_q: NDArray[np.bool_]) -> Array:
    """Give every impossible source (sink) the costs of a possible one: it then changes nothing."""
    numbers = np.arange(len(alive_p))[:, None]
    if not alive_p.all():
        donor = np.where(alive_p, numbers, alive_p.argmax(axis=0)[None])
        d = np.take_along_axis(d, donor[:, None, :], axis=0)
    if not alive_q.all():
        donor = np.where(alive_q, numbers, alive_q.argmax(axis=0)[None])
        d = np.take_along_axis(d, donor[None, :, :], axis=1)
    return d
