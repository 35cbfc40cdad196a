"""Sequential coupling in 50 digits: the same theorem on exact laws, every transport with its two proofs.

Which node is revealed when, which pairs are compared and which paths are taken is read from the library's own
plan; every law, every message and every leakage is computed anew (``fifty_digits``).  So the certified value
must lie at or above the twin's, and hardly above it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fifty_digits import Exact, exactly, transport
from mpmath import inf, mpf

from quiltdp.accountant.bounds.coupling import Orders
from quiltdp.accountant.bounds.sparse_coupling import SparsePairs
from quiltdp.inference.schedule import Order, RootedClique, Schedule
from quiltdp.model import Model

State = tuple[int, ...]
Costs = Callable[[State, State], mpf]


def _moved(
    exact: Exact, given: Mapping[int, int], other: Mapping[int, int], of: Sequence[int], cost: Costs
) -> mpf:
    """Return T of the laws of some nodes given one state and given another."""
    p, q = exact.law(given, of), exact.law(other, of)
    return transport(list(p.values()), list(q.values()), [[cost(v, w) for w in q] for v in p])


# -- all pairs -------------------------------------------------------------------------------------


def all_pairs(
    model: Model,
    walk: Schedule,
    orders: Orders,
    alpha: Sequence[float],
    prices: Mapping[str, Any] | None = None,
) -> list[mpf]:
    """Return the leakage of every unit of a schedule, all pairs compared."""
    exact, a = Exact(model), [exactly(x) for x in alpha]
    tables = {model.index[n]: table for n, table in (prices or {}).items()}
    messages: list[Callable[[State, State], mpf]] = []
    caps: list[mpf] = []

    def price(nodes: Sequence[int], v: State, w: State) -> mpf:
        """Return what it costs to change some nodes from v to w."""
        return sum(
            (
                a[n] * exactly(float(tables[n][x, y])) if n in tables else a[n]
                for n, x, y in zip(nodes, v, w, strict=True)
                if x != y
            ),
            mpf(0),
        )

    def read(task: RootedClique, orders: Sequence[Order]) -> tuple[Callable[[State, State], mpf], mpf]:
        cap = sum((a[n] for n in task.new), mpf(0)) + sum((caps[k] for k, _ in task.children), mpf(0))
        known: dict[tuple[int, int, State, State], mpf] = {}

        def after(order: int, level: int, u: State, w: State) -> mpf:
            if u == w:
                return mpf(0)
            key = (order, level, u, w)
            if key not in known:
                levels = orders[order].levels
                columns = [*task.root, *(n for v in levels[:level] for n in v.nodes)]
                one, two = dict(zip(columns, u, strict=True)), dict(zip(columns, w, strict=True))
                if level == len(levels):
                    known[key] = sum(
                        (
                            messages[k](*(tuple(x[n] for n in walk.tasks[k].root) for x in (one, two)))
                            for k, _ in task.children
                        ),
                        mpf(0),
                    )
                else:
                    nodes = levels[level].nodes
                    known[key] = _moved(
                        exact,
                        one,
                        two,
                        nodes,
                        lambda v, x: price(nodes, v, x) + after(order, level + 1, (*u, *v), (*w, *x)),
                    )
            return known[key]

        return lambda z, y: min(cap, *(after(k, 0, z, y) for k in range(len(orders)))), cap

    leakages = []
    for number, (task, some) in enumerate(zip(walk.tasks, orders, strict=True)):
        found, cap = read(task, some)
        messages.append(found)
        caps.append(cap)
        if number >= walk.edges:
            pairs = itertools.permutations(exact.law({}, task.root), 2)
            leakages.append(max((price(task.root, z, y) + found(z, y) for z, y in pairs), default=mpf(0)))
    return leakages


# -- few pairs -------------------------------------------------------------------------------------


def few_pairs(
    model: Model, pairs: SparsePairs, alpha: Sequence[float], prices: Mapping[str, Any] | None = None
) -> list[mpf]:
    """Return the leakage of every unit on single changes and on the pairs that the library lists."""
    exact, a = Exact(model), [exactly(x) for x in alpha]
    tables = {model.index[n]: table for n, table in (prices or {}).items()}
    walk = pairs._schedule
    read: list[_Read] = []
    leakages = []
    for number, (task, t) in enumerate(zip(walk.tasks, pairs._tasks, strict=True)):
        found = _Read(exact, lambda n, x, y: _price(a, tables, n, x, y), t)
        found.run([read[k] for k, _ in task.children])
        read.append(found)
        if number >= walk.edges:
            states = exact.law({}, task.root)
            leakages.append(
                max(
                    (
                        found.value(z, y)
                        + sum(
                            (_price(a, tables, n, v, w) for n, v, w in zip(task.root, z, y, strict=True)),
                            mpf(0),
                        )
                        for z, y in itertools.permutations(states, 2)
                    ),
                    default=mpf(0),
                )
            )
    return leakages


def _price(a: Sequence[mpf], tables: Mapping[int, Any], n: int, x: int, y: int) -> mpf:
    if x == y:
        return mpf(0)
    return a[n] * exactly(float(tables[n][x, y])) if n in tables else a[n]


class _Read:
    """One task read from its last front to its root: ``single`` and ``listed`` are those of the root then."""

    def __init__(self, exact: Exact, price: Callable[[int, int, int], mpf], task: Any) -> None:
        self.exact, self.price, self.task = exact, price, task
        self.cap = mpf(0)
        self.single: dict[tuple[State, State], mpf] = {}
        self.listed: dict[tuple[State, State], mpf] = {}

    def run(self, below: Sequence[_Read]) -> None:
        """Take every level, and add the children as soon as their roots are revealed."""
        fronts = self.task.fronts
        self.nodes = fronts[-1].nodes
        states = self.states(fronts[-1])
        self.single = {pair: mpf(0) for pair in _one_apart(states)}
        self.listed = dict.fromkeys(self.pairs(fronts[-1], states), mpf(0))
        for level in range(len(fronts) - 1, -1, -1):
            if level < len(fronts) - 1:
                self.reveal(fronts[level], range(fronts[level + 1].sizes[-1]))
            for (at, _), child in zip(self.task.order.shown, below, strict=True):
                if at == level:
                    self.add(child)

    def states(self, front: Any) -> list[State]:
        return [tuple(s) for s in front.states.T.tolist()]

    def pairs(self, front: Any, states: Sequence[State]) -> list[tuple[State, State]]:
        both = (divmod(c, front.count) for c in front.codes.tolist())
        return [(states[k], states[m]) for k, m in both]

    def value(self, u: State, w: State) -> mpf:
        """Return what is known about a pair: listed, or the most that can be."""
        return mpf(0) if u == w else self.listed.get((u, w), self.cap)

    def change(self, u: State, w: State) -> mpf:
        return mpf(0) if u == w else self.single.get((u, w), inf)

    def add(self, child: _Read) -> None:
        places = [self.nodes.index(n) for n in child.nodes]

        def shown(u: State) -> State:
            return tuple(u[k] for k in places)

        self.cap += child.cap
        self.single = {
            (u, w): min(self.cap, v + child.change(shown(u), shown(w))) for (u, w), v in self.single.items()
        }
        self.listed = {
            (u, w): min(self.cap, v + child.value(shown(u), shown(w))) for (u, w), v in self.listed.items()
        }

    def reveal(self, front: Any, size: range) -> None:
        """Go from the prefixes with the newest node to those without it."""
        node = self.nodes[-1]
        states = self.states(front)
        listed = self.pairs(front, states)
        compared = {listed[k] for k in front.compared.tolist()}

        def moved(u: State, w: State, cost: Callable[[int, int], mpf]) -> mpf:
            given = (dict(zip(front.nodes, x, strict=True)) for x in (u, w))
            return _moved(
                self.exact, *given, (node,), lambda v, x: cost(v[0], x[0]) + self.price(node, v[0], x[0])
            )

        def along(u: State, w: State, x: int, y: int) -> mpf:
            one, two = (*u, x), (*w, y)
            ways = [self.change(one, m) + self.change(m, two) for m in ((*w, x), (*u, y))]
            return min(self.cap, *ways)

        single = {
            (u, w): moved(u, w, lambda x, y, u=u, w=w: along(u, w, x, y)) for u, w in _one_apart(states)
        }
        own = {(u, w): moved(u, w, lambda x, y, u=u, w=w: self.value((*u, x), (*w, y))) for u, w in compared}
        self.cap += max(self.price(node, x, y) for x in size for y in size)
        for pair, v in own.items():
            if pair in single:
                single[pair] = min(single[pair], v)
        self.nodes = front.nodes
        self.single = {pair: min(v, self.cap) for pair, v in single.items()}
        self.listed = {
            (u, w): min(self.cap, own.get((u, w), inf), self.way(u, w, 1), self.way(u, w, -1))
            for u, w in listed
        }

    def way(self, u: State, w: State, direction: int) -> mpf:
        """Return the sum of the single changes from one state to another, one node after the other."""
        total = mpf(0)
        for k in range(len(u))[::direction]:
            after = (*u[:k], w[k], *u[k + 1 :])
            total += self.change(u, after)
            u = after
        return total


def _one_apart(states: Sequence[State]) -> list[tuple[State, State]]:
    both = itertools.permutations(states, 2)
    return [(u, w) for u, w in both if sum(x != y for x, y in zip(u, w, strict=True)) == 1]
