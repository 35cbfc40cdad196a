"""The ledger: charge first, then answer; never forget."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quiltdp.accountant.ledger.account import (
    Terms,
    binding_of,
    calibration_document,
    mechanism_share,
    part_of,
    spend_share,
    total_dp_epsilon,
)
from quiltdp.accountant.ledger.anchor import Anchor
from quiltdp.accountant.ledger.entries import Entry, Head, genesis_digest, replay
from quiltdp.accountant.ledger.odometer import Odometer, read_adversaries
from quiltdp.accountant.ledger.store import MEMORY, Store
from quiltdp.accountant.ledger.transaction import LedgerTransaction, now
from quiltdp.accountant.specs import MechanismSpec, Thresholdout
from quiltdp.errors import InvalidArgument, LedgerCorrupt, NotALedger

if TYPE_CHECKING:
    from quiltdp.model import Model

__all__ = ["Ledger", "verify_export"]

FORMAT = 1


class Ledger:
    """A durable account of releases, in one SQLite file.

    Use :meth:`create`, :meth:`open` or :meth:`open_or_create`.  A ledger belongs to one calibration
    and through it to one model; opening it with another is refused.  Every use walks the chain of
    hashes from where this object last saw it (the whole chain on opening), so an edited, shortened
    or exchanged file is refused.

    Parameters
    ----------
    store
        The opened file.
    anchor
        A small file elsewhere that remembers the newest entry; it notices when the whole ledger
        is replaced by an older copy, which no chain inside the file can.
    """

    def __init__(self, store: Store, anchor: Anchor | None = None) -> None:
        self._store = store
        self._anchor = anchor
        self._seen: Head | None = None
        self._file: tuple[int, int] | None = None
        try:
            self._begin()
        except BaseException:
            store.close()
            raise

    def _begin(self) -> None:
        """Read the genesis document and walk the whole chain."""
        store = self._store
        with store.transaction("DEFERRED") as connection:
            self.genesis, self._root = store.genesis(connection)
            if self.genesis.get("format") != FORMAT:
                raise LedgerCorrupt(
                    f"{store.path}: ledger format {self.genesis.get('format')!r}, this version reads {FORMAT}"
                )
            store.integrity(connection)
            self._catch_up(connection)
        self._notice_exchange()

    # -- life ------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        path: str | Path,
        calibration: Any,
        *,
        settings: Mapping[str, Any] | None = None,
        anchor: str | Path | None = None,
        timeout: float = 60.0,
    ) -> Ledger:
        """Make a new ledger for a calibration; ``settings`` become part of what it is bound to.

        Raises
        ------
        FileExistsError
            If the file exists: a ledger is never overwritten.
        """
        total_dp_epsilon(calibration)
        guard = Anchor(anchor) if anchor is not None else None
        if guard is not None and guard.read() is not None:
            raise LedgerCorrupt(
                f"{anchor}: this anchor knows a ledger already, but {path} is new; restore the ledger"
            )
        salt = secrets.token_bytes(32)
        genesis = {
            "format": FORMAT,
            "id": secrets.token_hex(16),
            "created": now(),
            "binding": binding_of(calibration),
            "settings": dict(settings or {}),
            "calibration": calibration_document(calibration),
            "salt_sha256": hashlib.sha256(salt).hexdigest(),
        }
        store = Store.create(path, genesis, salt, timeout=timeout)
        if guard is not None:
            guard.advance(genesis["id"], 0, genesis_digest(genesis))
        return cls(store, guard)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        calibration: Any | None = None,
        settings: Mapping[str, Any] | None = None,
        anchor: str | Path | None = None,
        timeout: float = 60.0,
    ) -> Ledger:
        """Open an existing ledger and walk its whole chain; refuse another calibration or settings."""
        if not os.path.exists(path):
            raise InvalidArgument(f"{path}: there is no ledger here; make one first")
        ledger = cls(Store(path, timeout), Anchor(anchor) if anchor is not None else None)
        ledger.require(calibration, settings)
        return ledger

    @classmethod
    def open_or_create(
        cls,
        path: str | Path,
        calibration: Any,
        *,
        settings: Mapping[str, Any] | None = None,
        anchor: str | Path | None = None,
        timeout: float = 60.0,
    ) -> Ledger:
        """Open the ledger, or make it if there is none; safe when several processes start at once."""
        if str(path) != MEMORY and os.path.exists(path):
            return cls.open(path, calibration=calibration, settings=settings, anchor=anchor, timeout=timeout)
        try:
            return cls.create(path, calibration, settings=settings, anchor=anchor, timeout=timeout)
        except FileExistsError:
            return cls.open(path, calibration=calibration, settings=settings, anchor=anchor, timeout=timeout)

    def require(self, calibration: Any | None, settings: Mapping[str, Any] | None = None) -> None:
        """Refuse unless the ledger belongs to this calibration, this model and these settings."""
        if calibration is not None:
            self._require("calibration", self.genesis["binding"], binding_of(calibration))
        if settings is not None:
            self._require("settings", self.genesis["settings"], dict(settings))

    def _require(self, what: str, own: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        for name in sorted({*own, *given} - {"method"}):  # which method certified σ does not matter
            if own.get(name) != given.get(name):
                raise LedgerCorrupt(
                    f"{self.path}: this ledger belongs to another {what}: {name} is"
                    f" {_short(own.get(name))}, not {_short(given.get(name))}"
                )

    def close(self) -> None:
        """Close the file; using the ledger again opens it again."""
        self._store.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the path: the copy opens the same file."""
        if self.path == MEMORY:
            raise InvalidArgument("an in-memory ledger cannot be sent to another process: give it a file")
        anchor = None if self._anchor is None else self._anchor.path
        return (_reopen, (self.path, anchor, self._store.timeout))

    # -- what it is ------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """Where the ledger lives."""
        return self._store.path

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the model that the calibration was made for."""
        return str(self.genesis["binding"]["fingerprint"])

    @property
    def settings(self) -> Mapping[str, Any]:
        """What else the ledger is bound to (the threshold of a reusable holdout, …)."""
        return dict(self.genesis["settings"])

    @property
    def terms(self) -> Terms:
        """The calibration's σ, costs and mechanism, read back from the ledger."""
        return Terms.from_binding(self.genesis["binding"])

    @property
    def head(self) -> Head:
        """The totals after the newest entry, verified."""
        with self._store.transaction("DEFERRED") as connection:
            return self._catch_up(connection)

    def entries(self) -> list[Entry]:
        """Return all entries, verified."""
        with self._store.transaction("DEFERRED") as connection:
            self._catch_up(connection)
            return list(self._store.entries(connection))

    # -- integrity -------------------------------------------------------------------------

    def verify(self) -> Head:
        """Check every page, every hash and the anchor from the beginning; return the totals.

        Raises
        ------
        LedgerCorrupt
            Naming the entry.
        """
        with self._store.transaction("DEFERRED") as connection:
            self._store.integrity(connection)
            document, self._root = self._store.genesis(connection)
            if document["id"] != self.genesis["id"]:
                raise LedgerCorrupt(f"{self.path}: the file was exchanged for another ledger")
            if self._seen is not None:
                self._catch_up(connection)
            self._seen = None
            return self._catch_up(connection)

    def _catch_up(self, connection: Any) -> Head:
        """Walk the chain from the last entry seen to the stored head, or refuse the file."""
        store = self._store
        known = self._seen
        if known is None:
            known = Head(0, self._root)
            self._check_salt(connection)
            head = self._replayed(connection, known)
            self._check_anchor(connection)
        else:
            where = self._digest_at(connection, known.seq)
            if where != known.digest:
                raise LedgerCorrupt(f"{self.path}: entry {known.seq} was changed or removed while in use")
            head = self._replayed(connection, known)
        if store.head(connection) != head:
            raise LedgerCorrupt(f"{self.path}: the last entries were removed or the head was changed")
        self._seen = head
        return head

    def _replayed(self, connection: Any, known: Head) -> Head:
        try:
            return replay(known, self._store.entries(connection, known.seq))
        except LedgerCorrupt as error:
            raise LedgerCorrupt(f"{self.path}: {error}") from None

    def _digest_at(self, connection: Any, seq: int) -> str | None:
        if seq == 0:
            row = connection.execute("SELECT digest FROM genesis").fetchone()
        else:
            row = connection.execute("SELECT digest FROM entries WHERE seq = ?", (seq,)).fetchone()
        return None if row is None else str(row[0])

    def _check_salt(self, connection: Any) -> None:
        salt = self._store.secret(connection)[0]
        if hashlib.sha256(salt).hexdigest() != self.genesis.get("salt_sha256"):
            raise LedgerCorrupt(f"{self.path}: the ledger's secret was changed")

    def _check_anchor(self, connection: Any) -> None:
        if self._anchor is None:
            return
        known = self._anchor.read()
        if known is None:
            raise LedgerCorrupt(f"{self._anchor.path}: the anchor is missing; restore it")
        if known[0] != self.genesis["id"]:
            raise LedgerCorrupt(f"{self._anchor.path}: this anchor belongs to another ledger")
        if self._digest_at(connection, known[1]) != known[2]:
            raise LedgerCorrupt(
                f"{self.path}: the anchor remembers entry {known[1]}, which this file does not have:"
                " it is an older copy"
            )

    # -- spending --------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[LedgerTransaction]:
        """Hold the ledger alone; what is appended is on the disk when the block has ended."""
        with self._store.transaction() as connection:
            self._notice_exchange()
            head = self._catch_up(connection)
            if self._anchor is not None:
                self._check_anchor(connection)
            work = LedgerTransaction(self._store, connection, head)
            yield work
            work.write()
        if work.head.seq > head.seq:
            if self._anchor is not None:
                self._anchor.advance(self.genesis["id"], work.head.seq, work.head.digest)
            self._seen = work.head

    def _notice_exchange(self) -> None:
        """Refuse when the name now leads to another file than the one opened."""
        if self.path == MEMORY:
            return
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            raise LedgerCorrupt(f"{self.path}: the ledger file is gone; restore it") from None
        if self._file is not None and (found.st_dev, found.st_ino) != self._file:
            raise LedgerCorrupt(f"{self.path}: the ledger file was exchanged while in use; open it again")
        self._file = (found.st_dev, found.st_ino)

    def charge(
        self, dp_epsilon: Any, *, count: int = 1, label: str | None = None, key: str | None = None
    ) -> Entry:
        """Charge ``count`` uses that cost ``dp_epsilon`` each; the entry is durable on return.

        The same ``key`` again returns the entry already there and charges nothing.

        Raises
        ------
        InvalidArgument
            For a negative, NaN or infinite amount.
        BudgetSpent
            If the budget does not cover it; nothing is charged.
        """
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InvalidArgument(f"count must be a whole number ≥ 1, not {count!r}")
        total = total_dp_epsilon(self.terms)
        share = count * spend_share(dp_epsilon, total)
        return self._charge(share, label, key, f"charge {share}")

    def charge_mechanism(
        self,
        spec: MechanismSpec,
        scale: float,
        *,
        count: int = 1,
        label: str | None = None,
        key: str | None = None,
    ) -> Entry:
        """Charge ``count`` uses of a mechanism at a scale (Gaussian noise: the squares add)."""
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InvalidArgument(f"count must be a whole number ≥ 1, not {count!r}")
        terms = self.terms
        share = count * mechanism_share(spec, scale, terms, total_dp_epsilon(terms))
        return self._charge(share, label, key, f"charge {share}")

    def _charge(self, share: Fraction, label: str | None, key: str | None, request: str) -> Entry:
        if self.settings.get("kind") == "thresholdout":
            raise InvalidArgument(f"{self.path}: this ledger belongs to a reusable holdout; ask through it")
        with self.transaction() as work:
            known = work.recall(key, request)
            if known is not None:
                return known
            return work.append("charge", share=share, label=label, key=key, request=request)

    # -- reading ---------------------------------------------------------------------------

    def odometer(self, model: Model | None = None, **options: Any) -> Odometer:
        """Return what is spent and left, and, given the model, what it tells each adversary.

        ``options`` go to :func:`quiltdp.leakage` (``method``, limits; ``protect`` or ``window`` if
        the calibration protects more than single records).
        """
        head = self.head
        terms = self.terms
        total = total_dp_epsilon(terms)
        spent = None if total is None else part_of(total, head.spent)
        left = None if total is None else part_of(total, 1 - head.spent)
        informed = prior = None
        if model is not None and spent is not None:
            informed, prior = read_adversaries(model, terms, spent, **options)
        spec = terms.mechanism
        remaining = spec.budget - head.answers if isinstance(spec, Thresholdout) else None
        return Odometer(
            head.spent, spent, left, head.answers, head.queries, remaining, head.refused, informed, prior
        )

    def export(self) -> dict[str, Any]:
        """Return everything that may be shown: genesis and entries, never the secret threshold."""
        with self._store.transaction("DEFERRED") as connection:
            head = self._catch_up(connection)
            entries = [entry.public() for entry in self._store.entries(connection)]
        return {"genesis": self.genesis, "entries": entries, "head": {"seq": head.seq, "digest": head.digest}}


def verify_export(document: Mapping[str, Any]) -> Head:
    """Check the chain of an exported ledger; anybody can, without the file.

    Raises
    ------
    LedgerCorrupt
        Naming the entry that does not fit.
    """
    try:
        start = Head(0, genesis_digest(document["genesis"]))
        entries = [Entry.from_public(item) for item in document["entries"]]
        last = document["head"]["seq"], document["head"]["digest"]
    except (KeyError, TypeError) as error:
        raise NotALedger(f"this is not an exported ledger: {error} is missing") from None
    head = replay(start, entries)
    if (head.seq, head.digest) != last:
        raise LedgerCorrupt("the exported ledger does not reach its own head: entries are missing")
    return head


def _reopen(path: str, anchor: Path | None, timeout: float) -> Ledger:
    return Ledger.open(path, anchor=anchor, timeout=timeout)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
