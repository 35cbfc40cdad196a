"""How branches share a budget of known records, against every way to hand it out."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from quiltdp.accountant.leakage.known_budgets import SharedMessages
from quiltdp.inference.cliques import Choice, View

STATES, MOST = 4, 3


def view() -> View:
    """Return a clique of four states with three branches, the last of which holds no record."""
    label = np.arange(STATES)
    branches = [
        SimpleNamespace(separator=(name,), label=label, key=(0, k), knowable=k < 2)
        for k, name in enumerate("abc")
    ]
    clique = SimpleNamespace(states=np.zeros((STATES, 3)))
    return cast(View, SimpleNamespace(clique=clique, branches=branches))


def messages(levels: int) -> dict[tuple[int, int], list[np.ndarray]]:
    random = np.random.default_rng(7)
    return {(0, k): [random.normal(size=(STATES, STATES)) for _ in range(levels)] for k in range(3)}


def choice(**parts: Any) -> Choice:
    plain = {"known": frozenset(), "branches": (), "tilted": frozenset(), "only": False}
    return cast(Choice, SimpleNamespace(**{**plain, **parts}))


@pytest.mark.parametrize("only", [False, True])
@pytest.mark.parametrize("known", [frozenset(), frozenset({"d"})])
def test_a_budget_is_shared_in_the_worst_way(only: bool, known: frozenset[str]) -> None:
    given = messages(MOST + 1)
    shared = SharedMessages(view(), given, MOST)
    made = choice(branches=(0, 1), only=only, known=known)
    for budget in shared.of(made):
        left = budget - len(known)
        ways = [
            given[0, 0][i] + given[0, 1][j]
            for i, j in product(range(left + 1), repeat=2)
            if i + j <= left and (not only or (i and j))
        ]
        worst = np.maximum.reduce(ways) + given[0, 2][0]
        np.testing.assert_allclose(shared.distance(made, budget), worst, rtol=1e-12, atol=1e-12)


def test_every_branch_may_know_something_or_nothing() -> None:
    given = messages(2)
    shared = SharedMessages(view(), given, None)
    worst = np.maximum(*given[0, 0]) + np.maximum(*given[0, 1]) + given[0, 2][0]
    np.testing.assert_allclose(shared.anything(1), worst, rtol=1e-12)
    both = given[0, 0][1] + given[0, 1][1] + given[0, 2][0]
    np.testing.assert_allclose(shared.distance(choice(branches=(0, 1), only=True), 1), both, rtol=1e-12)
    # somebody knows: one branch counts with what it says when it knows, whichever is worse
    some = np.maximum(given[0, 0][1] + np.maximum(*given[0, 1]), given[0, 1][1] + np.maximum(*given[0, 0]))
    np.testing.assert_allclose(shared.distance(choice(branches=(0, 1)), 1), some + given[0, 2][0], rtol=1e-12)


def test_nothing_known_needs_no_budget() -> None:
    shared = SharedMessages(view(), messages(MOST + 1), MOST)
    assert tuple(shared.of(choice())) == (0,)
    assert tuple(shared.of(choice(branches=(0, 1), only=True))) == (2, 3)
    np.testing.assert_allclose(shared.none, sum(m[0] for m in messages(MOST + 1).values()))
