"""quiltdp.inference.tables, quiltdp.inference.laws: sums of products, and the logarithms of all factors."""

import numpy as np
import pytest
from strategies import random_network

import quiltdp as qd
from quiltdp.inference import laws
from quiltdp.inference.laws import summed_law
from quiltdp.inference.tables import LogTable, factor_tables
from quiltdp.inference.workspace import Workspace


def drawn(seed, sizes, scopes):
    rng = np.random.default_rng(seed)
    return [LogTable(s, rng.random([sizes[n] for n in s]), 3.0, 1e-16) for s in map(tuple, scopes)]


SIZES = {"a": 3, "b": 2, "c": 5, "d": 4, "e": 6, "f": 7, "g": 1, "h": 3}
SCOPES = [
    ["ab", "acd", "ae", "fa", "gah"],
    ["ab", "bc", "bcdef", "hb"],
    ["abcdef", "ah", "bg"],
]


@pytest.mark.parametrize("scopes", SCOPES, ids=map("-".join, SCOPES))
@pytest.mark.parametrize("gone", ["a", "ab", "b"])
def test_products_are_summed_as_if_they_were_made_whole(monkeypatch, scopes, gone):
    """The same bytes and the same axes as the product of all tables, summed along the axis."""
    given = drawn(1, SIZES, scopes)
    gone = [n for n in gone if any(n in s for s in scopes)]
    monkeypatch.setattr(laws, "AT_ONCE", 0)
    found = summed_law(given, gone, limit=10**6)
    with monkeypatch.context() as patch:
        patch.setattr(
            laws,
            "_law_summed",
            lambda ts, n, limit: laws._sum_out(laws._law_product(ts, limit=limit), n),
        )
        whole = summed_law(given, gone, limit=10**6)
    assert found.scope == whole.scope
    assert found.array.tolist() == whole.array.tolist()
    assert (found.size, found.error) == (whole.size, whole.error)
    names = list(SIZES)
    operands = [x for t in given for x in (t.array, [names.index(n) for n in t.scope])]
    wanted = np.einsum(*operands, [names.index(n) for n in found.scope])
    np.testing.assert_allclose(found.array, wanted, rtol=1e-13)


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
