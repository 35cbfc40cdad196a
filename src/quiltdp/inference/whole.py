"""Small models: one table of the whole model, every axis evidence-extended.

In the joint table of all nodes give every axis one more entry, "unobserved", the sum along it.  The law
of any set of nodes is then a corner of this table, and so are the laws with any set of records known.  For
one target the differences of its logarithms between every two values hold all its moves: those of a
quilt are a slice of them, maximised over the separator, and the prior odds are the slice with nothing of
the separator seen.

Everything that is impossible in the full model is a zero of the table.  As a numerator a zero is −∞ (no
candidate for a maximum), as a denominator it is −BIG, so that p/0 counts as infinite and 0/0 as no candidate.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from quiltdp.chain import ChainModel
from quiltdp.inference.kept import kept_with_model
from quiltdp.inference.odds import BIG, factor_logs
from quiltdp.inference.pairs import PairMoves, PairOdds, ordered_pairs
from quiltdp.inference.tables import aligned, extended_law
from quiltdp.model import Model, Table
from quiltdp.rounding import EPS

__all__ = ["WholeTable", "whole_table"]

_LIMIT = 2**13  # entries up to which slices of one table beat tables of sides
_KEPT = 64  # sets of targets whose moves are kept
_KNOWN, _EITHER = slice(-1), slice(None)  # the entries of an extended axis where a node is known, and all
_RANGE = 120.0  # the logarithms of the factors may add up to this: e^-120 to e^120


class WholeTable:
    """ln P of every set of nodes: one extended axis per node, in the order of the model."""

    def __init__(self, model: Model) -> None:
        self._order = tuple(model.nodes)
        law: Table = np.ones([len(model.states[n]) for n in self._order])
        for f in model.factors:
            law = law * aligned((f.scope, f.table), self._order)
        law = extended_law(law, range(len(self._order)))
        with np.errstate(divide="ignore"):
            self.logs: Table = np.log(law)
        self.finite = bool(law.all())
        self._place = {n: k for k, n in enumerate(self._order)}
        terms = len(model.factors) + sum(law.shape)
        self._error = EPS * (2.1 * terms + 4 + 4 * float(np.abs(self.logs[law > 0]).max(initial=0.0)))
        self._moves: dict[tuple[str, ...], Table] = {}

    def extended(self, nodes: Sequence[str]) -> Table:
        """Return ln P(x_nodes) with extended axes, in the order given."""
        places = [self._place[n] for n in nodes]
        found = self.logs[tuple([_EITHER if k in places else -1 for k in range(len(self._order))])]
        ranks = sorted(places)
        return found.transpose([ranks.index(k) for k in places])

    def moves(
        self, targets: tuple[str, ...], records: Sequence[str], separator: Collection[str]
    ) -> PairMoves:
        """Return the moves of every known set: axes pairs, then one extended axis per record."""
        order = (*records, *separator)
        at = dict.fromkeys(separator, _KNOWN)
        for n in records:
            at[n] = _EITHER
        found = self._slice(targets, at, order)
        if separator:
            found = np.maximum.reduce(found.reshape(*found.shape[: 1 + len(records)], -1), axis=-1)
        return PairMoves(found, self._error)

    def odds(self, targets: tuple[str, ...], records: Sequence[str]) -> PairOdds:
        """Return ln P(x, l) − ln P(x', l) for every known set: the move of an empty separator."""
        found = self._slice(targets, dict.fromkeys(records, _EITHER), records)
        if self.finite:
            return PairOdds(found, True)
        return PairOdds(np.where(np.abs(found) < BIG / 2, found, np.nan), False)

    def _slice(self, targets: tuple[str, ...], at: Mapping[str, slice], order: Sequence[str]) -> Table:
        """Return a slice of all moves, the other nodes unobserved: axes pairs, then ``order``."""
        table = self._moves.get(targets)
        if table is None:
            if len(self._moves) >= _KEPT:
                self._moves.clear()
            table = self._moves[targets] = self._all_moves(targets)
        index: list[slice | int] = [_EITHER]
        places: dict[str, int] = {}
        for n in self._order:
            if n in at:
                places[n] = len(places) + 1
                index.append(at[n])
            elif n not in targets:
                index.append(-1)
        found = table[tuple(index)]
        turned = [0, *[places[n] for n in order]]
        return found if turned == sorted(turned) else found.transpose(turned)

    def _all_moves(self, targets: tuple[str, ...]) -> Table:
        """Return ln P(x, ·) − ln P(x', ·): the axis of pairs, then the extended axes of the other nodes."""
        inside = [self._place[n] for n in targets]
        front = self.logs.transpose([*inside, *[k for k in range(len(self._order)) if k not in inside]])
        front = front[(slice(-1),) * len(inside)]
        flat = front.reshape(-1, *front.shape[len(inside) :])
        first, second = ordered_pairs(len(flat))
        above = flat.take(first, axis=0)
        if self.finite:
            return np.asarray(above - flat.take(second, axis=0))
        return np.minimum(above - np.maximum(flat, -BIG).take(second, axis=0), BIG)


@kept_with_model
def whole_table(model: Model) -> WholeTable | None:
    """Return the table of the whole model, made once; None if it is too large or might underflow."""
    if isinstance(model, ChainModel) or math.prod(len(s) + 1 for s in model.states.values()) > _LIMIT:
        return None
    logs = factor_logs(model)
    return WholeTable(model) if sum(map(logs.size, range(len(model.factors)))) <= _RANGE else None
