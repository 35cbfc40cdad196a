"""The spellings of the version before do the same job, and say the new way in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

SMALL, FAM = "models/earthquake.bif", "models/pedigree/ceph1463.fam"
TOY = "tests/data/trace/toy.csv"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("audit", SMALL), ("leakage", "--audit", SMALL)),
        (("attack", SMALL, "--dp-epsilon", "0.1"), ("leakage", "--attack", SMALL, "--dp-epsilon", "0.1")),
        (
            ("maxinfo", "bits=12", "--event", "1e-6", "--json"),
            ("pvalues", "--beta", "0.01", "--step", "bits=12", "1e-6", "--json"),
        ),
        (
            ("calibrate", SMALL, "--epsilon", "1", "--values=0,1"),
            ("calibrate", SMALL, "--epsilon", "1", "--query", "0,1"),
        ),
        (("pedigree", FAM, "--format", "plink"), ("pedigree", FAM, "--read", "format=plink")),
    ],
)
def test_an_old_call_is_the_new_one(cli, old: tuple[str, ...], new: tuple[str, ...]) -> None:
    before, now = cli(*old), cli(*new)
    assert (before.code, before.out) == (now.code, now.out) == (0, before.out)
    assert before.err == f"quiltdp: this is spelled now: quiltdp {' '.join(new)}\n"
    assert now.err == ""


def test_a_report_is_a_calibration_with_a_page(cli, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = cli("report", SMALL, "--epsilon", 1, "-o", page, "--title", "Mine")
    assert (done.code, page.exists()) == (0, True)
    assert "--title is gone: the page is named after MODEL" in done.err
    assert f"quiltdp calibrate {SMALL} --epsilon 1 --report {page}" in done.err


def test_a_genome_is_a_pedigree_family_by_family(cli, tmp_path: Path) -> None:
    panel = tmp_path / "t.afreq"
    panel.write_text("#CHROM\tID\tREF\tALT\tALT_FREQS\n1\trs1\tA\tG\t0.2\n")
    done = cli("genome", FAM, "--frequencies", panel, "--epsilon", 1, "--json")
    assert done.code == 0, done.err
    assert "quiltdp pedigree --journal none" in done.err
    twice = cli("pedigree", FAM, FAM, "--allele-frequency", panel, "--epsilon", 1)
    assert (twice.code, "2 families" in twice.out) == (0, True)


@pytest.mark.parametrize(
    ("old", "said"),
    [
        (("calibrate", SMALL, "--epsilon", "1", "--disjoint"), "leave --releases out"),
        (("leakage", SMALL, "--dp-epsilon", "1", "--memory-limit", "1G"), "--memory-limit is gone"),
        (("pedigree", FAM, "--force"), "--force is gone: move the old release away"),
        (("info", FAM, "--twins", "a,b"), "-o model.json writes the model, which this command takes"),
    ],
)
def test_what_is_gone_and_would_change_the_answer_is_refused(cli, old: tuple[str, ...], said: str) -> None:
    done = cli(*old)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert said in done.err


def test_what_is_gone_and_changes_nothing_is_left_out(cli) -> None:
    done = cli("calibrate", SMALL, "--epsilon", "1", "--renyi", "--no-bracket")
    assert done.code == 0
    assert "--renyi is gone: the Rényi curve is in --json" in done.err


def test_sizes_of_cells_stand_with_the_cell() -> None:
    from quiltdp.cli.old import translated

    call = ["x.csv", "--cell", "stay", "--stay-time", "10min"]
    assert translated("trace", call, ["trace"])[1] == ["x.csv", "--cell", "stay:100m:10min"]
    call = ["x.csv", "--grid-crs=EPSG:2056", "--map", "m.png"]
    assert translated("trace", call, ["trace"])[1] == ["x.csv", "-o", "m.png", "--cell", "500m@EPSG:2056"]
