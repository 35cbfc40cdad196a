"""All known sets at once: one joint table of a small region with evidence-extended axes.

Every nearby record gets one more entry, "unobserved", the sum along its axis.  The moves of every
known set L are then entries of a single table, and nothing is enumerated.  It is the quickest way as
long as the joint of target, nearby and separator is small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from quiltdp.inference.elimination import LogTable, product, sum_out
from quiltdp.inference.odds import BIG, other
from quiltdp.inference.tables import aligned, extended, log_ratio
from quiltdp.model import Table
from quiltdp.rounding import EPS

__all__ = ["ExtendedJoint"]


class ExtendedJoint:
    """ln P(x_T, x_N, x_Q) up to a constant, nearby axes extended by "unobserved".

    Parameters
    ----------
    factors
        Every factor that touches T or N, and barriers over the separator.
    targets, records, separator
        The axes, in this order; any other node of the factors is summed out.
    sizes
        The number of states of each of these nodes.
    """

    def __init__(
        self,
        factors: Sequence[LogTable],
        targets: Sequence[str],
        records: Sequence[str],
        separator: Sequence[str],
        sizes: Mapping[str, int],
        *,
        limit: int,
    ) -> None:
        self.targets, self.records, self.separator = tuple(targets), tuple(records), tuple(separator)
        self._sizes = sizes
        scope = (*targets, *records, *separator)
        hidden = {n for f in factors for n in f.scope}.difference(scope)
        left = sum_out(factors, hidden, limit=limit) if hidden else list(factors)
        joint = product(left, limit=limit)
        full = np.broadcast_to(aligned((joint.scope, joint.array), scope), [sizes[n] for n in scope])
        states = int(np.prod([sizes[n] for n in targets], dtype=np.int64))
        table = full.reshape(states, *(sizes[n] for n in records), -1)
        for axis in range(1, 1 + len(records)):
            table = extended(table, axis)
        self._table = table
        terms = sum(sizes[n] + 8 for n in records)
        self.error = 2 * joint.error + EPS * (terms + (4 * len(records) + 2) * 2 * joint.size)
        rows = [log_ratio(row, table).max(axis=-1) for row in table]
        self.all_moves = np.minimum(np.stack(rows), BIG)

    def moves(self, known: Sequence[str]) -> Table:
        """Return M(x, x', l): shape (states of T, states of T, l…)."""
        return np.asarray(self.all_moves[(slice(None), slice(None), *self.at(known))])

    def separator_values(self, chosen: Mapping[str, int]) -> Mapping[str, int]:
        """Return values of x_Q that attain M at the chosen x, x' and l."""
        shape = [self._sizes[n] for n in self.targets]
        x, y = (
            int(np.ravel_multi_index([chosen[n] for n in names], shape))
            for names in (self.targets, [other(n) for n in self.targets])
        )
        at = tuple(chosen.get(n, -1) for n in self.records)
        best = int(log_ratio(self._table[(x, *at)], self._table[(y, *at)]).argmax())
        index = np.unravel_index(best, [self._sizes[n] for n in self.separator])
        return {n: int(k) for n, k in zip(self.separator, index, strict=True)}

    def at(self, known: Sequence[str]) -> tuple[slice | int, ...]:
        """Return the index of a known set on the extended axes."""
        return tuple(slice(-1) if n in known else -1 for n in self.records)
