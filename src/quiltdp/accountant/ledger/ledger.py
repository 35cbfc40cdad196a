"""The ledger: charge first, then answer; never forget."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quiltdp.accountant.ledger.account import (
    Terms,
    binding_of,
    calibration_document,
    checked_calibration,
    mechanism_share,
    part_of,
    refuse_other_query,
    spend_share,
    total_dp_epsilon,
)
from quiltdp.accountant.ledger.anchor import Anchor, newest_seen, note_seen
from quiltdp.accountant.ledger.entries import Entry, Head, genesis_digest, replay
from quiltdp.accountant.ledger.odometer import Odometer, read_adversaries
from quiltdp.accountant.ledger.requests import Request
from quiltdp.accountant.ledger.sqlite import SQLiteStore
from quiltdp.accountant.ledger.store import MEMORY, VERSION, Rows, Store
from quiltdp.accountant.ledger.visit import Visit, bounded, now
from quiltdp.errors import InvalidArgument, LedgerCorrupt, NotALedger, Refused, option
from quiltdp.mechanisms import Mechanism

if TYPE_CHECKING:
    from quiltdp.model import Model

__all__ = ["Ledger", "new_genesis", "verify_export"]

TIMEOUT = 60.0


class Ledger:
    """A durable account of releases, in one SQLite file.

    Use :meth:`create`, :meth:`open` or :meth:`open_or_create`.  A ledger belongs to one calibration
    and through it to one model; opening it with another is refused.  Every use walks the chain of
    hashes from where this object last saw it (the whole chain on opening), so an edited, shortened
    or exchanged file is refused, and so is a copy without entries that this process has seen.

    Parameters
    ----------
    store
        Where its rows are, see :mod:`.store`: the opened file.
    anchor
        A small file elsewhere that remembers the newest entry; it notices when the whole ledger
        is replaced by an older copy, which no chain inside the file can.  A ledger that was made
        with an anchor is never used without it.
    timeout
        How many seconds to wait for other threads and processes.
    """

    def __init__(self, store: Store, anchor: Anchor | None = None, timeout: float = TIMEOUT) -> None:
        self._store = store
        self._anchor = anchor
        self._seen: Head | None = None
        self.timeout = _checked_timeout(timeout)
        self.genesis: dict[str, Any] = {}
        self._root = ""
        with self.reading(afresh=True) as (rows, _):
            rows.integrity()

    # -- life ------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        path: str | Path,
        calibration: Any,
        *,
        settings: Mapping[str, Any] | None = None,
        anchor: str | Path | None = None,
        model: Model | None = None,
        timeout: float = TIMEOUT,
        **protection: Any,
    ) -> Ledger:
        """Make a new ledger for a calibration; ``settings`` become part of what it is bound to.

        Given the ``model``, the calibration is certified anew (with ``protect`` or ``window`` as it
        was made); without it only what can be known of σ and ε alone is checked.

        Raises
        ------
        FileExistsError
            If the file exists: a ledger is never overwritten.
        InvalidArgument
            For a calibration that cannot be true.
        """
        _exists(path)  # or it is no file name
        genesis, salt = new_genesis(calibration, settings, anchor is not None, model, **protection)
        guard = Anchor(anchor) if anchor is not None else None
        if guard is not None:
            guard.refuse_beside(path)
            if guard.read() is not None:
                raise LedgerCorrupt(
                    f"{anchor}: this anchor knows a ledger already, but {path} is new; restore the ledger"
                )
        store = SQLiteStore.create(path, genesis, salt)
        if guard is not None:
            guard.advance(str(genesis["id"]), 0, genesis_digest(genesis))
        return cls(store, guard, timeout)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        calibration: Any | None = None,
        settings: Mapping[str, Any] | None = None,
        anchor: str | Path | None = None,
        timeout: float = TIMEOUT,
    ) -> Ledger:
        """Open an existing ledger and walk its whole chain; refuse another calibration or settings."""
        if str(path) == MEMORY or not _exists(path):
            raise InvalidArgument(f"{path}: there is no ledger here; make one first")
        ledger = cls(SQLiteStore.at(path), Anchor(anchor) if anchor is not None else None, timeout)
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
        timeout: float = TIMEOUT,
    ) -> Ledger:
        """Open the ledger, or make it if there is none; safe when several processes start at once."""
        options: dict[str, Any] = {"settings": settings, "anchor": anchor, "timeout": timeout}
        if str(path) != MEMORY and _exists(path):
            return cls.open(path, calibration=calibration, **options)
        try:
            return cls.create(path, calibration, **options)
        except FileExistsError:
            return cls.open(path, calibration=calibration, **options)

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
        return (_reopen, (self.path, anchor, self.timeout))

    # -- what it is ------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        """The store; in a forked child, the child's own."""
        self._store = self._store.here()
        return self._store

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
        with self.reading() as (_, head):
            return head

    def entries(self) -> list[Entry]:
        """Return all entries, verified."""
        with self.reading() as (rows, _):
            return list(rows.entries())

    # -- integrity -------------------------------------------------------------------------

    def verify(self) -> Head:
        """Check schema, pages, hashes and anchor from the beginning; return the totals.

        Raises
        ------
        LedgerCorrupt
            Naming the entry, table or trigger.
        """
        with self.reading(afresh=True) as (rows, _):  # it must still have what was seen before
            rows.integrity()
            self._seen = None
            return self._catch_up(rows)

    @contextmanager
    def reading(self, *, afresh: bool = False) -> Iterator[tuple[Rows, Head]]:
        """Hold the ledger for reading; what is read may be told once the anchor knows it."""
        with self.store.held(self.timeout, writing=False):
            with self.transaction(writing=False, afresh=afresh) as (rows, head):
                yield rows, head
            self.anchored(head)

    @contextmanager
    def transaction(self, *, writing: bool, afresh: bool = False) -> Iterator[tuple[Rows, Head]]:
        """Run a transaction of a held store, after walking the chain to its head."""
        with self.store.transaction(writing=writing, afresh=afresh) as rows:
            yield rows, self._catch_up(rows)

    def _catch_up(self, rows: Rows) -> Head:
        """Walk the chain from the last entry seen to the stored head, or refuse the file."""
        known = self._seen
        if known is None:
            self._read_genesis(rows)
            known = Head(0, self._root)
        elif rows.digest_at(known.seq) != known.digest:
            raise LedgerCorrupt(f"{self.path}: entry {known.seq} was changed or removed while in use")
        try:
            head = replay(known, rows.entries(known.seq))
        except LedgerCorrupt as error:
            raise LedgerCorrupt(f"{self.path}: {error}") from None
        if rows.head() != head:
            raise LedgerCorrupt(f"{self.path}: the last entries were removed or the head was changed")
        self._check_anchor(rows)
        newest = newest_seen(self._id)
        if newest is not None and rows.digest_at(newest[0]) != newest[1]:
            raise self._older_copy()
        self._seen = head
        return head

    def _read_genesis(self, rows: Rows) -> None:
        document, root = rows.genesis()
        if document.get("format") != VERSION:
            raise LedgerCorrupt(
                f"{self.path}: ledger format {document.get('format')!r}, this version reads {VERSION}"
            )
        if self.genesis and document.get("id") != self.genesis["id"]:
            raise LedgerCorrupt(f"{self.path}: the file was exchanged for another ledger")
        salt = rows.secret()[0]
        if hashlib.sha256(salt).hexdigest() != document.get("salt_sha256"):
            raise LedgerCorrupt(f"{self.path}: the ledger's secret was changed")
        self.genesis, self._root = document, root

    @property
    def _id(self) -> str:
        return str(self.genesis.get("id"))

    def _older_copy(self) -> LedgerCorrupt:
        seq, _ = newest_seen(self._id) or (0, "")
        return LedgerCorrupt(
            f"{self.path}: this process has seen entry {seq}, which this file does not have:"
            " it is an older copy, or was changed"
        )

    def _check_anchor(self, rows: Rows) -> None:
        if self._anchor is None:
            if self.genesis.get("anchor"):
                raise Refused(
                    f"{self.path}: this ledger was made with an anchor and is not used without it:"
                    f" give {option('anchor', '…')}"
                )
            return
        known = self._anchor.read()
        if known is None:
            raise LedgerCorrupt(f"{self._anchor.path}: the anchor is missing; restore it")
        if known[0] != self.genesis["id"]:
            raise LedgerCorrupt(f"{self._anchor.path}: this anchor belongs to another ledger")
        if rows.digest_at(known[1]) != known[2]:
            raise LedgerCorrupt(
                f"{self.path}: the anchor remembers entry {known[1]}, which this file does not have:"
                " it is an older copy"
            )

    def anchored(self, head: Head) -> None:
        """Move memory and anchor to a head, before anything that the head knows is told."""
        if not note_seen(self._id, head.seq, head.digest):  # written to a copy at the same moment
            raise self._older_copy()
        if self._anchor is not None:
            self._anchor.advance(self.genesis["id"], head.seq, head.digest)

    def remember(self, head: Head) -> None:
        """Note the head that this object has just written."""
        self._seen = head

    # -- spending --------------------------------------------------------------------------

    @contextmanager
    def visit(self, requests: Sequence[Request] = ()) -> Iterator[Visit]:
        """Hold the ledger alone, from the first look to the last entry; see :mod:`.visit`.

        Signals wait meanwhile: what may take long goes into a ``with interruptible():``.
        """
        with self.store.held(self.timeout, writing=True):
            yield Visit(self, requests)

    def charge(
        self, dp_epsilon: Any, *, count: int = 1, label: str | None = None, key: str | None = None
    ) -> Entry:
        """Charge ``count`` uses that cost ``dp_epsilon`` each; the entry is durable on return.

        The same ``key`` again charges nothing and returns the entry already there, ``repeated``: it is
        for asking whether the charge was booked, and nothing may be released for it a second time.  Of
        all threads and processes that charge one key, exactly one gets an entry that is not repeated.

        Raises
        ------
        InvalidArgument
            For a negative, NaN or infinite amount, and for records that do not match.
        BudgetSpent
            If the privacy that is left does not cover it; nothing is charged.
        """
        terms = self.terms
        refuse_other_query(terms.mechanism, None)
        share = _checked_count(count) * spend_share(dp_epsilon, total_dp_epsilon(terms))
        return self._charge(share, label, key)

    def charge_mechanism(
        self,
        spec: Mechanism,
        scale: float,
        *,
        count: int = 1,
        label: str | None = None,
        key: str | None = None,
    ) -> Entry:
        """Charge ``count`` uses of a mechanism at a scale (Gaussian noise: the squares add).

        k uses at k · σ, or √k · σ for Gaussian noise, spend exactly what was calibrated for.
        """
        terms = self.terms
        share = _checked_count(count) * mechanism_share(spec, scale, terms, total_dp_epsilon(terms))
        return self._charge(share, label, key)

    def _charge(self, share: Fraction, label: str | None, key: str | None) -> Entry:
        if self.settings.get("kind") == "thresholdout":
            raise InvalidArgument(f"{self.path}: this ledger belongs to a reusable holdout; ask through it")
        share = bounded(min(share, Fraction(2)))  # 2 is refused as well as any number above
        request = Request(f"charge {share}", key, label)
        with self.visit([request]) as visit:
            (known,) = visit.recalled
            return known if known is not None else visit.charge(share, request)

    def bind_data(self, identity: str) -> None:
        """Bind the ledger to data, once; refuse other data from then on.

        ``identity`` is a digest of the data; the ledger keeps a keyed hash of it, which says nothing
        to somebody without the ledger's secret.
        """
        with self.visit() as visit:
            same = visit.is_bound_to(identity)
            if same is False:
                raise Refused(
                    f"{self.path}: this ledger keeps the account of other holdout data;"
                    " give the data it was begun with, or make a ledger for these"
                )
            if same is None:
                visit.bind(identity)

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
        remaining_share = None if total is None else part_of(total, 1 - head.spent)
        informed = prior = None
        if model is not None:
            informed, prior = read_adversaries(model, terms, head.spent, spent, **options)
        spec = terms.mechanism
        remaining = None if spec.answers is None else spec.answers - head.answers
        lost = head.lost + (0 if head.pending is None else head.pending.answers)
        return Odometer(
            share=head.spent,
            spent_dp_epsilon=spent,
            remaining_dp_epsilon=remaining_share,
            answers=head.answers,
            queries=head.queries,
            remaining=remaining,
            failed=head.failed,
            lost=lost,
            asked=head.asked,
            query_limit=head.query_limit(self.settings.get("queries")),
            informed=informed,
            prior=prior,
        )

    def export(self) -> dict[str, Any]:
        """Return everything that may be shown: genesis and entries, never the secret threshold."""
        with self.reading() as (rows, head):
            entries = [entry.public() for entry in rows.entries()]
        return {"genesis": self.genesis, "entries": entries, "head": {"seq": head.seq, "digest": head.digest}}


def new_genesis(
    calibration: Any,
    settings: Mapping[str, Any] | None,
    anchored: bool,
    model: Model | None = None,
    **protection: Any,
) -> tuple[dict[str, Any], bytes]:
    """Return the document of what a new ledger belongs to, and the secret that keys its hashes.

    Raises
    ------
    InvalidArgument
        For a calibration that cannot be true.
    """
    checked = checked_calibration(calibration, model, **protection)
    salt = secrets.token_bytes(32)
    genesis = {
        "format": VERSION,
        "id": secrets.token_hex(16),
        "created": now(),
        "binding": binding_of(calibration),
        "settings": dict(settings or {}),
        "calibration": calibration_document(calibration),
        "checked": checked,
        "anchor": anchored,
        "salt_sha256": hashlib.sha256(salt).hexdigest(),
    }
    return genesis, salt


def verify_export(document: Mapping[str, Any]) -> Head:
    """Check the chain of an exported ledger; anybody can, without the file.

    Raises
    ------
    LedgerCorrupt
        Naming the entry that does not fit.
    """
    try:
        genesis, items, last = (document[name] for name in ("genesis", "entries", "head"))
        if [type(genesis), type(items), type(last)] != [dict, list, dict]:
            raise NotALedger("this is not an exported ledger: genesis, entries or head is something else")
        start, end = Head(0, genesis_digest(genesis)), (last["seq"], last["digest"])
    except (KeyError, TypeError) as error:
        raise NotALedger(f"this is not an exported ledger: {error} is missing") from None
    except RecursionError:
        raise NotALedger("this is not an exported ledger: it is nested too deeply") from None
    head = replay(start, map(Entry.from_public, items))
    if (head.seq, head.digest) != end:
        raise LedgerCorrupt("the exported ledger does not reach its own head: entries are missing")
    return head


def _reopen(path: str, anchor: Path | None, timeout: float) -> Ledger:
    return Ledger.open(path, anchor=anchor, timeout=timeout)


def _exists(path: str | Path) -> bool:
    """Return whether there is something of this name; refuse what is no name of a file."""
    if not str(path) or "\0" in str(path):
        raise InvalidArgument(f"{str(path)!a}: this is no name of a file")
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise Refused(f"{path}: the ledger cannot be opened: {error.strerror}") from None
    return True


def _checked_timeout(timeout: float) -> float:
    if not 0.0 <= timeout <= 1e6:
        raise InvalidArgument(f"{option('timeout')} must be a number of seconds, at most a million")
    return float(timeout)


def _checked_count(count: object) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InvalidArgument(f"{option('count')} must be a whole number ≥ 1, not {count!r}")
    return count


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
