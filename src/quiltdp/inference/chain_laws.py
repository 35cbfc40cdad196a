"""Laws of a Markov chain without evidence: marginals, d-step forward and backward conditionals.

Everything is a product of non-negative numbers, so each entry is accurate to a small relative error
(no cancellation), whatever the length of the chain; one that doubles cannot hold weighs 1e-300, so that
0 always means impossible.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from quiltdp.chain import ChainSegment, stationary_distribution
from quiltdp.errors import InvalidModel
from quiltdp.inference.spread import spread_of_rows
from quiltdp.model import Table
from quiltdp.numbers import EPS, LEAST

__all__ = ["ChainLaws", "normalised"]

_UNDERFLOW = 1e-280  # below it a product has lost digits: treat the entry as unknown


def normalised(rows: Table) -> Table:
    """Return the rows divided by their sums; all-zero rows stay zero."""
    sums = rows.sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(rows, sums, out=np.zeros_like(rows), where=sums > 0))


def _times(one: Table, other: Table) -> Table:
    """Return the product; an entry that is possible is never lost to underflow."""
    product = one @ other
    if product.min(initial=1.0) >= LEAST:
        return np.asarray(product)
    support = (one > 0).astype(np.float32) @ (other > 0).astype(np.float32) > 0
    return np.where(support, np.maximum(product, LEAST), 0.0)


class ChainLaws:
    """The conditionals of one chain, over *possible* states only.

    Examples
    --------
    >>> from quiltdp import markov_chain
    >>> laws = ChainLaws(markov_chain([[0.9, 0.1], [0.1, 0.9]], length=5).segments[0])
    >>> laws.forward(1, 2).round(3).tolist(), laws.stationary
    ([[0.82, 0.18], [0.18, 0.82]], True)
    """

    def __init__(self, segment: ChainSegment) -> None:
        self.segment = segment
        self.length = segment.length
        self._marginals = [np.asarray(segment.initial)]
        self._supports = [np.asarray(segment.initial) > 0]
        self._powers: list[Table] = []

    def marginal(self, t: int) -> Table:
        """Return P(X_t), keeping every earlier one."""
        known = self._marginals
        while len(known) <= t:
            law = known[-1] @ self.segment.transition(len(known) - 1)
            known.append(np.where(self.possible(len(known)), np.maximum(law, LEAST), 0.0))
        return known[t]

    def possible(self, t: int) -> NDArray[np.bool_]:
        """Return which states step t can have: never lost to underflow, as the marginal may be."""
        known = self._supports
        while len(known) <= t:
            step = self.segment.transition(len(known) - 1) > 0
            known.append(np.asarray(step[known[-1]].any(axis=0)))
        return known[t]

    def steps(self, t: int, d: int) -> Table:
        """Return P(X_{t+d} | X_t), a row for every state."""
        if self.segment.homogeneous:
            step = np.asarray(self.segment.transitions[0])
            while len(self._powers) < d:
                self._powers.append(_times(self._powers[-1], step) if self._powers else step)
            return self._powers[d - 1]
        table = np.asarray(self.segment.transition(t))
        for s in range(t + 1, t + d):
            table = _times(table, np.asarray(self.segment.transition(s)))
        return table

    def forward(self, t: int, d: int) -> Table:
        """Return P(X_{t+d} | X_t = x) for the possible x."""
        return self.steps(t, d)[self.possible(t)]

    def backward(self, t: int, d: int) -> Table | None:
        """Return P(X_{t−d} | X_t = x) for the possible x; ``None`` if one is lost to underflow."""
        return self.reversed_rows(self.marginal(t - d), self.steps(t - d, d), self.possible(t))

    def backward_spread(self, d: int) -> float:
        """Return the spread of the reversed d-step table of a homogeneous chain, rounded up.

        It needs no law; ∞ when a possible entry underflowed.
        """
        table = self.steps(0, d)[self.reachable > 0]
        if np.any((table > 0) & (table < _UNDERFLOW)):
            return float("inf")
        return float(spread_of_rows(np.ascontiguousarray(table.T)) + 4.0 * self.slack(d))

    def slack(self, t: int) -> float:
        """Return how far ln of an entry computed from the law of step ``t`` may be from the truth."""
        return 2.0 * EPS * (len(self.segment.initial) + 4) * (t + 4)

    @staticmethod
    def reversed_rows(law: Table, steps: Table, possible: NDArray[np.bool_]) -> Table | None:
        """Return P(X_0 | X_d = x) for the possible x, by Bayes' rule; ``None`` if one underflows."""
        joint = (law[:, None] * steps).T[possible]
        if np.any((joint < _UNDERFLOW) & ((law[:, None] > 0) & (steps > 0)).T[possible]):
            return None
        return normalised(joint)

    # -- homogeneous chains: what holds for all late steps -------------------------------------

    @cached_property
    def limit(self) -> Table | None:
        """The stationary law of a homogeneous chain, if there is only one."""
        if not self.segment.homogeneous:
            return None
        try:
            return stationary_distribution(self.segment.transitions[0])
        except InvalidModel:
            return None

    @cached_property
    def reachable(self) -> Table:
        """Which states of a homogeneous chain are possible at some step (as 0 or 1)."""
        seen = np.asarray(self.segment.initial) > 0
        step = np.asarray(self.segment.transitions[0]) > 0
        for _ in range(len(seen)):
            seen = seen | step[seen].any(axis=0)
        return seen.astype(np.float64)

    def distance(self, t: int) -> float:
        """Return s ≥ |ln P(X_u = x) / π(x)| for every u ≥ t and every possible x; ``inf`` if none.

        P(X_{u+1} = y) / π(y) is an average of P(X_u = x) / π(x) over x, so its range only shrinks.
        """
        law = self.limit
        if law is None or np.any(self.possible(t) & (law < _UNDERFLOW)):
            return float("inf")
        alive = law > 0
        ratio = self.marginal(t)[alive] / law[alive]
        if ratio.min() <= 0 or law[alive].min() < _UNDERFLOW:
            return float("inf")
        return float(np.abs(np.log(ratio)).max())

    @cached_property
    def stationary(self) -> bool:
        """Whether every step has the stationary law (to rounding)."""
        return self.distance(0) <= 1e-12
