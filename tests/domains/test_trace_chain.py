"""Cells, steps, estimates and diagnostics of location traces."""

from __future__ import annotations

import csv
import os
from itertools import pairwise
from pathlib import Path

import h3
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from quiltdp import location_chain
from quiltdp.domains.trace import (
    Estimator,
    Points,
    assign_cells,
    chain_from_steps,
    check_points,
    diagnose,
    discretise,
    estimate_transitions,
    location_study,
    read_points,
)
from quiltdp.domains.trace.cells import MOVING, find_stays
from quiltdp.domains.trace.estimate import gap_by_estimator, parse_estimator, period_of_class, spectral_gap
from quiltdp.domains.trace.steps import UNSEEN
from quiltdp.domains.trace.times import parse_duration, parse_length
from quiltdp.errors import DependencyMissing, InvalidArgument, InvalidModel

ROOT = Path(__file__).parents[2]
LOCATION = ROOT / "models" / "location"
SHARED = Path(os.environ.get("QUILTDP_SHARED", ROOT.parent / "shared")) / "data"
GOOGLE = LOCATION / "trackintel_google_trajectory.csv"


def walk(cells: list[int | None], interval: float = 300.0, users: list[int] | None = None) -> Points:
    """Return points one kilometre apart per cell number, one per step; None is a step without a point."""
    seen = [k for k, c in enumerate(cells) if c is not None]
    who = [users[k] for k in seen] if users else [0] * len(seen)
    lat = [47.0 + 0.01 * float(cells[k] or 0) for k in seen]
    return Points(
        tuple("abcdef"[: max(who) + 1]), who, [interval * k + 1.0 for k in seen], lat, [9.0] * len(seen)
    )


# -- units -----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "m", "-5m", "5 miles", "0m", "nan", "5ms", "1e3m"])
def test_lengths_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="cell"):
        parse_length(text)


@pytest.mark.parametrize("text", ["", "5", "0", "5ms", "5km", "-1h"])
def test_durations(text: str) -> None:
    if text == "5":
        assert parse_duration(text) == 5.0
    else:
        with pytest.raises(InvalidArgument, match="interval"):
            parse_duration(text)
    assert parse_duration("2 hours") == 7200.0


# -- cells -----------------------------------------------------------------------------------


def test_square_cells_are_square_and_hold_their_points() -> None:
    from pyproj import Geod

    points = check_points(read_points(GOOGLE))
    cells = assign_cells(points, "500m")
    assert cells.system == "square 500 m, EPSG:32632"
    geod = Geod(ellps="WGS84")
    for k, ring in enumerate(cells.outlines):
        for (a, b), (c, d) in pairwise([*ring, ring[0]]):
            assert geod.inv(b, a, d, c)[2] == pytest.approx(500, rel=2e-3)
        mine = cells.of_point == k
        away = geod.inv(
            np.full(mine.sum(), cells.lon[k]),
            np.full(mine.sum(), cells.lat[k]),
            points.lon[mine],
            points.lat[mine],
        )[2]
        assert np.max(away) <= 250 * 2**0.5 * 1.002


def test_the_same_place_has_the_same_name_in_every_file() -> None:
    one = check_points(read_points(GOOGLE))
    two = check_points(read_points(LOCATION / "trackintel_gpsies_trajectory.csv"))
    named = [dict(zip(c.names, c.lat, strict=True)) for c in (assign_cells(p, "1km") for p in (one, two))]
    shared = set(named[0]) & set(named[1])
    assert shared
    assert all(named[0][n] == pytest.approx(named[1][n]) for n in shared)


def test_h3_cells_equal_the_library() -> None:
    points = check_points(read_points(GOOGLE))
    for resolution in (5, 7, 9):
        cells = assign_cells(points, f"h3:{resolution}")
        expected = [h3.latlng_to_cell(a, b, resolution) for a, b in zip(points.lat, points.lon, strict=True)]
        assert [cells.names[k] for k in cells.of_point] == expected
    assert assign_cells(points, "h3r7").system == "H3 resolution 7"
    assert assign_cells(points, "grid500m").system == assign_cells(points, "500m").system


def test_far_flung_points_get_an_equal_area_plane() -> None:
    cells = assign_cells(
        check_points(read_points(LOCATION / "movingpandas_movingfeatures_collection.json")), "200km"
    )
    assert "+proj=laea" in cells.system
    assert "equal-area" in cells.notes[0]


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("h3:16", "resolutions 0 to 15"),
        ("hexagon", "not a length"),
        ("0m", "positive"),
        ("3 miles", "a length"),
    ],
)
def test_cells_refused(cell: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        assign_cells(walk([0, 1]), cell)


def test_grid_crs_must_be_a_plane() -> None:
    assert assign_cells(walk([0, 1]), "500m", crs="EPSG:3035").system.endswith("EPSG:3035")
    with pytest.raises(InvalidArgument, match="measures degrees"):
        assign_cells(walk([0, 1]), "500m", crs="EPSG:4326")
    with pytest.raises(InvalidArgument, match="not a coordinate system"):
        assign_cells(walk([0, 1]), "500m", crs="nowhere")


def test_missing_libraries_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for library, cell in (("h3", "h3:7"), ("pyproj", "500m")):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, library, None)
            with pytest.raises(DependencyMissing, match=r"quiltdp\[geo\]"):
                assign_cells(walk([0, 1]), cell)


def test_stays_need_time_and_no_gap() -> None:
    t = np.array([0, 60, 120, 180, 2000, 2060, 2120.0])
    x = np.zeros(7)
    assert find_stays(x, x, t, distance=50, duration=120, gap=900).tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert find_stays(x, x, t, distance=50, duration=200, gap=900).tolist() == [-1] * 7
    assert find_stays(x, x, t, distance=50, duration=200, gap=1e9).tolist() == [0] * 7


@pytest.mark.parametrize(
    ("name", "limits", "stays", "points"),
    [
        ("trackintel_google_trajectory.csv", (100, 300), 22, 328),
        ("trackintel_google_trajectory.csv", (200, 600), 13, None),
        ("trackintel_google_trajectory.csv", (50, 180), 45, None),
        ("trackintel_gpsies_trajectory.csv", (100, 300), 1, 34),
    ],
)
def test_stays_equal_trackintel(name: str, limits: tuple[int, int], stays: int, points: int | None) -> None:
    """Numbers printed by trackintel's generate_staypoints (gap 15 min, include_last) on its own files."""
    from quiltdp.domains.trace.cells import projection_for

    read = check_points(read_points(LOCATION / name))
    x, y = projection_for(read, None)[1].transform(read.lon, read.lat)
    found = find_stays(x, y, read.time, distance=limits[0], duration=limits[1], gap=900)
    assert found.max() + 1 == stays
    if points is not None:
        assert (found >= 0).sum() == points


def test_stay_cells_join_visits_to_one_place() -> None:
    there_and_back = [0] * 4 + [5, 10, 15] + [20] * 4 + [15, 10, 5] + [0] * 4
    cells = assign_cells(walk(list(there_and_back)), "stay", stay_time="10min")
    assert cells.names == ("place1", "place2", MOVING)
    assert [cells.names[k] for k in cells.of_point[[0, 5, 8, 17]]] == ["place1", MOVING, "place2", "place1"]
    with pytest.raises(InvalidArgument, match="nobody stayed"):
        assign_cells(walk([0, 1, 2, 3]), "stay", stay_time="10min")


# -- steps -----------------------------------------------------------------------------------


def states(points: Points, **options: object) -> list[list[int]]:
    return [s.cells.tolist() for s in discretise(points, "100m", "5min", **options).stretches]  # type: ignore[arg-type]


def test_short_gaps_stay_unseen_and_long_ones_split() -> None:
    points = walk([0, 1, None, 1, None, None, None, 0, 0])
    assert states(points) == [[0, 1, UNSEEN, 1], [0, 0]]
    assert states(points, max_gap="none") == [[0, 1, UNSEEN, 1, UNSEEN, UNSEEN, UNSEEN, 0, 0]]
    steps = discretise(points, "100m", "5min")
    assert steps.counts().tolist() == [[1, 1], [0, 0]], "no move across a gap is counted"
    assert any("1 of 6 steps have no point: kept" in n for n in steps.notes)
    assert any("1 gap longer than 15 min split the trace" in n and "independent" in n for n in steps.notes)
    assert (steps.total, steps.seen, steps.visits().tolist()) == (6, 5, [3, 2])


def test_users_are_separate_chains() -> None:
    points = walk([0, 1, 0, 1, 1, 1], users=[0, 0, 0, 1, 1, 1])
    model = location_chain(points, "100m", "5min")
    assert [s.prefix for s in model.segments] == ["a/0/", "b/0/"]
    assert list(model.nodes) == ["a/0/0", "a/0/1", "a/0/2", "b/0/0", "b/0/1", "b/0/2"]
    assert model.segments[0].transitions[0] is model.segments[1].transitions[0]


def test_users_with_awkward_names_make_valid_nodes() -> None:
    points = Points(("7", "7/0"), [0, 0, 1, 1], [0, 300, 0, 300], [47, 47.1, 47, 47.1], [9] * 4)
    model = location_chain(points, "1km", "5min", max_speed=None)
    assert len(set(model.nodes)) == 4


@pytest.mark.parametrize(("pick", "cell"), [("first", 0), ("last", 2), ("most", 1)])
def test_which_point_stands_for_a_step(pick: str, cell: int) -> None:
    lat = [47.0, 47.01, 47.01, 47.02, 47.0]
    points = Points(("a",), [0] * 5, [0, 60, 120, 180, 300], lat, [9.0] * 5)
    steps = discretise(points, "100m", "5min", pick=pick)  # type: ignore[arg-type]
    place = round((steps.cells.lat[steps.stretches[0].cells[0]] - 47.0) / 0.01)
    assert place == cell
    assert steps.provenance["pick"] == pick


def test_intervals_that_cannot_work() -> None:
    toy = LOCATION / "skmob_privacy_toy.csv"
    with pytest.raises(InvalidArgument, match="typical time between points is 1 h: choose a longer interval"):
        location_chain(toy)
    with pytest.raises(InvalidArgument, match="choose a shorter interval"):
        location_chain(LOCATION / "movingpandas_304_to_UL.gpx", interval="1d")
    with pytest.raises(InvalidArgument, match="shorter than the interval"):
        location_chain(toy, interval="1h", max_gap="5min")
    with pytest.raises(InvalidArgument, match="pick must be"):
        location_chain(toy, interval="1h", pick="middle")


def test_a_stretch_has_a_longest_length() -> None:
    points = Points(("a",), [0] * 3, [0.0, 1.0, 2e9], [47.0] * 3, [9.0] * 3)
    with pytest.raises(InvalidArgument, match="2000000001 steps is too long"):
        discretise(points, "1km", "1s", max_gap="none")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.integers(0, 4)), min_size=2, max_size=40),
    st.sampled_from(["15min", "20min", "none"]),
)
def test_counts_equal_a_plain_loop(cells: list[int | None], max_gap: str) -> None:
    assume(any(c is not None for c in cells))
    moves = [(a, b) for a, b in pairwise(cells) if a is not None and b is not None]
    points = walk(cells)
    if not moves:
        with pytest.raises(InvalidArgument):
            discretise(points, "100m", "5min", max_gap=max_gap)
        return
    steps = discretise(points, "100m", "5min", max_gap=max_gap)
    used = sorted({c for c in cells if c is not None})
    expected = np.zeros((len(used), len(used)), dtype=int)
    for a, b in moves:
        expected[used.index(a), used.index(b)] += 1
    order = np.argsort(steps.cells.lat)  # cells are named by their place
    assert (steps.counts()[np.ix_(order, order)] == expected).all()
    assert steps.seen == sum(c is not None for c in cells)
    for s in steps.stretches:
        assert s.cells[0] != UNSEEN
        assert s.cells[-1] != UNSEEN


# -- estimates -------------------------------------------------------------------------------

COUNTS = np.array([[5, 2, 0], [1, 3, 2], [2, 1, 4]])


def test_maximum_likelihood_and_smoothing() -> None:
    assert np.allclose(estimate_transitions(COUNTS).matrix, COUNTS / COUNTS.sum(1, keepdims=True))
    smooth = estimate_transitions(COUNTS, "additive:0.5")
    assert np.allclose(smooth.matrix, (COUNTS + 0.5) / (COUNTS.sum(1, keepdims=True) + 1.5))
    assert "memory look shorter" in smooth.notes[0]
    assert estimate_transitions(COUNTS).notes == ()


def test_reversible_is_the_best_reversible_matrix() -> None:
    from scipy.optimize import minimize

    matrix = estimate_transitions(COUNTS, "reversible").matrix
    values, vectors = np.linalg.eig(matrix.T)
    pi = np.real(vectors[:, np.argmax(values.real)])
    flow = (pi / pi.sum())[:, None] * matrix
    assert np.allclose(flow, flow.T, atol=1e-10)

    def loss(free: np.ndarray) -> float:
        x = np.zeros((3, 3))
        x[np.triu_indices(3)] = np.exp(free)
        x = x + np.triu(x, 1).T
        return -float((COUNTS * np.log(x / x.sum(1, keepdims=True))).sum())

    best = min(minimize(loss, np.random.default_rng(k).normal(size=6), method="BFGS").fun for k in range(3))
    ours = -float((COUNTS * np.log(np.maximum(matrix, 1e-300))).sum())
    assert ours <= best + 1e-6


def test_reversible_refused_where_it_does_not_exist() -> None:
    with pytest.raises(InvalidModel, match=r"2 classes .*\(reversible:0\.1\)"):
        estimate_transitions(np.array([[1, 1], [0, 1]]), "reversible")
    assert estimate_transitions(np.array([[1, 1], [0, 1]]), "reversible:0.1").matrix.min() > 0


def test_dead_ends_absorb_and_are_named() -> None:
    made = estimate_transitions(np.array([[1, 2], [0, 0]]))
    assert made.matrix[1].tolist() == [0, 1]
    assert made.dead_ends == (1,)
    assert "1 cell, taken as absorbing, which the data cannot confirm" in made.notes[0]
    assert (
        "smoothing alone decides" in estimate_transitions(np.array([[1, 2], [0, 0]]), "additive:1").notes[1]
    )


@pytest.mark.parametrize("text", ["additive", "mle:1", "additive:0", "bayes", "additive:-1", "additive:x"])
def test_estimators_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_estimator(text)


def test_estimator_and_smoothing_together() -> None:
    assert parse_estimator("additive", 0.2) == Estimator("additive", 0.2)
    with pytest.raises(InvalidArgument, match="contradict"):
        parse_estimator("additive:1", 0.2)
    with pytest.raises(InvalidModel, match="square"):
        estimate_transitions(np.zeros((2, 3), dtype=int))


# -- diagnostics -----------------------------------------------------------------------------


def test_diagnostics_of_known_chains() -> None:
    cycle = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    facts = diagnose(cycle, cycle.astype(float))
    assert (facts.period, facts.classes, facts.gap, facts.zero_fraction) == (3, 1, 0.0, pytest.approx(2 / 3))
    assert any("period 3" in w for w in facts.warnings())
    two = np.eye(2, dtype=int)
    facts = diagnose(two, two.astype(float))
    assert (facts.closed_classes, facts.absorbing_states, facts.gap) == (2, 2, 0.0)
    assert any("2 closed classes" in w for w in facts.warnings())
    one = diagnose(np.array([[4]]), np.array([[1.0]]))
    assert (one.gap, one.period, one.dead_ends) == (1.0, 1, 0)
    assert "one cell only" in one.warnings()[0]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_period_equals_return_times(size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = (rng.random((size, size)) < 0.3).astype(int)
    graph[np.arange(size), (np.arange(size) + 1) % size] = 1  # one class
    returns = [d for d in range(1, 60) if np.linalg.matrix_power(graph.astype(object), d)[0, 0] > 0]
    assert period_of_class(graph) == np.gcd.reduce(returns)


def test_memory_at_a_split_is_reported() -> None:
    study = location_study(walk([0, 1, 0, 1, None, None, None, 0, 1, 1, 0]), "100m", "5min")
    p = np.linalg.matrix_power(study.estimate.matrix, 4)
    assert study.diagnostics.memory_after == pytest.approx(np.abs(p[0] - p[1]).sum() / 2)


def test_stats_conventions_hold_on_every_row() -> None:
    """The table of a larger GeoLife extract, whose points are not available: its columns must cohere."""
    path = SHARED / "location_chain_stats.csv"
    if not path.is_file():
        pytest.skip("shared data not available")
    for row in csv.DictReader(path.open()):
        size, zeros = int(row["states"]), float(row["zero_frac"])
        pairs = (1 - zeros) * size * size
        assert abs(pairs - round(pairs)) <= 0.0005 * size * size + 1e-9
        assert int(row["scc_states"]) + int(row["sccs"]) - 1 <= size
        if row["sccs"] == "1":
            assert row["scc_a1"] == row["full_a1"], "one class: both gaps are of one matrix"


def stats_columns(path: Path, cell: str, interval: str) -> dict[str, float]:
    """Return the columns of location_chain_stats.csv for a trace."""
    steps = location_study(path, cell, interval).steps
    counts = steps.counts()
    plain = diagnose(counts, estimate_transitions(counts).matrix)
    gaps = gap_by_estimator(counts)
    return {
        "states": plain.states,
        "transitions": plain.transitions,
        "zero_frac": round(plain.zero_fraction, 3),
        "dead_rows": plain.dead_ends,
        "sccs": plain.classes,
        "scc_states": plain.largest_class,
        "scc_mle": gaps["mle"][0],
        "scc_a0_1": gaps["additive:0.1"][0],
        "scc_a1": gaps["additive:1"][0],
        "full_a0_1": gaps["additive:0.1"][1],
        "full_a1": gaps["additive:1"][1],
    }


def test_stats_columns_against_networkx() -> None:
    import networkx as nx

    steps = location_study(GOOGLE, "500m", "5min").steps
    line = steps.stretches[0].cells.tolist()
    moves = list(pairwise(line))
    graph = nx.DiGraph(moves)
    graph.add_nodes_from(line)
    classes = sorted(map(len, nx.strongly_connected_components(graph)))
    found = stats_columns(GOOGLE, "500m", "5min")
    assert found["states"] == len(set(line))
    assert found["transitions"] == len(moves) == 116
    assert found["zero_frac"] == round(1 - len(set(moves)) / len(set(line)) ** 2, 3)
    assert found["dead_rows"] == sum(graph.out_degree(n) == 0 for n in graph)
    assert (found["sccs"], found["scc_states"]) == (len(classes), classes[-1])
    largest = max(nx.strongly_connected_components(graph), key=len)
    inside = sorted(largest)
    counts = np.array([[moves.count((a, b)) for b in inside] for a in inside], dtype=float)
    every = sorted(set(line))
    full = np.array([[moves.count((a, b)) for b in every] for a in every], dtype=float)
    for a, name in ((0.1, "full_a0_1"), (1.0, "full_a1")):
        p = (full + a) / (full + a).sum(1, keepdims=True)
        assert found[name] == pytest.approx(1 - sorted(abs(np.linalg.eigvals(p)))[-2], abs=1e-9)
    for a, name in ((0.0, "scc_mle"), (0.1, "scc_a0_1"), (1.0, "scc_a1")):
        p = (counts + a) / (counts + a).sum(1, keepdims=True)
        assert found[name] == pytest.approx(1 - sorted(abs(np.linalg.eigvals(p)))[-2], abs=1e-9)


# -- the model -------------------------------------------------------------------------------


def test_choices_are_in_provenance_and_notes() -> None:
    model = location_chain(GOOGLE, "1km", "10min", "additive:0.1", initial="uniform")
    p = model.provenance
    assert (p["estimator"], p["smoothing"], p["initial"]) == ("additive:0.1", "0.1", "uniform")
    assert (p["cells"], p["interval"]) == ("square 1000 m, EPSG:32632", "10 min")
    assert any("smoothed: 0.1 added" in n for n in model.notes)
    assert any("sorted by time" in n for n in model.notes)


def test_initial_laws() -> None:
    points = walk([2, 0, 1, 0, 1, 1, 0])
    steps = discretise(points, "100m", "5min")
    occupancy = chain_from_steps(steps).segments[0].initial
    assert occupancy.tolist() == pytest.approx((steps.visits() / 7).tolist())
    stationary = chain_from_steps(steps, initial="stationary")
    assert stationary.segments[0].initial.min() == 0.0
    assert any("1 visited cells probability 0" in n for n in stationary.notes)
    with pytest.raises(InvalidArgument, match="initial must be"):
        chain_from_steps(steps, initial="best")
    assert chain_from_steps(steps, initial=[0.2, 0.3, 0.5]).provenance["initial"] == "given"


def test_too_many_cells_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="13 cells need a 13² transition matrix"):
        location_study(GOOGLE, "500m", "5min", max_states=5)


@pytest.mark.parametrize(
    ("cells", "interval"), [("500m", "1min"), ("h3:7", "10min"), ("stay", "1min"), ("100m", "5min")]
)
@pytest.mark.parametrize("estimator", ["mle", "additive:0.1"])
def test_real_files_make_valid_chains(cells: str, interval: str, estimator: str) -> None:
    for name in ("trackintel_google_trajectory.csv", "trackintel_gpsies_trajectory.csv"):
        study = location_study(LOCATION / name, cells, interval, estimator)
        matrix = study.estimate.matrix
        assert np.allclose(matrix.sum(axis=1), 1)
        assert len(study.model.nodes) == study.steps.total
        assert 0 <= study.diagnostics.gap <= 1
        assert spectral_gap(matrix) == study.diagnostics.gap


@pytest.mark.parametrize(
    ("name", "cell", "interval", "shape"),
    [
        ("movingpandas_304_to_UL.gpx", "500m", "5min", (16, 15, 1)),
        ("movingpandas_movingfeatures_collection.json", "200km", "6h", (36, 23, 2)),
        ("skmob_privacy_toy.csv", "h3:7", "1h", (23, 4, 12)),
        ("trackintel_google_trajectory.csv", "500m", "5min", (117, 13, 1)),
        ("trackintel_gpsies_trajectory.csv", "500m", "5min", (60, 12, 1)),
    ],
)
def test_every_shipped_file_becomes_a_chain(
    name: str, cell: str, interval: str, shape: tuple[int, int, int]
) -> None:
    model = location_chain(LOCATION / name, cell, interval)
    assert (len(model.nodes), len(model.segments[0].initial), len(model.segments)) == shape


@pytest.mark.skipif(not SHARED.is_dir(), reason="tests-only data not available")
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("movingpandas_demodata_geolife.csv", (85, 44, 11)),
        ("trackintel_geolife_000_Trajectory_20081103101336.plt", (2, 1, 1)),
        ("trackintel_geolife_001_Trajectory_20081023055305.plt", (16, 12, 3)),
        ("trackintel_geolife_001_Trajectory_20081024234405.plt", (131, 44, 4)),
        ("trackintel_geolife_trajectory.csv", (33, 14, 4)),
    ],
)
def test_every_geolife_file_becomes_a_chain(name: str, shape: tuple[int, int, int]) -> None:
    model = location_chain(SHARED / "tests-only" / name, "500m", "5min")
    assert (len(model.nodes), len(model.segments[0].initial), len(model.segments)) == shape
