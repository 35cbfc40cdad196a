"""Pairings along an endless chain against the prior adversary: one toll for every pair of states.

Claim.  Let R(x, ·) be the law of the next record away from the target, the same at every step, and a = λ Δ.
If tolls m(x, x') ≥ 0, m(x, x) = 0, and flows f_{x,x'} satisfy Σ_{y'} f(y, y') = R(x, y) and
Σ_y f(y, y') e^{a 1[y ≠ y'] + m(y, y')} ≤ e^{m(x, x')} R(x', y'), then the side of a record has, for the
hypotheses x, x', a pairing of toll m(x, x') whose weight is the number of steps until the flows first make
the two sides equal: P(weight = j) = (M^j r)(x, x'), M the flows between different pairs, r those to equal
ones.

Why.  g = f e^{a 1[y ≠ y'] + m(y, y') − m(x, x')} at every step; the tolls of the pairs in between cancel, so
after j different steps ln g/f = λ Δ j − m(x, x') at the first equal one.  A side that ends earlier is one
whose further records are never read.

Cost.  A transport for every pair of states and a few rounds to settle them: for chains of few states.

*Assumes*: the prior adversary and a chain in its stationary law.  *Reference*: docs/theory.md, section 11.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.leakage.flows import LARGEST_COST, transport_flows
from quiltdp.accountant.leakage.paired import NEGLIGIBLE, SLACK, Vector, WeightLaw
from quiltdp.accountant.trade_offs import PAIRED_ENTRIES, PAIRED_ROUNDS
from quiltdp.numbers import EPS

__all__ = ["StateSide", "state_side"]


@dataclass(frozen=True, eq=False)
class StateSide:
    """Tolls of all pairs of states, and the laws of their weights in steps (none for equal states)."""

    cost: float
    tolls: Vector
    laws: dict[tuple[int, int], WeightLaw]

    def law(self, x: int, y: int, unit: int) -> WeightLaw:
        """Return the law of the weight for one pair, each step counting ``unit``."""
        own = self.laws[x, y]
        if unit == 1:
            return own
        if unit == 0:
            return WeightLaw(np.array([float(own.masses.sum()) * (1.0 + len(own.masses) * EPS)]), own.tail)
        return WeightLaw(own.masses, own.tail, own.step * unit, own.excess * unit)


def state_side(
    rows: Vector, cost: float, most: float, drift: float = 0.0, like: StateSide | None = None
) -> StateSide | None:
    """Return certified tolls and laws, or ``None`` if a toll exceeds ``most`` or they do not settle.

    Parameters
    ----------
    rows
        R, square, over the possible states.
    cost
        a = λ Δ.
    drift
        How far ln of an entry of R may be from the truth.
    like
        The side at another cost, to begin from.
    """
    size = len(rows)
    pairs = [(x, y) for x in range(size) for y in range(size) if x != y]
    if not pairs:
        return StateSide(cost, np.zeros((1, 1)), {})
    first, second = np.array([x for x, _ in pairs]), np.array([y for _, y in pairs])
    p, q = rows[first], rows[second]
    slack = SLACK + 3.0 * drift
    step = _Step(p, q, first, second, cost, size)
    begin = np.zeros(len(p)) if like is None else like.tolls[first, second] * (cost / like.cost)
    toll = step.settle(begin, most)
    if toll is None:
        return None
    for raised in (1e-7, 1e-6, 1e-5, 1e-4, 1e-3):
        tried = toll * (1.0 + raised) + 10.0 * slack
        value, flows = step.flows(tried)
        if np.all(value + slack <= tried):
            break
    else:
        return None
    if tried.max() > most:
        return None
    tolls = np.zeros((size, size))
    tolls[first, second] = tried
    laws = _laws(flows * math.exp(drift), first, second, size)
    return StateSide(cost, tolls, dict(zip(pairs, laws, strict=True)))


@dataclass(frozen=True, eq=False)
class _Step:
    """One step of the chain: from tolls of the next pairs to flows and tolls of these."""

    p: Vector
    q: Vector
    first: NDArray[np.intp]
    second: NDArray[np.intp]
    cost: float
    size: int

    def costs(self, toll: Vector) -> Vector:
        table = np.zeros((self.size, self.size))
        table[self.first, self.second] = self.cost + toll
        return table

    def flows(self, toll: Vector) -> tuple[Vector, Vector]:
        """Return T and its flows for every pair, given the tolls of the next one."""
        table = self.costs(toll)
        return transport_flows(self.p, self.q, np.broadcast_to(table, (len(self.p), *table.shape)))

    def settle(self, toll: Vector, most: float) -> Vector | None:
        """Return tolls near the fixed point: flows for given tolls, then the tolls of those flows."""
        if self.cost > LARGEST_COST:
            return None
        identity = np.eye(len(toll))
        for _ in range(PAIRED_ROUNDS):
            value, flows = self.flows(toll)
            between = flows[:, self.first, self.second]
            equal = np.trace(flows, axis1=1, axis2=2)
            system = identity - math.exp(self.cost) * between
            try:
                grown = np.linalg.solve(system, equal)
            except np.linalg.LinAlgError:
                grown = np.full(len(toll), -1.0)
            new = np.log(grown) if np.all(grown >= 1.0 - 1e-9) else value
            new = np.maximum(new, 0.0)
            if new.max() > 1.5 * most + 1.0 or new.max() + self.cost > LARGEST_COST:
                return None
            done = np.abs(new - toll).max() <= 1e-8 * max(1e-6, float(new.max()))
            toll = new
            if done:
                break
        return toll


def _laws(flows: Vector, first: NDArray[np.intp], second: NDArray[np.intp], size: int) -> list[WeightLaw]:
    """Return the masses of 0, 1, 2, … different steps for every pair, in steps that keep the list short."""
    between = flows[:, first, second]
    step = _coarseness(between)
    left = np.ones(len(first))
    mass = np.trace(flows, axis1=1, axis2=2)
    error = 1.0 + (len(first) + size + 8.0) * EPS
    found, here, k = [mass], np.zeros(len(first)), 0
    while left.max() > NEGLIGIBLE and len(found) < PAIRED_ENTRIES:
        left = between @ left * error
        mass = between @ mass * error
        here = here + mass
        k += 1
        if k % step == 0:  # the weights (k − step, k] are one entry
            found.append(here * (1.0 + step * EPS))
            here = np.zeros(len(first))
    found.append(here * (1.0 + step * EPS))
    masses = np.array(found)
    return [WeightLaw(masses[:, j], float(left[j]), step, step - 1) for j in range(len(first))]


def _coarseness(between: Vector) -> int:
    """Return how many steps make one entry, a power of two, from how slowly the pairs become equal."""
    slow = np.ones(len(between))
    decay = 0.0
    for _ in range(64):
        new = between @ slow
        decay = float(new.max())
        if decay <= 0.0:
            return 1
        slow = new / decay
    if decay >= 1.0:
        return 1
    least = max(1, math.ceil(math.log(NEGLIGIBLE) / math.log(decay) / PAIRED_ENTRIES))
    return 1 << (least - 1).bit_length()  # so that the two sides of a chain count in steps that fit
