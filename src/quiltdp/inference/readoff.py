"""b and the swings of a quilt, read off its moves.

With M(x, x', l) for every ordered pair of values of the targets,

    s(C, L) = max over x, x', l of  M(x, x', l) + M(x', x, l)
    b       = max over L, x, x', l of  M(x, x', l) − ln P(x, l) + ln P(x', l).

On extended axes a record is known at its own entries and not known at the last one, so the largest
entry over the first ones and the last one are all that is left of an axis.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np

from quiltdp.errors import ModelTooWide
from quiltdp.inference.elimination import LogTable
from quiltdp.inference.marginals import KnownOdds, pair_odds
from quiltdp.inference.odds import BIG
from quiltdp.inference.pairs import PairMoves, both_ways
from quiltdp.inference.side_sums import extended_moves, moves_given, subsets
from quiltdp.inference.sides import side_tables
from quiltdp.inference.whole import whole_table
from quiltdp.model import Model

__all__ = [
    "Numbers",
    "Question",
    "Swings",
    "Tally",
    "finite_or_infinite",
    "numbers",
    "rounded_up",
    "swing_of",
    "swings_of_all",
]

_TOGETHER = 2**12  # work per known set up to which all of them are one table
_ALONE = 2**19  # work for one known set beyond which a side is left to elimination

Swings: TypeAlias = Mapping[tuple[str, ...], tuple[float, float]]
"""The swing of every known set, and a bound on its rounding error."""


class Numbers(NamedTuple):
    """The swings, and b with the known set that attains it."""

    swings: Swings
    b: float
    b_known: tuple[str, ...] | None  # None: no marginal of the known records can be had


class Question(NamedTuple):
    """A quilt, prepared: the nearby records sorted, and barriers over the separator.

    With ``in_full`` the values that are impossible in the full model are left out; a small model
    answers from its whole table then.
    """

    model: Model
    targets: tuple[str, ...]
    nearby: frozenset[str]
    separator: frozenset[str]
    records: tuple[str, ...]
    beyond: Sequence[LogTable]
    limit: int  # entries of the largest table
    in_full: bool

    def together(self) -> PairMoves | None:
        """Return the moves of every known set, on extended axes, if that is quicker than one by one."""
        whole = whole_table(self.model) if self.in_full else None
        if whole is not None:
            return whole.moves(self.targets, self.records, self.separator)
        return extended_moves(
            side_tables(self.model),
            self.targets,
            self.records,
            self.nearby,
            self.beyond,
            work=_TOGETHER,
            alone=_ALONE,
            limit=self.limit,
        )

    def given(self, known: Sequence[str]) -> PairMoves | None:
        """Return the moves of one known set, if its tables are small enough."""
        return moves_given(
            side_tables(self.model),
            self.targets,
            known,
            self.nearby.difference(known),
            self.beyond,
            alone=_ALONE,
            limit=self.limit,
        )


def numbers(asked: Question) -> Numbers | None:
    """Return the numbers of a quilt from the tables of its sides; None if they are too large."""
    moves = asked.together()
    if moves is None:
        return _one_by_one(asked)
    records = asked.records
    swings = _read(moves, records)
    try:
        ratios = pair_odds(asked.model, asked.targets, records).taken_off(moves.array)
    except ModelTooWide:
        return Numbers(swings, math.inf, None)
    at = int(ratios.argmax())
    best = float(ratios.flat[at])
    known = []
    for n, length in zip(reversed(records), reversed(ratios.shape), strict=False):
        at, state = divmod(at, length)
        if state < length - 1:
            known.append(n)
    return Numbers(swings, finite_or_infinite(best), tuple(reversed(known)))


def swings_of_all(asked: Question) -> Swings | None:
    """Return the swings alone, if one table holds all of them."""
    moves = asked.together()
    return None if moves is None else _read(moves, asked.records)


def _one_by_one(asked: Question) -> Numbers | None:
    """Return the numbers, one known set after the other."""
    tally = Tally(asked.model, asked.targets, asked.records)
    for known in subsets(asked.records):
        moves = asked.given(known)
        if moves is None:
            return None
        tally.add(known, moves)
    return tally.numbers()


class Tally:
    """b and the swings, while one known set after the other is looked at."""

    def __init__(self, model: Model, targets: Sequence[str], records: Sequence[str]) -> None:
        self._odds = KnownOdds(model, targets, records)
        self._swings: dict[tuple[str, ...], tuple[float, float]] = {}
        self._b: tuple[float, tuple[str, ...] | None] = (-1.0, ())

    def add(self, known: tuple[str, ...], moves: PairMoves) -> None:
        """Take the moves of a known set into account; b is given up where no marginal can be had."""
        self._swings[known] = swing_of(moves)
        if self._b[1] is None:
            return
        try:
            ratios = self._odds.given(known).taken_off(moves.array)
        except ModelTooWide:
            self._b = (math.inf, None)
            return
        value = finite_or_infinite(float(ratios.max()))
        if value > self._b[0]:
            self._b = (value, known)

    def add_swing(self, known: tuple[str, ...], swing: tuple[float, float]) -> None:
        """Take a known set into account whose moves are too many for one table: b is given up."""
        self._swings[known] = swing
        self._b = (math.inf, None)

    def numbers(self) -> Numbers:
        """Return what was found."""
        return Numbers(self._swings, *self._b)


def swing_of(moves: PairMoves) -> tuple[float, float]:
    """Return the largest of both ways, and a bound on its rounding error."""
    return finite_or_infinite(float(both_ways(moves.array).max())), 2 * moves.error


def _read(moves: PairMoves, records: Sequence[str]) -> Swings:
    """Return the swing of every known set from moves with extended axes."""
    error = 2 * moves.error
    both = both_ways(moves.array)
    largest = both[0] if len(both) == 1 else np.maximum.reduce(both, axis=0)
    for axis, length in enumerate(largest.shape):
        largest = np.maximum.reduceat(largest, (0, length - 1), axis=axis)
    values = map(finite_or_infinite, largest.ravel().tolist())
    return {
        tuple([records[k] for k in known]): (value, error)
        for known, value in zip(_known_sets(len(records)), values, strict=True)
    }


@lru_cache(maxsize=32)
def _known_sets(count: int) -> tuple[tuple[int, ...], ...]:
    """Return the positions of the known records, for each entry of an array of shape (2,) × count."""
    return tuple(
        tuple(k for k in range(count) if not (entry >> (count - 1 - k)) & 1) for entry in range(2**count)
    )


def finite_or_infinite(best: float) -> float:
    """Return a largest entry as a number: 0 if nothing is possible, ∞ if it stands for ∞."""
    return math.inf if best >= BIG / 2 else max(best, 0.0)


def rounded_up(value: float, error: float) -> float:
    """Return a double that is no less than the true value, given a bound on the error."""
    return value + error if error == 0 or value == math.inf else math.nextafter(value + error, math.inf)
