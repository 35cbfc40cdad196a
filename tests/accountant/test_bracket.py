"""The bracket of an answer: certified above, attained below, in Python, `calibrate`, `audit` and JSON."""

import json

import numpy as np
import pytest
from strategies import random_network

import quiltdp as qd
from quiltdp.accountant.attack_search import AttackSearch
from quiltdp.accountant.bracket import bracket, quick_bracket
from quiltdp.errors import InvalidArgument, ModelTooWide
from quiltdp.inference.marginals import TiltedTree


def loopy(seed):
    """Ten nodes, two or three states, several loops: too many adversaries to list quickly, easy to attack."""
    rng = np.random.default_rng(seed)
    names = [f"n{k}" for k in range(10)]
    parents = {n: sorted(rng.choice(k, size=min(k, 2), replace=False).tolist()) for k, n in enumerate(names)}
    named = {n: [names[p] for p in found] for n, found in parents.items()}
    return random_network(seed, named, {n: 2 + (k % 4 == 0) for k, n in enumerate(names)}, zeros=0.1)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("adversary", ["prior", "knows:1", "informed"])
def test_attained_is_below_certified_and_replays(seed, adversary):
    model = loopy(seed)
    certified = qd.leakage(model, 0.4, adversary=adversary, work="quick").epsilon
    found = bracket(model, certified, 0.4, adversary, work="quick")
    assert found.attained <= found.certified
    assert found.ratio >= 1.0
    assert found.attack.replay(model) == found.attained
    again = bracket(model, certified, 0.4, adversary, work="quick")
    assert again.to_dict() == found.to_dict()


def test_more_work_never_finds_less():
    model = loopy(5)
    levels = [qd.attack(model, 0.3, work=w).leakage for w in ("quick", "normal")]
    assert levels == sorted(levels)


def test_unequal_records_are_attacked_with_their_own_alpha():
    model = qd.example("cancer")
    cal = qd.calibrate(model, 1.0, qd.Laplace({r: 1.0 + (r == "Xray") for r in model.records}))
    found = cal.bracket()
    assert found.attained <= cal.leakage <= 1.0
    for name, table in found.attack.mechanism.items():
        assert max(table.values()) <= cal.dp_epsilon[name]


def test_where_there_is_no_bracket():
    model = qd.example("cancer")
    discrete = qd.calibrate(model, 1.0, qd.DiscreteGaussian(1.0, 1e-6), method="group")
    with pytest.raises(InvalidArgument, match="pure"):
        discrete.bracket()
    assert quick_bracket(discrete, model) is None
    together = qd.calibrate(model, 1.0, qd.Laplace(1.0), protect={"two": ["Smoker", "Xray"]}, method="group")
    with pytest.raises(InvalidArgument, match="single records"):
        together.bracket()
    assert quick_bracket(together, model) is None
    read = qd.Calibration.from_json(qd.calibrate(model, 1.0, qd.Laplace(1.0), method="group").to_json())
    with pytest.raises(InvalidArgument, match="from a file"):
        read.bracket()
    with pytest.raises(ModelTooWide):
        qd.attack(model, 0.1, max_entries=2)
    with pytest.raises(InvalidArgument, match="Smoke"):
        qd.attack(model, 0.1, "knows=Smoke")


def test_one_possible_value_attains_nothing():
    model = qd.Model.from_tables({"a": ([], [1.0, 0.0]), "b": (["a"], [[1.0, 0.0], [0.5, 0.5]])})
    found = bracket(model, 0.0, 0.5)
    assert (found.attained, found.ratio) == (0.0, None)
    assert "ratio –" in str(found)


def test_laws_of_many_cases_are_those_of_one():
    model = loopy(1)
    tree = TiltedTree(model)
    cases = [{}, {"n0": 1}, {"n3": 0, "n7": 1}, {"n9": 1}]
    many = tree.laws_given(cases)
    for k, case in enumerate(cases):
        _, one = tree.laws(tree.evidence(case))
        for n in model.nodes:
            assert many[n][k] == pytest.approx(one[n], abs=1e-12)


def test_the_search_is_bounded_by_the_size_of_the_tree():
    model = loopy(2)
    tree = TiltedTree(model)
    who = qd.knows(2)
    few = AttackSearch(tree, np.full(10, 0.1), who, "quick")
    assert few.left <= 400
    few.best()
    assert few.left > -200  # what is begun is finished


def test_audit_shows_the_bracket_of_models_without_a_limit(cli):
    told = json.loads(cli("audit", "models/sachs.bif", "--dp-epsilon", 0.1, "--work", "quick", "--json").out)
    assert told["sound"] is True
    assert told["bracket"]["attained"] <= told["bracket"]["certified"]
    shown = cli("audit", "models/cancer.bif", "--dp-epsilon", 0.1, "--adversary", "knows:1").out
    assert "an attack attains" in shown
    assert "bracket: certified ≤" in shown
    assert "no bound is below the limit" in shown
    large = qd.audit(qd.example("asia"), 0.1, "prior")
    assert large.bracket.ratio < 1.05


def test_calibrate_brackets_by_default(cli):
    call = ("calibrate", "models/cancer.bif", "--epsilon", 1)
    told = json.loads(cli(*call, "--json").out)["bracket"]
    assert told["attained"] <= told["certified"] <= 1.0
    assert told["target"] == "Cancer"
    assert json.loads(cli(*call, "--no-bracket", "--json").out)["bracket"] is None
    together = (*call, "--protect", "two=Smoker,Xray")
    assert json.loads(cli(*together, "--json").out)["bracket"] is None
    refused = cli(*together, "--bracket")
    assert refused.code == 2
    assert "--bracket" in refused.err
