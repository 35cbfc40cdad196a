"""``quiltdp holdout`` and ``quiltdp ledger``: what they print, spend and refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quiltdp.accountant.ledger import Ledger, Terms
from quiltdp.mechanisms import Thresholdout
from quiltdp.mechanisms.holdout import checked_settings

N = 500


@pytest.fixture
def study(tmp_path: Path) -> dict[str, Path]:
    """Return a ledger and two CSV files; column ``lucky`` is right in training and wrong elsewhere."""
    spec = Thresholdout(2, 1 / N)
    terms = Terms(spec, spec.scale(5.0), 8.0, 5.0, 0.0, "informed", "test", "f" * 64)
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
    assert "from train; 2 left)" in first
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
    assert "the budget of answers is spent" in done.err
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
    assert "whole, 3 entries" in cli("ledger", "verify", study["ledger"]).out
    copy = tmp_path / "copy.json"
    assert cli("ledger", "export", study["ledger"], "-o", copy).code == 0
    assert cli("ledger", "verify", copy).code == 0
    document = json.loads(cli("ledger", "export", study["ledger"]).out)
    assert document["entries"] == json.loads(copy.read_text())["entries"]
    copy.write_text(copy.read_text().replace('"1/2"', '"1/4"'))
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
    assert Ledger.open(study["ledger"]).head.spent == 0


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
    status = ("holdout", "status", ledger, "--model", "models/asia.bif", "--anchor", anchor)
    facts = json.loads(cli(*status, "--json").out)
    assert 0 < facts["prior"]["epsilon"] <= facts["informed"]["epsilon"] <= 4
    assert len(facts["informed"]["per_record"]) == 8
    assert "informed adversary" in cli(*status).out
    done = cli("holdout", "status", ledger, "--model", "models/cancer.bif", "--anchor", anchor)
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


# -- what init believes, and what it notices ----------------------------------------------------


@pytest.fixture
def calibrated(cli: Callable[..., Any], tmp_path: Path) -> Path:
    words = ("calibrate", "models/asia.bif", "--epsilon", 4, "--budget", 3, "--sensitivity", 1 / N)
    path = tmp_path / "cal.json"
    path.write_text(cli(*words, "--json").out)
    return path


def test_init_refuses_a_calibration_that_was_changed(
    cli: Callable[..., Any], calibrated: Path, tmp_path: Path
) -> None:
    """ε = 8 with σ = 2.8e-7, once accepted; a careful edit is noticed by the model."""
    document = json.loads(calibrated.read_text())
    spec = Thresholdout(3, 1 / N)
    edits = {
        "noiseless": {"epsilon": 8.0, "leakage": 8.0, "sigma": 2.8e-7, "dp_epsilon": spec.dp_epsilon(2.8e-7)},
        "nameless": {"fingerprint": ""},
        "careful": {"sigma": spec.scale(3.9), "dp_epsilon": 3.9, "leakage": 4.0},
    }
    for name, edit in edits.items():
        edited = {**document, **edit}
        edited["releases"]["sigma"] = edited["sigma"]
        calibrated.write_text(json.dumps(edited))
        words = ("holdout", "init", tmp_path / f"{name}.db", "--calibration", calibrated, "--threshold", 0.1)
        done = cli(*words, "--model", "models/asia.bif")
        assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1), name
        assert "calibrat" in done.err
        assert cli(*words).code == (0 if name == "careful" else 2)


def test_init_says_what_it_checked(cli: Callable[..., Any], calibrated: Path, tmp_path: Path) -> None:
    words = ("--calibration", calibrated, "--threshold", 0.1)
    done = cli("holdout", "init", tmp_path / "a.db", *words)
    assert "--model certifies" in done.out
    done = cli("holdout", "init", tmp_path / "b.db", *words, "--model", "models/asia.bif")
    assert "--model" not in done.out
    done = cli("holdout", "init", tmp_path / "c.db", *words, "--model", "models/cancer.bif")
    assert done.code == 2


def test_a_second_ledger_and_other_data_are_told(
    cli: Callable[..., Any], study: dict[str, Path], calibrated: Path, tmp_path: Path
) -> None:
    ask(cli, study, "label == 1")
    other = tmp_path / "elsewhere"
    other.mkdir()
    words = ("holdout", "init", other / "b.db", "--calibration", calibrated, "--threshold", 0.1)
    done = cli(*words, "--holdout", study["holdout"])
    assert (done.code, "study.db keeps the account" in done.err) == (1, True)
    assert not (other / "b.db").exists()
    assert cli(*words, "--holdout", study["holdout"], "--second").code == 0
    assert ask(cli, {**study, "ledger": other / "b.db"}, "label == 1").code == 0  # was told once
    assert cli("holdout", "init", other / "c.db", *words[3:]).code == 0
    done = ask(cli, {**study, "ledger": other / "c.db"}, "label == 1")  # unbound: noticed when asking
    assert (done.code, "keeps the account" in done.err) == (1, True)
    study["holdout"].write_text(study["holdout"].read_text().replace(",a\n", ",b\n", 1))
    done = ask(cli, study, "label == 1")
    assert (done.code, "other holdout data" in done.err) == (1, True)


def test_training_data_are_no_holdout(
    cli: Callable[..., Any], study: dict[str, Path], tmp_path: Path
) -> None:
    copy = tmp_path / "copy.csv"
    copy.write_text(study["train"].read_text().replace("\n", "\r\n"))
    for same in (study["train"], copy):
        done = ask(cli, {**study, "holdout": same}, "label == 1")
        assert done.code == 2
        assert "--train and --holdout are the same data" in done.err


def test_types_from_the_shell(cli: Callable[..., Any], study: dict[str, Path]) -> None:
    assert ask(cli, study, "label == '1'").code == 2
    assert ask(cli, study, "label == '1'", "--type", "label=text").code == 0
    assert ask(cli, study, "label == 1 & town == 'a'").code == 0
    for bad in ("label", "label=date", "nowhere=text"):
        assert ask(cli, study, "label == 1", "--type", bad).code == 2


@pytest.mark.parametrize("target", ["study.db", "link.db", "hard.db", "study.db-journal", "anchor.json"])
def test_an_export_overwrites_neither_ledger_nor_anchor(
    cli: Callable[..., Any], study: dict[str, Path], tmp_path: Path, target: str
) -> None:
    ask(cli, study, "label == 1")
    (tmp_path / "link.db").symlink_to(study["ledger"])
    (tmp_path / "anchor.json").write_text("{}")
    before = study["ledger"].read_bytes()
    if target == "hard.db":
        (tmp_path / "hard.db").hardlink_to(study["ledger"])
    words = ("--anchor", tmp_path / "anchor.json") if target == "anchor.json" else ()
    done = cli("ledger", "export", study["ledger"], "-o", tmp_path / target, *words)
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert study["ledger"].read_bytes() == before


@pytest.mark.parametrize(
    "words",
    [
        ("trace", "points.csv", "-o", "study.json"),
        ("pedigree", "models/pedigree/ceph1463.fam", "--allele-frequency", "0.1", "--epsilon", "1", "-o"),
        ("calibrate", "models/asia.bif", "--epsilon", "1", "--report"),
    ],
    ids=["trace", "pedigree", "report"],
)
def test_no_command_overwrites_a_ledger(
    cli: Callable[..., Any], study: dict[str, Path], tmp_path: Path, words: tuple[str, ...]
) -> None:
    ledger = study["ledger"].rename(tmp_path / "study.json")
    before = ledger.read_bytes()
    given = [*words[:-2], "-o"] if words[0] == "trace" else [*words]
    done = cli(*given, ledger)
    assert (done.code, "ledger" in done.err) == (2, True)
    assert ledger.read_bytes() == before


def test_no_command_overwrites_its_input(cli: Callable[..., Any], tmp_path: Path) -> None:
    family = tmp_path / "family.fam"
    family.write_bytes(Path("models/pedigree/ceph1463.fam").read_bytes())
    (tmp_path / "link.json").symlink_to(family)
    before = family.read_bytes()
    for target, why in ((family, "its ending says what is written"), (tmp_path / "link.json", "input")):
        done = cli("pedigree", family, "--allele-frequency", "0.1", "--epsilon", "1", "-o", target)
        assert (done.code, why in done.err) == (2, True)
    assert family.read_bytes() == before


@pytest.mark.parametrize(
    "mechanism", [("--sensitivity", 1), ("--mechanism", "gaussian", "--delta", 1e-6, "--sensitivity", 1)]
)
def test_twelve_releases_from_the_shell(
    cli: Callable[..., Any], tmp_path: Path, mechanism: tuple[object, ...]
) -> None:
    calibration, ledger = tmp_path / "cal.json", tmp_path / "releases.db"
    calibration.write_text(cli("calibrate", "models/cancer.bif", "--epsilon", 1, *mechanism, "--json").out)
    words = ("ledger", "init", ledger, "--calibration", calibration)
    assert cli(*words, "--model", "models/asia.bif").code == 2
    done = cli(*words, "--model", "models/cancer.bif", "--json")
    assert (done.code, json.loads(done.out)["checked"]) == (0, "model")
    assert "never overwritten" in cli(*words).err
    for month in range(12):
        words = ("--parts", 12, "--label", f"month {month}", "--key", month)
        done = cli("ledger", "charge", ledger, *words, "--json")
        assert done.code == 0
        assert 1 - 1e-9 < 12 * Fraction(json.loads(done.out)["share"]) <= 1
    again = cli("ledger", "charge", ledger, "--parts", 12, "--label", "month 3", "--key", 3)
    assert (again.code, "was booked before" in again.out) == (0, True)
    done = cli("ledger", "charge", ledger, "--parts", 12)
    assert (done.code, "is left" in done.err) == (1, True)
    assert 1 - 1e-9 < Ledger.open(ledger).verify().spent <= 1


def test_charges_are_checked(cli: Callable[..., Any], study: dict[str, Path], tmp_path: Path) -> None:
    calibration, ledger = tmp_path / "cal.json", tmp_path / "releases.db"
    words = ("calibrate", "models/cancer.bif", "--epsilon", 1, "--sensitivity", 1, "--json")
    calibration.write_text(cli(*words).out)
    assert cli("ledger", "init", ledger, "--calibration", calibration).code == 0
    sigma = json.loads(calibration.read_text())["sigma"]
    assert cli("ledger", "charge", ledger, "--scale", 4 * sigma, "--count", 2).code == 0
    assert cli("ledger", "charge", ledger, "--dp-epsilon", 1e-6).code == 0
    for bad in ((), ("--scale", 1, "--parts", 2), ("--scale", "nan"), ("--dp-epsilon", -1), ("--parts", 0)):
        done = cli("ledger", "charge", ledger, *bad)
        assert (done.code, len(done.err.splitlines())) == (2, 1), bad
    done = cli("ledger", "charge", study["ledger"], "--dp-epsilon", 0.1)
    assert (done.code, "reusable holdout" in done.err) == (2, True)
    done = cli("ledger", "charge", ledger, "--dp-epsilon", 500)
    assert (
        done.code,
        f"{ledger}: this release would spend more than the ledger may spend in all" in done.err,
    ) == (1, True)
    shown = cli("ledger", "show", ledger).out
    assert "charge         0.5" in shown
    assert all(len(line) < 80 for line in shown.splitlines() if " charge " in line)
    assert 0.5 < Ledger.open(ledger).head.spent < 0.51
