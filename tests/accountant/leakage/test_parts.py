"""The parts that bounds are made of, each against a linear program, an enumeration or a closed form."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import linprog

import quiltdp as qd
from quiltdp.accountant.adversaries import PRIOR, knows
from quiltdp.accountant.bounds import ready
from quiltdp.accountant.leakage.approximate import GroupDelta
from quiltdp.accountant.leakage.chain_units import ChainUnits, as_chain
from quiltdp.accountant.leakage.conditioned import ConditionedBound
from quiltdp.accountant.leakage.forward import ChildKernels
from quiltdp.accountant.leakage.group import GroupBound
from quiltdp.accountant.leakage.laplace_sum import LaplaceSum
from quiltdp.accountant.leakage.loops import LoopMessages
from quiltdp.accountant.leakage.paired_curves import PathCurves, StateRows
from quiltdp.accountant.leakage.published import BlanketBound, PublishedBound
from quiltdp.accountant.leakage.quilts import QuiltTable, QuiltTerm
from quiltdp.accountant.leakage.summing_out import SummingOut
from quiltdp.accountant.leakage.worst_gains import (
    in_closed_form,
    is_quick,
    log_ratios,
    staged_ceiling,
    worst_gains,
)
from quiltdp.errors import InvalidArgument, ModelTooWide
from quiltdp.inference.ancestry import Ancestry, Loop, reorder
from quiltdp.inference.chains import path_of
from quiltdp.mechanisms.gaussian import GaussianProfile

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


@pytest.mark.parametrize("sizes", [(3,), (2, 2), (2, 3), (2, 2, 2, 2, 3)])
@pytest.mark.parametrize("equal", [True, False])
def test_worst_gains_are_what_the_program_says(sizes: tuple[int, ...], equal: bool) -> None:
    rng = np.random.default_rng(7)
    p, q = rng.dirichlet(np.ones(math.prod(sizes)), size=(2, 1))
    alphas = np.full(len(sizes), 0.7) if equal else rng.uniform(0.1, 1.0, len(sizes))
    truth = gain_by_program(p[0], q[0], sizes, alphas)
    proved, attained = worst_gains(p, q, sizes, alphas)
    assert truth - 1e-7 <= proved[0] <= truth + 1e-6
    assert truth - 1e-6 <= attained[0] <= truth + 1e-9
    assert staged_ceiling(p, q, sizes, alphas)[0] >= truth - 1e-9
    assert log_ratios(p, q)[0] >= truth - 1e-9
    assert is_quick(sizes, alphas) or not in_closed_form(sizes, alphas)


@pytest.mark.parametrize("sizes", [(2, 2, 2, 2), (3, 2, 3), (2, 3), (2, 4, 2), (3,)])
@pytest.mark.parametrize("strength", [1e-3, 0.4, 150.0])
def test_staged_ceilings_have_the_same_bytes_in_c_and_in_numpy(
    sizes: tuple[int, ...], strength: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(len(sizes))
    p, q = rng.dirichlet(np.full(math.prod(sizes), 0.2), size=(2, 17))
    p[rng.random(p.shape) < 0.4], q[rng.random(q.shape) < 0.4] = 0.0, 0.0
    p[:, -1], q[:, -1] = p[:, -1] + 0.01, q[:, -1] + 0.01  # impossible values, and groups of them
    p, q = p / p.sum(axis=1, keepdims=True), q / q.sum(axis=1, keepdims=True)
    alphas = strength * rng.uniform(0.5, 1.0, len(sizes))
    found = staged_ceiling(p, q, sizes, alphas)
    monkeypatch.setattr("quiltdp.accountant.leakage.worst_gains.kernel", lambda _: None)
    assert found.tobytes() == staged_ceiling(p, q, sizes, alphas).tobytes()


@pytest.mark.parametrize("width", [2, 4])
def test_summing_out_in_both_forms_is_above_the_kernel_and_meets_it_when_direct(width: int) -> None:
    rng = np.random.default_rng(width)
    count = 3
    states = np.arange(count * width).reshape(count, width)
    law = rng.dirichlet(np.ones(width), size=count)
    place = rng.uniform(size=(count * width, 2))
    d = np.abs(place[:, None] - place[None]).sum(axis=2)
    left, right = np.nonzero(~np.eye(count, dtype=bool))
    columns = np.array([[s // width, s % width % 2, s % width // 2] for s in range(count * width)])
    map_ = SummingOut(states, law, columns, left, right, slack=0.0)
    truth = [
        kernel_by_program(law[g], law[h], d[np.ix_(states[g], states[h])])
        for g, h in zip(left, right, strict=True)
    ]
    assert np.all(map_.distances(d) >= np.array(truth) - 1e-8)
    map_.at_once = True
    assert map_.distances(d) == pytest.approx(truth, abs=1e-7)
    label = np.repeat(np.arange(count), width)
    every = SummingOut.of_labels(law.ravel() / count, label, columns, slack=0.0)
    whole = every.distances(d).reshape(count, count)
    assert np.all(np.diag(whole) == 0.0)
    assert np.all(whole[left, right] >= np.array(truth) - 1e-8)
    both = every.distances(np.stack([d, 2 * d]))
    assert both[0] == pytest.approx(whole.ravel())
    assert both[1] == pytest.approx(every.distances(2 * d))
    at_once = every.distances(np.stack([d, 2 * d]), programs=10**9)
    assert at_once[0].reshape(count, count)[left, right] == pytest.approx(truth, abs=1e-7)


def test_the_forward_half_is_the_kernel_of_the_rows() -> None:
    forward, messages = ChildKernels(Ancestry(TREE)).run(np.array([0.5, 0.3, 0.4]))
    c = kernel_by_program(FLIP[::-1][0], FLIP[::-1][1], 0.4 * (1 - np.eye(2)))
    b = np.array([[0.0, 0.3 + c], [0.3 + kernel_by_program(FLIP[0], FLIP[1], 0.4 * (1 - np.eye(2))), 0.0]])
    assert forward[2] == pytest.approx(0.4 * (1 - np.eye(2)))
    assert forward[1][0, 1] == pytest.approx(b[0, 1])
    assert messages[0][0, 1] == pytest.approx(kernel_by_program(FLIP[0], FLIP[1], forward[1]), abs=1e-7)


def test_a_loop_of_one_ancestor_is_the_kernel_of_its_posterior() -> None:
    laws = [np.array([0.3, 0.7]), None]
    loop = reorder(Loop((1,), (0, 1), frozenset({0})), [(), (0,)], [laws[0], FLIP], laws, max_entries=64)
    d = np.array([[0.0, 0.8], [0.5, 0.0]])
    joint = laws[0][:, None] * FLIP
    posterior = (joint / joint.sum(axis=0)).T
    found = LoopMessages(loop, (1,)).run({0: d})
    assert found[0, 1] == pytest.approx(kernel_by_program(posterior[0], posterior[1], d), abs=1e-7)
    assert found[1, 0] == pytest.approx(kernel_by_program(posterior[1], posterior[0], d), abs=1e-7)


def test_windows_of_a_chain_by_listing_them() -> None:
    chain = qd.markov_chain(FLIP, 5)
    with pytest.raises(InvalidArgument, match="needs a Markov chain"):
        as_chain(TREE)
    units = ChainUnits(as_chain(chain), None, window=3)
    assert list(zip(units.first, units.last, strict=True)) == [(0, 2), (1, 3), (2, 4)]
    alpha, after, before = np.arange(1.0, 6.0), np.full(5, 0.25), np.full(5, 0.5)
    totals = units.totals(alpha, after, before)
    assert totals == pytest.approx([sum(alpha[k : k + 3]) + 0.75 for k in range(3)])
    with pytest.raises(InvalidArgument, match="unit 0 is empty"):
        ChainUnits(as_chain(chain), [()])


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
        bound = ready(ConditionedBound, TREE, adversary=who).evaluate(np.full(3, 0.7)).values
        limit = qd.leakage(TREE, 0.7, "exact", who).per_record.values_array
        assert np.all(bound >= limit - 1e-9)
        assert bound == pytest.approx(limit, rel=1e-6)


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
    partly = bound.refine(np.full(3, alpha), np.full(3, np.inf), 0.01, 0.02).values
    assert np.all(partly >= found * (1 - 1e-12))
    assert partly.max() > 0.02
    blanket = ready(BlanketBound, TREE).evaluate(np.full(3, alpha)).values
    first = qd.max_influence(TREE, of="A", on=["B"])
    assert blanket[0] == pytest.approx(alpha + 4 * first, rel=1e-9)


def test_a_table_of_quilts_is_the_largest_over_known_sets() -> None:
    one = QuiltTerm(
        frozenset({0, 1}), (2,), np.array([1]), np.array([[1.0], [0.0]]), np.array([0.3, 0.9]), ()
    )
    values, rows = QuiltTable([one], frozenset({0}), None).values(np.array([0.1, 0.2, 0.4]), None)
    assert values == pytest.approx([max(0.1 + 0.2 + 0.3, 0.1 + 0.9)])
    assert rows.tolist() == [1]
    assert one.size > 512


def test_pairings_are_fed_with_spreads_of_the_steps() -> None:
    chain = qd.markov_chain(FLIP, 9)
    curves = PathCurves(chain, path_of(chain))
    o = np.array([0.5])
    one = curves.after(3, np.array([1]), o)[0]
    odds = math.log(0.9 * 0.8 / (0.1 * 0.2))  # the spread of one step: the log odds ratio
    through = 4 * math.atanh(math.tanh(odds / 4) * math.tanh(0.5 / 4))
    assert one == pytest.approx(through, rel=1e-9)
    after, before = curves.by_spreads()
    assert after(np.full(len(curves.distances), 0.5))[0] == pytest.approx(one)
    assert before(np.full(len(curves.distances), 0.5))[0] == pytest.approx(one)
    assert StateRows(FLIP, FLIP, 0.0).reversible
    assert not StateRows(FLIP, FLIP.T, 0.0).reversible


def test_delta_of_the_group_is_the_profile_of_all_together() -> None:
    profile, weights = GaussianProfile(2.0), np.ones(3)
    group = ready(GroupDelta, TREE).weigh(weights).evaluate(profile, 1.0).values
    assert group == pytest.approx([profile.delta(1.0, 3.0)], rel=1e-9)
