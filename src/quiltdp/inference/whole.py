"""Small models: one table of the whole model, every axis evidence-extended.

In the joint table of all nodes give every axis one more entry, "unobserved", the sum along it.  The law of
any set of nodes is then a corner of this table, and so are the laws with any set of records known: the
moves of a quilt are differences between two slices of its logarithms, maximised over the separator.
Everything that is impossible in the full model is a zero of the table.

Two tables of logarithms decide support without a case distinction: as a numerator a zero is −∞ (no candidate
for a maximum), as a denominator it is −BIG, so that p/0 counts as infinite and 0/0 as no candidate.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from weakref import WeakKeyDictionary

import numpy as np

from quiltdp.chain import ChainModel
from quiltdp.inference.odds import BIG, factor_logs
from quiltdp.inference.pairs import PairMoves, ordered_pairs
from quiltdp.inference.tables import aligned
from quiltdp.model import Model, Table
from quiltdp.rounding import EPS

__all__ = ["WholeTable", "whole_table"]

_LIMIT = 2**13  # entries up to which slices of one table beat tables of sides
_RANGE = 120.0  # the logarithms of the factors may add up to this: e^-120 to e^120


class WholeTable:
    """ln P of every set of nodes: one extended axis per node, in the order of the model."""

    def __init__(self, model: Model) -> None:
        order = tuple(model.nodes)
        law: Table = np.ones([len(model.states[n]) for n in order])
        for f in model.factors:
            law = law * aligned((f.scope, f.table), order)
        for axis in range(len(order)):
            law = np.concatenate((law, np.add.reduce(law, axis=axis, keepdims=True)), axis=axis)
        with np.errstate(divide="ignore"):
            self.logs: Table = np.log(law)
        self.finite = bool(law.all())
        self._below = self.logs if self.finite else np.where(law > 0, self.logs, -BIG)
        self._place = {n: k for k, n in enumerate(order)}
        terms = len(model.factors) + sum(law.shape)
        self._error = EPS * (2.1 * terms + 4 + 4 * float(np.abs(self.logs[law > 0]).max(initial=0.0)))

    def extended(self, nodes: Sequence[str]) -> Table:
        """Return ln P(x_nodes) with extended axes, in the order given."""
        at = dict.fromkeys(nodes, slice(None))
        return self.logs[self._index(at)].transpose(self._turned(nodes))

    def moves(self, targets: Sequence[str], records: Sequence[str], separator: Collection[str]) -> PairMoves:
        """Return the moves of every known set: axes pairs, then one extended axis per record."""
        order = (*targets, *records, *separator)
        at = dict.fromkeys(order, slice(-1))
        at.update(dict.fromkeys(records, slice(None)))
        index, turned = self._index(at), self._turned(order)
        above = self.logs[index].transpose(turned)
        last = len(targets) + len(records)
        states = math.prod(above.shape[: len(targets)])
        shape = (states, *above.shape[len(targets) : last], -1)
        above = above.reshape(shape)
        below = above if self.finite else self._below[index].transpose(turned).reshape(shape)
        if states == 2:
            ratio = above - below[::-1]
        else:
            first, second = ordered_pairs(states)
            ratio = above.take(first, axis=0) - below.take(second, axis=0)
        moves = np.maximum.reduce(ratio, axis=-1)
        return PairMoves(moves if self.finite else np.minimum(moves, BIG), self._error)

    def _index(self, at: dict[str, slice]) -> tuple[slice | int, ...]:
        """Return the slice of a table that leaves all other nodes unobserved."""
        return tuple([at.get(n, -1) for n in self._place])

    def _turned(self, order: Sequence[str]) -> list[int]:
        """Return how the axes of such a slice come into an order."""
        places = [self._place[n] for n in order]
        ranks = {k: rank for rank, k in enumerate(sorted(places))}
        return [ranks[k] for k in places]


_TABLES: WeakKeyDictionary[Model, WholeTable | None] = WeakKeyDictionary()


def whole_table(model: Model) -> WholeTable | None:
    """Return the table of the whole model, made once; None if it is too large or might underflow."""
    if model not in _TABLES:
        small = not isinstance(model, ChainModel) and (
            math.prod(len(s) + 1 for s in model.states.values()) <= _LIMIT
        )
        logs = factor_logs(model)
        safe = small and sum(logs.size(f) for f in range(len(model.factors))) <= _RANGE
        _TABLES[model] = WholeTable(model) if safe else None
    return _TABLES[model]
