"""The best-first search of the exact limit: which adversary learns most about one unit.

Every adversary starts with a cheap ceiling.  The one with the highest ceiling gets a sharper one, or is
settled (proved from above, attained from below), until no ceiling exceeds what is proved already.

*Assumes*: ceilings that are sound, and programs that are proved from above.  *Cost*: a heap of all
adversaries; as many programs as it takes, at most those of the work budget.  *Reference*: docs/theory.md,
section 9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from quiltdp.accountant.bounds import Vector
from quiltdp.accountant.leakage.adversaries import PairStack, PairTable
from quiltdp.accountant.leakage.worst_gains import in_closed_form, is_quick, staged_ceiling, worst_gains
from quiltdp.accountant.trade_offs import ADVERSARIES_AT_ONCE
from quiltdp.work import Guard

__all__ = ["FROM_ABOVE", "UnitBracket", "UnitSearch"]

FROM_ABOVE = "limit-bound"
"""The name of what the search for the limit proved, where it is not attained."""

_EXACT = 1e-7  # how far (relatively) proved and attained may be apart in what is called exact

Entry = tuple[float, int, int, bool]
"""Minus the ceiling of an adversary, its table and row, and whether that ceiling is the sharper one."""


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
    """The search for one unit at one α.

    Parameters
    ----------
    stack
        The pairs of laws of every adversary.
    own
        Per row of all its tables, what the two values of the unit cost themselves.
    alpha
        α of every record.
    programs
        How many transports and linear programs may be solved.
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
        self._stack, self._tables = stack, stack.tables
        self.ceilings = own + stack.ceilings(alpha)
        for known in above:
            self.ceilings = np.minimum(self.ceilings, known)
        self._own = np.split(own, stack.offsets[1:-1])
        self._alphas = [alpha[list(table.unknown)] for table in stack.tables]
        kinds: dict[tuple[object, ...], int] = {}
        self._kind = [
            kinds.setdefault((table.sizes, mine.tobytes()), len(kinds))
            for table, mine in zip(stack.tables, self._alphas, strict=True)
        ]
        self._programs, self._guard = programs, guard
        self._above, self._below = 0.0, 0.0
        self._witness: tuple[PairTable, int] | None = None

    def run(self, least: float) -> UnitBracket:
        """Return the largest leakage, or ``least`` if that is larger; 0 if there is nothing to tell apart."""
        if not len(self.ceilings):
            return UnitBracket(0.0, 0.0)
        chosen = np.flatnonzero(self.ceilings > least)
        tables = np.searchsorted(self._stack.offsets, chosen, side="right") - 1
        rows = chosen - self._stack.offsets[tables]
        self._queue: list[Entry] = [
            (-c, t, r, False)
            for c, t, r in zip(self.ceilings[chosen].tolist(), tables.tolist(), rows.tolist(), strict=True)
        ]
        heapify(self._queue)
        while self._queue and -self._queue[0][0] > max(self._above, least):
            self._guard.check()
            top = -self._queue[0][0]
            for (_, sharp), entries in self._batches(max(self._above, least)).items():
                batch = _Rows(self._tables, self._own, self._alphas, entries)
                if not sharp and not is_quick(batch.sizes, batch.alphas):
                    self._sharpen(batch)
                elif not self._solve(batch):
                    return UnitBracket(top, self._below, self._witness, complete=False)
        return UnitBracket(max(self._above, least), self._below, self._witness)

    def _batches(self, least: float) -> dict[tuple[int, bool], list[Entry]]:
        """Take the highest ceilings: one that needs a program alone, others together, by shape and α."""
        found: dict[tuple[int, bool], list[Entry]] = {}
        for _ in range(ADVERSARIES_AT_ONCE):
            if not self._queue or -self._queue[0][0] <= least or (found and self._queue[0][3]):
                break
            entry = heappop(self._queue)
            found.setdefault((self._kind[entry[1]], entry[3]), []).append(entry)
            if entry[3]:
                break
        return found

    def _sharpen(self, rows: _Rows) -> None:
        """Put adversaries back with the ceilings of revealing one unknown record at a time."""
        sharper = rows.own + staged_ceiling(rows.p, rows.q, rows.sizes, rows.alphas)
        sharper = np.minimum(sharper, rows.ceilings)
        self._note(rows, sharper)
        for c, (_, t, r, _) in zip(sharper.tolist(), rows.entries, strict=True):
            heappush(self._queue, (-c, t, r, True))

    def _note(self, rows: _Rows, ceilings: Vector) -> None:
        self.ceilings[[self._stack.offsets[t] + r for _, t, r, _ in rows.entries]] = ceilings

    def _solve(self, rows: _Rows) -> bool:
        """Settle adversaries of one kind; return whether the budget allowed it."""
        self._programs -= 0 if in_closed_form(rows.sizes, rows.alphas) else len(rows.entries)
        if self._programs < 0:
            return False
        proved, attained = worst_gains(rows.p, rows.q, rows.sizes, rows.alphas)
        value = np.minimum(rows.own + proved, rows.ceilings)
        self._note(rows, value)
        best = int(value.argmax())
        if value[best] > self._above:
            _, t, r, _ = rows.entries[best]
            self._above, self._witness = float(value[best]), (self._tables[t], r)
        self._below = max(self._below, float((rows.own + attained).max()))
        return True


class _Rows:
    """Adversaries of one kind (equal shapes, equal α of what is unknown), from any tables."""

    def __init__(
        self,
        tables: Sequence[PairTable],
        own: Sequence[Vector],
        alphas: Sequence[Vector],
        entries: Sequence[Entry],
    ) -> None:
        self.entries = entries
        first = entries[0][1]
        self.sizes, self.alphas = tables[first].sizes, alphas[first]
        self.p = np.stack([tables[t].p[r] for _, t, r, _ in entries])
        self.q = np.stack([tables[t].q[r] for _, t, r, _ in entries])
        self.own = np.array([own[t][r] for _, t, r, _ in entries])
        self.ceilings = np.array([-c for c, _, _, _ in entries])
