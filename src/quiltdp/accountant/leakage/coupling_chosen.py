"""Sequential coupling over chosen pairs: evaluation.  What is chosen, and why: :mod:`.coupling_choice`.

*Assumes*: pairs that were chosen by mass; any choice is sound.  *Cost*: one transport per chosen pair.
*Reference*: docs/theory.md, section 16.
"""

from __future__ import annotations

import numpy as np

from quiltdp.accountant.bounds import Vector
from quiltdp.accountant.leakage.coupling_all import differing
from quiltdp.accountant.leakage.coupling_choice import ChosenLevel, ChosenReveal, choose
from quiltdp.accountant.leakage.coupling_guess import Guesses
from quiltdp.accountant.leakage.ties import Array
from quiltdp.accountant.leakage.transport import FARTHEST, transport, transport_of_columns, transport_renewed
from quiltdp.accountant.trade_offs import COSTS_AT_ONCE
from quiltdp.inference.coupling_tree import CouplingTree
from quiltdp.numbers import up, up_array
from quiltdp.work import Guard

__all__ = ["ChosenPairs"]


class ChosenPairs:
    """The messages of a coupling tree on chosen pairs of states.

    Parameters
    ----------
    weights
        α up to a factor: it shapes the coupling that is followed, and proves nothing.
    threshold
        The mass from which on a pair is worth a comparison, for the unit that seems to leak most; others
        get up to twenty times as much.
    most
        The most comparisons; with more the threshold is raised.
    """

    def __init__(
        self, tree: CouplingTree, guard: Guard, weights: Vector, threshold: float, most: int
    ) -> None:
        self._tree, self._guard = tree, guard
        least = threshold
        plan = None
        while plan is None:
            plan = choose(
                tree, weights, _shares(tree, weights, least), guard, most if least < 1.0 else 10**12
            )
            least *= 10.0
        self._messages, self._units = plan

    @property
    def pairs(self) -> int:
        """How many pairs are compared."""
        return sum(c.pairs for c in (*self._messages, *self._units))

    def evaluate(self, alpha: Vector) -> Vector:
        """Return the leakage of every unit."""
        self._alpha = alpha
        self._slack = 2.0 * self._tree.slack
        values: list[Array] = []
        caps: list[float] = []
        for chosen in self._messages:
            found, cap = self._values(chosen, values, caps)
            values.append(found)
            caps.append(cap)
        leakages = []
        for chosen in self._units:
            reveal, codes = chosen.reveal, chosen.levels[0].codes
            found = self._values(chosen, values, caps)[0][: len(codes)]
            own = differing(reveal.start, reveal.prefixes(0), alpha)
            top = float((found + own[np.divmod(codes, reveal.count)]).max(initial=0.0))
            leakages.append(up(top, 8.0 + len(reveal.start)) if top > 0.0 else 0.0)
        return np.array(leakages)

    def _values(self, chosen: ChosenReveal, values: list[Array], caps: list[float]) -> tuple[Array, float]:
        reveal = chosen.reveal
        cap = up(sum(caps[k] for k, _ in reveal.beyond), 4.0 + len(reveal.beyond))
        now = np.zeros(len(chosen.levels[-1].codes))
        for (k, _), at in zip(reveal.beyond, chosen.beyond, strict=True):
            now += values[k][at]
        now = up_array(now, 4.0 + len(reveal.beyond))
        for k in range(len(reveal.steps) - 1, -1, -1):
            step = reveal.steps[k]
            table = _extended(chosen.levels[k + 1], np.minimum(now, cap), cap)
            now = self._step(chosen, k, table)
            own = [float(self._alpha[n]) for n in step.nodes]
            cap = up(cap + sum(own), 4.0 + len(own))
        return _extended(chosen.levels[0], np.minimum(now, cap), cap), cap

    def _step(self, chosen: ChosenReveal, k: int, table: Array) -> Array:
        step, level, ties = chosen.reveal.steps[k], chosen.levels[k], chosen.ties[k]
        first, second = np.divmod(level.codes, step.count)
        slots = step.slots
        own = differing(step.nodes, step.values, self._alpha)
        result = np.zeros(len(first))
        block = max(1, COSTS_AT_ONCE // (slots * slots))
        for at in range(0, len(first), block):
            self._guard.check()
            part = slice(at, at + block)
            d = table[chosen.cells[k][:, part]]
            a, b = first[part], second[part]
            for i in range(slots):
                for j in range(slots):
                    d[i * slots + j] += own[step.value[i, a], step.value[j, b]]
            d = up_array(d, 4.0 + len(step.nodes))
            p, q = step.law[:, a], step.law[:, b]
            if d.max(initial=0.0) > FARTHEST:
                value = transport(p.T, q.T, d.T.reshape(-1, slots, slots))
            elif slots <= 3:  # closed forms
                value = transport_of_columns(p, q, d)
            else:
                value = transport_renewed(
                    p, q, d, ties.take(np.arange(at, min(at + block, len(first)))), tolerance=1e-3
                )
            result[part] = np.where(value > 0.0, value + self._slack, 0.0)
        return result


def _extended(level: ChosenLevel, values: Array, cap: float) -> Array:
    """Return all values of a level by number: compared pairs, paths, the cap, 0."""
    n, paths = len(level.codes), level.paths.shape[1]
    whole = np.zeros(n + paths + 2)
    whole[:n] = values
    whole[n + paths] = cap
    if paths:
        padded = np.append(values, 0.0)
        whole[n : n + paths] = np.minimum(
            up_array(padded[level.paths].sum(axis=0), 4.0 + len(level.paths)), cap
        )
    return whole


def _shares(tree: CouplingTree, weights: Vector, least: float) -> Array:
    """Return the threshold of every unit: finest where the guess of its leakage is largest."""
    guesses = Guesses(tree, weights)
    found = []
    for reveals in tree.units:
        features = guesses.levels(reveals[0])[0]
        apart = np.abs(features[:, None] - features[None, :]).sum(axis=2)
        found.append(1e-9 + float(weights[list(reveals[0].start)].sum()) + float(apart.max()))
    guess = np.array(found)
    return np.asarray(np.minimum(1.0, least * np.minimum(20.0, (guess.max() / guess) ** 4)))
