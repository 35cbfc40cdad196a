"""quiltdp.accountant.bounds.quilts: a quilt that is too large is passed over, not a failure."""

from __future__ import annotations

import numpy as np

import quiltdp as qd
from quiltdp.accountant.bounds.contract import Problem
from quiltdp.accountant.bounds.quilts import PublishedBound
from quiltdp.inference.workspace import Workspace
from quiltdp.work import WorkBudget


def test_quilts_that_are_too_large_are_passed_over() -> None:
    model = qd.example("child")
    few, many = WorkBudget(entries=8), WorkBudget()
    values = []
    for budget in (many, few):
        bound = PublishedBound(Problem(model), max_nearby=1)
        bound.prepare(Workspace(model), budget)
        values.append(bound.evaluate(np.full(len(model.nodes), 5.0)).values)
    assert np.all(values[0] <= values[1])
    assert np.all(values[1] <= 5.0 * len(model.nodes) * (1 + 1e-9))
