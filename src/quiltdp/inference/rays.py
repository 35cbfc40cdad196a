"""Hidden nodes with very many observed neighbours, without a table over all of them.

Let K be a hidden component whose boundary is too large for one table.  The log-odds move it causes is

    F = ln Σ_k a(k) λ(k) − ln Σ_k a'(k) λ(k),

where k are the joint states of K, a and a' the factors with the target at x and at x', and
λ(k) = Π_j g_j(k, q_j) collects everything else.  F is a ratio of two linear functions of the vector λ,
so over a set of vectors it is largest at an extreme ray of the cone they span.  Multiplying all vectors
entry by entry with another g, and summing a hidden node out of all of them, are linear: a vector inside
the cone of the others stays inside whatever comes later.  So this is variable elimination with *sets of
rays* in the place of tables (:mod:`quiltdp.inference.raysets`): observed nodes that occur nowhere else
are folded into the sets, hidden nodes are summed out, in the order of :mod:`quiltdp.inference.raysets`, and
what is left is compared member by member.  In two groups with products L(x, m, k) and R(x, n, k) the masses
Σ_k L R are matrix products, and the move

    F(x, x') = max over m, n of ln Σ_k L(x, m, k) R(x, n, k) − ln Σ_k L(x', m, k) R(x', n, k)

needs no vector for m and n together.

The result is exact up to the tolerance with which a ray counts as inside, which is part of the reported
error.  Zeros are as good as other numbers: if λ = Σ c_i λ_i with c_i ≥ 0 and a·λ > 0 = a'·λ, the same
holds for one of the λ_i.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from quiltdp.inference.cones import INSIDE
from quiltdp.inference.moves import BIG, PAIRS, ordered_pairs
from quiltdp.inference.plan import GROUP_ENTRIES, MASSES_AT_ONCE, RAY_WORK, RAY_ZEROS
from quiltdp.inference.raysets import (
    Planner,
    RaySet,
    folded,
    joined,
    product_of,
    ray_set,
    restricted,
    summed,
    widened,
)
from quiltdp.inference.tables import LogTable, aligned, factor_tables
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Table
from quiltdp.numbers import EPS
from quiltdp.work import Guard

__all__ = ["Elimination", "RayTables", "best_values", "largest_moves"]


class RayTables:
    """The moves of wide hidden components; ray sets are kept in the workspace for its other quilts."""

    def __init__(self, workspace: Workspace) -> None:
        self._space = workspace
        self._tables = factor_tables(workspace)
        self._size = self._tables.states

    def move(
        self, component: frozenset[str], targets: tuple[str, ...], kept: frozenset[str], *, limit: int
    ) -> LogTable | None:
        """Return the largest moves over the nodes around K that are not kept: axes pairs, kept sorted.

        A kept node that no factor of K contains has no axis.

        Parameters
        ----------
        component, targets
            K and T; targets that are not next to K do not move it.
        kept
            Nodes around K that other tables contain as well.
        limit
            The most entries of one ray set and of the result.

        Returns
        -------
        LogTable or None
            ``None`` if it gets too large, or if the numbers are too far apart for floating point.
        """
        return self._space.keep(
            "ray move",
            (component, targets, kept, limit),
            lambda: self._compute(component, targets, kept, limit),
            lambda made: 512 if made is None else made.array.nbytes + 512,
        )

    def values(
        self,
        component: frozenset[str],
        targets: tuple[str, ...],
        pair: tuple[int, int],
        at: Mapping[str, int],
        *,
        limit: int,
    ) -> Mapping[str, int]:
        """Return values of the other nodes around K that attain the move of two joint states of T.

        ``at`` has the values of the nodes that are kept.
        """
        factors = self._tables.near_any(sorted(component))
        own = self._own(targets, factors)
        shape = [self._size(n) for n in targets]
        ends = [np.unravel_index(x, shape) for x in pair]
        chosen = [{n: int(k) for n, k in zip(targets, end, strict=True)} for end in ends]
        inner = [self._size(n) for n in own]
        here, there = (int(np.ravel_multi_index([x[n] for n in own], inner)) if own else 0 for x in chosen)
        fixed = {n: k for n, k in at.items() if n not in targets}
        kind = _kind(self._range(factors)) or np.float64
        work = Elimination(component, own, (), size=self._size, limit=limit, space=None)
        left = work.run([self._item(f, {*component, *own}, kind, fixed) for f in factors])
        return best_values(left, work.sizes, own, (here, there))

    def _compute(
        self, component: frozenset[str], targets: tuple[str, ...], kept: frozenset[str], limit: int
    ) -> LogTable | None:
        factors = self._tables.near_any(sorted(component))
        own = self._own(targets, factors)
        kind = _kind(self._range(factors))
        if kind is None:
            return None
        space = self._space if kind is np.float64 else None
        work = Elimination(component, own, kept, size=self._size, limit=limit, space=space)
        left = work.run([self._item(f, {*component, *own}, kind, {}) for f in factors])
        cost = work.cost * (RAY_ZEROS if any(map(self._tables.with_zeros, factors)) else 1)
        states = math.prod(self._size(n) for n in own)
        around = {n for i in left for n in i.scope if n in kept}
        if cost > RAY_WORK or states * states * math.prod(self._size(n) for n in around) > limit:
            return None
        scope, square = largest_moves(left, work.sizes, own, kept, self._space.guard)
        terms = 3 * len(factors) + sum(self._size(n) + 1 for n in component)
        terms += math.prod(self._size(n) for n in {n for i in left for n in i.vector}.difference(own))
        size = float(np.abs(square[np.abs(square) < BIG / 2]).max(initial=0.0))
        error = EPS * (2.1 * terms + 8 + 2 * size) + 2.1 * INSIDE * (1 + sum(i.pruned for i in left))
        named = (PAIRS, *sorted(scope))
        array = aligned(((PAIRS, *scope), self._pairs(square, targets, own)), named)
        return LogTable(named, array, size, error)

    def _own(self, targets: Sequence[str], factors: Sequence[int]) -> tuple[str, ...]:
        """Return the targets next to the component."""
        around = frozenset[str]().union(*map(self._tables.scope_set, factors))
        return tuple([n for n in targets if n in around])

    def _pairs(self, square: Table, targets: Sequence[str], own: Sequence[str]) -> Table:
        """Return moves over (x, x') of the targets next to K as moves over the ordered pairs of T."""
        shape = [self._size(n) for n in targets]
        inner = np.arange(len(square)).reshape([self._size(n) if n in own else 1 for n in targets])
        place = np.broadcast_to(inner, shape).ravel()
        first, second = ordered_pairs(math.prod(shape))
        return np.asarray(square[place[first], place[second]])

    def _range(self, factors: Sequence[int]) -> float:
        """Return how far the logarithms of a product of the factors can be apart."""
        total = 0.0
        for f in factors:
            logs = self._tables.logs(f).array
            finite = logs[np.isfinite(logs)]
            total += float(finite.max(initial=0.0) - finite.min(initial=0.0))
        return total

    def _item(
        self, f: int, vector: Collection[str], kind: type[np.floating], fixed: Mapping[str, int]
    ) -> RaySet:
        scope = self._tables.scope(f)
        at = tuple(fixed.get(n, slice(None)) for n in scope)
        table: Table = self._tables.table(f)[at].astype(kind)
        return ray_set(f, [n for n in scope if n not in fixed], table, vector)


def _kind(apart: float) -> type[np.floating] | None:
    """Return a floating-point type that holds numbers whose logarithms are so far apart, if there is one."""
    for kind in (np.float64, np.longdouble):
        if apart < -0.9 * float(np.log(np.finfo(kind).tiny)):
            return kind
    return None


# -- the elimination -----------------------------------------------------------------------------


class Elimination:
    """The elimination of one hidden component.

    Parameters
    ----------
    hidden, targets, kept
        K, T and the observed nodes that stay; all other observed nodes are folded.
    size
        The number of states of a node.
    limit
        The most entries of one ray set.
    space
        Where ray sets made before are kept, by what determines them; ``None`` to remember the values of
        the nodes folded instead.
    """

    def __init__(
        self,
        hidden: Collection[str],
        targets: Sequence[str],
        kept: Collection[str],
        *,
        size: Callable[[str], int],
        limit: int,
        space: Workspace | None,
    ) -> None:
        self._hidden = frozenset(hidden)
        self._stay = frozenset((*kept, *targets))
        self._targets = tuple(targets)
        self._size = size
        self._limit = limit
        self._space = space
        self.sizes: dict[str, int] = {}
        self.cost = 0.0  # of the last step, for what is left

    def run(self, factors: Sequence[RaySet]) -> list[RaySet]:
        """Return the ray sets that are left when the last step is the cheapest."""
        names = sorted({n for i in factors for n in (*i.scope, *i.vector)})
        self.sizes = {n: self._size(n) for n in names}
        plan = Planner(self.sizes, self._targets, self._stay, self._limit)
        items = self._grouped(self._private_folded(factors), lambda i: (i.vector, i.scope))
        while (step := plan.best(items)) is not None:
            if self._space is not None:
                self._space.guard.check()
            made = self._step([items[k] for k in step.items], step.node)
            if made is None:
                break
            items = [i for k, i in enumerate(items) if k not in step.items]
            items.append(made)
        left = self._grouped(items, lambda i: i.vector) if plan.grouped(items) else items
        self.cost = plan.cost(left)
        return left

    def _grouped(self, items: Sequence[RaySet], alike: Callable[[RaySet], object]) -> list[RaySet]:
        """Join what is alike, in up to three dimensions."""
        groups: dict[object, list[RaySet]] = {}
        for i in items:
            groups.setdefault(alike(i), []).append(i)
        made = []
        for group in groups.values():
            ordered = sorted(group, key=lambda i: i.members * i.sets)
            together = self._step(ordered, None) if group[0].dimension <= 3 else None
            made += group if together is None else [together]
        return made

    def _private_folded(self, items: Sequence[RaySet]) -> list[RaySet]:
        """Fold the nodes that only one factor contains."""
        count: dict[str, int] = {}
        for i in items:
            for n in (*i.scope, *i.vector):
                count[n] = count.get(n, 0) + 1
        made = []
        for i in items:
            left = i
            for n in i.scope:
                if count[n] == 1 and n not in self._stay:
                    left = self._without(left, n)
            made.append(left)
        return made

    def _step(self, items: Sequence[RaySet], node: str | None) -> RaySet | None:
        """Return the ray set of a step; None if it is larger than predicted and beyond the limit."""
        total = items[0]
        for i in items[1:]:
            names = {*total.scope, *i.scope, *total.vector, *i.vector}
            if total.members * i.members * math.prod(self.sizes[n] for n in names) > self._limit:
                return None
            total = self._joined(total, i)
        return total if node is None else self._without(total, node)

    def _joined(self, one: RaySet, two: RaySet) -> RaySet:
        vector = tuple(sorted({*one.vector, *two.vector}))
        key = (one.factors | two.factors, one.folds | two.folds, one.sums | two.sums, vector)
        return self._kept(key, lambda: joined(one, two))

    def _without(self, item: RaySet, node: str) -> RaySet:
        hidden = node in self._hidden
        folds, sums = item.folds | {node} - self._hidden, item.sums | {node} & self._hidden
        key = (item.factors, folds, sums, tuple(n for n in item.vector if n != node))
        if hidden:
            return self._kept(key, lambda: summed(item, node))
        return self._kept(key, lambda: folded(item, node, remember=self._space is None))

    def _kept(self, key: tuple[object, ...], make: Callable[[], RaySet]) -> RaySet:
        """Return a ray set by what determines it: factors, nodes folded and summed, vector axes."""
        if self._space is None:
            return make()
        return self._space.keep("ray set", key, make, lambda made: made.array.nbytes + 512)


# -- the last step: all members, in blocks ---------------------------------------------------------


class _Block(NamedTuple):
    """The masses of some members and assignments: axes free nodes, x, members, members."""

    fixed: Mapping[str, int]
    free: tuple[str, ...]
    first: int  # the left member it starts with
    groups: tuple[RaySet, ...]
    mass: Table


def largest_moves(
    items: Sequence[RaySet],
    sizes: Mapping[str, int],
    targets: Sequence[str],
    kept: Collection[str],
    guard: Guard,
) -> tuple[tuple[str, ...], Table]:
    """Return the kept nodes in the scope, and F over (x, x', kept), x flattened.

    The largest over all members and over the scope nodes that are not kept.  −∞ where x is
    impossible, ``BIG`` where x' is impossible beside a possible x.
    """
    outer = tuple(dict.fromkeys(n for i in items for n in i.scope if n in kept))
    states = math.prod(sizes[n] for n in targets)
    best = np.zeros((states, states, *(sizes[n] for n in outer)))
    for x in range(states):
        best[x, x] = 1.0
    for block in _blocks(items, sizes, targets, outer):
        guard.check()
        at = tuple(block.fixed.get(n, slice(None)) for n in outer)
        gone = tuple(k for k, n in enumerate(block.free) if n not in kept)
        over = (*gone, len(block.free), len(block.free) + 1)
        by_state = np.moveaxis(block.mass, -3, 0)
        positive = bool(block.mass.min() > 0)
        for x in range(states):
            for y in range(x):
                up, down = _ends(by_state[x], by_state[y], over, positive)
                best[(x, y, *at)] = np.maximum(best[(x, y, *at)], up)
                best[(y, x, *at)] = np.maximum(best[(y, x, *at)], down)
    with np.errstate(divide="ignore"):
        return outer, np.asarray(np.minimum(np.log(best), BIG), dtype=np.float64)


def best_values(
    items: Sequence[RaySet], sizes: Mapping[str, int], targets: Sequence[str], pair: tuple[int, int]
) -> Mapping[str, int]:
    """Return values of the scope and of the folded nodes that attain F(x, x') for one pair."""
    best = -1.0
    found: dict[str, int] = {}
    for block in _blocks(items, sizes, targets, ()):
        above, below = (block.mass[..., x, :, :] for x in pair)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(above > 0, above / below, -1.0)
        if ratio.max() <= best:
            continue
        best = ratio.max()
        *at, m, n = (int(k) for k in np.unravel_index(int(ratio.argmax()), ratio.shape))
        found = {**block.fixed, **dict(zip(block.free, at, strict=True))}
        for group, member in zip(block.groups, (block.first + m, n), strict=False):
            choice = group.choices[tuple(found[k] for k in group.scope)][member]
            found.update(zip(group.marks, choice.tolist(), strict=True))
    return found


def _ends(above: Table, below: Table, over: tuple[int, ...], positive: bool) -> tuple[Table, Table]:
    """Return the largest above / below and the largest below / above; 0 where there is no candidate."""
    if positive:
        ratio = above / below
        return ratio.max(axis=over), 1 / ratio.min(axis=over)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = above / below  # NaN for 0/0, which the next two skip
        up, down = np.fmax.reduce(ratio, axis=over), 1 / np.fmin.reduce(ratio, axis=over)
    return np.nan_to_num(up, nan=0.0, posinf=np.inf), np.nan_to_num(down, nan=0.0, posinf=np.inf)


def _blocks(
    items: Sequence[RaySet], sizes: Mapping[str, int], targets: Sequence[str], outer: Sequence[str]
) -> Iterator[_Block]:
    """Yield the masses of all members and assignments, a block at a time."""
    groups = [_together(group, sizes) for group in _split(items)]
    names = tuple(dict.fromkeys((*outer, *(n for i in items for n in i.scope))))
    hidden = tuple(sorted({n for i in items for n in i.vector if n not in targets}))
    states = math.prod(sizes[n] for n in targets)
    each = states * math.prod(i.members for i in items)
    cut = len(names)
    while cut and each * sizes[names[cut - 1]] <= MASSES_AT_ONCE:
        cut -= 1
        each *= sizes[names[cut]]
    free = names[cut:]
    shape = tuple(sizes[n] for n in free)
    for values in product(*(range(sizes[n]) for n in names[:cut])):
        fixed = dict(zip(names[:cut], values, strict=True))
        pair = tuple(product_of([restricted(i, fixed) for i in group]) for group in groups)
        left, *right = (_matrix(group, free, targets, hidden, sizes) for group in pair)
        count = left.shape[-2]
        step = max(1, MASSES_AT_ONCE * count // each)
        for first in range(0, count, step):
            part = left[..., first : first + step, :]
            mass = part @ right[0].swapaxes(-1, -2) if right else part.sum(axis=-1)[..., None]
            full = (*shape, states, *mass.shape[-2:])
            yield _Block(fixed, free, first, pair, np.broadcast_to(mass, full))


def _split(items: Sequence[RaySet]) -> tuple[tuple[RaySet, ...], ...]:
    """Split the ray sets in one or two groups of about as many members."""
    first: list[RaySet] = []
    second: list[RaySet] = []
    for i in sorted(items, key=lambda i: -i.members):
        here, there = (math.prod(i.members for i in group) for group in (first, second))
        (first if not first or here < there else second).append(i)
    return (tuple(first), tuple(second)) if second else (tuple(first),)


def _together(group: Sequence[RaySet], sizes: Mapping[str, int]) -> Sequence[RaySet]:
    """Return the product of a group if it is small, else the group."""
    names = {n for i in group for n in (*i.scope, *i.vector)}
    entries = math.prod(i.members for i in group) * math.prod(sizes[n] for n in names)
    return (product_of(group),) if entries <= GROUP_ENTRIES else group


def _matrix(
    item: RaySet, free: Sequence[str], targets: Sequence[str], hidden: Sequence[str], sizes: Mapping[str, int]
) -> Table:
    """Return the array with axes free, x, members, k: k in full, the others of length 1 where it has none."""
    array = widened(item, free, (*targets, *hidden))
    at = len(free)
    front, own = array.shape[:at], array.shape[at + 1 : at + 1 + len(targets)]
    full = tuple(sizes[n] for n in targets)
    if 1 < math.prod(own) < math.prod(full):  # some targets, not all: every joint state in full
        array = np.broadcast_to(array, (*front, item.members, *full, *array.shape[at + 1 + len(own) :]))
        own = full
    array = array.reshape(*front, item.members, math.prod(own), *array.shape[at + 1 + len(own) :])
    array = np.broadcast_to(array, (*array.shape[: at + 2], *(sizes[n] for n in hidden)))
    return np.moveaxis(array.reshape(*array.shape[: at + 2], -1), at, -2)
