"""From genotypes to a noisy table: every layout counts the same, noise is as stated, nothing leaks beside."""

from __future__ import annotations

import gzip
import json
from contextlib import suppress

import numpy as np
import pytest

from quiltdp.accountant.ledger import Ledger
from quiltdp.domains.pedigree import Pedigree, Person, read_pedigree
from quiltdp.domains.pedigree.frequencies import Panel, read_frequencies
from quiltdp.domains.pedigree.genotypes import count_genotypes
from quiltdp.domains.pedigree.panel import analyze_panel
from quiltdp.domains.pedigree.panel_calibration import (
    calibrate_panel,
    noisy_counts,
    release_table,
    to_calibration,
)
from quiltdp.errors import BudgetSpent, FileFormatError, InvalidArgument

FAMILY = Pedigree(
    (
        Person("dad", sex="male", family="F", id="dad"),
        Person("mum", sex="female", family="F", id="mum"),
        Person("kid", "dad", "mum", "male", family="F", id="kid"),
    )
)
PEOPLE = ("dad", "mum", "kid")
PANEL = Panel(
    ("rs1", "rs2", "rsX"),
    [0.3, 0.2, 0.4],
    [False, False, True],
    ("1", "1", "X"),
    ("A", "C", "G"),
    ("G", "T", "A"),
)
# dad G/G T/T A, mum A/G -, A/A; kid G/G C/T A (missing call: mum at rs2)
COUNTS = [[0, 1, 2], [0, 1, 1], [0, 2, 1]]
FILES = {
    "g.raw": (
        "FID IID PAT MAT SEX PHENOTYPE rs1_G rs2_T(/C) rsX_A other_T\n"
        "F dad 0 0 1 -9 2 2 2 0\nF mum 0 0 2 -9 1 NA 2 1\nF kid dad mum 1 -9 2 1 2 0\n"
        "F guest 0 0 1 -9 0 0 0 0\n"
    ),
    "flipped.raw": (
        "FID IID PAT MAT SEX PHENOTYPE rsX_A rs1_A rs2_C\n"
        "F kid dad mum 1 -9 2 0 1\nF dad 0 0 1 -9 1 0 0\nF mum 0 0 2 -9 2 1 NA\n"
    ),
    "g.ped": ("F dad 0 0 1 -9 G G T T A A\nF mum 0 0 2 -9 A G 0 0 A A\nF kid dad mum 1 -9 G G C T A A\n"),
    "g.vcf": (
        "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\tdad\tguest\tmum\tkid\n"
        "1\t5\trs1\tA\tG\t.\t.\t.\tGT:DP\t1/1:3\t0/0:1\t0|1:2\t1|1:9\n"
        "1\t6\trs2\tT\tC\t.\t.\t.\tGT\t0/0\t0/0\t./.\t1/0\n"
        "X\t7\trsX\tG\tA\t.\t.\t.\tGT\t1\t0\t1/1\t1\n"
    ),
    "table.tsv": "ID\tkid\tmum\tdad\nrs2\t1\tNA\t2\nrs1\t2\t1\t2\nrsX\t1\t2\t1\n",
    "table.csv": "locus,mum,dad,kid\nrs1,1,2,2\nrs2,,2,1\nrsX,2,2,2\n",
}
FILES["blanks.vcf"] = FILES["g.vcf"].replace("\t", "  ")


def written(tmp_path, name, text=None, packed=False):
    path = tmp_path / (name + ".gz" * packed)
    data = (FILES[name] if text is None else text).encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    (tmp_path / "g.map").write_text("1 rs1 0 5\n1 rs2 0 6\nX rsX 0 7\n")
    return path


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("packed", [False, True])
def test_every_layout_counts_the_same(name, packed, tmp_path):
    found = count_genotypes(written(tmp_path, name, packed=packed), PANEL, FAMILY, PEOPLE)
    assert found.counts.tolist() == COUNTS
    assert (found.people, found.missing) == (3, 1)
    assert found.answer("allele-count").ravel().tolist() == [5, 3, 4]
    assert found.answer("carrier-count").ravel().tolist() == [3, 2, 3]
    assert found.answer("genotype-histogram").tolist() == COUNTS
    assert any("1 calls (11.11%) are missing" in note for note in found.notes)
    assert any("not in the study (first: 'guest')" in n for n in found.notes) == ("guest" in FILES[name])


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("g.raw", "rs1_G", "rs1_T", ":1: locus 'rs1': the file counts 'T', the panel has 'A' and 'G'"),
        ("g.raw", "rs2_T(/C)", "rs9_T", "the locus 'rs2' of the panel is not here"),
        ("g.raw", "rs2_T(/C)", "rs1_G", ":1: the locus 'rs1' is in the file twice"),
        ("g.raw", "-9 2 2 2 0", "-9 2 0.5 2 0", ":2: '0.5' is not a genotype"),
        ("g.raw", "F mum 0", "F dad 0", ":3: 'dad' has genotypes on line 2 already"),
        ("g.raw", "-9 2 2 2 0", "-9 2 2 2", ":2: 9 columns, the header has 10"),
        ("g.ped", "G G T T", "G C T T", ":1: locus 'rs1': 'C' is neither 'A' nor 'G'"),
        ("g.ped", " T T A A\n", " T T A\n", ":1: 11 columns, 3 loci ask for 12"),
        ("g.vcf", "1/1:3", "1/2:3", ":3: locus 'rs1': '1/2:3' is not a genotype of two alleles"),
        ("g.vcf", "\tA\tG\t", "\tA\tT\t", ":3: locus 'rs1': the file counts 'T'"),
        ("g.vcf", "\tID\tREF\tALT\tQUAL", "", ":2: the columns of a VCF are #CHROM POS ID REF ALT QUAL"),
        ("g.vcf", "1\t5\trs1\tA", "1 5 rs1 A", ":3: 10 columns, the header has 13"),
        ("blanks.vcf", "  rs1  ", "  ", ":3: 12 columns, the header has 13"),
        ("table.tsv", "kid\tmum\tdad", "a\tb\tc", ":1: nobody of the study is among the columns"),
        ("table.tsv", "rs1\t2", "rs1\tx", ":3: 'x' is not a genotype"),
    ],
)
def test_genotypes_that_cannot_be_are_refused(name, old, new, said, tmp_path):
    assert old in FILES[name]
    path = written(tmp_path, name, FILES[name].replace(old, new, 1))
    with pytest.raises(FileFormatError, match=said.replace("(", r"\(")):
        count_genotypes(path, PANEL, FAMILY, PEOPLE)


@pytest.mark.parametrize("name", FILES)
def test_genotypes_with_a_broken_place_are_read_or_refused(name, tmp_path):
    """Every blank is taken out once and becomes another once."""
    text = FILES[name]
    places = [k for k, letter in enumerate(text) if letter in " \t\n,"]
    broken = {text[:k] + other + text[k + 1 :] for k in places for other in ("", " ", "\t", "\n")}
    for each in sorted(broken):
        with suppress(FileFormatError):
            count_genotypes(written(tmp_path, name, each), PANEL, FAMILY, PEOPLE)


def calibrated(query="allele-count", **options):
    return calibrate_panel(analyze_panel(FAMILY, PANEL, query), 1.0, **options)


@pytest.mark.parametrize("query", ["allele-count", "carrier-count", "genotype-histogram"])
@pytest.mark.parametrize("split", ["equal", "least-error"])
def test_the_noise_is_what_the_calibration_says(query, split, tmp_path):
    cal = calibrated(query, adversary="prior", split=split)
    counts = count_genotypes(written(tmp_path, "g.raw"), PANEL, FAMILY, PEOPLE)
    draws = np.array([noisy_counts(cal, counts) - counts.answer(query) for _ in range(400)])
    scale = np.abs(draws).mean(axis=0)  # the mean of |Laplace(σ)| is σ
    assert scale == pytest.approx(np.broadcast_to(cal.sigmas[:, None], scale.shape), rel=0.3)
    assert abs(draws.mean()) < 0.3 * cal.sigma


def test_the_table_has_the_columns_of_plink_and_nothing_of_the_data(tmp_path):
    cal = calibrated()
    counts = count_genotypes(written(tmp_path, "g.raw"), PANEL, FAMILY, PEOPLE)
    noisy = noisy_counts(cal, counts)
    text = release_table(cal, noisy, people=counts.people)
    first, second, header, *rows = text.splitlines()
    told = json.loads(first.removeprefix("##quiltdp="))
    assert (told["epsilon"], told["unit"]) == (1.0, "one person, all 3 loci together")
    assert header == "#CHROM\tID\tREF\tALT\tALT_CTS\tOBS_CT\tSIGMA"
    cells = [row.split("\t") for row in rows]
    assert [c[:4] for c in cells] == [["1", "rs1", "A", "G"], ["1", "rs2", "C", "T"], ["X", "rsX", "G", "A"]]
    assert [c[5] for c in cells] == ["6", "6", "4"]  # what everybody knows: not how many were called
    assert [float(c[4]) for c in cells] == pytest.approx(noisy.ravel(), abs=1e-3)
    assert "missing" not in first
    assert second.startswith(
        "##missing_calls=a call that is missing is counted as REF; OBS_CT is of everybody"
    )


@pytest.mark.parametrize("query", ["allele-count", "carrier-count", "genotype-histogram"])
def test_what_a_missing_call_is_does_not_depend_on_the_data(query, tmp_path):
    """A person without a call adds what the table says: nothing, or REF, and the words are for all data."""
    cal, said = calibrated(query), set()
    for text in (FILES["g.raw"], FILES["g.raw"].replace("NA", "0")):
        counts = count_genotypes(written(tmp_path, "g.raw", text), PANEL, FAMILY, PEOPLE)
        said.add(release_table(cal, counts.answer(query), people=counts.people).splitlines()[1])
        cells = counts.answer(query)[1].tolist()
        as_ref = {"allele-count": [3], "carrier-count": [2], "genotype-histogram": [1, 1, 1]}[query]
        absent = [0, 1, 1] if query == "genotype-histogram" else as_ref
        assert cells == (absent if "NA" in text else as_ref)
    (line,) = said
    assert ("in none of the columns" in line) == (query == "genotype-histogram")


@pytest.mark.parametrize("name", ["chi-square-cells", "carrier_count", "Allele-Count"])
def test_a_query_has_one_name(name):
    """A name that is almost one must not reach the counts: it would be a histogram with too little noise."""
    with pytest.raises(InvalidArgument, match="choose from allele-count"):
        analyze_panel(FAMILY, PANEL, name)


def test_a_ledger_pays_for_one_release_and_refuses_the_second(tmp_path):
    cal = calibrated()
    counts = count_genotypes(written(tmp_path, "g.raw"), PANEL, FAMILY, PEOPLE)
    plain = to_calibration(cal)
    assert plain.sigma == cal.sigma
    assert plain.dp_epsilon == pytest.approx(cal.dp_epsilon)
    ledger = Ledger.open_or_create(tmp_path / "study.db", plain)
    noisy_counts(cal, counts, ledger=ledger)
    with pytest.raises(BudgetSpent):
        noisy_counts(cal, counts, ledger=Ledger.open_or_create(tmp_path / "study.db", plain))


def test_one_locus_alone_is_charged_as_such(tmp_path):
    """ε is for each locus: the ledger charges what a person at one of them costs, however many there are."""
    counts = count_genotypes(written(tmp_path, "g.raw"), PANEL, FAMILY, PEOPLE)
    cal = calibrated(per_locus=True)
    plain = to_calibration(cal)
    assert (plain.mechanism.sensitivity, plain.protected) == (2.0, "one person at one locus")
    ledger = Ledger.create(tmp_path / "study.db", plain)
    noisy_counts(cal, counts, ledger=ledger)
    assert ledger.head.spent == 1


def test_weights_that_differ_have_another_fingerprint():
    """What is spent at one set of weights cannot be added to what is spent at another."""
    equal, other = (to_calibration(calibrated(split=s)) for s in ("equal", "least-error"))
    assert equal.fingerprint == calibrated().profile.fingerprint != other.fingerprint


def test_loci_are_found_by_position_where_the_panel_calls_them_so(tmp_path):
    """vcftools names loci by position, the VCF has ids and writes chr1; both mean one locus."""
    freq, vcf, fam = (tmp_path / n for n in ("p.frq", "g.vcf", "t.fam"))
    freq.write_text(
        "CHROM\tPOS\tN_ALLELES\tN_CHR\t{ALLELE:FREQ}\n1\t10\t2\t8\tA:0.8\tG:0.2\nX\t20\t2\t8\tC:0.5\tT:0.5\n"
    )
    fam.write_text("F a 0 0 1 -9\nF b 0 0 2 -9\n")
    vcf.write_text(
        "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\ta\tb\n"
        "chr1\t10\trs1\tA\tG\t.\t.\t.\tGT\t0/1\t1/1\nchrX\t20\trs2\tC\tT\t.\t.\t.\tGT\t1\t0/1\n"
    )
    panel = read_frequencies(freq)
    found = count_genotypes(vcf, panel, read_pedigree(fam), ("a", "b"))
    assert found.answer("allele-count").ravel().tolist() == [3.0, 2.0]
    vcf.write_text(vcf.read_text().replace("chr1\t10", "chr1\t11"))
    with pytest.raises(FileFormatError, match="'1:10' of the panel is not here; loci are found by name"):
        count_genotypes(vcf, panel, read_pedigree(fam), ("a", "b"))


def test_a_bim_without_frequencies_says_where_they_come_from(tmp_path):
    (tmp_path / "a.bim").write_text("1\trs1\t0\t100\tA\tG\n")
    with pytest.raises(FileFormatError, match="PLINK writes with --freq"):
        read_frequencies(tmp_path / "a.bim")
