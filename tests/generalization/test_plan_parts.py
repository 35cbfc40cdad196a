"""What the planner is made of: checks, the accountant it asks, its sentences, and the law of a sum."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.accountant.leakage import LeakageProfile
from quiltdp.errors import InvalidArgument
from quiltdp.generalization import _checks
from quiltdp.generalization.plan_result import AccuracyPromise, BudgetPromise
from quiltdp.generalization.plan_search import ProfileAccountant
from quiltdp.generalization.routes import Alternative
from quiltdp.generalization.sum_law import sum_law

STEP = np.array([[0.9, 0.1], [0.3, 0.7]])
CHAIN = qd.markov_chain(STEP, 4, initial=[0.2, 0.8])


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (_checks.count, [1, 7], [0, -1, 1.5, True]),
        (_checks.non_negative, [0.0, math.inf], [-1.0, math.nan]),
        (_checks.positive, [1e-9, 5.0], [0.0, math.inf, math.nan]),
        (_checks.probability, [0.5], [0.0, 1.0, -0.1, math.nan]),
    ],
)
def test_ranges_are_checked_by_name(check, good, bad) -> None:
    for value in good:
        assert check("size", value) == value
    for value in bad:
        with pytest.raises(InvalidArgument, match="size"):
            check("size", value)


def test_rounding_towards_validity() -> None:
    assert _checks.round_down(0.1) < 0.1 < _checks.round_up(0.1)
    assert _checks.round_up(-0.1) > -0.1
    assert _checks.round_up(math.inf) == math.inf
    with pytest.raises(InvalidArgument, match="not a number"):
        _checks.round_up(math.nan)


def test_the_planner_asks_each_question_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    real = LeakageProfile.leakage

    def counted(self, alpha):
        asked.append(alpha)
        return real(self, alpha)

    monkeypatch.setattr(LeakageProfile, "leakage", counted)
    accountant = ProfileAccountant(CHAIN)
    first = accountant.informed(0.2)
    assert np.array_equal(first, accountant.informed(0.2))
    assert len(asked) == 1
    assert np.all(accountant.prior(0.2) <= first * (1 + 1e-9))
    alpha = accountant.dp_epsilon(1.0)
    assert accountant.informed(alpha).max() <= 1.0


def test_promises_read_as_sentences() -> None:
    assert str(AccuracyPromise(0.05, 0.01, "T")) == (
        "every answer is within 0.05 of the population value, with probability at least 0.99"
    )
    assert "nothing is promised" in str(BudgetPromise(None, 0.01, "T", "too few records"))
    assert "off by more than 0.1," in str(BudgetPromise(0.1, 0.01, "T"))
    assert str(Alternative("split", "T", 0.25)) == "split: accuracy 0.25"
    assert str(Alternative("other", "T", None, valid=False, note="no")) == "other: no"


def test_the_law_of_a_sum_by_listing_every_value() -> None:
    weights = {node: (0, 2 * k + 1) for k, node in enumerate(CHAIN.nodes)}
    expected: dict[int, float] = {}
    for x in itertools.product(range(2), repeat=4):
        chance = [0.2, 0.8][x[0]] * math.prod(STEP[a, b] for a, b in itertools.pairwise(x))
        total = sum(weights[n][v] for n, v in zip(CHAIN.nodes, x, strict=True))
        expected[total] = expected.get(total, 0.0) + chance
    law = sum_law(CHAIN, weights)
    found = {int(v): float(c) for v, c in zip(law.values, law.chances, strict=True) if c > 0}
    assert found == pytest.approx(expected)
    mean = sum(v * c for v, c in expected.items())
    assert law.mean == pytest.approx(mean)
    assert law.tail(3.0) == pytest.approx(sum(c for v, c in expected.items() if abs(v - mean) >= 3.0))
    with pytest.raises(InvalidArgument, match="weights are given"):
        sum_law(CHAIN, {CHAIN.nodes[0]: (1,)})
