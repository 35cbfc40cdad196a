"""Ask a holdout that somebody serves: the same questions, the same answers, and no data at hand.

Every question carries a key, and what the network loses is asked again under the same key: the server
charges it once.  Only the standard library talks to the server.
"""

from __future__ import annotations

import http.client
import json
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from quiltdp.errors import BudgetSpent, InvalidArgument, KeyReused, LedgerCorrupt, NotTold, Refused, option
from quiltdp.mechanisms.holdout import Answer

__all__ = ["RemoteAnswer", "RemoteHoldout", "connect", "verify_receipt"]

_URN = "urn:quiltdp:problem:"
_ERRORS: dict[str, type[Refused]] = {
    "budget-spent": BudgetSpent,
    "cap-reached": BudgetSpent,
    "key-reused": KeyReused,
    "charged-not-told": NotTold,
    "account-refused": LedgerCorrupt,
}
_LATER = (429, 502, 503, 504)
_LOCAL = ("localhost", "127.0.0.1", "::1")
_LARGEST = 64 << 20  # bytes of a reply


@dataclass(frozen=True)
class RemoteAnswer(Answer):
    """An answer and its receipt: where it stands in the account of the server.

    ``digest`` is that of entry number ``entry``; :func:`verify_receipt` finds it in an export.  The entry
    holds the answer on the scale of [0, 1]: ``low`` + ``width`` times that is the value.
    """

    entry: int = 0
    digest: str = ""
    low: float = 0.0
    width: float = 1.0


def connect(url: str, token: str, *, insecure: bool = False) -> RemoteHoldout:
    """Return a holdout that is served at an address.

    Parameters
    ----------
    url
        ``https://…``; plain http only to this machine.
    token
        Of a member of the study; who has it asks in their name.
    insecure
        Allow plain http to another machine: whoever is in between can read the token.

    Raises
    ------
    InvalidArgument
        For an address that would show the token.
    """
    return RemoteHoldout(url, token, insecure=insecure)


class _NoRedirect(HTTPRedirectHandler):
    """A redirect would take the token elsewhere."""

    def redirect_request(self, *_: Any) -> None:
        return None


class RemoteHoldout:
    """A reusable holdout behind the service; made by :func:`connect`.

    It asks like :class:`~quiltdp.ReusableHoldout`, expressions and predictions; ``timeout`` is for one reply,
    ``tries`` for how often a question that the network lost is sent again.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        insecure: bool = False,
        timeout: float = 120.0,
        tries: int = 6,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        where = urlsplit(url)
        if where.scheme not in ("http", "https") or not where.hostname:
            raise InvalidArgument(f"{option('url')}: {url!r} is no address; give https://…")
        if where.scheme == "http" and where.hostname not in _LOCAL and not insecure:
            raise InvalidArgument(
                f"{option('url')}: {url!r} would show the token to everybody in between; use https,"
                f" or allow it with {option('insecure', True)}"
            )
        if not token.isascii() or not token.isprintable() or not token.strip():
            raise InvalidArgument(f"{option('token')}: this is no token")
        self.url, self._token = url.rstrip("/"), token.strip()
        self._timeout, self._tries, self._sleep = timeout, tries, sleep
        self._opener = build_opener(_NoRedirect)

    # -- asking ----------------------------------------------------------------------------

    def ask(
        self,
        expression: str,
        *,
        key: str | None = None,
        range: tuple[float, float] | None = None,  # noqa: A002
        otherwise: float | None = None,
        label: str | None = None,
    ) -> RemoteAnswer:
        """Answer one question: the mean of an expression over the rows of the holdout.

        Parameters
        ----------
        expression
            Over the columns of the study, as :class:`~quiltdp.ReusableHoldout` takes it.
        key
            An idempotency key; without one the question is a new one, whatever was asked before.
        range
            Where the values of the expression lie, if not in [0, 1].
        otherwise
            What a row counts where the expression has no value.
        label
            A note for the log.

        Raises
        ------
        BudgetSpent
            If no answer is left, of the study or of yours.
        NotTold
            If the question was charged and something interrupted it.
        Refused
            If the study is closed, the token is not taken, or no server answers.
        """
        body = {"kind": "expression", "expression": expression, "otherwise": otherwise, "label": label}
        low, high = (0.0, 1.0) if range is None else map(float, range)
        return self._asked({**body, "range": [low, high]}, key, low, high - low)

    def ask_many(
        self, expressions: Iterable[str], *, keys: Sequence[str | None] | None = None, **options: Any
    ) -> list[RemoteAnswer]:
        """Answer questions one after the other; ``options`` are those of :meth:`ask`.

        What was answered before one is refused stays in the account: ask again with the same ``keys``.
        """
        texts = list(expressions)
        names = [None] * len(texts) if keys is None else list(keys)
        if len(names) != len(texts):
            raise InvalidArgument(f"give one entry of {option('keys')} per question")
        return [self.ask(text, key=name, **options) for text, name in zip(texts, names, strict=True)]

    def score(
        self,
        predictions: Mapping[str, Mapping[Any, Any]],
        *,
        loss: str = "accuracy",
        key: str | None = None,
        label: str | None = None,
    ) -> RemoteAnswer:
        """Answer how good predictions are: ``{"train": {row: value}, "holdout": {row: value}}``.

        Parameters
        ----------
        predictions
            A class label or a number in [0, 1] for every row of both parts, by the rows' names.
        loss
            ``"accuracy"``, ``"absolute"`` or ``"squared"``.
        """
        parts = {part: {str(row): _plain(v) for row, v in rows.items()} for part, rows in predictions.items()}
        body = {"kind": "predictions", "predictions": parts, "loss": loss, "label": label}
        return self._asked(body, key, 0.0, 1.0)

    def dry_run(self, expression: str, **options: Any) -> dict[str, Any]:
        """Return the answer on the training data and what asking would promise; it costs nothing."""
        found: dict[str, Any] = self._call("dry-run", {"expression": expression, **options})
        return found

    def _asked(self, body: dict[str, Any], key: str | None, low: float, width: float) -> RemoteAnswer:
        name = secrets.token_hex(16) if key is None else key
        if not name.isascii() or not name.isprintable() or " " in name or not name:
            raise InvalidArgument(f"{option('key')} must be letters, digits and signs of ASCII, not {name!r}")
        r = self._call("questions", {n: v for n, v in body.items() if v is not None}, key=name)
        bound = float("inf") if r["error_bound"] is None else r["error_bound"]
        return RemoteAnswer(
            r["value"],
            r["source"],
            r["answers_left"],
            bound,
            r["repeated"],
            r["population_bound"],
            1.0 - r["confidence"],
            r["entry"],
            r["digest"],
            low,
            width,
        )

    # -- reading ---------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Return what is promised, against whom, what is spent and what is left."""
        found: dict[str, Any] = self._call("study")
        return found

    @property
    def remaining(self) -> int:
        """How many answers may still come from the holdout."""
        return int(self.status()["answers_left"])

    def answers(self) -> list[dict[str, Any]]:
        """Return what was asked and told: an analyst's own, everybody's for owner and auditor."""
        found: list[dict[str, Any]] = self._call("answers")
        return found

    def export(self) -> dict[str, Any]:
        """Return the account for :func:`verify_receipt`; for owner and auditor."""
        found: dict[str, Any] = self._call("export")
        return found

    def __repr__(self) -> str:
        """Say where it is; never the token."""
        return f"<RemoteHoldout at {self.url}>"

    # -- the network -----------------------------------------------------------------------

    def _call(self, route: str, body: Mapping[str, Any] | None = None, key: str | None = None) -> Any:
        """Send a request until it is answered; a question always under its one key."""
        try:
            data = None if body is None else json.dumps(body, allow_nan=False).encode()
        except ValueError:
            raise InvalidArgument("a number of the question is not finite") from None
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        request = Request(f"{self.url}/api/v1/{route}", data, headers)
        for left in reversed(range(self._tries)):
            try:
                with self._opener.open(request, timeout=self._timeout) as reply:
                    return json.loads(reply.read(_LARGEST))
            except HTTPError as error:
                with error:
                    if error.code not in _LATER or not left:
                        _refuse(error)
                    wait = error.headers.get("Retry-After") or ""
                self._sleep(min(float(wait), 60.0) if wait.isdigit() else 1.0)
            except (URLError, OSError, http.client.HTTPException, ValueError) as error:
                if not left:
                    raise Refused(_unreached(self.url, error, key)) from None
                self._sleep(1.0)
        raise AssertionError("the last try answers or raises")


def _refuse(error: HTTPError) -> NoReturn:
    """Raise what a problem document says."""
    try:
        problem = json.loads(error.read(_LARGEST))
        kind, detail = str(problem["type"]).removeprefix(_URN), str(problem["detail"])
    except (OSError, http.client.HTTPException, ValueError, TypeError, KeyError):
        raise Refused(f"the server answered {error.code}, and nothing that can be read") from None
    if error.code in (400, 413):
        raise InvalidArgument(detail)
    raise _ERRORS.get(kind, Refused)(detail)


def _unreached(url: str, error: Exception, key: str | None) -> str:
    reason = getattr(error, "reason", error)
    again = "" if key is None else f"; whether the question was charged is said under its key: {key}"
    return f"{url}: no answer came ({reason or type(error).__name__}){again}"


def _plain(value: Any) -> Any:
    """Return a prediction that JSON can hold."""
    return value.item() if hasattr(value, "item") else value


def verify_receipt(receipt: Answer, export: Mapping[str, Any] | str | Path) -> None:
    """Check that an answer stands in an exported account as it was told, and that the account is whole.

    Parameters
    ----------
    receipt
        What :meth:`RemoteHoldout.ask` returned.
    export
        The document that owner or auditor exported, or its file.

    Raises
    ------
    LedgerCorrupt
        If the account was changed, or does not hold this answer.
    """
    from quiltdp.accountant.ledger import verify_export

    if not isinstance(receipt, RemoteAnswer):
        raise InvalidArgument(f"{option('receipt')} must be an answer of a served holdout")
    if isinstance(export, (str, Path)):
        export = json.loads(Path(export).read_text(encoding="utf-8"))
    assert not isinstance(export, (str, Path))
    verify_export(export)
    entry = next((e for e in export["entries"] if e["digest"] == receipt.digest), None)
    if entry is None or entry["seq"] != receipt.entry:
        raise LedgerCorrupt(f"this account has no entry {receipt.entry} with the digest of the receipt")
    told = None if entry["value"] is None else receipt.low + receipt.width * entry["value"]
    if (entry["kind"], told) != (receipt.source, receipt.value):
        raise LedgerCorrupt(f"entry {receipt.entry} of this account holds another answer than the receipt")
