"""What may be known around a node, and the laws it leaves, against the joint."""

from __future__ import annotations

from itertools import combinations

import loopy
import pytest

from quiltdp import moralize
from quiltdp.inference.evidence_tree import evidence_branches, surroundings
from quiltdp.inference.reveal_order import RevealOrder
from quiltdp.inference.workspace import Workspace


def around(near: list[set[int]], start: int, known: set[int]) -> set[int]:
    seen, queue = {start}, [start]
    while queue:
        fresh = near[queue.pop()] - seen - known
        seen |= fresh
        queue.extend(fresh)
    return seen


@pytest.mark.parametrize("shape", sorted(loopy.SHAPES))
def test_surroundings_are_the_known_sets_that_matter(shape):
    model = loopy.loopy(1, shape, "plain")
    graph = moralize(model)
    count = len(model.nodes)
    near = [set(graph.neighbor_positions(k)) for k in range(count)]
    others = list(range(1, count))
    found = [tuple(sorted(s)) for s in surroundings(graph, [0], others, others)]
    assert len(found) == len(set(found))
    expected = set()
    for size in range(count):
        for known in combinations(others, size):
            part = around(near, 0, set(known))
            expected.add(tuple(n for n in known if near[n] & part))
    assert set(found) == expected
    two = {tuple(sorted(s)) for s in surroundings(graph, [0], others, others[1:], 2)}
    assert two == {s for s in expected if len(s) <= 2 and 1 not in s}


@pytest.mark.parametrize(
    ("seed", "shape", "states"), [(2, "ladder", 2), (5, "wheel", 3), (6, "loop of five", 3)]
)
def test_laws_and_possibility_are_those_of_the_joint(seed, shape, states):
    """P(x_k | z, e) for the node next to the target, and which e are possible."""
    model = loopy.loopy(seed, shape, "zeros", states=states)
    joint = loopy.joint(model)
    assert joint is not None
    target = model.nodes[0]
    looked = 0
    for found in evidence_branches(model, (target,), model.records, most=10**8, workspace=Workspace(model)):
        branch = found.cases()
        assert found.pairs == sum(len(n.law) * (n.law.shape[1] * n.law.shape[2]) ** 2 for n in branch.nodes)
        top = branch.nodes[-1]
        name = model.nodes[top.node]
        for e in range(len(top.value)):
            known = {model.nodes[n]: v for n, v in branch.known(e).items()}
            assert len(known) == branch.count[e]
            for t in range(model.cardinality(target)):
                given = {**known, target: t}
                law = loopy.law(model, joint, [name], {n: v for n, v in given.items() if n != name})
                mass = loopy.law(model, joint, [target], known)
                possible = mass is not None and mass[t] > 0
                assert possible == branch.possible[e, t]
                if possible and name not in known and law is not None:
                    assert top.law[e, branch.seen[t]] == pytest.approx(law, abs=1e-12)
                    looked += 1
    assert looked > 10


def test_what_is_above_separates_from_all_that_is_revealed_before():
    model = loopy.loopy(2, "ladder", "plain")
    joint = loopy.joint(model)
    assert joint is not None
    order = RevealOrder(model, (model.nodes[0],), "fill")
    order.read_laws(model, Workspace(model))
    for k, name in enumerate(order.names):
        revealed = dict.fromkeys((model.nodes[0], *order.names[k + 1 :]), 0)
        law = loopy.law(model, joint, [name], revealed)
        assert order.laws[k][0] == pytest.approx(law, abs=1e-12)
        assert set(order.above[k]) <= set(revealed)
