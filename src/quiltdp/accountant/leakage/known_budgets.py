"""The messages of a clique's branches, and how a budget of known records is shared among them.

*Assumes*: messages for at most 0, 1, …, k known records, each sound by itself.  *Cost*: a max-plus
convolution per branch: k² matrices of pairs of states.  *Reference*: docs/theory.md, adversaries between
prior and informed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from quiltdp.inference.cliques import Choice, View

__all__ = ["SharedMessages"]

Array = NDArray[np.float64]


class SharedMessages:
    """Σ of the messages of a view's branches, for what a choice knows.

    ``messages`` has, for every branch, m with nothing known and with at most 1, …, k records known;
    where ``most`` is ``None`` there are two: nothing known, and something known.
    """

    def __init__(self, view: View, messages: Mapping[tuple[int, int], list[Array]], most: int | None) -> None:
        self._most = most
        self.levels = 1 if most is None else most
        n = len(view.clique.states)
        self.none = np.zeros((n, n))
        self._separators = list(dict.fromkeys(branch.separator for branch in view.branches))
        self._place = [self._separators.index(branch.separator) for branch in view.branches]
        self._gains: dict[int, Array] = {}
        self._losses: dict[int, Array] = {}
        self._totals: dict[tuple[int, ...], Array] = {}
        self._lost: dict[tuple[int, ...], Array] = {}
        self._lifted: list[list[Array]] = []
        self._anything: dict[int, Array] = {}
        for branch in view.branches:
            told = messages[branch.key][: None if branch.knowable else 1]
            lifted = [m.take(branch.label, axis=0).take(branch.label, axis=1) for m in told]
            self._lifted.append(lifted if branch.knowable else [])
            self.none = self.none + lifted[0]

    def of(self, choice: Choice) -> Sequence[int]:
        """Return the budgets for which a choice must be looked at."""
        if not choice.known and not choice.branches:
            return (0,)
        if self._most is None:
            return (1,)
        least = len(choice.known) + (len(choice.branches) if choice.only else 0)
        return range(max(1, least), self._most + 1)

    def reads(self, choice: Choice, budget: int) -> tuple[object, ...]:
        """Return what :meth:`distance` depends on."""
        left = None if self._most is None else budget - len(choice.known)
        return choice.branches, choice.only, choice.tilted, not choice.known, left

    def distance(self, choice: Choice, budget: int) -> Array:
        """Return Σ of the messages: ``budget`` records known at most, none beyond the other branches."""
        if self._most is not None:
            left = budget - len(choice.known)
            return self.none + self._shared(choice.branches, left, at_least=int(choice.only))
        if choice.only:
            return self.none + sum(self._lifted[b][1] - self._lifted[b][0] for b in choice.branches)
        places = tuple(sorted({self._place[b] for b in choice.branches}))
        if places not in self._totals:
            self._totals[places] = self.none + sum(self._more(p) for p in places)
        return self._totals[places] - self._surely_lost(choice, places)

    def _more(self, place: int) -> Array:
        """Return Σ max(m1 − m0, 0) of the branches with one separator."""
        if place not in self._gains:
            lifted = [self._lifted[b] for b, p in enumerate(self._place) if p == place and self._lifted[b]]
            self._gains[place] = np.add.reduce([np.maximum(some - none, 0.0) for none, some in lifted])
            self._losses[place] = np.minimum.reduce([np.maximum(none - some, 0.0) for none, some in lifted])
        return self._gains[place]

    def _surely_lost(self, choice: Choice, places: Sequence[int]) -> Array | float:
        """Return what is lost because some branch must know, where every branch may or may not.

        A tilted node is tilted by some branch that touches it; with nothing known in the clique and
        nothing tilted, some branch knows.  That branch counts with m1, not with the larger of both.
        """
        reasons = [tuple([p for p in places if n in self._separators[p]]) for n in choice.tilted]
        if not choice.known and not choice.tilted:
            reasons.append(tuple(places))
        lost: Array | float = 0.0
        for touching in dict.fromkeys(reasons):
            if touching not in self._lost:
                self._lost[touching] = np.minimum.reduce([self._losses[p] for p in touching])
            lost = np.maximum(lost, self._lost[touching])
        return lost

    def anything(self, budget: int) -> Array:
        """Return Σ of the messages when every branch may hold known records."""
        if budget not in self._anything:
            self._anything[budget] = self._of_anything(budget)
        return self._anything[budget]

    def _of_anything(self, budget: int) -> Array:
        branches = [b for b, lifted in enumerate(self._lifted) if lifted]
        if self._most is not None:
            return self.none + self._shared(branches, budget, at_least=0)
        total = self.none
        for b in branches:
            total = total + np.maximum(self._lifted[b][1] - self._lifted[b][0], 0.0)
        return total

    def _shared(self, branches: Sequence[int], budget: int, at_least: int) -> Array:
        """Return the largest Σ of m − m0 when the branches share ``budget`` known records."""
        best: list[Array | None] = [np.zeros_like(self.none), *[None] * budget]
        for b in branches:
            none, *_ = self._lifted[b]
            best = _convolved(best, [m - none for m in self._lifted[b]], at_least)
        return np.asarray(np.maximum.reduce([m for m in best if m is not None]))


def _convolved(best: Sequence[Array | None], messages: Sequence[Array], at_least: int) -> list[Array | None]:
    """Return the max-plus convolution of what is spent so far with one more branch."""
    found: list[Array | None] = [None] * len(best)
    for spent, so_far in enumerate(best):
        if so_far is None:
            continue
        for more in range(at_least, len(best) - spent):
            total = so_far + messages[more]
            old = found[spent + more]
            found[spent + more] = total if old is None else np.maximum(old, total)
    return found
