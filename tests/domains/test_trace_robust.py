"""Confidence regions, robust families and queries of location traces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiltdp.domains.trace import (
    Steps,
    discretise,
    estimate_transitions,
    location_study,
    time_per_cell,
    top_places,
    transition_region,
    visits_per_cell,
    whole_traces,
)
from quiltdp.domains.trace.estimate import row_intervals
from quiltdp.domains.trace.points import Points
from quiltdp.domains.trace.queries import rank_cells, release_cells
from quiltdp.domains.trace.robust import RegionBound, robust_models, worst_case_dp_epsilon, worst_case_leakage
from quiltdp.errors import InvalidArgument

LOCATION = Path(__file__).parents[2] / "models" / "location"
P = np.array([[0.7, 0.2, 0.1], [0.3, 0.4, 0.3], [0.2, 0.3, 0.5]])


def simulate(rng: np.random.Generator, p: np.ndarray, length: int) -> list[int]:
    cell = [0]
    for _ in range(length - 1):
        cell.append(int(rng.choice(len(p), p=p[cell[-1]])))
    return cell


def points_of(cells: list[int]) -> Points:
    n = len(cells)
    return Points(("a",), [0] * n, [300.0 * k for k in range(n)], [47 + 0.01 * c for c in cells], [9.0] * n)


def steps_of(cells: list[int]) -> Steps:
    return discretise(points_of(cells), "100m", "5min")


# -- the region ------------------------------------------------------------------------------


def test_intervals_match_their_definition() -> None:
    from scipy.special import betaln

    level = np.log(20)
    low, high = row_intervals(np.array([7]), np.array([20]), level)
    for p in (low[0], high[0]):
        mixture = betaln(7.5, 13.5) - betaln(0.5, 0.5) - 7 * np.log(p) - 13 * np.log1p(-p)
        assert mixture == pytest.approx(level, abs=1e-6)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 200), st.integers(0, 200), st.floats(0.5, 30))
def test_intervals_hold_the_estimate_and_are_wider_than_classical_ones(a: int, b: int, level: float) -> None:
    from scipy.stats import binomtest

    low, high = row_intervals(np.array([a]), np.array([a + b]), level)
    assert 0 <= low[0] <= high[0] <= 1
    if a + b:
        assert low[0] <= a / (a + b) <= high[0]
        exact = binomtest(a, a + b).proportion_ci(1 - np.exp(-level), "exact")
        assert low[0] <= exact.low + 0.02
        assert high[0] >= exact.high - 0.02
    else:
        assert (low[0], high[0]) == (0, 1)
    assert (a == 0) == (low[0] == 0)


def test_coverage_at_a_random_time() -> None:
    """Stop a coin when it looks worst: the interval must hold all the same (5 % level)."""
    rng = np.random.default_rng(5)
    missed = 0
    for _ in range(100):
        toss = np.cumsum(rng.random(400) < 0.3)
        low, high = row_intervals(toss, np.arange(1, 401), np.log(20))
        missed += bool(((low > 0.3) | (high < 0.3)).any())
    assert missed <= 100 * 0.05


def test_region_holds_the_truth() -> None:
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(60):
        cells = simulate(rng, P, 400)
        counts = np.zeros((3, 3), dtype=int)
        np.add.at(counts, (cells[:-1], cells[1:]), 1)
        region = transition_region(counts, 0.9)
        assert estimate_transitions(counts).matrix in region
        inside += P in region
    assert inside >= 54
    with pytest.raises(InvalidArgument, match="confidence"):
        transition_region(counts, 1.0)


def test_all_entries_hold_together() -> None:
    """The level is shared by all K² entries; a row without moves is unknown."""
    counts = np.array([[5, 2, 0], [1, 3, 2], [0, 0, 0]])
    region = transition_region(counts, 0.9)
    low, high = row_intervals(counts, counts.sum(1, keepdims=True), np.log(9 / 0.1))
    assert np.allclose(region.lower, low)
    assert np.allclose(region.upper, high)
    assert region.lower[2].tolist() == [0, 0, 0]
    assert region.upper[2].tolist() == [1, 1, 1]


def test_region_bound_is_above_the_truth_and_tightens_with_data() -> None:
    from quiltdp import markov_chain
    from quiltdp.accountant.bounds.chain import ChainBound
    from quiltdp.accountant.bounds.contract import ready

    found = []
    for length in (300, 3000):
        steps = steps_of(simulate(np.random.default_rng(2), P, length))
        bound = RegionBound(steps, 0.95, max_distance=24)
        order = np.argsort(steps.cells.lat)
        assert P[np.ix_(np.argsort(order), np.argsort(order))] in bound.region
        truth = ready(ChainBound, markov_chain(P, length=length)).evaluate(np.full(length, 0.02)).values.max()
        found.append(bound.leakage(0.02) / truth)
    assert found[0] > found[1] >= 1
    alpha = bound.dp_epsilon(1.0)
    assert bound.leakage(alpha) <= 1.0 < bound.leakage(alpha * 1.001)
    assert RegionBound(steps, 0.95, window=5, max_distance=24).leakage(0.02) > bound.leakage(0.02)


def test_region_of_a_short_trace_is_group_privacy() -> None:
    steps = location_study(LOCATION / "trackintel_google_trajectory.csv", "500m", "5min").steps
    bound = RegionBound(steps)
    assert bound.dp_epsilon(1.0) == pytest.approx(1 / steps.total, rel=1e-6)
    assert np.isinf(bound.spreads).all()
    for bad in (0.0, -1.0, float("inf")):
        with pytest.raises(InvalidArgument, match="epsilon"):
            bound.dp_epsilon(bad)
    with pytest.raises(InvalidArgument, match="dp_epsilon"):
        bound.leakage(float("nan"))


def test_one_cell_has_no_secret() -> None:
    points = Points(("a",), [0] * 3, [0, 300, 600], [47.0] * 3, [9.0] * 3)
    bound = RegionBound(discretise(points, "1km", "5min"))
    assert bound.spreads == (0.0,)
    assert bound.leakage(0.3) == pytest.approx(0.3)


# -- the family ------------------------------------------------------------------------------


def test_family_shares_everything_but_the_matrix() -> None:
    steps = steps_of(simulate(np.random.default_rng(3), P, 200))
    models = robust_models(steps)
    assert [m.provenance["estimator"] for m in models] == ["mle", "additive:0.1", "additive:1", "reversible"]
    assert len({tuple(m.nodes) for m in models}) == 1
    assert all(m.provenance["robust_family"] == "mle, additive:0.1, additive:1, reversible" for m in models)


def test_worst_case_over_a_family() -> None:
    import quiltdp as qd

    steps = steps_of(simulate(np.random.default_rng(3), P, 60))
    models = robust_models(steps)
    worst = worst_case_leakage(models, 0.1, method="chain")
    each = [qd.leakage(m, 0.1, method="chain").epsilon for m in models]
    assert worst.by_model == pytest.approx(each)
    assert worst.value == max(each)
    assert worst.model is models[int(np.argmax(each))]
    cost = worst_case_dp_epsilon(models, 1.0, method="chain")
    assert all(qd.leakage(m, cost.value, method="chain").epsilon <= 1.0 for m in models)
    assert cost.value == min(cost.by_model)
    for function in (worst_case_leakage, worst_case_dp_epsilon):
        with pytest.raises(InvalidArgument, match="empty"):
            function([], 1.0)


def test_whole_trace_protection_costs_every_step() -> None:
    import quiltdp as qd

    points = Points(
        ("a", "b"), [0] * 4 + [1] * 3, [0, 300, 9000, 9300, 0, 300, 600], [47, 47.01] * 3 + [47], [9] * 7
    )
    model = qd.location_chain(points, "100m", "5min")
    units = whole_traces(model)
    assert {u: len(n) for u, n in units.items()} == {"a": 4, "b": 3}
    leak = qd.leakage(model, 0.1, protect=units)
    assert leak.epsilon == pytest.approx(0.4)
    assert leak.binding.unit == "a"


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([0, 0, 0, 0], 0.0),  # one cell: a record has nothing to hide
        ([0, 1, 0, 1], 4.0),  # period 2: one step tells all
        ([0, 1, 2, 2], None),  # absorbing
        ([0, 0, 1, 1], None),  # reducible
    ],
)
def test_chains_that_are_not_well_behaved(cells: list[int], expected: float | None) -> None:
    """Compared with the exact limit over all mechanisms and adversaries, in units of α."""
    import quiltdp as qd

    model = qd.location_chain(points_of(cells), "100m", "5min")
    alpha = 0.2
    exact = qd.leakage(model, alpha, method="exact").epsilon
    for method in ("auto", "chain", "propagation"):
        found = qd.leakage(model, alpha, method=method).epsilon
        assert exact * (1 - 1e-9) <= found <= len(cells) * alpha * (1 + 1e-9)
    if expected is not None:
        assert exact <= max(expected, 1.0) * alpha * (1 + 1e-6)
        assert exact >= (expected - 1e-6) * alpha


def test_estimators_that_do_not_exist_are_left_out_openly() -> None:
    steps = location_study(LOCATION / "trackintel_google_trajectory.csv", "500m", "5min").steps
    models = robust_models(steps)
    assert len(models) == 3
    assert all(any("reversible left out" in n for n in m.notes) for m in models)
    with pytest.raises(InvalidArgument, match="no estimator exists"):
        robust_models(steps, ["reversible"])


# -- queries ---------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=3, max_size=12), st.data())
def test_sensitivities_bound_every_change_of_one_step(cells: list[int], data: st.DataObject) -> None:
    fixed = [0, 1, 2, 3, *cells]  # every cell is there before and after
    changed = list(fixed)
    changed[data.draw(st.integers(4, len(fixed) - 1))] = data.draw(st.integers(0, 3))
    for query in (visits_per_cell, time_per_cell):
        a, b = query(steps_of(fixed)), query(steps_of(changed))
        move = np.abs(a.values - b.values)
        assert move.sum() <= a.sensitivity
        assert np.sqrt((move**2).sum()) <= a.sensitivity_l2
        assert move.max() <= a.sensitivity_one


def test_values_of_the_queries() -> None:
    steps = steps_of([0, 0, 0, 1, 2, 0])
    visits, hours = visits_per_cell(steps), time_per_cell(steps, "min")
    assert sorted(visits.values.tolist()) == [1, 1, 4]
    assert (hours.values == visits.values * 5).all()
    assert (visits.sensitivity, hours.sensitivity) == (2.0, 10.0)
    with pytest.raises(InvalidArgument, match="unit must be"):
        time_per_cell(steps, "days")
    with pytest.raises(InvalidArgument, match="k must lie between"):
        top_places(visits, 4, 1.0)
    assert rank_cells(("b", "a", "c"), np.array([1.0, 1.0, 2.0])) == ("c", "a", "b")


def test_unseen_steps_cost_the_query_nothing() -> None:
    points = Points(("a",), [0] * 3, [0, 300, 900], [47.0, 47.01, 47.01], [9.0] * 3)
    steps = discretise(points, "100m", "5min")
    costs = visits_per_cell(steps).per_record(steps)
    assert costs == {"a/0/0": 2.0, "a/0/1": 2.0, "a/0/2": 0.0, "a/0/3": 2.0}


def test_noisy_release_is_near_and_ranks() -> None:
    noise = pytest.importorskip("quiltdp.mechanisms.noise").InsecureDeterministicNoise
    steps = steps_of([0] * 60 + [1, 2] * 5)
    query = visits_per_cell(steps)
    noisy = release_cells(query, 1.0, noise=noise(1))
    assert np.abs(noisy - query.values).max() < 15
    assert (noisy != query.values).any()
    best = steps.cells.names[int(np.argmax(query.values))]
    assert top_places(query, 1, 1.0, noise=noise(2)) == (best,)
    assert len(release_cells(query, 1.0)) == 3
