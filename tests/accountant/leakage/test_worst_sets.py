"""Sets of known nodes: ceilings against the messages they stand for, and answers that do not change."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from strategies import random_network

import quiltdp as qd
from quiltdp.accountant.bounds import ready
from quiltdp.accountant.leakage import every_adversary
from quiltdp.accountant.leakage.every_adversary import EveryAdversaryBound
from quiltdp.accountant.leakage.worst_sets import ceilings, worst_sets
from quiltdp.inference.evidence_tree import evidence_branches, twins
from quiltdp.inference.workspace import Workspace

_SLACK = 1e-13
GAMETE = np.array([0.0, 0.5, 1.0])
CHILD = np.array([[[(1 - a) * (1 - b), a * (1 - b) + b * (1 - a), a * b] for b in GAMETE] for a in GAMETE])


def family(seed: int, people: int, founders: int = 3) -> qd.Model:
    """Founders, and children of couples drawn from all who are there."""
    rng = np.random.default_rng(seed)
    q = float(rng.uniform(0.05, 0.5))
    names = [f"P{k}" for k in range(people)]
    tables: dict[str, object] = {n: ([], [(1 - q) ** 2, 2 * q * (1 - q), q**2]) for n in names[:founders]}
    couple = [0, 1]
    for k in range(founders, people):
        if rng.random() < 0.4:
            couple = rng.choice(k, size=2, replace=False).tolist()
        tables[names[k]] = ([names[j] for j in couple], CHILD)
    return qd.Model.from_tables(tables)


def models() -> list[qd.Model]:
    parents = {"A": [], "B": ["A"], "C": ["A"], "D": ["B", "C"], "E": ["D"]}
    plain = random_network(3, parents, dict.fromkeys(parents, 3))
    return [plain, *(family(seed, 7) for seed in range(4))]


@pytest.mark.parametrize("model", models())
def test_a_ceiling_is_above_the_messages_of_its_set(model):
    alpha = np.random.default_rng(5).uniform(0.1, 0.9, len(model.nodes))
    for unit in model.records[:3]:
        for branch in evidence_branches(
            model, (unit,), model.records, most=10**9, workspace=Workspace(model)
        ):
            above = ceilings(branch, alpha, _SLACK)
            assert len(above) == len(branch.values)
            for s, most in enumerate(above):
                cases = branch.cases([s])
                assert len(cases.possible) == branch.values[s]
                told = every_adversary._last_message(cases, alpha, _SLACK)
                both = cases.possible[:, :, None] & cases.possible[:, None, :]
                real = np.where(both, told[:, cases.seen][:, :, cases.seen], -np.inf).max(axis=0)
                np.fill_diagonal(real, -np.inf)
                assert (real <= most[branch.seen][:, branch.seen] + 1e-9).all()
                if branch.outline[-1].silent[s]:
                    off = ~np.eye(len(real), dtype=bool) & np.isfinite(real)
                    assert real[off] == pytest.approx(most[branch.seen][:, branch.seen][off], abs=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_choosing_changes_no_answer(seed, monkeypatch):
    model = family(seed, 8)
    rng = np.random.default_rng(seed)
    alphas = [np.full(8, 0.07), np.full(8, 1.3)]
    if not twins(model, model.records):
        alphas.append(rng.integers(1, 3, 8) * 0.2)
    monkeypatch.setattr(every_adversary, "_LEFT", 1.0)
    chosen = ready(EveryAdversaryBound, model)
    plain = ready(EveryAdversaryBound, model)
    for alpha in alphas:
        monkeypatch.setattr(every_adversary, "_WORTH_CHOOSING", 0)
        found = chosen.evaluate(alpha)
        monkeypatch.setattr(every_adversary, "_WORTH_CHOOSING", 1 << 60)
        whole = plain.evaluate(alpha)
        assert found.values == pytest.approx(whole.values, rel=1e-12)
        assert sorted(found.witness) == sorted(whole.witness)
    listed = sum(len(cases.possible) for _, cases in chosen._listed.values())
    assert listed < sum(len(cases.possible) for _, cases in plain._listed.values())


def test_large_families_are_listed_in_part():
    model = family(1, 12, founders=2)
    unit = model.records[0]
    branches = evidence_branches(
        model,
        (unit,),
        model.records,
        alike=twins(model, model.records),
        most=10**9,
        workspace=Workspace(model),
    )
    own = 0.1 * (1.0 - np.eye(3))
    chosen = worst_sets(branches, own, np.full(12, 0.1), _SLACK)
    listed = sum(int(b.values[sets].sum()) for b, sets in zip(branches, chosen, strict=True))
    assert 0 < listed < 0.5 * sum(int(b.values.sum()) for b in branches)


def test_a_unit_of_one_possible_value_tells_nothing(monkeypatch):
    tables = {"A": ([], [1.0, 0.0, 0.0]), "B": ([], [0.5, 0.3, 0.2]), "C": (["A", "B"], CHILD)}
    model = qd.Model.from_tables(tables)
    monkeypatch.setattr(every_adversary, "_WORTH_CHOOSING", 0)
    found = ready(EveryAdversaryBound, model).evaluate(np.full(3, 0.4))
    assert found.values[0] == 0.0
    assert (found.values[1:] > 0.4).all()


def test_a_prepared_bound_travels():
    bound = ready(EveryAdversaryBound, family(2, 6))
    alpha = np.full(6, 0.5)
    there = pickle.loads(pickle.dumps(bound))
    assert there.evaluate(alpha).values.tolist() == bound.evaluate(alpha).values.tolist()
