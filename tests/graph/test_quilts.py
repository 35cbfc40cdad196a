"""Quilts against the reference file, against a slow twin that tries every subset, and at scale."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quiltdp as qd
from quiltdp.errors import InvalidArgument, InvalidModel, UnknownNode
from quiltdp.graph.quilt import Quilt
from quiltdp.graph.quilts import unit_quilts
from quiltdp.graph.types import DependencyGraph

REFERENCE = json.loads(
    (Path(__file__).parents[1] / "data" / "reference" / "networks.json").read_text(encoding="utf-8")
)

Parts = tuple[frozenset[str], frozenset[str], frozenset[str]]


def parts(quilt: Quilt) -> Parts:
    return quilt.separator, quilt.nearby, quilt.remote


def reachable(graph: DependencyGraph, start: Collection[str], blocked: Collection[str]) -> frozenset[str]:
    found = set(start)
    stack = list(found)
    while stack:
        fresh = graph.neighbors(stack.pop()) - found - set(blocked)
        found |= fresh
        stack += fresh
    return frozenset(found)


def slow_quilts(graph: DependencyGraph, targets: Collection[str]) -> set[Parts]:
    """Every separator by brute force: all subsets Q, largest remote part, no idle node in Q."""
    start = frozenset(targets)
    others = [n for n in graph.nodes if n not in start]
    found: set[Parts] = set()
    for size in range(len(others) + 1):
        for chosen in itertools.combinations(others, size):
            separator = frozenset(chosen)
            closed = reachable(graph, start, separator)
            if all(graph.neighbors(q) & closed for q in separator):
                remote = frozenset(graph.nodes) - closed - separator
                found.add((separator, closed - start, remote))
    return found


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 7) -> DependencyGraph:
    n = draw(st.integers(1, max_nodes))
    names = [f"N{k}" for k in range(n)]
    pairs = list(itertools.combinations(names, 2))
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    records = draw(st.sets(st.sampled_from(names)))
    return DependencyGraph(names, edges, records)


def as_model(network: dict[str, Any]) -> qd.Model:
    tables = {n: (t["parents"], t["table"]) for n, t in network["tables"].items()}
    return qd.Model.from_tables(tables, network["records"])


@pytest.mark.parametrize("number", range(len(REFERENCE)))
def test_reference_networks(number: int) -> None:
    network = REFERENCE[number]
    graph = qd.moralize(as_model(network))
    assert {q["target"] for q in network["quilts"]} == set(network["records"])
    for target in network["records"]:
        listed = {
            (frozenset(q["quilt"]), frozenset(q["nearby"]), frozenset(q["remote"]))
            for q in network["quilts"]
            if q["target"] == target
        }
        found = [parts(q) for q in qd.quilts(graph, target)]
        assert len(found) == len(set(found))
        assert set(found) == listed


@given(graphs(), st.data())
@settings(max_examples=150, deadline=None)
def test_slow_twin(graph: DependencyGraph, data: st.DataObject) -> None:
    targets = data.draw(st.sets(st.sampled_from(list(graph.nodes)), min_size=1, max_size=3))
    found = list(unit_quilts(graph, targets))
    expected = slow_quilts(graph, targets)
    assert len(found) == len(expected)
    assert {parts(q) for q in found} == expected
    if len(targets) == 1:
        (target,) = targets
        assert [parts(q) for q in qd.quilts(graph, target)] == [parts(q) for q in found]
        assert next(qd.quilts(graph, target)).separator == qd.markov_blanket(graph, target)


@given(graphs(), st.data())
@settings(max_examples=150, deadline=None)
def test_limits_and_order(graph: DependencyGraph, data: st.DataObject) -> None:
    target = data.draw(st.sampled_from(list(graph.nodes)))
    limit = st.none() | st.integers(0, 4)
    nearby, separator = data.draw(limit), data.draw(limit)
    everything = list(qd.quilts(graph, target))
    sizes = [(q.nearby_records, len(q.nearby)) for q in everything]
    assert sizes == sorted(sizes)
    assert [q.nearby_records for q in everything] == [sum(map(graph.is_record, q.nearby)) for q in everything]
    limited = list(qd.quilts(graph, target, nearby, separator))
    wanted = {
        q
        for q in everything
        if q.is_trivial
        or (
            (nearby is None or q.nearby_records <= nearby)
            and (separator is None or len(q.separator) <= separator)
        )
    }
    assert len(limited) == len(wanted)
    assert set(limited) == wanted
    assert sum(q.is_trivial for q in limited) == 1


@given(graphs())
@settings(max_examples=60, deadline=None)
def test_enumerated_quilts_pass_the_full_check(graph: DependencyGraph) -> None:
    for q in qd.quilts(graph, graph.nodes[0]):
        again = Quilt(graph, q.target, q.separator, q.nearby, q.remote)
        assert again == q
        assert hash(again) == hash(q)


def test_one_node() -> None:
    graph = DependencyGraph(["A"])
    (only,) = qd.quilts(graph, "A", max_nearby=0)
    assert parts(only) == (frozenset(), frozenset(), frozenset())
    assert only.nearby_records == 0
    assert only.closed_records == 1


def test_disconnected() -> None:
    graph = DependencyGraph("ABCD", [("A", "B"), ("C", "D")])
    found = [parts(q) for q in qd.quilts(graph, "A")]
    assert found == [
        (frozenset("B"), frozenset(), frozenset("CD")),
        (frozenset(), frozenset("B"), frozenset("CD")),
    ]


def test_latents_are_free_but_finite() -> None:
    graph = DependencyGraph("ABCD", [("A", "B"), ("B", "C"), ("C", "D")], records="AD")
    found = [(q.nearby_records, sorted(q.nearby)) for q in qd.quilts(graph, "A", max_nearby=0)]
    assert found == [(0, []), (0, ["B"]), (0, ["B", "C"]), (1, ["B", "C", "D"])]


@pytest.mark.parametrize(
    ("separator", "nearby", "remote", "complaint"),
    [
        (["C"], [], ["B", "D"], "'A' – 'B'"),
        (["B"], ["C"], ["D"], "'C' – 'D'"),
        (["B"], [], ["C"], "'D' is in no part"),
        (["B"], ["B"], ["C", "D"], "'B' is in two parts"),
        (["A", "B"], [], ["C", "D"], "'A' is in two parts"),
    ],
)
def test_a_quilt_is_checked_at_birth(
    separator: list[str], nearby: list[str], remote: list[str], complaint: str
) -> None:
    graph = DependencyGraph("ABCD", [("A", "B"), ("B", "C"), ("C", "D")])
    with pytest.raises(InvalidModel, match=complaint):
        Quilt(graph, "A", separator, nearby, remote)


def test_a_grown_quilt_is_checked_at_birth() -> None:
    graph = DependencyGraph("ABC", [("A", "B"), ("B", "C")])
    with pytest.raises(InvalidModel, match="boundary"):
        Quilt._from_boundary(graph, frozenset([0]), frozenset([0]), frozenset([2]))
    with pytest.raises(InvalidModel, match="boundary"):
        Quilt._from_boundary(graph, frozenset([0]), frozenset([1]), frozenset([0, 2]))


def test_a_quilt_is_frozen() -> None:
    quilt = next(qd.quilts(DependencyGraph("AB", ["AB"]), "A"))  # type: ignore[list-item] # "AB" is a pair
    with pytest.raises(AttributeError, match="frozen"):
        quilt.target = "B"  # type: ignore[misc] # the point of the test
    with pytest.raises(AttributeError, match="frozen"):
        del quilt.target  # the point of the test


def test_wider_separators_than_needed_are_allowed_when_given_explicitly() -> None:
    graph = DependencyGraph("ABCD", [("A", "B"), ("B", "C"), ("C", "D")])
    quilt = Quilt(graph, "A", ["B", "C"], [], ["D"])
    assert parts(quilt) == (frozenset("BC"), frozenset(), frozenset("D"))


def test_a_quilt_of_several_targets() -> None:
    graph = DependencyGraph("ABCDE", [("A", "B"), ("B", "C"), ("C", "D"), ("D", "E")])
    quilt = next(q for q in unit_quilts(graph, ["A", "D"]) if q.nearby == {"B"})
    assert quilt.separator == {"C", "E"}
    assert quilt.targets == {"A", "D"}
    assert "{A, D}" in repr(quilt)
    with pytest.raises(InvalidArgument, match="together"):
        _ = quilt.target


def test_bad_arguments() -> None:
    graph = DependencyGraph("AB", [("A", "B")])
    with pytest.raises(UnknownNode, match="'Z'"):
        qd.quilts(graph, "Z")
    with pytest.raises(InvalidArgument, match="max_nearby"):
        qd.quilts(graph, "A", max_nearby=-1)
    with pytest.raises(InvalidArgument, match="max_separator"):
        qd.quilts(graph, "A", max_separator=-1)
    with pytest.raises(InvalidArgument, match="empty"):
        unit_quilts(graph, [])


def test_a_hundred_thousand_nodes() -> None:
    n = 100_000
    names = [f"N{k}" for k in range(n)]
    graph = DependencyGraph(names, [(names[(k - 1) // 2], names[k]) for k in range(1, n)])
    found = list(qd.quilts(graph, "N777", max_nearby=3))
    assert len(found) == len({q.separator for q in found})
    trivial = found[-1]
    assert trivial.is_trivial
    assert trivial.nearby_records == n - 1
    assert len(trivial.nearby) == n - 1
    first = found[0]
    assert first.separator == {"N388", "N1555", "N1556"}
    assert len(first.remote) == n - 4
    assert sum(1 for q in found[:-1] if q.nearby_records == 1) == 3


@pytest.mark.timeout(60)
def test_a_small_separator_is_found_without_trying_every_set() -> None:
    """Two grids of 64 nodes joined by one: there are more than 2^60 connected sets."""
    side = range(8)
    place = {(g, r, c): f"{g}{r}{c}" for g in "ab" for r in side for c in side}
    edges = [(place[g, r, c], place[g, r, c + 1]) for g in "ab" for r in side for c in side[:-1]]
    edges += [(place[g, r, c], place[g, r + 1, c]) for g in "ab" for r in side[:-1] for c in side]
    graph = DependencyGraph([*place.values(), "bridge"], [*edges, ("a77", "bridge"), ("bridge", "b00")])
    found = list(qd.quilts(graph, "a33", max_separator=1))
    cutting = {(len(q.nearby), q.separator) for q in found if q.remote}
    assert cutting == {(62, frozenset(["a77"])), (63, frozenset(["bridge"])), (64, frozenset(["b00"]))}
    assert len(found) == 1 + 128  # the trivial one, and one for every node that can be left out


def test_the_cost_of_a_quilt_does_not_grow_with_the_graph() -> None:
    """Cost is counted in calls of functions."""

    def cost(n: int) -> int:
        graph = qd.moralize(qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=n))
        assert graph.component_count == 1
        calls = 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            for target in ("X300", "X400", "X500"):
                listed = [q.separator for q in qd.quilts(graph, target, max_nearby=20) if q.separator]
                assert len(listed) == 21 * 22 // 2
        finally:
            sys.setprofile(None)
        return calls

    assert cost(100_000) <= 1.1 * cost(1_000)


def test_a_million_step_chain() -> None:
    graph = qd.moralize(qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=1_000_000))
    found = list(qd.quilts(graph, "X500000", max_nearby=2))
    assert [sorted(q.separator) for q in found[:3]] == [
        ["X499999", "X500001"],
        ["X499998", "X500001"],
        ["X499999", "X500002"],
    ]
    assert len(found) == 1 + 2 + 3 + 1
    assert found[-1].closed_records == 1_000_000


def test_long_sets_do_not_recurse() -> None:
    graph = qd.moralize(qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=1_500))
    found = sum(1 for _ in qd.quilts(graph, "X0"))
    assert found == 1_500
