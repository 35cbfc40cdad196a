"""Searching for the best noise scale: on a sketch of the leakage, then exactly at what was found.

Any σ is valid, so a search needs no certificate; only the numbers reported for the σ it found are
computed from the accountant itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quiltdp.generalization.routes import (
    Deviating,
    LeakageAccountant,
    Route,
    Task,
    best_scale,
    untouched,
)
from quiltdp.generalization.transfer import any_law_transfer

__all__ = [
    "GUESSING",
    "Candidate",
    "LeakageSketch",
    "Need",
    "NoCorrelation",
    "accuracy_at",
    "best_accuracy",
    "highest_scale",
    "largest_threshold_of",
    "most_queries",
    "noisiest",
]

MOST_QUERIES = 10**15
GUESSING = 0.5
"""Answering ½ to every query is never further off than this: a promise must be better."""
ENOUGH = 1.01
"""A route that needs no noise takes the most noise that costs at most this factor."""


class NoCorrelation:
    """The least any model leaks, α about each record: what it refuses, every model refuses."""

    def prior(self, dp_epsilon: float) -> NDArray[np.float64]:
        """Return α."""
        return np.array([dp_epsilon])

    def informed(self, dp_epsilon: float) -> NDArray[np.float64]:
        """Return α."""
        return np.array([dp_epsilon])

    def dp_epsilon(self, epsilon: float) -> float:
        """Return ε."""
        return epsilon


class LeakageSketch:
    """An accountant interpolated between decades of α, for searching only: never for a promise."""

    def __init__(self, accountant: LeakageAccountant, low: int = -7, high: int = 1) -> None:
        self._accountant = accountant
        self._low, self._high = low, high
        self._known: dict[tuple[str, int], float] = {}

    def prior(self, dp_epsilon: float) -> NDArray[np.float64]:
        """Return one number that stands for all records in the mean of tanh(ε/4)."""
        return self._between("prior", dp_epsilon)

    def informed(self, dp_epsilon: float) -> NDArray[np.float64]:
        """Return one number that stands for all records in the root mean square."""
        return self._between("informed", dp_epsilon)

    def dp_epsilon(self, epsilon: float) -> float:
        """Return what the accountant says: this is asked once."""
        return self._accountant.dp_epsilon(epsilon)

    def _between(self, adversary: str, dp_epsilon: float) -> NDArray[np.float64]:
        place = math.log10(dp_epsilon)
        if place > self._high:
            return np.array([math.inf])
        left = min(max(math.floor(place), self._low), self._high - 1)
        first, second = (self._node(adversary, k) for k in (left, left + 1))
        if first <= 0 or math.isinf(second):
            return np.array([second])
        slope = math.log(second / first)
        return np.array([first * math.exp(slope * (place - left))])

    def _node(self, adversary: str, decade: int) -> float:
        key = (adversary, decade)
        if key not in self._known:
            if adversary == "prior":
                bias = any_law_transfer(self._accountant.prior(10.0**decade))
                self._known[key] = 4 * math.atanh(bias) if bias < 1 else math.inf
            else:
                values = self._accountant.informed(10.0**decade)
                self._known[key] = float(np.sqrt(np.mean(values**2)))
        return self._known[key]


@dataclass(frozen=True)
class Candidate:
    """One theorem twice: as it is, and on the sketch."""

    exact: Route
    fast: Route


@dataclass(frozen=True)
class Need:
    """What the threshold must reach, and the least noise.

    A share of the accuracy; room for training values that are off by ``overfit``, by the best of the
    theorems that bound the holdout's own deviation; and the σ that privacy asks for.
    """

    share: float
    overfit: float | None = None
    exact: tuple[Deviating, ...] = ()
    fast: tuple[Deviating, ...] = ()
    least_sigma: float = 0.0

    def met(self, task: Task, sigma: float, threshold: float, accuracy: float, *, sketch: bool) -> bool:
        """Return whether this threshold is enough."""
        if not threshold >= self.share * accuracy * (1 - 1e-9) or sigma < self.least_sigma:
            return False
        if self.overfit is None:
            return True
        width = self.width(task, sigma, threshold, accuracy, sketch=sketch)
        return width >= self.overfit * (1 - 1e-9)

    def width(self, task: Task, sigma: float, threshold: float, accuracy: float, *, sketch: bool) -> float:
        """Return how far a training value may be off without spending budget; −∞ without concentration."""
        known = self.fast if sketch else self.exact
        resolution = task.resolution(accuracy)
        return max((untouched(r, task, sigma, threshold, resolution) for r in known), default=-math.inf)


def highest_scale(task: Task, accuracy: float) -> float:
    """Return a σ beyond which the noise alone exceeds the accuracy."""
    spends, asked = task.spends / task.failure, task.queries / task.failure
    return 2 * accuracy / (math.log(max(2.0, spends)) + 2 * math.log(max(2.0, asked)))


def largest_threshold_of(
    candidate: Candidate, task: Task, accuracy: float, least_sigma: float = 0.0
) -> tuple[float, float]:
    """Return the largest threshold found and its σ."""
    highest = highest_scale(task, accuracy)

    def value(sigma: float) -> float:
        return candidate.fast.threshold(task, sigma, accuracy)

    sigma, best = best_scale(value, highest, lowest=least_sigma)
    if not candidate.exact.private and math.isfinite(best) and best > 0:
        sigma = noisiest(lambda s: value(s) >= best / ENOUGH, sigma, highest)
    return candidate.exact.threshold(task, sigma, accuracy), sigma


def best_accuracy(candidate: Candidate, task: Task, need: Need) -> tuple[float, float]:
    """Return the smallest τ found whose threshold is enough, and its σ; ∞ when none below ½ is."""

    def smallest(sigma: float, *, sketch: bool) -> float:
        route = candidate.fast if sketch else candidate.exact

        def enough(accuracy: float) -> bool:
            threshold = route.threshold(task, sigma, accuracy)
            return need.met(task, sigma, threshold, accuracy, sketch=sketch)

        top = GUESSING * (1 - 1e-9)
        return _bisected(enough, 0.0, top) if enough(top) else math.inf

    highest = highest_scale(task, 1.0)
    sigma, value = best_scale(
        lambda s: -smallest(s, sketch=True), highest, decades=7, lowest=need.least_sigma
    )
    if not candidate.exact.private and math.isfinite(value):
        sigma = noisiest(lambda s: smallest(s, sketch=True) <= -value * ENOUGH, sigma, highest)
    return smallest(sigma, sketch=False), sigma


def accuracy_at(route: Route, task: Task, sigma: float, threshold: float) -> float:
    """Return the smallest τ that a theorem promises at this σ and this T; ∞ when none below ½ is."""

    def enough(accuracy: float) -> bool:
        return route.threshold(task, sigma, accuracy) >= threshold

    top = GUESSING * (1 - 1e-9)
    return _bisected(enough, 0.0, top) if enough(top) else math.inf


def noisiest(enough: Callable[[float], bool], low: float, high: float) -> float:
    """Return the largest σ found, by bisection of its logarithm, that is still enough (``low`` is)."""
    if enough(high):
        return high
    for _ in range(16):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if enough(middle) else (low, middle)
    return low


def most_queries(candidate: Candidate, task: Task, accuracy: float, need: Need) -> tuple[float, float]:
    """Return the most queries found (−∞: not even the budget) and their σ."""

    def most(sigma: float, *, sketch: bool) -> float:
        route = candidate.fast if sketch else candidate.exact

        def too_many(logarithm: float) -> bool:
            asked = Task(task.records, math.exp(logarithm), task.budget, task.failure)
            threshold = route.threshold(asked, sigma, accuracy)
            return not need.met(asked, sigma, threshold, accuracy, sketch=sketch)

        low, high = math.log(task.budget), math.log(MOST_QUERIES)
        if too_many(low):
            return -math.inf
        return high if not too_many(high) else _bisected(too_many, low, high) - 1e-9

    highest = highest_scale(task, accuracy)
    sigma, value = best_scale(lambda s: most(s, sketch=True), highest, lowest=need.least_sigma)
    if not candidate.exact.private and math.isfinite(value):
        sigma = noisiest(lambda s: most(s, sketch=True) >= value / ENOUGH, sigma, highest)
    found = most(sigma, sketch=False)
    if found >= math.log(MOST_QUERIES) * (1 - 1e-9):
        return float(MOST_QUERIES), sigma
    return (math.exp(found) if math.isfinite(found) else found), sigma


def _bisected(true_above: Callable[[float], bool], low: float, high: float) -> float:
    """Return the smallest point found where a monotone condition holds (it holds at ``high``)."""
    for _ in range(34):
        middle = (low + high) / 2
        low, high = (low, middle) if true_above(middle) else (middle, high)
    return high
