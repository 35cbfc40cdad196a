"""What looks alike and is not: values, prices beyond a free step, and ceilings where staying put costs."""

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.accountant.adversaries import INFORMED, PRIOR
from quiltdp.accountant.bounds.chain import ChainBound
from quiltdp.accountant.bounds.contract import Problem, ready
from quiltdp.accountant.bounds.coupling import CouplingBound
from quiltdp.accountant.bounds.limit import ExactBound
from quiltdp.accountant.bounds.transport import transport
from quiltdp.inference.workspace import Workspace
from quiltdp.work import WorkBudget


@pytest.mark.parametrize("order", ["BCE", "CEB", "CBE"])
def test_a_copy_and_a_constant_have_equal_laws_and_other_values(order):
    tables = {"A": ([], [0.5, 0.5])}
    for name in order:
        tables[name] = (["A"], [[1.0, 0.0], [0.0, 1.0]] if name == "B" else [[1.0, 0.0], [1.0, 0.0]])
    bound = ready(CouplingBound, qd.Model.from_tables(tables), [("A",)], adversary=PRIOR)
    assert bound.evaluate(np.full(4, 0.5)).values == pytest.approx([1.0])


@pytest.mark.parametrize("who", [PRIOR, INFORMED], ids=["prior", "informed"])
def test_a_step_without_a_price_lets_the_price_beyond_it_stand(who):
    table = 0.8 * np.eye(3) + 0.2 / 3
    model = qd.markov_chain(table, 4, [0.2, 0.5, 0.3])
    near = np.abs(np.arange(3)[:, None] - np.arange(3)) / 2.0
    alpha = np.array([1.0, 0.0, 1.0, 1.0])
    found = []
    for kind in (ChainBound, ExactBound):
        bound = kind(Problem(model, None, who, 1, {"X3": near}))
        bound.prepare(Workspace(model), WorkBudget())
        found.append(bound.evaluate(alpha).values)
    assert np.all(found[0] >= found[1] - 1e-9)


def test_ceilings_count_what_staying_put_costs():
    rng = np.random.default_rng(5)
    for _ in range(50):
        p, q = rng.dirichlet(np.ones(4), size=(2, 1))
        d = rng.uniform(0.5, 1.0, size=(1, 4, 4))
        d[0, np.arange(4), np.arange(4)] = rng.choice([0.0, 0.45], size=4)
        assert transport(p, q, d, effort=0.0) >= transport(p, q, d) - 1e-9
