"""quiltdp.inference.tables: the logarithms of all factors."""

import pytest
from strategies import random_network

import quiltdp as qd
from quiltdp.inference.tables import factor_tables
from quiltdp.inference.workspace import Workspace


@pytest.mark.parametrize("zeros", [0.0, 0.4])
def test_the_logarithms_of_all_factors_at_once_are_those_of_each(zeros):
    model = random_network(
        2, {"A": [], "B": ["A"], "C": ["A", "B"]}, {"A": 2, "B": 3, "C": 4}, zeros=zeros, records=["A"]
    )
    each, together = factor_tables(Workspace(model)), factor_tables(Workspace(model))
    every = together.all_logs()
    for f, found in enumerate(every):
        wanted = each.logs(f)
        assert found.scope == wanted.scope
        assert found.array.tobytes() == wanted.array.tobytes()
        assert (found.size, found.error) == (wanted.size, wanted.error)
        assert together.with_zeros(f) == each.with_zeros(f) == bool((model.factors[f].table == 0).any())
        walls = together.barrier(f), each.barrier(f)
        assert (walls[0] is None) == (walls[1] is None)
        if walls[0] is not None and walls[1] is not None:
            assert walls[0].array.tolist() == walls[1].array.tolist()


def test_a_chain_names_its_few_tables():
    model = qd.markov_chain([[0.9, 0.1], [0.0, 1.0]], length=50, initial=[0.5, 0.5])
    found = factor_tables(Workspace(model)).all_logs()
    assert len(found) == len(model.factors)
    assert found[7].array is found[8].array
