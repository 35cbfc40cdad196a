"""The best-first search of the exact limit finds what settling every adversary one by one finds."""

from __future__ import annotations

import numpy as np
import pytest

from quiltdp.accountant.leakage.adversaries import PairStack, PairTable, pair_tables
from quiltdp.accountant.leakage.limit_search import UnitBracket, UnitSearch
from quiltdp.accountant.leakage.worst_gains import worst_gains
from quiltdp.work import NO_GUARD

SHAPE = (2, 3, 2, 2)
ALPHA = np.array([0.3, 0.5, 0.2, 0.4])


def stack_of(seed: int) -> tuple[PairStack, np.ndarray]:
    joint = np.random.default_rng(seed).dirichlet(np.full(24, 0.4)).reshape(SHAPE)
    stack = PairStack(list(pair_tables(np.log(joint), (0,), None, None)))
    return stack, stack.apart(ALPHA, (0,), SHAPE)


def every_adversary(tables: list[PairTable]) -> tuple[float, float]:
    """Return the largest proved and the largest attained leakage, no adversary left out."""
    proved, attained = [], []
    for table in tables:
        cost = table.apart(ALPHA, (0,), SHAPE)
        above, below = np.zeros(len(table.p)), np.zeros(len(table.p))
        if table.unknown:
            above, below = worst_gains(table.p, table.q, table.sizes, ALPHA[list(table.unknown)])
        proved.append(np.minimum(cost + above, cost + table.ceilings(ALPHA)).max())
        attained.append((cost + below).max())
    return float(max(proved)), float(max(attained))


@pytest.mark.parametrize("seed", range(4))
def test_the_search_agrees_with_settling_everybody(seed: int) -> None:
    stack, own = stack_of(seed)
    proved, attained = every_adversary(stack.tables)
    found = UnitSearch(stack, own, ALPHA, 10_000, NO_GUARD).run(0.0)
    assert found.exact
    assert found.above == pytest.approx(proved, rel=1e-9)
    assert found.below == pytest.approx(attained, rel=1e-6)
    assert found.witness is not None
    assert any(t is found.witness[0] for t in stack.tables)


def test_what_is_known_already_is_not_searched_below() -> None:
    stack, own = stack_of(0)
    proved, _ = every_adversary(stack.tables)
    assert UnitSearch(stack, own, ALPHA, 10_000, NO_GUARD).run(2 * proved).above == 2 * proved


def test_without_programs_the_ceiling_stands_and_says_so() -> None:
    stack, own = stack_of(1)
    proved, _ = every_adversary(stack.tables)
    found = UnitSearch(stack, own, ALPHA, 0, NO_GUARD).run(0.0)
    assert not found.complete
    assert not found.exact
    assert proved * (1 - 1e-9) <= found.above <= float(ALPHA.sum()) * (1 + 1e-9)


def test_a_unit_with_nothing_to_tell_apart_leaks_nothing() -> None:
    assert UnitSearch(PairStack([]), np.zeros(0), ALPHA, 10, NO_GUARD).run(0.5) == UnitBracket(0.0, 0.0)
    assert not UnitBracket(1.0, 0.9).exact
    assert UnitBracket(1.0, 1.0).exact
