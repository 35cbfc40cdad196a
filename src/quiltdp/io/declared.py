"""What NET, XMLBIF and XDSL files have in common: nodes declared with their states, then a table for each."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from math import prod

import numpy as np

from quiltdp.errors import FileFormatError
from quiltdp.factor import Table
from quiltdp.io.text import MAX_AXES, blaming
from quiltdp.model import Model

__all__ = ["Declared"]


@dataclass
class Declared:
    """A network while it is read: states first, then tables, each node exactly one of each."""

    path: object
    states: dict[str, tuple[str, ...]] = field(default_factory=dict)
    tables: dict[str, tuple[tuple[str, ...], Table]] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)

    def declare(self, name: str, states: Collection[str], line: int | None = None) -> None:
        """Note a node and its states."""
        if not name:
            raise FileFormatError(self.path, line, "a node has no name")
        if name in self.states:
            raise FileFormatError(self.path, line, f"node {name!r} is declared twice")
        if not states:
            raise FileFormatError(self.path, line, f"node {name!r} has no states")
        self.states[name] = tuple(states)

    def add_table(self, node: str, parents: Collection[str], text: str, line: int | None = None) -> None:
        """Note a table written out with the node's own states moving fastest, then the last parent's."""
        for name in (node, *parents):
            if name not in self.states:
                role = f"parent of {node!r}" if name != node else "node"
                raise FileFormatError(self.path, line, f"{role} {name!r} is not declared")
        if node in self.tables:
            raise FileFormatError(self.path, line, f"node {node!r} has two tables, expected 1")
        if len(parents) >= MAX_AXES:
            raise FileFormatError(
                self.path, line, f"node {node!r} has {len(parents)} parents, at most {MAX_AXES - 1} fit"
            )
        shape = tuple(len(self.states[name]) for name in (*parents, node))
        words = text.split()
        try:
            values = np.array(words, dtype=np.float64)
        except ValueError:
            odd = next(w for w in words if not _is_number(w))
            raise FileFormatError(
                self.path, line, f"node {node!r}: expected a number, found {odd[:40]!r}"
            ) from None
        if len(words) != prod(shape):
            raise FileFormatError(
                self.path, line, f"node {node!r}: found {len(words)} numbers, expected {prod(shape)}"
            )
        self.tables[node] = (tuple(parents), values.reshape(shape))
        if line is not None:
            self.lines[node] = line

    def model(self, kind: str, records: Collection[str] | None) -> Model:
        """Return the network, every node with its table."""
        bare = next((name for name in self.states if name not in self.tables), None)
        if bare is not None:
            raise FileFormatError(self.path, None, f"node {bare!r} has 0 tables, expected 1")
        ordered = {name: self.tables[name] for name in self.states}
        with blaming(self.path, self.lines):
            return Model.from_tables(
                ordered, records, states=self.states, provenance={"file": str(self.path), "format": kind}
            )


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
