"""Hidden nodes with very many observed neighbours, without a table over all of them.

Let K be a hidden component whose boundary is too large for one table.  The log-odds move it causes is

    F = ln Σ_k a(k) λ(k) − ln Σ_k a'(k) λ(k),

where k are the joint states of K, a and a' the factors with the target at x and at x', and
λ(k) = Π_j g_j(k, q_j) collects everything else.  F is a ratio of two linear functions of the vector λ,
so over a set of vectors it is largest at an extreme ray of the cone they span; and multiplying all
vectors entry by entry with another g maps cones to cones, so a vector inside the cone of the others
stays inside whatever comes later.  Hence nodes q that occur nowhere else can be eliminated one by one,
keeping *sets of rays* instead of a table over all of them, and dropping rays inside the cone at every
step: two rays remain for a two-state K (the smallest and the largest odds), the corners of a polygon
for three states.  The result is exact up to the tolerance with which a ray counts as inside, which is
part of the reported error.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from quiltdp.inference.elimination import LogTable
from quiltdp.inference.odds import other
from quiltdp.inference.tables import aligned
from quiltdp.model import Table
from quiltdp.rounding import EPS

__all__ = ["RayTable", "polygon", "ray_table"]

_INSIDE = 1e-13  # relative tolerance below which a ray counts as inside the cone of the others
_SAME = 4e-15
_MANY = 24  # rays from which the slower test is worth its time
_MOST, _SMALL_CONE = 256, 8  # beyond so many rays or dimensions it is not: only equal rays are dropped
_UNSET = 127
_Choices: TypeAlias = NDArray[np.int8]


class RayTable(NamedTuple):
    """The move of a hidden component over (x, x', shared nodes), and the private values behind it."""

    table: LogTable
    private: tuple[str, ...]
    choices: _Choices  # axes of the table, then one entry per private node


class _Rays(NamedTuple):
    """Sets of rays: axes of the scope, then members, then one axis per hidden node (1 if absent)."""

    scope: tuple[str, ...]
    logs: Table
    choices: _Choices


def ray_table(
    factors: Sequence[LogTable],
    hidden: Collection[str],
    targets: Collection[str],
    shared: Collection[str],
    *,
    limit: int,
    max_rays: int = 2048,
    values: bool = True,
) -> RayTable | None:
    """Return the move of the hidden component with every node outside ``shared`` maximised away.

    Parameters
    ----------
    factors
        All factors that contain a hidden node; their entries must be positive.
    hidden, targets
        K and T.
    shared
        Nodes that other tables contain as well, which therefore stay.
    values
        Whether to keep the private values that attain each entry; the numbers alone are quicker.

    Returns
    -------
    RayTable or None
        ``None`` if a factor has zeros or too many rays remain.
    """
    if any(not np.isfinite(f.array).all() for f in factors):
        return None
    order = tuple(sorted(hidden))
    with_target = [f for f in factors if not targets_free(f, targets)]
    stay = {*shared, *targets, *order, *(n for f in with_target for n in f.scope)}
    private = tuple(dict.fromkeys(n for f in factors for n in f.scope if n not in stay))
    place = {n: k for k, n in enumerate(private)}
    marks = len(private) if values else 0
    items = [_start(f, order, marks) for f in factors if targets_free(f, targets)]
    work = _Work(order, limit, max_rays)
    left = work.eliminate(items, place)
    if left is None:
        return None
    kept = private if values else ()
    return work.finish(left, with_target, tuple(sorted(targets)), kept, _error(factors, order, work))


def targets_free(factor: LogTable, targets: Collection[str]) -> bool:
    """Return whether no target is in the factor."""
    return not any(n in targets for n in factor.scope)


def _error(factors: Sequence[LogTable], order: Sequence[str], work: _Work) -> tuple[float, float]:
    size = sum(f.size for f in factors)
    own = sum(f.error for f in factors) + EPS * (len(factors) + 4) * size
    return size, own + 40 * EPS * len(order) + work.inside * _INSIDE


def _start(factor: LogTable, order: Sequence[str], private: int) -> _Rays:
    scope = tuple(n for n in factor.scope if n not in order)
    array = aligned((factor.scope, factor.array), (*scope, *order))
    logs = np.expand_dims(array, len(scope))
    return _Rays(scope, logs, np.full((*logs.shape[: len(scope) + 1], private), _UNSET, dtype=np.int8))


class _Work:
    """Products and eliminations of ray sets over one hidden component."""

    def __init__(self, order: Sequence[str], limit: int, max_rays: int) -> None:
        self.order = tuple(order)
        self.limit = limit
        self.max_rays = max_rays
        self.inside = 0  # how many times rays were dropped by tolerance

    def eliminate(self, items: list[_Rays], place: dict[str, int]) -> list[_Rays] | None:
        """Maximise private nodes away, the cheapest first; None if it gets too large."""
        waiting = list(place)
        while waiting:
            node = min(waiting, key=lambda n: _width([r for r in items if n in r.scope]))
            waiting.remove(node)
            used = [r for r in items if node in r.scope]
            items = [r for r in items if node not in r.scope]
            joined = self._product(used)
            folded = None if joined is None else self._fold(joined, node, place[node])
            if folded is None:
                return None
            items.append(folded)
        return items

    def _product(self, items: Sequence[_Rays]) -> _Rays | None:
        total = items[0]
        for item in items[1:]:
            scope = tuple(dict.fromkeys((*total.scope, *item.scope)))
            first, second = self._spread(total, scope), self._spread(item, scope)
            a, b = np.expand_dims(first.logs, len(scope) + 1), np.expand_dims(second.logs, len(scope))
            if math.prod(np.broadcast_shapes(a.shape, b.shape)) > self.limit:
                return None
            logs = a + b
            choices = np.minimum(
                np.expand_dims(first.choices, len(scope) + 1), np.expand_dims(second.choices, len(scope))
            )
            choices = np.broadcast_to(choices, (*logs.shape[: len(scope) + 2], choices.shape[-1]))
            total = self._pruned(_Rays(scope, *_merged(logs, choices, len(scope))))
            if total.logs.shape[len(scope)] > self.max_rays:
                return None
        return total

    def _spread(self, item: _Rays, scope: Sequence[str]) -> _Rays:
        """Return the item with the axes of a larger scope, length 1 where it has none."""
        tail = tuple(f"\0{k}" for k in range(item.logs.ndim - len(item.scope)))
        logs = aligned(((*item.scope, *tail), item.logs), (*scope, *tail))
        ends = ("\0m", "\0p")
        choices = aligned(((*item.scope, *ends), item.choices), (*scope, *ends))
        return _Rays(tuple(scope), logs, choices)

    def _fold(self, item: _Rays, node: str, place: int) -> _Rays | None:
        """Make the states of a private node members of the ray set."""
        axis = item.scope.index(node)
        rest = item.scope[:axis] + item.scope[axis + 1 :]
        logs = np.moveaxis(item.logs, axis, len(rest))
        states = logs.shape[len(rest)]
        shape = (*item.choices.shape[:axis], states, *item.choices.shape[axis + 1 :])
        choices = np.moveaxis(np.array(np.broadcast_to(item.choices, shape)), axis, len(rest))
        if choices.shape[-1]:
            choices[..., place] = np.arange(states, dtype=np.int8).reshape((states, 1))
        folded = self._pruned(_Rays(rest, *_merged(logs, choices, len(rest))))
        return folded if folded.logs.shape[len(rest)] <= self.max_rays else None

    def _pruned(self, item: _Rays) -> _Rays:
        """Drop rays inside the cone of the others, for every assignment of the scope."""
        at = len(item.scope)
        front, members, states = item.logs.shape[:at], item.logs.shape[at], item.logs.shape[at + 1 :]
        size = math.prod(states)
        if members == 1:
            return item
        flat = item.logs.reshape(-1, members, size)
        choices = item.choices.reshape(len(flat), members, item.choices.shape[-1])
        if size == 1:
            keep = np.zeros((len(flat), 1), dtype=np.intp)  # a constant cancels: any member will do
        elif size == 2:
            odds = flat[:, :, 1] - flat[:, :, 0]
            keep = np.stack([odds.argmin(axis=1), odds.argmax(axis=1)], axis=1)
        else:
            kept = [self._corners(rays) for rays in flat]
            keep = _padded(kept)
        logs = np.take_along_axis(flat, keep[:, :, None], axis=1)
        chosen = np.take_along_axis(choices, keep[:, :, None], axis=1)
        count = keep.shape[1]
        return _Rays(
            item.scope, logs.reshape(*front, count, *states), chosen.reshape(*front, count, chosen.shape[-1])
        )

    def _corners(self, rays: Table) -> list[int]:
        unit = np.exp(rays - rays.max(axis=1, keepdims=True))
        if not unit.all() or len(unit) < 3:
            return list(range(len(unit)))  # too far apart for doubles: keep them all
        self.inside += 1
        if rays.shape[1] == 3:
            return polygon(unit)
        if len(unit) < _MANY:
            return list(range(len(unit)))
        distinct = _distinct(unit)
        if rays.shape[1] > _SMALL_CONE or len(distinct) > _MOST:
            return distinct
        return [distinct[k] for k in _cone(unit[distinct])]

    def finish(
        self,
        items: Sequence[_Rays],
        with_target: Sequence[LogTable],
        targets: tuple[str, ...],
        private: tuple[str, ...],
        error: tuple[float, float],
    ) -> RayTable | None:
        """Bring the target in: F over (x, x', shared nodes), the largest over the rays left."""
        ordered = sorted(items, key=lambda r: math.prod(r.logs.shape[: len(r.scope)]))
        joined = self._product(ordered) if items else None
        if items and joined is None:
            return None
        names = [n for f in with_target for n in f.scope if n not in self.order and n not in targets]
        scope = tuple(dict.fromkeys((*(joined.scope if joined else ()), *names)))
        axes = (*targets, *scope)
        if joined is None:
            joined = _Rays((), np.zeros((1,) * (1 + len(self.order))), np.zeros((1, len(private)), np.int8))
        rays = self._spread(joined, scope)
        parts = [aligned((f.scope, f.array), (*axes, *self.order)) for f in with_target]
        ray_logs = rays.logs[(None,) * len(targets)]
        spread = [np.expand_dims(p, len(axes)).shape for p in parts]
        shape = np.broadcast_shapes(ray_logs.shape, *spread)
        if math.prod(shape) * math.prod(shape[: len(targets)]) > self.limit:
            return None
        own = np.zeros((1,) * (len(axes) + len(self.order)))
        for part in parts:
            own = own + part
        total = np.expand_dims(own, len(axes)) + ray_logs
        hidden = tuple(range(len(axes) + 1, total.ndim))
        top = total.max(axis=hidden, keepdims=True)
        mass = (np.log(np.exp(total - top).sum(axis=hidden, keepdims=True)) + top).squeeze(axis=hidden)
        here = mass.reshape(mass.shape[: len(targets)] + (1,) * len(targets) + mass.shape[len(targets) :])
        there = mass.reshape((1,) * len(targets) + mass.shape)
        size, own_error = error
        named = (*targets, *map(other, targets), *scope)
        if not private:
            array = np.stack(
                [(row - mass).max(axis=-1) for row in mass.reshape(-1, *mass.shape[len(targets) :])]
            )
            array = array.reshape(*mass.shape[: len(targets)], *mass.shape[:-1])
            none = np.zeros((*array.shape, 0), np.int8)
            return RayTable(LogTable(named, array, 2 * size, 2 * own_error), (), none)
        moves = here - there
        best = moves.argmax(axis=-1)
        array = np.take_along_axis(moves, best[..., None], axis=-1)[..., 0]
        wide = np.broadcast_to(rays.choices, (*array.shape[2 * len(targets) :], *rays.choices.shape[-2:]))
        wide = np.broadcast_to(wide, (*array.shape, *rays.choices.shape[-2:]))
        picked = np.take_along_axis(wide, best[..., None, None], axis=-2)[..., 0, :]
        return RayTable(LogTable(named, array, 2 * size, 2 * own_error), private, np.asarray(picked))


def _width(items: Sequence[_Rays]) -> int:
    sizes = {n: max(k, 1) for r in items for n, k in zip(r.scope, r.logs.shape, strict=False)}
    return int(math.prod(sizes.values()) * math.prod(r.logs.shape[len(r.scope)] for r in items))


def _merged(logs: Table, choices: _Choices, at: int) -> tuple[Table, _Choices]:
    """Merge the two member axes at position ``at``."""
    shape = (*logs.shape[:at], logs.shape[at] * logs.shape[at + 1], *logs.shape[at + 2 :])
    return logs.reshape(shape), choices.reshape(*shape[: at + 1], choices.shape[-1])


def _padded(kept: Sequence[Sequence[int]]) -> NDArray[np.intp]:
    """Return index lists as one array, short ones filled with their first entry."""
    longest = max(map(len, kept))
    return np.array([[*k, *[k[0]] * (longest - len(k))] for k in kept], dtype=np.intp)


def polygon(unit: Table) -> list[int]:
    """Return the corners of a set of positive rays in three dimensions, by the monotone chain.

    The turn at a ray is the sign of a determinant; where rounding could have decided it the ray stays.
    """
    order = np.lexsort((unit[:, 2] / unit[:, 0], unit[:, 1] / unit[:, 0])).tolist()
    points = unit[order].tolist()
    found: set[int] = set()
    for sign in (1.0, -1.0):
        chain: list[int] = []
        s0 = s1 = s2 = 0.0
        for k, (r0, r1, r2) in enumerate(points):
            if abs(r0 - s0) <= _SAME * r0 and abs(r1 - s1) <= _SAME * r1 and abs(r2 - s2) <= _SAME * r2:
                continue  # the same ray again, up to rounding
            s0, s1, s2 = r0, r1, r2
            while len(chain) > 1:
                p0, p1, p2 = points[chain[-2]]
                q0, q1, q2 = points[chain[-1]]
                plus = p0 * q1 * r2 + p1 * q2 * r0 + p2 * q0 * r1
                minus = p2 * q1 * r0 + p1 * q0 * r2 + p0 * q2 * r1
                if sign * (plus - minus) >= -4e-15 * (plus + minus):
                    break
                chain.pop()
            chain.append(k)
        found.update(chain)
    return [order[k] for k in sorted(found)]


def _distinct(unit: Table) -> list[int]:
    """Return the first of every kind of equal rays."""
    _, first = np.unique(unit, axis=0, return_index=True)
    return sorted(first.tolist())


def _cone(unit: Table) -> list[int]:
    """Return rays that are not non-negative combinations of the others, up to the tolerance."""
    from scipy.optimize import nnls

    kept = list(range(len(unit)))
    for k in range(len(unit)):
        rest = [j for j in kept if j != k]
        matrix = unit[rest].T / unit[k][:, None]
        weights, _ = nnls(matrix, np.ones(matrix.shape[0]))
        if np.abs(matrix @ weights - 1).max() <= _INSIDE:
            kept = rest
    return kept
