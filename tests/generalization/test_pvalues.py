"""Corrected p-values: formulas, inverses, validity on exact joint laws, and an adaptive analyst."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quiltdp as qd
from quiltdp.accountant.ledger import Terms
from quiltdp.cli.pvalues import ledger_transcripts
from quiltdp.errors import InvalidArgument
from quiltdp.generalization import (
    MaxInformation,
    bayesian_dp_max_information,
    correct_p_values,
    thresholdout_transcripts,
)
from quiltdp.generalization.max_information import description_length_max_information, exact_max_information
from quiltdp.generalization.pvalues import (
    Transcripts,
    either_bound,
    threshold_from_max_information,
    threshold_from_mutual_information,
)
from quiltdp.generalization.routes import grid_answers
from quiltdp.mechanisms import InsecureDeterministicNoise
from quiltdp.papers.rogers import mutual_information, p_value_sensitivity

METHODS = ("sharp", "max-information", "published", "russo-zou")


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.02, 0.05, 0.1, 0.3]),
    st.sampled_from([0.0, 0.01, 0.05]),
)
def test_correction_is_valid_on_exact_joint_laws(seed, alpha, beta):
    """An analysis chooses one of several nulls; count exactly how often the chosen one is rejected."""
    rng = np.random.default_rng(seed)
    points, tests = 8, 3
    law = rng.dirichlet(np.ones(points))
    choice = rng.dirichlet(np.full(tests, 0.3), size=points)
    joint = law[:, None] * choice
    joint /= joint.sum()
    p = np.empty((points, tests))  # exact p-values of a statistic that ranks the datasets
    for t in range(tests):
        order = rng.permutation(points)
        p[order, t] = np.cumsum(joint.sum(axis=1)[order])
    p = np.clip(p, 0, 1)
    bound = exact_max_information(joint, beta)
    corrected = correct_p_values(p, max_information=bound)
    assert joint[corrected <= alpha].sum() <= alpha + 1e-9
    assert joint[p <= threshold_from_max_information(alpha, bound)].sum() <= alpha + 1e-9
    bits = mutual_information(joint) / math.log(2)
    for method in METHODS:
        gamma = threshold_from_mutual_information(alpha, bits, method=method)
        assert joint[p <= gamma].sum() <= alpha + 1e-9
        level = correct_p_values(p, mutual_bits=bits, method=method)
        assert joint[level <= alpha].sum() <= alpha + 1e-9
        assert (level >= p).all()


@pytest.mark.parametrize("m", [0.0, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.3])
def test_methods_are_ordered_and_the_best_k_is_best(m, alpha):
    gamma = {k: threshold_from_mutual_information(alpha, m, method=k) for k in METHODS}
    assert all(0 <= g <= alpha for g in gamma.values())
    assert gamma["sharp"] >= max(gamma.values())
    assert gamma["max-information"] >= gamma["published"]
    total = m + 0.54
    for k in np.geomspace(total / alpha * 1.001, 50 * total / alpha, 200):
        assert (alpha - total / k) * 2.0**-k <= gamma["max-information"] * (1 + 1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_correction_inverts_the_threshold(method):
    for p in (1e-9, 1e-5, 1e-3):
        level = float(correct_p_values([p], mutual_bits=0.5, method=method)[0])
        if level < 1:
            assert threshold_from_mutual_information(level, 0.5, method=method) >= p
            assert threshold_from_mutual_information(level * (1 - 1e-6), 0.5, method=method) < p * (1 + 1e-6)


def test_adaptive_analyst_breaks_raw_p_values_and_not_the_corrected_ones():
    """Pick the most correlated of 64 pure-noise features, then test it on the same data."""
    from scipy.stats import norm

    rng = np.random.default_rng(20170)
    n, features, rounds, alpha = 200, 64, 1500, 0.05
    chosen = np.empty(rounds)
    for r in range(rounds):
        data = rng.standard_normal((n, features))
        outcome = rng.choice([-1.0, 1.0], n)
        statistic = (outcome @ data) / math.sqrt(n)
        chosen[r] = statistic[np.argmax(statistic)]
    raw = norm.sf(chosen)
    assert np.mean(raw <= alpha) > 0.9  # the null is true: this should be 0.05
    # "which feature" is 6 bits of description
    bound = description_length_max_information(math.log2(features), beta=alpha / 4)
    corrected = correct_p_values(raw, max_information=bound)
    assert np.mean(corrected <= alpha) <= alpha
    # and the correction is not vacuous: a real effect is still found
    assert correct_p_values([1e-9], max_information=bound)[0] < alpha


def test_private_selection_on_a_chain_needs_the_leakage_not_the_dp_epsilon():
    """Records that copy each other: an analysis that looks 0-leaky by i.i.d. rules is not."""
    n, alpha_dp = 50, 0.05
    # the records are n copies of one fair bit: eps-DP noise on the mean reveals it at n * eps
    shift = np.exp(np.array([0.0, n * alpha_dp]))
    channel = np.array([[shift[1], shift[0]], [shift[0], shift[1]]]) / shift.sum()
    joint = channel / 2
    beta = 0.01
    exact = exact_max_information(joint, beta).nats
    leakage = math.log(channel[0, 0] / channel[0, 1])
    # knowing the first record leaves nothing to learn: prefix leakages are (leakage, 0, 0, …)
    ours = bayesian_dp_max_information([leakage] + [0.0] * (n - 1), n, beta).nats
    assert exact <= ours
    gamma = threshold_from_max_information(0.05, MaxInformation(ours, beta, "this law", "model"))
    assert 0 < gamma < 0.05


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: correct_p_values([0.5]), "exactly one"),
        (lambda: correct_p_values([1.5], mutual_bits=1), "probabilities"),
        (lambda: correct_p_values([math.nan], mutual_bits=1), "probabilities"),
        (lambda: correct_p_values([0.5], mutual_bits=-1), "mutual_bits"),
        (lambda: threshold_from_mutual_information(1.5, 1.0), "alpha"),
        (lambda: threshold_from_mutual_information(0.5, 1.0, method="x"), "method"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(InvalidArgument, match=words):
        call()


@pytest.mark.parametrize("size", [4, 20, 100])
@pytest.mark.parametrize("alpha", [0.3, 0.6])
def test_sharp_correction_is_attained(size, alpha):
    """Data and choice agree with probability α, else anything: the best γ is exactly the chance level."""
    joint = np.full((size, size), (1 - alpha) / (size * (size - 1)))
    np.fill_diagonal(joint, alpha / size)
    bits = mutual_information(joint) / math.log(2)
    gamma = threshold_from_mutual_information(alpha, bits)
    assert gamma == pytest.approx(1 / size, rel=1e-6)
    assert gamma <= 1 / size
    level = correct_p_values([1 / size], mutual_bits=bits)[0]
    assert level == pytest.approx(alpha, rel=1e-6)
    assert level >= alpha


def test_no_p_value_has_low_sensitivity():
    """Lemma B.1 on the sign test: its p-value moves by more than 0.37/√n with one record."""
    for n in (25, 100, 400):
        heads = np.arange(n + 1)
        chances = [math.comb(n, int(k)) / 2**n for k in heads]
        tail = np.cumsum(chances[::-1])[::-1]
        floor = p_value_sensitivity(n)
        assert floor == pytest.approx(0.3737 / math.sqrt(n), rel=1e-3)
        assert np.abs(np.diff(tail)).max() > floor
    with pytest.raises(InvalidArgument, match="level"):
        p_value_sensitivity(10, 0.6)


# -- transcripts of a holdout -------------------------------------------------------------------


@pytest.mark.parametrize(("resolution", "rarely"), [(1.0, 1.0), (0.5, 3.0), (0.5, 0.4)])
def test_weights_of_all_transcripts_sum_to_one_wherever_the_analyst_stops(resolution, rarely):
    """Stop after each of the first steps at random: the places are leaves of a tree, their weights add up."""
    rng = np.random.default_rng(0)
    symbols = grid_answers(resolution) + 2

    def leaves(asked, answers):
        if asked == 7 or rng.random() < 0.2:
            yield math.exp(-thresholdout_transcripts(asked, answers, resolution, rarely=rarely).nats)
            return
        yield from leaves(asked + 1, answers)
        yield symbols * math.fsum(leaves(asked + 1, answers + 1))  # the same below each of the answers

    assert math.fsum(leaves(0, 0)) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_corrected_p_values_of_an_adaptive_analyst_are_valid(seed):
    """Run a holdout on all data sets, equally likely, with the same noise; ask and stop by the answers.

    For each transcript y the analyst then picks the true null that looks worst: its exact p-value ranks all
    data sets, those that lead to y first.
    """
    rows = 8
    spec = qd.Thresholdout(budget=3, sensitivity=1 / rows)
    terms = Terms(spec, 0.02, 100.0, spec.dp_epsilon(0.02), 0.0, "informed", "test", "f" * 64)
    train = {name: np.full(rows, 0.01) for name in ("x", *(f"b{k}" for k in range(rows)))}
    seen: Counter[tuple[object, ...]] = Counter()
    corrected, raw = [], []
    for bits in itertools.product((0.0, 1.0), repeat=rows):
        fresh = {"x": np.array(bits), **{f"b{k}": np.full(rows, b) for k, b in enumerate(bits)}}
        options = {"resolution": 0.25, "queries": 9, "noise": InsecureDeterministicNoise(seed)}
        study = qd.ReusableHoldout(train, fresh, terms, 0.3, ":memory:", **options)
        said = [study.ask("x").value]
        while len(said) < 5 and said[-1] != 0.5:  # a stop that depends on the answers
            said.append(study.ask(f"b{(2 * len(said) + (said[-1] > 0.5)) % rows}").value)
            if said[-1] is None:
                break
        seen[tuple(said)] += 1
        bound = ledger_transcripts(study.ledger)
        asked = sum(entry.count for entry in study.ledger.entries())
        expected = thresholdout_transcripts(asked, study.ledger.head.answers, 0.25, rarely=9 / 3)
        assert bound == expected  # of which only what was asked and answered depends on the run
        raw.append(seen[tuple(said)] / 2**rows)
        corrected.append(bound.event_probability(raw[-1]))
    for level in np.unique(corrected):
        assert np.mean(np.array(corrected) <= level) <= level
    assert len(seen) > 5
    assert np.mean(np.array(raw) <= 0.05) > 0.2  # without a correction


def test_two_kinds_of_bounds_share_the_level():
    """The better of two corrections may be wrong twice as often as either."""
    first, second = (Transcripts(nats, "x") for nats in (1.0, 2.0))
    (half, _) = either_bound([first], [second])
    assert half.event_probability(1e-3) == pytest.approx(2 * first.event_probability(1e-3))
    beta = either_bound([MaxInformation(0.0, b, "this law", "x") for b in (0.1, 0.5)], [])
    assert [b.event_probability(1e-3) for b in beta] == pytest.approx([0.202])


def test_what_cannot_be_counted_is_refused():
    for bad in ({"requests": 1, "answers": 2}, {"requests": -1, "answers": 0}):
        with pytest.raises(InvalidArgument):
            thresholdout_transcripts(**bad, resolution=0.1)
    with pytest.raises(InvalidArgument):
        thresholdout_transcripts(3, 1, 0.0)
