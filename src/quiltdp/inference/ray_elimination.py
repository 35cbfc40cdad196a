"""Variable elimination with sets of rays in the place of tables.

The steps are those of :mod:`quiltdp.inference.raysets`, in the order of :mod:`quiltdp.inference.ray_plan`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, MutableMapping, Sequence
from typing import TypeAlias

from quiltdp.inference.ray_plan import Planner
from quiltdp.inference.raysets import RaySet, folded, joined, summed

__all__ = ["Elimination", "Key"]

Key: TypeAlias = tuple[frozenset[int], frozenset[str], frozenset[str], tuple[str, ...]]
"""What determines a ray set: its factors, the nodes folded, those summed, the vector axes."""


class Elimination:
    """The elimination of one hidden component.

    Parameters
    ----------
    hidden, targets, shared
        K, T and the observed nodes that stay; all other observed nodes are folded.
    size
        The number of states of a node.
    limit
        The most entries of one ray set.
    kept
        Ray sets made before, by what determines them; ``None`` to remember the values of the nodes
        folded instead.
    """

    def __init__(
        self,
        hidden: Collection[str],
        targets: Sequence[str],
        shared: Collection[str],
        *,
        size: Callable[[str], int],
        limit: int,
        kept: MutableMapping[Key, RaySet] | None,
    ) -> None:
        self._hidden = frozenset(hidden)
        self._stay = frozenset((*shared, *targets))
        self._targets = tuple(targets)
        self._size = size
        self._limit = limit
        self._kept = kept
        self.sizes: dict[str, int] = {}
        self.cost = 0.0  # of the last step, for what is left

    def run(self, factors: Sequence[RaySet]) -> list[RaySet]:
        """Return the ray sets that are left when the last step is the cheapest."""
        names = sorted({n for i in factors for n in (*i.scope, *i.vector)})
        self.sizes = {n: self._size(n) for n in names}
        plan = Planner(self.sizes, self._targets, self._stay, self._limit)
        items = self._grouped(self._alone(factors), lambda i: (i.vector, i.scope))
        while (step := plan.best(items)) is not None:
            made = self._taken([items[k] for k in step.items], step.node)
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
            together = self._taken(ordered, None) if group[0].dimension <= 3 else None
            made += group if together is None else [together]
        return made

    def _alone(self, items: Sequence[RaySet]) -> list[RaySet]:
        """Fold the nodes that only one factor contains."""
        count: dict[str, int] = {}
        for i in items:
            for n in (*i.scope, *i.vector):
                count[n] = count.get(n, 0) + 1
        return [
            self._free_of(i, [n for n in i.scope if count[n] == 1 and n not in self._stay]) for i in items
        ]

    def _free_of(self, item: RaySet, nodes: Sequence[str]) -> RaySet:
        for n in nodes:
            item = self._without(item, n)
        return item

    def _taken(self, items: Sequence[RaySet], node: str | None) -> RaySet | None:
        """Return the ray set of a step; None if it is larger than predicted and beyond the limit."""
        total = items[0]
        for i in items[1:]:
            following = self._joined(total, i)
            if following is None:
                return None
            total = following
        return total if node is None else self._without(total, node)

    def _joined(self, one: RaySet, two: RaySet) -> RaySet | None:
        vector = tuple(sorted({*one.vector, *two.vector}))
        key = (one.factors | two.factors, one.folds | two.folds, one.sums | two.sums, vector)
        found = self._known(key)
        if found is None:
            names = {*one.scope, *two.scope, *one.vector, *two.vector}
            if one.members * two.members * math.prod(self.sizes[n] for n in names) > self._limit:
                return None
            found = self._keep(key, joined(one, two))
        return found

    def _without(self, item: RaySet, node: str) -> RaySet:
        hidden = node in self._hidden
        folds, sums = item.folds | {node} - self._hidden, item.sums | {node} & self._hidden
        key = (item.factors, folds, sums, tuple(n for n in item.vector if n != node))
        found = self._known(key)
        if found is None:
            made = summed(item, node) if hidden else folded(item, node, remember=self._kept is None)
            found = self._keep(key, made)
        return found

    def _known(self, key: Key) -> RaySet | None:
        return None if self._kept is None else self._kept.get(key)

    def _keep(self, key: Key, made: RaySet) -> RaySet:
        if self._kept is not None:
            self._kept[key] = made
        return made
