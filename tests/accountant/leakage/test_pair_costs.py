"""Costs of pairs: what C writes is what numpy writes, and both are the definition."""

import numpy as np
import pytest

from quiltdp.accountant.leakage import pair_costs
from quiltdp.accountant.leakage.pair_costs import PairCosts
from quiltdp.compiled import kernels
from quiltdp.inference.coupling_tree import Step
from quiltdp.numbers import EPS


def a_step(rng, slots, count):
    states = slots * count
    after, value = rng.integers(0, states, (2, slots, count))
    values = np.arange(states)[:, None]
    return Step((0,), count, rng.random((slots, count)), after, value, values), states


def tables(rng, parts, states):
    found = []
    for k in range(parts):
        size = int(rng.integers(1, 6))
        table = rng.exponential(1.0, (size, size)) * float(rng.choice([0.0, 1e-300, 1e-9, 1.0, 240.0]))
        found.append((table, rng.integers(0, size, states)))
        if k == 0 and parts == 1:
            found = [(rng.random((states, states)), None)]
    return found


@pytest.mark.parametrize("parts", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("slots", [1, 2, 5])
def test_twins_write_the_same_bytes(parts, slots, monkeypatch):
    if kernels() is not None:
        monkeypatch.setattr(pair_costs, "_MANY", 0)
    rng = np.random.default_rng([parts, slots])
    for count in (1, 2, 9):
        step, states = a_step(rng, slots, count)
        own = rng.random((states, states))
        costs = PairCosts(tables(rng, parts, states), step)
        for start in range(count):
            rows = np.arange(start, count)
            wide = len(rows) * count
            d = np.full((slots * slots, wide + 5), -1.0)
            costs.write(d, 3, rows, own, 11.0)
            assert d[:, 3 : 3 + wide].tobytes() == costs.in_numpy(rows, own, 11.0).tobytes()
            assert (np.delete(d, np.s_[3 : 3 + wide], axis=1) == -1.0).all()


def test_it_is_the_sum_of_the_tables_and_the_price():
    rng = np.random.default_rng(0)
    step, states = a_step(rng, 3, 4)
    own, parts = rng.random((states, states)), tables(rng, 3, states)
    d = np.empty((9, 8))
    PairCosts(parts, step).write(d, 0, np.array([1, 2]), own, 4.0)
    for i, j, r, z in np.ndindex(3, 3, 2, 4):
        one, two = step.after[i, 1 + r], step.after[j, z]
        expected = sum(t[s[one], s[two]] for t, s in parts) + own[step.value[i, 1 + r], step.value[j, z]]
        assert d[3 * i + j, 4 * r + z] == pytest.approx(expected, rel=1e-14)
        assert d[3 * i + j, 4 * r + z] >= expected * (1.0 + EPS)
