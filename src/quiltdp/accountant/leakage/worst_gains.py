"""max_H ln E_p H / E_q H over what an α-DP mechanism allows, for many pairs of laws: proved and attained.

H ranges over likelihoods of the unknown records' values with H(u) ≤ e^{α_j} H(u') whenever u and u'
differ in record j only.  For every pair there are two numbers: one that no H exceeds (certified, by the
closed form, the heights, a transport or a linear program), and one that a given H attains.  Where they
agree the limit is known; where they do not, the first is only a bound.

*Assumes*: positive laws over the joint values of the unknown records.  *Cost*: a closed form, heights, a
transport or a linear program per pair.  *Reference*: docs/theory.md, section 9.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.leakage.kernel import CLOSED_UP_TO, closed_kernel, log_masses
from quiltdp.accountant.leakage.ties import best_ties, proved
from quiltdp.accountant.leakage.transport import FARTHEST, transport, uniform_transport
from quiltdp.accountant.leakage.worst_mechanism import by_linear_program, height_functions
from quiltdp.compiled import kernel
from quiltdp.numbers import EPS

__all__ = ["in_closed_form", "is_quick", "log_ratios", "staged_ceiling", "worst_gains"]

Array = NDArray[np.float64]
_SIMPLEX = 32  # joint values up to which the transport between them is solved
_QUICK = 8  # joint values up to which that takes no longer than a ceiling


def worst_gains(p: Array, q: Array, sizes: tuple[int, ...], alphas: Array) -> tuple[Array, Array]:
    """Return what is proved and what is attained, one of each per row.

    Parameters
    ----------
    p, q
        Laws over the joint values of the unknown records, shape (B, Π sizes); zeros are impossible.
    sizes, alphas
        Per unknown record its states and its α.

    Examples
    --------
    >>> p, q = np.array([[0.9, 0.1]]), np.array([[0.1, 0.9]])
    >>> [float(v[0].round(6)) for v in worst_gains(p, q, (2,), np.array([1.0]))]
    [0.776137, 0.776137]
    """
    p, q, sizes, alphas = _read_only(p, q, sizes, alphas)
    reach = float(alphas.sum())
    ceiling = np.minimum(reach * (1 + 8 * EPS), log_ratios(p, q))
    if not sizes:
        return np.zeros(len(p)), np.zeros(len(p))
    if len(sizes) == 1:
        above = uniform_transport(p, q, np.full(len(p), reach))
        return np.minimum(above, ceiling), _attained(p, q, sizes, alphas, _threshold(p, q, reach))
    if reach > FARTHEST:
        return ceiling, np.zeros(len(p))
    if np.all(alphas == alphas[0]) and height_functions(sizes) is not None:
        above, below = _by_heights(p, q, sizes, float(alphas[0]))
    elif p.shape[1] <= _SIMPLEX:
        above, below = _by_transport(p, q, sizes, alphas)
    else:
        above, below = _by_program(p, q, sizes, alphas)
    return np.minimum(above, ceiling), below


def in_closed_form(sizes: tuple[int, ...], alphas: Array) -> bool:
    """Return whether :func:`worst_gains` solves no program for these records."""
    read = tuple(k for k, a in zip(sizes, alphas, strict=True) if a > 0 and k > 1)
    equal = len({float(a) for a in alphas if a > 0}) == 1
    return len(read) < 2 or (equal and height_functions(read) is not None)


def is_quick(sizes: tuple[int, ...], alphas: Array) -> bool:
    """Return whether :func:`worst_gains` takes no longer than :func:`staged_ceiling`."""
    return math.prod(sizes) <= _QUICK or in_closed_form(sizes, alphas)


def staged_ceiling(p: Array, q: Array, sizes: tuple[int, ...], alphas: Array) -> Array:
    """Return upper bounds that need no program: the unknown records are revealed one at a time.

    m_k(x, y) = T( p(x_k | x), q(y_k | y); α_k·1[x_k ≠ y_k] + m_{k+1} ), x and y the values of the records
    before k; the last record first.  E_p H / E_q H ≤ e^{m_1}.
    """
    p, q, sizes, alphas = _read_only(p, q, sizes, alphas)
    if float(alphas.sum()) > FARTHEST:
        return np.full(len(p), np.inf)
    message: Array | None = None  # nothing beyond the last record
    both = np.stack([p, q], axis=1)
    for size, a in zip(reversed(sizes), reversed(alphas.tolist()), strict=True):
        joint = both.reshape(len(p), 2, -1, size)
        both = joint.sum(axis=3)
        some = both > 0
        with np.errstate(invalid="ignore", divide="ignore"):
            laws = np.where(some[..., None], joint / both[..., None], 1.0)
        if message is None and size == 2:
            value = _last_of_two(laws, a)
        else:
            cost = a * (1.0 - np.eye(size))
            d = cost if message is None else message + np.tile(cost, (both.shape[2], both.shape[2]))
            value = _revealed(laws, d)
        value += 16 * EPS
        message = np.where(some[:, 0, :, None] & some[:, 1, None, :], value, 0.0)
    return np.zeros(len(p)) if message is None else np.asarray(message[:, 0, 0])


def _last_of_two(laws: Array, a: float) -> Array:
    """Return T(p, q; a·1[x ≠ y]) of two values: the larger is told by one of them, rounded up."""
    logs = np.log1p(laws.transpose(3, 1, 0, 2).copy() * math.expm1(a * (1 + 8 * EPS)))
    value = logs[0, 0, :, :, None] - logs[0, 1, :, None, :]
    value = np.maximum(value, logs[1, 0, :, :, None] - logs[1, 1, :, None, :], out=value)
    value = np.maximum(value, 0.0, out=value)
    value += 32 * EPS * (1.0 + a)
    return np.asarray(np.minimum(value, a * (1 + 8 * EPS), out=value))


def _revealed(laws: Array, d: Array) -> Array:
    """Return T(p, q; d) for the values of a record that is revealed, axes (pair, before p, before q).

    ``laws`` has axes (pair, p or q, values before, value); ``d`` (pair, values before and value, the same),
    or only those of the record's own values.
    """
    closed = kernel("qd_closed_stage")
    pairs, _, n, size = laws.shape
    if closed is None or size > 3 or not d.max() <= CLOSED_UP_TO:
        return revealed_in_numpy(laws, d)
    last = size - 1 - (laws[..., ::-1] > 0).argmax(axis=3)
    members = np.where(laws > 0, np.arange(size), last[..., None])  # an impossible value stands with another
    if d.ndim == 3:
        members += (np.arange(n) * size)[:, None]
        members[:, 0] += (np.arange(pairs) * d.shape[1])[:, None, None]
    groups = np.arange(2 * pairs * n).reshape(pairs, 2, n)
    left = np.repeat(groups[:, 0], n, axis=1)
    right = np.tile(groups[:, 1], (1, n))
    best, most, top = np.empty((3, pairs, n, n))
    closed(
        d, np.exp(d), 1, d.shape[-1], members, laws, *log_masses(laws, laws), size, left, right, best.size,
        EPS, top, best, most,
    )  # fmt: skip
    return np.asarray(np.minimum(np.log(best, out=best) + (2 * size + 24) * EPS, most))


def revealed_in_numpy(laws: Array, d: Array) -> Array:
    """Return what :func:`_revealed` does by ``compiled/closed_forms.c``, its twin."""
    pairs, _, n, size = laws.shape
    first = [np.ascontiguousarray(laws[:, 0, :, x])[:, :, None] for x in range(size)]
    second = [np.ascontiguousarray(laws[:, 1, :, x])[:, None, :] for x in range(size)]
    by_value = d.reshape(-1, d.shape[-2] // size, size, d.shape[-1] // size, size).transpose(2, 4, 0, 1, 3)
    cells = np.broadcast_to(np.ascontiguousarray(by_value), (size, size, pairs, n, n))
    return closed_kernel(first, second, _as_possible(first, second, cells))


def _as_possible(p: list[Array], q: list[Array], d: Array) -> Array:
    """Give every impossible source (sink) the costs of a possible one: it then changes nothing."""
    if all((law > 0).all() for law in (*p, *q)):
        return d
    d = d.copy()
    for laws, axis in ((p, 0), (q, 1)):
        for x in range(len(laws)):
            for y in range(len(laws)):
                here, there = (d[x], d[y]) if axis == 0 else (d[:, x], d[:, y])
                here[...] = np.where((laws[x] <= 0) & (laws[y] > 0), there, here)
    return d


def log_ratios(p: Array, q: Array) -> Array:
    """Return max_u ln p(u) / q(u), rounded up: as far as any H can go; ∞ where q vanishes and p does not."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(p > 0, np.log(p) - np.log(q), -np.inf)
    return np.asarray(np.maximum(ratio.max(axis=1), 0.0) * (1 + 8 * EPS) + 1e-12)


def _read_only(
    p: Array, q: Array, sizes: tuple[int, ...], alphas: Array
) -> tuple[Array, Array, tuple[int, ...], Array]:
    """Sum out the records that no mechanism reads (α = 0): H does not depend on them."""
    read = [k for k, a in enumerate(alphas) if a > 0 and sizes[k] > 1]
    if len(read) == len(sizes):
        return p, q, sizes, alphas
    gone = tuple(1 + k for k in range(len(sizes)) if k not in read)
    p, q = (law.reshape(-1, *sizes).sum(axis=gone).reshape(len(law), -1) for law in (p, q))
    return p, q, tuple(sizes[k] for k in read), alphas[read]


def _threshold(p: Array, q: Array, reach: float) -> Array:
    """Return ln H of the best threshold set of p/q: the largest for a single record."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(p > 0, np.log(p) - np.log(q), -np.inf)
    order = np.argsort(-ratio, axis=1, kind="stable")
    gain = np.expm1(min(reach, 600.0))
    above = np.log1p(np.cumsum(np.take_along_axis(p, order, axis=1), axis=1) * gain)
    below = np.log1p(np.cumsum(np.take_along_axis(q, order, axis=1), axis=1) * gain)
    best = (above - below).argmax(axis=1)
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.arange(p.shape[1])[None, :], axis=1)
    return np.where(place <= best[:, None], 0.0, -reach)


def _attained(p: Array, q: Array, sizes: tuple[int, ...], alphas: Array, log_h: Array) -> Array:
    """Return ln E_p H / E_q H, rounded down, for the largest allowed function below ``log_h``."""
    table = np.maximum(log_h, log_h.max(axis=1, keepdims=True) - 2e3).reshape(-1, *sizes)
    for axis, a in enumerate(alphas, start=1):
        table = np.minimum(table, table.min(axis=axis, keepdims=True) + a)
    h = np.exp(table - table.max(axis=tuple(range(1, table.ndim)), keepdims=True)).reshape(len(p), -1)
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.log((p * h).sum(axis=1)) - np.log((q * h).sum(axis=1))
    slack = EPS * (16 + 4 * p.shape[1] + 4 * float(alphas.sum()))
    return np.asarray(np.maximum(np.where(np.isfinite(gain), gain, 0.0) - slack, 0.0))


def _by_heights(p: Array, q: Array, sizes: tuple[int, ...], alpha: float) -> tuple[Array, Array]:
    """Return the maximum over height functions: with equal α there are no other extreme H."""
    heights = height_functions(sizes)
    assert heights is not None
    h = heights.astype(np.float64)
    weights = np.exp(alpha * (h - h.max(axis=1, keepdims=True)))
    gain = (np.log(weights @ p.T) - np.log(weights @ q.T)).max(axis=0)
    # exp of an argument of size α·|sizes| is off by that many units; the sums add their own length
    slack = EPS * (16 + 4 * p.shape[1] + 4 * alpha * len(sizes))
    return np.maximum(gain, 0.0) + slack, np.maximum(gain - slack, 0.0)


def _by_transport(p: Array, q: Array, sizes: tuple[int, ...], alphas: Array) -> tuple[Array, Array]:
    """Return T for the distance between values, and what its best tree of ties attains."""
    points = np.array(list(np.ndindex(*sizes)))
    d = ((points[:, None, :] != points[None, :, :]) * alphas).sum(axis=2)
    dearer = d * (1 + 8 * EPS)
    above, below = np.empty(len(p)), np.zeros(len(p))
    for k in range(len(p)):  # supports differ from row to row
        sources, sinks = np.flatnonzero(p[k] > 0), np.flatnonzero(q[k] > 0)
        laws = p[k, sources][:, None], q[k, sinks][:, None]
        closed = len(sources) == 1 or len(sinks) <= 2 or bool(np.array_equal(p[k], q[k]))
        if closed:
            above[k] = transport(p[k : k + 1], q[k : k + 1], dearer[None])[0]
        cells = d[np.ix_(sources, sinks)]
        ties = best_ties(*laws, cells.reshape(-1, 1))
        if not closed:
            above[k] = math.log(proved(*laws, dearer[np.ix_(sources, sinks)].reshape(-1, 1), ties)[0][0])
        costs = cells.ravel()[ties.cell[:, 0]]
        side = ties.side[:, 0].astype(np.uint64)
        nodes = np.arange(len(sources), len(sources) + len(sinks), dtype=np.uint64)
        inside = (side[:, None] >> nodes[None, :]) & np.uint64(1)
        log_g = (costs[:, None] * inside).sum(axis=0)
        log_h = (d[:, sinks] + log_g).min(axis=1)
        below[k] = _attained(p[k : k + 1], q[k : k + 1], sizes, alphas, log_h[None])[0]
    return np.maximum(above, 0.0), below


def _by_program(p: Array, q: Array, sizes: tuple[int, ...], alphas: Array) -> tuple[Array, Array]:
    """Return the linear programs' certificates, and what their functions attain."""
    above, below = np.empty(len(p)), np.zeros(len(p))
    for k in range(len(p)):
        found: dict[str, Any] = {}
        above[k] = by_linear_program(p[k], q[k], sizes, alphas, found=found) + 4 * EPS
        if "h" in found:
            log_h = np.log(np.maximum(found["h"], 1e-300))
            below[k] = _attained(p[k : k + 1], q[k : k + 1], sizes, alphas, log_h[None])[0]
    return above, below
