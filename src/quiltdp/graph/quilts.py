"""Listing the Markov quilts of a record, smallest first, by growing connected sets.

With the remote part as large as possible (always the best choice), the quilts of a target i are
exactly the boundaries of the connected sets C that contain i: separator ∂C, nearby C without i.
So connected sets are enumerated, not subsets.

The search tree.  A node of the tree is a pair (C, X): X are nodes next to C that shall stay out for
good.  Its children take the candidates v₁, …, v_k of ∂C∖X in turn: the j-th child is
(C ∪ {v_j}, X ∪ {v₁, …, v_{j−1}}).  Every connected set is met once.  A heap holds for every open
(C, X) only its next child, in the order of (nearby records, nodes), so sets come out smallest first
and the heap never holds more than twice what was given out.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator
from itertools import count
from typing import Any, NamedTuple

from quiltdp.errors import InvalidArgument
from quiltdp.graph.moral import as_graph
from quiltdp.graph.quilt import Quilt, boundary
from quiltdp.graph.types import DependencyGraph


class _SearchNode(NamedTuple):
    """An open node (C, X) of the search tree."""

    closed: frozenset[int]
    boundary: frozenset[int]
    kept_out: int  # |X|
    candidates: tuple[int, ...]  # ∂C∖X, latents before records
    records: int  # nearby ones, in C without the targets


def markov_blanket(graph: Any, node: str) -> frozenset[str]:
    """Return the Markov blanket: the nodes next to ``node``, the separator of its smallest quilt.

    Examples
    --------
    >>> from quiltdp import markov_blanket
    >>> from quiltdp.graph.types import DependencyGraph
    >>> g = DependencyGraph("ABCD", [("A", "B"), ("B", "C"), ("C", "D")])
    >>> sorted(markov_blanket(g, "B"))
    ['A', 'C']
    """
    return as_graph(graph).neighbors(node)


def quilts(
    graph: Any,
    target: str,
    max_nearby: int | None = None,
    max_separator: int | None = None,
) -> Iterator[Quilt]:
    """Yield every Markov quilt of ``target`` exactly once, smallest nearby set first.

    Claim: the quilts of i with the largest possible remote part are the triples
    (∂C, C∖{i}, V∖C∖∂C) for the connected sets C that contain i.

    Parameters
    ----------
    graph
        The dependency graph, an undirected networkx graph, or a model, which is moralized.
    target
        The record under attack.
    max_nearby
        Keep quilts with at most this many nearby *records*; latents are not counted.
    max_separator
        Keep quilts whose separator has at most this many nodes, latents included (each is an axis
        of the quilt's influence table).

    Yields
    ------
    Quilt
        In order of nearby records, then of nearby nodes.  The trivial quilt (the target's whole
        component, empty separator) is always among them; where it exceeds a limit it comes last.

    Raises
    ------
    UnknownNode
        If the graph has no such target.
    InvalidArgument
        If a limit is negative.

    References
    ----------
    Song, Wang and Chaudhuri (2017), Pufferfish privacy mechanisms for correlated data,
    definition 4.2 (Markov quilt).

    Examples
    --------
    >>> from quiltdp import quilts
    >>> from quiltdp.graph.types import DependencyGraph
    >>> g = DependencyGraph("ABCD", [("A", "B"), ("B", "C"), ("C", "D")])
    >>> for q in quilts(g, "A", max_nearby=1):
    ...     print(q)
    Quilt(A: separator {B}, nearby {}, 2 remote)
    Quilt(A: separator {C}, nearby {B}, 1 remote)
    Quilt(A: separator {}, nearby {B, C, D}, 0 remote)
    """
    return unit_quilts(as_graph(graph), [target], max_nearby, max_separator)


def unit_quilts(
    graph: DependencyGraph,
    targets: Collection[str],
    max_nearby: int | None = None,
    max_separator: int | None = None,
) -> Iterator[Quilt]:
    """Yield every quilt of a protected set of targets exactly once, smallest nearby set first.

    The sets C ⊇ targets whose every component meets the targets, with separator ∂C; otherwise as
    :func:`quilts`.  The trivial one takes the whole component of every target.

    Examples
    --------
    >>> from quiltdp.graph.types import DependencyGraph
    >>> from quiltdp.graph.quilts import unit_quilts
    >>> g = DependencyGraph("ABCDE", [("A", "B"), ("B", "C"), ("C", "D"), ("D", "E")])
    >>> for q in unit_quilts(g, ["A", "D"], max_nearby=1):
    ...     print(sorted(q.closed), sorted(q.separator))
    ['A', 'D'] ['B', 'C', 'E']
    ['A', 'B', 'D'] ['C', 'E']
    ['A', 'C', 'D'] ['B', 'E']
    ['A', 'D', 'E'] ['B', 'C']
    ['A', 'B', 'C', 'D', 'E'] []
    """
    start = frozenset(graph.position(n) for n in targets)
    if not start:
        raise InvalidArgument("the protected set is empty: name at least one target")
    for name, value in (("max_nearby", max_nearby), ("max_separator", max_separator)):
        if value is not None and value < 0:
            raise InvalidArgument(f"{name} must be 0 or more, not {value}")
    sets = _grow_connected_sets(graph, start, max_nearby, max_separator)
    return (Quilt._from_boundary(graph, start, closed, separator) for closed, separator in sets)


def _grow_connected_sets(
    graph: DependencyGraph, start: frozenset[int], max_nearby: int | None, max_separator: int | None
) -> Iterator[tuple[frozenset[int], frozenset[int]]]:
    """Yield (C, ∂C) as integer sets, best first; the set without a boundary always comes."""
    trivial_came = False
    queue = _SearchQueue(graph, len(start), max_nearby, max_separator)
    branch = _root_node(graph, start)
    while branch is not None:
        if not branch.boundary:
            trivial_came = True
            yield _whole_components(graph, start), branch.boundary
        elif max_separator is None or len(branch.boundary) <= max_separator:
            yield branch.closed, branch.boundary
        queue.push_child(branch, 0)
        branch = queue.pop_smallest()
    if not trivial_came:
        yield _whole_components(graph, start), frozenset()


class _SearchQueue:
    """The open branches, each with its next child, smallest child first."""

    def __init__(
        self, graph: DependencyGraph, start_size: int, max_nearby: int | None, max_separator: int | None
    ) -> None:
        self._graph = graph
        self._start_size = start_size
        self._max_nearby, self._max_separator = max_nearby, max_separator
        self._heap: list[tuple[int, int, int, _SearchNode, int]] = []
        self._tickets = count()  # equal sizes come first in, first out

    def push_child(self, branch: _SearchNode, j: int) -> None:
        """Queue the j-th child of a branch unless it, and so every later one, is beyond the limits."""
        if j >= len(branch.candidates):
            return
        records = branch.records + int(self._graph.record_mask[branch.candidates[j]])
        nodes = len(branch.closed) + 1 - self._start_size
        if self._max_nearby is not None and records > self._max_nearby:
            return
        # Nodes kept out are in the separator of every descendant.
        if self._max_separator is not None and branch.kept_out + j > self._max_separator:
            return
        heapq.heappush(self._heap, (records, nodes, next(self._tickets), branch, j))

    def pop_smallest(self) -> _SearchNode | None:
        """Return the smallest queued child and queue its next sibling in its place."""
        if not self._heap:
            return None
        _, _, _, parent, j = heapq.heappop(self._heap)
        self.push_child(parent, j + 1)
        return _child_node(self._graph, parent, j)


def _root_node(graph: DependencyGraph, start: frozenset[int]) -> _SearchNode | None:
    around = boundary(graph, start)
    return _SearchNode(start, around, 0, _latents_first(graph, around), 0)


def _child_node(graph: DependencyGraph, parent: _SearchNode, j: int) -> _SearchNode:
    """Return the branch that takes the j-th candidate in and keeps the ones before it out."""
    taken = parent.candidates[j]
    closed = parent.closed | {taken}
    fresh = [k for k in graph.neighbor_positions(taken) if k not in closed and k not in parent.boundary]
    around = (parent.boundary - {taken}).union(fresh)
    candidates = _latents_first(graph, (*parent.candidates[j + 1 :], *fresh))
    records = parent.records + int(graph.record_mask[taken])
    return _SearchNode(closed, around, parent.kept_out + j, candidates, records)


def _latents_first(graph: DependencyGraph, candidates: Collection[int]) -> tuple[int, ...]:
    """Latents first: then a later sibling never has fewer records than an earlier one."""
    mask = graph.record_mask
    return tuple(sorted(candidates, key=lambda k: (bool(mask[k]), k)))


def _whole_components(graph: DependencyGraph, start: frozenset[int]) -> frozenset[int]:
    """Return every node of the targets' components: the graph's own set where it is one component."""
    labels = {int(graph.component_labels[k]) for k in start}
    if len(labels) == 1:
        return graph.component_members(next(iter(labels)))
    return frozenset().union(*(graph.component_members(k) for k in labels))
