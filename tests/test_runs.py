"""Vectors held as runs are the vectors they stand for, and long chains are answered from them."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import quiltdp as qd
from quiltdp import chain as chains
from quiltdp.accountant.bounds import ready
from quiltdp.accountant.leakage.mqm_chain import MarkovQuiltChainBound
from quiltdp.accountant.result import PerUnit
from quiltdp.chain import ChainModel, ChainSegment
from quiltdp.runs import Runs, constant, in_runs, joined, key_of, numbers_of, pointwise, taken, written_out

numbers = st.sampled_from([0.0, 0.5, 1.0, 2.5, np.inf])
vectors = st.lists(st.tuples(numbers, st.integers(1, 4)), min_size=1, max_size=5)


def runs(parts: list[tuple[float, int]]) -> Runs:
    return Runs(np.array([x for x, _ in parts]), np.cumsum([n for _, n in parts]))


def plain(parts: list[tuple[float, int]]) -> np.ndarray:
    return np.repeat([x for x, _ in parts], [n for _, n in parts])


@given(vectors, st.integers(-25, 25), st.integers(-25, 25), st.sampled_from([1, -1, 2, None]))
def test_runs_answer_as_the_vector_they_stand_for(parts, start, stop, step) -> None:
    one, same = runs(parts), plain(parts)
    assert len(one) == len(same)
    assert list(one) == same.tolist() == written_out(one).tolist()
    assert written_out(one[start:stop:step]).tolist() == same[start:stop:step].tolist()
    places = np.flatnonzero(same > 0.5)
    assert one[places].tolist() == same[places].tolist()
    assert [one[k] for k in range(-len(same), len(same))] == [*same, *same]
    assert (one.max(initial=0.0), one.argmax(), np.argmax(one)) == (same.max(), same.argmax(), same.argmax())
    assert (one.any(), one.all(), np.all(one == one[0])) == (same.any(), same.all(), np.all(same == same[0]))
    assert one.sum() == same.sum()  # of halves: no rounding
    assert numbers_of(one)[1].tolist() == [0, *np.cumsum([n for _, n in parts])[:-1]]
    with pytest.raises(IndexError):
        one[len(one)]


@given(vectors, vectors)
def test_places_are_combined_run_by_run(parts, others) -> None:
    """Runs with runs and numbers stay runs; with a numpy vector they are written out."""
    length = min(sum(n for _, n in parts), sum(n for _, n in others))
    one, two = runs(parts)[:length], runs(others)[:length]
    a, b = plain(parts)[:length], plain(others)[:length]
    for made, wanted in (
        (np.minimum(one, two), np.minimum(a, b)),
        (1.0 + one * 2.0, 1.0 + a * 2.0),
        (one <= two, a <= b),
        (pointwise(np.where, one < two, 7, two), np.where(a < b, 7, b)),
    ):
        assert in_runs(made)
        assert written_out(made).tolist() == wanted.tolist()
    mixed = np.maximum(one, b)
    assert not in_runs(mixed)
    assert mixed.tolist() == np.maximum(a, b).tolist()
    total = np.zeros(length)
    np.add.at(total, np.arange(length), one)
    assert total.tolist() == a.tolist()
    whole = joined([one, b, two])
    assert in_runs(whole)
    assert written_out(whole).tolist() == [*a, *b, *b]
    assert written_out(taken(whole, range(length, 2 * length))).tolist() == b.tolist()
    same = one.ends.tolist() == two.ends.tolist() and a.tolist() == b.tolist()
    assert (key_of(one) == key_of(two)) == same
    with pytest.raises(ValueError, match="different lengths"):
        one + joined([two, constant(1, 0.0)])


def test_a_constant_may_have_a_head() -> None:
    assert written_out(constant(5, 1.0, [3.0, 2.0])).tolist() == [3.0, 2.0, 1.0, 1.0, 1.0]
    assert written_out(constant(2, 1.0, [3.0, 2.0])).tolist() == [3.0, 2.0]


@given(vectors, st.integers(-1, 25))
def test_the_largest_units_are_the_first_of_equals(parts, count) -> None:
    values = plain(parts)
    names = [f"n{k}" for k in range(len(values))]
    wanted = sorted(range(len(values)), key=lambda k: (-values[k], k))[: max(count, 0)]
    for held in (values, runs(parts)):
        assert PerUnit(names, held).top(count) == [(names[k], values[k]) for k in wanted]


THREE = np.array([[0.5, 0.3, 0.2], [0.3, 0.4, 0.3], [0.1, 0.1, 0.8]])
ZEROS = np.array([[0.5, 0.5, 0.0], [0.0, 0.3, 0.7], [0.2, 0.0, 0.8]])
START = np.full(3, 1 / 3)
LONG = {
    "stationary": lambda: qd.markov_chain(THREE, 700),
    "uniform": lambda: qd.markov_chain(THREE, 150, initial="uniform"),
    "known start": lambda: qd.markov_chain(ZEROS, 150, initial=[0.0, 1.0, 0.0]),
    "forgets nothing": lambda: qd.markov_chain(np.eye(2), 30, initial=[0.5, 0.5]),
    "short": lambda: qd.markov_chain(THREE, 1),
    "several": lambda: qd.markov_chains(THREE, {"a/": 200, "b/": 20, "c/": 200}),
    "one with a matrix per step": lambda: ChainModel(
        [ChainSegment("u", 90, START, (THREE,)), ChainSegment("v", 10, START, (THREE, ZEROS) * 4 + (THREE,))]
    ),
}


@pytest.mark.parametrize("adversary", ["informed", "prior"])
@pytest.mark.parametrize("name", LONG)
def test_a_chain_in_runs_answers_as_one_written_out(name, adversary, monkeypatch) -> None:
    """Leakages of every step, of windows and named sets, of unequal α, and the noise."""

    def answers(long: int) -> list[object]:
        monkeypatch.setattr(chains, "_LONG", long)
        model = LONG[name]()
        assert model.in_runs == (long == 1)
        sets = {"a": model.nodes[:2], "b": model.nodes[-3:]}
        each = {n: 0.01 * (k % 3) for k, n in enumerate(model.nodes)}
        asked = [
            *((0.01, {"window": w}) for w in (1, 4, 10**6)),
            *((alpha, {}) for alpha in (0.0, 0.7, each)),
            (0.01, {"method": "group"}),
            (0.01, {"protect": sets, "method": "chain"}),
        ]
        told = [qd.leakage(model, a, adversary=adversary, **({"method": "chain"} | k)) for a, k in asked]
        noise = qd.calibrate(model, 1.0, qd.Laplace(1.0), method="chain", adversary=adversary, compare=False)
        return [x.to_json() for x in (*told, noise)]

    assert answers(1) == answers(10**9)


@pytest.mark.parametrize("length", [1, 6, 14, 15, 40])
def test_quilts_far_from_both_ends_of_a_chain_are_looked_at_once(length) -> None:
    bound = ready(MarkovQuiltChainBound, qd.markov_chain(THREE, length), max_width=6)
    for alpha in (0.02, 0.4, 3.0):
        found = bound.evaluate(constant(length, alpha)).values
        assert in_runs(found) == (length > 14)
        assert written_out(found).tolist() == bound.evaluate(np.full(length, alpha)).values.tolist()


@pytest.mark.parametrize("adversary", ["informed", "prior"])
def test_a_long_chain_costs_what_a_shorter_one_does(adversary) -> None:
    """No step is looked at by itself, and every one of them is told when it is asked for."""
    long = qd.markov_chain(THREE, 40_000_000)
    began = time.process_time()
    found = qd.leakage(long, 0.01, adversary=adversary)
    qd.calibrate(long, 1.0, qd.Laplace(1.0), adversary=adversary, compare=False)
    assert time.process_time() - began < 2.0  # forty million numbers of anything take longer
    short = qd.leakage(qd.markov_chain(THREE, 20_000), 0.01, adversary=adversary)
    assert found.epsilon == short.epsilon == found.per_record["X20000000"]
    assert [found.per_record[f"X{k}"] for k in (0, 3, 39_999_999)] == [
        short.per_record[f"X{k}"] for k in (0, 3, 19_999)
    ]
    assert found.per_record.top(3)[0] == (found.binding.unit, found.epsilon)
    with pytest.raises(KeyError):
        found.per_record["X40000000"]


def test_what_differs_from_place_to_place_is_written_out() -> None:
    """Runs of one place each (a chain that never forgets) would cost more than they save."""
    growing = constant(5_001, 5.0, np.arange(5_000.0))
    assert not in_runs(growing)
    assert growing.tolist() == [*range(5_000), 5.0]
    assert in_runs(constant(10**6, 5.0, np.arange(5_000.0)))
    some = constant(10**4, 5.0, np.arange(1_200.0))
    assert in_runs(some)
    assert not in_runs(some + some[::-1])  # twice as many
