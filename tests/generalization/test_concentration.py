"""Concentration: every bound against the exact tail, latents included; exact sums against brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import bayesian_networks, chains, markov_networks

from quiltdp import Model, markov_chain
from quiltdp.chain import markov_chains
from quiltdp.errors import InvalidArgument, ModelTooWide
from quiltdp.generalization import concentration
from quiltdp.generalization.concentration import (
    additive_concentration,
    contraction,
    effective_sample_size,
    influence_sums,
)
from quiltdp.generalization.sum_law import sum_law
from quiltdp.papers.zhao import published_tail

seeds = st.integers(0, 2**32 - 1)


def joint_law(model):
    """Return all points of the nodes and their probabilities."""
    nodes = list(model.nodes)
    points = list(itertools.product(*(range(len(model.states[n])) for n in nodes)))
    place = {n: k for k, n in enumerate(nodes)}
    chances = np.array(
        [math.prod(f.table[tuple(x[place[n]] for n in f.scope)] for f in model.factors) for x in points]
    )
    return points, chances / chances.sum(), place


def sensitive_queries(rng, records):
    """Queries that one record moves by at most 1: a sum, and distances to random sets of points."""
    tables = {}

    def total(x):
        for k, v in enumerate(x):
            if (k, v) not in tables:
                tables[k, v] = rng.random()
        return sum(tables[k, v] for k, v in enumerate(x))

    anchors = rng.integers(0, 3, (3, records))
    return total, lambda x: min(int(np.sum(a != np.array(x))) for a in anchors)


def check_tail(model, seed):
    points, chances, place = joint_law(model)
    spots = [place[n] for n in model.records]
    found = concentration(model)
    for query in sensitive_queries(np.random.default_rng(seed), len(spots)):
        values = np.array([query(tuple(x[k] for k in spots)) for x in points])
        deviation = np.abs(values - chances @ values)
        for t in np.unique(deviation.round(12)):
            exact = chances[deviation >= t - 1e-12].sum()
            assert exact <= found.tail(max(t - 1e-12, 0), sensitivity=1.0) + 1e-9
        for chance in (0.5, 0.1, 0.01):
            assert chances[deviation > found.radius(chance, sensitivity=1.0)].sum() <= chance + 1e-12


@settings(max_examples=80, deadline=None)
@given(bayesian_networks(max_nodes=6, max_states=3, max_joint=300), seeds)
def test_tail_holds_on_networks(model, seed):
    check_tail(model, seed)


@settings(max_examples=40, deadline=None)
@given(chains(zeros=True), seeds)
def test_tail_holds_on_chains(model, seed):
    check_tail(model, seed)


def test_tail_holds_for_a_latent_coin_copied_ten_times():
    """Summing h over records only would promise independence; the latent coin must count."""
    copies = {f"R{k}": (["C"], [[1, 0], [0, 1]]) for k in range(10)}
    model = Model.from_tables({"C": ([], [0.5, 0.5]), **copies}, records=list(copies))
    found = concentration(model)
    assert found.sum_of_squares == pytest.approx(10**2 + 10)
    assert found.tail(0.5) == 1.0  # |q − ½| = ½ always
    records_only = 2 * math.exp(-2 * 0.5**2 * 10)
    assert records_only < 0.02


def test_published_lemma_is_refuted_by_identical_bits():
    """n copies of one fair bit: the published tail says 2 exp(−n/8), the truth is 1."""
    model = markov_chain([[1.0, 0.0], [0.0, 1.0]], length=60, initial=[0.5, 0.5])
    law = sum_law(model, dict.fromkeys(model.nodes, (0, 1)))
    assert law.tail(30) == pytest.approx(1.0)
    assert published_tail(0.5, 60) == pytest.approx(2 * math.exp(-60 / 8))
    assert concentration(model).tail(0.5) == 1.0


@settings(max_examples=40, deadline=None)
@given(bayesian_networks(max_nodes=6, max_states=3, max_joint=200), seeds)
def test_influence_sums_against_the_recursion_written_out(model, seed):
    order = model.topological_order
    tables = {f.scope[-1]: f for f in model.factors}

    def theta(parent, child):
        f = tables[child]
        axis = f.scope.index(parent)
        best = 0.0
        for index in itertools.product(*(range(s) for s in f.table.shape[:-1])):
            for other in range(f.table.shape[axis]):
                changed = (*index[:axis], other, *index[axis + 1 :])
                best = max(best, 0.5 * np.abs(f.table[index] - f.table[changed]).sum())
        return best

    for start in model.nodes:
        delta = dict.fromkeys(order, 0.0)
        delta[start] = 1.0
        for node in order:
            if node != start:
                delta[node] = min(1.0, sum(theta(p, node) * delta[p] for p in tables[node].parents))
        expected = sum(delta[n] for n in model.records)
        assert influence_sums(model)[start] == pytest.approx(expected, abs=1e-9)


def test_independent_records_are_mcdiarmid():
    model = Model.from_tables({f"R{k}": ([], [0.3, 0.7]) for k in range(25)})
    found = concentration(model)
    assert found.effective_sample_size == pytest.approx(25)
    assert found.tail(0.2) == pytest.approx(min(1, 2 * math.exp(-2 * 0.04 * 25)))


@settings(max_examples=30, deadline=None)
@given(seeds, st.integers(1, 40))
def test_homogeneous_chain_is_never_looser_than_the_step_by_step_bound(seed, length):
    matrix = np.random.default_rng(seed).dirichlet([0.3] * 3, size=3)
    chain = markov_chain(matrix, length, initial="uniform")
    step_by_step = sum(h * h for h in influence_sums(chain).values())
    assert concentration(chain).sum_of_squares <= step_by_step * (1 + 1e-9)
    powers = [np.linalg.matrix_power(matrix, d) for d in range(length)]
    taus = [1.0, *(contraction(p) for p in powers[1:])]
    exact = sum(sum(taus[: m + 1]) ** 2 for m in range(length))
    assert concentration(chain).sum_of_squares == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("stay", [0.5, 0.9, 0.999, 0.9999999, 1.0])
def test_million_steps_are_quick_and_right(stay):
    n = 1_000_000
    chain = markov_chain([[stay, 1 - stay], [1 - stay, stay]], n, initial=[0.5, 0.5])
    found = concentration(chain)
    theta = 2 * stay - 1
    h, total = 1.0, 0.0
    for _ in range(n):
        total += h * h
        h = 1 + theta * h
    assert found.sum_of_squares >= total * (1 - 1e-9)
    assert found.sum_of_squares <= total * (1.35 if stay == 0.9999999 else 1.01)


def test_segments_add():
    matrix = [[0.8, 0.2], [0.3, 0.7]]
    both = markov_chains(matrix, {"a/": 30, "b/": 50})
    parts = [markov_chain(matrix, n) for n in (30, 50)]
    assert concentration(both).sum_of_squares == pytest.approx(
        sum(concentration(p).sum_of_squares for p in parts)
    )
    assert effective_sample_size(both) == concentration(both).effective_sample_size


@settings(max_examples=40, deadline=None)
@given(
    st.one_of(
        bayesian_networks(max_nodes=6, max_states=3, max_joint=200),
        markov_networks(),
        chains(zeros=True),
    ),
    seeds,
)
def test_the_law_of_a_sum_against_brute_force(model, seed):
    rng = np.random.default_rng(seed)
    weights = {n: tuple(int(v) for v in rng.integers(-2, 4, len(model.states[n]))) for n in model.records}
    points, chances, place = joint_law(model)
    sums = np.array([sum(w[x[place[n]]] for n, w in weights.items()) for x in points])
    law = sum_law(model, weights)
    assert law.chances.sum() == pytest.approx(1)
    assert law.mean == pytest.approx(chances @ sums, abs=1e-9)
    for value, chance in zip(law.values, law.chances, strict=True):
        assert chance == pytest.approx(chances[sums == value].sum(), abs=1e-9)


def test_exact_sums_refuse_what_is_too_wide():
    names = [f"X{k}" for k in range(30)]
    pairs = [((a, b), [[2, 1], [1, 2]]) for a, b in itertools.combinations(names, 2)]
    model = Model.from_potentials(dict.fromkeys(names, 2), pairs)
    with pytest.raises(ModelTooWide, match="concentration bound"):
        sum_law(model, dict.fromkeys(names, (0, 1)))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: sum_law(m, {"nobody": (0, 1)}), "nobody"),
        (lambda m: sum_law(m, {"X0": (0, 1, 2)}), "3 weights"),
        (lambda m: sum_law(m, {"X0": (0, 0.5)}), "whole numbers"),
        (lambda m: concentration(m).tail(-1), "t must"),
        (lambda m: concentration(m).radius(0), "chance"),
        (lambda m: concentration(m).tail(1, sensitivity=0), "sensitivity"),
        (
            lambda m: concentration(Model.from_potentials({"A": 2}, [(["A"], [1, 2])])),
            "Bayesian network",
        ),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(InvalidArgument, match=words):
        call(markov_chain([[0.5, 0.5], [0.5, 0.5]], 3))


@pytest.mark.parametrize("reversible", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_sums_over_chains_concentrate(seed, reversible):
    """Against exact tails: weights that differ from step to step, chains of two to four states."""
    rng = np.random.default_rng(seed)
    size = 2 + seed % 2 if reversible else 3 + seed % 2
    flow = rng.random((size, size)) ** 2 * np.where(np.eye(size) > 0, rng.uniform(0.3, 8), 1.0)
    flow = flow + flow.T if reversible else flow
    model = markov_chain(flow / flow.sum(axis=1, keepdims=True), int(rng.integers(20, 80)))
    weights = {node: tuple(int(v) for v in rng.integers(0, 4, size)) for node in model.nodes}
    law = sum_law(model, weights)
    found = additive_concentration(model)
    squares = sum((max(w) - min(w)) ** 2 for w in weights.values())
    scale = found.sum_of_squares / len(model.nodes)  # (1 + λ)/(1 − λ)
    for t in np.linspace(1, 60, 30):
        bound = 2 * math.exp(-2 * t**2 / (scale * squares))
        assert law.tail(t) <= bound + 1e-9
    if reversible:
        longer = markov_chain(np.asarray(model.segments[0].transition(0)), 100_000)
        better, general = additive_concentration(longer), concentration(longer)
        assert better.effective_sample_size >= general.effective_sample_size * 0.999


@pytest.mark.parametrize("copying", [0.0, 0.3, 0.6, 1.0])
def test_sums_over_groups_that_copy_a_hidden_value_concentrate(copying):
    """Against exact tails; and a group that always copies is one record."""
    share = np.array([0.5, 0.3, 0.2])
    table = copying * np.eye(3) + (1 - copying) * share
    groups = {f"g{k}": ([], share) for k in range(4)}
    rows = {f"g{k}/{j}": ([f"g{k}"], table) for k in range(4) for j in range(k + 1)}
    model = Model.from_tables({**groups, **rows}, list(rows))
    found = additive_concentration(model)
    for ends in ((0, 1, 1), (1, 0, 0), (0, 1, 0)):
        law = sum_law(model, dict.fromkeys(rows, ends))
        for t in np.arange(0.5, 10):
            assert law.tail(t) <= found.tail(t / 10) + 1e-9
    assert found.tail(found.deviation_at(3.0)) <= 2 * math.exp(-3.0) * (1 + 1e-3)
    assert found.sum_of_squares == pytest.approx(sum(m * (1 + (m - 1) * copying**2) for m in (1, 2, 3, 4)))
    plain = concentration(model)
    assert found.effective_sample_size >= plain.effective_sample_size * (1 - 1e-9)


def test_sums_need_a_stationary_law_or_groups():
    started = markov_chain([[0.9, 0.1], [0.2, 0.8]], 10, initial=[1.0, 0.0])
    tree = Model.from_tables({"a": ([], [0.5, 0.5]), "b": (["a"], [[0.9, 0.1], [0.4, 0.6]])}, ["b"])
    for model in (started, tree):
        with pytest.raises(InvalidArgument, match="sums concentrate for"):
            additive_concentration(model)
    coins = markov_chain([[0.5, 0.5], [0.5, 0.5]], 50)
    assert additive_concentration(coins).effective_sample_size == pytest.approx(50)
