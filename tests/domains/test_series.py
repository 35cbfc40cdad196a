"""Models from data: quiltdp.domains.series (bins, chain, network, read) and ``quiltdp fit``."""

import json

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.domains.series import find_bins, fit_chain
from quiltdp.domains.series.bins import Bins
from quiltdp.domains.series.network import fit_network
from quiltdp.domains.series.read import read_columns
from quiltdp.domains.series.rows import fit_rows, named_columns
from quiltdp.errors import FileFormatError, InvalidArgument


def sticky(rng, n, stay=0.8, states=2):
    steps = [0]
    for _ in range(n - 1):
        steps.append(steps[-1] if rng.random() < stay else int(rng.integers(states)))
    return steps


def test_quantiles_hold_equal_shares():
    values = np.random.default_rng(1).normal(size=1000).tolist()
    bins = find_bins(values, 5)
    assert np.bincount(bins.states(values)).tolist() == [200] * 5


def test_ties_make_fewer_states_and_none_is_empty():
    values = [0.0] * 90 + [1.0, 2.0, 3.0, 4.0, 5.0] * 2
    bins = find_bins(values, 4)
    assert set(bins.states(values)) == set(range(len(bins.names)))


def test_given_edges_and_texts():
    assert find_bins([1.0, 5.0], edges=[3.0]).states([2.9, 3.0]).tolist() == [0, 1]
    assert find_bins(["b", "a", "b"]) == Bins("texts", (), ("a", "b"))
    with pytest.raises(InvalidArgument, match="none of the states"):
        find_bins(["b", "a"]).states(["c"])


def test_the_matrix_is_the_one_that_was_drawn_from():
    series = sticky(np.random.default_rng(2), 40_000, stay=0.7)
    model = qd.fit_chain(series, states=2)
    assert model.segments[0].transitions[0] == pytest.approx(np.array([[0.85, 0.15], [0.15, 0.85]]), abs=0.01)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_bic_finds_the_order(order):
    rng = np.random.default_rng(order)
    x = [0, 1]
    for _ in range(6000):
        last = {0: 0.5, 1: 0.85 if x[-1] else 0.15, 2: 0.9 if x[-2] else 0.1}[order]
        x.append(int(rng.random() < last))
    found = fit_chain(x, 2).fit
    assert found.order == order
    assert any(f"order {order}" in n for n in found.model.notes) == (order != 1)


def test_a_series_that_changes_is_told():
    rng = np.random.default_rng(3)
    series = sticky(rng, 3000, stay=0.95) + sticky(rng, 3000, stay=0.1)
    assert any("two halves" in n for n in fit_chain(series, 2).notes)


def test_the_region_covers_the_truth_and_asks_for_more_noise():
    """The truth's own α is at least the robust one, in every one of forty draws at 95 %."""
    truth = qd.markov_chain([[0.85, 0.15], [0.15, 0.85]], length=400)
    best = qd.dp_epsilon(truth, 1.0)
    for seed in range(40):
        found = fit_chain(sticky(np.random.default_rng(seed), 400, stay=0.7), 2).fit
        assert found.robust_dp_epsilon(1.0) <= best
        assert [[0.85, 0.15], [0.15, 0.85]] in found.region()


def test_a_network_through_pgmpy_and_with_given_edges():
    rng = np.random.default_rng(4)
    a = rng.integers(0, 2, 3000)
    b = (a + (rng.random(3000) < 0.1)) % 2
    c = rng.integers(0, 2, 3000)
    columns = {"a": [f"v{x}" for x in a], "b": [f"v{x}" for x in b], "c": [f"v{x}" for x in c]}
    learned = fit_network(columns).fit
    assert {frozenset(e) for e in learned.edges} == {frozenset("ab")}
    given = fit_network(columns, edges=[("a", "b")])
    rows = np.array([[np.mean(b[a == x] == y) for y in (0, 1)] for x in (0, 1)])
    assert given.factors[1].table == pytest.approx(rows, abs=2e-3)
    with pytest.raises(InvalidArgument, match="no column 'z'"):
        fit_network(columns, edges=[("z", "b")])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("t,x\n", "no rows"),
        ("t,x\n1,2\n2,\n", ":3: no value in column 'x'"),
        ("t,x\n1,2,3\n", ":2: 3 values"),
        ("t,y\n1,2\n", "there is no column 'x'"),
        ("x,x\n1,2\n", "several columns 'x'"),
    ],
)
def test_a_broken_table_is_told_by_line(tmp_path, text, says):
    path = tmp_path / "a.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FileFormatError, match=says):
        read_columns(path, ["x"])


def test_fit_then_calibrate_from_the_command_line(cli, tmp_path):
    series = sticky(np.random.default_rng(5), 2000)
    data, model = tmp_path / "load.csv", tmp_path / "chain.json"
    data.write_text("hour,load\n" + "".join(f"{k},{v}\n" for k, v in enumerate(series)), encoding="utf-8")
    told = cli("fit", data, "--column", "load", "--states", 2, "-o", model, "--json")
    assert told.code == 0, told.err
    found = json.loads(told.out)
    assert found["sigma_if_off_by_sampling_error"] >= found["sigma_of_the_fit"]
    assert any("public or past data" in n for n in found["notes"])
    answer = json.loads(cli("calibrate", model, "--epsilon", 1, "--json").out)
    assert answer["sigma"] == pytest.approx(found["sigma_of_the_fit"], rel=1e-6)


def test_independent_rows_need_no_more_than_plain_privacy():
    found = fit_rows({"x": [1, 2, 3]}, "independent", length=50_000).fit
    assert qd.dp_epsilon(found.model, 1.0) == pytest.approx(1.0, rel=1e-6)
    assert len(found.model.records) == 50_000


def test_data_frames_with_truth_values_categories_and_missing_cells():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"ok": [True, False, True], "town": pandas.Categorical(["a", "b", "a"])})
    assert named_columns(frame) == {"ok": [1, 0, 1], "town": ["a", "b", "a"]}
    many = frame.sample(300, replace=True, random_state=0)
    assert fit_rows(many, "time").fit.columns == {"ok": 2, "town": 2}
    frame["age"] = pandas.array([1, None, 3], dtype="Int64")
    with pytest.raises(InvalidArgument, match="'age' has no value in row 2"):
        fit_rows(frame, "time")
    frame["age"] = [1.0, float("nan"), 3.0]
    with pytest.raises(InvalidArgument, match="'age' has no value in row 2"):
        fit_rows(frame, "time")
    with pytest.raises(InvalidArgument, match="rows must be independent, time or group"):
        fit_rows({"x": [1]}, "somehow")


def test_groups_are_chains_of_their_own_with_one_matrix():
    """Rows of two machines in turns: no move from one machine to the other is counted."""
    a, b = (sticky(np.random.default_rng(k), 500, 0.2) for k in (1, 2))
    mixed = [v for pair in zip(a, b, strict=True) for v in pair]
    found = fit_chain(mixed, 2, group=["one", "two"] * 500).fit
    want = sum(np.asarray(fit_chain(x, 2).fit.counts) for x in (a, b))
    assert (found.counts == want).all()
    assert [(s.prefix, s.length) for s in found.model.segments] == [("one/", 500), ("two/", 500)]
    assert fit_chain(mixed, 2, group=["one", "two"] * 500, length=50).segments[1].length == 50
    coin = np.random.default_rng(3).integers(0, 2, 1000)
    table = {"machine": ["one", "two"] * 500, "load": mixed, "coin": coin}
    rows = fit_rows(table, "time", group="machine").fit
    assert rows.columns == {"load": 2, "coin": 2}
    assert [(s.prefix, s.length) for s in rows.model.segments] == [("one/", 500), ("two/", 500)]
    assert any("groups are independent" in claim for claim in rows.assumptions)
    with pytest.raises(InvalidArgument, match="there is no column 'user'"):
        fit_rows(table, "time", group="user")


def test_gaps_are_never_filled_in():
    """Hours 3 and 4 are not there, hour 6 has no value: counted by hand."""
    hours, load = [0, 1, 2, 5, 6, 7, 8], [0, 1, 0, 1, None, 1, 1]
    found = fit_chain(load, 2, time=[3600 * h for h in hours], missing="gap").fit
    assert found.counts.tolist() == [[0, 1], [1, 1]]  # 0→1, 1→0 before the gap, 1→1 after it
    assert found.model.segments[0].length == 9
    assert any("3 steps of 9 without a value" in n for n in found.model.notes)
    stamps = [f"2024-05-07T{h:02}:00:00Z" for h in hours]
    assert fit_chain(load, 2, time=stamps, missing="gap").fit.counts.tolist() == [[0, 1], [1, 1]]
    turned = fit_chain(load[::-1], 2, time=stamps[::-1], missing="gap").fit
    assert turned.counts.tolist() == [[0, 1], [1, 1]]
    with pytest.raises(InvalidArgument, match="no value in row 5"):
        fit_chain(load, 2, time=stamps)
    with pytest.raises(InvalidArgument, match="not 1 h apart"):
        fit_chain([0, 1, 0, 1, 0, 1, 0], 2, time=[0, 3600, 7200, 10800, 14400, 18000, 19700])
    with pytest.raises(InvalidArgument, match="two rows have one time"):
        fit_chain([0, 1, 0], 2, time=[0, 3600, 3600])


def test_a_chain_begins_in_its_stationary_law_where_there_is_one():
    series = sticky(np.random.default_rng(3), 3000, 0.2)
    found = fit_chain(series, 2).fit
    law = found.model.segments[0].initial
    assert found.model.provenance["initial"] == "stationary"
    assert law @ found.model.segments[0].transitions[0] == pytest.approx(law)
    shares = fit_chain(series, 2, initial="occupancy").segments[0].initial
    assert shares.tolist() == pytest.approx([series.count(0) / 3000, series.count(1) / 3000])
    absorbed = fit_chain([0, 0, 1, 1, 1, 1], 2).fit  # it never comes back
    assert absorbed.model.provenance["initial"] == "occupancy"
    assert any("not every state is reached" in n for n in absorbed.model.notes)


def test_a_stationary_start_opens_routes_of_the_planner():
    series = sticky(np.random.default_rng(3), 3000, 0.2)
    plans = [
        qd.plan(fit_chain(series, 2, length=50_000, initial=law), queries=50, budget=2)
        for law in ("auto", "occupancy")
    ]
    found = [{a.name for a in p.alternatives if a.accuracy is not None} for p in plans]
    assert found[0] > found[1]
    assert plans[0].accuracy <= plans[1].accuracy


def test_pandas_columns_with_truth_values_and_missing_ones():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "when": pandas.date_range("2024-03-30", periods=6, freq="h", tz="Europe/Rome"),
            "on": pandas.array([True, False, None, True, True, False], dtype="boolean"),
        },
        index=[9, 8, 7, 6, 5, 4],
    ).drop(index=5)
    found = fit_chain(frame["on"], 2, time=frame["when"], missing="gap").fit
    assert found.counts.tolist() == [[0, 0], [1, 0]]
    assert found.model.segments[0].length == 6
    with pytest.raises(InvalidArgument, match="no value in row 3"):
        qd.fit_chain(frame["on"], 2)
    with pytest.raises(InvalidArgument, match="'on' has no value in row 3"):
        qd.fit_network(frame[["on"]])


def test_a_panel_with_gaps_from_the_command_line(cli, tmp_path):
    """A column with blanks in its name, local times with their offset, an empty cell."""
    load, data, model = sticky(np.random.default_rng(2), 400, 0.3), tmp_path / "load.csv", tmp_path / "c.json"
    lines = [
        f"{m};2024-03-{30 + k // 24}T{k % 24:02}:00:00+01:00;{'' if k == 7 else v}\n"
        for m, part in (("M 1", load[:40]), ("M 2", load[40:80]))
        for k, v in enumerate(part)
        if k != 3
    ]
    data.write_text("machine;time stamp;Load kW\n" + "".join(lines), encoding="utf-8")
    wanted = ("fit", data, "--column", "Load kW", "--group", "machine", "--time", "time stamp", "-o", model)
    refused = cli(*wanted)
    assert refused.code == 2
    assert "no value in column 'Load kW': fill it, leave the row out, or" in refused.err
    assert "--missing gap" in refused.err
    found = json.loads(cli(*wanted, "--missing", "gap", "--json").out)
    assert (found["groups"], found["steps"], found["transitions"]) == (2, 80, 2 * (39 - 4))
    assert [s.prefix for s in qd.load_model(model).segments] == ["M 1/", "M 2/"]
    for words, said in (
        (("--group", "machine"), "--group belongs to a chain"),
        (("--column", "Load kW", "--missing", "drop"), "--missing must be refuse or gap"),
        (("--column", "Load kW", "--initial", "first"), "--initial must be auto, stationary"),
        (("--rows", "time", "--group", "user"), "no column 'user'"),
    ):
        done = cli("fit", data, *words, *(("--missing", "gap") if "--rows" in words else ()), "-o", model)
        assert done.code == 2
        assert said in done.err


def test_from_a_csv_to_a_running_holdout_in_three_commands(cli, tmp_path):
    rng = np.random.default_rng(8)
    files = {name: tmp_path / name for name in ("train.csv", "holdout.csv", "rows.json", "study.db")}
    for name in ("train.csv", "holdout.csv"):
        lines = [
            f"{a},{b},{c}"
            for a, b, c in zip(sticky(rng, 4000, 0.3), *rng.integers(0, 2, (2, 4000)), strict=True)
        ]
        files[name].write_text("load,guess,label\n" + "\n".join(lines) + "\n")
    rows, study = files["rows.json"], files["study.db"]
    made = cli("fit", files["train.csv"], "--rows", "time", "-o", rows)
    assert made.code == 0, made.err
    assert "[ ] the rows are in the order of time" in " ".join(made.out.split())
    planned = cli("plan", rows, "--budget", 1, "--queries", 20, "--epsilon", 20, "--apply", study)
    assert planned.code == 0, planned.err
    for words in (
        "This rests on",
        "[ ] the training data say nothing",
        "Bonferroni",
        "the Ladder",
        "a fresh part after each answer",
    ):
        assert words in planned.out
    data = ("--train", files["train.csv"], "--holdout", files["holdout.csv"])
    asked = cli("holdout", "ask", study, "guess == label", *data, "--json")
    assert asked.code == 0, asked.err
    refused = cli("fit", files["train.csv"], "--rows", "time", "--column", "load", "-o", rows)
    assert refused.code == 2
    assert "leave --column out" in refused.err
