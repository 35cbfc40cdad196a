"""The order in which a clique's possible states are read, without their probabilities.

A clique is read from some start, one new node after the other (:mod:`.coupling_tree`).  Which states share
what has been read so far, which values come next and where they lead depends on the list of possible
states alone.  Cliques of one list (two parents and a child, at any allele frequency, in any family) are
read alike, so the last readings of short lists are remembered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quiltdp.inference.plan import READINGS_KEPT, SHORT_LIST
from quiltdp.model import Table

__all__ = ["Ints", "Level", "Move", "Reading", "read_states"]

Ints = NDArray[np.int64]


class Level:
    """The possible states of the first columns of sorted states, numbered in order."""

    def __init__(self, code: Ints) -> None:
        fresh = np.ones(len(code), dtype=bool)
        fresh[1:] = code[1:] != code[:-1]
        self.first = np.flatnonzero(fresh)
        self.count = len(self.first)
        self.label = np.cumsum(fresh) - 1
        self.first.flags.writeable = self.label.flags.writeable = False
        self.all = self.count == len(code)

    def log_p(self, log_p: Table) -> Table:
        """Return ln P of these states from that of the sorted ones."""
        if self.all:
            return log_p
        top = np.maximum.reduceat(log_p, self.first)
        return np.asarray(np.log(np.add.reduceat(np.exp(log_p - top[self.label]), self.first)) + top)

    def most_within(self, before: Level) -> int:
        """Return how many of these states one state of an earlier level has at most."""
        return int(np.bincount(before.label[self.first]).max())


@dataclass(frozen=True, eq=False)
class Move:
    """From one level to a later one: the columns read, and for every state of the earlier one its slots.

    ``origin`` and ``slot`` say, for every later state, where it comes from and in which slot; ``after``,
    ``value`` (slots × earlier states) and ``values`` are those of :class:`~.coupling_tree.Step`.
    """

    columns: tuple[int, int]
    before: Level
    later: Level
    origin: Ints
    slot: Ints
    after: Ints
    value: Ints
    values: Ints

    @property
    def work(self) -> int:
        """The pairs weighted by the time one takes: that of nodes with four values counts as one."""
        return self.before.count**2 * (8 + len(self.after) ** 3) // 72 + 1


@dataclass(frozen=True, eq=False)
class Reading:
    """How a list of states is read.

    Attributes
    ----------
    sorting, states
        The order of the states, and the states in it, columns as they are read.
    start
        The level of what is known at the beginning.
    moves
        From there to the whole states.
    shown
        For some sets of columns: which of their values each state shows, numbered in order.
    signature
        Equal for equal readings.
    """

    sorting: NDArray[Any]
    states: Ints
    start: Level
    moves: tuple[Move, ...]
    shown: tuple[Ints, ...]
    signature: bytes

    @property
    def work(self) -> int:
        """The work of all moves."""
        return sum(m.work for m in self.moves)


def read_states(
    states: Ints,
    columns: Sequence[int],
    sizes: Sequence[int],
    known: int,
    together: int,
    shown: Sequence[Sequence[int]],
) -> Reading:
    """Return how a list of states is read.

    Parameters
    ----------
    states
        One row each.
    columns, sizes
        The columns in the order they are read, and how many values each has; ``known`` of them come first.
    together
        Columns are read together while they have at most so many values.
    shown
        Places in ``columns`` of some sets of columns.

    Examples
    --------
    >>> found = read_states(np.array([[0, 0], [0, 1], [1, 1]]), [1, 0], [2, 2], 1, 1, [[1]])
    >>> found.states.tolist(), found.moves[0].after.tolist(), found.shown[0].tolist()
    ([[0, 0], [1, 0], [1, 1]], [[0, 1], [0, 2]], [0, 0, 1])
    """
    how = (tuple(columns), tuple(sizes), known, together, tuple(map(tuple, shown)))
    if states.size > SHORT_LIST:
        return _read(states, *how)
    return _remembered(states.tobytes(), states.shape, *how)


@lru_cache(maxsize=READINGS_KEPT)
def _remembered(content: bytes, shape: tuple[int, ...], *how: Any) -> Reading:
    return _read(np.frombuffer(content, dtype=np.int64).reshape(shape), *how)


def _read(
    states: Ints,
    columns: tuple[int, ...],
    sizes: tuple[int, ...],
    known: int,
    together: int,
    shown: tuple[tuple[int, ...], ...],
) -> Reading:
    code = _codes(states, columns, sizes)
    sorting = np.argsort(code, kind="stable")
    states, code = states[sorting][:, list(columns)], code[sorting]
    later = [math.prod(sizes[k:]) for k in range(len(sizes) + 1)]
    start = level = Level(code // later[known])
    moves: list[Move] = []
    while known < len(columns):
        to, after = known + 1, Level(code // later[known + 1])
        while to < len(columns) and together > 1:
            more = Level(code // later[to + 1])
            if more.most_within(level) > together:
                break
            to, after = to + 1, more
        moves.append(_move(states, sizes, (known, to), level, after))
        known, level = to, after
    states.flags.writeable = False
    labels = tuple(_labels(states, places, sizes) for places in shown)
    digest = blake2b(np.array([start.count, len(moves)]).tobytes(), digest_size=16)
    for part in (*(a for m in moves for a in (m.after, m.value, m.values)), *labels):
        part.flags.writeable = False  # many share it
        digest.update(repr(part.shape).encode() + part.tobytes())
    return Reading(sorting, states, start, tuple(moves), labels, digest.digest())


def _move(states: Ints, sizes: Sequence[int], span: tuple[int, int], before: Level, later: Level) -> Move:
    """Return the move from one level of the sorted states to a later one."""
    origin = before.label[later.first]
    starts = np.flatnonzero(np.diff(origin, prepend=-1))
    slot = np.arange(later.count) - np.repeat(starts, np.diff(starts, append=later.count))
    new = states[later.first, span[0] : span[1]]
    distinct = _codes(new, range(new.shape[1]), sizes[span[0] : span[1]])
    _, one, which = np.unique(distinct, return_index=True, return_inverse=True)
    shape = (int(slot.max()) + 1, before.count)
    reached, value = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.int64)
    reached[:], value[:] = starts, which.ravel()[starts]
    reached[slot, origin], value[slot, origin] = np.arange(later.count), which.ravel()
    return Move(span, before, later, origin, slot, reached, value, new[one])


def _labels(states: Ints, places: Sequence[int], sizes: Sequence[int]) -> Ints:
    """Number the values that the states show in some places, in order."""
    code = _codes(states, places, [sizes[k] for k in places])
    return np.asarray(np.unique(code, return_inverse=True)[1].ravel(), dtype=np.int64)


def _codes(states: Ints, columns: Sequence[int], sizes: Sequence[int]) -> Ints:
    """Return one number per state, in the order of the columns: the last one counts fastest."""
    code = np.zeros(len(states), dtype=np.int64)
    for column, size in zip(columns, sizes, strict=True):
        code = code * size + states[:, column]
    return code
