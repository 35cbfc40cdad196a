"""quiltdp.accountant.leakage.published: influences computed together are those of each quilt alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

import quiltdp as qd
from quiltdp.accountant.bounds import Problem
from quiltdp.accountant.leakage import published
from quiltdp.errors import ModelTooWide
from quiltdp.inference.workspace import Workspace
from quiltdp.work import WorkBudget


@pytest.mark.parametrize("most", [1, 100])
def test_influences_of_many_quilts_are_those_of_each(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = qd.example("alarm")
    bound = published.PublishedBound(Problem(model))
    bound.prepare(Workspace(model), WorkBudget())
    listed = [quilt for quilt, _ in bound._listed("HR")][:24]
    slow = [qd.quilt_influence(model, q).b if len(q.nearby) <= most else math.inf for q in listed]
    assert (math.inf in slow) == (most == 1)

    def refusing(model: qd.Model, quilts: Sequence[qd.Quilt], **options: Any) -> Any:
        if any(len(q.nearby) > most for q in quilts):
            raise ModelTooWide("a table of one of them is too large")
        return qd.quilt_influences(model, quilts, **options)

    monkeypatch.setattr(published, "quilt_influences", refusing)
    assert bound._influences(listed[5:12]) == slow[5:12]
    assert bound._influences(listed) == slow  # some are kept, the others due
