"""The model of a command: records, frequencies, and the files that ``pedigree`` writes for the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import quiltdp as qd
from quiltdp.cli.options import load

FAM = Path(__file__).parents[1] / "data" / "pedigree" / "peddy_ceph1463.ped"
ASIA = Path(__file__).parents[2] / "models" / "asia.bif"


def test_every_option_of_a_pedigree_reaches_its_model(cli, tmp_path: Path) -> None:
    study, model = tmp_path / "ids.txt", tmp_path / "model.json"
    study.write_text("NA12877\nCEPH1463 NA12878\n")
    done = cli(
        "pedigree", FAM, "--allele-frequency", "rs1=0.1", "--allele-frequency", "rs2=0.3", "--study", study,
        "--mutation-rate", "1e-4", "--error-rate", "0.01", "--inbreeding", "0.02", "--x-linked",
        "--read", "missing=-9", "--read", "unknown-parents=shared", "--read", "join-families=yes",
        "--read", "format=plink", "--read", "male=1", "--read", "female=2",
        "--read", "twins=NA12879,NA12880", "-o", model,
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    found = qd.load_model(model)
    assert (len(found.nodes), len(found.records)) == (36, 4)


def test_other_commands_take_the_model_that_pedigree_wrote(cli, tmp_path: Path) -> None:
    model = tmp_path / "model.json"
    assert cli("pedigree", FAM, "--allele-frequency", 0.1, "-o", model, "--json").code == 0
    call = ("--epsilon", 1, "--query", "allele-count", "--json")
    written, read = cli("calibrate", model, *call), cli("calibrate", FAM, "--allele-frequency", 0.1, *call)
    assert json.loads(written.out)["sigma"] == json.loads(read.out)["sigma"]
    assert "name the query" in cli("calibrate", model, "--epsilon", 1).err


def test_columns_and_people_of_the_study(cli, tmp_path: Path) -> None:
    table, model = tmp_path / "family.csv", tmp_path / "model.json"
    table.write_text("who,papa,mama\nkid,dad,mum\ndad,,\nmum,,\n")
    named = ["--read", "id=who", "--read", "father=papa", "--read", "mother=mama"]
    done = cli("pedigree", table, "--allele-frequency", 0.2, *named, "--study", "kid,dad", "-o", model)
    assert done.code == 0, done.err
    assert len(qd.load_model(model).records) == 2


def test_records_from_a_file(tmp_path: Path) -> None:
    names = tmp_path / "rows.txt"
    names.write_text("asia\nsmoke\n")
    assert len(load(ASIA, f"@{names}").records) == 2


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("info", ASIA, "--allele-frequency", "0.1"), "--allele-frequency is for pedigree files"),
        (("info", FAM), "needs the frequency"),
        (("info", FAM, "--allele-frequency", "often"), "'often' is not a number"),
        (
            ("pedigree", FAM, "--allele-frequency", "often"),
            "'often' is not a number, nor LOCUS=P, nor a file",
        ),
        (("info", FAM, "--allele-frequency", "1.5"), "between 0 and 1"),
        (("info", FAM, "--allele-frequency", "a=0.1", "--allele-frequency", "a=0.2"), "given twice"),
        (("pedigree", FAM, "--read", "id"), "expected NAME=VALUE"),
        (("pedigree", FAM, "--read", "aunt=x"), "--read aunt=…: the keys are id, father"),
        (("pedigree", FAM, "-o", "x.doc"), "-o x.doc: its ending says what is written (model: .json"),
        (("pedigree", FAM, "-o", "a.json", "-o", "b.json"), "-o b.json: a.json is a model already"),
        (
            ("calibrate", FAM, "--epsilon", 1, "--mutation-rate", 0.1),
            "--mutation-rate is gone: quiltdp pedigree",
        ),
        (("pedigree", FAM, FAM, "--kin", "x"), "--kin: families are taken one by one"),
        (("pedigree", FAM, FAM, "--epsilon", 1), "need --allele-frequency FILE and --epsilon"),
    ],
)
def test_refusals_are_one_line(cli, words, complaint: str) -> None:
    result = cli(*words)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert complaint in result.err
