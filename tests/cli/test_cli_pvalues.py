"""``quiltdp pvalues`` and ``quiltdp maxinfo``: numbers, the order rule, a real ledger, mistakes."""

from __future__ import annotations

import json

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.generalization import (
    bayesian_dp_max_information,
    compose_max_information,
    correct_p_values,
    holdout_arguments,
    thresholdout_transcripts,
)
from quiltdp.generalization.max_information import bayesian_dp_bounds, description_length_max_information
from quiltdp.generalization.pvalues import either_bound
from quiltdp.mechanisms import InsecureDeterministicNoise


def test_steps_add_in_the_right_order(cli) -> None:
    result = cli(
        "pvalues",
        "--step",
        "leakage=0.002",
        "--step",
        "bits=12",
        "--records",
        10_000,
        "--beta",
        0.001,
        "--json",
    )
    assert result.code == 0
    document = json.loads(result.out)
    both = [
        bayesian_dp_max_information(0.002, 10_000, 0.0005),
        description_length_max_information(12, 0.0005),
    ]
    assert document["bits"] == pytest.approx(compose_max_information(both).bits)
    assert document["beta"] == pytest.approx(0.001)
    assert [s["laws"] for s in document["steps"]] == ["this law", "every law"]


def test_every_kind_of_step(cli) -> None:
    for step in ("pure=0.01", "product=0.01", "approximate=0.01:1e-20", "bits=3", "mutual=0.1:60"):
        result = cli("pvalues", 1e-6, "--step", step, "--records", 100)
        assert result.code == 0, result.err
        assert step in result.out
        assert "p = 1e-06: " in result.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("bits=12", "leakage=0.002", "--records", 100), "may come first only"),
        (("leakage=0.002",), "--records"),
        (("nonsense=1",), "is no step"),
        (("bits=many",), "a number"),
        (("approximate=0.1", "--records", 5), "two numbers"),
        (("bits=3", "--beta", 2), "beta"),
    ],
)
def test_mistakes_in_steps(cli, arguments, words) -> None:
    steps = [word for a in arguments if "=" in str(a) for word in ("--step", a)]
    result = cli("pvalues", *steps, *(a for a in arguments if "=" not in str(a)))
    assert result.code == 2
    assert words in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_correction_from_bits(cli) -> None:
    result = cli("pvalues", 0.0004, 0.01, "--bits", 3, "--beta", 0.001, "--json")
    assert result.code == 0
    rows = json.loads(result.out)["p_values"]
    assert [r["corrected"] for r in rows] == pytest.approx([8 * 0.0004 + 0.001, 8 * 0.01 + 0.001])
    assert [r["rejected"] for r in rows] == [True, False]


def test_correction_from_steps_takes_the_best_beta(cli) -> None:
    fixed = cli("pvalues", 1e-5, "--step", "leakage=0.002", "--records", 10_000, "--beta", 0.01, "--json")
    best = cli("pvalues", 1e-5, "--step", "leakage=0.002", "--records", 10_000, "--json")
    first, second = (json.loads(r.out)["p_values"][0]["corrected"] for r in (fixed, best))
    assert second < first / 100


def test_correction_from_mutual_information(cli) -> None:
    result = cli("pvalues", 1e-9, "--mutual-bits", 1, "--json")
    found = json.loads(result.out)["p_values"][0]["corrected"]
    assert found == pytest.approx(float(correct_p_values([1e-9], mutual_bits=1.0)[0]))


def test_correction_from_a_ledger(cli, tmp_path) -> None:
    """The DP cost that was spent, converted once, and the ways to answer: the better, at half the level."""
    length = 400
    chain = qd.markov_chain([[0.7, 0.3], [0.3, 0.7]], length)
    path = tmp_path / "chain.json"
    qd.save_model(chain, path)
    spec = qd.Thresholdout(budget=3, sensitivity=1 / length)
    calibration = qd.calibrate(chain, epsilon=0.5, mechanism=spec)
    rng = np.random.default_rng(0)
    train, holdout = rng.random((length, 2)), rng.random((length, 2))
    noise = InsecureDeterministicNoise(1)  # the answer comes from the training data
    study = qd.ReusableHoldout(train, holdout, calibration, 0.3, tmp_path / "study.db", noise=noise)
    assert study.ask(lambda data: data[:, 0] < 0.5).source == "train"
    spent = study.ledger.odometer().spent_dp_epsilon
    result = cli("pvalues", 1e-4, "--ledger", tmp_path / "study.db", "--model", path, "--json")
    assert result.code == 0, result.err
    (row,) = json.loads(result.out)["p_values"]
    leaks = qd.leakage(chain, spent).per_record
    bounds = bayesian_dp_bounds([leaks[r] for r in chain.records], None, dp_epsilon=spent)
    both = either_bound(bounds, [thresholdout_transcripts(1, 0, 1e-9)])
    assert row["corrected"] == pytest.approx(
        float(correct_p_values([1e-4], max_information=both)[0]), rel=1e-9
    )
    alone = float(correct_p_values([1e-4], max_information=bounds)[0])
    assert 1e-4 < row["corrected"] < alone
    assert "description length" in row["by"]
    refused = cli("pvalues", 1e-4, "--ledger", tmp_path / "study.db")
    assert refused.code == 2
    assert "--model" in refused.err


@pytest.mark.parametrize("planned", [True, False])
def test_one_answer_of_a_holdout_does_not_use_up_p_values(cli, tmp_path, planned) -> None:
    """Bayesian DP alone says 1 for every p: 2000 records leak too much. A dozen bits were told."""
    length = 2000
    chain = qd.markov_chain([[0.7, 0.3], [0.3, 0.7]], length)
    model, path = tmp_path / "chain.json", tmp_path / "study.db"
    qd.save_model(chain, model)
    if planned:
        arguments = holdout_arguments(chain, qd.plan(chain, queries=200, budget=5, epsilon=5.0))
    else:
        spec = qd.Thresholdout(budget=5, sensitivity=1 / length)
        arguments = {"calibration": qd.calibrate(chain, epsilon=5.0, mechanism=spec), "threshold": 0.2}
    train, fresh = {"x": np.ones(length)}, {"x": np.zeros(length)}
    study = qd.ReusableHoldout(train, fresh, ledger=path, **arguments)
    assert study.ask("x").source == "holdout"
    result = cli("pvalues", 1e-30, 1e-7, 0.02, "--ledger", path, "--model", model, "--json")
    rows = json.loads(result.out)["p_values"]
    assert rows[0]["corrected"] < 1e-15
    assert all("description length" in row["by"] for row in rows[:1])
    assert [row["rejected"] for row in rows] == [True, planned, False]  # an answer of 30 bits is worth 1e-9
    spent = study.ledger.odometer().spent_dp_epsilon
    leaks = qd.leakage(chain, spent).per_record
    alone = bayesian_dp_bounds([leaks[r] for r in chain.records], None, dp_epsilon=spent)
    assert correct_p_values([1e-30], max_information=alone)[0] == 1.0
    for_people = cli("pvalues", 1e-30, 0.02, "--ledger", path, "--model", model).out
    assert "significant after correction: yes (by description length" in for_people
    assert "significant after correction: no" in for_people
    assert "1 of 1 queries answered from the holdout" in " ".join(for_people.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0.01,), "in one way"),
        ((0.01, "--bits", 3, "--mutual-bits", 1), "in one way"),
        ((1.5, "--bits", 3), "probabilities"),
        ((0.01, "--bits", 3, "--level", 1), "level"),
        ((0.01, "--ledger", "a.db", "--ledger", "b.db"), "know more than either"),
    ],
)
def test_mistakes_of_pvalues(cli, arguments, words) -> None:
    result = cli("pvalues", *arguments)
    assert result.code == 2
    assert words in result.err
    assert len(result.err.strip().splitlines()) == 1
