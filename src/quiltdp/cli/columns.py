"""Read a CSV file into named columns of texts; what the texts mean is decided by whoever uses them."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from quiltdp.errors import FileFormatError
from quiltdp.io.text import read_bytes
from quiltdp.mechanisms.cells import Written

__all__ = ["read_columns"]


def read_columns(path: str | Path) -> Written:
    """Return column name → cells as they are written, without blanks around them."""
    try:
        rows = list(csv.reader(io.StringIO(read_bytes(path).decode("utf-8-sig"), newline="")))
    except (csv.Error, UnicodeDecodeError) as error:
        raise FileFormatError(path, None, f"this is not a CSV file in UTF-8 ({error})") from None
    if not rows or not any(rows[0]):
        raise FileFormatError(path, 1, "the first line must name the columns")
    names = [name.strip() for name in rows[0]]
    doubled = next((n for n in names if names.count(n) > 1), None)
    if doubled is not None:
        raise FileFormatError(path, 1, f"the column {doubled!r} is named twice")
    body = [(k, row) for k, row in enumerate(rows[1:], start=2) if row]
    if not body:
        raise FileFormatError(path, 2, "there are no rows under the column names")
    for line, row in body:
        if len(row) != len(names):
            raise FileFormatError(path, line, f"{len(row)} values for {len(names)} columns")
    return Written((name, [row[k].strip() for _, row in body]) for k, name in enumerate(names))
