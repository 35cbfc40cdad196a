"""The spread c against its definition in high precision: never below, hardly above."""

import math
from itertools import permutations, product

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from strategies import models

import quiltdp as qd
from quiltdp.errors import InvalidArgument
from quiltdp.graph.components import factor_graph
from quiltdp.inference.spread import all_spreads, spread, spread_of_rows, unit_spread


def by_definition(table: np.ndarray, axes: list[int]) -> mpmath.mpf:
    """max over x, x' of the spread over z of ln ψ(x', z) − ln ψ(x, z), to 40 digits."""
    rest = [a for a in range(table.ndim) if a not in axes]
    size = math.prod(table.shape[a] for a in axes)
    rows = table.transpose([*axes, *rest]).reshape(size, -1).tolist()
    rows = [r for r in rows if any(r)]
    best = mpmath.mpf(0)
    with mpmath.workdps(40):
        for p, q in permutations(rows, 2):
            values = []
            for a, b in zip(p, q, strict=True):
                if a or b:
                    low, high = mpmath.mpf("-inf"), mpmath.inf
                    values.append(low if not a else high if not b else mpmath.log(a) - mpmath.log(b))
            best = max(best, max(values) - min(values) if max(values) != min(values) else mpmath.mpf(0))
    return best


@settings(max_examples=80, deadline=None)
@given(models())
def test_spread_is_the_definition_rounded_up(model):
    graph = factor_graph(model)
    edges = iter(all_spreads(model, graph).tolist())
    for position in graph.factor_position.tolist():
        factor = model.factors[position]
        for axis, node in enumerate(factor.scope):
            wanted = by_definition(factor.table, [axis])
            found = spread(model, node, position)
            assert found >= wanted
            assert found == float(wanted) or found <= float(wanted) * (1 + 1e-12) + 1e-12
            assert next(edges) == found
        pair = list(factor.scope[:2])
        wanted = by_definition(factor.table, [0, 1])
        assert wanted <= unit_spread(model, pair, position) <= float(wanted) * (1 + 1e-12) + 1e-12


def test_zeros():
    assert spread_of_rows(np.array([[1.0, 0.0], [0.5, 0.5]])) == math.inf
    assert spread_of_rows(np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 0.5]])) == 0  # one z left
    assert spread_of_rows(np.array([[0.0, 0.0], [0.3, 0.7]])) == 0  # one possible state
    assert spread_of_rows(np.array([[0.0, 0.2, 0.8], [0.0, 0.8, 0.2]])) == pytest.approx(2 * math.log(4))


def test_equal_rows_are_exactly_zero_and_nearly_equal_ones_are_not():
    assert spread_of_rows(np.array([[0.3, 0.7], [0.3, 0.7]])) == 0
    close = np.array([[0.3, 0.7], [0.3, np.nextafter(0.7, 1)]])
    with mpmath.workdps(40):
        wanted = mpmath.log(mpmath.mpf(float(close[1, 1]))) - mpmath.log(mpmath.mpf(0.7))
    assert spread_of_rows(close) >= wanted > 0


def test_a_million_factors_share_one_table():
    model = qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], 2000)
    found = all_spreads(model, factor_graph(model))
    assert len(found) == 2 * 1999
    assert set(found.tolist()) == {spread(model, "X0", 1), spread(model, "X1", 1)}


def test_refusals():
    model = qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], 5)
    with pytest.raises(InvalidArgument, match="not in the scope"):
        spread(model, "X4", 1)
    for a, b in product((0, 1), repeat=2):
        assert spread_of_rows(np.array([[a + 1.0, b + 1.0]])) == 0


@pytest.mark.parametrize("seed", range(6))
def test_the_widest_pair_is_found_whatever_is_passed_over(seed: int) -> None:
    """Pairs that cannot be widest are not looked at; every pair says the same."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.full(7, (0.3, 5.0, 500.0)[seed % 3]), 30)
    rows[3] = rows[11]
    logs = np.log(rows)
    every = max(float(np.ptp(a - b)) for a in logs for b in logs)
    assert every <= spread_of_rows(rows) <= every + 32 * np.finfo(float).eps * np.abs(logs).max()
