"""The flows behind a lossy transport: who is paired with whom, not only at what toll.

For laws p, q and costs D, :func:`transport_flows` returns f with Σ_j f_ij = p_i and
Σ_i f_ij e^{D_ij} ≤ e^{value} q_j: measures f and g = f e^{D − value} with left marginal p and right marginal
at most q.  Any f proves its own value; the trees of :mod:`.ties` make it near the best.

*Assumes*: laws p, q and costs D ≥ 0, ∞ allowed.  *Cost*: one network simplex per problem, many side by
side.  *Reference*: docs/prior_adversary.md, lossy transport.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.leakage.ties import MOST_NODES, Array, arrivals, best_ties
from quiltdp.accountant.leakage.transport import as_possible
from quiltdp.accountant.trade_offs import FLOWS_AT_ONCE
from quiltdp.numbers import EPS

__all__ = ["LARGEST_COST", "MOST_STATES", "transport_flows"]

LARGEST_COST = 200.0  # beyond it a flow leaves the range of doubles
MOST_STATES = MOST_NODES // 2


def transport_flows(p: Array, q: Array, d: Array) -> tuple[Array, Array]:
    """Return (value, f), shapes (B,) and (B, n, m): flows near the optimum of T(p, q; D), and their proof.

    Rows of f are p up to a few units in the last place; the value allows for that.  A sink of mass 0
    gets nothing.

    Parameters
    ----------
    p, q
        Laws, shapes (B, n) and (B, m), each of total 1 up to rounding; zeros are impossible states.
    d
        Costs, shape (B, n, m), in [0, :data:`LARGEST_COST`].

    Examples
    --------
    >>> import numpy as np
    >>> p, q = np.array([[0.9, 0.1]]), np.array([[0.1, 0.9]])
    >>> value, f = transport_flows(p, q, np.array([[[0.0, 1.0], [1.0, 0.0]]]))
    >>> float(value[0].round(6)), f[0].round(4).tolist()
    (0.776137, [[0.2173, 0.6827], [0.0, 0.1]])
    """
    p, q, d = (np.asarray(a, dtype=np.float64) for a in (p, q, d))
    value, flows = np.zeros(len(p)), np.zeros(d.shape)
    step = max(1, FLOWS_AT_ONCE // (d.shape[1] * d.shape[2]))
    for k in range(0, len(p), step):
        s = slice(k, k + step)
        value[s], flows[s] = _block(p[s], q[s], d[s])
    return value, flows


def _block(p: Array, q: Array, d: Array) -> tuple[Array, Array]:
    """Solve one block, rescale every row to meet its demand, and read off the largest load of a sink."""
    n, m = d.shape[1:]
    f = _sent(p, q, d)
    if n == m:  # laws that agree stay where they are
        same = (p == q).all(axis=1) & (np.diagonal(d, axis1=1, axis2=2) == 0.0).all(axis=1)
        f = np.where(same[:, None, None], np.eye(n), f)
    f = np.where((q > 0)[:, None, :] & (p > 0)[:, :, None] & np.isfinite(f), f, 0.0)
    met = f.sum(axis=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        f = np.where((met > 0)[:, :, None], f * (p / met)[:, :, None], p[:, :, None] * q[:, None, :])
        load = np.where(q > 0, (f * np.exp(d)).sum(axis=1) / q, 0.0)
    roundings = (n + m + 32) * EPS + 4 * EPS * d.max(axis=(1, 2))
    return np.log(load.max(axis=1)) + roundings, f


def _sent(p: Array, q: Array, d: Array) -> Array:
    """Return the flows of the best trees, looked for among possible states only."""
    count = len(d)
    rows = np.arange(count)[:, None]
    i, j = _support(p), _support(q)  # (B, n'), (B, m'): the possible states, padded by impossible ones
    if i.shape[1] == 1 or j.shape[1] == 1:
        return np.broadcast_to(q[:, None, :], d.shape) * np.exp(-d)
    near, there = p[rows, i], q[rows, j]
    cells = as_possible(near, there, d[rows[:, :, None], i[:, :, None], j[:, None, :]])
    first, second = np.ascontiguousarray(near.T), np.ascontiguousarray(there.T)
    costs = np.ascontiguousarray(cells.reshape(count, -1).T)
    found = arrivals(first, second, costs, best_ties(first, second, costs)).T.reshape(cells.shape)
    sent = np.zeros(d.shape)
    sent[rows[:, :, None], i[:, :, None], j[:, None, :]] = found
    return sent


def _support(law: Array) -> NDArray[np.intp]:
    """Return, for every law, its possible states first, as many columns as the largest support needs."""
    most = max(1, int((law > 0).sum(axis=1).max()))
    return np.argsort(law <= 0, axis=1, kind="stable")[:, :most]
