"""Every format of the field, in the shapes people save it."""

from __future__ import annotations

import gzip

import pytest

from quiltdp import load_model
from quiltdp.domains.pedigree import read_pedigree
from quiltdp.errors import FileFormatError, InvalidArgument

TRIO = [
    ("F1", "kid", "dad", "mum", "1", "2"),
    ("F1", "dad", "0", "0", "1", "1"),
    ("F1", "mum", "0", "0", "2", "1"),
]


def family(tmp_path, text, name="family.fam", **options):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_pedigree(path, **options)


def lines(rows, separator="\t", end="\n", columns=6):
    return "".join(separator.join(r[:columns]) + end for r in rows)


def assert_trio(found, sexes=True):
    assert [p.name for p in found] == ["kid", "dad", "mum"]
    assert found["kid"].parents == ("dad", "mum")
    assert [p.founder for p in found] == [False, True, True]
    if sexes:
        assert [p.sex for p in found] == ["male", "male", "female"]


@pytest.mark.parametrize("columns", [4, 5, 6])
@pytest.mark.parametrize("separator", ["\t", " ", "   ", "\t "])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_plink_columns_separators_and_line_ends(tmp_path, columns, separator, end):
    assert_trio(family(tmp_path, lines(TRIO, separator, end, columns)), sexes=columns > 4)


@pytest.mark.parametrize("name", ["family.fam", "family.ped", "family.psam", "family.pre", "family.txt"])
def test_suffixes(tmp_path, name):
    assert_trio(family(tmp_path, lines(TRIO), name))


@pytest.mark.parametrize(
    "header",
    [
        "#FID\tIID\tPAT\tMAT\tSEX\tPHENO1",
        "FID\tIID\tPAT\tMAT\tSEX\tPHENOTYPE",
        "#Kindred_ID\tSample_ID\tPaternal_ID\tMaternal_ID\tSex\tAffected_Status",
        "#family_id\tsample_id\tdad_id\tmom_id\tsex\tphenotype",
        "# made by somebody\tx\ty\tz\tw\tv",
        "# made by me",
        "# made by me\n## version 2\n#FID\tIID\tPAT\tMAT\tSEX\tPHENO",
    ],
)
def test_headers_and_comments(tmp_path, header):
    assert_trio(family(tmp_path, header + "\n" + lines(TRIO) + "\n# the end\n\n"))


def test_seventh_column_and_byte_order_mark(tmp_path):
    text = "".join("\t".join((*r, "project x")) + "\n" for r in TRIO)
    assert_trio(family(tmp_path, b"\xef\xbb\xbf" + text.encode()))
    assert_trio(family(tmp_path, text.encode("utf-16")))


def test_psam_without_families_or_parents(tmp_path):
    found = family(
        tmp_path,
        "#IID\tSID\tPAT\tMAT\tSEX\nkid\t1\tdad\tmum\t1\ndad\t1\t0\t0\t1\nmum\t1\t0\t0\t2\n",
        "a.psam",
    )
    assert_trio(found)
    alone = family(tmp_path, "#IID\tSEX\na\t1\nb\t2\n", "b.psam")
    assert len(alone.founders) == 2
    assert "no column names a parent" in alone.warnings[0]


def test_ids_with_spaces_between_tabs(tmp_path):
    found = family(
        tmp_path,
        "id\tfid\tmid\tsex\nQueen  Victoria\t0\t0\t2\nAlbert\t0\t0\t1\nAlice\tAlbert\tQueen  Victoria\t2\n",
        "x.ped",
    )
    assert found["Alice"].parents == ("Albert", "Queen  Victoria")


def test_r_write_table_with_row_names(tmp_path):
    text = '"ped" "id" "father" "mother" "sex"\n"1" 1 3 1 2 1\n"2" 1 1 0 0 1\n"3" 1 2 0 0 2\n'
    assert family(tmp_path, text, "sample.tab")["3"].parents == ("1", "2")


@pytest.mark.parametrize(
    "text",
    [
        "id,dadid,momid,sex,affected\nkid,dad,mum,1,0\ndad,,,1,0\nmum,NA,NA,2,1\n",
        "ID,famID,momID,dadID,sex,gen\nkid,1,mum,dad,M,2\ndad,1,NA,NA,M,1\nmum,1,NA,NA,F,1\n",
        "animal;dam;sire;Sex\nkid;mum;dad;male\ndad;0;0;male\nmum;0;0;female\n",
        '"personID","momID","dadID","sex"\n"kid","mum","dad","M"\n"dad","","","M"\n"mum","","","F"\n',
    ],
)
def test_csv_of_kinship2_bgmisc_and_breeders(tmp_path, text):
    assert_trio(family(tmp_path, text, "family.csv"))


def test_csv_columns_are_named_when_unusual_and_never_guessed_when_ambiguous(tmp_path):
    text = "id,sample,father,mother\nkid,s1,dad,mum\ndad,s2,,\nmum,s3,,\n"
    with pytest.raises(FileFormatError, match=r":1: columns 'id' and 'sample' could each be the id"):
        family(tmp_path, text, "a.csv")
    assert_trio(family(tmp_path, text, "a.csv", columns={"id": "id"}), sexes=False)
    odd = "who,papa,mama\nkid,dad,mum\ndad,,\nmum,,\n"
    with pytest.raises(FileFormatError, match="does not name an id column"):
        family(tmp_path, odd, "b.csv")
    assert_trio(
        family(tmp_path, odd, "b.csv", columns={"id": "who", "father": 1, "mother": "mama"}), sexes=False
    )
    for columns, complaint in [
        ({"id": "nobody"}, "has the columns"),
        ({"shoe": "who"}, "not a role"),
        ({"id": 9}, "3 columns"),
    ]:
        with pytest.raises(InvalidArgument, match=complaint):
            family(tmp_path, odd, "b.csv", columns=columns)


def test_spreadsheet_habits(tmp_path):
    found = family(tmp_path, "id,father,mother\n3,1.0,2.0\n1,,\n2,NaN,nan\n,,\n", "a.csv")
    assert found["3"].parents == ("1", "2")
    assert len(found) == 3
    assert "line 2: the parent '1.0' of '3' is read as the id without '.0'" in found.warnings[0]
    with pytest.raises(FileFormatError, match="quotation mark is left open"):
        family(tmp_path, 'id,father,mother\n"3,1,2\n1,,\n2,,\n', "b.csv")


def test_sex_codes(tmp_path):
    text = "id,father,mother,sex\nkid,dad,mum,x\ndad,,,x\nmum,,,y\n"
    assert_trio(family(tmp_path, text, "a.csv", male="X", female="y"))
    with pytest.raises(InvalidArgument, match="two different codes"):
        family(tmp_path, text, "a.csv", male="x")


@pytest.mark.parametrize("male", ["0", "1"])
def test_zero_one_sex_is_read_off_the_parents(tmp_path, male):
    female = "1" if male == "0" else "0"
    text = f"id,father,mother,sex\nkid,dad,mum,{male}\ndad,,,{male}\nmum,,,{female}\n"
    found = family(tmp_path, text, "a.csv")
    assert_trio(found)
    assert f"{male} = male" in found.warnings[0]


LOOP = """\
1 1 0 0 3 0 0 1 0
1 2 0 0 3 0 0 2 0
1 3 1 2 5 4 4 1 0
1 4 1 2 6 0 0 2 0
1 5 3 8 7 0 0 2 0
1 6 9 4 0 0 0 1 2
1 7 10 5 0 0 0 1 1
1 8 0 0 5 0 0 2 0
1 9 0 0 6 0 0 1 0
1 10 0 0 7 0 0 1 2
"""


def test_linkage_loop_copies_are_merged(tmp_path):
    found = family(tmp_path, LOOP, "pedin.dat")
    assert found.format == "LINKAGE"
    assert len(found) == 9
    assert found["7"].parents == ("6", "5")
    assert found.loops == 1
    assert "line 10: '10' of family 1 is a loop copy of '6'" in found.warnings[0]


def test_remarks_that_begin_with_a_star(tmp_path):
    trio = "1 1 0 0 1 1\n1 2 0 0 2 1\n* in between\n1 3 1 2 1 2\n"
    assert len(family(tmp_path, "* made by hand\n** really\n" + trio, "pedin.pre")) == 3
    assert len(family(tmp_path, "* remark\n" + LOOP, "pedin.dat")) == len(family(tmp_path, LOOP, "b.dat"))
    starred = "* a 0 0 1 1\n* b 0 0 2 1\n* c a b 1 2\n"  # everybody's family is a star
    assert len(family(tmp_path, starred, "pedin.pre")) == 3
    with pytest.raises(FileFormatError, match=r"pedin.pre:4: this line begins with '\*' and"):
        family(tmp_path, "1 1 0 0 1 1\n1 2 0 0 2 1\n1 3 1 2 1 2\n* 4 1 2 1 2\n", "pedin.pre")
    with pytest.raises(FileFormatError, match="already has a row on line 4"):
        family(tmp_path, "* remark\n1 1 0 0 1 1\n1 2 0 0 2 1\n1 3 1 2 1 2\n1 3 1 2 2 2\n", "pedin.pre")


def test_nearly_a_name_is_asked_back(tmp_path):
    found = family(tmp_path, "FAM_A kid1 dad mum 1 2\nFAM_A dad 0 0 1 1\nFAM_A mum 0 0 2 1\n", "a.fam")
    with pytest.raises(InvalidArgument, match="did you mean 'kid1'"):
        found.find("kidl", "--kin: ")
    with pytest.raises(InvalidArgument, match="did you mean 'FAM_A'"):
        found.only("FAM_B")


def test_linkage_copies_that_disagree_are_refused(tmp_path):
    with pytest.raises(FileFormatError, match=r":10: '10' is marked as a copy of '6' but has another sex"):
        family(tmp_path, LOOP.replace("1 10 0 0 7 0 0 1 2", "1 10 0 0 7 0 0 2 2"), "pedin.dat")
    with pytest.raises(FileFormatError, match=r":10: .* different parents"):
        family(
            tmp_path, LOOP.replace("1 10 0 0 7 0 0 1 2", "1 10 9 8 7 0 0 1 2"), "pedin.dat", format="linkage"
        )
    with pytest.raises(FileFormatError, match=r":1: 5 columns"):
        family(tmp_path, "1 1 0 0 1\n", "pedin.dat", format="linkage")


GEDCOM = """\
0 HEAD
1 SOUR test
1 GEDC
2 VERS 5.5
2 FORM LINEAGE-LINKED
1 CHAR UTF-8
0 @I1@ INDI
1 NAME Anna /Able/
1 SEX F
1 FAMS @F1@
0 @I2@ INDI
1 SEX M
1 FAMS @F1@
0 @I3@ INDI
1 NAME Carl /Able/
1 SEX M
1 FAMC @F1@
1 FAMC @F2@
2 PEDI adopted
0 @I4@ INDI
1 SEX F
1 FAMC @F1@
0 @I5@ INDI
1 SEX M
1 FAMS @F2@
0 @I6@ INDI
1 SEX M
1 FAMC @F2@
0 @I7@ INDI
1 SEX F
1 FAMC @F2@
0 @F1@ FAM
1 HUSB @I2@
1 WIFE @I1@
1 CHIL @I3@
1 CHIL @I4@
0 @F2@ FAM
1 HUSB @I5@
1 CHIL @I3@
1 CHIL @I6@
1 CHIL @I7@
0 TRLR
"""


def test_gedcom_families_adoption_and_shared_unknown_mother(tmp_path):
    found = family(tmp_path, GEDCOM, "family.ged")
    assert found["I3"].parents == ("I2", "I1")
    assert found["I6"].parents == found["I7"].parents == ("I5", "mother of family F2")
    assert not found["mother of family F2"].stated
    assert "I3 (Carl Able): the link to family F2 is adopted, not by birth: ignored" in found.warnings
    assert len(found.components) == 2


def test_gedcom_adoption_into_the_family_listed_first(tmp_path):
    text = GEDCOM.replace(
        "1 FAMC @F1@\n1 FAMC @F2@\n2 PEDI adopted\n", "1 FAMC @F1@\n2 PEDI adopted\n1 FAMC @F2@\n"
    )
    found = family(tmp_path, text, "family.ged")
    assert found["I3"].parents == ("I5", "mother of family F2")
    assert found["I3"].parents == found["I6"].parents


def test_gedcom_children_without_a_record_are_told(tmp_path):
    found = family(tmp_path, GEDCOM.replace("1 CHIL @I7@", "1 CHIL @I7@\n1 CHIL @I99@"), "family.ged")
    assert any("1 children listed in families have no record" in w and "I99" in w for w in found.warnings)


def test_gedcom_adoption_event(tmp_path):
    text = GEDCOM.replace("1 FAMC @F2@\n2 PEDI adopted\n", "1 FAMC @F2@\n1 ADOP\n2 FAMC @F2@\n")
    found = family(tmp_path, text, "family.ged")
    assert found["I3"].parents == ("I2", "I1")
    assert any("adopted" in w for w in found.warnings)


def test_gedcom_siblings_without_recorded_parents_stay_siblings(tmp_path):
    text = GEDCOM.replace("1 HUSB @I5@\n", "")
    found = family(tmp_path, text, "family.ged")
    assert found["I6"].parents == found["I7"].parents == ("father of family F2", "mother of family F2")


def test_gedcom_two_birth_families_are_told(tmp_path):
    found = family(tmp_path, GEDCOM.replace("2 PEDI adopted\n", ""), "family.ged")
    assert found["I3"].parents == ("I2", "I1")
    assert any("several families" in w and "F2" in w for w in found.warnings)


@pytest.mark.parametrize(
    "text", ["this is not gedcom\n", "0 HEAD\n1 GEDC\n2 VERS 5.5\n1 CHAR UTF-8\n0 TRLR\n", ""]
)
def test_gedcom_that_is_none(tmp_path, text):
    with pytest.raises(FileFormatError):
        family(tmp_path, text, "family.ged")


def test_gedcom_without_its_parser(tmp_path, monkeypatch):
    from quiltdp.errors import DependencyMissing

    monkeypatch.setitem(__import__("sys").modules, "ged4py", None)
    with pytest.raises(DependencyMissing, match=r"quiltdp\[gedcom\]"):
        family(tmp_path, GEDCOM, "family.ged")


def test_compressed(tmp_path):
    assert_trio(family(tmp_path, gzip.compress(lines(TRIO).encode()), "family.fam.gz"))
    path = tmp_path / "family.csv.gz"
    path.write_bytes(gzip.compress(b"id,father,mother\nkid,dad,mum\ndad,,\nmum,,\n"))
    assert len(load_model(path, allele_frequency=0.1).nodes) == 3


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no lines with people"),
        ("F1 a 0\n", "3 columns, a pedigree needs at least 4"),
        ("F1 a 0 0 1 1\nF1 b 0 0 1 1\nF1 c 0 0 1\n", ":3: 5 columns where the lines before have 6"),
        ("F1 a 0 0 1\nF1 b 0 0 1 1\nF1 c 0 0 1 1\n", ":1: 5 columns where the lines below have 6"),
        ("#FID IID PAT MAT SEX\n", "nobody below"),
        ("kid dad mum 1\ndad 0 0 1\nmum 0 0 2\n", "read like id, father, mother, sex"),
        ("F1 a 0 0 1\0 1\n", "binary"),
    ],
)
def test_malformed(tmp_path, text, complaint):
    with pytest.raises(FileFormatError, match=complaint):
        family(tmp_path, text)


def test_unknown_suffix_and_format(tmp_path):
    with pytest.raises(InvalidArgument, match="does not tell the format"):
        family(tmp_path, lines(TRIO), "family.xyz")
    with pytest.raises(InvalidArgument, match="one of plink"):
        family(tmp_path, lines(TRIO), "family.xyz", format="excel")
    with pytest.raises(InvalidArgument, match="columns does not apply to gedcom"):
        family(tmp_path, GEDCOM, "family.ged", columns={"id": "x"})


def test_load_model_takes_pedigree_options(tmp_path):
    path = tmp_path / "trio.fam"
    path.write_text(lines(TRIO))
    model = load_model(path, allele_frequency=0.1, mutation_rate=1e-3, records=["kid"])
    assert model.records == ("kid",)
    assert model.provenance["mutation_rate"] == "0.001"
    with pytest.raises(InvalidArgument, match="give one of them"):
        load_model(path, allele_frequency=0.1, records=["kid"], study=["kid"])
    with pytest.raises(InvalidArgument, match="'mutation' is not an option"):
        load_model(path, allele_frequency=0.1, mutation=0.1)
