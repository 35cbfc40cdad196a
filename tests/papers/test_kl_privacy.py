"""On-average KL-privacy: Theorem 4 to 1e-9, group privacy, links to information, the definitions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiltdp.errors import InvalidArgument, ModelTooWide
from quiltdp.generalization.max_information import product_dp_max_information, pure_dp_max_information
from quiltdp.papers.kl_privacy import (
    GibbsSampler,
    compose_on_average_kl,
    conditional_entropy,
    dataset_types,
    estimate_on_average_kl,
    gap_bounds_from_mutual_information,
    gibbs_generalization_gap,
    gibbs_mutual_information,
    kl_gaussian,
    kl_laplace,
    kl_privacy_from_max_information,
    max_entropy_objective,
    on_average_kl,
)
from quiltdp.papers.privacy_definitions import adaptive_on_average_kl, compare_privacy_definitions
from quiltdp.papers.rogers import mutual_information

seeds = st.integers(0, 2**32 - 1)


def random_sampler(rng, values=3, outputs=4, gamma=None):
    return GibbsSampler(
        rng.uniform(-1, 2, (values, outputs)),
        gamma if gamma is not None else float(rng.uniform(0.05, 3)),
        rng.uniform(0, 2, outputs),
    )


def full_table(sampler, n):
    values = sampler.loss.shape[0]
    counts = [np.bincount(z, minlength=values) for z in itertools.product(range(values), repeat=n)]
    return sampler.output_law(np.array(counts))


def brute_force_kl(sampler, law, n, group):
    """The definition, dataset by dataset."""
    table = np.log(full_table(sampler, n))
    values = len(law)
    datasets = list(itertools.product(range(values), repeat=n))
    place = {z: k for k, z in enumerate(datasets)}
    total = 0.0
    for z in datasets:
        for new in itertools.product(range(values), repeat=group):
            other = (*new, *z[group:])
            chance = math.prod(law[v] for v in z) * math.prod(law[v] for v in new)
            p, q = table[place[z]], table[place[other]]
            total += chance * float(np.sum(np.exp(p) * (p - q)))
    return total


@settings(max_examples=40, deadline=None)
@given(seeds, st.integers(1, 4))
def test_theorem_4_equivalence(seed, n):
    rng = np.random.default_rng(seed)
    sampler = random_sampler(rng)
    law = rng.dirichlet(np.ones(3))
    privacy = on_average_kl(sampler, law, n)
    assert abs(privacy - sampler.gamma * gibbs_generalization_gap(sampler, law, n)) < 1e-9
    if n <= 3:
        assert abs(privacy - brute_force_kl(sampler, law, n, 1)) < 1e-9


@pytest.mark.parametrize("n", [30, 100])
def test_theorem_4_equivalence_on_larger_samples(n):
    rng = np.random.default_rng(n)
    sampler, law = random_sampler(rng, gamma=0.3), np.array([0.2, 0.5, 0.3])
    assert abs(on_average_kl(sampler, law, n) - 0.3 * gibbs_generalization_gap(sampler, law, n)) < 1e-9


@settings(max_examples=25, deadline=None)
@given(seeds, st.integers(2, 4))
def test_small_group_privacy(seed, n):
    rng = np.random.default_rng(seed)
    sampler, law = random_sampler(rng), rng.dirichlet(np.ones(3))
    one = on_average_kl(sampler, law, n)
    for k in range(2, n + 1):
        assert on_average_kl(sampler, law, n, group=k) == pytest.approx(k * one, abs=1e-9)
    if n == 2:
        assert brute_force_kl(sampler, law, 2, 2) == pytest.approx(2 * one, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(seeds, st.integers(1, 4))
def test_links_to_information(seed, n):
    rng = np.random.default_rng(seed)
    sampler, law = random_sampler(rng), rng.dirichlet(np.ones(3))
    mutual = gibbs_mutual_information(sampler, law, n)
    chances = np.array([math.prod(law[v] for v in z) for z in itertools.product(range(3), repeat=n)])
    joint = chances[:, None] * full_table(sampler, n)
    assert mutual == pytest.approx(mutual_information(joint / joint.sum()), abs=1e-9)
    epsilon = on_average_kl(sampler, law, n)
    assert mutual <= n * epsilon + 1e-12  # Lemma 14 with independent Z, Z'
    gap = gibbs_generalization_gap(sampler, law, n)
    spread = float(np.ptp(sampler.loss, axis=0).max())
    low, high = gap_bounds_from_mutual_information(
        mutual, gamma=sampler.gamma, n=n, subgaussian_mean=spread / (2 * math.sqrt(n))
    )
    assert low <= gap + 1e-12
    assert gap <= high + 1e-12
    pure = pure_dp_max_information(sampler.dp_epsilon(), n)
    assert epsilon <= kl_privacy_from_max_information(pure, n) + 1e-12


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_dp_epsilon_of_the_sampler_and_the_definitions(seed):
    rng = np.random.default_rng(seed)
    n = 2
    sampler, law = random_sampler(rng), rng.dirichlet(np.ones(3))
    found = compare_privacy_definitions(full_table(sampler, n), law, n, delta=0.01)
    assert found.pure <= sampler.dp_epsilon() + 1e-12
    assert found.approximate <= found.pure + 1e-12
    assert max(found.personal) == pytest.approx(found.pure)
    assert found.kl <= found.pure + 1e-12
    assert found.total_variation <= min(math.sqrt(found.kl / 2), math.tanh(found.pure / 2)) + 1e-12
    assert found.random <= found.pure + 1e-12
    assert found.on_average_kl <= found.kl + 1e-12
    assert found.on_average_kl == pytest.approx(on_average_kl(sampler, law, n), abs=1e-9)
    assert len(found.table()) == 7


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_approximate_dp_epsilon_is_the_smallest(seed):
    rng = np.random.default_rng(seed)
    table = rng.dirichlet(np.full(4, 0.5), size=4)
    found = compare_privacy_definitions(table, [0.5, 0.5], 2, delta=0.05)

    def excess(epsilon):
        pairs = [(0, 1), (0, 2), (1, 3), (2, 3)]
        both = [*pairs, *[(b, a) for a, b in pairs]]
        return max(np.maximum(table[a] - math.exp(epsilon) * table[b], 0).sum() for a, b in both)

    assert excess(found.approximate) <= 0.05 + 1e-9
    if found.approximate > 1e-6:
        assert excess(found.approximate - 1e-6) > 0.05 - 1e-9


def test_monte_carlo_covers_the_exact_value():
    rng = np.random.default_rng(5)
    sampler, law = random_sampler(rng, gamma=0.4), np.array([0.2, 0.5, 0.3])

    def divergence(z, w):
        p, q = (sampler.log_output_law(np.bincount(d, minlength=3)) for d in (z, w))
        return float(np.sum(np.exp(p) * (p - q)))

    found = estimate_on_average_kl(
        divergence, lambda rng, size: rng.choice(3, size, p=law), 8, samples=4000, rng=rng
    )
    low, high = found.interval(4)
    assert low < on_average_kl(sampler, law, 8) < high
    assert found.standard_error < 0.1 * found.value


def test_chain_rule_of_adaptive_composition():
    rng = np.random.default_rng(1)
    law = rng.dirichlet(np.ones(3))
    first = rng.dirichlet(np.ones(2), size=9)
    second = [rng.dirichlet(np.ones(3), size=9) for _ in range(2)]
    one, two, _ = adaptive_on_average_kl(first, second, law, 2)
    pair = np.hstack([first[:, [h]] * second[h] for h in range(2)])
    assert one + two == pytest.approx(compare_privacy_definitions(pair, law, 2).on_average_kl, abs=1e-12)
    # chosen beforehand: plain addition
    side_by_side = np.hstack([first[:, [h]] * second[0] for h in range(2)])
    both = compare_privacy_definitions(side_by_side, law, 2).on_average_kl
    single = compare_privacy_definitions(second[0], law, 2).on_average_kl
    assert compose_on_average_kl([one, single]) == pytest.approx(both, abs=1e-9)


def test_noise_divergences_against_quadrature():
    from scipy.integrate import quad
    from scipy.stats import laplace, norm

    for shift, scale in [(0.3, 1.0), (2.0, 0.7)]:
        for law, closed in ((laplace, kl_laplace), (norm, kl_gaussian)):
            value, _ = quad(
                lambda x, law=law, s=shift, b=scale: (
                    law.pdf(x, 0, b) * (law.logpdf(x, 0, b) - law.logpdf(x, s, b))
                ),
                -30,
                30,
                points=[0, shift],
                limit=200,
            )
            assert closed(shift, scale) == pytest.approx(value, abs=1e-7)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: GibbsSampler([1.0, 2.0], 1), "matrix"),
        (lambda: GibbsSampler([[1.0, 2.0]], 0), "gamma"),
        (lambda: GibbsSampler([[1.0, 2.0]], 1, [1.0]), "regulariser"),
        (lambda: on_average_kl(GibbsSampler([[1.0], [2.0]], 1), [0.5, 0.6], 2), "sum"),
        (lambda: on_average_kl(GibbsSampler([[1.0], [2.0]], 1), [0.5, 0.5], 2, group=3), "group"),
        (lambda: on_average_kl(GibbsSampler([[1.0], [2.0]], 1), [1.0], 2), "law"),
        (lambda: compose_on_average_kl([]), "at least one"),
        (lambda: compose_on_average_kl([-1.0]), "epsilon"),
        (lambda: kl_privacy_from_max_information(product_dp_max_information(0.1, 5, 0.1), 5), "β = 0"),
        (lambda: compare_privacy_definitions([[1.0]], [0.5, 0.5], 2), "rows"),
        (lambda: compare_privacy_definitions([[0.5, 0.4]] * 2, [0.5, 0.5], 1), "row 0"),
        (lambda: adaptive_on_average_kl([[1.0]] * 2, [], [0.5, 0.5], 1), "each of 1 first"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(InvalidArgument, match=words):
        call()


def test_too_many_datasets_are_refused_before_they_are_built():
    sampler = GibbsSampler(np.zeros((12, 2)), 1)
    with pytest.raises(ModelTooWide, match="estimate_on_average_kl"):
        on_average_kl(sampler, np.full(12, 1 / 12), 200)


def every_dataset(size, n):
    return list(itertools.product(range(size), repeat=n))


def test_conditional_entropy_by_enumeration():
    """Definition 8 over ordered datasets, one by one."""
    rng = np.random.default_rng(80)
    loss, law = rng.random((3, 4)), rng.dirichlet(np.ones(3))
    sampler = GibbsSampler(loss, 1.3, rng.random(4))
    total = 0.0
    for data in every_dataset(3, 3):
        p = sampler.output_law(np.bincount(data, minlength=3))
        total -= math.prod(law[v] for v in data) * float(np.sum(p * np.log(p)))
    assert conditional_entropy(sampler, law, 3) == pytest.approx(total, rel=1e-12)
    # H(A(Z)) = H(A(Z)|Z) + I(A(Z); Z)
    counts, chance = dataset_types(law, 3)
    overall = chance @ sampler.output_law(counts)
    entropy = -float(np.sum(overall * np.log(overall)))
    assert entropy == pytest.approx(
        conditional_entropy(sampler, law, 3) + gibbs_mutual_information(sampler, law, 3), rel=1e-12
    )


def test_the_sampler_minimises_the_objective():
    """Theorem 9: no other mechanism, near or far, has a smaller −H/γ + E Σ ℓ."""
    rng = np.random.default_rng(90)
    sampler = GibbsSampler(rng.random((3, 4)), 0.8)
    law = rng.dirichlet(np.ones(3))
    best = sampler.output_law(dataset_types(law, 3)[0])
    least = max_entropy_objective(sampler, law, 3, best)
    for share in (0.01, 0.3, 1.0):
        for _ in range(30):
            other = (1 - share) * best + share * rng.dirichlet(np.full(4, 0.5), size=len(best))
            assert max_entropy_objective(sampler, law, 3, other) >= least - 1e-12
    with pytest.raises(InvalidArgument, match="rows"):
        max_entropy_objective(sampler, law, 3, best[:2])


def test_subexponential_half_of_corollary_15():
    """A loss with exponential tails: (σ, b) is read off E e^{t(L − R)}, the gap stays below b I + σ²/2b."""
    rng = np.random.default_rng(15)
    values = np.arange(6)  # a geometric loss: one record, one loss per output shifted
    law = 0.5 ** (values + 1)
    law /= law.sum()
    for gamma in (0.05, 0.2, 0.6):
        loss = np.stack([values * w for w in rng.uniform(0.2, 1.0, 5)], axis=1).astype(float)
        sampler = GibbsSampler(loss, gamma)
        gap = gibbs_generalization_gap(sampler, law, 1)
        mutual = gibbs_mutual_information(sampler, law, 1)
        b = 2.0
        t = np.linspace(-1 / b, 1 / b, 201)
        t = t[np.abs(t) > 1e-9]
        centred = loss - law @ loss
        sigma = max(
            math.sqrt(max(2 * math.log(law @ np.exp(x * centred[:, h])) / x**2, 0.0))
            for h in range(5)
            for x in t
        )
        low, high = gap_bounds_from_mutual_information(
            mutual, gamma=gamma, n=1, subgaussian_mean=sigma, subexponential_scale=b
        )
        assert low - 1e-12 <= gap <= high + 1e-12


def test_random_privacy_leaves_out_delta_two():
    """Table 1: the last column of Rand-Privacy is D_∞^{δ₂}."""
    rng = np.random.default_rng(1)
    table = rng.dirichlet(np.full(6, 0.3), size=4)
    plain, spared = (
        compare_privacy_definitions(table, [0.5, 0.5], 2, delta=0.05, random_delta=d) for d in (0.0, 0.05)
    )
    assert spared.random < plain.random
    assert max(spared.personal_approximate) == pytest.approx(spared.approximate)
    assert all(a <= b for a, b in zip(spared.personal_approximate, spared.personal, strict=True))
    tight = compare_privacy_definitions(
        table, [0.5, 0.5], 2, delta=0.05, random_delta=0.05, confidence=1 - 1e-12
    )
    assert tight.random == pytest.approx(tight.approximate)
