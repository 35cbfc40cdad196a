"""The memory limit is asked before large tables are made, not after."""

from __future__ import annotations

import numpy as np
from limited import partial_answer

import quiltdp as qd
from quiltdp.accountant.bounds.forward_backward import ChildTransports
from quiltdp.inference.ancestry import Ancestry
from quiltdp.inference.workspace import Workspace
from quiltdp.work import Guard

STATES, OTHERS = 40, 30


class MessageRequest(Guard):
    """A guard that never strikes and remembers what it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.planned: list[int] = []

    def check(self, planned_bytes: int = 0) -> None:
        self.planned.append(planned_bytes)


def wide(children: str = "C") -> qd.Model:
    """Children whose two parents have many states: 40 · 39 · 30 pairs of rows, and as many moves."""
    rng = np.random.default_rng(3)
    uniform = {n: ([], [1.0 / k] * k) for n, k in (("A", STATES), ("B", OTHERS))}
    laws = {n: (["A", "B"], rng.dirichlet(np.ones(20), size=(STATES, OTHERS))) for n in children}
    return qd.Model.from_tables({**uniform, **laws})


def test_pairs_of_rows_are_announced_before_they_are_made() -> None:
    guard = MessageRequest()
    made = ChildTransports(Ancestry(wide()), guard)
    taken = max(p._p.nbytes + p._q.nbytes for p in made._pairs.values())
    assert taken == 2 * 8 * 20 * STATES * (STATES - 1) * OTHERS
    assert 2 * taken <= max(guard.planned) <= 4 * taken  # with what is made on the way


def test_moves_are_announced_before_they_are_made() -> None:
    model, guard = wide("CD"), MessageRequest()
    quilt = next(q for q in qd.quilts(qd.moralize(model), "A") if q.separator == {"B", "C", "D"})
    assert qd.quilt_influence(model, quilt, workspace=Workspace(model, guard=guard)).exact
    assert 3 * 8 * STATES * (STATES - 1) * OTHERS in guard.planned  # the moves, their copy, their bound


def test_approximate_dp_has_the_limit_too() -> None:
    asked = (wide(), 1.0, qd.Gaussian(1.0, 1e-6))
    found = partial_answer(lambda: qd.calibrate(*asked, adversary="prior", memory_limit=1.0), "memory limit")
    free = qd.calibrate(wide(), 1.0, qd.Gaussian(1.0, 1e-6), adversary="prior")
    assert any("the memory limit was reached" in note for note in found.notes)
    assert found.sigma >= free.sigma
