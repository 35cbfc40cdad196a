"""Lemma 4 of Zhao (2017): what DP cost keeps a reversible Markov chain ε-Bayesian private, as printed.

With g the spectral gap, ρ the smallest stationary probability and any constant c in (0, 1/6), on a
chain of n ≥ 2d steps, ε-Bayesian DP follows from h-DP, where

    h = min{ (1 − 6c) ε / (2d − 1),  (1/3 − 2c) ε / (d + s) },
    d = ⌈(1/g) ln( (e^{cε} + 1) / (ρ (e^{cε} − 1)) )⌉,
    s = ⌈(1/g) ln( (e^{ε/6} + 1) / (ρ (e^{ε/6} − 1)) )⌉.

d is the half-width of the quilt {i − d, i + d} in the middle; s enters through d + s, at the ends of the
chain.  The lemma itself does not define s (its t and ξ are never used); the definition stands after (33).
Because c < 1/6 makes s ≤ d, the second term is always the smaller one.

*Assumes*: a homogeneous reversible chain in its stationary law, as printed.  *Cost*: one eigenvalue problem
and a search over c.  *Reference*: J. Zhao, WPES 2017, Lemma 4; docs/papers.md.
"""

from __future__ import annotations

import math

import numpy as np

from quiltdp.accountant.adversaries import INFORMED
from quiltdp.accountant.bounds.contract import ALL, Bounds, Need, Problem, Vector, register
from quiltdp.chain import ChainModel
from quiltdp.errors import InvalidArgument, option
from quiltdp.inference.chains import spectral_gap
from quiltdp.inference.workspace import Workspace
from quiltdp.numbers import up
from quiltdp.work import WorkBudget

__all__ = ["Lemma4Bound", "lemma4_distances", "lemma4_dp_epsilon", "lemma4_leakage"]

_STEPS = 10**7  # no chain the library takes is wider than so many steps of a quilt


def lemma4_distances(epsilon: float, *, gap: float, rho: float, c: float) -> tuple[int, int]:
    """Return (d, s) of Lemma 4.

    Examples
    --------
    >>> lemma4_distances(1.0, gap=0.2, rho=0.5, c=0.1)
    (19, 16)

    References
    ----------
    Zhao (2017), Lemma 4 (line 255) and (33) (line 420).
    """
    if not (epsilon > 0.0 and 0.0 < gap <= 1.0 and 0.0 < rho <= 1.0):
        raise InvalidArgument("Lemma 4 needs ε > 0, a spectral gap and a stationary probability in (0, 1]")
    if not 0.0 < c < 1 / 6:
        raise InvalidArgument(f"{option('c')} must lie strictly between 0 and 1/6, not {c!r}")
    return _distance(c * epsilon, gap, rho), _distance(epsilon / 6, gap, rho)


def _distance(share: float, gap: float, rho: float) -> int:
    """Return ⌈(1/g) ln((e^x + 1)/(ρ(e^x − 1)))⌉ for a share x of ε; tanh keeps small x exact."""
    return math.ceil(-(math.log(rho) + math.log(math.tanh(share / 2))) / gap)


def lemma4_dp_epsilon(
    epsilon: float, *, gap: float, rho: float, length: int, c: float | None = None
) -> tuple[float, float]:
    """Return (h, c): the DP cost that Lemma 4 allows for ε, and the constant it takes.

    With ``c=None`` the best constant is taken: for each whole d the smallest c that has it.  0 where
    the lemma does not apply (n < 2d for every c).

    Examples
    --------
    >>> h, c = lemma4_dp_epsilon(1.0, gap=0.2, rho=0.5, length=10_000, c=0.1)
    >>> round(h, 6), round(lemma4_dp_epsilon(1.0, gap=0.2, rho=0.5, length=10_000)[0], 6)
    (0.00381, 0.006912)

    References
    ----------
    Zhao (2017), Lemma 4, (11) (line 257).
    """
    if c is not None:
        d, s = lemma4_distances(epsilon, gap=gap, rho=rho, c=c)
        return (_h(epsilon, c, d, s) if length >= 2 * d else 0.0), c
    _, s = lemma4_distances(epsilon, gap=gap, rho=rho, c=0.1)
    best, at = 0.0, 0.1
    for d in range(s, min(length // 2, s + _STEPS) + 1):
        grown = rho * math.exp(min(gap * d, 700.0))
        if grown <= 1.0:
            continue
        smallest = 2 * math.atanh(1 / grown) / epsilon * (1 + 1e-12)  # below it the half-width is d + 1
        if smallest < 1 / 6:
            found = _h(epsilon, smallest, d, s)
            if found > best:
                best, at = found, smallest
        if epsilon / (3 * (d + s)) <= best:  # no larger d can do better
            break
    return best, at


def _h(epsilon: float, c: float, d: int, s: int) -> float:
    return min((1 - 6 * c) * epsilon / (2 * d - 1), (1 / 3 - 2 * c) * epsilon / (d + s))


def lemma4_leakage(dp_epsilon: float, *, gap: float, rho: float, length: int) -> float:
    """Return the smallest ε whose h(ε) is at least ``dp_epsilon``, rounded up; ∞ where there is none.

    h grows with ε (d and s fall), so bisection finds it.

    Examples
    --------
    >>> round(lemma4_leakage(0.0069116, gap=0.2, rho=0.5, length=10_000), 3)
    1.0
    """
    if dp_epsilon <= 0.0:
        return 0.0

    def enough(epsilon: float) -> bool:
        return lemma4_dp_epsilon(epsilon, gap=gap, rho=rho, length=length)[0] >= dp_epsilon

    low, high = 0.0, 1e-6
    while not enough(high):
        low, high = high, 2 * high
        if high > 1e9:
            return math.inf
    for _ in range(100):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high * (1 + 1e-12)


@register(
    "lemma4",
    against=INFORMED,
    kind="published",
    says="Lemma 4: spectral gap of a reversible chain",
)
class Lemma4Bound:
    """Lemma 4: the smallest ε whose h(ε) is at least α, at the best constant c, as printed.

    Raises
    ------
    InvalidArgument
        Unless the model is one homogeneous, reversible chain in its stationary law.
    """

    def __init__(self, problem: Problem) -> None:
        model = problem.model
        self._count = len(problem.single_records("lemma4"))
        if not isinstance(model, ChainModel) or len(model.segments) != 1:
            raise InvalidArgument("lemma4 is stated for one Markov chain")
        self._length = len(model.nodes)
        self._gap, self._rho = spectral_gap(model.segments[0])

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Nothing is left to be done."""

    def evaluate(self, alpha: Vector, need: Need = ALL) -> Bounds:
        """Return ε for the largest α (the lemma knows only equal ones)."""
        value = math.inf
        if self._gap > 0.0:
            value = lemma4_leakage(float(alpha.max()), gap=self._gap, rho=self._rho, length=self._length)
        return Bounds(np.full(self._count, up(value)), "lemma4", "published")
