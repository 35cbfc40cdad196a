"""T(p, q; D): how far one mixture can exceed another when D bounds every pair, by lossy transport.

For laws p on sources and q on sinks and costs D ≥ 0 from sources to sinks

    T(p, q; D) = max ln Σ p_i H_i / Σ q_j G_j    over H, G > 0 with H_i ≤ e^{D_ij} G_j
               = min { ln t : f ≥ 0, Σ_i f_ij ≤ t q_j, Σ_j f_ij e^{−D_ij} ≥ p_i }.

H and G are the unknown values of E[likelihood | state] on the two sides; only possible states count.
The second line is a transport in which goods lose the share 1 − e^{−D} on the way; *any* f is a proof:

    Σ p_i H_i ≤ Σ_ij f_ij e^{−D_ij} H_i + Σ_i u_i H_i
              ≤ Σ_j (Σ_i f_ij) G_j + Σ_i u_i e^{max_j D_ij} Σ_j q_j G_j,

u_i = what of the demand p_i is not met.  So ln( max_j (Σ_i f_ij) / q_j + Σ_i u_i e^{max_j D_ij} ) is an
upper bound whatever f is, and every answer here that is not a closed form is that number, rounded up.

**Closed form** for at most two sinks (or one source): the maximum over G is reached where all of it is
tied to one source, G_j = e^{−D_xj}.  **Otherwise** a network simplex (:mod:`.network_simplex`) computes f.

*Assumes*: laws p, q and D ≥ 0, ∞ allowed.  *Cost*: a closed form, or a network simplex; always a check of
the flow.  *Reference*: docs/prior_adversary.md, lossy transport.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.bounds.network_simplex import (
    MOST_NODES,
    Array,
    certify_trees,
    optimal_trees,
    star_ratio,
)
from quiltdp.accountant.trade_offs import TRANSPORT_AT_ONCE
from quiltdp.numbers import EPS

SURE = 1e-290  # a mass below it has lost digits, or all of them: its logarithm proves nothing
FARTHEST = 250.0  # beyond this cost e^D times a small mass would leave the range of doubles
LARGEST_COST = 200.0  # beyond this cost a flow leaves the range of doubles
MOST_STATES = MOST_NODES // 2  # of each side of a flow
_TINY = 1e-300  # what a possible state may weigh although its double is 0


def transport(p: Array, q: Array, d: Array, *, effort: float = np.inf) -> Array:
    """Return certified upper bounds on T(p, q; D), one per problem of the batch.

    Parameters
    ----------
    p, q
        Laws on sources, shape (B, n), and on sinks, shape (B, m), each of total 1 up to rounding;
        zeros are impossible states.
    d
        Costs, shape (B, n, m), non-negative; ``inf`` forbids a pair.
    effort
        When the whole batch would take more work than this, in units of one problem of four states,
        simple ceilings are returned instead (where there is no closed form).

    Returns
    -------
    NDArray
        Shape (B,).  The bound holds for p and q as given: who computed them with a relative error of
        at most e^{±s} adds 2 s.

    Examples
    --------
    >>> import numpy as np
    >>> p, q = np.array([[0.9, 0.1]]), np.array([[0.1, 0.9]])
    >>> float(transport(p, q, np.array([[[0.0, 1.0], [1.0, 0.0]]]))[0].round(6))
    0.776137
    """
    p, q, d = (np.asarray(a, dtype=np.float64) for a in (p, q, d))
    if np.isnan(d).any() or (d < 0).any():
        raise ValueError("costs must be numbers in [0, ∞]")
    if not len(p):
        return np.zeros(0)
    sources, sinks = np.flatnonzero(p.any(axis=0)), np.flatnonzero(q.any(axis=0))
    if len(sources) < p.shape[1] or len(sinks) < q.shape[1]:
        p, q, d = p[:, sources], q[:, sinks], d[:, sources][:, :, sinks]
    if not p.shape[1] or not q.shape[1]:
        return np.zeros(len(p))
    n, m = d.shape[1:]
    if len(p) * (n + m) ** 3 > 512 * effort and n > 1 and m > 2:
        return _closed_form_ceiling(p, q, as_possible(p, q, d))
    step = max(256, TRANSPORT_AT_ONCE // (n + m) ** 2)
    parts = [slice(k, k + step) for k in range(0, len(p), step)]
    return np.concatenate([_transport_block(p[s], q[s], as_possible(p[s], q[s], d[s])) for s in parts])


def _transport_block(p: Array, q: Array, d: Array) -> Array:
    """Answer one block: the closed form or the simplex, ceilings where costs are out of their range."""
    n, m = d.shape[1:]
    result = np.empty(len(p))
    far = d.max(axis=(1, 2)) > FARTHEST
    if n + m > MOST_NODES and m > 2 and n > 1:
        far[:] = True
    near = np.flatnonzero(~far)
    if len(near):
        first, second, cells = (np.ascontiguousarray(a[near].reshape(len(near), -1).T) for a in (p, q, d))
        result[near] = transport_of_columns(first, second, cells)
    if len(near) < len(p):
        result[far] = _closed_form_ceiling(p[far], q[far], d[far])
    return result


def transport_of_columns(p: Array, q: Array, d: Array) -> Array:
    """Return T with the problems on the last axis: ``p`` (n, B), ``q`` (m, B), ``d`` (n·m, B).

    Costs must be at most ``FARTHEST``; an impossible source or sink (mass 0) must have the costs of a
    possible one.
    """
    n, m = len(p), len(q)
    top = d.max(axis=0)
    if n == 1 or m <= 2:
        best = star_ratio(p, q, d, 0)[0]
        for x in range(1, n):
            best = np.maximum(best, star_ratio(p, q, d, x)[0])
        value = np.log(best) + (n + m + 24 + 4 * top) * EPS + (n * _TINY) * np.exp(top)
    else:
        value = np.log(certify_trees(p, q, d, optimal_trees(p, q, d))[0])
    value = np.minimum(np.maximum(value, 0.0), top)
    return np.where(is_zero_transport(p, q, d), 0.0, value)


def transport_of_laws(p: Array, q: Array, d: Array, slack: float) -> Array:
    """Return T as :func:`transport_of_columns` does, for any costs, of laws whose ln is off by ``slack``."""
    n, m = len(p), len(q)
    if d.max(initial=0.0) > FARTHEST or n + m > MOST_NODES:
        value = transport(p.T, q.T, d.T.reshape(-1, n, m))
    else:
        value = transport_of_columns(p, q, d)
    return np.where(value > 0.0, value + 2.0 * slack, 0.0)


def is_zero_transport(p: Array, q: Array, d: Array) -> NDArray[Any]:
    """Return where the two laws are the same and staying put costs nothing: there T is exactly 0."""
    n, m = len(p), len(q)
    if n != m:
        return np.zeros(d.shape[1], dtype=bool)
    still = np.ones(d.shape[1], dtype=bool)
    for k in range(n):
        still &= (p[k] == q[k]) & (d[k * m + k] == 0.0)
    return still


def _closed_form_ceiling(p: Array, q: Array, d: Array) -> Array:
    """Return the smallest of the transports that need no search.

    All pairs cost at most max D; staying put costs max_k D_kk + ln p_k / q_k; and with
    δ = max_k D_kk, o = max D − δ, no more than δ + Λ(p, q; o) (:func:`uniform_transport`).
    """
    ceiling = d.max(axis=(1, 2))
    if p.shape[1] != q.shape[1]:
        return np.asarray(ceiling)
    stay = np.diagonal(d, axis1=1, axis2=2)
    least = np.where((p > 0) & (q > 0), stay, 0.0).max(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        above, below = log_masses(p, q)
        moved = stay + np.where(p > 0, above - below, -np.inf)
        beyond = np.where(np.isinf(ceiling), np.inf, ceiling - least)
    put = moved.max(axis=1) * (1 + 8 * EPS) + 1e-12  # each logarithm is below 746
    apart = least + uniform_transport(p, q, np.maximum(beyond, 0.0))
    ceiling = np.minimum(ceiling, np.minimum(np.maximum(put, 0.0), apart * (1 + 4 * EPS)))
    same = ((p == q) & ((p >= SURE) | (p == 0))).all(axis=1)  # what has lost its digits may differ
    return np.asarray(np.where(same, np.minimum(ceiling, least), ceiling))


def log_masses(p: Array, q: Array) -> tuple[Array, Array]:
    """Return ln p, never too small, and ln q, never too large; −10⁶ stands for a sink that is not used."""
    with np.errstate(divide="ignore"):
        above = np.log(np.where(p > 0, np.maximum(p, SURE), 0.0))
        return above, np.where(q < SURE, -1e6, np.log(np.maximum(q, SURE)))


def uniform_transport(p: Array, q: Array, o: Array) -> Array:
    """Return Λ = T(p, q; o·1[i ≠ j]) = max over threshold sets S of p/q, rounded up.

    Λ = max_S ln (p(S)(e^o − 1) + 1) / (q(S)(e^o − 1) + 1): the extreme H takes two values, the large
    one where p/q is above a threshold.
    """
    return threshold_transport(*threshold_sums(p, q), o)


def threshold_sums(p: Array, q: Array) -> tuple[Array, Array]:
    """Return p(S) and q(S) of every threshold set S of p/q."""
    with np.errstate(divide="ignore", invalid="ignore"):  # logarithms: quotients may overflow
        ratio = np.where(p > 0, np.log(p) - np.log(q), -np.inf)
    order = np.argsort(-ratio, axis=1, kind="stable")
    above, below = (np.cumsum(np.take_along_axis(law, order, axis=1), axis=1) for law in (p, q))
    return above, below


def threshold_transport(above: Array, below: Array, o: Array) -> Array:
    """Return Λ, rounded up, from the masses of threshold sets."""
    gain = np.expm1(np.minimum(o, 600.0))[:, None]
    value = (np.log1p(above * gain) - np.log1p(below * gain)).max(axis=1)
    slack = 4 * (above.shape[1] + 16) * EPS * (1.0 + np.minimum(o, 600.0))
    return np.where(o > 600.0, o, np.maximum(value, 0.0) + slack)


def as_possible(p: Array, q: Array, d: Array) -> Array:
    """Give every impossible source (sink) the costs of a possible one: it then changes nothing."""
    for law, axis in ((p, 1), (q, 2)):
        rows = np.flatnonzero(~(law > 0).all(axis=1))
        if len(rows):
            possible = law[rows] > 0
            donor = np.where(possible, np.arange(law.shape[1]), possible.argmax(axis=1)[:, None])
            d = np.array(d)
            d[rows] = np.take_along_axis(d[rows], np.expand_dims(donor, 3 - axis), axis=axis)
    return d
