"""Symmetric nodes: which nodes of a model some renaming carries onto each other.

A renaming of nodes that leaves the tables, and whatever else is asked about the nodes, as they are is a
symmetry.  What is true of one node is then true of its image: symmetric records leak equally, and the
smallest of their certified leakages holds for all of them.  Every symmetry is checked, table by table; one
that is not found costs tightness and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from quiltdp.graph.components import connected_components
from quiltdp.model import Model

__all__ = ["MOST_NODES", "symmetric_nodes", "symmetries"]

MOST_NODES = 300  # larger components are not looked at
_LOOKS = 60  # how often the nodes are told apart anew before the rest is left as it is

_Form = tuple[int, tuple[tuple[int, ...], ...]]  # a table, and the nodes at each class of its axes


def symmetric_nodes(model: Model, marks: Sequence[Hashable]) -> NDArray[np.intp] | None:
    """Return the class of every node, symmetric ones together; ``None`` where no two are.

    ``marks`` says of every node what a symmetry must leave as it is, besides the tables.

    Examples
    --------
    >>> from quiltdp import Model
    >>> coin, copy = [0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]]
    >>> m = Model.from_tables({"A": ([], coin), "B": (["A"], copy), "C": (["A"], copy)})
    >>> symmetric_nodes(m, [0, 0, 0]).tolist()
    [0, 1, 1]
    >>> symmetric_nodes(m, [0, 1, 2]) is None
    True
    """
    found = symmetries(model, marks)
    moved = [(node, image) for renaming in found for node, image in enumerate(renaming) if node != image]
    return connected_components(len(model.nodes), np.array(moved)).astype(np.intp) if moved else None


def symmetries(model: Model, marks: Sequence[Hashable]) -> list[list[int]]:
    """Return renamings (the image of every node) that together carry symmetric nodes onto each other.

    Examples
    --------
    >>> from quiltdp import Model
    >>> coin, copy = [0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]]
    >>> m = Model.from_tables({"A": ([], coin), "B": (["A"], copy), "C": (["A"], copy)})
    >>> symmetries(m, [0, 0, 0])
    [[0, 2, 1]]
    """
    if not 1 < len(model.nodes) <= MOST_NODES:
        return []
    structure = _Structure(model, marks)
    colour = structure.refined(structure.start)
    if len(set(colour)) == len(colour):
        return []
    count, looks = len(colour), [_LOOKS]
    renamings: list[list[int]] = []
    joined: list[tuple[int, int]] = []  # a node and its image under some symmetry
    labels, firsts = np.arange(count), set(range(count))
    for cell in _cells(colour):
        for place, v in enumerate(cell):
            for u in cell[:place]:
                if labels[u] == labels[v]:
                    break
                if u not in firsts:
                    continue
                found = structure.swap(u, v) or structure.search(u, v, looks)
                if found is not None:
                    renamings.append(found)
                    joined += [(node, image) for node, image in enumerate(found) if node != image]
                    labels = connected_components(count, np.array(joined))
                    firsts = set(np.unique(labels, return_index=True)[1].tolist())
                    break
    return renamings


class _Structure:
    """The tables of a model by number, which of their axes may be exchanged, and what each node stands in."""

    def __init__(self, model: Model, marks: Sequence[Hashable]) -> None:
        kinds: dict[tuple[tuple[int, ...], bytes], int] = {}
        classes: list[tuple[int, ...]] = []
        self._factors: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = []  # table, axis classes, nodes
        for factor in model.factors:
            key = (factor.table.shape, factor.table.tobytes())
            kind = kinds.setdefault(key, len(kinds))
            if kind == len(classes):
                classes.append(_exchangeable(factor.table))
            self._factors.append((kind, classes[kind], tuple(model.index[n] for n in factor.scope)))
        self._of: list[list[int]] = [[] for _ in model.nodes]
        for f, (_, _, nodes) in enumerate(self._factors):
            for j in nodes:
                self._of[j].append(f)
        numbers: dict[Hashable, int] = {}
        self.start = [
            numbers.setdefault((m, model.cardinality(n)), len(numbers))
            for m, n in zip(marks, model.nodes, strict=True)
        ]

    def _form(self, factor: int, image: Sequence[int] | None) -> _Form:
        """Return a factor, or its image, in the one way of writing it."""
        kind, axes, nodes = self._factors[factor]
        found: dict[int, list[int]] = {}
        for axis, j in zip(axes, nodes, strict=True):
            found.setdefault(axis, []).append(j if image is None else image[j])
        return kind, tuple(tuple(sorted(found[axis])) for axis in sorted(found))

    def is_symmetry(self, image: Sequence[int]) -> bool:
        """Return whether the renaming leaves every table and every mark as it is."""
        moved = [k for k, j in enumerate(image) if k != j]
        if sorted(image) != list(range(len(image))) or any(
            self.start[k] != self.start[image[k]] for k in moved
        ):
            return False
        touched = sorted({f for k in moved for f in self._of[k]})
        before = Counter(self._form(f, None) for f in touched)
        return before == Counter(self._form(f, image) for f in touched)

    def swap(self, u: int, v: int) -> list[int] | None:
        """Return the renaming that exchanges two nodes alone, if it is a symmetry."""
        image = list(range(len(self.start)))
        image[u], image[v] = v, u
        return image if self.is_symmetry(image) else None

    def search(self, u: int, v: int, looks: list[int]) -> list[int] | None:
        """Return a symmetry that carries u to v, or ``None``; ``looks`` is how much may still be spent."""
        count = len(self.start)
        colour = self.start + self.start
        return self._match(_singled_out(colour, u, count + v), count, looks)

    def _match(self, colour: list[int], count: int, looks: list[int]) -> list[int] | None:
        """Tell the nodes of two copies apart, side by side, until each has one image; check it."""
        if looks[0] <= 0:
            return None
        looks[0] -= 1
        colour = self.refined(colour)
        if Counter(colour[:count]) != Counter(colour[count:]):
            return None
        there: dict[int, list[int]] = {}
        for j in range(count):
            there.setdefault(colour[count + j], []).append(j)
        open_cell = next((k for k in range(count) if len(there[colour[k]]) > 1), None)
        if open_cell is None:
            image = [there[colour[k]][0] for k in range(count)]
            return image if self.is_symmetry(image) else None
        for j in there[colour[open_cell]]:
            found = self._match(_singled_out(colour, open_cell, count + j), count, looks)
            if found is not None:
                return found
        return None

    def refined(self, colour: list[int]) -> list[int]:
        """Return colours in which nodes differ as soon as anything around them does; copies side by side."""
        count = len(self.start)
        while True:
            seen: list[list[tuple[int, int, tuple[tuple[int, int], ...]]]] = [[] for _ in colour]
            for offset in range(0, len(colour), count):
                for kind, axes, nodes in self._factors:
                    around = tuple(
                        sorted((axis, colour[offset + j]) for axis, j in zip(axes, nodes, strict=True))
                    )
                    for axis, j in zip(axes, nodes, strict=True):
                        seen[offset + j].append((kind, axis, around))
            signs = [(c, tuple(sorted(s))) for c, s in zip(colour, seen, strict=True)]
            order = {sign: k for k, sign in enumerate(sorted(set(signs)))}
            if len(order) == len(set(colour)):
                return [order[sign] for sign in signs]
            colour = [order[sign] for sign in signs]


def _exchangeable(table: NDArray[np.float64]) -> tuple[int, ...]:
    """Return for every axis the first one it may be exchanged with, the table staying what it is."""
    found: list[int] = []
    for axis in range(table.ndim):
        same = (
            k
            for k in sorted(set(found))
            if table.shape[k] == table.shape[axis] and np.array_equal(table, table.swapaxes(k, axis))
        )
        found.append(next(same, axis))
    return tuple(found)


def _singled_out(colour: list[int], one: int, two: int) -> list[int]:
    """Return the colours with two nodes in a colour of their own."""
    made = list(colour)
    made[one] = made[two] = max(colour) + 1
    return made


def _cells(colour: Sequence[int]) -> list[list[int]]:
    """Return the nodes of every colour that several have, in node order."""
    found: dict[int, list[int]] = {}
    for k, c in enumerate(colour):
        found.setdefault(c, []).append(k)
    return [cell for cell in found.values() if len(cell) > 1]
