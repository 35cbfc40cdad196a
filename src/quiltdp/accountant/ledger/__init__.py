"""The ledger: a durable, append-only account of what was released."""

from __future__ import annotations

from quiltdp.accountant.ledger.account import Terms
from quiltdp.accountant.ledger.entries import Entry, Head
from quiltdp.accountant.ledger.interrupts import interruptible
from quiltdp.accountant.ledger.ledger import Ledger, verify_export
from quiltdp.accountant.ledger.odometer import AdversaryReading, Odometer
from quiltdp.accountant.ledger.requests import Outcome, Request
from quiltdp.accountant.ledger.sqlite import other_account
from quiltdp.accountant.ledger.visit import Reservation, Visit

__all__ = [
    "AdversaryReading",
    "Entry",
    "Head",
    "Ledger",
    "Odometer",
    "Outcome",
    "Request",
    "Reservation",
    "Terms",
    "Visit",
    "interruptible",
    "other_account",
    "verify_export",
]
