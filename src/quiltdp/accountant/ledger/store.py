"""What a ledger needs of its store: entries that are only ever added, a fence, and transactions.

The account is the same wherever it lies: :mod:`.ledger` and :mod:`.visit` walk the chain of hashes, count and
refuse; a store keeps rows and knows nothing of privacy.  :mod:`.sqlite` is the one in a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

from quiltdp.accountant.ledger.entries import Entry, Head

__all__ = ["MEMORY", "VERSION", "Rows", "Store"]

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
