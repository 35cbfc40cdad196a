"""Each erratum of the source papers, shown: what is printed fails, the repair holds (docs/errata)."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from quiltdp import dp_epsilon, markov_chain
from quiltdp.errors import InvalidArgument
from quiltdp.generalization import max_information, pvalues
from quiltdp.generalization.concentration import concentration
from quiltdp.generalization.sum_law import sum_law
from quiltdp.papers import monitor, privacy_definitions, rogers, typical_stability, zhao
from quiltdp.papers.zhao import lemma4_distances, lemma4_dp_epsilon

ERRATA = Path(__file__).parents[2] / "docs" / "errata"


def total_variation_excess(p, q, eta):
    """The smallest τ with p ≤ e^η q + τ."""
    return float(np.maximum(p - math.exp(eta) * q, 0).sum())


def copies_leakage(n, alpha):
    """Leakage about one of n identical bits when their sum is released with Laplace noise 1/α."""
    outputs = np.linspace(-5, n + 5, 2001)
    return float(np.max(alpha * (np.abs(outputs) - np.abs(outputs - n))))


def test_there_is_a_page_for_each():
    pages = sorted(p.name for p in ERRATA.glob("[0-9]*.md"))
    assert [int(p[:2]) for p in pages] == list(range(1, 14))
    for page in ERRATA.glob("[0-9]*.md"):
        text = page.read_text(encoding="utf-8")
        for heading in ("## What the paper says", "## What is wrong", "## The repair", "## The test"):
            assert heading in text, (page.name, heading)
        for name in (word.strip("`.,;") for word in text.split() if "test_errata.py::" in word):
            assert name.split("::")[1] in globals(), name


def test_01_distance_of_the_chain_quilt():
    """(11): with the s defined after (33) the ends of the chain keep within ε, with the unused t not."""
    epsilon, c, gap, rho = 0.6, 0.1, 0.2, 0.5
    d, s = lemma4_distances(epsilon, gap=gap, rho=rho, c=c)
    t = math.floor(math.log(1 / rho) / gap)
    h, _ = lemma4_dp_epsilon(epsilon, gap=gap, rho=rho, length=200, c=c)
    assert h == min((1 - 6 * c) * epsilon / (2 * d - 1), (1 / 3 - 2 * c) * epsilon / (d + s))
    assert h == (1 / 3 - 2 * c) * epsilon / (d + s)  # 3(d + s) > 2d − 1: always the second term

    def influence(distance):  # exact max-influence of the one-sided quilt {i + distance}
        step = np.linalg.matrix_power(np.array([[0.9, 0.1], [0.1, 0.9]]), distance)
        return float(np.log(step[0] / step[1]).max())

    # an end record: up to d − 1 records on the short side, s − 1 on the other, itself; Lemma 2 with 4b
    assert influence(s) <= epsilon / 6
    assert (d + s - 1) * h + 4 * influence(s) <= epsilon
    assert math.exp(-gap * t) / rho >= 1  # the spectral bound says nothing at t
    assert 4 * influence(t) > epsilon
    # the middle: {i − d, i + d} has 2d − 1 records inside, its target included
    inside = [k for k in range(100 - d, 100 + d + 1) if abs(k - 100) < d]
    assert len(inside) == 2 * d - 1


def test_02_leakage_is_a_maximum_over_records_of_a_minimum_over_quilts():
    n, alpha = 6, 0.3
    true = copies_leakage(n, alpha)
    printed = (alpha - 4 * 0.0) / n  # trivial quilt: |N| + 1 = n, b = 0
    repaired = n * alpha + 4 * 0.0
    assert true > 5 * printed
    assert true <= repaired + 1e-12


def test_03_logarithm_out_of_an_expectation():
    """E ln X ≤ ln E X: the step goes the wrong way; the claim of Theorem 3 holds all the same."""
    rng = np.random.default_rng(3)
    x = rng.lognormal(sigma=1.0, size=1000)
    assert np.log(x).mean() < math.log(x.mean())
    for _ in range(50):
        law = rng.dirichlet(np.full(4, 0.3))
        channel = rng.dirichlet(np.ones(3), size=4)
        joint = law[:, None] * channel
        leaks = []
        for i in range(2):  # adversaries who know the records before i
            known = joint.reshape(2, 2, 3).sum(axis=tuple(range(i + 1, 2)))
            given = known / known.sum(axis=-1, keepdims=True)
            leaks.append(float(np.abs(np.diff(np.log(given), axis=i)).max()))
        for beta in (0.01, 0.2):
            exact = max_information.exact_max_information(joint / joint.sum(), beta).nats
            sharp = max_information.bayesian_dp_max_information(leaks, None, beta).nats
            printed = max_information.bayesian_dp_max_information(
                max(leaks), 2, beta, method="published"
            ).nats
            assert exact <= sharp + 1e-12
            assert sharp <= printed


def test_04_concentration_of_dependent_records():
    """n identical fair bits, the trivial quilt, σ ≥ 27B/4τ: Theorem 1's conditions hold, its claim fails."""
    tau, beta, budget = 0.1, 0.05, 1
    sigma = 27 * budget / (4 * tau)
    n = math.ceil(zhao.published_n_star(budget=budget, sigma=1e9, accuracy=tau, failure=beta))
    leakage = n * 9 * budget / (4 * sigma * n)  # (|N| + 1)·9BΔ/4σ + 4b with b = 0
    assert leakage <= tau / 3 + 1e-12
    trivial = [[(n, 0.0)]]  # the quilt without a separator: everything nearby, b = 0
    assert n >= zhao.published_n_sharp(
        budget=budget, sigma=sigma, accuracy=tau, failure=beta, quilts=trivial
    ) * (1 - 1e-9)
    small = markov_chain([[1.0, 0.0], [0.0, 1.0]], length=n, initial=[0.5, 0.5])
    deviation = 0.5  # |q(X) − q(P)| = ½ with certainty, for the mean of the bits
    assert deviation > tau
    assert zhao.published_tail(tau, n) < 1e-8
    assert zhao.published_deviation(leakage * (1 - 1e-9), tau, n) <= beta
    assert concentration(small).tail(deviation) == 1.0
    law = sum_law(
        markov_chain([[1.0, 0.0], [0.0, 1.0]], 40, [0.5, 0.5]), {f"X{k}": (0, 1) for k in range(40)}
    )
    assert law.tail(20) == pytest.approx(1.0)


def test_05_slips_in_the_sample_size():
    m, tau, beta, c = 100, 0.1, 0.05, 0.1
    # (31): its first term without the substitution, and with it
    printed = 9 * math.log(4 / beta) / tau**2
    with_it = zhao.published_plan(queries=m, budget=5, accuracy=tau, failure=beta, slack=c).least_records
    assert with_it == pytest.approx(144 * math.log(8 * m / beta) / ((1 - c) ** 2 * tau**2))
    assert with_it > 16 * printed
    # (18): the two events on the right hand side, exactly, at Theorem 2's σ and T; they are independent
    sigma, x, y = (1 - c) * tau / (12 * math.log(4 * m / beta)), (1 - c) * tau / 4, (3 + c) * tau / 4
    answers = 1 - (1 - math.exp(-y / (4 * sigma))) ** m
    comparisons = 1 - (1 - (2 * math.exp(-x / (2 * sigma)) - math.exp(-x / sigma))) ** m
    either = 1 - (1 - answers) * (1 - comparisons)
    assert either > max(answers, comparisons)
    assert either <= answers + comparisons
    assert beta / 4 + beta / 2 == pytest.approx(3 * beta / 4)  # what (27) should read


def printed_38(tau, c, gap, rho):
    first = (2 / gap * math.log(12 / (c * tau)) + 2 / gap * math.log(1 / tau) + 1) / ((1 - 6 * c) * tau / 3)
    second = (math.log(12 / (c * tau)) / gap + 2 * math.log(1 / tau) / gap + 1 + math.log(72 / rho) / gap) / (
        (1 / 3 - 2 * c) * tau / 3
    )
    return min(first, second)


def repaired_38(tau, c, gap, rho):
    first = (2 / gap * math.log(12 / (c * tau)) + 2 / gap * math.log(1 / rho) + 1) / ((1 - 6 * c) * tau / 3)
    second = (math.log(12 / (c * tau)) / gap + math.log(72 / tau) / gap + 2 * math.log(1 / rho) / gap + 2) / (
        (1 / 3 - 2 * c) * tau / 3
    )
    return max(first, second)


def test_05_slips_in_the_markov_chain_form():
    """(35) and (38) at ε = τ/3: the printed bounds fall below what they bound, the repaired ones do not."""
    fell_35 = fell_38 = 0
    for tau, gap, rho, c in itertools.product(
        (0.05, 0.3, 1.0), (0.05, 0.3, 0.9), (0.4, 1e-2, 1e-6), (0.05, 0.15)
    ):
        epsilon = tau / 3
        d, s = lemma4_distances(epsilon, gap=gap, rho=rho, c=c)
        printed_35 = (math.log(1 + 2 / math.expm1(epsilon / 6)) + math.log(1 / rho)) / gap
        fell_35 += s > printed_35
        assert s <= printed_35 + 1
        h = min((1 - 6 * c) * epsilon / (2 * d - 1), (1 / 3 - 2 * c) * epsilon / (d + s))
        fell_38 += 1 / h > printed_38(tau, c, gap, rho)
        assert 1 / h <= repaired_38(tau, c, gap, rho)
    assert fell_35 == fell_38 == 54  # everywhere


def test_06_divergence_without_logarithm_and_the_missing_expectation():
    p, q = np.array([0.3, 0.7]), np.array([0.6, 0.4])
    assert np.sum(p * (p / p)) == pytest.approx(1.0)  # "divergence" of a law from itself: 1 without the log
    assert np.sum(p * np.log(p / p)) == 0.0
    assert np.sum(p * np.log(p / q)) > 0
    # Lemma 14: I ≤ E D(A(Z)‖A(Z')) needs the mean over independent Z, Z'; one pair may have D = 0
    channel = np.array([[0.9, 0.1], [0.9, 0.1], [0.2, 0.8]])
    law = np.full(3, 1 / 3)
    kl = np.array([[np.sum(a * np.log(a / b)) for b in channel] for a in channel])
    mutual = rogers.mutual_information(law[:, None] * channel)
    assert kl[0, 1] == 0.0 < mutual
    assert mutual <= law @ kl @ law


def test_07_natural_and_binary_logarithms():
    # 72 ε² stands for 6ε(e^{6ε} − 1), which passes it between 0.20 and 0.22
    assert rogers.published_drift(0.20, 0.0) < 72 * 0.20**2 <= rogers.printed_drift(0.20, 0.0)
    assert rogers.published_drift(0.22, 0.0) > 72 * 0.22**2 * (1 - 1e-12)
    assert rogers.published_drift(0.22, 0.0) > rogers.printed_drift(0.22, 0.0)
    # Theorem 3.1's k, read in bits as the paper reads it, is below what its proof gives in nats
    found = rogers.rogers_theorem(0.1, 1e-20, 1000)
    assert found.printed * math.log(2) < found.nats
    # Lemma A.6(1): X = Z uniform on 8 values has 3 bits, yet the product has 7/8 where the joint has nothing
    joint = np.eye(8) / 8
    product = np.full((8, 8), 1 / 64)
    assert max_information.exact_max_information(joint).bits == pytest.approx(3.0)
    assert rogers.indistinguishability(joint, product, 3 * math.log(2)) == pytest.approx(7 / 8)
    assert product[joint == 0].sum() == pytest.approx(7 / 8)
    # the half that holds, on random laws: indistinguishable gives max-information
    rng = np.random.default_rng(7)
    for _ in range(50):
        table = rng.dirichlet(np.full(12, 0.3)).reshape(3, 4)
        apart = np.outer(table.sum(axis=1), table.sum(axis=0))
        for k in (0.1, 0.5, 1.0):
            delta = rogers.indistinguishability(table, apart, k)
            if delta < 1:
                assert max_information.exact_max_information(table, delta).nats <= k + 1e-9


def test_08_typical_stability():
    # two-sided McDiarmid needs its 2: one fair bit, t = ½
    assert math.exp(-2 * 0.5**2) < 1.0  # the printed γ_n, below the true probability 1
    assert typical_stability.sensitive_queries(1.0, 1).radius(0.999) > 0.5
    # "(2η, 3τ, 2ν)" needs η ≤ ln 2
    eta, tau = 2.0, 0.01
    r = np.array([tau, 1 - tau])
    q = np.array([0.0, 1.0])
    p = np.array([tau + math.exp(eta) * tau, 1 - tau - math.exp(eta) * tau])
    for law in (p, q):
        assert total_variation_excess(law, r, eta) <= tau + 1e-15
        assert total_variation_excess(r, law, eta) <= tau + 1e-15
    true = total_variation_excess(p, q, 2 * eta)
    assert true > 3 * tau * 2
    pairs = typical_stability.TypicalStability(eta, tau, 0.0, reference=True).as_pairs()
    assert true <= pairs.tau + 1e-12
    # (3): η inside the root is not Azuma's inequality: k steps of ±η deviate by η√k, not by √(ηk)
    small, k, slack = 0.01, 50, 1e-3
    inside = math.sqrt(2 * k * math.log(1 / slack) * small)
    outside = math.sqrt(2 * k * math.log(1 / slack)) * small
    assert inside > 9 * outside
    rng = np.random.default_rng(8)
    walks = np.abs((small * rng.choice([-1, 1], size=(20_000, k))).sum(axis=1))
    assert np.mean(walks > outside) <= 2 * slack


def test_08_generalization_assumes_its_nu():
    """Theorem 2.7 has ν = e^{−γ}; with a larger ν it is refused, and it would be false."""
    size = 10_000
    gamma = math.log(size)
    named = 0.025  # on this share of the datasets the output names the dataset: (0, 0, 2 · 0.025)-stable
    too_much = typical_stability.TypicalStability(0.0, 0.0, 2 * named)
    assert named > 40 * (math.exp(-gamma) + 4 * math.exp(-gamma))
    assert named <= typical_stability.typical_generalization(too_much, gamma)
    with pytest.raises(InvalidArgument, match="nu"):
        typical_stability.typical_generalization(too_much, gamma, method="published")
    allowed = typical_stability.TypicalStability(0.0, 0.0, math.exp(-gamma))
    assert typical_stability.typical_generalization(allowed, gamma, method="published") == pytest.approx(
        5 / size
    )
    # the proof of Lemma 2.6: with P[Y ∈ S] ≥ 1 − ν the 4 becomes 4.02; with √(1 − ν) it is below 2.5
    eta, nu = 1 - 1e-9, 0.1 - 1e-9
    assert math.exp(eta) * (1 / (1 - nu) - 1) + nu > 4.02 * nu
    assert math.exp(eta) * (1 / math.sqrt(1 - nu) - 1) + nu < 2.5 * nu


def test_09_adaptive_composition_of_on_average_kl_privacy():
    first = 0.5 * np.eye(4) + 0.125
    second = [np.where(np.arange(4)[:, None] == h, [[0.9, 0.1]], [[0.1, 0.9]]) for h in range(4)]
    one, two, printed = privacy_definitions.adaptive_on_average_kl(first, second, [0.25] * 4, 1)
    pair = np.hstack([first[:, [h]] * second[h] for h in range(4)])
    true = privacy_definitions.compare_privacy_definitions(pair, [0.25] * 4, 1).on_average_kl
    assert one == pytest.approx(0.604, abs=5e-4)
    assert printed == pytest.approx(0.659, abs=5e-4)
    assert true == pytest.approx(1.592, abs=1e-3)
    assert one + printed < true  # Lemma 7 as printed
    assert one + two == pytest.approx(true, abs=1e-12)  # the chain rule


def test_10_the_monitor_has_twice_as_many_candidates():
    # one dataset: ln T = 0 would mean no loss, but the query and its complement are two candidates
    scores = np.array([0.1, -0.1])
    law = monitor.exponential_mechanism_law(scores, dp_epsilon=1.0, sensitivity=0.1)
    loss = scores.max() - law @ scores
    assert loss > 0.0
    assert loss <= monitor.exponential_mechanism_loss(2, dp_epsilon=1.0, sensitivity=0.1)
    # the last line's exponent: e^{+ε²n/8} is no probability
    assert math.exp(+(0.1**2) * 10_000 / 8) > 1 > monitor.iid_transfer(0.1, 0.0, 10_000)[1]
    # Lemma 0.4 replaces one record and averages: exact for statistical queries only
    m = 3
    samples = np.array(list(itertools.product([0, 1], repeat=m)))
    statistical = samples.mean(axis=1)
    assert statistical.mean() == pytest.approx(np.mean([0, 1]))
    sensitive = np.abs(2 * samples.sum(axis=1) - m) / (2 * m)  # one record moves it by at most 1/m
    single = np.mean([abs(2 * v * m - m) / (2 * m) for v in (0, 1)])
    assert sensitive.mean() != pytest.approx(single)


def test_10_the_bound_survives_with_all_candidates():
    """What a Monitor with T = ⌈1/p⌉ datasets finds, over the whole range: above what privacy allows."""
    for n, share, portion in itertools.product((768, 5000, 10**6), (0.0, 0.3, 1.0), (0.0, 0.2, 1.0)):
        least = math.sqrt(12 / n)
        eps = least + share * (1 / 8 - least)
        delta = portion * eps / 16
        p = max(4 * delta / eps, math.exp(-(eps**2) * n / 8))
        if p < 1e-300:
            continue
        datasets = math.ceil(1 / p)
        found = 6 * eps * -math.expm1(datasets * math.log1p(-p))
        loss = monitor.exponential_mechanism_loss(2 * datasets, dp_epsilon=eps, sensitivity=1 / n)
        assert found - loss > monitor.monitor_ceiling(2 * eps, delta, datasets)


def test_11_records_the_lower_bound_needs():
    corner = rogers.printed_reconstruction(n=1000, dp_epsilon=0.5, delta=0.25)
    assert corner.needs == pytest.approx(64 * math.e)
    small = rogers.printed_reconstruction(n=200, dp_epsilon=0.1, delta=0.01)  # n > 64e, as printed
    assert 64 * math.e < 200
    assert small.needs == pytest.approx(16 * math.e * math.log2(100) / 0.1)
    assert small.answer_chance > 1 > 2 * 0.01  # (17) says nothing
    assert small.published_bits > 200  # the code would need more check bits than the data have
    assert (corner.code_needs, small.code_needs) == (985, 23_164)
    repaired = rogers.printed_reconstruction(n=2890, dp_epsilon=0.1, delta=0.01)
    assert math.ceil(repaired.published_bits) == 18_367
    for n in (23_163, 23_164):
        r = rogers.printed_reconstruction(n=n, dp_epsilon=0.1, delta=0.01).published_bits
        assert (r <= n) == (n == 23_164)
    for eps, delta in itertools.product((0.5, 0.2, 0.05), (0.25, 0.05, 1e-4)):
        needed = rogers.printed_reconstruction(n=10, dp_epsilon=eps, delta=delta).needs
        enough = rogers.printed_reconstruction(n=math.ceil(needed) + 1, dp_epsilon=eps, delta=delta)
        assert enough.answer_chance <= 2 * delta  # (19)


def test_12_bits_against_nats_in_the_comparison():
    alpha = 0.05

    def theirs(mutual_nats):  # the bound on Russo and Zou's correction, line 822
        return min(alpha / 2, 0.5 * math.exp(-mutual_nats / alpha**2))

    def corollary(mutual_bits):
        return pvalues.threshold_from_mutual_information(alpha, mutual_bits, method="published")

    m = 0.05
    assert corollary(m) > theirs(m)  # as printed: one m for bits and for nats
    assert corollary(m) < theirs(m * math.log(2)) / 200  # both in bits
    crossing = (26.9219 - 1) / 360
    assert crossing == pytest.approx(0.072, abs=1e-4)
    assert corollary(crossing * 1.01) > theirs(crossing * 1.01 * math.log(2))
    assert corollary(crossing * 0.99) < theirs(crossing * 0.99 * math.log(2))
    for bits in (0.01, 0.05, 0.2, 1.0):  # the sharp form is better than both
        ours = pvalues.threshold_from_mutual_information(alpha, bits)
        assert ours > corollary(bits)
        assert ours >= pvalues.threshold_from_mutual_information(alpha, bits, method="russo-zou")
    # line 822: γ_RZ ≤ α/2 does not follow, γ_RZ < α does
    for level, mutual_nats in itertools.product((0.05, 0.3), (1e-9, 1e-6, 1e-4)):
        bits = mutual_nats / math.log(2)
        largest = pvalues.threshold_from_mutual_information(level, bits, method="russo-zou")
        assert 0.8 * level < largest < level
        assert largest + math.sqrt(mutual_nats / math.log(1 / (2 * largest))) <= level


def test_13_lemmas_2_and_3_are_implications():
    """n copies of a fair bit: the first record through randomized response is ε-Bayesian DP, not ε/n-DP."""
    n, epsilon = 5, 1.0
    copies = markov_chain([[1.0, 0.0], [0.0, 1.0]], n, [0.5, 0.5])
    allowed = dp_epsilon(copies, epsilon, method="published")
    assert allowed == pytest.approx(epsilon / n)
    right = 1 / (1 + math.exp(-epsilon))
    says = {bit: (right if bit else 1 - right) for bit in (0, 1)}  # P[answer 1 | first record]
    possible = [(0,) * n, (1,) * n]
    leaked = max(abs(math.log(says[a[0]] / says[b[0]])) for a in possible for b in possible)
    cost = abs(math.log(says[1] / says[0]))  # neighbours that differ in the first record
    assert leaked == pytest.approx(epsilon)  # ε-Bayesian DP for every record: all change together
    assert cost == pytest.approx(epsilon)
    assert cost > allowed * (n - 1)
