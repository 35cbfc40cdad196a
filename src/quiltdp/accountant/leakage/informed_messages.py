"""The messages of the informed clique tree at one α: many of them side by side.

A message is the largest of what its choices are worth (:mod:`.informed_tree`).  Messages that do not read
each other, and the last steps of all units, are computed together: first every choice that knows no record
of the clique, then those that know one, two, …; a choice that cannot raise its message is left out.

*Assumes*: the theorem of :mod:`.informed_tree`.  *Cost*: as there, in few calls.  *Reference*:
docs/theory.md, section 15.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.leakage.informed_tasks import Cell, Task
from quiltdp.accountant.leakage.known_budgets import SharedMessages
from quiltdp.accountant.leakage.summing_many import distances_of_many
from quiltdp.inference.cliques import View
from quiltdp.inference.interaction import two_point
from quiltdp.numbers import EPS, up, up_array

__all__ = ["MessageRequest", "leakages_of_many", "messages_of_many"]

Array = NDArray[np.float64]
Key = tuple[int, int]
_ROUNDINGS = 1e-12  # more than sums of messages in another order differ
_PAIRS = 1 << 16  # two-point problems handled at once
_DISTANCES = 16  # distances between clique states kept for choices that share them
_STATES = 1 << 18  # distances between states, of all choices that are looked at together


@dataclass(frozen=True, eq=False)
class _Choice:
    """One choice of one message: distances between states, and what it may raise."""

    task: Task
    cell: Cell
    d: Array
    found: Array


@dataclass(frozen=True, eq=False)
class MessageRequest:
    """What messages are made of at one α, and what they are made with.

    Attributes
    ----------
    cells
        The choices of every task.
    of
        α of every node.
    messages
        Those of the branches.
    most
        How many records may be known; ``None``: any number.
    tilts
        C of a choice.
    check
        Called now and then; it may stop the work.
    """

    cells: Mapping[Task, Sequence[Cell]]
    of: Mapping[str, float]
    messages: Mapping[Key, list[Array]]
    most: int | None
    tilts: Callable[[Task, Cell], Array]
    check: Callable[[], None]


class _Message:
    """One message in the making: for every budget of known records, what the choices so far are worth."""

    def __init__(self, task: Task, of: Mapping[str, float], budgets: SharedMessages) -> None:
        view = task.view
        self._task = task
        self._budgets = budgets
        rest = [n for n in view.clique.nodes if n not in view.top]
        base = _differing_cost(view, rest, of)
        self._ulps = 8.0 + len(rest) + 4.0 * len(view.branches)
        # differences of messages carry their rounding
        self._base = base + (base + self._budgets.none) * (self._ulps * EPS)
        never = np.diag(np.full(view.count, np.inf))  # z = z' is no question
        self.found = [never.copy() for _ in range(self._budgets.levels + 1)]
        if task.level == "coarse":
            for b in range(1, self._budgets.levels + 1):
                d = up_array(self._base + self._budgets.anything(b), self._ulps)
                self.found[b] = _largest_by_top(view, d)
        self._made: dict[tuple[object, ...], Array] = {}

    def choices(self, cells: Sequence[Cell]) -> list[_Choice]:
        """Return what may raise the message."""
        due = []
        for cell in cells:
            for b in self._budgets.of(cell.choice):
                if self._is_hopeless(b):
                    continue
                d = self._distances(cell, b)
                if self._is_sure(cell) or (cell.ceiling(d) > self.found[b]).any():
                    due.append(_Choice(self._task, cell, d, self.found[b]))
        return due

    def _is_hopeless(self, b: int) -> bool:
        """Return whether it is known that no choice raises the message: never of a message that is read."""
        return False

    def _is_sure(self, cell: Cell) -> bool:
        """Return whether a choice is looked at without asking: nothing known raises a message from 0."""
        return not cell.choice.known

    def _distances(self, cell: Cell, b: int) -> Array:
        key = self._budgets.reads(cell.choice, b)
        if key not in self._made:
            if len(self._made) >= _DISTANCES:
                self._made.clear()
            total = self._base + self._budgets.distance(cell.choice, b)
            self._made[key] = up_array(np.maximum(total, 0.0), self._ulps)
        return self._made[key]

    def levelled(self) -> None:
        """Note after every round what need not be exceeded any more: nothing, for a message."""

    def finished(self) -> list[Array]:
        """Return m with nothing known, and with 1, …, k records known (or with some known)."""
        self.levelled()
        for b in range(2, self._budgets.levels + 1):
            np.maximum(self.found[b], self.found[b - 1], out=self.found[b])
        for m in self.found:
            np.fill_diagonal(m, 0.0)
        return self.found


class _LastStep(_Message):
    """The last step at a clique that holds a unit: only its largest value counts, if above a floor."""

    def __init__(self, task: Task, of: Mapping[str, float], budgets: SharedMessages, floor: float) -> None:
        super().__init__(task, of, budgets)
        self._own = _differing_cost(task.view, task.view.top, of, by_top=True)
        self._floor = floor
        self._off = ~np.eye(task.view.count, dtype=bool)
        self._most: dict[int, Array] = {}
        self.levelled()

    def _is_hopeless(self, b: int) -> bool:
        """Return whether even evidence in every branch would not exceed what need not be told."""
        if b not in self._most:
            d = up_array(self._base + self._budgets.anything(b), self._ulps)
            self._most[b] = _largest_by_top(self._task.view, d) * (1.0 + _ROUNDINGS)
        return not (self._most[b] > self.found[b]).any()

    def _is_sure(self, cell: Cell) -> bool:
        """Ask of every choice: what another pair of values or the floor costs may be more."""
        return False

    def levelled(self) -> None:
        """What another pair of values, or the floor, costs altogether need not be told of any pair."""
        level = max(self._floor, *(float((self._own + m)[self._off].max()) for m in self.found))
        for m in self.found:
            np.maximum(m, level - self._own, out=m)

    def leakage(self) -> float:
        """Return max over pairs of values of what the pair costs itself plus its message."""
        total = self._own + np.maximum.reduce(self.finished())
        return up(float(total[self._off].max()), 8.0 + len(self._task.view.top))


def messages_of_many(tasks: Sequence[Task], asked: MessageRequest) -> list[list[Array]]:
    """Return for every task m with nothing known, and with 1, …, k records known (or with some known)."""
    made = _made(tasks, asked, lambda task, budgets: _Message(task, asked.of, budgets))
    return [message.finished() for message in made]


def leakages_of_many(tasks: Sequence[Task], asked: MessageRequest, floor: float) -> list[float]:
    """Return the leakages of units at cliques, seen from the units; below ``floor`` they count as that."""
    made = _made(tasks, asked, lambda task, budgets: _LastStep(task, asked.of, budgets, floor))
    return [step.leakage() for step in made]


_Made = TypeVar("_Made", bound=_Message)


def _made(
    tasks: Sequence[Task], asked: MessageRequest, make: Callable[[Task, SharedMessages], _Made]
) -> Iterator[_Made]:
    """Yield the messages of the tasks, raised to what their choices are worth."""
    for some in _in_blocks(tasks):
        shared: dict[tuple[Key, ...], SharedMessages] = {}
        made = []
        for task in some:
            read = tuple(b.key for b in task.view.branches)
            if read not in shared or not read:  # equal branches belong to equal cliques
                shared[read] = SharedMessages(task.view, asked.messages, asked.most)
            made.append(make(task, shared[read]))
        by_known: dict[int, list[tuple[_Made, Cell]]] = {}
        for message, task in zip(made, some, strict=True):
            for cell in asked.cells[task]:
                by_known.setdefault(len(cell.choice.known), []).append((message, cell))
        for known in sorted(by_known):
            asked.check()
            _raise([c for message, cell in by_known[known] for c in message.choices([cell])], asked.tilts)
            for message in made:
                message.levelled()
        yield from made


def _in_blocks(tasks: Sequence[Task]) -> list[list[Task]]:
    """Return the tasks in their order, as many at once as may be held."""
    blocks: list[list[Task]] = []
    room = 0
    for task in tasks:
        size = len(task.view.clique.states) ** 2
        if not blocks or size > room:
            blocks.append([])
            room = _STATES
        blocks[-1].append(task)
        room -= size
    return blocks


def _raise(choices: Sequence[_Choice], tilts: Callable[[Task, Cell], Array]) -> None:
    """Raise every message to what its choices are worth, for every pair (z, z')."""
    sums = distances_of_many([(c.cell.summing, c.d) for c in choices])
    waiting: list[tuple[Array, tuple[NDArray[np.intp], ...], list[Array]]] = []
    room = _PAIRS
    for choice, values in zip(choices, sums, strict=True):
        found = choice.found
        mu, most = choice.cell.raised(values, found)
        width = mu.shape[-1]
        if width < 2:
            continue
        k, z, y = np.nonzero(most > found)
        if not len(z):
            continue
        waiting.append((found, (z, y), _pairs(mu, tilts(choice.task, choice.cell), k, z, y)))
        room -= len(z) * width * (width - 1) // 2
        if room < 0:
            _settle(waiting)
            waiting, room = [], _PAIRS
    _settle(waiting)


def _pairs(
    mu: Array, tilts: Array, k: NDArray[np.intp], z: NDArray[np.intp], y: NDArray[np.intp]
) -> list[Array]:
    """Return the arguments of the two-point maximum for all pairs of values of u."""
    u, w = _upper(mu.shape[-1])
    there, here, tilt = mu[k, z, y], mu[k, y, y], tilts[k, z, y]
    return [
        there[:, u, u],
        there[:, w, w],
        there[:, u, w],
        there[:, w, u],
        tilt[:, u, w],
        tilt[:, w, u],
        here[:, u, w],  # ln G'(u)/G'(u') at z'
        here[:, w, u],
    ]


def _settle(waiting: Sequence[tuple[Array, tuple[NDArray[np.intp], ...], list[Array]]]) -> None:
    """Put in what the pairs are worth."""
    if not waiting:
        return
    # a pair is worth no more than its corners, and those of one point are in already
    crossed = [
        np.flatnonzero(np.maximum(given[2], given[3]) > found[places][:, None])
        for found, places, given in waiting
    ]
    stacked = [
        np.concatenate([given[a].take(kept) for (_, _, given), kept in zip(waiting, crossed, strict=True)])
        for a in range(8)
    ]
    value = two_point(*((stacked[a], stacked[a + 1]) for a in (0, 2, 4, 6)))
    ends = np.cumsum([len(kept) for kept in crossed]).tolist()
    for (found, places, given), kept, end, start in zip(waiting, crossed, ends, [0, *ends], strict=False):
        worth = np.full(given[0].shape, -np.inf)
        worth.put(kept, value[start:end])
        np.maximum.at(found, places, worth.max(axis=1))


@lru_cache(maxsize=256)
def _upper(width: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return all pairs u < w."""
    return np.triu_indices(width, 1)


def _differing_cost(
    view: View, nodes: Sequence[str], of: Mapping[str, float], *, by_top: bool = False
) -> Array:
    """Return Σ α over ``nodes`` of 1[differ], for pairs of states of the clique, or of the top."""
    states = view.clique.states
    if by_top:
        first = np.zeros(view.count, dtype=np.int64)
        first[view.label[::-1]] = np.arange(len(states))[::-1]
        states = states[first]
    total = np.zeros((len(states), len(states)))
    for k, n in enumerate(view.clique.nodes):
        if n in nodes and of[n] > 0:
            total += of[n] * (states[:, None, k] != states[None, :, k])
    return total


def _largest_by_top(view: View, d: Array) -> Array:
    """Return max of d over the states of every pair of values of the top."""
    order = np.argsort(view.label, kind="stable")
    starts = np.searchsorted(view.label[order], np.arange(view.count))
    rows = np.maximum.reduceat(d[order], starts, axis=0)
    return np.asarray(np.maximum.reduceat(rows[:, order], starts, axis=1))
