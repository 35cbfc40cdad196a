"""Λ of a whole table as a function of o: a few points instead of all pairs and all sets.

For rows p, p' of a conditional table and a threshold set T of p/p' write (b, t) = (p'(T), p(T)).
Λ(o) = max ln (t·(e^o − 1) + 1) / (b·(e^o − 1) + 1) over all pairs of rows and all T.  The level sets
are lines of positive slope in the (b, t) plane, so only the vertices of the upper-left hull matter:
a 50-state table keeps about a hundred points instead of 120,000.

*Assumes*: rows of one conditional table.  *Cost*: one hull per table, then a maximum over its points per o.
*Reference*: docs/prior_adversary.md, chains.
"""

from __future__ import annotations

import math

import numpy as np

from quiltdp.accountant.bounds.network_simplex import Array
from quiltdp.accountant.bounds.transport import SURE
from quiltdp.accountant.trade_offs import THRESHOLD_AT_ONCE
from quiltdp.numbers import EPS

_LARGE = 600.0
_CHORD = 1e-12  # a point below the chord of its neighbours by more than this part of it never matters


class ThresholdCurve:
    """Λ(o) of the possible rows of one conditional table, rounded up.

    Parameters
    ----------
    rows
        The laws P(· | x), one row per *possible* x.
    slack
        How far ln of an entry may be from the truth (the table's own rounding).
    influence
        Λ(∞), from somebody who knows the logarithms of the rows; without it, entries that have lost
        digits (below 1e-290) make Λ(o) as large as o for o > 600.  Below that o they do not count.

    Examples
    --------
    >>> import numpy as np
    >>> curve = ThresholdCurve(np.array([[0.9, 0.1], [0.1, 0.9]]))
    >>> round(curve(1.0), 6), round(curve(np.inf), 6)
    (0.776137, 2.197225)
    """

    def __init__(self, rows: Array, *, slack: float = 1e-13, influence: float | None = None) -> None:
        self._rows = np.ascontiguousarray(rows, dtype=np.float64)
        self._slack, self._far = 2.0 * slack, influence
        self._hull: Array | None = None  # found when it is first asked for: of many curves of a chain few are

    def __call__(self, o: float) -> float:
        """Return Λ(o); ``o = inf`` gives the max-influence."""
        if o <= 0.0 or len(self._rows) < 2:
            return 0.0
        if self._hull is None:
            self._hull = np.ascontiguousarray(_hull_of_rows(self._rows).T)
            if self._far is None and bool(((self._rows > 0) & (self._rows < SURE)).any()):
                self._far = np.inf
        margin = self._slack + 32 * EPS * min(o, _LARGE)
        if o > _LARGE and self._far is not None:
            return min(self._far + margin, o)
        below, above = self._hull
        if not len(above):  # rows that agree to rounding
            return min(margin, o)
        if o > _LARGE:
            with np.errstate(divide="ignore"):
                return min(float((np.log(above) - np.log(below)).max()) + margin, o)
        gain = math.expm1(o)
        return min(math.log(((1.0 + above * gain) / (1.0 + below * gain)).max()) + margin, o)


def _hull_of_rows(rows: Array) -> Array:
    """Return the upper-left hull of (p'(T), p(T)) over all ordered pairs of rows and threshold sets.

    The threshold sets of p'/p are the complements of those of p/p': one sort serves both.
    """
    size = max(1, THRESHOLD_AT_ONCE // max(rows.size, 1))
    hull = np.zeros((0, 2))
    for k in range(0, len(rows) - 1, size):
        p, q = np.broadcast_arrays(rows[k : k + size, None, :], rows[None, k:, :])
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = np.where(q > 0, p / q, np.where(p > 0, np.inf, 0.0))
        order = np.argsort(-ratio, axis=2)
        laws = [np.take_along_axis(law, order, axis=2) for law in (p, q)]
        for way in (1, -1):
            above, below = (np.cumsum(law[:, :, ::way], axis=2)[:, :, :-1] for law in laws[::way])
            useful = above > below
            points = np.column_stack([below[useful], above[useful]])
            hull = _upper_left_hull(np.concatenate([hull, _points_near_hull(hull, points)]))
    return hull


def _points_near_hull(hull: Array, points: Array) -> Array:
    """Return the points that are not below the hull and its ends (0, 0), (1, 1) by more than rounding."""
    if not len(hull):
        return points
    b, t = np.append(hull[:, 0], max(1.0, hull[-1, 0])), np.append(hull[:, 1], max(1.0, hull[-1, 1]))
    chord = np.interp(points[:, 0], b, t, left=0.0)
    early = points[:, 0] < b[0]
    chord[early] = points[early, 0] / b[0] * t[0] if b[0] > 0 else 0.0
    return np.asarray(points[points[:, 1] >= chord * (1.0 - _CHORD)])


def _upper_left_hull(points: Array) -> Array:
    """Return the upper-left hull, from small b to large t.

    A point is dropped only when another beats it in both coordinates, or when it is below the chord of its
    neighbours by more than rounding.
    """
    points = points[np.lexsort((-points[:, 1], points[:, 0]))]
    highest = np.maximum.accumulate(points[:, 1])
    kept: list[tuple[float, float]] = []
    for b, t in points[points[:, 1] > np.append(-1.0, highest[:-1])].tolist():
        while len(kept) >= 2:
            (b0, t0), (b1, t1) = kept[-2], kept[-1]
            if (t1 - t0) * (b - b0) < (t - t0) * (b1 - b0) * (1.0 - _CHORD):
                kept.pop()
            else:
                break
        kept.append((b, t))
    return np.array(kept, dtype=np.float64).reshape(-1, 2)
