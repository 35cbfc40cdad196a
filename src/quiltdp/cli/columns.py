"""Read a CSV file into named columns."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quiltdp.errors import FileFormatError

__all__ = ["read_columns"]


def read_columns(path: str | Path) -> dict[str, NDArray[Any]]:
    """Return column name → values: numbers where every entry is one (empty: NaN), otherwise texts."""
    with Path(path).open(newline="", encoding="utf-8-sig") as file:
        try:
            rows = list(csv.reader(file))
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
    return {name: _typed([row[k].strip() for _, row in body]) for k, name in enumerate(names)}


def _typed(texts: list[str]) -> NDArray[Any]:
    try:
        return np.array([float(t) if t else math.nan for t in texts])
    except ValueError:
        return np.array(texts, dtype=str)
