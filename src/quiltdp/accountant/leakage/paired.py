"""Approximate DP with contraction: every coupling proof of a pure bound is also one for (ε, δ).

Claim.  Let A_y be the law of the output when the unknown records are y, and let f, g ≥ 0 be measures
on pairs (y, y') with Σ_{y'} f(y, ·) = P(y | x, e) and Σ_y g(·, y') ≤ P(y' | x', e): a *pairing* of the
two hypotheses x, x' about the attacked unit, e what the adversary knows.  If every pair carries a
weight w(y, y') of at least the sensitivities of the records in which y and y' differ, and

    ln g/f ≥ λ w − m        (λ the *rate*, m the *toll*),

then, with Δ the sensitivities of the unit itself and δ_w the mechanism's group profile,

    δ_BDP(ε) ≤ Σ_w f(w) · δ_{Δ+w}( ε − m + λ w ).

Why.  ∫ (Σ_y P(y|x) A_y − e^ε Σ_{y'} P(y'|x') A_{y'})₊ ≤ Σ ∫ (f A_y − e^ε g A_{y'})₊ because (Σ a)₊ ≤ Σ (a)₊;
the last integral is f times the profile of a group of weight Δ + w at ε + ln g/f, and the profile grows
with the group and falls with ε.

Where pairings come from.  The certificate of a pure bound "leakage ≤ Δλ + m at α_j = λ Δ_j" is a flow
with g = f e^{λ w − m} step by step, so the tolls telescope and only the law f(w) has to be carried along.
λ is free: the smallest δ over λ counts.  As λ → ∞ it is group privacy, as λ → 0 a plain coupling.

This module holds the laws of the weight and their evaluation; ``paired_chain`` makes them on chains.

*Assumes*: a mechanism with a group-privacy profile.  *Cost*: one profile per weight of the law and per λ
tried.  *Reference*: docs/theory.md, section 11.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.trade_offs import LAW_ENTRIES, LAW_JOINED, RATES_TRIED, UNIT_PARTS, UNITS_TOGETHER
from quiltdp.mechanisms import GroupProfile
from quiltdp.numbers import EPS

__all__ = [
    "NOTHING",
    "RATES",
    "SLACK",
    "Pairing",
    "Vector",
    "WeightLaw",
    "coarsened",
    "joined",
    "mixed",
    "moved",
    "rate_near",
    "smallest_over_rates",
    "units_of",
]

Vector = NDArray[np.float64]

SLACK = 2e-13  # what every step adds to its toll: more than the roundings of its masses and rows
NEGLIGIBLE = 1e-26  # mass that is not worth an entry: it counts as δ = 1


@dataclass(frozen=True, eq=False)
class WeightLaw:
    """f(w): ``masses[k]`` for a weight of k·step units, and ``tail`` for all weights beyond.

    A coarse law (step > 1) rounds weights up; ``excess`` says by how many units at most, so that λ w is
    counted for what the weight is at least.
    """

    masses: Vector
    tail: float = 0.0
    step: int = 1
    excess: int = 0


NOTHING = WeightLaw(np.ones(1))
"""The weight 0 for sure."""


@dataclass(frozen=True, eq=False)
class Pairing:
    """A pairing of two hypotheses: its toll, the law of its weight, and the weight of the unit itself."""

    toll: float
    law: WeightLaw
    own: float

    def delta(self, profile: GroupProfile, epsilon: float, rate: float, unit: float) -> float:
        """Return Σ f(w) δ_{Δ+w}(ε − m + λ w), rounded up; ``rate`` is λ per unit of weight."""
        masses = self.law.masses
        k = np.arange(len(masses), dtype=np.float64) * self.law.step
        keep = masses > 0.0
        k, masses = k[keep], masses[keep]
        gain = rate * np.maximum(k - self.law.excess, 0.0)
        at = epsilon - self.toll + gain
        at -= 16.0 * EPS * (abs(epsilon) + self.toll + gain)
        weight = (self.own + k * unit) * (1.0 + 8.0 * EPS)
        total = float(masses @ profile.deltas(at, weight))
        return min(1.0, total * (1.0 + (len(masses) + 64.0) * EPS) + self.law.tail)


def joined(first: WeightLaw, second: WeightLaw) -> WeightLaw:
    """Return the law of the sum of two independent weights."""
    step = math.lcm(first.step, second.step)
    longest = max(len(first.masses) * first.step, len(second.masses) * second.step)
    while longest > LAW_JOINED * step:
        step *= 2
    first, second = coarsened(first, step), coarsened(second, step)
    a, b = first.masses, second.masses
    if len(a) == 1:
        masses = b * a[0]
    elif len(b) == 1:
        masses = a * b[0]
    else:
        masses = np.convolve(a, b)
    total = (float(a.sum()) + first.tail) * second.tail + float(b.sum()) * first.tail
    found = _trimmed(masses * (1.0 + (min(len(a), len(b)) + 2.0) * EPS), total)
    return WeightLaw(found.masses, found.tail, step, first.excess + second.excess)


def mixed(parts: Sequence[tuple[float, WeightLaw]], tail: float = 0.0) -> WeightLaw:
    """Return Σ mass · law over the parts, each counted in its own steps, and ``tail`` besides."""
    step = math.lcm(*(law.step for _, law in parts))
    parts = [(mass, coarsened(law, step)) for mass, law in parts]
    masses = np.zeros(max((len(law.masses) for _, law in parts), default=1))
    for mass, law in parts:
        masses[: len(law.masses)] += mass * law.masses
        tail += mass * law.tail
    growth = 1.0 + (len(parts) + 8.0) * EPS
    excess = max((law.excess for _, law in parts), default=0)
    return WeightLaw(masses * growth, tail * growth, step, excess)


def coarsened(law: WeightLaw, step: int) -> WeightLaw:
    """Return the law with weights rounded up to multiples of ``step``, itself a multiple of the law's own."""
    if step % law.step:
        raise ValueError(f"steps of {law.step} units do not make steps of {step}")
    if step == law.step:
        return law
    many = step // law.step  # old steps in a new one
    k = np.arange(len(law.masses))
    masses = np.asarray(np.bincount(-(-k // many), law.masses), dtype=np.float64) * (1.0 + (many + 2.0) * EPS)
    return WeightLaw(masses, law.tail, many * law.step, law.excess + (many - 1) * law.step)


def moved(law: WeightLaw, units: int) -> WeightLaw:
    """Return the law of the weight plus ``units``."""
    if units == 0:
        return law
    if law.step > 1:
        whole = -(-units // law.step)
        masses = np.concatenate([np.zeros(whole), law.masses])
        return WeightLaw(masses, law.tail, law.step, law.excess + whole * law.step - units)
    return _trimmed(np.concatenate([np.zeros(units), law.masses]), law.tail)


def _trimmed(masses: Vector, tail: float) -> WeightLaw:
    """Cut the far end of a law where it no longer matters, and count it as tail."""
    beyond = np.cumsum(masses[::-1])[::-1]
    keep = int(np.searchsorted(-beyond, -NEGLIGIBLE))  # beyond falls; keep while it is above
    keep = max(1, min(keep, LAW_ENTRIES))
    if keep < len(masses):
        tail += float(beyond[keep]) * (1.0 + len(masses) * EPS)
    return WeightLaw(masses[:keep], tail)


def units_of(weights: Vector) -> tuple[float, NDArray[np.int64]]:
    """Return a unit of weight and, for every record, its sensitivity in units, rounded up.

    Exact where all sensitivities are small multiples of one number; otherwise each is raised to the
    next fraction (a 64th, on long paths a 4th) of the largest, which a larger group pays for.
    """
    top = float(weights.max(initial=0.0))
    if top == 0.0:
        return 1.0, np.zeros(len(weights), dtype=np.int64)
    distinct = np.unique(weights[weights > 0.0])
    for parts in (1, 2, 3, 4, 5, 6, 8, 10, 12, 16):
        unit = top / parts
        counts = np.round(distinct / unit)
        if np.all(np.abs(counts * unit - distinct) <= 4.0 * EPS * distinct):
            exact = bool(np.all(counts * unit == distinct))
            return unit * (1.0 if exact else 1.0 + 16.0 * EPS), np.round(weights / unit).astype(np.int64)
    unit = top / max(4, min(UNIT_PARTS, UNITS_TOGETHER // len(weights)))
    return unit * (1.0 + 16.0 * EPS), np.ceil(weights / unit * (1.0 - 4.0 * EPS)).astype(np.int64)


class Rates:
    """A fixed grid of rates λ per unit of weight, e^{k/20}: the same for every noise, ε and unit.

    Whatever is computed for one rate can therefore be kept.
    """

    spacing = 0.05

    def __getitem__(self, k: int) -> float:
        return math.exp(self.spacing * k)


RATES = Rates()
_HIGHEST, _LOWEST = 70, -600  # a record that costs e^3.5 stays different next to never
_FIRST_STEP = 8


def rate_near(toll: Callable[[int], float], share: float) -> int:
    """Return the index, a multiple of 8, of about the highest rate whose toll is below ``share``."""
    low, high = _LOWEST // _FIRST_STEP, _HIGHEST // _FIRST_STEP
    while high - low > 1:
        middle = (low + high) // 2
        if toll(middle * _FIRST_STEP) < share:
            low = middle
        else:
            high = middle
    return low * _FIRST_STEP


def smallest_over_rates(delta_at: Callable[[int], float], start: int) -> tuple[int, float]:
    """Return (index, value) of the smallest δ found over the rates, climbing from ``start``.

    Each rate gives a sound δ, so a search that misses the best loses tightness only.
    """
    found: dict[int, float] = {}

    def at(k: int) -> float:
        if k not in found:
            found[k] = delta_at(k)
        return found[k]

    step, best = _FIRST_STEP, start
    if at(best) >= 1.0:  # nothing to climb: look further away
        best = min((start - 8 * step, start - 4 * step, start - 2 * step, start, start + 2 * step), key=at)
    while step >= 1 and len(found) < RATES_TRIED:
        better = min((best - step, best + step), key=at)
        if at(better) < at(best) * (1.0 - 1e-12):
            best = better
        else:
            step //= 2
    return best, at(best)
