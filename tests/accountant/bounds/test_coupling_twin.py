"""Sequential coupling against its twin in 50 digits: on all pairs and on few."""

import numpy as np
import pytest
from coupling_twin import all_pairs, few_pairs
from mpmath import mpf
from prior_oracle import random_dag

from quiltdp import Model, markov_chain
from quiltdp.accountant.bounds.contract import Problem
from quiltdp.accountant.bounds.coupling import AllPairs, CouplingBound, Prices
from quiltdp.inference.schedule import schedule
from quiltdp.inference.workspace import Workspace
from quiltdp.work import NO_GUARD, WorkBudget

CLOSE = 1e-9  # of the largest cost


def assert_certified(found, twin, alpha, close=CLOSE):
    """At or above the twin without any tolerance, and hardly above it."""
    assert len(found) == len(twin)
    for value, true in zip(found.tolist(), twin, strict=True):
        assert mpf(value) >= true - mpf(10) ** -25, (value, float(true), float(mpf(value) - true))
        assert value <= float(true) + close * (1.0 + float(np.sum(alpha))), (value, float(true))


def extreme():
    """Tiny masses, zeros, latents, unequal α, a copy, a gate: what rounding could hurt."""
    for tiny in (1e-12, 1e-200):
        few = [1.0 - tiny, tiny]
        yield (
            f"gate {tiny}",
            Model.from_tables(
                {
                    "A": ([], [0.5, 0.5]),
                    "B": (["A"], [few, [0.3, 0.7]]),
                    "C": (["A", "B"], [[[1.0, 0.0], few], [few[::-1], [0.5, 0.5]]]),
                    "D": (["C"], [[0.9, 0.1], few]),
                },
                records=["A", "B", "D"],
            ),
            np.array([0.3, 2.0, 0.0, 1.0]),
        )
        yield (
            f"ternary {tiny}",
            Model.from_tables(
                {
                    "A": ([], [0.5, 0.5 - tiny, tiny]),
                    "B": (["A"], [[tiny, 0.4, 0.6], [0.3, 0.7, 0.0], [0.0, tiny, 1.0]]),
                    "C": (["B"], [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.2, 0.3, 0.5]]),
                }
            ),
            np.array([1.0, 0.01, 5.0]),
        )
    yield (
        "copy",
        Model.from_tables({"A": ([], [0.3, 0.7]), "B": (["A"], [[1.0, 0.0], [0.0, 1.0]])}),
        np.ones(2),
    )
    yield "chain", markov_chain([[0.9, 0.1], [0.2, 0.8]], 4), np.array([1e-8, 3.0, 0.0, 0.5])
    yield "far", markov_chain([[0.9, 0.1], [0.2, 0.8]], 3), np.array([4.0, 2.5, 5.0])


EXTREME = {name: (model, alpha) for name, model, alpha in extreme()}
DRAWN = range(7_000, 7_004)


def cases():
    """The extreme models, and a few that are drawn."""
    return [*EXTREME, *DRAWN]


def model_of(case):
    return EXTREME[case] if case in EXTREME else random_dag(case, max_nodes=4, max_joint=24)


def units_of(model):
    records = list(model.records)
    return [(r,) for r in records] + ([(records[0], records[-1])] if len(records) > 2 else [])


def both(model, alpha, units, together=1, turns=(False,), prices=None):
    """The leakages, those of the twin, and the most values that a level compares."""
    walk = schedule(model, units)
    orders = [[t.order(reverse=r, together=together) for r in turns] for t in walk.tasks]
    problem = Problem(model, tuple(units), prices=prices or {})
    found = AllPairs(walk, orders, NO_GUARD).leakages(Prices(problem, alpha))
    slots = max((len(v.law) for some in orders for o in some for v in o.levels), default=1)
    return found, all_pairs(model, walk, orders, alpha, prices), slots


@pytest.mark.parametrize("case", cases())
def test_all_pairs(case):
    model, alpha = model_of(case)
    units = units_of(model)
    for together, turns in ((1, (False,)), (8, (False, True))):
        found, twin, slots = both(model, alpha, units, together, turns)
        assert_certified(found, twin, alpha, CLOSE if slots <= 3 else 1e-6)


@pytest.mark.parametrize("case", cases())
def test_all_pairs_at_prices(case):
    """The price of a change depends on the two values: a metric, not above α."""
    model, alpha = model_of(case)
    prices = prices_of(model)
    found, twin, slots = both(model, alpha, units_of(model), 1, (False,), prices)
    assert_certified(found, twin, alpha, CLOSE if slots <= 3 else 1e-6)
    assert np.all(found <= both(model, alpha, units_of(model), 1, (False,))[0] + 1e-9)


def prices_of(model):
    """A metric of the values of every record, not above 1."""
    prices = {}
    for k, n in enumerate(model.records):
        at = np.random.default_rng(k).permutation(model.cardinality(n)) / max(1, model.cardinality(n) - 1)
        prices[n] = np.abs(at[:, None] - at)
    return prices


def few(model, alpha, worth, prices=None):
    """The leakages on few pairs, and those of the twin."""
    bound = CouplingBound(Problem(model, tuple(units_of(model)), prices=prices or {}), sparse=worth)
    bound.prepare(Workspace(model), WorkBudget())
    return bound.evaluate(alpha).values, few_pairs(model, bound._pairs, alpha, prices)


@pytest.mark.parametrize("case", cases())
@pytest.mark.parametrize("worth", [1e6, 0.5, 1e-6])
def test_few_pairs(case, worth):
    """Single changes alone, some pairs with mass, nearly all."""
    model, alpha = model_of(case)
    assert_certified(*few(model, alpha, worth), alpha)


@pytest.mark.parametrize("case", cases())
def test_few_pairs_at_prices(case):
    model, alpha = model_of(case)
    prices = prices_of(model)
    found, twin = few(model, alpha, 0.1, prices)
    assert_certified(found, twin, alpha)
    assert np.all(found <= few(model, alpha, 0.1)[0] + 1e-9)


def test_beyond_the_range_of_doubles_ceilings_are_still_above():
    model, alpha = EXTREME["far"][0], np.array([90.0, 260.0, 300.0])
    assert_certified(*both(model, alpha, units_of(model))[:2], alpha, np.inf)
    assert_certified(*few(model, alpha, 0.1), alpha, np.inf)


@pytest.mark.slow
def test_many_drawn_networks():
    """Every form on networks with zeros, latents, two and three states and unequal α."""
    compared = 0
    for seed in range(8_000, 8_080):
        model, alpha = random_dag(seed, max_nodes=4, max_joint=30)
        units = units_of(model)
        assert_certified(*both(model, alpha, units)[:2], alpha)
        for worth in (1e6, 0.1):
            assert_certified(*few(model, alpha, worth, prices_of(model) if seed % 2 else None), alpha, 1e-6)
        compared += 3 * len(units)
    assert compared > 500
