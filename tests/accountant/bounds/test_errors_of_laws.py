"""Laws are rounded: a bound holds for every law within the error that its schedule states."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from mpmath import mp, mpf

import quiltdp as qd
from quiltdp.accountant.adversaries import PRIOR
from quiltdp.accountant.bounds.chain import ChainBound
from quiltdp.accountant.bounds.contract import ready
from quiltdp.accountant.bounds.coupling import CouplingBound
from quiltdp.inference import chain_schedule, schedule
from quiltdp.inference.cliques import conditional_slack
from quiltdp.numbers import EPS

SHARE = 0.9  # of the error that is allowed
STEPS = 400  # of the chain, of which only the two at the ends cost something


def tilted(laws: np.ndarray, axis: int, error: float) -> np.ndarray:
    """Laws of two values whose odds are nearer to even: every mass within that relative error."""
    lean = np.sign(np.take(laws, [1], axis=axis) - np.take(laws, [0], axis=axis))
    signs = np.array([1.0, -1.0]).reshape([2 if k == axis else 1 for k in range(laws.ndim)])
    found = laws * np.exp(0.5 * error * lean * signs)
    return np.asarray(found / found.sum(axis=axis, keepdims=True))


def limit(laws: mp.matrix, alpha: float) -> mpf:
    """What a record that costs α says about another, from P(record | other), in 50 digits."""
    gain = mp.exp(mpf(alpha)) - 1
    return max(
        mp.log((laws[x, k] * gain + 1) / (laws[y, k] * gain + 1))
        for x in range(2)
        for y in range(2)
        for k in range(2)
    )


@pytest.mark.parametrize("alpha", [0.5, 2.0])
def test_coupling_is_above_the_limit_of_every_law_within_its_slack(alpha, monkeypatch):
    table = np.array([[0.875, 0.125], [0.25, 0.75]])
    model = qd.Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], table)})
    with mp.workdps(50):
        exact = limit(mp.matrix(table.tolist()), alpha)
    honest = schedule._make_level
    error = SHARE * conditional_slack(model)

    def rounded(*given):
        level = honest(*given)
        return replace(level, law=tilted(level.law, 0, error))

    monkeypatch.setattr(schedule, "_make_level", rounded)
    bound = ready(CouplingBound, model, [("A",)], adversary=PRIOR)
    assert mpf(float(bound.evaluate(np.array([0.0, alpha])).values[0])) >= exact


def test_a_chain_is_above_the_limit_of_every_law_within_its_slack(monkeypatch):
    table = np.array([[1.0 - 2.0**-11, 2.0**-11], [2.0**-10, 1.0 - 2.0**-10]])
    with mp.workdps(50):
        exact = limit(mp.matrix(table.tolist()) ** (STEPS - 1), 2.0)
    honest = chain_schedule._step_inwards

    def rounded(*given):
        column = honest(*given)
        if column.laws is None:
            return column
        error = 2 * (column.steps + 2) * 5 * EPS  # of products with so many tables of two states
        return replace(column, laws=tilted(column.laws, 2, SHARE * error))

    monkeypatch.setattr(chain_schedule, "_step_inwards", rounded)
    alpha = np.zeros(STEPS)
    alpha[-1] = 2.0
    model = qd.markov_chain(table, STEPS, [0.5, 0.5])
    found = ready(ChainBound, model, adversary=PRIOR).evaluate(alpha).values[0]
    assert mpf(float(found)) >= exact
