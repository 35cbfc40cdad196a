"""The direct chain solver: quick numbers, blocks, ends, windows, zeros, and paths in disguise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import chains

import quiltdp as qd
from quiltdp.accountant.bounds.chain import ChainBound
from quiltdp.accountant.bounds.contract import ready
from quiltdp.accountant.bounds.limit import ExactBound
from quiltdp.accountant.bounds.propagation import PropagationBound
from quiltdp.inference.chains import path_of, step_spreads
from quiltdp.inference.spread import spread_of_rows

STAY = [[0.9, 0.1], [0.1, 0.9]]


def test_quick_numbers() -> None:
    chain = qd.markov_chain(STAY, length=100)
    assert 8.6404 <= 1 / qd.dp_epsilon(chain, 1.0, "chain") <= 8.654  # the prior adversary's noise is 8.64
    assert 1 / qd.dp_epsilon(chain, 1.0, "chain", adversary="prior") == pytest.approx(8.6405, abs=5e-4)
    long = ready(ChainBound, qd.markov_chain(STAY, length=1_000_000)).evaluate(np.full(1_000_000, 1e-6))
    assert long.values.max() / 1e-6 == pytest.approx(9.0, abs=1e-4)


@settings(max_examples=40)
@given(chains(max_length=5), st.sampled_from([0.05, 0.5, 2.0]))
def test_sound_and_no_worse_than_propagation(model: qd.Model, alpha: float) -> None:
    a = np.full(len(model.nodes), alpha)
    limit = ready(ExactBound, model).evaluate(a).values
    found = ready(ChainBound, model).evaluate(a).values
    assert np.all(found >= limit - 1e-7)
    assert np.all(found <= ready(PropagationBound, model).evaluate(a).values * (1 + 1e-9))


@settings(max_examples=30)
@given(chains(max_length=5, zeros=True), st.integers(0, 2**32 - 1))
def test_sound_with_zeros_and_unequal_records(model: qd.Model, seed: int) -> None:
    a = np.random.default_rng(seed).choice([0.0, 0.1, 1.0], size=len(model.nodes))
    limit = ready(ExactBound, model).evaluate(a).values
    assert np.all(ready(ChainBound, model).evaluate(a).values >= limit - 1e-7)


@settings(max_examples=30)
@given(chains(max_length=6), st.integers(2, 4), st.sampled_from([0.1, 1.0]))
def test_windows_against_the_limit(model: qd.Model, window: int, alpha: float) -> None:
    n = len(model.nodes)
    if n > 5 or window > n:
        return
    runs = [tuple(model.nodes[k : k + window]) for k in range(n - window + 1)]
    a = np.full(n, alpha)
    limit = ready(ExactBound, model, runs, max_entries=10**8).evaluate(a).values
    found = ready(ChainBound, model, window=window).evaluate(a).values
    assert np.all(found >= limit - 1e-7)
    assert found == pytest.approx(ready(ChainBound, model, runs).evaluate(a).values, rel=1e-12)


@pytest.mark.slow
def test_one_matrix_per_step_agrees_with_the_homogeneous_solver() -> None:
    one, many = qd.markov_chain(STAY, 60), qd.markov_chain([STAY] * 59, initial=[0.5, 0.5])
    rng = np.random.default_rng(0)
    for a in (np.full(60, 0.1), rng.random(60)):
        x, y = ready(ChainBound, one).evaluate(a).values, ready(ChainBound, many).evaluate(a).values
        assert x == pytest.approx(y, rel=1e-9)


def test_a_path_is_recognised_whatever_its_arrows() -> None:
    tables = {
        "B": ([], [0.4, 0.6]),
        "A": (["B"], [[0.7, 0.3], [0.2, 0.8]]),
        "C": (["B"], [[0.6, 0.4], [0.1, 0.9]]),
        "D": (["C"], [[0.9, 0.1], [0.5, 0.5]]),
    }
    m = qd.Model.from_tables(tables)
    path = path_of(m)
    assert path is not None
    assert tuple(path.nodes) in (("A", "B", "C", "D"), ("D", "C", "B", "A"))
    a = np.full(4, 0.3)
    assert np.all(ready(ChainBound, m).evaluate(a).values >= ready(ExactBound, m).evaluate(a).values - 1e-7)
    star = qd.Model.from_tables({**tables, "E": (["B"], [[0.5, 0.5], [0.1, 0.9]])})
    assert path_of(star) is None


def test_step_spreads_are_those_of_matrix_powers() -> None:
    p = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4]])
    path = path_of(qd.markov_chain(p, 40))
    assert path is not None
    found = step_spreads(path)
    for d, c in zip(found.distances, found.forward[:, 0], strict=True):
        exact = spread_of_rows(np.linalg.matrix_power(p, int(d)))
        assert exact * (1 - 1e-9) - 1e-12 <= c <= exact + 1e-9


def test_an_underflowing_power_never_looks_impossible() -> None:
    tiny = 1e-200
    p = np.array([[1 - tiny, tiny], [tiny, 1 - tiny]])
    path = path_of(qd.markov_chain(p, 6))
    assert path is not None
    assert step_spreads(path).forward[0, 0] > 900
    absorbing = qd.markov_chain([[1.0, 0.0], [0.5, 0.5]], 50, initial=[0.5, 0.5])
    found = ready(ChainBound, absorbing).evaluate(np.full(50, 0.1)).values.max()
    assert qd.attack(absorbing, 0.1).leakage <= found <= 5.0


def test_sets_with_gaps_are_above_the_limit() -> None:
    chain = qd.markov_chain(STAY, 6)
    units, a = [("X0", "X2"), ("X1", "X4"), ("X0", "X5")], np.full(6, 0.3)
    for adversary in ("informed", "prior"):
        found = qd.leakage(chain, 0.3, "chain", adversary, protect=dict(zip("abc", units, strict=True)))
        limit = qd.leakage(chain, 0.3, "exact", adversary, protect=dict(zip("abc", units, strict=True)))
        for unit in "abc":
            assert limit.per_record[unit] * (1 - 1e-9) <= found.per_record[unit] <= a.sum() + 1e-9
