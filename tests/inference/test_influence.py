"""Influence and swing: every method against the oracle, on every model shape."""

import math
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import chains, example_models, models, reference_networks

import quiltdp as qd
from quiltdp.errors import InvalidArgument, ModelTooWide, UnknownNode
from quiltdp.graph.quilts import unit_quilts
from quiltdp.inference import brute_force, influence
from quiltdp.inference.influence import blanket_influence, max_influence
from quiltdp.inference.joint import joint_entries, joint_law
from quiltdp.inference.plan import Limits
from quiltdp.inference.quilts import plan_quilt, quilt_influence, quilt_influences, swings
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


METHODS = {
    "chosen by size": Limits(),
    "all known sets together": Limits(joint=0),
    "one known set at a time": Limits(together=0),
    "one known set at a time, separator node by node": Limits(together=0, direct=0),
    "known values eliminated": Limits(together=0, explicit=0),
    "rays": Limits(rays=True, rays_from=0, joint=0),
    "rays, one known set at a time": Limits(together=0, rays=True, rays_from=0),
    "rays, known values eliminated": Limits(together=0, explicit=0, rays=True, rays_from=0),
    "hubs maximised": Limits(component=0, joint=0),
    "hubs maximised, one known set at a time": Limits(together=0, component=0),
    "hubs maximised, known values eliminated": Limits(together=0, explicit=0, component=0),
}


@cache
def contract_cases(name):
    """Every quilt of a fixed model with the oracle's answer."""
    model = example_models()[name]
    graph = qd.moralize(model)
    quilts = [q for n in model.records for q in qd.quilts(graph, n)]
    return [(q, brute_force.quilt_influence(model, q)) for q in quilts]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", example_models())
def test_contract_on_every_shape(name, method):
    model, limits = example_models()[name], METHODS[method]
    space = Workspace(model)
    for quilt, wanted in contract_cases(name):
        found = quilt_influence(model, quilt, limits=limits, workspace=space)
        if "hubs" in method:  # upper bounds only
            assert found.swing >= wanted.swing - 1e-9
            assert found.b >= wanted.b - 1e-9
            assert found.exact <= close(found.swing, wanted.swing)
            assert all(found.swing_of[k] >= v - 1e-9 for k, v in wanted.swing_of.items())
        elif "eliminated" in method:  # b is not available this way: the swing stands in for it
            assert close(found.swing, wanted.swing)
            assert found.b >= wanted.b - 1e-9
            if quilt.separator and model.cardinality(quilt.target) > 1:
                assert not found.exact
        else:
            assert_same(found, wanted)
            assert_witness(model, found)


@pytest.mark.parametrize("limits", [Limits(), Limits(joint=0)], ids=["off the joint", "from pieces"])
@pytest.mark.parametrize("name", example_models())
def test_many_quilts_at_once(name, limits):
    model = example_models()[name]
    cases = contract_cases(name)
    space = Workspace(model)
    together = quilt_influences(model, [q for q, _ in cases], workspace=space, limits=limits)
    for (quilt, wanted), found in zip(cases, together, strict=True):
        assert_same(found, wanted)
        assert_witness(model, found)
        alone = quilt_influence(model, quilt, limits=limits)
        assert found == alone  # a fresh workspace, alone: the same bytes
        assert found == quilt_influence(model, quilt, limits=limits, workspace=space)


def test_quilts_of_a_network_in_any_company():
    """Tables stacked with those of other quilts give the same bytes as alone."""
    model = qd.load_model("models/child.bif")
    graph = qd.moralize(model)
    quilts = [q for n in model.nodes for q in qd.quilts(graph, n, max_nearby=1) if q.separator]
    together = quilt_influences(model, [*quilts, *quilts[:3]])
    assert together[:3] == together[-3:]
    for k in range(0, len(quilts), 7):
        assert together[k] == quilt_influence(model, quilts[k])


def test_the_joint_of_a_tiny_model():
    model = example_models()["zeros"]
    law = joint_law(Workspace(model), 2**12)
    assert law.scope == tuple(model.nodes)
    np.testing.assert_allclose(law.array, np.exp(brute_force.log_joint(model)), rtol=1e-12)
    assert joint_entries(model, 2**12) == law.array.size
    assert joint_entries(model, law.array.size - 1) is None
    assert joint_law(Workspace(qd.load_model("models/child.bif")), 2**12) is None


@pytest.mark.parametrize("joint", [0, 2**12])
def test_one_state_nodes_and_rare_values(joint):
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
    for quilt, found in zip(quilts, quilt_influences(model, quilts, limits=Limits(joint=joint)), strict=True):
        assert_same(found, brute_force.quilt_influence(model, quilt))


def test_a_plan_names_the_way_and_is_followed():
    model = qd.load_model("models/child.bif")
    quilt = next(q for q in qd.quilts(qd.moralize(model), "Sick") if q.nearby == {"Age", "Disease"})
    plan = plan_quilt(model, quilt)
    assert plan.way == "all known sets together"
    assert {p.how for p in plan.parts} == {"factor", "summed out"}
    assert "Disease" in str(plan)
    few = plan_quilt(model, quilt, limits=Limits(together=0))
    assert few.way == "one known set at a time"
    assert plan_quilt(model, quilt, limits=Limits(together=0, explicit=0)).way == "known values eliminated"
    bounded = plan_quilt(model, quilt, limits=Limits(component=0))
    assert "hub maximised" in {p.how for p in bounded.parts}
    rays = plan_quilt(model, quilt, limits=Limits(rays=True, rays_from=0))
    assert "rays" in {p.how for p in rays.parts}
    tiny = example_models()["chain"]
    quilt = next(q for q in qd.quilts(qd.moralize(tiny), tiny.nodes[1]) if q.separator)
    assert plan_quilt(tiny, quilt).way == "read off the joint"
    assert plan_quilt(tiny, quilt, limits=Limits(joint=0)).way == "all known sets together"


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
    pieces = quilt_influences(model, quilts, limits=Limits(joint=0))
    for quilt, by_pieces in zip(quilts, pieces, strict=True):
        found = quilt_influence(model, quilt)
        wanted = brute_force.quilt_influence(model, quilt)
        assert_same(found, wanted)
        assert_same(by_pieces, wanted)
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
        inner = swings(*args, exact_support=False)
        assert all(inner[known] >= value - 1e-9 for known, value in wanted.items())


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
    blanket = qd.Quilt(
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
            found = swings(model, [nodes[i]], near, [nodes[a], nodes[d]], known_sets=[()])
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
    found = quilt_influence(model, qd.Quilt(qd.moralize(model), "B", ["A", "C"], [], ["D"]))
    assert found.swing == pytest.approx(4 * cost, rel=1e-12)
    assert found.b == pytest.approx(2 * cost, rel=1e-12)
    # with B hidden, two flips in a row are as likely as none seen: still about one flip's worth each
    found = quilt_influence(model, qd.Quilt(qd.moralize(model), "A", ["C"], ["B"], ["D"]))
    wanted = brute_force.quilt_influence(model, qd.Quilt(qd.moralize(model), "A", ["C"], ["B"], ["D"]))
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
    trivial = qd.Quilt(qd.moralize(model), "X0", [], set(model.nodes) - {"X0"}, [])
    found = quilt_influence(model, trivial)
    assert (found.b, found.swing, found.swing_upper) == (0, 0, 0)
    assert set(found.swing_of.values()) == {0.0}


def test_the_trivial_quilt_of_a_large_component_costs_nothing():
    model = qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], 40)
    found = quilt_influence(model, qd.Quilt(qd.moralize(model), "X0", [], set(model.nodes) - {"X0"}, []))
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
    with pytest.raises(InvalidArgument, match="no nearby record"):
        swings(model, ["X0"], ["X1"], ["X2"], known_sets=[["X3"]])
    with pytest.raises(InvalidArgument, match="at least one"):
        swings(model, [], [], [])
    long = qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], 40)
    near = [f"X{k}" for k in range(1, 20)]
    with pytest.raises(ModelTooWide, match="2\\^19"):
        swings(long, ["X0"], near, ["X20"])


def test_without_exact_support_the_rest_of_the_model_is_not_looked_at():
    """Q is forbidden a value by a node beyond it: only the exact support may use that."""
    model = qd.Model.from_tables(
        {
            "T": ([], [0.5, 0.5]),
            "Q": (["T"], [[0.1, 0.2, 0.7], [0.6, 0.3, 0.1]]),
            "E": (["Q"], [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]),
            "F": (["Q"], [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]),
        }
    )
    inner = swings(model, ["T"], [], ["Q"], exact_support=False)[frozenset()]
    assert inner == pytest.approx(math.log(0.7 / 0.1 * 0.6 / 0.1), abs=1e-12)


def test_a_value_that_the_rest_forbids_is_left_out():
    """Q = 2 is impossible because of what lies beyond it."""
    states = {"T": 2, "Q": 3, "E": 2}
    tables = [
        (("T", "Q"), [[0.1, 0.2, 0.7], [0.6, 0.3, 0.1]]),
        (("Q", "E"), [[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]),
    ]
    model = qd.Model.from_potentials(states, tables)
    assert swings(model, ["T"], [], ["Q"])[frozenset()] == pytest.approx(math.log(0.2 / 0.1 * 0.6 / 0.3))
    inner = swings(model, ["T"], [], ["Q"], exact_support=False)[frozenset()]
    assert inner == pytest.approx(math.log(0.7 / 0.1 * 0.6 / 0.1))


def test_products_that_might_underflow_are_left_to_logarithms():
    rows = [[1 - 1e-300, 1e-300], [1e-300, 1 - 1e-300]]
    tables = {"A": ([], [0.5, 0.5])}
    tables |= {f"B{k}": (["A"] if not k else [f"B{k - 1}"], rows) for k in range(4)}
    model = qd.Model.from_tables(tables)
    for quilt in qd.quilts(qd.moralize(model), "A"):
        found = quilt_influence(model, quilt)
        assert found.swing == pytest.approx(brute_force.quilt_influence(model, quilt).swing, rel=1e-12)
