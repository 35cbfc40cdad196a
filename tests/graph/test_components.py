"""Independent parts of a model: copies are found, and nothing depends on where tables lie in memory."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np

import quiltdp as qd
from quiltdp.chain import ChainModel, ChainSegment
from quiltdp.graph.components import component_classes, factor_graph

HALF = np.array([0.5, 0.5])
COIN = np.array([[0.9, 0.1], [0.2, 0.8]])


def families(count: int, **extra: object) -> qd.Model:
    tables = {}
    for k in range(count):
        tables |= {f"c{k}": ([f"a{k}"], COIN), f"a{k}": ([], HALF), f"b{k}": ([f"a{k}"], COIN)}
    return qd.Model.from_tables(tables, **extra)


def test_copies_are_one_class() -> None:
    model = families(5)
    (found,) = component_classes(model)
    assert len(found.copies) == 5
    for copy in found.copies:
        names = [model.nodes[j] for j in copy]
        assert len({n[1:] for n in names}) == 1
        assert [n[0] for n in names] == [n[0] for n in found.model.nodes]


def test_a_record_of_two_people_is_no_copy_of_one() -> None:
    classes = component_classes(families(3, people={"b1": 2}))
    assert sorted(len(c.copies) for c in classes) == [1, 2]
    assert [dict(c.model.people) for c in classes if len(c.copies) == 1] == [{"b1": 2}]


def test_the_order_of_nodes_is_the_same_in_every_process() -> None:
    code = """
import os, numpy as np, quiltdp as qd
from quiltdp.graph.components import component_classes

rubbish = [np.ones(7 * k) for k in range(int(os.environ["PADDING"]))]
rng = np.random.default_rng(1)
tables = {f"n{k}": ([], rng.dirichlet([1, 1])) for k in range(4)}
rows = rng.dirichlet([1, 1], size=(3, 2, 2))
tables |= {f"m{k}": ([f"n{k}", f"n{(k + 1) % 4}"], rows[k]) for k in range(3)}
tables["z"] = ([], [0.5, 0.5])
print([c.model.nodes for c in component_classes(qd.Model.from_tables(tables))])
"""
    said = set()
    for seed in range(4):
        environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PADDING": str(37 * seed)}
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
        )
        said.add(done.stdout)
    assert len(said) == 1


def test_components_of_the_factor_graph() -> None:
    graph = factor_graph(families(3))
    assert len(set(graph.component.tolist())) == 3
    assert graph.factors == 6
    alone = factor_graph(qd.Model.from_tables({"A": ([], HALF), "B": ([], HALF)}))
    assert (alone.factors, alone.component.tolist()) == (0, [0, 1])


def test_segments_of_a_chain_with_equal_tables_are_copies() -> None:
    """Whether or not they share the table object; one entry tells them apart."""
    moves = np.array([[0.9, 0.1], [0.2, 0.8]])
    other = np.array([[0.9, 0.1], [0.3, 0.7]])
    start = np.array([0.5, 0.5])
    tables = [moves, moves.copy(), other, moves.copy()]
    segments = [ChainSegment(f"user{k}_", 4, start, (t,)) for k, t in enumerate(tables)]
    found = component_classes(ChainModel([*segments, ChainSegment("late", 5, start, (moves,))]))
    assert [len(c.copies) for c in found] == [3, 1, 1]
    assert [c.copies[0][0] for c in found] == [0, 8, 16]
    assert list(found[0].copies[2]) == [12, 13, 14, 15]
