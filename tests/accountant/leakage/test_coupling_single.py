"""Single changes, blocks and narrower trees: never below what a mechanism attains, close on narrow models."""

from dataclasses import replace

import numpy as np
import pytest
from prior_oracle import alphas, attained_limit, exact_prior_limit, random_dag

from quiltdp import Model, load_model
from quiltdp.accountant.bounds import ready
from quiltdp.accountant.leakage.coupling_single import SingleCouplingBound
from quiltdp.accountant.leakage.single_changes import SingleChanges, prices_of
from quiltdp.errors import ModelTooWide
from quiltdp.inference.change_tree import (
    Narrower,
    apart,
    blocks_of,
    change_tree,
    changes_of_plan,
    joined_nodes,
)
from quiltdp.inference.coupling_tree import reading_order
from quiltdp.inference.trees import junction_tree, plan_junction_tree
from quiltdp.inference.workspace import Workspace
from quiltdp.work import NO_GUARD, WorkBudget

ONE_OF_THREE = Model.from_tables(
    {
        "A": ([], [0.6, 0.4]),
        "B": (["A"], [[0.5, 0.5], [1.0, 0.0]]),
        "C": (["A", "B"], [[[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [0.5, 0.5]]]),
        "D": (["A"], [[0.8, 0.2], [0.3, 0.7]]),
    }
)


def single(model, alpha, units=None, **options):
    return ready(SingleCouplingBound, model, units, **options).evaluate(alpha).values


def narrow(pairs):
    return replace(WorkBudget(), pairs=pairs)


def test_no_mechanism_leaks_more():
    ratios = []
    for seed in range(300, 320):
        model, alpha = random_dag(seed)
        found, attained = single(model, alpha), attained_limit(model, alpha)
        assert np.all(found >= attained - 1e-12), seed
        assert np.all(found <= alpha.sum() * (1 + 1e-9) + 1e-9), seed
        ratios.extend((found / attained)[attained > 0])
    assert np.median(ratios) < 1.001


def test_no_mechanism_leaks_more_where_nodes_are_left_out():
    """Budgets so small that part of the network is generated forward from the rest."""
    left_out = 0
    for seed in range(30_000, 30_060):
        model, alpha = random_dag(seed)
        for pairs in (8, 40, 160, 600):
            try:
                bound = ready(SingleCouplingBound, model, budget=narrow(pairs), share=1.0)
            except ModelTooWide:
                continue
            if any(tree.edges for tree in bound._trees):
                left_out += 1
                assert np.all(bound.evaluate(alpha).values >= attained_limit(model, alpha) - 1e-12), seed
    assert left_out >= 8


@pytest.mark.slow
def test_no_mechanism_leaks_more_on_five_thousand_records():
    records = left_out = 0
    for seed in range(40_000, 42_500):
        model, alpha = random_dag(seed)
        attained = attained_limit(model, alpha)
        for pairs in (8, 40, 160, 600, 20_000_000):
            try:
                bound = ready(SingleCouplingBound, model, budget=narrow(pairs), share=1.0)
            except ModelTooWide:
                continue
            assert np.all(bound.evaluate(alpha).values >= attained - 1e-12), (seed, pairs)
            records += len(attained)
            left_out += len(attained) if any(tree.edges for tree in bound._trees) else 0
    assert records >= 5_000
    assert left_out >= 1_000


def test_protected_sets_and_parts_of_blocks():
    model, alpha = random_dag(11, max_nodes=5, max_joint=40)
    units = [tuple(model.records[:2])]
    assert np.all(single(model, alpha, units) >= exact_prior_limit(model, alpha, units) - 1e-9)
    alpha = alphas(ONE_OF_THREE, 0.3)
    found, limit = single(ONE_OF_THREE, alpha), exact_prior_limit(ONE_OF_THREE, alpha)
    assert np.all(found >= limit - 1e-9)
    assert found == pytest.approx(limit, rel=0.1)


def test_nodes_that_cannot_change_alone_become_one_block():
    """Of A, B, C exactly one is on: possible states are two changes apart."""
    tree = junction_tree(ONE_OF_THREE)
    assert apart(tree.log_marginal(["A", "B", "C"]) > -np.inf) == 3
    joined = joined_nodes(ONE_OF_THREE, tree)
    assert len(joined) == 1
    blocks = blocks_of(ONE_OF_THREE, tree, joined, reading_order(ONE_OF_THREE))
    together = junction_tree(blocks.model)
    home = next(k for k, b in enumerate(blocks.blocks) if "D" in b.nodes)
    assert together.marginal([blocks.model.nodes[home]]) == pytest.approx(tree.marginal(["D"]))


def test_a_chain_of_three_is_exact_and_its_messages_are_on_single_changes():
    chain = Model.from_tables(
        {
            "A": ([], [0.3, 0.7]),
            "B": (["A"], [[0.9, 0.1], [0.2, 0.8]]),
            "C": (["B"], [[0.6, 0.4], [0.1, 0.9]]),
        }
    )
    alpha = np.array([0.5, 0.2, 0.9])
    assert single(chain, alpha) == pytest.approx(exact_prior_limit(chain, alpha), rel=1e-8)
    blocks = blocks_of(chain, junction_tree(chain), [], reading_order(chain))
    tree = change_tree(blocks, max_entries=100, workspace=Workspace(chain))
    prices = prices_of(tree, [a * (1 - np.eye(2)) for a in alpha], dict(chain.index))
    assert SingleChanges(tree, prices, 0.0, NO_GUARD).of_block(0).shape == (2, 2)
    assert changes_of_plan(plan_junction_tree(blocks.model), dict.fromkeys(blocks.model.nodes, 2)) == 4.0
    sweep = SingleChanges(tree, prices, 0.0, NO_GUARD)  # a block asks for the messages towards it alone
    last = sweep.of_block(2)
    assert 0 < len(sweep._made) < len(tree.messages)
    assert sweep.nbytes >= sum(a.nbytes for m in sweep._made.values() for a in m.values())
    for block in (1, 0):
        fresh = SingleChanges(tree, prices, 0.0, NO_GUARD)
        assert sweep.of_block(block).tobytes() == fresh.of_block(block).tobytes()
    assert sweep.of_block(2) is last


def test_kept_nodes_hold_their_ancestors_and_fit():
    alarm = load_model("models/alarm.bif")
    choice = Narrower(alarm, entries=100, effort=1e9, guard=NO_GUARD)
    parents = {f.scope[-1]: f.scope[:-1] for f in alarm.factors}
    for wanted in (None, "LVEDVOLUME"):
        kept = choice.keep(wanted)
        assert kept is not None
        assert len(kept) < len(alarm.nodes)
        assert wanted is None or wanted in kept
        assert all(p in kept for n in kept for p in parents[n])
        assert choice.plan(kept).fits
        law = junction_tree(choice.network(kept)).marginal([kept[-1]])
        assert law == pytest.approx(junction_tree(alarm).marginal([kept[-1]]), rel=1e-9)
    assert Narrower(alarm, entries=3, effort=1e9, guard=NO_GUARD).keep("CATECHOL") is None
    assert choice.left_out_below(parents["BP"][0], set(alarm.nodes) - {"BP"}) == ["BP"]


def test_real_networks():
    asia = load_model("models/asia.bif")
    alpha = alphas(asia, 0.1)
    assert single(asia, alpha).max() <= 1.01 * exact_prior_limit(asia, alpha).max()
    with pytest.raises(ModelTooWide):
        single(load_model("models/asia.bif"), alpha, budget=narrow(1))


def test_evaluation_is_pure_and_grows_with_alpha():
    model, _ = random_dag(304)
    bound, again = ready(SingleCouplingBound, model), ready(SingleCouplingBound, model)
    values = [bound.evaluate(alphas(model, a)).values.max() for a in (0.01, 0.1, 1.0, 5.0, 300.0)]
    assert values == sorted(values)
    assert (
        bound.evaluate(alphas(model, 0.1)).values.tobytes()
        == again.evaluate(alphas(model, 0.1)).values.tobytes()
    )
