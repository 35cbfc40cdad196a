"""K(p, q; d): how far one mixture can exceed another when the observer is d-Lipschitz.

For laws p on sources and q on sinks and a distance d ≥ 0 from sources to sinks,

    K(p, q; d) = max ln Σ p_i x_i / Σ q_j y_j    over x, y > 0 with x_i ≤ e^{d_ij} y_j.

It is the one question that every bound against the prior adversary asks: x and y are the values of
an unknown function H on the states that are possible under p and under q, and d says how far the
data behind two states can differ.  When d obeys the triangle inequality (every metric built here
does) the direct constraints between sources and sinks imply all others; when it does not, dropping
the others can only enlarge K, which is the safe side.

**Dual.**  K = ln min λ over transports f ≥ 0 with Σ_j f_ij = p_i and Σ_i f_ij e^{d_ij} ≤ λ q_j.
*Any* f whose rows are rescaled to p proves an upper bound, so a linear program's answer is never
believed: its transport is read, repaired and evaluated (:func:`transport_bound`).

**Closed forms.**  The maximum sits at a vertex where the ties d_ij + ln y_j = d_ik + ln y_k connect
all sinks; with k = min(sources, sinks) ≤ 3 there are at most 3·n² such trees and all are tried.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["kernel", "kernel_ceiling", "transport_bound"]

Array: TypeAlias = NDArray[np.float64]

_EPS = float(np.finfo(np.float64).eps)
_LARGEST = 200.0  # beyond this distance e^d would leave the range of doubles in the closed forms
_CHUNK = 1 << 21  # numbers per batch array


def kernel(p: Array, q: Array, d: Array, *, lp_limit: int = 4096, lp_cells: int = 40_000) -> Array:
    """Return certified upper bounds on K(p, q; d), one per problem of the batch.

    Parameters
    ----------
    p, q
        Laws on sources, shape (B, n), and sinks, shape (B, m); zeros are impossible states.
    d
        Distances, shape (B, n, m), non-negative.
    lp_limit, lp_cells
        Problems with more than three sources and sinks go to a linear program while no more than
        ``lp_limit`` cells n·m each and ``lp_cells`` cells in all are asked for; the rest get the
        best of the closed bounds.

    Examples
    --------
    >>> import numpy as np
    >>> p, q = np.array([[0.9, 0.1]]), np.array([[0.1, 0.9]])
    >>> float(kernel(p, q, np.array([[[0.0, 1.0], [1.0, 0.0]]]))[0].round(6))
    0.776137
    """
    p, q, d = (np.ascontiguousarray(a, dtype=np.float64) for a in (p, q, d))
    if np.isnan(d).any():
        raise ValueError("a distance is NaN")
    if not len(p):
        return np.zeros(0)
    sources, sinks = np.flatnonzero(p.any(axis=0)), np.flatnonzero(q.any(axis=0))
    if len(sources) < p.shape[1] or len(sinks) < q.shape[1]:
        p, q, d = p[:, sources], q[:, sinks], d[:, sources][:, :, sinks]
    n, m = p.shape[1], q.shape[1]
    if not n or not m:
        return np.zeros(len(p))
    result = kernel_ceiling(p, q, d)
    open_ = np.flatnonzero((result > 0) & (d.max(axis=(1, 2)) <= _LARGEST))
    small = min(n, m)
    if small <= 3:
        weight = n * m * (1 if small == 1 else max(n, m))
        for part in np.array_split(open_, max(1, len(open_) * weight // _CHUNK)):
            value = _closed(p[part], q[part], d[part])
            result[part] = np.minimum(result[part], value)
    elif len(open_):
        from quiltdp.accountant.leakage.kernel_lp import kernel_lp, kernel_pairs

        result[open_] = np.minimum(result[open_], kernel_pairs(p[open_], q[open_], d[open_]))
        if n * m <= lp_limit and n * m * len(open_) <= lp_cells:
            result[open_] = np.minimum(result[open_], kernel_lp(p[open_], q[open_], d[open_]))
    return result


def kernel_ceiling(p: Array, q: Array, d: Array) -> Array:
    """Return the smaller of two transports that need no search: max d, and staying put.

    Staying put (f = diag(p)) gives max_i d_ii + ln p_i / q_i when sources and sinks are the same
    states; with d_ii = 0 this is the max-influence of the Markov Quilt Mechanism.
    """
    alive = (p[:, :, None] > 0) & (q[:, None, :] > 0)
    ceiling: Array = np.where(alive, d, 0.0).max(axis=(1, 2))
    if p.shape[1] == q.shape[1]:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(p > 0, np.log(p) - np.log(q), -np.inf)
        stay = (ratio + np.diagonal(d, axis1=1, axis2=2)).max(axis=1)
        ceiling = np.minimum(ceiling, np.where(np.isnan(stay), np.inf, stay) + 16 * _EPS)
    return np.maximum(ceiling, 0.0)


def transport_bound(p: Array, q: Array, d: Array, f: Array) -> Array:
    """Return ln max_j Σ_i g_ij e^{d_ij} / q_j for g = f with its rows rescaled to p, rounded up.

    Any non-negative f is a proof: Σ p_i x_i = Σ g_ij x_i ≤ Σ g_ij e^{d_ij} y_j ≤ λ Σ q_j y_j.
    Rows that carry no mass use the cheapest single sink; mass on impossible sinks is dropped.
    """
    g = np.where((q[:, None, :] > 0) & np.isfinite(f), np.maximum(f, 0.0), 0.0)
    rows = g.sum(axis=2)
    cheapest = np.where(q[:, None, :] > 0, d, np.inf).argmin(axis=2)
    lone = np.zeros_like(g)
    np.put_along_axis(lone, cheapest[:, :, None], 1.0, axis=2)
    g = np.where(rows[:, :, None] > 0, g, lone)
    g = g * (p / g.sum(axis=2))[:, :, None]
    shift = np.where(g > 0, d, 0.0).max(axis=(1, 2))
    scaled = np.exp(np.where(g > 0, d - shift[:, None, None], -np.inf))
    load = (g * scaled).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(load > 0, load / q, 0.0).max(axis=1)
        value = shift + np.log(ratio)
    slack = (p.shape[1] + q.shape[1] + 16) * _EPS * (1.0 + shift)
    return np.asarray(np.maximum(value, 0.0) + slack)


def _closed(p: Array, q: Array, d: Array) -> Array:
    """Try every vertex: exact for min(n, m) ≤ 3 and d ≤ 200; rounded up."""
    n, m = p.shape[1], q.shape[1]
    e = np.exp(_duplicate_impossible(p, q, d))
    best = np.zeros(len(p))
    if m <= n:
        for y in _vertices(e):
            x = (e * y[:, None, :]).min(axis=2)
            np.maximum(best, _ratio(p, x, q, y), out=best)
    else:
        inverse = 1.0 / e
        for x in _vertices(inverse.swapaxes(1, 2)):
            y = (x[:, :, None] * inverse).max(axis=1)
            np.maximum(best, _ratio(p, x, q, y), out=best)
    return np.asarray(np.log(np.maximum(best, 1.0)) + (n + m + 24) * _EPS)


def _ratio(p: Array, x: Array, q: Array, y: Array) -> Array:
    """Return Σ p x / Σ q y for every problem."""
    return np.asarray(np.einsum("bi,bi->b", p, x) / np.einsum("bj,bj->b", q, y))


def _duplicate_impossible(p: Array, q: Array, d: Array) -> Array:
    """Give every impossible source (sink) the distances of a possible one: it then changes nothing."""
    if not (p > 0).all():
        donor = np.where(p > 0, np.arange(p.shape[1]), (p > 0).argmax(axis=1)[:, None])
        d = np.take_along_axis(d, donor[:, :, None], axis=1)
    if not (q > 0).all():
        donor = np.where(q > 0, np.arange(q.shape[1]), (q > 0).argmax(axis=1)[:, None])
        d = np.take_along_axis(d, donor[:, None, :], axis=2)
    return d


def _vertices(e: Array) -> Iterator[Array]:
    """Yield every point z, z_0 = 1, whose coordinates are joined by ties e_tu z_u = e_tw z_w.

    ``e`` has axes (problem, tie point t, coordinate u) and at most three coordinates.
    """
    ties, k = range(e.shape[1]), e.shape[2]
    one = np.ones(len(e))
    if k == 1:
        yield one[:, None]
        return
    to_one = [e[:, t, 0] / e[:, t, 1] for t in ties]  # z_1 when 0 and 1 tie at t
    if k == 2:
        for z1 in to_one:
            yield np.stack([one, z1], axis=1)
        return
    to_two = [e[:, t, 0] / e[:, t, 2] for t in ties]
    across = [e[:, t, 1] / e[:, t, 2] for t in ties]
    for s, t in itertools.product(ties, ties):
        yield np.stack([one, to_one[s], to_two[t]], axis=1)
        if s != t:  # at one point the three trees are the same vertex
            yield np.stack([one, to_one[s], to_one[s] * across[t]], axis=1)
            yield np.stack([one, to_two[s] / across[t], to_two[s]], axis=1)
