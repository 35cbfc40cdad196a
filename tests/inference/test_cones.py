"""Corners of cones: what is dropped never attains a larger ratio, and what is a corner stays."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiltdp.inference.cones import corners


def random_rays(seed: int, sets: int, members: int, size: int, kind: str) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rays = rng.gamma(0.5, size=(sets, members, size)) + 1e-9
    if kind == "zeros":
        rays[rng.random(rays.shape) < 0.3] = 0.0
    elif kind == "copies":
        rays = np.concatenate([rays, rays[:, ::2] * rng.uniform(0.1, 10, (sets, 1, 1))], axis=1)
    elif kind == "proportional columns":
        rays[..., -1] = 3 * rays[..., 0]
    elif kind == "flat":
        rays[..., -1] = rays[..., 0] + 2 * rays[..., 1]
    elif kind == "narrow":
        rays = 1 + 1e-5 * rays
    elif kind == "far apart":
        rays = rays ** rng.integers(1, 12, (1, 1, size)) * 10.0 ** rng.integers(-100, 100, (1, 1, size))
    elif kind == "products":  # as they come about: coordinates of very many small steps
        steps = rng.dirichlet(np.ones(3) * 5, size=(sets, 4, size)).swapaxes(2, 3)
        rays = steps[:, 0]
        for k in range(1, 4):
            rays = (rays[:, :, None] * steps[:, k, None]).reshape(sets, -1, size)
    return rays


KINDS = ("plain", "zeros", "copies", "proportional columns", "flat", "narrow", "far apart", "products")


def largest_ratios(rays: np.ndarray, above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """max over members of (above·ray) / (below·ray): 0/0 skipped, p/0 = ∞; one per functional."""
    with np.errstate(divide="ignore", invalid="ignore"):
        p, q = rays @ above.T, rays @ below.T
        return np.where(p > 0, p / q, 0.0).max(axis=0)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 4),
    st.integers(1, 60),
    st.integers(1, 6),
    st.sampled_from(KINDS),
)
def test_no_ratio_is_lost(seed, sets, members, size, kind):
    rays = random_rays(seed, sets, members, max(size, 2) if kind == "flat" else size, kind)
    size = rays.shape[2]
    kept = corners(rays)
    assert kept.shape[0] == sets
    rng = np.random.default_rng(seed + 1)
    above, below = rng.gamma(0.3, size=(2, 40, size))
    above[:10] = rng.random((10, size)) < 0.5
    below[5:15] = rng.random((10, size)) < 0.5
    scale = 1 / np.maximum(rays.max(axis=(0, 1)), 1e-300)
    for row, keep in zip(rays, kept, strict=True):
        wanted = largest_ratios(row, above * scale, below * scale)
        found = largest_ratios(row[np.unique(keep)], above * scale, below * scale)
        finite = np.isfinite(wanted)
        assert np.isinf(found[~finite]).all()
        assert (found[finite] >= wanted[finite] * (1 - 4e-13)).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 6), st.sampled_from(["plain", "zeros", "far apart", "products"]))
def test_dropped_rays_are_combinations_of_those_kept(seed, size, kind):
    (rays,) = random_rays(seed, 1, 40, size, kind)
    kept = np.unique(corners(rays[None])[0])
    for k in set(range(len(rays))) - set(kept.tolist()):
        there = rays[k] > 0
        usable = rays[kept][(rays[kept][:, ~there] == 0).all(axis=1)][:, there]
        if not there.any():
            continue
        scaled = usable / rays[k][there]
        scaled /= np.maximum(scaled.max(axis=1, keepdims=True), 1e-300)
        assert distance_to_one(scaled) < 1e-9


def distance_to_one(rays):
    """How far (1, …, 1) is from a non-negative combination of the rays, in its worst coordinate.

    Two solvers look for the combination, since either may stop early; the better one counts.
    """
    from scipy.optimize import linprog, nnls

    members, size = rays.shape
    column = -np.ones((size, 1))
    found = linprog(
        np.append(np.zeros(members), 1.0),
        A_ub=np.block([[rays.T, column], [-rays.T, column]]),
        b_ub=np.append(np.ones(size), -np.ones(size)),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    candidates = (found.x[:members], nnls(rays.T, np.ones(size))[0])
    return min(np.abs(rays.T @ np.maximum(weights, 0.0) - 1).max() for weights in candidates)


@pytest.mark.parametrize("size", [3, 4, 5])
def test_corners_of_known_bodies(size):
    rng = np.random.default_rng(size)
    directions = rng.normal(size=(12, size - 1))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)  # on a sphere: all of them corners
    inner = rng.dirichlet(np.ones(12), size=200) @ directions
    points = np.concatenate([directions, inner])
    rays = np.concatenate([np.full((len(points), 1), 3.0), points + 1.5], axis=1)
    order = rng.permutation(len(rays))
    kept = np.unique(corners(rays[None, order])[0])
    assert sorted(order[kept].tolist()) == list(range(12))


def test_a_set_does_not_depend_on_the_others():
    rays = np.concatenate([random_rays(k, 1, 48, 3, "products") for k in range(6)])
    together = corners(rays)
    for row, keep in zip(rays, together, strict=True):
        assert set(keep.tolist()) == set(corners(row[None])[0].tolist())


def test_numbers_beyond_doubles():
    tiny = np.longdouble("1e-2000")
    if not tiny:
        pytest.skip("this platform has no wider numbers than doubles")
    rays = np.array([[1, tiny], [1, tiny**2], [tiny, 1], [1, 1]], dtype=np.longdouble)
    assert sorted(corners(rays[None])[0].tolist()) == [1, 2]
    for size in (3, 4):
        wide = np.concatenate([rays] + [rays[::-1, :1]] * (size - 2), axis=1)
        wide = np.concatenate([wide * w for w in (1, 2, 3, 4, 5)])  # enough for a hull to be worth it
        kept = set(np.unique(corners(wide[None])[0]) % 4)
        assert {1, 2} <= kept
