"""Nodes with one possible value, against the joint."""

from __future__ import annotations

import loopy
import numpy as np
import pytest

import quiltdp as qd
from quiltdp.inference.spread import determined_nodes


@pytest.mark.parametrize("seed", range(30))
def test_none_is_wrong(seed: int) -> None:
    model = loopy.loopy(seed, sorted(loopy.SHAPES)[seed % len(loopy.SHAPES)], "zeros", states=3)
    table = loopy.joint(model)
    assert table is not None
    for n in determined_nodes(model):
        k = model.index[n]
        margin = table.sum(axis=tuple(j for j in range(table.ndim) if j != k))
        assert (margin > 0).sum() == 1


def test_what_follows_from_a_certain_node_is_found() -> None:
    copy = [[1.0, 0.0], [0.0, 1.0]]
    tables = {"A": ([], [0.0, 1.0]), "B": (["A"], copy), "C": (["B"], [[0.5, 0.5], [0.2, 0.8]])}
    assert determined_nodes(qd.Model.from_tables(tables)) == {"A", "B"}


def test_chains_that_start_from_a_known_state() -> None:
    steps = [np.array([[0.0, 1.0], [0.5, 0.5]]), *[np.array([[0.9, 0.1], [0.2, 0.8]])] * 8]
    assert determined_nodes(qd.markov_chain(steps, length=10, initial=[1.0, 0.0])) == {"X0", "X1"}
    assert determined_nodes(qd.markov_chain([[1.0, 0.0], [0.5, 0.5]], 4, initial=[1.0, 0.0])) == {
        "X0",
        "X1",
        "X2",
        "X3",
    }
    assert not determined_nodes(qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], length=10**6))
