"""Which values of a column follow each other: groups, missing values, gaps in time.

A step without a value is never filled in.  It stays in the chain as a step that nobody saw, and no move
into or out of it is counted; groups (machines, users) are chains of their own with one matrix.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quiltdp.domains.trace.times import format_duration, many, parse_times
from quiltdp.errors import InvalidArgument, option

Ints = NDArray[np.int64]
UNSEEN = -1
"""Stands for the row of a step without a value."""

_LONGEST = 50_000_000


@dataclass(frozen=True, eq=False)
class Part:
    """Steps that follow each other: the row of every step, :data:`UNSEEN` where there is no value."""

    name: str
    rows: Ints

    def states(self, of_row: Ints) -> Ints:
        """Return the state of every step."""
        found: Ints = np.where(self.rows == UNSEEN, UNSEEN, of_row[self.rows])
        return found


def _is_missing(value: Any) -> bool:
    """Return whether a cell is empty: None, NaN, or pandas' NA and NaT."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    return type(value).__name__ in ("NAType", "NaTType")


def plain_values(values: Any) -> list[Any]:
    """Return a column as a plain list of Python's numbers and what else there is.

    Truth values are 0 and 1, empty cells ``None``.

    Examples
    --------
    >>> plain_values([True, float("nan"), "a"])
    [1, None, 'a']
    """
    found = [None if _is_missing(v) else v for v in values]
    found = [int(v) if isinstance(v, (bool, np.bool_, np.integer)) else v for v in found]
    return [float(v) if isinstance(v, np.floating) else v for v in found]


def make_parts(
    values: Sequence[Any],
    *,
    group: Sequence[Any] | None = None,
    time: Sequence[Any] | None = None,
    missing: str = "refuse",
) -> tuple[tuple[Part, ...], tuple[str, ...]]:
    """Return the parts of a column, one per group, and what was noticed.

    Parameters
    ----------
    values
        The column, ``None`` where it has no value.
    group
        What each row belongs to: every group is a chain of its own.
    time
        When each row was.  Steps that are not there become steps that nobody saw.
    missing
        ``refuse`` a missing value, or take it for a ``gap``.

    Raises
    ------
    InvalidArgument
        For times that are not evenly spaced, a missing value or group, or two rows of one time.
    """
    if missing not in ("refuse", "gap"):
        raise InvalidArgument(f"{option('missing')} must be refuse or gap, not {missing!r}")
    empty = np.array([v is None for v in values], dtype=bool)
    if empty.any() and missing == "refuse":
        raise InvalidArgument(
            f"no value in row {int(np.argmax(empty)) + 1}: fill it in, or take it for a step that nobody saw"
            f" ({option('missing', 'gap')})"
        )
    members = _rows_by_group(len(values), group)
    notes: list[str] = []
    lines = members
    if time is not None:
        lines, notes = _order_by_time(members, _times_to_seconds(time, len(values)))
    parts = tuple(
        Part(name, np.where((rows != UNSEEN) & ~empty[rows], rows, UNSEEN)) for name, rows in lines.items()
    )
    unseen = sum(int((p.rows == UNSEEN).sum()) for p in parts)
    if unseen:
        notes.append(
            f"{many(unseen, 'step')} of {sum(len(p.rows) for p in parts):,} without a value: kept as steps"
            " that nobody saw, not filled in, and counted in no transition"
        )
    return parts, tuple(notes)


def windows(parts: Sequence[Part], of_row: Ints, width: int) -> Ints:
    """Return every run of so many steps that all have a value, as states; runs × width."""
    found = list(_iterate_windows(parts, of_row, width))
    return np.concatenate(found) if found else np.zeros((0, width), dtype=np.int64)


def _iterate_windows(parts: Sequence[Part], of_row: Ints, width: int) -> Iterator[Ints]:
    for part in parts:
        if len(part.rows) >= width:
            runs = np.lib.stride_tricks.sliding_window_view(part.states(of_row), width)
            yield runs[(runs != UNSEEN).all(axis=1)]


def _rows_by_group(count: int, group: Sequence[Any] | None) -> dict[str, Ints]:
    """Return the rows of every group, in the order in which groups appear."""
    if group is None:
        return {"": np.arange(count, dtype=np.int64)}
    if len(group) != count:
        raise InvalidArgument(f"{option('group')} has {len(group)} values for {count} rows")
    found: dict[str, list[int]] = {}
    for row, name in enumerate(group):
        if _is_missing(name):
            raise InvalidArgument(f"{option('group')}: row {row + 1} belongs to no group")
        found.setdefault(_group_name(name), []).append(row)
    return {name: np.array(rows, dtype=np.int64) for name, rows in found.items()}


def _group_name(name: Any) -> str:
    return f"{name:g}" if isinstance(name, float) and name == int(name) else str(name)


def _times_to_seconds(time: Sequence[Any], count: int) -> NDArray[np.float64]:
    """Return times as seconds: numbers as they are, texts in ISO 8601, dates of any library.

    Examples
    --------
    >>> _times_to_seconds(["1970-01-01T00:00:05Z", "1970-01-01T00:01:00Z"], 2).tolist()
    [5.0, 60.0]
    """
    found = list(time)
    if len(found) != count:
        raise InvalidArgument(f"{option('time')} has {len(found)} values for {count} rows")
    gone = next((k for k, v in enumerate(found) if _is_missing(v)), None)
    if gone is not None:
        raise InvalidArgument(f"{option('time')}: row {gone + 1} has no time")
    if all(isinstance(v, str) for v in found):
        return parse_times(found, list(range(2, count + 2)), option("time"))[0]
    if all(isinstance(v, datetime) for v in found):  # pandas' timestamps are
        return np.array([v.timestamp() for v in found], dtype=np.float64)
    values = np.asarray(found)
    if np.issubdtype(values.dtype, np.datetime64):
        return values.astype("datetime64[ns]").astype(np.int64) / 1e9
    try:
        return np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidArgument(f"{option('time')}: {found[0]!r} is neither a time nor a number") from None


def _order_by_time(members: dict[str, Ints], time: NDArray[np.float64]) -> tuple[dict[str, Ints], list[str]]:
    """Put the rows of every group in the order of time, with steps that nobody saw where some are missing."""
    notes = []
    ordered = {name: rows[np.argsort(time[rows], kind="stable")] for name, rows in members.items()}
    moved = sum(int((ordered[n] != rows).any()) for n, rows in members.items())
    if moved:
        notes.append("rows were sorted by time")
    apart = np.concatenate([np.diff(time[rows]) for rows in ordered.values()])
    if not len(apart):
        raise InvalidArgument("no group has two rows: there is no step to take")
    step = float(np.median(apart))
    if step <= 0 or (apart <= 0).any():
        raise InvalidArgument(
            "two rows have one time: name what tells them apart"
            f" ({option('group')}), and give times their zone where clocks change"
        )
    found = {name: _insert_missing_steps(name, rows, time[rows], step) for name, rows in ordered.items()}
    notes.append(f"a step is {format_duration(step)}")
    return found, notes


def _insert_missing_steps(name: str, rows: Ints, time: NDArray[np.float64], step: float) -> Ints:
    place = (time - time[0]) / step
    at = np.rint(place).astype(np.int64)
    off = np.abs(place - at) > 0.25
    if off.any() or (np.diff(at) < 1).any():
        row = int(rows[int(np.argmax(off))]) + 1
        where = f" of {name!r}" if name else ""
        raise InvalidArgument(
            f"the times{where} are not {format_duration(step)} apart (first in row {row}): give evenly spaced"
            f" values, or leave {option('time')} out"
        )
    if at[-1] >= _LONGEST:
        raise InvalidArgument(f"{int(at[-1]) + 1:,} steps of {format_duration(step)} are too many")
    line = np.full(int(at[-1]) + 1, UNSEEN, dtype=np.int64)
    line[at] = rows
    return line
