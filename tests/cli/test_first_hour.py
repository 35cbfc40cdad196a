"""What somebody meets in the first hour: help pages, wrong files, odd numbers, twins."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import quiltdp as qd
from quiltdp.cli.app import COMMANDS

ROOT = Path(__file__).parents[2]
ASIA, SMALL = "models/asia.bif", "models/earthquake.bif"
PAGES = [
    *((name,) for name in COMMANDS),
    *(("holdout", name) for name in ("init", "ask", "status")),
    *(("ledger", name) for name in ("show", "verify", "export")),
    *(("study", name) for name in ("create", "member", "close", "rights")),
]


def refused(result) -> str:
    """Return the one line on stderr of a command that was refused."""
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert result.err.startswith("quiltdp: ")
    return result.err


# -- help --------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=" ".join)
def test_a_help_page_reads_well(cli, page: tuple[str, ...]) -> None:
    text = cli(*page, "--help").out
    assert not re.search(r"<\w|[{}]|x>=|\.\.\.\.|\u00a0|\u2011| $", text, re.MULTILINE)
    body = text.partition("Examples:")[0]
    assert max(map(len, body.splitlines())) <= 80
    assert not re.search(r"\w-$|\[default:$", body, re.MULTILINE), "a word or a default is broken in two"
    summaries = body.partition("Commands:")[2]
    assert "..." not in summaries, "a summary is cut off: give the command a short_help"


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p not in (("holdout",), ("ledger",), ("study",))], ids=" ".join
)
def test_the_examples_name_options_and_files_that_exist(cli, page: tuple[str, ...]) -> None:
    text = cli(*page, "--help").out
    body, _, examples = text.partition("Examples:")
    for line in examples.strip().splitlines():
        for word in line.split():
            if line.split()[1 : 1 + len(page)] == list(page) and word.startswith("--"):
                assert re.search(rf"^ .*{word}\b", body, re.MULTILINE), f"{word} is not an option"
            if word.startswith("models/"):
                assert (ROOT / word).exists(), f"{word} does not exist"


# -- numbers -----------------------------------------------------------------------------------

TAKES_A_NUMBER = [
    (("calibrate", SMALL), "--epsilon"),
    (("leakage", SMALL), "--dp-epsilon"),
    (("leakage", "--audit", SMALL), "--dp-epsilon"),
    (("quilts", SMALL, "Alarm"), "--dp-epsilon"),
    (("pedigree", "models/pedigree/ceph1463.fam", "--allele-frequency", "0.1"), "--epsilon"),
    (("pedigree", "models/pedigree/ceph1463.fam", "--allele-frequency", "0.1"), "--dp-epsilon"),
    (("trace", "POINTS", "--robust"), "--epsilon"),
    (("calibrate", SMALL, "--epsilon", "1"), "--sensitivity"),
    (("calibrate", SMALL, "--epsilon", "1", "--mechanism", "gaussian"), "--delta"),
    (("plan", SMALL, "--budget", "1"), "--accuracy"),
]


@pytest.mark.parametrize("value", ["-1", "nan", "inf", "-inf", "1e400", "one", ""])
@pytest.mark.parametrize(("command", "flag"), TAKES_A_NUMBER, ids=lambda v: v if isinstance(v, str) else v[0])
def test_an_odd_number_is_refused_by_the_option_it_was_given_to(
    cli, tmp_path: Path, command: tuple[str, ...], flag: str, value: str
) -> None:
    points = tmp_path / "points.csv"
    rows = [f"2020-01-01T00:{k:02}:00Z,47.{k % 3},8.1" for k in range(60)]
    points.write_text("\n".join(["time,lat,lon", *rows]) + "\n")
    words = [str(points) if word == "POINTS" else word for word in command]
    if "POINTS" in command:
        words += ["--accept", "any-speed", "--interval", "1min", "--cell", "5km"]
    line = refused(cli(*words, f"{flag}={value}"))
    assert re.match(rf"quiltdp: {flag}[: ]", line)
    assert value in line or value == "1e400"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("calibrate", SMALL, "--epsilon", "0"), "--epsilon must be a finite number > 0"),
        (("leakage", "--audit", SMALL, "--dp-epsilon", "0"), "--dp-epsilon must be a finite number > 0"),
        (("calibrate", SMALL, "--epsilon", "1e-300"), "--epsilon must be at least 1e-100, not 1e-300"),
        (("calibrate", SMALL, "--epsilon", "1e-100"), "--epsilon 1e-100 needs noise of scale"),
        (("calibrate", SMALL, "--epsilon", "1", "--sensitivity", "1e300"), "--sensitivity is smaller"),
        (
            ("calibrate", SMALL, "--epsilon", "1", "--mechanism", "gaussian", "--delta", "1e-310"),
            "--delta must be at least 1e-300",
        ),
        (("leakage", SMALL, "--dp-epsilon", "1e300"), "--dp-epsilon must be at most 1e+100"),
    ],
)
def test_numbers_out_of_reach(cli, command: tuple[str, ...], said: str) -> None:
    assert said in refused(cli(*command))


def test_zero_and_almost_zero_leak_as_much(cli) -> None:
    for alpha in (0.0, 1e-300):
        found = json.loads(cli("leakage", SMALL, "--dp-epsilon", alpha, "--json").out)
        assert alpha <= found["epsilon"] <= 5 * alpha


# -- files that are something else ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.csv", "user,time,lat,lon\nann,2020-01-01T00:00:00Z,47.1,8.1\n"),
        ("p.tsv", "Latitude\tLongitude\tt\n47.1\t8.1\t5\n"),
        ("p.txt", "lat,lng,datetime\n47.1,8.1,5\n"),
        ("p.geojson", '{"type": "FeatureCollection", "features": []}'),
        ("p.json", '{"features": [], "type":"FeatureCollection"}'),
        ("p.gpx", "<gpx></gpx>"),
        ("p.plt", "Geolife trajectory\n"),
        ("p.parquet", "PAR1"),
    ],
)
@pytest.mark.parametrize(
    "command", [("info",), ("calibrate", "--epsilon", "1"), ("leakage", "--dp-epsilon", "1")]
)
def test_a_location_trace_is_sent_to_its_command(
    cli, tmp_path: Path, command: tuple[str, ...], name: str, content: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    line = refused(cli(command[0], path, *command[1:]))
    assert f"{path}: this is a location trace, not a model" in line
    assert f"quiltdp trace {path} -o chain.json" in line


def test_a_pedigree_with_places_is_a_pedigree(cli, tmp_path: Path) -> None:
    path = tmp_path / "goats.csv"
    path.write_text("id,sire,dam,lat,lon\na,,,47,8\nb,,,47,8\nc,a,b,47,8\n")
    assert cli("info", path, "--allele-frequency", 0.1).code == 0


def test_a_family_needs_a_frequency(cli, tmp_path: Path) -> None:
    path = tmp_path / "f.fam"
    path.write_text("F a 0 0 1 -9\nF b 0 0 2 -9\nF c a b 1 -9\n")
    assert "for example --allele-frequency 0.1" in refused(cli("calibrate", path, "--epsilon", 1))
    assert (
        cli("calibrate", path, "--epsilon", 1, "--allele-frequency", 0.1, "--query", "carrier-count").code
        == 0
    )


@pytest.mark.parametrize(
    ("length", "said"),
    [
        ("1e30", "'length' must be a whole number, not the number 1e+30"),
        ("10", ""),
        (f"1{30 * '0'}", "the length must be at most 50,000,000, not a number of more than thirty"),
        ("-3", "the length must be at least 1, not -3"),
        ("0", "the length must be at least 1, not 0"),
        ('"ten"', "'length' must be a whole number, not the string 'ten'"),
        ("2.5", "'length' must be a whole number, not the number 2.5"),
        ("true", "'length' must be a whole number, not true"),
        ("null", "'length' must be a whole number, not null"),
    ],
)
def test_the_length_of_a_chain(cli, tmp_path: Path, length: str, said: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(f'{{"transition": [[0.9, 0.1], [0.2, 0.8]], "length": {length}}}')
    result = cli("calibrate", path, "--epsilon", 1)
    if not said:
        assert result.code == 0
    else:
        assert said in refused(result)
        assert str(path) in result.err


# -- twins -----------------------------------------------------------------------------------------

TWINS = "fid,id,father,mother,sex,twin,zygosity\nF,a,,,1,,\nF,b,,,2,,\nF,c,a,b,1,d,MZ\nF,d,a,b,1,c,MZ\n"


@pytest.fixture
def twins(tmp_path: Path) -> tuple[object, ...]:
    path = tmp_path / "twins.csv"
    path.write_text(TWINS)
    return (path, "--allele-frequency", 0.2)


def test_a_sensitivity_is_for_one_person_and_twins_count_twice(cli, twins) -> None:
    both = json.loads(cli("calibrate", *twins, "--epsilon", 1, "--sensitivity", 1, "--json").out)
    model = qd.load_model(twins[0], allele_frequency=0.2)
    alone = qd.Model(model.states, model.factors)  # nobody behind c but c
    plain = qd.calibrate(alone, 1.0, qd.Laplace(1.0)).sigma
    told = qd.calibrate(alone, 1.0, qd.Laplace({"a": 1.0, "b": 1.0, "c": 2.0})).sigma
    assert both["sigma"] == pytest.approx(told)
    assert told > 1.2 * plain
    assert any("'c' and 'd' are monozygotic twins" in n for n in both["notes"])
    assert "4 of 4 people are records" in both["notes"]


@pytest.mark.parametrize(
    ("more", "sensitivity"),
    [
        (["--budget", 3], 1 / 4),
        (["--mechanism", "gaussian", "--delta", 1e-6, "--sensitivity", 1], 1.0),
        (["--query", "allele-count"], 2.0),
    ],
)
def test_twins_in_every_mechanism(cli, twins, more: list[object], sensitivity: float) -> None:
    found = json.loads(cli("calibrate", *twins, "--epsilon", 1, *more, "--json").out)
    assert found["mechanism"]["sensitivity"] == sensitivity
    assert found["leakage"] <= 1


def test_a_pedigree_asks_for_the_query(cli, twins) -> None:
    said = refused(cli("calibrate", *twins, "--epsilon", 1))
    assert "--query allele-count" in said
    assert "--sensitivity" in said
    assert "leave --sensitivity" in refused(
        cli("calibrate", *twins, "--epsilon", 1, "--query", "carrier-count", "--sensitivity", 1)
    )
    assert "for pedigrees" in refused(cli("calibrate", SMALL, "--epsilon", 1, "--query", "allele-count"))


# -- nothing is written when something is wrong ------------------------------------------------------


def test_a_map_that_cannot_be_drawn_leaves_no_chain(cli, tmp_path: Path) -> None:
    points = tmp_path / "points.csv"
    rows = [f"2020-01-01T00:{k:02}:00Z,47.00{k % 3},8.1" for k in range(60)]
    points.write_text("\n".join(["time,lat,lon", *rows]) + "\n")
    chain = tmp_path / "chain.json"
    call = ("trace", points, "--interval", "1min", "-o", chain)
    for wrong in (["-o", tmp_path / "map.bmp"], ["-o", tmp_path / "map.png", "--area", "1,2,3"]):
        refused(cli(*call, *wrong))
        assert [p.name for p in tmp_path.iterdir()] == ["points.csv"]
    assert cli(*call, "-o", tmp_path / "map.png").code == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["chain.json", "map.png", "points.csv"]


# -- slips of the keyboard ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("calibrat", ASIA), "no such command: calibrat, did you mean calibrate?"),
        (
            ("calibrate", ASIA, "--eps", 1),
            "no such option: --eps, did you mean --epsilon?",
        ),
        (("calibrate", ASIA, "--epsilon"), "--epsilon needs a value; see 'quiltdp calibrate"),
        (("calibrate", ASIA, "x", "--epsilon", 1), "(x); see 'quiltdp calibrate --help'"),
        (("calibrate", ASIA, "--epsilon", 1, "--records", "@none"), "--records @none: there is no such file"),
        (("calibrate", ASIA, "--epsilon", 1, "--protect", "x=lungs"), "--protect 'x=lungs': node 'lungs' is"),
        (("calibrate", ASIA, "--epsilon", 1, "--protect", "x=lung", "--window", 2), "--protect or --window"),
        (("quilts", ASIA, "smoke", "--on", "smoke"), "'smoke' is in both of and --on"),
        (("holdout", "init", "x.db", "--calibration", ASIA, "--threshold", 0.1), "expected what this prints"),
        (
            ("holdout", "init", "/nowhere/x.db", "--calibration", "CAL", "--threshold", 0.1),
            "/nowhere/x.db: the",
        ),
    ],
)
def test_a_slip_is_named_with_what_to_type(cli, tmp_path: Path, words: tuple[object, ...], said: str) -> None:
    calibration = tmp_path / "cal.json"
    if "CAL" in words:
        calibration.write_text(cli("calibrate", SMALL, "--epsilon", 1, "--budget", 2, "--json").out)
    assert said in refused(cli(*(calibration if word == "CAL" else word for word in words)))


def test_a_calibration_is_refused_without_saying_it_twice(cli, tmp_path: Path) -> None:
    chain = tmp_path / "chain.json"
    chain.write_text('{"schema": "quiltdp/chain"}')
    for path in (chain, ROOT / ASIA):
        line = refused(cli("holdout", "init", tmp_path / "x.db", "--calibration", path, "--threshold", 0.1))
        assert line.count("calibration is not") + line.count("is not a calibration") == 1
        assert "quiltdp calibrate MODEL --epsilon E --budget B --json" in line
    assert not (tmp_path / "x.db").exists()
