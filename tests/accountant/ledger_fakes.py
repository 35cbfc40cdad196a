"""Hand-made calibrations, and ledgers changed as a determined owner would."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from quiltdp.accountant.ledger import Ledger, Terms
from quiltdp.accountant.ledger.sqlite import SCHEMA
from quiltdp.mechanisms import Laplace

PRINT = "a" * 64
TRIGGERS = SCHEMA[SCHEMA.index("CREATE TRIGGER") :]


def terms(dp_epsilon: float = 1.0, fingerprint: str = PRINT, sensitivity: object = 1.0) -> Terms:
    spec = Laplace(sensitivity)  # type: ignore[arg-type]
    return Terms(
        spec, spec.scale(dp_epsilon), 2 * dp_epsilon, dp_epsilon, 0.0, "informed", "test", fingerprint
    )


def filled(path: Path, count: int = 4) -> Ledger:
    ledger = Ledger.create(path, terms())
    for k in range(count):
        ledger.charge(0.125, label=f"release {k}")
    return ledger


def edit(path: Path, *statements: str, tidy: bool = True) -> None:
    """Change the file: the append-only triggers go first and, to be tidy, are put back."""
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TRIGGER IF EXISTS entries_stay")
        connection.execute("DROP TRIGGER IF EXISTS entries_last")
        for statement in statements:
            connection.execute(statement)
        if tidy:
            connection.executescript(TRIGGERS)
    connection.close()
