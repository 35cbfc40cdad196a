"""A Markov quilt: target, separator, nearby, remote, checked at birth."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from quiltdp.errors import InvalidArgument, InvalidModel
from quiltdp.factor import Frozen
from quiltdp.graph.types import DependencyGraph
from quiltdp.printable import printable

if TYPE_CHECKING:
    from typing import Self


class Quilt(Frozen):
    """A Markov quilt: the separator Q keeps the target and the nearby nodes N apart from the remote rest R.

    Target, ``separator``, ``nearby`` and ``remote`` partition the nodes, and no edge joins the target or
    a nearby node to a remote one.  Both are checked at birth.  ``closed`` is C = target and nearby
    together.  A protected unit of several nodes has quilts too:
    :func:`~quiltdp.graph.quilts.unit_quilts`.

    Parameters
    ----------
    graph
        The graph the quilt lives in.
    target
        The record under attack.
    separator, nearby, remote
        The parts, as names.

    Raises
    ------
    InvalidModel
        If the parts overlap, miss a node, or an edge passes the separator; the message names it.
    UnknownNode
        If a part has a node that the graph does not have.

    Examples
    --------
    >>> from quiltdp.graph.quilt import Quilt
    >>> from quiltdp.graph.types import DependencyGraph
    >>> g = DependencyGraph("ABCD", [("A", "B"), ("B", "C"), ("C", "D")])
    >>> Quilt(g, "A", separator=["C"], nearby=["B"], remote=["D"])
    Quilt(A: separator {C}, nearby {B}, 1 remote)
    >>> Quilt(g, "A", separator=["C"], nearby=[], remote=["B", "D"])
    Traceback (most recent call last):
        ...
    quiltdp.errors.InvalidModel: the separator does not separate: the edge 'A' – 'B' joins the target's side to the remote nodes
    """  # noqa: E501 - the message is one line

    graph: DependencyGraph
    _targets: frozenset[int]
    _closed: frozenset[int]
    _separator: frozenset[int]

    def __init__(
        self,
        graph: DependencyGraph,
        target: str,
        separator: Collection[str],
        nearby: Collection[str],
        remote: Collection[str],
    ) -> None:
        named = {"targets": [target], "separator": separator, "nearby": nearby, "remote": remote}
        parts = {part: frozenset(map(graph.position, names)) for part, names in named.items()}
        _check_partition(graph, parts)
        closed = parts["targets"] | parts["nearby"]
        passing = _find_crossing_edge(graph, closed, parts["separator"])
        if passing is not None:
            inside, outside = (graph.nodes[k] for k in passing)
            raise InvalidModel(
                f"the separator does not separate: the edge {inside!r} – {outside!r} joins"
                " the target's side to the remote nodes"
            )
        self._set_fields(graph, parts["targets"], closed, parts["separator"])

    def _set_fields(
        self,
        graph: DependencyGraph,
        targets: frozenset[int],
        closed: frozenset[int],
        separator: frozenset[int],
    ) -> None:
        self.__dict__.update(graph=graph, _targets=targets, _closed=closed, _separator=separator)

    @classmethod
    def _from_boundary(
        cls,
        graph: DependencyGraph,
        targets: frozenset[int],
        closed: frozenset[int],
        separator: frozenset[int],
    ) -> Self:
        """Make the quilt (∂C, C without targets, everything else), checking that separator = ∂C.

        That is a check of the edges that leave C only, so its cost does not grow with the graph: C, ∂C and
        the complement partition the nodes by construction.  Nothing leaves whole components, the trivial
        quilt, and their sets are shared, not copied.
        """
        if separator and not (targets <= closed and separator == boundary(graph, closed)):
            raise InvalidModel("the separator is not the boundary of a closed set around the targets")
        quilt = cls.__new__(cls)
        quilt._set_fields(graph, targets, closed, separator)
        return quilt

    @classmethod
    def within(cls, graph: DependencyGraph, target: str, separator: Collection[str]) -> Self:
        """Return the quilt of ``target`` whose nearby nodes are those it reaches without the separator.

        Examples
        --------
        >>> from quiltdp.graph.types import DependencyGraph
        >>> g = DependencyGraph("ABCD", [("A", "B"), ("B", "C"), ("C", "D")])
        >>> Quilt.within(g, "A", ["C"])
        Quilt(A: separator {C}, nearby {B}, 1 remote)
        """
        start, around = graph.position(target), frozenset(map(graph.position, separator))
        if not around:
            members = graph.component_members(int(graph.component_labels[start]))
            return cls._from_boundary(graph, frozenset([start]), members, around)
        closed = {start}
        waiting = [start]
        while waiting:
            fresh = {*graph.neighbor_positions(waiting.pop())} - around - closed
            closed |= fresh
            waiting += fresh
        return cls._from_boundary(graph, frozenset([start]), frozenset(closed), around)

    # -- the parts, named on demand ------------------------------------------------------------

    @cached_property
    def targets(self) -> frozenset[str]:
        """The protected nodes."""
        return self.graph.names(self._targets)

    @cached_property
    def target(self) -> str:
        """The record under attack."""
        if len(self._targets) > 1:
            raise InvalidArgument(
                f"this quilt protects {_join_names(self.targets)} together: ask for its targets"
            )
        return self.graph.nodes[next(iter(self._targets))]

    @cached_property
    def separator(self) -> frozenset[str]:
        """Q: the nodes that separate the targets from the remote ones."""
        return self.graph.names(self._separator)

    @cached_property
    def nearby(self) -> frozenset[str]:
        """N: the nodes on the targets' side of the separator, without the targets."""
        return self.graph.names(self._closed - self._targets)

    @cached_property
    def closed(self) -> frozenset[str]:
        """C: the targets and the nearby nodes."""
        return self.graph.names(self._closed)

    @cached_property
    def remote(self) -> frozenset[str]:
        """R: everything beyond the separator (named when first asked for)."""
        near = self._closed | self._separator
        return self.graph.names(k for k in range(len(self.graph)) if k not in near)

    # -- sizes, counting records ---------------------------------------------------------------

    @property
    def nearby_records(self) -> int:
        """The number of nearby records; latents are not counted."""
        return self.closed_records - _count_records(self.graph, self._targets)

    @cached_property
    def closed_records(self) -> int:
        """The number of records in C: what the quilt costs in units of α."""
        if self.is_trivial and self._closed is self.graph.component_members(self._component_label):
            return int(self.graph.component_record_counts[self._component_label])
        return _count_records(self.graph, self._closed)

    @property
    def is_trivial(self) -> bool:
        """Whether the separator is empty."""
        return not self._separator

    @property
    def _component_label(self) -> int:
        return int(self.graph.component_labels[next(iter(self._targets))])

    def __eq__(self, other: object) -> bool:
        """Equal parts of equal graphs."""
        if not isinstance(other, Quilt):
            return NotImplemented
        return (
            self._targets == other._targets
            and self._closed == other._closed
            and self._separator == other._separator
            and self.graph == other.graph
        )

    def __hash__(self) -> int:
        """Hash by the parts."""
        return hash((self._targets, self._closed, self._separator))

    def __repr__(self) -> str:
        """Show the parts, the remote one by its size."""
        remote = len(self.graph) - len(self._closed) - len(self._separator)
        return (
            f"{type(self).__name__}({_join_names(self.targets, braces=len(self._targets) > 1)}:"
            f" separator {_join_names(self.separator)}, nearby {_join_names(self.nearby)}, {remote} remote)"
        )


def boundary(graph: DependencyGraph, closed: Iterable[int]) -> frozenset[int]:
    """Return ∂C: the integer nodes outside C with a neighbour inside."""
    inside = frozenset(closed)
    around: set[int] = set()
    for k in inside:
        around.update(graph.neighbor_positions(k))
    return frozenset(around - inside)


def _check_partition(graph: DependencyGraph, parts: dict[str, frozenset[int]]) -> None:
    owner: dict[int, str] = {}
    for part, members in parts.items():
        for k in members:
            if k in owner:
                raise InvalidModel(
                    f"node {graph.nodes[k]!r} is in two parts of the quilt: {owner[k]}, {part}"
                )
            owner[k] = part
    if len(owner) < len(graph):
        missing = next(k for k in range(len(graph)) if k not in owner)
        raise InvalidModel(f"node {graph.nodes[missing]!r} is in no part of the quilt")


def _find_crossing_edge(
    graph: DependencyGraph, closed: frozenset[int], separator: frozenset[int]
) -> tuple[int, int] | None:
    """Return an edge from C to a node that is neither in C nor in the separator, if there is one."""
    for k in sorted(closed):
        for j in graph.neighbor_positions(k):
            if j not in closed and j not in separator:
                return k, j
    return None


def _count_records(graph: DependencyGraph, members: Iterable[int]) -> int:
    mask = graph.record_mask
    return sum(1 for k in members if mask[k])


def _join_names(names: Collection[str], braces: bool = True) -> str:
    listed = sorted(names)
    text = ", ".join(listed[:8]) + (f", … {len(listed) - 8} more" if len(listed) > 8 else "")
    return printable(f"{{{text}}}" if braces else text)
