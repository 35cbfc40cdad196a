"""The best-first search of the exact limit: which adversary learns most about one unit.

Every adversary starts with a cheap ceiling.  The one with the highest ceiling gets a sharper one, or is
settled (proved from above, attained from below), until no ceiling exceeds what is proved already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from quiltdp.accountant.bounds import Vector
from quiltdp.accountant.leakage.adversaries import PairTable
from quiltdp.accountant.leakage.worst_gains import in_closed_form, is_quick, staged_ceiling, worst_gains
from quiltdp.work import Guard

__all__ = ["FROM_ABOVE", "UnitBracket", "UnitSearch"]

FROM_ABOVE = "limit-bound"
"""The name of what the search for the limit proved, where it is not attained."""

_EXACT = 1e-7  # how far (relatively) proved and attained may be apart in what is called exact
_BATCH = 64  # adversaries looked at together


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
    tables
        The pairs of laws of every adversary.
    own
        Per table and row, what the two values of the unit cost themselves.
    alpha
        α of every record.
    programs
        How many transports and linear programs may be solved.
    guard
        Looked at between batches.
    """

    def __init__(
        self, tables: Sequence[PairTable], own: Sequence[Vector], alpha: Vector, programs: int, guard: Guard
    ) -> None:
        self._tables, self._own = tables, own
        self._alphas = [alpha[list(table.unknown)] for table in tables]
        self._programs, self._guard = programs, guard
        self._queue = [
            (-float(c), t, r, False)
            for t, table in enumerate(tables)
            for r, c in enumerate(own[t] + table.ceilings(alpha))
        ]
        heapify(self._queue)
        self._above, self._below = 0.0, 0.0
        self._witness: tuple[PairTable, int] | None = None

    def run(self, least: float) -> UnitBracket:
        """Return the largest leakage, or ``least`` if that is larger; 0 if there is nothing to tell apart."""
        if not self._queue:
            return UnitBracket(0.0, 0.0)
        while self._queue and -self._queue[0][0] > max(self._above, least):
            self._guard.check()
            top = -self._queue[0][0]
            for (t, sharp), entries in self._batches(max(self._above, least)).items():
                rows = np.array([r for _, _, r, _ in entries])
                ceilings = np.array([-c for c, _, _, _ in entries])
                if not sharp and not is_quick(self._tables[t].sizes, self._alphas[t]):
                    self._sharpen(t, rows, ceilings)
                elif not self._solve(t, rows, ceilings):
                    return UnitBracket(top, self._below, self._witness, complete=False)
        return UnitBracket(max(self._above, least), self._below, self._witness)

    def _batches(self, least: float) -> dict[tuple[int, bool], list[tuple[float, int, int, bool]]]:
        """Take the highest ceilings: one that needs a program alone, others together, by table."""
        found: dict[tuple[int, bool], list[tuple[float, int, int, bool]]] = {}
        for _ in range(_BATCH):
            if not self._queue or -self._queue[0][0] <= least or (found and self._queue[0][3]):
                break
            entry = heappop(self._queue)
            found.setdefault((entry[1], entry[3]), []).append(entry)
            if entry[3]:
                break
        return found

    def _sharpen(self, t: int, rows: np.ndarray, ceilings: Vector) -> None:
        """Put adversaries back with the ceilings of revealing one unknown record at a time."""
        table = self._tables[t]
        sharper = self._own[t][rows] + staged_ceiling(
            table.p[rows], table.q[rows], table.sizes, self._alphas[t]
        )
        for c, r in zip(np.minimum(sharper, ceilings).tolist(), rows.tolist(), strict=True):
            heappush(self._queue, (-c, t, r, True))

    def _solve(self, t: int, rows: np.ndarray, ceilings: Vector) -> bool:
        """Settle adversaries of one table; return whether the budget allowed it."""
        table = self._tables[t]
        self._programs -= 0 if in_closed_form(table.sizes, self._alphas[t]) else len(rows)
        if self._programs < 0:
            return False
        proved, attained = worst_gains(table.p[rows], table.q[rows], table.sizes, self._alphas[t])
        value = np.minimum(self._own[t][rows] + proved, ceilings)
        best = int(value.argmax())
        if value[best] > self._above:
            self._above, self._witness = float(value[best]), (table, int(rows[best]))
        self._below = max(self._below, float((self._own[t][rows] + attained).max()))
        return True
