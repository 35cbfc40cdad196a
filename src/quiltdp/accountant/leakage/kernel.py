"""K(p, q; d): how far one mixture can exceed another when the observer is d-Lipschitz.

For laws p on sources and q on sinks and a distance d ≥ 0 from sources to sinks,

    K(p, q; d) = max ln Σ p_i x_i / Σ q_j y_j    over x, y > 0 with x_i ≤ e^{d_ij} y_j.

It is the one question that every bound against the prior adversary asks: x and y are the values of
an unknown function H on the states that are possible under p and under q, and d says how far the
data behind two states can differ.  When d obeys the triangle inequality (every metric built here
does) the direct constraints between sources and sinks imply all others; when it does not, dropping
the others can only enlarge K, which is the safe side.

**Closed forms.**  The maximum sits at a vertex where the ties d_ij + ln y_j = d_ik + ln y_k connect
all sinks; with k = min(sources, sinks) ≤ 3 there are at most 3·n² such trees and all are tried.  Beyond
that :mod:`.transport` solves the problem.

*Assumes*: laws that are positive on what is listed, d ≥ 0, ∞ allowed.  *Cost*: at most 3 n² trees per
problem, in arrays.  *Reference*: docs/prior_adversary.md, lossy transport.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.trade_offs import KERNELS_AT_ONCE

__all__ = ["CLOSED_UP_TO", "SURE", "closed_kernel", "kernel_ceiling", "log_masses"]

Array: TypeAlias = NDArray[np.float64]

_EPS = float(np.finfo(np.float64).eps)
SURE = 1e-290  # a mass below it has lost digits, or all of them: its logarithm proves nothing
CLOSED_UP_TO = 200.0  # beyond this distance e^d would leave the range of doubles in the closed forms


def closed_kernel(p: Sequence[Array] | Array, q: Sequence[Array] | Array, d: Array) -> Array:
    """Return K for problems laid out with the batch last: exact for min(n, m) ≤ 3, else a ceiling.

    ``p[i]``, ``q[j]`` and ``d[i, j]`` are arrays that broadcast against each other; an impossible
    source or sink (mass 0) must have the distances of a possible one.
    """
    ceiling = kernel_ceiling(p, q, d)
    if min(len(p), len(q)) > 3 or d.max(initial=0.0) > CLOSED_UP_TO:
        return ceiling
    if d.ndim == 3 and d.shape[2] > KERNELS_AT_ONCE and all(a.shape == d.shape[2:] for a in (*p, *q)):
        parts = [slice(k, k + KERNELS_AT_ONCE) for k in range(0, d.shape[2], KERNELS_AT_ONCE)]
        exact = [_exact([a[s] for a in p], [a[s] for a in q], d[:, :, s]) for s in parts]
        return np.minimum(np.concatenate(exact), ceiling)
    return np.minimum(_exact(p, q, d), ceiling)


def _exact(p: Sequence[Array] | Array, q: Sequence[Array] | Array, d: Array) -> Array:
    e = np.exp(d)
    best = np.ones(np.broadcast_shapes(d.shape[2:], *(a.shape for a in (*p, *q))))
    if len(q) <= len(p):
        for above, below in _three(p, q, e) if len(q) == 3 else _few(p, q, e):
            np.maximum(best, above / below, out=best)
    else:
        inverse = 1.0 / e
        for x in _vertices(inverse.swapaxes(0, 1)):
            y = [_most([inverse[i, j] * x[i] for i in range(len(p))]) for j in range(len(q))]
            np.maximum(best, _dot(p, x) / _dot(q, y), out=best)
    return np.asarray(np.log(best) + (len(p) + len(q) + 24) * _EPS)


def kernel_ceiling(p: Sequence[Array] | Array, q: Sequence[Array] | Array, d: Array) -> Array:
    """Return the smaller of two transports that need no search: max d, and staying put.

    Staying put (source k to sink k) gives max_k d_kk + ln p_k / q_k; with d_kk = 0 this is the
    max-influence of the Markov Quilt Mechanism.  Masses below ``SURE`` count as ``SURE`` in p, as 0 in q.
    """
    ceiling = _most([d[i, j] for i in range(len(p)) for j in range(len(q))])
    if len(p) == len(q):
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            logs = [log_masses(a, b) for a, b in zip(p, q, strict=True)]
            moves = [d[k, k] + a - b for k, (a, b) in enumerate(logs)]  # p = 0: −∞, q = 0: 10⁶
        # each logarithm is below 746, so a move is off by less than 1e-12 and 8 units of itself
        ceiling = np.minimum(ceiling, _most(moves) * (1 + 8 * _EPS) + 1e-12)
    return np.maximum(ceiling, 0.0)


def log_masses(p: Array, q: Array) -> tuple[Array, Array]:
    """Return ln p, never too small, and ln q, never too large; −10⁶ stands for a sink that is not used."""
    with np.errstate(divide="ignore"):
        above = np.log(np.where(p > 0, np.maximum(p, SURE), 0.0))
        return above, np.where(q < SURE, -1e6, np.log(np.maximum(q, SURE)))


def _least(arrays: Sequence[Array]) -> Array:
    result = arrays[0]
    for a in arrays[1:]:
        result = np.minimum(result, a)
    return result


def _most(arrays: Sequence[Array]) -> Array:
    result = arrays[0]
    for a in arrays[1:]:
        result = np.maximum(result, a)
    return result


def _dot(p: Sequence[Array] | Array, x: Sequence[Array]) -> Array:
    result = p[0] * x[0]
    for k in range(1, len(p)):
        result = result + p[k] * x[k]
    return result


def _few(p: Sequence[Array] | Array, q: Sequence[Array] | Array, e: Array) -> Iterator[tuple[Array, Array]]:
    """Yield Σ p x and Σ q y at every vertex for one or two sinks, x as large as y allows; y_0 = 1."""
    if len(q) == 1:
        yield _dot(p, [e[i, 0] for i in range(len(p))]), q[0]
        return
    for t in range(len(p)):
        z = e[t, 0] / e[t, 1]
        yield _dot(p, [np.minimum(e[i, 0], e[i, 1] * z) for i in range(len(p))]), q[0] + q[1] * z


def _three(p: Sequence[Array] | Array, q: Sequence[Array] | Array, e: Array) -> Iterator[tuple[Array, Array]]:
    """Yield the same for three sinks: the points of :func:`_vertices`, with what they share computed once."""
    ties = range(len(p))
    to_one, to_two = [e[t, 0] / e[t, 1] for t in ties], [e[t, 0] / e[t, 2] for t in ties]
    across = [e[t, 1] / e[t, 2] for t in ties]
    by_two = [[e[i, 2] * z for i in ties] for z in to_two]
    weighed = [q[2] * z for z in to_two]
    for s in ties:  # 0 and 1 tie at s
        least = [np.minimum(e[i, 0], e[i, 1] * to_one[s]) for i in ties]
        partly = q[0] + q[1] * to_one[s]
        for t in ties:
            yield _dot(p, [np.minimum(least[i], by_two[t][i]) for i in ties]), partly + weighed[t]
            if s != t:  # at one point the three trees are the same vertex
                z = to_one[s] * across[t]
                yield _dot(p, [np.minimum(least[i], e[i, 2] * z) for i in ties]), partly + q[2] * z
    for s in ties:  # 0 and 2 tie at s
        least = [np.minimum(e[i, 0], by_two[s][i]) for i in ties]
        for t in ties:
            if s != t:
                z = to_two[s] / across[t]
                x = [np.minimum(least[i], e[i, 1] * z) for i in ties]
                yield _dot(p, x), q[0] + q[1] * z + weighed[s]


def _vertices(e: Array) -> Iterator[list[Array]]:
    """Yield every point z, z_0 = 1, whose coordinates are joined by ties e_tu z_u = e_tw z_w.

    ``e`` has axes (tie point t, coordinate u, problems…) and at most three coordinates.
    """
    ties, k = range(e.shape[0]), e.shape[1]
    one = np.ones((1,) * (e.ndim - 2))
    if k == 1:
        yield [one]
        return
    to_one = [e[t, 0] / e[t, 1] for t in ties]  # z_1 when 0 and 1 tie at t
    if k == 2:
        for z1 in to_one:
            yield [one, z1]
        return
    to_two = [e[t, 0] / e[t, 2] for t in ties]
    across = [e[t, 1] / e[t, 2] for t in ties]
    for s, t in itertools.product(ties, ties):
        yield [one, to_one[s], to_two[t]]
        if s != t:  # at one point the three trees are the same vertex
            yield [one, to_one[s], to_one[s] * across[t]]
            yield [one, to_two[s] / across[t], to_two[s]]
