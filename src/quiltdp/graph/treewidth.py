"""How wide a graph is: elimination orders by min-fill and min-degree, with a bound on the work.

Eliminating a node joins its neighbours to each other and removes it.  The width of an order is the
largest number of neighbours a node has when its turn comes; the treewidth is the smallest width of
any order.  Finding it is hard, so these are upper bounds from the two customary greedy rules.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from quiltdp.errors import InvalidArgument
from quiltdp.graph.types import DependencyGraph

__all__ = ["Elimination", "adjacency_lists", "eliminate", "treewidth_estimate"]

MAX_WORK = 20_000_000
"""Neighbour pairs looked at before an elimination gives up and takes the rest as one clique."""

MIN_FILL_NODES = 3_000
"""Up to this many nodes ``auto`` also tries min-fill, which is better and slower than min-degree."""


@dataclass(frozen=True)
class Elimination:
    """An order of elimination and its width.

    Attributes
    ----------
    order
        Every integer node once.
    width
        The width of the order: an upper bound on the treewidth.
    complete
        Whether the rule was followed to the end; if not, the last nodes of the order were taken as
        one clique, and ``width`` is still an upper bound.
    """

    order: tuple[int, ...]
    width: int
    complete: bool


def treewidth_estimate(graph: DependencyGraph, *, max_work: int = MAX_WORK) -> int:
    """Return an upper bound on the treewidth: 0 without edges, 1 for a forest, else the best order found.

    Examples
    --------
    >>> from quiltdp import DependencyGraph
    >>> treewidth_estimate(DependencyGraph("ABCD", [("A", "B"), ("B", "C"), ("C", "D"), ("D", "A")]))
    2
    """
    if graph.edge_count == len(graph) - graph.component_count:
        return min(1, graph.edge_count)
    return eliminate(adjacency_lists(graph), max_work=max_work).width


def adjacency_lists(graph: DependencyGraph) -> list[list[int]]:
    """Return the neighbours of every integer node."""
    ends = graph.indices.tolist()
    starts = graph.indptr.tolist()
    return [ends[a:b] for a, b in pairwise(starts)]


def eliminate(
    adjacency: Sequence[Collection[int]], *, rule: str = "auto", max_work: int = MAX_WORK
) -> Elimination:
    """Return a greedy elimination order of an integer graph.

    Parameters
    ----------
    adjacency
        For every node 0, 1, …, the nodes next to it; symmetric, without loops.
    rule
        ``"min-degree"`` (fewest neighbours first), ``"min-fill"`` (fewest new edges first), or
        ``"auto"``: min-degree, and where the graph is small min-fill too, the narrower of the two.
    max_work
        The number of neighbour pairs that may be looked at before giving up.

    Raises
    ------
    InvalidArgument
        On another rule.

    References
    ----------
    Bodlaender and Koster (2010), Treewidth computations I: upper bounds.

    Examples
    --------
    >>> eliminate([[1], [0, 2], [1]])
    Elimination(order=(0, 1, 2), width=1, complete=True)
    """
    if rule not in ("auto", "min-degree", "min-fill"):
        raise InvalidArgument(f"rule must be 'auto', 'min-degree' or 'min-fill', not {rule!r}")
    if rule == "min-fill":
        return _greedy(adjacency, _fill, 2, max_work)
    quick = _greedy(adjacency, _degree, 1, max_work)
    if rule == "min-degree" or len(adjacency) > MIN_FILL_NODES or quick.width < 2:
        return quick
    return min(quick, _greedy(adjacency, _fill, 2, max_work), key=lambda e: e.width)


def _degree(neighbors: list[set[int]], node: int) -> tuple[int, int]:
    """Return the number of neighbours, and the work it took to count them."""
    return len(neighbors[node]), 1


def _fill(neighbors: list[set[int]], node: int) -> tuple[int, int]:
    """Return the number of edges missing among the neighbours, and the work it took to count them."""
    around = neighbors[node]
    present = sum(len(around & neighbors[k]) for k in around)
    return (len(around) * (len(around) - 1) - present) // 2, len(around) ** 2 + 1


def _greedy(
    adjacency: Sequence[Collection[int]],
    score: Callable[[list[set[int]], int], tuple[int, int]],
    reach: int,
    max_work: int,
) -> Elimination:
    """Eliminate a node of the smallest score again and again.

    ``reach`` is how far an elimination may change scores: 1, its neighbours; 2, theirs too.
    """
    neighbors = [set(around) for around in adjacency]
    current = [-1] * len(neighbors)  # the score in force; heap entries with another one are stale
    heap: list[tuple[int, int]] = []
    work = 0
    for k in range(len(neighbors)):
        current[k], cost = score(neighbors, k)
        work += cost
        heap.append((current[k], k))
    heapq.heapify(heap)
    order: list[int] = []
    width = 0
    while heap:
        value, node = heapq.heappop(heap)
        if value != current[node]:
            continue
        left = len(neighbors) - len(order)
        if work > max_work or width >= left - 1:  # a clique of what is left is no wider, or must do
            rest = [k for k in range(len(neighbors)) if current[k] >= 0]
            return Elimination((*order, *rest), max(width, left - 1), width >= left - 1)
        around = neighbors[node]
        width = max(width, len(around))
        order.append(node)
        current[node] = -1
        work += _join(neighbors, node)
        touched = set(around)
        if reach == 2:
            touched.update(*(neighbors[k] for k in around))
        for k in touched:
            fresh, cost = score(neighbors, k)
            work += cost
            if fresh != current[k]:
                current[k] = fresh
                heapq.heappush(heap, (fresh, k))
    return Elimination(tuple(order), width, True)


def _join(neighbors: list[set[int]], node: int) -> int:
    """Take ``node`` out and join its neighbours; return the number of pairs looked at."""
    around = neighbors[node]
    for k in around:
        mine = neighbors[k]
        mine |= around
        mine.discard(k)
        mine.discard(node)
    return len(around) ** 2
