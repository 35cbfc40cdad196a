"""Protected units of a chain as windows of consecutive steps.

*Assumes*: one chain, units that are runs of its steps.  *Cost*: none: positions instead of names.
*Reference*: docs/theory.md, section 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.bounds import Vector
from quiltdp.chain import ChainModel
from quiltdp.errors import InvalidArgument, option
from quiltdp.model import Model

__all__ = ["ChainUnits", "as_chain"]

Ints = NDArray[np.int64]


def as_chain(model: Model) -> ChainModel:
    """Return the model as a Markov chain, or refuse it."""
    if not isinstance(model, ChainModel):
        raise InvalidArgument(f"this {option('method')} needs a Markov chain, and the model is none")
    return model


class ChainUnits:
    """Every unit as one window [first, last] per chain it touches.

    ``units=None`` is every record alone, or with ``window`` = w > 1 every run of w steps.

    Examples
    --------
    >>> from quiltdp import markov_chain
    >>> chain = markov_chain([[0.9, 0.1], [0.1, 0.9]], length=5)
    >>> units = ChainUnits(chain, [("X1", "X2")])
    >>> units.first.tolist(), units.last.tolist(), units.owner.tolist()
    ([1], [2], [0])
    """

    def __init__(self, model: ChainModel, units: Sequence[tuple[str, ...]] | None, window: int = 1) -> None:
        starts = np.concatenate([[0], np.cumsum([s.length for s in model.segments])])
        self.spans = [(int(a), int(b)) for a, b in pairwise(starts)]
        self.single = units is None and window == 1
        """Whether every step is a unit."""
        self.count = len(model.nodes) if units is None else len(units)
        if self.single:
            return
        if units is None:
            self._windows(window)
            return
        windows: list[tuple[int, int, int]] = []
        for k, unit in enumerate(units):
            if not unit:
                raise InvalidArgument(f"protected unit {k} is empty: name at least one record")
            model.require(unit)
            at = np.array(sorted(model.index[n] for n in unit))
            chain = np.searchsorted(starts, at, side="right")
            for c in np.unique(chain):
                inside = at[chain == c]
                windows.append((int(inside[0]), int(inside[-1]), k))
        table = np.array(windows, dtype=np.int64).reshape(-1, 3)
        self._table = (table[:, 0], table[:, 1], table[:, 2])

    def _windows(self, window: int) -> None:
        """Take every run of ``window`` steps of each chain (a shorter chain is one run)."""
        runs = [np.arange(a, max(a + 1, b - window + 1)) for a, b in self.spans]
        ends = [np.minimum(run + window, b) - 1 for run, (_, b) in zip(runs, self.spans, strict=True)]
        first = np.concatenate(runs)
        self.count = len(first)
        self._table = (first, np.concatenate(ends), np.arange(self.count))

    @cached_property
    def _table(self) -> tuple[Ints, Ints, Ints]:
        """First and last steps of windows, and whose they are; of single steps they are made when needed."""
        return (np.arange(self.count),) * 3

    @property
    def first(self) -> Ints:
        """The first step of every window."""
        return self._table[0]

    @property
    def last(self) -> Ints:
        """The last step of every window."""
        return self._table[1]

    @property
    def owner(self) -> Ints:
        """The unit of every window."""
        return self._table[2]

    def totals(self, alpha: Vector, after: Vector, before: Vector) -> Vector:
        """Return Σ of the window's α + ``after`` its last + ``before`` its first step, per unit."""
        if self.single:
            return alpha + after + before
        sums = np.concatenate([[0.0], np.cumsum(alpha, dtype=np.longdouble)])
        slack = 4 * np.finfo(np.longdouble).eps * len(alpha) * sums[-1]
        own = (sums[self.last + 1] - sums[self.first] + slack).astype(np.float64)
        each = np.where(self.last > self.first, own, alpha[self.first])
        each = each + after[self.last] + before[self.first]
        return np.bincount(self.owner, weights=each, minlength=self.count).astype(np.float64)
