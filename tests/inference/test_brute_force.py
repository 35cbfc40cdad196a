import math

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import example_models, models, reference_networks

from quiltdp.inference import brute_force


def close(found: float, wanted: float) -> bool:
    return found == wanted or math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-9)


@pytest.mark.parametrize("network", reference_networks()[::4])
def test_the_oracle_gives_the_reference_values(network):
    for q in network.quilts:
        found = brute_force.quilt_influence(network.model, q)
        assert close(found.b, q.b), q
        assert close(found.swing, q.swing), q


@pytest.mark.parametrize("name", example_models())
def test_joint_sums_to_one_and_marginals_agree(name):
    model = example_models()[name]
    joint = np.exp(brute_force.log_joint(model))
    assert joint.sum() == pytest.approx(1)
    for k, n in enumerate(model.nodes):
        others = tuple(a for a in range(joint.ndim) if a != k)
        np.testing.assert_allclose(brute_force.marginal(model, [n]), joint.sum(axis=others), atol=1e-14)


@settings(max_examples=30, deadline=None)
@given(models())
def test_conditional_rows_are_laws(model):
    first, rest = model.nodes[0], list(model.nodes[1:3])
    rows = brute_force.conditional(model, [first], rest)
    assert rows.shape == tuple(model.cardinality(n) for n in (*rest, first))
    sums = rows.sum(axis=-1)
    assert np.all(np.isclose(sums, 1) | (sums == 0))
