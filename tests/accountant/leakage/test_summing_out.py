"""summing_out, informed_tasks and worst_gains: what is compiled gives the bytes of its twin in numpy."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from quiltdp.accountant.leakage import informed_tasks, summing_out
from quiltdp.accountant.leakage.informed_tasks import Cell
from quiltdp.accountant.leakage.summing_out import Stage
from quiltdp.compiled import kernels
from quiltdp.work import NO_GUARD

compiled = pytest.mark.skipif(kernels() is None, reason="the kernels are not built")


def _stage(rng: np.random.Generator, width: int, nasty: bool) -> tuple[Stage, int]:
    groups = int(rng.integers(1, 7))
    states = groups * width + int(rng.integers(0, 3))
    members = rng.permutation(states)[: groups * width].reshape(groups, width)
    law = rng.dirichlet(np.full(width, 0.3 if nasty else 2.0), groups)
    if nasty:
        law[rng.random(law.shape) < 0.2] = 0.0
        law[:, 0] += 1e-6
        law[rng.random(law.shape) < 0.1] = float(rng.choice([1e-260, 1e-295, 5e-324]))
        law /= law.sum(axis=1, keepdims=True)
        members = np.where(law > 0, members, members[:, :1])
    count = int(rng.integers(1, groups**2 + 1))
    left, right = (a.ravel()[:count] for a in np.indices((groups, groups)))
    return Stage(members, law, left, right), states


@compiled
@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize("nasty", [False, True])
def test_groups_of_two_and_three(width: int, nasty: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(17 * width + nasty)
    asked = []
    for k in range(150):
        stage, states = _stage(rng, width, nasty)
        d = rng.random((*([2] * (k % 3 == 0)), states, states)) * float(rng.choice([1e-13, 0.1, 3.0, 190.0]))
        d[rng.random(d.shape) < 0.3] = 0.0
        if nasty and k % 10 == 0:
            d[rng.random(d.shape) < 0.1] = float(rng.choice([250.0, np.inf]))
        asked.append((stage, d, stage.distances(d, 1e-13, NO_GUARD)))
    monkeypatch.setattr(summing_out, "kernel", lambda name: None)
    for stage, d, found in asked:
        assert found.tobytes() == stage.distances(d, 1e-13, NO_GUARD).tobytes()


@compiled
def test_the_largest_distance_over_states(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    asked = []
    for _ in range(60):
        shape = tuple(rng.integers(1, 5, 4).tolist())  # known, z, u, members
        cell = Cell.__new__(Cell)
        cell.part = SimpleNamespace(states=rng.integers(0, 9, shape))  # type: ignore[assignment]
        cell._shape = (shape[0], shape[1], shape[1], shape[2], shape[2])
        d = rng.random((9, 9))
        d[rng.random(d.shape) < 0.1] = np.inf
        asked.append((cell, d, cell.ceiling(d)))
    monkeypatch.setattr(informed_tasks, "kernel", lambda name: None)
    for cell, d, found in asked:
        assert found.tobytes() == cell.ceiling(d).tobytes()


@compiled
def test_what_single_points_are_worth(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    asked = []
    for _ in range(60):
        known, tops, width = rng.integers(1, 5, 3).tolist()
        cell = Cell.__new__(Cell)
        cell._shape = (known, tops, tops, width, width)
        size = known * tops * tops * width * width
        place = np.sort(rng.permutation(size)[: int(rng.integers(0, size + 1))])
        vars(cell)["_pairs"] = (place, place, place)
        values, found = rng.random(len(place)), rng.random((tops, tops))
        values[rng.random(len(place)) < 0.1] = np.inf
        asked.append((cell, values, found.copy(), found, cell.raised(values, found)))
    monkeypatch.setattr(informed_tasks, "kernel", lambda name: None)
    for cell, values, before, after, raised in asked:
        again = cell.raised(values, before)
        assert before.tobytes() == after.tobytes()
        assert [a.tobytes() for a in again] == [a.tobytes() for a in raised]
