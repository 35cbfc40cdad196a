"""What a message of the informed clique tree is made of: its choices, and how precise each may be.

*Assumes*: the theorem of :mod:`.informed_tree`, which holds at every precision.  *Cost*: pairs of states,
counted before any work; the finest levels that the work budget allows.  *Reference*: docs/theory.md,
section 15.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.leakage.summing_out import SummingOut
from quiltdp.inference.cliques import Choice, View

__all__ = ["Cell", "Task", "assign_programs", "levels"]

Array = NDArray[np.float64]
_MOST_CHOICES = 12  # 2 to this many choices
_FEW = 5  # where every set of branches is a choice of its own


class Cell:
    """One choice with everything that does not depend on α."""

    def __init__(self, view: View, choice: Choice, slack: float) -> None:
        part = view.part(choice)
        possible = part.possible
        known, z, u = np.nonzero(possible)
        left, right = np.nonzero(known[:, None] == known[None, :])
        members, law = part.states[possible], part.law[possible]
        self.choice = choice
        self.part = part
        self.summing = SummingOut(members, law, view.clique.states, left, right, slack=slack)
        values, tops, width = possible.shape
        self._shape = (values, tops, tops, width, width)
        self._place = np.ravel_multi_index((known[left], z[left], z[right], u[left], u[right]), self._shape)

    def ceiling(self, d: Array) -> Array:
        """Return max of d over the states of every pair (z, z') that agree on what is known."""
        best = np.zeros(self._shape[1:3])
        for states in self.part.states.reshape(*self._shape[:2], -1):
            np.maximum(best, d[states[:, None, :, None], states[None, :, None, :]].max(axis=(2, 3)), out=best)
        return best

    def placed(self, values: Array) -> Array:
        """Return μ((z,u), (z',u')), axes (known, z, z', u, u'); −∞ where one of them is impossible.

        ``values`` are the distances that ``summing`` returns.
        """
        found = np.full(self._shape, -np.inf)
        found.ravel()[self._place] = values
        return found


@dataclass(frozen=True, eq=False)
class Task:
    """One message, or the last step at a clique that holds a unit."""

    view: View
    level: str  # "each", "together" or "coarse"

    def pairs(self) -> int:
        """Return how many pairs of states it compares."""
        if self.level == "coarse":
            return len(self.view.clique.states) ** 2
        return self.view.pairs(each=self.level == "each")


def levels(tasks: Sequence[Task], pairs: int) -> list[Task]:
    """Return the tasks, each as precise as all of them together can be within the budget.

    First every task is made to look at what is known, the cheapest first; then, in the same order, every
    set of branches becomes a choice of its own.
    """
    chosen = list(tasks)
    taken = [t.pairs() for t in tasks]
    spent = sum(taken)
    for level in ("together", "each"):
        finer = [replace(t, level=level) for t in tasks]
        costs = [t.pairs() if _few(t) else pairs + 1 for t in finer]
        for k in sorted(range(len(tasks)), key=lambda k: (costs[k], k)):
            more = costs[k] - taken[k]
            if spent + more <= pairs and (level == "together" or chosen[k].level == "together"):
                chosen[k], taken[k] = finer[k], costs[k]
                spent += more
    return chosen


def assign_programs(tasks: Sequence[SummingOut], programs: int) -> None:
    """Let the smallest tasks solve transports while the budget lasts."""
    for task in sorted(tasks, key=lambda t: t.programs):
        if task.programs:
            programs -= task.programs
            if programs < 0:
                return
            task.at_once = True


def _few(task: Task) -> bool:
    """Return whether the choices are few enough to be listed at all."""
    if task.level == "each":
        return len(task.view.may_know) + sum(b.knowable for b in task.view.branches) <= _FEW
    return len(task.view.may_know) <= _MOST_CHOICES
