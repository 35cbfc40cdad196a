"""Pure leakages carried over to (ε, δ) (leakage.carried): networks, both adversaries, against integration."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from gaussian_oracle import aligned_query, hockey_stick, hypotheses, joint, random_query
from scipy.optimize import linprog
from test_paired_tree import random_network

import quiltdp as qd
from quiltdp.accountant.adversaries import INFORMED
from quiltdp.accountant.bounds import Problem
from quiltdp.accountant.delta import DeltaProfile
from quiltdp.accountant.leakage.carried import CarriedBound, WeighedCarried, largest_mean, rate
from quiltdp.mechanisms import GaussianProfile


@pytest.mark.parametrize("seed", range(30))
def test_the_dual_is_the_linear_program(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 12))
    exponents = np.sort(rng.random(count)) * 10 ** rng.uniform(-1, 1)
    exponents -= exponents[0] * (seed % 2)
    values = rng.random(count) * 10 ** rng.uniform(-6, 0)
    most = float(exponents[0] + rng.random() * (exponents[-1] - exponents[0]))
    grown = np.exp(exponents - exponents[-1])
    best = linprog(
        -values / values.max(),
        A_ub=[grown],
        b_ub=[math.exp(most - exponents[-1])],
        A_eq=[np.ones(count)],
        b_eq=[1.0],
    )
    exact = -best.fun * values.max()
    found = largest_mean(values, exponents, most)
    assert exact * (1 - 1e-7) <= found <= exact * (1 + 1e-5)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("adversary", ["informed", "prior"])
def test_no_query_and_no_evidence_beats_the_bound(seed: int, adversary: str) -> None:
    rng = np.random.default_rng(700 + seed)
    model, records = random_network(rng)
    nodes = list(model.nodes)
    share = {r: float(rng.choice([0.3, 0.5, 1.0])) if seed % 2 else 1.0 for r in records}
    deltas = np.array([share.get(n, 0.0) for n in nodes])
    std, epsilon = 10 ** rng.uniform(-0.2, 0.8), 10 ** rng.uniform(-0.8, 0.6)
    profile = DeltaProfile(model, adversary=adversary, method="carried", work="quick")
    certified = dict(
        zip(profile.units.names, profile.deltas(GaussianProfile(std), epsilon, deltas), strict=True)
    )
    table = joint(model)
    for record in records:
        others = [nodes.index(r) for r in records if r != record]
        attained = 0.0
        for size in range(len(others) if adversary == "informed" else 1):
            for known in itertools.islice(itertools.combinations(others, size), 3):
                values = tuple(int(rng.integers(table.shape[k])) for k in known)
                evidence = dict(zip(known, values, strict=True))
                free = np.array([0.0 if k in evidence else d for k, d in enumerate(deltas)])
                for states, p, q in hypotheses(table, [nodes.index(record)], evidence):
                    queries = [aligned_query(states, p, q, free), random_query(rng, states, free)]
                    attained = max([attained, *(hockey_stick(p, q, c, std, epsilon) for c in queries)])
        assert attained <= certified[record] * (1 + 1e-9) + 1e-13


def test_networks_are_no_longer_one_group_for_the_informed_adversary() -> None:
    model = qd.example("cancer")
    spec = qd.Gaussian(sensitivity=1.0, delta=1e-6)
    cal = qd.calibrate(model, 1.0, spec)
    assert cal.method == "carried"
    assert cal.sigma < 0.65 * cal.compared["group"]
    back = qd.leakage_of(model, spec, cal.sigma)
    assert back.epsilon <= 1.0


def test_sets_and_records_that_are_not_read() -> None:
    model = qd.example("cancer")
    weights = np.array([0.0 if n == "Xray" else 1.0 for n in model.nodes])
    profile = DeltaProfile(model, protect={"two": ["Xray", "Smoker"]}, method="carried", work="quick")
    some = profile.deltas(GaussianProfile(6.0), 1.0, weights)
    group = DeltaProfile(model, protect={"two": ["Xray", "Smoker"]}, method="group")
    assert 0.0 < some[0] <= group.deltas(GaussianProfile(6.0), 1.0, weights)[0]
    nothing = DeltaProfile(model, method="carried", work="quick")
    assert nothing.deltas(GaussianProfile(6.0), 1.0, np.zeros(5)).max() == 0.0


def test_long_paths_have_pairings_of_their_own() -> None:
    chain = qd.markov_chain([[0.7, 0.3], [0.3, 0.7]], length=100)
    with pytest.raises(qd.QuiltdpError, match="networks"):
        CarriedBound(Problem(chain, None, INFORMED))


def test_a_rate_that_says_nothing_does_not_hide_the_ones_below() -> None:
    """δ falls in ε, also where the leakage at the first rate has just come below ε."""
    leaks = {k: np.full(10, 0.8055 * rate(k) * 10) for k in range(-60, 17)}
    space = SimpleNamespace(guard=SimpleNamespace(check=lambda: None))
    kept = SimpleNamespace(units=np.ones(10, dtype=np.int64), at=leaks.__getitem__, workspace=space)
    bound = WeighedCarried(kept, 1.0, np.ones(10, dtype=np.int64))  # type: ignore[arg-type]
    at = float(leaks[-8][0])  # between e^{-8/4} · 10 · 0.8 and 10 · e^{-8/4}: the first rate that is tried
    grid = [0.9 * at, 0.99 * at, at * (1 - 1e-9), at * (1 + 1e-9), 1.001 * at, 1.01 * at, 1.1 * at]
    found = [float(bound.evaluate(GaussianProfile(35.0), e).values.max()) for e in grid]
    assert found == sorted(found, reverse=True)
    assert max(found) < 1e-4
