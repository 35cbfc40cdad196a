"""The informed clique tree against what mechanisms and adversaries attain, found by enumeration."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

import loopy
import numpy as np
import pytest

import quiltdp as qd
from quiltdp.accountant.adversaries import INFORMED, PRIOR, Adversary, knows
from quiltdp.accountant.bounds.contract import Need, Problem
from quiltdp.accountant.bounds.worst_evidence import WorstEvidenceBound
from quiltdp.errors import ModelTooWide
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model
from quiltdp.work import WorkBudget

SHAPES = sorted(loopy.SHAPES)


def worst_evidence(
    model: Model,
    alpha: float | dict[str, float],
    *,
    units: Sequence[tuple[str, ...]] | None = None,
    adversary: Adversary = INFORMED,
    budget: WorkBudget | None = None,
) -> dict[tuple[str, ...], float]:
    bound = WorstEvidenceBound(Problem(model, None if units is None else tuple(units), adversary))
    bound.prepare(Workspace(model), WorkBudget() if budget is None else budget)
    of = dict.fromkeys(model.records, alpha) if isinstance(alpha, float) else alpha
    found = bound.evaluate(np.array([of.get(n, 0.0) for n in model.nodes]))
    names = [(n,) for n in model.records] if units is None else list(units)
    return dict(zip(names, found.values.tolist(), strict=True))


def assert_sound(model: Model, alpha: dict[str, float], found: dict[tuple[str, ...], float], **who) -> None:  # type: ignore[no-untyped-def]
    for unit, value in found.items():
        assert value >= loopy.attained(model, alpha, unit, **who) - 1e-9, unit


@pytest.mark.parametrize("kind", loopy.KINDS)
@pytest.mark.parametrize("shape", [s for s in SHAPES if s not in ("ladder", "loop of six")])
def test_it_is_never_below_what_is_attained(shape: str, kind: str) -> None:
    seed = SHAPES.index(shape) * 4 + loopy.KINDS.index(kind)
    model = loopy.loopy(seed, shape, kind, latents=seed % 2 == 0)
    alpha = dict.fromkeys(model.records, [0.01, 0.3, 1.0, 4.0][seed % 4])
    target = [(model.records[seed % len(model.records)],)]
    found = worst_evidence(model, alpha, units=target)
    assert_sound(model, alpha, found)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_it_is_never_below_what_is_attained_on_many_models(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = loopy.loopy(
        seed + 500,
        SHAPES[seed % len(SHAPES)],
        loopy.KINDS[seed % 4],
        states=2 + seed % 3,
        latents=bool(seed % 2),
    )
    alpha = {n: float(rng.choice([0.0, 0.1, 1.0])) for n in model.records}
    for budget in (WorkBudget(), WorkBudget(pairs=4_000)):
        try:
            found = worst_evidence(model, alpha, budget=budget)
        except ModelTooWide:
            continue
        assert_sound(model, alpha, found)


def test_evidence_that_couples_without_limit_is_not_missed() -> None:
    """p, q, u fair coins, w = 1 only if they agree: knowing w, the target p settles q and u."""
    w = np.zeros((2, 2, 2, 2))
    w[..., 0] = 1.0
    w[0, 0, 0] = w[1, 1, 1] = [0.99, 0.01]
    flat = np.ones((2, 2, 2, 2))
    scopes = [(tuple("pquw"), w), (tuple("pqur"), flat), (tuple("pqrx"), flat)]
    coins = [((n,), [0.5, 0.5]) for n in "pqu"]
    model = Model.from_potentials(dict.fromkeys("pquwrx", 2), [*coins, *scopes], records=list("pquw"))
    found = worst_evidence(model, 1.0)
    assert found[("p",)] == pytest.approx(3.0, abs=1e-9)
    assert_sound(model, dict.fromkeys("pquw", 1.0), found)


@pytest.mark.parametrize("seed", [0, 5, 13, 26])
def test_the_campaign_in_short(seed: int) -> None:
    """Interactions, messages and leakages against enumeration: seeds of every kind and work budget."""
    path = Path(__file__).parents[3] / "benchmarks" / "worst_evidence.py"
    spec = importlib.util.spec_from_file_location("worst_evidence_campaign", path)
    assert spec is not None
    assert spec.loader is not None
    sys.path.append(str(path.parent))
    campaign = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = campaign  # dataclasses look their module up
    spec.loader.exec_module(campaign)
    tally = campaign.Tally()
    campaign.compare(seed, tally)
    assert not tally.violations
    assert any(tally.ratios.values())


SMALL = ("K4 less an edge", "loop of four", "diamond")


@pytest.mark.parametrize("seed", range(4))
def test_protected_sets_cost_what_differs(seed: int) -> None:
    model = loopy.loopy(seed, SMALL[seed % 3], loopy.KINDS[seed % 4])
    rng = np.random.default_rng(seed)
    alpha = {n: float(rng.choice([0.1, 0.5, 2.0])) for n in model.records}
    units = [tuple(model.records[:2]), (model.records[1], model.records[3])]
    found = worst_evidence(model, alpha, units=units)
    assert_sound(model, alpha, found)


@pytest.mark.parametrize("seed", range(4))
def test_adversaries_in_between_are_sound_and_in_order(seed: int) -> None:
    model = loopy.loopy(seed + 40, SMALL[seed % 3], loopy.KINDS[seed % 4])
    alpha = dict.fromkeys(model.records, 0.7)
    declared = model.records[1:3]
    target = [(model.records[0],)]
    ladder = [PRIOR, knows(1), knows(2), INFORMED]
    found = [worst_evidence(model, alpha, units=target, adversary=a)[target[0]] for a in ladder]
    assert all(b >= a - 1e-12 for a, b in itertools.pairwise(found))
    for value, most in zip(found, (0, 1, 2, None), strict=True):
        assert value >= loopy.attained(model, alpha, target[0], most=most) - 1e-9
    named = worst_evidence(model, alpha, units=target, adversary=knows(*declared))[target[0]]
    assert found[0] - 1e-12 <= named <= found[-1] + 1e-12
    assert named >= loopy.attained(model, alpha, target[0], may_know=declared) - 1e-9


def test_known_figures() -> None:
    """asia at ε near 1: what the theory promises, with room for neither side."""
    found = worst_evidence(qd.load_model(Path(__file__).parents[3] / "models" / "asia.bif"), 0.18)
    assert max(found.values()) / 0.18 == pytest.approx(5.37, abs=0.1)


def test_a_record_with_one_possible_value_leaks_nothing() -> None:
    tables = {"A": ([], [1.0, 0.0]), "B": (["A"], [[0.5, 0.5], [0.5, 0.5]]), "C": (["B"], [[0.9, 0.1]] * 2)}
    found = worst_evidence(Model.from_tables(tables), 1.0)
    assert found[("A",)] == 0.0
    assert found[("B",)] == pytest.approx(1.0)


def test_a_smaller_budget_is_looser_and_says_so() -> None:
    model = loopy.loopy(11, "ladder", "plain")
    bounds = []
    for pairs in (20_000_000, 3_200):
        bound = WorstEvidenceBound(Problem(model, None, INFORMED))
        bound.prepare(Workspace(model), WorkBudget(pairs=pairs))
        bounds.append(bound.evaluate(np.full(6, 0.2)))
    assert (bounds[1].values >= bounds[0].values - 1e-12).all()
    assert not bounds[0].notes
    assert "took no account" in bounds[1].notes[0]
    bound = WorstEvidenceBound(Problem(model, None, INFORMED))
    with pytest.raises(ModelTooWide, match="pairs of possible states"):
        bound.prepare(Workspace(model), WorkBudget(pairs=10))


def test_the_same_question_has_the_same_answer() -> None:
    model = loopy.loopy(12, "wheel", "plain", states=3)
    bound = WorstEvidenceBound(Problem(model, None, INFORMED))
    bound.prepare(Workspace(model), WorkBudget())
    first = bound.evaluate(np.full(5, 0.4)).values
    bound.evaluate(np.full(5, 3.0))
    again = bound.evaluate(np.full(5, 0.4)).values
    fresh = WorstEvidenceBound(Problem(model, None, INFORMED))
    fresh.prepare(Workspace(model, max_bytes=0), WorkBudget())
    assert first.tobytes() == again.tobytes() == fresh.evaluate(np.full(5, 0.4)).values.tobytes()


def test_units_together_are_as_units_alone() -> None:
    model = qd.example("asia")
    alpha = np.full(len(model.nodes), 0.2)
    bound = WorstEvidenceBound(Problem(model, None, INFORMED))
    bound.prepare(Workspace(model), WorkBudget())
    together = bound.evaluate(alpha).values
    for k in range(len(together)):
        known = np.zeros(len(together))
        known[k] = 10.0
        alone = bound.evaluate(alpha, Need(known, 0.0, np.inf)).values[k]
        assert alone == pytest.approx(together[k], rel=1e-13)


def test_only_what_leaks_most_need_be_told() -> None:
    model = qd.example("asia")
    alpha = np.full(len(model.nodes), 0.2)
    bound = WorstEvidenceBound(Problem(model, None, INFORMED))
    bound.prepare(Workspace(model), WorkBudget())
    full = bound.evaluate(alpha).values
    known = np.full(len(full), 10.0)
    worst = bound.evaluate(alpha, Need(known, 0.1, 5.0)).values
    assert worst.max() == pytest.approx(full.max(), rel=1e-13)
    assert (worst >= full * (1 - 1e-13)).all()
    for count in (2, 5):
        found = bound.evaluate(alpha, Need(known, count=count)).values
        order = np.argsort(-full)[:count]
        assert found[order] == pytest.approx(full[order], rel=1e-13)
        assert (found >= full * (1 - 1e-13)).all()


@pytest.mark.parametrize("name", ["asia", "survey", "sachs"])
def test_choices_that_are_passed_over_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = qd.load_model(Path(__file__).parents[3] / "models" / f"{name}.bif")
    for alpha in (np.full(len(model.nodes), 0.3), np.linspace(0.02, 0.5, len(model.nodes))):
        found = []
        for patched in (False, True):
            if patched:
                monkeypatch.setattr(
                    "quiltdp.accountant.bounds.worst_evidence._TaskMessages.cannot_raise",
                    lambda self, known: False,
                )
            bound = WorstEvidenceBound(Problem(model, None, INFORMED))
            bound.prepare(Workspace(model), WorkBudget())
            found.append(bound.evaluate(alpha).values)
            monkeypatch.undo()
        assert found[0] == pytest.approx(found[1], rel=1e-13)


def test_prices_lower_what_genotypes_leak() -> None:
    values = np.arange(3)
    price = np.abs(values[:, None] - values[None, :]) / 2.0
    model = qd.pedigree(
        Path(__file__).parents[3] / "models" / "pedigree" / "ceph1463.fam", allele_frequency=0.1
    )
    found = []
    for prices in ({}, dict.fromkeys(model.records, price)):
        bound = WorstEvidenceBound(Problem(model, None, INFORMED, prices=prices))
        bound.prepare(Workspace(model), WorkBudget())
        found.append(bound.evaluate(np.full(len(model.nodes), 0.05)).values.max())
    assert found[1] < 0.96 * found[0]
