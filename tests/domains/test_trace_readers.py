"""Readers of location traces: every shipped file, the formats' corners, and each pitfall by name."""

from __future__ import annotations

import gzip
import json
import os
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from quiltdp.domains.trace import check_points, read_points
from quiltdp.domains.trace.points import Points
from quiltdp.domains.trace.times import parse_times
from quiltdp.errors import DependencyMissing, FileFormatError, InvalidArgument

ROOT = Path(__file__).parents[2]
LOCATION = ROOT / "models" / "location"
SHARED = Path(os.environ.get("QUILTDP_SHARED", ROOT.parent / "shared")) / "data" / "tests-only"

SHIPPED = {
    "movingpandas_304_to_UL.gpx": (2144, 1, "gpx", (52.624051, -8.661812, 52.672777, -8.570741)),
    "movingpandas_movingfeatures_collection.json": (37, 2, "moving-features", (18.0, 103.8, 40.5, 152.9)),
    "skmob_privacy_toy.csv": (23, 7, "csv", (43.54427, 10.32615, 43.8430139, 11.24626)),
    "trackintel_google_trajectory.csv": (416, 1, "csv", (47.3661502, 8.5193713, 47.3813892, 8.5584873)),
    "trackintel_gpsies_trajectory.csv": (247, 1, "csv", (47.37651505, 8.50698, 47.41166, 8.54883)),
}


def write(tmp_path: Path, text: str, name: str = "points.csv") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_files_read_whole(name: str) -> None:
    points = read_points(LOCATION / name)
    count, users, kind, box = SHIPPED[name]
    assert (len(points), len(points.users), points.provenance["format"]) == (count, users, kind)
    assert points.bounding_box == pytest.approx(box)


def test_times_agree_with_the_file() -> None:
    points = read_points(LOCATION / "trackintel_google_trajectory.csv")
    assert points.time[0] == datetime(2012, 12, 18, 21, 30, 35, tzinfo=UTC).timestamp()
    gpx = read_points(LOCATION / "movingpandas_304_to_UL.gpx")
    assert gpx.time[0] == datetime(2019, 2, 18, 7, 45, 50, tzinfo=UTC).timestamp()


@pytest.mark.skipif(not SHARED.is_dir(), reason="tests-only data not available")
@pytest.mark.parametrize(
    ("name", "count", "users"),
    [
        ("movingpandas_demodata_geolife.csv", 5908, 3),
        ("trackintel_geolife_000_Trajectory_20081103101336.plt", 7, 1),
        ("trackintel_geolife_001_Trajectory_20081023055305.plt", 961, 1),
        ("trackintel_geolife_001_Trajectory_20081024234405.plt", 7075, 1),
        ("trackintel_geolife_trajectory.csv", 2293, 1),
    ],
)
def test_geolife_files_read_whole(name: str, count: int, users: int) -> None:
    points = read_points(SHARED / name)
    assert (len(points), len(points.users)) == (count, users)


@pytest.mark.skipif(not SHARED.is_dir(), reason="tests-only data not available")
def test_a_table_without_places_is_refused() -> None:
    with pytest.raises(FileFormatError, match=r"states\.csv:1: no latitude column among 'id', 'weight'"):
        read_points(SHARED / "traminer_mvad_monthly_states.csv")


PLT = "Geolife trajectory\nWGS 84\nAltitude is in Feet\nReserved 3\n0,2,255,My Track,0,0,2,8421376\n0\n"


def test_geolife_folder_takes_users_from_folders(tmp_path: Path) -> None:
    for user, second in (("000", 36), ("001", 41)):
        folder = tmp_path / "Data" / user / "Trajectory"
        folder.mkdir(parents=True)
        row = f"39.99,116.32,0,492,39755.42,2008-11-03,10:13:{second}\n"
        write(folder, PLT + row, "a.plt")
        write(folder, PLT + row.replace("10:13", "10:14"), "b.plt")
    write(tmp_path / "Data" / "000", "Start Time\tEnd Time\tMode\n", "labels.txt")
    points = read_points(tmp_path / "Data")
    assert points.users == ("000", "001")
    assert np.bincount(points.who).tolist() == [2, 2]


def test_plt_that_is_not_one(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="six header lines"):
        read_points(write(tmp_path, "lat,lon\n1,2\n", "x.plt"))
    with pytest.raises(FileFormatError, match=r"x.plt:7: a PLT point has 7 fields, this line has 2"):
        read_points(write(tmp_path, PLT + "39.9,116.3\n", "x.plt"))
    with pytest.raises(FileFormatError, match=r"x.plt:7: not a PLT point"):
        read_points(write(tmp_path, PLT + "39.9,116.3,0,1,2,2008-13-03,10:13:36\n", "x.plt"))


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_separators_bom_and_crlf(tmp_path: Path, mark: str) -> None:
    rows = [["User_ID", "Latitude", "lng", "timestamp"], ["a", "47.1", "8.5", "2020-01-01T00:00:00Z"]]
    text = "﻿" + "\r\n".join(mark.join(r) for r in rows) + "\r\n\r\n"
    points = read_points(write(tmp_path, text))
    assert (points.users, points.lat[0], points.lon[0]) == (("a",), 47.1, 8.5)


def test_columns_are_never_guessed(tmp_path: Path) -> None:
    header = "lat,lon,time,timestamp\n47,8,2020-01-01T00:00:00Z,5\n"
    with pytest.raises(
        FileFormatError, match=r"'time' and 'timestamp' could each be the time: .*say which with time"
    ):
        read_points(write(tmp_path, header))
    assert len(read_points(write(tmp_path, header), time="time")) == 1
    with pytest.raises(InvalidArgument, match=r"time 'when' is not a column; .*csv has the columns 'lat'"):
        read_points(write(tmp_path, header), time="when")
    with pytest.raises(FileFormatError, match="no longitude column"):
        read_points(write(tmp_path, "lat,time\n1,2\n"))
    with pytest.raises(FileFormatError, match="three different columns"):
        read_points(write(tmp_path, "lat,lon,time\n1,2,3\n"), lat="lon", lon="lon")
    with pytest.raises(FileFormatError, match="no longitude column"):  # it is the latitude now
        read_points(write(tmp_path, "lat,lon,time\n1,2,3\n"), lat="lon")


def test_bad_rows_are_refused_by_line(tmp_path: Path) -> None:
    head = "lat,lon,time,user\n47,8,2020-01-01T00:00:00Z,a\n"
    for row, said in [
        ("47,8,2020-01-01T00:00:00Z\n", ":3: the row has 3 fields, the header has 4"),
        ("47,x,2020-01-01T00:00:00Z,a\n", ":3: the longitude 'x' is not a number"),
        ("47,8,yesterday,a\n", ":3: 'yesterday' is not a time: expected ISO 8601"),
        ("47,8,03/04/2020 10:00,a\n", ":3: .*day and month could be swapped"),
        ("47,8,2020-01-01T00:00:00,a\n", ":3: .*has no time zone but others have"),
        ("47,8,2020-01-01T00:00:00Z,\n", ":3: the user is empty"),
        ("47,8,0,2020-01-01T00:00:00Z,a\n", "decimal commas in a comma-separated file"),
    ]:
        with pytest.raises(FileFormatError, match=said):
            read_points(write(tmp_path, head + row))


def test_files_without_content(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="empty"):
        read_points(write(tmp_path, "\n"))
    with pytest.raises(FileFormatError, match="holds no points"):
        read_points(write(tmp_path, "lat,lon,time\n"))
    with pytest.raises(FileFormatError, match="name the columns with header="):
        read_points(write(tmp_path, "47.1,8.5,2020-01-01\n"))
    with pytest.raises(FileFormatError, match=r"unknown ending '.xls'"):
        read_points(write(tmp_path, "x", "a.xls"))
    (tmp_path / "none").mkdir()
    with pytest.raises(FileFormatError, match="no file ending in"):
        read_points(tmp_path / "none")
    (tmp_path / "bytes.csv").write_bytes(b"lat\xff,lon")
    with pytest.raises(FileFormatError, match="byte 0xff is not utf-8"):
        read_points(tmp_path / "bytes.csv")


def test_columns_of_a_file_without_a_header(tmp_path: Path) -> None:
    """The T-Drive taxis: taxi id, time, longitude, latitude, no header."""
    path = write(
        tmp_path, "1,2008-02-02 15:36:08,116.51172,39.92123\n1,2008-02-02 15:46:08,116.51,39.93\n", "1.txt"
    )
    with pytest.raises(FileFormatError, match="name the columns with header="):
        read_points(path)
    points = read_points(path, header="taxi_id,datetime,lon,lat")
    assert (points.users, points.lat.tolist(), points.lines.tolist()) == (("1",), [39.92123, 39.93], [1, 2])


def test_date_and_clock_in_two_columns(tmp_path: Path) -> None:
    path = write(tmp_path, "lat,lon,date,time\n47,8,2008-10-23,05:53:05\n")
    with pytest.raises(FileFormatError, match=r"it has no date; .*time='date\+time"):
        read_points(path)
    assert read_points(path, time="date+time").time.tolist() == [1224741185.0]


def test_tables_that_are_none(tmp_path: Path) -> None:
    head = "lat,lon,time\n"
    with pytest.raises(FileFormatError, match=r":2: not a table \(.*field larger"):
        read_points(write(tmp_path, head + "x" * 200_000 + ",8,2008-10-23\n"))
    with pytest.raises(InvalidArgument, match="separator must be one character"):
        read_points(write(tmp_path, head), separator="::")
    late = read_points(write(tmp_path, "\n\n" + head + "47,8,2008-10-23T05:53:05Z\n"))
    assert late.lines.tolist() == [4], "blank lines before the header are counted"


def test_packed_files(tmp_path: Path) -> None:
    text = "lat,lon,time\n47,8,2008-10-23T05:53:05Z\n"
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    assert len(read_points(tmp_path / "a.csv.gz")) == 1
    with pytest.raises(FileFormatError, match="not a gzip file"):
        read_points(write(tmp_path, text, "b.csv.gz"))
    with pytest.raises(FileFormatError, match="unknown ending"):
        read_points(write(tmp_path, text, "b.gz"))


def test_google_location_history(tmp_path: Path) -> None:
    records = [
        {"latitudeE7": 473766094, "longitudeE7": 85484732, "timestamp": "2012-12-18T21:30:35.123Z"},
        {"timestamp": "2012-12-18T21:31:35Z"},
    ]
    points = read_points(write(tmp_path, json.dumps({"locations": records}), "Records.json"))
    assert points.lat.tolist() == [47.3766094]
    assert points.time[0] == pytest.approx(1355866235.123)
    assert "1 record without a position" in points.notes[0]
    records[0]["latitudeE7"] = "x"
    path = write(tmp_path, json.dumps({"locations": records}), "Records.json")
    with pytest.raises(FileFormatError, match="record 1: 'x'"):
        read_points(path)


def test_decimal_commas_are_read_and_named(tmp_path: Path) -> None:
    text = "lat;lon;time\n47,123;8,5;2020-01-01T00:00:00Z\n47,125;8;2020-01-01T00:05:00Z\n"
    points = read_points(write(tmp_path, text))
    assert points.lat.tolist() == [47.123, 47.125]
    assert any("decimal commas" in n for n in points.notes)


def test_rows_without_a_fix_are_counted(tmp_path: Path) -> None:
    points = read_points(write(tmp_path, "lat,lon,time\n,,2020-01-01T00:00:00Z\n47,8,2020-01-01T00:00:00Z\n"))
    assert len(points) == 1
    assert any("1 row without a coordinate" in n for n in points.notes)


def test_swapped_coordinates_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r":2: latitude 116.3, .*look swapped"):
        read_points(write(tmp_path, "lat,lon,time\n116.3,39.9,2020-01-01T00:00:00Z\n"))
    with pytest.raises(FileFormatError, match="projected metres"):
        read_points(write(tmp_path, "y,x,t\n5246000,465000,2020-01-01T00:00:00Z\n"))


def test_projected_coordinates_with_their_crs(tmp_path: Path) -> None:
    path = write(tmp_path, "y,x,t\n5246799.0,465005.0,2020-01-01T00:00:00Z\n")
    points = read_points(path, crs="EPSG:32632")
    assert points.lat[0] == pytest.approx(47.37, abs=0.01)
    assert points.lon[0] == pytest.approx(8.54, abs=0.01)
    with pytest.raises(InvalidArgument, match="not a coordinate system"):
        read_points(path, crs="EPSG:abc")


def test_one_point_off_the_globe(tmp_path: Path) -> None:
    text = "lat,lon,time\n47,8,2020-01-01T00:00:00Z\n400.2,8,2020-01-01T00:05:00Z\n"
    with pytest.raises(FileFormatError, match=r":3: latitude 400.2"):
        read_points(write(tmp_path, text))
    points = read_points(write(tmp_path, text), drop_invalid=True)
    assert len(points) == 1
    assert any("1 point outside the globe dropped (first at line 3)" in n for n in points.notes)


# -- times -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "2008-10-23T05:53:05Z",
        "2008-10-23 05:53:05+00",
        "2008-10-23 07:53:05+0200",
        "2008-10-23T07:53:05.000+02:00",
        "2008/10/23 05:53:05 UTC",
        "1224741185",
        "1224741185000",
    ],
)
def test_spellings_of_one_moment(text: str) -> None:
    seconds, _ = parse_times([text], [1], "f")
    assert seconds.tolist() == [1224741185.0]


def test_a_missing_time_zone_is_named() -> None:
    seconds, notes = parse_times(["2011-02-03 08:34:04"], [1], "f")
    assert seconds[0] == datetime(2011, 2, 3, 8, 34, 4, tzinfo=UTC).timestamp()
    assert "no time zone" in notes[0]
    local, said = parse_times(["2011-02-03 08:34:04"], [1], "f", time_zone="Europe/Rome")
    assert (local[0], said) == (seconds[0] - 3600, ("times without a zone read as Europe/Rome",))
    _, said = parse_times(["2011-10-30 02:30:00"], [1], "f", time_zone="Europe/Rome")
    assert "change of clocks" in said[1]
    with pytest.raises(InvalidArgument, match="time_zone 'Mars/Base' is not known"):
        parse_times(["2011-02-03 08:34:04"], [1], "f", time_zone="Mars/Base")


def test_a_time_format_and_bad_numbers() -> None:
    seconds, _ = parse_times(["23.10.2008 05:53"], [1], "f", time_format="%d.%m.%Y %H:%M")
    assert seconds[0] == 1224741180.0
    with pytest.raises(FileFormatError, match="does not match time_format"):
        parse_times(["2008"], [1], "f", time_format="%d.%m.%Y")
    with pytest.raises(FileFormatError, match="not seconds or milliseconds since 1970"):
        parse_times(["12", "13"], [1, 2], "f")


# -- GPX, GeoJSON, Parquet -------------------------------------------------------------------


def test_gpx_without_times(tmp_path: Path) -> None:
    body = '<trk><trkseg><trkpt lat="1" lon="2"/></trkseg></trk>'
    gpx = f'<gpx version="1.1" xmlns="http://www.topografix.com/GPX/1/1">{body}</gpx>'
    with pytest.raises(FileFormatError, match="no track point has a time"):
        read_points(write(tmp_path, gpx, "a.gpx"))
    with pytest.raises(FileFormatError, match="not well-formed XML"):
        read_points(write(tmp_path, "<gpx", "a.gpx"))


def feature(geometry: object, properties: object) -> dict[str, object]:
    return {"type": "Feature", "geometry": geometry, "properties": properties}


def test_geojson_points_and_lines(tmp_path: Path) -> None:
    times = ["2020-01-01T00:00:00Z", "2020-01-01T00:05:00Z"]
    points = [
        feature({"type": "Point", "coordinates": [8.5, 47.1]}, {"timestamp": times[0], "user": "a", "id": 1}),
        feature({"type": "Point", "coordinates": [8.5, 47.2]}, {"timestamp": times[1], "user": "a", "id": 2}),
        feature({"type": "LineString", "coordinates": [[8, 47], [8, 46, 300]]}, {"coordTimes": times}),
    ]
    document = {"type": "FeatureCollection", "features": points}
    read = read_points(write(tmp_path, json.dumps(document), "a.geojson"))
    assert read.users == ("a", "user")
    assert read.lat.tolist() == [47.1, 47.2, 47, 46]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("{", "not JSON"),
        (json.dumps(feature(7, {})), "feature 1: properties and geometry must be objects"),
        (json.dumps(feature({"type": "Point", "coordinates": {"a": 1}}, {"time": "x"})), "is not a position"),
        (json.dumps(feature(None, [1])), "feature 1: properties and geometry must be objects"),
        ('{"type": "Topology"}', "a Feature or a FeatureCollection is expected"),
        (json.dumps(feature({"type": "Point", "coordinates": [1, 2]}, {})), "feature 1 has no times"),
        (json.dumps(feature({"type": "Polygon", "coordinates": []}, {})), "geometry 'Polygon' has no trace"),
        (
            json.dumps(feature({"type": "LineString", "coordinates": [[1, 2]]}, {"times": ["a", "b"]})),
            "1 positions but 2 times",
        ),
        (
            json.dumps(
                {
                    "type": "Feature",
                    "temporalGeometry": {"type": "MovingPolygon", "coordinates": [], "datetimes": []},
                }
            ),
            "only MovingPoint has a trace",
        ),
    ],
)
def test_geojson_refusals(tmp_path: Path, document: str, said: str) -> None:
    with pytest.raises(FileFormatError, match=said):
        read_points(write(tmp_path, document, "a.json"))


def test_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    stamps = [datetime(2020, 1, 1, 0, m, tzinfo=UTC) for m in (0, 5, 10)]
    table = pa.table(
        {"uid": [1, 1, 2], "lat": [47.1, None, 47.3], "lng": [8.5, 8.5, 8.5], "datetime": stamps}
    )
    pq.write_table(table, tmp_path / "a.parquet")
    points = read_points(tmp_path / "a.parquet")
    assert (points.users, points.time.tolist()) == (("1", "2"), [s.timestamp() for s in stamps[::2]])
    with pytest.raises(FileFormatError, match="not a Parquet file"):
        read_points(write(tmp_path, "nothing", "b.parquet"))


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "gpxpy", None)
    with pytest.raises(DependencyMissing, match=r"reading GPX needs .*pip install 'quiltdp\[geo\]'"):
        read_points(LOCATION / "movingpandas_304_to_UL.gpx")


# -- checks ----------------------------------------------------------------------------------


def made(time: list[float], lat: list[float], who: list[int] | None = None) -> Points:
    owners = who or [0] * len(time)
    return Points(tuple("ab"[: max(owners) + 1]), owners, time, lat, [8.5] * len(time))


def test_unsorted_times_are_sorted_and_named() -> None:
    points = check_points(read_points(LOCATION / "trackintel_google_trajectory.csv"))
    assert (np.diff(points.time) > 0).all()
    assert "415 rows earlier than the row before them: sorted by time" in points.notes


def test_duplicates_are_named() -> None:
    points = check_points(made([0, 0, 300, 300], [47, 47, 47.001, 47.002]))
    assert points.time.tolist() == [0, 300]
    assert points.lat.tolist() == [47, 47.001]
    assert "1 repeated point dropped" in points.notes
    assert "1 point at a second place at the same time dropped (first at line 4)" in points.notes


def test_users_have_their_own_clock() -> None:
    points = check_points(made([0, 300, 0, 300], [47, 47, 48, 48], [0, 0, 1, 1]))
    assert len(points) == 4
    assert points.notes == ()


def test_impossible_speed_is_named() -> None:
    lat = [47.0] * 30
    lat[10] = 48.0
    points = check_points(made([60.0 * k for k in range(30)], lat))
    assert any("2 moves faster than 1,080 km/h (first: 6,6" in n for n in points.notes), points.notes
    assert check_points(made([60.0 * k for k in range(30)], lat), max_speed=None).notes == ()


def test_several_users_joined_are_refused() -> None:
    time = [60.0 * k for k in range(40)]
    lat = [47.0 if k % 2 else 48.0 for k in range(40)]
    with pytest.raises(FileFormatError, match=r"39 of 39 moves are impossibly fast .*several users joined"):
        check_points(made(time, lat))
    assert len(check_points(made(time, lat), max_speed=None)) == 40
    with pytest.raises(FileFormatError, match="second place at the same time: several users are joined"):
        check_points(made([60.0 * (k // 2) for k in range(40)], lat))


def test_null_island_is_dropped() -> None:
    points = Points(("a",), [0, 0], [0, 60], [0.0, 47.0], [0.0, 8.0])
    checked = check_points(points)
    assert len(checked) == 1
    assert "no satellite fix" in checked.notes[0]
    with pytest.raises(FileFormatError, match="no usable points"):
        check_points(Points(("a",), [0], [0], [0.0], [0.0]))


def test_points_refuse_nonsense() -> None:
    with pytest.raises(InvalidArgument, match="named twice"):
        Points(("a", "a"), [0], [0], [1], [1])
    with pytest.raises(InvalidArgument, match="outside 'users'"):
        Points(("a",), [1], [0], [1], [1])
    with pytest.raises(InvalidArgument, match="NaN"):
        Points(("a",), [0], [0], [float("nan")], [1])
    with pytest.raises(InvalidArgument, match="shape"):
        Points(("a",), [0], [0], [1, 2], [1])
    with pytest.raises(ValueError, match="read-only"):
        made([0], [47]).lat[0] = 1


# -- files that are not what they seem ---------------------------------------------------------------

BIG = "9" * 350
TIMED = '{"type": "Feature", "properties": {"time": "2020-01-01T00:00:00Z"}, "geometry": '
POINT = TIMED + '{"type": "Point", "coordinates": PLACE}}'
GOOGLE = '{"locations": [{"latitudeE7": PLACE, "longitudeE7": 1, "timestamp": "x"}]}'


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.geojson", POINT.replace("PLACE", f"[{BIG}, 8]"), "is not a position"),
        ("a.geojson", POINT.replace("PLACE", '"12"'), "is not a position"),
        ("a.geojson", "[" * 100_000, "nested too deeply"),
        ("a.geojson", '{"type":"Feature","temporalGeometry":{"prisms":3}}', "only MovingPoint"),
        ("a.json", GOOGLE.replace("PLACE", BIG), "are not coordinates"),
        ("a.json", GOOGLE.replace("PLACE", "9" * 5_000), "5,000 digits, too many"),
        ("a.csv", ",,,\n;;;\n", "no column names|no latitude"),
        ("a.csv", '"' + "x" * 200_000, "not a table"),
        ("a.gpx", "<gpx>" + "<trk>" * 1000, "deep in each other"),
    ],
)
def test_odd_files_are_refused_in_one_line(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(FileFormatError, match=said) as caught:
        read_points(write(tmp_path, text, name))
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_an_entity_in_a_gpx_file_is_refused(tmp_path: Path, encoding: str) -> None:
    text = f'<?xml version="1.0" encoding="{encoding}"?><!DOCTYPE g [<!ENTITY a "b">]><gpx>&a;</gpx>'
    (tmp_path / "a.gpx").write_bytes(text.encode(encoding))
    with pytest.raises(FileFormatError, match="XML entities are not allowed"):
        read_points(tmp_path / "a.gpx")


def test_a_compressed_trace_has_an_end(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"lat,lon,time\n" + b" " * 70_000_000))
    with pytest.raises(FileFormatError, match="holds more than 67,108,864 bytes"):
        read_points(tmp_path / "a.csv.gz")


def test_a_trace_in_utf_16_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("lat,lon,time\n47,8,2020-01-01T00:00:00Z\n".encode("utf-16"))
    assert len(read_points(tmp_path / "a.csv")) == 1


def test_a_folder_that_may_not_be_searched_is_one_line(tmp_path: Path, monkeypatch) -> None:
    def closed(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path / "closed"))

    monkeypatch.setattr("os.scandir", closed)
    with pytest.raises(FileFormatError, match=r"closed: the folder cannot be searched \(Permission denied\)"):
        read_points(tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(Path, "is_dir", closed)
    with pytest.raises(FileFormatError, match=r"the file cannot be read \(Permission denied\)"):
        read_points(tmp_path / "a.csv")


@pytest.mark.parametrize("zone", ["+99:99", "-24:00", "../../etc/passwd", "\0", "x" * 5000])
def test_odd_time_zones_are_refused(tmp_path: Path, zone: str) -> None:
    text = "lat,lon,time\n47,8,2020-01-01T00:00:00\n"
    with pytest.raises(InvalidArgument, match="is not known"):
        read_points(write(tmp_path, text), time_zone=zone)
