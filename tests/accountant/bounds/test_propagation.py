"""Leakage propagation: reference values, its certificate, size, and protected sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import models, reference_networks

import quiltdp as qd
from quiltdp.accountant.bounds.contract import ready
from quiltdp.accountant.bounds.limit import ExactBound
from quiltdp.accountant.bounds.propagation import PropagationBound, propagate
from quiltdp.accountant.bounds.quilts import SwingBound
from quiltdp.graph.components import factor_graph
from quiltdp.inference.spread import all_spreads


def alpha_of(model: qd.Model, alpha: float) -> np.ndarray:
    return np.array([alpha if model.is_record(n) else 0.0 for n in model.nodes])


@pytest.mark.parametrize("k", range(60))
@pytest.mark.parametrize("bound", [PropagationBound, SwingBound])
def test_no_looser_than_the_reference_and_never_below_the_limit(k: int, bound: type) -> None:
    case = reference_networks()[k]
    found = ready(bound, case.model).evaluate(alpha_of(case.model, case.dp_epsilon))
    assert case.limit - 1e-7 <= found.values.max() <= case.bounds[found.theorem] + 1e-8


@settings(max_examples=40)
@given(models(), st.sampled_from([0.01, 0.3, 2.0]))
def test_messages_are_a_super_solution(model: qd.Model, alpha: float) -> None:
    g, spreads, a = factor_graph(model), all_spreads(model, factor_graph(model)), alpha_of(model, alpha)
    found = propagate(g, spreads, a)
    if not len(g.edge_node):
        return
    # one application of the equations, written as a loop over edges
    for e, (j, f) in enumerate(zip(g.edge_node, g.edge_factor, strict=True)):
        value = a[j]
        for e2, (j2, f2) in enumerate(zip(g.edge_node, g.edge_factor, strict=True)):
            if j2 == j and f2 != f:
                others = sum(
                    found.out[e3]
                    for e3, (j3, f3) in enumerate(zip(g.edge_node, g.edge_factor, strict=True))
                    if f3 == f2 and j3 != j2
                )
                c, o = spreads[e2], min(others, found.cap[j])  # group privacy cuts the sum as well
                m, M = min(c, o), max(c, o)
                value += (
                    m
                    if np.isinf(M)
                    else 2 * np.log(np.cosh((c + o) / 4) / np.cosh((c - o) / 4))
                    if M < 1e3
                    else m
                )
        assert min(value, found.cap[j]) <= found.out[e] * (1 + 1e-9) + 1e-12


def test_independent_records_leak_exactly_their_own_alpha() -> None:
    m = qd.Model.from_tables({"A": ([], [0.3, 0.7]), "B": (["A"], [[0.4, 0.6], [0.4, 0.6]])})
    found = ready(PropagationBound, m).evaluate(np.array([0.1, 0.1])).values
    assert found == pytest.approx([0.1, 0.1], rel=1e-13)


def test_messages_that_have_not_settled_are_certified_too() -> None:
    m = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=400)
    g = factor_graph(m)
    settled, short = (propagate(g, all_spreads(m, g), np.full(400, 0.1), max_work=w) for w in (4e8, 1.0))
    assert np.all(short.out >= settled.out * (1 - 1e-12))
    assert short.total.max() <= short.cap.max()


@pytest.mark.slow
def test_a_tree_of_a_hundred_thousand_nodes() -> None:
    rng = np.random.default_rng(0)
    table = np.array([[0.8, 0.2], [0.2, 0.8]])
    tables: dict[str, tuple[list[str], object]] = {"n0": ([], [0.5, 0.5])}
    for k in range(1, 100_000):
        tables[f"n{k}"] = ([f"n{rng.integers(0, k)}"], table)
    found = qd.leakage(qd.Model.from_tables(tables), 1e-3, "propagation")
    assert 1e-3 < found.epsilon < 100.0


@settings(max_examples=30)
@given(models(max_nodes=4), st.sampled_from([0.1, 1.0]), st.data())
def test_protected_sets_against_the_limit(model: qd.Model, alpha: float, data: st.DataObject) -> None:
    records = list(model.records)
    if not 2 <= len(records) <= 4:
        return
    unit = tuple(data.draw(st.lists(st.sampled_from(records), min_size=2, max_size=2, unique=True)))
    a = alpha_of(model, alpha)
    limit = ready(ExactBound, model, [unit]).evaluate(a).values[0]
    for bound in (PropagationBound, SwingBound):
        assert ready(bound, model, [unit]).evaluate(a).values[0] >= limit - 1e-7, bound.__name__
