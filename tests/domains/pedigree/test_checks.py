"""What is refused or warned about, naming line and person."""

from __future__ import annotations

from pathlib import Path

import pytest

from quiltdp import pedigree
from quiltdp.domains.pedigree import read_pedigree
from quiltdp.errors import FileFormatError, InvalidModel

DATA = Path(__file__).parents[2] / "data" / "pedigree"


def write(tmp_path, *rows, name="family.fam"):
    path = tmp_path / name
    path.write_text("\n".join(rows) + "\n")
    return path


def test_own_mother_in_a_real_file():
    with pytest.raises(
        FileFormatError, match=r"peddy_a.ped:13: 'mom_4' is their own ancestor: mom_4 \(line 13\) ←"
    ):
        read_pedigree(DATA / "peddy_a.ped")


def test_the_cycle_is_printed(tmp_path):
    path = write(tmp_path, "F a c x 1", "F b a x 1", "F c b x 1", "F x 0 0 2")
    with pytest.raises(FileFormatError) as caught:
        read_pedigree(path)
    assert "a (line 1) ← c (line 3) ← b (line 2) ← a (line 1)" in str(caught.value)


def test_a_long_line_of_ancestors_is_no_cycle_and_no_recursion(tmp_path):
    rows = ["F p0 0 0 1", *(f"F p{k} p{k - 1} m{k} 1" for k in range(1, 3000))]
    assert max(read_pedigree(write(tmp_path, *rows)).generation.values()) == 2999


def test_duplicate_id(tmp_path):
    with pytest.raises(FileFormatError, match=r":3: 'a' of family 'F' already has a row on line 1"):
        read_pedigree(write(tmp_path, "F a 0 0 1", "F b 0 0 1", "F a 0 0 1"))
    with pytest.raises(FileFormatError, match=r":3: 'a' already has a row on line 2"):
        read_pedigree(write(tmp_path, "id,father,mother", "a,,", "a,,", name="x.csv"))


def test_father_is_mother(tmp_path):
    with pytest.raises(FileFormatError, match=r":2: 'kid' has 'p' as father and as mother"):
        read_pedigree(write(tmp_path, "F p 0 0 1", "F kid p p 1"))


def test_a_code_for_unknown_read_as_a_person(tmp_path):
    path = write(tmp_path, "F a 999 m 1", "F m 0 0 2", "F b f 999 1", "F f 0 0 1")
    with pytest.raises(FileFormatError, match=r":3: '999' has no row, .* declare it with missing='999'"):
        read_pedigree(path)
    assert len(read_pedigree(path, missing="999")) == 6


def test_undeclared_missing_codes_are_told(tmp_path):
    path = write(tmp_path, "F a -9 -9 1", "F b NA . 2")
    family = read_pedigree(path)
    assert len(family.founders) == 2
    assert (
        "line 1: 'a' has the parent '-9', which nobody is called: read as missing (2 times"
        in family.warnings[0]
    )
    assert not read_pedigree(path, missing=["-9", "NA", "."]).warnings


def test_a_missing_code_that_is_somebody_is_somebody(tmp_path):
    family = read_pedigree(write(tmp_path, "F -9 0 0 1", "F m 0 0 2", "F kid -9 m 1"))
    assert family["kid"].parents == ("-9", "m")


def test_swapped_columns_are_suspected():
    notes = " ".join(pedigree(DATA / "peddy_test-unknown-gma.ped", 0.1).notes)
    assert "line 6: 'aunt' is male and the mother of 'cousin1' (line 4)" in notes
    assert "swapped" in notes


def test_all_parents_against_their_sex(tmp_path):
    path = write(tmp_path, "F dad 0 0 2", "F mum 0 0 1", "F kid dad mum 1")
    notes = " ".join(pedigree(path, 0.1).notes)
    assert "every parent disagrees: are the father and mother columns swapped, or is sex coded 0/1?" in notes


def test_one_person_in_both_roles_is_told(tmp_path):
    path = write(tmp_path, "F p 0 0 0", "F q 0 0 0", "F r 0 0 0", "F a p q 1", "F b r p 1")
    assert "'p' is the father of 'a' and the mother of 'b'" in " ".join(pedigree(path, 0.1).notes)


def test_empty_id(tmp_path):
    with pytest.raises(FileFormatError, match=r":3: the id is empty"):
        read_pedigree(write(tmp_path, "id,father,mother", "a,,", ",a,b", name="x.csv"))


GENOTYPED = ["F dad 0 0 1 1 A A C C", "F mum 0 0 2 1 A G C T", "F kid dad mum 1 1 G G C T"]


def test_mendel_impossible_genotypes_name_trio_and_locus(tmp_path):
    path = write(tmp_path, *GENOTYPED, name="study.ped")
    with pytest.raises(
        InvalidModel, match=r"line 3: at locus 1, 'kid' has G/G, .* 'dad' A/A and 'mum' A/G cannot"
    ):
        pedigree(path, 0.1)
    write(tmp_path, "1 rs7 0 100", "1 rs9 0 200", name="study.map")
    with pytest.raises(InvalidModel, match="at rs7"):
        pedigree(path, 0.1)
    for rate in ({"mutation_rate": 1e-6}, {"error_rate": 0.01}):
        assert "cannot give" in " ".join(pedigree(path, 0.1, **rate).notes)


def test_possible_and_missing_genotypes_pass(tmp_path):
    rows = ["F dad 0 0 1 1 A A 0 0", "F mum 0 0 2 1 A G C T", "F kid dad mum 1 1 G A T T"]
    family = read_pedigree(write(tmp_path, *rows, name="study.ped"))
    assert family.loci == ("locus 1", "locus 2")
    assert not family.warnings
    assert len(pedigree(family, 0.1).nodes) == 3


def test_one_typed_parent_is_enough_to_refuse(tmp_path):
    rows = ["F dad 0 0 1 1 A A", "F mum 0 0 2 1 0 0", "F kid dad mum 1 1 G G"]
    with pytest.raises(InvalidModel, match="'mum' untyped cannot give"):
        pedigree(write(tmp_path, *rows, name="study.ped"), 0.1)


def test_extra_columns_that_are_not_genotypes(tmp_path):
    family = read_pedigree(
        write(tmp_path, "F a 0 0 1 1 blue eyes", "F b 0 0 1 1 green eyes", name="study.ped")
    )
    assert "not read as genotypes ('blue' on line 1" in family.warnings[0]
