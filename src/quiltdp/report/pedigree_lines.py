"""The lines of a pedigree drawing: around symbols, never through them.

Rows of symbols alternate with channels.  Lines run level in a channel, each owner on a track of its own,
and pass a row upright, in the gap between two symbols.  A couple side by side is joined directly; any
other couple is joined in the channel below the lower of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from quiltdp.domains.pedigree.people import Pedigree

__all__ = ["SYMBOL", "Drawing", "Line", "draw_lines"]

SYMBOL = 0.34
"""Half the width of a symbol; neighbours in a row stand one unit apart."""
_CLEAR = 0.42  # how far from the middle of a symbol a line passes it
_TRACK = 0.13  # between two tracks of a channel
_PAD = 0.12

Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """A line of a couple: ``marriage``, or towards the children (``descent``)."""

    couple: tuple[str, str]
    kind: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Drawing:
    """Where every symbol stands, and the lines between them."""

    place: Mapping[str, Point]
    lines: tuple[Line, ...]


@dataclass
class _Bar:
    """What one couple has in one channel: everything that meets its level line there."""

    couple: tuple[str, str]
    marriage: bool
    channel: int
    xs: list[float] = field(default_factory=list)
    track: int = 0


@dataclass
class _Gaps:
    """The places where upright lines may pass a row."""

    rows: Mapping[int, list[float]]
    used: dict[tuple[int, float], int] = field(default_factory=dict)

    def through(self, row: int, wish: float) -> float:
        """Return the free place nearest to the wish, a little aside where others pass already."""
        centres = self.rows.get(row, [])

        def free(x: float) -> bool:
            return all(abs(x - c) >= _CLEAR - 1e-9 for c in centres)

        options = [wish, *(c + side for c in centres for side in (-0.5, 0.5))]
        x = min((o for o in options if free(o)), key=lambda o: (abs(o - wish), o))
        key = (row, round(x, 2))
        seen = self.used.get(key, 0)
        self.used[key] = seen + 1
        aside = 0.05 * ((seen + 1) // 2) * (-1 if seen % 2 else 1)
        room = min((abs(x - c) for c in centres), default=1.0) - SYMBOL - 0.03
        return x + max(-room, min(room, aside))


def draw_lines(family: Pedigree, grid: Mapping[str, Point], caption: float = 0.45) -> Drawing:
    """Return the drawing of people on a grid: x, and minus the row as y; captions below symbols stay free.

    Examples
    --------
    >>> from quiltdp.domains.pedigree import Pedigree, Person
    >>> trio = Pedigree((Person("dad"), Person("mum"), Person("kid", "dad", "mum")))
    >>> found = draw_lines(trio, {"dad": (0.0, 0.0), "mum": (1.0, 0.0), "kid": (0.5, -1.0)})
    >>> [(line.kind, len(line.points)) for line in found.lines]
    [('marriage', 2), ('descent', 2), ('descent', 2), ('descent', 2)]
    """
    level = {n: round(-y) for n, (_, y) in grid.items()}
    rows: dict[int, list[float]] = {}
    for n, (x, _) in grid.items():
        rows.setdefault(level[n], []).append(x)
    gaps = _Gaps({r: sorted(xs) for r, xs in rows.items()})
    sibships: dict[tuple[str, str], list[str]] = {}
    for p in family:
        if p.name in grid and p.father in grid and p.mother in grid:
            sibships.setdefault((str(p.father), str(p.mother)), []).append(p.name)
    plans = [
        _plan(couple, children, grid, level, gaps)
        for couple, children in sorted(sibships.items(), key=lambda item: _width(item[0], grid))
    ]
    bars = [b for plan in plans for b in plan.bars]
    tracks = _assign(bars)
    tops = _heights(max(level.values()), tracks, caption)

    def at(channel: int, track: int) -> float:
        return tops[channel] - SYMBOL - caption - _PAD - _TRACK * track

    place = {n: (x, tops[level[n]]) for n, (x, _) in grid.items()}
    lines = [line for plan in plans for line in _lines(plan, place, at)]
    return Drawing(place, tuple(lines))


@dataclass
class _Plan:
    couple: tuple[str, str]
    joined: bool  # side by side, in one row
    sides: dict[str, list[tuple[int, float]]]  # of a partner who is not: the rows passed, and where
    drop: float
    bars: list[_Bar]
    trunk: list[tuple[int, float]]  # the rows that descent passes, and where
    children: dict[int, list[str]]  # by channel above them


def _width(couple: tuple[str, str], grid: Mapping[str, Point]) -> tuple[float, tuple[str, str]]:
    (x1, y1), (x2, y2) = grid[couple[0]], grid[couple[1]]
    return abs(x1 - x2) + 10 * abs(y1 - y2), couple


def _plan(
    couple: tuple[str, str],
    children: list[str],
    grid: Mapping[str, Point],
    level: Mapping[str, int],
    gaps: _Gaps,
) -> _Plan:
    """Choose the channels and gaps of a couple's lines."""
    father, mother = couple
    x1, x2 = sorted((grid[father][0], grid[mother][0]))
    top = max(level[father], level[mother])
    joined = level[father] == level[mother] and not any(x1 < x < x2 for x in gaps.rows[top])
    below = {k: [c for c in children if level[c] - 1 == k] for k in sorted({level[c] - 1 for c in children})}
    bars: list[_Bar] = []
    sides: dict[str, list[tuple[int, float]]] = {}
    if joined:
        drop = gaps.through(top, (x1 + x2) / 2)
    else:
        for one, other in ((father, mother), (mother, father)):
            sign = 1.0 if grid[other][0] >= grid[one][0] else -1.0
            wish = grid[one][0] + 0.5 * sign
            passed = []
            for row in range(level[one], top + 1):
                wish = gaps.through(row, wish)
                passed.append((row, wish))
            sides[one] = passed
            for (row, x), (_, y) in pairwise(passed):
                bars.append(_Bar(couple, True, row, [x, y]))
        ends = [sides[n][-1][1] for n in couple]
        drop = sum(ends) / 2
        bars.append(_Bar(couple, True, top, [*ends, drop]))
    trunk: list[tuple[int, float]] = []
    x = drop
    for channel in range(top, max(below) + 1):
        bar = _Bar(couple, False, channel, [x, *(grid[c][0] for c in below.get(channel, ()))])
        if channel < max(below):
            x = gaps.through(channel + 1, x)
            trunk.append((channel + 1, x))
            bar.xs.append(x)
        bars.append(bar)
    return _Plan(couple, joined, sides, drop, bars, trunk, below)


def _assign(bars: list[_Bar]) -> dict[int, int]:
    """Give every bar a track on which nobody else runs beside it; return how many each channel needs."""
    tracks: dict[int, int] = {}
    for channel in sorted({b.channel for b in bars}):
        taken: list[list[tuple[float, float]]] = []
        here = [b for b in bars if b.channel == channel]
        for marriage in (True, False):
            first = len(taken) if not marriage else 0
            mine = [b for b in here if b.marriage is marriage]
            for bar in sorted(mine, key=lambda b: (min(b.xs), b.couple)):
                low, high = min(bar.xs) - 0.1, max(bar.xs) + 0.1
                track = first
                while track < len(taken) and any(low < h and a < high for a, h in taken[track]):
                    track += 1
                if track == len(taken):
                    taken.append([])
                taken[track].append((low, high))
                bar.track = track
        tracks[channel] = len(taken)
    return tracks


def _heights(last: int, tracks: Mapping[int, int], caption: float) -> list[float]:
    """Return y of every row: below symbols and captions there is room for the channel's tracks."""
    tops = [0.0]
    for row in range(last):
        used = max(0, tracks.get(row, 0) - 1)
        tops.append(tops[-1] - (2 * SYMBOL + caption + 3 * _PAD + _TRACK * used))
    return tops


def _lines(plan: _Plan, place: Mapping[str, Point], height: Callable[[int, int], float]) -> list[Line]:
    """Return the lines of one couple; ``height`` is y of a track in a channel."""
    found: list[Line] = []

    def draw(kind: str, *points: Point) -> None:
        found.append(Line(plan.couple, kind, points))

    marriage = [b for b in plan.bars if b.marriage]
    descent = [b for b in plan.bars if not b.marriage]
    if plan.joined:
        draw("marriage", *(place[n] for n in plan.couple))
        start = place[plan.couple[0]][1]
    else:
        last = marriage[-1]
        start = height(last.channel, last.track)
        ends: list[list[Point]] = []
        left = iter(marriage[:-1])
        for name in plan.couple:
            passed = plan.sides[name]
            points = [place[name], (passed[0][1], place[name][1])]
            for (_, x), (_, y) in pairwise(passed):
                bar = next(left)
                points += [(x, height(bar.channel, bar.track)), (y, height(bar.channel, bar.track))]
            ends.append([*points, (passed[-1][1], start)])
        draw("marriage", *ends[0], *reversed(ends[1]))
    x, y = plan.drop, start
    for bar in descent:
        level = height(bar.channel, bar.track)
        draw("descent", (x, y), (x, level))
        draw("descent", (min(bar.xs), level), (max(bar.xs), level))
        for child in plan.children.get(bar.channel, ()):
            draw("descent", (place[child][0], level), place[child])
        step = [p for p in plan.trunk if p[0] == bar.channel + 1]
        if step:
            x, y = step[0][1], level
    return found
