"""Every adversary of a small model: what is known, what is unknown, and a ceiling for each.

An adversary against unit T knows the values x_S of some records S; the other records U are unknown.
For two values x_T, x_T' possible given x_S, the pair of laws p = P(x_U | x_T, x_S) and
p' = P(x_U | x_T', x_S) is all that matters: the leakage is Σ_{t∈T} α_t + max_H ln E_p H / E_p' H
over the likelihoods H that an α-DP mechanism allows.  The ceiling

    Λ(p, p'; o) = max_T' ln [ (p(T')(e^o − 1) + 1) / (p'(T')(e^o − 1) + 1) ],   o = Σ_{j∈U} α_j,

over threshold sets T' of p/p' forgets how far apart values of x_U are; it is exact when a single
record is unknown.

*Assumes*: the joint law of the records as one table.  *Cost*: Π (states + 1) rows of laws
over all units, predicted (:func:`count_entries`) before any work.  *Reference*: docs/theory.md, section 9.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from typing import NamedTuple

import numpy as np

from quiltdp.accountant.bounds import Vector
from quiltdp.accountant.leakage.worst_gains import log_ratios
from quiltdp.numbers import EPS

__all__ = ["PairStack", "PairTable", "count_entries", "pair_tables"]

_EXP_LIMIT = 700.0
_ENTRIES = 1 << 15  # of the joint laws that are taken apart together


@dataclass(frozen=True, eq=False)
class PairTable:
    """All pairs (p, p') of one unit for one set of unknown records.

    ``p[r]`` and ``q[r]`` are the two laws of row r over the joint states of ``unknown`` (positions
    of records, with ``sizes`` states each); ``known[r]`` and ``values[r]`` tell which adversary it
    is; ``p_sums``, ``q_sums`` are the masses of the threshold sets.
    """

    unknown: tuple[int, ...]
    sizes: tuple[int, ...]
    known_sets: tuple[int, ...]
    known: np.ndarray
    values: np.ndarray
    p: Vector
    q: Vector
    p_sums: Vector
    q_sums: Vector

    def ceilings(self, alpha: Vector) -> Vector:
        """Return Λ for every row, rounded up; exact when one record is unknown."""
        if not self.unknown:
            return np.zeros(len(self.p))
        o = float(alpha[list(self.unknown)].sum())
        same = (self.p == self.q).all(axis=1)
        if o > _EXP_LIMIT:
            limit: Vector = np.minimum(np.where(same, 0.0, log_ratios(self.p, self.q)), o * (1 + 8 * EPS))
            return limit
        return _ceilings(self.p_sums, self.q_sums, same, np.full(len(self.p), o))

    def apart(self, alpha: Vector, members: Sequence[int], shape: Sequence[int]) -> Vector:
        """Return Σ α of the members in which the two values of every row differ, rounded up."""
        return _apart(self.values, alpha, members, shape)


def _ceilings(p_sums: Vector, q_sums: Vector, same: np.ndarray, o: Vector) -> Vector:
    """Return Λ of every row from the masses of its threshold sets, rounded up; 0 where both laws are one."""
    grow = np.expm1(np.minimum(o * (1 + 8 * EPS), _EXP_LIMIT))[:, None]
    best = (np.log1p(p_sums * grow) - np.log1p(q_sums * grow)).max(axis=1)
    # the sums carry the error of their terms; a logarithm of 1 + x that of x
    slack = (8 + p_sums.shape[1]) * 4 * EPS * (1.0 + o)
    limit: Vector = np.minimum(np.where(same, 0.0, np.maximum(best, 0.0) + slack), o * (1 + 8 * EPS))
    return limit


def _apart(values: np.ndarray, alpha: Vector, members: Sequence[int], shape: Sequence[int]) -> Vector:
    at = np.array(np.unravel_index(values, [shape[j] for j in members]))  # member, row, side
    cost = (at[:, :, 0] != at[:, :, 1]) * alpha[list(members)][:, None]
    return np.asarray(cost.sum(axis=0) * (1 + 4 * len(members) * EPS))


class PairStack:
    """Pair tables, of one unit or of several; what is asked of tables of one shape is computed together.

    ``tables`` are those that were given, in an order in which equal shapes are neighbours; ``order`` are
    their places as they were given.  Rows are numbered through all tables.
    """

    def __init__(self, tables: Sequence[PairTable]) -> None:
        shapes = {table.sizes: k for k, table in enumerate(tables)}
        self.order = sorted(range(len(tables)), key=lambda k: shapes[tables[k].sizes])
        self.tables: list[PairTable] = []
        self._groups: list[_Group] = []
        first = 0
        for sizes, places in groupby(self.order, key=lambda k: tables[k].sizes):
            some = [tables[k] for k in places]
            ends = np.cumsum([len(t.p) for t in some]).tolist()
            joined = [np.concatenate([getattr(t, n) for t in some]) for n in _BY_ROW]
            for table, start, end in zip(some, [0, *ends], ends, strict=False):  # one copy is enough
                parts = (a[start:end] for a in joined)
                self.tables.append(PairTable(table.unknown, sizes, table.known_sets, *parts))
            _, _, p, q, p_sums, q_sums = joined
            same = (p == q).all(axis=1)
            self._groups.append(
                _Group(len(self.tables) - len(some), len(some), first, p, q, p_sums, q_sums, same)
            )
            first += len(p)
        self.offsets = np.cumsum([0, *(len(t.p) for t in self.tables)])
        values = [t.values for t in self.tables]
        self._values = np.concatenate(values) if values else np.zeros((0, 2), dtype=np.intp)
        self._starts = [group.first for group in self._groups]

    def ceilings(self, alpha: Vector) -> Vector:
        """Return Λ of every row of every table, rounded up, as :meth:`PairTable.ceilings` does."""
        found: list[Vector] = []
        for group in self._groups:
            some = self.tables[group.table : group.table + group.tables]
            reach = np.array([float(alpha[list(t.unknown)].sum()) for t in some])
            if reach.max() > _EXP_LIMIT or not some[0].unknown:
                found.extend(t.ceilings(alpha) for t in some)
                continue
            o = np.repeat(reach, [len(t.p) for t in some])
            found.append(_ceilings(group.p_sums, group.q_sums, group.same, o))
        return np.concatenate(found) if found else np.zeros(0)

    def apart(
        self, alpha: Vector, members: Sequence[int], shape: Sequence[int], rows: np.ndarray | None = None
    ) -> Vector:
        """Return Σ α of the members in which the two values of rows (default: all) differ."""
        return _apart(self._values if rows is None else self._values[rows], alpha, members, shape)

    def laws(self, rows: np.ndarray) -> tuple[Vector, Vector]:
        """Return p and q of some rows of tables of one shape."""
        group = self._groups[bisect_right(self._starts, int(rows[0])) - 1]
        return group.p[rows - group.first], group.q[rows - group.first]


_BY_ROW = ("known", "values", "p", "q", "p_sums", "q_sums")


class _Group(NamedTuple):
    """Tables of one shape: which, their first row, and their rows together."""

    table: int
    tables: int
    first: int
    p: Vector
    q: Vector
    p_sums: Vector
    q_sums: Vector
    same: np.ndarray


def count_entries(
    sizes: Sequence[int],
    members: Sequence[int],
    may_know: Collection[int] | None = None,
    most: int | None = None,
) -> int:
    """Return how many numbers :func:`pair_tables` would hold for one unit."""
    inside = math.prod(sizes[j] for j in members)
    outside = math.prod(k for j, k in enumerate(sizes) if j not in members)
    knowable = [j for j in range(len(sizes)) if j not in members and (may_know is None or j in may_know)]
    most = len(knowable) if most is None else min(most, len(knowable))
    sets = sum(math.comb(len(knowable), k) for k in range(most + 1))
    return inside * (inside - 1) * outside * sets


def pair_tables(
    log_joint: Vector,
    members: Sequence[int],
    may_know: Collection[int] | None = None,
    most: int | None = None,
) -> Iterator[PairTable]:
    """Yield the pairs of every adversary against the records at ``members`` of a joint table.

    ``log_joint`` has one axis per record and holds logarithms of probabilities (any scale).
    Unordered pairs appear once in each direction.  ``may_know`` are the records that may be known
    (default: any), ``most`` how many of them at once (default: all).
    """
    others = [j for j in range(log_joint.ndim) if j not in members]
    knowable = [j for j in others if may_know is None or j in may_know]
    most = len(knowable) if most is None else min(most, len(knowable))
    sets = [known for count in range(most, -1, -1) for known in combinations(knowable, count)]
    found: dict[int, PairTable] = {}
    alike: dict[tuple[int, ...], list[int]] = {}
    for k, known in enumerate(sets):
        alike.setdefault(tuple(log_joint.shape[j] for j in others if j not in known), []).append(k)
    step = max(1, _ENTRIES // log_joint.size)
    for places in alike.values():
        for start in range(0, len(places), step):
            some = places[start : start + step]
            found.update(zip(some, _pairs(log_joint, members, others, [sets[k] for k in some]), strict=True))
    yield from (found[k] for k in range(len(sets)))


def _pairs(
    log_joint: Vector, members: Sequence[int], others: Sequence[int], sets: Sequence[tuple[int, ...]]
) -> list[PairTable]:
    """Return the tables of known sets that leave the same numbers of states unknown, in the same order."""
    unknown = [[j for j in others if j not in known] for known in sets]
    sizes = tuple(log_joint.shape[j] for j in unknown[0])
    shape = (-1, math.prod(log_joint.shape[j] for j in members), math.prod(sizes))
    axes = [[*known, *members, *rest] for known, rest in zip(sets, unknown, strict=True)]
    cubes = np.stack([log_joint.transpose(some).reshape(shape) for some in axes])
    top = cubes.max(axis=3)
    possible = top > -np.inf  # each row relative to its own largest: an improbable value is like any other
    cubes = np.exp(cubes - np.where(possible, top, 0.0)[..., None])
    mass = cubes.sum(axis=3)
    at, s, x, y = np.nonzero(possible[..., :, None] & possible[..., None, :])
    at, s, x, y = at[x != y], s[x != y], x[x != y], y[x != y]
    p = cubes[at, s, x] / mass[at, s, x][:, None]
    q = cubes[at, s, y] / mass[at, s, y][:, None]
    with np.errstate(divide="ignore", invalid="ignore"):  # logarithms: p/(p+q) would tie all p ≫ q
        ratio = np.where(p > 0, np.log(p) - np.log(q), -np.inf)
    order = np.argsort(-ratio, axis=1, kind="stable")
    p_sums = np.cumsum(np.take_along_axis(p, order, axis=1), axis=1)
    q_sums = np.cumsum(np.take_along_axis(q, order, axis=1), axis=1)
    by_row = (s, np.stack([x, y], axis=1), p, q, p_sums, q_sums)
    ends = np.searchsorted(at, np.arange(len(sets) + 1)).tolist()
    return [
        PairTable(tuple(rest), sizes, known, *(a[start:end] for a in by_row))
        for known, rest, start, end in zip(sets, unknown, ends[:-1], ends[1:], strict=True)
    ]
