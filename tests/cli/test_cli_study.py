"""``quiltdp study``: made, shared and closed from the shell; bad input is one line, nothing is written."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy")

from quiltdp.server.asking import Study
from quiltdp.server.database import opened
from quiltdp.server.questions import ExpressionQuestion, PredictionQuestion
from quiltdp.server.studies import find_member

ROWS = 3000


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with training and holdout data."""
    folder, chance = tmp_path_factory.mktemp("study"), random.Random(0)
    for name in ("train", "holdout"):
        lines = [f"{name[0]}{k},{chance.randrange(2)},{chance.randrange(2)}" for k in range(ROWS)]
        (folder / f"{name}.csv").write_text("id,guess,label\n" + "\n".join(lines) + "\n")
    return folder


@pytest.fixture
def study(cli: Any, files: Path, quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the options of a study that can be made."""
    monkeypatch.delenv("QUILTDP_TOKEN", raising=False)
    model, plan = files / "rows.json", files / "plan.json"
    if not plan.exists():
        fit = ["--rows", "independent", "--read", "guess", "--read", "label", "-o", model]
        assert cli("fit", files / "train.csv", *fit).code == 0
        made = cli("plan", model, "--epsilon", 8, "--budget", 3, "--queries", 20, "--json")
        assert made.code == 0, made.err
        plan.write_text(made.out)
    data = ["--train", files / "train.csv", "--holdout", files / "holdout.csv"]
    terms = ["--plan", plan, "--model", model, "--target", "label", "--row-id", "id"]
    return [
        *map(str, [*data, *terms, "--train-is-public"]),
        "--database",
        f"sqlite:///{quick_path / 'study.db'}",
    ]


def test_a_study_is_made_shared_and_closed(
    cli: Any, study: list[str], quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = cli("study", "create", *study)
    assert made.code == 0, made.err
    assert "3 answers may come from the holdout of 3000 rows" in made.out
    assert "predictions of 'label' are scored: records are independent" in made.out
    owner = re.findall(r"qdp_\S+", made.out)
    assert len(owner) == 1
    database = ["--database", study[-1]]
    monkeypatch.setenv("QUILTDP_TOKEN", owner[0])
    added = cli(
        "study", "member", *database, "--name", "ann", "--role", "analyst", "--days", 9, "--cap", 2, "--json"
    )
    assert added.code == 0, added.err
    facts = json.loads(added.out)
    engine = opened(study[-1])
    with engine.connect() as connection:
        member = find_member(connection, facts["token"])
    assert member is not None
    assert (member.name, member.role, member.cap) == ("ann", "analyst", 2)
    server = Study(engine, facts["study"])
    assert server.ask(member, ExpressionQuestion("guess == label"), "k").budget == 3
    rows = {p: dict.fromkeys((f"{p[0]}{k}" for k in range(ROWS)), 1) for p in ("train", "holdout")}
    assert server.dry_run(PredictionQuestion(**rows))["training_value"] > 0.4
    assert cli("study", "member", *database, "--name", "eve", "--role", "auditor").code == 0
    closed = cli("study", "close", *database)
    assert (closed.code, "is closed since" in closed.out) == (0, True)
    monkeypatch.setenv("QUILTDP_TOKEN", facts["token"])
    refused = cli("study", "close", *database)
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "no owner's token" in refused.err
    again = cli("study", "create", *study)
    assert (again.code, again.err.count("\n")) == (1, 1)
    assert "same holdout data" in again.err


def test_a_study_in_json(cli: Any, study: list[str]) -> None:
    facts = json.loads(cli("study", "create", *study, "--name", "trial", "--json").out)
    assert facts["schema"] == "quiltdp/study-create"
    assert (facts["name"], facts["rows"], facts["predictions_refused"]) == ("trial", ROWS, None)
    assert facts["token"].startswith("qdp_")


WITHOUT = object()


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--train-is-public", WITHOUT, "say that whoever asks may see the training data"),
        ("--target", "none", "there is no column 'none'"),
        ("--row-id", "label", "'label' names two rows of train alike"),
        ("--holdout", "models/asia.bif", "models/asia.bif"),
        ("--plan", "models/asia.bif", "this is no plan"),
        ("--model", "models/asia.bif", "another model"),
        ("--database", "mysql://x", "--database must be sqlite:///FILE"),
        ("--database", "sqlite:////no/such/folder/study.db", "the database cannot be made"),
        ("--name", "x" * 101, "at most 100 characters"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    cli: Any, study: list[str], quick_path: Path, option: str, value: Any, said: str
) -> None:
    words = [w for w in study if w != option] if value is WITHOUT else [*study, option, value]
    result = cli("study", "create", *words)
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert said in result.err
    assert not [*quick_path.iterdir()]


def test_what_is_not_there_is_not_made(cli: Any, quick_path: Path) -> None:
    url = f"sqlite:///{quick_path / 'study.db'}"
    for words in (["member", "--name", "a", "--role", "owner"], ["close"], ["rights", "--role", "app"]):
        result = cli("study", words[0], "--database", url, *words[1:])
        assert (result.code, result.err.count("\n")) == (2, 1)
    result = cli("study", "close", "--database", "postgresql://nobody@127.0.0.1:1/x")
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert not [*quick_path.iterdir()]


def test_of_several_studies_one_is_named(cli: Any, study: list[str], files: Path, quick_path: Path) -> None:
    first = json.loads(cli("study", "create", *study, "--json").out)
    other = quick_path / "other.csv"
    other.write_text((files / "holdout.csv").read_text().replace("h0,", "x0,"))
    second = json.loads(cli("study", "create", *study, "--holdout", other, "--json").out)
    close = ["study", "close", "--database", study[-1]]
    assert "say which with --id" in cli(*close).err
    assert "no study here with the id 'x'" in cli(*close, "--id", "x").err
    assert json.loads(cli(*close, "--id", second["study"], "--json").out)["study"] == second["study"]
    owner = ["study", "member", *close[2:], "--id", first["study"], "--name", "a", "--role"]
    assert "--role must be owner" in cli(*owner, "x").err
