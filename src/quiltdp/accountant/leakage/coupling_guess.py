"""How far apart two states probably are: a guess that decides which pairs are worth comparing.

For a state z of a separator the law of every record j beyond it is P(x_j | z), and

    guess(z, z') = Σ_j α_j · TV( P(x_j | z), P(x_j | z') )

is what the best product mechanism gains as α → 0: never more than the true message, and usually close.
It proves nothing; it only says where the effort goes.

*Assumes*: nothing, because no bound rests on it.  *Cost*: one marginal per record and separator.
*Reference*: docs/theory.md, on the attack, whose limit for small α it is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.bounds import Vector
from quiltdp.accountant.trade_offs import GUESSES_KEPT
from quiltdp.inference.coupling_tree import CouplingTree, Reveal, Step

__all__ = ["Guesses"]

Features = NDArray[np.float32]


class Guesses:
    """Features of the states of every level of a reveal whose L1 distance is the guess."""

    def __init__(self, tree: CouplingTree, weights: Vector) -> None:
        self._weights = weights
        self._starts: list[Features] = []
        for reveals in tree.messages:
            self._starts.append(self.levels(reveals[0])[0])

    def levels(self, reveal: Reveal) -> list[Features]:
        """Return the features after 0, 1, … steps."""
        size = len(reveal.states)
        parts = [self._starts[k][shown] for k, shown in reveal.beyond]
        current = np.concatenate(parts, axis=1) if parts else np.zeros((size, 0), dtype=np.float32)
        found = [_fewer(current)]
        for step in reversed(reveal.steps):
            law = step.law.astype(np.float32)
            before = np.zeros((step.count, found[-1].shape[1]), dtype=np.float32)
            for s in range(step.slots):
                before += law[s][:, None] * found[-1][step.after[s]]
            own = [_marginal(step, column, float(self._weights[k])) for column, k in enumerate(step.nodes)]
            found.append(_fewer(np.concatenate([before, *own], axis=1)))
        return found[::-1]


def _marginal(step: Step, column: int, weight: float) -> Features:
    """Return the law of one new node given each state, scaled so that its L1 distance is weight · TV."""
    x = step.values[:, column]
    size = int(x.max()) + 1
    if weight == 0.0 or size == 1:
        return np.zeros((step.count, 0), dtype=np.float32)
    law = np.zeros((step.count, size), dtype=np.float32)
    rows = np.arange(step.count)
    for s in range(step.slots):
        law[rows, x[step.value[s]]] += step.law[s]
    return np.float32(weight) * law[:, :1] if size == 2 else np.float32(0.5 * weight) * law


def _fewer(features: Features) -> Features:
    """Keep the columns that vary most where all of them would be too many."""
    most = max(16, GUESSES_KEPT // max(1, len(features)))
    if features.shape[1] <= most:
        return features
    order = np.argsort(-features.std(axis=0), kind="stable")[:most]
    return np.ascontiguousarray(features[:, np.sort(order)])
