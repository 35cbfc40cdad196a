"""Nodes, states and factors of a chain, computed on demand: the same as written out."""

from __future__ import annotations

from itertools import pairwise

import pytest

from quiltdp import markov_chain
from quiltdp.chain_views import ChainFactors, ChainFactorsOf, ChainIndex, ChainNodes, ChainStates

STEP = [[0.9, 0.1], [0.2, 0.8]]
CHAIN = markov_chain(STEP, 4)


def test_views_agree_with_what_is_written_out() -> None:
    nodes = ChainNodes(CHAIN.segments)
    written = [f"X{t}" for t in range(4)]
    assert list(nodes) == written
    assert (len(nodes), nodes[-1], list(nodes[1:3])) == (4, "X3", ["X1", "X2"])
    index = ChainIndex(nodes)
    assert dict(index) == {n: k for k, n in enumerate(written)}
    states = ChainStates(nodes, ("off", "on"))
    assert {n: states[n] for n in states} == dict.fromkeys(written, ("off", "on"))
    scopes = [f.scope for f in ChainFactors(nodes)]
    assert scopes == [("X0",), *pairwise(written)]
    of = ChainFactorsOf(nodes)
    assert {n: list(of[n]) for n in written} == {
        n: [k for k, scope in enumerate(scopes) if n in scope] for n in written
    }


@pytest.mark.parametrize("name", ["X4", "X-1", "X01", "Y0", "", 3])
def test_a_name_that_is_no_step_is_not_there(name: object) -> None:
    nodes = ChainNodes(CHAIN.segments)
    assert name not in nodes
    assert name not in ChainIndex(nodes)
    with pytest.raises(KeyError):
        ChainIndex(nodes)[name]
