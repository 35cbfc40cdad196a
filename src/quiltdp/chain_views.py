"""Nodes, states and factors of Markov chains, computed on demand from prefix and step."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, overload

from quiltdp.factor import Factor

if TYPE_CHECKING:
    from quiltdp.chain import ChainSegment

_NODE = re.compile(r"(.*\D)(0|[1-9][0-9]{0,17})", re.DOTALL | re.ASCII)


class ChainNodes(Sequence[str]):
    """The node names ``prefix + str(t)``, computed."""

    def __init__(self, segments: tuple[ChainSegment, ...]) -> None:
        self.segments = segments
        self.starts = [0, *accumulate(s.length for s in segments)]
        self._segment_by_prefix = {s.prefix: k for k, s in enumerate(segments)}

    def __len__(self) -> int:
        return self.starts[-1]

    @overload
    def __getitem__(self, key: int) -> str: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[str]: ...
    def __getitem__(self, key: int | slice) -> str | Sequence[str]:
        if isinstance(key, slice):
            return tuple(self[k] for k in range(*key.indices(len(self))))
        k, t = self.locate_position(range(len(self))[key])
        return f"{self.segments[k].prefix}{t}"

    def __iter__(self) -> Iterator[str]:
        for s in self.segments:
            for t in range(s.length):
                yield f"{s.prefix}{t}"

    def locate_position(self, position: int) -> tuple[int, int]:
        """Return (segment, step) of a position."""
        k = bisect_right(self.starts, position) - 1
        return k, position - self.starts[k]

    def locate_node(self, node: object) -> tuple[int, int]:
        """Return (segment, step) of a name, or raise ``KeyError``."""
        match = _NODE.fullmatch(node) if isinstance(node, str) else None
        if match is not None:
            k = self._segment_by_prefix.get(match[1])
            if k is not None and int(match[2]) < self.segments[k].length:
                return k, int(match[2])
        raise KeyError(node)

    def __contains__(self, node: object) -> bool:
        try:
            self.locate_node(node)
        except KeyError:
            return False
        return True

    def position(self, node: str) -> int:
        """Return the position of a name, or raise ``KeyError``."""
        k, t = self.locate_node(node)
        return int(self.starts[k]) + t

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """Return the position of a name."""
        if value not in self:
            raise ValueError(f"{value!r} is not a node")
        return self.position(value)


class ChainMapping(Mapping[str, Any]):
    """A mapping whose keys are the nodes of chains."""

    def __init__(self, nodes: ChainNodes) -> None:
        self._nodes = nodes

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __contains__(self, node: object) -> bool:
        return node in self._nodes


class ChainIndex(ChainMapping):
    """The position of every node."""

    def __getitem__(self, node: str) -> int:
        return self._nodes.position(node)


class ChainFactorsOf(ChainMapping):
    """For every node, the positions of the tables that contain it."""

    def __getitem__(self, node: str) -> tuple[int, ...]:
        k, t = self._nodes.locate_node(node)
        position = int(self._nodes.starts[k]) + t
        return (position, position + 1) if t + 1 < self._nodes.segments[k].length else (position,)


class ChainStates(ChainMapping):
    """The state names of every node."""

    def __init__(self, nodes: ChainNodes, names: tuple[str, ...] | None) -> None:
        super().__init__(nodes)
        self._names = names
        self._default_names: dict[int, tuple[str, ...]] = {}

    def __getitem__(self, node: str) -> tuple[str, ...]:
        k, t = self._nodes.locate_node(node)
        if self._names is not None:
            return self._names
        size = self._nodes.segments[k].cardinality(t)
        if size not in self._default_names:
            self._default_names[size] = tuple(str(x) for x in range(size))
        return self._default_names[size]


class ChainFactors(Sequence[Factor]):
    """One factor per node: the initial law of each segment, then its transitions."""

    def __init__(self, nodes: ChainNodes) -> None:
        self._nodes = nodes

    def __len__(self) -> int:
        return len(self._nodes)

    @overload
    def __getitem__(self, key: int) -> Factor: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[Factor]: ...
    def __getitem__(self, key: int | slice) -> Factor | Sequence[Factor]:
        if isinstance(key, slice):
            return tuple(self[k] for k in range(*key.indices(len(self))))
        k, t = self._nodes.locate_position(range(len(self))[key])
        return self._make_factor(self._nodes.segments[k], t)

    def __iter__(self) -> Iterator[Factor]:
        for s in self._nodes.segments:
            for t in range(s.length):
                yield self._make_factor(s, t)

    @staticmethod
    def _make_factor(segment: ChainSegment, t: int) -> Factor:
        node = f"{segment.prefix}{t}"
        if t == 0:
            return Factor._from_checked((node,), segment.initial, node)
        return Factor._from_checked((f"{segment.prefix}{t - 1}", node), segment.transition(t - 1), node)
