"""The parts that bounds are made of, each against a linear program, an enumeration or a closed form."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import linprog

import quiltdp as qd
from quiltdp.accountant.adversaries import PRIOR, knows
from quiltdp.accountant.audit import LaplaceSum
from quiltdp.accountant.bounds.approximate import GroupDelta
from quiltdp.accountant.bounds.chain_contraction import PathUnits
from quiltdp.accountant.bounds.conditioned import ConditionedModels
from quiltdp.accountant.bounds.contract import ALL, Need, Problem, ProfileCost, ready
from quiltdp.accountant.bounds.forward_backward import ChildTransports
from quiltdp.accountant.bounds.group import GroupBound
from quiltdp.accountant.bounds.loops import LoopMessages
from quiltdp.accountant.bounds.quilts import BlanketBound, PublishedBound, SwingBound
from quiltdp.accountant.leakage import LeakageProfile
from quiltdp.chain import as_chain
from quiltdp.errors import InvalidArgument, ModelTooWide
from quiltdp.inference.ancestry import Ancestry, Loop, Step
from quiltdp.inference.influence import swings
from quiltdp.inference.workspace import Workspace
from quiltdp.mechanisms.gaussian import GaussianProfile
from quiltdp.work import WorkBudget

FLIP = np.array([[0.9, 0.1], [0.2, 0.8]])
TREE = qd.Model.from_tables({"A": ([], [0.6, 0.4]), "B": (["A"], FLIP), "C": (["B"], FLIP[::-1])})


def kernel_by_program(p: np.ndarray, q: np.ndarray, d: np.ndarray) -> float:
    """K(p, q; d) = max ln Σ p x / Σ q y over x_i ≤ e^{d_ij} y_j."""
    n, m = d.shape
    rows = []
    for i, j in itertools.product(range(n), range(m)):
        row = np.zeros(n + m)
        row[i], row[n + j] = 1.0, -math.exp(d[i, j])
        rows.append(row)
    found = linprog(
        np.concatenate([-p, np.zeros(m)]),
        A_ub=np.array(rows),
        b_ub=np.zeros(n * m),
        A_eq=np.concatenate([np.zeros(n), q])[None],
        b_eq=[1.0],
    )
    return max(0.0, math.log(-found.fun))


def gain_by_program(p: np.ndarray, q: np.ndarray, sizes: tuple[int, ...], alphas: np.ndarray) -> float:
    """max_H ln E_p H / E_q H over what an α-DP mechanism allows."""
    points = list(np.ndindex(*sizes))
    rows = []
    for u, v in itertools.permutations(range(len(points)), 2):
        apart = [k for k, (a, b) in enumerate(zip(points[u], points[v], strict=True)) if a != b]
        if len(apart) == 1:
            row = np.zeros(len(points))
            row[u], row[v] = 1.0, -math.exp(alphas[apart[0]])
            rows.append(row)
    found = linprog(-p, A_ub=np.array(rows), b_ub=np.zeros(len(rows)), A_eq=q[None], b_eq=[1.0])
    return math.log(-found.fun)


def test_the_forward_half_is_the_kernel_of_the_rows() -> None:
    own = [a * (1 - np.eye(2)) for a in (0.5, 0.3, 0.4)]
    forward, messages = ChildTransports(Ancestry(TREE)).run(own)
    c = kernel_by_program(FLIP[::-1][0], FLIP[::-1][1], 0.4 * (1 - np.eye(2)))
    b = np.array([[0.0, 0.3 + c], [0.3 + kernel_by_program(FLIP[0], FLIP[1], 0.4 * (1 - np.eye(2))), 0.0]])
    assert forward[2] == pytest.approx(0.4 * (1 - np.eye(2)))
    assert forward[1][0, 1] == pytest.approx(b[0, 1])
    assert messages[0][0, 1] == pytest.approx(kernel_by_program(FLIP[0], FLIP[1], forward[1]), abs=1e-7)


def test_a_loop_of_one_ancestor_is_the_kernel_of_its_posterior() -> None:
    d = np.array([[0.0, 0.8], [0.5, 0.0]])
    joint = np.array([0.3, 0.7])[:, None] * FLIP
    posterior = (joint / joint.sum(axis=0)).T
    loop = Loop((1,), (0, 1), frozenset({0}), {}, (Step(0, (1,), posterior),), joint.sum(axis=0))
    found = LoopMessages(loop).run({0: d})
    assert found[0, 1] == pytest.approx(kernel_by_program(posterior[0], posterior[1], d), abs=1e-7)
    assert found[1, 0] == pytest.approx(kernel_by_program(posterior[1], posterior[0], d), abs=1e-7)


def test_windows_of_a_chain_by_listing_them() -> None:
    chain = qd.markov_chain(FLIP, 5)
    with pytest.raises(InvalidArgument, match="needs a Markov chain"):
        as_chain(TREE)
    units = PathUnits(Problem(chain, window=3))
    assert list(zip(units.first, units.last, strict=True)) == [(0, 2), (1, 3), (2, 4)]
    units = PathUnits(Problem(chain, (("X1", "X3"), ("X2",))))
    assert (units.first.tolist(), units.last.tolist(), units.gaps) == ([1, 2], [3, 2], True)


def test_group_privacy_adds_up_a_component() -> None:
    found = ready(GroupBound, TREE).evaluate(np.array([0.1, 0.2, 0.3]))
    assert found.values == pytest.approx([0.6] * 3)
    assert np.all(found.values >= 0.6)


def test_the_audited_mechanism_is_below_the_limit_and_alone_it_leaks_its_alpha() -> None:
    alone = qd.Model.from_tables({"A": ([], [0.5, 0.5])})
    assert LaplaceSum(alone).evaluate(0.7) == pytest.approx([0.7])
    for adversary in ("informed", "prior"):
        reached = LaplaceSum(TREE, adversary).evaluate(0.7)
        limit = qd.leakage(TREE, 0.7, "exact", adversary).per_record.values_array
        assert np.all(reached <= limit + 1e-9)
    assert np.all(LaplaceSum(TREE).evaluate(0.7) >= 0.7 - 1e-9)  # who knows all others reads one record
    with pytest.raises(ModelTooWide, match="records are too many"):
        LaplaceSum(qd.markov_chain(FLIP, 20))


def test_conditioning_on_what_may_be_known_is_the_limit_of_a_small_model() -> None:
    for who in (knows("B"), knows(1), PRIOR):
        models = ConditionedModels(Problem(TREE, None, who), Workspace(TREE), WorkBudget())
        bound = models.evaluate(np.full(3, 0.7), ALL).values
        limit = qd.leakage(TREE, 0.7, "exact", who).per_record.values_array
        assert np.all(bound >= limit - 1e-9)
        assert bound == pytest.approx(limit, rel=1e-6)


def test_conditioning_counts_what_tells_a_little_more_than_nothing_known() -> None:
    model = qd.Model.from_tables(
        {
            "A": ([], [0.5, 0.5]),
            "B": ([], [0.8, 0.2]),
            "C": (["A", "B"], [[[0.95, 0.05], [0.05, 0.95]], [[0.05, 0.95], [0.95, 0.05]]]),
        }
    )
    alpha = {"A": 0.1, "B": 0.0, "C": 1.5}  # nothing is read of B, but it may be known
    free = qd.leakage(model, alpha, "exact", PRIOR).per_record.values_array
    for who in (knows("B"), knows(1)):
        models = ConditionedModels(Problem(model, None, who), Workspace(model), WorkBudget())
        bound = models.evaluate(np.array([*alpha.values()]), ALL).values
        limit = qd.leakage(model, alpha, "exact", who).per_record.values_array
        assert 1.1 * free[0] < limit[0] < 2.0 * free[0]
        assert np.all(bound >= limit - 1e-9)


def test_conditioning_keeps_the_prices_of_what_is_left() -> None:
    law = np.array([[0.7, 0.2, 0.1], [0.2, 0.5, 0.3], [0.1, 0.3, 0.6]])
    model = qd.Model.from_tables({"A": ([], law[0]), "B": (["A"], law), "C": (["B"], law[::-1])})
    prices, alpha = qd.Laplace(values=[0, 1, 2]).prices(model), np.full(3, 0.7)
    for who in (knows("B"), knows(1)):
        models = ConditionedModels(Problem(model, None, who, prices=prices), Workspace(model), WorkBudget())
        limit = LeakageProfile(model, "exact", who, prices=prices).leakage(0.7).per_record.values_array
        bound = models.evaluate(alpha, ALL).values
        assert np.all(bound >= limit - 1e-9)
        assert bound == pytest.approx(limit, rel=1e-3)


@pytest.mark.parametrize("alpha", [0.05, 0.5])
def test_the_lazy_lemma_is_the_lemma(alpha: float) -> None:
    """Every quilt of every record, one after the other, without any shortcut."""
    graph = qd.moralize(TREE)
    bound = ready(PublishedBound, TREE)
    found = bound.evaluate(np.full(3, alpha)).values
    for value, record in zip(found, TREE.records, strict=True):
        each = [3 * alpha]
        for quilt in qd.quilts(graph, record, max_nearby=4):
            if quilt.separator:
                each.append(len(quilt.closed) * alpha + 4 * qd.quilt_influence(TREE, quilt).b)
        assert value == pytest.approx(min(each), rel=1e-9)
    partly = bound.evaluate(np.full(3, alpha), Need(np.full(3, np.inf), 0.01, 0.02)).values
    assert np.all(partly >= found * (1 - 1e-12))
    assert partly.max() > 0.02
    blanket = ready(BlanketBound, TREE).evaluate(np.full(3, alpha)).values
    first = qd.max_influence(TREE, of="A", on=["B"])
    assert blanket[0] == pytest.approx(alpha + 4 * first, rel=1e-9)


def test_the_swing_pays_for_whoever_is_not_known() -> None:
    """Every known set counts: Σ α of C without it, and its own swing."""
    alpha = np.array([1.0, 2.0, 4.0])
    found = ready(SwingBound, TREE).evaluate(alpha)
    ends = swings(TREE, ["A"], ["B"], ["C"])
    quilts = [1.0 + swings(TREE, ["A"], [], ["B"])[frozenset()]]
    quilts.append(max(3.0 + ends[frozenset()], 1.0 + ends[frozenset({"B"})]))
    assert min(quilts) < 7.0  # below group privacy
    assert found.values[0] == pytest.approx(min(quilts), rel=1e-9)


def test_delta_of_the_group_is_the_profile_of_all_together() -> None:
    profile, weights = GaussianProfile(2.0), np.ones(3)
    group = ready(GroupDelta, TREE).evaluate(ProfileCost(weights, profile, 1.0)).values
    assert group == pytest.approx([profile.delta(1.0, 3.0)] * 3, rel=1e-9)
