"""Entries of the ledger and the chain of hashes that binds them.

The first link is the hash of the *genesis* document (what the ledger belongs to); every entry's
digest covers its own fields and the digest before it.  So changing, dropping or inserting an entry
breaks every digest after it, and dropping the last ones disagrees with the head.

An answer whose cost depends on the data takes two steps.  A ``reserve`` entry charges the most that
may come out; the *outcomes* that follow it directly replace that charge by what did come out.  A
reservation that nothing follows stays charged for ever: whatever interrupted it, nothing was free.
Every column of an outcome has a fixed width, so that the bytes written say nothing of what came out.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from dataclasses import fields as dataclass_fields
from fractions import Fraction
from typing import Any, Literal, get_args

from quiltdp.errors import LedgerCorrupt

__all__ = [
    "OUTCOMES",
    "Entry",
    "Head",
    "Kind",
    "Pending",
    "genesis_digest",
    "link",
    "read_count",
    "read_double",
    "read_head",
    "read_share",
    "replay",
]

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True)
_NOTHING = Fraction(0)
_WIDTHS = {"kind": 8, "share": 120, "value": 32, "commitment": 64}

Kind = Literal["charge", "data", "extend", "failed", "holdout", "reserve", "train", "unasked"]
OUTCOMES: frozenset[str] = frozenset(("failed", "holdout", "train", "unasked"))
"""What may come of a reserved question."""

# Numbers as they are written: one grammar, bounded, so that nobody's file can ask for long work.
# ``Fraction("1e9999999")`` computes for seconds and ``float.fromhex("0x1p99999")`` overflows.
_MOST_DIGITS = 4300  # what Python writes of one whole number
_MOST_BITS = int(_MOST_DIGITS * math.log2(10))
"""Bits of the longest number that can be written."""

_SHARE = re.compile(rf"(?:0|[1-9][0-9]{{0,{_MOST_DIGITS - 1}}})(?:/[1-9][0-9]{{0,{_MOST_DIGITS - 1}}})?")
_DOUBLE = re.compile(r"-?0x[01]\.[0-9a-f]{1,13}p[-+][0-9]{1,4}")
_LARGEST_COUNT = 2**63 - 1  # of SQLite

_COUNTS = {"seq", "count", "answers"}
_MAYBE = {"key", "request", "label"}


@dataclass(frozen=True)
class Entry:
    """One line of the account.

    ``share`` is the exact part of the calibrated privacy that it spends; ``value`` the answer released;
    ``key`` a keyed hash of the caller's idempotency key and ``request`` of what was asked;
    ``commitment`` binds the secret threshold in force after the entry without showing it.  A
    ``reserve`` entry says for how many outcomes (``count``) and how many ``answers`` it charges; an
    ``extend`` entry carries the accuracy of an extended plan as its ``value``.
    ``repeated`` is not stored: the entry was there before, and nothing may be released for it now.
    """

    seq: int
    time: str
    kind: Kind
    share: Fraction = _NOTHING
    count: int = 0
    answers: int = 0
    value: float | None = None
    key: str | None = None
    request: str | None = None
    label: str | None = None
    commitment: str | None = None
    digest: str = ""
    repeated: bool = field(default=False, compare=False)

    def fields(self) -> tuple[Any, ...]:
        """Return what is stored, digest included, as text of fixed width and numbers."""
        return (
            self.seq,
            self.time,
            self.kind.ljust(_WIDTHS["kind"]),
            str(self.share).ljust(_WIDTHS["share"]),
            self.count,
            self.answers,
            ("" if self.value is None else self.value.hex()).ljust(_WIDTHS["value"]),
            self.key,
            self.request,
            self.label,
            (self.commitment or "").ljust(_WIDTHS["commitment"]),
            self.digest,
        )

    @classmethod
    def read(cls, row: tuple[Any, ...]) -> Entry:
        """Read a stored row, or refuse it."""
        try:
            for name, x in zip(_NAMES, row, strict=True):
                if name not in _COUNTS and not isinstance(x, str) and (x is not None or name not in _MAYBE):
                    raise ValueError(f"its {name} is no text")
            seq, time, kind, share, count, answers, value, key, request, label, commitment, digest = row
            kind, share, value, commitment = (x.rstrip(" ") for x in (kind, share, value, commitment))
            if kind not in get_args(Kind):
                raise ValueError(f"its kind is {kind[:20]!r}")
            return cls(
                read_count(seq),
                time,
                kind,
                _NOTHING if share == "0" else read_share(share),
                read_count(count),
                read_count(answers),
                read_double(value) if value else None,
                key,
                request,
                label,
                commitment or None,
                digest,
            )
        except ValueError as error:
            raise LedgerCorrupt(f"ledger entry {_shown(row[0])} cannot be read: {error}") from None

    @classmethod
    def after(cls, head: Head, kind: Kind, **fields: Any) -> Entry:
        """Return the entry that follows a head, its digest computed."""
        unsigned = cls(seq=head.seq + 1, kind=kind, **fields)
        return replace(unsigned, digest=link(head.digest, unsigned.fields()[:-1]))

    def public(self) -> dict[str, Any]:
        """Return the entry for people and for exports."""
        shown = {name: getattr(self, name) for name in _NAMES}
        hexadecimal = None if self.value is None else self.value.hex()
        return {**shown, "share": str(self.share), "value_hex": hexadecimal}

    @classmethod
    def from_public(cls, item: Mapping[str, Any]) -> Entry:
        """Read one entry of an export."""
        if not isinstance(item, Mapping):
            raise LedgerCorrupt("an exported entry is no object with fields")
        missing = [n for n in (*_NAMES, "value_hex") if n not in item]
        if missing:
            raise LedgerCorrupt(f"an exported entry lacks the field {missing[0]!r}")
        texts = {n: item[m] or "" for n, m in (("value", "value_hex"), ("commitment", "commitment"))}
        entry = cls.read(tuple({**item, **texts}[n] for n in _NAMES))
        changed = [name for name, value in entry.public().items() if value != item[name]]
        if changed:
            raise LedgerCorrupt(
                f"ledger entry {entry.seq} was changed: its {changed[0]} is not what was signed"
            )
        return entry


_NAMES = tuple(f.name for f in dataclass_fields(Entry) if f.compare)
"""What is stored of an entry, in the order of the columns."""


@dataclass(frozen=True)
class Pending:
    """A reservation whose outcomes have not all come: what it still charges."""

    share: Fraction
    answers: int
    count: int


@dataclass(frozen=True)
class Head:
    """The running totals after the last entry; a redundant copy is stored and compared.

    ``settled`` and ``settled_answers`` leave out what is ``pending``; ``spent`` and ``answers``
    include it: a reservation is charged until its outcomes replace it.  ``extensions`` are those of the
    plan: the number of the entry, and the accuracy promised from there on.
    """

    seq: int
    digest: str
    time: str = ""
    settled: Fraction = Fraction(0)
    settled_answers: int = 0
    queries: int = 0
    failed: int = 0
    lost: int = 0
    data: str | None = None
    commitment: str | None = None
    pending: Pending | None = None
    extensions: tuple[tuple[int, float | None], ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the totals as they are stored; :func:`read_head` reads them back."""
        held = self.pending
        pending = None if held is None else [str(held.share), held.answers, held.count]
        document = {**vars(self), "settled": str(self.settled), "pending": pending}
        if not document.pop("extensions"):  # ledgers without any stay as they were
            return document
        return {**document, "extensions": [list(extension) for extension in self.extensions]}

    @property
    def asked(self) -> int:
        """How many queries count towards the plan: those answered, and those charged without an answer."""
        return self.queries + self.failed + self.lost + (0 if self.pending is None else self.pending.answers)

    def query_limit(self, planned: int | None) -> int | None:
        """Return how many queries may be asked in all, if a number was planned; an extension adds as many."""
        return None if planned is None else planned * (1 + len(self.extensions))

    @property
    def spent(self) -> Fraction:
        """The part of the calibrated privacy that is spent."""
        return self.settled if self.pending is None else self.settled + self.pending.share

    @property
    def answers(self) -> int:
        """How many answers from the holdout are used up."""
        return self.settled_answers + (0 if self.pending is None else self.pending.answers)

    def after(self, entry: Entry) -> Head:
        """Return the totals with one more entry."""
        moved = replace(self, seq=entry.seq, digest=entry.digest, time=entry.time)
        if entry.kind in OUTCOMES:
            return moved._settled(entry)
        moved = moved._lost()
        if entry.kind == "reserve":
            pending = Pending(entry.share, entry.answers, entry.count)
            return replace(moved, pending=pending, commitment=None)
        if entry.kind == "data":
            return replace(moved, data=entry.request)
        if entry.kind == "extend":
            return replace(moved, extensions=(*moved.extensions, (entry.seq, entry.value)))
        return replace(moved, settled=moved.settled + entry.share)

    def _lost(self) -> Head:
        """Return the totals with a reservation that will never be settled: it stays charged."""
        if self.pending is None:
            return self
        return replace(
            self,
            settled=self.spent,
            settled_answers=self.answers,
            lost=self.lost + self.pending.answers,
            pending=None,
        )

    def _settled(self, entry: Entry) -> Head:
        """Return the totals with an outcome in place of its part of the reservation."""
        held = self.pending
        if held is None or entry.share > held.share or entry.answers > held.answers:
            raise LedgerCorrupt(f"ledger entry {entry.seq} answers more than was reserved for it")
        rest = Pending(held.share - entry.share, held.answers - entry.answers, held.count - 1)
        return replace(
            self,
            settled=self.settled + entry.share,
            settled_answers=self.settled_answers + entry.answers,
            queries=self.queries + (entry.kind in ("train", "holdout")),
            failed=self.failed + (entry.kind == "failed"),
            commitment=entry.commitment,
            pending=rest if rest.count > 0 else None,
        )


def read_count(value: Any) -> int:
    """Return a whole number from 0 to 2⁶³ − 1.

    Examples
    --------
    >>> read_count(7)
    7
    """
    if type(value) is not int or not 0 <= value <= _LARGEST_COUNT:
        raise ValueError("a count is no whole number from 0 to 2⁶³ − 1")
    return value


def read_share(text: Any) -> Fraction:
    """Return a share of the calibrated privacy, ``n`` or ``n/d`` in lowest terms.

    Examples
    --------
    >>> read_share("1/12")
    Fraction(1, 12)
    """
    if isinstance(text, str) and _SHARE.fullmatch(text):
        share = Fraction(text)
        if str(share) == text:
            return share
    raise ValueError("its share is no fraction n/d in lowest terms")


def read_double(text: Any) -> float:
    """Return a finite double from what :meth:`float.hex` wrote.

    Examples
    --------
    >>> read_double("0x1.8000000000000p+1")
    3.0
    """
    if isinstance(text, str) and _DOUBLE.fullmatch(text):
        try:
            return float.fromhex(text)
        except OverflowError:
            pass
    raise ValueError("a number is no double in hexadecimal")


def read_head(document: Mapping[str, Any]) -> Head:
    """Read back what :meth:`Head.document` made; raises whatever a strange document makes Python raise."""
    held = document["pending"]
    pending = None if held is None else Pending(read_share(held[0]), read_count(held[1]), read_count(held[2]))
    settled = read_share(document["settled"])
    extensions = tuple((seq, accuracy) for seq, accuracy in document.get("extensions", ()))
    return Head(**{**document, "settled": settled, "pending": pending, "extensions": extensions})


def canonical(document: Any) -> bytes:
    """Return the one way to write a JSON document."""
    return _ENCODER.encode(document).encode()


def genesis_digest(document: Mapping[str, Any]) -> str:
    """Return the digest of the genesis document."""
    return hashlib.sha256(b"quiltdp ledger genesis\0" + canonical(document)).hexdigest()


def link(previous: str, fields: tuple[Any, ...]) -> str:
    """Return the digest of an entry (its fields without the digest) after ``previous``."""
    return hashlib.sha256(previous.encode() + b"\0" + canonical(fields)).hexdigest()


def replay(head: Head, entries: Iterable[Entry]) -> Head:
    """Walk the chain from ``head``; refuse a gap, a wrong digest or an account that is overspent."""
    for entry in entries:
        if entry.seq != head.seq + 1:
            raise LedgerCorrupt(f"ledger entry {head.seq + 1} is missing (found {entry.seq})")
        if link(head.digest, entry.fields()[:-1]) != entry.digest:
            raise LedgerCorrupt(f"ledger entry {entry.seq} was changed: its hash does not fit")
        head = head.after(entry)
        if head.spent.denominator.bit_length() > _MOST_BITS:
            raise LedgerCorrupt(f"ledger entry {entry.seq} makes a total that no ledger could write")
        if head.spent > 1:
            raise LedgerCorrupt(f"ledger entry {entry.seq} spends more privacy than the calibration allows")
    return head


def _shown(seq: Any) -> str:
    return str(seq) if type(seq) is int and abs(seq) < 2**63 else "?"
