"""quiltdp.inference.tables: the logarithms of all factors."""

import numpy as np
import pytest
from strategies import random_network

import quiltdp as qd
from quiltdp.inference.tables import factor_tables
from quiltdp.inference.workspace import Workspace


@pytest.mark.parametrize("zeros", [0.0, 0.4])
def test_logarithms_and_barriers_are_those_of_the_factors(zeros):
    model = random_network(
        2, {"A": [], "B": ["A"], "C": ["A", "B"]}, {"A": 2, "B": 3, "C": 4}, zeros=zeros, records=["A"]
    )
    tables = factor_tables(Workspace(model))
    for f, factor in enumerate(model.factors):
        found, wall = tables.logs(f), tables.barrier(f)
        assert found.scope == factor.scope
        assert np.exp(found.array) == pytest.approx(np.asarray(factor.table))
        assert (wall is None) == bool(np.all(factor.table))
        if wall is not None:
            np.testing.assert_array_equal(wall.array == 0.0, factor.table > 0)


def test_a_chain_names_its_few_tables():
    model = qd.markov_chain([[0.9, 0.1], [0.0, 1.0]], length=50, initial=[0.5, 0.5])
    tables = factor_tables(Workspace(model))
    assert tables.logs(7).array is tables.logs(8).array
