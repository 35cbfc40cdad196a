"""The support beyond a separator: the tree's messages, the plain walk, and the joint agree."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import models

import quiltdp as qd
from quiltdp.inference import brute_force
from quiltdp.inference.tables import aligned, factor_tables, max_out, product
from quiltdp.inference.trees import barriers_around, barriers_beyond
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
def test_tree_walk_and_joint_agree(model, data):
    target = data.draw(st.sampled_from(list(model.nodes)))
    quilt = data.draw(st.sampled_from(list(qd.quilts(qd.moralize(model), target))))
    closed, separator = {target, *quilt.nearby}, tuple(sorted(quilt.separator))
    space = Workspace(model)
    logs = factor_tables(space)
    inner = {f for n in closed for f in logs.near(n)}
    walk, complete = barriers_beyond(logs, separator, inner, max_nodes=100)
    assert complete
    tree, exact = barriers_around(space, closed, separator, max_nodes=100)
    assert exact
    found = allowed(tree, separator, model)
    np.testing.assert_array_equal(found, allowed(walk, separator, model))
    # beyond and inside together: exactly the values of the separator that the joint allows
    inside = [w for f in inner if (w := logs.barrier(f)) is not None]
    both = allowed([*tree, *inside], separator, model)
    np.testing.assert_array_equal(both, brute_force.log_marginal(model, separator) > -np.inf)


def test_a_walk_that_stops_early_says_so():
    copy = [[1.0, 0.0], [0.0, 1.0]]
    model = qd.markov_chain(copy, 50, [0.5, 0.5])
    _, complete = barriers_beyond(factor_tables(Workspace(model)), ["X2"], (), max_nodes=5)
    assert not complete
