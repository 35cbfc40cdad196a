"""The support beyond a separator: the tree's messages and the joint agree; without a tree, a part of it."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import models

import quiltdp as qd
from quiltdp.inference import brute_force, trees
from quiltdp.inference.tables import aligned, factor_tables, max_out, product
from quiltdp.inference.trees import barriers_around
from quiltdp.inference.workspace import Workspace


def allowed(walls, separator, model):
    """Which values of the separator the tables allow."""
    left = max_out(walls, {n for w in walls for n in w.scope}.difference(separator), limit=2**20)
    shape = [model.cardinality(n) for n in separator]
    if not left:
        return np.ones(shape, dtype=bool)
    total = product(left, limit=2**20)
    return np.broadcast_to(aligned((total.scope, total.array), separator) > -np.inf, shape)


@settings(max_examples=80, deadline=None)
@given(models(zeros=True), st.data())
def test_tree_and_joint_agree(model, data):
    target = data.draw(st.sampled_from(list(model.nodes)))
    quilt = data.draw(st.sampled_from(list(qd.quilts(qd.moralize(model), target))))
    closed, separator = {target, *quilt.nearby}, tuple(sorted(quilt.separator))
    space = Workspace(model)
    logs = factor_tables(space)
    inner = {f for n in closed for f in logs.near(n)}
    tree, exact = barriers_around(space, closed, separator)
    assert exact or not logs.has_zeros
    # beyond and inside together: exactly the values of the separator that the joint allows
    inside = [w for f in inner if (w := logs.barrier(f)) is not None]
    both = allowed([*tree, *inside], separator, model)
    np.testing.assert_array_equal(both, brute_force.log_marginal(model, separator) > -np.inf)


def test_without_a_tree_only_what_is_next_is_forbidden(monkeypatch):
    copy = [[1.0, 0.0], [0.0, 1.0]]
    model = qd.Model.from_tables(
        {
            "A": ([], [0.5, 0.5]),
            "B": (["A"], [[0.9, 0.1], [0.2, 0.8]]),
            "C": (["B"], copy),
            "D": (["C"], copy),
            "E": (["D"], [[1.0, 0.0], [1.0, 0.0]]),
        }
    )
    quilt = next(q for q in qd.quilts(qd.moralize(model), "A") if q.separator == {"B"})
    assert qd.quilt_influence(model, quilt).exact
    monkeypatch.setattr(trees, "SUPPORT_ENTRIES", 1)
    wide = qd.quilt_influence(model, quilt)
    assert not wide.exact
    assert wide.b >= qd.quilt_influence(model, quilt).b
