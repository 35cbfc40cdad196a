"""The pages of a study: what is promised and left, asking, members, audit.

Everything works without a script; htmx puts answers in place where there is one.  A cookie holds a random
session, every form its token, and nothing is loaded from elsewhere.
"""

from __future__ import annotations

import csv
import io
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hmac import compare_digest
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from sqlalchemy import insert, select
from starlette.concurrency import run_in_threadpool

from quiltdp.errors import InvalidArgument, QuiltdpError
from quiltdp.numbers import format_up
from quiltdp.server import database as db
from quiltdp.server.asking import Study
from quiltdp.server.overview import answers_plot, overview
from quiltdp.server.problems import problem_of
from quiltdp.server.questions import ExpressionQuestion
from quiltdp.server.studies import (
    Member,
    add_member,
    close_study,
    digest_of,
    find_member,
    member_by_id,
    members_of,
    revoke,
)

__all__ = ["add_pages"]

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self';"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
COOKIE = "quiltdp_session"
_HOURS = 12
_MAY = {"/ask": ("owner", "analyst"), "/members": ("owner",), "/audit": ("owner", "auditor")}
_PAGES = (("/", "Study"), ("/ask", "Ask"), ("/members", "Members"), ("/audit", "Audit"))

_templates = Environment(
    loader=PackageLoader("quiltdp.server"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)
router = APIRouter(include_in_schema=False)


class _SignInNeeded(Exception):
    """Nobody is signed in."""


class _NotAllowed(Exception):
    """Somebody else may do this, or this form is of another session."""


@dataclass(frozen=True)
class _Visit:
    """Who is signed in, and what a form of this session must carry."""

    member: Member
    csrf: str
    study: Study

    def require(self, path: str) -> None:
        if self.member.role not in _MAY.get(path, (self.member.role,)):
            raise _NotAllowed(f"a member of role {self.member.role} may not do this")

    def page(self, request: Request, name: str, **values: Any) -> HTMLResponse:
        """Return a page of the study."""
        role = self.member.role
        shown = [p for p in _PAGES if role in _MAY.get(p[0], (role,))]
        field = Markup('<input type="hidden" name="csrf" value="{}">').format(self.csrf)
        frame: dict[str, Any] = {
            "member": self.member,
            "study": self.study.facts,
            "pages": shown,
            "here": request.url.path,
        }
        return _html(name, **frame, csrf_field=field, **values)


def add_pages(app: FastAPI) -> None:
    """Add the pages to an application."""
    app.mount("/static", StaticFiles(packages=[("quiltdp.server", "static")]))
    app.include_router(router)
    app.exception_handler(_SignInNeeded)(lambda *_: RedirectResponse("/sign-in", 303, HEADERS))
    app.exception_handler(_NotAllowed)(lambda _, error: _html("refused.html", 403, problem=str(error)))


def _html(name: str, status: int = 200, **values: Any) -> HTMLResponse:
    text = _templates.get_template(name).render({"member": None, "study": None, **values})
    return HTMLResponse(text, status, HEADERS)


def _fragment(name: str, **values: Any) -> Markup:
    return Markup(_templates.get_template(name).render(values))


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form; what is no form is one without fields."""
    body = (await request.body()).decode("utf-8", "replace")
    return {name: values[-1].strip() for name, values in parse_qs(body).items()}


def _visit(request: Request) -> _Visit:
    cookie = request.cookies.get(COOKIE, "")
    found = select(db.sessions).where(db.sessions.c.id == digest_of(cookie))
    with request.app.state.engine.connect() as connection:
        session = connection.execute(found).mappings().first()
        member = None if session is None else member_by_id(connection, session["member"])
    if session is None or member is None or not member.active or session["expires"] < _time():
        raise _SignInNeeded
    service = request.app.state.service
    service.admit(member)
    request.state.member = member
    return _Visit(member, session["csrf"], service.study(member.study))


async def _posted(request: Request, path: str) -> tuple[_Visit, dict[str, str]]:
    """Return who sends a form of theirs, and its fields."""
    visit, form = await run_in_threadpool(_visit, request), await _form(request)
    if not compare_digest(form.get("csrf", "").encode(), visit.csrf.encode()):
        raise _NotAllowed("this form is not of your session: load the page again")
    visit.require(path)
    return visit, form


def _time(hours: int = 0) -> str:
    return (datetime.now(UTC) + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")


# -- signing in ----------------------------------------------------------------------------


@router.get("/sign-in")
def sign_in_page() -> Response:
    return _html("sign_in.html", problem="")


@router.post("/sign-in")
async def sign_in(request: Request) -> Response:
    token = (await _form(request)).get("token", "")
    cookie = await run_in_threadpool(_begin_session, request.app.state.engine, token)
    if cookie is None:
        return _html(
            "sign_in.html", 403, problem="This token is not taken: it is mistyped, expired or revoked."
        )
    answer = RedirectResponse("/", 303, HEADERS)
    options: dict[str, Any] = {"httponly": True, "samesite": "strict", "max_age": _HOURS * 3600}
    answer.set_cookie(COOKIE, cookie, secure=request.url.scheme == "https", **options)
    return answer


def _begin_session(engine: Any, token: str) -> str | None:
    with engine.begin() as connection:
        connection.execute(db.sessions.delete().where(db.sessions.c.expires < _time()))
        member = find_member(connection, token)
        if member is None:
            return None
        cookie = secrets.token_urlsafe(32)
        row = {"id": digest_of(cookie), "member": member.id, "csrf": secrets.token_hex(32)}
        connection.execute(insert(db.sessions), {**row, "expires": _time(_HOURS)})
        return cookie


@router.post("/sign-out")
async def sign_out(request: Request) -> Response:
    visit, _ = await _posted(request, "/")
    with request.app.state.engine.begin() as connection:
        mine = db.sessions.c.id == digest_of(request.cookies.get(COOKIE, ""))
        connection.execute(db.sessions.delete().where(mine & (db.sessions.c.member == visit.member.id)))
    answer = RedirectResponse("/sign-in", 303, HEADERS)
    answer.delete_cookie(COOKIE)
    return answer


# -- the study -----------------------------------------------------------------------------


def _log(visit: _Visit, search: str) -> list[dict[str, Any]]:
    """Return the lines that this member may see and that hold a text, the newest first."""
    lines = visit.study.answers_of(visit.member if visit.member.role == "analyst" else None)
    words = search.casefold()
    shown = [{"label": None, "value": None, **line} for line in reversed(lines)]
    return [line for line in shown if words in " ".join(map(str, line.values())).casefold()]


@router.get("/")
def study_page(request: Request, q: str = "") -> Response:
    visit = _visit(request)
    lines = _log(visit, q)
    plot = Markup(answers_plot(visit.study, lines))
    seen = {"log": lines[:500], "q": q, "plot": plot, "sees_all": visit.member.role != "analyst"}
    return visit.page(request, "study.html", overview=overview(visit.study), **seen)


@router.get("/log.csv")
def log_csv(request: Request) -> Response:
    columns = ("entry", "time", "who", "label", "value", "source", "digest")
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(columns)
    for line in reversed(_log(_visit(request), "")):
        writer.writerow([_cell(line.get(name)) for name in columns])
    named = {"Content-Disposition": "attachment; filename=log.csv"}
    return Response(out.getvalue(), media_type="text/csv; charset=utf-8", headers={**HEADERS, **named})


def _cell(value: Any) -> Any:
    """Return a cell that no spreadsheet takes for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t\r" else value


# -- asking --------------------------------------------------------------------------------

_FIELDS = {"text": "", "low": "0", "high": "1", "otherwise": ""}


def _question(form: Mapping[str, str]) -> ExpressionQuestion:
    numbers: dict[str, float | None] = {}
    for name in ("low", "high", "otherwise"):
        try:
            numbers[name] = float(form[name]) if form.get(name) else None
        except ValueError:
            raise InvalidArgument(f"{name!r} must be a number, not {form[name]!r}") from None
    low, high = (1.0 * k if numbers[n] is None else numbers[n] for n, k in (("low", 0), ("high", 1)))
    return ExpressionQuestion(form.get("text", ""), low, high, numbers["otherwise"])  # type: ignore[arg-type]


def _shown(request: Request, visit: _Visit, form: Mapping[str, str], result: Markup) -> Response:
    """Return a fragment to htmx, else the whole page around it."""
    if "hx-request" in request.headers:
        return HTMLResponse(result, headers=HEADERS)
    fields = {name: form.get(name, usual) for name, usual in _FIELDS.items()}
    values = {"overview": overview(visit.study), "key": secrets.token_hex(16), "result": result}
    return visit.page(request, "ask.html", **fields, **values)


@router.get("/ask")
def ask_page(request: Request) -> Response:
    visit = _visit(request)
    visit.require("/ask")
    return _shown(request, visit, _FIELDS, Markup(""))


@router.post("/dry-run")
async def dry_run(request: Request) -> Response:
    visit, form = await _posted(request, "/ask")

    def tried() -> Markup:
        try:
            dry = visit.study.dry_run(_question(form))
        except QuiltdpError as error:
            return _fragment("problem.html", problem=str(error))
        bounds = {f"from_{s}": format_up(dry[f"error_bound_from_{s}"], 3) for s in ("train", "holdout")}
        return _fragment("dry_run.html", dry={**dry, **bounds})

    return _shown(request, visit, form, await run_in_threadpool(tried))


@router.post("/ask")
async def ask(request: Request) -> Response:
    visit, form = await _posted(request, "/ask")
    key = form.get("key", "")

    def asked() -> Markup:
        try:
            r = visit.study.ask(visit.member, _question(form), key)
        except Exception as error:  # told as by the API: of most failures nothing
            return _fragment("problem.html", problem=problem_of(error).detail)
        population = None if r.population_bound is None else format_up(r.population_bound, 3)
        return _fragment("receipt.html", r=r, bound=format_up(r.error_bound, 3), population=population)

    request.state.asked = True  # what comes of it is not logged
    service = request.app.state.service
    return await service.reply(visit.member, lambda: _shown(request, visit, form, asked()))  # type: ignore[no-any-return]


# -- members -------------------------------------------------------------------------------


def _members(request: Request, visit: _Visit, **shown: str) -> Response:
    with request.app.state.engine.connect() as connection:
        listed: Sequence[Member] = members_of(connection, visit.study.id)
    return visit.page(
        request, "members.html", members=listed, **{"token": "", "token_of": "", "problem": "", **shown}
    )


@router.get("/members")
def members_page(request: Request) -> Response:
    visit = _visit(request)
    visit.require("/members")
    return _members(request, visit)


@router.post("/members")
async def new_member(request: Request) -> Response:
    visit, form = await _posted(request, "/members")
    try:
        limits = {n: int(form[n]) if form.get(n) else None for n in ("days", "cap")}
        with request.app.state.engine.begin() as connection:
            role, name = form.get("role", ""), form.get("name", "")
            made, token = add_member(connection, visit.study.id, name, role, **limits)
    except ValueError as error:  # a mistyped number too
        return _members(request, visit, problem=str(error))
    return _members(request, visit, token=token, token_of=made.name)


@router.post("/members/{member}/revoke")
async def end_member(request: Request, member: str) -> Response:
    visit, _ = await _posted(request, "/members")
    try:
        with request.app.state.engine.begin() as connection:
            revoke(connection, visit.study.id, member)
    except QuiltdpError as error:
        return _members(request, visit, problem=str(error))
    return RedirectResponse("/members", 303, HEADERS)


@router.post("/close")
async def close(request: Request) -> Response:
    visit, _ = await _posted(request, "/members")
    with request.app.state.engine.begin() as connection:
        close_study(connection, visit.study.id)
    return RedirectResponse("/", 303, HEADERS)


# -- audit ---------------------------------------------------------------------------------


def _audit(request: Request, visit: _Visit, result: Markup) -> Response:
    if "hx-request" in request.headers:
        return HTMLResponse(result, headers=HEADERS)
    entries = visit.study.ledger.entries()[::-1]
    return visit.page(request, "audit.html", entries=entries[:500], result=result)


@router.get("/audit")
def audit_page(request: Request) -> Response:
    visit = _visit(request)
    visit.require("/audit")
    return _audit(request, visit, Markup(""))


@router.post("/verify")
async def verify(request: Request) -> Response:
    visit, _ = await _posted(request, "/audit")

    def checked() -> Response:
        try:
            head = visit.study.ledger.verify()
            text = f"All {head.seq} entries fit: the chain of hashes is whole up to {head.digest[:16]}…"
            result = Markup('<p role="status">{}</p>').format(text)
        except QuiltdpError as error:
            result = _fragment("problem.html", problem=str(error))
        return _audit(request, visit, result)

    return await run_in_threadpool(checked)


@router.get("/export.json")
def export(request: Request) -> Response:
    visit = _visit(request)
    visit.require("/audit")
    named = {"Content-Disposition": "attachment; filename=export.json"}
    text = json.dumps(visit.study.ledger.export())
    return Response(text, media_type="application/json", headers={**HEADERS, **named})
