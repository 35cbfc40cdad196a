"""Which step of a ray elimination comes next, from the shapes of the ray sets alone.

A step joins some ray sets and then folds or sums a node; the last step compares everything that is left.
A step into at most three dimensions is pruned to a few members, so the cheapest of those is taken first;
any other has to pay by making the rest cheaper than it is without it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from quiltdp.inference.raysets import RaySet

__all__ = ["Planner", "Step", "finish_cost"]

_USUAL: dict[float, float] = {1: 1, 2: 2, 3: 24}  # members to expect after pruning, by dimension
_ENTRY = 6  # operations of the last step for one entry of a product
_PRUNE: dict[float, float] = {2: 20, 3: 600, 4: 4000, 5: 6000}  # the same for pruning one ray, by dimension
_STEP = 2**17  # what a step costs besides


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
        usual = _USUAL.get(size, math.inf)
        sets = self._size(scope)
        members, cost = 1.0, float(_STEP * len(used))
        for k, s in enumerate(used):
            points = sets * members * s.members
            if k:  # as if the scope was there in full from the start
                cost += points * (size * _ENTRY + _PRUNE.get(size, 0))
            members = min(members * s.members, usual)
            if points * size > self._limit:
                cost = math.inf
        left = vector & ~node
        after = self._size(left)
        if node:
            cost += sets * members * (size + _PRUNE.get(after, 0))
            members = min(members * self._size(node & scope), _USUAL.get(after, math.inf))
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
