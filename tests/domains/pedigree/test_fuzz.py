"""Whatever is in the file: a checked pedigree, or one clear refusal; never a traceback."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quiltdp import pedigree
from quiltdp.domains.pedigree import read_pedigree
from quiltdp.errors import QuiltdpError

CELL = st.sampled_from(
    ["0", "1", "2", "3", "-9", "NA", "", ".", "a", "b", "é", '"', "#", "1.0", "A", "T", "x y"]
)
HEADERS = st.sampled_from(
    [
        "",
        "id,father,mother,sex",
        "#FID IID PAT MAT SEX",
        "id\tfid\tmid\tsex",
        "ID,momID,dadID,twinID,zygosity",
        "# hi",
    ]
)


@st.composite
def files(draw):
    separator = draw(st.sampled_from([" ", "\t", ",", ";"]))
    width = draw(st.integers(1, 11))
    rows = draw(st.lists(st.lists(CELL, min_size=width, max_size=width), max_size=7))
    body = [separator.join(r) for r in rows]
    ragged = draw(st.booleans())
    if ragged and body:
        body[-1] = body[-1][: len(body[-1]) // 2]
    return draw(st.sampled_from(["\n", "\r\n"])).join([draw(HEADERS), *body])


def read_or_refuse(path):
    """Return the family, or None after a refusal in one line."""
    try:
        return read_pedigree(path)
    except QuiltdpError as error:
        refusal = str(error)
    assert "\n" not in refusal.strip()
    return None


ANYTHING = {
    "max_examples": 60,
    "deadline": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture],
}


@pytest.mark.parametrize("suffix", [".fam", ".ped", ".psam", ".csv", ".tsv", ".dat", ".txt"])
@settings(**ANYTHING)
@given(text=files())
def test_any_table(tmp_path, suffix, text):
    path = tmp_path / f"file{suffix}"
    path.write_bytes(text.encode())
    family = read_or_refuse(path)
    if family is not None:
        model = pedigree(family, 0.1, mutation_rate=0.01)
        assert len(model.nodes) == len(family)
        assert set(model.records) == {p.name for p in family if p.stated}


LINES = """\
0 @I1@ INDI|0 @I2@ INDI|0 @I3@ INDI|1 SEX M|1 SEX|1 FAMC @F1@|1 FAMC|2 PEDI adopted|0 @F1@ FAM|1 HUSB @I1@
1 WIFE @I2@|1 CHIL @I3@|1 CHIL @I1@|1 CHIL|1 ADOP|2 FAMC @F1@|0 TRLR|garbage|1 NAME A /B/|3 CONC x"""


@settings(**ANYTHING)
@given(lines=st.lists(st.sampled_from(LINES.replace("\n", "|").split("|")), max_size=14))
def test_any_gedcom(tmp_path, lines):
    path = tmp_path / "file.ged"
    head = ["0 HEAD", "1 GEDC", "2 VERS 5.5", "1 CHAR UTF-8"]
    path.write_text("\n".join([*head, *lines]) + "\n")
    family = read_or_refuse(path)
    assert family is None or len(family) >= 1
