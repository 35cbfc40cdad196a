"""What a message of the informed clique tree is made of: its choices, and how precise each may be.

*Assumes*: the theorem of :mod:`.informed_tree`, which holds at every precision.  *Cost*: pairs of states,
counted before any work; the finest levels that the work budget allows.  *Reference*: docs/theory.md,
section 15.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.leakage.summing_out import SummingOut, programs_of
from quiltdp.compiled import Fixed, fixed, kernel
from quiltdp.inference.cliques import Choice, View

__all__ = ["Cell", "Task", "assign_programs", "levels"]

Array = NDArray[np.float64]
_MOST_CHOICES = 12  # 2 to this many choices
_FEW = 5  # where every set of branches is a choice of its own


class Cell:
    """One choice with everything that does not depend on α."""

    def __init__(self, view: View, choice: Choice, slack: float) -> None:
        self.choice = choice
        self.part = view.part(choice)
        self.at_once = False
        self._columns, self._slack = view.clique.states, slack
        values, tops, width = self.part.possible.shape
        self._shape = (values, tops, tops, width, width)

    @property
    def programs(self) -> int:
        """How many transports one answer in one step would solve, as :class:`.SummingOut` counts them."""
        possible = np.count_nonzero(self.part.possible.reshape(self._shape[0], -1), axis=1)
        return programs_of(int((possible**2).sum()), self.part.states.shape[-1])

    @cached_property
    def _pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.int64]]:
        """The pairs of states (z, u) that agree on what is known, and where each stands in μ."""
        known, z, u = np.nonzero(self.part.possible)
        left, right = np.nonzero(known[:, None] == known[None, :])
        at = np.ravel_multi_index((known[left], z[left], z[right], u[left], u[right]), self._shape)
        return left, right, np.asarray(at, dtype=np.int64)

    @cached_property
    def summing(self) -> SummingOut:
        """From distances between states of the clique to those between states (z, u); made when needed."""
        left, right, _ = self._pairs
        members, law = self.part.states[self.part.possible], self.part.law[self.part.possible]
        made = SummingOut(members, law, self._columns, left, right, slack=self._slack)
        made.at_once = self.at_once
        return made

    @cached_property
    def _states(self) -> NDArray[np.int64]:
        """The states of the clique by what is known and by z."""
        states = self.part.states.reshape(*self._shape[:2], -1)
        return np.ascontiguousarray(states, dtype=np.int64)

    @cached_property
    def _states_in_c(self) -> tuple[Fixed, tuple[int, ...]]:
        return fixed(self._states), self._states.shape

    def ceiling(self, d: Array) -> Array:
        """Return max of d over the states of every pair (z, z') that agree on what is known."""
        best = np.zeros(self._shape[1:3])
        largest = kernel("qd_ceiling")
        if largest is not None:
            at, shape = self._states_in_c
            largest(np.ascontiguousarray(d), len(d), at, *shape, best)
            return best
        for states in self._states:
            np.maximum(best, d[states[:, None, :, None], states[None, :, None, :]].max(axis=(2, 3)), out=best)
        return best

    def placed(self, values: Array) -> Array:
        """Return μ((z,u), (z',u')), axes (known, z, z', u, u'); −∞ where one of them is impossible.

        ``values`` are the distances that ``summing`` returns.
        """
        found = np.full(self._shape, -np.inf)
        found.ravel()[self._pairs[2]] = values
        return found

    def raised(self, values: Array, found: Array) -> tuple[Array, Array]:
        """Raise ``found`` to what single points are worth; return μ and its largest by known, z and z'."""
        place = kernel("qd_placed")
        if place is not None:
            mu, most = np.empty(self._shape), np.empty(self._shape[:3])
            place(values, self._pairs[2], len(values), *self._shape[1:4:2], self._shape[0], mu, most, found)
            return mu, most
        mu = self.placed(values)
        own = np.arange(mu.shape[-1])
        np.maximum(found, mu[..., own, own].max(axis=(0, 3)), out=found)
        return mu, mu.max(axis=(3, 4))


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


def assign_programs(tasks: Sequence[SummingOut | Cell], programs: int) -> None:
    """Let the smallest tasks solve transports while the budget lasts."""
    costs = [task.programs for task in tasks]
    for cost, _, task in sorted(zip(costs, range(len(tasks)), tasks, strict=True)):
        if cost:
            programs -= cost
            if programs < 0:
                return
            task.at_once = True


def _few(task: Task) -> bool:
    """Return whether the choices are few enough to be listed at all."""
    if task.level == "each":
        return len(task.view.may_know) + sum(b.knowable for b in task.view.branches) <= _FEW
    return len(task.view.may_know) <= _MOST_CHOICES
