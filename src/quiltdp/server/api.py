"""The routes of the API, who may use them, and what goes in and out."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag
from starlette.concurrency import run_in_threadpool

from quiltdp import __version__
from quiltdp.accountant.ledger.requests import MAX_TEXT
from quiltdp.errors import InvalidArgument, LedgerCorrupt, Refused
from quiltdp.mechanisms.expressions import MAX_CHARACTERS
from quiltdp.server import studies
from quiltdp.server.asking import Study
from quiltdp.server.problems import MEDIA_TYPE, Problem
from quiltdp.server.questions import ExpressionQuestion, PredictionQuestion, Question
from quiltdp.server.studies import Member

__all__ = ["ROLES", "router"]

_ALL = ("owner", "analyst", "auditor")
ROLES = {
    "study": _ALL,
    "dry_run": ("owner", "analyst"),
    "ask": ("owner", "analyst"),
    "answers": _ALL,
    "log": ("owner", "auditor"),
    "export": ("owner", "auditor"),
    "verify": ("owner", "auditor"),
    "members": ("owner", "auditor"),
    "add": ("owner",),
    "revoke": ("owner",),
    "close": ("owner",),
    "openapi": _ALL,
    "metrics": ("owner", "auditor"),
}
"""Who may use which route; an analyst gets no answers but their own."""


class _Signed(APIRoute):
    """A route for members: token, number of requests and role are looked at before the body is read."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle, roles = super().get_route_handler(), ROLES[self.name]

        async def signed(request: Request) -> Response:
            service = request.app.state.service
            member = request.state.member = await run_in_threadpool(service.member, request)
            service.admit(member)
            if member.role not in roles:
                detail = f"this is for members of role {' or '.join(roles)}, not {member.role}"
                raise Problem(403, "not-allowed", "Not allowed", detail)
            request.state.asked = self.name == "ask"
            return await handle(request)

        return signed


def _problem(text: str) -> dict[str, Any]:
    schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {"description": text, "content": {MEDIA_TYPE: schema}}


_PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: _problem("The request makes no sense; nothing is charged."),
    401: _problem("No valid token."),
    403: _problem("The member may not do this; or no answer is left; or the study is closed."),
    413: _problem("The request is too large."),
    429: _problem("Too many requests; Retry-After says when to come again."),
    503: _problem("No answer now: try again, a question under the same Idempotency-Key."),
    "default": _problem("Any other problem."),
}
router = APIRouter(
    route_class=_Signed, responses=_PROBLEMS, dependencies=[Depends(HTTPBearer(auto_error=False))]
)
_API = "/api/v1"


def _mine(request: Request) -> Study:
    """Return the study of whoever asks."""
    study: Study = request.app.state.service.study(request.state.member.study)
    return study


def _caller(request: Request) -> Member:
    member: Member = request.state.member
    return member


_Study = Annotated[Study, Depends(_mine)]
_Caller = Annotated[Member, Depends(_caller)]
_Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        pattern="^[!-~]+$",
        max_length=MAX_TEXT,
        description="Names the question: asked again under its key, it is answered again and not charged.",
        examples=["run-17"],
    ),
]
_Number = Annotated[float, Field(ge=-1e300, le=1e300)]
_Line = Annotated[str, Field(pattern=r"^[^\x00]*$", max_length=MAX_TEXT)]


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class ExpressionBody(_Body):
    """The mean of an expression over the rows of the holdout."""

    kind: Literal["expression"] = "expression"
    expression: Annotated[str, Field(min_length=1, max_length=MAX_CHARACTERS, examples=["guess == label"])]
    range: Annotated[list[_Number], Field(min_length=2, max_length=2)] = Field(
        [0.0, 1.0], description="Where its values lie, low and high: values outside are clipped."
    )
    otherwise: _Number | None = Field(
        None, description="What a row counts where the expression has no value (a missing cell, log 0)."
    )
    label: _Line | None = Field(None, description="A note for the log.")

    def question(self) -> Question:
        """Return the question that is asked."""
        low, high = self.range
        return ExpressionQuestion(self.expression, low, high, self.otherwise)


class Parts(_Body):
    """A prediction for every row of both parts, by the row's id: a class label, or a number in [0, 1]."""

    train: dict[_Line, float | str | bool]
    holdout: dict[_Line, float | str | bool]


class PredictionBody(_Body):
    """How good predictions are: their accuracy or their mean loss against the target of the study."""

    kind: Literal["predictions"]
    predictions: Parts
    loss: Literal["accuracy", "absolute", "squared"] = "accuracy"
    label: _Line | None = Field(None, description="A note for the log.")

    def question(self) -> Question:
        """Return the question that is asked."""
        return PredictionQuestion(self.predictions.train, self.predictions.holdout, self.loss)


def _kind(body: Any) -> Any:
    """Return which question a body holds: an expression, unless it says something else."""
    return body.get("kind", "expression") if isinstance(body, dict) else getattr(body, "kind", None)


_Asked = Annotated[
    Annotated[ExpressionBody, Tag("expression")] | Annotated[PredictionBody, Tag("predictions")],
    Discriminator(_kind),
]


class NewMember(_Body):
    """Somebody who is to get a token."""

    name: Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00]*$", examples=["Ann"])]
    role: Literal["owner", "analyst", "auditor"] = "analyst"
    days: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, description="For how many days the token is taken; without it until it is revoked."
    )
    cap: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, description="How many answers of the holdout an analyst may use up, inside the account of all."
    )


class MemberReply(BaseModel):
    """A member; never a token."""

    id: str
    name: str
    role: str
    created: str
    expires: str | None
    revoked: str | None
    cap: int | None
    active: bool


class AddedMember(MemberReply):
    """A new member; the token is shown this once."""

    token: str


class Promise(BaseModel):
    """What is promised, and against whom."""

    epsilon: float
    delta: float | None
    dp_epsilon: float | dict[str, float] | None
    sigma: float
    adversary: str = Field(description="Who looks on: informed, prior, or one who may know some.")
    protected: str
    method: str
    fingerprint: str = Field(description="Of the model of the rows that all this was computed from.")
    checked: str
    threshold: float
    failure: float = Field(description="How likely the error bounds may fail, all answers together.")
    queries: int | None = Field(description="How many questions were planned; none: any number.")


class Odometer(BaseModel):
    """What is spent so far."""

    share: str = Field(description="Of all privacy that may be spent, as an exact fraction.")
    spent_dp_epsilon: float | dict[str, float] | None
    remaining_dp_epsilon: float | dict[str, float] | None
    answers: int
    queries: int
    asked: int
    query_limit: int | None
    failed: int
    lost: int


class StudyReply(BaseModel):
    """A study: its data in numbers, what is promised, what is left."""

    id: str
    name: str
    created: str
    closed: str | None
    rows: int
    train_rows: int
    columns: list[str]
    row_id: str | None
    target: str | None
    predictions: str | None = Field(description="Why predictions may be scored; none: they are refused.")
    assumptions: list[str]
    promise: Promise
    budget: int
    answers_left: int
    left: str = Field(examples=["7 of 20 left"])
    odometer: Odometer
    me: MemberReply


class DryRun(BaseModel):
    """What asking would cost and promise, and the answer on the training data."""

    training_value: float
    cost: str
    error_bound_from_train: float | None
    error_bound_from_holdout: float | None
    answers_left: int
    budget: int


class ReceiptReply(BaseModel):
    """An answer, what it promises, and where it stands in the account."""

    value: float
    source: Literal["train", "holdout"]
    error_bound: float | None
    population_bound: float | None
    confidence: float
    answers_left: int
    left: str
    budget: int
    entry: int
    digest: str
    repeated: bool


class Told(BaseModel):
    """A question that was asked, and what was told."""

    member: str
    who: str
    reserved: int
    time: str
    source: str
    entry: int | None
    value: float | None = None
    label: str | None = None
    digest: str | None = None


class Log(BaseModel):
    """Entries of the account."""

    entries: list[dict[str, Any]]


class Export(Log):
    """Everything of the account that may be shown; ``quiltdp ledger verify`` checks it anywhere."""

    genesis: dict[str, Any]
    head: dict[str, Any]


class Verified(BaseModel):
    """Whether the account is whole."""

    whole: bool
    entries: int | None = None
    digest: str | None = None
    reason: str | None = None


class ProblemDocument(BaseModel):
    """A problem (RFC 9457)."""

    type: str = Field(examples=["urn:quiltdp:problem:budget-spent"])
    title: str
    status: int
    detail: str


# -- asking --------------------------------------------------------------------------------


@router.get(f"{_API}/study")
def study(mine: _Study, caller: _Caller) -> StudyReply:
    """Say what is promised, against whom, under which assumptions, and how much is left."""
    facts, terms, settings = mine.facts, mine.ledger.terms, mine.ledger.settings
    reading = mine.ledger.odometer()
    promise = {
        **vars(terms),
        "checked": mine.ledger.genesis["checked"],
        "threshold": float.fromhex(settings["threshold"]),
        "failure": float.fromhex(settings["failure"]),
        "queries": settings["queries"],
    }
    left = reading.remaining or 0
    return StudyReply.model_validate(
        {
            **facts.facts,
            **{name: getattr(facts, name) for name in ("id", "name", "created", "closed")},
            "promise": promise,
            "budget": mine.budget,
            "answers_left": left,
            "left": f"{left} of {mine.budget} left",
            "odometer": {**vars(reading), "share": str(reading.share)},
            "me": _shown(caller),
        }
    )


@router.post(f"{_API}/dry-run")
def dry_run(mine: _Study, body: _Asked) -> DryRun:
    """Answer a question on the training data, and say what asking it would promise; it costs nothing."""
    return DryRun.model_validate(mine.dry_run(body.question()))


@router.post(
    f"{_API}/questions",
    response_model=ReceiptReply,
    responses={
        403: _problem("By type: not-allowed, budget-spent, cap-reached, study-closed, predictions-refused."),
        409: _problem("key-reused: the key names another question; charged-not-told: it was interrupted."),
    },
)
async def ask(request: Request, caller: _Caller, body: _Asked, key: _Key) -> Response:
    """Ask the holdout a question, once for its Idempotency-Key.

    At most one answer is charged: none, if training and holdout agree within the noisy threshold.
    """
    service = request.app.state.service

    def answer() -> Response:
        receipt = service.study(caller.study).ask(caller, body.question(), key, body.label)
        return JSONResponse(receipt.to_dict())

    replied: Response = await service.reply(caller, answer)
    return replied


@router.get(f"{_API}/answers")
def answers(mine: _Study, caller: _Caller) -> list[Told]:
    """List what was asked and told: an analyst's own, everybody's for owner and auditor."""
    lines = mine.answers_of(caller if caller.role == "analyst" else None)
    return [Told.model_validate(line) for line in lines]


# -- audit ---------------------------------------------------------------------------------


@router.get(f"{_API}/log")
def log(mine: _Study) -> Log:
    """List the entries of the account."""
    return Log(entries=[entry.public() for entry in mine.ledger.entries()])


@router.get(f"{_API}/export")
def export(mine: _Study) -> Export:
    """Return everything of the account that may be shown; anybody can verify it without the server."""
    return Export.model_validate(mine.ledger.export())


@router.post(f"{_API}/verify")
def verify(mine: _Study) -> Verified:
    """Check every hash of the account, and the anchor, from the beginning."""
    try:
        head = mine.ledger.verify()
    except LedgerCorrupt as error:
        return Verified(whole=False, reason=str(error))
    return Verified(whole=True, entries=head.seq, digest=head.digest)


# -- members -------------------------------------------------------------------------------


def _shown(member: Member) -> dict[str, Any]:
    return {**vars(member), "active": member.active}


@router.get(f"{_API}/members")
def members(request: Request, caller: _Caller) -> list[MemberReply]:
    """List the members, in the order they came."""
    with request.app.state.engine.connect() as connection:
        found = studies.members_of(connection, caller.study)
    return [MemberReply.model_validate(_shown(member)) for member in found]


@router.post(f"{_API}/members", status_code=201)
def add(request: Request, caller: _Caller, body: NewMember) -> AddedMember:
    """Add a member; the token is stored hashed, and shown in this reply only."""
    with request.app.state.engine.begin() as connection:
        made, token = studies.add_member(connection, caller.study, **body.model_dump())
    return AddedMember.model_validate({**_shown(made), "token": token})


@router.post(
    f"{_API}/members/{{member}}/revoke",
    responses={404: _problem("No such active member."), 409: _problem("The last owner stays.")},
)
def revoke(request: Request, caller: _Caller, member: str) -> list[MemberReply]:
    """Take a member's token no more; the last owner stays."""
    try:
        with request.app.state.engine.begin() as connection:
            studies.revoke(connection, caller.study, member)
    except InvalidArgument as error:
        raise Problem(404, "not-found", "Not found", str(error)) from None
    except Refused as error:
        raise Problem(409, "last-owner", "The last owner stays", str(error)) from None
    return members(request, caller)


@router.post(f"{_API}/close")
def close(request: Request, caller: _Caller, mine: _Study) -> StudyReply:
    """Answer nothing more; what was answered stays, and can be verified."""
    with request.app.state.engine.begin() as connection:
        studies.close_study(connection, caller.study)
    return study(mine, caller)


# -- about the service ---------------------------------------------------------------------


@router.get(f"{_API}/openapi.json", include_in_schema=False)
def openapi() -> Response:
    """Return this description."""
    text = "A holdout that a team can ask and cannot read or wear out. Every route needs a token."
    document = get_openapi(title="quiltdp", version=__version__, description=text, routes=router.routes)
    schemas = document["components"]["schemas"]
    schemas["Problem"] = ProblemDocument.model_json_schema()
    return Response(json.dumps(document), media_type="application/json")


@router.get("/metrics", include_in_schema=False)
def metrics(request: Request) -> Response:
    """Return counters, for Prometheus with a token of an auditor."""
    return PlainTextResponse(request.app.state.service.metrics(), media_type="text/plain; version=0.0.4")
