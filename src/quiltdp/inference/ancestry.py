"""Directed models of any size seen from below: ancestor lines, and the law of a node with its parents.

In a Bayesian network the law of a node's ancestors needs nothing but the ancestors' own tables.
Where the lines of a node's parents (each parent with its ancestors) are disjoint the parents are
independent and the law of the family (parents, node) is a product; where lines meet (inbreeding) it
comes from summing out the loop of ancestors above them, if that is narrow enough.

**A loop in reverse.**  Sum the ancestors of some nodes T out one by one.  When w is summed out, ψ(N, w) is
the product of all tables that hold w and

    P(w | everything left) = P(w | N) = ψ(N, w) / Σ_w ψ(N, w),

so the order of elimination turned round is again a directed model of the same law, in which T comes
first and w has the parents N.  Where Σ_w ψ = 0 the state N is impossible and the row may be chosen
freely: it becomes the average of the nearest possible rows.

**Lines that meet only once.**  An ancestor a cuts its own line An(a) off when nobody else between
An(a) and T descends from that line.  Then An(a) depends on the rest through a alone, and a enters as
a founder with its own marginal law.  Only the loops remain.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quiltdp.errors import InvalidArgument, ModelTooWide
from quiltdp.graph.orders import eliminations
from quiltdp.model import Model, Table
from quiltdp.numbers import UNDERFLOW
from quiltdp.work import NO_GUARD, Guard

__all__ = ["Ancestry", "FamilyLaw", "Loop", "Passage", "Reordered", "Step", "loop_above", "reorder"]

_LEAST = 1e-250  # below this a product of probabilities could be lost to underflow


@dataclass(frozen=True, eq=False)
class FamilyLaw:
    """The joint law of (parents…, node); one object for all families with equal tables and laws."""

    joint: Table

    @property
    def child(self) -> Table:
        """The marginal law of the node."""
        return np.asarray(self.joint.sum(axis=tuple(range(self.joint.ndim - 1))))


@dataclass(frozen=True, eq=False)
class Passage:
    """Parents whose lines meet: their slots, and the edges inside the lines above them.

    ``edges[k]`` belongs to ancestor number ``owner[k]`` (0, 1, … in any order): the edges from one
    ancestor to its children on the way down.
    """

    slots: tuple[int, ...]
    edges: NDArray[np.intp]
    owner: NDArray[np.intp]
    inner: tuple[tuple[int, ...], ...]
    """For every slot the edges from that parent into the lines (its edge to the node included)."""


class Ancestry:
    """Parents, children, levels, lines and family laws of a directed model.

    Parameters
    ----------
    model
        A Bayesian network.
    max_entries
        The largest table when a loop of ancestors is summed out.
    max_work
        How many entries all these tables may have together; beyond it laws are unknown.
    guard
        Looked at between nodes and between loops.

    Attributes
    ----------
    edges
        ``(parent, child, slot)`` by position; ``edge_of[child][slot]`` is its number.
    families
        For every node with parents its :class:`FamilyLaw`, or ``None`` where unknown.
    passages
        For every node the groups of parents whose lines meet (usually none).
    loops
        For parents whose lines meet (the tuple ``parents[i]``) the loop above them, summed out.
    """

    def __init__(
        self,
        model: Model,
        *,
        max_entries: int = 2**17,
        max_work: int = 2**21,
        guard: Guard = NO_GUARD,
    ) -> None:
        self._guard = guard
        if not model.directed:
            raise InvalidArgument("forward–backward needs a Bayesian network: this is a Markov network")
        self.model = model
        index = model.index
        n = len(model.nodes)
        self.order = [index[name] for name in model.topological_order]
        self._rank = {k: r for r, k in enumerate(self.order)}
        self.parents: list[tuple[int, ...]] = [()] * n
        self.tables: list[Table] = [np.ones(1)] * n
        for f in model.factors:
            k = index[f.scope[-1]]
            self.parents[k] = tuple(index[p] for p in f.scope[:-1])
            self.tables[k] = f.table
        self.edges: list[tuple[int, int, int]] = []
        self.edge_of: list[list[int]] = [[] for _ in range(n)]
        self.children: list[list[int]] = [[] for _ in range(n)]
        for c in self.order:
            for slot, p in enumerate(self.parents[c]):
                self.edge_of[c].append(len(self.edges))
                self.children[p].append(len(self.edges))
                self.edges.append((p, c, slot))
        self._lines()
        self._left = max_work
        self._max_entries = max_entries
        self._laws()

    # -- structure -----------------------------------------------------------------------------

    def _lines(self) -> None:
        """Find levels, ancestor sets (as bits) and the parents whose lines meet."""
        n = len(self.parents)
        self.depth, self.height = [0] * n, [0] * n
        self.ancestors = [0] * n
        self.passages: list[tuple[Passage, ...]] = [()] * n
        for i in self.order:
            self._guard.check()
            above = 0
            for p in self.parents[i]:
                above |= self.ancestors[p] | (1 << p)
                self.depth[i] = max(self.depth[i], self.depth[p] + 1)
            self.ancestors[i] = above
            groups = self._meeting(i)
            if groups:
                self.passages[i] = tuple(self._passage(i, slots) for slots in groups)
        for i in reversed(self.order):
            for p in self.parents[i]:
                self.height[p] = max(self.height[p], self.height[i] + 1)

    def _meeting(self, i: int) -> list[tuple[int, ...]]:
        """Return the groups of parent slots (two or more) whose lines overlap."""
        groups: list[tuple[int, list[int]]] = []
        for slot, p in enumerate(self.parents[i]):
            line, slots = self.ancestors[p] | (1 << p), [slot]
            apart = []
            for other, members in groups:
                if other & line:
                    line, slots = line | other, members + slots
                else:
                    apart.append((other, members))
            groups = [*apart, (line, slots)]
        return [tuple(sorted(slots)) for _, slots in groups if len(slots) > 1]

    def _passage(self, i: int, slots: tuple[int, ...]) -> Passage:
        """Collect the edges of the lines above parents that meet."""
        mine = {self.parents[i][s] for s in slots}
        seen, stack = set(mine), list(mine)
        down: dict[int, list[int]] = {p: [] for p in mine}
        while stack:
            c = stack.pop()
            for e in self.edge_of[c]:
                p = self.edges[e][0]
                down.setdefault(p, []).append(e)
                if p not in seen:
                    seen.add(p)
                    stack.append(p)
        for s in slots:
            down[self.parents[i][s]].append(self.edge_of[i][s])
        above = [p for p in down if p not in mine]
        edges = [e for p in above for e in down[p]]
        owner = [k for k, p in enumerate(above) for _ in down[p]]
        inner = tuple(tuple(down[self.parents[i][s]]) for s in slots)
        return Passage(slots, np.array(edges, dtype=np.intp), np.array(owner, dtype=np.intp), inner)

    def above(self, nodes: Iterable[int]) -> set[int]:
        """Return the nodes with all their ancestors."""
        kept, stack = set(nodes), list(nodes)
        while stack:
            for p in self.parents[stack.pop()]:
                if p not in kept:
                    kept.add(p)
                    stack.append(p)
        return kept

    # -- laws ------------------------------------------------------------------------------------

    def _laws(self) -> None:
        """Compute P(parents, node) in topological order."""
        n = len(self.parents)
        self.families: list[FamilyLaw | None] = [None] * n
        self.marginals: list[Table | None] = [None] * n
        made: dict[object, FamilyLaw | None] = {}
        pool: dict[bytes, Table] = {}
        couples: dict[tuple[int, ...], Table | None] = {}
        self.loops: dict[tuple[int, ...], tuple[Loop, Reordered]] = {}
        for i in self.order:
            self._guard.check()
            if not self.parents[i]:
                self.marginals[i] = _pooled(pool, self.tables[i])
                continue
            couple = self.parents[i]
            if couple not in couples:
                couples[couple] = self._couple(i, pool)
            law = couples[couple]
            if law is None:
                continue
            key = (id(self.tables[i]), id(law))
            if key not in made:
                joint = _kept(law[..., None], self.tables[i])
                made[key] = None if joint is None else FamilyLaw(joint)
            family = self.families[i] = made[key]
            if family is not None:
                self.marginals[i] = _pooled(pool, family.child)

    def _couple(self, i: int, pool: dict[bytes, Table]) -> Table | None:
        """Return P(parents of i): a product where lines are disjoint, else by exact inference."""
        own = [law for law in (self.marginals[p] for p in self.parents[i]) if law is not None]
        if self.passages[i] or len(own) < len(self.parents[i]):
            joint = self._infer(self.parents[i])
            return None if joint is None else _pooled(pool, joint)
        law: Table | None = np.ones(())
        for part in own:
            law = None if law is None else _kept(law[..., None], part)
        if law is None:
            law = self._infer(self.parents[i])
        return None if law is None else _pooled(pool, law)

    def _infer(self, nodes: tuple[int, ...]) -> Table | None:
        """Return P(nodes) from the loop above them, or ``None`` if that is too much work."""
        order = sorted(self.above(nodes), key=self._rank.__getitem__)
        known = {u: self.marginals[u] is not None for u in order}
        loop = loop_above(nodes, self.parents, order, known)
        try:
            found = reorder(
                loop,
                self.parents,
                self.tables,
                self.marginals,
                max_entries=min(self._max_entries, self._left),
            )
        except ModelTooWide:
            return None
        self._left = max(0, self._left - sum(s.law.size for s in found.steps))
        self.loops[nodes] = (loop, found)
        return found.joint


def _kept(law: Table, table: Table) -> Table | None:
    """Return the product of two laws, or ``None`` if a possible state would be lost to underflow."""
    product = law * table
    return None if np.any((product < UNDERFLOW) & (law > 0) & (table > 0)) else np.asarray(product)


def _pooled(pool: dict[bytes, Table], table: Table) -> Table:
    """Return one object for equal tables."""
    array = np.ascontiguousarray(table, dtype=np.float64)
    return pool.setdefault(np.asarray(array.shape).tobytes() + array.tobytes(), array)


# -- loops of ancestors ----------------------------------------------------------------------


@dataclass(frozen=True)
class Loop:
    """The ancestors of some nodes, lines that are cut off by one node left out.

    ``members`` are the nodes kept, ``tops`` those that stand for their whole line (real founders
    among them).
    """

    targets: tuple[int, ...]
    members: tuple[int, ...]
    tops: frozenset[int]


@dataclass(frozen=True, eq=False)
class Step:
    """One node given the ones left: ``law[n₁, …, n_k]`` is the row P(node | n₁ … n_k)."""

    node: int
    given: tuple[int, ...]
    law: Table


@dataclass(frozen=True, eq=False)
class Reordered:
    """The law of a loop as steps, first summed out first, and the law of its targets."""

    steps: tuple[Step, ...]
    joint: Table

    @property
    def roundings(self) -> int:
        """How many products and sums stand behind one entry, at most."""
        return sum(len(s.given) + 2 + s.law.shape[-1] for s in self.steps)


def loop_above(
    targets: Sequence[int],
    parents: Sequence[tuple[int, ...]],
    order: Sequence[int],
    known: Mapping[int, bool],
) -> Loop:
    """Return the ancestors of ``targets`` without the lines that one node cuts off.

    Parameters
    ----------
    targets
        Different nodes.
    parents
        The parents of every node.
    order
        The ancestors of the targets and the targets, parents before children.
    known
        Whether the marginal law of a node is known; a line is only left out below a known node.
    """
    spot = {u: k for k, u in enumerate(order)}
    below = [0] * len(order)  # children among the ancestors and targets, as bits
    for u in order:
        for p in parents[u]:
            below[spot[p]] |= 1 << spot[u]
    outside = 1 << len(order)
    for t in targets:
        below[spot[t]] |= outside  # somebody beyond depends on a target
    line, reached = [0] * len(order), [0] * len(order)
    cut: set[int] = set()
    for k, u in enumerate(order):
        for p in parents[u]:
            line[k] |= line[spot[p]] | 1 << spot[p]
            reached[k] |= reached[spot[p]] | below[spot[p]]
        if known[u] and not reached[k] & ~(line[k] | 1 << k):
            cut.add(u)
    kept, stack = set(targets), list(targets)
    while stack:
        u = stack.pop()
        for p in parents[u] if u not in cut else ():
            if p not in kept:
                kept.add(p)
                stack.append(p)
    members = tuple(u for u in order if u in kept)
    return Loop(tuple(targets), members, frozenset(u for u in members if u in cut or not parents[u]))


def reorder(
    loop: Loop,
    parents: Sequence[tuple[int, ...]],
    tables: Sequence[Table],
    marginals: Sequence[Table | None],
    *,
    max_entries: int,
) -> Reordered:
    """Sum a loop's members out, the cheapest one first, and return every step.

    Raises
    ------
    ModelTooWide
        If a table would exceed ``max_entries``, or probabilities leave the range of doubles.

    Examples
    --------
    >>> import numpy as np
    >>> flip = np.array([[0.9, 0.1], [0.2, 0.8]])
    >>> loop = Loop((1,), (0, 1), frozenset({0}))
    >>> found = reorder(loop, [(), (0,)], [np.full(2, 0.5), flip], [np.full(2, 0.5), None], max_entries=64)
    >>> found.joint.round(3).tolist(), found.steps[0].law.round(3).tolist()
    ([0.55, 0.45], [[0.818, 0.182], [0.111, 0.889]])
    """
    size = {u: tables[u].shape[-1] for u in sorted(loop.members)}
    holding: dict[int, list[tuple[tuple[int, ...], Table]]] = {u: [] for u in loop.members}

    def add(scope: tuple[int, ...], table: Table) -> tuple[int, ...]:
        for u in scope:
            holding[u].append((scope, table))
        return scope

    scopes = []
    for u in loop.members:
        own = marginals[u] if u in loop.tops else tables[u]
        assert own is not None, "a line is cut off at a known node only"
        scopes.append(add((u,) if u in loop.tops else (*parents[u], u), own))
    inner = [u for u in loop.members if u not in loop.targets]
    steps: list[Step] = []
    for w, around in eliminations(scopes, size, nodes=inner, rule="size, fill"):
        given = tuple(sorted(around))
        scope = (*given, w)
        if math.prod(size[v] for v in scope) > max_entries:
            raise ModelTooWide(f"summing out an ancestor needs a table of {len(scope)} nodes")
        psi = _product(scope, [size[v] for v in scope], holding[w])
        mass = psi.sum(axis=-1)
        steps.append(Step(w, given, _rows(psi, mass)))
        gone = {id(table) for _, table in holding[w]}
        for u in given:
            holding[u] = [f for f in holding[u] if w not in f[0] or id(f[1]) not in gone]
        if given:
            add(given, mass / mass.max())
    factors = list({(s, id(t)): (s, t) for u in loop.targets for s, t in holding[u]}.values())
    joint = _product(loop.targets, [size[t] for t in loop.targets], factors)
    return Reordered(tuple(steps), joint / joint.sum())


def _product(
    scope: Sequence[int], shape: Sequence[int], factors: Sequence[tuple[tuple[int, ...], Table]]
) -> Table:
    """Return the product of tables over ``scope``; refuse where a product could underflow."""
    result, possible = np.ones(shape), np.ones(shape, dtype=bool)
    at = {v: k for k, v in enumerate(scope)}
    for own, table in factors:
        axes = sorted(range(len(own)), key=lambda k: at[own[k]])
        shaped = [1] * len(scope)
        for k in axes:
            shaped[at[own[k]]] = table.shape[k]
        part = table.transpose(axes).reshape(shaped)
        result = result * part
        possible = possible & (part > 0)
    if np.any(result[possible] < _LEAST):
        raise ModelTooWide("probabilities of the ancestors leave the range of doubles")
    return result


def _rows(psi: Table, mass: Table) -> Table:
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
