"""Last steps side by side, above a floor or not, and every unit alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.accountant.adversaries import INFORMED, Adversary
from quiltdp.accountant.bounds import Problem
from quiltdp.accountant.leakage.informed_messages import _Message, leakages_of_many
from quiltdp.accountant.leakage.informed_tree import InformedTreeBound
from quiltdp.inference.workspace import Workspace
from quiltdp.work import WorkBudget

MODELS = Path(__file__).parents[3] / "models"


def _bound(model: qd.Model, who: Adversary = INFORMED) -> InformedTreeBound:
    bound = InformedTreeBound(Problem(model, None, who))
    bound.prepare(Workspace(model), WorkBudget())
    return bound


@pytest.mark.parametrize("who", [INFORMED, qd.knows(1)])
def test_units_together_are_as_units_alone(who: Adversary) -> None:
    model = qd.example("asia")
    alpha = np.full(len(model.nodes), 0.2)
    together = _bound(model, who).evaluate(alpha).values
    for k in range(len(together)):
        known = np.zeros(len(together))
        known[k] = 10.0
        alone = _bound(model, who).refine(alpha, known, 0.0, np.inf).values[k]
        assert alone == pytest.approx(together[k], rel=1e-13)


def test_only_what_leaks_most_need_be_told() -> None:
    model = qd.example("asia")
    alpha = np.full(len(model.nodes), 0.2)
    full = _bound(model).evaluate(alpha).values
    known = np.full(len(full), 10.0)
    worst = _bound(model).refine(alpha, known, 0.1, 5.0).values
    assert worst.max() == pytest.approx(full.max(), rel=1e-13)
    assert (worst >= full * (1 - 1e-13)).all()
    some = _bound(model)
    for count in (2, 5):  # what was told only to be small is told when it is asked for
        found = some.largest(alpha, known, count).values
        order = np.argsort(-full)[:count]
        assert found[order] == pytest.approx(full[order], rel=1e-13)
        assert (found >= full * (1 - 1e-13)).all()


def test_nothing_is_asked_of_nobody() -> None:
    assert leakages_of_many([], None, 0.0) == []  # type: ignore[arg-type]  # nothing is read


@pytest.mark.parametrize("who", [INFORMED, qd.knows(2)])
@pytest.mark.parametrize("name", ["asia", "survey", "sachs"])
def test_choices_that_are_passed_over_change_nothing(
    name: str, who: Adversary, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = qd.load_model(MODELS / f"{name}.bif")
    for alpha in (np.full(len(model.nodes), 0.3), np.linspace(0.02, 0.5, len(model.nodes))):
        found = _bound(model, who).evaluate(alpha).values
        with monkeypatch.context() as patched:
            patched.setattr(_Message, "_is_hopeless", lambda self, cell, b: False)
            assert np.array_equal(found, _bound(model, who).evaluate(alpha).values)
