"""The report: what stands in the data, and what a browser makes of it."""

import json
import re
import shutil
from pathlib import Path

import pytest

import quiltdp as qd
from quiltdp.errors import InvalidArgument
from quiltdp.report.html_report import render
from quiltdp.report.places import picture_of
from quiltdp.report.report_data import ReportRequest, report_data

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


def test_the_quilt_of_a_record_is_the_one_of_the_api(asia, data):
    model, _ = asia.origin
    for name, told in data["details"].items():
        if name == asia.binding.unit and "closed" in asia.binding.witness:
            assert told["separator"] == sorted(asia.binding.witness["separator"])
            continue
        quilt = next(iter(qd.quilts(qd.moralize(model), name, max_nearby=0)))
        assert told["separator"] == sorted(quilt.separator)
        assert told["remote_count"] == len(quilt.remote)


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
    picture = picture_of(chain, {})
    assert len(picture.places) <= 150
    assert sum(len(p) for p in picture.parts.values()) == 10_000


def test_a_large_network_shows_what_leaks_most():
    tables = {
        f"n{k}": ([] if k == 0 else [f"n{(k - 1) // 2}"], [[0.6, 0.4]] * (1 if k == 0 else 2))
        for k in range(900)
    }
    tables["n0"] = ([], [0.6, 0.4])
    picture = picture_of(qd.Model.from_tables(tables), {"n899": 2.0, **{f"n{k}": 1.0 for k in range(899)}})
    assert "n899" in picture.places
    assert picture.left_out == 900 - len(picture.places)


def test_from_the_command_line(cli, tmp_path):
    out = tmp_path / "cancer.html"
    found = cli("report", "models/cancer.bif", "--epsilon", "1", "-o", out, "--json")
    assert json.loads(found.out)["file"] == str(out)
    assert out.stat().st_size > 100_000


def test_a_folder_that_is_not_there_is_told_before_any_work(cli, tmp_path):
    found = cli("report", "models/alarm.bif", "--epsilon", "1", "-o", tmp_path / "no" / "x.html")
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


def test_no_error_and_no_request(page_of):
    assert page_of.noted == []
