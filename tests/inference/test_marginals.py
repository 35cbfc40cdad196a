"""Marginals and conditionals against pgmpy and the oracle, and sums under weights."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import example_models, models

import quiltdp as qd
from quiltdp.errors import InvalidArgument, ModelTooWide
from quiltdp.inference import brute_force, marginals
from quiltdp.inference.marginals import conditional, log_marginal
from quiltdp.inference.sums import WeightedSums
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
def test_conditionals_agree_with_the_joint(model, data):
    nodes = list(data.draw(st.permutations(list(model.nodes))))
    cut = data.draw(st.integers(1, len(nodes)))
    of, known = nodes[: min(cut, 2)], nodes[cut : cut + 2]
    wanted = brute_force.conditional(model, of, known)
    np.testing.assert_allclose(conditional(model, of, known), wanted, atol=1e-10)


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


def test_laws_of_many_cases_are_as_each_alone_however_rare():
    """Laws are computed in scaled probabilities, expectations in logarithms: they agree."""
    model = qd.example("asia")
    sums = WeightedSums(model)
    rng = np.random.default_rng(3)
    cases = [{}, {"smoke": 0}, {"smoke": 1, "dysp": 0}, {"xray": 1}]
    tilts = [{n: rng.random(2) for n in ("tub", "smoke", "bronc")} for _ in cases]
    tilts[1] = {"asia": np.array([-500.0, -450.0]), "bronc": np.array([0.0, 1.0])}
    tilts[3] = {"bronc": np.array([0.0, -600.0]), "lung": np.array([-600.0, -650.0]), "either": np.zeros(2)}
    weights = sums.weights(cases, tilts)
    means, laws = sums.laws(weights)
    assert means == pytest.approx(sums.log_means(weights), rel=1e-12, abs=1e-12)
    for row in range(len(cases)):
        mean, alone = sums.laws({n: w[[row]] for n, w in weights.items()})
        assert means[row] == pytest.approx(mean[0], rel=1e-12, abs=1e-12)
        for n in model.nodes:
            assert laws[n][row] == pytest.approx(alone[n][0], rel=1e-10, abs=1e-300)


def test_expectations_of_rare_evidence_keep_their_digits():
    tiny = 1e-200
    rows = [[1.0 - tiny, tiny], [tiny, 1.0 - tiny]]
    model = qd.Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], rows), "C": (["B"], rows)})
    sums = WeightedSums(model)
    found = sums.log_means(sums.weights([{"A": 0, "B": 1, "C": 0}, {"A": 0, "C": 1}]))
    assert found == pytest.approx([np.log(0.5) + 2 * np.log(tiny), np.log(tiny)], rel=1e-12)


def test_the_law_of_a_sum_is_a_mean_of_turns():
    """ln E[ω^(number of ones)] at every root of unity gives the law of the number, by Fourier."""
    model = qd.load_model("models/cancer.bif")
    count = len(model.nodes) + 1
    turns = -2j * np.pi * np.arange(count) / count
    logs = WeightedSums(model).log_means({n: turns[:, None] * np.arange(2) for n in model.nodes})
    joint = np.exp(log_marginal(model, model.nodes))
    ones = np.indices(joint.shape).sum(axis=0)
    wanted = np.bincount(ones.ravel(), joint.ravel(), minlength=count)
    assert np.fft.ifft(np.exp(logs)).real == pytest.approx(wanted, abs=1e-12)
