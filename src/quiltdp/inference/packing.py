"""Models and quilts as C reads them: nodes numbered in the order of their names, arrays *packed*.

A packed array is a few numbers, where each of its parts begins, and the parts one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from functools import cached_property
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from quiltdp.inference.tables import LogTable, factor_tables
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Table

__all__ = ["Asked", "Group", "Ints", "PackedModel", "begins", "packed_model", "starts"]

Ints = NDArray[np.int64]


class Group(NamedTuple):
    """A closed set, which the quilts of all its records share."""

    closed: frozenset[str]
    separator: frozenset[str]
    nodes: tuple[str, ...]  # its records and the target
    walls: tuple[LogTable, ...]
    exact: bool


def _packed(numbers: Sequence[int], *parts: Sequence[int]) -> Ints:
    begins = accumulate(map(len, parts), initial=len(numbers) + len(parts))
    return np.array([*numbers, *list(begins)[:-1], *chain(*parts)], dtype=np.int64)


def begins(parts: Iterable[Sized]) -> list[int]:
    """Return where parts one after the other begin, and where the last one ends."""
    return list(accumulate(map(len, parts), initial=0))


def starts(sizes: Ints) -> Ints:
    """Return where parts of these sizes begin."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)[:-1]])


class PackedModel:
    """The structure of a model and the logarithms of its tables as C reads them."""

    def __init__(self, workspace: Workspace) -> None:
        model, tables = workspace.model, factor_tables(workspace)
        self.names = sorted(model.nodes)
        self.number = {n: k for k, n in enumerate(self.names)}
        self.states = [len(model.states[n]) for n in self.names]
        number = self.number
        scopes = [[number[n] for n in f.scope] for f in model.factors]
        near = [tables.near(n) for n in self.names]
        self._tables = tables
        self.net = _packed(
            (len(self.names), len(scopes)),
            self.states,
            [model.is_record(n) for n in self.names],
            begins(scopes),
            list(chain(*scopes)),
            begins(near),
            list(chain(*near)),
            [tables.has_zeros and not f.table.all() for f in model.factors],
        )

    @cached_property
    def logs(self) -> tuple[Table, Ints, Table, Table]:
        """The logarithms of all tables, where each begins, and bounds on their sizes and errors."""
        every = self._tables.all_logs()
        return (
            np.concatenate([t.array.ravel() for t in every]),
            starts(np.array([t.array.size for t in every], dtype=np.int64)),
            np.array([t.size for t in every]),
            np.array([t.error for t in every]),
        )


class Asked:
    """Some quilts and their closed sets as C reads them."""

    def __init__(
        self, model: PackedModel, groups: Sequence[Group], targets: Sequence[str], group_of: Sequence[int]
    ) -> None:
        number, states = model.number, np.array(model.states, dtype=np.int64)

        def numbered(sets: Iterable[Iterable[str]]) -> tuple[list[int], list[int]]:
            found = [[number[n] for n in s] for s in sets]
            return begins(found), list(chain(*found))

        own = [number[t] for t in targets]
        nodes_at, nodes = numbered([g.nodes for g in groups])
        separators_at, separators = numbered([g.separator for g in groups])
        self.packed = _packed(
            (len(own), len(groups)),
            *(own, group_of),
            *numbered([sorted(g.closed) for g in groups]),
            *(begins([g.walls for g in groups]), range(sum([len(g.walls) for g in groups]))),
            *numbered([w.scope for g in groups for w in g.walls]),
            *(nodes_at, nodes),
            *(separators_at, separators),
        )
        self.target, self.group = np.array(own, dtype=np.int64), np.array(group_of, dtype=np.int64)
        self.nodes_at, self.nodes = np.array(nodes_at, dtype=np.int64), np.array(nodes, dtype=np.int64)
        self.separators_at, self.separators = np.array(separators_at), np.array(separators)
        self.axes = np.diff(self.nodes_at)  # of a closed set: its records, and the target
        self.entries = np.multiply.reduceat(states[self.nodes] + 1, self.nodes_at[:-1])
        count = states[self.target]
        self.moves = self.entries[self.group] // (count + 1) * (count * (count - 1))


def packed_model(workspace: Workspace) -> PackedModel:
    """Return the model of a workspace, packed once."""

    def size(made: PackedModel) -> int:
        entries = sum([f.table.size for f in workspace.model.factors])
        return int(made.net.nbytes) + 8 * entries + 64 * len(made.names)

    return workspace.keep("packed model", (), lambda: PackedModel(workspace), size)
