"""The worst α-DP mechanism against one adversary: max_H ln E_p H / E_q H, proved and attained.

H ranges over likelihoods of the unknown records' values with H(u) ≤ e^{c_j(u_j, u'_j)} H(u') whenever u and
u' differ in record j only; c_j is α_j times the price of the change, and obeys the triangle inequality.

*Transport.*  With d(u, u') = Σ_j c_j(u_j, u'_j) the maximum is T(p, q; d) of :mod:`.transport`: where G > 0
is any function, H(u) = min_v e^{d(u,v)} G(v) is a likelihood, and H ≤ G.

*Linear program*, for many values.  Maximise E_p H under E_q H = 1.  The answer is certified by weak duality:
for any y ≥ 0 on the constraints e = (u, u'), p − λ q ≤ Σ_e y_e (1_u − e^{c_e} 1_{u'}) + r proves
E_p H ≤ (λ + Σ_u r(u) w(u)) E_q H, where w(u), the price of a unit of missing weight at u, is the smaller of
min_v e^{d(u,v)} / q(v) and e^{max d}.  The solver's y is only a suggestion; the inequality is checked in
floating point with its rounding errors put into r.

*Assumes*: laws over the joint values of the unknown records.  *Cost*: a transport or a linear program per
pair of laws.  *Reference*: docs/theory.md, section 9.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.bounds.network_simplex import MOST_NODES, certify_trees, optimal_trees
from quiltdp.accountant.bounds.transport import FARTHEST, as_possible, transport
from quiltdp.inference.linear_program import largest_ratio
from quiltdp.numbers import EPS, up
from quiltdp.work import NO_GUARD, Guard

Array = NDArray[np.float64]
Ints = NDArray[np.intp]
TRANSPORTED = MOST_NODES // 2  # joint values up to which the maximum is a transport


def worst_gains(p: Array, q: Array, costs: Sequence[Array], guard: Guard = NO_GUARD) -> tuple[Array, Array]:
    """Return what no H exceeds and what some H attains, one of each per row.

    Parameters
    ----------
    p, q
        Laws over the joint values of the unknown records, shape (B, values); zeros are impossible.
    costs
        For each unknown record the costs of its changes, shape (B, states, states).
    guard
        A limit; the linear programs keep it too.

    Examples
    --------
    >>> p, q = np.array([[0.9, 0.1]]), np.array([[0.1, 0.9]])
    >>> [float(v[0].round(6)) for v in worst_gains(p, q, [1.0 - np.eye(2)[None]])]
    [0.776137, 0.776137]
    """
    reach = sum((c.max(axis=(1, 2)) for c in costs), start=np.zeros(len(p)))
    if reach.max(initial=0.0) > FARTHEST:  # out of the range of doubles
        return staged_ceiling(p, q, costs), np.zeros(len(p))
    if p.shape[1] <= TRANSPORTED:
        return gain_by_transport(p, q, costs)
    programs = [gain_by_program(p[k], q[k], [c[k] for c in costs], guard) for k in range(len(p))]
    above, below = np.array(programs).T
    return above, below


def staged_ceiling(p: Array, q: Array, costs: Sequence[Array]) -> Array:
    """Return upper bounds that need no program: the unknown records are revealed one at a time.

    m_k(x, y) = T( p(x_k | x), q(y_k | y); c_k(x_k, y_k) + m_{k+1} ), x and y the values of the records
    before k; the last record first.  E_p H / E_q H ≤ e^{m_1}.
    """
    message = np.zeros((len(p), p.shape[1], p.shape[1]))
    both = np.stack([p, q])
    for cost in reversed(costs):
        size = cost.shape[1]
        joint = both.reshape(2, len(p), -1, size)
        both = joint.sum(axis=3)
        n, possible = both.shape[2], both > 0
        laws = joint / np.where(possible, both, 1.0)[..., None]
        d = message.reshape(-1, n, size, n, size).swapaxes(2, 3) + cost[:, None, None] * (1 + 8 * EPS)
        pairs = possible[0, :, :, None] & possible[1, :, None, :]
        first = np.broadcast_to(laws[0, :, :, None], (*pairs.shape, size))
        second = np.broadcast_to(laws[1, :, None], (*pairs.shape, size))
        message = np.zeros(pairs.shape)
        every = slice(None) if pairs.all() else pairs.ravel()  # a mask copies
        value = transport(*(a.reshape(pairs.size, *a.shape[3:])[every] for a in (first, second, d)))
        message.reshape(-1)[every] = value + (16 + 8 * size) * EPS * (1.0 + value)
    return np.asarray(message[:, 0, 0])


def gain_by_transport(p: Array, q: Array, costs: Sequence[Array]) -> tuple[Array, Array]:
    """Return T for the distance between values, and what its best spanning tree attains."""
    points = np.indices([c.shape[1] for c in costs]).reshape(len(costs), p.shape[1])
    d = np.zeros((len(p), p.shape[1], p.shape[1]))
    for at, cost in zip(points, costs, strict=True):
        d += cost[:, at[:, None], at]
    d *= 1 + 8 * EPS
    first, second = np.ascontiguousarray(p.T), np.ascontiguousarray(q.T)
    cells = np.ascontiguousarray(as_possible(p, q, d).reshape(len(p), -1).T)
    above, below = np.log(certify_trees(first, second, cells, optimal_trees(first, second, cells)))
    slack = EPS * (32 + 8 * p.shape[1] + 32 * d.max(axis=(1, 2)))  # what is attained: sums, and d rounded up
    return np.where((p == q).all(axis=1), 0.0, np.maximum(above, 0.0)), np.maximum(below - slack, 0.0)


@lru_cache(maxsize=128)
def _neighbouring_values(sizes: tuple[int, ...]) -> tuple[Ints, Ints, tuple[tuple[Ints, Ints], ...]]:
    """Return every ordered pair of neighbouring values, and per record the states between which they move."""
    index = np.arange(math.prod(sizes)).reshape(sizes)
    sources, targets, moves = [], [], []
    for axis, k in enumerate(sizes):
        lines = np.moveaxis(index, axis, 0).reshape(k, -1)
        a, b = np.nonzero(~np.eye(k, dtype=bool))
        sources.append(lines[a].ravel())
        targets.append(lines[b].ravel())
        moves.append((np.repeat(a, lines.shape[1]), np.repeat(b, lines.shape[1])))
    return np.concatenate(sources), np.concatenate(targets), tuple(moves)


def gain_by_program(
    p: Array, q: Array, costs: Sequence[Array], guard: Guard = NO_GUARD
) -> tuple[float, float]:
    """Return a certified upper bound, tight to the solver's accuracy, and what its H attains.

    ``costs`` are one table per record.  ∞ and 0 when the solver gives no usable answer.
    """
    source, target, moves = _neighbouring_values(tuple(len(c) for c in costs))
    growth = np.exp(np.concatenate([c[move] for c, move in zip(costs, moves, strict=True)]) * (1 + 8 * EPS))
    answer = largest_ratio(p, q, source, target, growth, guard)
    if answer is None:
        return math.inf, 0.0
    log_h = _largest_allowed_below(np.log(np.maximum(answer[0], 1e-300)), costs)
    h, top = np.exp(log_h - log_h.max()), sum(float(c.max()) for c in costs)
    below = math.log(max(float(p @ h), 1e-300) / float(q @ h)) - EPS * (32 + 8 * len(p) + 8 * top)
    dual = np.maximum(answer[1], 0.0)
    gain: Array = np.bincount(source, weights=dual, minlength=len(p)).astype(np.float64)
    loss: Array = np.bincount(target, weights=dual * growth, minlength=len(p)).astype(np.float64)
    with np.errstate(divide="ignore"):  # H(u) ≤ e^{d(u,v)} H(v) and q(v) H(v) ≤ E_q H
        price = np.minimum(_largest_allowed_below(-np.log(q), costs), top)
    return _certify(p, q, np.exp(price) * (1 + 4096 * EPS), gain, loss), max(below, 0.0)


def _largest_allowed_below(table: Array, costs: Sequence[Array]) -> Array:
    """Return min_v table(v) + d(u, v) for every value u: the largest allowed function below a table."""
    table = table.reshape([len(c) for c in costs])
    for axis, cost in enumerate(costs):
        along = np.moveaxis(table, axis, -1)
        table = np.moveaxis(np.min(along[..., None, :] + cost, axis=-1), -1, axis)
    return table.reshape(-1)


def _certify(p: Array, q: Array, weight: Array, gain: Array, loss: Array) -> float:
    """Return ln of the smallest λ that the dual values prove, rounded up."""
    # p(u) − λ q(u) ≤ gain(u) − loss(u) + r(u): what is missing, with rounding errors on our side
    need = p - (gain - loss) + (gain + loss + p) * (EPS * (16 + 4 * len(p)))

    def least(rate: float) -> float:
        missing = np.maximum(need - rate * q * (1 - 4 * EPS), 0.0)
        return rate + float((missing * weight).sum()) * (1 + len(p) * EPS)

    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        rates = np.unique(np.maximum(np.where(q > 0, need / q, 0.0), 1.0))[-512:]
    best = min(least(rate) for rate in rates.tolist())
    return 8 * EPS if best <= 1.0 else up(math.log(best) + 8 * EPS)
