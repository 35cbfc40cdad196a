"""Which rays of a set span its cone: the corners, and a certificate for every ray that is dropped.

A ray may be dropped when it is a non-negative combination of rays that stay, because no ratio of two
non-negative linear functions is larger there (see :mod:`quiltdp.inference.rays`).  Corners are only
*suggested* by geometry in floating point; a ray is dropped when the combination found for it agrees with
it in **every coordinate**, up to a relative ``INSIDE``.  So tiny coordinates count as much as large ones,
a zero is matched by exact zeros, and a poor suggestion costs time, never a wrong number.

Two states: the smallest and the largest odds.  Three: the monotone chain, where the sign of a determinant
beyond its rounding is the certificate.  Up to five, and three with zeros: the convex hull of one set after
another.  More: only equal rays are dropped.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from quiltdp.inference.plan import CERTIFICATE_ENTRIES, CONE_COORDINATES, HULL_FROM, HULL_UP_TO
from quiltdp.model import Table

__all__ = ["INSIDE", "corners"]

INSIDE = 1e-13
"""How far, relative in each coordinate, a dropped ray may be from a combination of those kept."""

_EQUAL = 4e-15  # columns and rays that agree up to this are one
_TINY = 1e-290  # products below it have lost their last digits

Index: TypeAlias = NDArray[np.intp]
Mask: TypeAlias = NDArray[np.bool_]


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
    if rays.shape[2] > CONE_COORDINATES:
        return _packed(_distinct(rays))
    used = rays[:, :, _independent(rays)]
    size = used.shape[2]
    if size < 2:  # all rays are the same up to a factor
        return np.asarray(rays.sum(axis=2).argmax(axis=1)[:, None])
    if size == 2:
        return _ends(used)
    keep = _distinct(used)
    least: int = HULL_FROM.get(size, int(members))
    if keep.sum(axis=1).max() > least:
        for row, mask in zip(used, keep, strict=True):
            found = np.flatnonzero(mask)
            if least < len(found) <= HULL_UP_TO.get(size, 0):
                mask[found] = _polygon(row[found]) if size == 3 and row[found].all() else _hull(row[found])
    return _packed(keep)


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


def _packed(keep: Mask) -> Index:
    """Return the marked members of every set, short rows filled up with their first."""
    count = keep.sum(axis=1)
    order = np.argsort(~keep, axis=1, kind="stable")[:, : count.max()]
    return np.where(np.arange(order.shape[1]) < count[:, None], order, order[:, :1])


# -- three coordinates or more: one hull at a time ------------------------------------------------------


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
    block = max(1, CERTIFICATE_ENTRIES // max(1, inverse.shape[0] * inverse.shape[1]))
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


def _polygon(unit: Table) -> Mask:
    """Mark the corners of a set of positive rays in three dimensions, by the monotone chain.

    The turn at a ray is the sign of a determinant; where rounding could have decided it the ray stays.
    """
    order = np.lexsort((unit[:, 2] / unit[:, 0], unit[:, 1] / unit[:, 0])).tolist()
    points = unit[order].tolist()
    found: set[int] = set()
    for sign in (1.0, -1.0):
        chain: list[int] = []
        s0 = s1 = s2 = 0.0
        for k, (r0, r1, r2) in enumerate(points):
            if abs(r0 - s0) <= _EQUAL * r0 and abs(r1 - s1) <= _EQUAL * r1 and abs(r2 - s2) <= _EQUAL * r2:
                continue  # the same ray again, up to rounding
            s0, s1, s2 = r0, r1, r2
            while len(chain) > 1:
                p0, p1, p2 = points[chain[-2]]
                q0, q1, q2 = points[chain[-1]]
                plus = p0 * q1 * r2 + p1 * q2 * r0 + p2 * q0 * r1
                minus = p2 * q1 * r0 + p1 * q0 * r2 + p0 * q2 * r1
                if sign * (plus - minus) >= -4e-15 * (plus + minus) or plus + minus < _TINY:
                    break
                chain.pop()
            chain.append(k)
        found.update(chain)
    keep = np.zeros(len(unit), dtype=bool)
    keep[[order[k] for k in found]] = True
    return keep
