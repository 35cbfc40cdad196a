"""Quilts against the prior adversary: the Markov Quilt Mechanism."""

import numpy as np
import pytest
from prior_oracle import REFERENCE, alphas, attained_limit, mendelian_family, random_dag, reference_model

from quiltdp import markov_chain, max_influence
from quiltdp.accountant.adversaries import PRIOR
from quiltdp.accountant.bounds.chain_contraction import ContractionBound
from quiltdp.accountant.bounds.contract import ready
from quiltdp.accountant.bounds.mqm_chain import MarkovQuiltChainBound
from quiltdp.accountant.bounds.quilts import MarkovQuiltBound


def test_reference_networks():
    for entry in REFERENCE[::3]:
        model = reference_model(entry)
        alpha = alphas(model, entry["dp_epsilon"])
        limit = np.array([entry["prior_limit"][r] for r in model.records])
        published = ready(MarkovQuiltBound, model).evaluate(alpha).values
        alive = limit > 0
        assert np.all(published[alive] >= limit[alive] - 1e-7)


def test_published_is_the_best_quilt():
    entry = REFERENCE[5]
    model = reference_model(entry)
    a = entry["dp_epsilon"]
    found = ready(MarkovQuiltBound, model).evaluate(alphas(model, a)).values
    for k, record in enumerate(model.records):
        best = np.inf
        for quilt in (q for q in entry["quilts"] if q["target"] == record):
            size = 1 + sum(model.is_record(n) for n in quilt["nearby"])
            best = min(best, size * a + max_influence(model, of=record, on=quilt["quilt"]))
        assert found[k] == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("seed", range(100, 115))
def test_never_below_what_a_mechanism_attains(seed):
    model, alpha = random_dag(seed, max_nodes=5, max_joint=40)
    truth = attained_limit(model, alpha)
    assert np.all(ready(MarkovQuiltBound, model).evaluate(alpha).values >= truth)


def test_units():
    family = mendelian_family(2)
    alpha = alphas(family, 0.2)
    units = [("f", "m"), ("c0",)]
    truth = attained_limit(family, alpha, units)
    assert np.all(ready(MarkovQuiltBound, family, units).evaluate(alpha).values >= truth)


def test_agrees_with_the_chain_form():
    chain = markov_chain([[0.7, 0.3], [0.4, 0.6]], length=7)
    plain = chain.with_records(list(chain.nodes))
    alpha = np.full(7, 0.3)
    one = ready(MarkovQuiltBound, plain, max_nearby=7).evaluate(alpha).values
    two = ready(MarkovQuiltChainBound, chain).evaluate(alpha).values
    assert one == pytest.approx(two, abs=1e-9)


def test_windows():
    chain = markov_chain([[0.7, 0.3], [0.4, 0.6]], length=7)
    alpha = np.linspace(0.1, 0.4, 7)
    listed = [tuple(chain.nodes[k : k + 3]) for k in range(5)]
    for kind in (ContractionBound, MarkovQuiltChainBound):
        one = ready(kind, chain, listed, adversary=PRIOR).evaluate(alpha).values
        two = ready(kind, chain, window=3, adversary=PRIOR).evaluate(alpha).values
        assert one == pytest.approx(two, rel=1e-12)
