"""The best-first search of the exact limit: which adversary learns most about one unit.

Every adversary starts with a cheap ceiling.  The one with the highest ceiling gets a sharper one, or is
settled (proved from above, attained from below), until no ceiling exceeds what is proved already.

*Assumes*: ceilings that are sound, and programs that are proved from above.  *Cost*: a heap of all
adversaries; as many programs as it takes, at most those of the work budget.  *Reference*: docs/theory.md,
section 9.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.bounds import Vector
from quiltdp.accountant.leakage.adversaries import PairStack, PairTable
from quiltdp.accountant.leakage.worst_gains import in_closed_form, is_quick, staged_ceiling, worst_gains
from quiltdp.accountant.trade_offs import ADVERSARIES_AT_ONCE, CEILINGS_AT_ONCE
from quiltdp.work import Guard

__all__ = ["FROM_ABOVE", "UnitBracket", "UnitSearch"]

FROM_ABOVE = "limit-bound"
"""The name of what the search for the limit proved, where it is not attained."""

_EXACT = 1e-7  # how far (relatively) proved and attained may be apart in what is called exact

Entry = tuple[float, int, int]
"""Minus the ceiling of an adversary, its row, and the group in which only the largest counts."""
Rows = NDArray[np.intp]
_NOBODY = (math.inf, 0, 0)
_LISTED = 512  # of those who wait, as a list


@dataclass(frozen=True)
class UnitBracket:
    """The largest leakage of one unit: proved, attained, who attains it, and whether all were looked at."""

    above: float
    below: float
    witness: tuple[PairTable, int] | None = None
    complete: bool = True

    @property
    def exact(self) -> bool:
        """Whether proved and attained meet."""
        return self.complete and self.above - self.below <= _EXACT * max(1.0, self.above)


class UnitSearch:
    """The search at one α, for one unit or for several.

    Parameters
    ----------
    stack
        The pairs of laws of every adversary.
    own
        Per row of all its tables, what the two values of the unit cost themselves.
    alpha
        α of every record.
    programs
        How many transports and linear programs may be solved in one run.
    guard
        Looked at between batches.
    above
        Ceilings of all rows at some α that are no smaller: nobody learns more here.

    Attributes
    ----------
    ceilings
        What is known of every row, its own cost included; it becomes sharper as the search goes on.
    """

    def __init__(
        self,
        stack: PairStack,
        own: Vector,
        alpha: Vector,
        programs: int,
        guard: Guard,
        above: Sequence[Vector] = (),
    ) -> None:
        self._stack, self._own, self._most_programs, self._guard = stack, own, programs, guard
        self.ceilings = own + stack.ceilings(alpha)
        for known in above:
            self.ceilings = np.minimum(self.ceilings, known)
        kinds: dict[tuple[object, ...], int] = {}
        self._kinds: list[tuple[tuple[int, ...], Vector]] = []
        alphas, kind = alpha.tolist(), []
        for table in stack.tables:
            mine = [alphas[j] for j in table.unknown]
            kind.append(kinds.setdefault((table.sizes, *mine), len(kinds)))
            if kind[-1] == len(self._kinds):
                self._kinds.append((table.sizes, np.array(mine)))
        self._kind = np.repeat(np.array(kind, dtype=np.intp), np.diff(stack.offsets))
        self._attained = np.full(len(own), -1.0)  # what is attained against a row, once that is settled

    def run(self, least: float, rows: Rows | None = None) -> UnitBracket:
        """Return the largest leakage, or ``least`` if that is larger; 0 if there is nothing to tell apart.

        ``rows`` are the adversaries that count (default: all).  Who was settled before stays so.
        """
        rows = np.arange(len(self.ceilings)) if rows is None else rows
        if not len(rows):
            return UnitBracket(0.0, 0.0)
        left = self.settle(least, [rows])
        done = rows[self._attained[rows] >= 0.0]
        if not len(done):
            return UnitBracket(max(left, least), 0.0, None, left <= least)
        best = int(done[self.ceilings[done].argmax()])
        above = max(least, float(self.ceilings[best]))
        below = float(self._attained[done].max())
        return UnitBracket(max(left, above), below, self._who(best), left <= above)

    def settle(self, least: float, groups: Sequence[Rows]) -> float:
        """Settle adversaries until nobody's ceiling exceeds ``least`` and what was proved in his group.

        Return the highest ceiling that is left where the budget is spent; otherwise −∞.
        """
        rows = np.concatenate(groups)
        group = np.repeat(np.arange(len(groups)), [len(some) for some in groups])
        self._programs = self._most_programs
        settled = self._attained[rows] >= 0.0
        proved = np.where(settled, self.ceilings[rows], least)
        self._floor = [max(least, float(proved[group == g].max(initial=least))) for g in range(len(groups))]
        due = (self.ceilings[rows] > np.array(self._floor)[group]) & ~settled
        rows, group = rows[due], group[due]
        order = np.argsort(-self.ceilings[rows], kind="stable")  # the highest ceiling first
        self._waiting = (rows[order], group[order])
        self._queue: list[Entry] = []
        self._sharper: list[Entry] = []
        while (top := self._top()) > -math.inf:
            self._guard.check()
            for (kind, sharp), batch in self._batches().items():
                some = _Rows(self._stack, self._own, self.ceilings, *self._kinds[kind], batch)
                if not sharp and not is_quick(some.sizes, some.alphas):
                    self._sharpen(some)
                elif not self._solve(some):
                    return top
        return -math.inf

    def _who(self, row: int) -> tuple[PairTable, int]:
        """Return the table of a row, and its place there."""
        table = int(np.searchsorted(self._stack.offsets, row, side="right")) - 1
        return self._stack.tables[table], row - int(self._stack.offsets[table])

    def _top(self) -> float:
        """Return the highest ceiling of who counts and is not settled; the others are left out."""
        while self._next() and -self._queue[-1][0] <= self._floor[self._queue[-1][2]]:
            self._queue.pop()
        while self._sharper and -self._sharper[0][0] <= self._floor[self._sharper[0][2]]:
            heappop(self._sharper)
        first = -self._queue[-1][0] if self._queue else -math.inf
        return max(first, -self._sharper[0][0]) if self._sharper else first

    def _next(self) -> bool:
        """Return whether anybody waits; the next of them are at the end of the queue."""
        if not self._queue and len(self._waiting[0]):
            rows, group = (a[:_LISTED] for a in self._waiting)
            self._waiting = (self._waiting[0][_LISTED:], self._waiting[1][_LISTED:])
            entries = zip((-self.ceilings[rows]).tolist(), rows.tolist(), group.tolist(), strict=True)
            self._queue.extend(reversed(list(entries)))
        return bool(self._queue)

    def _batches(self) -> dict[tuple[int, bool], list[Entry]]:
        """Take the highest ceilings: one that needs a program alone, others together, by shape and α."""
        found: dict[tuple[int, bool], list[Entry]] = {}
        queue, floor = self._queue, self._floor
        barred = self._sharper[0] if self._sharper else _NOBODY
        count = 0
        while count < ADVERSARIES_AT_ONCE and self._next() and queue[-1] < barred:
            entry = queue.pop()
            if -entry[0] > floor[entry[2]]:
                found.setdefault((int(self._kind[entry[1]]), False), []).append(entry)
                count += 1
        if not count:
            entry = heappop(self._sharper)
            found[int(self._kind[entry[1]]), True] = [entry]
        return found

    def _sharpen(self, rows: _Rows) -> None:
        """Put adversaries back with the ceilings of revealing one unknown record at a time."""
        some = max(1, CEILINGS_AT_ONCE // rows.p.shape[1] ** 2)
        found = []
        for s in range(0, len(rows.p), some):
            self._guard.check()
            part = slice(s, s + some)
            found.append(staged_ceiling(rows.p[part], rows.q[part], rows.sizes, rows.alphas))
        sharper = rows.own + np.concatenate(found)
        sharper = np.minimum(sharper, rows.ceilings)
        self.ceilings[rows.places] = sharper
        for c, (_, row, group) in zip(sharper.tolist(), rows.entries, strict=True):
            heappush(self._sharper, (-c, row, group))

    def _solve(self, rows: _Rows) -> bool:
        """Settle adversaries of one kind; return whether the budget allowed it."""
        self._programs -= 0 if in_closed_form(rows.sizes, rows.alphas) else len(rows.entries)
        if self._programs < 0:
            return False
        proved, attained = worst_gains(rows.p, rows.q, rows.sizes, rows.alphas)
        value = np.minimum(rows.own + proved, rows.ceilings)
        self.ceilings[rows.places] = value
        self._attained[rows.places] = rows.own + attained
        for c, (_, _, group) in zip(value.tolist(), rows.entries, strict=True):
            self._floor[group] = max(self._floor[group], c)
        return True


class _Rows:
    """Adversaries of one kind (equal shapes, equal α of what is unknown), from any tables."""

    def __init__(
        self,
        stack: PairStack,
        own: Vector,
        ceilings: Vector,
        sizes: tuple[int, ...],
        alphas: Vector,
        entries: Sequence[Entry],
    ) -> None:
        self.entries, self.sizes, self.alphas = entries, sizes, alphas
        self.places = np.array([row for _, row, _ in entries])
        self.p, self.q = stack.laws(self.places)
        self.own, self.ceilings = own[self.places], ceilings[self.places]
