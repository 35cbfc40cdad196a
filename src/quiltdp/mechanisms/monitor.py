r"""The Monitor: the thought experiment behind the transfer theorem, as code that runs.

An algorithm A reads a sample and returns a statistical query.  If A's query is often far off on its
own sample, the Monitor runs A on T independent samples and picks, by the exponential mechanism, the
worst of the 2T candidates (q_t or 1 − q_t, with its sample S_t).  The choice is still private, so its
expected gap is small; yet the best of T tries would have a large one.  Comparing the two bounds the
failure probability of A.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms.exponential import ExponentialMechanism
from quiltdp.mechanisms.noise import NoiseSource

__all__ = ["Monitor", "MonitorResult"]

Sample = TypeVar("Sample")
Query = TypeVar("Query")


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
    >>> from quiltdp.mechanisms import Monitor
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

        How large it can be at most is :func:`quiltdp.papers.monitor.monitor_ceiling`.
        """
        return self.mechanism.expected_regret(2 * runs)

    @staticmethod
    def _check_value(value: float) -> float:
        if not 0.0 <= value <= 1.0:
            raise InvalidArgument(f"a query value must lie in [0, 1], not {value!r}")
        return float(value)
