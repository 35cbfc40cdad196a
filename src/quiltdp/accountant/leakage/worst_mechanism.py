"""The worst α-DP mechanism against one adversary: max_H ln E_p H / E_p' H, certified from above.

H ranges over likelihoods of the unknown records' values with H(u) ≤ e^{α_j} H(u') whenever u and u'
differ in record j only.  Two ways to the maximum:

*Heights.*  At an extreme H enough of the constraints are equalities to connect all values, so with
equal α every ln H / α is an integer: H runs over finitely many *height functions* (2, 6, 38, 990 for
one to four binary records).  Including more integer functions than the extreme ones changes nothing.

*Linear program.*  Maximise E_p H under E_p' H = 1.  The answer is certified by weak duality: for any
y ≥ 0 on the constraints, p − λ p' ≤ Σ_e y_e (1_u − e^{α_e} 1_{u'}) + r proves
E_p H ≤ (λ + Σ_u r(u) w(u)) E_p' H, where w(u), the price of a unit of missing weight at u, is the
smaller of min_v e^{d(u,v)} / p'(v) and max_v e^{d(u,v)} over the values v that p' allows.  The solver's
y is only a suggestion; the inequality is checked in floating point with its rounding errors put into r.

*Assumes*: positive laws over the joint values of the unknown records.  *Cost*: all height functions, or one
linear program per pair of laws.  *Reference*: docs/theory.md, section 9.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.bounds import Vector
from quiltdp.accountant.leakage.highs import largest_on_simplex
from quiltdp.accountant.trade_offs import HEIGHTS_LISTED
from quiltdp.numbers import EPS, up

__all__ = ["by_linear_program", "height_functions"]

_EXP_LIMIT = 600.0  # Σ α beyond which e^Σα is not handled: the caller's ceiling stands


@lru_cache(maxsize=64)
def height_functions(sizes: tuple[int, ...]) -> NDArray[np.int8] | None:
    """Return the integer functions h with |h(u) − h(u')| ≤ 1 for neighbours and h = 0 at the first value.

    For binary records neighbours differ by exactly 1 (the cube is bipartite).  ``None`` when there
    are too many to list.

    Examples
    --------
    >>> [len(height_functions((2,) * n)) for n in (1, 2, 3, 4)]
    [2, 6, 38, 990]
    """
    points = math.prod(sizes)
    binary = all(k == 2 for k in sizes)
    # those of values 0 and 1 alone; in the cube, of 0 at even points and ±1 at odd ones
    if points > 32 or 2 ** (points // 2 if binary else points - 1) > HEIGHTS_LISTED:
        return None
    moves = (-1, 1) if binary else (-1, 0, 1)
    near = _earlier_neighbours(sizes)
    found = np.zeros((1, 1), dtype=np.int8)
    for u in range(1, points):
        base = found[:, near[u][0]]
        grown = [np.column_stack([found, base + step]) for step in moves]
        found = np.concatenate(grown)
        last = found[:, -1]
        fits = np.ones(len(found), dtype=bool)
        for v in near[u][1:]:
            fits &= np.abs(last - found[:, v]) <= 1
        found = found[fits]
        if len(found) > HEIGHTS_LISTED:
            return None
    found.flags.writeable = False
    return found


def _earlier_neighbours(sizes: tuple[int, ...]) -> list[list[int]]:
    """For every value, the earlier values that differ from it in one record."""
    places = list(np.ndindex(*sizes))
    return [
        [v for v in range(u) if sum(a != b for a, b in zip(places[u], places[v], strict=True)) == 1]
        for u in range(len(places))
    ]


@lru_cache(maxsize=128)
def _edges(sizes: tuple[int, ...]) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Return every ordered pair of neighbouring values and the record in which they differ."""
    index = np.arange(int(np.prod(sizes))).reshape(sizes)
    sources, targets, records = [], [], []
    for axis, k in enumerate(sizes):
        lines = np.moveaxis(index, axis, 0).reshape(k, -1)
        for a in range(k):
            for b in range(k):
                if a != b:
                    sources.append(lines[a])
                    targets.append(lines[b])
                    records.append(np.full(lines.shape[1], axis))
    return np.concatenate(sources), np.concatenate(targets), np.concatenate(records)


def by_linear_program(
    p: Vector, q: Vector, sizes: tuple[int, ...], alphas: Vector, *, found: dict[str, Any] | None = None
) -> float:
    """Return a certified upper bound on max_H ln E_p H / E_p' H, tight to the solver's accuracy.

    ``alphas`` has one entry per unknown record.  ∞ when the solver gives no usable answer.  The
    solver's H is put into ``found`` as ``"h"``, for who wants to see what it attains.
    """
    if float(alphas.sum()) > _EXP_LIMIT:
        return float("inf")
    source, target, record = _edges(sizes)
    growth = np.exp(alphas)[record]
    rows = np.tile(np.arange(len(source)), 2)
    cells = np.concatenate([np.ones(len(source)), -growth])
    answer = largest_on_simplex(p, q, rows, np.concatenate([source, target]), cells)
    if answer is None:
        return float("inf")
    if found is not None:
        found["h"] = answer[0]
    y = np.maximum(answer[1], 0.0)
    return _certify(p, q, sizes, alphas, y, growth)


def _certify(
    p: Vector, q: Vector, sizes: tuple[int, ...], alphas: Vector, y: Vector, growth: Vector
) -> float:
    """Return ln of the smallest λ that the dual values ``y`` prove, rounded up."""
    source, target, _ = _edges(sizes)
    points = len(p)
    gain = np.bincount(source, weights=y, minlength=points)
    loss = np.bincount(target, weights=y * growth, minlength=points)
    # p(u) − λ q(u) ≤ gain(u) − loss(u) + r(u): what is missing, with rounding errors on our side
    error = (gain + loss + p) * (EPS * (16 + 4 * points))
    need = p - (gain - loss) + error
    price = np.minimum(_price(q, sizes, alphas), _farthest(q, sizes, alphas))
    weight = np.exp(price) * (1 + 4096 * EPS)

    def proved(rate: float) -> float:
        missing = np.maximum(need - rate * q * (1 - 4 * EPS), 0.0)
        return rate + float((missing * weight).sum()) * (1 + points * EPS)

    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        steps = np.where(q > 0, need / q, 0.0)
    rates = np.unique(np.maximum(steps, 1.0))
    best = min(proved(float(rate)) for rate in rates[-512:])
    return 8 * EPS if best <= 1.0 else up(float(np.log(best)) + 8 * EPS)


def _price(q: Vector, sizes: tuple[int, ...], alphas: Vector) -> Vector:
    """Return ln of a factor w with H(u) ≤ w(u) E_p' H, for every value: min_v d(u, v) − ln p'(v).

    H(u) ≤ e^{d(u,v)} H(v) and p'(v) H(v) ≤ E_p' H, for every v that p' allows.
    """
    with np.errstate(divide="ignore"):
        price = -np.log(q).reshape(sizes)
    for axis, a in enumerate(alphas):
        price = np.minimum(price, price.min(axis=axis, keepdims=True) + a)
    return price.reshape(-1)


def _farthest(q: Vector, sizes: tuple[int, ...], alphas: Vector) -> Vector:
    """Return, for every value, the largest distance Σ α_j·1[differs] to a value with q > 0."""
    far = np.where(q > 0, 0.0, -np.inf).reshape(sizes)
    for axis, a in enumerate(alphas):
        top = far.max(axis=axis, keepdims=True)
        if far.shape[axis] > 1:
            # moving along this axis pays a unless the farthest value has the same coordinate
            second = np.partition(far, -2, axis=axis).take([-2], axis=axis)
            is_top = far == top
            several = is_top.sum(axis=axis, keepdims=True) > 1
            elsewhere = np.where(is_top & ~several, second, top)
            far = np.maximum(far, elsewhere + a)
    return far.reshape(-1)
