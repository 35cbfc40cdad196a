"""Max-information: the exact value against all events, every bound against the exact value."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiltdp.errors import InvalidArgument
from quiltdp.generalization import MaxInformation, bayesian_dp_max_information, compose_max_information
from quiltdp.generalization.max_information import (
    approximate_dp_max_information,
    description_length_max_information,
    exact_max_information,
    max_information_from_mutual_information,
    product_dp_max_information,
    pure_dp_max_information,
)
from quiltdp.papers.rogers import (
    mutual_information,
    mutual_information_from_max_information,
    published_drift,
    rogers_theorem,
)

seeds = st.integers(0, 2**32 - 1)
betas = st.sampled_from([1e-6, 1e-3, 0.01, 0.05, 0.2, 0.5])


def random_joint(rng, rows, columns):
    table = rng.dirichlet(np.full(rows * columns, 0.5)).reshape(rows, columns)
    return table / table.sum()


def random_law(rng, n):
    return rng.dirichlet(np.full(2**n, 0.4))


def product_law(rng, n):
    law = np.ones(1)
    for _ in range(n):
        p = rng.uniform(0.05, 0.95)
        law = np.outer(law, [p, 1 - p]).ravel()
    return law


def random_dp_mechanism(rng, n, epsilon, outputs=3):
    """Return P(y | x), rows x in {0,1}^n, that is exactly epsilon-DP: an exponential mechanism."""
    points = np.array(list(itertools.product([0, 1], repeat=n)))
    # half of epsilon on the score and half on the normaliser
    score = points @ rng.uniform(-1, 1, (n, outputs)) * epsilon / 2
    weights = np.exp(score) * rng.uniform(0.1, 1, outputs)
    return weights / weights.sum(axis=1, keepdims=True)


def neighbours(n):
    for x in range(2**n):
        for i in range(n):
            yield x, x ^ (1 << i)


def dp_epsilon_of(mechanism, n):
    return max(np.log(mechanism[x] / mechanism[y]).max() for x, y in neighbours(n))


def prefix_leakages(law, mechanism, n):
    """Leakage about each record against adversaries who know the records before it."""
    joint = (law[:, None] * mechanism).reshape((2,) * n + (-1,))
    found = []
    for i in range(n):
        known = joint.sum(axis=tuple(range(i + 1, n)))  # x_0..x_i, y
        given_x = known / known.sum(axis=-1, keepdims=True)
        ratio = np.abs(np.log(np.take(given_x, 0, axis=i)) - np.log(np.take(given_x, 1, axis=i)))
        found.append(float(ratio.max()))
    return found


@settings(max_examples=40, deadline=None)
@given(seeds, betas)
def test_exact_value_is_the_maximum_over_all_events(seed, beta):
    rng = np.random.default_rng(seed)
    joint = random_joint(rng, 3, 3)
    product = np.outer(joint.sum(1), joint.sum(0)).ravel()
    best = -math.inf
    for event in range(1, 2**9):
        inside = np.array([(event >> k) & 1 for k in range(9)], bool)
        p = joint.ravel()[inside].sum()
        if p > beta:
            best = max(best, math.log((p - beta) / product[inside].sum()))
    assert exact_max_information(joint, beta).nats == pytest.approx(best, abs=1e-10)


@settings(max_examples=60, deadline=None)
@given(seeds, betas, st.integers(1, 4), st.floats(0.01, 3))
def test_pure_dp_bounds_hold(seed, beta, n, epsilon):
    rng = np.random.default_rng(seed)
    mechanism = random_dp_mechanism(rng, n, epsilon)
    true_epsilon = dp_epsilon_of(mechanism, n)
    assert true_epsilon <= epsilon + 1e-9
    joint = random_law(rng, n)[:, None] * mechanism
    assert exact_max_information(joint / joint.sum()).nats <= pure_dp_max_information(true_epsilon, n).nats
    joint = product_law(rng, n)[:, None] * mechanism
    exact = exact_max_information(joint / joint.sum(), beta).nats
    assert exact <= product_dp_max_information(true_epsilon, n, beta).nats + 1e-12


@settings(max_examples=80, deadline=None)
@given(seeds, betas, st.integers(1, 4), st.floats(0.01, 3), st.booleans())
def test_bayesian_dp_bounds_hold_for_any_joint_law(seed, beta, n, epsilon, copies):
    rng = np.random.default_rng(seed)
    law = random_law(rng, n)
    if copies:  # nearly identical records: the hard case
        law = law * 1e-3
        law[0] += 0.5
        law[-1] += 0.5
        law /= law.sum()
    mechanism = random_dp_mechanism(rng, n, epsilon)
    leakages = prefix_leakages(law, mechanism, n)
    exact = exact_max_information(law[:, None] * mechanism, beta).nats
    sharp = bayesian_dp_max_information(leakages, None, beta).nats
    repaired = bayesian_dp_max_information(max(leakages), n, beta, method="repaired").nats
    published = bayesian_dp_max_information(max(leakages), n, beta, method="published").nats
    assert exact <= sharp + 1e-12
    assert sharp <= repaired + 1e-12
    assert repaired <= published + 1e-12


@settings(max_examples=40, deadline=None)
@given(seeds, betas, st.integers(1, 4), st.floats(0.05, 1), st.floats(1e-12, 1e-4))
def test_approximate_dp_bound_holds(seed, beta, n, epsilon, delta):
    rng = np.random.default_rng(seed)
    pure = random_dp_mechanism(rng, n, epsilon)
    # with probability delta the mechanism publishes the data: (epsilon, delta)-DP
    mechanism = np.hstack([(1 - delta) * pure, delta * np.eye(2**n)])
    joint = product_law(rng, n)[:, None] * mechanism
    try:
        bound = approximate_dp_max_information(epsilon, delta, n, beta)
    except InvalidArgument:
        return  # delta too large for this beta: no bound is offered
    assert exact_max_information(joint / joint.sum(), beta).nats <= bound.nats + 1e-12


@pytest.mark.parametrize("beta", [1e-3, 0.05])
@pytest.mark.parametrize("epsilon", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("delta", [1e-30, 1e-18])
def test_sharp_approximate_constants_beat_the_published(beta, epsilon, delta):
    sharp = approximate_dp_max_information(epsilon, delta, 1000, beta)
    theirs = rogers_theorem(epsilon, delta, 1000)
    ours = approximate_dp_max_information(epsilon, delta, 1000, min(theirs.beta, 0.9))
    assert 9 * ours.nats < theirs.nats
    assert ours.nats <= sharp.nats or theirs.beta < beta


@settings(max_examples=50, deadline=None)
@given(seeds, betas)
def test_description_length(seed, beta):
    joint = random_joint(np.random.default_rng(seed), 5, 4)
    assert exact_max_information(joint, beta).nats <= description_length_max_information(2, beta).nats


@settings(max_examples=60, deadline=None)
@given(seeds, st.sampled_from([0.6, 1.0, 3.0, 20.0]))
def test_conversion_from_mutual_information(seed, factor):
    joint = random_joint(np.random.default_rng(seed), 4, 4)
    m = mutual_information(joint) / math.log(2)
    k = (m + 0.54) * (1 + factor)
    bound = max_information_from_mutual_information(m, k)
    assert exact_max_information(joint, bound.beta).nats <= bound.nats + 1e-12


@settings(max_examples=60, deadline=None)
@given(seeds, st.sampled_from([0.0, 1e-4, 1e-3, 0.01, 0.05]))
def test_conversion_to_mutual_information(seed, beta):
    joint = random_joint(np.random.default_rng(seed), 4, 3)
    exact = exact_max_information(joint, beta)
    try:
        bound = mutual_information_from_max_information(exact, alphabet=3)
    except InvalidArgument:
        return
    assert mutual_information(joint) / math.log(2) <= bound + 1e-12


@settings(max_examples=30, deadline=None)
@given(seeds, st.sampled_from([0.01, 0.1]))
def test_composition_holds_with_a_second_step_for_every_law(seed, beta):
    rng = np.random.default_rng(seed)
    n, epsilon = 3, 0.7
    law = product_law(rng, n)
    first = random_dp_mechanism(rng, n, epsilon)
    columns = []
    for y in range(first.shape[1]):  # the second mechanism is chosen by the first answer
        second = random_dp_mechanism(np.random.default_rng(rng.integers(2**32)), n, epsilon)
        columns.append(first[:, [y]] * second)
    joint = law[:, None] * np.hstack(columns)
    bound = compose_max_information(
        [product_dp_max_information(epsilon, n, beta), pure_dp_max_information(epsilon, n)]
    )
    assert bound.beta == beta
    assert exact_max_information(joint / joint.sum(), beta).nats <= bound.nats


def test_the_order_rule():
    product = product_dp_max_information(0.1, 10, 0.01)
    pure = pure_dp_max_information(0.1, 10)
    assert compose_max_information([product, pure]).laws == "product laws"
    with pytest.raises(InvalidArgument, match=r"step 2 .* may come first only"):
        compose_max_information([pure, product])
    with pytest.raises(InvalidArgument, match=r"step 2"):
        compose_max_information([bayesian_dp_max_information(0.1, 10, 0.01)] * 2)
    with pytest.raises(InvalidArgument, match="at least one"):
        compose_max_information([])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: exact_max_information([[0.5, 0.1], [0.1, 0.1]]), "sums to"),
        (lambda: exact_max_information([[0.5, 0.5]], beta=1.0), "beta"),
        (lambda: exact_max_information([[1.5, -0.5]]), "probabilities"),
        (lambda: pure_dp_max_information(-1, 3), "epsilon"),
        (lambda: pure_dp_max_information(1, 0), "n must"),
        (lambda: bayesian_dp_max_information(0.1, 10, 1.0), "beta"),
        (lambda: bayesian_dp_max_information(0.1, 10, 0.0), "pure_dp_max_information"),
        (lambda: bayesian_dp_max_information(0.1, None, 0.1), "needs n"),
        (lambda: bayesian_dp_max_information([0.1, -0.1], None, 0.1), "zero or more"),
        (lambda: bayesian_dp_max_information([0.1, 0.1], 3, 0.1), "2 epsilons"),
        (lambda: bayesian_dp_max_information(0.1, 3, 0.1, method="x"), "method"),
        (lambda: approximate_dp_max_information(0.1, 0.01, 100, 0.05), "too large"),
        (lambda: published_drift(0.3, 0.3), "ε/15"),
        (lambda: description_length_max_information(3, 0.0), "beta"),
        (lambda: max_information_from_mutual_information(1.0, 1.5), "above"),
        (
            lambda: mutual_information_from_max_information(
                MaxInformation(1.0, 0.2, "this law", "x"), alphabet=4
            ),
            "smaller β",
        ),
    ],
)
def test_out_of_range_is_refused(call, words):
    with pytest.raises(InvalidArgument, match=words):
        call()


def test_infinite_leakage_says_nothing_but_is_no_error():
    assert math.isinf(bayesian_dp_max_information([0.1, math.inf], None, 0.1).nats)


@pytest.mark.parametrize(("epsilon", "delta", "n", "beta"), [(0.1, 1e-16, 500, 0.01), (0.4, 1e-20, 100, 0.2)])
def test_approximate_dp_bound_is_the_formula_at_its_best_point(epsilon, delta, n, beta):
    best = math.inf
    for kappa in np.geomspace(1e-6, 3, 400):
        for hat in np.geomspace(delta, 1e-2, 400):
            second = 2 * hat / (1 - math.exp(-kappa))
            rest = beta - n * (2 * delta / hat + second)
            if second < 1 and rest > 0:
                t = math.sqrt(2 * math.log(1 / rest))
                c = epsilon + kappa
                best = min(best, n * (c * c / 2 - math.log(1 - second)) + c * t * math.sqrt(n))
    found = approximate_dp_max_information(epsilon, delta, n, beta).nats
    assert found == pytest.approx(best, rel=0.01)


@pytest.mark.parametrize(("m", "k", "beta"), [(0.46, 100, 0.01), (1.46, 8, 0.25)])
def test_mutual_information_conversion_by_hand(m, k, beta):
    bound = max_information_from_mutual_information(m, k)
    assert bound.beta == pytest.approx(beta)
    assert bound.beta >= beta
    assert bound.nats == pytest.approx(k * math.log(2))
