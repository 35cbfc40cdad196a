"""Sides and bundles: the quick way agrees with the oracle, and steps aside where it might underflow."""

import math
from weakref import WeakKeyDictionary

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import example_models, models, without_whole_tables

import quiltdp as qd
from quiltdp.inference import brute_force, readoff, sides
from quiltdp.inference.bundles import Bundler
from quiltdp.inference.influence import quilt_influence
from quiltdp.inference.odds import factor_logs


@pytest.fixture(autouse=True)
def always_bundled(monkeypatch):
    """Bundle every side, however small, and use the sides whatever their size."""
    without_whole_tables(monkeypatch)
    monkeypatch.setattr(sides, "_SMALL", 0)
    monkeypatch.setattr(sides.side_tables, "kept", WeakKeyDictionary())
    monkeypatch.setattr(readoff, "_TOGETHER", 2**40)


def assert_same(model, quilt):
    found, wanted = quilt_influence(model, quilt), brute_force.quilt_influence(model, quilt)
    for mine, oracle in ((found.b, wanted.b), (found.swing, wanted.swing)):
        assert mine == oracle or math.isclose(mine, oracle, rel_tol=1e-9, abs_tol=1e-9)
    for known, value in wanted.swing_of.items():
        assert found.swing_of[known] >= value - 1e-12
        assert found.swing_of[known] == value or found.swing_of[known] <= value + 1e-9


@pytest.mark.parametrize("name", example_models())
def test_bundled_sides_agree_with_the_oracle(name):
    model = example_models()[name]
    for node in model.records:
        for quilt in qd.quilts(qd.moralize(model), node):
            assert_same(model, quilt)


@settings(max_examples=40, deadline=None)
@given(models(max_nodes=5), st.data())
def test_bundled_sides_on_random_models(model, data):
    target = data.draw(st.sampled_from(list(model.records)))
    for quilt in qd.quilts(qd.moralize(model), target):
        assert_same(model, quilt)


def hub(states, children, zeros=0, tiny=None):
    """A target, a nearby hub and its children; some entries of the children are zero or tiny."""
    rng = np.random.default_rng(states + children)
    tables = {"T": ([], [0.4, 0.6]), "H": (["T"], rng.dirichlet(np.ones(states), size=2))}
    for k in range(children):
        rows = rng.dirichlet(np.ones(3), size=states)
        if k < zeros:
            rows[k % states, 0] = 0.0
        if tiny is not None:
            rows[0, 1] = tiny
        tables[f"C{k}"] = (["H"], rows / rows.sum(axis=1, keepdims=True))
    return qd.Model.from_tables(tables)


@pytest.mark.parametrize("states", [2, 3, 4])
@pytest.mark.parametrize("zeros", [0, 2])
def test_a_hub_with_children(states, zeros):
    model = hub(states, 4, zeros)
    quilt = qd.Quilt(qd.moralize(model), "T", [f"C{k}" for k in range(4)], ["H"], [])
    assert_same(model, quilt)


def test_a_hub_of_two_states_keeps_two_rays():
    model = hub(2, 4)
    logs = factor_logs(model)
    plain, bundles = Bundler(logs).bundles(logs.near("H"), frozenset(f"C{k}" for k in range(4)))
    assert [logs.scope(f) for f in plain] == [("T", "H")]
    assert [(b.scope, b.array.shape) for b in bundles] == [(("H",), (2, 2))]


def test_products_that_might_underflow_are_left_to_logarithms():
    model = hub(3, 4, tiny=1e-300)
    tables = sides.side_tables(model)
    (piece, _) = tables.pieces(("T",), {"H"})
    assert tables.move(piece, ("T",), frozenset(), work=2**40) is None
    assert_same(model, qd.Quilt(qd.moralize(model), "T", [f"C{k}" for k in range(4)], ["H"], []))
