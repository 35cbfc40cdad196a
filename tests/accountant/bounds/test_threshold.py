"""Λ of a table (quiltdp.accountant.bounds.threshold) against all pairs of rows and all sets."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from quiltdp.accountant.bounds import threshold
from quiltdp.accountant.bounds.threshold import ThresholdCurve


def every_set(rows: np.ndarray, o: float) -> float:
    """Return the definition: the largest ln (p(T)(e^o − 1) + 1) / (p'(T)(e^o − 1) + 1)."""
    count = rows.shape[1]
    sets = np.array(list(itertools.product((0.0, 1.0), repeat=count)))
    mass = rows @ sets.T
    gain = math.expm1(o)
    levels = 1.0 + mass * gain
    return float(np.log(levels.max(axis=0) / levels.min(axis=0)).max())


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("states", "columns"), [(2, 2), (2, 5), (4, 3), (40, 6)])
def test_it_is_the_largest_over_all_pairs_and_sets(states: int, columns: int, seed: int) -> None:
    random = np.random.default_rng([seed, states])
    rows = random.dirichlet(np.full(columns, 0.3 if seed % 2 else 2.0), size=states)
    if seed % 3 == 0:
        rows = np.where(random.random(rows.shape) < 0.2, 0.0, rows) + 1e-9
        rows /= rows.sum(axis=1, keepdims=True)
    curve = ThresholdCurve(rows)
    for o in (1e-3, 0.1, 0.7, 2.0, 5.0, 12.0, 30.0):
        truth = every_set(rows, o)
        assert truth <= curve(o) <= truth + 1e-9


@pytest.mark.parametrize("turned", [False, True])
def test_pairs_of_rows_are_taken_in_both_directions(turned: bool) -> None:
    """In a table of many rows each pair is met once; either row may be the larger one."""
    rows = np.random.default_rng(3).dirichlet(np.full(4, 2.0), size=600)
    rows = rows[np.argsort(rows[:, 0])][:: -1 if turned else 1]
    curve = ThresholdCurve(rows)
    for o in (0.1, 2.0, 12.0):
        truth = every_set(rows, o)
        assert truth <= curve(o) <= truth + 1e-9


def test_a_hull_of_many_vertices() -> None:
    """Rows along a smooth curve."""
    angle = np.linspace(0.05, 0.95, 60)
    rows = np.column_stack([angle**2, 2 * angle * (1 - angle), (1 - angle) ** 2])
    pairs = np.concatenate([rows[k : k + 2] for k in range(0, 60, 2)])
    curve = ThresholdCurve(pairs)
    for o in np.geomspace(1e-3, 40.0, 60):
        truth = every_set(pairs, float(o))
        assert truth <= curve(float(o)) <= truth + 1e-9


def nasty_rows(seed: int) -> np.ndarray:
    """Return rows with equal ratios, zeros, faint entries, equal rows, or laws with nothing in common."""
    random = np.random.default_rng(seed)
    rows = random.dirichlet(np.full(int(random.integers(1, 40)), 0.4), size=int(random.integers(2, 90)))
    rows = np.round(rows, 2) if seed % 4 == 1 else rows
    rows = np.where(random.random(rows.shape) < 0.4, 0.0, rows) if seed % 4 == 2 else rows
    rows = rows ** random.integers(1, 60) + 1e-305 if seed % 4 == 3 else rows
    rows[:, 0] += rows.sum(axis=1) == 0.0
    rows[-1] = rows[0]
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("seed", range(24))
def test_nasty_rows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = nasty_rows(seed)
    whole = ThresholdCurve(rows)
    monkeypatch.setattr(threshold, "THRESHOLD_AT_ONCE", 1)
    by_one = ThresholdCurve(rows)
    for o in (0.1, 2.0, 12.0):
        levels = np.sort(1.0 + rows * math.expm1(o), axis=0)  # sets of one state
        assert whole(o) >= np.log(levels[-1] / levels[0]).max() - 1e-12
        assert by_one(o) == pytest.approx(whole(o), rel=1e-9)
