"""Many families at many loci: the answers of a panel in memory, streamed, in workers, and after a kill."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quiltdp.domains.pedigree import Pedigree, Person, read_pedigree
from quiltdp.domains.pedigree.frequencies import Panel, read_frequencies
from quiltdp.domains.pedigree.genome import account_families, count_frequencies, read_families
from quiltdp.domains.pedigree.panel import analyze_panel
from quiltdp.domains.pedigree.panel_calibration import calibrate_panel
from quiltdp.errors import FileFormatError, InvalidArgument, InvalidModel
from quiltdp.journal import Journal
from quiltdp.parallel import Workers

TRIO = Pedigree((Person("dad", sex="male"), Person("mum", sex="female"), Person("kid", "dad", "mum", "male")))
FAM = (
    "A a1 0 0 1 -9\nA a2 0 0 2 -9\nA a3 a1 a2 1 -9\n"
    "B b3 b1 b2 2 -9\nB b1 0 0 1 -9\nB b2 0 0 2 -9\n"
    "C c1 0 0 1 -9\nC c2 0 0 2 -9\nC c3 c1 c2 1 -9\nC c4 c1 c2 2 -9\n"
)


def write_panel(path: Path, count: int) -> Path:
    values = np.random.default_rng(5).beta(0.6, 0.6, count).clip(0.01, 0.99).round(2)
    rows = [f"{'X' if k % 7 == 0 else 1}\trs{k}\tA\tG\t{p}\t100" for k, p in enumerate(values)]
    rows += ["1\tmulti\tA\tG,T\t0.1,0.2\t100", "MT\tm\tA\tG\t0.1\t100", "1\tblank\tA\tG\tNA\t100"]
    path.write_text("\n".join(["#CHROM\tID\tREF\tALT\tALT_FREQS\tOBS_CT", *rows]) + "\n")
    return path


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    fam = tmp_path / "study.fam"
    fam.write_text(FAM)
    return fam, write_panel(tmp_path / "chip.afreq", 60)


def test_counting_by_frequency_changes_no_answer(files: tuple[Path, Path], tmp_path: Path) -> None:
    """Kept apart and counted, the same loci need the same noise (to the rounding of long sums)."""
    counted, listed = count_frequencies(files[1]), read_frequencies(files[1])
    assert (counted.loci, counted.notes) == (len(listed), listed.notes)
    assert len(counted) < len(listed)
    packed = tmp_path / "chip.afreq.gz"
    packed.write_bytes(gzip.compress(files[1].read_bytes()))
    assert np.array_equal(count_frequencies(packed).counts, counted.counts)
    for genetics in ({}, {"error_rate": 0.01}):
        profiles = [analyze_panel(TRIO, panel, nodes=2, **genetics) for panel in (counted, listed)]
        for adversary in ("informed", "prior"):
            one, other = (calibrate_panel(p, 1.0, adversary=adversary) for p in profiles)
            assert one.sigma == pytest.approx(other.sigma, rel=2e-3)
            assert one.dp_epsilon == pytest.approx(profiles[1].sensitivity / one.sigma, rel=1e-9)
            at = [p.leakage(200.0, adversary) for p in profiles]
            assert at[0] == pytest.approx(at[1], rel=1e-9)
        least = [calibrate_panel(p, 1.0, split="least-error", adversary="prior") for p in profiles]
        assert least[0].sigma == pytest.approx(least[1].sigma, rel=5e-3)
    assert profiles[0].fingerprint != profiles[1].fingerprint


def test_a_line_of_a_panel_stands_for_one_locus_or_more() -> None:
    with pytest.raises(InvalidArgument, match="at least one locus"):
        Panel(("a",), np.array([0.1]), np.array([False]), (".",), (".",), (".",), counts=np.array([0]))


def test_families_are_read_one_by_one(files: tuple[Path, Path], tmp_path: Path) -> None:
    found = list(read_families(files[0]))
    assert [len(f) for f in found] == [3, 3, 4]
    whole = read_pedigree(files[0])
    assert sum(len(f) for f in found) == len(whole)
    bad = tmp_path / "bad.fam"
    for text, said in (
        (FAM + "A a9 0 0 1 -9\n", "bad.fam:11: family 'A' comes again"),
        ("A a1 0\n", "bad.fam:1: 3 columns"),
        ("\n# nobody\n", "no lines with people"),
        ("A a1 0 0 1\nA a1 0 0 1\n", "a1"),
        ("A \0 0 0\n", "binary"),
    ):
        bad.write_text(text)
        with pytest.raises(FileFormatError, match=said):
            list(read_families(bad))
    bad.write_bytes(b"A \xff 0 0 1\n")
    with pytest.raises(FileFormatError, match=r"bad.fam:1: .*UTF-8"):
        list(read_families(bad))
    with pytest.raises(FileFormatError, match="no such file"):
        list(read_families(tmp_path / "nowhere"))
    for text in ("", "#CHROM\tID\tREF\tALT\tALT_FREQS\tOBS_CT\n", "hello\n"):
        bad.write_text(text)
        with pytest.raises(FileFormatError):
            count_frequencies(bad)


def test_every_family_gets_the_noise_of_a_panel_of_its_own(files: tuple[Path, Path]) -> None:
    panel = read_frequencies(files[1])
    found = list(account_families(read_families(files[0]), panel, epsilon=1.0, nodes=4))
    assert [(f.family, f.people) for f in found] == [("A", 3), ("B", 3), ("C", 4)]
    for family, noise in zip(read_families(files[0]), found, strict=True):
        profile = analyze_panel(family, panel, nodes=4)
        for adversary, sigma in noise.sigma.items():
            alone = calibrate_panel(profile, 1.0, adversary=adversary)
            assert sigma == alone.sigma
            assert alone.leakage[family.find(noise.binding[adversary])] == max(alone.leakage.values())
    nobody = Pedigree((Person("ann", line=7), Person("bob", sex="male")))
    with pytest.raises(InvalidModel, match="line 7: the sex of 'ann' is unknown"):
        list(account_families([TRIO, nobody], panel, epsilon=1.0))


def test_workers_and_journals_change_nothing(files: tuple[Path, Path], tmp_path: Path) -> None:
    panel = count_frequencies(files[1])
    asked: dict[str, Any] = {"epsilon": 1.0, "nodes": 3}
    here = list(account_families(read_families(files[0]), panel, **asked))
    alone = next(account_families([TRIO], panel, **asked))
    with Workers(2) as pool, Journal(tmp_path / "run") as journal:
        assert list(account_families(read_families(files[0]), panel, executor=pool, **asked)) == here
        assert next(account_families([TRIO], panel, executor=pool, **asked)) == alone
        for _ in range(2):
            assert list(account_families(read_families(files[0]), panel, journal=journal, **asked)) == here
            assert next(account_families([TRIO], panel, journal=journal, **asked)) == alone
            kept = len(journal)
        assert kept == len(journal)


def test_families_of_one_shape_are_asked_once(tmp_path: Path) -> None:
    panel = Panel.of({"a": 0.2})
    twins = Pedigree((Person("x", also=("y",)), Person("z")))
    with Journal(tmp_path / "run") as journal:
        found = list(account_families([TRIO, TRIO, twins, TRIO], panel, epsilon=1.0, journal=journal))
        assert len(journal) == 2
    assert [f.people for f in found] == [3, 3, 3, 3]
    assert found[2].sigma["prior"] > 2.0 * 2.0  # two people share a genome


def test_the_command_goes_on_after_a_kill(cli: Any, files: tuple[Path, Path], tmp_path: Path) -> None:
    journal, tsv = tmp_path / "run.jsonl", tmp_path / "out.tsv"
    words = [str(files[0]), "--allele-frequency", str(files[1]), "--epsilon", "1", "--json"]
    script = (
        "import os, signal, sys\n"
        "from quiltdp import journal\n"
        "put = journal.Journal.__setitem__\n"
        "def put_and_die(self, key, value):\n"
        "    put(self, key, value)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "journal.Journal.__setitem__ = put_and_die\n"
        "from quiltdp.cli import main\n"
        "main()\n"
    )
    call = [sys.executable, "-c", script, "pedigree", *words, "--journal", str(journal)]
    assert subprocess.run(call, capture_output=True, env={**os.environ}).returncode == -signal.SIGKILL
    with Journal(journal) as found:
        assert len(found) == 1
    whole = cli("pedigree", *words, "--journal", "none")
    again = cli("pedigree", *words, "--journal", journal, "-o", tsv, "--workers", 2)
    assert (again.code, again.err, again.out) == (0, "", whole.out)
    document = json.loads(again.out)
    assert (document["families"], document["people"], document["loci"]) == (3, 10, 61)
    assert document["prior"]["sigma"] <= document["informed"]["sigma"]
    lines = [line.split("\t") for line in tsv.read_text().splitlines()]
    assert lines[0][:3] == ["family", "people", "sigma_informed"]
    assert max(float(line[2]) for line in lines[1:]) == document["informed"]["sigma"]
    shown = cli("pedigree", *words[:-1], "--journal", journal)
    assert "memory " in shown.out
    assert cli("pedigree", *words, "--journal", files[0]).code == 2
