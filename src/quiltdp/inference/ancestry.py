"""Directed models of any size seen from below: the loop of ancestors above some nodes, in reverse.

In a Bayesian network the law of some nodes T needs nothing but the tables of T and its ancestors.

**A loop in reverse.**  Sum the ancestors of T out one by one.  When w is summed out, ψ(N, w) is the product
of all tables that hold w and

    P(w | everything left) = P(w | N) = ψ(N, w) / Σ_w ψ(N, w),

so the order of elimination turned round is again a directed model of the same law, in which T comes
first and w has the parents N.  Where Σ_w ψ = 0 the state N is impossible and the row may be chosen
freely: it becomes the average of the nearest possible rows.

**Lines that meet only once.**  An ancestor a cuts its own line An(a) off when nobody else between
An(a) and T descends from that line.  Then An(a) depends on the rest through a alone, and a enters as
a founder with its own marginal law.  Only the loops remain; parents whose lines are disjoint have none.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from quiltdp.errors import InvalidArgument, ModelTooWide
from quiltdp.graph.orders import greedy_elimination
from quiltdp.model import Model, Table
from quiltdp.work import NO_GUARD, Guard

_LEAST = 1e-250  # below this a product of probabilities could be lost to underflow


@dataclass(frozen=True, eq=False)
class Step:
    """One node given the ones left: ``law[n₁, …, n_k]`` is the row P(node | n₁ … n_k)."""

    node: int
    given: tuple[int, ...]
    law: Table


@dataclass(frozen=True, eq=False)
class Loop:
    """The ancestors of some nodes, and their law in reverse order.

    Attributes
    ----------
    targets, members, tops
        The nodes asked about; they with their ancestors, lines that are cut off by one node left out; the
        members that stand for their whole line (founders among them).
    inner
        For every member the numbers of its edges to other members.
    steps, joint
        The law of the members as steps, first summed out first, and the law of the targets; ``None`` where
        that is too much work.
    """

    targets: tuple[int, ...]
    members: tuple[int, ...]
    tops: frozenset[int]
    inner: Mapping[int, Sequence[int]]
    steps: tuple[Step, ...] = ()
    joint: Table | None = None

    @property
    def roundings(self) -> int:
        """How many products and sums stand behind one entry, at most."""
        return sum(len(s.given) + 2 + s.law.shape[-1] for s in self.steps)


class Ancestry:
    """Parents, children and the laws of families of a directed model.

    Parameters
    ----------
    model
        A Bayesian network.
    max_entries
        The largest table when a loop of ancestors is summed out.
    max_work
        How many entries all these tables may have together; beyond it laws are unknown.
    guard
        Looked at between nodes.

    Attributes
    ----------
    order
        The nodes, parents before children.
    depth, height
        How long the longest way from a node to a founder is, and to a leaf.
    edges
        ``(parent, child, slot)`` by position; ``edge_of[child][slot]`` is its number.
    loops
        The loop above every tuple of parents.
    families
        For every node with parents the law of (parents…, node), or ``None`` where unknown; one object for
        equal laws.
    marginals
        The law of every node, or ``None``.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp import Model
    >>> flip = [[0.9, 0.1], [0.2, 0.8]]
    >>> both = [[[0.9, 0.1], [0.5, 0.5]], [[0.5, 0.5], [0.1, 0.9]]]
    >>> tables = {"A": ([], [0.5, 0.5]), "B": (["A"], flip), "C": (["A"], flip), "D": (["B", "C"], both)}
    >>> loop = Ancestry(Model.from_tables(tables)).loops[1, 2]
    >>> [(s.node, s.given) for s in loop.steps], loop.joint.round(3).tolist()
    ([(0, (1, 2))], [[0.425, 0.125], [0.125, 0.325]])
    """

    def __init__(
        self, model: Model, *, max_entries: int = 2**17, max_work: int = 2**21, guard: Guard = NO_GUARD
    ) -> None:
        if not model.directed:
            raise InvalidArgument("forward–backward needs a Bayesian network: this is a Markov network")
        index, n = model.index, len(model.nodes)
        self.order = [index[name] for name in model.topological_order]
        self.parents: list[tuple[int, ...]] = [()] * n
        self.tables: list[Table] = [np.ones(1)] * n
        for f in model.factors:
            k = index[f.scope[-1]]
            self.parents[k] = tuple(index[p] for p in f.scope[:-1])
            self.tables[k] = f.table
        self.edges: list[tuple[int, int, int]] = []
        self.edge_of: list[list[int]] = [[] for _ in range(n)]
        self.children: list[list[int]] = [[] for _ in range(n)]
        self.depth, self.height = [0] * n, [0] * n
        for c in self.order:
            for slot, p in enumerate(self.parents[c]):
                self.edge_of[c].append(len(self.edges))
                self.children[p].append(len(self.edges))
                self.edges.append((p, c, slot))
                self.depth[c] = max(self.depth[c], self.depth[p] + 1)
        for p, c, _ in reversed(self.edges):
            self.height[p] = max(self.height[p], self.height[c] + 1)
        self._rank = {k: r for r, k in enumerate(self.order)}
        self._max_entries, self._left = max_entries, max_work
        self._find_laws(guard)

    def above(self, nodes: Collection[int]) -> set[int]:
        """Return the nodes with all their ancestors."""
        kept, stack = set(nodes), list(nodes)
        while stack:
            more = [p for p in self.parents[stack.pop()] if p not in kept]
            kept.update(more)
            stack.extend(more)
        return kept

    def _find_laws(self, guard: Guard) -> None:
        """Compute the loops above parents and P(parents, node), in topological order."""
        n = len(self.parents)
        self.families: list[Table | None] = [None] * n
        self.marginals: list[Table | None] = [None] * n
        self.loops: dict[tuple[int, ...], Loop] = {}
        pool: dict[tuple[tuple[int, ...], bytes], Table] = {}

        def pooled(table: Table) -> Table:
            array = np.ascontiguousarray(table, dtype=np.float64)
            return pool.setdefault((array.shape, array.tobytes()), array)

        for i in self.order:
            guard.check()
            couple = self.parents[i]
            if not couple:
                self.marginals[i] = pooled(self.tables[i])
                continue
            if couple not in self.loops:
                self.loops[couple] = self._find_loop(couple)
            law = self.loops[couple].joint
            if law is not None:
                joint = law[..., None] * self.tables[i]
                if not np.any((joint < _LEAST) & (law[..., None] > 0) & (self.tables[i] > 0)):
                    self.families[i] = pooled(joint)
                    self.marginals[i] = pooled(joint.sum(axis=tuple(range(len(couple)))))

    def _find_loop(self, targets: tuple[int, ...]) -> Loop:
        """Return the ancestors of ``targets`` without the lines that one node cuts off, summed out."""
        order = sorted(self.above(targets), key=self._rank.__getitem__)
        spot = {u: k for k, u in enumerate(order)}
        below = [0] * len(order)  # children among the ancestors and targets, as bits
        for u in order:
            for p in self.parents[u]:
                below[spot[p]] |= 1 << spot[u]
        for t in targets:
            below[spot[t]] |= 1 << len(order)  # somebody beyond depends on a target
        line, reached = [0] * len(order), [0] * len(order)
        cut: set[int] = set()
        for k, u in enumerate(order):
            for p in self.parents[u]:
                line[k] |= line[spot[p]] | 1 << spot[p]
                reached[k] |= reached[spot[p]] | below[spot[p]]
            if self.marginals[u] is not None and not reached[k] & ~(line[k] | 1 << k):
                cut.add(u)
        kept, stack = set(targets), list(targets)
        while stack:
            u = stack.pop()
            more = [p for p in self.parents[u] if p not in kept] if u not in cut else []
            kept.update(more)
            stack.extend(more)
        members = tuple(u for u in order if u in kept)
        tops = frozenset(u for u in members if u in cut or not self.parents[u])
        inner = {u: [e for e in self.children[u] if self.edges[e][1] in kept] for u in members}
        try:
            steps, joint = self._sum_out_members(targets, members, tops)
        except ModelTooWide:
            return Loop(targets, members, tops, inner)
        self._left = max(0, self._left - sum(s.law.size for s in steps))
        return Loop(targets, members, tops, inner, steps, joint)

    def _sum_out_members(
        self, targets: tuple[int, ...], members: tuple[int, ...], tops: frozenset[int]
    ) -> tuple[tuple[Step, ...], Table]:
        """Sum the members out, the cheapest one first; return every step and the law of the targets.

        Raises
        ------
        ModelTooWide
            If a table would have too many entries, or probabilities leave the range of doubles.
        """
        size = {u: self.tables[u].shape[-1] for u in sorted(members)}
        most = min(self._max_entries, self._left)
        factors: list[tuple[tuple[int, ...], Table]] = []
        holding: dict[int, set[int]] = {u: set() for u in members}  # the numbers of the factors left

        def add(scope: tuple[int, ...], table: Table) -> None:
            for v in scope:
                holding[v].add(len(factors))
            factors.append((scope, table))

        for u in members:
            own = self.marginals[u] if u in tops else self.tables[u]
            assert own is not None, "a line is cut off at a known node only"
            add((u,) if u in tops else (*self.parents[u], u), own)
        inner = [u for u in members if u not in targets]
        steps: list[Step] = []
        for w, around in greedy_elimination(
            [scope for scope, _ in factors], size, nodes=inner, rule="size, fill"
        ):
            given = tuple(sorted(around))
            gone = sorted(holding.pop(w))
            if math.prod(size[v] for v in (*given, w)) > most:
                raise ModelTooWide(f"summing out an ancestor needs a table of {len(given) + 1} nodes")
            psi = _table_product((*given, w), size, [factors[f] for f in gone])
            mass = psi.sum(axis=-1)
            steps.append(Step(w, given, _conditional_rows(psi, mass)))
            for u in given:
                holding[u].difference_update(gone)
            if given:
                add(given, mass / mass.max())
        left = sorted(set().union(*(holding[t] for t in targets)))
        joint = _table_product(targets, size, [factors[f] for f in left])
        return tuple(steps), joint / joint.sum()


def _table_product(
    scope: Sequence[int], size: dict[int, int], factors: Sequence[tuple[tuple[int, ...], Table]]
) -> Table:
    """Return the product of tables over ``scope``; refuse where a product could underflow."""
    shape = [size[v] for v in scope]
    result, possible = np.ones(shape), np.ones(shape, dtype=bool)
    at = {v: k for k, v in enumerate(scope)}
    for own, table in factors:
        axes = sorted(range(len(own)), key=lambda k: at[own[k]])
        part = table.transpose(axes)
        part = part.reshape([size[v] if v in own else 1 for v in scope])
        result = result * part
        possible = possible & (part > 0)
    if np.any(result[possible] < _LEAST):
        raise ModelTooWide("probabilities of the ancestors leave the range of doubles")
    return result


def _conditional_rows(psi: Table, mass: Table) -> Table:
    """Return ψ / Σ_w ψ; impossible rows become the average of the nearest possible ones."""
    known = mass > 0
    law = psi / np.where(known, mass, 1.0)[..., None]
    while not known.all():
        total, count = np.zeros_like(law), np.zeros(known.shape)
        for axis in range(known.ndim):
            total += np.where(known[..., None], law, 0.0).sum(axis=axis, keepdims=True)
            count += known.sum(axis=axis, keepdims=True)
        new = ~known & (count > 0)
        law[new] = total[new] / count[new][:, None]
        known = known | new
    return np.asarray(law)
