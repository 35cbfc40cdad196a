"""Pairings along junction trees: (ε, δ) on networks against the prior adversary, checked by integration."""

from __future__ import annotations

import numpy as np
import pytest
from gaussian_oracle import aligned_query, hockey_stick, hypotheses, joint, random_query
from limited import partial_answer

import quiltdp as qd
from quiltdp.accountant.adversaries import PRIOR
from quiltdp.accountant.bounds import Problem
from quiltdp.accountant.delta import DeltaProfile
from quiltdp.accountant.leakage.paired import RATES, Pairing
from quiltdp.accountant.leakage.paired_tree import PairedTreeBound
from quiltdp.inference.workspace import Workspace
from quiltdp.mechanisms import GaussianProfile
from quiltdp.work import WorkBudget


def random_network(rng: np.random.Generator) -> tuple[qd.Model, list[str]]:
    """Return a small network, loops and zeros included, and its records; the other nodes are latent."""
    count = int(rng.integers(3, 5))
    names = [f"N{k}" for k in range(count)]
    spread = 10 ** rng.uniform(-1.0, 1.0)
    tables = {}
    for k, name in enumerate(names):
        parents = [p for p in names[:k] if rng.random() < 0.7]
        rows = rng.dirichlet(np.full(2, spread), size=(2,) * len(parents))
        if rng.random() < 0.3:
            rows = np.where(rng.random(rows.shape) < 0.3, 0.0, rows)
            rows = np.where(rows.sum(axis=-1, keepdims=True) > 0, rows, 1.0)
            rows = rows / rows.sum(axis=-1, keepdims=True)
        tables[name] = (parents, rows.tolist())
    records = names if rng.random() < 0.6 else names[1:]
    return qd.Model.from_tables(tables, records=records), records


@pytest.mark.parametrize("seed", range(6))
def test_no_query_beats_the_bound(seed: int) -> None:
    rng = np.random.default_rng(300 + seed)
    model, records = random_network(rng)
    nodes = list(model.nodes)
    share = {r: float(rng.choice([0.0, 0.5, 1.0])) if seed % 2 else 1.0 for r in records}
    share[records[-1]] = 1.0
    deltas = np.array([share.get(n, 0.0) for n in nodes])
    std, epsilon = 10 ** rng.uniform(-0.2, 0.8), 10 ** rng.uniform(-0.8, 0.6)
    profile = DeltaProfile(model, adversary="prior", method="paired")
    certified = dict(
        zip(profile.units.names, profile.deltas(GaussianProfile(std), epsilon, deltas), strict=True)
    )
    table = joint(model)
    for record in records:
        attained = 0.0
        for states, p, q in hypotheses(table, [nodes.index(record)], {}):
            queries = [
                aligned_query(states, p, q, deltas),
                *(random_query(rng, states, deltas) for _ in range(3)),
            ]
            attained = max([attained, *(hockey_stick(p, q, query, std, epsilon) for query in queries)])
        assert attained <= certified[record] * (1 + 1e-9) + 1e-13


def test_a_network_is_no_longer_one_group() -> None:
    model = qd.load_model("models/cancer.bif")
    spec = qd.Gaussian(sensitivity=1.0, delta=1e-6)
    cal = qd.calibrate(model, 1.0, spec, adversary="prior")
    assert cal.method == "paired-tree"
    assert cal.sigma < 0.6 * cal.compared["group"]


def test_a_set_of_records_and_a_value_that_is_certain() -> None:
    model = qd.Model.from_tables(
        {
            "a": ([], [0.4, 0.6]),
            "b": (["a"], [[0.9, 0.1], [0.2, 0.8]]),
            "c": (["a", "b"], [[[1.0, 0.0], [0.3, 0.7]], [[0.5, 0.5], [0.2, 0.8]]]),
            "d": ([], [1.0, 0.0]),
        }
    )
    profile = DeltaProfile(model, adversary="prior", protect={"ab": ["a", "b"], "c": ["c"]}, method="paired")
    certified = profile.deltas(GaussianProfile(2.0), 0.5)
    table = joint(model)
    for k, unit in enumerate(([0, 1], [2])):
        for states, p, q in hypotheses(table, unit, {}):
            query = aligned_query(states, p, q, np.ones(4))
            assert hockey_stick(p, q, query, 2.0, 0.5) <= certified[k] * (1 + 1e-9)


def test_a_time_limit_leaves_the_quick_answer() -> None:
    model = qd.load_model("models/asia.bif")
    spec = qd.Gaussian(sensitivity=1.0, delta=1e-6)
    cal = partial_answer(lambda: qd.calibrate(model, 1.0, spec, adversary="prior", time_limit=1e-3))
    assert cal.sigma <= cal.compared["group"] * (1 + 1e-8)
    assert any("time limit" in n for n in cal.notes)


def test_heavy_laws_are_counted_in_their_own_steps() -> None:
    """A hub with 40 near copies of unequal sensitivities: laws of more units than are joined as they are."""
    names = [f"x{k:02d}" for k in range(40)]
    copies = {n: (["hub"], [[0.99, 0.01], [0.01, 0.99]]) for n in names}
    model = qd.Model.from_tables({"hub": ([], [0.5, 0.5]), **copies})
    units = {n: 61 + k % 4 for k, n in enumerate(model.nodes)}
    deltas = np.array([units[n] / 64 for n in model.nodes])
    bound = PairedTreeBound(Problem(model, None, PRIOR))
    bound.prepare(Workspace(model), WorkBudget.named("normal"))
    weighed, rate = bound.weigh(deltas), -110
    pairings = weighed.pairings.at(rate)
    assert pairings is not None
    toll, law = pairings[model.index["hub"]][0]
    assert law.step > 1
    own = units["hub"]
    pairing = Pairing(toll, law, own / 64)
    certified = pairing.delta(GaussianProfile(12.0), 1.0, RATES[rate], weighed.unit)
    up, down = np.ones(1), np.ones(1)
    for n in names:  # the law of the sum of all copies, given the hub
        up = np.convolve(up, np.concatenate([[0.01], np.zeros(units[n] - 1), [0.99]]))
        down = np.convolve(down, np.concatenate([[0.99], np.zeros(units[n] - 1), [0.01]]))
    at = np.arange(-60.0, 100.0, 0.5)
    noise = np.exp(-0.5 * ((at[:, None] - np.arange(len(up)) / 64) / 12.0) ** 2)
    shifted = np.exp(-0.5 * ((at[:, None] - np.arange(own, own + len(up)) / 64) / 12.0) ** 2)
    attained = 0.5 * np.maximum(shifted @ up - np.e * (noise @ down), 0.0).sum() / (12.0 * np.sqrt(2 * np.pi))
    assert 0.5 < attained <= certified
