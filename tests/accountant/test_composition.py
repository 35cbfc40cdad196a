"""DP costs add; leakages do not."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import quiltdp as qd
from quiltdp.accountant.composition import compose, compose_gaussian
from quiltdp.accountant.leakage import analyze
from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms import gaussian_delta

# One person in a hundred with x = 1 raises a flag, and three other records copy the flag.
COPY = [[1.0, 0.0], [0.0, 1.0]]
RARE_FLAG = qd.Model.from_tables(
    {
        "x": ([], [0.5, 0.5]),
        "flag": (["x"], [[1.0, 0.0], [0.99, 0.01]]),
        "copy1": (["flag"], COPY),
        "copy2": (["flag"], COPY),
        "copy3": (["flag"], COPY),
    }
)


@given(st.lists(st.floats(0, 1e6), max_size=30))
def test_costs_add_and_round_up(costs: list[float]) -> None:
    exact = sum(map(Fraction, costs), Fraction(0))
    found = compose(costs)
    assert isinstance(found, float)
    assert exact <= Fraction(found) <= exact * (1 + Fraction(1, 2**50)) + Fraction(5e-324)


def test_a_count_equals_a_list() -> None:
    assert compose([0.1] * 10) == math.nextafter(1.0, 2.0)  # 0.1 is a little more than a tenth
    assert compose([]) == 0.0


def test_mappings_and_numbers_together() -> None:
    assert compose([{"a": 0.25, "b": 0.0}, 0.5, {"b": 1.0, "a": 0.25}]) == {"a": 1.0, "b": 1.5}


@pytest.mark.parametrize("adversary", ["informed", "prior"])
def test_leakages_do_not_add(adversary: str) -> None:
    profile = analyze(RARE_FLAG, adversary=adversary)
    once, twice = (profile.leakage(a).per_record["x"] for a in (1.0, 2.0))
    for alpha, found in ((1.0, once), (2.0, twice)):
        exact = alpha + math.log(0.99 + 0.01 * math.exp(4 * alpha))
        assert found == pytest.approx(exact, rel=1e-9)
        assert found >= exact
    assert (round(once, 2), round(twice, 2)) == (1.43, 5.43)
    assert 2 * once < twice  # converting each release and adding would promise 2.86


def test_two_real_releases_leak_more_than_the_sum_of_both() -> None:
    """The worst mechanism is a real one: h(y | x) grows with every flag, twice independently."""

    def likelihood(x: int, flags: int, alpha: float) -> float:
        return math.exp(-alpha * ((1 - x) + (4 - flags)))  # of one output y; α-DP in each record

    def leak(alpha: float) -> float:
        one = 0.99 * likelihood(1, 0, alpha) + 0.01 * likelihood(1, 4, alpha)
        return math.log(one / likelihood(0, 0, alpha))

    assert leak(2.0) == pytest.approx(qd.leakage(RARE_FLAG, 2.0).per_record["x"], rel=1e-9)
    assert leak(2.0) > 2 * leak(1.0) + 2.5


@pytest.mark.parametrize(
    ("costs", "culprit"),
    [
        ([qd.leakage(RARE_FLAG, 0.1)], "leakages do not add"),
        ([0.1, qd.leakage(RARE_FLAG, 0.1)], "leakages do not add"),
        (qd.leakage(RARE_FLAG, 0.1), "list"),
        ([qd.calibrate(RARE_FLAG, 1.0, qd.Laplace(1.0), compare=False)], "dp_epsilon"),
        ([-0.1], "cost 0"),
        ([0.1, math.inf], "cost 1"),
        ([math.nan], "cost 0"),
        (["x"], "'x'"),
        ("12", "list"),
        (0.5, "list"),
        (None, "list"),
        ([{"a": 1.0}, {"b": 1.0}], "'a'"),
        ([{"a": -1.0}], "'a'"),
    ],
)
def test_what_does_not_add_is_refused(costs: Any, culprit: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        compose(costs)
    assert culprit in str(refused.value)
    assert "\n" not in str(refused.value)


@given(st.lists(st.tuples(st.floats(0.01, 100.0), st.floats(0.01, 100.0)), min_size=1, max_size=8))
def test_gaussian_releases_compose_to_one(releases: list[tuple[float, float]]) -> None:
    std = compose_gaussian(releases)
    shift = math.sqrt(sum((d / s) ** 2 for d, s in releases))
    assert 1 / std == pytest.approx(shift, rel=1e-12)
    assert 1 / std >= shift * (1 - 1e-15)


def test_two_gaussian_releases_by_integration() -> None:
    """δ of two releases, integrated on the plane, is δ of the one they compose to."""
    grid = np.linspace(-14.0, 15.0, 1401)
    normal = np.exp(-0.5 * grid**2) / math.sqrt(2 * math.pi)
    shifted = [
        np.exp(-0.5 * (grid - d / s) ** 2) / math.sqrt(2 * math.pi) for d, s in [(1.0, 2.0), (3.0, 4.0)]
    ]
    q, p = np.outer(normal, normal), np.outer(*shifted)
    cell = (grid[1] - grid[0]) ** 2
    std = compose_gaussian([(1.0, 2.0), (3.0, 4.0)])
    for epsilon in (0.0, 0.5, 1.5):
        integral = float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum() * cell)
        assert gaussian_delta(epsilon, 1 / std) == pytest.approx(integral, rel=1e-3)


@pytest.mark.parametrize("releases", [[], [(0.0, 1.0)], [(1.0, 0.0)], [(1.0, math.nan)], [(-1.0, 1.0)]])
def test_bad_gaussian_releases_are_refused(releases: list[tuple[float, float]]) -> None:
    with pytest.raises(InvalidArgument):
        compose_gaussian(releases)
