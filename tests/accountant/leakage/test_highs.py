"""The solver alone answers as scipy does, and scipy can be loaded after it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from quiltdp.accountant.leakage import highs

CODE = """
import sys
import numpy as np
from quiltdp.accountant.leakage import highs
p, q = np.array([0.8, 0.2]), np.array([0.3, 0.7])
rows, columns = np.array([0, 1, 0, 1]), np.array([0, 1, 1, 0])
cells = np.array([1.0, 1.0, -2.0, -2.0])
x, prices = highs.largest_on_simplex(p, q, rows, columns, cells)
assert "scipy.optimize" not in sys.modules, "all of scipy was loaded"
from scipy.optimize import linprog
found = linprog([1.0, 1.0], bounds=(1, None), method="highs")
assert found.fun == 2.0
again, _ = highs.largest_on_simplex(p, q, rows, columns, cells)
assert np.array_equal(x, again)
"""


def _program(seed: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.ones(8)), rng.dirichlet(np.ones(8))
    q[0] = 0.0 if seed % 2 else q[0]
    source, target = np.nonzero(~np.eye(8, dtype=bool))
    growth = np.exp(rng.random(len(source)))
    rows = np.tile(np.arange(len(source)), 2)
    return p, q, rows, np.concatenate([source, target]), np.concatenate([np.ones(len(source)), -growth])


@pytest.mark.parametrize("seed", range(4))
def test_alone_and_in_scipy_it_says_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given = _program(seed)
    alone = highs.largest_on_simplex(*given)
    monkeypatch.setattr(highs, "_core", lambda: None)
    whole = highs.largest_on_simplex(*given)
    monkeypatch.setattr(highs, "_core", object)  # another version
    other = highs.largest_on_simplex(*given)
    assert alone is not None
    assert whole is not None
    assert other is not None
    for x, prices in (whole, other):
        assert float(given[0] @ x) == pytest.approx(float(given[0] @ alone[0]), rel=1e-9)
        assert np.minimum(prices, 0.0) == pytest.approx(np.zeros(len(prices)), abs=1e-9)
    assert np.minimum(alone[1], 0.0) == pytest.approx(np.zeros(len(alone[1])), abs=1e-9)


def test_what_is_unbounded_has_no_answer() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    answer = highs.largest_on_simplex(
        np.array([1.0, 1.0]), np.array([1.0, 0.0]), nothing, nothing, np.zeros(0)
    )
    assert answer is None


@pytest.mark.skipif(highs._core() is None, reason="this scipy keeps its solver elsewhere")
def test_scipy_loads_after_it() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
