"""The report: what stands in the data, and what a browser makes of it."""

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.chain import ChainModel
from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms import DiscreteGaussian
from quiltdp.numbers import format_down
from quiltdp.parallel import Workers
from quiltdp.report.html_report import render
from quiltdp.report.places import place_nodes, state_map
from quiltdp.report.report_analyses import OFF_BY, ReportRequest, attackable_part
from quiltdp.report.report_data import bracket_facts, report_data

MODELS = Path(__file__).parents[2] / "models"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
HOSTILE = {
    "</script><script>alert(1)</script>": ([], [0.3, 0.7]),
    "<img src=x onerror=alert(1)>": (["</script><script>alert(1)</script>"], [[0.9, 0.1], [0.2, 0.8]]),
}


@pytest.fixture(scope="module")
def asia():
    model = qd.load_model(MODELS / "asia.bif")
    return qd.calibrate(model, 1.0, qd.Laplace(sensitivity=1.0))


@pytest.fixture(scope="module")
def data(asia):
    model, options = asia.origin
    return report_data(ReportRequest(asia, model, options, "asia", "quiltdp report asia.bif"))


def test_every_number_of_the_slider_is_a_calibration_of_its_own(asia, data):
    model, _ = asia.origin
    for epsilon, sigma in zip(data["targets"]["epsilon"], data["targets"]["sigma"], strict=True):
        found = qd.calibrate(model, epsilon, qd.Laplace(sensitivity=1.0), compare=False)
        assert sigma == pytest.approx(found.sigma, rel=1e-6)
    assert data["targets"]["sigma"][data["targets"]["chosen"]] == asia.sigma


def test_the_table_is_the_leakage_of_both_adversaries(asia, data):
    model, _ = asia.origin
    for who in ("informed", "prior"):
        found = qd.leakage(model, asia.dp_epsilon, adversary=who)
        for row in data["records"]:
            assert row["leaks_to"][who] == pytest.approx(found.per_record[row["name"]], rel=1e-9)


def test_a_sum_by_its_values_is_priced_by_them_on_the_whole_page():
    model = qd.pedigree(MODELS / "pedigree" / "ceph1463.fam", allele_frequency=0.1)
    found = qd.calibrate(model, 1.0, qd.Laplace(values=(0, 1, 2)))
    told = report_data(ReportRequest(found, model, found.origin[1], "ceph", "quiltdp calibrate ceph.json"))
    assert max(row["leaks"] for row in told["records"]) == found.leakage <= 1.0
    assert told["bracket"]["attained"] is None  # an attack would choose another mechanism
    assert told["targets"]["sigma"] == sorted(told["targets"]["sigma"], reverse=True)
    assert told["targets"]["sigma"][0] < 10.1 * found.sigma


def test_the_quilt_of_a_record_is_the_one_of_the_api(asia, data):
    model, _ = asia.origin
    for name, told in data["details"].items():
        if name == asia.binding.unit and "closed" in asia.binding.witness:
            assert told["separator"] == sorted(asia.binding.witness["separator"])
            continue
        quilt = next(iter(qd.quilts(qd.moralize(model), name, max_nearby=0)))
        assert told["separator"] == sorted(quilt.separator)
        assert told["remote_count"] == len(quilt.remote)


@pytest.mark.parametrize("spec", [qd.Laplace(1.0), qd.Gaussian(1.0, 1e-5)], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("adversary", ["prior", "knows:1"])
def test_a_page_from_workers_is_the_same_page(tmp_path, spec, adversary):
    model = qd.example("cancer")
    cal = qd.calibrate(model, 1.0, spec, adversary=adversary)
    with Workers(2) as pool:
        cal.report(tmp_path / "there.html", executor=pool)
    cal.report(tmp_path / "here.html")
    assert (tmp_path / "there.html").read_bytes() == (tmp_path / "here.html").read_bytes()


def test_what_was_cut_short_is_said(asia):
    model, options = asia.origin
    options = {**options, "time_limit": 1e-9}
    for pool in (nullcontext(), ThreadPoolExecutor(2)):
        with pool as executor:
            told = report_data(ReportRequest(asia, model, options, "asia", ""), executor=executor)
        notes = [text for kind, text in told["assumptions"] if kind == "note"]
        assert [n.split(":")[0] for n in notes if "limit was reached" in n] == [
            "numbers beside the answer, informed adversary",
            "numbers beside the answer, prior adversary",
        ]


def test_hostile_names_are_just_names():
    model = qd.Model.from_tables(HOSTILE)
    cal = qd.calibrate(model, 1.0, qd.Laplace(sensitivity=1.0))
    page = render(report_data(ReportRequest(cal, model, {}, "<b>bold</b>", "quiltdp report x")))
    held = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL).group(1)
    assert "<" not in held
    assert {r["name"] for r in json.loads(held)["records"]} == set(HOSTILE)
    assert "<title>&lt;b&gt;bold" in page


def test_nothing_is_fetched(data):
    page = render(data)
    assert "default-src 'none'" in page
    assert not re.search(r'(src|href)="https?:', page)
    assert len(page.encode()) < 3_000_000


def test_a_calibration_read_from_a_file_has_no_model(asia, tmp_path):
    with pytest.raises(InvalidArgument, match="calibrate the model again"):
        qd.Calibration.from_json(asia.to_json()).report(tmp_path / "x.html")


def test_a_long_chain_is_drawn_in_parts():
    chain = qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], length=10_000)
    picture = place_nodes(chain, {})
    assert len(picture.places) <= 150
    assert sum(len(p) for p in picture.parts.values()) == 10_000


def test_a_large_network_shows_what_leaks_most():
    tables = {
        f"n{k}": ([] if k == 0 else [f"n{(k - 1) // 2}"], [[0.6, 0.4]] * (1 if k == 0 else 2))
        for k in range(900)
    }
    tables["n0"] = ([], [0.6, 0.4])
    picture = place_nodes(qd.Model.from_tables(tables), {"n899": 2.0, **{f"n{k}": 1.0 for k in range(899)}})
    assert "n899" in picture.places
    assert picture.left_out == 900 - len(picture.places)


def test_separate_families_are_packed_into_a_page():
    tables = {f"c{k}": ([f"p{k}"], [[0.9, 0.1], [0.2, 0.8]]) for k in range(50)}
    tables |= {f"p{k}": ([], [0.5, 0.5]) for k in range(50)}
    places = place_nodes(qd.Model.from_tables(tables), {}).places
    assert len(set(places.values())) == 100
    width = max(x for x, _ in places.values())
    height = max(y for _, y in places.values())
    assert 0.5 < width / height < 4
    assert places["p7"][1] < places["c7"][1]


def test_every_line_of_a_wrong_model_is_a_calibration_of_its_own(asia, data):
    model, _ = asia.origin
    lines = data["wrong"]["lines"]
    assert [line["off_by"] for line in lines] == list(OFF_BY)
    assert [line["sigma"] for line in lines] == sorted(line["sigma"] for line in lines)
    found = qd.robust(model, 1.0, qd.Laplace(sensitivity=1.0), off_by=0.02, work="quick")
    assert lines[1]["sigma"] == pytest.approx(found.sigma, rel=1e-9)
    assert lines[-1]["sigma"] == pytest.approx(asia.compared["group"])


def test_attained_is_said_to_be_as_much_only_where_it_is():
    """A loose bound: the attack leaks a part of what is certified, and the page says which."""
    model = qd.markov_chain([[0.7, 0.3], [0.3, 0.7]], length=6)
    loose = bracket_facts(qd.calibrate(model, 1.0, qd.Laplace(1.0), method="group"), model)
    part = 100 * loose["attained"] / loose["certified"]
    assert part < 90
    assert "as much" not in loose["says"]
    assert re.search(r"attack leaks ([\d.]+) % of it", loose["says"])[1] == format_down(part, 3)
    tight = bracket_facts(qd.calibrate(model, 1.0, qd.Laplace(1.0), method="exact"), model)
    assert ("leaks as much" in tight["says"]) == (tight["attained"] >= 0.999 * tight["certified"])


def test_the_theorem_and_the_bracket_are_told(asia, data):
    assert "exact limit" in data["theorem"]
    assert data["bracket"]["attained"] <= data["bracket"]["certified"] <= 1.0
    known = data["details"]["lung"]["known"]
    assert set(known) == set(asia.binding.witness["known"])


@pytest.mark.parametrize(
    ("spec", "protect"),
    [
        (qd.Gaussian(sensitivity=1.0, delta=1e-6), None),
        (DiscreteGaussian(sensitivity=1, delta=1e-6), None),
        (qd.Laplace(sensitivity=1.0), [["X0", "X2"]]),
    ],
)
def test_every_noise_and_every_set_has_its_bracket(spec, protect):
    model = qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], length=3)
    cal = qd.calibrate(model, 1.0, spec, adversary="prior", protect=protect, compare=False)
    found = bracket_facts(cal, model)
    assert 0.9 < found["attained"] <= found["certified"] <= 1.0
    assert "above the best possible" in found["says"]


def test_an_attack_on_a_part_is_one_on_the_whole():
    chain = qd.markov_chain([[0.9, 0.1], [0.3, 0.7]], length=1000, initial=[1.0, 0.0])
    part = attackable_part(chain, "X3")
    assert len(part.nodes) == 100
    assert part.segments[0].initial.tolist() == [1.0, 0.0]
    middle = attackable_part(chain, "X500").segments[0].initial
    assert middle.tolist() == pytest.approx([0.75, 0.25])
    tables = {f"c{k}": ([f"p{k}"], [[0.9, 0.1], [0.2, 0.8]]) for k in range(300)}
    tables |= {f"p{k}": ([], [0.5, 0.5]) for k in range(300)}
    assert len(attackable_part(qd.Model.from_tables(tables), "c9").nodes) == 2
    steps = [[[0.9, 0.1], [0.3, 0.7]], [[0.8, 0.2], [0.3, 0.7]]] * 100
    assert attackable_part(qd.markov_chain(steps, length=201, initial=[0.5, 0.5]), "X5") is None


def test_quilts_of_equal_families_have_their_own_names():
    tables = {f"c{k}": ([f"p{k}"], [[0.9, 0.1], [0.2, 0.8]]) for k in range(3)}
    tables |= {f"p{k}": ([], [0.5, 0.5]) for k in range(3)}
    model = qd.Model.from_tables(tables)
    cal = qd.calibrate(model, 1.0, qd.Laplace(sensitivity=1.0))
    found = report_data(ReportRequest(cal, model, {}, "families", ""))["details"]
    for name, told in found.items():
        quilt = next(iter(qd.quilts(qd.moralize(model), name, max_nearby=0)))
        assert told["separator"] == sorted(quilt.separator)
        assert told["remote_count"] == len(quilt.remote)


def test_located_states_are_a_map():
    cells = ["x10y5", "x11y5", "x11y6"]
    chain = qd.markov_chain([[0.8, 0.2, 0.0], [0.1, 0.8, 0.1], [0.0, 0.3, 0.7]], length=50)
    located = ChainModel(chain.segments, cells, provenance={"cells": "square 1000 m, EPSG:32629"})
    found = state_map(located)
    at = {n["id"]: (n["x"], n["y"]) for n in found["nodes"]}
    assert at["x10y5"][0] < at["x11y5"][0] == at["x11y6"][0]
    assert at["x11y6"][1] < at["x11y5"][1]  # north is up
    assert {(a, b) for a, b, _ in found["moves"]} == {
        ("x10y5", "x11y5"),
        ("x11y5", "x10y5"),
        ("x11y5", "x11y6"),
        ("x11y6", "x11y5"),
    }
    assert state_map(chain) is None


def test_hexagons_are_a_map():
    h3 = pytest.importorskip("h3")
    cells = [*h3.grid_disk(h3.latlng_to_cell(47.4, 8.5, 7), 1)][:3]
    chain = qd.markov_chain(np.full((3, 3), 1 / 3), length=5)
    located = ChainModel(chain.segments, cells, provenance={"cells": "h3 resolution 7"})
    assert len({(n["x"], n["y"]) for n in state_map(located)["nodes"]}) == 3


def test_from_the_command_line(cli, tmp_path):
    out = tmp_path / "cancer.html"
    found = cli("calibrate", "models/cancer.bif", "--epsilon", "1", "--report", out, "--json")
    assert json.loads(found.out)["report"] == str(out)
    assert out.stat().st_size > 100_000


def test_a_folder_that_is_not_there_is_told_before_any_work(cli, tmp_path):
    found = cli("calibrate", "models/alarm.bif", "--epsilon", "1", "--report", tmp_path / "no" / "x.html")
    assert found.code == 2
    assert "its folder does not exist" in found.err


@pytest.fixture(scope="module")
def page_of(data, tmp_path_factory):
    """Open a page of the report in Chromium, with every console error and request noted."""
    playwright = pytest.importorskip("playwright.sync_api", reason="browser tests need the extra 'browser'")
    if CHROMIUM is None:
        pytest.skip("browser tests need Chromium (Debian: apt-get install chromium)")
    path = tmp_path_factory.mktemp("report") / "asia.html"
    path.write_text(render(data), encoding="utf-8")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.noted = []
        page.on("console", lambda m: page.noted.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda e: page.noted.append(str(e)))
        page.on("request", lambda r: page.noted.append(r.url) if not r.url.startswith("file:") else None)
        page.goto(path.as_uri())
        page.wait_for_selector("body[data-ready=yes]")
        yield page
        browser.close()


def test_the_slider_changes_sigma(page_of, data):
    before = page_of.inner_text("#slider-says")
    page_of.focus("#target")
    page_of.keyboard.press("ArrowRight")
    after = page_of.inner_text("#slider-says")
    assert before != after
    sigma = data["targets"]["sigma"][data["targets"]["chosen"] + 1]
    assert f"{sigma:.6g}" in after


def test_a_click_shows_the_quilt(page_of, data):
    name = next(n for n in data["details"] if n != data["binding"])
    page_of.evaluate("name => quiltdpDrawing.getElementById(name).emit('tap')", name)
    shown = page_of.inner_text("#detail")
    assert name in shown
    for node in data["details"][name]["separator"]:
        assert node in shown


def test_search_sort_and_download(page_of, data):
    page_of.fill("#search", "either")
    assert page_of.evaluate("quiltdpTable.getDataCount('active')") == 1
    page_of.fill("#search", "")
    page_of.click(".tabulator-col-title:has-text('record')")
    names = page_of.evaluate("quiltdpTable.getData('active').map(r => r.name)")
    assert names == sorted(names)
    with page_of.expect_download() as download:
        page_of.click("#csv")
    text = download.value.path().read_text(encoding="utf-8")
    assert len(text.strip().splitlines()) == 1 + len(data["records"])


def test_a_record_is_chosen_with_the_keyboard(page_of, data):
    name = next(n for n in data["details"] if n != data["binding"])
    page_of.focus(f"button.name:text-is('{name}')")
    page_of.keyboard.press("Enter")
    assert page_of.inner_text("#detail h3") == name


def test_a_wrong_model_is_told(page_of, data):
    shown = page_of.inner_text("#wrong")
    assert f"{data['wrong']['lines'][2]['sigma']:.6g}" in shown
    assert page_of.inner_text("#certified") == "≤ 1"


def test_narrow_pages_do_not_scroll_sideways(page_of):
    size = page_of.viewport_size
    page_of.set_viewport_size({"width": 360, "height": 740})
    try:
        for _ in range(50):  # the libraries follow the window in their own time
            width = page_of.evaluate("document.documentElement.scrollWidth")
            if width <= 360:
                break
            page_of.wait_for_timeout(100)
        assert width <= 360
    finally:
        page_of.set_viewport_size(size)


def test_no_error_and_no_request(page_of):
    assert page_of.noted == []
