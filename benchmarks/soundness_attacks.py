"""Attacks by brute force, written from the definition: nothing here asks the library for a bound.

The joint law is multiplied out, the adversary's evidence is applied to it, and an explicit mechanism
is built: a positive function h of the unknown records that changes by at most e^α_j when record j
changes.  What such an h attains is a true leakage, so every certified number must be at least as large.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

import quiltdp as qd

__all__ = ["Attack", "ascend", "joint_of_records", "strongest"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Attack:
    """A leakage that is attained: about which records, by whom, how much."""

    unit: tuple[str, ...]
    known: dict[str, int]
    values: tuple[tuple[int, ...], tuple[int, ...]]
    leakage: float


def joint_of_records(model: qd.Model) -> Array:
    """Return P(records), axes in the order of ``model.records``, by multiplying all tables."""
    nodes = list(model.nodes)
    letters = {node: k for k, node in enumerate(nodes)}
    operands: list[object] = []
    for factor in model.factors:
        operands += [np.asarray(factor.table), [letters[n] for n in factor.scope]]
    joint = np.einsum(*operands, [letters[n] for n in model.records], optimize="greedy")
    return np.asarray(joint / joint.sum())


def _lipschitz(h: Array, costs: Sequence[float]) -> Array:
    """Return the least function above ``h`` that changes by at most e^α_j along axis j."""
    for axis, cost in enumerate(costs):
        h = np.maximum(h, np.exp(-cost) * h.max(axis=axis, keepdims=True))
    return h


def _value(p: Array, q: Array, h: Array) -> float:
    return float(np.log((p * h).sum()) - np.log((q * h).sum()))


def _guess(p: Array, q: Array, costs: Sequence[float]) -> float:
    """Return what the distance to the set p > q attains, a good first guess."""
    return _value(p, q, _lipschitz((p > q).astype(float) + 1e-300, costs)) if p.size > 1 else 0.0


def _program(p: Array, q: Array, costs: Sequence[float]) -> float:
    """Return what the best h attains: a linear program, its answer made a mechanism and evaluated."""
    if p.size == 1:
        return 0.0
    index = np.arange(p.size).reshape(p.shape)
    rows = []
    for axis, cost in enumerate(costs):
        moved = np.moveaxis(index, axis, 0)
        rows += [(a.ravel(), b.ravel(), cost) for a, b in itertools.permutations(moved, 2)]
    one = np.concatenate([a for a, _, _ in rows])
    other = np.concatenate([b for _, b, _ in rows])
    size = np.concatenate([np.full(a.size, -np.exp(c)) for a, _, c in rows])
    count = np.arange(len(one))
    matrix = coo_matrix(
        (np.concatenate([np.ones(len(one)), size]), (np.r_[count, count], np.r_[one, other])),
        shape=(len(one), p.size),
    )
    found = linprog(-p.ravel(), A_ub=matrix, b_ub=np.zeros(len(one)), A_eq=q.reshape(1, -1), b_eq=[1.0])
    best = _guess(p, q, costs)
    if found.x is None:
        return best
    h = _lipschitz(np.maximum(found.x, 1e-300).reshape(p.shape), costs)
    return max(best, _value(p, q, h))


def _evidence(shape: Sequence[int], others: Sequence[int], most: int) -> Iterator[dict[int, int]]:
    for size in range(min(most, len(others)) + 1):
        for chosen in itertools.combinations(others, size):
            for values in itertools.product(*(range(shape[k]) for k in chosen)):
                yield dict(zip(chosen, values, strict=True))


def _laws(joint: Array, unit: Sequence[int], known: dict[int, int]) -> list[tuple[tuple[int, ...], Array]]:
    """Return the law of the unknown records for every possible value of the unit."""
    given = joint[tuple(known.get(k, slice(None)) for k in range(joint.ndim))]
    left = [k for k in range(joint.ndim) if k not in known]
    given = np.moveaxis(given, [left.index(k) for k in unit], range(len(unit)))
    found = []
    for values in np.ndindex(*given.shape[: len(unit)]):
        law = given[values]
        if law.sum() > 0:
            found.append((values, law / law.sum()))
    return found


def strongest(
    model: qd.Model,
    alpha: dict[str, float],
    unit: Sequence[str],
    may_know: Sequence[str],
    most: int,
    programs: int = 3,
) -> Attack:
    """Return the strongest attack on ``unit`` by somebody who knows at most ``most`` of ``may_know``.

    Every evidence and pair of values is tried with one simple mechanism; the most promising ones
    get the best mechanism there is.
    """
    joint, records = joint_of_records(model), list(model.records)
    places = [records.index(r) for r in unit]
    others = [k for k, r in enumerate(records) if r in may_know and r not in unit]
    costs = [alpha[r] for r in records]
    tried = []
    for known in _evidence(joint.shape, others, most):
        own = [costs[k] for k in range(joint.ndim) if k not in known and k not in places]
        for (x, p), (y, q) in itertools.permutations(_laws(joint, places, known), 2):
            base = sum(costs[k] for k, a, b in zip(places, x, y, strict=True) if a != b)
            tried.append((base + _guess(p, q, own), len(tried), base, known, x, y, p, q, own))
    tried.sort(key=lambda t: (-t[0], t[1]))
    best = Attack(tuple(unit), {}, ((), ()), 0.0)
    for _, _, base, known, x, y, p, q, own in tried[:programs]:
        value = base + _program(p, q, own)
        if value > best.leakage:
            best = Attack(tuple(unit), {records[k]: v for k, v in known.items()}, (x, y), value)
    return best


def ascend(
    joint: Array, costs: Sequence[float], target: int, known: dict[int, int], rounds: int = 6
) -> float:
    """Return what a product mechanism attains, found by coordinate ascent, or 0 if nothing is possible."""
    left = [k for k in range(joint.ndim) if k not in known and k != target]
    best = 0.0
    for (_, p), (_, q) in itertools.permutations(_laws(joint, [target], known), 2):
        parts = [np.ones(joint.shape[k]) for k in left]
        now = -1.0
        for _ in range(rounds):
            for j, k in enumerate(left):
                weights = [w if i != j else np.ones_like(w) for i, w in enumerate(parts)]
                top, low = (_contract(law, weights, j) for law in (p, q))
                parts[j] = np.where(top / top.sum() > low / low.sum(), np.exp(costs[k]), 1.0)
            full = [float(_contract(law, parts, None)) for law in (p, q)]
            value = float(np.log(full[0]) - np.log(full[1]))
            if value <= now:
                break
            now = value
        best = max(best, costs[target] + now)
    return best


def _contract(law: Array, weights: Sequence[Array], keep: int | None) -> Array:
    """Sum all axes but ``keep`` out, the last one first, so that the others keep their places."""
    for axis in reversed(range(law.ndim)):
        if axis != keep:
            law = np.tensordot(law, weights[axis], axes=([axis], [0]))
    return law
