"""A plan carried into a holdout without retyping: ``plan --apply`` and ``holdout init --plan``."""

from __future__ import annotations

import json

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.generalization.plan_result import holdout_arguments, plan_calibration, read_holdout_arguments

LENGTH = 3000


@pytest.fixture(scope="module")
def chain():
    return qd.markov_chain([[0.6, 0.4], [0.4, 0.6]], LENGTH)


@pytest.fixture(scope="module")
def chain_file(chain, tmp_path_factory):
    path = tmp_path_factory.mktemp("apply") / "chain.json"
    qd.save_model(chain, path)
    return str(path)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    for name in ("train", "holdout"):
        rows = (rng.random((LENGTH, 2)) < 0.5).astype(int)
        text = "guess,label\n" + "\n".join(f"{a},{b}" for a, b in rows)
        (folder / f"{name}.csv").write_text(text + "\n", encoding="utf-8")
    return folder


ASKED = ("--budget", 2, "--queries", 20, "--epsilon", 1)


def test_one_command_makes_the_ledger(cli, chain_file, data, tmp_path) -> None:
    study = tmp_path / "study.db"
    made = cli("plan", chain_file, *ASKED, "--apply", study)
    assert made.code == 0, made.err
    assert "made for this plan" in made.out
    options = ("--train", data / "train.csv", "--holdout", data / "holdout.csv")
    asked = cli("holdout", "ask", study, "guess == label", *options, "--json")
    assert asked.code == 0, asked.err
    answer = json.loads(asked.out)["answers"][0]
    assert 0 < answer["population_bound"] < 0.5
    assert answer["confidence"] == pytest.approx(0.95)
    for_people = cli("holdout", "ask", study, "guess == label", *options)
    assert "of the holdout's own value" in for_people.out
    assert "of the population's" in for_people.out
    assert "0.95 sure" in for_people.out
    assert cli("plan", chain_file, *ASKED, "--apply", study).code == 2  # never overwritten


def test_the_plan_as_a_file(cli, chain_file, tmp_path) -> None:
    printed = cli("plan", chain_file, *ASKED, "--json")
    document = json.loads(printed.out)
    file, study = tmp_path / "plan.json", tmp_path / "study.db"
    file.write_text(printed.out, encoding="utf-8")
    made = cli("holdout", "init", study, "--plan", file, "--model", chain_file)
    assert made.code == 0, made.err
    settings = qd.Ledger.open(study).settings
    for name in ("threshold", "resolution", "accuracy"):
        assert float.fromhex(settings[name]) == document[name]
    assert settings["queries"] == 20
    assert qd.Ledger.open(study).terms.sigma == document["sigma"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--plan, or both"),
        (("--plan", "PLAN", "--threshold", 0.1), "itself"),
        (("--plan", "OTHER"), "no plan"),
    ],
)
def test_mistakes(cli, chain_file, tmp_path, arguments, words) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"schema": "quiltdp/plan"}), encoding="utf-8")
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"schema": "quiltdp/leakage"}), encoding="utf-8")
    chosen = [{"PLAN": plan, "OTHER": other}.get(a, a) for a in arguments]
    result = cli("holdout", "init", tmp_path / "study.db", *chosen)
    assert result.code == 2
    assert words in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_the_holdout_keeps_the_plan(chain) -> None:
    """Answers are rounded to the resolution, the noise is the plan's, and the certificate is for it."""
    plan = qd.plan(chain, queries=20, budget=2, epsilon=1.0)
    arguments = holdout_arguments(chain, plan)
    calibration = arguments["calibration"]
    assert calibration.sigma == plan.sigma
    assert calibration.leakage <= 1.0 == calibration.epsilon
    rng = np.random.default_rng(1)
    train, fresh = rng.random((LENGTH, 3)), rng.random((LENGTH, 3))
    study = qd.ReusableHoldout(np.ones_like(train), fresh, ledger=":memory:", **arguments)
    answer = study.ask(lambda rows: rows[:, 0])
    assert answer.source == "holdout"
    steps = answer.value / plan.resolution
    assert steps == pytest.approx(round(steps), abs=1e-9)
    assert answer.population_bound == plan.accuracy
    assert abs(answer.value - fresh[:, 0].mean()) <= answer.error_bound
    assert abs(answer.value - 0.5) <= plan.accuracy
    other = qd.markov_chain([[0.6, 0.4], [0.4, 0.6]], 10)
    with pytest.raises(qd.QuiltdpError, match="another model"):
        plan_calibration(other, plan)
    with pytest.raises(qd.QuiltdpError, match="no plan"):
        read_holdout_arguments({})
