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
from bisect import bisect_left
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.leakage.kernel import SURE, Array
from quiltdp.accountant.trade_offs import THRESHOLD_AT_ONCE, THRESHOLD_FEW
from quiltdp.compiled import kernel

__all__ = ["ThresholdCurve"]

_EPS = float(np.finfo(np.float64).eps)
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

    __slots__ = ("_bottom", "_far", "_rows", "_slack", "_switch", "_top")

    def __init__(self, rows: Array, *, slack: float = 1e-13, influence: float | None = None) -> None:
        self._rows: Array | None = np.asarray(rows, dtype=np.float64)
        self._slack, self._far = 2.0 * slack, influence

    def _find_hull(self, rows: Array) -> None:
        """Find the hull when it is first asked for: of many curves of a chain few are."""
        points = _hull_of_rows(rows)
        self._bottom: list[float] = points[:, 0].tolist()
        self._top: list[float] = points[:, 1].tolist()
        self._switch = _switches(points)
        self._slack += _CHORD * 4 if self._switch else 0.0
        if self._far is None and bool(((rows > 0) & (rows < SURE)).any()):
            self._far = np.inf
        self._rows = None

    def __call__(self, o: float) -> float:
        """Return Λ(o); ``o = inf`` gives the max-influence."""
        if o <= 0.0:
            return 0.0
        if self._rows is not None:
            if len(self._rows) < 2:
                return 0.0
            self._find_hull(self._rows)
        margin = self._slack + 32 * _EPS * min(o, _LARGE)
        if o > _LARGE and self._far is not None:
            return min(self._far + margin, o)
        if not self._top:  # rows that agree to rounding
            return min(margin, o)
        if o > _LARGE:
            b, t = np.array(self._bottom), np.array(self._top)
            with np.errstate(divide="ignore"):
                return min(float((np.log(t) - np.log(b)).max()) + margin, o)
        gain = math.expm1(o)
        first, last = self._around(gain)
        best = max(
            (1.0 + t * gain) / (1.0 + b * gain)
            for b, t in zip(self._bottom[first:last], self._top[first:last], strict=True)
        )
        return min(math.log(best) + margin, o)

    def _around(self, gain: float) -> tuple[int, int]:
        """Return the vertices among which the largest ratio is: the best one moves left as e^o grows."""
        if not self._switch:
            return 0, len(self._top)
        k = bisect_left(self._switch, -gain)
        return max(0, k - 2), k + 3

    @property
    def influence(self) -> float:
        """The max-influence: Λ(∞)."""
        return self(np.inf)


def _switches(points: Array) -> list[float]:
    """Return −g_k ascending, vertex k + 1 beating vertex k while e^o − 1 < g_k; empty for few vertices.

    (1 + t g)/(1 + b g) is the slope of the line through (b, t) and (−1/g, −1/g): on a concave hull the
    best vertex moves one way.  Vertices that are on one line to rounding may stand in the wrong order;
    they differ by less than the margin that is added.
    """
    if len(points) <= THRESHOLD_FEW:
        return []
    slope = np.diff(points[:, 1]) / np.diff(points[:, 0])
    below = points[:-1, 1] - slope * points[:-1, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        switch = np.where(slope <= 1.0, 0.0, np.where(below > 0.0, (slope - 1.0) / below, np.inf))
    ascending: list[float] = np.maximum.accumulate(-switch).tolist()
    return ascending


def _hull_of_rows(rows: Array) -> Array:
    """Return the upper-left hull of (p'(T), p(T)) over all ordered pairs of rows and threshold sets.

    Batches of pairs are filtered by the hull found so far, which most points are far below.  The threshold
    sets of p'/p are the complements of those of p/p': one sort serves both.
    """
    rows = np.ascontiguousarray(rows)
    size = max(1, THRESHOLD_AT_ONCE // max(rows.size, 1))
    hull = np.zeros((0, 2))
    for k in range(0, len(rows) - 1, size):
        pairs = _Pairs(rows[k : k + size], rows[k:])
        for way in (1, -1):
            points = pairs.above(hull, way)
            if len(points):
                hull = _hull(np.concatenate([hull, points]))
    return hull


class _Pairs:
    """All pairs of one of ``first`` and one of ``rows``, their states ordered by p/p', the largest first."""

    def __init__(self, first: Array, rows: Array) -> None:
        self._first, self._rows = first, rows
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = first[:, None, :] / rows[None, :, :]
        if not (rows > 0).all():
            ratio = np.where(rows[None] > 0, ratio, np.where(first[:, None] > 0, np.inf, 0.0))
        self._order: NDArray[np.int64] = np.argsort(np.negative(ratio, out=ratio), axis=2)

    def above(self, hull: Array, way: int) -> Array:
        """Return the points that are not below the hull; −1 exchanges the two rows of every pair."""
        compiled = kernel("qd_threshold_above")
        if compiled is None or not len(hull):
            return _above(hull, self._points(way))
        b, t = _with_end(hull)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            slope = np.diff(t) / np.diff(b)
        sizes = (len(self._first), len(self._rows), self._rows.shape[1])
        room = 1024
        while True:
            found = np.empty((room, 2))
            count = compiled(
                self._first, self._rows, self._order, *sizes, way,
                b, t, slope, len(b), 1.0 - _CHORD, found, room,
            )  # fmt: skip
            if count <= room:
                return found[:count]
            room = count

    def _points(self, way: int) -> Array:
        """Return the points above the diagonal."""
        p, q = self._ordered[::way]
        top = np.cumsum(p[:, :, ::way], axis=2)[:, :, :-1]
        bottom = np.cumsum(q[:, :, ::way], axis=2)[:, :, :-1]
        useful = top > bottom
        return np.column_stack([bottom[useful], top[useful]])

    @cached_property
    def _ordered(self) -> tuple[Array, Array]:
        p = np.broadcast_to(self._first[:, None, :], self._order.shape)
        q = np.broadcast_to(self._rows[None, :, :], self._order.shape)
        return np.take_along_axis(p, self._order, axis=2), np.take_along_axis(q, self._order, axis=2)


def _with_end(hull: Array) -> tuple[Array, Array]:
    """Return the coordinates of the hull with its end (1, 1)."""
    return np.append(hull[:, 0], max(1.0, hull[-1, 0])), np.append(hull[:, 1], max(1.0, hull[-1, 1]))


def _above(hull: Array, points: Array) -> Array:
    """Return the points that are not below the hull and its ends (0, 0), (1, 1) by more than rounding."""
    if not len(hull):
        return points
    b, t = _with_end(hull)
    chord = np.interp(points[:, 0], b, t, left=0.0)
    early = points[:, 0] < b[0]
    chord[early] = points[early, 0] / b[0] * t[0] if b[0] > 0 else 0.0
    return np.asarray(points[points[:, 1] >= chord * (1.0 - _CHORD)])


def _pareto(points: Array) -> Array:
    """Keep the points with t > b that no other point beats in both coordinates."""
    points = points[points[:, 1] > points[:, 0]]
    points = points[np.lexsort((-points[:, 1], points[:, 0]))]
    if not len(points):
        return points
    best = np.maximum.accumulate(points[:, 1])
    keep = np.append(True, points[1:, 1] > best[:-1])
    return np.asarray(points[keep])


def _hull(points: Array) -> Array:
    """Return the upper-left hull, from small b to large t.

    A point is dropped only when it is below the chord of its neighbours by more than rounding.
    """
    kept: list[tuple[float, float]] = []
    for b, t in _pareto(points).tolist():
        while len(kept) >= 2:
            (b0, t0), (b1, t1) = kept[-2], kept[-1]
            if (t1 - t0) * (b - b0) < (t - t0) * (b1 - b0) * (1.0 - _CHORD):
                kept.pop()
            else:
                break
        kept.append((b, t))
    return np.array(kept, dtype=np.float64).reshape(-1, 2)
