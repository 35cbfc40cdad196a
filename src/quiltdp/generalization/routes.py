"""The routes from a DP cost to a guarantee about the population: one class per theorem.

A route answers two questions at a noise scale σ: the largest threshold T with which every one of m
answers is within τ of the population value except with probability β, and (by search) the best τ.
Everything that depends on the model is asked of an *accountant* once per σ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from quiltdp.errors import InvalidArgument
from quiltdp.generalization._checks import round_up
from quiltdp.generalization.concentration import Concentration
from quiltdp.generalization.thresholdout_accuracy import largest_threshold
from quiltdp.generalization.transfer import any_law_transfer, prefix_shift

__all__ = [
    "AnyLawRoute",
    "GibbsRoute",
    "IidRoute",
    "LeakageAccountant",
    "MaxInformationRoute",
    "Route",
    "Task",
    "best_scale",
]

SAFETY = 1 - 1e-9
"""The planners aim at this share of the failure probability, so that rounding never exceeds it."""


class LeakageAccountant(Protocol):
    """What the planner needs to know about a model: its leakage per record at a DP cost."""

    def prior(self, dp_epsilon: float) -> NDArray[np.float64]:
        """Return the leakage to the prior adversary, one number per record (or one for all)."""
        ...

    def informed(self, dp_epsilon: float) -> NDArray[np.float64]:
        """Return the leakage to the informed adversary, one number per record (or one for all)."""
        ...

    def published(self, dp_epsilon: float) -> float:
        """Return the published Bayesian-DP bound."""
        ...


@dataclass(frozen=True)
class Task:
    """What is asked of the holdout: n records, m queries, budget B, failure probability β."""

    records: int
    queries: float
    budget: int
    failure: float

    def dp_epsilon(self, sigma: float) -> float:
        """Return α = 9B/(4σn): Thresholdout's DP cost for queries of sensitivity 1/n, rounded up."""
        return round_up(9 * self.budget / (4 * sigma * self.records))

    @property
    def spends(self) -> float:
        """B' = min(B, m)."""
        return min(self.queries, self.budget)


class Route(Protocol):
    """One theorem."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    @property
    def theorem(self) -> str:
        """Where it is stated, for what."""
        ...

    def threshold(self, task: Task, sigma: float, accuracy: float) -> float:
        """Return the largest T that keeps the promise at σ and τ; −∞ when there is none."""
        ...


def _answer_noise(task: Task, sigma: float, a: float) -> float:
    return task.spends * math.exp(-a / (4 * sigma)) if a > 0 else math.inf


@dataclass(frozen=True)
class AnyLawRoute:
    """Transfer for any joint law: a + (1/n) Σ tanh(ε_i/4) + c, failure (1/c) ∫_a^∞ b.  Additive queries."""

    accountant: LeakageAccountant
    name: str = "any joint law"
    theorem: str = "transfer for any joint law, additive queries"

    def threshold(self, task: Task, sigma: float, accuracy: float) -> float:
        """Return the largest T over the split between a and c."""
        alpha = task.dp_epsilon(sigma)
        if math.tanh(alpha / 4) >= accuracy:  # the leakage is at least α: no need to ask
            return -math.inf
        bias = any_law_transfer(self.accountant.prior(alpha))
        best = -math.inf
        for factor in (1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0):
            c = factor * sigma
            a = accuracy - bias - c
            noise = (SAFETY * task.failure * c - 4 * sigma * _answer_noise(task, sigma, a)) / (3 * sigma)
            best = max(best, _room(task, sigma, a, noise))
        return best


@dataclass(frozen=True)
class MaxInformationRoute:
    """Max-information with concentration: any query of sensitivity 1/n, additive or not."""

    accountant: LeakageAccountant
    concentration: Concentration
    name: str = "max-information and concentration"
    theorem: str = (
        "max-information of the leakage with concentration under the model, any 1/n-sensitive queries"
    )

    def deviation(self, task: Task, sigma: float, failure: float) -> float:
        """Return t with P[some query deviates by t from the population] ≤ ``failure``; rounded up."""
        shift = self._shift(task, sigma)
        inside = (math.sqrt(math.log(1 / failure)) + shift) ** 2 + math.log(2 * task.queries)
        return round_up(math.sqrt(inside / (2 * self.concentration.effective_sample_size)))

    def _shift(self, task: Task, sigma: float) -> float:
        leaks = self.accountant.informed(task.dp_epsilon(sigma))
        return prefix_shift(leaks if leaks.size > 1 else float(leaks.max()), task.records)

    def threshold(self, task: Task, sigma: float, accuracy: float) -> float:
        """Return the largest T over the split of the failure probability."""
        least = task.dp_epsilon(sigma) * math.sqrt(task.records / 8)  # the leakage is at least α
        if least >= accuracy * math.sqrt(2 * self.concentration.effective_sample_size):
            return -math.inf
        best = -math.inf
        for share in (0.05, 0.25, 0.5, 0.75, 0.95):
            a = accuracy - self.deviation(task, sigma, share * SAFETY * task.failure)
            noise = (1 - share) * SAFETY * task.failure - _answer_noise(task, sigma, a)
            best = max(best, _room(task, sigma, a, noise))
        return best

    def untouched(self, task: Task, sigma: float, threshold: float) -> float:
        """Return w: a query within w of the population on the training data spends no budget.

        |q(X) − q(train)| ≤ w + deviation; the noises of comparison and threshold must not bridge the
        rest.  Half of the failure probability each.
        """
        half = SAFETY * task.failure / 2
        room = largest_threshold(
            threshold, sigma=sigma, queries=task.queries, budget=task.budget, noise_failure=half
        )
        return room - self.deviation(task, sigma, half)


@dataclass(frozen=True)
class GibbsRoute:
    """Gibbs dependence: a + 10α + 2ψ, failure b + δ/α; a pure mechanism chooses δ freely."""

    dependence: float
    name: str = "Gibbs dependence"
    theorem: str = "Kontorovich, Sadigurschi and Stemmer (2022), constants as published"

    def threshold(self, task: Task, sigma: float, accuracy: float) -> float:
        """Return T with half of the failure probability for δ/α."""
        alpha = task.dp_epsilon(sigma)
        half = SAFETY * task.failure / 2
        if alpha >= 1 / 3 or task.records < math.log(2 * task.queries / half) / alpha**2:
            return -math.inf
        a = accuracy - 10 * alpha - 2 * self.dependence
        return _room(task, sigma, a, half - _answer_noise(task, sigma, a))


@dataclass(frozen=True)
class IidRoute:
    """Dwork et al. for independent records: a + 6α, failure b + m e^{−α²n/8}, α ∈ [√(12/n), 1/8]."""

    name: str = "independent records"
    theorem: str = "transfer theorem for i.i.d. data (Dwork et al., Bassily et al.)"

    def threshold(self, task: Task, sigma: float, accuracy: float) -> float:
        """Return T after the union over the queries."""
        alpha = task.dp_epsilon(sigma)
        if not math.sqrt(12 / task.records) <= alpha <= 1 / 8:
            return -math.inf
        left = SAFETY * task.failure - task.queries * math.exp(-(alpha**2) * task.records / 8)
        a = accuracy - 6 * alpha
        return _room(task, sigma, a, left - _answer_noise(task, sigma, a))


def _room(task: Task, sigma: float, a: float, noise_failure: float) -> float:
    if a <= 0 or noise_failure <= 0:
        return -math.inf
    return largest_threshold(
        a, sigma=sigma, queries=task.queries, budget=task.budget, noise_failure=noise_failure
    )


def best_scale(
    value: Callable[[float], float], highest: float, *, decades: float = 5.0, rounds: int = 6
) -> tuple[float, float]:
    """Return σ with the largest ``value(σ)`` on a logarithmic grid below ``highest``, refined.

    Any σ is valid, so the search needs no certificate.
    """
    if not (highest > 0 and math.isfinite(highest)):
        raise InvalidArgument(f"no noise scale fits: the largest sensible one came out as {highest!r}")
    grid = highest * np.logspace(-decades, 0, 13)
    step = decades / 12
    found = [(value(float(s)), float(s)) for s in grid]
    best = max(found)
    for _ in range(rounds):
        if not math.isfinite(best[0]):
            break
        step /= 2
        for side in (-step, step):
            candidate = best[1] * 10**side
            if candidate <= highest:
                best = max(best, (value(candidate), candidate))
    return best[1], best[0]
