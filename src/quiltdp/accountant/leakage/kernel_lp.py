"""K(p, q; d) beyond the closed forms: a uniform-distance bound, and certified linear programs.

The linear programs solve the dual (a transport with gains, see :mod:`.kernel`) and only their
transport is used: :func:`~.kernel.transport_bound` turns any transport into a proof.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from quiltdp.accountant.leakage.kernel import Array, transport_bound

__all__ = ["kernel_lp", "kernel_pairs", "uniform_kernel"]

_EPS = float(np.finfo(np.float64).eps)
_BLOCK_CELLS = 60_000
_HEAVIEST = 1e12  # the largest coefficient handed to the solver


def uniform_kernel(p: Array, q: Array, o: Array) -> Array:
    """Return Λ: K(p, q; o·1[v ≠ v']) = max over threshold sets T of p/q, rounded up.

    Λ = max_T ln (p(T)(e^o − 1) + 1) / (q(T)(e^o − 1) + 1): the extreme H takes two values, the
    large one where p/q is above a threshold.

    Examples
    --------
    >>> import numpy as np
    >>> p, q = np.array([[0.9, 0.1]]), np.array([[0.1, 0.9]])
    >>> float(uniform_kernel(p, q, np.array([1.0]))[0].round(6))
    0.776137
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.where(q > 0, p / q, np.where(p > 0, np.inf, 0.0))
    order = np.argsort(-ratio, axis=1)
    top = np.cumsum(np.take_along_axis(p, order, axis=1), axis=1)[:, :-1]
    bottom = np.cumsum(np.take_along_axis(q, order, axis=1), axis=1)[:, :-1]
    if not top.shape[1]:
        return np.zeros(len(p))
    gain = np.expm1(np.minimum(o, 600.0))[:, None]
    value = (np.log1p(top * gain) - np.log1p(bottom * gain)).max(axis=1)
    slack = (p.shape[1] + 16) * _EPS * (1.0 + np.minimum(o, 600.0))
    with np.errstate(divide="ignore"):
        limit = np.log(ratio.max(axis=1))
    value = np.where(o > 600.0, np.minimum(o, limit), value)
    return np.asarray(np.maximum(value, 0.0) + slack)


def kernel_pairs(p: Array, q: Array, d: Array) -> Array:
    """Return δ + Λ(p, q; o) with δ = max_i d_ii and o = max_{i≠j} d_ij − δ (same states), else max d.

    x_i ≤ e^{δ + o·1[i ≠ j]} y_j, so K is at most that of the uniform distance, moved up by δ.
    """
    if p.shape[1] != q.shape[1]:
        return np.asarray(d.max(axis=(1, 2)))
    sources, sinks = p > 0, q > 0
    diagonal = np.diagonal(d, axis1=1, axis2=2)
    delta = np.where(sources & sinks, diagonal, 0.0).max(axis=1)
    off = np.where(sources[:, :, None] & sinks[:, None, :], d, 0.0)
    o = np.maximum(off.max(axis=(1, 2)) - delta, 0.0)
    return np.asarray(delta + uniform_kernel(p, q, o))


def kernel_lp(p: Array, q: Array, d: Array) -> Array:
    """Return the value of K certified by the transport of a linear program; ``inf`` where it fails.

    Problems are solved in blocks: one sparse program of many independent ones.
    """
    if not len(p):
        return np.zeros(0)
    per_problem = p.shape[1] * q.shape[1]
    size = max(1, _BLOCK_CELLS // per_problem)
    parts = [slice(k, k + size) for k in range(0, len(p), size)]
    return np.concatenate([_solve_block(p[s], q[s], d[s]) for s in parts])


def _solve_block(p: Array, q: Array, d: Array) -> Array:
    from scipy.optimize import linprog

    batch, n, m = d.shape
    cells = batch * n * m
    scale = d.max(axis=(1, 2))
    gain = np.exp(d - scale[:, None, None]) * p[:, :, None]
    with np.errstate(over="ignore"):  # what the solver cannot hold is cut: its answer is only a suggestion
        weight = np.where(q[:, None, :] > 0, gain / np.where(q > 0, q, 1.0)[:, None, :], 0.0)
    weight = np.minimum(weight, _HEAVIEST)
    equal, load = _block_matrices(weight)
    upper = np.ones((batch, n, m))
    upper[np.broadcast_to(q[:, None, :] <= 0, upper.shape)] = 0.0
    bounds = np.column_stack([np.zeros(cells + batch), np.append(upper.ravel(), np.full(batch, np.inf))])
    cost = np.append(np.zeros(cells), np.ones(batch))
    solver: Any = linprog  # its stubs do not know sparse matrices
    solved = solver(
        cost,
        A_ub=load,
        b_ub=np.zeros(batch * m),
        A_eq=equal,
        b_eq=np.ones(batch * n),
        bounds=bounds,
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if solved.x is None:
        return np.full(batch, np.inf)
    share = np.asarray(solved.x[:cells], dtype=np.float64).reshape(batch, n, m)
    return transport_bound(p, q, d, share * p[:, :, None])


def _block_matrices(weight: Array) -> tuple[Any, Any]:
    """Return the rows Σ_j g_ij = 1 and Σ_i w_ij g_ij − λ ≤ 0 of every problem, block by block."""
    from scipy.sparse import coo_array

    batch, n, m = weight.shape
    cells = batch * n * m
    cell = np.arange(cells).reshape(batch, n, m)
    problem = np.arange(batch)
    row = (problem[:, None] * n + np.arange(n))[:, :, None] + np.zeros((1, 1, m), dtype=np.int64)
    column = (problem[:, None] * m + np.arange(m))[:, None, :] + np.zeros((1, n, 1), dtype=np.int64)
    equal = coo_array((np.ones(cells), (row.ravel(), cell.ravel())), shape=(batch * n, cells + batch)).tocsr()
    lam = np.repeat(cells + problem, m)
    data = np.concatenate([weight.ravel(), -np.ones(batch * m)])
    index = (np.concatenate([column.ravel(), np.arange(batch * m)]), np.concatenate([cell.ravel(), lam]))
    load = coo_array((data, index), shape=(batch * m, cells + batch)).tocsr()
    return equal, load
