"""The application: who is let in, when a reply leaves and how long it is, what is logged and counted.

A reply to a question leaves at a multiple of ``slot`` seconds after the question came, and is filled up with
white space: neither when it leaves nor how long it is tells where the answer came from.  No log line and no
counter depends on an answer either.
"""

from __future__ import annotations

import json
import logging
import math
import os
import secrets
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response
from sqlalchemy import inspect, select
from sqlalchemy.exc import SQLAlchemyError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quiltdp import __version__
from quiltdp.accountant.ledger.anchor import Anchor
from quiltdp.errors import InvalidArgument, Refused, option
from quiltdp.server import database as db
from quiltdp.server.asking import Study
from quiltdp.server.problems import Problem, add_problems, problem_of, response_to
from quiltdp.server.studies import Member, find_member

__all__ = ["JsonLines", "Limits", "Service", "create_app"]

LENGTH = 1024  # bytes; a reply to a question is filled up to a multiple
_log = logging.getLogger("quiltdp.server")


@dataclass(frozen=True)
class Limits:
    """What one token may do: requests a minute, questions at a time, bytes of a request."""

    rate: int = 120
    concurrent: int = 2
    size: int = 4 << 20


class Service:
    """What all requests to one server process share."""

    def __init__(
        self,
        database: str,
        anchors: Sequence[str | Path],
        slot: float,
        limits: Limits,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        if not slot > 0:
            raise InvalidArgument(f"{option('slot')} must be positive, not {slot!r}")
        self.engine = db.opened(database)
        self._require_studies()
        self._anchors = dict(map(_anchored, anchors))
        self.slot, self.limits, self.clock, self.sleep = slot, limits, clock, sleep
        self.began = clock()
        self.requests: Counter[str] = Counter()
        self.questions = self.limited = 0
        self._studies: dict[str, Study] = {}
        self._lock = threading.Lock()
        self._buckets: dict[str, tuple[float, float]] = {}
        self._asking: Counter[str] = Counter()
        self._threads: anyio.CapacityLimiter | None = None

    def _require_studies(self) -> None:
        file = self.engine.url.database if self.engine.dialect.name == "sqlite" else None
        try:
            there = (file is None or os.path.exists(file)) and inspect(self.engine).has_table("studies")
        except SQLAlchemyError:
            raise Refused(f"{db.shown(self.engine)}: the database cannot be opened") from None
        if not there:
            raise InvalidArgument(
                f"{db.shown(self.engine)}: there are no studies here; make one: quiltdp study create"
            )

    def study(self, identity: str) -> Study:
        """Return a study; its data are read with the first question about it."""
        with self._lock:
            if identity not in self._studies:
                self._studies[identity] = Study(self.engine, identity, self._anchors.get(identity))
            return self._studies[identity]

    def member(self, request: Request) -> Member:
        """Return whose token a request carries."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        found = None
        if scheme.lower() == "bearer":
            with self.engine.connect() as connection:
                found = find_member(connection, token.strip())
        if found is None:
            detail = "a valid token is needed, as 'Authorization: Bearer qdp_…'"
            raise Problem(401, "not-signed-in", "Not signed in", detail, {"WWW-Authenticate": "Bearer"})
        return found

    def admit(self, member: Member) -> None:
        """Count a request of a member, or refuse it if there were too many lately."""
        per_second, now = self.limits.rate / 60, self.clock()
        left, before = self._buckets.get(member.id, (float(self.limits.rate), now))
        left = min(float(self.limits.rate), left + (now - before) * per_second)
        if left < 1:
            raise self._too_many(f"{self.limits.rate} requests a minute", (1 - left) / per_second)
        self._buckets[member.id] = (left - 1, now)

    def _too_many(self, what: str, wait: float) -> Problem:
        self.limited += 1
        after = {"Retry-After": str(math.ceil(wait))}
        return Problem(429, "too-many", "Too many requests", f"a token may send {what}", after)

    @contextmanager
    def _asked(self, member: Member) -> Iterator[None]:
        if self._asking[member.id] >= self.limits.concurrent:
            raise self._too_many(f"{self.limits.concurrent} questions at a time", self.slot)
        self._asking[member.id] += 1
        try:
            yield
        finally:
            self._asking[member.id] -= 1

    async def reply(self, member: Member, answer: Callable[[], Response]) -> Response:
        """Return the reply to a question of a member, at the next slot and of the usual length."""
        arrived = self.clock()
        self.questions += 1
        if self._threads is None:
            self._threads = anyio.CapacityLimiter(20)  # others than those of the rest of the service
        with self._asked(member):
            try:
                response = await anyio.to_thread.run_sync(answer, limiter=self._threads)
            except Exception as error:
                response = response_to(problem_of(error))
            spent = self.clock() - arrived
            await self.sleep(max(1, math.ceil(spent / self.slot)) * self.slot - spent)
        response.body = bytes(response.body) + b" " * (-len(response.body) % LENGTH)
        response.headers["content-length"] = str(len(response.body))
        return response

    def metrics(self) -> str:
        """Return the counters in Prometheus' text format."""
        counters = [
            ("quiltdp_questions_total", "counter", "Questions received.", self.questions),
            ("quiltdp_rate_limited_total", "counter", "Requests refused for their number.", self.limited),
            ("quiltdp_uptime_seconds", "gauge", "Seconds since the start.", self.clock() - self.began),
        ]
        lines = ["# HELP quiltdp_requests_total Requests by route.", "# TYPE quiltdp_requests_total counter"]
        lines += [f'quiltdp_requests_total{{route="{r}"}} {n}' for r, n in sorted(self.requests.items())]
        for name, kind, text, value in counters:
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", f"{name} {value}"]
        return "\n".join([*lines, ""])


def _anchored(path: str | Path) -> tuple[str, str | Path]:
    known = Anchor(path).read()
    if known is None:
        raise InvalidArgument(f"{path}: there is no anchor here; restore it, 'quiltdp study create' made it")
    return known[0], path


class _Gate:
    """Around every request: its id, the size of its body, one line in the log, one more in a counter."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        identity, size, status = secrets.token_hex(8), 0, 0

        async def limited() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self.service.limits.size:
                detail = f"a request may have {self.service.limits.size} bytes"
                raise Problem(413, "too-large", "The request is too large", detail)
            return message

        async def marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                extra = [(b"x-request-id", identity.encode()), (b"x-content-type-options", b"nosniff")]
                if not any(name == b"cache-control" for name, _ in message["headers"]):
                    extra.append((b"cache-control", b"no-store"))
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        scope.setdefault("state", {})
        try:
            await self.app(scope, limited, marked)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.service.requests[route] += 1
            member = scope["state"].get("member")
            facts = {"request": identity, "member": member and member.id, "route": route}
            if not scope["state"].get("asked"):  # what comes of a question depends on the holdout
                facts["status"] = f"{status // 100}xx"
            _log.info("request", extra={"facts": facts})


class JsonLines(logging.Formatter):
    """One JSON object a line; of an error where it arose, never what it says."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        line = {"time": moment, "level": record.levelname.lower(), "message": record.getMessage()}
        if record.exc_info and record.exc_info[2] is not None:
            end = record.exc_info[2]
            while end.tb_next is not None:
                end = end.tb_next
            line["error"] = f"{type(record.exc_info[1]).__name__} in {end.tb_frame.f_code.co_name}"
        return json.dumps({**line, **getattr(record, "facts", {})})


def create_app(
    database: str,
    anchor: str | Path | Sequence[str | Path] = (),
    *,
    slot: float = 0.25,
    limits: Limits | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
) -> FastAPI:
    """Return the application that serves all studies of a database.

    Parameters
    ----------
    database
        ``sqlite:///FILE`` for one server, ``postgresql://…`` for several.
    anchor
        The anchor file of a study that was made with one; several for several.
    slot
        Replies to questions leave at multiples of so many seconds.
    limits
        What one token may do.
    clock, sleep
        For tests.

    Raises
    ------
    InvalidArgument
        If there is no study in the database, or no anchor where one is said to be.
    """
    from quiltdp.server.api import router
    from quiltdp.server.pages import add_pages

    anchors = [anchor] if isinstance(anchor, (str, Path)) else list(anchor)
    service = Service(database, anchors, slot, limits or Limits(), clock, sleep)
    app = FastAPI(
        title="quiltdp", version=__version__, openapi_url=None, docs_url=None, redoc_url=None,
        redirect_slashes=False,
    )  # fmt: skip
    app.state.service, app.state.engine = service, service.engine
    app.add_middleware(_Gate, service=service)
    add_problems(app)
    app.include_router(router)
    add_pages(app)

    @app.get("/live", include_in_schema=False)
    def live() -> Response:
        return PlainTextResponse("live\n")

    @app.get("/ready", include_in_schema=False)
    def ready() -> Response:
        try:
            with service.engine.connect() as connection:
                connection.execute(select(db.studies.c.id).limit(1))
        except SQLAlchemyError:
            return PlainTextResponse("the database does not answer\n", 503)
        return PlainTextResponse("ready\n")

    return app
