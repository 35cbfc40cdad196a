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


class _Limits(NamedTuple):
    nearby: int | None
    separator: int | None
    nodes: int | None


class _Branch(NamedTuple):
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
    *,
    max_nodes: int | None = None,
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
    max_nodes
        Keep quilts with at most this many nearby nodes, latents included.

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
    whole = as_graph(graph)
    start = frozenset([whole.position(target)])
    return _as_quilts(whole, start, _limits(max_nearby, max_separator, max_nodes))


def unit_quilts(
    graph: DependencyGraph,
    targets: Collection[str],
    max_nearby: int | None = None,
    max_separator: int | None = None,
    *,
    max_nodes: int | None = None,
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
    start = _start(graph, targets)
    return _as_quilts(graph, start, _limits(max_nearby, max_separator, max_nodes))


def _as_quilts(graph: DependencyGraph, start: frozenset[int], limits: _Limits) -> Iterator[Quilt]:
    """Yield the quilts of the sets that are grown from ``start``."""
    for closed, separator in _grown(graph, start, limits):
        yield Quilt._around(graph, start, closed, separator)


def _start(graph: DependencyGraph, targets: Collection[str]) -> frozenset[int]:
    start = frozenset(graph.position(n) for n in targets)
    if not start:
        raise InvalidArgument("the protected set is empty: name at least one target")
    return start


def _limits(nearby: int | None, separator: int | None, nodes: int | None) -> _Limits:
    for name, value in (("max_nearby", nearby), ("max_separator", separator), ("max_nodes", nodes)):
        if value is not None and value < 0:
            raise InvalidArgument(f"{name} must be 0 or more, not {value}")
    return _Limits(nearby, separator, nodes)


def _grown(
    graph: DependencyGraph, start: frozenset[int], limits: _Limits
) -> Iterator[tuple[frozenset[int], frozenset[int]]]:
    """Yield (C, ∂C) as integer sets, best first; the set without a boundary always comes."""
    trivial_came = False
    frontier = _Frontier(graph, len(start), limits)
    branch = _root(graph, start)
    while branch is not None:
        if not branch.boundary:
            trivial_came = True
            yield _whole(graph, start), branch.boundary
        elif limits.separator is None or len(branch.boundary) <= limits.separator:
            yield branch.closed, branch.boundary
        frontier.push(branch, 0)
        branch = frontier.pop()
    if not trivial_came:
        yield _whole(graph, start), frozenset()


class _Frontier:
    """The open branches, each with its next child, smallest child first."""

    def __init__(self, graph: DependencyGraph, start_size: int, limits: _Limits) -> None:
        self._graph = graph
        self._start_size = start_size
        self._limits = limits
        self._heap: list[tuple[int, int, int, _Branch, int]] = []
        self._tickets = count()  # equal sizes come first in, first out

    def push(self, branch: _Branch, j: int) -> None:
        """Queue the j-th child of a branch unless it, and so every later one, is beyond the limits."""
        if j >= len(branch.candidates):
            return
        records = branch.records + int(self._graph.record_mask[branch.candidates[j]])
        nodes = len(branch.closed) + 1 - self._start_size
        nearby, separator, most = self._limits
        if nearby is not None and records > nearby:
            return
        if most is not None and nodes > most:
            return
        # Nodes kept out are in the separator of every descendant.
        if separator is not None and branch.kept_out + j > separator:
            return
        heapq.heappush(self._heap, (records, nodes, next(self._tickets), branch, j))

    def pop(self) -> _Branch | None:
        """Return the smallest queued child and queue its next sibling in its place."""
        if not self._heap:
            return None
        _, _, _, parent, j = heapq.heappop(self._heap)
        self.push(parent, j + 1)
        return _child(self._graph, parent, j)


def _root(graph: DependencyGraph, start: frozenset[int]) -> _Branch | None:
    around = boundary(graph, start)
    return _Branch(start, around, 0, _ordered(graph, around), 0)


def _child(graph: DependencyGraph, parent: _Branch, j: int) -> _Branch:
    """Return the branch that takes the j-th candidate in and keeps the ones before it out."""
    taken = parent.candidates[j]
    closed = parent.closed | {taken}
    fresh = [k for k in graph.neighbor_positions(taken) if k not in closed and k not in parent.boundary]
    around = (parent.boundary - {taken}).union(fresh)
    candidates = _ordered(graph, (*parent.candidates[j + 1 :], *fresh))
    records = parent.records + int(graph.record_mask[taken])
    return _Branch(closed, around, parent.kept_out + j, candidates, records)


def _ordered(graph: DependencyGraph, candidates: Collection[int]) -> tuple[int, ...]:
    """Latents first: then a later sibling never has fewer records than an earlier one."""
    mask = graph.record_mask
    return tuple(sorted(candidates, key=lambda k: (bool(mask[k]), k)))


def _whole(graph: DependencyGraph, start: frozenset[int]) -> frozenset[int]:
    """Return every node of the targets' components: the graph's own set where it is one component."""
    labels = {int(graph.component_labels[k]) for k in start}
    if len(labels) == 1:
        return graph.component_members(next(iter(labels)))
    return frozenset().union(*(graph.component_members(k) for k in labels))
