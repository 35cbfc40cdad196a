"""One visit to the ledger: look, reserve, draw, settle; nobody else comes in between.

Every release has the same shape.  *Look*: walk the chain, recall what was answered before.  *Reserve*:
charge the most that may come out, durably, and move the anchor.  Only then are data read and noise
drawn.  *Settle*: replace the reservation by what came out; the same pages are written whatever that
is.  A crash, a full disk or a lost lock after the reservation leaves it charged.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from quiltdp.accountant.ledger.entries import Entry, Head, Kind
from quiltdp.accountant.ledger.requests import Outcome, Request, keyed
from quiltdp.errors import BudgetSpent, InvalidArgument, LedgerCorrupt, QuiltdpError, Refused

if TYPE_CHECKING:
    from quiltdp.accountant.ledger.ledger import Ledger
    from quiltdp.accountant.ledger.store import Rows

__all__ = ["Reservation", "Visit", "bounded", "now"]

_LONGEST_DENOMINATOR = 6000  # bits; Python writes numbers of up to 14,000
_COARSE = 2**200

NOT_TOLD = "the answer could not be recorded, so it is not told; it stays charged"


def now() -> str:
    """Return the time of an entry, in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _commitment(threshold: str, nonce: bytes) -> str:
    return hashlib.sha256(b"quiltdp threshold\0" + nonce + threshold.encode()).hexdigest()


class Visit:
    """What may be done while the ledger is held; made by :meth:`quiltdp.Ledger.visit`.

    Attributes
    ----------
    head
        The totals, verified.
    recalled
        For every request, the entry recorded under its key, or None.
    numbers
        For every recalled entry, how many queries had been answered when it was made.
    """

    def __init__(self, ledger: Ledger, requests: Sequence[Request]) -> None:
        self._ledger = ledger
        self._process = os.getpid()
        with ledger.transaction(writing=False) as (rows, head):
            self.head = head
            self._salt, self._threshold, self._nonce = rows.secret()
            self.recalled = [self._recall(rows, request) for request in requests]
            known = [entry.seq for entry in self.recalled if entry is not None]
            self.numbers = {seq: rows.count_queries(seq) for seq in known}
        ledger.anchored(head)

    def _recall(self, rows: Rows, request: Request) -> Entry | None:
        if request.key is None:
            return None
        entry = rows.find(keyed(self._salt, "key", request.key))
        if entry is None:
            return None
        if entry.request != keyed(self._salt, "request", request.text):
            raise Refused(f"the key {request.key!a} was used for another request")
        return replace(entry, repeated=True)

    @property
    def threshold(self) -> int | None:
        """The secret threshold of the open epoch, checked against its commitment."""
        expected = self.head.commitment
        if expected is None:
            return None
        if not hmac.compare_digest(_commitment(self._threshold, self._nonce), expected):
            raise LedgerCorrupt(f"{self._ledger.path}: the secret threshold is missing or was changed")
        return int(self._threshold)

    # -- writing ---------------------------------------------------------------------------

    def charge(self, share: Fraction, request: Request) -> Entry:
        """Append a charge that does not depend on data; durable on return."""
        part = share
        if (self.head.settled + share).denominator.bit_length() > _LONGEST_DENOMINATOR:
            part = coarse(share)
        _require_room(part, self.head, self._ledger.path)
        (entry,) = self._append([("charge", {"share": part, **self._stored(request)})])
        return entry

    def bind(self, identity: str) -> Entry:
        """Append the keyed identity of the data this ledger is for."""
        (entry,) = self._append([("data", {"request": keyed(self._salt, "data", identity)})])
        return entry

    def extend(self, accuracy: float | None) -> Entry:
        """Append an extension of the plan, with the accuracy that is promised from here on."""
        (entry,) = self._append([("extend", {"value": accuracy})])
        return entry

    def is_bound_to(self, identity: str) -> bool | None:
        """Return whether the ledger is for these data; None if it is not bound yet."""
        if self.head.data is None:
            return None
        return hmac.compare_digest(self.head.data, keyed(self._salt, "data", identity))

    def reserve(self, requests: Sequence[Request], share: Fraction, answers: int) -> Reservation:
        """Charge, durably, the most that the outcomes of these requests may cost.

        The open epoch counts as ended and its threshold is erased, until the outcomes say otherwise.
        """
        if not requests:
            raise InvalidArgument("there is nothing to reserve for")
        _require_room(share, self.head, self._ledger.path)
        stored = [self._stored(request) for request in requests]
        fields = {"share": share, "answers": answers, "count": len(requests)}
        longest = max(len((s["label"] or "").encode()) for s in stored)
        self._append([("reserve", fields)], secret=("", b""), room=(len(requests), longest))
        return Reservation(self, stored)

    def _stored(self, request: Request) -> dict[str, Any]:
        """Return what is written of a request."""
        key = None if request.key is None else keyed(self._salt, "key", request.key)
        text = None if request.key is None else keyed(self._salt, "request", request.text)
        return {"key": key, "request": text, "label": request.label}

    def _append(
        self,
        lines: Sequence[tuple[Kind, dict[str, Any]]],
        *,
        secret: tuple[str, bytes] | None = None,
        room: tuple[int, int] | None = None,
    ) -> list[Entry]:
        """Write entries after the head of this visit, all or none, and move the anchor."""
        if os.getpid() != self._process:
            raise Refused(f"{self._ledger.path}: this process was forked while its parent was using a ledger")
        threshold, nonce = (self._threshold, self._nonce) if secret is None else secret
        time = max(now(), self.head.time)  # a clock set back changes no order
        head, entries = self.head, []
        for kind, fields in lines:
            entry = Entry.after(head, kind, time=time, **fields)
            head = head.after(entry)
            entries.append(entry)
        with self._ledger.transaction(writing=True) as (rows, current):
            if current != self.head:
                raise Refused(f"{self._ledger.path}: another process used the ledger in between")
            if room is not None:
                rows.make_room(*room)
            rows.write(entries, head, threshold, nonce)
        self.head, self._threshold, self._nonce = head, threshold, nonce
        self._ledger.remember(head)
        self._ledger.anchored(head)
        return entries


class Reservation:
    """A charge that is waiting for its outcomes."""

    def __init__(self, visit: Visit, stored: Sequence[dict[str, Any]]) -> None:
        self._visit = visit
        self._stored = stored

    def settle(self, outcomes: Sequence[Outcome], threshold: int | None) -> list[Entry]:
        """Replace the charge by the outcomes, in order; ``threshold`` is that of the epoch left open.

        Whatever goes wrong here has one message, which says nothing of the outcomes.
        """
        rows: list[tuple[Kind, dict[str, Any]]] = []
        for o, stored in zip(outcomes, self._stored, strict=True):
            fields = {"share": o.share, "answers": o.answers, "value": o.value, **stored}
            if o.kind == "unasked" and stored["key"] is not None:
                fields["key"] = secrets.token_hex(32)  # as long as a key, and recalled by none
            rows.append((o.kind, fields))
        secret = ("", secrets.token_bytes(32))
        if threshold is not None:
            secret = (str(int(threshold)), secret[1])
            rows[-1][1]["commitment"] = _commitment(*secret)
        try:
            return self._visit._append(rows, secret=secret)
        except LedgerCorrupt:
            raise
        except QuiltdpError:
            raise Refused(NOT_TOLD) from None


def bounded(share: Fraction) -> Fraction:
    """Return the share, rounded up if it could not be written down."""
    return share if share.denominator.bit_length() <= _LONGEST_DENOMINATOR else coarse(share)


def coarse(share: Fraction) -> Fraction:
    """Return the share rounded up to a multiple of 2⁻²⁰⁰."""
    return Fraction(-(-share.numerator * _COARSE // share.denominator), _COARSE)


def _require_room(share: Fraction, head: Head, path: object) -> None:
    if share < 0:
        raise InvalidArgument("a share cannot be negative")
    rest = 1 - head.spent
    if share <= rest:
        return
    needs, has = _shown(share), _shown(rest)
    more = f", {_shown(share - rest)} too much" if needs == has else ""
    needed = "more than the ledger may spend in all" if share > 1 else f"{needs} of all it may spend"
    hint = "; more noise would cost less" if rest > 0 else ""
    raise BudgetSpent(f"{path}: this release would spend {needed}, {has} is left{more}{hint}")


def _shown(share: Fraction) -> str:
    try:
        return f"{float(share):.3g}"
    except OverflowError:
        return "more than 1e308"
