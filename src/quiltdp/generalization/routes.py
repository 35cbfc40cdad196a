"""The routes from Thresholdout's noise to a guarantee about the population: one class per theorem.

A route answers two questions at a noise scale σ: the largest threshold T with which every one of m
answers is within τ of the population value except with probability β, and (by search) the best τ.
Everything that depends on the model is asked of an *accountant* once per σ.

Four of them need the noise to hide records (*private*): their σ is set by the leakage.  The fifth,
description length, needs none: few answers on a coarse grid cannot say much, whoever gives them.

Thresholdout's answers stay close to the holdout's own values: with noise σ, threshold T, m queries and
B' = min(B, m), any s₁, s₂ ≥ 0 and a ≥ T + s₁ + s₂, the chance that some answered query is off its holdout
value by more than a is at most b(a) = ½ B' e^{−s₁/σ} + ½ m e^{−s₂/2σ} + B' e^{−a/4σ}.

The usual ways to reuse a holdout stand beside a plan (:func:`baselines`); they hide nothing.  *Bonferroni*:
all queries are written down before the first answer.  *Splitting*: every answer comes from a fresh part of
the holdout.  *The Ladder*: only the best score so far is told, when it falls by a step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from quiltdp.chain import ChainModel, ChainSegment
from quiltdp.errors import InvalidArgument, QuiltdpError
from quiltdp.generalization._checks import (
    count,
    leakage_array,
    non_negative,
    probability,
    round_up,
    sum_of_squares,
)
from quiltdp.generalization.concentration import (
    Concentration,
    additive_concentration,
    concentration,
    contraction,
)
from quiltdp.model import Model
from quiltdp.numbers import format_up


@dataclass(frozen=True)
class Alternative:
    """Another theorem: the best accuracy it could promise for the same task, or why it does not apply."""

    name: str
    theorem: str
    accuracy: float | None
    valid: bool = True
    note: str = ""
    covers: str = ""
    leakage: float | None = None

    def __str__(self) -> str:
        """Read as a line."""
        if not self.valid:
            return f"{self.name}: {self.note}"
        value = f"accuracy {format_up(self.accuracy, 4)}" if self.accuracy is not None else "no promise"
        return f"{self.name}: {value}{'; ' + self.note if self.note else ''}"


def any_law_transfer(leakages: float | Iterable[float]) -> float:
    """Bound |E[q(X) | transcript] − E q(X)| for every additive query, for any joint law of the data.

    Claim: let the whole transcript leak ε_i about record i to the *prior* adversary.  The posterior
    of X_i is within total variation tanh(ε_i/4) of its prior, so for every query
    q(x) = (1/n) Σ f_i(x_i) with f_i in [0, 1], however adaptively chosen,

        |E[q(X) | transcript] − E q(X)| ≤ (1/n) Σ tanh(ε_i/4) ≤ tanh(ε/4).

    Assumes nothing about independence or concentration.  It does **not** extend to queries that
    are not additive: n/2 pairs that share one hidden XOR bit refute it.

    Parameters
    ----------
    leakages
        One ε for all records, or one per record; DP costs are composed first and converted once.

    Returns
    -------
    float
        The bias bound, rounded up.

    Examples
    --------
    >>> round(any_law_transfer(0.4), 6), round(any_law_transfer([0.4, 0.0]), 6)
    (0.099668, 0.049834)
    """
    values = leakage_array(leakages)
    return min(1.0, round_up(float(np.mean(np.tanh(values / 4)))))


def max_information_transfer(
    t: float, *, effective_sample_size: float, n: int, queries: int, leakage: float | Iterable[float]
) -> float:
    """Bound the chance that some adaptively chosen query deviates, for any Δ = 1/n queries.

    Claim: with prefix leakage ε (the informed bound covers it) and n_eff effective records,

        P[ ∃ j ≤ m: |q_j(X) − q_j(P)| ≥ t ] ≤ exp( −( √(2t² n_eff − ln 2m) − ε √(n/8) )² )

    when the bracket is positive, else 1.  With one ε_i per record, ε√(n/8) becomes √(Σ ε_i²/8).

    Proof: W = ln P(y|x)/P(y) is a sum of steps with φ(λ) ≤ λ(λ−1)ε²/8 on independent data (see
    :func:`~quiltdp.generalization.bayesian_dp_max_information`), and the event has probability
    p = e^{−D}, D = 2t² n_eff − ln 2m, there.  By Hölder's inequality its true probability is at most
    exp((λ−1)nε²/8 − (1−1/λ)D) for every λ ≥ 1; the best λ gives the claim.

    Returns
    -------
    float
        The failure probability, rounded up.

    Examples
    --------
    >>> p = max_information_transfer(0.1, effective_sample_size=4000, n=10_000, queries=100, leakage=0.05)
    >>> f"{p:.1e}"
    '3.0e-21'
    """
    n, m = count("n", n), count("queries", queries)
    size = non_negative("effective_sample_size", effective_sample_size)
    shift = math.sqrt(sum_of_squares(leakage, n) / 8)
    inside = 2 * non_negative("t", t) ** 2 * size - math.log(2 * m)
    if inside <= 0 or math.isinf(shift):
        return 1.0
    bracket = math.sqrt(inside) - shift
    return min(1.0, round_up(math.exp(-(bracket**2)))) if bracket > 0 else 1.0


def largest_threshold(a: float, *, sigma: float, queries: float, budget: int, noise_failure: float) -> float:
    """Return the largest T with ½ B' e^{−s₁/σ} + ½ m e^{−s₂/2σ} ≤ ``noise_failure`` at s₁ + s₂ = a − T.

    The best split gives a third of the failure to the threshold's noise: s₁ = σ ln(3B'/2R) and
    s₂ = 2σ ln(3m/4R).  −∞ when nothing is left.
    """
    if noise_failure <= 0:
        return -math.inf
    spends = min(queries, budget)
    first = max(0.0, sigma * math.log(1.5 * spends / noise_failure))
    second = max(0.0, 2 * sigma * math.log(0.75 * queries / noise_failure))
    return (a - first - second) - 1e-12 * abs(a)


GUESSING = 0.5
"""Answering ½ to every query is never further off than this: a promise must be better."""
SAFETY = 1 - 1e-9
"""The planners aim at this share of the failure probability, so that rounding never exceeds it."""


class LeakageAccountant(Protocol):
    """What the planner needs to know about a model: its leakage per record at a DP cost."""

    def prior(self, dp_epsilon: float) -> NDArray[np.float64]:
        """Return the leakage to the prior adversary, one number per record (or one for all)."""

    def informed(self, dp_epsilon: float) -> NDArray[np.float64]:
        """Return the leakage to the informed adversary, one number per record (or one for all)."""

    def dp_epsilon(self, epsilon: float) -> float:
        """Return the largest DP cost that leaks at most ε to the informed adversary."""


@dataclass(frozen=True)
class Task:
    """What is asked of the holdout: n records, m queries, budget B, failure probability β.

    ``rounding`` is what answers from the holdout are rounded to (0: nothing); None: as suits the accuracy.
    """

    records: int
    queries: float
    budget: int
    failure: float
    rounding: float | None = None

    def resolution(self, accuracy: float) -> float:
        """Return what answers from the holdout are rounded to in a plan of this accuracy."""
        return default_resolution(accuracy) if self.rounding is None else self.rounding

    def dp_epsilon(self, sigma: float) -> float:
        """Return α = 9B/(4σn): Thresholdout's DP cost for queries of sensitivity 1/n, rounded up."""
        return round_up(9 * self.budget / (4 * sigma * self.records))

    @property
    def holdout_answers(self) -> float:
        """B' = min(B, m)."""
        return min(self.queries, self.budget)


class Route(Protocol):
    """One theorem."""

    @property
    def name(self) -> str:
        """What people call it."""

    @property
    def theorem(self) -> str:
        """Where it is stated."""

    @property
    def covers(self) -> str:
        """Which queries it is about."""

    @property
    def private(self) -> bool:
        """Whether it rests on noise that hides records."""

    def threshold(self, task: Task, sigma: float, accuracy: float) -> float:
        """Return the largest T that keeps the promise at σ and τ; −∞ when there is none."""


class DeviationRoute(Protocol):
    """A theorem that bounds how far the holdout's own values are from the population's."""

    def deviation(self, task: Task, sigma: float, failure: float, resolution: float) -> float:
        """Return t with P[some query deviates by t from the population] ≤ ``failure``; rounded up.

        ``resolution`` is what answers from the holdout are rounded to.
        """


def free_deviation(
    route: DeviationRoute, task: Task, sigma: float, threshold: float, resolution: float
) -> float:
    """Return w: a query within w of the population on the training data spends no budget.

    |q(X) − q(train)| ≤ w + deviation; the noises of comparison and threshold must not bridge the
    rest.  Half of the failure probability each.
    """
    half = SAFETY * task.failure / 2
    room = largest_threshold(
        threshold, sigma=sigma, queries=task.queries, budget=task.budget, noise_failure=half
    )
    return room - route.deviation(task, sigma, half, resolution)


def _answer_failure(task: Task, sigma: float, a: float, accuracy: float) -> float:
    """Return the chance that an answer's noise, and its rounding to the plan's resolution, exceed a."""
    left = a - task.resolution(accuracy) / 2
    return task.holdout_answers * math.exp(-left / (4 * sigma)) if left > 0 else math.inf


@dataclass(frozen=True)
class AnyLawRoute:
    """Transfer for any joint law: a + (1/n) Σ tanh(ε_i/4) + c, failure (1/c) ∫_a^∞ b.  Additive queries."""

    accountant: LeakageAccountant
    name: str = "any joint law"
    theorem: str = "transfer for any joint law"
    covers: str = "additive queries"
    private: bool = True

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
            answers = 4 * sigma * _answer_failure(task, sigma, a, accuracy)
            noise = (SAFETY * task.failure * c - answers) / (3 * sigma)
            best = max(best, _threshold_left(task, sigma, a, noise))
        return best


@dataclass(frozen=True)
class MaxInformationRoute:
    """Max-information with concentration: any query of sensitivity 1/n, additive or not."""

    accountant: LeakageAccountant
    concentration: Concentration
    name: str = "max-information and concentration"
    theorem: str = "max-information of the leakage with concentration under the model"
    covers: str = "any 1/n-sensitive queries"
    private: bool = True

    def deviation(self, task: Task, sigma: float, failure: float, resolution: float = 0.0) -> float:
        """Return t with P[some query deviates by t from the population] ≤ ``failure``; rounded up."""
        most = math.sqrt(2 * self.concentration.effective_sample_size)
        if task.dp_epsilon(sigma) * math.sqrt(task.records / 8) >= most:  # the leakage is at least α
            return math.inf
        leaks = self.accountant.informed(task.dp_epsilon(sigma))
        shift = math.sqrt(sum_of_squares(leaks if leaks.size > 1 else float(leaks.max()), task.records) / 8)
        inside = (math.sqrt(math.log(1 / failure)) + shift) ** 2 + math.log(2 * task.queries)
        return round_up(math.sqrt(inside / (2 * self.concentration.effective_sample_size)))

    def threshold(self, task: Task, sigma: float, accuracy: float) -> float:
        """Return the largest T over the split of the failure probability."""
        least = task.dp_epsilon(sigma) * math.sqrt(task.records / 8)  # the leakage is at least α
        if least >= accuracy * math.sqrt(2 * self.concentration.effective_sample_size):
            return -math.inf
        return _best_threshold(self, task, sigma, accuracy, (0.05, 0.25, 0.5, 0.75, 0.95))


@dataclass(frozen=True)
class DescriptionRoute:
    """Description length: B answers on a grid of G values, and where they stood, are all that X decides.

    Claim: fix the noise.  Which query is asked next depends on X only through the answers so far, and
    those of the training set do not depend on it.  So before the last answer at most
    N = Σ_{b=1}^{B} C(m, b) G^{b−1} queries can ever be asked.  Each deviates by t with probability at
    most 2 exp(−2t² n_eff), so some answered one does with at most N times that.

    Assumes answers from the holdout are rounded to multiples of the resolution r: G = 1/r + 1.  No
    privacy is needed and none is given.
    """

    concentration: Concentration
    name: str = "description length"
    theorem: str = "description length with concentration under the model"
    covers: str = "any 1/n-sensitive queries"
    private: bool = False

    def deviation(self, task: Task, sigma: float, failure: float, resolution: float) -> float:
        """Return t with P[some answered query deviates by t] ≤ ``failure``; rounded up."""
        inside = math.log(2 / failure) + log_questions(task.queries, task.budget, resolution)
        return self.concentration.deviation_at(inside)

    def threshold(self, task: Task, sigma: float, accuracy: float) -> float:
        """Return the largest T over the split of the failure probability."""
        return _best_threshold(self, task, sigma, accuracy, (0.05, 0.5, 0.9, 0.99))


@lru_cache(maxsize=4096)
def log_questions(queries: float, budget: int, resolution: float) -> float:
    """Return ln N, N = Σ_{b=1}^{min(B, m)} C(m, b) G^{b−1}, G = 1/r + 1: the queries that may ever be asked.

    ∞ for r = 0: answers that are not rounded may say anything.

    Examples
    --------
    >>> round(math.exp(log_questions(3, 2, 0.5)))          # 3 + C(3, 2) · 3
    12
    """
    if resolution == 0:
        return math.inf
    grid = math.log(grid_answers(resolution))
    b = np.arange(1, max(1, math.floor(min(queries, budget))) + 1, dtype=np.float64)
    terms = np.cumsum(np.log((queries - b + 1) / b)) + (b - 1) * grid  # ln C(m, b), and the answers
    top = float(terms.max())
    return round_up(top + math.log(float(np.exp(terms - top).sum())))


def grid_answers(resolution: float) -> int:
    """Return G, how many multiples of r a value in [0, 1], with any noise added, can be rounded to.

    An interval of length 1/r is rounded to at most ⌊1/r⌋ + 2 whole numbers, and to 1/r + 1 where 1/r is
    an even one: both ends are rounded the same way.

    Examples
    --------
    >>> [grid_answers(r) for r in (0.1, 0.002, 0.2, 0.3)]
    [11, 501, 7, 5]
    """
    steps = round(1 / resolution)
    if abs(steps * resolution - 1) < 1e-12 and steps % 2 == 0:
        return steps + 1
    return math.floor(1 / resolution * (1 + 1e-12)) + 2


def default_resolution(accuracy: float) -> float:
    """Return the largest of 0.1, 0.05, 0.02, 0.01, … that is at most a quarter of the accuracy.

    Examples
    --------
    >>> [default_resolution(a) for a in (0.49, 0.2, 0.09, 0.01)]
    [0.1, 0.05, 0.02, 0.002]
    """
    most = accuracy / 4 * (1 + 1e-9)
    decade = math.floor(math.log10(most))
    steps = [float(f"{d}e{e}") for e in (decade - 1, decade) for d in (1, 2, 5)]
    return min(0.1, max(s for s in steps if s <= most))


@dataclass(frozen=True)
class IidRoute:
    """Dwork et al. for independent records: a + 6α, failure b + m e^{−α²n/8}, α ∈ [√(12/n), 1/8]."""

    name: str = "independent records"
    theorem: str = "transfer theorem for i.i.d. data (Dwork et al., Bassily et al.)"
    covers: str = "means of one function of a record"
    private: bool = True

    def threshold(self, task: Task, sigma: float, accuracy: float) -> float:
        """Return T after the union over the queries."""
        alpha = task.dp_epsilon(sigma)
        if not math.sqrt(12 / task.records) <= alpha <= 1 / 8:
            return -math.inf
        left = SAFETY * task.failure - task.queries * math.exp(-(alpha**2) * task.records / 8)
        a = accuracy - 6 * alpha
        return _threshold_left(task, sigma, a, left - _answer_failure(task, sigma, a, accuracy))


def _best_threshold(
    route: DeviationRoute, task: Task, sigma: float, accuracy: float, shares: Sequence[float]
) -> float:
    """Return the largest T over shares of the failure probability for deviations; noise gets the rest."""
    best = -math.inf
    for share in shares:
        chance = share * SAFETY * task.failure
        a = accuracy - route.deviation(task, sigma, chance, task.resolution(accuracy))
        noise = (1 - share) * SAFETY * task.failure - _answer_failure(task, sigma, a, accuracy)
        best = max(best, _threshold_left(task, sigma, a, noise))
    return best


def _threshold_left(task: Task, sigma: float, a: float, noise_failure: float) -> float:
    if a <= 0 or noise_failure <= 0:
        return -math.inf
    return largest_threshold(
        a, sigma=sigma, queries=task.queries, budget=task.budget, noise_failure=noise_failure
    )


def best_scale(
    value: Callable[[float], float],
    highest: float,
    *,
    decades: float = 5.0,
    rounds: int = 6,
    lowest: float = 0.0,
) -> tuple[float, float]:
    """Return σ with the largest ``value(σ)`` on a logarithmic grid below ``highest``, refined.

    Any σ is valid, so the search needs no certificate.  Nothing below ``lowest`` is tried:
    (``lowest``, −∞) when that leaves nothing.
    """
    if not (highest > 0 and math.isfinite(highest)):
        raise InvalidArgument(f"no noise scale fits: the largest sensible one came out as {highest!r}")
    if lowest > highest:
        return lowest, -math.inf
    least = max(lowest, highest * 10**-decades)
    grid = np.geomspace(least, highest, 13)
    step = math.log10(highest / least) / 12
    found = [(value(float(s)), float(s)) for s in grid]
    best = max(found)
    for _ in range(rounds):
        if not math.isfinite(best[0]):
            break
        step /= 2
        for side in (-step, step):
            candidate = best[1] * 10**side
            if least <= candidate <= highest:
                best = max(best, (value(candidate), candidate))
    return best[1], best[0]


GAP_SHARE = 0.01
"""The share of the failure probability that pays for parts of a chain not being quite independent."""
MOST_STEPS = 4096
_STEPS = np.geomspace(0.25, 1e-5, 120)


def log_transcripts(queries: int, step: float) -> float:
    """Return ln of a bound on how many queries a Ladder can ever be asked, over all its transcripts.

    Claim: scores are multiples of the step η in [0, 1] rounded, V = ⌊1/η + ½⌋ + 1 of them, and every
    score told is smaller than the one before.  A transcript of m answers with j scores told is j of m
    places and j of V scores: at most m · Σ_j C(m, j) C(V, j) queries are ever asked.

    Examples
    --------
    >>> round(math.exp(log_transcripts(2, 0.5)))  # V = 3: 2 · (1 + 2·3 + 1·3)
    20
    """
    if queries < 1 or not 0.0 < step <= 1.0:
        raise InvalidArgument(f"a ladder needs queries and a step from 0 to 1, not {queries!r} and {step!r}")
    values = math.floor(1.0 / step + 0.5) + 1
    most = min(queries, values)
    terms = [_log_choose(queries, j) + _log_choose(values, j) for j in range(most + 1)]
    top = max(terms)
    return math.log(queries) + top + math.log(math.fsum(math.exp(t - top) for t in terms))


def ladder_accuracy(tails: Concentration, queries: int, failure: float) -> float:
    """Return how far the best score so far may be off the best population value, all along.

    Claim: queries depend on the transcript alone, so with N possible ones none deviates by t on the
    holdout except with probability 2N exp(−2t² n_eff); the score told is then within t + η of the
    smallest population value so far.  The best η is taken.

    Assumes: losses in [0, 1], means over the records; the records follow the model.

    Reference: Blum and Hardt, *The Ladder* (2015), Theorem 3.1; here with the count above and under the
    model's concentration.
    """
    beta = probability("failure", failure)
    best = math.inf
    for step in _STEPS.tolist():
        need = math.log(2.0 / beta) + log_transcripts(queries, step)
        best = min(best, step + math.sqrt(need / (2.0 * tails.effective_sample_size)))
    return round_up(best)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def split_accuracy(model: Model, task: Task) -> float:
    """Return the accuracy of a threshold without noise on B parts of a chain, a fresh part after each answer.

    Claim: on a part the queries are fixed while the training set answers, so at most B·m pairs of a part and
    a query are compared.  With g steps left out between parts their joint law is within total variation
    (B − 1) τ_{g+1} of independent ones, τ_d the contraction of the d-step matrix: the first step of a part is
    all that the past can tell it.  None deviates by t except with probability
    2Bm exp(−2t² n_eff(part)) + (B − 1) τ_{g+1}; with T = t every answer is within 2t.

    Assumes: one homogeneous chain in its stationary law; ∞ for any other model.
    """
    if not isinstance(model, ChainModel) or len(model.segments) != 1 or not model.segments[0].homogeneous:
        return math.inf
    segment = model.segments[0]
    step, law = np.asarray(segment.transition(0)), np.asarray(segment.initial)
    if np.abs(law @ step - law).max() > 1e-12:
        return math.inf
    parts, power = max(1, math.floor(task.holdout_answers)), step
    for gap in range(MOST_STEPS):
        tau = min(1.0, contraction(power) + 1e-15 * (gap + 1) * len(step))
        if (parts - 1) * tau <= GAP_SHARE * task.failure:
            break
        power = power @ step
    else:
        return math.inf
    length = (segment.length - (parts - 1) * gap) // parts
    if length < 1:
        return math.inf
    part = ChainModel([ChainSegment(segment.prefix, length, segment.initial, segment.transitions)])
    size = concentration(part).effective_sample_size
    with suppress(InvalidArgument):  # not reversible
        size = max(size, additive_concentration(part).effective_sample_size)
    inside = math.log(2 * parts * task.queries / ((1 - GAP_SHARE) * task.failure))
    return round_up(2 * math.sqrt(inside / (2 * size)))


def baselines(model: Model, task: Task) -> list[Alternative]:
    """Return what Bonferroni, splitting and the Ladder promise, each of something less."""
    try:
        tails = concentration(model)
    except QuiltdpError:
        return []
    fixed = round_up(math.sqrt(math.log(2 * task.queries / task.failure) / (2 * tails.effective_sample_size)))
    ladder = ladder_accuracy(tails, max(1, math.ceil(task.queries)), task.failure)
    found = [
        Alternative(
            "all queries fixed in advance",
            "Bonferroni, concentration under the model",
            fixed,
            note="Bonferroni: only if every query is written down before the first answer",
            covers="any 1/n-sensitive queries",
        ),
        Alternative(
            "a fresh part after each answer",
            "splitting the holdout, concentration of each part under the model",
            split_accuracy(model, task),
            note="answers exactly, so it hides nothing",
            covers="means of one function of a record",
        ),
        Alternative(
            "the Ladder",
            "few transcripts, concentration under the model",
            ladder,
            note="tells only the smallest loss so far, exactly: it hides nothing",
            covers="any 1/n-sensitive losses",
        ),
    ]
    useful = (a.accuracy is not None and a.accuracy < GUESSING for a in found)
    return [a if kept else replace(a, accuracy=None) for a, kept in zip(found, useful, strict=True)]
