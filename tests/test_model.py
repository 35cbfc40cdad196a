"""The model at birth: every check has a test that fails without it."""

from __future__ import annotations

import itertools
import pickle
import re
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import bayesian_networks

import quiltdp as qd
from quiltdp import Model
from quiltdp.errors import FileFormatError, InvalidModel, UnknownNode
from quiltdp.factor import normalise_rows
from quiltdp.model import Factor

COIN = [0.3, 0.7]
FLIP = [[0.9, 0.1], [0.2, 0.8]]


def two() -> Model:
    return Model.from_tables({"A": ([], COIN), "B": (["A"], FLIP)})


# -- factors --------------------------------------------------------------------------------


def test_a_factor_copies_its_table_and_freezes_it():
    table = np.array(FLIP)
    factor = Factor(("A", "B"), table, "B")
    table[0, 0] = 7.0
    assert factor.table[0, 0] == 0.9
    with pytest.raises(ValueError, match="read-only"):
        factor.table[0, 0] = 0.5


def test_a_factor_is_frozen():
    factor = Factor(("A",), COIN, "A")
    with pytest.raises(AttributeError):
        factor.scope = ("B",)
    with pytest.raises(AttributeError):
        del factor.table


@pytest.mark.parametrize(
    ("scope", "table", "child", "words"),
    [
        (("A", "A"), FLIP, None, "twice"),
        (("A",), FLIP, None, "2 axes but the scope has 1"),
        (("A", "B"), [[0.9, 0.1], [1.0]], None, "rectangular"),
        (("A",), ["x", "y"], None, "rectangular"),
        (("A",), [0.5, float("nan")], None, r"NaN or infinite entry at \(1,\)"),
        (("A",), [0.5, float("inf")], None, "infinite"),
        (("A", "B"), [[0.5, 0.5], [1.5, -0.5]], None, r"negative entry at \(1, 1\)"),
        (("A",), [0.0, 0.0], None, "every entry of the table is zero"),
        (("B", "A"), FLIP, "B", "last axis"),
        ((), 1.0, "B", "last axis"),
    ],
)
def test_a_factor_refuses(scope, table, child, words):
    with pytest.raises(InvalidModel, match=words):
        Factor(scope, table, child)


def test_minus_zero_is_zero():
    assert not np.signbit(Factor(("A",), [-0.0, 1.0], "A").table).any()


def test_factors_compare_print_and_pickle():
    a, b = Factor(("A", "B"), FLIP, "B"), Factor(("A", "B"), FLIP, "B")
    assert a == b
    assert hash(a) == hash(b)
    assert a != Factor(("A", "B"), FLIP)
    assert a != "something else"
    assert repr(a) == "P(B | A)"
    assert repr(Factor(("A", "B"), FLIP)) == "ψ(A, B)"
    copy = pickle.loads(pickle.dumps(a))
    assert copy == a
    assert not copy.table.flags.writeable
    assert a.parents == ("A",)
    assert Factor(("A", "B"), FLIP).parents == ()


# -- the model at birth ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tables", "words", "node"),
    [
        ({}, "no nodes", None),
        ({"A": ([], [0.5, 0.4])}, "node 'A': the table sums to 0.9", "A"),
        ({"A": ([], COIN), "B": (["A"], [[0.9, 0.1], [0.2, 0.7]])}, r"node 'B': row \(1,\) sums to 0.9", "B"),
        ({"A": ([], [1e308, 1e308])}, "sums to inf", "A"),
        ({"A": ([], [])}, "no states", "A"),
        ({"A": ([], 1.0)}, "no states", "A"),
        ({"A": ([], [1.5, -0.5])}, "negative", "A"),
        ({"A": ([], [float("nan"), 1.0])}, "NaN", "A"),
        ({"A": ([], COIN), "B": (["A"], [[0.9, 0.1], [1.0]])}, "rectangular", "B"),
        ({"A": ([], COIN), "B": (["C"], FLIP)}, "node 'B': its parent 'C' has no table", "B"),
        ({"A": ([], COIN), "B": (["A"], [[1.0, 0.0]])}, r"shape \(1, 2\)", "B"),
        ({"A": ([], COIN), "B": (["A"], COIN)}, "1 axes", "B"),
        ({"A": (["A"], FLIP)}, "twice", "A"),
        ({"A": (["B"], FLIP), "B": (["A"], FLIP)}, "cycle: (A → B → A|B → A → B)", None),
        ({"A": ([], COIN), "B": (["C"], FLIP), "C": (["B"], FLIP)}, "cycle", None),
        ({"": ([], COIN)}, "non-empty string", None),
        ({7: ([], COIN)}, "non-empty string", None),
    ],
)
def test_from_tables_refuses_naming_the_node(tables, words, node):
    with pytest.raises(InvalidModel, match=words) as caught:
        Model.from_tables(tables)
    assert "\n" not in str(caught.value)
    if node is not None:
        assert caught.value.node == node
        assert node in str(caught.value)


def test_a_long_cycle_is_found_and_named_in_order():
    names = [f"N{k}" for k in range(5)]
    tables = {n: ([names[k - 1]], FLIP) for k, n in enumerate(names)}
    with pytest.raises(InvalidModel) as caught:
        Model.from_tables({"root": ([], COIN), **tables})
    cycle = str(caught.value).split(": ")[1].split(" → ")
    assert cycle[0] == cycle[-1]
    assert sorted(cycle[1:]) == names
    for parent, child in itertools.pairwise(cycle):
        assert tables[child][0] == [parent]


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ({"A": ["x", "x"], "B": ["x", "y"]}, "node 'A': the state 'x' is named twice"),
        ({"A": [], "B": ["x", "y"]}, "node 'A' has no states"),
        ({"A": "xy", "B": ["x", "y"]}, "not the string"),
        ({"A": [0, 1], "B": ["x", "y"]}, "must be a string"),
        ({"A": ["x", "y", "z"]}, r"shape \(2,\)"),
        ({"Z": ["x", "y"]}, "no table"),
    ],
)
def test_states_are_checked(states, words):
    with pytest.raises(InvalidModel, match=words):
        Model.from_tables({"A": ([], COIN), "B": (["A"], FLIP)}, states=states)


def test_records_are_checked():
    tables = {"alpha": ([], COIN), "beta": (["alpha"], FLIP)}
    with pytest.raises(UnknownNode, match=r"'alpa' is not a node of the model; did you mean 'alpha'\?"):
        Model.from_tables(tables, records=["alpa"])
    with pytest.raises(InvalidModel, match="no records"):
        Model.from_tables(tables, records=[])
    with pytest.raises(InvalidModel, match="not the string"):
        Model.from_tables(tables, records="alpha")


def test_rows_of_factors_given_directly_are_checked_too():
    with pytest.raises(InvalidModel, match=r"sums to 0.9"):
        Model({"A": ["x", "y"]}, [Factor(("A",), [0.5, 0.4], "A")])
    m = Model({"A": ["x", "y"]}, [Factor(("A",), [0.5, 0.5 + 1e-7], "A")])
    assert m.factors[0].table.sum() == 1.0
    assert "normalised" in m.notes[0]


def test_factors_and_nodes_must_fit():
    a, b = Factor(("A",), COIN, "A"), Factor(("A", "B"), FLIP, "B")
    states = {"A": ["x", "y"], "B": ["x", "y"]}
    with pytest.raises(InvalidModel, match="node 'A' has 2 tables"):
        Model(states, [a, a, b])
    with pytest.raises(InvalidModel, match="node 'B' has no table"):
        Model(states, [a])
    with pytest.raises(InvalidModel, match="node 'B' is not in the model"):
        Model({"A": ["x", "y"]}, [a, b])
    with pytest.raises(InvalidModel, match="the table has shape"):
        Model({"A": ["x", "y", "z"]}, [a])


def test_rows_off_by_rounding_are_normalised_and_the_model_says_so():
    m = Model.from_tables({"A": ([], [0.5, 0.4999997]), "B": (["A"], FLIP)})
    assert m.factors[0].table.sum() == pytest.approx(1.0, abs=2e-16)
    assert m.notes == (
        "rows of 1 table did not sum to 1 and were normalised (furthest off: node 'A' by 3.0e-07)",
    )
    assert two().notes == ()
    with pytest.raises(InvalidModel, match="sums to"):
        Model.from_tables({"A": ([], [0.5, 0.499998])})


@given(st.integers(1, 300), st.integers(0, 2**32 - 1), st.floats(-9e-7, 9e-7))
def test_normalising_twice_is_normalising_once(size, seed, off):
    row = np.random.default_rng(seed).gamma(0.3, size=(100, size)) + 1e-300
    row *= (1 + off) / row.sum(axis=1, keepdims=True)
    once, _ = normalise_rows("A", row)
    twice, again = normalise_rows("A", once)
    assert again == 0.0
    assert np.array_equal(once, twice)


def test_rows_written_exactly_stay_exactly():
    row = [0.1] * 10  # sums to 0.9999999999999999
    assert Model.from_tables({"A": ([], row)}).factors[0].table.tolist() == row
    long = [0.02] * 49 + [0.02 + 30 * np.finfo(float).eps]  # what rounding can do to fifty numbers
    assert Model.from_tables({"A": ([], long)}).factors[0].table.tolist() == long
    off = [0.02] * 49 + [0.02 + 80 * np.finfo(float).eps]  # more than that
    assert Model.from_tables({"A": ([], off)}).factors[0].table.tolist() != off


# -- what it is -----------------------------------------------------------------------------


def test_accessors():
    m = Model.from_tables(
        {"B": (["A"], FLIP), "A": ([], COIN)},
        records=["A"],
        states={"A": ["low", "high"]},
        notes=["by hand"],
        provenance={"file": "none"},
    )
    assert m.nodes == ("B", "A")
    assert m.records == ("A",)
    assert m.latents == ("B",)
    assert m.is_record("A")
    assert not m.is_record("B")
    assert m.states == {"A": ("low", "high"), "B": ("0", "1")}
    assert m.cardinality("A") == 2
    assert m.index == {"B": 0, "A": 1}
    assert m.factors_of == {"B": (0,), "A": (0, 1)}
    assert m.topological_order == ("A", "B")
    assert m.notes == ("by hand",)
    assert m.provenance == {"file": "none"}
    assert repr(m) == "<Bayesian network: 2 nodes, 1 records>"
    with pytest.raises(UnknownNode, match="node 'C' is not in the model"):
        m.cardinality("C")
    assert m.with_records(["B"]).records == ("B",)
    assert m.with_records(["B"]).notes == ("by hand",)


def test_markov_networks():
    m = Model.from_potentials({"A": 2, "B": ["x", "y", "z"]}, [(["A", "B"], [[2, 1, 1], [1, 2, 5]])])
    assert not m.directed
    assert repr(m) == "<Markov network: 2 nodes, 2 records>"
    assert m.states["A"] == ("0", "1")
    with pytest.raises(InvalidModel, match="no topological order"):
        _ = m.topological_order
    with pytest.raises(InvalidModel, match="every entry"):
        Model.from_potentials({"A": 2}, [(["A"], [0, 0])])
    with pytest.raises(InvalidModel, match="negative"):
        Model.from_potentials({"A": 2}, [(["A"], [1, -1])])
    with pytest.raises(InvalidModel, match="twice"):
        Model.from_potentials({"A": 2}, [(["A", "A"], [[1, 1], [1, 1]])])
    with pytest.raises(InvalidModel, match="not in the model"):
        Model.from_potentials({"A": 2}, [(["Z"], [1, 1])])


def test_a_network_without_potentials_is_uniform_and_not_directed():
    m = Model.from_potentials({"A": 2}, [])
    assert not m.directed
    assert m.factors == ()


# -- frozen ---------------------------------------------------------------------------------


def test_a_model_is_frozen():
    m = two()
    with pytest.raises(AttributeError, match="frozen"):
        m.directed = False
    with pytest.raises(AttributeError, match="frozen"):
        m.anything = 1
    with pytest.raises(AttributeError, match="frozen"):
        del m._states
    for mapping in (m.states, m.index, m.factors_of):
        with pytest.raises(TypeError):
            mapping["A"] = ("x",)
    m.provenance["file"] = "changed"
    assert m.provenance == {}


def test_changing_the_inputs_changes_nothing():
    table = np.array(FLIP)
    states = {"A": ["x", "y"]}
    m = Model.from_tables({"A": ([], COIN), "B": (["A"], table)}, states=states)
    before = m.fingerprint
    table[0] = [0.5, 0.5]
    states["A"][0] = "changed"
    assert Model(m.states, m.factors, m.records).fingerprint == before


@given(bayesian_networks())
def test_pickles_are_equal_and_checked(m):
    copy = pickle.loads(pickle.dumps(m))
    assert copy.fingerprint == m.fingerprint
    assert copy.factors == m.factors
    assert all(not f.table.flags.writeable for f in copy.factors)


def test_a_pickle_keeps_tables_shared():
    tables = {f"N{k}": ([f"N{k - 1}"] if k else [], FLIP if k else COIN) for k in range(1000)}
    copy = pickle.loads(pickle.dumps(Model.from_tables(tables)))
    assert len({id(f.table) for f in copy.factors}) == 2


# -- fingerprints ---------------------------------------------------------------------------


def test_the_fingerprint_never_changes_between_versions():
    expected = "a9260bbf369f553cf2646e522d31c8ea9fc6abe2fc7579cdf44c972fde1a191a"
    assert two().fingerprint == expected


@given(bayesian_networks(), st.randoms(use_true_random=False))
def test_the_fingerprint_ignores_the_order_of_nodes_parents_and_factors(m, random):
    nodes = list(m.nodes)
    random.shuffle(nodes)
    factors = []
    for f in m.factors:
        axes = list(range(len(f.parents)))
        random.shuffle(axes)
        scope = (*(f.scope[k] for k in axes), f.child)
        factors.append(Factor(scope, f.table.transpose([*axes, len(axes)]), f.child))
    random.shuffle(factors)
    other = Model({n: m.states[n] for n in nodes}, factors, m.records, notes=["x"], provenance={"a": "b"})
    assert other.fingerprint == m.fingerprint


def test_names_from_numpy_are_plain_strings():
    a, b, x, y = np.array(["A", "B", "x", "y"])
    tables = {a: ([], COIN), b: ([a], FLIP)}
    m = Model.from_tables(tables, states={a: [x, y]})
    plain = Model.from_tables({"A": ([], COIN), "B": (["A"], FLIP)}, states={"A": ["x", "y"]})
    assert m.fingerprint == plain.fingerprint
    assert Model(m.states, [Factor([f.scope[0]], f.table, f.child) for f in m.factors[:1]] + [m.factors[1]])
    assert repr(m.nodes) == "('A', 'B')"
    one = Model.from_potentials({a: [x, y]}, [([a], COIN)]).fingerprint
    assert one == Model.from_potentials({"A": ["x", "y"]}, [(["A"], COIN)]).fingerprint
    assert repr(Factor([a], COIN, a).scope) == "('A',)"


def test_the_fingerprint_sees_every_change():
    base = {"A": ([], COIN), "B": (["A"], FLIP)}
    m = Model.from_tables(base)
    others = [
        Model.from_tables(base, records=["A"]),
        Model.from_tables(base, states={"A": ["x", "y"]}),
        Model.from_tables({**base, "A": ([], [np.nextafter(0.3, 1), 0.7])}),
        Model.from_tables({**base, "C": ([], COIN)}),
        Model.from_tables({"A": ([], COIN), "D": (["A"], FLIP)}),
        Model.from_potentials({"A": 2, "B": 2}, [(["A"], COIN), (["A", "B"], FLIP)]),
    ]
    assert len({m.fingerprint, *(o.fingerprint for o in others)}) == 1 + len(others)


# -- size -----------------------------------------------------------------------------------


def test_a_hundred_thousand_node_tree_is_small():
    flip = np.array(FLIP)
    tables = {f"N{k}": ([f"N{(k - 1) // 2}"] if k else [], flip if k else COIN) for k in range(100_000)}
    tracemalloc.start()
    m = Model.from_tables(tables)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(m.nodes) == 100_000
    assert m.topological_order[0] == "N0"
    assert len({id(f.table) for f in m.factors}) == 2
    assert size < 120e6


def test_equal_tables_are_kept_once():
    m = Model.from_tables({f"N{k}": ([], [0.3, 0.7]) for k in range(50)})
    assert len({id(f.table) for f in m.factors}) == 1


# -- people behind a record ------------------------------------------------------------------------

PAIR = {"A": ([], [0.3, 0.7]), "B": (["A"], [[0.9, 0.1], [0.2, 0.8]])}


def test_people_behind_a_record_are_part_of_the_model(tmp_path):
    plain = Model.from_tables(PAIR)
    twins = Model.from_tables(PAIR, people={"B": 2})
    assert (dict(plain.people), dict(twins.people)) == ({}, {"B": 2})
    assert (plain.headcount, twins.headcount) == (2, 3)
    assert twins.fingerprint != plain.fingerprint
    assert Model.from_tables(PAIR, people={"A": 1, "B": 1}).fingerprint == plain.fingerprint
    again = pickle.loads(pickle.dumps(twins))
    assert dict(again.people) == {"B": 2}
    assert again.fingerprint == twins.fingerprint
    qd.save_model(twins, tmp_path / "twins.json")
    read = qd.load_model(tmp_path / "twins.json")
    assert dict(read.people) == {"B": 2}
    assert read.fingerprint == twins.fingerprint
    assert dict(qd.load_model(tmp_path / "twins.json", records=["B"]).people) == {"B": 2}
    assert dict(twins.with_records(["A"]).people) == {}
    assert dict(twins.with_records(["B"]).people) == {"B": 2}
    assert dict(qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=3).people) == {}


def test_a_potential_model_keeps_its_people():
    model = Model.from_potentials({"A": 2, "B": 2}, [(["A", "B"], [[2, 1], [1, 2]])], people={"A": 3})
    assert model.headcount == 4
    assert dict(pickle.loads(pickle.dumps(model)).people) == {"A": 3}


@pytest.mark.parametrize(
    ("people", "said"),
    [
        ({"C": 2}, "'C' is not a node"),
        ({"B": 0}, "1 to 1,000,000 people, not 0"),
        ({"B": -1}, "not -1"),
        ({"B": 1.5}, "not 1.5"),
        ({"B": True}, "not True"),
        ({"B": 10**30}, "1 to 1,000,000"),
        ({"A": 2}, "'A' is latent"),
    ],
)
def test_people_that_mean_nothing_are_refused(people, said):
    with pytest.raises(InvalidModel, match=re.escape(said)):
        Model.from_tables(PAIR, ["B"], people=people)


@pytest.mark.parametrize("adversary", ["informed", "prior"])
def test_every_number_counts_the_people_behind_a_record(adversary):
    plain, twins = Model.from_tables(PAIR), Model.from_tables(PAIR, people={"B": 2})
    each, both = {"A": 0.3, "B": 0.3}, {"A": 0.3, "B": 0.6}
    one = qd.leakage(twins, 0.3, adversary=adversary)
    assert dict(one.per_record) == dict(qd.leakage(plain, both, adversary=adversary).per_record)
    assert one.epsilon > 1.3 * qd.leakage(plain, each, adversary=adversary).epsilon
    sigma = qd.calibrate(twins, 1.0, qd.Laplace(1.0), adversary=adversary).sigma
    told = qd.calibrate(plain, 1.0, qd.Laplace({"A": 1.0, "B": 2.0}), adversary=adversary).sigma
    assert sigma == pytest.approx(told, rel=1e-6)
    alpha = qd.dp_epsilon(twins, 1.0, adversary=adversary)
    assert qd.leakage(plain, {"A": alpha, "B": 2 * alpha}, adversary=adversary).epsilon <= 1.0


def test_gaussian_noise_counts_the_people_behind_a_record():
    plain, twins = Model.from_tables(PAIR), Model.from_tables(PAIR, people={"B": 2})
    sigma = qd.calibrate(twins, 1.0, qd.Gaussian(1.0, 1e-6)).sigma
    assert sigma == pytest.approx(
        qd.calibrate(plain, 1.0, qd.Gaussian({"A": 1.0, "B": 2.0}, 1e-6)).sigma, rel=1e-6
    )


def test_a_file_that_hides_its_twins_in_the_provenance_is_refused(tmp_path):
    path = tmp_path / "old.json"
    qd.save_model(Model.from_tables(PAIR, provenance={"twins": '{"B": ["B", "C"]}'}), path)
    with pytest.raises(FileFormatError, match="add 'people'"):
        qd.load_model(path)
