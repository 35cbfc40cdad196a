"""Columns of a CSV file, as numbers where every value is one; missing cells are told by line."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Collection, Sequence
from typing import TypeAlias

from quiltdp.errors import FileFormatError, option
from quiltdp.io.text import read_text

Column: TypeAlias = "list[float | None] | list[str | None]"
_MISSING = frozenset({"", "na", "nan", "null", "none", "n/a", "."})


def read_columns(
    path: str | os.PathLike[str],
    wanted: Sequence[str] | None = None,
    *,
    missing: str = "refuse",
    optional: Collection[str] | None = None,
) -> dict[str, Column]:
    """Return the columns of a CSV file with a header, all or those named.

    A column is numbers if every value is one, texts otherwise.  With ``missing="gap"`` a cell without a
    value (of the columns in ``optional``, where given) is ``None`` instead of an error.

    Raises
    ------
    FileFormatError
        Naming the line of a missing value or a row of the wrong width, or the column that is not there.
    """
    text = read_text(path)
    if not text.strip():
        raise FileFormatError(path, None, "the file is empty: a header and rows are needed")
    first = text.split("\n", 1)[0]
    separator = max((",", ";", "\t"), key=first.count)
    rows = csv.reader(io.StringIO(text), delimiter=separator)
    try:
        header = [name.strip() for name in next(rows)]
    except csv.Error as error:
        raise FileFormatError(path, 1, str(error)) from None
    chosen = header if wanted is None else list(wanted)
    for name in chosen:
        if header.count(name) != 1:
            found = "there is no column" if name not in header else "there are several columns"
            raise FileFormatError(path, 1, f"{found} {name!r}; the columns are {', '.join(header)}")
    cells: dict[str, list[str | None]] = {name: [] for name in chosen}
    try:
        for row in rows:
            if not row:
                continue
            if len(row) != len(header):
                raise FileFormatError(
                    path, rows.line_num, f"{len(row)} values, the header has {len(header)} columns"
                )
            for name in chosen:
                value = row[header.index(name)].strip()
                if value.lower() not in _MISSING:
                    cells[name].append(value)
                elif missing == "gap" and (optional is None or name in optional):
                    cells[name].append(None)
                else:
                    raise FileFormatError(
                        path, rows.line_num, f"no value in column {name!r}: {_missing_value_remedy(missing)}"
                    )
    except csv.Error as error:
        raise FileFormatError(path, rows.line_num, str(error)) from None
    if not cells or not next(iter(cells.values())):
        raise FileFormatError(path, None, "the file has a header and no rows")
    return {name: _numbers_or_texts(values) for name, values in cells.items()}


def _missing_value_remedy(missing: str) -> str:
    if missing == "gap":
        return "fill it or leave the row out"
    return f"fill it, leave the row out, or take it for a step that nobody saw ({option('missing', 'gap')})"


def _numbers_or_texts(values: list[str | None]) -> Column:
    try:
        return [None if v is None else float(v) for v in values]
    except ValueError:
        return values
