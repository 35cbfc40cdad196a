"""Messages of the informed clique tree: their precision follows the budget, their ceilings are maxima."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.accountant.leakage.informed_tasks import Cell, Task, assign_programs, levels
from quiltdp.accountant.leakage.summing_out import SummingOut
from quiltdp.inference.cliques import View, Views, clique_forest


@pytest.fixture(scope="module")
def views() -> list[View]:
    model = qd.example("asia")
    found = Views(clique_forest(model), model.records)
    return [found.edge(key) for key in found.order()]


def test_precision_grows_with_the_budget_and_never_exceeds_it(views: list[View]) -> None:
    coarse = [Task(view, "coarse") for view in views]
    least = sum(t.pairs() for t in coarse)
    assert [t.level for t in levels(coarse, 0)] == ["coarse"] * len(coarse)
    rank = {"coarse": 0, "together": 1, "each": 2}
    before = [0] * len(coarse)
    for budget in (least, 4 * least, 64 * least, 10**9):
        chosen = levels(coarse, budget)
        assert sum(t.pairs() for t in chosen) <= budget
        now = [rank[t.level] for t in chosen]
        assert sum(now) >= sum(before)
        before = now
    assert max(before) == 2
    assert min(before) >= 1


def test_ceilings_and_distances_against_a_loop(views: list[View]) -> None:
    random = np.random.default_rng(3)
    for view in views[:4]:
        states = view.clique.states
        d = random.uniform(0.0, 2.0, size=(len(states), len(states)))
        for choice in view.choices(each=False):
            cell = Cell(view, choice, 0.0)
            columns = [k for k, n in enumerate(view.clique.nodes) if n in choice.known]
            best = np.zeros((view.count, view.count))
            for a in range(len(states)):
                for b in range(len(states)):
                    if (states[a, columns] == states[b, columns]).all():
                        at = view.label[a], view.label[b]
                        best[at] = max(best[at], d[a, b])
            possible = cell.ceiling(d)
            assert np.all(possible >= best - 1e-12)
            # an average of e^d is never above its largest term
            mu = cell.placed(cell.summing.distances(d))
            worst = np.where(np.isfinite(mu), mu, -np.inf).max(axis=(0, 3, 4))
            assert np.all(worst <= possible + 1e-9)


def test_the_smallest_tasks_get_the_programs() -> None:
    tasks = [SimpleNamespace(programs=n, at_once=False) for n in (5, 0, 2, 9)]
    assign_programs(cast("list[SummingOut]", tasks), 8)
    assert [t.at_once for t in tasks] == [True, False, True, False]
