"""The client against a real server on this machine; what the network loses is charged once."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import uvicorn
from api_study import Served, columns

import quiltdp as qd
from quiltdp.cli.app import main
from quiltdp.client import RemoteAnswer, RemoteHoldout, verify_receipt
from quiltdp.errors import BudgetSpent, InvalidArgument, KeyReused, LedgerCorrupt, NotTold, Refused
from quiltdp.server.app import Limits, create_app

FAR = {**columns(1), "x": ["0.999"] * 400}


class Running:
    """A study served on a port of this machine, by a thread."""

    def __init__(self, folder, rate=10_000):
        self.served = Served(folder, budget=3, holdout=FAR)
        self.app = create_app(self.served.url, slot=0.01, limits=Limits(rate=rate))
        config = uvicorn.Config(self.app, port=0, log_config=None, access_log=False)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)
        port = self.server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"

    def connect(self, who="analyst"):
        return qd.connect(self.url, self.served.tokens[who])

    def stop(self):
        self.server.should_exit = True
        self.thread.join(10)


@pytest.fixture
def running(tmp_path):
    made = Running(tmp_path)
    yield made
    made.stop()


def test_a_client_asks_as_a_reusable_holdout_does(running):
    remote = running.connect()
    assert remote.status()["promise"]["epsilon"] == 1000.0
    assert remote.dry_run("x < 0.5")["answers_left"] == remote.remaining == 3
    answer = remote.ask("x < 0.5", key="a", label="first")
    assert isinstance(answer, RemoteAnswer)
    assert (answer.source, answer.remaining, answer.repeated) == ("holdout", 2, False)
    assert abs(float(answer)) < 0.01  # of FAR no x is small
    assert answer.failure == pytest.approx(0.05)
    again = remote.ask("x < 0.5", key="a")
    assert again.repeated
    assert (again.value, again.digest) == (answer.value, answer.digest)
    with pytest.raises(KeyReused, match="names another question"):
        remote.ask("x < 0.7", key="a")
    wide = remote.ask("10 * x", range=(0, 10), otherwise=0)
    assert wide.value == pytest.approx(9.99, abs=0.01)
    many = remote.ask_many(["x > 0.9", "x > 0.9"], keys=["m", "m"])
    assert [a.repeated for a in many] == [False, True]
    with pytest.raises(BudgetSpent):
        remote.ask("x < 0.1")
    assert [line["label"] for line in remote.answers()][:1] == ["first"]
    export = running.connect("auditor").export()
    for receipt in (answer, again, wide, *many):
        verify_receipt(receipt, export)
    assert running.served.tokens["analyst"] not in repr(remote)


def test_a_receipt_is_found_in_an_export_or_not(running, tmp_path):
    from dataclasses import replace

    receipt = running.connect().ask("x < 0.5")
    export = running.connect("owner").export()
    file = tmp_path / "export.json"
    file.write_text(json.dumps(export))
    verify_receipt(receipt, file)
    for other in ({"value": 0.5}, {"source": "train"}, {"entry": 2}, {"digest": "f" * 64}, {"low": 0.1}):
        with pytest.raises(LedgerCorrupt):
            verify_receipt(replace(receipt, **other), export)
    export["entries"][-1]["label"] = "another"
    with pytest.raises(LedgerCorrupt, match="was changed"):
        verify_receipt(receipt, export)
    with pytest.raises(InvalidArgument, match="receipt"):
        verify_receipt(qd.ReusableHoldout.ask, export)


def test_errors_of_the_service_are_those_of_the_library(running):
    remote = running.connect()
    with pytest.raises(InvalidArgument, match="not an expression"):
        remote.ask("x <")
    with pytest.raises(InvalidArgument, match="not finite"):
        remote.ask("x", otherwise=float("nan"))
    with pytest.raises(InvalidArgument, match="key"):
        remote.ask("x", key="a b")
    with pytest.raises(InvalidArgument, match="keys"):
        remote.ask_many(["x"], keys=[])
    with pytest.raises(Refused, match="not analyst"):
        remote.export()
    with pytest.raises(Refused, match="valid token"):
        qd.connect(running.url, "qdp_nobody").status()
    with pytest.raises(InvalidArgument, match="bytes"):
        remote._call("questions", {"expression": "x", "label": "a" * (5 << 20)}, key="k")


def test_an_interrupted_question_is_said_to_be_charged(running, monkeypatch):
    from quiltdp.accountant.ledger.visit import Reservation

    monkeypatch.setattr(Reservation, "settle", lambda *_: 1 / 0)
    remote = RemoteHoldout(running.url, running.served.tokens["analyst"], sleep=lambda _: None)
    with pytest.raises(NotTold):  # the first try breaks, the second is told so
        remote.ask("x < 0.5")
    assert remote.remaining == 2


@pytest.mark.parametrize("insecure", [False, True])
@pytest.mark.parametrize(
    "url", ["http://holdout.example", "http://10.0.0.1:8000", "http://localhost.example"]
)
def test_a_token_goes_over_plain_http_to_this_machine_only(url, insecure):
    if insecure:
        assert qd.connect(url, "t", insecure=True).url == url
        return
    with pytest.raises(InvalidArgument, match="would show the token"):
        qd.connect(url, "t")


@pytest.mark.parametrize("url", ["holdout.example", "ftp://x", "file:///etc/passwd", "https://", ""])
def test_a_strange_address_is_refused(url):
    with pytest.raises(InvalidArgument, match="no address"):
        qd.connect(url, "t")


@pytest.mark.parametrize("token", ["", " ", "a\nb", "ü"])
def test_a_strange_token_is_refused(token):
    with pytest.raises(InvalidArgument, match="no token"):
        qd.connect("https://x", token)


class Proxy:
    """Stands in between and does to every request what a list says; then lets all through."""

    def __init__(self, target, deeds):
        self.target, self.deeds, self.keys, self.seen = target, list(deeds), [], []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                from urllib.error import HTTPError
                from urllib.request import Request, urlopen

                body = self.rfile.read(int(self.headers["Content-Length"]))
                proxy.keys.append(self.headers["Idempotency-Key"])
                deed = proxy.deeds.pop(0) if proxy.deeds else "pass"
                if deed == "lose the question":
                    return
                names = ("Authorization", "Content-Type", "Idempotency-Key")
                headers = {name: self.headers[name] for name in names}
                try:
                    with urlopen(Request(proxy.target + self.path, body, headers)) as reply:
                        status, text = reply.status, reply.read()
                except HTTPError as error:
                    status, text = error.code, error.read()
                if deed == "lose the answer":
                    return
                if deed == "move":
                    status, text = 302, b""
                if deed == "busy":
                    status, text = 503, b"<html>"
                if deed == "garbage":
                    text = b"<html>"
                self.send_response(status)
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text[:100] if deed == "cut" else text)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.mark.parametrize(
    "deeds",
    [
        ["lose the question"],
        ["lose the answer"],
        ["cut"],
        ["busy"],
        ["garbage"],
        ["lose the answer", "busy", "cut"],
    ],
)
def test_what_the_network_loses_is_asked_again_and_charged_once(running, deeds):
    proxy, slept = Proxy(running.url, deeds), []
    remote = RemoteHoldout(proxy.url, running.served.tokens["analyst"], sleep=slept.append)
    answer = remote.ask("x < 0.5")
    assert answer.source == "holdout"
    assert answer.repeated == (deeds != ["lose the question"])
    assert len(set(proxy.keys)) == 1
    assert len(proxy.keys) == len(slept) + 1 == len(deeds) + 1
    assert running.connect().status()["answers_left"] == 2
    proxy.server.shutdown()


def test_a_network_that_loses_all_is_said_with_the_key(running):
    proxy = Proxy(running.url, ["lose the answer"] * 100)
    remote = RemoteHoldout(proxy.url, running.served.tokens["analyst"], tries=3, sleep=lambda _: None)
    with pytest.raises(Refused, match=r"no answer came .* charged is said under its key: k1"):
        remote.ask("x < 0.5", key="k1")
    assert proxy.keys == ["k1"] * 3
    assert running.connect().ask("x < 0.5", key="k1").repeated
    proxy.server.shutdown()


def test_a_redirect_takes_no_token_elsewhere(running):
    proxy = Proxy(running.url, ["move"])
    remote = RemoteHoldout(proxy.url, running.served.tokens["analyst"], tries=1)
    with pytest.raises(Refused, match="answered 302"):
        remote.ask("x < 0.5")
    proxy.server.shutdown()


def test_too_many_requests_wait_as_long_as_they_are_told(tmp_path):
    running, slept = Running(tmp_path, rate=2), []

    def sleep(seconds):
        slept.append(seconds)
        running.app.state.service._buckets.clear()

    remote = RemoteHoldout(running.url, running.served.tokens["analyst"], sleep=sleep)
    for _ in range(3):
        remote.status()
    assert slept == [30.0]
    running.stop()


def test_predictions_are_scored_where_rows_are_independent_and_refused_elsewhere(running):
    from sqlalchemy import select, update

    from quiltdp.server import database as db

    right = dict(zip(columns(0)["id"], map(int, columns(0)["label"]), strict=True))
    guess = {"train": right, "holdout": dict.fromkeys(right, np.True_)}
    remote = running.connect()
    with pytest.raises(Refused, match="predictions are not scored here"):
        remote.score(guess)
    with running.served.engine.begin() as connection:
        (facts,) = connection.execute(select(db.studies.c.facts)).one()
        allowed = {**json.loads(facts), "predictions": "rows are independent"}
        connection.execute(update(db.studies).values(facts=json.dumps(allowed)))
    answer = remote.score(guess, key="s")
    share = FAR["label"].count("1") / len(right)
    assert (answer.source, round(answer.value, 2)) == ("holdout", round(share, 2))
    assert remote.score(guess, key="s").repeated
    with pytest.raises(KeyReused):
        remote.score(guess, loss="squared", key="s")
    with pytest.raises(InvalidArgument):
        remote.score({"train": right, "holdout": {}})
    verify_receipt(answer, running.connect("auditor").export())


def test_predictions_are_sent_as_plain_json(monkeypatch):
    remote, sent = qd.connect("https://x", "t"), []
    receipt = {"value": 1.0, "source": "train", "answers_left": 1, "error_bound": None, "repeated": False,
               "population_bound": None, "confidence": 0.95, "entry": 3, "digest": "f"}  # fmt: skip

    def call(route, body, key):
        sent.append((route, json.loads(json.dumps(body)), key))
        return receipt

    monkeypatch.setattr(remote, "_call", call)
    predictions = {"train": {1: np.float64(0.5)}, "holdout": {"2": np.int64(1), "3": "yes"}}
    answer = remote.score(predictions, loss="squared", key="s")
    assert answer.error_bound == float("inf")
    parts = {"train": {"1": 0.5}, "holdout": {"2": 1, "3": "yes"}}
    assert sent == [("questions", {"kind": "predictions", "predictions": parts, "loss": "squared"}, "s")]


# -- the command line ----------------------------------------------------------------------


def shell(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    said = capsys.readouterr()
    return stop.value.code, said.out, said.err


def test_asking_a_server_from_the_shell(running, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("QUILTDP_TOKEN", running.served.tokens["analyst"])
    ask = ("holdout", "ask", "--server", running.url)
    code, out, _ = shell(capsys, *ask, "x < 0.5", "--key", "a", "--json")
    (answer,) = json.loads(out)["answers"]
    assert (code, answer["query"], answer["remaining"]) == (0, "x < 0.5", 2)
    assert (answer["source"], answer["confidence"]) == ("holdout", 0.95)
    code, out, _ = shell(capsys, *ask, "x < 0.5", "x // 1 > 0", "--key", "a", "--key", "b")
    assert code == 0
    assert "repeated; 2 left" in out.splitlines()[0]
    monkeypatch.delenv("QUILTDP_TOKEN")
    code, _, err = shell(capsys, *ask, "x")
    assert (code, err) == (
        2,
        "quiltdp: no token: put it in the variable QUILTDP_TOKEN, or name its --token-file\n",
    )
    (tmp_path / "token").write_text(running.served.tokens["analyst"] + "\n")
    code, _, _ = shell(capsys, *ask, "x", "--token-file", str(tmp_path / "token"))
    assert code == 0
    assert shell(capsys, *ask, "x", "--train", "t.csv")[0] == 2
    assert shell(capsys, "holdout", "ask", "study.db", "x")[0] == 2


def test_serving_says_what_is_missing_in_one_line(capsys, tmp_path):
    code, _, err = shell(capsys, "serve", "--database", f"sqlite:///{tmp_path}/none.db")
    assert code == 2
    assert err.count("\n") == 1
    assert "there are no studies here; make one: quiltdp study create" in err
    assert shell(capsys, "serve", "--database", "nothing")[0] == 2
    assert shell(capsys, "serve", "--database", "sqlite:///a.db", "--port", "70000")[0] == 2


def test_a_server_is_started_from_the_shell_and_ends_when_interrupted(tmp_path):
    import signal
    import socket
    from urllib.request import urlopen

    served = Served(tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "quiltdp", "serve", "--database", served.url, "--port", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        for line in process.stderr:
            if "running" in json.loads(line)["message"].lower():
                break
        with urlopen(f"http://127.0.0.1:{port}/ready") as reply:
            assert reply.read() == b"ready\n"
        qd.connect(f"http://127.0.0.1:{port}", served.tokens["analyst"]).ask("x < 0.5")
    finally:
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        process.wait(30)
    facts = [json.loads(line) for line in rest.splitlines()]
    (asked,) = [line for line in facts if line.get("route") == "/api/v1/questions"]
    assert "status" not in asked
    assert served.tokens["analyst"] not in rest
