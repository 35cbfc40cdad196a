"""A pedigree drawing on paper: where each symbol stands, and the lines around symbols, never through them.

Generations stand in rows, couples side by side.  Rows of symbols alternate with channels.  Lines run level
in a channel, each owner on a track of its own, and pass a row upright, in the gap between two symbols.  A
couple side by side is joined directly; any other couple is joined in the channel below the lower of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from quiltdp.domains.pedigree.people import Pedigree, grouped

_SWEEPS = 24
MOST_DRAWN = 400
"""How many people fit a drawing."""


def layout(family: Pedigree, people: Collection[str] | None = None) -> dict[str, tuple[float, float]]:
    """Return x and y of every person: y is minus the generation, x keeps sibs together and lines short.

    A founder who marries in stands beside the partner.  Rows are relaxed a few times towards the middle
    of parents and children, never closer than one unit.

    Examples
    --------
    >>> from quiltdp.domains.pedigree import Pedigree, Person
    >>> trio = Pedigree((Person("dad"), Person("mum"), Person("kid", "dad", "mum")))
    >>> layout(trio)
    {'dad': (0.0, 0.0), 'mum': (1.0, 0.0), 'kid': (0.5, -1.0)}
    """
    chosen = {p.name for p in family} if people is None else set(people)
    level = _choose_rows(family, chosen)
    rows: dict[int, Sequence[str]] = dict(
        grouped((level[name], name) for name in _order_by_family(family, chosen))
    )
    x = {name: float(k) for row in rows.values() for k, name in enumerate(row)}
    for sweep in range(_SWEEPS):
        order = sorted(rows) if sweep % 2 == 0 else sorted(rows, reverse=True)
        for generation in order:
            row = rows[generation]
            wish = {n: _preferred_x(family, chosen, x, n) for n in row}
            rows[generation] = row = _keep_couples(family, sorted(row, key=lambda n: (wish[n], x[n])))
            for n, place in zip(row, _space_apart([wish[n] for n in row]), strict=True):
                x[n] = place
    left = min(x.values())
    return {p.name: (x[p.name] - left, 0.0 - level[p.name]) for p in family if p.name in chosen}


def _choose_rows(family: Pedigree, chosen: Collection[str]) -> dict[str, int]:
    """Return the rows: parents above children, couples in one row unless one descends from the other.

    Who has no parents here stands just above their first child.
    """
    parents = {p.name: [q for q in p.parents if q in chosen] for p in family.ordered if p.name in chosen}
    group = {n: n for n in parents}
    rank = _rank_groups(parents, group)
    assert rank is not None, "a pedigree has no loops of descent"
    for father, mother in sorted(family.couples):
        if father not in group or mother not in group or group[father] == group[mother]:
            continue
        merged = {n: group[father] if g == group[mother] else g for n, g in group.items()}
        ranks = _rank_groups(parents, merged)
        if ranks is not None:
            group, rank = merged, ranks
    above = {group[n] for n, own in parents.items() if own}
    lowest: dict[str, int] = {}
    for n, own in parents.items():
        for q in own:
            lowest[group[q]] = min(lowest.get(group[q], rank[group[n]]), rank[group[n]])
    level = {n: lowest[g] - 1 if g not in above and g in lowest else rank[g] for n, g in group.items()}
    low = min(level.values())
    return {n: k - low for n, k in level.items()}


def _rank_groups(parents: Mapping[str, Sequence[str]], group: Mapping[str, str]) -> dict[str, int] | None:
    """Return how many generations of groups are above each group; None if groups go round in a circle."""
    below: dict[str, set[str]] = {g: set() for g in group.values()}
    waits = dict.fromkeys(below, 0)
    for child, own in parents.items():
        for q in own:
            if group[q] == group[child]:
                return None
            if group[child] not in below[group[q]]:
                below[group[q]].add(group[child])
                waits[group[child]] += 1
    rank = {g: 0 for g, count in waits.items() if not count}
    ready = list(rank)
    for g in ready:  # grows while it is walked
        for child in below[g]:
            rank[child] = max(rank.get(child, 0), rank[g] + 1)
            waits[child] -= 1
            if not waits[child]:
                ready.append(child)
    return rank if len(ready) == len(below) else None


def _order_by_family(family: Pedigree, chosen: Collection[str]) -> list[str]:
    """Visit people so that partners and sibs come one after the other."""
    seen: dict[str, None] = {}
    for start in family.ordered:
        stack = [start.name]
        while stack:
            name = stack.pop()
            if name in seen or name not in chosen:
                continue
            seen[name] = None
            children = family.children.get(name, ())
            partners = dict.fromkeys(q for c in children for q in family[c].parents if q != name)
            stack.extend(reversed(children))
            stack.extend(reversed(list(partners)))
    return list(seen)


def _preferred_x(family: Pedigree, chosen: Collection[str], x: Mapping[str, float], name: str) -> float:
    """Return the middle between the parents, the children and the partners."""
    person = family[name]
    places = []
    parents = [x[q] for q in person.parents if q in chosen]
    children = [c for c in family.children.get(name, ()) if c in chosen]
    if parents:
        places.append(float(np.mean(parents)))
    if children:
        places.append(float(np.mean([x[c] for c in children])))
        partners = dict.fromkeys(q for c in children for q in family[c].parents if q != name and q in chosen)
        places += [x[q] for q in partners]
    return float(np.mean(places)) if places else x[name]


def _keep_couples(family: Pedigree, row: Sequence[str]) -> list[str]:
    """Move each mother beside the father of her children, where both are in the row."""
    placed: dict[str, None] = {}
    inside = set(row)
    for name in row:
        if name in placed:
            continue
        placed[name] = None
        for father, mother in sorted(family.couples):
            other = mother if father == name else father if mother == name else None
            if other is not None and other in inside and other not in placed:
                placed[other] = None
    return list(placed)


def _space_apart(wishes: Sequence[float]) -> list[float]:
    """Return the places nearest to the wishes, in order, at least 1 apart (pool adjacent violators)."""
    blocks: list[tuple[float, int]] = []
    for k, wish in enumerate(wishes):
        mean, size = wish - k, 1
        while blocks and blocks[-1][0] > mean:
            other, count = blocks.pop()
            mean = (mean * size + other * count) / (size + count)
            size += count
        blocks.append((mean, size))
    flat = [mean for mean, size in blocks for _ in range(size)]
    return [mean + k for k, mean in enumerate(flat)]


# -- lines ------------------------------------------------------------------------------------------

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
class _ChannelLine:
    """What one couple has in one channel: everything that meets its level line there."""

    couple: tuple[str, str]
    marriage: bool
    channel: int
    xs: list[float] = field(default_factory=list)
    track: int = 0


@dataclass
class _RowGaps:
    """The places where upright lines may pass a row."""

    rows: Mapping[int, list[float]]
    used: dict[tuple[int, float], int] = field(default_factory=dict)

    def choose_gap(self, row: int, wish: float) -> float:
        """Return the free place nearest to the wish, a little aside where others pass already."""
        centres = self.rows.get(row, [])

        def is_free(x: float) -> bool:
            return all(abs(x - c) >= _CLEAR - 1e-9 for c in centres)

        options = [wish, *(c + side for c in centres for side in (-0.5, 0.5))]
        x = min((o for o in options if is_free(o)), key=lambda o: (abs(o - wish), o))
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
    >>> drawing = draw_lines(trio, {"dad": (0.0, 0.0), "mum": (1.0, 0.0), "kid": (0.5, -1.0)})
    >>> [(line.kind, len(line.points)) for line in drawing.lines]
    [('marriage', 2), ('descent', 2), ('descent', 2), ('descent', 2)]
    """
    level = {n: round(-y) for n, (_, y) in grid.items()}
    rows = grouped((level[n], x) for n, (x, _) in grid.items())
    gaps = _RowGaps({r: sorted(xs) for r, xs in rows.items()})
    sibships = grouped(
        ((p.father, p.mother), p.name)
        for p in family
        if p.father and p.mother and {p.name, p.father, p.mother} <= grid.keys()
    )
    plans = [
        _plan_couple(couple, children, grid, level, gaps)
        for couple, children in sorted(sibships.items(), key=lambda item: _couple_width(item[0], grid))
    ]
    bars = [b for plan in plans for b in plan.bars]
    tracks = _assign_tracks(bars)
    tops = _row_heights(max(level.values()), tracks, caption)

    def track_y(channel: int, track: int) -> float:
        return tops[channel] - SYMBOL - caption - _PAD - _TRACK * track

    place = {n: (x, tops[level[n]]) for n, (x, _) in grid.items()}
    lines = [line for plan in plans for line in _lines_of_couple(plan, place, track_y)]
    return Drawing(place, tuple(lines))


@dataclass
class _CouplePlan:
    couple: tuple[str, str]
    joined: bool  # side by side, in one row
    sides: dict[str, list[tuple[int, float]]]  # of a partner who is not: the rows passed, and where
    drop: float
    bars: list[_ChannelLine]
    trunk: list[tuple[int, float]]  # the rows that descent passes, and where
    children: dict[int, list[str]]  # by channel above them


def _couple_width(couple: tuple[str, str], grid: Mapping[str, Point]) -> tuple[float, tuple[str, str]]:
    (x1, y1), (x2, y2) = grid[couple[0]], grid[couple[1]]
    return abs(x1 - x2) + 10 * abs(y1 - y2), couple


def _plan_couple(
    couple: tuple[str, str],
    children: Sequence[str],
    grid: Mapping[str, Point],
    level: Mapping[str, int],
    gaps: _RowGaps,
) -> _CouplePlan:
    """Choose the channels and gaps of a couple's lines."""
    father, mother = couple
    x1, x2 = sorted((grid[father][0], grid[mother][0]))
    top = max(level[father], level[mother])
    joined = level[father] == level[mother] and not any(x1 < x < x2 for x in gaps.rows[top])
    below = {k: [c for c in children if level[c] - 1 == k] for k in sorted({level[c] - 1 for c in children})}
    bars: list[_ChannelLine] = []
    sides: dict[str, list[tuple[int, float]]] = {}
    if joined:
        drop = gaps.choose_gap(top, (x1 + x2) / 2)
    else:
        for one, other in ((father, mother), (mother, father)):
            sign = 1.0 if grid[other][0] >= grid[one][0] else -1.0
            wish = grid[one][0] + 0.5 * sign
            passed = []
            for row in range(level[one], top + 1):
                wish = gaps.choose_gap(row, wish)
                passed.append((row, wish))
            sides[one] = passed
            for (row, x), (_, y) in pairwise(passed):
                bars.append(_ChannelLine(couple, True, row, [x, y]))
        ends = [sides[n][-1][1] for n in couple]
        drop = sum(ends) / 2
        bars.append(_ChannelLine(couple, True, top, [*ends, drop]))
    trunk: list[tuple[int, float]] = []
    x = drop
    for channel in range(top, max(below) + 1):
        bar = _ChannelLine(couple, False, channel, [x, *(grid[c][0] for c in below.get(channel, ()))])
        if channel < max(below):
            x = gaps.choose_gap(channel + 1, x)
            trunk.append((channel + 1, x))
            bar.xs.append(x)
        bars.append(bar)
    return _CouplePlan(couple, joined, sides, drop, bars, trunk, below)


def _assign_tracks(bars: list[_ChannelLine]) -> dict[int, int]:
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


def _row_heights(last: int, tracks: Mapping[int, int], caption: float) -> list[float]:
    """Return y of every row: below symbols and captions there is room for the channel's tracks."""
    tops = [0.0]
    for row in range(last):
        used = max(0, tracks.get(row, 0) - 1)
        tops.append(tops[-1] - (2 * SYMBOL + caption + 3 * _PAD + _TRACK * used))
    return tops


def _lines_of_couple(
    plan: _CouplePlan, place: Mapping[str, Point], height: Callable[[int, int], float]
) -> list[Line]:
    """Return the lines of one couple; ``height`` is y of a track in a channel."""
    lines: list[Line] = []

    def add_line(kind: str, *points: Point) -> None:
        lines.append(Line(plan.couple, kind, points))

    marriage = [b for b in plan.bars if b.marriage]
    descent = [b for b in plan.bars if not b.marriage]
    if plan.joined:
        add_line("marriage", *(place[n] for n in plan.couple))
        start = place[plan.couple[0]][1]
    else:
        last = marriage[-1]
        start = height(last.channel, last.track)
        ends: list[list[Point]] = []
        bars = iter(marriage[:-1])
        for name in plan.couple:
            passed = plan.sides[name]
            points = [place[name], (passed[0][1], place[name][1])]
            for (_, x), (_, y) in pairwise(passed):
                bar = next(bars)
                points += [(x, height(bar.channel, bar.track)), (y, height(bar.channel, bar.track))]
            ends.append([*points, (passed[-1][1], start)])
        add_line("marriage", *ends[0], *reversed(ends[1]))
    x, y = plan.drop, start
    for bar in descent:
        level = height(bar.channel, bar.track)
        add_line("descent", (x, y), (x, level))
        add_line("descent", (min(bar.xs), level), (max(bar.xs), level))
        for child in plan.children.get(bar.channel, ()):
            add_line("descent", (place[child][0], level), place[child])
        step = [p for p in plan.trunk if p[0] == bar.channel + 1]
        if step:
            x, y = step[0][1], level
    return lines
