"""The JSON format: exact round trips, the schema, and complaints that name the place."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import bayesian_networks

import quiltdp
from quiltdp import Model, load_model, markov_chain, save_model
from quiltdp.chain import ChainModel, ChainSegment, markov_chains
from quiltdp.errors import FileFormatError, InvalidArgument, InvalidModel, UnknownNode
from quiltdp.model import Factor

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((Path(quiltdp.__file__).parent / "io/schema/model.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
P = [[0.9, 0.1], [0.2, 0.8]]


def round_trip(m: Model, folder: Path) -> Model:
    file = folder / "model.json"
    save_model(m, file)
    VALIDATOR.validate(json.loads(file.read_text()))
    again = load_model(file)
    assert again.fingerprint == m.fingerprint
    assert type(again) is type(m)
    assert tuple(again.nodes) == tuple(m.nodes)
    assert tuple(again.factors) == tuple(m.factors)
    assert again.notes == m.notes
    return again


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@given(bayesian_networks())
def test_networks_round_trip(tmp_path_factory, m):
    again = round_trip(m, tmp_path_factory.mktemp("json"))
    assert again.records == m.records


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(0, 4))
def test_markov_networks_round_trip(tmp_path_factory, seed, nodes, factors):
    rng = np.random.default_rng(seed)
    names = [f"V{k}" for k in range(nodes)]
    states = {n: [f"s{j}" for j in range(rng.integers(1, 4))] for n in names}
    potentials = []
    for _ in range(factors):
        scope = list(rng.permutation(names)[: rng.integers(1, nodes + 1)])
        potentials.append((scope, rng.gamma(0.5, size=[len(states[n]) for n in scope]) + 1e-9))
    m = Model.from_potentials(states, potentials, records=names[:1])
    assert round_trip(m, tmp_path_factory.mktemp("json")).records == m.records


def test_mixed_and_constant_factors_round_trip(tmp_path):
    factors = [Factor(("A",), [0.5, 0.5], "A"), Factor(("A", "B"), [[2, 1], [1, 2]]), Factor((), 2.0)]
    round_trip(Model({"A": ["x", "y"], "B": ["u", "v"]}, factors), tmp_path)


@pytest.mark.parametrize("name", ["asia", "alarm", "child", "sachs", "hepar2", "pigs"])
def test_shipped_networks_round_trip(name, tmp_path):
    m = load_model(ROOT / "models" / f"{name}.bif")
    again = round_trip(m, tmp_path)
    assert again.provenance["original_file"] == m.provenance["file"]


@pytest.mark.parametrize(
    "m",
    [
        markov_chain(P, 7),
        markov_chain(P, 1_000, initial=[0.25, 0.75], states=["home", "work"], prefix="t=", notes=["n"]),
        markov_chain([P, [[0.5, 0.5], [0.1, 0.9]]], initial="uniform"),
        markov_chain([[[0.2, 0.3, 0.5], [1, 0, 0]], [[1], [1], [1]]], initial=[0.5, 0.5]),
        markov_chains(P, {"ann/": 3, "bob/": 1}, states=["a", "b"]),
        ChainModel(
            [
                ChainSegment("a", 3, np.array([0.5, 0.5]), (np.array(P),)),
                ChainSegment("b", 3, np.array([0.1, 0.9]), (np.array(P), np.array(P[::-1]))),
                ChainSegment("c", 1, np.array([1.0, 0.0]), (np.array(P),)),
            ],
            ["x", "y"],
            provenance={"person": "nobody"},
        ),
        markov_chain(P, 3).with_records(["X1"]),
    ],
)
def test_chains_round_trip(m, tmp_path):
    again = round_trip(m, tmp_path)
    assert m.provenance.items() <= again.provenance.items()


def test_compressed_and_unicode(tmp_path):
    m = Model.from_tables({'Größe "1"\n': ([], [0.1, 0.9])}, states={'Größe "1"\n': ["groß", "→"]})
    file = tmp_path / "m.json.gz"
    save_model(m, file)
    assert load_model(file).fingerprint == m.fingerprint


def test_saving_elsewhere(tmp_path):
    m = markov_chain(P, 3)
    with pytest.raises(InvalidArgument, match=r"\.json"):
        save_model(m, tmp_path / "model.bif")
    with pytest.raises(FileFormatError, match="cannot be written"):
        save_model(m, tmp_path / "no" / "folder" / "m.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["two_families", "location_chain"])
def test_shipped_files_obey_the_schema(name, tmp_path):
    file = ROOT / "models" / f"{name}.json"
    VALIDATOR.validate(json.loads(file.read_text()))
    round_trip(load_model(file), tmp_path)


def test_two_families():
    m = load_model(ROOT / "models/two_families.json")
    tables = {f.child: f for f in m.factors}
    founders = [n for n in m.nodes if not tables[n].parents]
    assert sorted(founders) == ["Ann", "Bob", "Dan", "Eve"]
    p = float(m.provenance["allele_frequency"])
    for n in founders:
        assert tables[n].table == pytest.approx([(1 - p) ** 2, 2 * p * (1 - p), p * p], rel=1e-14)
    gamete = {0: [1.0, 0.0], 1: [0.5, 0.5], 2: [0.0, 1.0]}
    for n in set(m.nodes) - set(founders):
        for father in range(3):
            for mother in range(3):
                assert (
                    tables[n].table[father, mother].tolist()
                    == np.convolve(gamete[father], gamete[mother]).tolist()
                )


# -- what is accepted, what is refused ------------------------------------------------------

NETWORK = {
    "schema": "quiltdp/network",
    "version": 1,
    "nodes": [
        {"name": "A", "states": ["x", "y"], "parents": [], "table": [0.3, 0.7]},
        {"name": "B", "states": ["u", "v"], "parents": ["A"], "table": [[0.9, 0.1], [0.2, 0.8]]},
    ],
    "records": ["B"],
    "provenance": {"who": "me"},
    "notes": ["by hand"],
}
CHAIN = {"schema": "quiltdp/chain", "version": 1, "transition": P, "length": 3}


@pytest.fixture
def read(tmp_path):
    def reader(document, **options) -> Model:
        file = tmp_path / "model.json"
        file.write_text(document if isinstance(document, str) else json.dumps(document, indent=1))
        return load_model(file, **options)

    return reader


def changed(document: dict, **fields) -> dict:
    return {k: v for k, v in {**document, **fields}.items() if v is not ...}


@pytest.mark.parametrize(
    "document",
    [
        NETWORK,
        changed(NETWORK, schema=..., version=..., records=..., provenance=..., notes=...),
        changed(NETWORK, nodes=[{"name": "A", "table": [1]}], records=["A"]),
        CHAIN,
        changed(CHAIN, schema=..., initial="uniform", states=["a", "b"], prefix="t"),
        changed(CHAIN, transition=..., transitions=[P, P], initial=[0.5, 0.5]),
        changed(CHAIN, length=..., lengths={"a": 2, "b": 3}),
        {"chains": [{"prefix": "a", "length": 2, "transition": P}]},
        {"nodes": [{"name": "A", "states": ["x", "y"]}], "factors": [{"scope": ["A"], "table": [2, 1]}]},
        {"nodes": [{"name": "A", "states": ["x", "y"]}], "factors": []},
    ],
)
def test_accepted_by_reader_and_schema(read, document):
    VALIDATOR.validate(document)
    assert isinstance(read(document), Model)


NODE_A, NODE_B = NETWORK["nodes"]

WRONG_SHAPE = [
    (changed(NETWORK, schema="quiltdp/netwrk"), "'schema' is 'quiltdp/netwrk', expected one of"),
    (changed(NETWORK, version=2), "'version' is 2"),
    (changed(NETWORK, version=True), "'version' is True"),
    (changed(NETWORK, nodes=...), "no 'nodes'"),
    (changed(NETWORK, nodes={}), "'nodes' must be a list"),
    (changed(NETWORK, nodes=[[]]), r"nodes\[0\] must be an object"),
    (changed(NETWORK, edges=[]), "unknown key 'edges'"),
    (changed(NETWORK, nodes=[{"table": [1.0]}]), r"nodes\[0\] has no 'name'"),
    (changed(NETWORK, nodes=[{"name": 3, "table": [1.0]}]), "must be a string, not the number 3"),
    (changed(NETWORK, nodes=[{"name": "A"}]), "node 'A' has no 'table'"),
    (changed(NETWORK, nodes=[{**NODE_A, "tabel": []}]), "node 'A' has the unknown key 'tabel'"),
    (changed(NETWORK, nodes=[{**NODE_A, "states": "xy"}]), "'states' must be a list"),
    (changed(NETWORK, nodes=[{**NODE_A, "states": [0, 1]}]), r"'states'\[0\] must be a string"),
    (
        changed(NETWORK, nodes=[{**NODE_A, "table": ["0.3", "0.7"]}]),
        "must hold numbers, found the string '0.3'",
    ),
    (changed(NETWORK, nodes=[{**NODE_A, "table": [True, False]}]), "must hold numbers, found true"),
    (changed(NETWORK, nodes=[{**NODE_A, "table": [0.3, None]}]), "must hold numbers, found null"),
    (changed(NETWORK, nodes=[{**NODE_A, "parents": "B"}]), "'parents' must be a list"),
    (changed(NETWORK, records="B"), "'records' must be a list"),
    (changed(NETWORK, provenance={"p": 0.3}), "'provenance'.*must be a string"),
    (changed(NETWORK, notes="by hand"), "'notes' must be a list"),
    (changed(CHAIN, length="3"), "'length' must be a whole number"),
    (changed(CHAIN, transition=...), "either 'transition' or 'transitions'"),
    (changed(CHAIN, transitions=[P, P]), "either 'transition' or 'transitions'"),
    (changed(CHAIN, transition=[P, P]), "'transition' is one matrix"),
    (changed(CHAIN, transition=..., transitions=P, initial=[1, 0]), "must be a list of matrices"),
    (changed(CHAIN, transition=..., transitions=[], initial=[1, 0]), "'transitions' is empty"),
    (changed(CHAIN, lengths={"a": 2}), "'lengths' and 'length' cannot be given together"),
    (changed(CHAIN, lenght=4), "unknown key 'lenght'"),
    (changed(CHAIN, initial=["a", "b"]), "must hold numbers"),
    ({"chains": [{"length": 2, "transition": P}]}, r"chains\[0\] has no 'prefix'"),
    ({"nodes": [{"name": "A"}], "factors": []}, "node 'A' has no 'states'"),
    ({"nodes": [NODE_A], "factors": []}, "unknown key"),
    ({"nodes": [{"name": "A", "states": ["x"]}], "factors": [{"scope": ["A"]}]}, "no 'table'"),
    ({}, "expected a network"),
    ([], "must be an object"),
]


@pytest.mark.parametrize(("document", "words"), WRONG_SHAPE)
def test_wrong_shapes_are_refused_by_reader_and_schema(read, document, words):
    assert not VALIDATOR.is_valid(document)
    with pytest.raises(FileFormatError, match=words) as caught:
        read(document)
    assert "model.json" in str(caught.value)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (changed(NETWORK, nodes=[]), "model.json: the model has no nodes"),
        (changed(NETWORK, nodes=[NODE_A, NODE_A]), "node 'A' is listed twice"),
        (changed(NETWORK, nodes=[NODE_B]), r"model.json:\d+: node 'B': its parent 'A' has no table"),
        (
            changed(NETWORK, nodes=[{**NODE_A, "table": [0.3, 0.6]}]),
            r"model.json:\d+: node 'A': the table sums",
        ),
        (changed(NETWORK, nodes=[{**NODE_A, "table": [0.3, [0.7]]}]), "rectangular"),
        (changed(NETWORK, nodes=[{**NODE_A, "states": ["x"]}], records=...), "shape"),
        (changed(CHAIN, length=0), "at least 1"),
        (changed(CHAIN, length=...), "needs a length"),
        (changed(CHAIN, initial="start"), "'stationary', 'uniform' or a vector"),
        (changed(CHAIN, states=["a"]), "1 are named"),
        (changed(CHAIN, prefix="x1"), "digit"),
    ],
)
def test_wrong_models_name_the_file(read, document, words):
    with pytest.raises(InvalidModel, match=words):
        read(document)


def test_unknown_records(read):
    with pytest.raises(UnknownNode, match=r"model.json: record 'Z' is not a node"):
        read(changed(NETWORK, records=["Z"]))
    with pytest.raises(UnknownNode, match=r"model.json: record 'X9' is not a node"):
        read(changed(CHAIN, records=["X9"]))
    assert read(NETWORK, records=["A"]).records == ("A",)
    assert read(CHAIN, records=["X2"]).records == ("X2",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"nodes": [\n  {"name": "A",}\n]}', r"model.json:2: this is not JSON"),
        ('{"nodes": [', r"model.json:1: this is not JSON"),
        ('{"nodes": [{"name": "A", "table":\n [NaN, 1]}]}', r"model.json:2: NaN is not a number"),
        ('{"nodes": [{"name": "A", "table": [1e999, 0]}]}', "infinite"),
        ('{"nodes": [{"name": "A", "table": [1], "table": [1]}]}', "'table' occurs twice"),
        ("[" * 100_000, "nested too deeply|not JSON"),
        ('{"nodes": [{"name": "A", "table": ' + "[" * 90 + "1" + "]" * 90 + "}]}", "rectangular|axes"),
        ('{"nodes": [{"name": "A", "table": [' + "9" * 5000 + "]}]}", "5,000 digits, too many"),
        ("nodes: none", r"model.json:1: this is not JSON"),
    ],
)
def test_texts_that_are_not_json(read, text, words):
    with pytest.raises((FileFormatError, InvalidModel), match=words):
        read(text)
