"""Clique trees: of sums, calibrated once, for exact marginals; of Booleans, for what is possible.

In a :class:`JunctionTree` all tables are logarithms, so neither a chain of thousands of nodes nor a table
entry of 1e-300 underflows, and a state is possible exactly when its entry is above −∞.  Every message is
scaled by its largest entry, so no precision is lost to the total mass.  Nothing is recursive.

A :class:`SupportTree` knows which values of a separator are possible in the whole model.  The factors
beyond a separator do not move with the target, so they matter only through their zeros: a value of the
separator that the rest makes impossible must not be counted.  Factors without zeros forbid nothing and are
never looked at, so on a model of positive tables nothing is done here.

The tables with zeros form a model of their own, of Booleans.  In its clique tree every edge carries two
messages: which values of the edge's nodes the factors on the far side forbid.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from quiltdp.errors import InvalidArgument, InvalidModel, ModelTooWide, option
from quiltdp.inference.plan import (
    EASY_ENTRIES,
    KEPT_LAW,
    MAX_ENTRIES,
    SUPPORT_ENTRIES,
    EliminationPlan,
    plan_elimination,
)
from quiltdp.inference.tables import (
    LogTable,
    NamedTable,
    aligned,
    barrier,
    factor_tables,
    log_sum,
    log_table,
    max_out,
)
from quiltdp.inference.workspace import Workspace
from quiltdp.interface import any_model
from quiltdp.model import Model, Table
from quiltdp.work import NO_GUARD, Guard


def plan_junction_tree(
    model: Model,
    *,
    join: Iterable[Collection[str]] = (),
    max_entries: int = MAX_ENTRIES,
    workspace: Workspace | None = None,
) -> EliminationPlan:
    """Return the plan of :func:`junction_tree`: order, cliques, largest table and memory; no work yet.

    Parameters
    ----------
    join
        Sets of nodes that must end up together in one clique.
    max_entries
        The limit on one table that the plan is judged against.

    Examples
    --------
    >>> from quiltdp import markov_chain
    >>> from quiltdp.inference.trees import plan_junction_tree
    >>> print(plan_junction_tree(markov_chain([[0.9, 0.1], [0.2, 0.8]], 1000)))
    elimination of 1000 nodes: 999 cliques, 1 components
    order           {X0, X1, X2, X3, X4, X5, X6, X7, X8, X9, X10, X11, … (1000 nodes)}
    largest clique  {X998, X999}: 4 entries
    all tables      3,996 entries, about 64 kB
    limit           16,777,216 entries per table: fits
    """
    joined = _checked_join(model, join)

    def make() -> EliminationPlan:
        sizes = {n: model.cardinality(n) for n in model.nodes}
        scopes = [*(f.scope for f in model.factors), *joined]
        guard = NO_GUARD if workspace is None else workspace.guard
        return plan_elimination(sizes, scopes, max_entries=max_entries, guard=guard)

    if workspace is None:
        return make()
    return workspace.keep("tree plan", (joined, max_entries), make, lambda p: 512 * len(p.order) + 512)


@any_model
def junction_tree(
    model: Model,
    *,
    join: Iterable[Collection[str]] = (),
    max_entries: int = MAX_ENTRIES,
    workspace: Workspace | None = None,
) -> JunctionTree:
    """Return a calibrated junction tree (a forest when the model has separate parts).

    With a ``workspace`` the tree is kept there, and its guard is looked at between cliques.

    Raises
    ------
    ModelTooWide
        If a table would exceed ``max_entries``, or all of them together four times that; the
        message names the clique and its size.  Nothing has been allocated then.
    InvalidModel
        If every joint state of the model is impossible (potentials that contradict each other).

    References
    ----------
    Lauritzen and Spiegelhalter (1988), Local computations with probabilities on graphical structures.

    Examples
    --------
    >>> from quiltdp import Model
    >>> from quiltdp.inference.trees import junction_tree
    >>> m = Model.from_tables({"A": ([], [0.3, 0.7]), "B": (["A"], [[0.9, 0.1], [0.2, 0.8]])})
    >>> tree = junction_tree(m)
    >>> tree.cliques, tree.marginal(["B"]).round(3).tolist()
    ((('A', 'B'),), [0.41, 0.59])
    """
    space = workspace if workspace is not None else Workspace(model)
    joined = _checked_join(model, join)

    def make() -> JunctionTree:
        plan = plan_junction_tree(model, join=joined, max_entries=max_entries, workspace=workspace)
        plan.check()
        space.guard.check(plan.memory)
        sizes = {n: model.cardinality(n) for n in model.nodes}
        cache: dict[int, Table] = {}
        tables = [(f.scope, log_table(f.table, cache)) for f in model.factors]
        return JunctionTree(plan, sizes, tables, space.guard)

    return space.keep("junction tree", (joined, max_entries), make, lambda tree: tree.plan.memory)


def _checked_join(model: Model, join: Iterable[Collection[str]]) -> tuple[tuple[str, ...], ...]:
    joined = []
    for j in join:
        if isinstance(j, str):
            raise InvalidArgument(f"join must hold collections of node names, not the string {j!r}")
        model.require(j)
        joined.append(tuple(sorted(j)))
    return tuple(joined)


class JunctionTree:
    """A calibrated clique tree: every clique's table is ln of its marginal.

    Cliques, the tree edges between them and who holds whom; parents come before their children.  Every
    clique lists its nodes in the order of elimination, so the axes of a separator come in the same order at
    both ends.

    Attributes
    ----------
    cliques
        The nodes of each clique, one per axis of its table.
    edges
        ``(u, v, separator)`` for each tree edge; clique u is the parent of v.
    separators
        For each clique the nodes it shares with its parent.
    plan
        The plan it was built from.
    """

    def __init__(
        self,
        plan: EliminationPlan,
        sizes: Mapping[str, int],
        tables: Iterable[tuple[Sequence[str], Table]],
        guard: Guard = NO_GUARD,
    ) -> None:
        self.plan = plan
        self.cliques = plan.cliques
        self._parent = plan.parent
        self._sizes = dict(sizes)
        self._members = [frozenset(c) for c in plan.cliques]
        self.separators = tuple(
            () if p < 0 else tuple([n for n in c if n in self._members[p]])
            for p, c in zip(plan.parent, plan.cliques, strict=True)
        )
        self.edges = tuple((p, k, self.separators[k]) for k, p in enumerate(plan.parent) if p >= 0)
        self._depth = [0] * len(self.cliques)
        self._root = list(range(len(self.cliques)))
        self._children: list[list[int]] = [[] for _ in self.cliques]
        self._holding: dict[str, list[int]] = {}
        for k, p in enumerate(plan.parent):
            if p >= 0:
                self._depth[k], self._root[k] = self._depth[p] + 1, self._root[p]
                self._children[p].append(k)
            for n in self.cliques[k]:
                self._holding.setdefault(n, []).append(k)
        self._conditionals: dict[int, Table] = {}
        self._beliefs = [np.zeros(tuple(self._sizes[n] for n in c)) for c in self.cliques]
        for scope, table in tables:
            if scope:
                k = self._home_clique(scope)
                self._beliefs[k] += aligned((tuple(scope), table), self.cliques[k])
            elif not float(table) > -np.inf:
                raise InvalidModel("every joint state of the model is impossible")
        self._calibrate(guard)

    def __repr__(self) -> str:
        """Say how large it is."""
        return f"<JunctionTree: {len(self.cliques)} cliques, largest {max(self.plan.sizes):,} entries>"

    # -- reading it ------------------------------------------------------------------------

    def clique_log_marginal(self, k: int) -> Table:
        """Return ln P over the axes of clique ``k``: −∞ exactly where the state is impossible."""
        return _freeze(self._beliefs[k].copy())

    def marginal(self, nodes: Sequence[str]) -> Table:
        """Return P(x_nodes), axes in the order of ``nodes``; separate components multiply."""
        return _freeze(np.exp(self.log_marginal(nodes)))

    def log_marginal(self, nodes: Sequence[str]) -> Table:
        """Return ln P(x_nodes) by elimination over the smallest subtree that holds the nodes.

        Raises
        ------
        ModelTooWide
            If a table on the way would exceed the limit of the plan.
        """
        wanted = tuple(nodes)
        if isinstance(nodes, str) or len(set(wanted)) < len(wanted):
            raise InvalidArgument(f"nodes must be different node names, not {nodes!r}")
        for n in wanted:
            if n not in self._sizes:
                raise InvalidArgument(f"node {n!r} is not in the model")
        parts: dict[int, list[str]] = {}
        for n in wanted:
            parts.setdefault(self._root[self.plan.home[n]], []).append(n)
        total = np.zeros((1,) * len(wanted))
        for part in parts.values():
            total = total + aligned(self._marginal_within_component(frozenset(part)), wanted)
        return np.asarray(np.broadcast_to(total, tuple(self._sizes[n] for n in wanted)))

    # -- making it -------------------------------------------------------------------------

    def _calibrate(self, guard: Guard) -> None:
        """Pass messages to the roots and back, dividing on the way back what was sent up."""
        sent: list[Table | None] = [None] * len(self.cliques)
        for k in range(len(self.cliques) - 1, -1, -1):  # children come after their parents
            guard.check()
            p = self._parent[k]
            message = log_sum((self.cliques[k], self._beliefs[k]), self.separators[k])
            top = message.max()
            if top == -np.inf:
                raise InvalidModel(f"every joint state of the model is impossible: see {self.cliques[k]}")
            if p >= 0:
                sent[k] = message - top
                self._beliefs[p] += aligned((self.separators[k], message - top), self.cliques[p])
        for k, p in enumerate(self._parent):
            guard.check()
            up = sent[k]
            if up is not None:
                down = log_sum((self.cliques[p], self._beliefs[p]), self.separators[k])
                ratio = np.where(down > -np.inf, down - np.where(up > -np.inf, up, 0.0), -np.inf)
                self._beliefs[k] += aligned((self.separators[k], ratio), self.cliques[k])
            self._beliefs[k] -= log_sum((self.cliques[k], self._beliefs[k]), ())

    def _home_clique(self, scope: Collection[str]) -> int:
        """Return the clique that a table over ``scope`` belongs to: the deepest home of its nodes."""
        return max([self.plan.home[n] for n in scope], key=lambda k: (self._depth[k], k))

    # -- marginals across cliques ------------------------------------------------------------

    def _cliques_between(self, cliques: Iterable[int]) -> list[int]:
        """Return the cliques together with the tree paths between them, deepest first."""
        found = set(cliques)
        waiting: dict[int, int] = {}
        for k in found:
            waiting[self._root[k]] = waiting.get(self._root[k], 0) + 1
        heap = [(-self._depth[k], -k) for k in found]
        heapq.heapify(heap)
        while heap:
            k = -heapq.heappop(heap)[1]
            if waiting[self._root[k]] == 1:
                continue  # the top one of its tree
            p = self._parent[k]
            if p in found:
                waiting[self._root[k]] -= 1
            else:
                found.add(p)
                heapq.heappush(heap, (-self._depth[p], -p))
        return sorted(found, key=lambda k: (-self._depth[k], -k))

    def _smallest_clique(self, wanted: frozenset[str]) -> int | None:
        """Return the smallest clique that holds all of some nodes, None if there is none."""
        holders = min([self._holding[n] for n in wanted], key=len, default=[0])
        inside = [k for k in holders if wanted <= self._members[k]]
        return min(inside, key=self.plan.sizes.__getitem__) if inside else None

    def _subtree(self, wanted: frozenset[str]) -> list[int]:
        """Return the cliques needed for nodes of one component, deepest first, the top one last."""
        inside = self._smallest_clique(wanted)
        if inside is not None:
            return [inside]
        ordered = self._cliques_between(self.plan.home[n] for n in wanted)
        while len(ordered) > 1 and wanted & self._members[ordered[-1]] <= set(self.separators[ordered[-2]]):
            if sum(self._parent[k] == ordered[-1] for k in ordered) > 1:
                break
            ordered.pop()  # the top clique adds nothing that its only child does not have
        return ordered

    def _marginal_within_component(self, wanted: frozenset[str]) -> NamedTable:
        """Return ln P of nodes of one component with its axes."""
        subtree = self._subtree(wanted)
        arrived: dict[int, list[NamedTable]] = {k: [] for k in subtree}
        for k in subtree:
            scope = tuple(dict.fromkeys([*self.cliques[k], *(n for s, _ in arrived[k] for n in s)]))
            self._check_size(scope)
            below = k != subtree[-1]
            total = aligned((self.cliques[k], self.given_above(k) if below else self._beliefs[k]), scope)
            for message in arrived.pop(k):
                total = total + aligned(message, scope)
            keep = tuple(n for n in scope if n in wanted or (below and n in self.separators[k]))
            result = (keep, log_sum((scope, total), keep))
            if not below:
                return result
            arrived[self._parent[k]].append(result)
        raise AssertionError("a subtree has a top clique")  # pragma: no cover

    def given_above(self, k: int) -> Table:
        """Return ln P(clique | separator): the rest of the tree brings the separator's law."""
        found = self._conditionals.get(k)
        if found is None:
            own = log_sum((self.cliques[k], self._beliefs[k]), self.separators[k])
            law = np.where(own > -np.inf, own, 0.0)
            found = self._beliefs[k] - aligned((self.separators[k], law), self.cliques[k])
            if found.size <= KEPT_LAW:
                self._conditionals[k] = found
        return found

    def _check_size(self, scope: Sequence[str]) -> None:
        size = math.prod(self._sizes[n] for n in scope)
        if size > self.plan.limit:
            raise ModelTooWide(
                f"the marginal needs a table over {{{', '.join(scope)}}} of {size:,} entries,"
                f" the limit is {self.plan.limit:,}",
                "ask for fewer nodes",
                f"raise {option('max_entries')}",
            )


def _freeze(table: Table) -> Table:
    array = np.asarray(table)
    array.flags.writeable = False
    return array


def barriers_around(
    workspace: Workspace, closed: Collection[str], separator: Collection[str]
) -> tuple[tuple[LogTable, ...], bool]:
    """Return 0 / −∞ tables for the values of a separator that the rest forbids, and whether they are all.

    From the messages of the model's support tree; where that is too wide, from the factors next to the
    separator alone, which miss what is forbidden from afar.  Other nodes are maximised away while that is
    cheap; hard ones are left in the tables for a later elimination.
    """

    def make() -> tuple[tuple[LogTable, ...], bool]:
        tree, tables = support_tree(workspace), factor_tables(workspace)
        if tree is not None:
            walls = tree.beyond(closed, separator)
        else:
            outside = [f for f in tables.near_any(sorted(separator)) if inside.isdisjoint(tables.scope(f))]
            walls = [w for f in outside if (w := tables.barrier(f)) is not None]
        others = {n for w in walls for n in w.scope}.difference(separator)
        left = max_out(walls, others, limit=EASY_ENTRIES, stop_at=EASY_ENTRIES) if walls else []
        return tuple(w for t in left if (w := barrier(t)) is not None), tree is not None

    inside = frozenset(closed)
    key = (inside, frozenset(separator))  # the same for every target in a closed set
    size = 512 + 64 * len(key[1])
    return workspace.keep("barriers", key, make, lambda f: size + sum(w.array.nbytes for w in f[0]))


def support_tree(workspace: Workspace) -> SupportTree | None:
    """Return the support tree of a workspace's model, made once; None without zeros, or if it is too wide."""

    def make() -> SupportTree | None:
        model, tables = workspace.model, factor_tables(workspace)
        if not tables.has_zeros:
            return None
        walls = [w for f in range(len(model.factors)) if (w := tables.barrier(f)) is not None]
        sizes = {n: model.cardinality(n) for w in walls for n in w.scope}
        plan = plan_elimination(sizes, [w.scope for w in walls], max_entries=SUPPORT_ENTRIES)
        return SupportTree(plan, sizes, walls, workspace.guard) if plan.fits else None

    return workspace.keep("support tree", (), make, lambda tree: 256 if tree is None else tree.plan.memory)


class SupportTree(JunctionTree):
    """The junction tree of the tables with zeros: which states are possible in the whole model.

    For a quilt only the cliques that hold its nodes, and the paths between them, are looked at; at the edges
    out of there the tree says what is possible.  So a quilt in a large pedigree costs as much as in a small
    one.
    """

    def __init__(
        self, plan: EliminationPlan, sizes: Mapping[str, int], walls: Sequence[LogTable], guard: Guard
    ) -> None:
        super().__init__(plan, sizes, [(w.scope, w.array) for w in walls], guard)
        self._walls: list[list[LogTable]] = [[] for _ in self.cliques]
        for wall in walls:
            self._walls[self._home_clique(wall.scope)].append(wall)

    def beyond(self, closed: Collection[str], separator: Collection[str]) -> list[LogTable]:
        """Return 0 / −∞ tables for everything that does not touch C, as far as it concerns the quilt."""
        inside = frozenset(closed)
        region = self._cliques_between({k for n in (*closed, *separator) for k in self._holding.get(n, ())})
        within = set(region)
        found = [w for k in region for w in self._walls[k] if inside.isdisjoint(w.scope)]
        edges = [c for k in region for c in self._children[k] if c not in within]
        edges += [k for k in region if self._parent[k] not in within]
        for k in edges:
            separator = self.separators[k]
            wall = barrier(LogTable(separator, log_sum((self.cliques[k], self._beliefs[k]), separator)))
            found += [] if wall is None else [wall]
        return found
