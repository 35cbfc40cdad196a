"""The attack (quiltdp.accountant.attack, inference.sums): attained, replayable, below every bound."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from strategies import random_network

import quiltdp as qd
from quiltdp.errors import InvalidArgument
from quiltdp.inference.sums import WeightedSums


def small_network(seed):
    """Five nodes, two or three states, loops, zeros, perhaps a latent node."""
    rng = np.random.default_rng(seed)
    names = [f"n{k}" for k in range(5)]
    parents = {n: [p for p in names[:k] if rng.random() < 0.5] for k, n in enumerate(names)}
    sizes = {n: int(rng.integers(2, 4)) for n in names}
    records = [n for n in names if rng.random() < 0.85] or names
    return random_network(seed, parents, sizes, zeros=0.2 * (seed % 2), records=records)


SMALL = [small_network(seed) for seed in range(24)]


def brute_leakage(model, attack, alpha):
    """P(y | x, x_S) by summing the joint, with the mechanism as it is written down."""
    nodes = list(model.nodes)
    total = {0: [0.0, 0.0], 1: [0.0, 0.0]}
    for states in itertools.product(*(range(model.cardinality(n)) for n in nodes)):
        value = dict(zip(nodes, states, strict=True))
        p = np.prod([f.table[tuple(value[n] for n in f.scope)] for f in model.factors])
        named = {n: model.states[n][k] for n, k in value.items()}
        if (
            p == 0
            or any(named[n] != v for n, v in attack.knows.items())
            or named[attack.target] not in attack.values
        ):
            continue
        side = attack.values.index(named[attack.target])
        h = sum(t[named[n]] for n, t in attack.mechanism.items())
        total[side][0] += p * np.exp(h)
        total[side][1] += p
    return np.log(total[0][0] / total[0][1]) - np.log(total[1][0] / total[1][1])


@pytest.mark.parametrize("model", SMALL)
@pytest.mark.parametrize("adversary", ["prior", "informed"])
def test_what_is_attained_is_true_and_below_the_exact_limit(model, adversary):
    alpha = 0.7
    found = qd.attack(model, alpha, adversary)
    if found.leakage == 0.0:
        return
    assert found.leakage == pytest.approx(brute_leakage(model, found, alpha), abs=1e-8)
    assert found.leakage <= qd.leakage(model, alpha, adversary=adversary).epsilon
    assert found.replay(model) == found.leakage


def test_the_attack_is_near_the_limit():
    """On small networks the product form finds nearly everything: at the median, 95 % of the limit."""
    shares = []
    for model in SMALL:
        limit = qd.leakage(model, 0.3, adversary="prior", method="exact").epsilon
        if limit > 0:
            shares.append(qd.attack(model, 0.3, "prior").leakage / limit)
    assert np.median(shares) > 0.95


def test_known_figures():
    asia = qd.example("asia")
    assert qd.attack(asia, 1e-3, "prior").leakage / 1e-3 == pytest.approx(3.87, abs=0.01)
    assert qd.attack(asia, 1e-3).leakage / 1e-3 >= 4.0


def test_knowing_more_never_hurts():
    asia = qd.example("asia")
    found = [qd.attack(asia, 0.1, who).leakage for who in ("prior", "knows:1", "informed")]
    assert found == sorted(found)
    declared = qd.attack(asia, 0.1, "knows=tub")
    assert set(declared.knows) <= {"tub"}


def test_a_long_chain_is_attacked_through_its_beginning():
    chain = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=50_000)
    found = qd.attack(chain, 0.1, "prior", work="quick")
    assert 0.5 < found.leakage <= qd.leakage(chain, 0.1, adversary="prior").epsilon
    assert found.replay(chain) == found.leakage


def test_a_sharper_mechanism_than_allowed_is_refused():
    asia = qd.example("asia")
    found = qd.attack(asia, 0.1, "prior")
    name = next(iter(found.mechanism))
    sharp = {**found.mechanism, name: dict.fromkeys(found.mechanism[name], 0.2)}
    with pytest.raises(InvalidArgument, match="more sharply"):
        replace(found, mechanism=sharp).replay(asia)
    with pytest.raises(InvalidArgument, match="another model"):
        found.replay(qd.example("cancer"))


@pytest.mark.parametrize("model", SMALL[:12])
def test_tilted_means_and_laws_are_those_of_the_joint(model):
    rng = np.random.default_rng(1)
    weights = {n: rng.normal(size=model.cardinality(n)) for n in model.nodes if rng.random() < 0.7}
    total, mass = 0.0, 0.0
    laws = {n: np.zeros(model.cardinality(n)) for n in model.nodes}
    for states in itertools.product(*(range(model.cardinality(n)) for n in model.nodes)):
        value = dict(zip(model.nodes, states, strict=True))
        p = np.prod([f.table[tuple(value[n] for n in f.scope)] for f in model.factors])
        mass += p
        p *= np.exp(sum(w[value[n]] for n, w in weights.items()))
        total += p
        for n in model.nodes:
            laws[n][value[n]] += p
    sums, rows = WeightedSums(model), {n: w[None] for n, w in weights.items()}
    mean, found = sums.laws(rows)
    assert mean[0] == pytest.approx(np.log(total / mass), abs=1e-10)
    assert sums.log_means(rows)[0] == pytest.approx(np.log(total / mass), abs=1e-10)
    for n in model.nodes:
        assert found[n][0] == pytest.approx(laws[n] / total, abs=1e-10)


def test_from_the_command_line(cli):
    told = json.loads(cli("leakage", "--attack", "models/cancer.bif", "--dp-epsilon", 0.1, "--json").out)
    assert told["leakage"] <= qd.leakage(qd.example("cancer"), 0.1).epsilon
    assert "attained" in cli("leakage", "--attack", "models/cancer.bif", "--dp-epsilon", 0.1).out


def test_calibrate_shows_the_bracket(cli):
    told = json.loads(cli("calibrate", "models/cancer.bif", "--epsilon", 1, "--json").out)["bracket"]
    assert told["attained"] <= told["certified"] <= 1.0
    assert told["ratio"] < 1.05
    assert "attained ≥" in cli("calibrate", "models/cancer.bif", "--epsilon", 1).out
