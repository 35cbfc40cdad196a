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
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.leakage.informed_tasks import Cell, Task
from quiltdp.accountant.leakage.known_budgets import SharedMessages
from quiltdp.accountant.leakage.summing_many import distances_of_many
from quiltdp.inference.cliques import View
from quiltdp.inference.two_point import PointPairs, raise_to_pairs
from quiltdp.numbers import EPS, up, up_array

__all__ = ["MessageRequest", "leakages_of_many", "messages_of_many"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
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
        self._farthest: dict[int, Array] = {}
        self._hopeless: dict[int, list[frozenset[str]]] = {}

    def choices(self, cells: Sequence[Cell]) -> list[_Choice]:
        """Return what may raise the message."""
        due = []
        for cell in cells:
            for b in self._budgets.of(cell.choice):
                sure = self._is_sure(cell)
                if not sure and self._is_hopeless(cell, b):
                    continue
                d = self._distances(cell, b)
                if sure or (cell.ceiling(d) > self.found[b]).any():
                    due.append(_Choice(self._task, cell, d, self.found[b]))
        return due

    def _is_sure(self, cell: Cell) -> bool:
        """Return whether a choice is looked at without asking: nothing known raises a message from 0."""
        return not cell.choice.known

    def _is_hopeless(self, cell: Cell, b: int) -> bool:
        """Return whether even evidence in every branch would not raise the message beside what is known.

        Fewer pairs of states agree on more known records, and messages only rise: what is hopeless with some
        records known stays so with more.
        """
        known, hopeless = frozenset(cell.choice.known), self._hopeless.setdefault(b, [])
        if any(fewer <= known for fewer in hopeless):
            return True
        if b not in self._farthest:
            d = up_array(self._base + self._budgets.anything(b), self._ulps)
            self._farthest[b] = d * (1.0 + _ROUNDINGS)
        if (cell.ceiling(self._farthest[b]) > self.found[b]).any():
            return False
        hopeless.append(known)
        return True

    def _distances(self, cell: Cell, b: int) -> Array:
        key = self._budgets.reads(cell.choice, b)
        if key not in self._made:
            if len(self._made) >= _DISTANCES:
                self._made.clear()
            total = self._base + self._budgets.distance(cell.choice, b)
            np.maximum(total, 0.0, out=total)
            total += total * (self._ulps * EPS)  # rounded up, as ``up_array`` does
            self._made[key] = total
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
        self.levelled()

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
    waiting: list[tuple[_Choice, Array, Ints]] = []
    room = _PAIRS
    for choice, values in zip(choices, sums, strict=True):
        mu, most = choice.cell.raised(values, choice.found)
        width = mu.shape[-1]
        at = np.flatnonzero(most > choice.found)
        if width > 1 and len(at):
            waiting.append((choice, mu, at))
            room -= len(at) * width * (width - 1) // 2
        if room < 0:
            _settle(waiting, tilts)
            waiting, room = [], _PAIRS
    _settle(waiting, tilts)


def _settle(waiting: Sequence[tuple[_Choice, Array, Ints]], tilts: Callable[[Task, Cell], Array]) -> None:
    """Put in what pairs of values of u are worth, in the places (known, z, z') that may be raised."""
    if not waiting:
        return
    messages = list({id(choice.found): choice.found for choice, _, _ in waiting}.values())
    starts = dict(zip(map(id, messages), np.cumsum([0, *(m.size for m in messages)]).tolist(), strict=False))
    rows = []
    for choice, mu, at in waiting:
        tops = len(choice.found)
        cell = at % tops**2
        here = at - cell + cell % tops * (tops + 1)  # G' at z': the range of t
        tilt = tilts(choice.task, choice.cell)
        rows.append(PointPairs(mu, at, tilt, at, mu, here, starts[id(choice.found)] + cell))
    worth = np.concatenate([m.ravel() for m in messages])
    raise_to_pairs(worth, rows)
    for message in messages:
        start = starts[id(message)]
        message[...] = worth[start : start + message.size].reshape(message.shape)


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
