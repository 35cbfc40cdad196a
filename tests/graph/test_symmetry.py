"""Symmetric nodes against every renaming of small models, and what symmetric records leak."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quiltdp as qd
from quiltdp.domains.pedigree import Pedigree, Person
from quiltdp.graph.symmetry import symmetric_nodes, symmetries

COIN, BIASED = np.array([0.5, 0.5]), np.array([0.7, 0.3])
NOISY, LOUD = np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([[0.6, 0.4], [0.1, 0.9]])
EVEN = np.array([[[0.9, 0.1], [0.5, 0.5]], [[0.5, 0.5], [0.1, 0.9]]])
UNEVEN = np.array([[[0.9, 0.1], [0.4, 0.6]], [[0.5, 0.5], [0.1, 0.9]]])
TABLES = [[COIN, BIASED], [NOISY, LOUD], [EVEN, UNEVEN]]


@st.composite
def networks(draw: st.DrawFn) -> qd.Model:
    """Up to five nodes with few different tables, so that symmetries are common."""
    count = draw(st.integers(2, 5))
    tables = {}
    for k in range(count):
        most = min(2, k)
        parents = draw(st.lists(st.integers(0, k - 1), max_size=most, unique=True)) if most else []
        table = draw(st.sampled_from(TABLES[len(parents)]))
        tables[f"X{k}"] = ([f"X{p}" for p in parents], table)
    return qd.Model.from_tables(tables)


def joint(model: qd.Model) -> dict[tuple[int, ...], object]:
    """Every table with its nodes in sorted order: the structure that a symmetry must leave as it is."""
    found: dict[tuple[int, ...], list[bytes]] = {}
    for factor in model.factors:
        nodes = [model.index[n] for n in factor.scope]
        order = np.argsort(nodes)
        table = np.ascontiguousarray(factor.table.transpose(order))
        found.setdefault(tuple(sorted(nodes)), []).append(table.tobytes())
    return {k: sorted(v) for k, v in found.items()}


def renamed(model: qd.Model, image: tuple[int, ...]) -> qd.Model:
    nodes = model.nodes
    factors = [qd.Factor([nodes[image[model.index[n]]] for n in f.scope], f.table) for f in model.factors]
    return qd.Model(dict(model.states), factors)


@settings(max_examples=150, deadline=None)
@given(networks(), st.lists(st.integers(0, 1), min_size=5, max_size=5))
def test_the_classes_are_those_of_all_renamings(model: qd.Model, marks: list[int]) -> None:
    count = len(model.nodes)
    marks = marks[:count]
    here = joint(model)
    alike = np.eye(count, dtype=bool)
    for image in permutations(range(count)):
        if all(marks[k] == marks[image[k]] for k in range(count)) and joint(renamed(model, image)) == here:
            alike[range(count), image] = True
    found = symmetric_nodes(model, marks)
    labels = np.arange(count) if found is None else found
    assert (labels[:, None] == labels[None, :]).tolist() == alike.tolist()
    for image in symmetries(model, marks):
        assert joint(renamed(model, tuple(image))) == here
        assert all(marks[k] == marks[image[k]] for k in range(count))


def double_cousins(inbred: bool) -> tuple[qd.Model, list[list[str]]]:
    """Two brothers marry two sisters; with ``inbred`` their children have children together."""
    people = [Person(n) for n in "abcd"]
    people += [Person(n, "a", "b") for n in ("b1", "b2")] + [Person(n, "c", "d") for n in ("s1", "s2")]
    people += [Person(f"p{k}", "b1", "s1") for k in range(2)] + [
        Person(f"q{k}", "b2", "s2") for k in range(2)
    ]
    groups = [list("abcd"), ["b1", "b2", "s1", "s2"], ["p0", "p1", "q0", "q1"]]
    if inbred:
        people += [Person("z0", "p0", "q0"), Person("z1", "p1", "q1")]
        groups.append(["z0", "z1"])
    return qd.pedigree(Pedigree(tuple(people)), 0.2), groups


@pytest.mark.parametrize("adversary", ["informed", "prior"])
@pytest.mark.parametrize("inbred", [False, True])
def test_symmetric_relatives_leak_the_same(adversary: str, inbred: bool) -> None:
    model, groups = double_cousins(inbred)
    found = qd.leakage(model, 0.3, adversary=adversary, work="quick").per_record
    for group in groups:
        assert len({found[name] for name in group}) == 1, group


def test_who_pays_more_or_is_known_is_not_like_the_others() -> None:
    model, _ = double_cousins(inbred=False)
    alpha = {name: 0.6 if name == "a" else 0.3 for name in model.records}
    found = qd.leakage(model, alpha, adversary="prior", work="quick").per_record
    assert found["a"] > found["b"] > found["c"] == found["d"]
    known = qd.leakage(model, 0.3, adversary=qd.knows("b1"), work="quick").per_record
    assert known["a"] != known["c"]
    assert known["c"] == known["d"]


def test_the_binding_record_is_the_one_whose_reason_is_told() -> None:
    model, _ = double_cousins(inbred=True)
    found = qd.leakage(model, 0.3, adversary="prior", work="quick")
    assert found.binding.epsilon == found.epsilon == max(found.per_record.values())
    assert found.per_record[found.binding.unit] == found.epsilon
