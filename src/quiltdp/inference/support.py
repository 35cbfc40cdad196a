"""Which values of a separator are possible in the whole model.

The factors beyond a separator do not move with the target, so they matter only through their zeros:
a value of the separator that the rest makes impossible must not be counted.  Factors without zeros
forbid nothing and are never looked at, so on a model of positive tables nothing is done here.

The tables with zeros form a model of their own, of Booleans.  In its clique tree every edge carries two
messages: which values of the edge's nodes the factors on the far side forbid.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from quiltdp.inference.elimination import max_out
from quiltdp.inference.plan import EliminationPlan, plan_elimination
from quiltdp.inference.tables import FactorTables, LogTable, aligned, barrier, factor_tables
from quiltdp.inference.trees import CliqueTree
from quiltdp.inference.workspace import Workspace
from quiltdp.work import Guard

__all__ = ["SupportTree", "barriers_around", "barriers_beyond", "support_tree"]

_Forbidden: TypeAlias = NDArray[np.bool_]

_SUPPORT = 2**22  # entries of one Boolean clique; in wider models only the surroundings are searched
_EASY = 2**12  # a node of the rest is eliminated at once while its table stays below this


def barriers_around(
    workspace: Workspace, closed: Collection[str], separator: Collection[str], *, max_nodes: int
) -> tuple[tuple[LogTable, ...], bool]:
    """Return 0 / −∞ tables for the values of a separator that the rest forbids, and whether they are all.

    From the messages of the model's support tree; where that is too wide, from the factors around the
    separator up to ``max_nodes`` nodes away, which may miss something that is forbidden from afar.
    """

    def make() -> tuple[tuple[LogTable, ...], bool]:
        tree = support_tree(workspace)
        if tree is not None:
            walls = tree.beyond(closed, separator)
            return _reduced(walls, {n for w in walls for n in w.scope}.difference(separator)), True
        tables = factor_tables(workspace)
        inner = frozenset(tables.near_any(closed))
        return barriers_beyond(tables, sorted(separator), inner, max_nodes=max_nodes)

    def size(found: tuple[tuple[LogTable, ...], bool]) -> int:
        return 512 + sum(w.array.nbytes + 256 for w in found[0])

    key = (frozenset(closed), frozenset(separator), max_nodes)  # the same for every target in a closed set
    return workspace.keep("barriers", key, make, size)


def barriers_beyond(
    tables: FactorTables, start: Iterable[str], skipped: Collection[int], *, max_nodes: int
) -> tuple[tuple[LogTable, ...], bool]:
    """Return 0 / −∞ tables whose maximum over other nodes is the support of the ``start`` nodes.

    Walks from ``start`` through factors that have zeros and are not ``skipped``, and eliminates the
    nodes met on the way while that is cheap; hard ones are left in the tables for a later
    elimination.  The walk ends after ``max_nodes`` nodes; the second value says whether it got
    everywhere.
    """
    reached = list(start)
    kept = frozenset(reached)
    seen = set(kept)
    factors: dict[int, LogTable] = {}
    complete = True
    for n in reached:  # grows while it is walked
        if len(reached) > max_nodes + len(kept):
            complete = False
            break
        for f in tables.near(n):
            if f in skipped or f in factors:
                continue
            wall = tables.barrier(f)
            if wall is None:
                continue
            factors[f] = wall
            fresh = [m for m in wall.scope if m not in seen]
            seen.update(fresh)
            reached.extend(fresh)
    return _reduced(list(factors.values()), seen - kept), complete


def _reduced(walls: Sequence[LogTable], nodes: Collection[str]) -> tuple[LogTable, ...]:
    """Maximise the nodes away while that is cheap, and drop tables that forbid nothing."""
    if not walls:
        return ()
    left = max_out(walls, nodes, limit=_EASY, stop_at=_EASY)
    found = (barrier(t) for t in left)
    return tuple(w for w in found if w is not None)


def support_tree(workspace: Workspace) -> SupportTree | None:
    """Return the support tree of a workspace's model, made once; None without zeros, or if it is too wide."""

    def make() -> SupportTree | None:
        model, tables = workspace.model, factor_tables(workspace)
        if not tables.has_zeros:
            return None
        walls = {f: w for f in range(len(model.factors)) if (w := tables.barrier(f)) is not None}
        sizes = {n: model.cardinality(n) for w in walls.values() for n in w.scope}
        plan = plan_elimination(sizes, [w.scope for w in walls.values()], max_entries=_SUPPORT)
        return SupportTree(plan, sizes, walls, workspace.guard) if plan.fits else None

    return workspace.keep("support tree", (), make, lambda tree: 256 if tree is None else tree.nbytes)


class SupportTree(CliqueTree):
    """The clique tree of the tables with zeros, with both messages on every edge.

    For a quilt only the cliques that hold its nodes, and the paths between them, are looked at; the rest
    of the model has already been summarised.  So a quilt in a large pedigree costs as much as in a small one.
    """

    def __init__(
        self, plan: EliminationPlan, sizes: Mapping[str, int], walls: dict[int, LogTable], guard: Guard
    ) -> None:
        super().__init__(plan, sizes)
        self._walls = walls
        self._own: list[list[int]] = [[] for _ in self.cliques]
        for f, wall in walls.items():
            self._own[self._owner(wall.scope)].append(f)
        self._up: list[_Forbidden | None] = [None] * len(self.cliques)
        self._down: list[_Forbidden | None] = [None] * len(self.cliques)
        self._pass_messages(guard)

    @property
    def nbytes(self) -> int:
        """The bytes of its messages and tables."""
        arrays = [*self._up, *self._down, *(w.array for w in self._walls.values())]
        return sum(a.nbytes for a in arrays if a is not None) + 512 * len(self.cliques)

    def _pass_messages(self, guard: Guard) -> None:
        """Send what is forbidden up to the roots and down again, by counting the objections."""
        for k in range(len(self._parent) - 1, -1, -1):  # children come after their parents
            guard.check()
            if self._parent[k] >= 0:
                self._up[k] = self._message(k, self._objections(k), self._separators[k])
        for k, children in enumerate(self._children):
            guard.check()
            if not children:
                continue
            total = self._objections(k)
            from_above = self._down[k]
            if from_above is not None:
                total = total + aligned((self._separators[k], from_above.astype(np.int32)), self.cliques[k])
            for c in children:
                own = self._up[c]
                rest = total
                if own is not None:
                    rest = total - aligned((self._separators[c], own.astype(np.int32)), self.cliques[k])
                self._down[c] = self._message(k, rest, self._separators[c])

    def _objections(self, k: int) -> NDArray[np.int32]:
        """Return how many tables of the clique and messages of its children forbid each state."""
        total = np.zeros([self._sizes[n] for n in self.cliques[k]], dtype=np.int32)
        for f in self._own[k]:
            forbidden = (self._walls[f].array == -np.inf).astype(np.int32)
            total += aligned((self._walls[f].scope, forbidden), self.cliques[k])
        for c in self._children[k]:
            message = self._up[c]
            if message is not None:
                total += aligned((self._separators[c], message.astype(np.int32)), self.cliques[k])
        return total

    def _message(self, k: int, objections: NDArray[np.int32], keep: tuple[str, ...]) -> _Forbidden | None:
        """Return which values of ``keep`` no state of the clique allows; None if none is forbidden."""
        gone = tuple(a for a, n in enumerate(self.cliques[k]) if n not in keep)
        forbidden = np.asarray((objections > 0).all(axis=gone))
        return forbidden if forbidden.any() else None

    def beyond(self, closed: Collection[str], separator: Collection[str]) -> list[LogTable]:
        """Return 0 / −∞ tables for everything that does not touch C, as far as it concerns the quilt."""
        inside = frozenset(closed)
        region = self._between({k for n in (*closed, *separator) for k in self._holding.get(n, ())})
        within = set(region)
        found = [
            self._walls[f] for k in region for f in self._own[k] if inside.isdisjoint(self._walls[f].scope)
        ]
        for k in region:
            for c in self._children[k]:
                if c not in within:
                    found += _wall(self._separators[c], self._up[c])
            if self._parent[k] not in within:
                found += _wall(self._separators[k], self._down[k])
        return found


def _wall(scope: tuple[str, ...], forbidden: _Forbidden | None) -> list[LogTable]:
    if forbidden is None:
        return []
    return [LogTable(scope, np.where(forbidden, -np.inf, 0.0))]
