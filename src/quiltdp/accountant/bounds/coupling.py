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

*Prices.*  A record whose changes cost α_k·price_k(x, x') (for this query) has that in the place of
α_k·1[x ≠ x']: the induction uses nothing else of it.

*Why children may be added early.*  T(p, q; D + c) = c + T(p, q; D) for a constant c: a clique beyond is added
as soon as the nodes it shares are revealed, and never looked at again.

*Forms.*  All pairs of possible states are compared where the work budget allows it, otherwise few of them
(:mod:`.sparse_coupling`).  The witness says which form it was.

*Assumes*: the prior adversary, who knows no record beforehand, and a junction tree within the work budget.
*Cost*: one transport per compared pair of states of every clique, at each α.  *Reference*: docs/theory.md,
section 16, and docs/prior_adversary.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from quiltdp.accountant.adversaries import PRIOR
from quiltdp.accountant.bounds.contract import ALL, Bounds, Need, Problem, Vector, register
from quiltdp.accountant.bounds.network_simplex import Array
from quiltdp.accountant.bounds.sparse_coupling import SparsePairs
from quiltdp.accountant.bounds.transport import transport_of_laws
from quiltdp.accountant.trade_offs import (
    COSTS_AT_ONCE,
    COUPLING_ENTRIES,
    COUPLING_FINER,
    COUPLING_NODES,
    COUPLING_PAIR,
    COUPLING_WORTH,
)
from quiltdp.errors import ModelTooWide, option
from quiltdp.inference.schedule import Ints, Level, Order, RootedClique, Schedule, schedule
from quiltdp.inference.trees import plan_junction_tree
from quiltdp.inference.workspace import Workspace
from quiltdp.numbers import up, up_array
from quiltdp.work import Guard, WorkBudget

Orders = Sequence[Sequence[Order]]
"""For every task the orders in which its clique is read."""


@register(
    "coupling",
    against=PRIOR,
    kind="certified bound",
    says="sequential coupling along a junction tree, transports checked",
)
class CouplingBound:
    """Sequential coupling (method ``"coupling"``, prior adversary).

    Parameters
    ----------
    problem
        Any model with a junction tree.  A set of records is made a clique first.
    sparse
        Compare few pairs only, single changes and those with at least this mass, also where all could be.

    Raises
    ------
    ModelTooWide
        Before any work on α, naming the clique.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp import Model
    >>> m = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.9, 0.1], [0.1, 0.9]])})
    >>> from quiltdp.accountant.bounds.contract import ready
    >>> ready(CouplingBound, m).evaluate(np.array([1.0, 1.0])).values.round(6).tolist()
    [1.776137, 1.776137]
    """

    near, settles = 1e-8, True

    def __init__(self, problem: Problem, *, sparse: float | None = None) -> None:
        if len(problem.model.nodes) > COUPLING_NODES:
            raise ModelTooWide(
                f"sequential coupling takes at most {COUPLING_NODES:,} nodes",
                f"use another {option('method')}",
            )
        self._problem, self._sparse = problem, sparse

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Read the junction tree away from every unit and across every edge, in the orders that pay."""
        model, units = self._problem.model, self._problem.listed()
        most, entries = budget.pairs // COUPLING_PAIR, COUPLING_ENTRIES * budget.entries
        join = [u for u in units if len(u) > 1]
        plan = plan_junction_tree(model, join=join, max_entries=entries, workspace=workspace)
        if plan.fits and plan.total_entries > entries:
            raise ModelTooWide(
                f"all cliques together need {plan.total_entries:,} entries, the limit is {entries:,}",
                f"raise {option('work')}",
                f"use another {option('method')}",
            )
        walk = schedule(model, units, max_entries=entries, max_states=entries, workspace=workspace)
        orders = orders_within(walk, most) if self._sparse is None else None
        self._pairs: AllPairs | SparsePairs
        if orders is not None:
            self._pairs, form = AllPairs(walk, orders, workspace.guard), "all pairs of states"
        else:
            worth = COUPLING_WORTH if self._sparse is None else self._sparse
            sizes = [model.cardinality(n) for n in model.nodes]
            self._pairs, form = (
                SparsePairs(walk, sizes, workspace.guard, worth, budget),
                "few pairs of states",
            )
            self.near, self.settles = 1e-3, False  # an evaluation takes seconds; records of little mass lose
        self._witness = {k: {"form": form} for k in range(len(units))}

    def evaluate(self, alpha: Vector, need: Need = ALL) -> Bounds:
        """Return the leakage of every unit."""
        prices = Prices(self._problem, np.asarray(alpha, dtype=np.float64))
        return Bounds(self._pairs.leakages(prices), "coupling", witness=self._witness)


class Prices:
    """What changes of values cost: α_j·price_j(x, x') of every record."""

    def __init__(self, problem: Problem, alpha: Vector) -> None:
        self.alpha = alpha
        # a conditioned model lacks what is known, which costs nothing any more
        self._tables = {k: problem.prices[n] for n, k in problem.model.index.items() if n in problem.prices}
        distinct: dict[bytes, int] = {}
        self._kind = {n: distinct.setdefault(t.tobytes(), len(distinct)) for n, t in self._tables.items()}

    def between(self, nodes: Sequence[int], values: Ints) -> Array:
        """Return Σ of the prices of the nodes, for all pairs of rows of ``values``."""
        total = np.zeros((len(values),) * 2)
        for column, node in enumerate(nodes):
            x = values[:, column]
            table = self._tables.get(node)
            share = x[:, None] != x[None, :] if table is None else table[x[:, None], x[None, :]]
            total += float(self.alpha[node]) * share
        return total

    def key(self, nodes: Sequence[int]) -> tuple[tuple[float, int], ...]:
        """Return what tells the prices of some nodes from those of others."""
        return tuple((float(self.alpha[n]), self._kind.get(n, -1)) for n in nodes)


@dataclass(eq=False)
class _OrderMessages:
    """One order of a task on its way from the last level to the root."""

    order: Order
    below: Sequence[Array]
    left: int
    table: Array | None = None  # of pairs of prefixes; none: zero

    def costs(self, first: Ints, second: Ints) -> Array:
        """Return what all beyond says about the pairs of two lists of prefixes, shape (first, second)."""
        total = np.zeros((len(first), len(second)))
        if self.table is not None:
            total = self.table[first].take(second, axis=1)
        for (level, label), message in zip(self.order.shown, self.below, strict=True):
            if level == self.left:
                total += message[label[first]].take(label[second], axis=1)
        return total

    @property
    def level(self) -> Level:
        return self.order.levels[self.left - 1]


def orders_within(plan: Schedule, most: int) -> Orders | None:
    """Return the finest orders of every task that take at most so much work, or none."""
    for together, both, share in COUPLING_FINER:
        found: list[list[Order]] = []
        left = most // share
        for task in plan.tasks:
            turns = (False, True) if both and len(task.new) > 1 else (False,)
            found.append([task.order(reverse=turn, together=together) for turn in turns])
            left -= sum(order.work for order in found[-1])
            if left < 0:
                break
        else:
            return found
    return None


class AllPairs:
    """One evaluation on all pairs of possible states.

    All messages that can be computed at the same time are, one level of each at a time: a tree of many small
    cliques takes a few large array operations instead of many small ones.
    """

    def __init__(self, plan: Schedule, orders: Orders, guard: Guard) -> None:
        self._schedule, self._guard = plan, guard
        self._orders = dict(zip(plan.tasks, orders, strict=True))

    def leakages(self, prices: Prices) -> Vector:
        """Return max over pairs of the unit's own price and what lies beyond; 0 for one possible state."""
        self._prices = prices
        self._caps = dict(
            zip(self._schedule.tasks, self._schedule.beyond(prices.alpha.tolist()), strict=True)
        )
        found = self._schedule.run(self._task_messages, self._message_key)
        values = []
        for task, table in list(zip(self._schedule.tasks, found, strict=True))[self._schedule.edges :]:
            own = prices.between(task.root, task.root_states)
            top = float((table + own).max())
            values.append(up(top, 8.0 + len(task.root)) if top > 0.0 else 0.0)
        return np.array(values)

    def _message_key(self, task: RootedClique) -> Hashable:
        return tuple(
            (o.signature, *(self._prices.key(v.nodes) for v in o.levels)) for o in self._orders[task]
        )

    def _task_messages(self, tasks: Sequence[RootedClique], below: Sequence[Sequence[Array]]) -> list[Array]:
        """Return the messages of some tasks: the smallest over the orders, at most Σ α beyond."""
        readings = [
            [_OrderMessages(o, b, len(o.levels)) for o in self._orders[t]]
            for t, b in zip(tasks, below, strict=True)
        ]
        waiting = [r for rs in readings for r in rs if r.left]
        while waiting:
            self._reveal_level(waiting)
            waiting = [r for r in waiting if r.left]
        found = []
        for task, rs in zip(tasks, readings, strict=True):
            every = np.arange(task.count)
            tables = [up_array(r.costs(every, every), 8.0 + len(task.children)) for r in rs]
            found.append(np.minimum(np.minimum.reduce(tables), self._caps[task]))
        return found

    def _reveal_level(self, readings: Sequence[_OrderMessages]) -> None:
        """Take one level of every reading, those of equally many slots together."""
        alike: dict[int, list[_OrderMessages]] = defaultdict(list)
        for r in readings:
            alike[len(r.level.law)].append(r)
        for slots, some in sorted(alike.items()):
            tables = [np.zeros((r.level.law.shape[1],) * 2) for r in some]
            for block in _split_rows([len(t) for t in tables], max(1, COSTS_AT_ONCE // slots**2)):
                self._guard.check()
                parts = [self._transport_problems(some[k], rows) for k, rows in block]
                p, q, d = (np.concatenate(a, axis=1) for a in zip(*parts, strict=True))
                value = transport_of_laws(p, q, d, self._schedule.slack)
                at = 0
                for k, rows in block:
                    size = len(tables[k])
                    tables[k][rows] = value[at : at + len(rows) * size].reshape(-1, size)
                    at += len(rows) * size
            for r, table in zip(some, tables, strict=True):
                np.fill_diagonal(table, 0.0)
                r.left, r.table = r.left - 1, table

    def _transport_problems(self, reading: _OrderMessages, rows: Ints) -> tuple[Array, Array, Array]:
        """Return p, q and D of the pairs (row, any prefix) of a level: problems on the last axis."""
        level = reading.level
        slots, count = level.law.shape
        d = reading.costs(level.longer[:, rows].ravel(), level.longer.ravel())
        own = self._prices.between(level.nodes, level.values)
        d += own[level.value[:, rows].ravel()].take(level.value.ravel(), axis=1)
        d = d.reshape(slots, len(rows), slots, count).transpose(0, 2, 1, 3).reshape(slots**2, -1)
        p = np.broadcast_to(level.law[:, rows, None], (slots, len(rows), count)).reshape(slots, -1)
        q = np.broadcast_to(level.law[:, None], (slots, len(rows), count)).reshape(slots, -1)
        return p, q, up_array(d, 8.0 + len(level.nodes) + len(reading.below))


def _split_rows(sizes: Sequence[int], most: int) -> Iterator[list[tuple[int, Ints]]]:
    """Yield lists of (table, rows of it) with at most ``most`` pairs together, or one row."""
    block: list[tuple[int, Ints]] = []
    room = most
    for k, size in enumerate(sizes):
        start = 0
        while start < size:
            rows = min(size - start, room // size)
            if not rows and block:
                yield block
                block, room = [], most
                continue
            rows = max(rows, 1)
            block.append((k, np.arange(start, start + rows)))
            start, room = start + rows, max(0, room - rows * size)
    if block:
        yield block
