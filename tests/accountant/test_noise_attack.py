"""The attack on noisy sums: against enumeration and integration, and the bracket of Gaussian noise."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from strategies import random_network

import quiltdp as qd
from quiltdp.accountant.noise_attack import (
    NoiseAttack,
    attack_gaussian,
    discrete_mixture_delta,
    gaussian_mixture_delta,
)
from quiltdp.errors import InvalidArgument, ModelTooWide
from quiltdp.mechanisms import DiscreteGaussian, Repeated

SPEC = qd.Gaussian(sensitivity=1.0, delta=1e-6)


def _replayed(model: qd.Model, found: NoiseAttack, epsilon: float) -> float:
    """δ at ε of the attack's own query, from the enumerated joint law and a fine grid."""
    names = list(model.nodes)
    table = np.ones([model.cardinality(n) for n in names])
    for factor in model.factors:
        order = sorted(range(len(factor.scope)), key=lambda a: names.index(factor.scope[a]))
        shape = [model.cardinality(n) if n in factor.scope else 1 for n in names]
        table = table * np.transpose(factor.table, order).reshape(shape)
    laws: list[dict[float, float]] = [{}, {}]
    for states in itertools.product(*map(range, table.shape)):
        shown = {n: model.states[n][s] for n, s in zip(names, states, strict=True)}
        if any(shown[n] != v for n, v in found.knows.items()):
            continue
        total = sum(found.query[n][shown[n]] for n in found.query)
        for law, value in zip(laws, found.values, strict=True):
            if shown[found.target] == value:
                law[total] = law.get(total, 0.0) + float(table[states])
    t = np.linspace(-10 * found.scale, 10 * found.scale + len(names), 40_001)
    density = []
    for law in laws:
        bells = sum(m * np.exp(-0.5 * ((t - s) / found.scale) ** 2) for s, m in law.items())
        density.append(bells / sum(law.values()) / (found.scale * math.sqrt(2 * math.pi)))
    return float(np.maximum(density[0] - math.exp(epsilon) * density[1], 0.0).sum() * (t[1] - t[0]))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("adversary", ["prior", "informed"])
def test_attained_replays_by_enumeration_and_stays_below_certified(seed: int, adversary: str) -> None:
    names = [f"n{k}" for k in range(5)]
    parents = {n: [names[p] for p in range(max(0, k - 2), k)] for k, n in enumerate(names)}
    model = random_network(seed, parents, {n: 2 + (k == 2) for k, n in enumerate(names)}, zeros=0.15)
    unequal = {n: (1.0, 0.5, 0.0, 1.0, 0.3)[k] for k, n in enumerate(names)} if seed % 2 else 1.0
    spec = qd.Gaussian(sensitivity=unequal, delta=1e-4)
    cal = qd.calibrate(model, 1.0, spec, adversary=adversary, compare=False)
    found = cal.bracket()
    assert found.attained <= found.certified <= 1.0
    if found.attained > 0.0:
        assert isinstance(found.attack, NoiseAttack)
        assert _replayed(model, found.attack, found.attained) == pytest.approx(1e-4, rel=1e-3)
        for n, table in found.attack.query.items():
            limit = unequal[n] if isinstance(unequal, dict) else unequal
            assert all(0.0 <= v <= limit * (1 + 1e-12) for v in table.values())


def test_a_mixture_is_integrated_from_below() -> None:
    rng = np.random.default_rng(3)
    t = np.linspace(-12, 20, 400_001)
    for _ in range(6):
        p, q = rng.dirichlet(np.full(7, 0.5), size=2)
        spread, epsilon = rng.uniform(0.2, 1.5), rng.uniform(0.0, 1.5)
        bells = np.exp(-0.5 * (t[:, None] - spread * np.arange(7)) ** 2) / math.sqrt(2 * math.pi)
        exact = float(np.maximum(bells @ (p - math.exp(epsilon) * q), 0.0).sum() * (t[1] - t[0]))
        found = gaussian_mixture_delta(p, q, spread, epsilon)
        assert exact * (1 - 1e-6) - 1e-12 <= found <= exact * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize(("flip", "adversary"), [(0.45, "informed"), (0.1, "prior")])
def test_long_chains_are_bracketed_closely(flip: float, adversary: str) -> None:
    chain = qd.markov_chain([[1 - flip, flip], [flip, 1 - flip]], length=5000)
    cal = qd.calibrate(chain, 1.0, SPEC, adversary=adversary, compare=False)
    found = cal.bracket(work="quick")
    assert found.ratio is not None
    assert 1.0 <= found.ratio < 1.06


def test_several_gaussian_releases_are_attacked_as_one() -> None:
    model = qd.example("cancer")
    one = qd.calibrate(model, 1.0, SPEC, adversary="prior", compare=False).bracket()
    four = qd.calibrate(
        model, 1.0, Repeated(SPEC, times=4, delta=1e-6), adversary="prior", compare=False
    ).bracket()
    assert four.attained == pytest.approx(one.attained, rel=1e-6)
    assert four.attack.to_dict()["scale"] == pytest.approx(one.attack.to_dict()["scale"], rel=1e-6)


def test_a_mixture_of_discrete_noise_is_summed_from_below() -> None:
    rng = np.random.default_rng(4)
    for _ in range(6):
        p, q = rng.dirichlet(np.full(6, 0.5), size=2)
        unit, scale, epsilon = int(rng.integers(1, 4)), rng.uniform(0.4, 6.0), rng.uniform(0.0, 1.5)
        x = np.arange(-400, 400)
        bells = np.exp(-((x[:, None] - unit * np.arange(6)) ** 2) / (2 * scale**2))
        exact = float(np.maximum(bells @ (p - math.exp(epsilon) * q), 0.0).sum() / bells[:, 0].sum())
        found = discrete_mixture_delta(p, q, unit, scale, epsilon)
        assert found <= exact
        assert found == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("adversary", ["prior", "informed"])
def test_discrete_noise_is_bracketed_as_closely_as_gaussian_noise(adversary: str) -> None:
    model = qd.example("cancer")
    both = [
        qd.calibrate(model, 1.0, spec, adversary=adversary, compare=False).bracket()
        for spec in (SPEC, DiscreteGaussian(sensitivity=1, delta=1e-6))
    ]
    for found in both:
        assert 0.9 < found.attained <= found.certified <= 1.0
    assert both[0].attained == pytest.approx(both[1].attained, rel=0.01)
    unequal = {n: 1.0 + k % 3 for k, n in enumerate(model.records)}
    cal = qd.calibrate(
        model, 1.0, DiscreteGaussian(unequal, 1e-6), adversary=adversary, compare=False, method="group"
    )
    found = cal.bracket()
    assert isinstance(found.attack, NoiseAttack)
    assert 0.0 < found.attained <= found.certified
    assert all(v in (0.0, unequal[n]) for n, table in found.attack.query.items() for v in table.values())


def test_sets_under_gaussian_noise_are_bracketed() -> None:
    model = qd.example("cancer")
    cal = qd.calibrate(
        model, 1.0, SPEC, adversary="prior", protect={"two": ["Smoker", "Xray"]}, compare=False
    )
    found = cal.bracket()
    assert 0.9 < found.attained <= found.certified <= 1.0
    assert found.attack.target == "Smoker+Xray"


def test_what_cannot_be_attacked() -> None:
    model = qd.example("cancer")
    with pytest.raises(InvalidArgument, match="moves"):
        attack_gaussian(model, 1.0, 1e-6, 0.1, sensitivity=dict.fromkeys(model.records, 0.0))
    with pytest.raises(ModelTooWide):
        attack_gaussian(model, 1.0, 1e-6, 0.1, max_entries=2)


def test_calibrate_shows_the_bracket_of_gaussian_noise(cli: Callable[..., Any]) -> None:
    call = ("calibrate", "models/cancer.bif", "--epsilon", 1, "--mechanism", "gaussian", "--delta", "1e-6")
    told = json.loads(cli(*call, "--adversary", "prior", "--json").out)["bracket"]
    assert 0.9 < told["attained"] <= told["certified"] <= 1.0
    quick = ("--method", "group")
    assert "certified ≤" in cli(*call, *quick).out
