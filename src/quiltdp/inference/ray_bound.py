"""The last step of a large ray elimination, most of it left out by an upper bound.

Put the ray sets that hold a target in one group L(x, m, k), the others in another, R(n, k).  For every member

    Σ_k L(x, m, k) R(n, k) / Σ_k L(x', m, k) R(n, k)  ≤  max_k L(x, m, k) / L(x', m, k),

whatever n.  So members of L are tried from the largest bound down, until no bound is above what has been
attained; and they are multiplied together one ray set at a time, leaving out at once what cannot get
there.  A ratio of two sums is at most the largest ratio of their terms: the same inequality that bounds
a hidden node by treating its value as if it could be chosen; here it only tells where to look.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from quiltdp.inference.cone import INSIDE
from quiltdp.inference.odds import BIG
from quiltdp.inference.ray_finish import chosen_values, matrix, product_of, restricted
from quiltdp.inference.raysets import RaySet, joined
from quiltdp.model import Table

__all__ = ["bounded_moves", "bounded_values", "many_bounds"]

_ENTRIES = 2**22  # of the product of a group at one time
_MANY = 32  # members that hold a target from which it pays
_BLOCK = 2**19  # ratios computed at once
_BEAM = 64  # members tried in a first pass
_EACH = 2**17  # operations charged for one ray set at one assignment of the scope, besides
_BUILT = 8  # operations charged for one entry of a product
_TINY = 1e-300


class _Hit(NamedTuple):
    """A ratio above those before it, and where it was attained."""

    fixed: Mapping[str, int]
    sides: tuple[RaySet, RaySet]
    members: tuple[int, int]


def many_bounds(items: Sequence[RaySet], targets: Sequence[str]) -> bool:
    """Return whether enough members hold a target for the bound to tell them apart."""
    moving = frozenset(targets)
    return math.prod(i.members for i in items if not moving.isdisjoint(i.vector)) >= _MANY


def bounded_moves(
    items: Sequence[RaySet],
    sizes: Mapping[str, int],
    targets: Sequence[str],
    shared: Sequence[str] | frozenset[str],
    *,
    work: float,
) -> tuple[tuple[str, ...], Table] | None:
    """Return what :func:`quiltdp.inference.ray_finish.largest_moves` returns; None if beyond ``work``."""
    outer = tuple(dict.fromkeys(n for i in items for n in i.scope if n in shared))
    states = math.prod(sizes[n] for n in targets)
    best = np.zeros((states, states, *(sizes[n] for n in outer)))
    for x in range(states):
        best[x, x] = 1.0
    pairs = [(x, y) for x in range(states) for y in range(states) if x != y]
    search = _Search(items, sizes, targets, work)
    for _ in search.hits(outer, pairs, best):
        pass
    if search.work < 0:
        return None
    with np.errstate(divide="ignore"):
        return outer, np.minimum(np.log(best), BIG)


def bounded_values(
    items: Sequence[RaySet],
    sizes: Mapping[str, int],
    targets: Sequence[str],
    pair: tuple[int, int],
    *,
    work: float,
) -> Mapping[str, int] | None:
    """Return what :func:`quiltdp.inference.ray_finish.best_values` returns; None if beyond ``work``."""
    states = math.prod(sizes[n] for n in targets)
    search = _Search(items, sizes, targets, work)
    found = None
    for hit in search.hits((), [pair], np.zeros((states, states))):
        found = chosen_values(hit.fixed, hit.sides, hit.members)
    return None if search.work < 0 else found


class _Search:
    """The search through all members, assignment by assignment."""

    def __init__(
        self, items: Sequence[RaySet], sizes: Mapping[str, int], targets: Sequence[str], work: float
    ) -> None:
        moving = frozenset(targets)
        self._moving = sorted((i for i in items if not moving.isdisjoint(i.vector)), key=_members)
        self._still = sorted((i for i in items if moving.isdisjoint(i.vector)), key=_members)
        self._targets = tuple(targets)
        self._hidden = tuple(sorted({n for i in items for n in i.vector if n not in moving}))
        self._names = tuple(dict.fromkeys(n for i in items for n in i.scope))
        self._sizes = sizes
        self._size = math.prod(sizes[n] for n in self._hidden)
        self._each = _EACH * (8 + len(items))
        self.work = work  # what is left of it; below zero: given up

    def hits(self, outer: Sequence[str], pairs: Sequence[tuple[int, int]], best: Table) -> Iterator[_Hit]:
        """Yield ever better ratios, and write them into ``best`` (x, x', outer nodes).

        A first pass looks at the few most promising members only, so that the second can leave out more.
        """
        sets = math.prod(float(self._sizes[n]) for n in self._names)
        if sets * (1 + len(pairs)) * self._each > self.work:
            self.work = -1.0
            return
        for beam in (_BEAM, None):
            for values in product(*(range(self._sizes[n]) for n in self._names)):
                fixed = dict(zip(self._names, values, strict=True))
                cell = tuple(fixed[n] for n in outer)
                for some in [pairs] if beam else [[p] for p in pairs]:
                    yield from self._at(fixed, cell, some, best, beam)
                    if self.work < 0:
                        return

    def _at(
        self,
        fixed: Mapping[str, int],
        cell: tuple[int, ...],
        pairs: Sequence[tuple[int, int]],
        best: Table,
        beam: int | None,
    ) -> Iterator[_Hit]:
        self.work -= self._each
        attained = np.array([best[(*p, *cell)] for p in pairs])
        left, bounds = self._left([restricted(i, fixed) for i in self._moving], pairs, attained, beam)
        if left is None:
            return
        law = self._law(left)
        still = [restricted(i, fixed) for i in self._still]
        if beam is None and self._size * math.prod(float(i.members) for i in still) > self.work / _BUILT:
            self.work = -1.0
            return
        for right in _parts(still, self._size) if beam is None else [_concentrated(still, beam)]:
            others = matrix(right, (), self._targets, self._hidden, self._sizes)[0]
            self.work -= _BUILT * others.size
            for pair, bound in zip(pairs, bounds, strict=True):
                found = self._tried(law, others, pair, bound, float(best[(*pair, *cell)]))
                if found is not None:
                    best[(*pair, *cell)], m, n = found
                    yield _Hit(fixed, (left, right), (m, n))
                if self.work < 0:
                    return

    def _law(self, left: RaySet) -> Table:
        law = matrix(left, (), self._targets, self._hidden, self._sizes)  # x, members, k
        self.work -= _BUILT * law.size
        return np.broadcast_to(law, (math.prod(self._sizes[n] for n in self._targets), *law.shape[1:]))

    def _left(
        self, items: Sequence[RaySet], pairs: Sequence[tuple[int, int]], attained: Table, beam: int | None
    ) -> tuple[RaySet | None, Table]:
        """Return the members with a bound above what is attained, and their bounds (pairs, members).

        They are multiplied together item by item; for items still to come the largest ratio counts.
        """
        later = [np.ones((len(pairs), self._size))]
        for i in reversed(items[1:]):
            law = self._law(i)
            top = np.stack([_ratios(law[x], law[y]).max(axis=0) for x, y in pairs])
            later.append(_times(later[-1], top))
        total = _nothing()
        bounds = np.ones((len(pairs), 1))
        for i in items:
            total = joined(total, i, prune=False)
            if total.members * self._size > _ENTRIES:
                self.work = -1.0
                return None, bounds
            law, top = self._law(total), later.pop()
            found = [_times(_ratios(law[x], law[y]), t) for (x, y), t in zip(pairs, top, strict=True)]
            bounds = np.stack([f.max(axis=1) for f in found])
            keep = (bounds > attained[:, None] * (1 + INSIDE)).any(axis=0)
            if beam is not None and total.members > beam:
                keep &= (np.argsort(np.argsort(-bounds, axis=1), axis=1) < beam).any(axis=0)
            if not keep.any():
                return None, bounds
            total, bounds = _some(total, np.flatnonzero(keep)), bounds[:, keep]
        return total, bounds

    def _tried(
        self, law: Table, others: Table, pair: tuple[int, int], bound: Table, best: float
    ) -> tuple[float, int, int] | None:
        """Return the largest ratio above ``best``, and its members, if there is one."""
        found = None
        order = np.argsort(-bound)
        at, step = 0, 4
        while at < len(order) and self.work >= 0:
            some = order[at : at + step]
            some = some[bound[some] > best * (1 + INSIDE)]
            if not len(some):
                break
            above, below = (law[x, some] @ others.T for x in pair)
            self.work -= above.size * (4 + law.shape[-1] / 4)
            ratio = _ratios(above, below)
            m, n = np.unravel_index(int(ratio.argmax()), ratio.shape)
            if ratio[m, n] > best:
                best = float(ratio[m, n])
                found = best, int(some[m]), int(n)
            at += step
            step = min(2 * step, max(4, _BLOCK // len(others)))
        return found


def _parts(group: Sequence[RaySet], dimension: int) -> Iterator[RaySet]:
    """Yield the product of a group in parts that are not too large."""
    if not group:
        yield _nothing()
        return
    *rest, last = group
    count = min(last.members, -(-math.prod(map(_members, group)) * dimension // _ENTRIES))
    for k in range(count):
        part = np.arange(k * last.members // count, (k + 1) * last.members // count)
        yield product_of([*rest, _some(last, part)])


def _concentrated(group: Sequence[RaySet], count: int) -> RaySet:
    """Return some members of the product: for each coordinate a few that have most of their weight there."""
    total = _nothing()
    for i in group:
        total = joined(total, i, prune=False)
        flat = total.array.reshape(total.members, -1)
        share = flat / np.maximum(flat.sum(axis=1, keepdims=True), _TINY)
        order = np.argsort(-share, axis=0)[: max(1, count // share.shape[1])]
        total = _some(total, np.unique(order))
    return total


def _some(item: RaySet, members: NDArray[np.intp]) -> RaySet:
    """Return some members of a ray set without scope."""
    return item._replace(array=item.array[members], choices=item.choices[members])


def _members(item: RaySet) -> int:
    return item.members


def _nothing() -> RaySet:
    """Return a single ray over nothing."""
    none: frozenset[str] = frozenset()
    return RaySet((), (), np.ones(1), frozenset(), none, none, 0, (), np.zeros((1, 0), np.int16))


def _ratios(above: Table, below: Table) -> Table:
    """Return the ratios: 0 where nothing is possible, ∞ for p/0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(above > 0, above / below, 0.0)


def _times(one: Table, two: Table) -> Table:
    """Return products of ratios; 0 · ∞ is 0, since nothing is possible there."""
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(one * two, nan=0.0, posinf=np.inf)
