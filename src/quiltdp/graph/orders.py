"""Elimination orders: the one greedy routine, and how wide a graph is by it.

Eliminating a node joins its neighbours to each other and removes it.  What is eliminated first
decides how large the tables (the cliques) on the way become; finding the best order is hard, so the
cheapest node is taken again and again, by one of the customary rules.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

from quiltdp.graph.types import DependencyGraph

MAX_WORK = 20_000_000
"""Neighbour pairs looked at before an estimate of the width takes the rest as one clique."""

MIN_FILL_NODES = 3_000
"""Up to this many nodes min-fill is tried too, which is better and slower than min-degree."""

RULES = ("degree", "size", "fill", "lazy fill", "weighted fill", "size, fill")
"""What comes first: the fewest neighbours; the smallest table; the fewest new edges (*lazy*: counted again
for the neighbours of an eliminated node only; *weighted*: by the states they join); or the smallest table
and among equals the fewest new edges."""

_Node = TypeVar("_Node", bound=Hashable)


def greedy_elimination(
    scopes: Iterable[Collection[_Node]],
    sizes: Mapping[_Node, int],
    *,
    nodes: Collection[_Node] | None = None,
    rule: str = "size",
    stop_at: int | None = None,
) -> Iterator[tuple[_Node, frozenset[_Node]]]:
    """Yield nodes in the order of a greedy elimination, each with its neighbours when its turn comes.

    Parameters
    ----------
    scopes
        The nodes that stand in a table together.
    sizes
        The number of states of every node; ties go to the node that is named first.
    nodes
        The nodes to eliminate; default: all.
    rule
        One of :data:`RULES`.  No rule is best on all graphs.
    stop_at
        A node whose table would have more entries is left in.

    References
    ----------
    Bodlaender and Koster (2010), Treewidth computations I: upper bounds.

    Examples
    --------
    >>> [(n, sorted(near)) for n, near in greedy_elimination(["AB", "BC"], {"A": 2, "B": 2, "C": 2})]
    [('A', ['B']), ('B', ['C']), ('C', [])]
    """
    near: dict[_Node, set[_Node]] = {n: set() for n in sizes}
    for scope in scopes:
        for n in scope:
            near[n].update(scope)
    for n, others in near.items():
        others.discard(n)
    rank = {n: k for k, n in enumerate(sizes)}
    weight = {n: math.log2(k) if k > 1 else 1e-9 for n, k in sizes.items()}

    def log_size(n: _Node) -> float:  # log2 of them; fsum does not depend on the order of a set
        return math.fsum([weight[n], *[weight[m] for m in near[n]]])

    def fill_in(n: _Node) -> int:
        around = near[n]
        if rule == "weighted fill":
            return sum([sizes[m] * (sum([sizes[k] for k in around - near[m]]) - sizes[m]) for m in around])
        return sum([len(around) - 1 - len(near[m] & around) for m in around])

    def elimination_cost(n: _Node) -> tuple[float, float, int]:
        if rule == "degree":
            return (len(near[n]), 0, rank[n])
        if rule.startswith("size"):
            return (log_size(n), fill_in(n) if rule == "size, fill" else 0, rank[n])
        return (fill_in(n), log_size(n), rank[n])

    costs = {n: elimination_cost(n) for n in (sizes if nodes is None else nodes)}
    names = list(sizes)
    heap = list(costs.values())
    heapq.heapify(heap)
    while heap:
        least = heapq.heappop(heap)
        n = names[least[2]]
        if costs.get(n) != least:
            continue  # an entry from before a neighbour was eliminated
        del costs[n]
        if stop_at is not None and sizes[n] * math.prod([sizes[m] for m in near[n]]) > stop_at:
            continue
        adjacent = near.pop(n)
        yield n, frozenset(adjacent)
        for m in adjacent:
            near[m].discard(n)
            near[m].update(adjacent)
            near[m].discard(m)
        touched = adjacent
        if rule not in (
            "degree",
            "size",
            "lazy fill",
        ):  # new edges may have filled in what others were missing
            touched = adjacent.union(*[near[m] for m in adjacent])
        for m in touched:
            if m in costs:
                fresh = elimination_cost(m)
                if fresh != costs[m]:
                    costs[m] = fresh
                    heapq.heappush(heap, fresh)


def treewidth_estimate(graph: DependencyGraph, *, max_work: int = MAX_WORK) -> int:
    """Return an upper bound on the treewidth: 0 without edges, 1 for a forest, else the best order found.

    By min-degree, and where the graph is small by min-fill too; after ``max_work`` neighbour pairs the nodes
    that are left are taken as one clique.

    Examples
    --------
    >>> from quiltdp.graph.types import DependencyGraph
    >>> treewidth_estimate(DependencyGraph("ABCD", [("A", "B"), ("B", "C"), ("C", "D"), ("D", "A")]))
    2
    """
    if graph.edge_count == len(graph) - graph.component_count:
        return min(1, graph.edge_count)
    rules = ("degree", "fill") if len(graph) <= MIN_FILL_NODES else ("degree",)
    return min(_width_by_rule(graph, rule, max_work) for rule in rules)


def _width_by_rule(graph: DependencyGraph, rule: str, max_work: int) -> int:
    """Follow a rule until a clique of what is left is no wider, or the work is spent."""
    left, work, width = len(graph), graph.edge_count, 0
    for _, around in greedy_elimination(graph.edges(), dict.fromkeys(graph.nodes, 2), rule=rule):
        if work > max_work or width >= left - 1:
            return max(width, left - 1)
        left -= 1
        width = max(width, len(around))
        work += (len(around) + 1) ** (2 if rule == "degree" else 3)
    return width
