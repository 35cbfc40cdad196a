"""What a ledger needs of its store: entries that are only ever added, a fence, and transactions.

The account is the same wherever it lies: :mod:`.ledger` and :mod:`.visit` walk the chain of hashes, count and
refuse; a store keeps rows and knows nothing of privacy.  :mod:`.sqlite` is the one in a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

from quiltdp.accountant.ledger.entries import Entry, Head, canonical, genesis_digest, read_head
from quiltdp.errors import LedgerCorrupt

__all__ = [
    "MEMORY", "VERSION", "Rows", "Store", "head_text", "parse_genesis", "parse_head", "secret_texts",
]  # fmt: skip

MEMORY = ":memory:"
VERSION = 2
"""Of the genesis document, the entries and the head."""


class Rows(Protocol):
    """What one transaction reads and writes."""

    def genesis(self) -> tuple[dict[str, Any], str]:
        """Return the genesis document and its digest, recomputed."""

    def head(self) -> Head:
        """Return the stored totals."""

    def entries(self, after: int = 0) -> Iterator[Entry]:
        """Return the entries after a number, in order."""

    def find(self, key: str) -> Entry | None:
        """Return the entry with an idempotency key; no two entries have the same."""

    def digest_at(self, seq: int) -> str | None:
        """Return the digest of an entry, of the genesis document for 0, or None."""

    def count_queries(self, until: int) -> int:
        """Return how many stored entries up to a number are answers."""

    def secret(self) -> tuple[bytes, str, bytes]:
        """Return (salt, threshold or "", nonce)."""

    def make_room(self, rows: int, longest: int) -> None:
        """Set aside what so many entries with labels of so many bytes need: settling must not fail."""

    def write(self, entries: Iterable[Entry], head: Head, threshold: str, nonce: bytes) -> None:
        """Append entries, move the head, replace the secret; nothing in the traffic tells which outcome."""

    def integrity(self) -> None:
        """Refuse what is damaged."""


class Store(Protocol):
    """Where the rows of one ledger are kept."""

    path: str

    def held(self, timeout: float, *, writing: bool) -> AbstractContextManager[None]:
        """Keep other writers out, and readers too while this writes: the fence of reserve and settle."""

    def transaction(self, *, writing: bool, afresh: bool = False) -> AbstractContextManager[Rows]:
        """Run one all-or-nothing change inside :meth:`held`; durable when it ends without an error."""

    def here(self) -> Store:
        """Return the store to use in this process: in a forked child the child's own."""

    def close(self) -> None:
        """Give back what is open; the next use opens it again."""


# -- how a store writes what is no entry: as wide as it can get, so that no width tells an outcome ------

_HEAD_WIDTH = 1024
_THRESHOLD_WIDTH = 64
_NONCE_BYTES = 32


def head_text(head: Head) -> str:
    """Return the totals as JSON of a width that a few digits more do not change."""
    text = canonical(head.document()).decode()
    return text.ljust(-(-len(text) // _HEAD_WIDTH) * _HEAD_WIDTH)


def parse_head(text: str, path: str) -> Head:
    """Read back what :func:`head_text` wrote, or refuse it."""
    try:
        return read_head(json.loads(text))
    except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError, RecursionError):
        raise LedgerCorrupt(f"{path}: the head of the ledger cannot be read") from None


def parse_genesis(text: Any, digest: Any, path: str) -> dict[str, Any]:
    """Read the genesis document, or refuse one that its digest does not fit."""
    try:
        document = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        raise LedgerCorrupt(f"{path}: the genesis document cannot be read") from None
    if not isinstance(document, dict) or genesis_digest(document) != digest:
        raise LedgerCorrupt(f"{path}: the genesis document was changed")
    return document


def secret_texts(threshold: str = "", nonce: bytes = b"") -> tuple[str, bytes]:
    """Return the secret as it is stored."""
    return threshold.ljust(_THRESHOLD_WIDTH), nonce.ljust(_NONCE_BYTES, b"\0")
