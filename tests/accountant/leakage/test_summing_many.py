"""Many summings-out side by side say what each says alone."""

from __future__ import annotations

import numpy as np
import pytest

from quiltdp.accountant.leakage.summing_many import distances_of_many
from quiltdp.accountant.leakage.summing_out import SummingOut


def _summing(rng: np.random.Generator, groups: int, width: int, zeros: bool) -> tuple[SummingOut, np.ndarray]:
    states = groups * width
    members = np.arange(states).reshape(groups, width)
    law = rng.dirichlet(np.ones(width), groups)
    if zeros:
        law[0, 1:] = 0.0
        members[0, 1:] = members[0, 0]
        law[0, 0] = 1.0
    left, right = (a.ravel() for a in np.indices((groups, groups)))
    points = rng.integers(0, 2, (states, 4))
    d = (points[:, None] != points[None, :]).sum(axis=2) * 0.3
    columns = np.stack(np.unravel_index(np.arange(states), (groups, width)), axis=1)
    return SummingOut(members, law, columns, left, right, slack=1e-12), d


@pytest.mark.parametrize("far", [False, True])
def test_many_at_once_are_as_alone(far: bool) -> None:
    rng = np.random.default_rng(5)
    tasks = []
    for width in (1, 2, 2, 3, 3, 4, 5, 5, 5):
        for zeros in (False, width > 1):
            summing, d = _summing(rng, int(rng.integers(1, 5)), width, zeros)
            summing.at_once = width > 3 and bool(rng.random() < 0.8)
            tasks.append((summing, d * 900.0 if far and width == 2 else d))
    found = distances_of_many(tasks)
    assert len(found) == len(tasks)
    for (summing, d), values in zip(tasks, found, strict=True):
        assert values == pytest.approx(summing.distances(d), rel=1e-12, abs=1e-14)


def test_nothing_is_nothing() -> None:
    assert distances_of_many([]) == []
