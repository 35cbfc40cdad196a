"""What a network, a log or a counter can learn of an answer: nothing, not from time, not from length."""

from __future__ import annotations

import io
import json
import logging
import re
from threading import Barrier, Event

import anyio
import pytest
from api_study import Served, asked, columns, question
from fastapi.responses import JSONResponse

from quiltdp.errors import BudgetSpent, NotTold, Refused
from quiltdp.server.app import JsonLines, Limits
from quiltdp.server.problems import problem_of, response_to

FAR = {**columns(1), "x": ["0.999"] * 400}


@pytest.fixture
def lines():
    """Every line that is logged meanwhile."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    of_the_service = [logging.getLogger(name) for name in ("quiltdp.server", "uvicorn.error")]
    for logger in of_the_service:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    for logger in of_the_service:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    ("work", "leaves"), [(0.0, 0.25), (0.1, 0.25), (0.25, 0.25), (0.26, 0.5), (1.7, 1.75), (60.1, 60.25)]
)
def test_an_answer_leaves_at_the_next_slot_after_its_question(tmp_path, work, leaves):
    served = Served(tmp_path)
    began = served.clock.now

    def answer():
        served.clock.now += work
        return JSONResponse({})

    anyio.run(served.service.reply, served.members["analyst"], answer)
    assert served.clock.now - began == pytest.approx(leaves)


@pytest.mark.parametrize("error", [Refused("a"), NotTold("b"), BudgetSpent("c"), RuntimeError("d")])
def test_a_refusal_leaves_at_a_slot_too_and_is_as_long(tmp_path, error):
    served = Served(tmp_path)

    def answer():
        served.clock.now += 0.1
        raise error

    reply = anyio.run(served.service.reply, served.members["analyst"], answer)
    assert served.clock.now == pytest.approx(0.25)
    assert len(reply.body) == 1024
    assert reply.headers["content-length"] == "1024"
    assert bytes(reply.body).rstrip() == bytes(response_to(problem_of(error)).body)


def test_all_answers_have_one_length_wherever_they_come_from(tmp_path):
    folder = tmp_path / "far"
    folder.mkdir()
    near, far = Served(tmp_path), Served(folder, holdout=FAR)
    replies = []
    for served in (near, far):
        with served.client() as client:
            replies += [asked(client), asked(client), asked(client, text="1", key="b")]
    assert {r.json()["source"] for r in replies} == {"train", "holdout"}
    assert {len(r.content) for r in replies} == {1024}
    assert {len(r.headers) for r in replies} == {5}


def test_the_longest_answer_is_no_longer(tmp_path):
    from dataclasses import replace

    from quiltdp.server.asking import Receipt

    number = -1.2345678901234567e-300
    longest = Receipt(number, "holdout", number, number, number, 10**9, 10**9, 10**12, "f" * 64, True)
    shortest = replace(longest, value=0.0, source="train", entry=3, repeated=False)
    for receipt in (longest, shortest):
        assert len(JSONResponse(receipt.to_dict()).body) <= 1024


def test_a_token_asks_two_questions_at_a_time(tmp_path):
    served = Served(tmp_path, limits=Limits(concurrent=2))
    member, bob = served.members["analyst"], None
    served.add("bob", "analyst")
    bob = served.members["bob"]
    waiting, go = Barrier(4), Event()

    def answer():
        waiting.wait(10)
        go.wait(10)
        return JSONResponse({})

    async def run():
        refused = []
        async with anyio.create_task_group() as group:
            for who in (member, member, bob):
                group.start_soon(served.service.reply, who, answer)
            await anyio.to_thread.run_sync(waiting.wait, 10)
            with pytest.raises(Exception, match="2 questions at a time") as caught:
                await served.service.reply(member, answer)
            refused.append(caught.value)
            go.set()
        await served.service.reply(member, lambda: JSONResponse({}))  # and then again
        return refused

    (problem,) = anyio.run(run)
    assert (problem.status_code, problem.headers) == (429, {"Retry-After": "1"})
    assert served.service.limited == 1


SECRET = re.compile(r"qdp_|train|holdout|0\.\d{3}|x < 0\.5")


def test_log_and_counters_are_the_same_whatever_the_answers_were(tmp_path, lines):
    """A study whose answers all come from the training data, and one that spends them: same log."""
    seen = []
    for name, data in (("near", None), ("far", FAR)):
        folder = tmp_path / name
        folder.mkdir()
        served = Served(folder, budget=2, holdout=data)
        before = len(lines())
        with served.client() as client:
            statuses = [asked(client, f"k{k}").status_code for k in range(4)]
        with served.client("auditor") as client:
            counters = client.get("/metrics").text
        told = [line for line in lines()[before:] if line["message"] == "request"]
        assert not any(SECRET.search(json.dumps(line)) for line in told)
        assert {line["member"] for line in told} == {served.members[n].id for n in ("analyst", "auditor")}
        seen.append(
            (statuses, [{n: line.get(n) for n in ("route", "status", "level")} for line in told], counters)
        )
    near, far = seen
    assert near[0] != far[0]
    assert near[1:] == far[1:]
    assert 'quiltdp_requests_total{route="/api/v1/questions"} 4' in near[2]
    assert "quiltdp_questions_total 4" in near[2]


def test_a_line_of_the_log_names_request_member_and_route(tmp_path, lines):
    served = Served(tmp_path)
    with served.client() as client:
        reply = client.get("/api/v1/study?token=secret")
        client.get("/nothing/secret")
        client.post("/api/v1/members/secret/revoke")
    known, unknown, refused = (line for line in lines() if line["message"] == "request")
    assert known["request"] == reply.headers["x-request-id"]
    assert (known["route"], known["status"]) == ("/api/v1/study", "2xx")
    assert (unknown["route"], unknown["status"], unknown["member"]) == ("other", "4xx", None)
    assert refused["route"] == "/api/v1/members/{member}/revoke"
    assert "secret" not in json.dumps(lines())


def test_what_breaks_is_logged_by_its_place_and_never_by_its_words(tmp_path, lines):
    served = Served(tmp_path)

    @served.app.get("/broken")
    def broken():
        raise RuntimeError("0.4525 qdp_token")

    with served.client() as client:
        reply = client.get("/broken")
        assert (reply.status_code, reply.json()["type"]) == (503, "urn:quiltdp:problem:no-answer")
    try:
        broken()
    except RuntimeError:
        logging.getLogger("uvicorn.error").exception("Exception in ASGI application")
    line = lines()[-1]
    assert line["error"] == "RuntimeError in broken"
    assert "0.4525" not in json.dumps(lines())


def test_a_dry_run_is_no_question(tmp_path):
    served = Served(tmp_path)
    with served.client() as client:
        client.post("/api/v1/dry-run", json=question())
    assert served.service.questions == 0
    assert served.clock.slept == []
