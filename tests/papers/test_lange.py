"""The newest published bound on chains (Lange et al. 2025): sound, and never below ours."""

from __future__ import annotations

import math

import numpy as np
import pytest

import quiltdp as qd
import quiltdp.papers  # importing it registers the comparisons
from quiltdp.errors import NoCertificate


@pytest.mark.parametrize("seed", range(6))
def test_between_the_exact_limit_and_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.dirichlet(np.full(2, 3.0), size=2) * 0.9 + 0.05
    chain = qd.markov_chain(matrix, 4)
    gamma = matrix.max() / matrix.min()
    for alpha in (0.05, 0.5, 2.0):
        theirs = qd.leakage(chain, alpha, method="lange").epsilon
        assert theirs == pytest.approx(alpha + 4 * math.log(gamma), rel=1e-9)
        assert qd.leakage(chain, alpha, method="exact").epsilon <= theirs


@pytest.mark.parametrize("states", [2, 3])
@pytest.mark.parametrize("length", [3, 70, 5000])
def test_ours_is_never_above(states: int, length: int) -> None:
    rng = np.random.default_rng(states)
    for _ in range(3):
        chain = qd.markov_chain(rng.dirichlet(np.full(states, 4.0), size=states) * 0.8 + 0.2 / states, length)
        for alpha in (0.01, 0.3, 3.0):
            theirs = qd.leakage(chain, alpha, method="lange").epsilon
            assert qd.leakage(chain, alpha).epsilon <= theirs * (1 + 1e-9)


def test_it_says_nothing_below_its_constant() -> None:
    chain = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], 100)  # 4 ln 9 = 8.79
    assert qd.dp_epsilon(chain, 9.0, method="lange") == pytest.approx(9 - 4 * math.log(9), rel=1e-6)
    with pytest.raises(NoCertificate):
        qd.dp_epsilon(chain, 8.0, method="lange")
    assert qd.dp_epsilon(chain, 8.0) > 1.0
    impossible = qd.markov_chain([[0.5, 0.5], [1.0, 0.0]], 10)
    assert math.isinf(qd.leakage(impossible, 0.1, method="lange").epsilon)
