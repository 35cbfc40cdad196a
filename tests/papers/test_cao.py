"""Temporal privacy leakage of Cao et al.: from their formula, and beside the project's own numbers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.papers.cao import largest_temporal_leakage, temporal_leakage, temporal_loss

ALPHA = 0.1


def by_enumeration(table, leakage):
    """L(α) over every set of columns, for every pair of rows."""
    sets = [
        list(s) for k in range(table.shape[1] + 1) for s in itertools.combinations(range(table.shape[1]), k)
    ]
    x = math.expm1(leakage)
    return max(
        math.log((q[s].sum() * x + 1) / (d[s].sum() * x + 1)) for q in table for d in table for s in sets
    )


@pytest.mark.parametrize("seed", range(6))
def test_the_loss_is_the_maximum_over_all_sets(seed):
    rng = np.random.default_rng(seed)
    table = rng.dirichlet(np.full(5, 0.5), 5)
    table[0, :2] = 0.0
    table /= table.sum(axis=1, keepdims=True)
    for leakage in (0.0, 0.1, 2.0, 30.0):
        assert temporal_loss(table, leakage) == pytest.approx(by_enumeration(table, leakage), abs=1e-12)
    assert temporal_loss(table, 1.0) <= 1.0


@pytest.mark.parametrize(("stay", "supremum"), [(0.8, 0.39754), (0.9, 0.87244), (0.99, 4.60599)])
def test_two_states_leak_what_ours_says(stay, supremum):
    """On two states their set and our coupling meet: the same number to six digits."""
    step = np.array([[stay, 1 - stay], [1 - stay, stay]])
    assert largest_temporal_leakage(step, step, ALPHA) == pytest.approx(supremum, abs=6e-6)
    chain = qd.markov_chain(step, length=41)
    theirs = temporal_leakage(chain.segments[0], ALPHA)
    ours = qd.leakage(chain, ALPHA, adversary="prior").per_record
    assert [ours[node] for node in chain.nodes] == pytest.approx(theirs, rel=2e-5)
    assert theirs.max() == theirs[20] <= supremum + 1e-5


def test_a_chain_that_never_forgets_leaks_without_end():
    still = np.eye(2)
    assert math.isinf(largest_temporal_leakage(still, still, ALPHA))
    assert temporal_leakage(qd.markov_chain(still, 5, [0.5, 0.5]).segments[0], ALPHA) == pytest.approx(
        np.full(5, 0.5)
    )


@pytest.mark.parametrize("seed", range(3))
def test_ten_random_states_leak_more_by_their_formula(seed):
    step = np.random.default_rng(seed).dirichlet(np.ones(10), 10)
    chain = qd.markov_chain(step, length=25)
    theirs = temporal_leakage(chain.segments[0], ALPHA)
    ours = qd.leakage(chain, ALPHA, adversary="prior").per_record
    assert theirs[12] > 1.3 * ours[chain.nodes[12]]
    assert all(t >= ours[node] for t, node in zip(theirs, chain.nodes, strict=True))


def test_an_unequal_start_has_its_own_backward_transitions():
    """P(x_0 | x_1) by Bayes' rule, at the first step, by hand."""
    step, start = np.array([[0.7, 0.3], [0.2, 0.8]]), np.array([0.9, 0.1])
    found = temporal_leakage(qd.markov_chain(step, 2, start).segments[0], ALPHA)
    joint = start[:, None] * step
    back = (joint / joint.sum(axis=0)).T
    assert found == pytest.approx([ALPHA + temporal_loss(step, ALPHA), ALPHA + temporal_loss(back, ALPHA)])
