"""Points from a Parquet table, through pyarrow."""

from __future__ import annotations

import math
import os
from pathlib import Path

from quiltdp.domains.trace.extras import need
from quiltdp.domains.trace.readers.columns import find_columns
from quiltdp.domains.trace.readers.rows import Rows
from quiltdp.domains.trace.units import many
from quiltdp.errors import FileFormatError, InvalidArgument
from quiltdp.user_files import opened

__all__ = ["read_parquet"]

_MOST_ROWS = 5_000_000  # beyond what the bytes could spell out: repeated values take no room


def read_parquet(path: Path, given: dict[str, str | None]) -> Rows:
    """Read latitude, longitude, time and user columns of a Parquet file.

    A timestamp column with a time zone is exact; one without is treated like a text without a zone.
    """
    parquet = need("pyarrow.parquet", "reading Parquet", "parquet")
    arrow = need("pyarrow", "reading Parquet", "parquet")
    try:
        with opened(path) as stream:
            file = parquet.ParquetFile(stream)
            rows_there, schema = file.metadata.num_rows, file.schema_arrow
            if rows_there > _MOST_ROWS + os.fstat(stream.fileno()).st_size:
                raise FileFormatError(
                    path, None, f"the file claims {rows_there:,} rows, more than it can hold"
                )
            columns = find_columns(schema.names, path, given)
            if len(columns.time) > 1:
                raise FileFormatError(path, None, "the time of a Parquet file is one column")
            wanted = [k for k in (columns.lat, columns.lon, columns.time[0], columns.user) if k is not None]
            table = file.read(columns=[schema.names[k] for k in wanted])
            lat, lon, time, *more = (column.to_pylist() for column in table.columns)
    except (arrow.ArrowException, OSError, ValueError) as error:
        if isinstance(error, (FileFormatError, InvalidArgument)):
            raise
        raise FileFormatError(
            path, None, f"not a Parquet file ({' '.join(str(error).split())[:80]})"
        ) from None
    user = more[0] if more else ["user"] * len(lat)
    rows = Rows(str(path), provenance={"format": "parquet"})
    empty = 0
    for number, (y, x, t, u) in enumerate(zip(lat, lon, time, user, strict=True), start=1):
        if y is None or x is None or t is None or _is_nan(y) or _is_nan(x):
            empty += 1
            continue
        try:
            rows.lat.append(float(y))
            rows.lon.append(float(x))
        except (TypeError, ValueError, OverflowError):
            raise FileFormatError(
                path, number, f"row {number}: {y!r:.60}, {x!r:.60} are not coordinates"
            ) from None
        rows.time.append(t.isoformat() if hasattr(t, "isoformat") else str(t))
        rows.user.append(str(u))
        rows.line.append(number)
    if empty:
        rows.notes.append(f"{many(empty, 'row')} without a coordinate or a time left out")
    if columns.user is None:
        rows.notes.append("no user column: all points are taken as one user's")
    return rows


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)
