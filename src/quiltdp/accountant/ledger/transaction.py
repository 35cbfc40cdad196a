"""One exclusive visit to the ledger: read the state, append entries, all on the disk or none."""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import sqlite3
from datetime import datetime, timezone
from fractions import Fraction

from quiltdp.accountant.ledger.entries import Entry, Head, Kind, link
from quiltdp.accountant.ledger.store import Store
from quiltdp.errors import BudgetSpent, InvalidArgument, LedgerCorrupt, Refused

__all__ = ["LedgerTransaction", "now"]

MAX_TEXT = 500


def now() -> str:
    """Return the time of an entry, in UTC, to the second."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _commitment(threshold: str, nonce: bytes) -> str:
    return hashlib.sha256(b"quiltdp threshold\0" + nonce + threshold.encode()).hexdigest()


class LedgerTransaction:
    """What may be done while the ledger is held; made by :meth:`quiltdp.Ledger.transaction`."""

    def __init__(self, store: Store, connection: sqlite3.Connection, head: Head) -> None:
        self._store = store
        self._connection = connection
        self._salt, self._threshold, self._nonce = store.secret(connection)
        self._secret_changed = False
        self._appended: list[Entry] = []
        self._by_key: dict[str, Entry] = {}
        self._time = now()
        self.head = head

    # -- idempotency -----------------------------------------------------------------------

    def _hash(self, purpose: str, text: str) -> str:
        """Return a keyed hash: the ledger stores neither keys nor requests in clear."""
        return hmac.new(self._salt, f"{purpose}\0{text}".encode(), hashlib.sha256).hexdigest()

    def recall(self, key: str | None, request: str) -> Entry | None:
        """Return the entry recorded under a key, or None; refuse a key used for something else."""
        if key is None:
            return None
        if not isinstance(key, str) or not key:
            raise InvalidArgument(f"an idempotency key must be a non-empty text, not {key!r}")
        name = self._hash("key", key)
        entry = self._by_key.get(name) or self._store.find(self._connection, name)
        if entry is not None and entry.request != self._hash("request", request):
            raise Refused(f"the key {key!r} was used for another request (entry {entry.seq})")
        return entry

    def queries_until(self, entry: Entry) -> int:
        """Return how many queries had been answered when an entry was made, itself included."""
        stored = self._store.count_queries(self._connection, entry.seq)
        return stored + sum(e.kind in ("train", "holdout") for e in self._appended if e.seq <= entry.seq)

    # -- appending -------------------------------------------------------------------------

    def append(
        self,
        kind: Kind,
        *,
        share: Fraction = Fraction(0),
        value: float | None = None,
        label: str | None = None,
        key: str | None = None,
        request: str | None = None,
        commitment: str | None = None,
    ) -> Entry:
        """Add an entry; it is durable once the transaction has ended.

        Raises
        ------
        BudgetSpent
            If the share is more than what is left.
        """
        if share < 0:
            raise InvalidArgument(f"a share cannot be negative: {share}")
        if share and self.head.spent + share > 1:
            raise BudgetSpent(
                f"this release needs {float(share):.3g} of the budget,"
                f" {float(1 - self.head.spent):.3g} is left"
            )
        if value is not None and not math.isfinite(value):
            raise InvalidArgument(f"an answer must be finite, not {value!r}")
        if label is not None and (not isinstance(label, str) or len(label) > MAX_TEXT):
            raise InvalidArgument(f"a label must be a text of at most {MAX_TEXT} characters")
        fields = (
            self.head.seq + 1,
            self._time,
            kind,
            str(share),
            None if value is None else value.hex(),
            None if key is None else self._hash("key", key),
            None if request is None or key is None else self._hash("request", request),
            label,
            commitment,
        )
        digest = link(self.head.digest, fields)
        entry = Entry(fields[0], fields[1], kind, share, value, *fields[5:], digest=digest)
        self.head = self.head.after(entry)
        self._appended.append(entry)
        if entry.key is not None:
            self._by_key[entry.key] = entry
        return entry

    def write(self) -> None:
        """Hand everything to the file (called once, before the commit)."""
        if not self._appended:
            return
        secret = (self._threshold, self._nonce) if self._secret_changed else None
        self._store.write(self._connection, self._appended, self.head, secret)

    # -- the secret threshold --------------------------------------------------------------

    def threshold(self) -> int | None:
        """Return the secret threshold of the open epoch, checked against its commitment."""
        expected = self.head.commitment
        if expected is None:
            return None
        if self._threshold is None or self._nonce is None:
            raise LedgerCorrupt(f"{self._store.path}: the secret threshold is missing")
        if not hmac.compare_digest(_commitment(self._threshold, self._nonce), expected):
            raise LedgerCorrupt(f"{self._store.path}: the secret threshold was changed")
        return int(self._threshold)

    def open_epoch(self, threshold: int, share: Fraction) -> Entry:
        """Charge a new epoch and keep its threshold, secretly, until the epoch ends."""
        if self.head.commitment is not None:
            raise InvalidArgument("an epoch is open already: its threshold must be used")
        text, nonce = str(int(threshold)), secrets.token_bytes(32)
        entry = self.append("epoch", share=share, commitment=_commitment(text, nonce))
        self._threshold, self._nonce, self._secret_changed = text, nonce, True
        return entry

    def close_epoch(
        self,
        value: float,
        share: Fraction,
        *,
        label: str | None = None,
        key: str | None = None,
        request: str | None = None,
    ) -> Entry:
        """Charge an answer from the holdout; the epoch ends and its threshold is erased."""
        if self.head.commitment is None:
            raise InvalidArgument("no epoch is open")
        entry = self.append("holdout", share=share, value=value, label=label, key=key, request=request)
        self._threshold, self._nonce, self._secret_changed = None, None, True
        return entry
