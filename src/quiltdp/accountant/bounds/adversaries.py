"""Every adversary of a small model: what is known, what is unknown, and a ceiling for each.

An adversary against unit T knows the values x_S of some records S; the other records U are unknown.
For two values x_T, x_T' possible given x_S, the pair of laws p = P(x_U | x_T, x_S) and
p' = P(x_U | x_T', x_S) is all that matters: the leakage is what the change of x_T costs itself, plus
max_H ln E_p H / E_p' H over the likelihoods H that an α-DP mechanism allows.  The ceiling

    Λ(p, p'; o) = max_T' ln [ (p(T')(e^o − 1) + 1) / (p'(T')(e^o − 1) + 1) ],   o = Σ_{j∈U} α_j,

over threshold sets T' of p/p' forgets how far apart values of x_U are; it is exact when a single
record is unknown.

*Assumes*: the joint law of the records as one table.  *Cost*: Π (states + 1) rows of laws
over all units, predicted (:func:`count_entries`) before any work.  *Reference*: docs/theory.md, section 9.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.bounds.contract import Vector
from quiltdp.accountant.bounds.transport import threshold_sums, threshold_transport
from quiltdp.numbers import EPS
from quiltdp.work import NO_GUARD, Guard

Ints = NDArray[np.intp]
Adversary: TypeAlias = tuple[int, tuple[int, ...], list[int]]
"""A unit, the records that are known, and those that are not."""
_ENTRIES = 1 << 15  # of the joint laws that are read together


@dataclass(frozen=True, eq=False)
class LawPairs:
    """The pairs (p, p') of all adversaries whose unknown records have the same numbers of states.

    Row r has the laws ``p[r]`` and ``q[r]`` over the joint states of the records ``unknown[r]``, ``sizes``
    states each.  It compares the values ``values[r]`` of unit ``unit[r]``, which has the records
    ``members[r]``, for an adversary who knows the records ``known[r]`` at their joint value ``evidence[r]``.
    ``shares[r]`` are the prices of the change of each member, ``sums`` the masses of threshold sets of p/q.
    Records are axes of the joint table.
    """

    sizes: tuple[int, ...]
    sums: tuple[Vector, Vector]
    unit: Ints
    members: Ints
    unknown: Ints
    known: Ints
    evidence: Ints
    values: Ints
    shares: Vector
    p: Vector
    q: Vector

    def own_prices(self, alpha: Vector) -> Vector:
        """Return what the change of the unit's values costs itself, rounded up."""
        total = (alpha[self.members] * self.shares).sum(axis=1)
        return np.asarray(total * (1 + 4 * self.members.shape[1] * EPS))

    def ceilings(self, alpha: Vector) -> Vector:
        """Return Λ, rounded up; 0 where both laws are one."""
        o = alpha[self.unknown].sum(axis=1) * (1 + 8 * EPS)
        same = (self.p == self.q).all(axis=1)
        return np.where(same, 0.0, np.minimum(threshold_transport(*self.sums, o), o))


def count_entries(
    sizes: Sequence[int],
    members: Sequence[int],
    may_know: Collection[int] | None = None,
    most: int | None = None,
) -> int:
    """Return how many numbers :func:`list_pairs` would hold for one unit."""
    inside = math.prod(sizes[j] for j in members)
    outside = math.prod(k for j, k in enumerate(sizes) if j not in members)
    knowable = [j for j in range(len(sizes)) if j not in members and (may_know is None or j in may_know)]
    most = len(knowable) if most is None else min(most, len(knowable))
    sets = sum(math.comb(len(knowable), k) for k in range(most + 1))
    return inside * (inside - 1) * outside * sets


def list_pairs(
    log_joint: Vector,
    units: Sequence[Sequence[int]],
    prices: Sequence[Vector],
    may_know: Collection[int] | None = None,
    most: int | None = None,
    guard: Guard = NO_GUARD,
) -> list[LawPairs]:
    """Return the pairs of every adversary against units, each of some axes of a joint table.

    ``log_joint`` has one axis per record and holds logarithms of probabilities (any scale); ``prices`` are
    tables over pairs of values, one per record.
    Unordered pairs appear once in each direction.  ``may_know`` are the records that may be known
    (default: any), ``most`` how many of them at once (default: all).
    """
    alike: dict[tuple[int, ...], list[Adversary]] = {}
    shares = []
    for k, members in enumerate(units):
        inside = [log_joint.shape[j] for j in members]
        at = np.indices(inside).reshape(len(inside), -1)
        shares.append(np.stack([prices[j][np.ix_(x, x)] for j, x in zip(members, at, strict=True)], axis=2))
        others = [j for j in range(log_joint.ndim) if j not in members]
        knowable = [j for j in others if may_know is None or j in may_know]
        for count in range(len(knowable) if most is None else min(most, len(knowable)), -1, -1):
            for known in combinations(knowable, count):
                unknown = [j for j in others if j not in known]
                key = (len(members), math.prod(inside), *(log_joint.shape[j] for j in unknown))
                alike.setdefault(key, []).append((k, known, unknown))
    step = max(1, _ENTRIES // log_joint.size)
    found = []
    for some in alike.values():
        parts = []
        for start in range(0, len(some), step):
            guard.check()
            parts.append(_law_pairs_of_shape(log_joint, units, shares, some[start : start + step]))
        sizes = tuple(log_joint.shape[j] for j in some[0][2])
        columns: list[Any] = [np.concatenate(column) for column in zip(*parts, strict=True)]
        found.append(LawPairs(sizes, threshold_sums(*columns[-2:]), *columns))
    return found


def _law_pairs_of_shape(
    log_joint: Vector, units: Sequence[Sequence[int]], shares: Sequence[Vector], some: Sequence[Adversary]
) -> list[NDArray[Any]]:
    """Return the columns of :class:`LawPairs` for adversaries that leave equal shapes."""
    which, known, unknown = zip(*some, strict=True)
    shape = (-1, len(shares[which[0]]), math.prod(log_joint.shape[j] for j in unknown[0]))
    axes = [[*s, *units[k], *rest] for k, s, rest in some]
    cubes = np.stack([log_joint.transpose(order).reshape(shape) for order in axes])
    top = cubes.max(axis=3)
    possible = top > -np.inf  # each row relative to its own largest: an improbable value is like any other
    cubes = np.exp(cubes - np.where(possible, top, 0.0)[..., None])
    at, s, x, y = np.nonzero(possible[..., :, None] & possible[..., None, :] & ~np.eye(shape[1], dtype=bool))
    laws = cubes / np.where(possible, cubes.sum(axis=3), 1.0)[..., None]
    listed = ([units[k] for k in which], unknown, known)
    sets = [np.array(a, dtype=np.intp).reshape(len(some), -1)[at] for a in listed]
    share = np.stack([shares[k] for k in which])[at, x, y]
    values = np.stack([x, y], axis=1)
    return [np.array(which)[at], *sets, s, values, share, laws[at, s, x], laws[at, s, y]]
