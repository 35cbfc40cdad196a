from __future__ import annotations

import numpy as np
import pytest

from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms import InsecureDeterministicNoise
from quiltdp.papers.monitor import Monitor, monitor_ceiling

N, TRAITS = 50, 400


def population(query: tuple[int, int]) -> float:
    return 0.5


def evaluate(query: tuple[int, int], sample: np.ndarray) -> float:
    column, wanted = query
    return float(np.mean(sample[:, column] == wanted))


def most_overfitted(sample: np.ndarray) -> tuple[int, int]:
    """Return the coin that looks most biased: no privacy at all."""
    return int(np.argmax(sample.mean(axis=0))), 1


def always_the_first(sample: np.ndarray) -> tuple[int, int]:
    return 0, 1


def monitor(seed: int, dp_epsilon: float = 2.0) -> Monitor[np.ndarray, tuple[int, int]]:
    return Monitor(
        evaluate,
        population,
        sample_size=N,
        dp_epsilon=dp_epsilon,
        noise=InsecureDeterministicNoise(seed),
    )


def test_the_monitor_finds_an_overfitting_algorithm() -> None:
    rng = np.random.default_rng(0)
    gaps = []
    for seed in range(30):
        samples = [rng.integers(0, 2, (N, TRAITS)) for _ in range(5)]
        found = monitor(seed).run(most_overfitted, samples)
        assert found.gap <= found.largest_gap
        assert found.sample_value - found.population_value == pytest.approx(found.gap)
        gaps.append(found.gap)
    # no α-DP algorithm with this α can have a larger mean gap than the ceiling
    assert np.mean(gaps) > monitor_ceiling(0.1, 0.0, 5)


def test_a_private_algorithm_stays_below_the_ceiling_and_above_the_floor() -> None:
    rng = np.random.default_rng(1)
    picked, largest = [], []
    for seed in range(200):
        found = monitor(seed).run(always_the_first, [rng.integers(0, 2, (N, 1)) for _ in range(5)])
        picked.append(found.gap)
        largest.append(found.largest_gap)
    assert np.mean(picked) <= monitor_ceiling(2.0, 0.0, 5)
    assert np.mean(picked) >= np.mean(largest) - monitor(0).gap_floor(5)


def test_the_flipped_candidate_is_among_the_2t() -> None:
    samples = [np.zeros((N, 1), dtype=int)]
    found = monitor(0, dp_epsilon=1e4).run(always_the_first, samples)
    assert (found.flipped, found.gap, found.sample_value) == (True, 0.5, 1.0)


def test_the_monitor_refuses_nonsense() -> None:
    with pytest.raises(InvalidArgument):
        monitor(0).run(always_the_first, [])
    bad = Monitor(lambda q, s: 2.0, population, sample_size=1, dp_epsilon=1.0)
    with pytest.raises(InvalidArgument, match=r"\[0, 1\]"):
        bad.run(always_the_first, [np.zeros((1, 1))])
