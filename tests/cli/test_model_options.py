"""The options of MODEL reach the reader, and only the ones given."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from quiltdp.cli.app import guarded
from quiltdp.cli.model_options import load, model_options
from quiltdp.cli.option_words import arg, opt, switch
from quiltdp.errors import InvalidArgument

FAM = Path(__file__).parents[1] / "data" / "pedigree" / "peddy_ceph1463.ped"
ASIA = Path(__file__).parents[2] / "models" / "asia.bif"


def run(*words: str):
    app = typer.Typer()

    @app.command()
    @model_options
    def show(path: Path, epsilon: float = 1.0, *, options: dict[str, Any]) -> None:
        with guarded():
            model = load(path, **options)
            typer.echo(f"{sorted(options)} {len(model.nodes)} {len(model.records)} {epsilon}")

    return CliRunner().invoke(app, list(words))


def test_only_given_options_are_passed():
    result = run(str(FAM), "--allele-frequency", "0.1", "--epsilon", "2")
    assert result.output.strip() == "['allele_frequency'] 17 17 2.0"


def test_every_pedigree_option_parses(tmp_path):
    study = tmp_path / "ids.txt"
    study.write_text("NA12877\nCEPH1463 NA12878\n")
    result = run(
        str(FAM),
        "--allele-frequency",
        "rs1=0.1",
        "--allele-frequency",
        "rs2=0.3",
        "--study",
        str(study),
        "--mutation-rate",
        "1e-4",
        "--error-rate",
        "0.01",
        "--inbreeding",
        "0.02",
        "--x-linked",
        "--missing",
        "-9",
        "--unknown-parents",
        "shared",
        "--join-families",
        "--format",
        "plink",
        "--male",
        "1",
        "--female",
        "2",
        "--twins",
        "NA12879,NA12880",
    )
    assert result.exit_code == 0, result.output
    assert result.output.split("]")[1].split() == ["36", "4", "1.0"]


def test_columns_and_records(tmp_path):
    table = tmp_path / "family.csv"
    table.write_text("who,papa,mama\nkid,dad,mum\ndad,,\nmum,,\n")
    named = ["--column", "id=who", "--column", "father=papa", "--column", "mother=mama"]
    result = run(str(table), "--allele-frequency", "0.2", *named, "--records", "kid,dad")
    assert result.output.split("]")[1].split() == ["3", "2", "1.0"]


def test_records_from_a_file(tmp_path):
    names = tmp_path / "rows.txt"
    names.write_text("asia\nsmoke\n")
    assert len(load(ASIA, records=f"@{names}").records) == 2


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((str(ASIA), "--allele-frequency", "0.1"), "--allele-frequency is for pedigree files"),
        ((str(ASIA), "--x-linked"), "--x-linked is for pedigree files"),
        ((str(FAM),), "needs the frequency"),
        ((str(FAM), "--allele-frequency", "often"), "'often' is not a number"),
        ((str(FAM), "--allele-frequency", "1.5"), "between 0 and 1"),
        ((str(FAM), "--allele-frequency", "a=0.1", "--allele-frequency", "a=0.2"), "given twice"),
        ((str(FAM), "--allele-frequency", "0.1", "--column", "id"), "expected NAME=VALUE"),
    ],
)
def test_refusals_are_one_line(words, complaint):
    result = run(*words)
    assert result.exit_code == 2
    assert complaint in result.output
    assert len(result.output.strip().splitlines()) == 1


def test_a_command_must_take_options():
    with pytest.raises(TypeError, match="options"):
        model_options(lambda path: None)


def test_load_refuses_for_python_callers_too():
    with pytest.raises(InvalidArgument, match="--study"):
        load(ASIA, study="ids.txt")


def test_options_are_told_in_one_line() -> None:
    app = typer.Typer()

    @app.command()
    def show(
        name: Annotated[str, arg("NAME", "Who.")],
        size: Annotated[int, opt("N", "How many.", "--count", min=1)] = 2,
        loud: Annotated[bool, switch("--loud/--quiet", "How.")] = False,
    ) -> None:
        typer.echo(f"{name} {size} {loud}")

    assert CliRunner().invoke(app, ["ann", "--count", "3", "--loud"]).output == "ann 3 True\n"
    assert CliRunner().invoke(app, ["ann", "--count", "0"]).exit_code == 2
