"""The dependency graph: immutable, undirected, integer adjacency inside, node names outside."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from quiltdp import edges
from quiltdp.errors import InvalidArgument, InvalidModel, UnknownNode
from quiltdp.factor import Frozen
from quiltdp.graph.components import connected_components

if TYPE_CHECKING:
    import networkx as nx

Ints: TypeAlias = NDArray[np.int64]


class DependencyGraph(Frozen):
    """An undirected graph over named nodes, some of them records.

    Two nodes are joined when some table of the model contains both, so a set of nodes that
    separates two others in this graph makes them independent given its values.  Inside, nodes are
    the integers 0, 1, …, n − 1 and the neighbours of node k are
    ``indices[indptr[k]:indptr[k + 1]]``, sorted (compressed sparse rows), so that a million nodes
    are a few arrays.

    Parameters
    ----------
    nodes
        The node names, all different.
    edges
        Pairs of names; repeated pairs count once.
    records
        The nodes that are rows of the database; default: all of them.

    Raises
    ------
    InvalidModel
        On a repeated node, an edge from a node to itself, or no node at all.
    UnknownNode
        On an edge or a record that is not among the nodes.

    Examples
    --------
    >>> from quiltdp.graph.types import DependencyGraph
    >>> g = DependencyGraph("ABC", [("A", "B"), ("B", "C")])
    >>> sorted(g.neighbors("B")), g.degree("A"), len(g)
    (['A', 'C'], 1, 3)
    """

    nodes: Sequence[str]
    index: Mapping[str, int]
    indptr: Ints
    indices: Ints
    record_mask: NDArray[np.bool_]

    def __init__(
        self,
        nodes: Iterable[str],
        edges: Iterable[tuple[str, str]] = (),
        records: Collection[str] | None = None,
    ) -> None:
        names = tuple(nodes)
        index = {n: k for k, n in enumerate(names)}
        if len(index) < len(names):
            twice = next(n for k, n in enumerate(names) if index[n] != k)
            raise InvalidModel(f"node {twice!r} appears twice in the graph")
        pairs = [(_look_up_position(index, a), _look_up_position(index, b)) for a, b in edges]
        mask = np.ones(len(names), dtype=np.bool_)
        if records is not None:
            mask[:] = False
            mask[[_look_up_position(index, n) for n in records]] = True
        self._set_fields(names, index, np.array(pairs, dtype=np.int64).reshape(-1, 2), mask)

    @classmethod
    def from_pairs(
        cls,
        nodes: Sequence[str],
        index: Mapping[str, int],
        pairs: Ints,
        record_mask: NDArray[np.bool_],
        drawn: Ints | None = None,
    ) -> DependencyGraph:
        """Build from integer pairs; ``drawn`` are the edges of the network whose moral graph it is."""
        graph = cls.__new__(cls)
        graph._set_fields(nodes, index, pairs, record_mask, drawn)
        return graph

    @classmethod
    def from_networkx(cls, graph: nx.Graph, records: Collection[str] | None = None) -> DependencyGraph:
        """Build from an undirected networkx graph; names are strings.

        ``records`` are by default the nodes whose attribute ``record`` is not false.  A directed graph is
        refused: what depends on what is its moral graph, see :func:`quiltdp.moralize`.

        Examples
        --------
        >>> import networkx as nx
        >>> from quiltdp.graph.types import DependencyGraph
        >>> DependencyGraph.from_networkx(nx.path_graph(["A", "B", "C"])).neighbors("A")
        frozenset({'B'})
        """
        if graph.is_directed():
            raise InvalidArgument("a directed graph says who follows whom: moralize() it first")
        for n in graph:
            if not isinstance(n, str):
                raise InvalidModel(f"a node's name must be a string, not {n!r}: see networkx.relabel_nodes")
        chosen = [n for n, kept in graph.nodes(data="record", default=True) if kept]
        return cls(graph.nodes, graph.edges(), chosen if records is None else records)

    def plot(self, *, highlight: Any = None, ax: Any = None) -> Any:
        """Draw the graph, with the parts of the quilt ``highlight`` in colour; return matplotlib axes."""
        return edges.plot_graph(self, highlight=highlight, ax=ax)

    def to_networkx(self) -> nx.Graph:
        """Return the graph as networkx has it; the attribute ``record`` says which nodes are records.

        Examples
        --------
        >>> from quiltdp.graph.types import DependencyGraph
        >>> g = DependencyGraph("ABC", [("A", "B"), ("B", "C")], records="AC").to_networkx()
        >>> sorted(g.edges), g.nodes["B"]
        ([('A', 'B'), ('B', 'C')], {'record': False})
        """
        import networkx as nx

        made = nx.Graph()
        made.add_nodes_from(
            (n, {"record": bool(r)}) for n, r in zip(self.nodes, self.record_mask, strict=True)
        )
        made.add_edges_from(self.edges())
        return made

    def _set_fields(
        self,
        nodes: Sequence[str],
        index: Mapping[str, int],
        pairs: Ints,
        record_mask: NDArray[np.bool_],
        drawn: Ints | None = None,
    ) -> None:
        n = len(nodes)
        if not n:
            raise InvalidModel("the graph has no nodes")
        loops = pairs[:, 0] == pairs[:, 1]
        if loops.any():
            raise InvalidModel(f"node {nodes[int(pairs[loops][0, 0])]!r} has an edge to itself")
        indptr, indices = _compressed_rows(pairs, n)
        mask = np.array(record_mask, dtype=np.bool_)
        for array in (indptr, indices, mask):
            array.flags.writeable = False
        self.__dict__.update(nodes=nodes, index=index, indptr=indptr, indices=indices, record_mask=mask)
        self.__dict__["_drawn"] = drawn

    # -- by name -----------------------------------------------------------------------------

    @cached_property
    def records(self) -> Sequence[str]:
        """The nodes that are rows of the database, in node order."""
        if self.record_mask.all():
            return self.nodes
        return tuple(self.nodes[k] for k in np.flatnonzero(self.record_mask).tolist())

    def is_record(self, node: str) -> bool:
        """Return whether ``node`` is a row of the database."""
        return bool(self.record_mask[self.position(node)])

    def position(self, node: str) -> int:
        """Return the integer of ``node``, or raise :class:`UnknownNode`."""
        return _look_up_position(self.index, node)

    def names(self, positions: Iterable[int]) -> frozenset[str]:
        """Return the names of integer nodes."""
        return frozenset(self.nodes[k] for k in positions)

    def neighbors(self, node: str) -> frozenset[str]:
        """Return the nodes that share a table with ``node``."""
        return self.names(self.neighbor_positions(self.position(node)))

    def neighbor_positions(self, position: int) -> list[int]:
        """Return the neighbours of an integer node, sorted."""
        found: list[int] = self.indices[self.indptr[position] : self.indptr[position + 1]].tolist()
        return found

    def degree(self, node: str) -> int:
        """Return the number of neighbours of ``node``."""
        k = self.position(node)
        return int(self.indptr[k + 1] - self.indptr[k])

    def edges(self) -> Iterator[tuple[str, str]]:
        """Yield every edge once, as a pair of names in node order."""
        sources = np.repeat(np.arange(len(self)), np.diff(self.indptr))
        once = sources < self.indices
        for a, b in zip(sources[once].tolist(), self.indices[once].tolist(), strict=True):
            yield self.nodes[a], self.nodes[b]

    @property
    def joined(self) -> tuple[tuple[str, str], ...]:
        """The edges that moralization added between parents of one child; none in other graphs."""
        drawn: Ints | None = self.__dict__["_drawn"]
        if drawn is None:
            return ()
        known = {(min(pair), max(pair)) for pair in drawn.tolist()}
        return tuple((a, b) for a, b in self.edges() if (self.index[a], self.index[b]) not in known)

    @property
    def edge_count(self) -> int:
        """The number of edges."""
        return len(self.indices) // 2

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self.nodes)

    def __contains__(self, node: object) -> bool:
        """Return whether the graph has ``node``."""
        return node in self.index

    def __eq__(self, other: object) -> bool:
        """Equal nodes in equal order, equal records, equal edges."""
        if not isinstance(other, DependencyGraph):
            return NotImplemented
        return self is other or (
            len(self) == len(other)
            and np.array_equal(self.indptr, other.indptr)
            and np.array_equal(self.indices, other.indices)
            and np.array_equal(self.record_mask, other.record_mask)
            and all(a == b for a, b in zip(self.nodes, other.nodes, strict=True))
        )

    def __hash__(self) -> int:
        """Hash by size (the rest is compared on equality only)."""
        return hash((len(self), len(self.indices)))

    def __repr__(self) -> str:
        """Say how large it is."""
        return f"<dependency graph: {len(self)} nodes, {self.edge_count} edges>"

    # -- components --------------------------------------------------------------------------

    def components(self) -> tuple[frozenset[str], ...]:
        """Return the connected components, by their first node."""
        return tuple(self.names(self.component_members(k)) for k in range(self.component_count))

    @property
    def component_count(self) -> int:
        """The number of connected components."""
        return int(self.component_labels.max()) + 1

    @cached_property
    def component_labels(self) -> Ints:
        """The component of every integer node; components are numbered by their first node."""
        pairs = np.stack((np.repeat(np.arange(len(self)), np.diff(self.indptr)), self.indices), axis=1)
        labels = connected_components(len(self), pairs[pairs[:, 0] < pairs[:, 1]])
        labels.flags.writeable = False
        return labels

    @cached_property
    def component_record_counts(self) -> Ints:
        """The number of records in every component."""
        counts: Ints = np.bincount(
            self.component_labels[self.record_mask], minlength=self.component_count
        ).astype(np.int64)
        counts.flags.writeable = False
        return counts

    def component_members(self, label: int) -> frozenset[int]:
        """Return the integer nodes of a component, one shared object however often it is asked for."""
        made = self._member_cache.get(label)
        if made is None:
            order, starts = self._nodes_by_component
            made = frozenset(order[starts[label] : starts[label + 1]].tolist())
            self._member_cache[label] = made
        return made

    @cached_property
    def _member_cache(self) -> dict[int, frozenset[int]]:
        return {}

    @cached_property
    def _nodes_by_component(self) -> tuple[Ints, Ints]:
        order = np.argsort(self.component_labels, kind="stable")
        sizes = np.bincount(self.component_labels)
        return order, np.concatenate(([0], np.cumsum(sizes)))

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the graph without what can be computed again."""
        return {k: self.__dict__[k] for k in ("nodes", "index", "indptr", "indices", "record_mask", "_drawn")}


def _look_up_position(index: Mapping[str, int], node: str) -> int:
    try:
        return index[node]
    except KeyError:
        raise UnknownNode(f"node {node!r} is not in the graph") from None


def _compressed_rows(pairs: Ints, n: int) -> tuple[Ints, Ints]:
    """Return ``indptr, indices`` of the undirected graph with these pairs, each edge once per end."""
    both = np.concatenate((pairs, pairs[:, ::-1]))
    keys = np.sort(both[:, 0] * n + both[:, 1], kind="stable")
    keys = keys[np.diff(keys, prepend=-1) > 0]
    sources, targets = np.divmod(keys, n)
    indptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(sources, minlength=n), out=indptr[1:])
    return indptr, targets
