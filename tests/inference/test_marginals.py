"""Conditionals and posteriors against pgmpy and the oracle."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import example_models, models

import quiltdp as qd
from quiltdp.errors import InvalidArgument, ModelTooWide
from quiltdp.inference import brute_force, marginals
from quiltdp.inference.marginals import conditional, log_marginal, posterior
from quiltdp.inference.workspace import Workspace


def pgmpy_engine(model):
    from pgmpy.factors.discrete import TabularCPD
    from pgmpy.inference import VariableElimination
    from pgmpy.models import DiscreteBayesianNetwork

    network = DiscreteBayesianNetwork()
    network.add_nodes_from(model.nodes)
    for f in model.factors:
        network.add_edges_from((p, f.child) for p in f.parents)
    for f in model.factors:
        columns = f.table.reshape(-1, f.table.shape[-1]).T
        network.add_cpds(TabularCPD(f.child, columns.shape[0], columns, f.parents, f.table.shape[:-1]))
    return VariableElimination(network)


@pytest.mark.parametrize("name", ["asia", "alarm", "child", "insurance"])
def test_conditionals_agree_with_pgmpy(name):
    """P(node | one other node) for every node, and P(node | two others) for a sample."""
    model = qd.load_model(f"models/{name}.bif")
    engine = pgmpy_engine(model)
    rng = np.random.default_rng(3)
    nodes = list(model.nodes)
    for k, node in enumerate(nodes):
        others = [nodes[k - 1]] if k % 3 else list(rng.choice([n for n in nodes if n != node], 2, False))
        found = engine.query([node, *others], show_progress=False)
        joint = found.values.transpose([found.variables.index(n) for n in (*others, node)])
        mass = joint.sum(axis=-1, keepdims=True)
        wanted = np.divide(joint, mass, out=np.zeros_like(joint), where=mass > 0)
        np.testing.assert_allclose(conditional(model, [node], others), wanted, atol=1e-10)


@settings(max_examples=60, deadline=None)
@given(models(), st.data())
def test_conditional_and_posterior_agree_with_the_joint(model, data):
    nodes = list(data.draw(st.permutations(list(model.nodes))))
    cut = data.draw(st.integers(1, len(nodes)))
    of, known = nodes[: min(cut, 2)], nodes[cut : cut + 2]
    wanted = brute_force.conditional(model, of, known)
    np.testing.assert_allclose(conditional(model, of, known), wanted, atol=1e-10)
    values = [data.draw(st.integers(0, model.cardinality(n) - 1)) for n in known]
    evidence = {n: model.states[n][v] for n, v in zip(known, values, strict=True)}
    row = wanted[tuple(values)]
    if row.sum() == 0:
        with pytest.raises(InvalidArgument, match="impossible"):
            posterior(model, of, evidence)
    else:
        np.testing.assert_allclose(posterior(model, of, evidence), row, atol=1e-10)


@pytest.mark.parametrize("name", example_models())
def test_elimination_gives_the_same_marginals(name, monkeypatch):
    model = example_models()[name]
    nodes = tuple(model.nodes)[::-2]
    wanted = brute_force.log_marginal(model, nodes)

    monkeypatch.setattr(marginals, "_calibrated", lambda _: None)
    found = log_marginal(model, nodes)
    np.testing.assert_allclose(np.exp(found), np.exp(wanted), atol=1e-12)
    np.testing.assert_array_equal(found > -np.inf, wanted > -np.inf)


def test_refusals():
    model = example_models()["chain"]
    with pytest.raises(InvalidArgument, match="no state"):
        posterior(model, ["X0"], {"X1": "blue"})
    with pytest.raises(InvalidArgument, match="both"):
        conditional(model, ["X0"], ["X0"])
    long = qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], 60)
    with pytest.raises(ModelTooWide, match="entries"):
        log_marginal(long, [f"X{k}" for k in range(40)])


def test_what_a_workspace_keeps_changes_no_number():
    model = qd.load_model("models/child.bif")
    warm = Workspace(model)
    for nodes in (["Age", "Disease"], ["Sick", "Age", "LungFlow"], ["Disease", "Age"]):
        once = log_marginal(model, nodes, workspace=warm)
        np.testing.assert_array_equal(once, log_marginal(model, nodes, workspace=warm))
        np.testing.assert_array_equal(once, log_marginal(model, nodes, workspace=Workspace(model, 0)))


def test_many_tilted_laws_are_as_each_alone():
    """Cases that are too rare for plain probabilities are asked by themselves."""
    model = qd.example("asia")
    tree = marginals.TiltedTree(model)
    rng = np.random.default_rng(3)
    cases = [{}, {"smoke": 0}, {"smoke": 1, "dysp": 0}, {"xray": 1}]
    tilts = [{n: rng.random(2) for n in ("tub", "smoke", "bronc")} for _ in cases]
    tilts[1] = {"asia": np.array([-800.0, -750.0]), "bronc": np.array([0.0, 1.0])}
    tilts[3] = {"bronc": np.array([0.0, -900.0]), "lung": np.array([-900.0, -950.0]), "either": np.zeros(2)}
    means, laws = tree.laws_tilted(cases, tilts)
    for row, (case, tilt) in enumerate(zip(cases, tilts, strict=True)):
        free = {n: w for n, w in tilt.items() if n not in case}
        total, alone = tree.laws({**tree.evidence(case), **free})
        assert means[row] == pytest.approx(total, rel=1e-12, abs=1e-12)
        for n in model.nodes:
            assert laws[n][row] == pytest.approx(alone[n], rel=1e-10, abs=1e-300)
