"""Pairs of values of the targets: the first axis of every table of moves.

A move ln φ(x, ·) − ln φ(x', ·) is asked for every x ≠ x'.  With k joint states of the targets the axis of
*ordered pairs* has k (k − 1) entries: first the pairs x < x', then the same pairs the other way round.
So the two halves added are "both ways", which the swing is a maximum of.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from quiltdp.inference.odds import BIG
from quiltdp.model import Table

__all__ = [
    "PairMoves",
    "PairOdds",
    "at_known",
    "both_ways",
    "largest_moves",
    "ordered_pairs",
    "unordered_pairs",
]

_Indices: TypeAlias = NDArray[np.intp]

_NOTHING = 1e-230  # stands in for an impossible denominator: any ratio with it is beyond e^_INFINITE
_INFINITE = 345.0
_ONE_PASS = 2**16  # entries up to which all pairs x, x' are divided in one go


class PairMoves(NamedTuple):
    """M(x, x', l): the axis of ordered pairs, then one axis per record; and a bound on its error."""

    array: Table
    error: float


class PairOdds(NamedTuple):
    """ln P(x, l) − ln P(x', l): the axis of ordered pairs, then one (extended) axis per record."""

    array: Table
    finite: bool

    def given(self, known: Collection[str], records: Sequence[str]) -> PairOdds:
        """Return the odds with one known set, from those with every set of ``records``."""
        return PairOdds(self.array[at_known(known, records)], self.finite)

    def taken_off(self, moves: Table) -> Table:
        """Return M(x, x', l) − ln P(x, l) + ln P(x', l), −∞ where x or x' is impossible with l."""
        if self.finite:
            return np.asarray(moves - self.array)
        possible = np.isfinite(self.array)
        return np.where(possible, moves - np.where(possible, self.array, 0.0), -np.inf)


@lru_cache(maxsize=64)
def unordered_pairs(states: int) -> tuple[_Indices, _Indices]:
    """Return the first and the second value of the pairs x < x'."""
    first, second = np.triu_indices(states, k=1)
    return first, second


@lru_cache(maxsize=64)
def ordered_pairs(states: int) -> tuple[_Indices, _Indices]:
    """Return x and x' of the pairs x < x', then of the same pairs the other way round.

    Examples
    --------
    >>> from quiltdp.inference.pairs import ordered_pairs
    >>> [k.tolist() for k in ordered_pairs(3)]
    [[0, 0, 1, 1, 2, 2], [1, 2, 2, 0, 0, 1]]
    """
    first, second = unordered_pairs(states)
    return np.concatenate([first, second]), np.concatenate([second, first])


def at_known(known: Collection[str], records: Sequence[str]) -> tuple[slice | int, ...]:
    """Return the index of one known set: the axis of pairs, then the extended axes of the records."""
    return (slice(None), *[slice(-1) if n in known else -1 for n in records])


def both_ways(moves: Table) -> Table:
    """Return M(x, x', ·) + M(x', x, ·) for the pairs x < x'."""
    half = len(moves) // 2
    return np.asarray(moves[:half] + moves[half:])


def largest_moves(law: Table, *, zeros: bool) -> Table:
    """Return ln max p(x, ·) / p(x', ·) along the last axis, for every ordered pair of the first one.

    The entries must lie between e^-120 and e^120.  With ``zeros`` some may be 0: the move is −∞ where x
    is impossible along the whole axis, ``BIG`` for p/0, and 0/0 is skipped.
    """
    if zeros:
        return _largest_moves_with_zeros(law)
    if len(law) == 2:
        ratio = law[:1] / law[1:]
    elif law.size * len(law) <= _ONE_PASS:
        first, second = unordered_pairs(len(law))
        ratio = law.take(first, axis=0) / law.take(second, axis=0)
    else:
        return _pair_by_pair(law, law)
    if ratio.shape[-1] == 1:
        up = np.log(ratio[..., 0])
        return np.concatenate((up, -up))
    up, down = np.maximum.reduce(ratio, axis=-1), np.minimum.reduce(ratio, axis=-1)
    return np.concatenate((np.log(up), -np.log(down)))


def _largest_moves_with_zeros(law: Table) -> Table:
    below = np.maximum(law, _NOTHING)
    if law.size * len(law) <= _ONE_PASS:
        first, second = ordered_pairs(len(law))
        largest = np.maximum.reduce(law.take(first, axis=0) / below.take(second, axis=0), axis=-1)
        with np.errstate(divide="ignore"):
            moves = np.log(largest)
    else:
        moves = _pair_by_pair(law, below)
    moves[moves > _INFINITE] = BIG
    return np.asarray(moves)


def _pair_by_pair(law: Table, below: Table) -> Table:
    """Return the largest moves one pair at a time, where all at once is too much for the cache."""
    pairs = zip(*(k.tolist() for k in ordered_pairs(len(law))), strict=True)
    largest = [np.maximum.reduce(law[x] / below[y], axis=-1) for x, y in pairs]
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.stack(largest)))
