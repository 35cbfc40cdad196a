"""Separator nodes that only one side of the target sees, as few rays as possible.

In the table of a side many separator nodes occur nowhere else, so they are maximised away at once.
They fall into groups that touch each other, and a group matters only through the vectors φ(a, q) it
offers over the states a of the nodes it hangs on.  Every move is a ratio of two linear functions of
that vector, whatever is known, so a vector inside the cone of the others never attains the largest
(see :mod:`quiltdp.inference.rays`): equal vectors count once, of vectors over two states only the two
extreme ones stay, and of vectors over three states the corners of a polygon.  Groups on the same node
are merged.  A *bundle* is what is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from quiltdp.inference.odds import FactorLogs
from quiltdp.inference.polygons import polygon
from quiltdp.inference.tables import aligned
from quiltdp.model import Table

__all__ = ["PRUNED", "Bundle", "Bundler"]

PRUNED = 2e-14
"""How far a logarithm may be off because two rays that agree in 4e-15 counted as one."""

_LIMIT = 2**18  # entries of one bundle
_SLOW = 2**10  # rays from which looking for corners one by one does not pay
_KEPT = 4096


class Bundle(NamedTuple):
    """Vectors over the states of ``scope`` (first axes), one per case (last axis)."""

    scope: tuple[str, ...]
    array: Table
    factors: int = 0  # how many tables were multiplied
    pruned: int = 0  # how often rays were dropped up to rounding


class Bundler:
    """The bundles of one model, kept for the sides that meet them again."""

    def __init__(self, logs: FactorLogs) -> None:
        self._logs = logs
        self._groups: dict[tuple[tuple[int, ...], frozenset[str]], Bundle | None] = {}
        self._merged: dict[tuple[tuple[int, ...], frozenset[str]], Bundle] = {}

    def bundles(
        self, factors: Sequence[int], private: frozenset[str]
    ) -> tuple[list[int], list[Bundle]] | None:
        """Return the factors without private nodes, and the bundles of the others; None if too wide."""
        plain = [f for f in factors if private.isdisjoint(self._logs.scope_set(f))]
        found: list[Bundle] = []
        on_one: dict[str, tuple[tuple[int, ...], Bundle]] = {}
        for group in self._touching(factors, private):
            bundle = self._group(group, private)
            if bundle is None:
                return None
            if len(bundle.scope) > 1:
                found.append(bundle)
                continue
            (node,) = bundle.scope
            if node in on_one:
                before, other = on_one[node]
                if bundle.array.size * other.array.shape[-1] > _LIMIT:
                    return None
                both = (*before, *group)
                on_one[node] = (both, self._merge(both, private, other, bundle))
            else:
                on_one[node] = (group, bundle)
        return plain, [*found, *(b for _, b in on_one.values())]

    def _touching(self, factors: Sequence[int], private: frozenset[str]) -> Iterable[tuple[int, ...]]:
        """Return the factors in groups that share private nodes."""
        groups: list[tuple[list[int], frozenset[str]]] = []
        for f in factors:
            own = self._logs.scope_set(f) & private
            if not own:
                continue
            members = [f]
            apart = []
            for g in groups:
                if own.isdisjoint(g[1]):
                    apart.append(g)
                else:
                    members, own = g[0] + members, own | g[1]
            groups = [*apart, (members, own)]
        return [tuple(sorted(members)) for members, _ in groups]

    def _group(self, factors: tuple[int, ...], private: frozenset[str]) -> Bundle | None:
        names = dict.fromkeys(n for f in factors for n in self._logs.scope(f))
        inside = private.intersection(names)
        key = (factors, inside)
        if key not in self._groups:
            if len(self._groups) >= _KEPT:
                self._groups.clear()
            self._groups[key] = self._made(factors, sorted(names.keys() - inside), sorted(inside))
        return self._groups[key]

    def _made(self, factors: Sequence[int], scope: Sequence[str], private: Sequence[str]) -> Bundle | None:
        order = (*scope, *private)
        tables = [aligned((self._logs.scope(f), self._logs.table(f)), order) for f in factors]
        shape = np.broadcast_shapes(*(t.shape for t in tables))
        if np.prod(shape, dtype=float) > _LIMIT:
            return None
        law = tables[0]
        for t in tables[1:]:
            law = law * t
        return _pruned(Bundle(tuple(scope), law.reshape(*shape[: len(scope)], -1), len(factors)))

    def _merge(self, factors: tuple[int, ...], private: frozenset[str], one: Bundle, two: Bundle) -> Bundle:
        key = (tuple(sorted(factors)), private.intersection(n for f in factors for n in self._logs.scope(f)))
        found = self._merged.get(key)
        if found is None:
            if len(self._merged) >= _KEPT:
                self._merged.clear()
            array = (one.array[:, :, None] * two.array[:, None, :]).reshape(len(one.array), -1)
            both = Bundle(one.scope, array, one.factors + two.factors + 1, one.pruned + two.pruned)
            found = self._merged[key] = _pruned(both)
        return found


def _pruned(bundle: Bundle) -> Bundle:
    """Drop cases that never attain the largest ratio."""
    shape = bundle.array.shape
    vectors = bundle.array.reshape(-1, shape[-1])
    states, cases = vectors.shape
    if cases <= 2:
        return bundle
    if states == 1:
        kept = [int(vectors[0].argmax())]
    elif states == 2:
        kept = _ends(vectors)
    else:
        kept = _distinct(vectors)
        if states == 3 and 3 < len(kept) <= _SLOW and vectors.all():
            rays = np.ascontiguousarray(vectors[:, kept].T)
            kept = [kept[k] for k in polygon(rays / rays.max(axis=1, keepdims=True))]
    if len(kept) == cases:
        return bundle
    return bundle._replace(array=bundle.array[..., kept], pruned=bundle.pruned + 1)


def _ends(vectors: Table) -> list[int]:
    """Return the cases with the smallest and the largest odds of two states."""
    with np.errstate(divide="ignore", invalid="ignore"):
        odds = vectors[1] / vectors[0]
    possible: NDArray[np.intp] = np.flatnonzero(odds >= 0)  # 0/0 is no case at all
    if not len(possible):
        return [0]
    return sorted({int(possible[odds[possible].argmin()]), int(possible[odds[possible].argmax()])})


def _distinct(vectors: Table) -> list[int]:
    """Return the first of every kind of equal vectors."""
    rows = np.ascontiguousarray(vectors.T)
    seen: dict[bytes, int] = {}
    for k, row in enumerate(rows.view(f"V{rows.itemsize * rows.shape[1]}").ravel().tolist()):
        seen.setdefault(row, k)
    return list(seen.values())
