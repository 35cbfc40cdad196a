"""``quiltdp holdout`` and ``quiltdp ledger``: what they print, spend and refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quiltdp.accountant.ledger import Ledger, Terms
from quiltdp.accountant.specs import Thresholdout
from quiltdp.mechanisms.holdout import checked_settings

N = 500


@pytest.fixture
def study(tmp_path: Path) -> dict[str, Path]:
    """Return a ledger and two CSV files; column ``lucky`` is right in training and wrong elsewhere."""
    spec = Thresholdout(2, 1 / N)
    terms = Terms(spec, spec.scale(5.0), 2.0, 5.0, 0.0, "informed", "test", "f" * 64)
    files = {"ledger": tmp_path / "study.db"}
    Ledger.create(files["ledger"], terms, settings=checked_settings(0.1, 0.05, None))
    rng = np.random.default_rng(0)
    for name, right in (("train", 1), ("holdout", 0)):
        label = rng.integers(0, 2, N)
        rows = [
            f"{y},{y if right else 1 - y},{t}" for y, t in zip(label, rng.choice(["a", "b"], N), strict=True)
        ]
        files[name] = tmp_path / f"{name}.csv"
        files[name].write_text("\n".join(["label,lucky,town", *rows]) + "\n")
    return files


def ask(cli: Callable[..., Any], study: dict[str, Path], *words: object) -> Any:
    return cli(
        "holdout", "ask", study["ledger"], *words, "--train", study["train"], "--holdout", study["holdout"]
    )


def test_asking_from_the_shell(cli: Callable[..., Any], study: dict[str, Path]) -> None:
    done = ask(cli, study, "label == 1", "town == 'a'")
    assert (done.code, done.err) == (0, "")
    first, second = done.out.splitlines()
    assert "(from train; 2 left)" in first
    assert "town == 'a'" in second
    done = ask(cli, study, "lucky == label", "--key", "k1", "--json")
    (answer,) = json.loads(done.out)["answers"]
    assert (answer["source"], answer["remaining"], answer["repeated"]) == ("holdout", 1, False)
    assert answer["value"] < 0.5
    again = json.loads(ask(cli, study, "lucky == label", "--key", "k1", "--json").out)["answers"][0]
    assert (again["value"], again["repeated"], again["remaining"]) == (answer["value"], True, 1)


def test_a_spent_budget_is_exit_code_one(cli: Callable[..., Any], study: dict[str, Path]) -> None:
    done = ask(cli, study, "lucky == label", "lucky == label", "label == lucky")
    assert done.code == 1
    assert done.out.splitlines()[2].startswith("⊥")
    assert "budget is spent" in done.err
    done = ask(cli, study, "label")
    assert done.code == 1


def test_status_and_show(cli: Callable[..., Any], study: dict[str, Path]) -> None:
    ask(cli, study, "lucky == label")
    facts = json.loads(cli("holdout", "status", study["ledger"], "--json").out)
    assert (facts["schema"], facts["answers"], facts["remaining"]) == ("quiltdp/holdout-status", 1, 1)
    assert facts["spent_dp_epsilon"] == 2.5
    text = cli("holdout", "status", study["ledger"]).out
    assert "1, 1 left" in text
    shown = cli("ledger", "show", study["ledger"])
    assert shown.code == 0
    assert "lucky == label" in shown.out
    entries = json.loads(cli("ledger", "show", study["ledger"], "--last", 1, "--json").out)["entries"]
    assert [e["kind"] for e in entries] == ["holdout"]


def test_verify_and_export(cli: Callable[..., Any], study: dict[str, Path], tmp_path: Path) -> None:
    ask(cli, study, "lucky == label")
    assert "whole, 2 entries" in cli("ledger", "verify", study["ledger"]).out
    copy = tmp_path / "copy.json"
    assert cli("ledger", "export", study["ledger"], "-o", copy).code == 0
    assert cli("ledger", "verify", copy).code == 0
    document = json.loads(cli("ledger", "export", study["ledger"]).out)
    assert document["entries"] == json.loads(copy.read_text())["entries"]
    copy.write_text(copy.read_text().replace('"5/18"', '"1/18"'))
    done = cli("ledger", "verify", copy)
    assert done.code == 1
    assert "entry 2 was changed" in done.err
    study["ledger"].write_bytes(study["ledger"].read_bytes()[:5000])
    done = cli("ledger", "verify", study["ledger"])
    assert done.code == 1
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["nowhere"], "'nowhere'"),
        (["__import__('os')"], "not allowed"),
        (["label +"], "not an expression"),
        (["label * 3"], "outside [0, 1]"),
        (["label", "--key", "a", "--key", "b"], "--key per query: 1 asked, 2 given"),
        (["label", "--anchor", "/nowhere/anchor.json"], "anchor"),
    ],
)
def test_mistakes_cost_nothing(
    cli: Callable[..., Any], study: dict[str, Path], words: list[str], part: str
) -> None:
    done = ask(cli, study, *words)
    assert done.code in (1, 2)
    assert part in done.err
    assert len(done.err.splitlines()) == 1
    assert Ledger.open(study["ledger"]).head.seq == 0


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("", ":1:"),
        ("a,b\n", ":2:"),
        ("a,b\n1,2\n3\n", ":3: 1 values for 2 columns"),
        ("a,a\n1,2\n", "named twice"),
        ("label\n1\n", "'lucky'"),
    ],
)
def test_bad_csv_files(cli: Callable[..., Any], study: dict[str, Path], content: str, part: str) -> None:
    study["holdout"].write_text(content)
    done = ask(cli, study, "label")
    assert done.code == 2
    assert part in done.err


def test_missing_files(cli: Callable[..., Any], study: dict[str, Path], tmp_path: Path) -> None:
    for words in (["ledger", "show", tmp_path / "no.db"], ["ledger", "verify", tmp_path / "no.json"]):
        done = cli(*words)
        assert done.code == 2
        assert len(done.err.splitlines()) == 1
    study["train"].unlink()
    assert ask(cli, study, "label").code == 2


def test_from_calibration_to_status(cli: Callable[..., Any], study: dict[str, Path], tmp_path: Path) -> None:
    calibration, ledger = tmp_path / "cal.json", tmp_path / "new.db"
    words = ("calibrate", "models/asia.bif", "--epsilon", 4, "--budget", 3, "--sensitivity", 1 / N)
    calibration.write_text(cli(*words, "--json").out)
    anchor = tmp_path / "anchor.json"
    init = ("holdout", "init", ledger, "--calibration", calibration, "--anchor", anchor)
    assert cli(*init, "--threshold", 7).code == 2
    done = cli(*init, "--threshold", 0.1, "--json")
    assert (done.code, json.loads(done.out)["remaining"]) == (0, 3)
    assert "never overwritten" in cli(*init, "--threshold", 0.1).err
    done = ask(cli, {**study, "ledger": ledger}, "lucky == label", "--anchor", anchor)
    assert "from holdout" in done.out
    status = ("holdout", "status", ledger, "--model", "models/asia.bif")
    facts = json.loads(cli(*status, "--json").out)
    assert 0 < facts["prior"]["epsilon"] <= facts["informed"]["epsilon"] <= 4
    assert len(facts["informed"]["per_record"]) == 8
    assert "informed adversary" in cli(*status).out
    done = cli("holdout", "status", ledger, "--model", "models/cancer.bif")
    assert done.code == 2
    assert "not the one" in done.err


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"schema": "quiltdp/calibration", "version": 1}'])
def test_a_bad_calibration_file(cli: Callable[..., Any], tmp_path: Path, content: str) -> None:
    (tmp_path / "cal.json").write_text(content)
    words = ("holdout", "init", tmp_path / "a.db", "--calibration", tmp_path / "cal.json", "--threshold", 0.1)
    done = cli(*words)
    assert done.code == 2
    assert "cal.json" in done.err
    assert not (tmp_path / "a.db").exists()
