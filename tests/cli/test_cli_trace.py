"""``quiltdp trace``, what it does (``quiltdp.cli.trace_release``, ``quiltdp.cli.trace_tables``)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.chain import ChainModel

GOOGLE = "models/location/trackintel_google_trajectory.csv"
PANEL = "models/pedigree/panel.afreq"
TOY = "models/location/skmob_privacy_toy.csv"


def test_people_see_the_diagnostics(cli: Callable[..., Any], tmp_path: Path) -> None:
    chain = tmp_path / "chain.json"
    done = cli("trace", GOOGLE, "--cell", "500m", "--interval", "5min", "-o", chain)
    assert (done.code, done.err) == (0, "")
    for text in (
        "416 of 1 user",
        "13 (square 500 m, EPSG:32632)",
        "117 in 1 stretch, 0 without a point",
        "116, 80.5 % of pairs never seen",
        "2, the largest of 12 cells, period 1",
        "mle, first step: occupancy",
        "note: 415 rows earlier than the row before them: sorted by time",
        "next, for visits per cell: quiltdp calibrate",
    ):
        assert text in " ".join(done.out.split())


def test_the_chain_file_is_the_model(cli: Callable[..., Any], tmp_path: Path, monkeypatch: Any) -> None:
    chain = tmp_path / "chain.json"
    done = cli(
        "trace", TOY, "--cell", "h3:7", "--interval", "1h", "--timezone", "Europe/Rome", "-o", chain, "--json"
    )
    facts = json.loads(done.out)
    model = qd.load_model(chain)
    assert isinstance(model, ChainModel)
    direct = qd.location_chain(TOY, "h3:7", "1h", time_zone="Europe/Rome")
    assert model.fingerprint == facts["fingerprint"] == direct.fingerprint
    assert model.provenance["estimator"] == "mle"
    assert model.notes == direct.notes
    assert facts["schema"] == "quiltdp/trace"
    assert (facts["users"], facts["stretches"], facts["steps"]) == (7, 12, 23)
    assert facts["diagnostics"]["period"] == 2
    assert "times without a zone read as Europe/Rome" in facts["notes"]


def test_from_points_to_noise(cli: Callable[..., Any], tmp_path: Path) -> None:
    chain = tmp_path / "chain.json"
    cli("trace", GOOGLE, "--estimator", "additive:1", "-o", chain)
    found = {}
    for name, options in {"step": (), "window": ("--window", 6), "day": ("--protect", "day=1/*")}.items():
        done = cli("calibrate", chain, "--epsilon", 1, "--sensitivity", 2, *options, "--json")
        assert done.code == 0, done.err
        found[name] = json.loads(done.out)["sigma"]
    assert found["step"] < found["window"] < found["day"]
    assert found["step"] == pytest.approx(18.46, rel=1e-3)
    assert found["day"] == pytest.approx(2 * 117, rel=1e-6)


def test_columns_by_name(cli: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("n;e;when;who\n47,1;8,5;01.02.2020 10:00;a\n47,1;8,5;01.02.2020 10:05;a\n")
    done = cli(
        "trace", path, "--read", "lat=n", "--read", "lon=e", "--read", "time=when",
        "--read", "user=who", "--read", "time-format=%d.%m.%Y %H:%M", "--timezone", "UTC", "--json",
    )  # fmt: skip
    facts = json.loads(done.out)
    assert facts["diagnostics"]["states"] == 1
    assert any("decimal commas" in n for n in facts["notes"])
    assert any("one cell only" in w for w in facts["warnings"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((TOY,), "typical time between points is 1 h: choose a longer --interval"),
        ((TOY, "--interval", "soon"), "interval: 'soon' is not a duration such as"),
        ((TOY, "--cell", "h3:99"), "H3 has resolutions 0 to 15"),
        ((TOY, "--interval", "1h", "--estimator", "reversible"), "reversible: the cells fall into"),
        ((TOY, "--interval", "1h", "--estimator", "additive"), "additive smoothing must be positive"),
        ((TOY, "--interval", "1h", "--timezone", "Rome"), "timezone 'Rome' is not known"),
        ((TOY, "--interval", "1h", "--read", "lat=north"), "--read lat 'north' is not a column"),
        ((TOY, "--interval", "1h", "-o", "chain.csv"), "-o chain.csv: its ending says what is written"),
        (("nowhere.csv",), "nowhere.csv: there is no such file"),
        (("models/asia.bif",), "unknown ending '.bif'"),
        ((TOY, "--interval", "1h", "--read", "place=x"), "--read place=…: the keys are lat"),
        ((GOOGLE, "-o", "m.png", "--area", "1,2,3"), "must be four numbers (south,west,north,east)"),
        ((GOOGLE, "-o", "m.png", "--area", "3,2,1,4"), "south must be below north"),
        ((GOOGLE, "-o", "m.png", "--area", "46,7,49,11"), "limit is 20000"),
        ((GOOGLE, "-o", "m.png", "--cell", "stay", "--area", "47,8,48,9"), "stay points are places found"),
        ((GOOGLE, "--release", "m.csv", "--sigma", "0"), "--sigma must be a positive finite number"),
        ((GOOGLE, "--sigma", "2"), "--sigma belongs to a release: give --release FILE too"),
        (
            (GOOGLE, "--area", "47,8,48,9"),
            "--area belongs to a map or a release: give -o map.png or --release FILE too",
        ),
        ((TOY, "--interval", "1h", "--initial", "x"), "must be stationary, occupancy, uniform or a vector"),
    ],
)
def test_mistakes_are_one_line(cli: Callable[..., Any], arguments: tuple[str, ...], said: str) -> None:
    done = cli("trace", *arguments)
    assert done.code == 2
    assert done.out == ""
    assert done.err.count("\n") == 1
    assert said in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-o", "x.txt"), "its ending says what is written (model: .json .json.gz; map: .png .svg .pdf)"),
        (("-o", "/proc/x.json"), "/proc/x.json: the file cannot be written"),
        (("-o", "x.gif"), "its ending says what is written (model: .json .json.gz; map: .png .svg .pdf)"),
        (("--area", "nowhere.geojson", "--release", "x.csv"), "nowhere.geojson: there is no such file"),
        (("--area", "1,2,3", "-o", "x.png"), "must be four numbers"),
        (("--outline", "x.geojson"), "--outline is drawn on a map"),
        (("--area", "1,2,3,4", "--release", "x.csv", "--level", "people"), "--level must be step or user"),
        (("--area", "1,2,3,4", "--release", "x.csv", "--adversary", "me"), "or 'knows:2'"),
        (("--area", "1,2,3,4", "--release", "x.csv", "--confidence", "0.9"), "release with a --sigma"),
        (("--time-of-day", "--robust"), "leave --time-of-day out"),
        (("--epsilon", "nan"), "--epsilon must be a positive finite number"),
    ],
)
def test_what_cannot_work_is_refused_before_points_are_read(
    cli: Callable[..., Any], monkeypatch: Any, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.setattr("quiltdp.domains.trace.build.read_points", lambda *_, **__: pytest.fail("too late"))
    done = cli("trace", GOOGLE, *arguments)
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1


def test_steps_have_their_time_after_a_file(cli: Callable[..., Any], tmp_path: Path) -> None:
    chain = tmp_path / "chain.json"
    cli("trace", TOY, "--cell", "h3:5", "--interval", "1h", "--timezone", "Europe/Rome", "-o", chain)
    for command in (("calibrate", chain, "--epsilon", 1), ("leakage", chain, "--dp-epsilon", 0.1)):
        said = " ".join(cli(*command, "--window", 2).out.split())
        assert re.search(r"(Sun|Mon|Tue|Wed|Thu|Fri|Sat) 2011-\d\d-\d\d \d\d:00 .*Europe/Rome", said)


def test_robust_writes_the_worst_estimator(cli: Callable[..., Any], tmp_path: Path) -> None:
    chain = tmp_path / "chain.json"
    options = ("--cell", "2km", "--robust", "--confidence", "0.9", "-o", chain)
    done = cli("trace", GOOGLE, *options, "--estimator", "additive:0.1", "--json")
    robust = json.loads(done.out)["robust"]
    listed = robust["dp_epsilon_by_estimator"]
    assert list(listed) == ["additive:0.1", "mle", "additive:1"], "reversible does not exist here"
    assert robust["worst_estimator"] == min(listed, key=listed.__getitem__) == "mle"
    assert robust["dp_epsilon"] == min(*listed.values(), robust["dp_epsilon_region"])
    model = qd.load_model(chain)
    assert model.provenance["estimator"] == "mle"
    assert model.provenance["robust_family"] == "additive:0.1, mle, additive:1"
    worst = qd.dp_epsilon(model, epsilon=1.0)
    assert worst == pytest.approx(listed["mle"], rel=1e-6)
    people = cli("trace", GOOGLE, *options)
    assert "region, 90 % confidence" in people.out
    assert "worst estimator: mle (this one is written)" in people.out
    assert f"  quiltdp calibrate {chain} --epsilon 1 --sensitivity 2\n" in people.out, (
        "one line, to be copied"
    )
    bare = [word for word in options if word not in ("-o", chain)]
    assert "worst estimator: mle (-o FILE would write this one)" in cli("trace", GOOGLE, *bare).out


def test_window_costs_more(cli: Callable[..., Any]) -> None:
    found = [
        json.loads(
            cli(
                "trace", GOOGLE, "--estimator", "additive:1", "--confidence", "0.9", "--window", w, "--json"
            ).out
        )
        for w in (1, 6)
    ]
    assert (
        found[0]["robust"]["dp_epsilon_by_estimator"]["additive:1"]
        > 1.3 * found[1]["robust"]["dp_epsilon_by_estimator"]["additive:1"]
    )


def test_maps(cli: Callable[..., Any], tmp_path: Path) -> None:
    plain, noisy = tmp_path / "plain.png", tmp_path / "noisy.svg"
    done = cli("trace", GOOGLE, "-o", plain)
    assert "true counts, no noise: not for publication" in " ".join(done.out.split())
    assert plain.read_bytes().startswith(b"\x89PNG")
    done = cli(
        "trace", GOOGLE, "--cell", "h3:8", "-o", noisy, "--sigma", "400",
        "--area", "47.36,8.51,47.39,8.57",
        "--estimator", "additive:1", "--release", tmp_path / "visits.csv", "--ledger", "none",
    )  # fmt: skip
    assert "noise scale 400, dp_epsilon 0.005" in " ".join(done.out.split())
    assert "<svg" in noisy.read_text()


@pytest.mark.parametrize(
    "job",
    [
        ("fit", "train.csv", "--rows", "time", "-o", "rows.json"),
        ("fit", "train.csv", "--column", "a", "-o", "a.json"),
        (
            "trace",
            GOOGLE,
            "--area",
            "47.3,8.5,47.4,8.6",
            "--release",
            "v.csv",
            "--sigma",
            "5000",
            "--ledger",
            "none",
        ),
        ("pedigree", "models/pedigree/ceph1463.fam", "--allele-frequency", "t.afreq", "--epsilon", 1),
    ],
    ids=["rows", "series", "visits", "panel"],
)
def test_long_work_is_told_on_a_terminal_only(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: Any, job: tuple[Any, ...]
) -> None:
    """Every command of a whole job reports where it is; a pipe stays silent."""
    lines = [f"{a},{b}\n" for a, b in np.random.default_rng(0).integers(0, 2, (120, 2))]
    (tmp_path / "train.csv").write_text("a,b\n" + "".join(lines))
    (tmp_path / "t.afreq").write_text(
        "#CHROM\tID\tREF\tALT\tALT_FREQS\n1\trs1\tA\tG\t0.2\n1\trs2\tA\tG\t0.4\n"
    )
    mine = ("train.csv", "rows.json", "a.json", "v.csv", "t.afreq")
    words = [tmp_path / w if w in mine else w for w in job]
    quiet = cli(*words)
    assert (quiet.code, quiet.err) == (0, "")
    said: list[tuple[str, float]] = []

    @contextmanager
    def bar() -> Iterator[Any]:
        yield lambda label, share: said.append((label, share))

    (tmp_path / "v.csv").unlink(missing_ok=True)
    for module in ("fit", "trace", "running"):
        monkeypatch.setattr(f"quiltdp.cli.{module}.progress_bar", bar)
    assert cli(*words).code == 0
    assert said
    assert all(0 <= share <= 1 for _, share in said)
