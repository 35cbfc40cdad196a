"""Every adversary by itself: against enumeration, the exact limit, and attacks on more nodes."""

from __future__ import annotations

from itertools import pairwise

import loopy
import loopy_truth as truth
import numpy as np
import pytest
from strategies import random_network

import quiltdp as qd
from quiltdp.accountant.adversaries import INFORMED, knows
from quiltdp.accountant.bounds.contract import Need, Problem, ready
from quiltdp.accountant.bounds.limit import ExactBound
from quiltdp.accountant.bounds.listed_evidence import ListedEvidenceBound
from quiltdp.accountant.bounds.worst_evidence import WorstEvidenceBound
from quiltdp.errors import ModelTooWide
from quiltdp.inference.workspace import Workspace
from quiltdp.work import WorkBudget


def loopy_of(seed: int, nodes: int, states: int = 2) -> qd.Model:
    """A random network in which every node has one or two parents."""
    rng = np.random.default_rng(seed)
    names = [f"X{k}" for k in range(nodes)]
    parents = {
        n: [names[p] for p in sorted(rng.choice(k, size=min(k, int(rng.integers(1, 3))), replace=False))]
        for k, n in enumerate(names)
    }
    return random_network(seed, parents, dict.fromkeys(names, states))


@pytest.mark.parametrize("seed", [0, 1, 5, 7, 13, 17, 22, 26, 31, 38])
def test_it_is_never_below_what_is_attained(seed):
    model, alpha = truth.drawn(seed)
    records = list(model.records)
    unit = (records[seed % len(records)],)
    vector = np.array([alpha.get(n, 0.0) for n in model.nodes])
    for adversary, named, most in (
        (INFORMED, records, None),
        (knows(*records[::2]), records[::2], None),
        (knows(1), records, 1),
    ):
        value = float(
            ready(ListedEvidenceBound, model, [unit], adversary=adversary).evaluate(vector).values[0]
        )
        rest = [n for n in records if n not in unit]
        found = truth.attained(model, alpha, unit, rest, own=True, most=most, may_know=named)
        assert value >= found.get(((), ()), 0.0) - 1e-9


@pytest.mark.parametrize("seed", [2, 13])
def test_what_is_known_beyond_a_known_node_counts(seed):
    model, alpha = truth.drawn(seed)
    vector = np.array([alpha.get(n, 0.0) for n in model.nodes])
    value = float(ready(ListedEvidenceBound, model, [("X0",)]).evaluate(vector).values[0])
    found = truth.attained(model, alpha, ("X0",), [n for n in model.records if n != "X0"], own=True)
    assert value >= found[(), ()] - 1e-9


@pytest.mark.parametrize(("seed", "shape"), [(3, "loop of five"), (4, "diamond"), (8, "wheel")])
def test_pairs_of_records_are_protected_too(seed, shape):
    model = loopy.loopy(seed, shape, "zeros", latents=True)
    unit = tuple(model.records[:2])
    alpha = dict.fromkeys(model.records, 0.7)
    vector = np.array([alpha.get(n, 0.0) for n in model.nodes])
    found = float(ready(ListedEvidenceBound, model, [unit]).evaluate(vector).values[0])
    assert found >= loopy.attained(model, alpha, unit) - 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_on_small_loops_it_is_at_the_limit(seed):
    model = loopy_of(seed, 7)
    alpha = np.full(7, 0.3)
    limit = ready(ExactBound, model).evaluate(alpha).values
    found = ready(ListedEvidenceBound, model).evaluate(alpha)
    assert (found.values >= limit - 1e-9).all()
    assert found.values.max() <= 1.01 * limit.max()
    tree = ready(WorstEvidenceBound, model).evaluate(alpha).values
    assert found.values.max() <= tree.max() + 1e-9


def test_loops_of_twelve_nodes_are_within_a_few_per_cent_of_an_attack():
    model = loopy_of(5, 12)
    found = qd.leakage(model, dp_epsilon=0.2)
    assert found.method == "listed-evidence"
    attained = qd.attack(model, 0.2, "informed").leakage
    assert attained <= found.epsilon <= 1.1 * attained


def test_the_witness_is_somebody_who_exists():
    model = loopy_of(5, 12)
    bound = ready(ListedEvidenceBound, model)
    found = bound.evaluate(np.full(12, 0.2))
    worst = int(found.values.argmax())
    told = found.witness[worst]["evidence"]
    assert isinstance(told, dict)
    named = ready(ListedEvidenceBound, model, [(model.records[worst],)], adversary=knows(*told))
    assert named.evaluate(np.full(12, 0.2)).values[0] == pytest.approx(found.values[worst], rel=1e-9)


def test_fewer_known_records_leak_less():
    model = loopy_of(2, 9)
    alpha = np.full(9, 0.4)
    by_number = [
        ready(ListedEvidenceBound, model, adversary=knows(k)).evaluate(alpha).values for k in range(4)
    ]
    by_number.append(ready(ListedEvidenceBound, model).evaluate(alpha).values)
    for fewer, more in pairwise(by_number):
        assert (fewer <= more + 1e-12).all()
    assert by_number[0].max() >= qd.attack(model, 0.4, "prior").leakage


def test_known_records_are_shared_among_branches():
    """A hub between two pairs: who may know one record knows it on one side only."""
    step = [[0.9, 0.1], [0.2, 0.8]]
    gate = [[[0.9, 0.1], [0.3, 0.7]], [[0.4, 0.6], [0.1, 0.9]]]
    tables = {"H": ([], [0.5, 0.5])}
    for side in "AB":
        tables[f"{side}1"] = ([], [0.6, 0.4])
        tables[f"{side}2"] = (["H", f"{side}1"], gate)
        tables[f"{side}3"] = ([f"{side}2"], step)
    model = qd.Model.from_tables(tables)
    alpha = dict.fromkeys(model.records, 0.8)
    vector = np.full(len(model.nodes), 0.8)
    found = ready(ListedEvidenceBound, model, [("H",)], adversary=knows(1)).evaluate(vector).values[0]
    assert found >= loopy.attained(model, alpha, ("H",), most=1) - 1e-9
    two = ready(ListedEvidenceBound, model, [("H",)], adversary=knows(2)).evaluate(vector).values[0]
    assert found < two


def test_refining_gives_what_evaluating_gives_where_it_matters():
    model = loopy_of(4, 10)
    bound = ready(ListedEvidenceBound, model)
    alpha = np.full(10, 0.25)
    whole = bound.evaluate(alpha).values
    known = np.full(10, 2.5)
    assert bound.evaluate(alpha, Need(known, 0.0, 10.0)).values.max() == whole.max()
    high = bound.evaluate(alpha, Need(known, 0.0, 0.1)).values
    assert high.max() > 0.1
    assert (high >= whole).all()
    assert (bound.evaluate(alpha, Need(known, 2.5, 10.0)).values == known).all()


def test_what_is_too_much_is_refused_in_one_line():
    model = loopy_of(1, 12)
    bound = ListedEvidenceBound(Problem(model, None, INFORMED))
    with pytest.raises(ModelTooWide, match="transports or more, the limit is 104,857"):
        bound.prepare(Workspace(model), WorkBudget(pairs=1 << 20))


def test_masses_out_of_range_are_refused():
    names = [f"X{k}" for k in range(6)]
    tiny = [[1.0, 1e-130], [1e-130, 1.0]]
    tables = {n: ([names[k - 1]] if k else [], tiny if k else [0.5, 0.5]) for k, n in enumerate(names)}
    with pytest.raises(ModelTooWide, match="too improbable"):
        ready(ListedEvidenceBound, qd.Model.from_tables(tables))


def test_beyond_the_range_of_doubles_nothing_is_claimed():
    model = loopy_of(0, 5)
    assert np.isinf(ready(ListedEvidenceBound, model).evaluate(np.full(5, 100.0)).values).all()


def siblings(count: int, *, founders: int = 2) -> qd.Model:
    """A couple (one of them with a parent of her own) and their children, three genotypes each."""
    p = np.array([0.64, 0.32, 0.04])
    gamete = np.array([0.0, 0.5, 1.0])
    child = np.empty((3, 3, 3))
    for f, m in np.ndindex(3, 3):
        a, b = gamete[f], gamete[m]
        child[f, m] = [(1 - a) * (1 - b), a * (1 - b) + b * (1 - a), a * b]
    one = np.tensordot(child, p, axes=([1], [0]))
    tables = {"G": ([], p), "F": ([], p), "M": (["G"], one) if founders == 3 else ([], p)}
    tables |= {f"C{k}": (["F", "M"], child) for k in range(count)}
    return qd.Model.from_tables({n: t for n, t in tables.items() if founders == 3 or n != "G"})


@pytest.mark.parametrize("adversary", [INFORMED, knows(1), knows("F", "C0", "C1"), knows("C0", "M")])
def test_evidences_with_equal_likelihoods_are_one(adversary, monkeypatch):
    model = siblings(3, founders=3)
    alpha = np.array([0.6, 0.6, 0.6, 0.6, 0.5, 0.4])
    few = ready(ListedEvidenceBound, model, adversary=adversary)
    monkeypatch.setattr("quiltdp.accountant.bounds.listed_evidence._GRID", 2.0**-1000)  # nothing is equal
    every = ready(ListedEvidenceBound, model, adversary=adversary)
    assert few.evaluate(alpha).values == pytest.approx(every.evaluate(alpha).values, rel=1e-9)
    assert sum(len(t.whole) for t in few._lists) < sum(len(t.whole) for t in every._lists)


@pytest.mark.slow
def test_twins_are_sound_also_where_they_cost_unequally():
    model = siblings(2)
    for costs in ((0.8, 0.8, 0.8, 0.8), (0.8, 0.8, 0.8, 0.3), (0.5, 0.0, 0.8, 0.7)):
        alpha = dict(zip(model.records, costs, strict=True))
        found = ready(ListedEvidenceBound, model).evaluate(np.array(costs))
        for k, unit in enumerate(model.records):
            assert found.values[k] >= loopy.attained(model, alpha, (unit,)) - 1e-9
            assert unit not in found.witness[k]["evidence"]


def test_prices_lower_what_genotypes_leak():
    """One allele costs half of two: nuclear families leak 1.40 times less at the same noise."""
    model = siblings(2)
    price = np.abs(np.subtract.outer(np.arange(3), np.arange(3))) / 2.0
    problem = Problem(model, None, INFORMED, prices=dict.fromkeys(model.records, price))
    bound = ListedEvidenceBound(problem)
    bound.prepare(Workspace(model), WorkBudget())
    alpha = np.full(len(model.nodes), 0.2)
    flat = ready(ListedEvidenceBound, model).evaluate(alpha).values.max()
    assert flat / bound.evaluate(alpha).values.max() > 1.3


def test_three_generations_are_at_the_limit():
    model = siblings(9, founders=3)
    found = qd.leakage(model, 0.2, method="listed-evidence")
    attained = qd.attack(model, 0.2).leakage
    assert attained <= found.epsilon <= 1.03 * attained


@pytest.mark.parametrize("twins", [31, 32, 40])
def test_a_node_with_many_children_keeps_what_is_known_of_itself(twins):
    """Digits of all children in one integer overflow from 32 of three states on: 4³² is 0 there."""
    noise, alpha = 0.01, 0.5
    tables = {
        "A": ([], [0.5, 0.5]),
        "B": ([], [0.5, 0.5]),
        "R": (
            ["A", "B"],
            [[[1 - noise, noise], [noise, 1 - noise]], [[noise, 1 - noise], [1 - noise, noise]]],
        ),
    }
    below = [[0.34, 0.33, 0.33], [0.33, 0.34, 0.33]]
    model = qd.Model.from_tables(tables | {f"C{k:02d}": (["R"], below) for k in range(twins)})
    # who knows R sees A and B tied, and the mechanism tells A and B apart by e^α each
    gain = np.exp(alpha)
    attained = alpha + np.log(((1 - noise) * gain + noise) / (noise * gain + 1 - noise))
    weights = {n: alpha if n in "AB" else 0.0 for n in model.records}
    found = qd.leakage(model, weights, "listed-evidence")
    assert attained <= found.per_record["A"] <= attained * (1 + 1e-8)


def test_more_twins_than_bits_of_an_integer():
    table = [[0.5, 0.5, 0.0], [0.25, 0.5, 0.25], [0.0, 0.5, 0.5]]
    told = {}
    for twins in (62, 64, 66):
        tables = {"R": ([], [0.25, 0.5, 0.25])} | {f"C{k:02d}": (["R"], table) for k in range(twins)}
        found = qd.leakage(qd.Model.from_tables(tables), 0.05, "listed-evidence")
        told[twins] = found.per_record["C00"]
    assert told[66] - told[64] == pytest.approx(told[64] - told[62], rel=0.01)  # each twin tells as much more
