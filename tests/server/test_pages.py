"""The pages: who may see and send what, without a script and in a browser, dark and light."""

from __future__ import annotations

import csv
import json
import re
import shutil
import socket
import threading
import time
from html.parser import HTMLParser

import pytest
import uvicorn
from api_study import Served

from quiltdp.accountant.ledger import verify_export
from quiltdp.server.overview import answers_plot, overview
from quiltdp.server.pages import HEADERS
from quiltdp.server.questions import ExpressionQuestion

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
HOSTILE = "<script>alert(1)</script> \"'><img src=x onerror=alert(2)>"


class Forms(HTMLParser):
    """The forms of a page: where they go, and their hidden fields."""

    def __init__(self, text):
        super().__init__()
        self.forms = {}
        self.tags = set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.tags.add(tag)
        if tag == "form":
            self.action = given["action"]
            self.forms[self.action] = {}
        elif tag == "input" and given.get("type") == "hidden":
            self.forms[self.action][given["name"]] = given["value"]


@pytest.fixture
def served(tmp_path):
    return Served(tmp_path)


def signed_in(served, client, who):
    done = client.post("/sign-in", data={"token": served.tokens[who]}, follow_redirects=False)
    assert (done.status_code, done.headers["location"]) == (303, "/")
    assert "HttpOnly" in done.headers["set-cookie"]
    assert "SameSite=strict" in done.headers["set-cookie"]
    return Forms(client.get("/").text).forms["/sign-out"]["csrf"]


def asked(client, text="x < 0.5", **more):
    fields = Forms(client.get("/ask").text).forms["/ask"]
    return client.post("/ask", data={**fields, "text": text, **more})


def test_a_wrong_token_and_no_session(served):
    with served.client(None) as client:
        assert client.post("/sign-in", data={"token": "qdp_wrong"}).status_code == 403
        for path in ("/", "/ask", "/members", "/audit", "/log.csv", "/export.json"):
            done = client.get(path, follow_redirects=False)
            assert (done.status_code, done.headers["location"]) == (303, "/sign-in"), path


@pytest.mark.parametrize("who", ["owner", "analyst", "auditor"])
def test_every_role_sees_its_pages_and_no_other(served, who):
    may = {"owner": {"/", "/ask", "/members", "/audit"}, "analyst": {"/", "/ask"}, "auditor": {"/", "/audit"}}
    with served.client(None) as client:
        csrf = signed_in(served, client, who)
        shown = set(re.findall(r'<a href="(/\w*)"', client.get("/").text)) - {"/log"}
        assert shown == may[who]
        for path in ("/", "/ask", "/members", "/audit"):
            assert (client.get(path).status_code == 200) == (path in may[who]), path
        sends = {"/dry-run": "/ask", "/members": "/members", "/close": "/members", "/verify": "/audit"}
        for path, page in sends.items():
            if page not in may[who]:
                assert client.post(path, data={"csrf": csrf}).status_code == 403, path
        if "/audit" not in may[who]:
            assert client.get("/export.json").status_code == 403


def test_a_form_of_no_session_or_another_is_refused(served):
    with served.client(None) as mine, served.client(None) as other:
        signed_in(served, mine, "owner")
        stolen = signed_in(served, other, "owner")
        for field in ("", "0" * 64, stolen):
            for path in ("/ask", "/members", "/close", "/verify", "/sign-out"):
                data = {"csrf": field, "text": "x < 0.5", "key": "k", "name": "eve", "role": "owner"}
                assert mine.post(path, data=data).status_code in (400, 403), (path, field)
        assert served.service.study(served.id).ledger.head.asked == 0
        assert served.service.study(served.id).facts.closed is None


def test_asking_without_a_script_and_sending_twice(served):
    with served.client(None) as client:
        signed_in(served, client, "analyst")
        fields = Forms(client.get("/ask").text).forms["/ask"]
        data = {**fields, "text": "x < 0.5"}
        tried = client.post("/dry-run", data=data)
        assert "On the training data" in tried.text
        assert served.service.study(served.id).ledger.head.asked == 0
        first, again = client.post("/ask", data=data), client.post("/ask", data=data)
        assert "<html" in first.text  # the whole page, the answer in it
        assert "told before, nothing was charged now" in again.text
        assert served.service.study(served.id).ledger.head.asked == 1
        assert 'value="x &lt; 0.5"' in first.text or "x &lt; 0.5</textarea>" in first.text
        for text, problem in (("nowhere < 1", "there is no column"), ("__import__('os')", "is not allowed")):
            assert problem in asked(client, text).text
        assert "must be a number" in asked(client, low="one").text


def test_a_fragment_is_as_long_whatever_was_answered(served):
    with served.client(None) as client:
        signed_in(served, client, "analyst")
        lengths = set()
        for text in ("x < 0.5", "label == 1", "id < 0", "id > 0"):
            fields = Forms(client.get("/ask").text).forms["/ask"]
            done = client.post("/ask", data={**fields, "text": text}, headers={"HX-Request": "true"})
            assert "<html" not in done.text
            lengths.add(len(done.content) % 1024)
        assert lengths == {0}


def test_hostile_labels_are_labels(served):
    study = served.service.study(served.id)
    study.ask(served.members["analyst"], ExpressionQuestion("x < 0.5"), "k", HOSTILE)
    study.ask(served.members["analyst"], ExpressionQuestion("x < 0.4"), "l", "=1+1")
    with served.client(None) as client:
        csrf = signed_in(served, client, "owner")
        added = client.post("/members", data={"csrf": csrf, "name": HOSTILE[:90], "role": "analyst"})
        for page in (added, client.get("/"), client.get("/?q=%3Cscript%3E"), client.get("/audit")):
            assert "alert" not in re.sub("&lt;script&gt;.*?&lt;/script&gt;.*?alert\\(2\\)", "", page.text)
            assert Forms(page.text).tags.isdisjoint({"img", "iframe", "style"})
        rows = list(csv.reader(client.get("/log.csv").text.splitlines()))
        assert rows[1][3] == HOSTILE
        assert rows[2][3] == "'=1+1"  # no formula to a spreadsheet


def test_nothing_comes_from_elsewhere_and_no_script_is_inline(served):
    with served.client(None) as client:
        signed_in(served, client, "owner")
        for path in ("/", "/ask", "/members", "/audit"):
            page = client.get(path)
            policy = page.headers["content-security-policy"]
            assert policy == HEADERS["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert set(re.findall(r'(?:src|href)="(https?:)?//', page.text)) == set()
            assert not re.search(r"<script(?![^>]*src=)|\son\w+=|\sstyle=", page.text), path


def test_members_caps_and_the_end_of_a_study(served):
    with served.client(None) as client:
        csrf = signed_in(served, client, "owner")
        made = client.post("/members", data={"csrf": csrf, "name": "Bob", "role": "analyst", "cap": "2"})
        token = re.search(r"qdp_[\w-]+", made.text)[0]
        assert token not in client.get("/members").text  # shown once
        assert (
            "whole number"
            in client.post("/members", data={"csrf": csrf, "name": "C", "role": "analyst", "cap": "0"}).text
        )
        with served.client(None) as bob:
            bob.post("/sign-in", data={"token": token})
            assert bob.get("/ask").status_code == 200
            member = re.search(r"/members/(\w+)/revoke\">.*?Revoke Bob", client.get("/members").text, re.S)[0]
            identity = re.findall(r"/members/(\w+)/revoke", member)[-1]
            client.post(f"/members/{identity}/revoke", data={"csrf": csrf})
            assert bob.get("/ask", follow_redirects=False).status_code == 303
        client.post("/close", data={"csrf": csrf})
        assert "nothing more is answered" in client.get("/").text
        assert "closed" in asked(client).text


def test_the_audit_verifies_and_exports(served):
    with served.client(None) as client:
        csrf = signed_in(served, client, "owner")
        asked(client)
        assert "All 3 entries fit" in client.post("/verify", data={"csrf": csrf}).text
        assert verify_export(json.loads(client.get("/export.json").text)).seq == 3


def test_a_study_at_a_glance(served):
    study, analyst = served.service.study(served.id), served.members["analyst"]
    assert answers_plot(study, study.answers_of()) == ""
    for k, text in enumerate(("x < 0.5", "id > 0")):
        study.ask(analyst, ExpressionQuestion(text), str(k))
    shown = overview(study)
    assert (shown["left"], shown["asked"]) == ("5 of 5 answers left", "2 questions were asked.")
    plot = answers_plot(study, study.answers_of()[::-1])
    assert plot.count("<circle") == plot.count('class="bar"') == 2
    heights = [float(y) for y in re.findall(r'<circle[^>]* cy="([\d.]+)"', plot)]
    assert heights[1] == 20.0 < heights[0]  # 1 is the top line, and the second answer
    study.ask(analyst, ExpressionQuestion("id > 0", -10.0, 10.0), "ranged")  # 1, in a range from -10 to 10
    assert study.answers_of()[-1]["value"] == pytest.approx(1.0)
    last = re.findall(r'<circle[^>]* cy="([\d.]+)"', answers_plot(study, study.answers_of()[::-1]))[-1]
    assert float(last) == pytest.approx(150 - 130 * 0.55, abs=0.06)


@pytest.fixture
def address(served):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(served.app, port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(10)


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "width"), [("light", 1100), ("dark", 380)])
def test_in_a_browser(served, address, scheme, width):
    """Sign in, try, ask, add a member, verify, search: nothing is refused by the policy."""
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("browser tests need Chromium (Debian: apt-get install chromium)")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
        page, wrong, requests = context.new_page(), [], []
        page.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
        page.on("dialog", lambda d: wrong.append("dialog"))
        page.on("request", lambda r: requests.append(r.url))
        page.goto(f"{address}/sign-in")
        page.keyboard.type(served.tokens["owner"])  # the field has the focus
        page.keyboard.press("Enter")
        page.wait_for_selector("text=What this study promises")
        page.click("nav >> text=Ask")
        page.fill("#text", "x < 0.5")
        page.click("text=Try on the training")
        page.wait_for_selector("text=On the training data:")
        page.click("text=Ask: costs")
        page.wait_for_selector("#result >> text=receipt")
        page.click("nav >> text=Members")
        page.fill("#name", HOSTILE[:60])
        page.click("button:text-is('Add')")
        page.wait_for_selector("[role=status] >> text=qdp_")
        page.click("nav >> text=Audit")
        page.click("text=Verify the account now")
        page.wait_for_selector("text=entries fit")
        page.click("nav >> text=Study")
        page.fill("#q", "nothing like it")
        page.wait_for_selector("text=that matches")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert paper == ("rgb(13, 17, 23)" if scheme == "dark" else "rgb(255, 255, 255)")
        browser.close()
    assert [w for w in wrong if "favicon" not in w and "404" not in w] == []
    assert {r for r in requests if not r.startswith(address)} == set()
