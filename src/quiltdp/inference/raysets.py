"""Sets of vectors over hidden nodes: their products, maxima and sums, and which step comes next.

A *ray set* has three kinds of axes: scope axes (observed nodes: one set per assignment), a member axis
(the vectors), and vector axes (hidden nodes and targets).  A vector stands for itself times any positive
number.  Three things are done with ray sets:

- *join* two of them: multiply entry by entry, members with members;
- *fold* an observed node that occurs nowhere else: its states become members;
- *sum* a hidden node that occurs nowhere else out of every vector.

All three map cones to cones, so rays inside the cone of the others are dropped after each.

Which step of an elimination comes next is planned from the shapes of the ray sets alone.  A step joins some
ray sets and then folds or sums a node; the last step compares everything that is left. A step into at most
three dimensions is pruned to a few members, so the cheapest of those is taken first; any other has to pay
by making the rest cheaper than it is without it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from quiltdp.inference.cones import corners
from quiltdp.inference.plan import ENTRY_COST, PRUNE_COST, PRUNED_RAYS, PRUNED_SETS, STEP_COST, USUAL_MEMBERS
from quiltdp.inference.tables import aligned
from quiltdp.model import Table

__all__ = [
    "Planner",
    "RaySet",
    "Step",
    "finish_cost",
    "folded",
    "joined",
    "product_of",
    "ray_set",
    "restricted",
    "summed",
    "widened",
]

Choices: TypeAlias = NDArray[np.int16]


class RaySet(NamedTuple):
    """Vectors over ``vector`` for every assignment of ``scope``; the largest entry of each is 1."""

    scope: tuple[str, ...]
    vector: tuple[str, ...]
    array: Table  # scope, members, vector
    factors: frozenset[int]  # whose product it is
    folds: frozenset[str]  # nodes folded
    sums: frozenset[str]  # nodes summed
    pruned: int  # how often rays were dropped up to the tolerance
    marks: tuple[str, ...]  # the folded nodes whose values are remembered
    choices: Choices  # scope, members, one entry per mark

    @property
    def members(self) -> int:
        """How many vectors there are for each assignment."""
        return int(self.array.shape[len(self.scope)])

    @property
    def dimension(self) -> int:
        """How long the vectors are."""
        return math.prod(self.array.shape[len(self.scope) + 1 :])

    @property
    def sets(self) -> int:
        """How many assignments the scope has."""
        return math.prod(self.array.shape[: len(self.scope)])


def ray_set(factor: int, scope: Sequence[str], table: Table, vector: Collection[str]) -> RaySet:
    """Return a factor as ray sets of one member each."""
    inside = tuple(sorted(n for n in scope if n in vector))
    outside = tuple(n for n in scope if n not in vector)
    array = np.expand_dims(aligned((scope, table), (*outside, *inside)), len(outside))
    none = np.zeros((*array.shape[: len(outside) + 1], 0), np.int16)
    array = _scaled(array, len(outside))
    nothing: frozenset[str] = frozenset()
    return RaySet(outside, inside, array, frozenset((factor,)), nothing, nothing, 0, (), none)


def joined(one: RaySet, two: RaySet, *, prune: bool = True) -> RaySet:
    """Return the products of the members of one with the members of the other."""
    scope = tuple(dict.fromkeys((*one.scope, *two.scope)))
    vector = tuple(sorted({*one.vector, *two.vector}))
    at = len(scope)
    a, b = widened(one, scope, vector), widened(two, scope, vector)
    array = np.expand_dims(a, at + 1) * np.expand_dims(b, at)
    front = array.shape[:at]
    members = one.members * two.members
    made = RaySet(
        scope,
        vector,
        array.reshape(*front, members, *array.shape[at + 2 :]),
        one.factors | two.factors,
        one.folds | two.folds,
        one.sums | two.sums,
        one.pruned + two.pruned,
        (*one.marks, *two.marks),
        _both(one, two, scope, front),
    )
    return _pruned(made._replace(array=_scaled(made.array, at))) if prune else made


def folded(item: RaySet, node: str, *, remember: bool) -> RaySet:
    """Make the states of an observed node members."""
    axis = item.scope.index(node)
    rest = item.scope[:axis] + item.scope[axis + 1 :]
    at = len(rest)
    array = np.moveaxis(item.array, axis, at)
    states, members = array.shape[at : at + 2]
    array = array.reshape(*array.shape[:at], states * members, *array.shape[at + 2 :])
    choices = np.moveaxis(item.choices, axis, at)
    if remember:
        own = np.broadcast_to(np.arange(states, dtype=np.int16)[:, None, None], (*choices.shape[:-1], 1))
        choices = np.concatenate([choices, own], axis=-1)
    choices = choices.reshape(*choices.shape[:at], states * members, choices.shape[-1])
    return _pruned(
        item._replace(
            scope=rest,
            array=array,
            folds=item.folds | {node},
            marks=(*item.marks, node) if remember else item.marks,
            choices=choices,
        )
    )


def summed(item: RaySet, node: str) -> RaySet:
    """Sum a hidden node out of every vector."""
    at = item.vector.index(node)
    array = item.array.sum(axis=len(item.scope) + 1 + at)
    vector = item.vector[:at] + item.vector[at + 1 :]
    array = _scaled(array, len(item.scope))
    return _pruned(item._replace(vector=vector, array=array, sums=item.sums | {node}))


def widened(item: RaySet, scope: Sequence[str], vector: Sequence[str]) -> Table:
    """Return the array with the axes of a larger scope and vector, length 1 where it has none."""
    named = (*item.scope, "", *item.vector)
    return aligned((named, item.array), (*scope, "", *vector))


def _picked(item: RaySet, scope: Sequence[str]) -> Choices:
    """Return the choices with the axes of a larger scope."""
    return aligned(((*item.scope, "", "\0"), item.choices), (*scope, "", "\0"))


def product_of(items: Sequence[RaySet]) -> RaySet:
    """Return the product of ray sets, not pruned."""
    total = items[0]
    for i in items[1:]:
        total = joined(total, i, prune=False)
    return total


def restricted(item: RaySet, fixed: Mapping[str, int]) -> RaySet:
    """Return the ray set at the fixed values."""
    at = tuple(fixed.get(n, slice(None)) for n in item.scope)
    rest = tuple(n for n in item.scope if n not in fixed)
    return item._replace(scope=rest, array=item.array[at], choices=item.choices[at])


def _both(one: RaySet, two: RaySet, scope: Sequence[str], front: Sequence[int]) -> Choices:
    at = len(scope)
    if not one.marks and not two.marks:
        return np.zeros((*front, one.members * two.members, 0), np.int16)
    shape = (*front, one.members, two.members)
    a = np.broadcast_to(np.expand_dims(_picked(one, scope), at + 1), (*shape, len(one.marks)))
    b = np.broadcast_to(np.expand_dims(_picked(two, scope), at), (*shape, len(two.marks)))
    both = np.concatenate([a, b], axis=-1)
    return both.reshape(*front, one.members * two.members, both.shape[-1])


def _scaled(array: Table, at: int) -> Table:
    """Scale every vector to a largest entry of 1; a vector of zeros stays."""
    axes = tuple(range(at + 1, array.ndim))
    top = array.max(axis=axes, keepdims=True)
    return array / np.where(top > 0, top, 1.0)


def _pruned(item: RaySet) -> RaySet:
    """Drop rays inside the cone of the others, for every assignment of the scope."""
    members, size, sets = item.members, item.dimension, item.sets
    if members == 1 or (size > 2 and sets > PRUNED_SETS) or (size > 3 and sets * members > PRUNED_RAYS):
        return item
    flat = item.array.reshape(sets, members, size)
    keep = corners(flat)
    if keep.shape[1] >= members:
        return item
    at = len(item.scope)
    front, tail = item.array.shape[:at], item.array.shape[at + 1 :]
    array = np.take_along_axis(flat, keep[:, :, None], axis=1)
    choices = np.take_along_axis(item.choices.reshape(sets, members, -1), keep[:, :, None], axis=1)
    return item._replace(
        array=array.reshape(*front, keep.shape[1], *tail),
        choices=choices.reshape(*front, keep.shape[1], len(item.marks)),
        pruned=item.pruned + 1,
    )


class Step(NamedTuple):
    """Join the ray sets at these positions, then fold or sum a node (if any)."""

    cost: float
    items: tuple[int, ...]
    node: str | None


class _Shape(NamedTuple):
    scope: int  # sets of nodes are bit masks
    vector: int
    members: float


class _Option(NamedTuple):
    step: Step
    made: _Shape
    easy: bool


def finish_cost(sets: float, states: int, vector: float, members: float) -> float:
    """Return about how many operations the last step takes."""
    each = members * (states * (states + 1) + vector / 8) + vector * 4 * math.sqrt(members)
    return sets * each


class Planner:
    """Costs of steps for nodes of given sizes.

    Parameters
    ----------
    sizes
        The number of states of every node.
    targets, stay
        T; and the nodes that are neither folded nor summed.
    limit
        The most entries of one ray set.
    """

    def __init__(
        self, sizes: Mapping[str, int], targets: Collection[str], stay: Collection[str], limit: int
    ) -> None:
        self._names = tuple(sizes)
        self._bit = {n: 1 << k for k, n in enumerate(self._names)}
        self._sizes = tuple(sizes.values())
        self._states = math.prod(sizes[n] for n in targets)
        self._stay = self._mask(n for n in stay if n in self._bit)
        self._limit = limit
        self._products: dict[int, float] = {0: 1.0}

    def best(self, items: Sequence[RaySet]) -> Step | None:
        """Return the next step, or None if the last one is due."""
        shapes = [_Shape(self._mask(i.scope), self._mask(i.vector), float(i.members)) for i in items]
        options = list(self._options(shapes))
        now = self._rest(shapes)
        easy = min((o.step for o in options if o.easy), key=lambda s: s.cost, default=None)
        if easy is not None and easy.cost < now:
            return easy
        best, least = None, now
        for step, made, _ in options:
            if step.cost < least:
                left = [s for k, s in enumerate(shapes) if k not in step.items]
                total = step.cost + self._rest([*left, made])
                if total < least:
                    best, least = step, total
        return best

    def cost(self, items: Sequence[RaySet]) -> float:
        """Return the cost of the last step for the ray sets as they are."""
        shapes = [_Shape(self._mask(i.scope), self._mask(i.vector), float(i.members)) for i in items]
        return self._finish(shapes, math.prod(s.members for s in shapes))

    def grouped(self, items: Sequence[RaySet]) -> bool:
        """Return whether ray sets with the same vector axes should be joined before the last step."""
        shapes = [_Shape(self._mask(i.scope), self._mask(i.vector), float(i.members)) for i in items]
        return self._rest(shapes) < self.cost(items)

    # -- costs ---------------------------------------------------------------------------------

    def _mask(self, names: Collection[str] | Iterator[str]) -> int:
        return sum(self._bit[n] for n in names)

    def _size(self, mask: int) -> float:
        """Return the number of joint states of a set of nodes."""
        found = self._products.get(mask)
        if found is None:
            left, found = mask, 1.0
            while left:
                low = left & -left
                found *= self._sizes[low.bit_length() - 1]
                left ^= low
            self._products[mask] = found
        return found

    def _rest(self, shapes: Sequence[_Shape]) -> float:
        """Return what it costs to join what has the same vector axes, and to take the last step."""
        groups: dict[int, list[_Shape]] = {}
        for s in shapes:
            groups.setdefault(s.vector, []).append(s)
        cost, members, plain = 0.0, 1.0, 1.0
        for group in groups.values():
            own = math.prod(s.members for s in group)
            plain *= own
            if len(group) > 1 and self._size(group[0].vector) <= 3:
                made = self._join(group, 0)
                cost, own = cost + made[0], made[1].members
            members *= own
        together = cost + self._finish(shapes, members)
        return min(together, self._finish(shapes, plain)) if cost else together

    def _finish(self, shapes: Sequence[_Shape], members: float) -> float:
        scope = vector = 0
        for s in shapes:
            scope, vector = scope | s.scope, vector | s.vector
        return finish_cost(self._size(scope), self._states, self._size(vector), members)

    def _join(self, used: Sequence[_Shape], node: int) -> tuple[float, _Shape]:
        """Return the cost of joining and of taking a node out, and the shape made."""
        scope = vector = 0
        for s in used:
            scope, vector = scope | s.scope, vector | s.vector
        size = self._size(vector)
        usual = USUAL_MEMBERS.get(size, math.inf)
        sets = self._size(scope)
        members, cost = 1.0, float(STEP_COST * len(used))
        for k, s in enumerate(used):
            points = sets * members * s.members
            if k:  # as if the scope was there in full from the start
                cost += points * (size * ENTRY_COST + PRUNE_COST.get(size, 0))
            members = min(members * s.members, usual)
            if points * size > self._limit:
                cost = math.inf
        left = vector & ~node
        after = self._size(left)
        if node:
            cost += sets * members * (size + PRUNE_COST.get(after, 0))
            members = min(members * self._size(node & scope), USUAL_MEMBERS.get(after, math.inf))
        return cost, _Shape(scope & ~node, left, members)

    # -- what can be done ----------------------------------------------------------------------

    def _options(self, shapes: Sequence[_Shape]) -> Iterator[_Option]:
        order = sorted(range(len(shapes)), key=lambda k: shapes[k].members * self._size(shapes[k].scope))
        every = 0
        for s in shapes:
            every |= s.scope | s.vector
        every &= ~self._stay
        while every:
            node = every & -every
            every ^= node
            used = tuple(k for k in order if node & (shapes[k].scope | shapes[k].vector))
            yield self._option(shapes, used, node)
        for at, b in enumerate(order):
            two = shapes[b]
            if self._size(two.vector) > 3:
                continue
            for a in order[:at]:  # the smallest that fits is the cheapest
                one = shapes[a]
                if one.vector == two.vector and one.scope | two.scope in (one.scope, two.scope):
                    yield self._option(shapes, (a, b), 0)
                    break

    def _option(self, shapes: Sequence[_Shape], used: tuple[int, ...], node: int) -> _Option:
        cost, made = self._join([shapes[k] for k in used], node)
        name = self._names[node.bit_length() - 1] if node else None
        return _Option(Step(cost, used, name), made, self._size(made.vector) <= 3)
