"""Chains whose transition matrix is only known to lie in a box: spreads that hold for all of them.

A *set chain* is every Markov chain whose rows lie between ``lower`` and ``upper`` entry by entry and
sum to 1; the matrix may even differ from step to step.  The smallest and the largest value of each
entry of a d-step table follow backwards, one column at a time: extending a path by one step is a
linear program over a row's box, solved by filling the largest (smallest) values first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quiltdp.errors import InvalidModel, ModelTooWide
from quiltdp.model import Table
from quiltdp.numbers import EPS, up_array

__all__ = ["SetChain", "set_chain_spreads"]

_TINY = 1e-280  # below it a product has lost digits: treat the smallest value as 0


@dataclass(frozen=True, eq=False)
class SetChain:
    """All transition matrices between ``lower`` and ``upper``, row = from.

    Raises
    ------
    InvalidModel
        If the bounds are no probabilities, or some row's box holds no distribution.
    """

    lower: Table
    upper: Table

    def __post_init__(self) -> None:
        """Check and freeze the bounds."""
        low, high = (np.array(v, dtype=np.float64) for v in (self.lower, self.upper))
        if low.ndim != 2 or low.shape != high.shape or low.shape[0] != low.shape[1] or not low.size:
            raise InvalidModel(f"set chain: bounds of shapes {low.shape} and {high.shape} must be one square")
        if not ((low >= 0) & (low <= high) & (high <= 1)).all():
            raise InvalidModel("set chain: every entry needs 0 ≤ lower ≤ upper ≤ 1")
        bad = (low.sum(axis=1) > 1 + 1e-9) | (high.sum(axis=1) < 1 - 1e-9)
        if bad.any():
            raise InvalidModel(f"set chain: row {int(np.argmax(bad))} holds no distribution")
        for name, array in (("lower", low), ("upper", high)):
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @property
    def states(self) -> int:
        """The number of states."""
        return len(self.lower)

    def __contains__(self, matrix: ArrayLike) -> bool:
        """Return whether a transition matrix lies in the box."""
        p = np.asarray(matrix, dtype=np.float64)
        return bool(p.shape == self.lower.shape and ((p >= self.lower) & (p <= self.upper)).all())


def set_chain_spreads(
    chain: SetChain, max_distance: int = 64, *, max_work: float = 2e10
) -> tuple[NDArray[np.intp], Table]:
    """Return distances d and ĉ_d, an upper bound on the spread of every d-step table in the set.

    For all chains P_1, P_2, … in the set, with T = P_{t+1} ⋯ P_{t+d},

        spread(T) = max ln T(x,z) T(x',z') / (T(x',z) T(x,z')) ≤ ĉ_d
                  = max_{x ≠ x', z ≠ z'} ln hi_d(x,z) hi_d(x',z') / (lo_d(x',z) lo_d(x,z')),

    where lo_d and hi_d bound the entries of T over the set.  ∞ where an entry may be 0.  The spread
    of the backward table is the same number.

    Assumes
    -------
    Each step's matrix is in the set.  Rounding: lo_d is rounded down, hi_d and ĉ_d up.

    Reference
    ---------
    D. J. Hartfiel, Markov Set-Chains, Springer 1998, chapter 2 (the exact bounds of the entries).
    """
    size = chain.states
    if size == 1:
        return np.arange(1, 2, dtype=np.intp), np.zeros(1)
    price = 8.0 * float(size) ** 3  # of one step: sorting, filling and comparing every pair of rows
    if price > max_work:
        raise ModelTooWide(
            f"set chain: {size} states cost {price:.3g} operations a step, the limit is {max_work:g}"
        )
    steps = max(1, min(max_distance, int(max_work / price)))
    first = _first_positive(chain.lower > 0, steps)
    if first is None:  # in every table of affordable length some entry may be 0
        return np.arange(1, 2, dtype=np.intp), np.array([np.inf])
    low, high = np.array(chain.lower), np.array(chain.upper)
    spreads = []
    for d in range(1, steps + 1):
        if d > 1:
            low, high = _step(chain, low, largest=False), _step(chain, high, largest=True)
        spreads.append(_spread(low, high) if d >= first else float("inf"))
    return np.arange(1, steps + 1, dtype=np.intp), np.array(spreads)


def _first_positive(support: NDArray[np.bool_], steps: int) -> int | None:
    """Return the smallest d ≤ steps for which every state surely reaches every state in d steps."""
    edges = support.astype(np.float32)
    reach = support
    for d in range(1, steps + 1):
        if reach.all():
            return d
        reach = (reach.astype(np.float32) @ edges) > 0
    return None


def _step(chain: SetChain, values: Table, *, largest: bool) -> Table:
    """Return, for every row box and every column v of ``values``, the largest (smallest) Σ_y p(y) v(y)."""
    size = chain.states
    slack = np.maximum(1.0 - chain.lower.sum(axis=1), 0.0)
    room = chain.upper - chain.lower
    found: Table = np.empty_like(values)
    for z in range(size):
        column = values[:, z]
        order = np.argsort(-column if largest else column, kind="stable")
        used = np.minimum(np.cumsum(room[:, order], axis=1), slack[:, None])
        put = np.diff(used, axis=1, prepend=0.0)
        found[:, z] = chain.lower @ column + put @ column[order]
    error = 8.0 * (size + 4) * EPS
    if largest:
        # the differences of running sums carry an absolute error of a few units of 1
        found = np.minimum(found * (1.0 + error) + error * values.max(axis=0), 1.0)
    else:
        found = np.maximum(found * (1.0 - error) - error * values.max(axis=0), 0.0)
    return found


def _spread(low: Table, high: Table) -> float:
    """Return the largest log cross-ratio that entries between ``low`` and ``high`` allow."""
    size = len(low)
    floor = np.where(low < _TINY, 0.0, low)
    if (floor == 0).any():  # some member of the set may have a zero there
        return float("inf")
    top, bottom = np.log(high), np.log(floor)
    best = 0.0
    for x in range(size - 1):
        ahead = top[x] - bottom[x + 1 :]
        back = top[x + 1 :] - bottom[x]
        both = _two_columns(ahead, back)
        best = max(best, float(both.max()))
    return float(up_array(np.array([best + 1e-12]))[0])


def _two_columns(ahead: Table, back: Table) -> Table:
    """Return max over z ≠ z' of ahead(z) + back(z'), row by row."""
    first, second = (_top_two(v) for v in (ahead, back))
    same = first[0] == second[0]
    straight = first[1] + second[1]
    crossed = np.maximum(first[1] + second[2], first[2] + second[1])
    return np.where(same, crossed, straight)


def _top_two(rows: Table) -> tuple[NDArray[np.intp], Table, Table]:
    """Return where the largest entry of each row is, and the largest two."""
    where = rows.argmax(axis=1)
    ordered = np.partition(rows, rows.shape[1] - 2, axis=1)
    return where, ordered[:, -1], ordered[:, -2]
