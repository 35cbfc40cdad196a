"""The one linear program, against scipy's front end of a solver."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from quiltdp.inference.linear_program import largest_ratio
from quiltdp.work import NO_GUARD, Guard, GuardReached


def problem(seed: int) -> tuple[np.ndarray, ...]:
    """Two laws on a few points, and how fast the unknown may grow along every pair of them."""
    rng = np.random.default_rng(seed)
    points = int(rng.integers(2, 7))
    p, q = rng.dirichlet(np.ones(points), size=2)
    source, target = np.nonzero(~np.eye(points, dtype=bool))
    return p, q, source, target, np.exp(rng.uniform(0.1, 2.0, size=len(source)))


@pytest.mark.parametrize("seed", range(20))
def test_the_maximum_and_its_dual_are_those_of_scipy(seed: int) -> None:
    p, q, source, target, growth = problem(seed)
    rows = np.zeros((len(source), len(p)))
    rows[np.arange(len(source)), source] = 1.0
    rows[np.arange(len(source)), target] = -growth
    expected = linprog(-p, A_ub=rows, b_ub=np.zeros(len(rows)), A_eq=q[None], b_eq=[1.0])
    answer = largest_ratio(p, q, source, target, growth, NO_GUARD)
    assert answer is not None
    x, dual = answer
    assert p @ x == pytest.approx(-expected.fun, abs=1e-9)
    assert (rows @ x <= 1e-9).all()
    assert q @ x == pytest.approx(1.0)
    assert (dual >= -1e-9).all()
    # complementary slackness: λ q = p − rowsᵀ y where x > 0
    price = (p - rows.T @ dual)[x > 1e-9] / q[x > 1e-9]
    assert price == pytest.approx(np.full(len(price), p @ x), abs=1e-6)


def test_no_program_begins_after_the_time_is_over() -> None:
    guard = Guard(seconds=0.0)
    with pytest.raises(GuardReached):
        largest_ratio(*problem(0), guard)
