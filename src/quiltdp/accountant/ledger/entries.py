"""Entries of the ledger and the chain of hashes that binds them.

The first link is the hash of the *genesis* document (what the ledger belongs to); every entry's
digest covers its own fields and the digest before it.  So changing, dropping or inserting an entry
breaks every digest after it, and dropping the last ones disagrees with the head.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, get_args

from quiltdp.errors import LedgerCorrupt

__all__ = ["Entry", "Head", "Kind", "genesis_digest", "link", "replay"]

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True)
_NOTHING = Fraction(0)

Kind = Literal["charge", "epoch", "holdout", "refused", "train"]


@dataclass(frozen=True)
class Entry:
    """One line of the account.

    ``share`` is the exact part of the whole budget it costs; ``value`` the answer that was released;
    ``key`` a keyed hash of the caller's idempotency key and ``request`` of what was asked;
    ``commitment`` binds the secret threshold of an epoch without showing it.
    """

    seq: int
    time: str
    kind: Kind
    share: Fraction
    value: float | None
    key: str | None
    request: str | None
    label: str | None
    commitment: str | None
    digest: str

    def fields(self) -> tuple[Any, ...]:
        """Return what is stored, digest included, as text and numbers."""
        value = None if self.value is None else self.value.hex()
        return (
            self.seq,
            self.time,
            self.kind,
            str(self.share),
            value,
            self.key,
            self.request,
            self.label,
            self.commitment,
            self.digest,
        )

    @classmethod
    def read(cls, row: tuple[Any, ...]) -> Entry:
        """Read a stored row, or refuse it."""
        try:
            seq, time, kind, share, value, key, request, label, commitment, digest = row
            if kind not in get_args(Kind) or not isinstance(seq, int):
                raise ValueError(f"its kind is {kind!r}")
            number = None if value is None else float.fromhex(value)
            if number is not None and not math.isfinite(number):
                raise ValueError("its value is not finite")
            part = _NOTHING if share == "0" else Fraction(share)
            if part < 0:
                raise ValueError("its share is negative")
        except (TypeError, ValueError, ZeroDivisionError) as error:
            raise LedgerCorrupt(f"ledger entry {row[:1]} cannot be read: {error}") from None
        return cls(seq, time, kind, part, number, key, request, label, commitment, digest)

    def public(self) -> dict[str, Any]:
        """Return the entry for people and for exports."""
        return {
            "seq": self.seq,
            "time": self.time,
            "kind": self.kind,
            "share": str(self.share),
            "value": self.value,
            "value_hex": None if self.value is None else self.value.hex(),
            "key": self.key,
            "request": self.request,
            "label": self.label,
            "commitment": self.commitment,
            "digest": self.digest,
        }

    @classmethod
    def from_public(cls, item: Mapping[str, Any]) -> Entry:
        """Read one entry of an export."""
        names = (
            "seq",
            "time",
            "kind",
            "share",
            "value_hex",
            "key",
            "request",
            "label",
            "commitment",
            "digest",
        )
        missing = [n for n in names if n not in item]
        if missing:
            raise LedgerCorrupt(f"an exported entry lacks the field {missing[0]!r}")
        return cls.read(tuple(item[n] for n in names))


@dataclass(frozen=True)
class Head:
    """The running totals after the last entry; a redundant copy is stored and compared."""

    seq: int
    digest: str
    spent: Fraction = Fraction(0)
    answers: int = 0
    queries: int = 0
    refused: int = 0
    commitment: str | None = None

    def after(self, entry: Entry) -> Head:
        """Return the totals with one more entry."""
        commitment = {"epoch": entry.commitment, "holdout": None}.get(entry.kind, self.commitment)
        return Head(
            entry.seq,
            entry.digest,
            self.spent + entry.share if entry.share else self.spent,
            self.answers + (entry.kind == "holdout"),
            self.queries + (entry.kind in ("holdout", "train")),
            self.refused + (entry.kind == "refused"),
            commitment,
        )


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
    """Walk the chain from ``head``; refuse a gap, a wrong digest or an account above its budget."""
    for entry in entries:
        if entry.seq != head.seq + 1:
            raise LedgerCorrupt(f"ledger entry {head.seq + 1} is missing (found {entry.seq})")
        if link(head.digest, entry.fields()[:-1]) != entry.digest:
            raise LedgerCorrupt(f"ledger entry {entry.seq} was changed: its hash does not fit")
        head = head.after(entry)
        if head.spent > 1:
            raise LedgerCorrupt(f"ledger entry {entry.seq} spends more than the whole budget")
    return head
