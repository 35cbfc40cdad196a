"""Trees of ties: the network simplex behind lossy transport, many problems side by side.

The problem is that of :mod:`.transport`.  A vertex of max Σ p H / Σ q G, H_i ≤ e^{D_ij} G_j, is a
spanning tree of n + m − 1 ties H_i = e^{D_ij} G_j.  For the tie e = (i, j) let A_e be the nodes on its
source's side when it is cut.  Then, up to a constant that is the same for all nodes v,

    ln of H or G at v  =  Σ_e D_e · 1[v ∈ A_e],
    transport over e   =  Σ_{i ∈ A_e} p_i H_i − t Σ_{j ∈ A_e} q_j G_j,       t = Σ p H / Σ q G.

A tree whose transports are all ≥ 0 is a proof of T ≤ ln t.  Where one is negative, lowering all of A_e
improves the ratio until another pair ties; it takes the place of e.  The sides A_e are kept as bits of
one integer, and every array has the problems on its last axis.

*Assumes*: at most as many nodes as an integer has bits, D ≥ 0 and finite on what is tied.  *Cost*: pivots,
each over all problems at once.  *Reference*: docs/prior_adversary.md, lossy transport.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quiltdp.compiled import kernel, kernels
from quiltdp.numbers import EPS

__all__ = ["MOST_NODES", "Array", "Ties", "arrivals", "best_ties", "proved", "star", "transported"]

Array = NDArray[np.float64]
Bits = NDArray[Any]

MOST_NODES = 62  # sources and sinks together: a side is one integer
_FEW = 4
_AT_ONCE = 2**16  # memberships of nodes looked at together: no more, or memory counts more than calls
_TINY = 1e-300  # what a possible state may weigh although its double is 0


@dataclass(frozen=True, eq=False)
class Ties:
    """Spanning trees, one per problem: ``cell`` = i·m + j of each edge, ``side`` = the bits of A_e."""

    sources: int
    sinks: int
    cell: NDArray[np.int32]
    side: Bits

    def take(self, chosen: NDArray[Any]) -> Ties:
        """Return the trees of the chosen problems."""
        return Ties(self.sources, self.sinks, self.cell.take(chosen, axis=1), self.side.take(chosen, axis=1))


@dataclass(frozen=True, eq=False)
class _Solution:
    """What a tree says about costs: ln H and ln G, the ratio t, transports, and their rounding errors."""

    height: Array  # (n + m, B), the largest of the sinks 0
    mass: Array  # (n + m, B): p H, then t q G
    cost: Array  # (E, B): D on the tree
    ratio: Array  # (B,)
    flow: Array  # (E, B), in units of p H
    error: Array  # (E, B)

    def take(self, chosen: NDArray[Any]) -> _Solution:
        """Return the part about the chosen problems."""
        whole = (self.height, self.mass, self.cost, self.ratio, self.flow, self.error)
        return _Solution(*(a.take(chosen, axis=-1) for a in whole))


def _member(side: Bits, node: int) -> Array:
    bit = (side >> side.dtype.type(node)) & side.dtype.type(1)
    return np.asarray(bit, dtype=np.float64)


def _members(side: Bits, nodes: int) -> Array:
    """Return the same for all nodes, on the first axis."""
    kind = side.dtype.type
    node = np.arange(nodes).astype(side.dtype)[:, None, None]
    return np.asarray((side[None] >> node) & kind(1), dtype=np.float64)


def _at_once(n: int, m: int, count: int, numbers: int) -> bool:
    """Return whether all nodes or pairs are computed together: the same sums, in the same order."""
    return count == 1 or numbers <= _AT_ONCE or count * _FEW < n * m


def _sum(rows: Array) -> Array:
    """Add rows one after the other; numpy adds the numbers of a single column in another order."""
    rows = np.ascontiguousarray(rows)
    return np.asarray(rows.sum(axis=0) if rows[0].size > 1 else np.add.accumulate(rows, axis=0)[-1])


def _roundings(nodes: int, top: Array) -> Array:
    """Return the relative error of masses and their sums: heights are sums of up to ``nodes`` costs."""
    return (8 * nodes + 16 + 4 * nodes * nodes * top) * EPS


def _solution(p: Array, q: Array, d: Array, ties: Ties) -> _Solution:
    """Evaluate trees; ``d`` has axes (n·m, B)."""
    n, m = ties.sources, ties.sinks
    cost = np.ascontiguousarray(np.take_along_axis(d, ties.cell, axis=0))
    at_once = _at_once(n, m, d.shape[1], (n + m) * cost.size)
    height = np.empty((n + m, d.shape[1]))
    if d.shape[1] == 1:
        height[:] = np.add.accumulate(cost * _members(ties.side, n + m), axis=1)[:, -1]
    elif at_once:
        np.einsum("eb,veb->vb", cost, _members(ties.side, n + m), out=height)
    else:
        for v in range(n + m):
            np.einsum("eb,eb->b", cost, _member(ties.side, v), out=height[v])
    height -= height[n:].max(axis=0)
    mass = np.exp(height)
    mass[:n] *= p
    mass[n:] *= q
    ratio = _sum(mass[:n]) / _sum(mass[n:])
    mass[n:] *= ratio
    # the side without the heaviest node: sums there are small, and known to more digits
    kind = ties.side.dtype.type
    turned = (ties.side >> mass.argmax(axis=0).astype(ties.side.dtype)) & kind(1)
    light = ties.side ^ (turned * kind((1 << (n + m)) - 1))
    if at_once:
        parts = _members(light, n + m) * mass[:, None, :]
        inside = _sum(parts)
        np.negative(parts[n:], out=parts[n:])
        flow = _sum(parts)
    else:
        inside, flow = np.zeros(cost.shape), np.zeros(cost.shape)
        for v in range(n + m):
            part = _member(light, v)
            part *= mass[v]
            inside += part
            if v < n:
                flow += part
            else:
                flow -= part
    flow = np.where(turned.astype(bool), -flow, flow)
    error = 2.0 * _roundings(n + m, cost.max(axis=0)) * inside
    return _Solution(height, mass, cost, ratio, flow, error)


def best_ties(p: Array, q: Array, d: Array) -> Ties:
    """Return trees that are optimal for the costs: ``p`` (n, B), ``q`` (m, B), ``d`` (n·m, B)."""
    p, q, d = (np.ascontiguousarray(a, dtype=np.float64) for a in (p, q, d))
    return pivoted_in_numpy(p, q, d) if kernels() is None else pivoted_in_c(p, q, d)


def pivoted_in_c(p: Array, q: Array, d: Array) -> Ties:
    """Return the trees of :func:`pivoted_in_numpy`, its twin, by ``compiled/ties.c``; numpy exponentiates."""
    n, m, count = len(p), len(q), d.shape[1]
    kind: Any = np.uint32 if n + m <= 31 else np.uint64
    cell, side = np.empty((n + m - 1, count), dtype=np.int32), np.empty((n + m - 1, count), dtype=kind)
    step = max(16, _AT_ONCE // ((n + m) * n))
    for at in range(0, count, step):
        part = slice(at, at + step)
        found = _block_in_c(*(np.ascontiguousarray(a[:, part]) for a in (p, q, d)))
        cell[:, part], side[:, part] = found[0].T, found[1].T
    return Ties(n, m, cell, side)


def _block_in_c(p: Array, q: Array, d: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return cells and sides, the problems first."""
    begin, first, pivot = kernel("qd_ties_begin"), kernel("qd_ties_first"), kernel("qd_ties_pivot")
    if begin is None or first is None or pivot is None:
        raise RuntimeError("the kernels are not built")
    n, m, count = len(p), len(q), d.shape[1]
    costs, raised = np.empty((count, n * m)), np.empty((count, n, m + n))
    tied = np.empty((count, n, n), dtype=np.int64)
    cell, side = np.empty((2, count, n + m - 1), dtype=np.int64)
    height, mass = np.empty((2, count, n + m))
    begin(n, m, count, d, _jitter(n * m), costs, raised, tied)
    first(n, m, count, p, q, np.exp(raised, out=raised), tied, costs, cell, side, height)
    which, left = np.arange(count), count
    for _ in range(12 * (n + m)):
        np.exp(height[:left], out=mass[:left])
        left = pivot(n, m, count, left, which, p, q, costs, height, mass, cell, side)
        if not left:
            break
    return cell, side


def pivoted_in_numpy(p: Array, q: Array, d: Array) -> Ties:
    """Return optimal trees, one pivot of all problems at a time."""
    n, m, count = len(p), len(q), d.shape[1]
    top = d.max(axis=0)
    d = d + 1e-13 * (1.0 + top) * _jitter(n * m)[:, None]  # equal costs would cycle
    ties = _first(p, q, d)
    cell, side = ties.cell.copy(), ties.side.copy()
    left = np.arange(count)
    for _ in range(12 * (n + m)):
        found = _solution(p, q, d, ties)
        short = found.flow + found.error
        worst = short.argmin(axis=0)
        go = np.flatnonzero(short[worst, np.arange(len(worst))] < 0.0)
        if len(go) < len(left):
            done = np.delete(np.arange(len(left)), go)
            cell[:, left[done]], side[:, left[done]] = ties.cell[:, done], ties.side[:, done]
            left, ties, worst = left[go], ties.take(go), worst[go]
            p, q, d = (a.take(go, axis=1) for a in (p, q, d))
        if not len(left):
            break
        ties = _pivot(ties, worst, d, found.height[:, go])
    cell[:, left], side[:, left] = ties.cell, ties.side
    return Ties(n, m, cell, side)


def _jitter(count: int) -> Array:
    """Return numbers in (0, 1), no two sums of a few of them alike: they break ties between equal costs."""
    k = np.arange(1, count + 1)
    return np.asarray(np.modf(k * k * 0.6180339887498949 + k * 0.4142135623730951)[0])


def _first(p: Array, q: Array, d: Array) -> Ties:
    """Return the best trees in which every sink is tied to one source, and each other source to a sink."""
    n, m, count = len(p), len(q), d.shape[1]
    kind: Any = np.uint32 if n + m <= 31 else np.uint64
    one, full = kind(1), kind((1 << (n + m)) - 1)
    best = np.full(count, -1.0)
    root, tied = np.zeros(count, dtype=np.int32), np.zeros((n, count), dtype=np.int32)
    for x in range(n):
        ratio, at = star(p, q, d, x)
        better = ratio > best
        np.copyto(best, ratio, where=better)
        np.copyto(root, np.int32(x), where=better)
        np.copyto(tied, at, where=better)
    cell, side = np.empty((n + m - 1, count), dtype=np.int32), np.empty((n + m - 1, count), dtype=kind)
    source = np.arange(n)[:, None]
    leaves: Bits = np.where(root != source, one << source.astype(kind), kind(0))
    for j in range(m):  # the root's edges: what hangs on sink j is not on the root's side
        hangs = np.bitwise_or.reduce(np.where(tied == j, leaves, kind(0)), axis=0) | one << kind(n + j)
        cell[j], side[j] = root * m + j, full ^ hangs
    for k in range(n - 1):  # the other sources, leaves
        leaf = np.where(root <= k, k + 1, k)
        cell[m + k] = leaf * m + np.take_along_axis(tied, leaf[None], axis=0)[0]
        side[m + k] = one << leaf.astype(kind)
    return Ties(n, m, cell, side)


def star(p: Array, q: Array, d: Array, x: int) -> tuple[Array, NDArray[np.int32]]:
    """Return Σ p H / Σ q G where all sinks are tied to source x, and the sink each source is tied to."""
    n, m, count = len(p), len(q), d.shape[1]
    tied = d[x * m : (x + 1) * m]
    least = tied.min(axis=0)
    below = _sum(q * np.exp(least - tied))
    if _at_once(n, m, count, d.size):
        lengths = d.reshape(n, m, count) - tied[None]
        at = lengths.argmin(axis=1)
        parts = p * np.exp(lengths.min(axis=1) + least)
        parts[: x + 1] = parts[[x, *range(x)]]  # x comes first, as below
        return _sum(parts) / below, at.astype(np.int32)
    above = p[x] * np.exp(least)
    found = np.zeros((n, count), dtype=np.int32)
    for i in range(n):
        if i == x:
            continue
        h = d[i * m] - tied[0]
        for j in range(1, m):
            other = d[i * m + j] - tied[j]
            np.copyto(found[i], np.int32(j), where=other < h)
            h = np.minimum(h, other)
        above = above + p[i] * np.exp(h + least)
    return above / below, found


def _pivot(ties: Ties, worst: NDArray[np.int64], d: Array, height: Array) -> Ties:
    """Lower the side A of the worst edge until a source outside A ties with a sink of A."""
    n, m = ties.sources, ties.sinks
    kind = ties.side.dtype.type
    one, full = kind(1), kind((1 << (n + m)) - 1)
    columns = np.arange(d.shape[1])
    a = ties.side[worst, columns]
    entering = _closest(n, m, d, height, a)
    old = ties.cell[worst, columns]
    source, old_source, new_source = ties.cell // m, old // m, entering // m
    old_sink, new_sink = old % m + n, entering % m + n
    # an edge inside A now meets the rest through the new sink, no longer through the old source
    within = ((a >> source.astype(kind)) & one).astype(bool)
    first = np.where(within, old_source, old_sink).astype(kind)
    second = np.where(within, new_sink, new_source).astype(kind)
    crossed = ((ties.side >> first) ^ (ties.side >> second)) & one
    side = ties.side ^ (crossed * np.where(within, full ^ a, a))
    side[worst, columns] = full ^ a
    cell = ties.cell.copy()
    cell[worst, columns] = entering
    return Ties(n, m, cell, side)


def transported(p: Array, q: Array, d: Array, ties: Ties) -> Array:
    """Return what of p each tie carries, shape (E, B): its sum over a source's ties is p there."""
    found = _solution(p, q, d, ties)
    n = ties.sources
    source = np.take_along_axis(found.height[:n], ties.cell // ties.sinks, axis=0)
    return np.asarray(np.maximum(found.flow - found.error, 0.0) * np.exp(-source))


def _closest(n: int, m: int, d: Array, height: Array, a: Bits) -> NDArray[np.int32]:
    """Return the pair of a source outside A and a sink inside it that ties first when A is lowered."""
    kind = a.dtype.type
    inside = [((a >> kind(v)) & kind(1)).astype(bool) for v in range(n + m)]
    count = d.shape[1]
    if _at_once(n, m, count, d.size):
        slack = d.reshape(n, m, count) + height[None, n:] - height[:n, None]
        shut = np.array(inside[:n])[:, None] | ~np.array(inside[n:])[None, :]
        first = np.where(shut, np.inf, slack).reshape(n * m, count).argmin(axis=0)
        return np.asarray(first, dtype=np.int32)
    least, entering = np.full(count, np.inf), np.zeros(count, dtype=np.int32)
    for i in range(n):
        for j in range(m):
            slack = d[i * m + j] + height[n + j] - height[i]
            better = (slack < least) & inside[n + j] & ~inside[i]
            np.copyto(least, slack, where=better)
            np.copyto(entering, np.int32(i * m + j), where=better)
    return entering


def proved(p: Array, q: Array, d: Array, ties: Ties) -> tuple[Array, Array]:
    """Return what trees prove: certified upper bounds on e^T, and lower ones; any trees will do.

    Above: where every transport is clearly ≥ 0 that is t itself.  Elsewhere negative ones are dropped,
    sinks with more than t q_j are cut, and the demand left unmet is priced at e^{max_j D_ij}.
    Below: Σ p H / Σ q G with the trees' G and the largest H it allows; not rounded.
    """
    p, q, d = (np.ascontiguousarray(a, dtype=np.float64) for a in (p, q, d))
    return proved_in_numpy(p, q, d, ties) if kernels() is None else proved_in_c(p, q, d, ties)


def proved_in_c(p: Array, q: Array, d: Array, ties: Ties) -> tuple[Array, Array]:
    """Return what :func:`proved_in_numpy` does, its twin, by ``compiled/ties.c``; numpy exponentiates."""
    exponents, finish = kernel("qd_ties_raise"), kernel("qd_ties_proved")
    if exponents is None or finish is None:
        raise RuntimeError("the kernels are not built")
    n, m, count = len(p), len(q), d.shape[1]
    trees = [np.ascontiguousarray(a, dtype=np.int64) for a in (ties.cell, ties.side)]
    raised, above, below = np.empty((count, 4 * n + 3 * m - 1)), np.empty(count), np.empty(count)
    exponents(n, m, count, d, *trees, raised)
    with np.errstate(over="ignore"):
        np.exp(raised, out=raised)
    finish(n, m, count, p, q, d, *trees, raised, above, below)
    return above, below


def proved_in_numpy(p: Array, q: Array, d: Array, ties: Ties) -> tuple[Array, Array]:
    """Return upper bounds and lower ones, all problems at a time."""
    n, m = ties.sources, ties.sinks
    found = _solution(p, q, d, ties)
    top = d.max(axis=0)
    value = found.ratio * (1.0 + _roundings(n + m, top)) + (n * _TINY) * np.exp(top)
    doubtful = np.flatnonzero((found.flow < found.error).any(axis=0))
    if len(doubtful):
        some = (a.take(doubtful, axis=1) for a in (p, q, d))
        value[doubtful] = _priced(ties.take(doubtful), found.take(doubtful), *some)
    return np.asarray(value), _attained(p, q, d, found)


def _attained(p: Array, q: Array, d: Array, found: _Solution) -> Array:
    n, m = len(p), len(q)
    g = found.height[n:]
    total = np.zeros(d.shape[1])
    for i in range(n):
        least = d[i * m] + g[0]
        for j in range(1, m):
            np.minimum(least, d[i * m + j] + g[j], out=least)
        total += p[i] * np.exp(least)
    return np.asarray(total * found.ratio / _sum(found.mass[n:]))


def _priced(ties: Ties, found: _Solution, p: Array, q: Array, d: Array) -> Array:
    """Return t plus the price of the demand that the transports leave unmet when no sink exceeds t q."""
    n, m = ties.sources, ties.sinks
    source, sink = ties.cell // m, ties.cell % m
    sent = np.maximum(found.flow, 0.0) * np.exp(-np.take_along_axis(found.height, sink + n, axis=0))
    allowed = np.ones(sent.shape)
    for j in range(m):
        here = sink == j
        load = _sum(np.where(here, sent, 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(load > found.ratio * q[j], found.ratio * q[j] / load, 1.0)
        allowed = np.where(here, share, allowed)
    arrives = sent * allowed * np.exp(-found.cost)
    top = d.max(axis=0)
    roundings = _roundings(n + m, top)
    price = np.zeros(len(top))
    for i in range(n):
        met = _sum(np.where(source == i, arrives, 0.0))
        unmet = np.maximum(p[i] * (1.0 + roundings) - met, 0.0) + _TINY
        price += unmet * np.exp(d[i * m : (i + 1) * m].max(axis=0))
    return np.asarray((found.ratio + price) * (1.0 + roundings))


def arrivals(p: Array, q: Array, d: Array, ties: Ties) -> Array:
    """Return what arrives at every source (as its demand is met) from every sink: ``f`` (n·m, B), ≥ 0."""
    found = _solution(p, q, d, ties)
    height = np.take_along_axis(found.height, ties.cell // ties.sinks, axis=0)
    f = np.zeros(d.shape)
    np.put_along_axis(f, ties.cell, np.maximum(found.flow, 0.0) * np.exp(-height), axis=0)
    return f
