"""Influence and swing: every method against the oracle, on every model shape."""

import math
import pickle
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import chains, example_models, models, reference_networks

import quiltdp as qd
from quiltdp.errors import InvalidArgument, InvalidModel, ModelTooWide, UnknownNode
from quiltdp.graph.quilt import Quilt
from quiltdp.graph.quilts import unit_quilts
from quiltdp.inference import brute_force, influence
from quiltdp.inference.influence import (
    blanket_influence,
    max_influence,
    quilt_influence,
    quilt_influences,
    swings,
)
from quiltdp.inference.plan import Limits
from quiltdp.inference.witness import QuiltInfluence
from quiltdp.inference.workspace import Workspace


def close(found: float, wanted: float, tolerance: float = 1e-9) -> bool:
    return found == wanted or math.isclose(found, wanted, rel_tol=tolerance, abs_tol=tolerance)


def assert_same(found, wanted):
    assert found.exact
    assert close(found.b, wanted.b)
    assert close(found.swing, wanted.swing)
    assert found.swing_of.keys() == wanted.swing_of.keys()
    for known, value in wanted.swing_of.items():
        assert close(found.swing_of[known], value), known
        assert found.swing_of[known] >= value * (1 - 1e-12) - 1e-13  # the oracle rounds too
    assert all(close(a, b) for a, b in zip(found.swing_by_known, wanted.swing_by_known, strict=True))
    assert found.swing <= found.swing_upper or math.isinf(found.swing)


@cache
def marginal_law(model, nodes):
    return np.exp(brute_force.log_marginal(model, nodes))


def law(model, of, given) -> float:
    """P(of | given) from the joint, for assignments of state names; None if the condition is impossible."""
    nodes = tuple(n for n, _ in (*given, *of))
    at = tuple(model.states[n].index(v) for n, v in (*given, *of))
    table = marginal_law(model, nodes)
    mass = table[at[: len(given)]].sum()
    assert mass > 0, "the witness conditions on something impossible"
    return float(table[at] / mass)


def logratio(p: float, q: float) -> float:
    assert p > 0
    return math.inf if q == 0 else math.log(p) - math.log(q)


def assert_witness(model, found):
    if found.witness is not None:
        w = found.witness
        assert w.value != w.other
        if found.swing == math.inf:
            up = law(model, w.separator, (*w.known, *w.value)), law(model, w.separator, (*w.known, *w.other))
            down = (
                law(model, w.separator_other, (*w.known, *w.other)),
                law(model, w.separator_other, (*w.known, *w.value)),
            )
            assert logratio(*up) == math.inf or logratio(*down) == math.inf
        else:
            total = logratio(
                law(model, w.separator, (*w.known, *w.value)), law(model, w.separator, (*w.known, *w.other))
            ) + logratio(
                law(model, w.separator_other, (*w.known, *w.other)),
                law(model, w.separator_other, (*w.known, *w.value)),
            )
            assert total == pytest.approx(found.swing, abs=1e-9)
    if found.b_witness is not None:
        w = found.b_witness
        ratio = logratio(
            law(model, w.separator, (*w.known, *w.value)), law(model, w.separator, (*w.known, *w.other))
        )
        assert close(ratio, found.b)


METHODS = {"added up": Limits(), "node by node": Limits(), "hubs maximised": Limits(component=0)}


@cache
def contract_cases(name):
    """Every quilt of a fixed model with the oracle's answer."""
    model = example_models()[name]
    graph = qd.moralize(model)
    quilts = [q for n in model.records for q in qd.quilts(graph, n)]
    return [(q, brute_force.quilt_influence(model, q)) for q in quilts]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", example_models())
def test_contract_on_every_shape(name, method, monkeypatch):
    model, limits = example_models()[name], METHODS[method]
    monkeypatch.setattr(influence, "DIRECT_ENTRIES", 0 if method == "node by node" else 2**12)
    space = Workspace(model)
    for quilt, wanted in contract_cases(name):
        found = quilt_influence(model, quilt, limits=limits, workspace=space)
        if "hubs" in method:  # upper bounds only
            assert found.swing >= wanted.swing - 1e-9
            assert found.b >= wanted.b - 1e-9
            assert found.exact <= close(found.swing, wanted.swing)
            assert all(found.swing_of[k] >= v - 1e-9 for k, v in wanted.swing_of.items())
        else:
            assert_same(found, wanted)
            assert_witness(model, found)


@pytest.mark.parametrize("name", example_models())
def test_many_quilts_at_once(name):
    model = example_models()[name]
    cases = contract_cases(name)
    for (quilt, wanted), found in zip(cases, quilt_influences(model, [q for q, _ in cases]), strict=True):
        assert_same(found, wanted)
        assert found == quilt_influence(model, quilt)  # a fresh workspace, alone: the same bytes


def test_quilts_of_a_network_in_any_company():
    """Tables stacked with those of other quilts give the same bytes as alone."""
    model = qd.load_model("models/child.bif")
    graph = qd.moralize(model)
    quilts = [q for n in model.nodes for q in qd.quilts(graph, n, max_nearby=1) if q.separator]
    together = quilt_influences(model, [*quilts, *quilts[:3]])
    assert together[:3] == together[-3:]
    for k in range(0, len(quilts), 7):
        assert together[k] == quilt_influence(model, quilts[k])


def test_one_state_nodes_and_rare_values():
    """A node of one state tells nothing; products near the smallest double are left to logarithms."""
    rare = 1e-200
    model = qd.Model.from_tables(
        {
            "A": ([], [1.0]),
            "B": (["A"], [[rare, 1 - rare]]),
            "C": (["B"], [[rare, 1 - rare], [1 - rare, rare]]),
            "D": (["C", "A"], [[[0.3, 0.7]], [[1.0, 0.0]]]),
        }
    )
    graph = qd.moralize(model)
    quilts = [q for n in model.nodes for q in qd.quilts(graph, n)]
    for quilt, found in zip(quilts, quilt_influences(model, quilts), strict=True):
        assert_same(found, brute_force.quilt_influence(model, quilt))


@pytest.mark.parametrize("k", range(len(reference_networks())))
def test_reference_values(k):
    network = reference_networks()[k]
    for q in network.quilts:
        found = quilt_influence(network.model, q)
        assert found.exact
        assert close(found.b, q.b), q
        assert close(found.swing, q.swing), q


@settings(max_examples=80, deadline=None)
@given(models(max_nodes=5), st.data())
def test_quilts_of_random_models(model, data):
    target = data.draw(st.sampled_from(list(model.records)))
    quilts = list(qd.quilts(qd.moralize(model), target))
    for quilt in quilts:
        found = quilt_influence(model, quilt)
        wanted = brute_force.quilt_influence(model, quilt)
        assert_same(found, wanted)
        assert found.b <= found.swing <= 2 * found.b + 1e-9
        assert_witness(model, found)


@settings(max_examples=60, deadline=None)
@given(models(), st.data())
def test_swings_of_protected_units(model, data):
    targets = data.draw(st.sets(st.sampled_from(list(model.records)), min_size=1, max_size=2))
    for quilt in unit_quilts(qd.moralize(model), sorted(targets)):
        args = (model, targets, quilt.nearby, quilt.separator)
        wanted = brute_force.swings(*args)
        found = swings(*args)
        assert found.keys() == wanted.keys()
        for known, value in wanted.items():
            assert close(found[known], value)


@settings(max_examples=60, deadline=None)
@given(models(max_nodes=5), st.data())
def test_max_influence_of_any_sets(model, data):
    nodes = list(data.draw(st.permutations(list(model.nodes))))
    cut = data.draw(st.integers(1, len(nodes)))
    end = data.draw(st.integers(cut, len(nodes)))
    of, on, known = nodes[0], nodes[1:cut], nodes[cut:end]
    wanted = brute_force.max_influence(model, of=of, on=on, given=known)
    assert close(max_influence(model, of=of, on=on, given=known), wanted)
    slow = influence._influence_by_elimination(Workspace(model), of, sorted(on), sorted(known), 2**20)
    assert close(slow, wanted)


@settings(max_examples=40, deadline=None)
@given(models(), st.data())
def test_blanket_influence_is_b_of_the_smallest_quilt(model, data):
    target = data.draw(st.sampled_from(list(model.records)))
    blanket = Quilt(
        qd.moralize(model),
        target,
        qd.markov_blanket(qd.moralize(model), target),
        [],
        set(model.nodes) - qd.markov_blanket(qd.moralize(model), target) - {target},
    )
    assert close(blanket_influence(model, target), quilt_influence(model, blanket).b)


@settings(max_examples=30, deadline=None)
@given(chains(max_length=6))
def test_chain_two_sided_formula(model):
    """For Q = {i−a, i+d} both sides add up: the swing with L = ∅ is the largest sum over pairs."""
    nodes = list(model.nodes)
    if len(nodes) < 3:
        return
    for i in range(1, len(nodes) - 1):
        for a, d in combinations(range(len(nodes)), 2):
            if not a < i < d:
                continue
            left = brute_force.conditional(model, [nodes[a]], [nodes[i]])
            right = brute_force.conditional(model, [nodes[d]], [nodes[i]])
            best, best_b = 0.0, 0.0
            for x in range(len(left)):
                for y in range(len(left)):
                    up = np.log(left[x] / left[y]).max() + np.log(right[x] / right[y]).max()
                    down = np.log(left[y] / left[x]).max() + np.log(right[y] / right[x]).max()
                    best, best_b = max(best, up + down), max(best_b, up)
            near = set(nodes[a + 1 : d]) - {nodes[i]}
            found = swings(model, [nodes[i]], near, [nodes[a], nodes[d]])
            assert found[frozenset()] == pytest.approx(best, abs=1e-9)
            b = max_influence(model, of=nodes[i], on=[nodes[a], nodes[d]])
            assert b == pytest.approx(best_b, abs=1e-9)


def test_tiny_entries():
    tiny = 1e-300
    flip = [[1 - tiny, tiny], [tiny, 1 - tiny]]
    model = qd.Model.from_tables(
        {"A": ([], [0.5, 0.5]), "B": (["A"], flip), "C": (["B"], flip), "D": (["C"], flip)}
    )
    cost = -math.log(tiny)
    found = quilt_influence(model, Quilt(qd.moralize(model), "B", ["A", "C"], [], ["D"]))
    assert found.swing == pytest.approx(4 * cost, rel=1e-12)
    assert found.b == pytest.approx(2 * cost, rel=1e-12)
    # with B hidden, two flips in a row are as likely as none seen: still about one flip's worth each
    found = quilt_influence(model, Quilt(qd.moralize(model), "A", ["C"], ["B"], ["D"]))
    wanted = brute_force.quilt_influence(model, Quilt(qd.moralize(model), "A", ["C"], ["B"], ["D"]))
    assert found.swing == pytest.approx(wanted.swing, rel=1e-12)


def test_long_chain_is_local():
    model = qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], 1_000_000)
    found = swings(model, ["X500000"], ["X499999", "X500001"], ["X499998", "X500002"])
    assert len(found) == 4
    short = qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], 5)
    assert found[frozenset()] == pytest.approx(
        brute_force.swings(short, ["X2"], ["X1", "X3"], ["X0", "X4"])[frozenset()], abs=1e-12
    )


def test_chain_of_thousands():
    model = qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], 3000)
    assert max_influence(model, of="X0", on=["X2999"]) == pytest.approx(0, abs=1e-12)
    step = np.linalg.matrix_power(np.array([[0.9, 0.1], [0.2, 0.8]]), 20)
    wanted = float(np.log(step[:, None] / step[None]).max())
    assert max_influence(model, of="X1000", on=["X1020"]) == pytest.approx(wanted, abs=1e-12)


def test_nothing_to_know_and_nothing_to_tell():
    model = example_models()["loop"]
    assert max_influence(model, of="X0", on=[]) == 0
    trivial = Quilt(qd.moralize(model), "X0", [], set(model.nodes) - {"X0"}, [])
    found = quilt_influence(model, trivial)
    assert (found.b, found.swing, found.swing_upper) == (0, 0, 0)
    assert set(found.swing_of.values()) == {0.0}


def test_the_trivial_quilt_of_a_large_component_costs_nothing():
    model = qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], 40)
    found = quilt_influence(model, Quilt(qd.moralize(model), "X0", [], set(model.nodes) - {"X0"}, []))
    assert (found.b, found.swing, found.exact) == (0, 0, True)
    assert found.swing_by_known == (0.0,) * 40


def test_refusals():
    model = example_models()["chain"]
    with pytest.raises(UnknownNode):
        max_influence(model, of="nobody", on=["X1"])
    with pytest.raises(InvalidArgument, match="both"):
        max_influence(model, of="X0", on=["X1"], given=["X1"])
    with pytest.raises(InvalidArgument, match="string"):
        max_influence(model, of="X0", on="X1")
    with pytest.raises(InvalidArgument, match="does not separate"):
        swings(model, ["X0"], ["X1"], [])
    with pytest.raises(InvalidArgument, match="at least one"):
        swings(model, [], [], [])
    flip = [[0.9, 0.1], [0.2, 0.8]]
    children = {f"C{k}": (["H"], flip) for k in range(19)}
    star = qd.Model.from_tables({"T": ([], [0.5, 0.5]), "H": (["T"], flip), **children})
    with pytest.raises(ModelTooWide, match="2\\^19"):
        swings(star, ["T"], ["H", *list(children)[1:]], ["C0"])


def test_a_value_that_the_rest_forbids_is_left_out():
    """Q = 2 is impossible because of what lies beyond it."""
    states = {"T": 2, "Q": 3, "E": 2}
    tables = [
        (("T", "Q"), [[0.1, 0.2, 0.7], [0.6, 0.3, 0.1]]),
        (("Q", "E"), [[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]),
    ]
    model = qd.Model.from_potentials(states, tables)
    assert swings(model, ["T"], [], ["Q"])[frozenset()] == pytest.approx(math.log(0.2 / 0.1 * 0.6 / 0.3))


def test_products_that_might_underflow_are_left_to_logarithms():
    rows = [[1 - 1e-300, 1e-300], [1e-300, 1 - 1e-300]]
    tables = {"A": ([], [0.5, 0.5])}
    tables |= {f"B{k}": (["A"] if not k else [f"B{k - 1}"], rows) for k in range(4)}
    model = qd.Model.from_tables(tables)
    for quilt in qd.quilts(qd.moralize(model), "A"):
        found = quilt_influence(model, quilt)
        assert found.swing == pytest.approx(brute_force.quilt_influence(model, quilt).swing, rel=1e-12)


def path_quilt(model, left, target, right):
    """The quilt of a chain between two of its steps."""
    nodes = list(model.nodes)
    near, ends = set(nodes[left + 1 : right]) - {nodes[target]}, {nodes[left], nodes[right]}
    remote = set(nodes) - near - ends - {nodes[target]}
    return Quilt(qd.moralize(model), nodes[target], ends, near, remote)


@settings(max_examples=40, deadline=None)
@given(chains(max_length=6), st.data())
def test_on_a_path_nobody_who_knows_nothing_nearby_tells_less(model, data):
    """b and the swing of a path are those of L = ∅, whatever is between."""
    target = data.draw(st.sampled_from(list(model.records)))
    for quilt in qd.quilts(qd.moralize(model), target):
        wanted = brute_force.quilt_influence(model, quilt)
        found = quilt_influence(model, quilt, limits=Limits(known_sets=1))
        assert found.exact
        assert close(found.b, wanted.b)
        assert close(found.swing, wanted.swing)


@pytest.mark.parametrize("distance", [4, 7, 14, 40])
def test_b_of_a_chain_is_exact_at_any_distance(distance):
    step = np.full((9, 9), 0.02) + 0.82 * np.eye(9)
    model = qd.markov_chain(step, 101)
    found = quilt_influence(model, path_quilt(model, 50 - distance, 50, 50 + distance))
    rows = np.linalg.matrix_power(step, distance)
    assert found.exact
    assert found.b == pytest.approx(2 * float(np.log(rows[:, None] / rows[None]).max()), abs=1e-9)


def test_a_loop_is_no_path():
    """Both arms lead to one separator: what is known on one arm changes what the other tells."""
    model = example_models()["loop"]
    graph = qd.moralize(model)
    for target in model.records:
        for quilt in qd.quilts(graph, target):
            if quilt.separator and quilt.nearby_records > 1:
                with pytest.raises(ModelTooWide, match="over the limit of 1"):
                    quilt_influence(model, quilt, limits=Limits(known_sets=1))


def test_a_hub_makes_it_an_upper_bound():
    """Forty children of one hidden node: no table holds them, the answer says that it is a bound."""
    tables = {"T": ([], [0.5, 0.5]), "H": (["T"], [[0.8, 0.2], [0.3, 0.7]])}
    tables |= {f"C{k}": (["H"], [[0.6, 0.4], [0.4, 0.6]]) for k in range(40)}
    model = qd.Model.from_tables(tables)
    children = {f"C{k}" for k in range(40)}
    quilt = Quilt(qd.moralize(model), "T", children, ["H"], [])
    found = quilt_influence(model, quilt)
    wanted = max(math.log(0.8 / 0.3), math.log(0.7 / 0.2))
    assert not found.exact
    assert found.witness is None
    assert wanted * (1 - 1e-3) <= found.b <= found.swing


@pytest.mark.parametrize("numbers", [(math.nan, 1.0, 1.0), (0.0, -1.0, 1.0), (0.0, 1.0, math.nan)])
def test_nonsense_is_refused(numbers):
    with pytest.raises(InvalidModel, match="≥ 0"):
        QuiltInfluence(*numbers, True, (), {})


def test_an_influence_is_frozen_and_its_numbers_travel():
    model = qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], length=5)
    quilt = next(q for q in qd.quilts(qd.moralize(model), "X2") if q.nearby == {"X1"})
    found = quilt_influence(model, quilt)
    assert pickle.loads(pickle.dumps(found)) == found
    with pytest.raises(TypeError):
        found.swing_of[frozenset()] = 0.0


def test_refused_quilts_in_company():
    model = qd.example("asia")
    quilts = [q for q in qd.quilts(qd.moralize(model), "xray", max_nearby=2) if q.separator]
    with pytest.raises(ModelTooWide, match="over the limit of 2"):
        quilt_influences(model, quilts, limits=Limits(known_sets=2))


def test_infinities_and_impossible_values():
    """A copied bit is forgotten beyond its copy, and a value that only the rest forbids never counts."""
    model = qd.Model.from_tables(
        {
            "A": ([], [0.5, 0.5]),
            "B": (["A"], [[1.0, 0.0], [0.0, 1.0]]),
            "C": (["B"], [[0.9, 0.1], [0.3, 0.7]]),
            "D": (["C"], [[1.0, 0.0], [1.0, 0.0]]),
            "E": (["D"], [[0.6, 0.4], [0.1, 0.9]]),
        }
    )
    graph = qd.moralize(model)
    quilts = [q for n in model.nodes for q in qd.quilts(graph, n)]
    found = quilt_influences(model, quilts)
    assert math.inf in [f.b for f in found]
    for quilt, one in zip(quilts, found, strict=True):
        assert_same(one, brute_force.quilt_influence(model, quilt))
