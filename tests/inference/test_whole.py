"""The table of a whole small model: the same numbers as sides and eliminations, and the oracle's."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import models, without_whole_tables

import quiltdp as qd
from quiltdp.inference import brute_force
from quiltdp.inference.influence import quilt_influence, swings
from quiltdp.inference.marginals import extended_log_marginal
from quiltdp.inference.whole import whole_table


def same(a, b):
    return a == b or math.isclose(a, b, rel_tol=1e-10, abs_tol=1e-10)


@settings(max_examples=60, deadline=None)
@given(models(max_nodes=6), st.data())
def test_whole_table_against_sides_and_the_oracle(model, data):
    target = data.draw(st.sampled_from(list(model.records)))
    for quilt in qd.quilts(qd.moralize(model), target):
        found = quilt_influence(model, quilt)
        with pytest.MonkeyPatch.context() as patch:
            without_whole_tables(patch)
            other = quilt_influence(model, quilt)
        wanted = brute_force.quilt_influence(model, quilt)
        assert found.exact == other.exact == wanted.exact
        assert same(found.b, wanted.b)
        assert same(other.b, wanted.b)
        for known, value in wanted.swing_of.items():
            assert same(found.swing_of[known], value)
            assert same(other.swing_of[known], value)
            assert found.swing_of[known] >= value - 1e-12


@settings(max_examples=40, deadline=None)
@given(models(max_nodes=5), st.data())
def test_marginals_are_corners_of_it(model, data):
    nodes = data.draw(st.lists(st.sampled_from(list(model.nodes)), min_size=1, max_size=3, unique=True))
    table, finite = extended_log_marginal(model, nodes)
    with pytest.MonkeyPatch.context() as patch:
        without_whole_tables(patch)
        other, other_finite = extended_log_marginal(model, nodes)
    assert np.array_equal(np.isfinite(table), np.isfinite(other))
    assert np.allclose(table[np.isfinite(table)], other[np.isfinite(other)], atol=1e-10)
    assert other_finite == bool(np.isfinite(other).all())
    assert not finite or other_finite


def test_without_exact_support_the_rest_of_the_model_is_not_looked_at():
    """Q is forbidden a value by a node beyond it: only the exact support may use that."""
    model = qd.Model.from_tables(
        {
            "T": ([], [0.5, 0.5]),
            "Q": (["T"], [[0.1, 0.2, 0.7], [0.6, 0.3, 0.1]]),
            "E": (["Q"], [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]),
        }
    )
    assert whole_table(model) is not None
    inner = swings(model, ["T"], [], ["Q"], exact_support=False)[frozenset()]
    assert inner == pytest.approx(math.log(0.7 / 0.1 * 0.6 / 0.1), abs=1e-12)


def test_tables_that_might_underflow_are_not_made():
    rows = [[1 - 1e-60, 1e-60], [1e-60, 1 - 1e-60]]
    model = qd.Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], rows), "C": (["B"], rows)})
    assert whole_table(model) is None
    (quilt,) = (q for q in qd.quilts(qd.moralize(model), "A") if q.separator == {"C"})
    found = quilt_influence(model, quilt)
    assert found.swing == pytest.approx(brute_force.quilt_influence(model, quilt).swing, rel=1e-12)
