"""What went wrong, as a problem document (RFC 9457): one line, and nothing that depends on the holdout."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from quiltdp.errors import BudgetSpent, InvalidArgument, KeyReused, LedgerCorrupt, NotTold, QuiltdpError
from quiltdp.printable import printable
from quiltdp.server.questions import NotScored
from quiltdp.server.store import CapReached, StudyClosed

__all__ = ["MEDIA_TYPE", "Problem", "add_problems", "problem_of", "response_to"]

MEDIA_TYPE = "application/problem+json"
_URN = "urn:quiltdp:problem:"

# Error -> (status, name of the problem, its title, what is told instead of the error's own words).
_KINDS: dict[type[Exception], tuple[int, str, str, str]] = {
    CapReached: (403, "cap-reached", "Your answers are used up", ""),
    BudgetSpent: (403, "budget-spent", "The answers of the study are used up", ""),
    StudyClosed: (403, "study-closed", "The study is closed", ""),
    NotScored: (403, "predictions-refused", "Predictions are not scored here", ""),
    KeyReused: (409, "key-reused", "Not the same question", "this Idempotency-Key names another question"),
    NotTold: (
        409, "charged-not-told", "Charged, not told",
        "something interrupted this question: it stays charged, and its answer is never told",
    ),
    LedgerCorrupt: (
        503, "account-refused", "The account does not verify",
        "this study answers nothing until its account verifies; tell its owner",
    ),
    InvalidArgument: (400, "invalid", "The request makes no sense", ""),
}  # fmt: skip
_NO_ANSWER = (
    "no answer could be given now: try again, a question under the same Idempotency-Key; then what was"
    " charged is answered, or said to be charged, and it is never charged twice"
)
_TITLES = {400: "Bad request", 401: "Not signed in", 404: "Not found", 405: "Method not allowed"}


class Problem(HTTPException):
    """A problem that is found by the server itself."""

    def __init__(
        self, status: int, kind: str, title: str, detail: str, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(status, detail, headers)
        self.kind, self.title = kind, title


def problem_of(error: Exception) -> Problem:
    """Return the problem of an error.

    Whatever is not the caller's mistake, nor a limit that everybody may know, has one text: also what broke
    because of the holdout, if anything ever does.
    """
    if isinstance(error, Problem):
        return error
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        place = ".".join(str(step) for step in first["loc"])
        return Problem(400, "invalid", "The request makes no sense", f"{place}: {first['msg']}")
    if isinstance(error, HTTPException):
        title = _TITLES.get(error.status_code, "The request was refused")
        headers = None if error.headers is None else dict(error.headers)
        return Problem(error.status_code, title.lower().replace(" ", "-"), title, error.detail, headers)
    known = next((_KINDS[kind] for kind in type(error).__mro__ if kind in _KINDS), None)
    if known is not None:
        return Problem(*known[:3], known[3] or str(error))
    return Problem(503, "no-answer", "No answer now", _NO_ANSWER, {"Retry-After": "1"})


def response_to(problem: Problem) -> JSONResponse:
    """Return the reply that tells a problem."""
    detail = printable(" ".join(problem.detail.split()))
    status = problem.status_code
    document = {"type": _URN + problem.kind, "title": problem.title, "status": status, "detail": detail}
    return JSONResponse(document, status, problem.headers, MEDIA_TYPE)


def add_problems(app: FastAPI) -> None:
    """Turn every error of an application into a problem document."""

    def tell(_: Request, error: Exception) -> Any:
        return response_to(problem_of(error))

    for kind in (HTTPException, RequestValidationError, QuiltdpError, SQLAlchemyError, Exception):
        app.add_exception_handler(kind, tell)
