"""Pairings along junction trees: (ε, δ) on networks against the prior adversary, checked by integration."""

from __future__ import annotations

import numpy as np
import pytest
from gaussian_oracle import aligned_query, hockey_stick, hypotheses, joint, random_query

import quiltdp as qd
from quiltdp.accountant.delta import DeltaProfile
from quiltdp.accountant.mechanisms import GaussianProfile


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
    cal = qd.calibrate(model, 1.0, spec, adversary="prior", time_limit=1e-3)
    assert cal.sigma <= cal.compared["group"] * (1 + 1e-8)
    assert any("time limit" in n for n in cal.notes)
