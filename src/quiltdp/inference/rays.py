"""Hidden nodes with very many observed neighbours, without a table over all of them.

Let K be a hidden component whose boundary is too large for one table.  The log-odds move it causes is

    F = ln Σ_k a(k) λ(k) − ln Σ_k a'(k) λ(k),

where k are the joint states of K, a and a' the factors with the target at x and at x', and
λ(k) = Π_j g_j(k, q_j) collects everything else.  F is a ratio of two linear functions of the vector λ,
so over a set of vectors it is largest at an extreme ray of the cone they span.  Multiplying all vectors
entry by entry with another g, and summing a hidden node out of all of them, are linear: a vector inside
the cone of the others stays inside whatever comes later.  So this is variable elimination with *sets of
rays* in the place of tables (:mod:`quiltdp.inference.raysets`): observed nodes that occur nowhere else
are folded into the sets, hidden nodes are summed out, the cheapest first, and what is left is compared
member by member (:mod:`quiltdp.inference.ray_finish`).

The result is exact up to the tolerance with which a ray counts as inside, which is part of the reported
error.  Zeros are as good as other numbers: if λ = Σ c_i λ_i with c_i ≥ 0 and a·λ > 0 = a'·λ, the same
holds for one of the λ_i.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from quiltdp.inference.cone import INSIDE
from quiltdp.inference.elimination import LogTable
from quiltdp.inference.kept import Store, kept_with_model
from quiltdp.inference.odds import BIG, factor_logs, other
from quiltdp.inference.ray_bound import bounded_moves, bounded_values, many_bounds
from quiltdp.inference.ray_elimination import Elimination, Key
from quiltdp.inference.ray_finish import best_values, largest_moves
from quiltdp.inference.raysets import RaySet, ray_set
from quiltdp.model import Model, Table
from quiltdp.rounding import EPS

__all__ = ["RayTables", "ray_tables"]

_ROOM = 2**22  # entries of ray sets, and of moves, kept per model (32 MiB each)
_SMALL = 2.0**32  # operations of the last step up to which all members are compared
_ZEROS = 2.5  # how much longer it takes with zeros
_BOUNDED = 2.0**33  # operations of a search by upper bounds
_WORK = 2.5e10  # operations beyond which all members are not compared, and the component is given up


def _ray_sets() -> Store[Key, RaySet]:
    return Store(_ROOM, lambda made: made.array.size)


class RayTables:
    """The moves of wide hidden components, and the ray sets behind them, kept for the quilts of a model."""

    def __init__(self, model: Model) -> None:
        self._logs = factor_logs(model)
        self._size = self._logs.states
        self._sets = _ray_sets()
        self._moves: Store[object, LogTable | None] = Store(_ROOM, lambda t: 0 if t is None else t.array.size)
        self._spreads: dict[int, float] = {}

    def move(
        self,
        component: frozenset[str],
        targets: tuple[str, ...],
        shared: Collection[str],
        *,
        limit: int,
    ) -> LogTable | None:
        """Return the move over (x, x', shared nodes), every other node around K maximised away.

        Parameters
        ----------
        component, targets
            K and T; targets that are not next to K do not move it, and the table is without them.
        shared
            Nodes that other tables contain as well, which therefore stay.
        limit
            The most entries of one ray set and of the result.

        Returns
        -------
        LogTable or None
            ``None`` if it gets too large, or if the numbers are too far apart for floating point.
        """
        around = {n for f in self._near(component) for n in self._logs.scope(f)}
        targets = tuple(t for t in targets if t in around)
        key = (component, targets, frozenset(around.intersection(shared).difference(targets)), limit)
        if key not in self._moves:
            self._moves[key] = self._made(component, targets, key[2], limit)
        return self._moves[key]

    def values(
        self, component: frozenset[str], targets: tuple[str, ...], at: Mapping[str, int], *, limit: int
    ) -> Mapping[str, int]:
        """Return values of the other nodes around K that attain the move at x, x' and the shared nodes.

        ``at`` has x under the names of the targets, x' under those of their second copies, and every
        shared node.
        """
        targets = tuple(t for t in targets if t in at)
        shape = tuple(self._size(n) for n in targets)
        here, there = (
            int(np.ravel_multi_index([at[name(n)] for n in targets], shape)) for name in (str, other)
        )
        fixed = {n: k for n, k in at.items() if n not in targets}
        factors = self._near(component)
        kind = _kind(self._spread(factors)) or np.float64
        items = [self._item(f, {*component, *targets}, kind, fixed) for f in factors]
        work = Elimination(component, targets, (), size=self._size, limit=limit, kept=None)
        left = work.run(items)
        found = None
        if not _in_full(work.cost, left, targets):
            found = bounded_values(left, work.sizes, targets, (here, there), work=_BOUNDED)
        return best_values(left, work.sizes, targets, (here, there)) if found is None else found

    def _made(
        self, component: frozenset[str], targets: tuple[str, ...], shared: frozenset[str], limit: int
    ) -> LogTable | None:
        factors = self._near(component)
        kind = _kind(self._spread(factors))
        if kind is None:
            return None
        kept = self._sets if kind is np.float64 else _ray_sets()
        items = [self._item(f, {*component, *targets}, kind, {}) for f in factors]
        work = Elimination(component, targets, shared, size=self._size, limit=limit, kept=kept)
        left = work.run(items)
        cost = work.cost * (_ZEROS if any(self._logs.barrier(f) is not None for f in factors) else 1)
        states = math.prod(self._size(n) for n in targets)
        around = {n for i in left for n in i.scope if n in shared}
        if states * states * math.prod(self._size(n) for n in around) > limit:
            return None
        found = None
        if not _in_full(cost, left, targets):
            found = bounded_moves(left, work.sizes, targets, shared, work=_BOUNDED)
            if found is None and cost > _WORK:
                return None
        scope, array = largest_moves(left, work.sizes, targets, shared) if found is None else found
        own = tuple(self._size(n) for n in targets)
        array = array.reshape(*own, *own, *array.shape[2:])
        terms = 3 * len(factors) + sum(self._size(n) + 1 for n in component)
        terms += math.prod(self._size(n) for n in {n for i in left for n in i.vector} - {*targets})
        size = float(np.abs(array[np.abs(array) < BIG / 2]).max(initial=0.0))
        error = EPS * (2.1 * terms + 8 + 2 * size) + 2.1 * INSIDE * (1 + sum(i.pruned for i in left))
        return LogTable((*targets, *map(other, targets), *scope), array, size, error)

    def _near(self, nodes: Iterable[str]) -> list[int]:
        return list(dict.fromkeys(f for n in sorted(nodes) for f in self._logs.near(n)))

    def _spread(self, factors: Sequence[int]) -> float:
        """Return how far the logarithms of a product of the factors can be apart."""
        total = 0.0
        for f in factors:
            if f not in self._spreads:
                logs = self._logs.logs(f).array
                finite = logs[np.isfinite(logs)]
                self._spreads[f] = float(finite.max(initial=0.0) - finite.min(initial=0.0))
            total += self._spreads[f]
        return total

    def _item(
        self, f: int, vector: Collection[str], kind: type[np.floating], fixed: Mapping[str, int]
    ) -> RaySet:
        scope = self._logs.scope(f)
        at = tuple(fixed.get(n, slice(None)) for n in scope)
        table: Table = self._logs.table(f)[at].astype(kind)
        return ray_set(f, [n for n in scope if n not in fixed], table, vector)


def _kind(spread: float) -> type[np.floating] | None:
    """Return a floating-point type that holds numbers whose logarithms are so far apart, if there is one."""
    for kind in (np.float64, np.longdouble):
        if spread < -0.9 * float(np.log(np.finfo(kind).tiny)):
            return kind
    return None


def _in_full(cost: float, left: Sequence[RaySet], targets: Sequence[str]) -> bool:
    """Return whether all members are compared, rather than those that an upper bound leaves."""
    return cost <= _SMALL or (cost <= _WORK and not many_bounds(left, targets))


@kept_with_model
def ray_tables(model: Model) -> RayTables:
    """Return the ray tables of a model, kept with it."""
    return RayTables(model)
