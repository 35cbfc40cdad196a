"""Which rays of a set span its cone: the corners, and a certificate for every ray that is dropped.

A ray may be dropped when it is a non-negative combination of rays that stay, because no ratio of two
non-negative linear functions is larger there (see :mod:`quiltdp.inference.rays`).  Corners are only
*suggested* by geometry in floating point; a ray is dropped when the combination found for it agrees with
it in **every coordinate**, up to a relative ``INSIDE``.  So tiny coordinates count as much as large ones,
a zero is matched by exact zeros, and a poor suggestion costs time, never a wrong number.

Two states: the smallest and the largest odds.  Three: the corners of a polygon, for many sets at once.
More: the convex hull of one set after the other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from quiltdp.inference.polygons import INSIDE, Index, Mask, packed, polygons
from quiltdp.model import Table

__all__ = ["INSIDE", "corners"]

_EQUAL = 4e-15  # columns and rays that agree up to this are one
_FEW = 16  # rays up to which a hull in four or more dimensions is not worth its time
_LARGEST = {4: 4096, 5: 512}  # rays up to which it is, by dimension
_BLOCK = 2**21  # entries of one block of certificates
_TINY = 1e-290
_COLUMNS = 16  # coordinates from which only copies are looked for


def corners(rays: Table) -> Index:
    """Return the members to keep of every set of rays: an array (sets, kept), short rows repeat a member.

    Parameters
    ----------
    rays
        Non-negative, axes (sets, members, coordinates).  A ray of zeros stands for "impossible".

    Examples
    --------
    >>> import numpy as np
    >>> corners(np.array([[[1.0, 0.0], [1.0, 1.0], [0.2, 1.0]]])).tolist()
    [[0, 2]]
    """
    sets, members, _ = rays.shape
    if members == 1:
        return np.zeros((sets, 1), dtype=np.intp)
    if rays.shape[2] > _COLUMNS:
        return packed(_distinct(rays))
    used = rays[:, :, _independent(rays)]
    size = used.shape[2]
    if size < 2:  # all rays are the same up to a factor
        return np.asarray(rays.sum(axis=2).argmax(axis=1)[:, None])
    if size == 2:
        return _ends(used)
    if size == 3:
        return packed(polygons(used)) if members > 3 else np.tile(np.arange(members), (sets, 1))
    keep = _distinct(used)
    if keep.sum(axis=1).max() > _FEW:
        for row, mask in zip(used, keep, strict=True):
            found = np.flatnonzero(mask)
            if _FEW < len(found) <= _LARGEST.get(size, 0):
                mask[found] = _hull(row[found])
    return packed(keep)


# -- coordinates and copies -------------------------------------------------------------------


def _independent(rays: Table) -> list[int]:
    """Return the columns that are not a multiple of an earlier one (in all rays), nor zero."""
    flat = rays.reshape(-1, rays.shape[2])
    total = flat.sum(axis=0)
    weights = np.random.default_rng(0).uniform(1, 2, len(flat))
    with np.errstate(divide="ignore", invalid="ignore"):
        key = (weights @ flat) / total  # the same for multiples, up to rounding
    found: list[int] = []
    for j in np.flatnonzero(total > 0).tolist():
        alike = (i for i in found if abs(key[i] - key[j]) <= 1e-12 * key[j])
        if not any(_multiple(flat[:, i], flat[:, j]) for i in alike):
            found.append(j)
    return found


def _multiple(one: Table, two: Table) -> bool:
    for part in (slice(8), slice(None)):  # most are told apart at once
        a, b = one[part], two[part]
        if not np.array_equal(a > 0, b > 0):
            return False
        ratio = b[b > 0] / a[b > 0]
        if ratio.size and ratio.max() > (1 + _EQUAL) * ratio.min():
            return False
    return True


def _distinct(rays: Table) -> Mask:
    """Mark one of every kind of equal rays (of each set); rays of zeros go unless there is nothing else."""
    top = rays.max(axis=2, keepdims=True)
    alive = top[:, :, 0] > 0
    mantissa, exponent = np.frexp(rays / np.where(top > 0, top, 1.0))
    rounded = np.ldexp(np.round(mantissa * 2.0**46), exponent)
    key = rounded @ np.random.default_rng(0).uniform(1, 2, rays.shape[2])
    order = np.argsort(key, axis=1, kind="stable")
    ordered = np.take_along_axis(rounded, order[:, :, None], axis=1)
    fresh = np.ones(alive.shape, dtype=bool)
    same = (ordered[:, 1:] == ordered[:, :-1]).all(axis=2)
    np.put_along_axis(fresh, order[:, 1:], ~same, axis=1)
    keep = fresh & alive
    keep[~alive.any(axis=1), 0] = True
    return np.asarray(keep)


def _ends(rays: Table) -> Index:
    """Return the members with the smallest and the largest odds of two states."""
    with np.errstate(divide="ignore", invalid="ignore"):
        odds = rays[:, :, 1] / rays[:, :, 0]
    low = np.where(odds >= 0, odds, np.inf).argmin(axis=1)
    high = np.where(odds >= 0, odds, -1.0).argmax(axis=1)
    dead = ~(odds >= 0)  # a set of nothing but zeros and ∞ must still name possible members
    first = np.where(np.take_along_axis(dead, low[:, None], 1)[:, 0], high, low)
    keep = np.stack([first, high], axis=1)
    return keep[:, :1] if (first == high).all() else keep


# -- more coordinates: one hull at a time ------------------------------------------------------


def _hull(rays: Table) -> Mask:
    """Mark the corners of one set, and what could not be certified to lie inside."""
    from scipy.spatial import ConvexHull, QhullError

    columns = _independent(rays[None])
    if len(columns) < rays.shape[1]:  # fewer coordinates in this set than in the others
        keep = np.zeros(len(rays), dtype=bool)
        keep[corners(rays[None][:, :, columns])[0]] = True
        return keep
    everything = np.ones(len(rays), dtype=bool)
    scaled = np.asarray(rays / rays.max(axis=0), dtype=np.float64)
    if not np.array_equal(scaled > _TINY, rays > 0):
        return everything  # too far apart for doubles
    flat = scaled / scaled.sum(axis=1, keepdims=True)
    _, lengths, axes = np.linalg.svd(flat - flat.mean(axis=0), full_matrices=False)
    rank = int((lengths > 1e-9 * lengths[0]).sum())
    if rank < 2:
        return everything
    points = (flat - flat.mean(axis=0)) @ axes[:rank].T / lengths[:rank]
    try:
        hull = ConvexHull(points)
    except (QhullError, ValueError):
        return everything
    keep = np.zeros(len(rays), dtype=bool)
    keep[hull.vertices] = True
    rest = np.flatnonzero(~keep)
    if len(rest):
        keep[rest] = ~_certified(scaled, hull.simplices, int(hull.vertices[0]), rest)
    return keep


def _certified(rays: Table, facets: NDArray[np.intc], apex: int, rest: Index) -> Mask:
    """Return which of the rays ``rest`` are combinations of the apex and a facet of the hull."""
    opposite = facets[(facets != apex).all(axis=1)]
    simplices = np.column_stack([np.full(len(opposite), apex), opposite])
    inverse = np.linalg.pinv(rays[simplices].swapaxes(1, 2))  # simplices, corners, coordinates
    found = np.zeros(len(rest), dtype=bool)
    block = max(1, _BLOCK // max(1, inverse.shape[0] * inverse.shape[1]))
    for at in range(0, len(rest), block):
        some = rest[at : at + block]
        least = (inverse @ rays[some].T).min(axis=1)  # simplices, rays
        best = least.argmax(axis=0)
        found[at : at + block] = _agree(rays[simplices[best]], inverse[best], rays[some])
    return found


def _agree(spanning: Table, inverse: Table, rays: Table) -> Mask:
    """Return which rays agree with a non-negative combination of their spanning rays."""
    weights = np.einsum("kij,kj->ki", inverse, rays)
    missing = rays - np.einsum("ki,kij->kj", weights, spanning)
    weights = np.maximum(weights + np.einsum("kij,kj->ki", inverse, missing), 0.0)
    mixed = np.einsum("ki,kij->kj", weights, spanning)
    return np.asarray((np.abs(mixed - rays) <= INSIDE * rays).all(axis=1))
