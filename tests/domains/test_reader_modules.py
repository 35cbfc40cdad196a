"""Each reader of families and of traces by itself, on a file small enough to check by eye."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quiltdp.domains.pedigree.assemble import assemble, merge_twins
from quiltdp.domains.pedigree.cells import (
    is_header,
    read_cells,
    read_sex,
    read_text,
    recognise,
    sex_codes,
    zero_one_coding,
)
from quiltdp.domains.pedigree.gedcom import read_gedcom
from quiltdp.domains.pedigree.people import Person, read_ids, study_members
from quiltdp.domains.pedigree.read import looks_like_linkage, read_linkage, read_plink, read_table
from quiltdp.domains.trace.readers.geojson import read_geojson, read_google_locations
from quiltdp.domains.trace.readers.gps import read_gpx, read_plt, user_from_path
from quiltdp.domains.trace.readers.rows import Rows, first_property, make_points
from quiltdp.domains.trace.readers.tables import find_columns, read_csv, read_parquet
from quiltdp.errors import DependencyMissing, InvalidArgument, QuiltdpError, need

FAM = "F dad 0 0 1 -9\nF mum 0 0 2 -9\nF kid dad mum 1 -9\n"
NONE = dict.fromkeys(("lat", "lon", "time", "user"))


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def parents(file) -> dict[str, tuple[str | None, str | None]]:
    return {p.id: (p.father, p.mother) for p in assemble(file).people}


# -- families ---------------------------------------------------------------------------------------


def test_one_family_in_four_formats(tmp_path: Path) -> None:
    plink = parents(read_plink(write(tmp_path / "f.fam", FAM)))
    table = "id,father,mother,sex\ndad,,,1\nmum,,,2\nkid,dad,mum,1\n"
    headed = parents(read_table(write(tmp_path / "f.csv", table)))
    names = {name.rpartition(":")[2].rpartition("/")[2].rpartition(".")[2] for name in plink}
    assert names == {"dad", "mum", "kid"}
    for found in (plink, headed):
        assert sum(f is not None and m is not None for f, m in found.values()) == 1
    linkage = "1 1 0 0 3 0 0 1 0\n1 2 0 0 3 0 0 2 0\n1 3 1 2 0 0 0 1 1\n"
    path = write(tmp_path / "f.ped", linkage)
    assert looks_like_linkage(path)
    assert not looks_like_linkage(write(tmp_path / "g.ped", FAM))
    assert len(read_linkage(path).rows) == 3


def test_a_gedcom_family(tmp_path: Path) -> None:
    pytest.importorskip("ged4py")
    text = (
        "0 HEAD\n1 CHAR UTF-8\n1 GEDC\n2 VERS 5.5\n0 @I1@ INDI\n1 SEX M\n1 FAMS @F1@\n0 @I2@ INDI\n1 SEX F\n"
        "1 FAMS @F1@\n0 @I3@ INDI\n1 SEX M\n1 FAMC @F1@\n0 @F1@ FAM\n1 HUSB @I1@\n1 WIFE @I2@\n"
        "1 CHIL @I3@\n0 TRLR\n"
    )
    file = read_gedcom(write(tmp_path / "f.ged", text))
    assert sum(f is not None for f, _ in parents(file).values()) == 1


def test_codes_for_sex() -> None:
    assert [read_sex(v) for v in ("1", "2", "male", "F", "0")] == [
        "male",
        "female",
        "male",
        "female",
        "unknown",
    ]
    assert read_sex("h", sex_codes("h", "f")) == "male"
    found = zero_one_coding(["0", "1", "0"], fathers=[0], mothers=[1])
    assert found is not None
    assert (found["0"], found["1"]) == ("male", "female")


def test_columns_by_the_names_the_field_uses() -> None:
    assert is_header(["id", "father", "mother", "sex"])
    assert not is_header(["F", "dad", "0", "0"])
    assert recognise("f.csv", 1, ["IID", "PAT", "MAT"])["father"] == 1


def test_cells_of_any_separator(tmp_path: Path) -> None:
    for text, given in (("a b\nc d\n", None), ("a\tb\r\nc\td\r\n", None), ("\ufeffa,b\nc,d\n", ",")):
        path = write(tmp_path / "t", text)
        assert read_cells(path, given).cells == (("a", "b"), ("c", "d"))
    (tmp_path / "latin").write_bytes("Müller".encode("latin-1"))
    assert read_text(tmp_path / "latin") == "Müller"


def test_who_is_in_the_study(tmp_path: Path) -> None:
    family = assemble(read_plink(write(tmp_path / "f.fam", FAM)))
    ids = write(tmp_path / "ids", "# study\nkid\n")
    assert [name for _, name in read_ids(ids)] in (["kid"], ["# study", "kid"])
    names = [p.name for p in family.people if p.id == "kid"]
    assert list(study_members(family, ["kid"])) == names
    with pytest.raises(QuiltdpError, match="nobody"):
        study_members(family, ["nobody"])


def test_twins_of_one_egg_are_one_person() -> None:
    people = [Person("dad"), Person("mum"), Person("x", "dad", "mum"), Person("y", "dad", "mum")]
    merged, notes = merge_twins("f", people, [(("x", "y"), "mz")])
    assert [p.name for p in merged] == ["dad", "mum", "x"]
    assert merged[-1].also == ("y",)
    assert notes


# -- traces -----------------------------------------------------------------------------------------


def places(rows: Rows) -> list[tuple[float, float]]:
    return list(zip(rows.lat, rows.lon, strict=True))


def test_points_from_a_table_of_text(tmp_path: Path) -> None:
    path = write(tmp_path / "p.csv", "user;lat;lon;time\nu;1,5;2,5;2020-01-01 00:00:00\n")
    rows = read_csv(path)
    assert places(rows) == [(1.5, 2.5)]
    points = make_points(rows)
    assert len(points.lat) == 1
    columns = find_columns(["time", "latitude", "longitude"], "p.csv", NONE)
    assert (columns.lat, columns.lon, columns.user) == (1, 2, None)
    with pytest.raises(QuiltdpError):
        find_columns(["a", "b"], "p.csv", NONE)


def test_points_from_json(tmp_path: Path) -> None:
    feature = {
        "type": "Feature",
        "properties": {"time": "2020-01-01T00:00:00Z", "user": "u"},
        "geometry": {"type": "Point", "coordinates": [2.5, 1.5]},
    }
    path = write(tmp_path / "p.geojson", json.dumps({"type": "FeatureCollection", "features": [feature]}))
    assert places(read_geojson(path)) == [(1.5, 2.5)]
    location = {"latitudeE7": 15000000, "longitudeE7": 25000000, "timestamp": "2020-01-01T00:00:00Z"}
    assert places(read_google_locations([location], path)) == [(1.5, 2.5)]
    assert first_property({"Time": 1, "t": 2}, ["time"]) == 1


def test_points_from_a_gpx_track(tmp_path: Path) -> None:
    pytest.importorskip("gpxpy")
    text = (
        '<gpx version="1.1" creator="x" xmlns="http://www.topografix.com/GPX/1/1"><trk><trkseg>'
        '<trkpt lat="1.5" lon="2.5"><time>2020-01-01T00:00:00Z</time></trkpt></trkseg></trk></gpx>'
    )
    assert places(read_gpx(write(tmp_path / "p.gpx", text))) == [(1.5, 2.5)]


def test_points_from_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pa.table({"user": ["u"], "lat": [1.5], "lon": [2.5], "time": ["2020-01-01 00:00:00"]})
    parquet.write_table(table, tmp_path / "p.parquet")
    assert places(read_parquet(tmp_path / "p.parquet")) == [(1.5, 2.5)]


def test_points_from_geolife(tmp_path: Path) -> None:
    folder = tmp_path / "Data" / "007" / "Trajectory"
    folder.mkdir(parents=True)
    path = write(
        folder / "a.plt",
        "Geolife trajectory\nWGS 84\nAltitude is in Feet\nReserved 3\n0,2\n0\n"
        "1.5,2.5,0,100,43831,2020-01-01,00:00:00\n",
    )
    assert places(read_plt(path)) == [(1.5, 2.5)]
    assert user_from_path(path) == "007"


def test_a_library_that_is_missing_is_named() -> None:
    assert need("json", "nothing", "geo").dumps(1) == "1"
    with pytest.raises(DependencyMissing, match="no_such_library"):
        need("no_such_library", "reading nothing", "geo")
    assert issubclass(InvalidArgument, QuiltdpError)
