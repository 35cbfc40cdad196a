"""Markov chains: small objects that behave like the networks they stand for."""

from __future__ import annotations

import itertools
import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiltdp import Model, markov_chain
from quiltdp.chain import ChainModel, ChainSegment, markov_chains, stationary_distribution
from quiltdp.errors import InvalidModel, UnknownNode

P = [[0.9, 0.1], [0.2, 0.8]]
HALF = np.array([0.5, 0.5])


@st.composite
def chains(draw: st.DrawFn) -> ChainModel:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    names = draw(
        st.lists(st.sampled_from(["X", "ann/", "b-", "trip 2, "]), min_size=1, max_size=3, unique=True)
    )
    size = draw(st.integers(1, 4))
    if draw(st.booleans()):
        matrix = rng.dirichlet(np.ones(size), size=size)
        return markov_chains(matrix, {n: draw(st.integers(1, 5)) for n in names})
    sizes = draw(st.lists(st.integers(1, 4), min_size=2, max_size=5))
    steps = [rng.dirichlet(np.ones(b), size=a) for a, b in itertools.pairwise(sizes)]
    return markov_chain(steps, initial=rng.dirichlet(np.ones(sizes[0])), prefix=names[0])


def unrolled(m: ChainModel) -> Model:
    """Return the same network as an ordinary model."""
    return Model({n: m.states[n] for n in m.nodes}, list(m.factors))


# -- behaves like its network ---------------------------------------------------------------


@given(chains())
def test_a_chain_is_the_network_it_stands_for(m):
    twin = unrolled(m)
    assert tuple(m.nodes) == twin.nodes
    assert tuple(m.records) == twin.records
    assert m.latents == ()
    assert dict(m.states) == dict(twin.states)
    assert tuple(m.factors) == twin.factors
    assert dict(m.index) == dict(twin.index)
    assert dict(m.factors_of) == dict(twin.factors_of)
    place = {n: k for k, n in enumerate(m.topological_order)}
    assert place.keys() == set(twin.nodes)
    assert all(place[p] < place[f.child] for f in twin.factors for p in f.parents)
    assert m.directed
    for k, n in enumerate(m.nodes):
        assert m.nodes[k] == n
        assert m.nodes.index(n) == k
        assert m.factors[k].child == n
        assert m.is_record(n)
        assert m.cardinality(n) == twin.cardinality(n)
        segment, t = m.locate(n)
        assert n == f"{segment.prefix}{t}"
        assert segment.cardinality(t) == m.cardinality(n)


@given(chains())
def test_pickles_are_equal_and_frozen(m):
    copy = pickle.loads(pickle.dumps(m))
    assert copy.fingerprint == m.fingerprint
    assert tuple(copy.factors) == tuple(m.factors)
    assert all(not f.table.flags.writeable for f in copy.factors)
    segment = pickle.loads(pickle.dumps(m.segments[0]))
    assert not segment.initial.flags.writeable


def test_slices_and_membership():
    m = markov_chains(P, {"a": 3, "b": 2})
    assert m.nodes[1:4] == ("a1", "a2", "b0")
    assert m.nodes[-1] == "b1"
    assert [f.child for f in m.factors[2:4]] == ["a2", "b0"]
    assert "a2" in m.nodes
    for absent in ("a3", "a02", "c0", "a", "", "a-1", 7, "a" + "9" * 5000):
        assert absent not in m.nodes
        assert absent not in m.states
    with pytest.raises(IndexError):
        m.nodes[5]
    with pytest.raises(ValueError, match="not a node"):
        m.nodes.index("zzz")
    with pytest.raises(UnknownNode):
        m.locate("a3")
    assert len(m.states) == len(m.index) == len(m.factors) == 5


def test_with_records_gives_an_ordinary_model():
    m = markov_chain(P, 4).with_records(["X0", "X2"])
    assert type(m) is Model
    assert m.records == ("X0", "X2")


def test_names_of_states():
    m = markov_chain(P, 3, states=["home", "work"])
    assert m.states["X2"] == ("home", "work")
    assert markov_chain(P, 3).states["X2"] == ("0", "1")
    assert repr(m) == "<Markov chain: 3 steps, 2 states>"
    assert repr(markov_chains(P, {"a": 3, "b": 2})) == "<2 Markov chains: 5 steps>"


# -- checks at birth ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"transition": [[0.9, 0.2], [0.2, 0.8]], "length": 3}, r"node 'X1': row \(0,\) sums to 1.1"),
        ({"transition": [[1.1, -0.1], [0.2, 0.8]], "length": 3}, "negative"),
        ({"transition": [[float("nan"), 1], [0.2, 0.8]], "length": 3}, "NaN"),
        ({"transition": [[0.9, 0.1], [1.0]], "length": 3}, "rectangular"),
        ({"transition": [[[0.9, 0.1], [1.0]]], "length": 2, "initial": HALF}, "rectangular"),
        ({"transition": [0.5, 0.5], "length": 3}, "two axes"),
        ({"transition": [], "length": 3}, "no states"),
        ({"transition": [[0.5, 0.5]], "length": 3, "initial": [1.0]}, "not square"),
        ({"transition": [[0.5, 0.5]], "length": 3}, "square"),
        ({"transition": P}, "needs a length"),
        ({"transition": P, "length": 0}, "at least 1"),
        ({"transition": P, "length": -3}, "at least 1"),
        ({"transition": P, "length": 2.0}, "whole number"),
        ({"transition": P, "length": True}, "whole number"),
        ({"transition": P, "length": 10**30}, "length"),
        ({"transition": [P, P], "length": 5, "initial": HALF}, "5 steps needs 4 matrices, not 2"),
        ({"transition": [P], "length": 5, "initial": HALF}, "5 steps needs 4 matrices, not 1"),
        ({"transition": [P, P]}, "no stationary law"),
        ({"transition": P, "length": 3, "initial": "start"}, "'stationary', 'uniform' or a vector"),
        ({"transition": P, "length": 3, "initial": [0.5, 0.4]}, "node 'X0': the table sums to 0.9"),
        ({"transition": P, "length": 3, "initial": [1.0]}, "initial law has shape"),
        ({"transition": P, "length": 3, "initial": [[0.5, 0.5]]}, "initial law has shape"),
        ({"transition": P, "length": 3, "initial": ["a", "b"]}, "rectangular"),
        ({"transition": P, "length": 3, "prefix": ""}, "prefix"),
        ({"transition": P, "length": 3, "prefix": "X1"}, "digit"),
        ({"transition": P, "length": 3, "states": ["a", "a"]}, "named twice"),
        ({"transition": P, "length": 3, "states": ["a"]}, "1 are named"),
        ({"transition": P, "length": 3, "states": "ab"}, "list of names"),
        ({"transition": P, "length": 3, "states": [0, 1]}, "list of names"),
        ({"transition": np.eye(2), "length": 3}, "2 closed classes"),
        (
            {"transition": [[[0.5, 0.5]], [[1.0], [1.0], [1.0]]], "initial": [1.0]},
            r"transition 1 has shape \(3, 1\), the step before it has 2 states",
        ),
    ],
)
def test_a_chain_refuses(arguments, words):
    with pytest.raises(InvalidModel, match=words) as caught:
        markov_chain(**arguments)
    assert "\n" not in str(caught.value)


def test_segments_check_themselves():
    with pytest.raises(InvalidModel, match=r"sums to 0.9"):
        ChainSegment("X", 3, np.array([0.5, 0.4]), (np.array(P),))
    with pytest.raises(InvalidModel, match=r"sums to 1.7"):
        ChainSegment("X", 3, HALF, (np.array([[0.9, 0.8], [0.2, 0.8]]),))
    locked = np.array([0.5, -0.5, 1.0])
    locked.flags.writeable = False
    with pytest.raises(InvalidModel, match="negative"):
        ChainSegment("X", 3, locked, (np.full((3, 3), 1 / 3),))
    with pytest.raises(InvalidModel, match="not 2"):
        ChainSegment("X", 4, HALF, (np.array(P), np.array(P)))
    with pytest.raises(InvalidModel, match="not 0"):
        ChainSegment("X", 4, HALF, ())
    with pytest.raises(InvalidModel, match="not 2"):
        ChainSegment("X", 1, HALF, (np.array(P), np.array(P)))
    with pytest.raises(InvalidModel, match="initial law has shape"):
        ChainSegment("X", 2, np.array(P), (np.array(P),))


def test_segments_copy_what_can_still_change():
    law, matrix = HALF.copy(), np.array(P)
    segment = ChainSegment("X", 3, law, (matrix,))
    law[0] = matrix[0, 0] = 7.0
    assert segment.initial[0] == 0.5
    assert segment.transitions[0][0, 0] == 0.9
    view = np.array(P)[:]
    view.flags.writeable = False
    assert not np.shares_memory(ChainSegment("X", 3, HALF, (view,)).transitions[0], view)


def test_chains_must_differ_and_exist():
    segment = ChainSegment("X", 3, HALF, (np.array(P),))
    with pytest.raises(InvalidModel, match="same prefix"):
        ChainModel([segment, segment])
    with pytest.raises(InvalidModel, match="no chains"):
        markov_chains(P, {})


def test_a_chain_is_frozen():
    m = markov_chain(P, 3)
    with pytest.raises(AttributeError, match="frozen"):
        m.segments = ()
    with pytest.raises(AttributeError):
        m.segments[0].length = 4
    with pytest.raises(ValueError, match="read-only"):
        m.segments[0].initial[0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        m.factors[1].table[0, 0] = 1.0


def test_rounded_rows_are_normalised_and_the_chain_says_so():
    m = markov_chain([[0.9, 0.1000003], [0.2, 0.8]], 3)
    assert "normalised" in m.notes[0]
    assert m.factors[1].table.sum(axis=1) == pytest.approx(1.0, abs=3e-16)


# -- fingerprints ---------------------------------------------------------------------------


def test_the_fingerprint_never_changes_between_versions():
    m = markov_chain(P, 3, initial=[0.5, 0.5], states=["home", "work"])
    assert m.fingerprint == "9fa8f6e5df584b345d0ebef85c1dd93e26c895cd12615fe8bd8c7dfcd294813b"


def test_equal_chains_have_equal_fingerprints():
    start = [0.5, 0.5]
    one = markov_chain(P, 5, initial=start).fingerprint
    assert markov_chain([P] * 4, initial=start).fingerprint == one
    assert markov_chain([np.array(P) for _ in range(4)], initial="uniform").fingerprint == one
    assert markov_chain(P, 5, initial=start, states=["0", "1"]).fingerprint == one
    named = markov_chain(P, 5, initial=start, states=["a", "b"]).fingerprint
    assert markov_chain(P, 5, initial=start, states=np.array(["a", "b"])).fingerprint == named
    assert markov_chain(P, np.int64(5), initial=start, prefix=np.str_("X")).fingerprint == one
    pair = markov_chains(P, {"a": 3, "b": 2})
    assert markov_chains(P, {"b": 2, "a": 3}).fingerprint == pair.fingerprint


def test_the_fingerprint_sees_every_change():
    start = [0.5, 0.5]
    models = [
        markov_chain(P, 5, initial=start),
        markov_chain(P, 6, initial=start),
        markov_chain(P, 5, initial=[0.4, 0.6]),
        markov_chain(P, 5, initial=start, states=["a", "b"]),
        markov_chain(P, 5, initial=start, prefix="Y"),
        markov_chain([[0.9, 0.1], [0.3, 0.7]], 5, initial=start),
        markov_chains(P, {"X": 5, "Y": 5}, initial=start),
    ]
    assert len({m.fingerprint for m in models}) == len(models)


# -- the stationary law ---------------------------------------------------------------------


@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_the_stationary_law_is_stationary(size, seed):
    matrix = np.random.default_rng(seed).dirichlet(np.ones(size), size=size)
    law = stationary_distribution(matrix)
    assert law.sum() == pytest.approx(1.0, abs=1e-14)
    assert law @ matrix == pytest.approx(law, abs=1e-13)


def test_the_stationary_law_of_known_chains():
    assert stationary_distribution(np.array(P)) == pytest.approx([2 / 3, 1 / 3], rel=1e-15)
    assert stationary_distribution(np.array([[0.0, 1.0], [1.0, 0.0]])).tolist() == [0.5, 0.5]
    absorbing = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])
    assert stationary_distribution(absorbing).tolist() == [0.0, 0.0, 1.0]
    tiny = 1e-14  # nearly uncoupled: subtraction would lose every digit
    sticky = np.array([[1 - tiny, tiny], [2 * tiny, 1 - 2 * tiny]])
    assert stationary_distribution(sticky) == pytest.approx([2 / 3, 1 / 3], rel=1e-2)


# -- size -----------------------------------------------------------------------------------


def test_a_million_steps_are_a_small_object():
    matrix = np.full((10, 10), 0.1)
    tracemalloc.start()
    m = markov_chain(matrix, 1_000_000)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 100_000
    assert len(pickle.dumps(m)) < 10_000
    assert len(m.fingerprint) == 64
    assert m.nodes[999_999] == "X999999"
    assert m.factors_of["X999999"] == (999_999,)
    assert m.index["X500000"] == 500_000


def test_many_chains_share_their_tables():
    matrix = np.random.default_rng(7).dirichlet(np.ones(50), size=50)
    m = markov_chains(matrix, {f"p{k}/": 100 for k in range(500)})
    tables = {id(t) for s in m.segments for t in (s.initial, *s.transitions)}
    assert len(tables) == 2
    again = pickle.loads(pickle.dumps(m))
    assert len({id(t) for s in again.segments for t in (s.initial, *s.transitions)}) == 2
