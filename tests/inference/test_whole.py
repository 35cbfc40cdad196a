"""The table of a whole small model: the same numbers as the pieces, and the oracle's."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import bayesian_networks

import quiltdp as qd
from quiltdp.inference import brute_force
from quiltdp.inference.plan import Limits
from quiltdp.inference.quilts import quilt_influence, swings
from quiltdp.inference.whole import whole_table
from quiltdp.inference.workspace import Workspace


def same(a, b):
    return a == b or math.isclose(a, b, rel_tol=1e-10, abs_tol=1e-10)


@settings(max_examples=40, deadline=None)
@given(bayesian_networks(max_nodes=6), st.data())
def test_whole_table_against_pieces_and_the_oracle(model, data):
    target = data.draw(st.sampled_from(list(model.records)))
    for quilt in qd.quilts(qd.moralize(model), target):
        found = quilt_influence(model, quilt)
        other = quilt_influence(model, quilt, limits=Limits(whole=0))
        wanted = brute_force.quilt_influence(model, quilt)
        assert found.exact
        assert other.exact
        assert same(found.b, wanted.b)
        assert same(other.b, wanted.b)
        for known, value in wanted.swing_of.items():
            assert same(found.swing_of[known], value)
            assert same(other.swing_of[known], value)
            assert found.swing_of[known] >= value - 1e-12


def test_it_is_made_for_small_models_only():
    assert whole_table(Workspace(qd.load_model("models/asia.bif")), 2**13) is not None
    assert whole_table(Workspace(qd.load_model("models/child.bif")), 2**13) is None
    rows = [[1 - 1e-290, 1e-290], [1e-290, 1 - 1e-290]]
    model = qd.Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], rows), "C": (["B"], rows)})
    assert whole_table(Workspace(model), 2**13) is None  # a product might underflow
    chosen = swings(model, ["A"], ["B"], ["C"], known_sets=[[]])
    assert same(chosen[frozenset()], brute_force.swings(model, ["A"], ["B"], ["C"])[frozenset()])
