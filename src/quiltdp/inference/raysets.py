"""Sets of vectors over hidden nodes: their products, maxima and sums.

A *ray set* has three kinds of axes: scope axes (observed nodes: one set per assignment), a member axis
(the vectors), and vector axes (hidden nodes and targets).  A vector stands for itself times any positive
number.  Three things are done with ray sets:

- *join* two of them: multiply entry by entry, members with members;
- *fold* an observed node that occurs nowhere else: its states become members;
- *sum* a hidden node that occurs nowhere else out of every vector.

All three map cones to cones, so rays inside the cone of the others are dropped after each.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from quiltdp.inference.cones import corners
from quiltdp.inference.tables import aligned
from quiltdp.model import Table

__all__ = ["RaySet", "folded", "joined", "product_of", "ray_set", "restricted", "summed", "widened"]

Choices: TypeAlias = NDArray[np.int16]

_SETS = 2**12  # sets beyond which pruning in three dimensions does not pay
_HULLS = 2**15  # rays (of all sets) beyond which it does not in four or more


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
    if members == 1 or (size > 2 and sets > _SETS) or (size > 3 and sets * members > _HULLS):
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
