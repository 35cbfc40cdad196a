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

from quiltdp.generalization.routes import LeakageAccountant, MaxInformationRoute, Route, Task, best_scale
from quiltdp.generalization.transfer import any_law_transfer

__all__ = [
    "Candidate",
    "LeakageSketch",
    "Need",
    "NoCorrelation",
    "best_accuracy",
    "highest_scale",
    "largest_threshold_of",
    "most_queries",
]

MOST_QUERIES = 10**15


class NoCorrelation:
    """The least any model leaks, α about each record: what it refuses, every model refuses."""

    def prior(self, dp_epsilon: float) -> NDArray[np.float64]:
        """Return α."""
        return np.array([dp_epsilon])

    def informed(self, dp_epsilon: float) -> NDArray[np.float64]:
        """Return α."""
        return np.array([dp_epsilon])

    def published(self, dp_epsilon: float) -> float:
        """Return α."""
        return dp_epsilon


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

    def published(self, dp_epsilon: float) -> float:
        """Return nothing useful: the published bound is not searched."""
        return math.inf

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
    """What the threshold must reach: a share of the accuracy, and room for training values that are off."""

    share: float
    overfit: float | None = None
    exact: MaxInformationRoute | None = None
    fast: MaxInformationRoute | None = None

    def met(self, task: Task, sigma: float, threshold: float, accuracy: float, *, sketch: bool) -> bool:
        """Return whether this threshold is enough."""
        if not threshold >= self.share * accuracy * (1 - 1e-9):
            return False
        if self.overfit is None:
            return True
        route = self.fast if sketch else self.exact
        return route is not None and route.untouched(task, sigma, threshold) >= self.overfit * (1 - 1e-9)


def highest_scale(task: Task, accuracy: float) -> float:
    """Return a σ beyond which the noise alone exceeds the accuracy."""
    spends, asked = task.spends / task.failure, task.queries / task.failure
    return 2 * accuracy / (math.log(max(2.0, spends)) + 2 * math.log(max(2.0, asked)))


def largest_threshold_of(candidate: Candidate, task: Task, accuracy: float) -> tuple[float, float]:
    """Return the largest threshold found and its σ."""
    sigma, _ = best_scale(
        lambda s: candidate.fast.threshold(task, s, accuracy), highest_scale(task, accuracy)
    )
    return candidate.exact.threshold(task, sigma, accuracy), sigma


def best_accuracy(candidate: Candidate, task: Task, need: Need) -> tuple[float, float]:
    """Return the smallest τ found whose threshold is enough, and its σ; ∞ when none below 1 is."""

    def smallest(sigma: float, *, sketch: bool) -> float:
        route = candidate.fast if sketch else candidate.exact

        def enough(accuracy: float) -> bool:
            threshold = route.threshold(task, sigma, accuracy)
            return need.met(task, sigma, threshold, accuracy, sketch=sketch)

        return _bisected(enough, 0.0, 1.0) if enough(1.0) else math.inf

    highest = highest_scale(task, 1.0)
    sigma, _ = best_scale(lambda s: -smallest(s, sketch=True), highest, decades=7)
    return smallest(sigma, sketch=False), sigma


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

    sigma, _ = best_scale(lambda s: most(s, sketch=True), highest_scale(task, accuracy))
    found = most(sigma, sketch=False)
    return (math.exp(found) if math.isfinite(found) else found), sigma


def _bisected(true_above: Callable[[float], bool], low: float, high: float) -> float:
    """Return the smallest point found where a monotone condition holds (it holds at ``high``)."""
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if true_above(middle) else (middle, high)
    return high
