"""The geneticist's job from the shell: a panel, its noise, its noisy table; what fails fails first.

The parts: ``quiltdp.cli.pedigree_files``, ``quiltdp.cli.pedigree_locus``, ``quiltdp.cli.pedigree_panel``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

FAM = "models/pedigree/ceph1463.fam"
PANEL = "models/pedigree/panel.afreq"
RAW = "models/pedigree/panel.raw"
TRIO = "F dad 0 0 1 -9\nF mum 0 0 2 -9\nF kid dad mum 1 2\nG lone 0 0 2 1\n"
AFREQ = "#CHROM\tID\tREF\tALT\tALT_FREQS\tOBS_CT\n1\trs1\tA\tG\t0.2\t9\n2\trs2\tC\tT\t0.5\t9\n"
CALLS = (
    "FID IID PAT MAT SEX PHENOTYPE rs1_G rs2_T\nF dad 0 0 1 -9 0 1\nF mum 0 0 2 -9 1 NA\n"
    "F kid dad mum 1 2 1 2\nG lone 0 0 2 1 2 0\n"
)


@pytest.fixture
def trio(tmp_path: Path) -> tuple[Path, Path, Path]:
    files = (tmp_path / "t.fam", tmp_path / "t.afreq", tmp_path / "t.raw")
    for path, text in zip(files, (TRIO, AFREQ, CALLS), strict=True):
        path.write_text(text)
    return files


def test_a_panel_protects_all_loci_of_a_person_together(cli, trio) -> None:
    fam, afreq, _ = trio
    found = json.loads(cli("pedigree", fam, "--allele-frequency", afreq, "--epsilon", 1, "--json").out)
    assert found["unit"] == "one person, all 2 loci together"
    panel = found["panel"]
    assert (panel["loci"], panel["sensitivity"], panel["query"]) == (2, 4.0, "allele-count")
    assert panel["informed"]["sigma"] >= panel["prior"]["sigma"] > 0
    assert 0.99 < max(p["informed"] for p in found["people"]) <= 1
    named = json.loads(
        cli(
            "pedigree",
            fam,
            "--allele-frequency",
            "rs1=0.2",
            "--allele-frequency",
            "rs2=0.5",
            "--epsilon",
            1,
            "--json",
        ).out
    )  # the same through one large model
    sigma = {q["query"]: q["sigma_informed"] for q in named["noise"]}["allele-count"]
    assert panel["informed"]["sigma"] == pytest.approx(sigma, rel=2e-3)
    alone = json.loads(
        cli(
            "pedigree", fam, "--allele-frequency", afreq, "--epsilon", 1, "--split", "per-locus", "--json"
        ).out
    )
    assert alone["unit"] == "one person at one locus"
    assert alone["panel"]["informed"]["sigma"] < 0.6 * panel["informed"]["sigma"]
    said = cli("pedigree", fam, "--allele-frequency", afreq, "--epsilon", 1).out
    assert "the noise hides everything" in said
    assert "about one person, all 2 loci together" in said


@pytest.mark.slow
def test_the_bundled_panel(cli) -> None:
    found = json.loads(
        cli(
            "pedigree",
            FAM,
            "--allele-frequency",
            PANEL,
            "--epsilon",
            1,
            "--adversary",
            "prior",
            "--json",
        ).out
    )
    assert found["panel"]["informed"]["sigma"] < 1360  # group privacy
    assert found["panel"]["prior"]["sigma"] < 1100
    assert found["panel"]["leakage"]["informed"] > 0.99  # at the noise that is enough against the prior one
    at = json.loads(cli("pedigree", FAM, "--allele-frequency", PANEL, "--dp-epsilon", 0.05, "--json").out)
    assert at["panel"]["leakage"]["sigma"] == 1600
    assert 0.5 < at["panel"]["leakage"]["informed"] <= 0.85


def test_a_release_is_written_once_it_is_whole(cli, trio, tmp_path: Path, monkeypatch) -> None:
    fam, afreq, raw = trio
    counts, ledger = tmp_path / "counts.tsv", tmp_path / "study.db"
    arguments = (
        "pedigree", fam, "--allele-frequency", afreq, "--epsilon", 1,
        "--genotypes", raw, "--release", counts, "--ledger", ledger,
    )  # fmt: skip
    done = cli(*arguments)
    assert done.code == 0
    assert "1 calls (12.50%) are missing" in " ".join(done.out.split())
    assert f"written: {counts}" in done.out
    rows = [line.split("\t") for line in counts.read_text().splitlines()[2:]]
    assert rows[0] == ["#CHROM", "ID", "REF", "ALT", "ALT_CTS", "OBS_CT", "SIGMA"]
    assert [r[1] for r in rows[1:]] == ["rs1", "rs2"]
    counts.unlink()
    monkeypatch.setattr(
        "quiltdp.domains.pedigree.panel_loci.LeakageProfile", lambda *_, **__: pytest.fail("too late")
    )
    again = cli(*arguments)  # refused before the long work
    assert again.code == 1
    assert "may leak ε = 1 together, and nothing is left" in again.err
    assert not counts.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--release", "c.tsv"), "--release needs --genotypes"),
        (("--genotypes", "RAW"), "--release needs --genotypes"),
        (("--ledger", "x.db"), "--ledger belongs to a release: give --release FILE too"),
        (("--allele-frequency", 0.1), "expected NAME=VALUE"),
        (("--kin", "kid"), "--kin needs --allele-frequency P"),
        (("--split", "fair"), "--split must be one of equal, least-error"),
        (("--adversary", "nobody"), "or 'knows:2'"),
        (("--adversary", "knows:2"), "choose informed or prior"),
        (("--query", "mean"), "choose from allele-count"),
        (
            ("--query", "chi-square-cells", "--genotypes", "RAW", "--release", "c.tsv"),
            "choose from allele-count",
        ),
        (("--epsilon", 0), "--epsilon must be above 0 and finite"),
        (("--x-linked",), "the chromosome column"),
        (("--genotypes", "RAW", "--release", "RAW"), "this is an input of the command"),
        (("--genotypes", "RAW", "--release", "/nowhere/c.tsv"), "its folder does not exist"),
        (("--genotypes", "FAM", "--release", "c.tsv"), "the locus 'rs1' of the panel is not here"),
        (("--family", "H"), "'H' is not in the pedigree"),
        (("--genotypes", "RAW", "--release", "/proc/c.tsv"), "/proc/c.tsv: the file cannot be written"),
        (("--genotypes", "RAW", "--release", "c.tsv", "--ledger", "/nowhere/x.db"), "folder does not exist"),
        (("--genotypes", "RAW", "--release", "c.tsv", "--ledger", "FAM"), "this is not a quiltdp ledger"),
    ],
)
def test_what_cannot_work_is_refused_before_the_work(cli, trio, tmp_path, monkeypatch, words, said) -> None:
    analysis = "quiltdp.domains.pedigree.panel_loci.LeakageProfile"
    monkeypatch.setattr(analysis, lambda *_, **__: pytest.fail("too late"))
    fam, afreq, raw = trio
    names = {"RAW": raw, "FAM": fam, "c.tsv": tmp_path / "c.tsv", "x.db": tmp_path / "x.db"}
    extra = () if "--epsilon" in words else ("--epsilon", 1)
    done = cli("pedigree", fam, "--allele-frequency", afreq, *extra, *(names.get(w, w) for w in words))
    assert done.code == 2
    assert any(part in done.err for part in said.split("|"))
    assert done.err.count("\n") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t.afreq", "t.fam", "t.raw"]


@pytest.mark.parametrize("flag", ["--genotypes", "--release", "--split"])
def test_options_of_panels_need_a_panel(cli, trio, flag) -> None:
    value = {"--split": ("least-error",)}.get(flag, ("x",))
    done = cli("pedigree", trio[0], flag, *value)
    assert (done.code, "give --allele-frequency FILE too" in done.err) == (2, True)


def test_one_family_only(cli, trio) -> None:
    fam, afreq, _ = trio
    everybody = json.loads(cli("pedigree", fam, "--json").out)["pedigree"]
    one = json.loads(cli("pedigree", fam, "--family", "G", "--json").out)["pedigree"]
    same = json.loads(cli("pedigree", fam, "--family", "kid", "--json").out)["pedigree"]
    assert (everybody["people"], one["people"], same["people"]) == (4, 1, 3)
    found = json.loads(
        cli("pedigree", fam, "--allele-frequency", afreq, "--family", "G", "--epsilon", 1, "--json").out
    )
    assert found["panel"]["informed"]["sigma"] == pytest.approx(4.0, rel=2e-3)  # nobody is related
    assert [p["person"] for p in found["people"]] == ["lone"]


@pytest.mark.slow
def test_people_stand_in_the_order_of_the_chosen_adversary(cli) -> None:
    for who in ("informed", "prior"):
        lines = cli(
            "pedigree", FAM, "--allele-frequency", 0.1, "--epsilon", 1, "--adversary", who
        ).out.splitlines()
        start = next(k for k, line in enumerate(lines) if line.startswith("People with"))
        assert f"to the {who} adversary" in lines[start]
        assert "NA12877" in lines[start + 4]


GED = (
    "0 HEAD\n1 CHAR UTF-8\n0 @I1@ INDI\n1 NAME Cleopatra /VII/\n1 SEX F\n1 FAMS @F1@\n0 @I2@ INDI\n"
    "1 NAME Mark /Antony/\n1 SEX M\n1 FAMS @F1@\n0 @I3@ INDI\n1 NAME Cleopatra /Selene/\n1 FAMC @F1@\n"
    "0 @F1@ FAM\n1 HUSB @I2@\n1 WIFE @I1@\n1 CHIL @I3@\n0 TRLR\n"
)


def test_names_of_a_gedcom_file_are_shown_and_accepted(cli, tmp_path: Path) -> None:
    pytest.importorskip("ged4py")
    path = tmp_path / "nile.ged"
    path.write_text(GED)
    for who in ("Cleopatra VII", "cleopatra  vii", "I1", "VII"):
        said = cli("pedigree", path, "--allele-frequency", 0.1, "--kin", who).out
        assert "tells about I1 (Cleopatra VII)" in said
        assert "I3 (Cleopatra Selene)" in said
    unclear = cli("pedigree", path, "--allele-frequency", 0.1, "--kin", "Cleopatra")
    assert unclear.code == 2
    assert "could be 'I1' (line 3), 'I3' (line 11)" in unclear.err
    assert "I2 (Mark Antony)" in cli("pedigree", path, "--allele-frequency", 0.1, "--dp-epsilon", 1).out
    table = tmp_path / "t.tsv"
    assert cli("pedigree", path, "--allele-frequency", 0.1, "--dp-epsilon", 1, "-o", table).code == 0
    assert table.read_text().splitlines()[0].split("\t")[:3] == ["FID", "IID", "NAME"]
    path.write_text(GED.replace("@I2@ INDI", "@I1@ INDI"))
    twice = cli("pedigree", path)
    assert f"{path}:7: the id @I1@ is on line 3 already: two people need two ids" in twice.err


def test_linkage_files_with_stars_and_repeated_ids(cli, tmp_path: Path) -> None:
    good = "1 1 * * 3 0 0 1 1\n1 2 * * 3 0 0 2 0\n1 3 1 2 0 4 4 1 0\n1 4 1 2 0 0 0 2 0\n"
    path = tmp_path / "f.dat"
    path.write_text(good)
    found = json.loads(cli("pedigree", path, "--json").out)["pedigree"]
    assert (found["format"], found["people"], found["founders"]) == ("LINKAGE", 4, 2)
    assert any("2 people have parents written '*'" in w for w in found["warnings"])
    path.write_text(good + "1 3 1 2 0 0 0 1 0\n")
    said = cli("pedigree", path)
    assert said.code == 2
    assert (
        ":5: '3' of family '1' is on line 3 already; in a LINKAGE file copies that break a loop" in said.err
    )
