"""Chains known up to a box: no member may exceed what is said about all of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiltdp import markov_chain
from quiltdp.accountant.bounds.chain import ChainBound
from quiltdp.accountant.bounds.chain_contraction import ContractionBound, SetChainBound
from quiltdp.accountant.bounds.contract import ready
from quiltdp.errors import InvalidArgument, InvalidModel, ModelTooWide
from quiltdp.inference.uncertain import SetChain, set_chain_spreads


def box(size: int, seed: int, width: float) -> tuple[np.random.Generator, SetChain]:
    rng = np.random.default_rng(seed)
    centre = rng.dirichlet(np.ones(size), size=size)
    return rng, SetChain(np.maximum(centre * (1 - width), 0), np.minimum(centre * (1 + width) + width / 9, 1))


def member(rng: np.random.Generator, chain: SetChain) -> np.ndarray:
    """Return a matrix of the box: corners first, then whatever keeps the sum at 1."""
    p = np.array(chain.lower)
    for row, top in zip(p, chain.upper, strict=True):
        for k in rng.permutation(len(row)):
            row[k] += min(top[k] - row[k], 1 - row.sum())
    return p


def spread(table: np.ndarray) -> float:
    logs = np.log(table)
    return max(
        logs[a, z] + logs[b, w] - logs[b, z] - logs[a, w]
        for a in range(len(logs))
        for b in range(len(logs))
        for z in range(logs.shape[1])
        for w in range(logs.shape[1])
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.05, 0.3]))
def test_no_member_spreads_further(size: int, seed: int, width: float) -> None:
    rng, chain = box(size, seed, width)
    distances, spreads = set_chain_spreads(chain, 5)
    for _ in range(4):
        table = np.eye(size)
        for d, c in zip(distances, spreads, strict=True):
            table = table @ member(rng, chain)  # another matrix at every step
            assert spread(table) <= c + 1e-9, (d, c)


def test_a_box_of_one_matrix_is_exact() -> None:
    p = np.array([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4], [0.25, 0.25, 0.5]])
    _, spreads = set_chain_spreads(SetChain(p, p), 4)
    for d, c in enumerate(spreads, start=1):
        assert c == pytest.approx(spread(np.linalg.matrix_power(p, d)), abs=1e-9)


def test_entries_are_the_true_extremes() -> None:
    """For two states the extremes of a two-step table are found by a fine search."""
    low, high = np.array([[0.6, 0.2], [0.1, 0.7]]), np.array([[0.8, 0.4], [0.3, 0.9]])
    _, spreads = set_chain_spreads(SetChain(low, high), 1)
    best = 0.0
    for a in np.linspace(0.6, 0.8, 21):
        for b in np.linspace(0.1, 0.3, 21):
            best = max(best, spread(np.array([[a, 1 - a], [b, 1 - b]])))
    assert spreads[0] >= best
    assert spreads[0] == pytest.approx(best, abs=1e-9)


def test_possible_zeros_are_infinite_until_paths_cover_them() -> None:
    low = np.array([[0.5, 0.4, 0.0], [0.3, 0.3, 0.3], [0.0, 0.4, 0.5]])
    _, spreads = set_chain_spreads(SetChain(low, np.minimum(low + 0.1, 1)), 3)
    assert np.isinf(spreads[0])
    assert np.isfinite(spreads[1:]).all()
    _, never = set_chain_spreads(SetChain(np.zeros((2, 2)), np.ones((2, 2))), 3)
    assert np.isinf(never).all()
    # a cycle of three with one shortcut reaches everything in five steps, not before
    low = np.array([[0.0, 0.9, 0.0], [0.0, 0.0, 0.9], [0.4, 0.4, 0.0]])
    distances, late = set_chain_spreads(SetChain(low, np.minimum(low + 0.2, 1)), 8)
    reached = [np.linalg.matrix_power((low > 0).astype(int), d).all() for d in distances]
    assert np.isfinite(late).tolist() == reached
    assert 4 <= reached.index(True) + 1 <= 8


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 4), st.integers(0, 2**32 - 1), st.floats(0.01, 1.0), st.integers(1, 4))
def test_no_member_leaks_more(size: int, seed: int, alpha: float, window: int) -> None:
    rng, chain = box(size, seed, 0.1)
    length = 12
    bound = SetChainBound(chain, [length], window=window, max_distance=6)
    said = bound.evaluate(np.full(length, alpha)).values[0]
    for _ in range(3):
        model = markov_chain(member(rng, chain), length=length, initial="uniform")
        units = [tuple(model.nodes[k : k + window]) for k in range(length - window + 1)]
        truth = ready(ChainBound, model, units).evaluate(np.full(length, alpha)).values.max()
        assert truth <= said * (1 + 1e-9)
    assert said <= length * alpha * (1 + 1e-9)


def test_one_matrix_gives_the_chain_solver_back() -> None:
    p = np.array([[0.9, 0.1], [0.1, 0.9]])
    model = markov_chain(p, length=100)
    ours = SetChainBound(SetChain(p, p), [100, 3, 1]).evaluate(np.full(1, 0.1)).values
    chain = ready(ContractionBound, model).evaluate(np.full(100, 0.1)).values.max()
    assert ours[0] == pytest.approx(chain, rel=1e-6)
    assert ours[2] == pytest.approx(0.1)


def test_refusals() -> None:
    half = np.full((2, 2), 0.5)
    for low, high, said in [
        (half, np.full((3, 3), 0.5), "shapes"),
        (half, half - 0.1, "lower ≤ upper"),
        (half + 0.1, half + 0.2, "row 0 holds no distribution"),
    ]:
        with pytest.raises(InvalidModel, match=said):
            SetChain(low, high)
    with pytest.raises(ModelTooWide, match="2 states cost 64 operations"):
        set_chain_spreads(SetChain(half, half), max_work=7)
    for lengths, window, said in [([], 1, "at least one step"), ([3], 0, "window")]:
        with pytest.raises(InvalidArgument, match=said):
            SetChainBound(SetChain(half, half), lengths, window=window)
    with pytest.raises(InvalidArgument, match="same dp_epsilon"):
        SetChainBound(SetChain(half, half), [2]).evaluate(np.array([0.1, 0.2]))
    assert half in SetChain(half, half)
    assert half + 0.1 not in SetChain(half, half)
