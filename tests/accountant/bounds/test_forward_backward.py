"""Forward–backward on directed models: pedigrees, inbreeding, random networks, size."""

from functools import reduce

import numpy as np
import pytest
from prior_oracle import (
    alphas,
    attained_limit,
    exact_prior_limit,
    mendelian_family,
    pedigree,
    random_dag,
    random_pedigree,
)
from strategies import random_network

from quiltdp import Model, markov_chain
from quiltdp.accountant.bounds.contract import ready
from quiltdp.accountant.bounds.coupling import CouplingBound
from quiltdp.accountant.bounds.forward_backward import ForwardBackwardBound
from quiltdp.errors import InvalidArgument
from quiltdp.inference.ancestry import Ancestry, Loop


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("inbred", [False, True])
def test_pedigrees(seed, inbred):
    rng = np.random.default_rng(seed)
    family = random_pedigree(rng, 5, inbred)
    alpha = np.full(5, float(rng.choice([0.05, 0.3, 1.0])))
    limit = exact_prior_limit(family, alpha)
    found = ready(ForwardBackwardBound, family).evaluate(alpha).values
    assert np.all(found >= limit - 1e-7)
    if not inbred:
        assert np.all(found <= 1.4 * limit)


@pytest.mark.parametrize("seed", range(30))
def test_random_networks(seed):
    model, alpha = random_dag(seed, max_nodes=5, max_joint=40)
    truth = attained_limit(model, alpha)
    assert np.all(ready(ForwardBackwardBound, model).evaluate(alpha).values >= truth)
    assert np.all(ready(ForwardBackwardBound, model, max_group=2).evaluate(alpha).values >= truth)
    assert np.all(ready(CouplingBound, model).evaluate(alpha).values >= truth)


@pytest.mark.slow
def test_many_random_networks():
    worst = 0.0
    for seed in range(1000, 1600):
        model, alpha = random_dag(seed)
        truth = attained_limit(model, alpha)
        bounds = [ready(ForwardBackwardBound, model, max_group=g) for g in (2, 9, 27)]
        for bound in (*bounds, ready(CouplingBound, model)):
            found = bound.evaluate(alpha).values
            assert np.all(found >= truth), f"seed {seed}: {bound.name} is below an attained leakage"
            worst = max(worst, float((found / np.maximum(truth, 1e-3)).max()))
    print(f"seeds 1000 to 1599: no violation, worst ratio {worst:.3g}")


def inbred_family(seed, people):
    """A pedigree whose people marry relatives whenever they can, some of them not asked."""
    rng = np.random.default_rng(seed)
    family = random_pedigree(rng, people, inbred=True)
    if people > 4:
        family = family.with_records(sorted(rng.choice(family.nodes, 4, replace=False)))
    return family, alphas(family, float(rng.choice([0.01, 0.1, 0.5, 1.5])))


@pytest.mark.parametrize("seed", range(12))
def test_inbred_families_with_latents(seed):
    family, alpha = inbred_family(seed, 6 + seed % 4)
    limit = exact_prior_limit(family, alpha)
    for group in (3, 9, 27):
        assert np.all(
            ready(ForwardBackwardBound, family, max_group=group).evaluate(alpha).values >= limit - 1e-7
        )


@pytest.mark.slow
def test_many_inbred_families():
    for seed in range(100, 250):
        family, alpha = inbred_family(seed, 5 + seed % 6)
        limit = exact_prior_limit(family, alpha)
        for group in (3, 9, 27):
            found = ready(ForwardBackwardBound, family, max_group=group).evaluate(alpha).values
            assert np.all(found >= limit - 1e-7), f"seed {seed}, groups of {group} states"


def test_a_chain_gives_the_chain_answer():
    chain = markov_chain([[0.9, 0.1], [0.2, 0.8]], length=6).with_records([f"X{k}" for k in range(6)])
    alpha = np.full(6, 0.3)
    found = ready(ForwardBackwardBound, chain).evaluate(alpha).values
    assert found == pytest.approx(ready(CouplingBound, chain).evaluate(alpha).values, rel=1e-6)


def test_where_lines_meet():
    cousins = {
        "a": (), "b": (), "c": ("a", "b"), "d": ("a", "b"), "e": (), "f": (),
        "g": ("c", "e"), "h": ("d", "f"), "i": ("g", "h"),
    }  # fmt: skip
    family = pedigree(cousins)
    tree = Ancestry(family)
    at = family.index
    met = [couple for couple, loop in tree.loops.items() if loop.steps]
    assert met == [(at["g"], at["h"])]
    assert len(tree.loops[met[0]].members) == 8  # all but the child
    law = tree.marginals[at["i"]]
    assert law[1] < 2 * 0.3 * 0.7  # inbreeding: fewer heterozygotes
    sibs = pedigree({"a": (), "b": (), "c": ("a", "b"), "d": ("a", "b"), "e": ("c", "d")})
    alpha = np.full(5, 0.2)
    found = ready(ForwardBackwardBound, sibs).evaluate(alpha).values
    assert np.all(found >= exact_prior_limit(sibs, alpha) - 1e-8)
    coarse = ready(ForwardBackwardBound, sibs, max_group=3).evaluate(alpha).values
    assert np.all(coarse >= found * (1 - 1e-12))
    assert coarse[-1] > found[-1] + 0.01
    unknown = ready(ForwardBackwardBound, sibs, max_work=0).evaluate(alpha)
    assert np.all(unknown.values >= coarse * (1 - 1e-12))
    assert any("too wide" in note for note in unknown.notes)


def test_units_and_latents():
    family = mendelian_family(2)
    hidden = family.with_records(["m", "c0", "c1"])
    alpha = alphas(hidden, 0.1)
    found = ready(ForwardBackwardBound, hidden, [("c0",), ("m", "c1")]).evaluate(alpha).values
    assert found[0] >= exact_prior_limit(hidden, alpha)[1] - 1e-8
    assert found[1] == pytest.approx(0.3)


def test_needs_a_bayesian_network():
    network = Model.from_potentials({"A": 2, "B": 2}, [(["A", "B"], [[2, 1], [1, 2]])])
    with pytest.raises(InvalidArgument, match="Markov network"):
        ready(ForwardBackwardBound, network)


def test_a_large_pedigree():
    rng = np.random.default_rng(7)
    parents = {}
    for k in range(800):
        couple = (
            tuple(f"p{j}" for j in rng.choice(np.arange(max(0, k - 200), k), 2, replace=False))
            if k > 50
            else ()
        )
        parents[f"p{k}"] = couple if rng.random() < 0.5 else ()
    family = pedigree(parents)
    bound = ready(ForwardBackwardBound, family)
    found = bound.evaluate(np.full(800, 0.05)).values / 0.05
    assert np.median(found) < 40
    assert np.all(found >= 1.0)


@pytest.mark.parametrize("seed", [10, 39])
def test_ignoring_that_lines_meet_would_be_unsound(seed, monkeypatch):
    diamond = {"g": (), "a": ("g",), "b": ("g",), "i": ("a", "b")}
    records = ["g", "i"] if seed % 2 else list(diamond)
    concentration = float(np.random.default_rng(seed).choice([0.1, 0.3]))
    model = random_network(seed, diamond, dict.fromkeys(diamond, 2), alpha=concentration, records=records)
    alpha = alphas(model, 2.0)
    truth = attained_limit(model, alpha)
    assert np.all(ready(ForwardBackwardBound, model).evaluate(alpha).values >= truth)
    assert np.all(ready(ForwardBackwardBound, model, max_group=2).evaluate(alpha).values >= truth)

    def apart(self, targets):
        joint = reduce(np.multiply.outer, [self.marginals[t] for t in targets])
        return Loop(targets, targets, frozenset(targets), dict.fromkeys(targets, ()), (), joint)

    monkeypatch.setattr(Ancestry, "_find_loop", apart)
    assert np.any(ready(ForwardBackwardBound, model).evaluate(alpha).values < truth - 0.01)
