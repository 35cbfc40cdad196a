"""Models of a table's rows: what is kept, what is refused, and what questions may read."""

import functools
import json

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.domains.series.bins import joint_chain, joint_states
from quiltdp.domains.series.dependence import LEVEL
from quiltdp.domains.series.rows import fit_rows, largest_correlation
from quiltdp.errors import InvalidArgument
from quiltdp.generalization import holdout_arguments


def walk(rng, n, stay=0.8):
    return (np.cumsum(rng.random(n) > stay) + rng.integers(2)) % 2


def guessed(rng, label, wrong):
    return {"label": label, "guess": label ^ (rng.random(len(label)) < wrong)}


def regimes(rng, n, length, low=0.05, high=0.45):
    bad = (np.arange(n) // length + rng.integers(2)) % 2 == 1
    return guessed(rng, rng.integers(0, 2, n), np.where(bad, high, low))


def repeated(rng, n, lag, keep=0.3):
    """Errors that come again after so many rows."""
    wrong, again = (rng.random(n) < 0.25).astype(int), rng.random(n) < keep
    for t in np.flatnonzero(again):
        wrong[t] = wrong[t - lag] if t >= lag else wrong[t]
    label = rng.integers(0, 2, n)
    return {"label": label, "guess": label ^ wrong}


@pytest.mark.parametrize("rows", ["time", "independent"])
@pytest.mark.parametrize("length", [300, 1000, 3000, 10_000])
def test_errors_that_come_in_regimes_are_refused(length, rows):
    """Label and guess each look independent in time; only their agreement does not."""
    with pytest.raises(InvalidArgument, match=r"depend on each other beyond .*label.*guess.* lags? "):
        fit_rows(regimes(np.random.default_rng(length), 20_000, length), rows)


@pytest.mark.parametrize("lag", [2, 5, 7, 24, 100, 1000])
def test_dependence_at_another_lag_is_refused_with_the_lag(lag):
    with pytest.raises(InvalidArgument, match=rf"label.*guess.*at lag {lag:,} "):
        fit_rows(repeated(np.random.default_rng(lag), 20_000, lag), "time")


def test_rows_that_follow_the_rule_are_hardly_ever_refused():
    """Forty tables of each kind: one refusal has probability 80 × LEVEL at most."""
    assert LEVEL <= 1e-3
    for seed in range(40):
        rng = np.random.default_rng(seed)
        fit_rows(guessed(rng, rng.integers(0, 2, 2000), 0.25), "independent")
        fit_rows(guessed(rng, walk(rng, 2000), 0.25), "time")


@pytest.mark.parametrize("columns", [1, 2, 6])
def test_the_chain_is_over_joint_states(columns):
    """Independent columns that stay with probability 0.8: the noise of all together is that of their law."""
    rng = np.random.default_rng(columns)
    found = fit_rows({f"c{k}": walk(rng, 20_000) for k in range(columns)}, "time").fit
    joint = functools.reduce(np.kron, [np.array([[0.8, 0.2], [0.2, 0.8]])] * columns)
    sigma = 1 / qd.dp_epsilon(qd.markov_chain(joint, 20_000), 1.0)
    assert 1 / qd.dp_epsilon(found.model, 1.0) == pytest.approx(sigma, rel=0.06)


def test_a_chain_of_errors_is_seen_in_the_joint_states():
    """Errors stay with probability 0.8, label and guess are coins: only the pair has memory."""
    rng = np.random.default_rng(13)
    label, wrong = rng.integers(0, 2, 40_000), walk(rng, 40_000)
    joint = joint_states({"label": label, "guess": label ^ wrong}, 8)
    matrix = joint_chain(joint, np.stack([joint.of_row[:-1], joint.of_row[1:]], axis=1))
    same = joint.table[:, 0] == joint.table[:, 1]
    assert matrix == pytest.approx(np.where(same[:, None] == same, 0.4, 0.1), abs=0.02)


def test_many_values_are_cut_coarser_until_the_joint_states_are_few():
    rng = np.random.default_rng(14)
    table = {"x": rng.normal(size=4000), "y": rng.normal(size=4000), "town": rng.choice(list("abcdef"), 4000)}
    found = joint_states({name: values.tolist() for name, values in table.items()}, 8)
    assert len(found.names) <= 64
    assert all(2 <= size <= 6 for size in found.sizes.values())


@pytest.mark.parametrize("rows", ["independent", "time"])
def test_the_plan_is_no_worse_than_for_the_law_the_rows_were_drawn_from(rows):
    rng = np.random.default_rng(4)
    stay = 0.5 if rows == "independent" else 0.8
    found = fit_rows(guessed(rng, walk(rng, 10_000, stay), 0.25), rows, length=30_000)
    truth = qd.markov_chain([[stay, 1 - stay], [1 - stay, stay]], 30_000)
    for epsilon in (None, 1.0):
        made, best = (qd.plan(m, queries=1000, budget=5, epsilon=epsilon) for m in (found, truth))
        assert best.accuracy * 0.97 <= made.accuracy <= 1.1 * best.accuracy


def families(rng, count, shared, sizes=(4,)):
    unit = np.repeat(np.arange(count), np.resize(sizes, count))
    label = np.where(
        rng.random(len(unit)) < shared, rng.integers(0, 2, count)[unit], rng.integers(0, 2, len(unit))
    )
    return {"family": unit, **guessed(rng, label, 0.2)}


@pytest.mark.slow
def test_two_thousand_families():
    """Keeping one row of each costs half as much error again; the mean of the rows keeps the promise."""
    rng = np.random.default_rng(5)
    found = fit_rows(families(rng, 2000, 0.4), "group", unit="family").fit
    plan = qd.plan(found.model, queries=1000, budget=5)
    one = qd.plan(qd.markov_chain(np.full((2, 2), 0.5), 2000), queries=1000, budget=5)
    assert plan.accuracy <= 0.14 <= one.accuracy / 1.5
    off = [families(np.random.default_rng(k), 2000, 0.4)["label"].mean() - 0.5 for k in range(100)]
    assert np.std(off) <= np.sqrt(0.25 / plan.effective_sample_size) * 1.1


def test_the_correlation_in_groups_covers_every_function_of_a_row():
    rng = np.random.default_rng(6)
    unit, label = (families(rng, 3000, 0.5, (1, 2, 5))[name] for name in ("family", "label"))
    groups = [np.flatnonzero(unit == k) for k in range(3000)]
    assert largest_correlation(label, [], groups) == pytest.approx(0.25, abs=0.03)
    assert largest_correlation(label, [], groups[:50]) == 1.0  # too few groups to tell
    with pytest.raises(InvalidArgument, match="one group"):
        fit_rows({"family": np.zeros(500, int), "label": label[:500]}, "group", unit="family")


def test_groups_that_depend_on_each_other_are_refused():
    rng = np.random.default_rng(7)
    table = regimes(rng, 12_000, 2000)
    with pytest.raises(InvalidArgument, match="the groups depend on each other"):
        fit_rows({**table, "visit": np.arange(12_000) // 4}, "group", unit="visit")


def test_columns_that_count_rows_and_dates_are_named_and_left_out():
    rng = np.random.default_rng(8)
    n = 600
    table = {
        **guessed(rng, walk(rng, n), 0.2),
        "id": np.arange(n),
        "hour": np.arange(n) % 24,
        "day": [f"2024-03-{1 + k // 24:02}" for k in range(n)],
        "name": [f"t{k}" for k in range(n)],
    }
    found = fit_rows(table, "time").fit
    assert list(found.columns) == ["label", "guess"]
    assert found.skipped == {
        "id": "it counts the rows",
        "hour": "it counts the rows",
        "day": "it is a date",
        "name": "nearly every row has a text of its own",
    }
    for rows in ("time", "independent"):
        with pytest.raises(InvalidArgument, match="has 2 rows"):
            fit_rows({"label": [0, 1]}, rows)


def test_rows_without_a_value_are_steps_that_nobody_saw():
    rng = np.random.default_rng(12)
    table = {name: list(values) for name, values in guessed(rng, walk(rng, 1000), 0.2).items()}
    table["guess"][17] = None
    found = fit_rows(table, "time", missing="gap").fit
    assert any("1 step of 1,000 without a value" in note for note in found.model.notes)
    assert len(found.model.records) == 1000


def test_too_many_joint_states_are_refused_until_columns_are_named():
    rng = np.random.default_rng(9)
    table = {f"c{k}": rng.integers(0, 2, 3000) for k in range(8)}
    with pytest.raises(InvalidArgument, match="8 columns have 256 joint states"):
        fit_rows(table, "time")
    assert list(fit_rows(table, "time", read=["c0", "c5"]).fit.columns) == ["c0", "c5"]


def test_questions_read_the_columns_of_the_model():
    rng = np.random.default_rng(10)
    train, fresh = ({**guessed(rng, walk(rng, 4000, 0.6), 0.2), "other": rng.random(4000)} for _ in range(2))
    rows = fit_rows(train, "time", read=["label", "guess"]).fit
    terms = holdout_arguments(rows.model, qd.plan(rows.model, queries=20, budget=1, epsilon=20))
    study = qd.ReusableHoldout(train, fresh, ledger=":memory:", **terms)
    with pytest.raises(InvalidArgument, match="reads 'other'"):
        study.ask("other < 0.5")
    assert study.odometer().queries == 0
    assert study.ask("guess == label").value is not None


def test_from_the_command_line(cli, tmp_path):
    rng = np.random.default_rng(11)
    data, model, study = tmp_path / "a.csv", tmp_path / "rows.json", tmp_path / "s.db"

    def write(table):
        lines = zip(*(map(str, column) for column in table.values()), strict=True)
        data.write_text(",".join(table) + "\n" + "\n".join(map(",".join, lines)) + "\n")

    write({"id": np.arange(6000), **regimes(rng, 6000, 1000)})
    refused = cli("fit", data, "--rows", "time", "-o", model)
    assert refused.code == 2
    assert "depend on each other beyond --rows time" in refused.err
    assert not model.exists()
    table = families(rng, 150, 0.3)
    write({**table, "other": rng.random(600)})
    made = cli(
        "fit",
        data,
        "--rows",
        "group",
        "--unit",
        "family",
        "--read",
        "label",
        "--read",
        "guess",
        "-o",
        model,
        "--json",
    )
    assert made.code == 0, made.err
    assert json.loads(made.out)["columns"] == ["label", "guess"]
    planned = cli("plan", model, "--budget", 1, "--queries", 20, "--json")
    assert json.loads(planned.out)["columns"] == ["label", "guess"]
    assert cli("plan", model, "--budget", 1, "--queries", 20, "--apply", study).code == 0
    fresh = tmp_path / "b.csv"
    head, *lines = data.read_text().splitlines(keepends=True)
    fresh.write_text(head + "".join(lines[::-1]))
    asked = cli("holdout", "ask", study, "other < 0.5", "--train", data, "--holdout", fresh)
    assert asked.code == 2
    assert "reads 'other'" in asked.err
    for words, said in (
        (("--rows", "group"), "belong together"),
        (("--unit", "family"), "--unit belongs to a holdout of rows"),
        (("--rows", "time", "--read", "none"), "there is no column 'none'"),
    ):
        done = cli("fit", data, *words, "-o", model)
        assert done.code == 2
        assert said in done.err
