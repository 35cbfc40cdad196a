"""Λ of a whole table as a function of o: a few points instead of all pairs and all sets.

For rows p, p' of a conditional table and a threshold set T of p/p' write (b, t) = (p'(T), p(T)).
Λ(o) = max ln (t·(e^o − 1) + 1) / (b·(e^o − 1) + 1) over all pairs of rows and all T.  The level sets
are lines of positive slope in the (b, t) plane, so only the vertices of the upper-left hull matter:
a 50-state table keeps about a hundred points instead of 120,000.
"""

from __future__ import annotations

import numpy as np

from quiltdp.accountant.leakage.kernel import Array

__all__ = ["ThresholdCurve"]

_EPS = float(np.finfo(np.float64).eps)
_LARGE = 600.0
_BATCH = 20_000  # numbers per batch of pairs


class ThresholdCurve:
    """Λ(o) of the possible rows of one conditional table, rounded up.

    Parameters
    ----------
    rows
        The laws P(· | x), one row per *possible* x.
    slack
        How far ln of an entry may be from the truth (the table's own rounding).

    Examples
    --------
    >>> import numpy as np
    >>> curve = ThresholdCurve(np.array([[0.9, 0.1], [0.1, 0.9]]))
    >>> round(curve(1.0), 6), round(curve(np.inf), 6)
    (0.776137, 2.197225)
    """

    __slots__ = ("_bottom", "_single", "_slack", "_top")

    def __init__(self, rows: Array, *, slack: float = 1e-13) -> None:
        points = _hull(_threshold_points(np.asarray(rows, dtype=np.float64)))
        self._bottom, self._top = points[:, 0], points[:, 1]
        self._slack = 2.0 * slack
        self._single = len(rows) < 2

    def __call__(self, o: float) -> float:
        """Return Λ(o); ``o = inf`` gives the max-influence."""
        if self._single or o <= 0.0:
            return 0.0
        if not len(self._top):  # rows that agree to rounding
            return min(self._slack + 32 * _EPS * min(o, _LARGE), o)
        if o > _LARGE:
            with np.errstate(divide="ignore"):
                value = float((np.log(self._top) - np.log(self._bottom)).max())
        else:
            gain = np.expm1(o)
            value = float(np.log(((1.0 + self._top * gain) / (1.0 + self._bottom * gain)).max()))
        return min(value + self._slack + 32 * _EPS * min(o, _LARGE), o)

    @property
    def influence(self) -> float:
        """The max-influence: Λ(∞)."""
        return self(np.inf)


def _threshold_points(rows: Array) -> Array:
    """Return (p'(T), p(T)) for every ordered pair of rows and every threshold set of p/p'."""
    size = max(1, _BATCH // max(rows.size, 1))
    parts = [_points_from(rows[k : k + size], rows) for k in range(0, len(rows), size)]
    return np.concatenate([np.zeros((0, 2)), *parts])


def _points_from(first: Array, rows: Array) -> Array:
    """Return the useful points of all pairs whose first row is one of ``first``."""
    p = np.broadcast_to(first[:, None, :], (len(first), *rows.shape))
    q = np.broadcast_to(rows[None, :, :], p.shape)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.where(q > 0, p / q, np.where(p > 0, np.inf, 0.0))
    order = np.argsort(-ratio, axis=2)
    top = np.cumsum(np.take_along_axis(p, order, axis=2), axis=2)[:, :, :-1]
    bottom = np.cumsum(np.take_along_axis(q, order, axis=2), axis=2)[:, :, :-1]
    return _pareto(np.column_stack([bottom.ravel(), top.ravel()]))


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
            if (t1 - t0) * (b - b0) < (t - t0) * (b1 - b0) * (1.0 - 1e-12):
                kept.pop()
            else:
                break
        kept.append((b, t))
    return np.array(kept, dtype=np.float64).reshape(-1, 2)
