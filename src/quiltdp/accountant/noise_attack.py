"""The attack on noisy sums: what an explicit query with Gaussian noise gives away, under (ε, δ).

Claim.  Let the query be Σ_j c_j(x_j) with c_j between 0 and Δ_j, the noise N(0, σ²), and let p, q be the
laws of the sum under two values of a record, given what the adversary knows.  For every set T of outputs

    δ_BDP(ε) ≥ ∫_T ( Σ_s p(s) φ_σ(t − s) − e^ε Σ_s q(s) φ_σ(t − s) ) dt,

so no σ is enough for a δ below it.  T is a union of intervals between places where the two densities
cross; whichever places are used, the inequality holds.  For discrete Gaussian noise on a whole number the
integral is a sum over outputs, and T the outputs whose terms are positive.

How.  Terms and knowledge are those of the product-form attack (``attack``) at the α that Laplace noise of
the same leakage would have: c_j = Δ_j where ln h_j > 0, all terms or those whose means differ most.  The
law of a sum of whole units is the Fourier transform of E[ Π_j ω^{c_j(x_j)} ], one pass up the junction tree
for all roots of unity ω.  Attained is the largest ε at which the attained δ is above the one allowed.

Assumes.  What ``attack`` assumes.  Cost.  As many propagations as the sum has values, in one batch.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import Adversary
from quiltdp.accountant.attack import Attack, attack, attackable_part
from quiltdp.accountant.trade_offs import SUM_GRID, SUM_OUTPUTS, SUM_PARTS, SUM_VALUES
from quiltdp.accountant.units import alphas
from quiltdp.errors import InvalidArgument, ModelTooWide, option
from quiltdp.inference.sums import WeightedSums
from quiltdp.model import Model
from quiltdp.numbers import EPS, down

Vector = NDArray[np.float64]
Ints = NDArray[np.int64]

_HALVINGS = 40
_STEPS, _GLANCE = 121, 61  # of a long chain, the steps that a sum reads; the same in passing
_LEAST = (0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.0)  # how far apart the means of a term are, in its largest value


@dataclass(frozen=True, eq=False)
class NoiseAttack:
    """What an explicit query with Gaussian noise and an adversary attain.

    Attributes
    ----------
    leakage
        Attained, rounded down: at no smaller ε is the release (ε, δ)-private about the target.
    delta, scale
        The δ allowed and the standard deviation of the noise.
    target, values
        The record, or the set, and the two values of it that are told apart.
    knows
        What the adversary knows: record → value.
    query
        The terms of the sum: record → state → number, between 0 and the record's sensitivity.
    """

    leakage: float
    delta: float
    scale: float
    target: str
    values: tuple[str, str]
    knows: Mapping[str, str]
    query: Mapping[str, Mapping[str, float]]

    def __post_init__(self) -> None:
        """Freeze the mappings."""
        object.__setattr__(self, "knows", MappingProxyType(dict(self.knows)))
        object.__setattr__(self, "query", MappingProxyType(dict(self.query)))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        query = {n: dict(t) for n, t in self.query.items()}
        return {**vars(self), "values": list(self.values), "knows": dict(self.knows), "query": query}


def attack_gaussian(
    model: Model,
    scale: float,
    delta: float,
    dp_epsilon: float,
    adversary: str | Adversary = "informed",
    *,
    sensitivity: float | Mapping[str, float] = 1.0,
    whole: bool = False,
    max_entries: int = 2**20,
    in_passing: bool = False,
    **options: Any,
) -> NoiseAttack:
    """Return a noisy sum that tells two values of a record apart, and the ε it attains at a given δ.

    Parameters
    ----------
    scale, delta
        Standard deviation of the noise (σ of discrete noise), and the δ allowed.
    whole
        Whether the noise is discrete; sensitivities are whole numbers then.
    dp_epsilon
        α of the heaviest record in the product-form attack that suggests the terms: about ε times the
        deviation that one record alone needs for ε, over ``scale``.
    max_entries, in_passing, **options
        Those of :func:`quiltdp.attack`: ``protect``, ``window``, ``work``.

    Raises
    ------
    ModelTooWide
        If the model has no junction tree of affordable width.

    Examples
    --------
    >>> import quiltdp as qd
    >>> chain = qd.markov_chain([[0.7, 0.3], [0.3, 0.7]], length=40)
    >>> cal = qd.calibrate(chain, 1.0, qd.Gaussian(sensitivity=1.0, delta=1e-6))
    >>> found = attack_gaussian(chain, cal.sigma, 1e-6, dp_epsilon=4.2247 / cal.sigma)
    >>> 0.9 < found.leakage <= 1.0
    True
    """
    weights = alphas(model, sensitivity, "sensitivity")
    top = float(weights.max(initial=0.0))
    if not top > 0.0:
        raise InvalidArgument("no record moves the query")
    records = {n: float(weights[model.index[n]]) * (dp_epsilon / top) for n in model.records}
    steps = _GLANCE if in_passing else _STEPS
    options |= {"max_entries": max_entries, "in_passing": in_passing, "steps": steps}
    found = attack(model, records, adversary, **options)
    part = attackable_part(model, steps)
    equal = all(w in (0.0, top) for w in weights.tolist())
    unit = top if equal else (1.0 if whole else top / SUM_PARTS)
    terms: Mapping[str, Ints] = {
        n: np.where(
            np.array([table[s] for s in part.states[n]]) > 0.0,
            math.floor(weights[model.index[n]] / unit * (1.0 + 4.0 * EPS)),
            0,
        )
        for n, table in found.mechanism.items()
    }
    sums = _NoisySums(WeightedSums(part, max_entries=max_entries), found, terms)
    best, attained, values = terms, 0.0, found.values

    def attained_delta(p: Vector, q: Vector, epsilon: float) -> float:
        if whole:
            return discrete_mixture_delta(p, q, int(unit), scale, epsilon)
        return gaussian_mixture_delta(p, q, unit * (1.0 - 4.0 * EPS) / scale, epsilon)

    for chosen in sums.term_choices():
        p, q = sums.laws(chosen)
        for first, second, order in ((p, q, found.values), (q, p, found.values[::-1])):
            reached = _attained_epsilon(first, second, attained_delta, delta, len(part.nodes))
            if reached > attained:
                best, attained, values = chosen, reached, (order[0], order[1])
    query = {n: dict(zip(part.states[n], (unit * s).tolist(), strict=True)) for n, s in best.items()}
    return NoiseAttack(attained, delta, scale, found.target, values, found.knows, query)


class _NoisySums:
    """The sums that a product-form attack suggests: its terms, all of them or those that tell most."""

    def __init__(self, sums: WeightedSums, found: Attack, terms: Mapping[str, Ints]) -> None:
        states = sums.model.states
        self._sums, self._terms = sums, terms
        self._known = {n: states[n].index(v) for n, v in found.knows.items()}
        self._told = [{n: states[n].index(v) for n, v in side.items()} for side in found.told]
        self._unit = frozenset(self._told[0])

    def term_choices(self) -> list[Mapping[str, Ints]]:
        """Return the terms whose means differ most between the hypotheses, more and more of them."""
        laws = self._sums.laws(self._sums.weights([self._with_known(x) for x in self._told]))[1]
        moved = {n: float((laws[n][0] - laws[n][1]) @ s) for n, s in self._terms.items()}
        apart = {n: abs(moved[n]) / max(1, int(s.max())) for n, s in self._terms.items()}
        found: list[Mapping[str, Ints]] = []
        for least in _LEAST:
            chosen = {n: s for n, s in self._terms.items() if apart[n] >= least or n in self._unit}
            if not found or len(chosen) > len(found[-1]):
                found.append(chosen)
        return found

    def laws(self, terms: Mapping[str, Ints]) -> tuple[Vector, Vector]:
        """Return the laws of the sum, in units, under both hypotheses."""
        return self._sum_law(terms, self._told[0]), self._sum_law(terms, self._told[1])

    def _with_known(self, values: Mapping[str, int]) -> dict[str, int]:
        return {**self._known, **values}

    def _sum_law(self, terms: Mapping[str, Ints], values: Mapping[str, int]) -> Vector:
        count = sum(int(s.max()) for s in terms.values()) + 1
        if count > SUM_VALUES:
            raise ModelTooWide(
                f"the sum has {count:,} values, the limit is {SUM_VALUES:,}",
                f"leave {option('bracket')} out",
            )
        turns = -2j * math.pi * np.arange(count) / count
        at = np.arange(count)[:, None]
        free = {n: turns[at * s % count] for n, s in terms.items() if n not in self._unit and s.any()}
        own = sum(int(terms[n][x]) for n, x in values.items() if n in terms)
        if not free:
            return np.asarray(np.eye(count)[own])
        fixed = self._sums.weights([self._with_known(values)])
        logs = self._sums.log_means({**fixed, **free})
        law = np.maximum(np.fft.ifft(np.exp(logs - logs[0].real)).real, 0.0)
        return np.asarray(np.roll(law, own))


def _attained_epsilon(
    p: Vector, q: Vector, attained_delta: Callable[[Vector, Vector, float], float], delta: float, nodes: int
) -> float:
    """Return, rounded down, the largest ε found at which the attained δ is above the one allowed."""
    error = len(p) * (8.0 * nodes + 128.0) * EPS  # of both laws, summed: generous
    low, high = 0.0, 1.0

    def exceeds_delta(epsilon: float) -> bool:
        return attained_delta(p, q, epsilon) - error * (1.0 + math.exp(epsilon)) > delta

    if not exceeds_delta(0.0):
        return 0.0
    while high < 100.0 and exceeds_delta(high):
        low, high = high, 2.0 * high
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if exceeds_delta(middle) else (low, middle)
    return down(low)


def gaussian_mixture_delta(p: Vector, q: Vector, spread: float, epsilon: float) -> float:
    """Return at most ∫ (Σ p(s) φ(t − s·spread) − e^ε Σ q(s) φ(t − s·spread))₊ dt.

    Examples
    --------
    >>> from quiltdp.mechanisms import gaussian_delta
    >>> import numpy as np
    >>> found = gaussian_mixture_delta(np.array([0.0, 1.0]), np.array([1.0, 0.0]), 0.7, 0.5)
    >>> bool(abs(found / gaussian_delta(0.5, 0.7) - 1) < 1e-9)
    True
    """
    from scipy.special import ndtr

    used = np.flatnonzero((p > 0.0) | (q > 0.0))
    means = used * spread
    signed = p[used] - math.exp(epsilon) * q[used]

    def density(t: Vector) -> Vector:
        return np.asarray(np.exp(-0.5 * (t[:, None] - means) ** 2) @ signed)

    grid = np.linspace(means[0] - 9.0, means[-1] + 9.0, SUM_GRID)
    sign = density(grid) > 0.0
    turns = np.flatnonzero(sign[1:] != sign[:-1])
    low, high, first = grid[turns], grid[turns + 1], sign[turns]
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        same = (density(middle) > 0.0) == first
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    edges = [-math.inf, *low.tolist(), math.inf]
    total, positive = 0.0, bool(sign[0])
    for a, b in itertools.pairwise(edges):
        if positive:
            # from the nearer tail, so that small masses keep their digits
            inside = np.where(
                means <= a, ndtr(means - a) - ndtr(means - b), ndtr(b - means) - ndtr(a - means)
            )
            total += float(inside @ signed)
        positive = not positive
    return max(0.0, total - 16.0 * EPS * len(means) * float(np.abs(signed).sum()))


def discrete_mixture_delta(p: Vector, q: Vector, unit: int, scale: float, epsilon: float) -> float:
    """Return at most Σ_t (Σ_s p(s) ν(t − s·unit) − e^ε Σ_s q(s) ν(t − s·unit))₊, ν ∝ exp(−x²/2·scale²).

    Examples
    --------
    >>> from quiltdp.mechanisms.discrete_gaussian import DiscreteGaussianProfile
    >>> import numpy as np
    >>> found = discrete_mixture_delta(np.array([0.0, 1.0]), np.array([1.0, 0.0]), 1, 1.4, 0.5)
    >>> bool(abs(found / DiscreteGaussianProfile(1.4).delta(0.5, 1.0) - 1) < 1e-9)
    True
    """
    used = np.flatnonzero((p > 0.0) | (q > 0.0))
    means = used * unit
    reach = math.ceil(9.0 * scale) + 1
    half = 0.5 / scale**2
    outputs = np.arange(means[0] - reach, means[-1] + reach + 1)
    width = math.ceil(12.0 * scale) + 2
    bell = np.exp(-half * np.arange(-width, width + 1, dtype=np.float64) ** 2)
    tail = math.exp(-half * width * width) / -math.expm1(-2.0 * half * width)
    whole = (float(bell.sum()) + 2.0 * tail) * (1.0 + (2.0 * width + 16.0) * EPS)
    total = 0.0
    for start in range(0, len(outputs), SUM_OUTPUTS):
        t = outputs[start : start + SUM_OUTPUTS]
        noise = np.exp(-half * (t[:, None] - means).astype(np.float64) ** 2)
        above, below = noise @ p[used], math.exp(epsilon) * (noise @ q[used])
        # an exponent of at most 744 is off by as many units, a sum by its length
        error = (2.0 * len(means) + 3_000.0) * EPS * (above + below)
        total += float(np.maximum(above - below - error, 0.0).sum())
    return total / whole * (1.0 - (len(outputs) + 16.0) * EPS)
