"""To and from pgmpy's networks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from strategies import bayesian_networks

from quiltdp import Model, load_model, markov_chain
from quiltdp.errors import InvalidArgument, InvalidModel
from quiltdp.io.pgmpy import from_pgmpy, to_pgmpy
from quiltdp.model import Factor

ROOT = Path(__file__).parents[2]


@given(bayesian_networks())
def test_bayesian_networks_go_both_ways(m):
    network = to_pgmpy(m)
    assert network.check_model()
    again = from_pgmpy(network)
    assert again.fingerprint == m.fingerprint
    assert tuple(again.nodes) == tuple(m.nodes)
    assert again.records == m.records


def test_markov_networks_go_both_ways():
    m = Model.from_potentials(
        {"A": ["x", "y"], "B": ["u", "v", "w"], "C": 2},
        [(["A", "B"], [[1, 2, 3], [4, 5, 6]]), (["B", "C"], [[1, 0], [0, 1], [2, 2]]), (["C"], [0.5, 3])],
        records=["A", "C"],
    )
    network = to_pgmpy(m)
    assert network.check_model()
    assert from_pgmpy(network).fingerprint == m.fingerprint


def test_chains_go_to_pgmpy():
    m = markov_chain([[0.9, 0.1], [0.2, 0.8]], 5, states=["home", "work"])
    again = from_pgmpy(to_pgmpy(m))
    assert again.fingerprint == Model(dict(m.states), list(m.factors)).fingerprint


def test_the_joint_is_pgmpys_joint():
    from pgmpy.inference import VariableElimination

    m = load_model(ROOT / "models/asia.bif")
    answer = VariableElimination(to_pgmpy(m)).query(["lung", "dysp"], show_progress=False)
    joint = np.ones(())
    order = list(m.nodes)
    for f in m.factors:
        shape = [2 if n in f.scope else 1 for n in order]
        axes = sorted(range(len(f.scope)), key=lambda k, f=f: order.index(f.scope[k]))
        joint = joint * f.table.transpose(axes).reshape(shape)
    other = tuple(k for k, n in enumerate(order) if n not in ("lung", "dysp"))
    expected = joint.sum(axis=other)  # axes lung, dysp
    for a, lung in enumerate(m.states["lung"]):
        for b, dysp in enumerate(m.states["dysp"]):
            assert answer.get_value(lung=lung, dysp=dysp) == pytest.approx(expected[a, b], rel=1e-12)


def two_cpds(parent_states):
    from pgmpy.factors.discrete import TabularCPD
    from pgmpy.models import DiscreteBayesianNetwork

    network = DiscreteBayesianNetwork([("A", "B")])
    a = TabularCPD("A", 2, [[0.3], [0.7]], state_names={"A": ["x", "y"]})
    b = TabularCPD(
        "B",
        2,
        [[0.9, 0.2], [0.1, 0.8]],
        evidence=["A"],
        evidence_card=[2],
        state_names={"B": ["u", "v"], "A": parent_states},
    )
    network.add_cpds(a, b)
    return network


def test_states_listed_in_another_order_are_put_in_order():
    assert from_pgmpy(two_cpds(["x", "y"])).factors[1].table.tolist() == [[0.9, 0.1], [0.2, 0.8]]
    assert from_pgmpy(two_cpds(["y", "x"])).factors[1].table.tolist() == [[0.2, 0.8], [0.9, 0.1]]
    with pytest.raises(InvalidModel, match="node 'A': one table gives it the states"):
        from_pgmpy(two_cpds(["x", "z"]))


def test_numbers_as_names():
    from pgmpy.factors.discrete import TabularCPD
    from pgmpy.models import DiscreteBayesianNetwork

    network = DiscreteBayesianNetwork([(0, 1)])
    network.add_cpds(TabularCPD(0, 2, [[0.3], [0.7]]), TabularCPD(1, 2, [[0.9, 0.2], [0.1, 0.8]], [0], [2]))
    m = from_pgmpy(network)
    assert m.nodes == ("0", "1")
    assert m.states["0"] == ("0", "1")


def test_latents_and_records():
    m = load_model(ROOT / "models/asia.bif", records=["smoke", "lung"])
    assert to_pgmpy(m).latents == set(m.latents)
    assert from_pgmpy(to_pgmpy(m)).records == m.records
    assert from_pgmpy(to_pgmpy(m), records=["asia"]).records == ("asia",)


def test_what_is_refused():
    from pgmpy.models import DiscreteBayesianNetwork, DiscreteMarkovNetwork

    with pytest.raises(InvalidModel, match="node 'A' has no CPD"):
        from_pgmpy(DiscreteBayesianNetwork([("A", "B")]))
    with pytest.raises(InvalidModel, match="node 'A' is in no factor"):
        from_pgmpy(DiscreteMarkovNetwork([("A", "B")]))
    with pytest.raises(InvalidArgument, match="not dict"):
        from_pgmpy({"A": 1})
    network = two_cpds(["x", "y"])
    network.get_cpds("A").values = np.array([0.3, 0.6])
    with pytest.raises(InvalidModel, match="node 'A': the table sums"):
        from_pgmpy(network)


def test_factors_of_mixed_kind_become_a_markov_network():
    factors = [Factor(("A",), [0.5, 0.5], "A"), Factor(("A", "B"), [[2, 1], [1, 2]])]
    network = to_pgmpy(Model({"A": ["x", "y"], "B": ["u", "v"]}, factors))
    assert len(network.get_factors()) == 2
