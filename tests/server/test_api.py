"""Who may do what over HTTP, and what is said when something may not be done."""

from __future__ import annotations

import json

import pytest
from api_study import Served, asked, columns, question
from fastapi.routing import APIRoute
from sqlalchemy import update

from quiltdp.accountant.ledger import verify_export
from quiltdp.server import database as db
from quiltdp.server.api import ROLES, router
from quiltdp.server.app import Limits

ROLE = ("owner", "analyst", "auditor")
KEY = {"Idempotency-Key": "role"}
# Route -> what a good request sends, and the status of its reply.
GOOD = {
    "study": ({}, 200),
    "dry_run": ({"json": question()}, 200),
    "ask": ({"json": question(), "headers": KEY}, 200),
    "answers": ({}, 200),
    "log": ({}, 200),
    "export": ({}, 200),
    "verify": ({}, 200),
    "members": ({}, 200),
    "add": ({"json": {"name": "Bob"}}, 201),
    "revoke": ({}, 404),  # of a member who is not there
    "close": ({}, 200),
    "openapi": ({}, 200),
    "metrics": ({}, 200),
}
ROUTES = {route.name: route for route in router.routes if isinstance(route, APIRoute)}


def send(client, name):
    (method,) = ROUTES[name].methods
    return client.request(method, ROUTES[name].path.replace("{member}", "nobody"), **GOOD[name][0])


@pytest.fixture
def served(tmp_path):
    return Served(tmp_path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    made = Served(tmp_path_factory.mktemp("shared"), limits=Limits(rate=10_000))
    made.add("past", "owner", days=1)
    made.add("gone", "owner")
    with made.engine.begin() as connection:
        for name, column in (("past", "expires"), ("gone", "revoked")):
            mine = db.members.c.id == made.members[name].id
            connection.execute(update(db.members).where(mine).values({column: "2020-01-01T00:00:00Z"}))
    return made


MAY = {
    "owner": set(GOOD),
    "analyst": {"study", "dry_run", "ask", "answers", "openapi"},
    "auditor": set(GOOD) - {"dry_run", "ask", "add", "revoke", "close"},
}


def test_every_route_is_in_the_table_of_roles_and_in_these_tests():
    assert set(ROUTES) == set(ROLES) == set(GOOD)
    assert {role: {name for name, roles in ROLES.items() if role in roles} for role in ROLE} == MAY


@pytest.mark.parametrize("role", ROLE)
@pytest.mark.parametrize("name", [n for n in GOOD if n != "close"] + ["close"])
def test_a_role_may_do_what_the_table_says(shared, name, role):
    if name == "close" and role == "owner":
        pytest.skip("closing is tested below, on a study of its own")
    with shared.client(role) as client:
        reply = send(client, name)
    assert reply.status_code == (GOOD[name][1] if role in ROLES[name] else 403)
    if role not in ROLES[name]:
        assert reply.json()["type"].endswith(":not-allowed")


WRONG = [None, "past", "gone", "qdp_" + "A" * 43, "", "analyst-without-prefix"]


@pytest.mark.parametrize("who", WRONG)
@pytest.mark.parametrize("name", GOOD)
def test_nobody_is_let_in_without_a_valid_token_and_nothing_else_is_said(shared, name, who):
    with shared.client(who) as client:
        reply = send(client, name)
    assert reply.status_code == 401
    assert reply.headers["www-authenticate"] == "Bearer"
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.json() == {
        "type": "urn:quiltdp:problem:not-signed-in",
        "title": "Not signed in",
        "status": 401,
        "detail": "a valid token is needed, as 'Authorization: Bearer qdp_…'",
    }


@pytest.mark.parametrize(
    "headers", [{"Authorization": "Basic {}"}, {"X-Token": "{}"}, {"Cookie": "token={}"}]
)
def test_a_token_is_taken_as_a_bearer_only(shared, headers):
    with shared.client(None) as client:
        filled = {name: value.format(shared.tokens["owner"]) for name, value in headers.items()}
        assert client.get("/api/v1/study", headers=filled).status_code == 401
        assert client.get("/api/v1/study?token=" + shared.tokens["owner"]).status_code == 401


def test_without_a_token_not_even_the_body_is_read(shared):
    with shared.client(None) as client:
        reply = client.post("/api/v1/questions", content=b"{", headers={"Content-Type": "application/json"})
    assert reply.status_code == 401


def test_only_health_needs_no_token(shared):
    from quiltdp.server import pages

    every = [*router.routes, *pages.router.routes, *shared.app.routes]
    routes = [(route.path, method) for route in every for method in getattr(route, "methods", ())]
    assert len(routes) > 25
    with shared.client(None) as client:
        for path, method in routes:
            reply = client.request(method, path, follow_redirects=False)
            open_to_all = (path, method) in {("/live", "GET"), ("/ready", "GET"), ("/sign-in", "GET")}
            assert (reply.status_code == 200) == open_to_all, path
        for path in ("/docs", "/redoc", "/openapi.json", "/api/v1", "/nothing"):
            assert client.get(path).status_code == 404


def test_a_token_shows_its_own_study_and_no_other(tmp_path_factory):
    """Two studies of one database, in one process."""
    from api_study import terms

    from quiltdp.server.studies import create_study

    here = Served(tmp_path_factory.mktemp("two"))
    other, owner = create_study(
        here.engine, "other", columns(2), columns(3), terms(5), train_is_public=True, row_id="id"
    )
    with here.client() as client:
        assert asked(client).json()["entry"] == 3
    with here.client(owner) as client:
        assert client.get("/api/v1/study").json()["id"] == other
        assert client.get("/api/v1/answers").json() == []
        assert [m["name"] for m in client.get("/api/v1/members").json()] == ["owner"]
        assert client.post(f"/api/v1/members/{here.members['analyst'].id}/revoke").status_code == 404
        assert all(e["kind"] == "data" for e in client.get("/api/v1/log").json()["entries"])
        client.post("/api/v1/close")
    with here.client() as client:
        assert asked(client, "k2").status_code == 200


# -- asking --------------------------------------------------------------------------------


def test_an_answer_says_all_that_is_promised_and_one_key_is_one_charge(served):
    with served.client() as client:
        dry = client.post("/api/v1/dry-run", json=question()).json()
        first, again = asked(client), asked(client)
        assert first.status_code == again.status_code == 200
        told, repeated = first.json(), again.json()
        assert told["value"] == dry["training_value"]
        assert (told["repeated"], repeated["repeated"]) == (False, True)
        assert told == {**repeated, "repeated": False}
        assert told["left"] == "5 of 5 left"
        assert told["confidence"] == 0.95
        assert told["error_bound"] == dry["error_bound_from_train"]
        study = client.get("/api/v1/study").json()
    assert study["odometer"]["queries"] == 1
    assert (study["promise"]["epsilon"], study["promise"]["adversary"]) == (1000.0, "informed")
    assert "id" in study["me"]
    assert not {"train", "holdout", "identity", "token"} & set(study)


def test_another_question_under_a_key_is_refused_and_keys_are_each_members_own(served):
    served.add("bob", "analyst")
    with served.client() as client:
        asked(client)
        reply = asked(client, text="x < 0.7")
        assert (reply.status_code, reply.json()["type"]) == (409, "urn:quiltdp:problem:key-reused")
    with served.client("bob") as client:
        assert asked(client, text="x < 0.7").status_code == 200


def test_a_question_that_was_interrupted_is_charged_and_never_told(served, monkeypatch):
    from quiltdp.accountant.ledger.visit import Reservation

    with monkeypatch.context() as broken, served.client() as client:
        broken.setattr(Reservation, "settle", lambda *_: 1 / 0)
        reply = asked(client)
        assert (reply.status_code, reply.json()["type"]) == (503, "urn:quiltdp:problem:no-answer")
        assert reply.headers["retry-after"] == "1"
    with served.client() as client:
        reply = asked(client)
        assert (reply.status_code, reply.json()["type"]) == (409, "urn:quiltdp:problem:charged-not-told")
        (line,) = client.get("/api/v1/answers").json()
        assert line["source"] == "charged, not told"
        assert client.get("/api/v1/study").json()["answers_left"] == 4


@pytest.mark.parametrize("error", [RuntimeError("17"), ZeroDivisionError(), MemoryError("0.25")])
def test_whatever_breaks_over_the_holdout_has_one_text(served, monkeypatch, error):
    from quiltdp.mechanisms.thresholdout import ThresholdoutMechanism

    def fail(*_):
        raise error

    monkeypatch.setattr(ThresholdoutMechanism, "run", fail)
    with served.client() as client:
        reply = asked(client)
    assert reply.status_code == 503
    assert reply.json()["detail"].startswith("no answer could be given now: try again, a question under the")
    assert type(error).__name__ not in reply.text


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (None, "Idempotency-Key: Field required"),
        ("", "Idempotency-Key"),
        ("a b", "pattern"),
        ("k" * 501, "500"),
    ],
)
def test_a_question_needs_a_key(shared, key, said):
    headers = {} if key is None else {"Idempotency-Key": key}
    with shared.client() as client:
        reply = client.post("/api/v1/questions", json=question(), headers=headers)
    assert reply.status_code == 400
    assert said in reply.json()["detail"]


@pytest.mark.parametrize(
    "body",
    [
        b"{", b"[]", b"null", b'"x"', b"", b"{}", b"[" * 100_000, b"\xff", b'{"expression": NaN}',
        json.dumps(question(kind="code")).encode(), json.dumps({**question(), "sensitivity": 0}).encode(),
        json.dumps(question(range=[1, 0])).encode(), json.dumps(question(range=[0, True])).encode(),
        json.dumps(question(range=[0])).encode(), b'{"expression": "x", "range": [0, 1e999]}',
        json.dumps(question("import os")).encode(), json.dumps(question("nobody < 1")).encode(),
        json.dumps(question("x" * 3000)).encode(), json.dumps(question(label="a\0b")).encode(),
        b'{"expression": "x", "label": "\\ud800"}', b'{"expression": "x \\u202e < 1"}',
        b'{"expression": "x", "otherwise": ' + b"9" * 5000 + b"}",
    ],
)  # fmt: skip
def test_a_question_that_makes_no_sense_is_one_line_and_costs_nothing(shared, body):
    with shared.client() as client:
        before = client.get("/api/v1/study").json()["odometer"]
        headers = {"Idempotency-Key": "k", "Content-Type": "application/json"}
        reply = client.post("/api/v1/questions", content=body, headers=headers)
        assert reply.status_code == 400
        problem = reply.json()
        assert set(problem) == {"type", "title", "status", "detail"}
        assert problem["detail"].isprintable()
        assert client.get("/api/v1/study").json()["odometer"] == before


def test_an_answer_on_another_range_is_told_and_listed_on_it(served):
    with served.client() as client:
        told = asked(client, text="10 * x", range=[0, 10]).json()
        (line,) = client.get("/api/v1/answers").json()
    assert 4 < told["value"] < 6
    assert line["value"] == told["value"]


def different(rows=400):
    """Return holdout data on which x is never small: every question about it is answered from there."""
    return {**columns(1, rows), "x": ["0.999"] * rows}


def test_spent_capped_and_closed_are_problems_of_their_own(tmp_path):
    served = Served(tmp_path, budget=2, holdout=different())
    served.add("bob", "analyst", cap=1)
    with served.client("bob") as client:
        assert asked(client).json()["source"] == "holdout"
        reply = asked(client, "k2")
        assert (reply.status_code, reply.json()["type"]) == (403, "urn:quiltdp:problem:cap-reached")
        assert "your 1 answers" in reply.json()["detail"]
        assert asked(client).json()["repeated"]
    with served.client() as client:
        assert asked(client).json()["left"] == "0 of 2 left"
        reply = asked(client, "k2")
        assert (reply.status_code, reply.json()["type"]) == (403, "urn:quiltdp:problem:budget-spent")
    with served.client("owner") as client:
        assert client.post("/api/v1/close").json()["closed"]
    with served.client() as client:
        assert asked(client).json()["repeated"]
        assert asked(client, "k3").status_code == 403


def test_a_closed_study_answers_nothing_more(served):
    with served.client("owner") as client:
        client.post("/api/v1/close")
    with served.client() as client:
        reply = asked(client)
        assert (reply.status_code, reply.json()["type"]) == (403, "urn:quiltdp:problem:study-closed")
        assert client.post("/api/v1/dry-run", json=question()).status_code == 200


def test_an_analyst_sees_their_own_answers_and_an_auditor_all(served):
    served.add("bob", "analyst")
    for who in ("analyst", "bob"):
        with served.client(who) as client:
            asked(client, label=f"by {who}")
            assert [line["label"] for line in client.get("/api/v1/answers").json()] == [f"by {who}"]
    with served.client("auditor") as client:
        assert [line["who"] for line in client.get("/api/v1/answers").json()] == ["analyst", "bob"]


# -- audit ---------------------------------------------------------------------------------


def test_an_export_verifies_anywhere_and_a_change_in_the_database_is_seen(served):
    with served.client() as client:
        receipt = asked(client).json()
    with served.client("auditor") as client:
        document = client.get("/api/v1/export").json()
        assert verify_export(document).seq == receipt["entry"]
        assert document["entries"][-1]["digest"] == receipt["digest"]
        assert client.post("/api/v1/verify").json()["whole"]
        with served.engine.begin() as connection:
            connection.exec_driver_sql("DROP TRIGGER entries_stay")
            connection.execute(update(db.entries).where(db.entries.c.seq == 3).values(label="other"))
        found = client.post("/api/v1/verify").json()
        assert not found["whole"]
        assert "entry 3" in found["reason"]
    with served.client() as client:
        reply = asked(client, "k2")
        assert (reply.status_code, reply.json()["type"]) == (503, "urn:quiltdp:problem:account-refused")


# -- members -------------------------------------------------------------------------------


def test_a_member_is_added_with_a_token_shown_once_and_revoked(served):
    with served.client("owner") as client:
        made = client.post("/api/v1/members", json={"name": "Ann", "days": 3, "cap": 2}).json()
        listed = client.get("/api/v1/members")
        assert made["token"] not in listed.text
        assert [m["name"] for m in listed.json() if m["cap"] == 2] == ["Ann"]
        with served.client(made["token"]) as other:
            assert other.get("/api/v1/study").json()["me"]["name"] == "Ann"
            assert client.post(f"/api/v1/members/{made['id']}/revoke").status_code == 200
            assert other.get("/api/v1/study").status_code == 401
        assert client.post(f"/api/v1/members/{made['id']}/revoke").status_code == 404
        me = client.get("/api/v1/study").json()["me"]["id"]
        reply = client.post(f"/api/v1/members/{me}/revoke")
        assert (reply.status_code, reply.json()["type"]) == (409, "urn:quiltdp:problem:last-owner")


@pytest.mark.parametrize(
    "body", [{"name": " "}, {"name": "a", "role": "god"}, {"name": "a", "cap": 0}, {"name": "a", "days": 1.5},
             {"name": "a", "role": "auditor", "cap": 1}, {"name": "a\0"}, {"name": "a", "study": "x"}],
)  # fmt: skip
def test_a_strange_member_is_refused(shared, body):
    with shared.client("owner") as client:
        assert client.post("/api/v1/members", json=body).status_code == 400


# -- limits --------------------------------------------------------------------------------


def test_too_many_requests_are_refused_for_a_while_and_for_that_token_only(tmp_path):
    served = Served(tmp_path, limits=Limits(rate=3))
    with served.client() as client:
        assert [client.get("/api/v1/study").status_code for _ in range(4)] == [200, 200, 200, 429]
        reply = client.get("/api/v1/study")
        assert reply.headers["retry-after"] == "20"
        assert reply.json()["detail"] == "a token may send 3 requests a minute"
        with served.client("auditor") as other:
            assert other.get("/api/v1/study").status_code == 200
        served.clock.now += 20.0
        assert [client.get("/api/v1/study").status_code for _ in range(2)] == [200, 429]
    assert served.service.limited == 3


def test_a_large_body_is_refused_whether_it_says_its_length_or_not(tmp_path):
    served = Served(tmp_path, limits=Limits(size=1000))
    with served.client() as client:
        headers = {"Idempotency-Key": "k", "Content-Type": "application/json"}
        for body in (b" " * 1001, iter([b" " * 600, b" " * 600])):
            reply = client.post("/api/v1/questions", content=body, headers=headers)
            assert (reply.status_code, reply.json()["type"]) == (413, "urn:quiltdp:problem:too-large")
        assert asked(client, text="x < 0.5").status_code == 200


def test_strange_limits_and_databases_are_refused(tmp_path):
    from quiltdp.errors import InvalidArgument
    from quiltdp.server.app import create_app

    served = Served(tmp_path)
    for arguments, options, said in [
        ((f"sqlite:///{tmp_path}/none.db",), {}, "there are no studies here"),
        (("mysql://x",), {}, "sqlite:///FILE or postgresql"),
        ((served.url,), {"slot": 0.0}, "slot must be positive"),
        ((served.url, tmp_path / "anchor"), {}, "there is no anchor here"),
    ]:
        with pytest.raises(InvalidArgument, match=said):
            create_app(*arguments, **options)
    assert not (tmp_path / "none.db").exists()


def test_a_study_with_an_anchor_is_served_with_it_and_not_without(tmp_path):
    from api_study import terms

    from quiltdp.server.app import create_app
    from quiltdp.server.studies import add_member, create_study

    served = Served(tmp_path)
    anchor = tmp_path / "anchor"
    study, _ = create_study(
        served.engine, "b", columns(2), columns(3), terms(5), train_is_public=True, anchor=anchor
    )
    with served.engine.begin() as connection:
        served.tokens["b"] = add_member(connection, study, "b", "analyst")[1]
    for anchors, status in ((anchor, 200), ((), 503)):
        served.app = create_app(served.url, anchors, clock=served.clock, sleep=served.clock.sleep)
        with served.client("b") as client:
            assert asked(client).status_code == status
        with served.client() as client:
            assert asked(client).status_code == 200


def test_the_service_says_when_its_database_is_gone(served):
    with served.client() as client:
        assert client.get("/ready").text == "ready\n"
        served.engine.dispose()
        with served.engine.begin() as connection:
            connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
            for table in ("questions", "sessions", "members", "studies"):
                connection.exec_driver_sql(f"ALTER TABLE {table} RENAME TO old_{table}")
        assert client.get("/ready").status_code == 503
        assert client.get("/live").status_code == 200
        reply = client.get("/api/v1/study")
        assert (reply.status_code, reply.json()["type"]) == (503, "urn:quiltdp:problem:no-answer")
        assert "members" not in reply.text
