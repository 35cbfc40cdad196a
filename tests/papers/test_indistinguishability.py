"""Indistinguishable laws: definitions by enumeration of events, lemmas on random laws."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from quiltdp.errors import InvalidArgument
from quiltdp.papers.rogers import (
    conditioning_failure,
    indistinguishability,
    pointwise_failure,
    pointwise_parameters,
)


def random_pair(rng, size):
    p = rng.dirichlet(np.full(size, 0.5))
    q = p * np.exp(rng.normal(scale=0.4, size=size)) * (rng.random(size) < 0.9)
    q = q if q.sum() > 0 else p
    return p, q / q.sum()


def test_delta_is_the_worst_event():
    rng = np.random.default_rng(1)
    for _ in range(20):
        p, q = random_pair(rng, 5)
        epsilon = rng.uniform(0, 1)
        worst = 0.0
        for event in itertools.product((0, 1), repeat=5):
            inside = np.array(event, bool)
            for a, b in ((p, q), (q, p)):
                worst = max(worst, a[inside].sum() - math.exp(epsilon) * b[inside].sum())
        assert indistinguishability(p, q, epsilon) == pytest.approx(worst, abs=1e-12)


def test_pointwise_follows_with_twice_the_epsilon():
    """Lemma A.6(2), and it needs its factors: with ε alone random laws break it."""
    rng = np.random.default_rng(2)
    broken = 0
    for _ in range(300):
        p, q = random_pair(rng, int(rng.integers(2, 9)))
        epsilon = rng.uniform(0.05, 1.0)
        delta = indistinguishability(p, q, epsilon)
        if delta >= 1:
            continue
        twice, failure = pointwise_parameters(epsilon, delta)
        assert pointwise_failure(p, q, twice) <= failure + 1e-12
        broken += pointwise_failure(p, q, epsilon) > delta + 1e-12
    assert broken > 100


def test_conditioning_keeps_most_outcomes_close():
    """Lemma A.7 on random joint laws, by enumeration of the outcomes t."""
    rng = np.random.default_rng(3)
    checked = 0
    for _ in range(300):
        p, q = (a.reshape(4, 5) for a in random_pair(rng, 20))
        epsilon = rng.uniform(0.2, 1.2)
        delta = indistinguishability(p, q, epsilon)
        hat = rng.uniform(0.02, 0.5)
        allowed = conditioning_failure(epsilon, min(delta, 0.999), hat)
        if allowed >= 1:
            continue
        checked += 1
        failed = 0.0
        for t in range(5):
            mass = p[:, t].sum()
            if mass == 0:
                continue
            if q[:, t].sum() == 0:
                failed += mass
                continue
            here, there = p[:, t] / mass, q[:, t] / q[:, t].sum()
            failed += mass * (indistinguishability(here, there, 3 * epsilon) > hat)
        assert failed <= allowed + 1e-12
    assert checked > 50


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: indistinguishability([0.5, 0.5], [1.0], 0.1), "equal shapes"),
        (lambda: indistinguishability([0.5, 0.6], [0.5, 0.5], 0.1), "sums to"),
        (lambda: pointwise_parameters(0.0, 0.1), "epsilon"),
        (lambda: conditioning_failure(0.1, 0.1, 0.0), "delta_hat"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(InvalidArgument, match=words):
        call()
