"""Directed models of any size seen from below: ancestor lines, and the law of a node with its parents.

In a Bayesian network the law of a node's ancestors needs nothing but the ancestors' own tables.
Where the lines of a node's parents (each parent with its ancestors) are disjoint the parents are
independent and the law of the family (parents, node) is a product; where lines meet (inbreeding) it
comes from summing out the loop of ancestors above them, if that is narrow enough.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quiltdp.errors import InvalidArgument, ModelTooWide
from quiltdp.inference.reordered import Loop, Reordered, loop_above, reorder
from quiltdp.model import Model, Table

__all__ = ["Ancestry", "FamilyLaw", "Passage"]

_UNDERFLOW = 1e-280  # below it a product has lost digits: the law is then called unknown


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

    def __init__(self, model: Model, *, max_entries: int = 2**17, max_work: int = 2**21) -> None:
        if not model.directed:
            raise InvalidArgument("forward–backward needs a Bayesian network: this is a Markov network")
        self.model = model
        index = model.index
        n = len(model.nodes)
        self.order = [index[name] for name in model.topological_order]
        self._rank = {k: r for r, k in enumerate(self.order)}
        self._factor_of = {f.scope[-1]: k for k, f in enumerate(model.factors)}
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

    def submodel(self, members: set[int]) -> Model:
        """Return the model of a set of nodes that holds all their ancestors."""
        names = [self.model.nodes[k] for k in sorted(members, key=self._rank.__getitem__)]
        factors = [self.model.factors[self._factor_of[n]] for n in names]
        return Model({n: self.model.states[n] for n in names}, factors)

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
    return None if np.any((product < _UNDERFLOW) & (law > 0) & (table > 0)) else np.asarray(product)


def _pooled(pool: dict[bytes, Table], table: Table) -> Table:
    """Return one object for equal tables."""
    array = np.ascontiguousarray(table, dtype=np.float64)
    return pool.setdefault(np.asarray(array.shape).tobytes() + array.tobytes(), array)
