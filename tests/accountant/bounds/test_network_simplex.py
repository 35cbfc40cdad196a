"""Both twins of the network simplex give the same bytes, whatever stands beside a problem."""

import numpy as np
import pytest

from quiltdp.accountant.bounds.network_simplex import (
    certify_trees,
    certify_trees_in_c,
    certify_trees_in_numpy,
    optimal_trees,
    pivot_trees_in_c,
    pivot_trees_in_numpy,
)
from quiltdp.compiled import kernels

needs_kernels = pytest.mark.skipif(kernels() is None, reason="kernels are not built, or not wanted")
SHAPES = [
    (1, 1),
    (1, 5),
    (5, 1),
    (2, 3),
    (4, 4),
    (6, 4),
    (3, 9),
    (9, 9),
    (16, 15),
    (16, 16),
    (31, 31),
]
KINDS = ["smooth", "with zeros", "equal costs", "whole costs", "no costs", "far", "tiny masses", "equal laws"]


def problems(kind, n, m, count, rng):
    p, q = rng.dirichlet(np.ones(n), count).T, rng.dirichlet(np.ones(m), count).T
    d = rng.exponential(1.0, (n * m, count))
    if kind == "with zeros":
        p, q = np.where(rng.random(p.shape) < 0.4, 0.0, p), np.where(rng.random(q.shape) < 0.4, 0.0, q)
        p[0], q[-1] = np.maximum(p[0], 0.1), np.maximum(q[-1], 0.1)
        p, q = p / p.sum(axis=0), q / q.sum(axis=0)
    elif kind == "equal costs":
        d[:] = d[:1]
    elif kind == "whole costs":
        d = np.floor(2.0 * d)
        p, q = np.full(p.shape, 1.0 / n), np.full(q.shape, 1.0 / m)
    elif kind == "no costs":
        d[:] = 0.0
    elif kind == "far":
        d = 250.0 * rng.random(d.shape)
    elif kind == "tiny masses":
        p, q = p ** rng.choice([1.0, 40.0, 200.0], p.shape), q ** rng.choice([1.0, 40.0, 200.0], q.shape)
        p, q = p / p.sum(axis=0), q / q.sum(axis=0)
    elif kind == "equal laws":
        q = np.full(q.shape, 1.0 / m)
        p = q.copy() if n == m else np.full(p.shape, 1.0 / n)
        d = rng.choice([0.0, 0.1, 0.2], d.shape)
    return p, q, d


def bytes_of(trees):
    return trees.cell.dtype, trees.cell.tobytes(), trees.side.dtype, trees.side.tobytes()


@needs_kernels
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_twins_choose_the_same_trees(kind, shape):
    rng = np.random.default_rng([KINDS.index(kind), *shape])
    large = 9 if sum(shape) > 20 else 700
    for count in (0, 1, 2, 5, large):
        given = [np.ascontiguousarray(a) for a in problems(kind, *shape, count, rng)]
        assert bytes_of(pivot_trees_in_c(*given)) == bytes_of(pivot_trees_in_numpy(*given))


@needs_kernels
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_twins_prove_the_same(kind, shape):
    """Also by trees of other costs, whose transports are negative or beyond the range of doubles."""
    rng = np.random.default_rng([KINDS.index(kind), *shape])
    for count in (1, 2, 40):
        p, q, d = (np.ascontiguousarray(a) for a in problems(kind, *shape, count, rng))
        others = (d, 1.1 * d, rng.permuted(d, axis=0), 240.0 * rng.random(d.shape))
        for trees in (optimal_trees(p, q, other) for other in others):
            with np.errstate(all="ignore"):
                expected = certify_trees_in_numpy(p, q, d, trees)
            for here, there in zip(certify_trees_in_c(p, q, d, trees), expected, strict=True):
                np.testing.assert_array_equal(here, there)


@pytest.mark.parametrize(
    "pivoted", [pytest.param(pivot_trees_in_c, marks=needs_kernels), pivot_trees_in_numpy]
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_problem_is_solved_as_if_it_stood_alone(kind, pivoted):
    rng = np.random.default_rng(5)
    for n, m, count in ((4, 4, 4200), (12, 9, 60)):  # more than are looked at together, and fewer
        p, q, d = (np.ascontiguousarray(a) for a in problems(kind, n, m, count, rng))
        whole = pivoted(p, q, d)
        for k in (0, 1, count // 2, count - 1):
            alone = pivoted(*(np.ascontiguousarray(a[:, k : k + 1]) for a in (p, q, d)))
            assert bytes_of(alone) == bytes_of(whole.take(np.array([k])))
            for every, one in zip(
                certify_trees(p, q, d, whole),
                certify_trees(*(a[:, k : k + 1] for a in (p, q, d)), alone),
                strict=True,
            ):
                np.testing.assert_array_equal(every[k], one[0])


def test_the_layout_of_the_arrays_does_not_matter():
    given = problems("smooth", 9, 9, 30, np.random.default_rng(3))
    turned = [np.asfortranarray(a) for a in given]
    assert bytes_of(optimal_trees(*given)) == bytes_of(optimal_trees(*turned))
    trees = optimal_trees(*given)
    for here, there in zip(certify_trees(*given, trees), certify_trees(*turned, trees), strict=True):
        np.testing.assert_array_equal(here, there)


@pytest.mark.parametrize("kind", ["smooth", "with zeros", "equal costs", "no costs", "equal laws"])
def test_the_trees_found_are_optimal(kind):
    for n, m in ((3, 4), (6, 6), (12, 7)):
        p, q, d = problems(kind, n, m, 25, np.random.default_rng(n))
        above, below = certify_trees(p, q, d, optimal_trees(p, q, d))
        assert (np.log(above) - np.log(below) <= 1e-9 * (1.0 + d.max(axis=0))).all()
