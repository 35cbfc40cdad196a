"""Which rays of a set span its cone: the corners, and a certificate for every ray that is dropped.

A ray may be dropped when it is a non-negative combination of rays that stay, because no ratio of two
non-negative linear functions is larger there (see :mod:`quiltdp.inference.rays`).  Corners are only
*suggested* by geometry in floating point; a ray is dropped when the combination found for it agrees with
it in **every coordinate**, up to a relative ``INSIDE``.  So tiny coordinates count as much as large ones,
a zero is matched by exact zeros, and a poor suggestion costs time, never a wrong number.

Two states: the smallest and the largest odds.  Three: the corners of a polygon, the section of such a cone,
for many sets at once; what lies inside is certified by three corners, or two; rays so far apart that the
plane cannot tell them from each other go through the monotone chain.  More: the convex hull of one set
after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from quiltdp.inference.plan import CERTIFICATE_ENTRIES, CONE_COORDINATES, HULL_FROM, HULL_UP_TO, MONOTONE_FROM
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
    if size == 3:
        return _packed(_polygons(used)) if members > 3 else np.tile(np.arange(members), (sets, 1))
    keep = _distinct(used)
    if keep.sum(axis=1).max() > HULL_FROM:
        for row, mask in zip(used, keep, strict=True):
            found = np.flatnonzero(mask)
            if HULL_FROM < len(found) <= HULL_UP_TO.get(size, 0):
                mask[found] = _hull(row[found])
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


# -- three coordinates: many polygons at once ------------------------------------------------------


def _packed(keep: Mask) -> Index:
    """Return the marked members of every set, short rows filled up with their first."""
    count = keep.sum(axis=1)
    order = np.argsort(~keep, axis=1, kind="stable")[:, : count.max()]
    return np.where(np.arange(order.shape[1]) < count[:, None], order, order[:, :1])


def _taken(rays: Table, index: Index) -> Table:
    return np.take_along_axis(rays, index[:, :, None], axis=1)


def _polygons(rays: Table) -> Mask:
    """Mark the corners of the polygon of every set, and what could not be certified to lie inside."""
    top = rays.max(axis=1, keepdims=True)
    scaled = rays / np.where(top > 0, top, 1.0)
    weight = scaled.sum(axis=2)
    dead = ~(weight > 0)
    best = weight.argmax(axis=1)[:, None]
    if dead.any():  # a ray of zeros is in the place of the best one
        first = _taken(scaled, best)
        scaled = np.where(dead[:, :, None], np.where(first.any(axis=2, keepdims=True), first, 1.0), scaled)
        weight = scaled.sum(axis=2)
    flat = np.asarray(scaled[:, :, 1:] / weight[:, :, None], dtype=np.float64)
    ring = _ring(flat)
    ring = np.where(np.take_along_axis(dead, ring, axis=1), best, ring)
    keep = np.zeros(dead.shape, dtype=bool)
    np.put_along_axis(keep, ring, True, axis=1)
    sets, members = np.nonzero(~keep & ~dead)
    rest = (sets, members)
    keep[rest] = ~_in_fan(scaled, flat, ring, rest)
    keep &= ~dead
    for k in np.flatnonzero(keep.sum(axis=1) > MONOTONE_FROM):
        found = np.flatnonzero(keep[k])
        if (rays[k, found] > 0).all():
            keep[k] = False
            keep[k, found[_polygon(rays[k, found])]] = True
    keep[~keep.any(axis=1), 0] = True
    return keep


def _ring(flat: Table) -> Index:
    """Return corners of the planar sets, counterclockwise: four extremes, then what lies beyond an edge."""
    u, v = flat[:, :, 0], flat[:, :, 1]
    ring = np.stack([u.argmax(axis=1), v.argmax(axis=1), u.argmin(axis=1), v.argmin(axis=1)], axis=1)
    points = np.ascontiguousarray(flat.swapaxes(1, 2))
    place = None  # where the points that may still be corners are
    for _ in range(16):
        here = _taken(flat, ring)
        edge = np.roll(here, -1, axis=1) - here
        normal = np.stack([edge[:, :, 1], -edge[:, :, 0]], axis=2)
        level = (here * normal).sum(axis=2) + 4e-16 * np.abs(edge).sum(axis=2)
        height = normal @ points  # sets, edges, points
        far = height.argmax(axis=2)
        new = np.take_along_axis(height, far[:, :, None], axis=2)[:, :, 0] > level
        if not new.any():
            break
        beyond = (height > level[:, :, None]).any(axis=1)
        corner = far if place is None else np.take_along_axis(place, far, axis=1)
        ring = _compact(np.stack([ring, np.where(new, corner, ring)], axis=2).reshape(len(ring), -1))
        left = _packed(beyond)
        if 2 * left.shape[1] <= beyond.shape[1]:
            place = left if place is None else np.take_along_axis(place, left, axis=1)
            points = np.take_along_axis(points, left[:, None], axis=2)
    return ring


def _compact(ring: Index) -> Index:
    """Drop repetitions from every ring."""
    return np.asarray(np.take_along_axis(ring, _packed(ring != np.roll(ring, 1, axis=1)), axis=1))


def _in_fan(rays: Table, flat: Table, ring: Index, rest: tuple[Index, Index]) -> Mask:
    """Return which of the rays ``rest`` are certified combinations of three rays of their ring.

    The ring is cut into triangles around one of its corners.  Near the edges at that corner rounding may
    pick the wrong triangle, so what fails is tried in others, and around another corner.
    """
    if ring.shape[1] < 3:
        ring = np.concatenate([ring, ring[:, :1], ring[:, :1]], axis=1)
    sets, members = rest
    found = np.zeros(len(sets), dtype=bool)
    for turn in range(2):
        turned = _turned(ring) if turn else ring
        corner = _taken(rays, turned)
        p = np.broadcast_to(corner[:, :1], corner[:, 1:-1].shape)
        fans = np.stack([p, corner[:, 1:-1], corner[:, 2:]], axis=3)  # sets, triangles, coordinates, corners
        left = np.flatnonzero(~found)
        ahead = _ahead(flat, turned, (sets[left], members[left]))
        for guess in _guesses(ahead):
            open_ = np.flatnonzero(~found[left])
            where = left[open_]
            found[where] = _inside(fans[sets[where], guess[open_]], rays[sets[where], members[where]])
            if found.all():
                return found
    # flat sets: between the two rays that lie farthest apart
    where = np.flatnonzero(~found)
    ends = _taken(rays, np.take_along_axis(ring, _farthest(_taken(flat, ring)), axis=1))[sets[where]]
    found[where] = _between(ends[:, 0], ends[:, 1], rays[sets[where], members[where]])
    return found


def _turned(ring: Index) -> Index:
    """Return the rings started at a corner on the other side."""
    at = np.arange(ring.shape[1])
    length = ring.shape[1] - (ring[:, :0:-1] != ring[:, :1]).argmax(axis=1)[:, None]  # without repetitions
    start = length // 2
    return np.take_along_axis(ring, np.where(at < length, (at + start) % length, start), axis=1)


def _ahead(flat: Table, ring: Index, some: tuple[Index, Index]) -> Mask:
    """Return whether points lie further round than the corners of their ring, seen from the first corner."""
    start = _taken(flat, ring[:, :1])
    arm = _taken(flat, ring[:, 1:]) - start
    if 2 * len(some[0]) > flat.shape[0] * flat.shape[1]:
        out = flat - start
        return (np.stack([out[:, :, 1], -out[:, :, 0]], axis=2) @ arm.swapaxes(1, 2) > 0)[some]
    x, y = (flat[some] - start[some[0], 0]).T
    far = arm[some[0]]
    return np.asarray(far[:, :, 0] * y[:, None] > far[:, :, 1] * x[:, None])


def _guesses(ahead: Mask) -> Iterator[Index]:
    """Yield triangles (corners 0, k + 1 and k + 2) in which the points may lie: k once, by three rules."""
    last = ahead.shape[1] - 2
    yield np.clip(np.count_nonzero(ahead, axis=1) - 1, 0, last)
    yield np.clip(ahead.shape[1] - 1 - ahead[:, ::-1].argmax(axis=1), 0, last)
    yield np.clip(ahead.argmin(axis=1) - 1, 0, last)


def _farthest(points: Table) -> Index:
    spread = points.max(axis=1) - points.min(axis=1)
    along = np.take_along_axis(points, spread.argmax(axis=1)[:, None, None], axis=2)[:, :, 0]
    return np.stack([along.argmin(axis=1), along.argmax(axis=1)], axis=1)


def _inside(spans: Table, rays: Table) -> Mask:
    """Return which rays are certified combinations of the columns of their span, or of two of them."""
    found, weights = _combined(spans, rays)
    left = np.flatnonzero(~found)
    if len(left):  # on an edge, up to rounding: without the corner that would have to be taken off
        pair = np.array([[1, 2], [0, 2], [0, 1]])[weights[:, left].argmin(axis=0)]
        two = np.take_along_axis(spans[left], pair[:, None], axis=2)
        found[left] = _between(two[:, :, 0], two[:, :, 1], rays[left])
    return found


def _between(one: Table, two: Table, rays: Table) -> Mask:
    """Return which rays are certified combinations of two others."""
    normal = np.cross(one, two)
    length = np.abs(normal).max(axis=1, keepdims=True)
    spans = np.stack([one, two, normal / np.where(length > 0, length, 1.0)], axis=2)
    return _combined(spans, rays, used=2)[0]


def _combined(spans: Table, rays: Table, used: int = 3) -> tuple[Mask, Table]:
    """Return which rays agree with a non-negative combination of the (first ``used``) columns of a span.

    The second value has the weights before those below zero were cut off.
    """
    (a, b, c), (d, e, f), (g, h, i) = np.ascontiguousarray(np.moveaxis(spans, 0, 2))
    x, y, z = np.ascontiguousarray(rays.T)
    rows = (
        (e * i - f * h, c * h - b * i, b * f - c * e),
        (f * g - d * i, a * i - c * g, c * d - a * f),
        (d * h - e * g, b * g - a * h, a * e - b * d),
    )
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scale = 1 / (a * rows[0][0] + b * rows[1][0] + c * rows[2][0])
        wa, wb, wc = (scale * (r[0] * x + r[1] * y + r[2] * z) for r in rows)
        # once more for what this has missed, to the last digits
        dx, dy = x - (a * wa + b * wb + c * wc), y - (d * wa + e * wb + f * wc)
        dz = z - (g * wa + h * wb + i * wc)
        missed = [scale * (r[0] * dx + r[1] * dy + r[2] * dz) for r in rows]
        weights = np.stack([wa + missed[0], wb + missed[1], wc + missed[2]])
        wa, wb, wc = np.maximum(weights, 0.0)
        wc = wc if used == 3 else 0.0
        return (
            (np.abs(a * wa + b * wb + c * wc - x) <= INSIDE * x)
            & (np.abs(d * wa + e * wb + f * wc - y) <= INSIDE * y)
            & (np.abs(g * wa + h * wb + i * wc - z) <= INSIDE * z)
        ), np.nan_to_num(weights, nan=0.0)


def _polygon(unit: Table) -> list[int]:
    """Return the corners of a set of positive rays in three dimensions, by the monotone chain.

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
    return [order[k] for k in sorted(found)]
