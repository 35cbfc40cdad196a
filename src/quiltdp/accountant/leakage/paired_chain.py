"""Pairings along a chain: one number per step and side (any number of states, both adversaries).

Claim.  Read one side of a chain from its end: position 0 is the last record, u_k the sensitivity of
position k in units, λ the rate.  Let C_{k,d}(o) bound ln E_p A / E_q A over the laws p, q of position
k − d given two values of position k (and any evidence, for the informed adversary) and all A > 0 with
ln A of spread o.  Then the side of position k has a pairing of toll

    F_k = min( λ Σ_{j<k} u_j,  min_d  λ Σ_{k−d<j<k} u_j + C_{k,d}(o) ),   o = λ u_{k−d} + F_{k−d},

whose weight is Σ_{k−d<j<k} u_j with f-mass 1 − φ, and that plus u_{k−d} plus a weight of position k − d
otherwise, φ = (e^C − 1) / (e^o − 1).  For the first minimum (group privacy) it is Σ_{j<k} u_j for sure.

Why.  With t = e^C pair equal values x = x' with f-mass min(p, t q) and g = f/t; what is left of p and of q
is spread as a product, with g/f = e^o/t.  Its f-mass Σ (p − t q)₊ is at most φ: at T(p, q; o·1) both are
equal, and t ≥ e^T.  Raising it to exactly φ only calls some equal pairs different.  Then
Σ g = (1 − φ)/t + φ e^o/t = 1.  Records in between are drawn independently on both sides and all count
as different.  Equal values stay equal for ever.  A known record ends the side: the mass that is still
different there has g/f equal to the average of g/f over what it would have become, and no more weight,
so its part of the bound is smaller, because ∫ (A − e^ε A')₊ is convex in e^ε.

C = Φ(c_d, o) with the spread c_d of the d-step table against the informed adversary (any evidence beyond
multiplies both laws by one likelihood, which leaves c_d as it is), and the threshold curve Λ of the
d-step conditionals against the prior adversary.

Cost.  A homogeneous chain with equal sensitivities needs one fixed point F, and the number of blocks of
d steps that stay different is geometric, whatever the length; other chains one pass.

*Assumes*: a path; C as it is told for each adversary.  *Reference*: docs/theory.md, section 11.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.leakage.paired import (
    NEGLIGIBLE,
    NOTHING,
    SLACK,
    Vector,
    WeightLaw,
    mixed,
    moved,
)
from quiltdp.accountant.trade_offs import LAW_ENTRIES
from quiltdp.numbers import EPS, up

__all__ = ["BlockSide", "CurveOf", "SideLaws", "endless_side", "side_laws"]

_CLOSED_FORM = 1.0 + 1e-12  # exp(j ln φ) for j ln φ down to −80: more than its rounding

CurveOf = Callable[[int, NDArray[np.intp], Vector], Vector]
"""(position, distances, o) → C: certified bounds, one per distance, ∞ where there is none."""


@dataclass(frozen=True, eq=False)
class SideLaws:
    """Toll and law of the weight of one side, for every position."""

    tolls: Vector
    laws: tuple[WeightLaw, ...]


def side_laws(curve: CurveOf, distances: Sequence[int], units: Sequence[int], rate: float) -> SideLaws:
    """Return the pairings of every position of one side, from its end.

    Parameters
    ----------
    curve
        C of a position, for several distances at once.
    distances
        The distances d to try, ascending.
    units
        The sensitivities, position 0 being the end of the chain.
    rate
        λ per unit.
    """
    sums = np.concatenate([[0], np.cumsum(np.asarray(units, dtype=np.int64))])
    steps = np.asarray(distances, dtype=np.intp)
    tolls = np.zeros(len(units))
    laws = [NOTHING]
    for k in range(1, len(units)):
        d = steps[steps <= k]
        between = sums[k] - sums[k - d + 1]
        o = (rate * (sums[k - d + 1] - sums[k - d]) + tolls[k - d]) * (1.0 + 4.0 * EPS)
        through = curve(k, d, o)
        totals = (rate * between + through) * (1.0 + 4.0 * EPS) + SLACK
        j = int(np.argmin(totals)) if len(d) else -1
        whole = rate * float(sums[k]) * (1.0 + 4.0 * EPS)
        if j < 0 or not totals[j] < whole:
            tolls[k] = whole
            laws.append(moved(NOTHING, int(sums[k])))
            continue
        tolls[k] = totals[j]
        far = k - int(d[j])
        phi = _different(float(through[j]), float(o[j]))
        laws.append(_mixed(phi, laws[far], int(between[j]), int(units[far])))
    return SideLaws(tolls, tuple(laws))


def _different(through: float, o: float) -> float:
    """Return φ = (e^C − 1) / (e^o − 1), rounded up and at most 1; SLACK in the toll pays for the rounding."""
    if through <= 0.0 or o <= 0.0:
        return 0.0
    if through >= o:
        return 1.0
    # (e^C − 1)/(e^o − 1) without overflow
    return min(1.0, up(math.exp(through - o) * math.expm1(-through) / math.expm1(-o), 16.0))


def _mixed(phi: float, beyond: WeightLaw, between: int, unit: int) -> WeightLaw:
    """Return weight ``between`` with mass 1 − φ, and ``between + unit`` plus the weight beyond otherwise."""
    return moved(mixed([(1.0 - phi, NOTHING), (phi, moved(beyond, unit))]), between)


@dataclass(frozen=True)
class BlockSide:
    """An endless side with one block for ever: d steps, toll F, and the f-mass φ that stays different."""

    steps: int
    toll: float
    phi: float

    def law(self, unit: int) -> WeightLaw:
        """Return the law of the weight: (d − 1) + j d records with mass (1 − φ) φ^j."""
        if unit == 0 or self.phi <= 0.0:
            return moved(NOTHING, (self.steps - 1) * unit)
        width = self.steps * unit
        count = _blocks(self.phi, LAW_ENTRIES // width)
        powers = np.exp(np.arange(count) * math.log(self.phi)) * _CLOSED_FORM
        masses = np.zeros((count - 1) * width + 1)
        masses[::width] = (1.0 - self.phi) * powers
        return moved(WeightLaw(masses, float(powers[-1]) * self.phi), (self.steps - 1) * unit)

    def twice(self, unit: int) -> WeightLaw:
        """Return the law of two such sides together: mass (1 − φ)² (j + 1) φ^j for j blocks."""
        if unit == 0 or self.phi <= 0.0:
            return moved(NOTHING, 2 * (self.steps - 1) * unit)
        width = self.steps * unit
        count = _blocks(self.phi, LAW_ENTRIES // width)
        j = np.arange(count, dtype=np.float64)
        masses = np.zeros((count - 1) * width + 1)
        masses[::width] = (j + 1.0) * np.exp(j * math.log(self.phi)) * (1.0 - self.phi) ** 2 * _CLOSED_FORM
        tail = math.exp(count * math.log(self.phi)) * (1.0 + count * (1.0 - self.phi)) * _CLOSED_FORM
        return moved(WeightLaw(masses, tail), 2 * (self.steps - 1) * unit)


def _blocks(phi: float, most: int) -> int:
    """Return after how many blocks the mass is negligible."""
    if phi <= 0.0:
        return 1
    if phi >= 1.0:
        return max(1, most)
    return max(1, min(most, 1 + math.ceil(math.log(NEGLIGIBLE) / math.log(phi))))


def endless_side(
    curve: Callable[[Vector], Vector], distances: Sequence[int], cost: float, most: float
) -> BlockSide | None:
    """Return the side of a homogeneous chain without end, or ``None`` if its toll exceeds ``most``.

    A shorter side is one whose further records are never read, so it costs no more.

    Parameters
    ----------
    curve
        C for every distance at once, o given per distance.
    cost
        λ times the sensitivity of a record.
    """
    d = np.asarray(distances, dtype=np.float64)

    def step(toll: float) -> Vector:
        o = np.full(len(d), up(cost + toll, 4.0))
        return ((d - 1.0) * cost + curve(o)) * (1.0 + 4.0 * EPS) + SLACK

    def fits(toll: float) -> bool:
        return bool(step(toll).min() <= toll)

    toll = _least_fixed_point(lambda t: float(step(t).min()), fits, most)
    if toll is None:
        return None
    j = int(np.argmin(step(toll)))
    o = up(cost + toll, 4.0)
    through = float(curve(np.full(len(d), o))[j])
    return BlockSide(int(d[j]), toll, _different(through, o))


def _least_fixed_point(
    step: Callable[[float], float], fits: Callable[[float], bool], most: float
) -> float | None:
    """Return a small t with step(t) ≤ t (checked), for a concave increasing step; ``None`` above ``most``."""
    low, value = 0.0, step(0.0)
    for _ in range(60):
        new = step(value)
        if not new < most:
            break
        if new <= value * (1.0 + 1e-10):
            break
        low, value = value, new
    high = value * (1.0 + 1e-9) + 1e-15
    while not fits(high):
        low, high = high, high * 1.25
        if high > most:
            if fits(most):
                high = most
                break
            return None
    while high - low > 1e-10 * high:
        middle = 0.5 * (low + high)
        if fits(middle):
            high = middle
        else:
            low = middle
    return high if high <= most else None
