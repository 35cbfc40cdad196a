"""Each erratum of the source papers, shown: what is printed fails, the repair holds (docs/errata)."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

import quiltdp.generalization as g
from quiltdp import markov_chain

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
    assert [int(p[:2]) for p in pages] == list(range(1, 11))
    for page in ERRATA.glob("[0-9]*.md"):
        text = page.read_text(encoding="utf-8")
        for heading in ("## What the paper says", "## What is wrong", "## The repair", "## The test"):
            assert heading in text, (page.name, heading)
        for name in (word.strip("`.,;") for word in text.split() if "test_errata.py::" in word):
            assert name.split("::")[1] in globals(), name


def test_01_distance_of_the_chain_quilt():
    """With the s of the proof the quilt's influence is at most ε/2; without a definition it is anything."""
    epsilon = 0.6
    chain = markov_chain([[0.9, 0.1], [0.1, 0.9]], 200)
    s = g.published_chain_distance(chain, epsilon)

    def influence(distance):  # exact max-influence of the quilt {i − s, i + s} on a stationary chain
        step = np.linalg.matrix_power(np.array([[0.9, 0.1], [0.1, 0.9]]), distance)
        both = step[:, :, None] * step[:, None, :]
        return float(np.log(both[0] / both[1]).max())

    assert influence(s) <= epsilon / 2
    assert influence(max(1, s // 3)) > epsilon / 2


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
            exact = g.exact_max_information(joint / joint.sum(), beta).nats
            sharp = g.bayesian_dp_max_information(leaks, None, beta).nats
            printed = g.bayesian_dp_max_information(max(leaks), 2, beta, method="published").nats
            assert exact <= sharp + 1e-12
            assert sharp <= printed


def test_04_concentration_of_dependent_records():
    """n identical fair bits, the trivial quilt, σ ≥ 27B/4τ: Theorem 1's conditions hold, its claim fails."""
    tau, beta, budget = 0.1, 0.05, 1
    sigma = 27 * budget / (4 * tau)
    n = math.ceil(g.published_records(tau, beta))
    leakage = n * 9 * budget / (4 * sigma * n)  # (|N| + 1)·9BΔ/4σ + 4b with b = 0
    assert leakage <= tau / 3 + 1e-12
    small = markov_chain([[1.0, 0.0], [0.0, 1.0]], length=n, initial=[0.5, 0.5])
    deviation = 0.5  # |q(X) − q(P)| = ½ with certainty, for the mean of the bits
    assert deviation > tau
    assert g.published_tail(tau, n) < 1e-30
    assert g.concentration(small).tail(deviation) == 1.0
    law = g.exact_sum_law(
        markov_chain([[1.0, 0.0], [0.0, 1.0]], 40, [0.5, 0.5]), {f"X{k}": (0, 1) for k in range(40)}
    )
    assert law.tail(20) == pytest.approx(1.0)


def test_05_slips_in_the_sample_size():
    m, tau, beta = 100, 0.1, 0.05
    with_substitution = g.published_plan(queries=m, accuracy=tau, failure=beta).records_needed
    without = g.published_records(tau, beta)
    assert with_substitution == pytest.approx(144 * math.log(8 * m / beta) / tau**2)
    assert with_substitution > 16 * without  # (31)
    # (18): two failures add: disjoint events of probability p each happen with 2p, not with p
    p = 0.1
    u = (np.arange(1000) + 0.5) / 1000
    either = np.mean((u < p) | (u > 1 - p))
    assert either == pytest.approx(2 * p)
    assert either > max(p, p)
    # (35): a quilt's nearby records and the target itself: |N| + 1
    alpha = 0.2
    assert copies_leakage(2, alpha) == pytest.approx(2 * alpha)
    assert copies_leakage(2, alpha) > 1 * alpha + 1e-9
    # (38): enough for the easiest record is not enough for the hardest
    needed = {"alone": alpha, "one of five copies": copies_leakage(5, alpha)}
    assert max(needed.values()) > min(needed.values())


def test_06_divergence_without_logarithm_and_the_missing_expectation():
    p, q = np.array([0.3, 0.7]), np.array([0.6, 0.4])
    assert np.sum(p * (p / p)) == pytest.approx(1.0)  # "divergence" of a law from itself: 1 without the log
    assert np.sum(p * np.log(p / p)) == 0.0
    assert np.sum(p * np.log(p / q)) > 0
    # Lemma 14: I ≤ E D(A(Z)‖A(Z')) needs the mean over independent Z, Z'; one pair may have D = 0
    channel = np.array([[0.9, 0.1], [0.9, 0.1], [0.2, 0.8]])
    law = np.full(3, 1 / 3)
    kl = np.array([[np.sum(a * np.log(a / b)) for b in channel] for a in channel])
    mutual = g.mutual_information(law[:, None] * channel)
    assert kl[0, 1] == 0.0 < mutual
    assert mutual <= law @ kl @ law


def test_07_natural_and_binary_logarithms():
    # 72 ε² stands for 6ε(e^{6ε} − 1), which passes it between 0.20 and 0.22
    assert g.published_drift(0.20, 0.0) < 72 * 0.20**2
    assert g.published_drift(0.22, 0.0) > 72 * 0.22**2
    # |Z_i| ≤ 6ε in nats is up to 6ε/ln 2 in bits: taking it as bits understates it
    eps = 0.1
    p = np.array([math.exp(6 * eps), 1.0]) / (1 + math.exp(6 * eps))
    ratio_nats = abs(math.log(p[0] / p[1]))
    assert ratio_nats == pytest.approx(6 * eps)
    assert abs(math.log2(p[0] / p[1])) > 6 * eps * 1.4
    # Lemma A.6(1): (ε, δ)-indistinguishable does not give "p ≤ e^ε q with probability 1 − δ"
    delta = 0.01
    p, q = np.array([0.5 + delta, 0.5 - delta]), np.array([0.5, 0.5])
    assert max(total_variation_excess(p, q, 0.0), total_variation_excess(q, p, 0.0)) <= delta + 1e-15
    assert p[p > q].sum() > 50 * delta


def test_08_typical_stability():
    # two-sided McDiarmid needs its 2: one fair bit, t = ½
    assert math.exp(-2 * 0.5**2) < 1.0  # the printed γ_n, below the true probability 1
    assert g.sensitive_queries(1.0, 1).radius(0.999) > 0.5
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
    pairs = g.TypicalStability(eta, tau, 0.0, reference=True).as_pairs()
    assert true <= pairs.tau + 1e-12
    # (3): η inside the root is not Azuma's inequality: k steps of ±η deviate by η√k, not by √(ηk)
    small, k, slack = 0.01, 50, 1e-3
    inside = math.sqrt(2 * k * math.log(1 / slack) * small)
    outside = math.sqrt(2 * k * math.log(1 / slack)) * small
    assert inside > 9 * outside
    rng = np.random.default_rng(8)
    walks = np.abs((small * rng.choice([-1, 1], size=(20_000, k))).sum(axis=1))
    assert np.mean(walks > outside) <= 2 * slack


def test_08_generalization_needs_its_nu():
    size, nu = 10_000, 0.05
    gamma = math.log(size)
    truth = nu / 2  # on a share ν/2 of the datasets the output names the dataset
    printed = math.exp(-gamma) + 4 * math.exp(-gamma)
    assert truth > 40 * printed
    assert truth <= g.typical_generalization(g.TypicalStability(0.0, 0.0, nu), gamma)


def test_09_adaptive_composition_of_on_average_kl_privacy():
    first = 0.5 * np.eye(4) + 0.125
    second = [np.where(np.arange(4)[:, None] == h, [[0.9, 0.1]], [[0.1, 0.9]]) for h in range(4)]
    one, two, printed = g.adaptive_on_average_kl(first, second, [0.25] * 4, 1)
    pair = np.hstack([first[:, [h]] * second[h] for h in range(4)])
    true = g.compare_privacy_definitions(pair, [0.25] * 4, 1).on_average_kl
    assert one == pytest.approx(0.604, abs=5e-4)
    assert printed == pytest.approx(0.659, abs=5e-4)
    assert true == pytest.approx(1.592, abs=1e-3)
    assert one + printed < true  # Lemma 7 as printed
    assert one + two == pytest.approx(true, abs=1e-12)  # the chain rule


def test_10_the_monitor_has_twice_as_many_candidates():
    # one dataset: ln T = 0 would mean no loss, but the query and its complement are two candidates
    scores = np.array([0.1, -0.1])
    law = g.exponential_mechanism_law(scores, dp_epsilon=1.0, sensitivity=0.1)
    loss = scores.max() - law @ scores
    assert loss > 0.0
    assert loss <= g.exponential_mechanism_loss(2, dp_epsilon=1.0, sensitivity=0.1)
    # the last line's exponent: e^{+ε²n/8} is no probability
    assert math.exp(+(0.1**2) * 10_000 / 8) > 1 > g.iid_transfer(0.1, 0.0, 10_000)[1]
    # Lemma 0.4 replaces one record and averages: exact for statistical queries only
    m = 3
    samples = np.array(list(itertools.product([0, 1], repeat=m)))
    statistical = samples.mean(axis=1)
    assert statistical.mean() == pytest.approx(np.mean([0, 1]))
    sensitive = np.abs(2 * samples.sum(axis=1) - m) / (2 * m)  # one record moves it by at most 1/m
    single = np.mean([abs(2 * v * m - m) / (2 * m) for v in (0, 1)])
    assert sensitive.mean() != pytest.approx(single)
