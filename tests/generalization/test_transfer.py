"""Transfer theorems against exact posteriors; the Monitor's two sides; ranges are refused."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiltdp.errors import InvalidArgument
from quiltdp.generalization import bayesian_dp_max_information
from quiltdp.generalization.routes import any_law_transfer, max_information_transfer
from quiltdp.papers.monitor import (
    exponential_mechanism_law,
    exponential_mechanism_loss,
    feature_selector,
    iid_transfer,
    memoriser,
    monitor_ceiling,
    simulate_monitor,
)
from quiltdp.papers.rogers import (
    approximate_dp_transfer,
    p_value_sensitivity,
    rogers_theorem,
    sensitive_query_transfer,
)

seeds = st.integers(0, 2**32 - 1)


def prior_leakages(law, mechanism, n):
    """Leakage about each record to the adversary who knows only the joint law."""
    joint = (law[:, None] * mechanism).reshape((2,) * n + (-1,))
    found = []
    for i in range(n):
        table = joint.sum(axis=tuple(k for k in range(n) if k != i))
        given_x = table / table.sum(axis=1, keepdims=True)
        found.append(float(np.abs(np.log(given_x[0]) - np.log(given_x[1])).max()))
    return found


@settings(max_examples=80, deadline=None)
@given(seeds, st.integers(1, 4))
def test_any_law_transfer_holds_for_every_transcript_and_query(seed, n):
    rng = np.random.default_rng(seed)
    law = rng.dirichlet(np.full(2**n, 0.3))
    mechanism = rng.dirichlet(np.full(4, 0.7), size=2**n)
    points = np.array(list(itertools.product([0, 1], repeat=n)))
    bound = any_law_transfer(prior_leakages(law, mechanism, n))
    for y in range(4):
        posterior = law * mechanism[:, y]
        posterior /= posterior.sum()
        # the worst additive query of [0, 1] values moves every record's mean the same way
        worst = np.abs(posterior @ points - law @ points).mean()
        assert worst <= bound + 1e-12
    assert bound <= any_law_transfer(max(prior_leakages(law, mechanism, n))) + 1e-12


@pytest.mark.parametrize("leak", [0.1, 0.8, 3.0])
def test_any_law_transfer_is_tight_for_one_record(leak):
    prior = np.array([1.0, math.exp(leak / 2)]) / (1 + math.exp(leak / 2))
    likelihood = np.array([math.exp(leak), 1.0])  # an output e^leak times likelier for the rare value
    posterior = prior * likelihood / (prior @ likelihood)
    assert abs(posterior[0] - prior[0]) == pytest.approx(any_law_transfer(leak), rel=1e-9)


def test_any_law_transfer_does_not_extend_to_pairs_sharing_a_hidden_bit():
    """Pairs (a, a ⊕ s): each record alone is uniform whatever s is, yet the pair query reveals s."""
    pairs = 3
    n = 2 * pairs
    law = np.zeros(2**n)
    for s in (0, 1):
        for bits in itertools.product([0, 1], repeat=pairs):
            x = [v for a in bits for v in (a, a ^ s)]
            law[int("".join(map(str, x)), 2)] += 0.5 / 2**pairs
    points = np.array(list(itertools.product([0, 1], repeat=n)))
    secret = points[:, 0] ^ points[:, 1]
    mechanism = np.where(secret[:, None] == [0, 1], 1.0, 0.0) * 0.98 + 0.01
    leakages = prior_leakages(law, mechanism, n)
    assert any_law_transfer(leakages) < 1e-9
    query = np.mean([points[:, 2 * k] ^ points[:, 2 * k + 1] for k in range(pairs)], axis=0)
    posterior = law * mechanism[:, 0]
    posterior /= posterior.sum()
    assert abs(posterior @ query - law @ query) > 0.4


@settings(max_examples=30, deadline=None)
@given(
    st.floats(0.01, 0.5),
    st.floats(10, 1e5),
    st.integers(10, 10**6),
    st.integers(1, 10**6),
    st.floats(0, 0.1),
)
def test_combined_bound_is_max_information_at_the_best_beta(t, size, n, m, leak):
    bound = max_information_transfer(t, effective_sample_size=size, n=n, queries=m, leakage=leak)
    tail = 2 * m * math.exp(-2 * t * t * size)
    best = 1.0
    for exponent in np.linspace(0.001, 200, 1501):
        beta = math.exp(-exponent)
        info = bayesian_dp_max_information(leak, n, beta).nats
        best = min(best, tail * math.exp(min(info, 700)) + beta)
    # the closed form keeps only max(β, e^k p): within the factor 2 of the sum, never above it
    assert bound <= best * (1 + 1e-6)
    assert best <= 2.5 * bound + 1e-80


def test_iid_transfer_values_and_ranges():
    deviation, failure = iid_transfer(0.125, 0.0, 10_000)
    assert (deviation, failure) == pytest.approx((0.75, math.exp(-(0.125**2) * 10_000 / 8)))
    assert iid_transfer(0.1, 0.1 / 16, 10**6)[1] == pytest.approx(0.25)
    for epsilon, delta, n in [(0.2, 0, 10_000), (0.01, 0, 10_000), (0.1, 0.01, 10_000), (0.1, 0, 700)]:
        with pytest.raises(InvalidArgument):
            iid_transfer(epsilon, delta, n)
    with pytest.raises(InvalidArgument, match="any_law_transfer"):
        iid_transfer(0.2, 0, 10_000)


@settings(max_examples=40, deadline=None)
@given(seeds, st.integers(1, 30), st.floats(0.05, 20))
def test_exponential_mechanism_is_private_and_nearly_best(seed, size, epsilon):
    rng = np.random.default_rng(seed)
    scores = rng.random(size) * 5
    moved = scores + rng.uniform(-1, 1, size)
    a, b = (exponential_mechanism_law(s, dp_epsilon=epsilon, sensitivity=1.0) for s in (scores, moved))
    assert np.abs(np.log(a) - np.log(b)).max() <= epsilon + 1e-9
    loss = exponential_mechanism_loss(size, dp_epsilon=epsilon, sensitivity=1.0)
    assert a @ scores >= scores.max() - loss - 1e-9


def test_monitor_shows_both_sides_of_the_proof():
    rng = np.random.default_rng(18)
    n, datasets, epsilon = 1000, 20, 0.05
    options = {"dp_epsilon": epsilon, "n": n, "datasets": datasets, "runs": 300, "rng": rng}
    private = feature_selector(n=n, features=500, dp_epsilon=epsilon)
    kept = simulate_monitor(private, delta=0.0, **options)
    assert kept.floor <= kept.deviation + 4 * kept.standard_error
    assert not kept.refutes_privacy
    # overfits on one dataset in ten: the exponential mechanism finds it, above what privacy allows
    broken = simulate_monitor(memoriser(0.1), delta=0.0, **options)
    assert broken.worst == pytest.approx(1 - 0.9**datasets, abs=0.1)
    assert broken.floor <= broken.deviation + 4 * broken.standard_error
    assert broken.floor > broken.ceiling
    assert broken.refutes_privacy
    # it is (0, 0.1)-DP, and with that δ said the theorem has nothing to object
    assert not simulate_monitor(memoriser(0.1), delta=0.1, **options).refutes_privacy


def test_choosing_the_largest_feature_overfits():
    rng = np.random.default_rng(19)
    gaps = feature_selector(n=1000, features=1000, dp_epsilon=None)(rng, 50)
    assert gaps.mean() == pytest.approx(math.sqrt(math.log(1000) / 2000), abs=0.015)


def test_monitor_ceiling_is_exact_in_small_cases():
    assert monitor_ceiling(0.2, 0.0, 5) == pytest.approx(math.exp(0.2) - 1)
    assert monitor_ceiling(0.2, 1e-3, 5) == pytest.approx(math.exp(0.2) - 1 + 0.005)


def test_monitor_refuses_nonsense():
    rng = np.random.default_rng(0)
    with pytest.raises(InvalidArgument, match="shape"):
        simulate_monitor(
            lambda rng, size: np.zeros(3), dp_epsilon=0.1, delta=0, n=10, datasets=2, runs=2, rng=rng
        )
    with pytest.raises(InvalidArgument, match="datasets"):
        monitor_ceiling(0.1, 0.0, 0)
    with pytest.raises(InvalidArgument, match="leakage"):
        any_law_transfer(-1.0)
    with pytest.raises(InvalidArgument, match="leakages"):
        any_law_transfer([0.1, math.nan])


def test_sensitive_queries_have_a_range():
    """Theorem B.2, and why it says nothing about p-values: 18εΔn > 1 wherever it applies to them."""
    deviation, failure = sensitive_query_transfer(0.01, 1e-6, 200_000, sensitivity=1 / 200_000)
    assert deviation == pytest.approx(0.18)
    assert failure == pytest.approx(1e-4)
    for epsilon in (0.3, 0.01):
        n = math.ceil(math.log(4 * epsilon / 1e-6) / epsilon**2)
        assert sensitive_query_transfer(epsilon, 1e-6, n, sensitivity=p_value_sensitivity(n))[0] > 1
    for bad, words in (
        ({"epsilon": 0.4, "delta": 1e-6}, "epsilon"),
        ({"epsilon": 0.01, "delta": 0.01}, "delta"),
        ({"epsilon": 0.001, "delta": 1e-6}, "below"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            sensitive_query_transfer(n=1000, sensitivity=1e-3, **bad)


def test_deviation_by_max_information():
    """Theorem D.1: the printed n√(δ/ε) does not follow; with the constants kept the tail falls to β."""
    epsilon, delta, n = 0.1, 1e-20, 1000
    beta = rogers_theorem(epsilon, delta, n).beta
    assert beta > n * math.sqrt(delta / epsilon)
    values = [approximate_dp_transfer(epsilon, delta, n, factor=c) for c in (1, 5.3, 5.5, 6, 8)]
    assert values[0] == 1.0
    assert all(a >= b for a, b in itertools.pairwise(values))
    assert values[-1] == pytest.approx(beta, rel=1e-9)
