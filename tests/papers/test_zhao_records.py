"""n_*, n_# and Lemma 4 against enumeration: every quilt of a small model, every constant c on a grid."""

from __future__ import annotations

import math

import numpy as np
import pytest

import quiltdp as qd
import quiltdp.papers  # importing it registers the comparisons
from quiltdp.errors import InvalidArgument
from quiltdp.inference.influence import blanket_influence, quilt_influence
from quiltdp.papers.zhao import (
    lemma4_distances,
    lemma4_dp_epsilon,
    lemma4_leakage,
    published_deviation,
    published_n_sharp,
    published_n_star,
    published_plan,
    published_records,
)

ASKED = {"budget": 3, "sigma": 0.5, "failure": 0.05}


@pytest.fixture(scope="module")
def weak():
    """A small tree whose records hardly tell about each other."""

    def near(p):
        return [[0.5 + p, 0.5 - p], [0.5 - p, 0.5 + p]]

    return qd.Model.from_tables(
        {
            "A": ([], [0.5, 0.5]),
            "B": (["A"], near(0.005)),
            "C": (["A"], near(0.01)),
            "D": (["B"], near(0.002)),
        }
    )


def test_both_sample_sizes_on_every_quilt(weak):
    graph = qd.moralize(weak)
    blankets = [blanket_influence(weak, node) for node in weak.nodes]
    quilts = [
        [
            (len(q.nearby) + 1, quilt_influence(weak, q).b if q.separator else 0.0)
            for q in qd.quilts(graph, node)
        ]
        for node in weak.nodes
    ]
    for accuracy in (0.2, 0.5, 0.9):
        found = published_records(weak, accuracy=accuracy, **ASKED)
        star = published_n_star(accuracy=accuracy, influences=blankets, **ASKED)
        sharp = published_n_sharp(accuracy=accuracy, quilts=quilts, **ASKED)
        assert found.n_star == pytest.approx(star, rel=1e-6)
        assert found.n_sharp == pytest.approx(sharp, rel=1e-6)
        assert found.n_sharp <= found.n_star * (1 + 1e-9)


def test_a_blanket_that_tells_too_much_gives_no_n_star():
    chain = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], 400)
    found = published_records(chain, budget=1, sigma=0.5, accuracy=0.9, failure=0.1)
    assert math.isinf(found.n_star)  # 4a = 17.6 is far above τ/3
    assert math.isfinite(found.n_sharp)
    assert found.n_chain is not None
    assert found.n_chain > found.n_sharp  # Lemma 4 is looser than the quilts themselves


def test_a_quilt_whose_influence_takes_all_of_the_accuracy_is_not_used():
    """4b just above τ/3 = 0.1 while 3b is below: (8) would divide by a negative number."""
    asked = {"budget": 3, "sigma": 0.01, "accuracy": 0.3, "failure": 0.05}
    assert math.isinf(published_n_sharp(quilts=[[(1, 0.03)]], **asked))
    assert published_n_sharp(quilts=[[(1, 0.03), (4, 0.01)]], **asked) == pytest.approx(
        9 * 3 * 4 / (4 * 0.01 * (0.1 - 0.04))
    )


def test_lemma_1_needs_a_third_of_the_accuracy():
    assert published_deviation(0.0999, 0.3, 1000) == pytest.approx(4 * math.exp(-0.09 * 1000 / 9))
    assert published_deviation(0.2, 0.3, 1000, sensitivity=1 / 2000) <= 1.0
    with pytest.raises(InvalidArgument, match=r"τ/\(3nΔ\) = 0.1, not 0.101"):
        published_deviation(0.101, 0.3, 1000)


def test_the_chain_form_goes_through_lemma_4_at_a_third_of_the_accuracy():
    chain = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], 4000)
    found = published_records(chain, budget=3, sigma=0.5, accuracy=0.9, failure=0.05)
    h, _ = lemma4_dp_epsilon(0.3, gap=0.2, rho=0.5, length=4000)
    assert found.chain == pytest.approx(9 * 3 / (4 * 0.5 * h))


def test_the_first_term_is_not_the_whole():
    coins = qd.Model.from_tables({f"R{k}": ([], [0.5, 0.5]) for k in range(3)})
    found = published_records(coins, budget=5, sigma=0.01, accuracy=0.1, failure=0.05)
    assert found.first == pytest.approx(3944, abs=1)
    assert found.n_star == pytest.approx(33750)
    assert found.n_chain is None


def test_the_best_constant_is_no_worse_than_any():
    rng = np.random.default_rng(5)
    for _ in range(40):
        epsilon, gap, rho = rng.uniform(0.05, 3), rng.uniform(0.02, 1), rng.uniform(0.001, 0.5)
        best, c = lemma4_dp_epsilon(epsilon, gap=gap, rho=rho, length=10**6)
        given, _ = lemma4_dp_epsilon(epsilon, gap=gap, rho=rho, length=10**6, c=c)
        assert given == pytest.approx(best, rel=1e-9)
        for other in np.linspace(0.002, 0.165, 60):
            tried, _ = lemma4_dp_epsilon(epsilon, gap=gap, rho=rho, length=10**6, c=float(other))
            assert tried <= best * (1 + 1e-9)
        assert lemma4_leakage(best, gap=gap, rho=rho, length=10**6) <= epsilon * (1 + 1e-9)


def test_a_short_chain_is_not_covered():
    d, _ = lemma4_distances(1.0, gap=0.2, rho=0.5, c=0.1)
    assert lemma4_dp_epsilon(1.0, gap=0.2, rho=0.5, length=2 * d - 1, c=0.1)[0] == 0.0
    assert lemma4_dp_epsilon(1.0, gap=0.2, rho=0.5, length=2 * d, c=0.1)[0] > 0.0
    assert math.isinf(lemma4_leakage(0.1, gap=0.2, rho=0.5, length=2))


@pytest.mark.parametrize("c", [0.0, 1 / 6, 0.2])
def test_the_constant_of_lemma_4_has_a_range(c):
    with pytest.raises(InvalidArgument, match="1/6"):
        lemma4_distances(1.0, gap=0.2, rho=0.5, c=c)


@pytest.mark.parametrize("slack", [0.0, 1.0])
def test_the_constant_of_theorem_2_has_a_range(slack):
    with pytest.raises(InvalidArgument, match="slack"):
        published_plan(queries=10, budget=1, accuracy=0.1, failure=0.1, slack=slack)


def test_theorem_2_goes_through_theorem_1(weak):
    plan = published_plan(weak, queries=20, budget=3, accuracy=0.9, failure=0.1, slack=0.1)
    assert plan.records is not None
    inner = published_records(
        weak, budget=3, sigma=plan.sigma, accuracy=(1 - 0.1) * 0.9 / 4, failure=0.1 / 40
    )
    assert plan.records == inner
    assert plan.records.first == pytest.approx(plan.least_records)


@pytest.mark.parametrize("length", [3, 12, 61])
def test_the_middle_of_a_chain_forces_its_sample_size(length):
    """n_# asks one record of a stationary chain; every record asked gives the same."""
    for stay in (0.55, 0.7):
        chain = qd.markov_chain([[stay, 1 - stay], [1 - stay, stay]], length)
        for accuracy in (0.3, 0.9):
            found = published_records(chain, accuracy=accuracy, **ASKED)
            allowed = qd.dp_epsilon(chain, accuracy / 3, method="published")
            assert found.quilts == pytest.approx(9 * 3 / (4 * 0.5 * allowed), rel=1e-6)


def test_lemma_3_takes_four_times_the_influence_of_the_blanket():
    """ε' = min_i (ε − 4a_i), so the leakage at α is α + 4 max a_i: a_i by enumeration of a chain of three."""
    step = np.array([[0.55, 0.45], [0.4, 0.6]])
    start = np.array([0.5, 0.5])
    joint = start[:, None, None] * step[:, :, None] * step[None]
    influences = []
    for record, blanket in ((0, (1,)), (1, (0, 2)), (2, (1,))):
        rest = tuple(k for k in range(3) if k != record and k not in blanket)
        table = np.moveaxis(joint.sum(axis=rest, keepdims=True), record, 0).reshape(2, -1)
        given = table / table.sum(axis=1, keepdims=True)
        influences.append(float(np.abs(np.log(given[0] / given[1])).max()))
    chain = qd.markov_chain(step, 3, start)
    found = qd.leakage(chain, 0.01, method="published-blanket")
    assert found.epsilon == pytest.approx(0.01 + 4 * max(influences), rel=1e-9)
    assert qd.dp_epsilon(chain, 4.0, method="published-blanket") == pytest.approx(
        4.0 - 4 * max(influences), rel=1e-6
    )
    n_star = published_n_star(budget=3, sigma=0.5, accuracy=0.9, failure=0.05, influences=[0.01])
    assert n_star == pytest.approx(max(9 * math.log(80) / 0.81, 27 / (2 * (0.3 - 0.04))))


def test_lemma_4_takes_any_start():
    """The lemma asks for a homogeneous, irreducible, reversible chain, not for a stationary one."""
    step = [[0.9, 0.1], [0.2, 0.8]]
    still = qd.markov_chain(step, 400)
    moving = qd.markov_chain(step, 400, [0.99, 0.01])
    values = [qd.leakage(chain, 0.001, method="lemma4").epsilon for chain in (still, moving)]
    assert values[0] == values[1] < math.inf
    assert qd.leakage(moving, 0.001).epsilon <= values[1]
    short = qd.markov_chain([[0.52, 0.48], [0.5, 0.5]], 8, [0.9, 0.1])
    assert qd.leakage(short, 0.05, method="exact").epsilon <= qd.leakage(short, 0.05, method="lemma4").epsilon
    assert published_records(moving, budget=3, sigma=0.5, accuracy=0.9, failure=0.05).chain is not None
    with pytest.raises(InvalidArgument, match="reversible"):
        qd.leakage(
            qd.markov_chain([[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.8, 0.1, 0.1]], 9), 0.1, method="lemma4"
        )
