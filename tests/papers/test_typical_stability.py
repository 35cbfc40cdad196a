"""Typical stability: calibration against exact profiles, composition and generalization by enumeration."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import bayesian_networks

from quiltdp import Model, markov_chain
from quiltdp.errors import InvalidArgument
from quiltdp.generalization import concentration
from quiltdp.generalization.sum_law import sum_law
from quiltdp.mechanisms import gaussian_delta
from quiltdp.papers.typical_stability import (
    TypicalStability,
    compose_typical,
    compose_typical_adaptively,
    compose_typical_adaptively_approximate,
    concentrated_queries,
    exact_sum_query,
    gaussian_typical,
    laplace_typical,
    model_queries,
    near_independence,
    published_gaussian_error,
    sensitive_queries,
    subexponential_queries,
    subgaussian_queries,
    typical_generalization,
)

seeds = st.integers(0, 2**32 - 1)


def indistinguishable(p, q, eta):
    """The smallest τ with p ≤ e^η q + τ and the other way round."""
    return max(np.maximum(p - math.exp(eta) * q, 0).sum(), np.maximum(q - math.exp(eta) * p, 0).sum())


@settings(max_examples=40, deadline=None)
@given(bayesian_networks(max_nodes=5, max_states=3, max_joint=200, latents=False), st.floats(0.01, 0.9))
def test_exact_radius_is_valid_and_smallest(model, chance):
    weights = {n: tuple(range(len(model.states[n]))) for n in model.records}
    law = sum_law(model, weights)
    radius = exact_sum_query(model, weights).radius(chance)
    distance = np.abs(law.values - law.mean)
    assert law.chances[distance > radius].sum() <= chance + 1e-9
    smaller = distance[distance < radius * (1 - 1e-6) - 1e-6]
    if smaller.size:
        assert law.chances[distance > smaller.max() + 1e-9].sum() > chance * (1 - 1e-6)


def test_classes_agree_on_what_they_share():
    n = 50
    independent = Model.from_tables({f"R{k}": ([], [0.5, 0.5]) for k in range(n)})
    for p in (0.3, 0.01):
        mcdiarmid = sensitive_queries(1 / n, n).radius(p)
        assert model_queries(independent).radius(p) == pytest.approx(mcdiarmid)
        assert subgaussian_queries(1 / (2 * math.sqrt(n))).radius(p) == pytest.approx(mcdiarmid)
        tail = concentration(independent).tail
        assert concentrated_queries(tail).radius(p) == pytest.approx(mcdiarmid, rel=1e-6)
        assert subexponential_queries(0.1, 1e-9).radius(p) == subgaussian_queries(0.1).radius(p)


@pytest.mark.parametrize("eta", [0.1, 1.0, 5.0])
def test_laplace_noise_is_exactly_eta(eta):
    noise = laplace_typical(subgaussian_queries(1.0), eta=eta, nu=0.02)
    assert 2 * noise.radius / noise.scale <= eta
    assert 2 * noise.radius / noise.scale == pytest.approx(eta)
    assert noise.reference.eta == pytest.approx(noise.radius / noise.scale)


@pytest.mark.parametrize("eta", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("tau", [1e-2, 1e-6])
def test_gaussian_noise_meets_its_profile_and_is_not_wasteful(eta, tau):
    noise = gaussian_typical(subgaussian_queries(1.0), eta=eta, tau=tau, nu=0.02)
    assert gaussian_delta(eta, 2 * noise.radius / noise.scale) <= tau
    assert gaussian_delta(eta, 2.001 * noise.radius / noise.scale) > tau
    assert gaussian_delta(noise.reference.eta, noise.radius / noise.scale) <= noise.reference.tau * (1 + 1e-9)


def test_published_gaussian_noise_is_refused_where_it_fails():
    with pytest.raises(InvalidArgument, match="analytic"):
        gaussian_typical(subgaussian_queries(1.0), eta=8.0, tau=0.01, nu=0.02, method="published")


def random_step(rng, weights, eta, nu, outputs=3):
    """One mechanism: rows close to a reference, except on a set of datasets of mass at most nu."""
    reference = rng.dirichlet(np.ones(outputs))
    table = np.empty((len(weights), outputs))
    for x in range(len(weights)):
        tilt = reference * np.exp(rng.choice([-0.5, 0.5], outputs) * eta)
        table[x] = tilt / tilt.sum()
    order = rng.permutation(len(weights))
    mass = np.cumsum(weights[order])
    for x in order[mass <= nu]:
        table[x] = np.eye(outputs)[rng.integers(outputs)]
    return table, reference


def run_adaptively(rng, weights, k, eta, nu):
    """Law of all answers for each dataset, and of the references, with fresh mechanisms per history."""
    rows, reference = np.ones((len(weights), 1)), np.ones(1)
    for _ in range(k):
        new_rows, new_reference = [], []
        for h in range(len(reference)):
            table, ref = random_step(rng, weights, eta, nu)
            new_rows.append(rows[:, [h]] * table)
            new_reference.append(reference[h] * ref)
        rows, reference = np.hstack(new_rows), np.concatenate(new_reference)
    return rows, reference


@settings(max_examples=25, deadline=None)
@given(seeds, st.sampled_from([0.05, 0.3, 1.0]), st.integers(1, 4))
def test_adaptive_composition_holds(seed, eta, k):
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(60, 0.05))
    nu = 1e-4
    rows, reference = run_adaptively(rng, weights, k, eta, nu)
    step = TypicalStability(eta, 0.0, nu, reference=True)
    for whole in (
        compose_typical_adaptively(step, k, slack=1e-4),
        compose_typical_adaptively(step, k, slack=1e-4, method="published"),
        compose_typical_adaptively_approximate(step, k),
        compose_typical_adaptively_approximate(step, k, slack=1e-4),
    ):
        far = [indistinguishable(row, reference, whole.eta) > whole.tau + 1e-12 for row in rows]
        assert weights[np.array(far)].sum() <= whole.nu + 1e-12


@settings(max_examples=40, deadline=None)
@given(seeds, st.floats(0.05, 1.5), st.floats(0, 0.2))
def test_reference_form_becomes_pairs(seed, eta, tau):
    rng = np.random.default_rng(seed)
    reference = rng.dirichlet(np.ones(4))
    made = []
    for _ in range(2):
        tilt = reference * np.exp(rng.choice([-0.5, 0.5], 4) * eta)
        made.append((1 - tau) * tilt / tilt.sum() + tau * np.eye(4)[rng.integers(4)])
    true_tau = max(indistinguishable(p, reference, eta) for p in made)
    pairs = TypicalStability(eta, true_tau, 0.0, reference=True).as_pairs()
    assert indistinguishable(made[0], made[1], pairs.eta) <= pairs.tau + 1e-12
    if eta <= math.log(2):
        assert pairs.tau <= 3 * true_tau + 1e-12


@settings(max_examples=40, deadline=None)
@given(seeds, st.sampled_from([0.1, 0.5, 0.9]), st.sampled_from([0.001, 0.05]))
def test_generalization_bound_holds(seed, eta, nu):
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(80, 0.3))
    table, _ = random_step(rng, weights, eta, nu / 2, outputs=5)
    chance = 0.02
    worst = 0.0
    for y in range(5):  # the worst bad event: for each output, the datasets that favour it most
        order = np.argsort(-table[:, y])
        bad = order[np.cumsum(weights[order]) <= chance]
        worst += float(weights[bad] @ table[bad, y])
    gamma = -math.log(chance)
    for stability in (
        TypicalStability(eta, 0.0, nu / 2, reference=True),
        TypicalStability(2 * eta, 0.0, nu),
    ):
        assert worst <= typical_generalization(stability, gamma) + 1e-12
    if 2 * eta < 1 and nu <= chance:
        assert worst <= typical_generalization(TypicalStability(2 * eta, 0.0, nu), gamma, method="published")


def test_a_rota_that_alternates_needs_far_less_noise_than_group_privacy():
    """The mean of an almost alternating chain is known in advance: releasing it reveals little."""
    n, eta, nu = 1000, 1.0, 0.01
    rota = markov_chain([[0.01, 0.99], [0.99, 0.01]], n)
    queries = exact_sum_query(rota, dict.fromkeys(rota.nodes, (0, 1)), scale=1 / n)
    noise = laplace_typical(queries, eta=eta, nu=nu)
    assert noise.scale < 0.011
    # calibrating Bayesian DP at the same ε = 1 to the informed chain bound gives 0.09, see the docs
    independent = laplace_typical(sensitive_queries(1 / n, n), eta=eta, nu=nu)
    assert noise.scale < independent.scale / 7


def test_non_adaptive_composition_adds():
    steps = [TypicalStability(0.1, 0.01, 0.02), TypicalStability(0.2, 0.0, 0.03)]
    whole = compose_typical(steps)
    assert (whole.eta, whole.tau, whole.nu) == pytest.approx((0.3, 0.01, 0.05))
    assert whole.post_process() is whole
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(30))
    tables = [random_step(rng, weights, 0.2, 0.05) for _ in range(2)]
    rows = np.array([np.outer(tables[0][0][x], tables[1][0][x]).ravel() for x in range(30)])
    reference = np.outer(tables[0][1], tables[1][1]).ravel()
    both = compose_typical([TypicalStability(0.2, 0.0, 0.05, reference=True)] * 2)
    far = [indistinguishable(r, reference, both.eta) > both.tau + 1e-12 for r in rows]
    assert weights[np.array(far)].sum() <= both.nu


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: laplace_typical(subgaussian_queries(1.0), eta=0.0, nu=0.1), "eta"),
        (lambda: laplace_typical(subgaussian_queries(1.0), eta=1.0, nu=1.0), "nu"),
        (lambda: subgaussian_queries(-1.0), "std"),
        (lambda: sensitive_queries(1.0, 0), "n must"),
        (lambda: concentrated_queries(lambda t: 0.5).radius(0.1), "tail"),
        (lambda: TypicalStability(-0.1, 0, 0), "eta"),
        (lambda: compose_typical([]), "at least one"),
        (lambda: compose_typical([TypicalStability(1, 0, 0), TypicalStability(1, 0, 0, True)]), "one form"),
        (lambda: compose_typical_adaptively(TypicalStability(1, 0, 0), 2, slack=0.1), "reference form"),
        (
            lambda: compose_typical_adaptively(TypicalStability(1, 0.1, 0, True), 2, slack=0.1),
            "approximate",
        ),
        (lambda: compose_typical_adaptively_approximate(TypicalStability(1, 0, 0), 2), "reference"),
        (lambda: typical_generalization(TypicalStability(1.5, 0, 0), 3, method="published"), "sharp"),
        (lambda: typical_generalization(TypicalStability(0.5, 0, 0.05), 7, method="published"), "sharp"),
        (lambda: typical_generalization(TypicalStability(0.5, 0, 0.05), 7, method="x"), "method"),
    ],
)
def test_out_of_range_is_refused(call, words):
    with pytest.raises(InvalidArgument, match=words):
        call()


def test_published_generalization_is_for_its_own_nu_only():
    """A mechanism may name the dataset on a share ν of them: beyond ν = e^{−γ} the bound would be false."""
    size = 10_000
    nu = 0.05
    # uniform data; on a share ν/2 the output is the dataset itself, else a constant
    wrong = nu / 2  # "the output names the data" happens exactly there, and has chance 1/size per output
    gamma = math.log(size)
    printed = math.exp(0 - gamma) + 4 * math.exp(-gamma)
    assert wrong > 40 * printed
    assert wrong <= typical_generalization(TypicalStability(0.0, 0.0, nu), gamma)


def test_histories_multiply():
    rng = np.random.default_rng(3)
    rows, reference = run_adaptively(rng, np.full(4, 0.25), 2, 0.5, 0.0)
    assert rows.shape == (4, 9)
    assert rows.sum(axis=1) == pytest.approx(1)
    assert reference.sum() == pytest.approx(1)


def test_error_of_the_noise():
    """Theorems 4.2 and 4.4: the noise stays within its error except with the stated probability."""
    rng = np.random.default_rng(42)
    queries = subgaussian_queries(1.0)
    laplace = laplace_typical(queries, eta=0.5, nu=0.04)
    gaussian = gaussian_typical(queries, eta=0.5, tau=1e-3, nu=0.04)
    for beta in (0.3, 0.05):
        far = np.abs(rng.laplace(scale=laplace.scale, size=200_000)) > laplace.error(beta)
        assert far.mean() == pytest.approx(beta, rel=0.05)
        far = np.abs(rng.normal(scale=gaussian.scale, size=200_000)) > gaussian.error(beta)
        assert far.mean() == pytest.approx(beta, rel=0.05)
        published = gaussian_typical(queries, eta=0.5, tau=1e-3, nu=0.04, method="published")
        printed = published_gaussian_error(published.radius, eta=0.5, tau=1e-3, failure=beta)
        assert gaussian.error(beta) < published.error(beta) < printed


def test_near_independence_on_random_mechanisms():
    """Lemma 2.6(2) by enumeration: the worst event is {joint > e^η product}, whatever it is."""
    rng = np.random.default_rng(26)
    for _ in range(60):
        size = int(rng.integers(8, 40))
        law = rng.dirichlet(np.full(size, 2.0))
        eta = rng.uniform(0.1, 0.99)
        base = rng.dirichlet(np.ones(4))
        rows = np.array([base * np.exp(rng.uniform(-eta / 4, eta / 4, 4)) for _ in range(size)])
        rows /= rows.sum(axis=1, keepdims=True)
        odd = rng.random(size) < 0.02
        rows[odd] = rng.dirichlet(np.full(4, 0.2), size=int(odd.sum()))
        typical = 1 - law[odd].sum()
        nu = 1 - typical**2
        if nu >= 0.1:
            continue
        joint = law[:, None] * rows
        product = np.outer(law, law @ rows)
        stability = TypicalStability(eta, 0.0, nu)
        for level in (eta, 0.5 * eta, 0.0):
            event = joint > math.exp(level) * product
            assert joint[event].sum() <= near_independence(stability, product[event].sum()) + 1e-12


def test_near_independence_has_a_range():
    with pytest.raises(InvalidArgument, match="eta"):
        near_independence(TypicalStability(1.0, 0.0, 0.01), 0.1)
    with pytest.raises(InvalidArgument, match="nu"):
        near_independence(TypicalStability(0.5, 0.0, 0.1), 0.1)


def test_published_approximate_composition_is_looser_and_refuses():
    step = TypicalStability(0.05, 1e-8, 1e-12, reference=True)
    ours = compose_typical_adaptively_approximate(step, 10, slack=1e-9)
    theirs = compose_typical_adaptively_approximate(step, 10, slack=1e-9, method="published")
    assert theirs.eta > ours.eta
    assert theirs.tau > ours.tau
    with pytest.raises(InvalidArgument, match="slack"):
        compose_typical_adaptively_approximate(step, 10, method="published")
    with pytest.raises(InvalidArgument, match="below 1"):
        compose_typical_adaptively_approximate(
            TypicalStability(0.01, 0.1, 0.0, reference=True), 2, slack=0.1, method="published"
        )
