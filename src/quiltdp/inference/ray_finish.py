"""The last step of a ray elimination: the largest ratios over all members, in blocks.

What is left are a few ray sets over the hidden nodes k, the targets x and a scope.  Split them in two
groups with products L(x, m, k) and R(x, n, k); then the masses Σ_k L R are matrix products, and the move

    F(x, x') = max over m, n of ln Σ_k L(x, m, k) R(x, n, k) − ln Σ_k L(x', m, k) R(x', n, k)

needs no vector for m and n together.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from quiltdp.inference.odds import BIG
from quiltdp.inference.raysets import RaySet, joined, spread
from quiltdp.model import Table

__all__ = ["best_values", "chosen_values", "largest_moves", "matrix", "product_of", "restricted"]

_BLOCK = 2**17  # masses computed at once
_WHOLE = 2**20  # entries up to which the product of a group is made once for all blocks


class _Block(NamedTuple):
    """The masses of some members and assignments: axes free nodes, x, members, members."""

    fixed: Mapping[str, int]
    free: tuple[str, ...]
    first: int  # the left member it starts with
    sides: tuple[RaySet, ...]
    mass: Table


def largest_moves(
    items: Sequence[RaySet], sizes: Mapping[str, int], targets: Sequence[str], shared: Collection[str]
) -> tuple[tuple[str, ...], Table]:
    """Return the shared nodes in the scope, and F over (x, x', shared), x flattened.

    The largest over all members and over the scope nodes that are not shared.  −∞ where x is
    impossible, ``BIG`` where x' is impossible beside a possible x.
    """
    outer = tuple(dict.fromkeys(n for i in items for n in i.scope if n in shared))
    states = math.prod(sizes[n] for n in targets)
    best = np.zeros((states, states, *(sizes[n] for n in outer)))
    for x in range(states):
        best[x, x] = 1.0
    for block in _blocks(items, sizes, targets, outer):
        at = tuple(block.fixed.get(n, slice(None)) for n in outer)
        gone = tuple(k for k, n in enumerate(block.free) if n not in shared)
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
    found: Mapping[str, int] = {}
    for block in _blocks(items, sizes, targets, ()):
        above, below = (block.mass[..., x, :, :] for x in pair)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(above > 0, above / below, -1.0)
        if ratio.max() <= best:
            continue
        best = ratio.max()
        *at, m, n = (int(k) for k in np.unravel_index(int(ratio.argmax()), ratio.shape))
        values = {**block.fixed, **dict(zip(block.free, at, strict=True))}
        found = chosen_values(values, block.sides, (block.first + m, n))
    return found


def chosen_values(
    values: Mapping[str, int], sides: Sequence[RaySet], members: Sequence[int]
) -> Mapping[str, int]:
    """Return the values of the scope, and of the nodes folded into a member of each side."""
    found = dict(values)
    for side, member in zip(sides, members, strict=False):
        at = tuple(values[n] for n in side.scope)
        found.update(zip(side.marks, side.choices[at][member].tolist(), strict=True))
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
    sides = [_together(side, sizes) for side in _split(items)]
    names = tuple(dict.fromkeys((*outer, *(n for i in items for n in i.scope))))
    hidden = tuple(sorted({n for i in items for n in i.vector if n not in targets}))
    states = math.prod(sizes[n] for n in targets)
    each = states * math.prod(i.members for i in items)
    cut = len(names)
    while cut and each * sizes[names[cut - 1]] <= _BLOCK:
        cut -= 1
        each *= sizes[names[cut]]
    free = names[cut:]
    shape = tuple(sizes[n] for n in free)
    for values in product(*(range(sizes[n]) for n in names[:cut])):
        fixed = dict(zip(names[:cut], values, strict=True))
        pair = tuple(product_of([restricted(i, fixed) for i in side]) for side in sides)
        left, *right = (matrix(side, free, targets, hidden, sizes) for side in pair)
        count = left.shape[-2]
        step = max(1, _BLOCK * count // each)
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
        here, there = (math.prod(i.members for i in side) for side in (first, second))
        (first if not first or here < there else second).append(i)
    return (tuple(first), tuple(second)) if second else (tuple(first),)


def _together(side: Sequence[RaySet], sizes: Mapping[str, int]) -> Sequence[RaySet]:
    """Return the product of a group if it is small, else the group."""
    names = {n for i in side for n in (*i.scope, *i.vector)}
    entries = math.prod(i.members for i in side) * math.prod(sizes[n] for n in names)
    return (product_of(side),) if entries <= _WHOLE else side


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


def matrix(
    item: RaySet, free: Sequence[str], targets: Sequence[str], hidden: Sequence[str], sizes: Mapping[str, int]
) -> Table:
    """Return the array with axes free, x, members, k: k in full, the others of length 1 where it has none."""
    array = spread(item, free, (*targets, *hidden))
    at = len(free)
    front, own = array.shape[:at], array.shape[at + 1 : at + 1 + len(targets)]
    full = tuple(sizes[n] for n in targets)
    if 1 < math.prod(own) < math.prod(full):  # some targets, not all: every joint state in full
        array = np.broadcast_to(array, (*front, item.members, *full, *array.shape[at + 1 + len(own) :]))
        own = full
    array = array.reshape(*front, item.members, math.prod(own), *array.shape[at + 1 + len(own) :])
    array = np.broadcast_to(array, (*array.shape[: at + 2], *(sizes[n] for n in hidden)))
    return np.moveaxis(array.reshape(*array.shape[: at + 2], -1), at, -2)
