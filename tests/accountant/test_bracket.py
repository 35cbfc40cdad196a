"""The bracket of an answer: certified above, attained below, in Python, `calibrate`, `audit` and JSON."""

import json
from dataclasses import replace

import loopy as truth
import numpy as np
import pytest
from strategies import random_network

import quiltdp as qd
from quiltdp.accountant.attack import AttackSearch
from quiltdp.accountant.audit import audit
from quiltdp.accountant.bracket import bracket, quick_bracket
from quiltdp.errors import InvalidArgument, ModelTooWide
from quiltdp.inference.sums import WeightedSums
from quiltdp.mechanisms import DiscreteGaussian, Repeated


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
    twice = qd.calibrate(
        model, 1.0, Repeated(DiscreteGaussian(1.0, 1e-6), times=2, delta=1e-6), method="group"
    )
    with pytest.raises(InvalidArgument, match="pure"):
        twice.bracket()
    assert quick_bracket(twice, model) is None
    together = qd.calibrate(model, 1.0, qd.Laplace(1.0), protect={"two": ["Smoker", "Xray"]}, method="group")
    unsaid = replace(together, origin=(model, {}))
    with pytest.raises(InvalidArgument, match="not written"):
        unsaid.bracket()
    assert quick_bracket(unsaid, model) is None
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


def test_the_search_is_bounded_by_the_size_of_the_tree():
    model = loopy(2)
    who = qd.knows(2)
    few = AttackSearch(WeightedSums(model), np.full(10, 0.1), who, "quick")
    assert few.left <= 400
    few.best()
    assert few.left > -200  # what is begun is finished


def test_audit_shows_the_bracket_of_models_without_a_limit(cli):
    told = json.loads(
        cli("leakage", "--audit", "models/sachs.bif", "--dp-epsilon", 0.1, "--work", "quick", "--json").out
    )
    assert told["sound"] is True
    assert told["bracket"]["attained"] <= told["bracket"]["certified"]
    shown = cli("leakage", "--audit", "models/cancer.bif", "--dp-epsilon", 0.1, "--adversary", "knows:1").out
    assert "an attack attains" in shown
    assert "bracket: certified ≤" in shown
    assert "no bound is below the limit" in shown
    large = audit(qd.example("asia"), 0.1, "prior")
    assert large.bracket.ratio < 1.05


def test_calibrate_brackets_by_default(cli):
    call = ("calibrate", "models/cancer.bif", "--epsilon", 1)
    told = json.loads(cli(*call, "--json").out)["bracket"]
    assert told["attained"] <= told["certified"] <= 1.0
    assert told["target"] == "Cancer"
    together = (*call, "--protect", "two=Smoker,Xray")
    told = json.loads(cli(*together, "--json").out)["bracket"]
    assert told["target"] == "Smoker+Xray"
    assert 0.9 < told["attained"] <= told["certified"] <= 1.0
    assert "certified ≤" in cli(*together).out


@pytest.mark.parametrize("adversary", ["prior", "knows:1", "informed"])
def test_what_is_protected_together_is_attacked_together(adversary):
    model = qd.example("asia")
    sets = {"lungs": ["lung", "bronc"], "travel": ["asia", "tub", "xray"]}
    found = qd.attack(model, 0.2, adversary, protect=sets)
    certified = qd.leakage(model, 0.2, adversary=adversary, protect=sets).epsilon
    assert 0.9 * certified < found.leakage <= certified
    assert found.replay(model) == found.leakage
    assert set(found.told[0]) in ({"lung", "bronc"}, {"asia", "tub", "xray"})
    assert not set(found.knows) & set(found.told[0])
    assert qd.attack(model, 0.2, adversary).leakage <= found.leakage


@pytest.mark.parametrize("seed", range(3))
def test_sets_never_attain_more_than_the_limit(seed):
    model = random_network(
        seed, {"a": [], "b": ["a"], "c": ["a", "b"], "d": ["c"]}, dict.fromkeys("abcd", 2), zeros=0.2
    )
    alpha = {"a": 0.3, "b": 0.5, "c": 0.0, "d": 0.4}
    for unit in (("a", "b"), ("b", "c", "d")):
        found = qd.attack(model, alpha, protect=[unit])
        assert found.leakage <= truth.attained(model, alpha, unit) + 1e-9
        assert found.replay(model) == found.leakage


@pytest.mark.parametrize("adversary", ["prior", "informed"])
def test_runs_of_steps_are_attacked_too(adversary):
    for length in (7, 60):
        chain = qd.markov_chain([[0.8, 0.2], [0.3, 0.7]], length=length)
        cal = qd.calibrate(chain, 1.0, qd.Laplace(1.0), adversary=adversary, window=3)
        found = quick_bracket(cal, chain)
        assert 0.9 < found.attained <= found.certified <= 1.0
        assert len(found.attack.told[0]) == 3
    parts = qd.markov_chain([[0.8, 0.2], [0.3, 0.7]], length=600)
    with pytest.raises(InvalidArgument, match="no protected set"):
        qd.attack(parts, 0.1, protect=[["X599", "X598"]])


def test_a_set_that_is_longer_than_an_attack_reads_has_no_bracket_in_passing() -> None:
    chain = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=150)
    whole = qd.calibrate(chain, 1.0, qd.Laplace(1.0), protect={"all": list(chain.nodes)}, compare=False)
    assert quick_bracket(whole, chain) is None
