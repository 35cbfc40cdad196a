"""Transports of three states: the kernel gives the bytes of its twin in numpy."""

from __future__ import annotations

import numpy as np
import pytest

from quiltdp.accountant.leakage.three_states import compared_in_c, compared_in_numpy
from quiltdp.compiled import kernels

needs_kernels = pytest.mark.skipif(kernels() is None, reason="kernels are not built, or not wanted")
KINDS = ["smooth", "zeros", "sure", "tiny masses", "equal laws", "no costs", "far"]


def drawn(kind, rng, parts=40, count=9):
    """Laws, problems, children with messages of their own, and α."""
    law = rng.dirichlet(np.ones(3), (parts, count))
    scale, alpha = 1.0, float(rng.uniform(0.0, 2.0))
    if kind in ("zeros", "sure"):
        law = np.where(rng.random(law.shape) < (0.4 if kind == "zeros" else 0.8), 0.0, law)
        law[..., 0] = np.where(law.sum(axis=2) == 0, 1.0, law[..., 0])
    elif kind == "tiny masses":
        law = law ** rng.choice([1.0, 40.0, 400.0], law.shape)
    elif kind == "equal laws":
        law[:] = law[:, :1]
    elif kind == "no costs":
        scale = alpha = 0.0
    elif kind == "far":
        scale, alpha = 8.0, 60.0
    law = law / law.sum(axis=2, keepdims=True)
    children = []
    for states in (9, 3):
        messages = scale * rng.exponential(0.5, (7, states, states))
        messages[0] = 0.0
        messages[:, range(states), range(states)] = 0.0
        part = rng.integers(0, 7, parts)
        children.append((messages, part, rng.integers(0, states, (count, 3))))
    e, z, y = rng.integers(0, [[parts], [count], [count]], (3, 500))
    return law, (e, z, y), children, alpha


@needs_kernels
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_twins_give_the_same_bytes(kind, seed):
    law, places, children, alpha = drawn(kind, np.random.default_rng([seed, KINDS.index(kind)]))
    found = compared_in_c(law, places, children, alpha)
    twin = compared_in_numpy(law, places, children, alpha)
    assert found is not None
    assert found.tobytes() == twin.tobytes()


@needs_kernels
def test_what_has_no_closed_form_of_three_is_left_to_the_twin():
    law, places, children, alpha = drawn("smooth", np.random.default_rng(1))
    assert compared_in_c(law[:, :, :2].copy(), places, children, alpha) is None
    without = law.copy()
    without[..., 1] = 0.0
    assert compared_in_c(without, places, children, alpha) is None
    assert compared_in_c(law, places, children, 201.0) is None
    assert compared_in_c(law, places, [], 0.3) is not None
