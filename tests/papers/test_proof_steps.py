"""Lemmas and claims that the papers use on the way, each by enumeration on small laws."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from quiltdp.generalization import max_information
from quiltdp.papers import kl_privacy, rogers, typical_stability


def private_channel(rng, values, n, epsilon, delta=0.0, outputs=4):
    """A random P(y | x) over datasets that is nearly ε-DP: one law tilted by each record, and δ of noise."""
    data = list(itertools.product(range(values), repeat=n))
    base = rng.dirichlet(np.ones(outputs))
    each = rng.uniform(-epsilon / 4, epsilon / 4, size=(n, values, outputs))
    table = np.array([base * np.exp(sum(each[i, v] for i, v in enumerate(x))) for x in data])
    table /= table.sum(axis=1, keepdims=True)
    if delta:  # move δ of each row to an output of its own choice
        table = (1 - delta) * table + delta * np.eye(outputs)[rng.integers(0, outputs, len(data))]
    return data, table


def test_azuma_exactly_on_coin_walks():
    """Zhao Lemma 5, Bassily-Freund Theorem 3.4, Rogers et al. Theorem A.8; range outside the root."""
    for n, c, t in itertools.product((5, 20), (0.3, 2.0), (0.5, 1.5, 2.5)):
        ups = np.arange(n + 1)
        law = np.array([math.comb(n, int(k)) for k in ups]) / 2.0**n
        walk = c * (2 * ups - n)
        assert law[walk >= t * c * math.sqrt(n)].sum() <= math.exp(-(t**2) / 2)
        assert law[walk >= t].sum() <= math.exp(-(t**2) / (2 * n * c**2))
    # with the range inside the root, t√(nα), as our copies print it, a range above 1 breaks it
    n, c, t = 20, 4.0, 1.0
    law = np.array([math.comb(n, k) for k in range(n + 1)]) / 2.0**n
    walk = c * (2 * np.arange(n + 1) - n)
    assert law[walk >= 3 * t * math.sqrt(n * c)].sum() > math.exp(-((3 * t) ** 2) / 2)


def test_a_ratio_that_is_rarely_large_bounds_max_information():
    """Zhao Lemma 6, Rogers et al. Lemma 3.2."""
    rng = np.random.default_rng(6)
    for _ in range(50):
        joint = rng.dirichlet(np.full(20, 0.4)).reshape(4, 5)
        product = np.outer(joint.sum(axis=1), joint.sum(axis=0))
        ratio = np.log(joint / product)
        for k in (0.1, 0.5, 1.0):
            beta = joint[ratio >= k].sum()
            if beta < 1:
                assert max_information.exact_max_information(joint, beta).nats <= k + 1e-12


def test_private_answers_are_nearly_independent_of_each_record():
    """Rogers et al. Claims 3.3 to 3.6 on product data: closeness, conditioning, both exceptional sets."""
    rng = np.random.default_rng(33)
    epsilon, delta, values, n = 0.4, 1e-4, 2, 3
    law = np.array([0.3, 0.7])
    for _ in range(20):
        data, table = private_channel(rng, values, n, epsilon, delta)
        weight = np.array([math.prod(law[v] for v in x) for x in data]).reshape((values,) * n)
        joint = (weight[..., None] * table.reshape((values,) * n + (-1,))).astype(float)
        true = max(
            rogers.indistinguishability(table[i], table[j], epsilon)
            for i, x in enumerate(data)
            for j, y in enumerate(data)
            if sum(a != b for a, b in zip(x, y, strict=True)) == 1
        )
        hat = 0.05
        for i in range(n):
            for prefix in itertools.product(range(values), repeat=i):
                here = joint[prefix].sum(axis=tuple(range(1, n - i)))  # axes: x_i, y
                here = here / here.sum()
                apart = np.outer(here.sum(axis=1), here.sum(axis=0))
                assert rogers.indistinguishability(here, apart, epsilon) <= true + 1e-12  # Claim 3.3
                failed = 0.0
                for y in range(here.shape[1]):
                    given = here[:, y] / here[:, y].sum()
                    far = rogers.indistinguishability(law, given, 3 * epsilon)
                    failed += here[:, y].sum() * (far > hat)
                    if far <= hat:  # Claim 3.5: then the ratio is within 6ε but for δ''
                        second = 2 * hat / (1 - math.exp(-3 * epsilon))
                        assert rogers.pointwise_failure(given, law, 6 * epsilon) <= second + 1e-12
                assert failed <= rogers.conditioning_failure(epsilon, true, hat) + 1e-12  # Claim 3.4


def test_post_processing_keeps_everything():
    """Wang-Lei-Fienberg Lemma 5, Bassily-Freund Lemma 2.4, Rogers et al. Theorem A.2: a channel after it."""
    rng = np.random.default_rng(5)
    for _ in range(50):
        p, q = rng.dirichlet(np.ones(5)), rng.dirichlet(np.ones(5))
        channel = rng.dirichlet(np.full(3, 0.5), size=5)
        a, b = p @ channel, q @ channel
        assert np.sum(a * np.log(a / b)) <= np.sum(p * np.log(p / q)) + 1e-12
        for epsilon in (0.0, 0.3):
            assert (
                rogers.indistinguishability(a, b, epsilon)
                <= rogers.indistinguishability(p, q, epsilon) + 1e-12
            )
    step = typical_stability.TypicalStability(0.1, 0.01, 0.02)
    assert step.post_process() == step


def test_expectations_of_indistinguishable_variables():
    """Lecture Definition 0.5 and Lemma 0.6: E f(X) ≤ e^ε E f(Y) + δ, and the worst f in [0, 1] attains it."""
    rng = np.random.default_rng(60)
    for _ in range(30):
        p, q = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(6))
        epsilon = rng.uniform(0, 1)
        delta = rogers.indistinguishability(p, q, epsilon)
        for f in (*rng.random((20, 6)), (p > math.exp(epsilon) * q).astype(float)):
            assert p @ f <= math.exp(epsilon) * (q @ f) + delta + 1e-12


def test_the_best_of_many_overfits():
    """Lecture Claim 0.3: E max_t ≥ α(1 − (1 − p_α)^T), exactly, for non-negative gaps."""
    gaps, law = np.array([0.0, 0.1, 0.4]), np.array([0.7, 0.2, 0.1])
    for datasets, alpha in itertools.product((1, 3, 10), (0.1, 0.4)):
        p = law[gaps >= alpha].sum()
        below = np.cumsum(law) ** datasets
        mean = float(gaps @ np.diff(np.concatenate([[0.0], below])))
        assert mean >= alpha * (1 - (1 - p) ** datasets) - 1e-12


def test_structural_loss_and_dispersion():
    """Wang-Lei-Fienberg Remarks 1 and 2: one record is any dataset; γ scales the loss, not the gap."""
    rng = np.random.default_rng(1)
    loss, law = rng.random((5, 4)), rng.dirichlet(np.ones(5))
    whole = kl_privacy.GibbsSampler(loss, 1.0)
    assert kl_privacy.on_average_kl(whole, law, 1) == pytest.approx(
        kl_privacy.gibbs_generalization_gap(whole, law, 1)
    )
    scaled = kl_privacy.GibbsSampler(loss, 3.0)
    assert kl_privacy.on_average_kl(scaled, law, 1) == pytest.approx(
        3 * kl_privacy.gibbs_generalization_gap(scaled, law, 1)
    )
    assert kl_privacy.on_average_kl(scaled, law, 1) == pytest.approx(
        kl_privacy.on_average_kl(kl_privacy.GibbsSampler(3 * loss, 1.0), law, 1)
    )


def test_cosets_of_a_code_are_as_far_apart_as_the_code():
    """Rogers et al. Definitions 3.11 to 3.16 and Lemma 3.15, on the (7, 4) code."""
    check = np.array([[1, 0, 1, 0, 1, 0, 1], [0, 1, 1, 0, 0, 1, 1], [0, 0, 0, 1, 1, 1, 1]])
    words = np.array(list(itertools.product((0, 1), repeat=7)))
    code = words[(words @ check.T % 2 == 0).all(axis=1)]
    distance = min(int((a != b).sum()) for a, b in itertools.combinations(code, 2))
    assert (len(code), distance) == (16, 3)
    for shift in np.eye(7, dtype=int):
        coset = (code + shift) % 2
        assert {tuple(w @ check.T % 2) for w in coset} == {tuple(shift @ check.T % 2)}
        assert min(int((a != b).sum()) for a, b in itertools.combinations(coset, 2)) == distance
    ball = sum(math.comb(7, i) for i in range(2))
    assert len(code) * ball == 2**7  # the balls of radius 1 fill the space exactly


def test_the_drift_is_bounded_on_good_outcomes():
    """Rogers et al. Lemmas 3.7 and 3.8: the mean of the log-ratio, cut to good outcomes, in nats."""
    rng = np.random.default_rng(37)
    for _ in range(300):
        epsilon = rng.uniform(0.05, 0.5)
        hat = rng.uniform(0.0, epsilon / 15)
        prior = rng.dirichlet(np.ones(6))
        posterior = prior * np.exp(rng.uniform(-3 * epsilon, 3 * epsilon, 6))
        posterior = (1 - hat / 2) * posterior / posterior.sum() + hat / 2 * rng.dirichlet(np.full(6, 0.3))
        if rogers.indistinguishability(prior, posterior, 3 * epsilon) > hat:
            continue
        ratio = np.log(posterior / prior)
        good = np.abs(ratio) <= 6 * epsilon
        mean = float(np.sum(posterior[good] / posterior[good].sum() * ratio[good]))
        assert mean <= rogers.published_drift(epsilon, hat) + 1e-12
