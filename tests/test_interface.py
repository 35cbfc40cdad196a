"""Every public function takes any model: ours, pgmpy's, networkx's, a file, what a fit returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest

import quiltdp as qd
from quiltdp import generalization
from quiltdp.accountant.compare import calibrate_adversaries
from quiltdp.errors import InvalidArgument, InvalidModel
from quiltdp.generalization.concentration import additive_concentration
from quiltdp.generalization.sum_law import sum_law
from quiltdp.graph.types import DependencyGraph
from quiltdp.inference.influence import blanket_influence
from quiltdp.interface import any_model, as_model
from quiltdp.io.networkx import to_networkx
from quiltdp.io.pgmpy import from_pgmpy, to_pgmpy
from quiltdp.papers import zhao
from quiltdp.papers.typical_stability import model_queries

PATH = "models/cancer.bif"
CANCER = qd.load_model(PATH)
LAPLACE = qd.Laplace(1.0)


@pytest.fixture(scope="module")
def forms() -> dict[str, Any]:
    return {"path": PATH, "pgmpy": to_pgmpy(CANCER), "networkx": to_networkx(CANCER)}


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "calibrate": lambda m: qd.calibrate(m, 1.0, LAPLACE).sigma,
    "leakage": lambda m: qd.leakage(m, 0.1).epsilon,
    "dp_epsilon": lambda m: qd.dp_epsilon(m, 1.0),
    "attack": lambda m: str(qd.attack(m, 0.1)),
    "robust": lambda m: qd.robust(m, 1.0, LAPLACE, off_by=0.01).sigma,
    "robust family": lambda m: qd.robust([m, CANCER], 1.0, LAPLACE).sigma,
    "moralize": qd.moralize,
    "quilts": lambda m: len(list(qd.quilts(m, "Cancer"))),
    "markov_blanket": lambda m: qd.markov_blanket(m, "Cancer"),
    "max_influence": lambda m: qd.max_influence(m, of="Cancer", on=["Xray"]),
    "blanket_influence": lambda m: blanket_influence(m, "Cancer"),
    "quilt_influence": lambda m: qd.quilt_influence(m, next(qd.quilts(m, "Cancer"))).b,
    "influence_table": lambda m: [row.to_dict() for row in qd.influence_table(m).values()],
    "effective_sample_size": generalization.effective_sample_size,
    "concentration": generalization.concentration,
    "additive_concentration": additive_concentration,
    "sum_law": lambda m: sum_law(m, {"Cancer": (0, 1), "Xray": (0, 1)}).chances.tolist(),
    "published_records": lambda m: zhao.published_records(m, budget=1, sigma=1.0, accuracy=0.9, failure=0.1),
    "published_plan": lambda m: zhao.published_plan(
        m, queries=2, budget=1, accuracy=0.9, failure=0.1, slack=0.1
    ),
    "model_queries": lambda m: model_queries(m).radius(0.1),
    "calibrate_adversaries": lambda m: [c.sigma for c in calibrate_adversaries(m, 1.0, LAPLACE)],
    "plan_length": lambda m: generalization.plan_length(m, queries=1, budget=1, accuracy=0.3),
    "plan": lambda m: str(qd.plan(m, queries=1, budget=1, accuracy=0.99)),
}


@pytest.mark.parametrize("form", ["path", "pgmpy", "networkx"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_form_of_a_model_has_the_same_answer(name: str, form: str, forms: dict[str, Any]) -> None:
    def answer(model: Any) -> Any:
        try:
            return FUNCTIONS[name](model)
        except qd.QuiltdpError as error:  # a plan that no five records can keep
            return str(error)

    assert answer(forms[form]) == answer(CANCER)


def test_a_plan_is_kept_and_extended_for_any_form_of_its_model() -> None:
    rows = [{"x": [k, 1 - k] * 250} for k in range(2)]
    form = to_networkx(qd.markov_chain([[0.5, 0.5], [0.5, 0.5]], length=500))
    made = qd.plan(form, queries=2, budget=1)
    settings = generalization.holdout_arguments(form, made)
    assert settings["calibration"].sigma == made.sigma
    study = qd.ReusableHoldout(*rows, ledger=":memory:", **settings)
    assert generalization.extend_plan(study.ledger, form).queries == 4


def test_the_model_may_be_a_keyword() -> None:
    assert qd.leakage(model=PATH, dp_epsilon=0.1).epsilon == qd.leakage(CANCER, 0.1).epsilon
    with pytest.raises(TypeError, match="model"):
        qd.leakage(dp_epsilon=0.1)
    assert any_model(lambda m: m)(PATH).fingerprint == CANCER.fingerprint


@pytest.mark.parametrize(
    ("thing", "says"),
    [(3, "load_model"), ({"A": [0.5, 0.5]}, "Model.from_tables"), (nx.path_graph(3), "directed")],
)
def test_what_is_no_model_is_refused_with_what_to_call(thing: Any, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        qd.calibrate(thing, 1.0, LAPLACE)


def test_a_frame_is_data() -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(InvalidArgument, match="fit_network"):
        as_model(pandas.DataFrame({"a": [0, 1]}))


def test_markov_networks_of_pgmpy() -> None:
    ours = qd.Model.from_potentials({"A": 2, "B": 2}, [("AB", [[3, 1], [1, 3]])])
    assert qd.leakage(to_pgmpy(ours), 0.1).epsilon == qd.leakage(ours, 0.1).epsilon


def dynamic(*, filled: bool) -> Any:
    from pgmpy.factors.discrete import TabularCPD
    from pgmpy.models import DynamicBayesianNetwork

    d, i, g = ("D", 0), ("I", 0), ("G", 0)
    network = DynamicBayesianNetwork([(d, g), (i, g), (d, ("D", 1)), (i, ("I", 1))])
    network.add_cpds(
        TabularCPD(g, 2, [[0.3, 0.05, 0.9, 0.5], [0.7, 0.95, 0.1, 0.5]], [i, d], [2, 2]),
        TabularCPD(d, 2, [[0.6], [0.4]]),
        TabularCPD(("D", 1), 2, [[0.7, 0.3], [0.3, 0.7]], [d], [2]),
        TabularCPD(i, 2, [[0.7], [0.3]]),
        TabularCPD(("I", 1), 2, [[0.5, 0.4], [0.5, 0.6]], [i], [2]),
    )
    if filled:
        network.initialize_initial_state()
    return network


@pytest.mark.parametrize("filled", [False, True], ids=["as given", "filled in by pgmpy"])
def test_dynamic_networks_are_unrolled(filled: bool) -> None:
    model = from_pgmpy(dynamic(filled=filled), length=3)
    assert [str(f) for f in model.factors][3:6] == ["P(G_1 | I_1, D_1)", "P(D_1 | D_0)", "P(I_1 | I_0)"]
    grades = {f.child: f.table for f in model.factors if str(f.child).startswith("G")}
    for table in grades.values():
        assert np.allclose(table[..., 0], [[0.3, 0.05], [0.9, 0.5]])
    with pytest.raises(InvalidArgument, match=r"from_pgmpy\(network, length="):
        qd.calibrate(dynamic(filled=filled), 1.0, LAPLACE)


def test_a_dynamic_network_without_a_table_between_slices_is_refused() -> None:
    network = dynamic(filled=False)
    network.cpds = [c for c in network.cpds if tuple(c.variables[0]) != ("I", 1)]
    with pytest.raises(InvalidModel, match="'I' has no CPD for slice 1"):
        from_pgmpy(network, length=3)
    with pytest.raises(InvalidArgument, match="only a DynamicBayesianNetwork"):
        from_pgmpy(to_pgmpy(CANCER), length=3)


def test_graphs_are_taken_and_handed_out_as_networkx() -> None:
    moral = qd.moralize("models/asia.bif")
    assert moral.joined == (("tub", "lung"), ("bronc", "either"))
    assert {frozenset(e) for e in moral.joined} == {
        frozenset(e)
        for e in set(moral.edges())
        if not to_networkx(qd.example("asia")).has_edge(*e)
        and not to_networkx(qd.example("asia")).has_edge(*e[::-1])
    }
    graph = moral.to_networkx()
    assert [str(q) for q in qd.quilts(graph, "smoke")] == [str(q) for q in qd.quilts(moral, "smoke")]
    bare = nx.DiGraph([("A", "C"), ("B", "C")])
    assert qd.moralize(bare).joined == (("A", "B"),) or qd.moralize(bare).joined == (("B", "A"),)
    assert DependencyGraph("AB", [("A", "B")]).joined == ()


def test_fits_are_models() -> None:
    rng = np.random.default_rng(0)
    columns = {"x": rng.integers(0, 2, 400), "y": rng.integers(0, 2, 400)}
    fits = [
        qd.fit_chain(columns["x"], 2),
        qd.fit_network(columns, edges=[]),
        qd.fit_rows(columns, "independent"),
    ]
    for model in fits:
        assert isinstance(model, qd.Model)
        assert model.fit.model is model
        assert qd.leakage(model, 0.1).epsilon >= 0.1
    assert CANCER.fit is None


def test_the_old_keyword_warns() -> None:
    with pytest.warns(FutureWarning, match="epsilon="):
        assert qd.dp_epsilon(CANCER, bdp_epsilon=1.0) == qd.dp_epsilon(CANCER, epsilon=1.0)


def test_names_that_left_the_top_level_say_where_they_are() -> None:
    for module, names in qd._MOVED.items():
        for name in names.split():
            with pytest.warns(FutureWarning, match=f"from {module} import {name}"):
                assert getattr(qd, name) is not None
    assert len(qd.__all__) <= 34


def test_a_frame_of_transitions_names_the_states() -> None:
    pandas = pytest.importorskip("pandas")
    rows = [[0.9, 0.1], [0.2, 0.8]]
    frame = pandas.DataFrame(rows, index=["home", "work"], columns=["home", "work"])
    chain = qd.markov_chain(frame, length=5)
    assert chain.states["X0"] == ("home", "work")
    assert chain.fingerprint == qd.markov_chain(rows, length=5, states=["home", "work"]).fingerprint
    with pytest.raises(InvalidModel, match="same states"):
        qd.markov_chain(frame.set_axis(["work", "home"], axis=0), length=5)


def test_frames_of_families_and_points_are_read_like_their_files() -> None:
    pandas = pytest.importorskip("pandas")
    people = {"id": ["kid", "dad", "mum"], "father": ["dad", "0", "0"], "mother": ["mum", "0", "0"]}
    family = qd.pedigree(pandas.DataFrame({**people, "sex": [1, 1, 2]}), allele_frequency=0.1)
    assert sorted(family.records) == ["dad", "kid", "mum"]
    path = "models/location/trackintel_google_trajectory.csv"
    how: dict[str, Any] = {"cell": "2km", "interval": "5min", "estimator": "additive:1"}
    frame = pandas.read_csv(path, dtype=str)
    assert qd.location_chain(frame, **how).fingerprint == qd.location_chain(path, **how).fingerprint


def test_a_misspelt_option_is_named_with_its_function() -> None:
    with pytest.raises(TypeError, match=r"^leakage\(\) has no option 'wrok'; did you mean 'work'\?$"):
        qd.leakage(CANCER, 0.1, wrok="quick")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^calibrate\(\) has no option 'zzz'$"):
        qd.robust(CANCER, 1.0, LAPLACE, zzz=1)
