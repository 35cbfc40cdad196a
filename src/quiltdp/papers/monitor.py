"""The Monitor that proves the i.i.d. transfer theorem, run: both sides of the proof in numbers.

The Monitor takes T independent datasets, lets the mechanism choose a query on each, and returns,
by the exponential mechanism, the query and the dataset on which it (or its complement) deviates
most from the population.  If the mechanism is (ε, δ)-DP, the Monitor is (2ε, δ)-DP on all T·n
records, so

* *above*: the query it returns deviates by at most e^{2ε} − 1 + Tδ on average, because a private
  choice of query and dataset cannot know the dataset;
* *below*: it deviates by at least E max_t |q_t(S_t) − q_t(D)| − (2/εn) ln(2T), because the
  exponential mechanism finds a nearly worst one among 2T candidates.

A mechanism that overfits on one dataset in T would break the first with the second.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quiltdp.errors import InvalidArgument
from quiltdp.generalization._checks import count, positive, probability, round_up, within
from quiltdp.mechanisms.exponential import ExponentialMechanism
from quiltdp.mechanisms.noise import NoiseSource

Sample = TypeVar("Sample")
Query = TypeVar("Query")


def iid_transfer(epsilon: float, delta: float, n: int) -> tuple[float, float]:
    """Transfer for **independent, identically distributed** records and [0, 1] statistical queries.

    Claim: if A is (ε, δ)-DP and returns a query q, then P[|q(S) − q(D)| ≥ 6ε] ≤ max(4δ/ε, e^{−ε²n/8}),
    for ε ∈ [√(12/n), 1/8] and δ ≤ ε/16.

    Returns
    -------
    tuple of float
        The deviation 6ε and the failure probability, both rounded up.

    Raises
    ------
    InvalidArgument
        Outside the range.

    Examples
    --------
    >>> deviation, failure = iid_transfer(0.1, 1e-9, 10_000)
    >>> round(deviation, 6), f"{failure:.1e}"
    (0.6, '3.7e-06')

    References
    ----------
    Lecture on the transfer theorem, Theorem 0.2 (line 14), after Bassily et al., "Algorithmic stability for
    adaptive data analysis" (2016); its proof runs in :mod:`quiltdp.generalization.monitor_simulation`.
    """
    n = count("n", n)
    least = math.sqrt(12 / n)
    if least > 1 / 8:
        raise InvalidArgument(f"n = {n} is below 768, where the theorem starts (√(12/n) ≤ 1/8)")
    eps = within(
        "epsilon", epsilon, least, 1 / 8, instead="use any_law_transfer, which has no range, with the leakage"
    )
    d = within("delta", delta, 0.0, eps / 16, instead="the theorem needs δ ≤ ε/16: use a smaller δ")
    return round_up(6 * eps), round_up(max(4 * d / eps, math.exp(-(eps**2) * n / 8)))


Array = NDArray[np.float64]


def exponential_mechanism_law(scores: ArrayLike, *, dp_epsilon: float, sensitivity: float) -> Array:
    """Return P[r] ∝ exp(ε s(r) / 2Δ): the exponential mechanism, ε-DP for Δ-sensitive scores.

    Examples
    --------
    >>> exponential_mechanism_law([0.0, 1.0], dp_epsilon=2.0, sensitivity=1.0).round(4).tolist()
    [0.2689, 0.7311]

    References
    ----------
    McSherry and Talwar, "Mechanism design via differential privacy" (2007).
    """
    values = np.asarray(scores, dtype=np.float64)
    exponent = positive("dp_epsilon", dp_epsilon) * values / (2 * positive("sensitivity", sensitivity))
    weights = np.exp(exponent - exponent.max(axis=-1, keepdims=True))
    result: Array = weights / weights.sum(axis=-1, keepdims=True)
    return result


def exponential_mechanism_loss(candidates: int, *, dp_epsilon: float, sensitivity: float) -> float:
    """Bound how far the expected score is below the best: (2Δ/ε) ln(candidates).

    Claim: E s(r) ≥ max s − (2Δ/ε) ln |R| (the Gibbs variational principle).

    References
    ----------
    The expected form of Theorem 0.1 of the lecture on the transfer theorem (line 12); the Monitor has 2T
    candidates, so its loss has ln(2T).
    """
    size = count("candidates", candidates)
    scale = positive("sensitivity", sensitivity) / positive("dp_epsilon", dp_epsilon)
    return round_up(2 * scale * math.log(size))


def monitor_ceiling(dp_epsilon: float, delta: float, datasets: int) -> float:
    """Return e^ε − 1 + Tδ: the most a query chosen by an (ε, δ)-DP Monitor deviates on average; rounded up.

    ``dp_epsilon`` is the cost of the algorithm and of the Monitor's choice together.

    Examples
    --------
    >>> round(monitor_ceiling(0.2, 0.0, 20), 4), round(monitor_ceiling(0.2, 0.001, 20), 4)
    (0.2214, 0.2414)

    References
    ----------
    Lecture on the transfer theorem, Lemma 0.4 (line 52).
    """
    eps = positive("dp_epsilon", dp_epsilon)
    small = probability("delta", delta, zero=True)
    return round_up(math.expm1(eps) + count("datasets", datasets) * small)


@dataclass(frozen=True)
class MonitorResult(Generic[Query]):
    """What the Monitor picked: query, its sample, whether it was turned into 1 − q, and the gap."""

    query: Query
    index: int
    flipped: bool
    sample_value: float
    population_value: float
    gap: float
    """q*(S_t) − q*(D) of the candidate picked (after flipping)."""
    largest_gap: float
    """The largest |q_t(S_t) − q_t(D)| among the T runs."""


class Monitor(Generic[Sample, Query]):
    """Pick the most overfitted of T runs, privately.

    Parameters
    ----------
    evaluate
        ``evaluate(query, sample)``: the mean of the query's values in [0, 1] over a sample.
    population
        ``population(query)``: the mean over the population; the experiment knows the truth.
    sample_size
        n, so that one record moves a score by at most 1/n.
    dp_epsilon
        α of the choice, usually that of the algorithm under test.
    noise
        Keyword for tests.

    Reference
    ---------
    Lecture on the transfer theorem, Algorithm 2, after Bassily, Nissim, Smith, Steinke, Stemmer, Ullman,
    Algorithmic stability for adaptive data analysis, 2016.  The candidate set has 2T members, so its
    logarithm is ln(2T).

    Examples
    --------
    >>> from quiltdp.papers.monitor import Monitor
    >>> monitor = Monitor(lambda q, s: sum(map(q, s)) / len(s), lambda q: 0.5, sample_size=4, dp_epsilon=1e3)
    >>> samples = [[0, 1, 0, 1], [1, 1, 1, 1]]
    >>> result = monitor.run(lambda sample: float, samples)
    >>> result.index, result.flipped, result.gap, result.largest_gap
    (1, False, 0.5, 0.5)
    """

    def __init__(
        self,
        evaluate: Callable[[Query, Sample], float],
        population: Callable[[Query], float],
        *,
        sample_size: int,
        dp_epsilon: float,
        noise: NoiseSource | None = None,
    ) -> None:
        if sample_size < 1:
            raise InvalidArgument(f"sample_size must be at least 1, not {sample_size!r}")
        self.evaluate = evaluate
        self.population = population
        self.sample_size = sample_size
        self.mechanism = ExponentialMechanism(1.0 / sample_size, dp_epsilon, noise=noise)

    def run(self, algorithm: Callable[[Sample], Query], samples: Sequence[Sample]) -> MonitorResult[Query]:
        """Run the algorithm once per sample and choose among the 2T candidates."""
        if not samples:
            raise InvalidArgument("the Monitor needs at least one sample")
        queries = [algorithm(sample) for sample in samples]
        inside = [self._check_value(self.evaluate(q, s)) for q, s in zip(queries, samples, strict=True)]
        outside = [self._check_value(self.population(q)) for q in queries]
        gaps = [a - b for a, b in zip(inside, outside, strict=True)]
        chosen = self.mechanism.index([*gaps, *(-g for g in gaps)])
        t, flipped = chosen % len(samples), chosen >= len(samples)
        return MonitorResult(
            query=queries[t],
            index=t,
            flipped=flipped,
            sample_value=1.0 - inside[t] if flipped else inside[t],
            population_value=1.0 - outside[t] if flipped else outside[t],
            gap=-gaps[t] if flipped else gaps[t],
            largest_gap=max(map(abs, gaps)),
        )

    def gap_floor(self, runs: int) -> float:
        """Return how far the expected gap picked may fall below E[largest gap]: 2 ln(2T) / (α n).

        How large it can be at most is :func:`monitor_ceiling`.
        """
        return self.mechanism.expected_regret(2 * runs)

    @staticmethod
    def _check_value(value: float) -> float:
        if not 0.0 <= value <= 1.0:
            raise InvalidArgument(f"a query value must lie in [0, 1], not {value!r}")
        return float(value)


@dataclass(frozen=True)
class MonitorRun:
    """What a simulation of the Monitor found.

    Attributes
    ----------
    deviation, standard_error
        The mean of q(S_t) − q(D) over the runs, for the query and dataset the Monitor returned.
    worst
        The mean of max_t |q_t(S_t) − q_t(D)|.
    floor
        ``worst`` − (2/εn) ln(2T), what ``deviation`` cannot be below.
    ceiling
        e^{2ε} − 1 + Tδ, what it cannot be above if the mechanism is (ε, δ)-DP.
    """

    deviation: float
    standard_error: float
    worst: float
    floor: float
    ceiling: float

    @property
    def refutes_privacy(self) -> bool:
        """Whether the deviation is above the ceiling by more than four standard errors."""
        return self.deviation - 4 * self.standard_error > self.ceiling


def simulate_monitor(
    deviations: Callable[[np.random.Generator, int], Array],
    *,
    dp_epsilon: float,
    delta: float,
    n: int,
    datasets: int,
    runs: int,
    rng: np.random.Generator,
) -> MonitorRun:
    """Run the Monitor many times.

    Parameters
    ----------
    deviations
        ``deviations(rng, T)`` draws T datasets, runs the mechanism on each and returns the
        T values q_t(S_t) − q_t(D).
    dp_epsilon, delta
        What the mechanism claims; ε is also given to the exponential mechanism.
    n, datasets
        Records per dataset, and T.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> private = feature_selector(n=2000, features=50, dp_epsilon=0.1)
    >>> run = simulate_monitor(private, dp_epsilon=0.1, delta=0.0, n=2000, datasets=10, runs=200, rng=rng)
    >>> run.floor <= run.deviation <= run.ceiling, run.refutes_privacy
    (True, False)
    """
    n, size, repeats = count("n", n), count("datasets", datasets), count("runs", runs, least=2)
    found, worst = np.empty(repeats), np.empty(repeats)
    for r in range(repeats):
        gap = deviations(rng, size)
        if gap.shape != (size,):
            raise InvalidArgument(f"deviations returned shape {gap.shape}, expected ({size},)")
        scores = np.concatenate([gap, -gap])  # each query and its complement: 2T candidates
        law = exponential_mechanism_law(scores, dp_epsilon=dp_epsilon, sensitivity=1 / n)
        found[r] = scores[rng.choice(2 * size, p=law)]
        worst[r] = np.abs(gap).max()
    loss = exponential_mechanism_loss(2 * size, dp_epsilon=dp_epsilon, sensitivity=1 / n)
    return MonitorRun(
        float(found.mean()),
        float(found.std(ddof=1) / math.sqrt(repeats)),
        float(worst.mean()),
        float(worst.mean()) - loss,
        monitor_ceiling(2 * dp_epsilon, delta, size),
    )


def feature_selector(
    *, n: int, features: int, dp_epsilon: float | None
) -> Callable[[np.random.Generator, int], Array]:
    """Return a mechanism to monitor: on n fair bits in each of many features, pick one with many ones.

    With ``dp_epsilon`` it picks by the exponential mechanism; with ``None`` it picks the largest,
    which overfits: its query deviates by about √(ln(features)/2n) although every feature is fair.
    """
    n, size = count("n", n), count("features", features)

    def deviations(rng: np.random.Generator, datasets: int) -> Array:
        means = rng.binomial(n, 0.5, size=(datasets, size)) / n
        if dp_epsilon is None:
            chosen = means.argmax(axis=1)
        else:
            laws = exponential_mechanism_law(means, dp_epsilon=dp_epsilon, sensitivity=1 / n)
            chosen = (laws.cumsum(axis=1) < rng.random((datasets, 1))).sum(axis=1).clip(0, size - 1)
        result: Array = means[np.arange(datasets), chosen] - 0.5
        return result

    return deviations


def memoriser(chance: float) -> Callable[[np.random.Generator, int], Array]:
    """Return a mechanism that overfits: with probability ``chance`` its query is "is x in the dataset?".

    That query is 1 on the data and 0 in a large population, so it deviates by 1; otherwise the query
    is constant.  The mechanism is (0, chance)-DP and no better.
    """
    share = probability("chance", chance, zero=True, one=True)

    def deviations(rng: np.random.Generator, datasets: int) -> Array:
        result: Array = (rng.random(datasets) < share).astype(np.float64)
        return result

    return deviations
