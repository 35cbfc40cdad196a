"""The network simplex behind lossy transport, many problems side by side.

The problem is that of :mod:`.transport`.  A vertex of max Σ p H / Σ q G, H_i ≤ e^{D_ij} G_j, is a
spanning tree of n + m − 1 edges on which H_i = e^{D_ij} G_j.  For the edge e = (i, j) let A_e be the nodes
on its source's side when it is cut.  Then, up to a constant that is the same for all nodes v,

    ln of H or G at v  =  Σ_e D_e · 1[v ∈ A_e],
    transport over e   =  Σ_{i ∈ A_e} p_i H_i − t Σ_{j ∈ A_e} q_j G_j,       t = Σ p H / Σ q G.

A tree whose transports are all ≥ 0 is a proof of T ≤ ln t.  Where one is negative, lowering all of A_e
improves the ratio until another pair is an equality; it takes the place of e.  The sides A_e are bits of
one integer, and every array has the problems on its last axis.

``compiled/network_simplex.c`` computes the same bytes: both add in the same order, and numpy exponentiates.

*Assumes*: at most as many nodes as an integer has bits, D ≥ 0 and finite on the trees.  *Cost*: pivots,
each over all problems at once.  *Reference*: docs/prior_adversary.md, lossy transport.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quiltdp.compiled import kernel, kernels
from quiltdp.numbers import EPS

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_NODES = 62  # sources and sinks together: a side is one integer
_AT_ONCE = 2**16  # numbers of one block: beyond it memory counts more than calls
_TINY = 1e-300  # what a possible state may weigh although its double is 0


@dataclass(frozen=True, eq=False)
class Trees:
    """Spanning trees, one per problem: ``cell`` = i·m + j of each edge, ``side`` = the bits of A_e."""

    sources: int
    sinks: int
    cell: Ints
    side: Ints

    def take(self, chosen: NDArray[Any]) -> Trees:
        """Return the trees of the chosen problems."""
        return Trees(self.sources, self.sinks, self.cell.take(chosen, axis=1), self.side.take(chosen, axis=1))


@dataclass(frozen=True, eq=False)
class _TreeSolution:
    """What a tree says about costs: ln H and ln G, the ratio t, transports, and their rounding errors."""

    height: Array  # (n + m, B), the largest of the sinks 0
    mass: Array  # (n + m, B): p H, then t q G
    cost: Array  # (E, B): D on the tree
    ratio: Array  # (B,)
    flow: Array  # (E, B), in units of p H
    error: Array  # (E, B)


def _sum_in_order(rows: Iterable[Array]) -> Array:
    """Add rows one after the other, as C does."""
    return reduce(np.add, rows)


def _relative_rounding(nodes: int, top: Array) -> Array:
    """Return the relative error of masses and their sums: heights are sums of up to ``nodes`` costs."""
    return (8 * nodes + 16 + 4 * nodes * nodes * top) * EPS


def _evaluate_trees(p: Array, q: Array, d: Array, trees: Trees) -> _TreeSolution:
    """Evaluate trees; ``d`` has axes (n·m, B)."""
    n, m = trees.sources, trees.sinks
    cost = np.take_along_axis(d, trees.cell, axis=0)
    nodes = np.arange(n + m)[:, None]
    height = _sum_in_order(c * (side >> nodes & 1) for c, side in zip(cost, trees.side, strict=True))
    height -= height[n:].max(axis=0)
    mass = np.exp(height)
    mass[:n] *= p
    mass[n:] *= q
    ratio = _sum_in_order(mass[:n]) / _sum_in_order(mass[n:])
    mass[n:] *= ratio
    # the side without the heaviest node: sums there are small, and known to more digits
    turned = trees.side >> mass.argmax(axis=0) & 1
    light = trees.side ^ turned * ((1 << (n + m)) - 1)
    parts = [(light >> v & 1) * mass[v] for v in range(n + m)]
    inside = _sum_in_order(parts)
    flow = _sum_in_order([*parts[:n], *(-part for part in parts[n:])])
    error = 2.0 * _relative_rounding(n + m, cost.max(axis=0)) * inside
    return _TreeSolution(height, mass, cost, ratio, np.where(turned == 1, -flow, flow), error)


def optimal_trees(p: Array, q: Array, d: Array) -> Trees:
    """Return trees that are optimal for the costs: ``p`` (n, B), ``q`` (m, B), ``d`` (n·m, B)."""
    p, q, d = (np.ascontiguousarray(a, dtype=np.float64) for a in (p, q, d))
    return pivot_trees_in_numpy(p, q, d) if kernels() is None else pivot_trees_in_c(p, q, d)


def pivot_trees_in_c(p: Array, q: Array, d: Array) -> Trees:
    """Return the trees of :func:`pivot_trees_in_numpy`, its twin, by ``compiled/network_simplex.c``."""
    n, m, count = len(p), len(q), d.shape[1]
    cell, side = np.empty((2, n + m - 1, count), dtype=np.int64)
    step = max(16, _AT_ONCE // ((n + m) * n))
    for at in range(0, count, step):
        part = slice(at, at + step)
        block = _pivot_block_in_c(*(np.ascontiguousarray(a[:, part]) for a in (p, q, d)))
        cell[:, part], side[:, part] = block[0].T, block[1].T
    return Trees(n, m, cell, side)


def _pivot_block_in_c(p: Array, q: Array, d: Array) -> Ints:
    """Return cells and sides, the problems first."""
    begin, first, pivot = kernel("qd_simplex_begin"), kernel("qd_simplex_first"), kernel("qd_simplex_pivot")
    if begin is None or first is None or pivot is None:
        raise RuntimeError("the kernels are not built")
    n, m, count = len(p), len(q), d.shape[1]
    costs, raised = np.empty((count, n * m)), np.empty((count, n, m + n))
    tied = np.empty((count, n, n), dtype=np.int64)
    cell, side = trees = np.empty((2, count, n + m - 1), dtype=np.int64)
    height, mass = np.empty((2, count, n + m))
    begin(n, m, count, d, _tie_breakers(n * m), costs, raised, tied)
    first(n, m, count, p, q, np.exp(raised, out=raised), tied, costs, cell, side, height)
    which, left = np.arange(count), count
    for _ in range(12 * (n + m)):
        np.exp(height[:left], out=mass[:left])
        left = pivot(n, m, count, left, which, p, q, costs, height, mass, cell, side)
        if not left:
            break
    return trees


def pivot_trees_in_numpy(p: Array, q: Array, d: Array) -> Trees:
    """Return optimal trees, one pivot of all problems at a time."""
    n, m, count = len(p), len(q), d.shape[1]
    d = d + 1e-13 * (1.0 + d.max(axis=0)) * _tie_breakers(n * m)[:, None]  # equal costs would cycle
    trees = _star_trees(p, q, d)
    cell, side = trees.cell.copy(), trees.side.copy()
    left = np.arange(count)
    for _ in range(12 * (n + m)):
        solution = _evaluate_trees(p, q, d, trees)
        short = solution.flow + solution.error
        worst = short.argmin(axis=0)
        go = np.flatnonzero(short[worst, np.arange(len(worst))] < 0.0)
        left, worst, height = left[go], worst[go], solution.height[:, go]
        if not len(left):
            break
        p, q, d = (a.take(go, axis=1) for a in (p, q, d))
        trees = _pivot_worst_edge(trees.take(go), worst, d, height)
        cell[:, left], side[:, left] = trees.cell, trees.side
    return Trees(n, m, cell, side)


def _tie_breakers(count: int) -> Array:
    """Return numbers in (0, 1), no two sums of a few of them alike: they break ties between equal costs."""
    k = np.arange(1, count + 1)
    return np.asarray(np.modf(k * k * 0.6180339887498949 + k * 0.4142135623730951)[0])


def _star_trees(p: Array, q: Array, d: Array) -> Trees:
    """Return the best trees in which one source meets every sink, and each other source one sink."""
    n, m, count = len(p), len(q), d.shape[1]
    stars = [star_ratio(p, q, d, x) for x in range(n)]
    root = np.argmax([ratio for ratio, _ in stars], axis=0)
    tied = np.array([at for _, at in stars])[root, :, np.arange(count)].T
    source, sink = np.arange(n)[:, None], np.arange(m)[:, None]
    cell, side = np.empty((2, n + m - 1, count), dtype=np.int64)
    leaves = np.where(root != source, 1 << source, 0)
    hangs = np.where(tied[:, None] == sink, leaves[:, None], 0).sum(axis=0)
    # the root's edges: what hangs on a sink is not on the root's side
    cell[:m], side[:m] = root * m + sink, (1 << (n + m)) - 1 ^ (hangs | 1 << n + sink)
    leaf = source[:-1] + (root <= source[:-1])  # the other sources
    cell[m:], side[m:] = leaf * m + np.take_along_axis(tied, leaf, axis=0), 1 << leaf
    return Trees(n, m, cell, side)


def star_ratio(p: Array, q: Array, d: Array, x: int) -> tuple[Array, Ints]:
    """Return Σ p H / Σ q G where source x meets every sink, and the sink that each source meets."""
    n, m = len(p), len(q)
    least = d[x * m : (x + 1) * m].min(axis=0)
    lengths = d.reshape(n, m, -1) - d[x * m : (x + 1) * m]
    above = p * np.exp(lengths.min(axis=1) + least)
    below = q * np.exp(least - d[x * m : (x + 1) * m])
    order = [x, *(i for i in range(n) if i != x)]
    return _sum_in_order(above[i] for i in order) / _sum_in_order(below), lengths.argmin(axis=1)


def _pivot_worst_edge(trees: Trees, worst: Ints, d: Array, height: Array) -> Trees:
    """Lower the side A of the worst edge until a source outside A meets a sink of A."""
    n, m = trees.sources, trees.sinks
    full, columns = (1 << (n + m)) - 1, np.arange(d.shape[1])
    a = trees.side[worst, columns]
    inside = (a >> np.arange(n + m)[:, None] & 1).astype(bool)
    slack = d.reshape(n, m, -1) + height[n:] - height[:n, None]
    shut = inside[:n, None] | ~inside[n:]
    entering = np.where(shut, np.inf, slack).reshape(n * m, -1).argmin(axis=0)
    old = trees.cell[worst, columns]
    # an edge inside A now meets the rest through the new sink, no longer through the old source
    within = (a >> trees.cell // m & 1).astype(bool)
    first = np.where(within, old // m, old % m + n)
    second = np.where(within, entering % m + n, entering // m)
    crossed = (trees.side >> first ^ trees.side >> second) & 1
    side, cell = trees.side ^ crossed * np.where(within, full ^ a, a), trees.cell.copy()
    side[worst, columns], cell[worst, columns] = full ^ a, entering
    return Trees(n, m, cell, side)


def certify_trees(p: Array, q: Array, d: Array, trees: Trees) -> tuple[Array, Array]:
    """Return what trees prove: certified upper bounds on e^T, and lower ones; any trees will do.

    Above: where every transport is clearly ≥ 0 that is t itself.  Elsewhere negative ones are dropped,
    sinks with more than t q_j are cut, and the demand left unmet is priced at e^{max_j D_ij}.
    Below: Σ p H / Σ q G with the trees' G and the largest H it allows; not rounded.
    """
    p, q, d = (np.ascontiguousarray(a, dtype=np.float64) for a in (p, q, d))
    return certify_trees_in_numpy(p, q, d, trees) if kernels() is None else certify_trees_in_c(p, q, d, trees)


def certify_trees_in_c(p: Array, q: Array, d: Array, trees: Trees) -> tuple[Array, Array]:
    """Return what :func:`certify_trees_in_numpy` does, its twin, by ``compiled/network_simplex.c``."""
    exponents, finish = kernel("qd_simplex_raise"), kernel("qd_simplex_proved")
    if exponents is None or finish is None:
        raise RuntimeError("the kernels are not built")
    n, m, count = len(p), len(q), d.shape[1]
    edges = [np.ascontiguousarray(a) for a in (trees.cell, trees.side)]
    raised, above, below = np.empty((count, 4 * n + 3 * m - 1)), np.empty(count), np.empty(count)
    exponents(n, m, count, d, *edges, raised)
    with np.errstate(over="ignore"):
        np.exp(raised, out=raised)
    finish(n, m, count, p, q, d, *edges, raised, above, below)
    return above, below


def certify_trees_in_numpy(p: Array, q: Array, d: Array, trees: Trees) -> tuple[Array, Array]:
    """Return upper bounds and lower ones, all problems at a time."""
    n, m, top = trees.sources, trees.sinks, d.max(axis=0)
    solution = _evaluate_trees(p, q, d, trees)
    above = solution.ratio * (1.0 + _relative_rounding(n + m, top)) + (n * _TINY) * np.exp(top)
    doubtful = (solution.flow < solution.error).any(axis=0)
    above = np.where(doubtful, _price_unmet_demand(p, q, d, trees, solution), above)
    allowed = (d.reshape(n, m, -1) + solution.height[n:]).min(axis=1)
    below = _sum_in_order(p * np.exp(allowed)) * solution.ratio / _sum_in_order(solution.mass[n:])
    return above, below


def _price_unmet_demand(p: Array, q: Array, d: Array, trees: Trees, solution: _TreeSolution) -> Array:
    """Return t plus the price of the demand that the transports leave unmet when no sink exceeds t q."""
    n, m = trees.sources, trees.sinks
    source, sink = trees.cell // m, trees.cell % m
    sent = np.maximum(solution.flow, 0.0) * np.exp(-np.take_along_axis(solution.height, sink + n, axis=0))
    room = solution.ratio * q
    load = np.array([_sum_in_order(np.where(sink == j, sent, 0.0)) for j in range(m)])
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(load > room, room / load, 1.0)
    arrives = sent * np.take_along_axis(share, sink, axis=0) * np.exp(-solution.cost)
    roundings = _relative_rounding(n + m, d.max(axis=0))
    met = np.array([_sum_in_order(np.where(source == i, arrives, 0.0)) for i in range(n)])
    unmet = np.maximum(p * (1.0 + roundings) - met, 0.0) + _TINY
    price = _sum_in_order(unmet * np.exp(d.reshape(n, m, -1).max(axis=1)))
    return np.asarray((solution.ratio + price) * (1.0 + roundings))
