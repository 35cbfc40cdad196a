"""Which sets of known nodes can leak most, whatever their values: a ceiling for each.

The messages m_k(z, z'; e) of :mod:`.every_adversary` for all e in which the same nodes are known are at most

    M_k(z, z') = T( P(x_k | z), P(x_k | z'); D )       nothing is known at and below k,
    M_k(z, z') = max over v of D(v, v)                  k is known,
    M_k(z, z') = max over x, x' of D(x, x')             k is unknown, something below it is known,

v possible given z and given z', x given z, x' given z', and D(x, x') = α_k·1[x ≠ x'] + Σ over children of
M_c.  *Why.*  T increases with D and is at most its largest entry; what is known only takes states away.

A set whose ceiling is below what somebody who knows nothing learns is not the worst, nor are its values.
Only the others are listed (:meth:`quiltdp.inference.evidence_tree.Branch.cases`); a margin far above all
rounding keeps those that come near.

*Assumes*: branches with the set of nothing.  *Cost*: pairs of states, for every node and every different set
at and below it, at each α.  *Reference*: docs/theory.md, section 17.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.bounds import Vector
from quiltdp.accountant.leakage.three_states import compared
from quiltdp.inference.evidence_tree import Branch, Outlined

__all__ = ["ceilings", "worst_sets"]

Array = NDArray[np.float64]
_MARGIN = 1e-9  # relatively: rounding is a million times smaller


def worst_sets(branches: Sequence[Branch], own: Array, alpha: Vector, slack: float) -> list[list[int]]:
    """Return for every branch the sets that can be known by who learns most.

    ``own`` is what two states of T cost by themselves, ``slack`` what a transport may be off by.
    """
    possible = np.ones(len(own), dtype=bool)
    for b in branches:
        possible &= b.possible
    asked = possible[:, None] & possible[None, :] & ~np.eye(len(own), dtype=bool)
    if not asked.any():  # T has one value, and nobody learns anything
        return [np.flatnonzero(b.outline[-1].silent).tolist() for b in branches]
    found = [ceilings(b, alpha, slack)[:, b.seen][:, :, b.seen][:, asked] for b in branches]
    most = [m.max(axis=0) for m in found]
    silent = own[asked] + sum(m[b.outline[-1].silent][0] for b, m in zip(branches, found, strict=True))
    floor = float(silent.max()) * (1.0 - _MARGIN)
    whole = own[asked] + sum(most)
    return [
        np.flatnonzero((whole - top + m >= floor).any(axis=1)).tolist()
        for m, top in zip(found, most, strict=True)
    ]


def ceilings(branch: Branch, alpha: Vector, slack: float) -> Array:
    """Return M(z, z') of the node next to T, axes (set, z, z'); −∞ where no values are possible for both."""
    messages: list[Array] = []
    leaves: dict[tuple[bytes, bytes, float], Array] = {}  # brothers and sisters have one message
    for node in branch.outline:
        own = float(alpha[node.node])
        if node.below:
            messages.append(_ceiling(node, messages, own, slack))
            continue
        key = (node.law.tobytes(), node.known.tobytes(), own)
        if key not in leaves:
            leaves[key] = _ceiling(node, messages, own, slack)
        messages.append(leaves[key])
    return messages[-1]


def _ceiling(node: Outlined, messages: Sequence[Array], alpha: float, slack: float) -> Array:
    """Return M_k(z, z') for every set that may be known at and below k; zero where z = z'."""
    count, states = node.law.shape
    can: NDArray[np.bool_] = np.asarray(node.law > 0)
    there = node.law.max(axis=1) > 0
    first, second = np.nonzero(there[:, None] & there[None, :] & ~np.eye(count, dtype=bool))
    found = np.zeros((len(node.known), count, count))
    if not len(first):
        return found
    d = np.broadcast_to(alpha * (1.0 - np.eye(states)), (len(node.known), len(first), states, states)).copy()
    ways: dict[bytes, tuple[NDArray[np.int64], Array]] = {}  # children that are read alike, added up
    for b in node.below:
        key, mine = b.seen.tobytes(), messages[b.child][b.part]
        ways[key] = (b.seen, ways[key][1] + mine if key in ways else mine)
    for seen, mine in ways.values():
        d += mine[:, seen[first][:, :, None], seen[second][:, None, :]]
    both = can[first][:, :, None] & can[second][:, None, :]
    worst = np.where(both, d, -np.inf).max(axis=(2, 3)) + slack
    same = np.where(both & np.eye(states, dtype=bool), d, -np.inf).max(axis=(2, 3))
    worst[node.known] = same[node.known]
    for s in np.flatnonzero(node.silent).tolist():
        children = [(messages[b.child], b.part[s : s + 1], b.seen) for b in node.below]
        places = (np.zeros(len(first), dtype=np.int64), first, second)
        worst[s] = compared(node.law[None], places, children, alpha) + slack
    found[:, first, second] = worst
    return found
