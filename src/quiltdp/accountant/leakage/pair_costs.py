"""What pairs of states cost in one step of sequential coupling over all pairs.

For slots i, j of a step and states z, z' before it, D(i, j; z, z') is the sum over the cliques beyond (or
the one table of the steps taken) of what each says about the states that i and j lead to, and the price
of the step's own nodes where their values differ; every sum is rounded up.

*Assumes*: tables ≥ 0, as :mod:`.coupling_all` has them.  *Cost*: one look into every table for each number.
*Reference*: docs/prior_adversary.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.leakage.ties import Array
from quiltdp.compiled import kernel
from quiltdp.inference.coupling_tree import Ints, Step
from quiltdp.numbers import EPS, up_array

__all__ = ["PairCosts"]

_MANY = 2**15  # looks into tables from which on C is quicker than numpy


class PairCosts:
    """Tables about pairs of states that are added up, and the step they are read for, if there is one.

    Parameters
    ----------
    parts
        Each table, and which of its rows every state shows; ``None``: the states are its rows.
    """

    def __init__(self, parts: Sequence[tuple[Array, Ints | None]], step: Step | None) -> None:
        self._parts, self._step = parts, step

    def between(self, first: Ints, second: Ints) -> Array:
        """Return the sums for all pairs of two lists of states, shape (first, second)."""
        if not self._parts:
            return np.zeros((len(first), len(second)))
        total, *others = (
            (table[first] if shown is None else table[shown[first]]).take(
                second if shown is None else shown[second], axis=1
            )
            for table, shown in self._parts
        )
        for more in others:
            total += more
        return total

    def write(self, d: Array, at: int, rows: Ints, own: Array, ulps: float) -> None:
        """Write D of the pairs (row, any state) to ``d``, shape (slots², pairs), from column ``at`` on.

        ``rows`` are consecutive; ``own`` prices the values of the step's nodes.
        """
        step, start = self._at, int(rows[0])
        looks = step.slots**2 * len(rows) * step.count * (1 + len(self._parts))
        in_c = kernel("qd_pair_costs") if looks >= _MANY else None
        if in_c is None:
            d[:, at : at + len(rows) * step.count] = self.in_numpy(rows, own, ulps)
            return
        tables = (len(self._parts), *self._flat)
        value = np.ascontiguousarray(step.value)
        size = (step.slots, step.count, start, len(rows))
        in_c(*size, *tables, own, len(own), value, ulps * EPS, d, d.shape[1], at)

    def in_numpy(self, rows: Ints, own: Array, ulps: float) -> Array:
        """Return the same numbers, the twin."""
        step = self._at
        d = self.between(step.after[:, rows].ravel(), step.after.ravel())
        d += own[step.value[:, rows].ravel()].take(step.value.ravel(), axis=1)
        d = d.reshape(step.slots, len(rows), step.slots, step.count).transpose(0, 2, 1, 3)
        return up_array(d.reshape(step.slots**2, -1), ulps)

    @property
    def _at(self) -> Step:
        assert self._step is not None, "after the last step there is nothing to write"
        return self._step

    @cached_property
    def _flat(self) -> tuple[NDArray[Any], ...]:
        """All tables in one array, where each begins and its size, and its row for every slot and state."""
        sizes = np.array([len(table) for table, _ in self._parts], dtype=np.int64)
        offsets = np.cumsum(sizes**2) - sizes**2
        after = self._at.after
        rows = [after if shown is None else shown[after] for _, shown in self._parts]
        tables = [table.ravel() for table, _ in self._parts]
        if not tables:
            return np.zeros(1), offsets, sizes, np.zeros(1, dtype=np.int64)
        return np.concatenate(tables), offsets, sizes, np.ascontiguousarray(rows, dtype=np.int64)
