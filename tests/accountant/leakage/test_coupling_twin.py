"""Sequential coupling against its twin in 50 digits: all pairs, chosen pairs, single changes, all forms."""

from dataclasses import replace

import numpy as np
import pytest
from coupling_twin import all_pairs, chosen_pairs, single_changes
from mpmath import mpf
from prior_oracle import random_dag

from quiltdp import Model, markov_chain
from quiltdp.accountant.bounds import ready
from quiltdp.accountant.leakage.coupling import CouplingBound
from quiltdp.accountant.leakage.coupling_all import AllPairs
from quiltdp.accountant.leakage.coupling_single import SingleCouplingBound
from quiltdp.errors import ModelTooWide
from quiltdp.inference.coupling_tree import coupling_tree
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


@pytest.mark.parametrize("case", cases())
def test_all_pairs(case):
    model, alpha = model_of(case)
    units = units_of(model)
    for options in ({}, {"together": 8, "both_orders": True}):
        tree = coupling_tree(model, units, **options)
        found = AllPairs(tree, NO_GUARD).evaluate(alpha)
        few = max((s.slots for r in (*tree.messages, *tree.units) for s in r[0].steps), default=1) <= 3
        assert_certified(found, all_pairs(model, tree, alpha), alpha, CLOSE if few else 1e-6)


@pytest.mark.parametrize("case", cases())
@pytest.mark.parametrize("threshold", [0.5, 1e-6])
def test_chosen_pairs(case, threshold):
    model, alpha = model_of(case)
    bound = ready(CouplingBound, model, units_of(model), chosen=threshold)
    found = bound.evaluate(alpha).values
    assert_certified(found, chosen_pairs(model, bound._pairs, alpha), alpha)


@pytest.mark.parametrize("case", cases())
def test_single_changes(case):
    model, alpha = model_of(case)
    bound = ready(SingleCouplingBound, model, units_of(model))
    assert_certified(bound.evaluate(alpha).values, single_changes(model, bound, alpha), alpha)


def left_out(seed):
    """Yield bounds that leave part of a drawn network out."""
    model, alpha = random_dag(seed, max_nodes=5, max_joint=48)
    for pairs in (8, 40, 160):
        try:
            bound = ready(SingleCouplingBound, model, budget=replace(WorkBudget(), pairs=pairs), share=1.0)
        except ModelTooWide:
            continue
        if any(tree.edges for tree in bound._trees):
            yield model, alpha, bound


@pytest.mark.parametrize("seed", [30_008, 30_056, 30_068, 30_081, 30_115])
def test_single_changes_with_nodes_left_out(seed):
    bounds = list(left_out(seed))
    assert bounds
    for model, alpha, bound in bounds:
        assert_certified(bound.evaluate(alpha).values, single_changes(model, bound, alpha), alpha)


def test_beyond_the_range_of_doubles_ceilings_are_still_above():
    model, alpha = EXTREME["far"][0], np.array([90.0, 260.0, 300.0])
    tree = coupling_tree(model, units_of(model))
    assert_certified(AllPairs(tree, NO_GUARD).evaluate(alpha), all_pairs(model, tree, alpha), alpha, np.inf)
    bound = ready(SingleCouplingBound, model)
    assert_certified(bound.evaluate(alpha).values, single_changes(model, bound, alpha), alpha, np.inf)


@pytest.mark.slow
def test_many_drawn_networks():
    """Every form on networks with zeros, latents, two and three states and unequal α."""
    compared = 0
    for seed in range(8_000, 8_080):
        model, alpha = random_dag(seed, max_nodes=4, max_joint=30)
        units = units_of(model)
        tree = coupling_tree(model, units)
        assert_certified(AllPairs(tree, NO_GUARD).evaluate(alpha), all_pairs(model, tree, alpha), alpha)
        chosen = ready(CouplingBound, model, units, chosen=0.1)
        assert_certified(chosen.evaluate(alpha).values, chosen_pairs(model, chosen._pairs, alpha), alpha)
        single = ready(SingleCouplingBound, model, units)
        assert_certified(single.evaluate(alpha).values, single_changes(model, single, alpha), alpha, 1e-6)
        compared += 3 * len(units)
        for model, alpha, bound in left_out(seed):
            assert_certified(bound.evaluate(alpha).values, single_changes(model, bound, alpha), alpha)
            compared += len(model.records)
    assert compared > 500
