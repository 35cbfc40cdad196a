"""Regular time steps: which cell at each step, stretches between gaps, nothing filled in.

A step is one interval of the clock.  A step without a point is never given a cell.  Inside a gap that
is short enough (``max_gap``) such steps stay in the chain as steps that nobody observed: they carry
the correlation from one side to the other, and no transition into or out of them is counted.
A longer gap splits the trace, and the model then treats both sides as independent; the notes say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from quiltdp.domains.trace.cells import Cells
from quiltdp.domains.trace.points import Floats, Ints, Points
from quiltdp.domains.trace.times import format_duration, hours_of_day, many, parse_duration, time_zone_of
from quiltdp.errors import InvalidArgument, option

__all__ = ["UNSEEN", "Steps", "Stretch", "make_steps"]

UNSEEN = -1
"""The cell number of a step without a point."""

Pick = Literal["first", "last", "most"]

_LONGEST_STRETCH = 50_000_000


@dataclass(frozen=True, eq=False)
class Stretch:
    """Consecutive steps of one user between two gaps.

    Attributes
    ----------
    user, number
        Whose, and the how-manyth stretch of that user.
    start
        Seconds since 1970 UTC at the beginning of the first step.
    cells
        The cell of every step, :data:`UNSEEN` where there is no point; first and last are seen.
    """

    user: str
    number: int
    start: float
    cells: Ints

    @property
    def prefix(self) -> str:
        """What the chain's node names begin with: ``user/stretch/``."""
        return f"{self.user}/{self.number}/"

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self.cells)


@dataclass(frozen=True, eq=False)
class Steps:
    """A discretised trace: stretches of regular steps over shared cells."""

    cells: Cells
    interval: float
    stretches: tuple[Stretch, ...]
    max_gap: float
    shortest_split: float
    source: str = "points"
    notes: tuple[str, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse an empty study."""
        if not self.stretches:
            raise InvalidArgument("steps: there is no stretch of steps")

    @property
    def total(self) -> int:
        """The number of steps, seen or not."""
        return sum(len(s) for s in self.stretches)

    @property
    def seen(self) -> int:
        """The number of steps with a point."""
        return sum(int((s.cells != UNSEEN).sum()) for s in self.stretches)

    @property
    def users(self) -> tuple[str, ...]:
        """The users, in order."""
        return tuple(dict.fromkeys(s.user for s in self.stretches))

    def counts(self, *, by_hour: bool = False) -> Ints:
        """Return how often each cell was followed by each cell one step later (both seen).

        ``by_hour`` returns 24 tables, one for each hour of the day in which the first of both steps begins.
        """
        size = len(self.cells.names)
        tables = np.zeros((24 if by_hour else 1, size, size), dtype=np.int64)
        for s in self.stretches:
            a, b = s.cells[:-1], s.cells[1:]
            both = (a != UNSEEN) & (b != UNSEEN)
            hour = self.hours(s)[:-1][both] if by_hour else 0
            np.add.at(tables, (hour, a[both], b[both]), 1)
        return tables if by_hour else tables[0]

    def hours(self, stretch: Stretch) -> Ints:
        """Return the hour of the day, in the time zone of the data, in which each step begins."""
        return hours_of_day(stretch.start, len(stretch), self.interval, time_zone_of(self.provenance))

    def visits(self) -> Ints:
        """Return the number of seen steps in each cell."""
        every = np.concatenate([s.cells for s in self.stretches])
        return np.bincount(every[every != UNSEEN], minlength=len(self.cells.names)).astype(np.int64)


def make_steps(
    points: Points,
    cells: Cells,
    interval: str | float,
    *,
    max_gap: str | float | None = None,
    pick: Pick = "first",
) -> Steps:
    """Sample every user's cell at regular steps.

    Parameters
    ----------
    points, cells
        Checked points and the cell of each.
    interval
        The length of a step (``5min``); steps begin at multiples of it since 1970 UTC.
    max_gap
        Two points further apart than this belong to different stretches.  Default: 15 minutes
        (trackintel's), or two intervals if that is longer.  ``"none"`` never splits.
    pick
        Which point stands for a step: the ``first``, the ``last``, or the cell with ``most`` points.

    Raises
    ------
    InvalidArgument
        Options out of range, or no two consecutive steps have a point.
    """
    seconds = parse_duration(interval, "interval")
    limit = _gap_limit(max_gap, seconds)
    if pick not in ("first", "last", "most"):
        raise InvalidArgument(f"{option('pick')} must be first, last or most, not {pick!r}")
    stretches: list[Stretch] = []
    shortest = np.inf
    for user, mine in zip(points.users, points.by_user(), strict=True):
        time = points.time[mine]
        cuts = np.flatnonzero(np.diff(time) > limit) + 1
        if len(cuts):
            shortest = min(shortest, float(np.diff(time)[cuts - 1].min()))
        for number, part in enumerate(np.split(mine, cuts)):
            line, start = _cells_at_regular_steps(points.time[part], cells.of_point[part], seconds, pick)
            stretches.append(Stretch(user, number, start, line))
    used, kept = _drop_unused_cells(cells, stretches)
    provenance = {
        **points.provenance,
        "source": points.source,
        "cells": cells.system,
        "interval": format_duration(seconds),
        "max_gap": "none" if np.isinf(limit) else format_duration(limit),
        "pick": pick,
    }
    steps = Steps(used, seconds, kept, limit, float(shortest), points.source, (), provenance)
    if not steps.counts().any():
        raise InvalidArgument(_no_transition_message(points, seconds))
    notes = (*points.notes, *cells.notes, *_gap_notes(steps, len(points.users)))
    return replace(steps, notes=notes)


def _gap_limit(max_gap: str | float | None, interval: float) -> float:
    if max_gap is None:
        return max(900.0, 2.0 * interval)
    if isinstance(max_gap, str) and max_gap.strip().lower() in ("none", "never", "inf"):
        return float("inf")
    limit = parse_duration(max_gap, "max_gap")
    if limit < interval:
        raise InvalidArgument(
            f"{option('max_gap')} {format_duration(limit)} is shorter than the interval"
            f" {format_duration(interval)}: every step would stand alone"
        )
    return limit


def _cells_at_regular_steps(time: Floats, cell: Ints, interval: float, pick: Pick) -> tuple[Ints, float]:
    """Return the cell of each step from the first to the last that has a point."""
    step = np.floor(time / interval).astype(np.int64)
    first = int(step[0])
    if int(step[-1]) - first >= _LONGEST_STRETCH:
        raise InvalidArgument(
            f"a stretch of {int(step[-1]) - first + 1} steps is too long:"
            f" use a longer {option('interval')} or a {option('max_gap')}"
        )
    line = np.full(int(step[-1]) - first + 1, UNSEEN, dtype=np.int64)
    if pick == "last":
        line[step - first] = cell  # later points overwrite earlier ones
    elif pick == "first":
        line[step[::-1] - first] = cell[::-1]
    else:
        for k in np.unique(step):
            here = cell[step == k]
            values, first_at, count = np.unique(here, return_index=True, return_counts=True)
            best = count == count.max()
            line[k - first] = values[best][np.argmin(first_at[best])]
    line.flags.writeable = False
    return line, first * interval


def _drop_unused_cells(cells: Cells, stretches: list[Stretch]) -> tuple[Cells, tuple[Stretch, ...]]:
    """Leave out cells that no step falls in (points between the sampled ones)."""
    every = np.concatenate([s.cells for s in stretches])
    used = np.unique(every[every != UNSEEN])
    new = np.full(len(cells.names) + 1, UNSEEN, dtype=np.int64)  # the last entry serves UNSEEN = -1
    new[used] = np.arange(len(used))
    kept = replace(
        cells,
        names=tuple(cells.names[k] for k in used),
        lat=cells.lat[used],
        lon=cells.lon[used],
        outlines=tuple(cells.outlines[k] for k in used),
        of_point=new[cells.of_point],
    )
    moved = tuple(Stretch(s.user, s.number, s.start, new[s.cells]) for s in stretches)
    return kept, moved


def _gap_notes(steps: Steps, users: int) -> tuple[str, ...]:
    """Say what happened at gaps."""
    notes = []
    hidden, splits = steps.total - steps.seen, len(steps.stretches) - users
    if hidden:
        notes.append(
            f"{hidden} of {steps.total} steps have no point: kept in the chain as unseen steps, not filled"
            " in, and counted in no transition"
        )
    if splits:
        notes.append(
            f"{many(splits, 'gap')} longer than {format_duration(steps.max_gap)} split the trace (shortest"
            f" {format_duration(steps.shortest_split)}): the stretches are taken as independent"
        )
    return tuple(notes)


def _no_transition_message(points: Points, interval: float) -> str:
    """Say why no move was seen and which interval to try."""
    same = np.diff(points.who) == 0
    hint = "no user has two points"
    if same.any():
        typical = float(np.median(np.diff(points.time)[same]))
        hint = f"the typical time between points is {format_duration(typical)}:"
        hint += f" choose a longer {option('interval')}"
        if typical < interval:
            hint = f"the points span too few steps: choose a shorter {option('interval')}"
    return f"no two consecutive steps of {format_duration(interval)} have points, so no move is seen; {hint}"
