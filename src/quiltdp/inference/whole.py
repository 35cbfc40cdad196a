"""Small models: one table of the whole model, every axis evidence-extended.

In the joint table of all nodes give every axis one more entry, "unobserved", the sum along it.  The law
of any set of nodes is then a corner of this table, and so are the laws with any set of records known.  The
moves of a quilt are differences of its logarithms, maximised over the separator.  Everything that is
impossible in the full model is a zero of the table.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from quiltdp.chain import ChainModel
from quiltdp.inference.moves import BIG, PAIRS, RANGE, ordered_pairs
from quiltdp.inference.tables import LogTable, aligned, extended_law, factor_tables
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model, Table
from quiltdp.numbers import EPS

__all__ = ["WholeTable", "whole_table"]

_EVERY, _KNOWN = slice(None), slice(-1)


class WholeTable:
    """ln P of every set of nodes: one extended axis per node, in the order of the model."""

    def __init__(self, model: Model) -> None:
        self._order = tuple(model.nodes)
        law: Table = np.ones([len(model.states[n]) for n in self._order])
        for f in model.factors:
            law = law * aligned((f.scope, f.table), self._order)
        law = extended_law(law, range(law.ndim))
        with np.errstate(divide="ignore"):
            self._logs: Table = np.log(law)
        self._finite = bool(law.all())
        terms = len(model.factors) + sum(law.shape)
        self._size = float(np.abs(self._logs[law > 0]).max(initial=0.0))
        self._error = EPS * (2.1 * terms + 4 + 4 * self._size)
        self._moves: dict[tuple[str, ...], Table] = {}  # of at most all sets of targets that are asked for

    @property
    def nbytes(self) -> int:
        """The bytes of the table, and of the moves of a few targets."""
        return 8 * int(self._logs.nbytes)

    def moves(self, targets: tuple[str, ...], records: Sequence[str], separator: Collection[str]) -> LogTable:
        """Return the moves of every known set: axes pairs, then one extended axis per record."""
        table = self._moves.get(targets)
        if table is None:
            if len(self._moves) >= 2 * len(self._order):
                self._moves.clear()
            table = self._moves[targets] = self._all_moves(targets)
        index: list[slice | int] = [_EVERY]
        places: dict[str, int] = {}
        for n in self._order:
            if n not in targets:
                inside = n in records
                index.append(_EVERY if inside else _KNOWN if n in separator else -1)
                if inside or n in separator:
                    places[n] = len(places) + 1
        turned = [0, *[places[n] for n in records], *[k for n, k in places.items() if n not in records]]
        found = table[tuple(index)].transpose(turned)
        if len(places) > len(records):
            found = np.maximum.reduce(found, axis=tuple(range(1 + len(records), found.ndim)))
        return LogTable((PAIRS, *records), found, 2 * self._size, self._error)

    def marginals(self, targets: Sequence[str], records: Sequence[str]) -> Table:
        """Return ln P(x, l) for every known set: joint states of the targets, then extended axes."""
        index = tuple([_KNOWN if n in targets else _EVERY if n in records else -1 for n in self._order])
        seen = [n for n in self._order if n in targets or n in records]
        found = self._logs[index].transpose([seen.index(n) for n in (*targets, *records)])
        return found.reshape(-1, *found.shape[len(targets) :])

    def _all_moves(self, targets: tuple[str, ...]) -> Table:
        """Return ln P(x, ·) − ln P(x', ·): the axis of pairs, then the extended axes of the other nodes."""
        inside = [self._order.index(n) for n in targets]
        front = self._logs.transpose([*inside, *[k for k in range(len(self._order)) if k not in inside]])
        front = front[(_KNOWN,) * len(inside)]
        flat = front.reshape(-1, *front.shape[len(inside) :])
        first, second = ordered_pairs(len(flat))
        if self._finite:
            return np.asarray(flat[first] - flat[second])
        return np.asarray(np.minimum(flat[first] - np.maximum(flat, -BIG)[second], BIG))


def whole_table(workspace: Workspace, limit: int) -> WholeTable | None:
    """Return the table of the whole model; None if it has more entries than ``limit`` or might underflow."""

    def make() -> WholeTable | None:
        model = workspace.model
        if isinstance(model, ChainModel) or math.prod(len(s) + 1 for s in model.states.values()) > limit:
            return None
        if not model.directed:  # potentials do not sum to 1
            return None
        tables = factor_tables(workspace)
        size = sum(tables.logs(f).size for f in range(len(model.factors)))
        return WholeTable(model) if size <= RANGE else None

    return workspace.keep("whole table", limit, make, lambda table: 256 if table is None else table.nbytes)
