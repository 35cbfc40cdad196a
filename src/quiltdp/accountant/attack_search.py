"""The search behind an attack: targets by what they tell at small α, then ascent, then what is known.

Deterministic, and bounded in propagations: fewer of them where the tree is large, so that the entries
that are touched are bounded too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import Adversary
from quiltdp.accountant.trade_offs import (
    ATTACK_ENTRIES,
    ATTACK_LEAST,
    ATTACK_ROUNDS,
    ATTACK_RUNS,
    ATTACK_TARGETS,
    ATTACK_TRIALS,
)
from quiltdp.inference.marginals import TiltedTree
from quiltdp.model import Model, Table
from quiltdp.numbers import down

__all__ = ["AttackSearch", "UnitAttack", "attained"]

Rows = NDArray[np.intp]

_MARGIN = 1e-11  # more than the rounding error of a difference of four logarithms


@dataclass(frozen=True, eq=False)
class UnitAttack:
    """Target, the two values of it, what is known, the mechanism (ln h_j, target left out), the leakage."""

    leaks: float
    target: str
    pair: tuple[int, int]
    known: dict[str, int]
    tilt: dict[str, Table]


def attained(
    tree: TiltedTree,
    target: str,
    pair: tuple[int, int],
    known: Mapping[str, int],
    tilt: Mapping[str, Table],
    own: float,
) -> float:
    """Return α_i + ln E[h | x_i, x_S] − ln E[h | x_i', x_S], rounded down."""
    value = own
    for sign, state in zip((1.0, -1.0), pair, strict=True):
        fixed = tree.evidence({**known, target: state})
        free = {n: w for n, w in tilt.items() if n not in fixed}
        value += sign * (tree.log_mean({**fixed, **free}) - tree.log_mean(fixed))
    return _rounded(value)


def _rounded(value: float) -> float:
    """Return a leakage rounded down by more than its rounding error."""
    return max(0.0, down(value - _MARGIN * (1.0 + abs(value))))


class AttackSearch:
    """The best attack that a bounded, deterministic search finds."""

    def __init__(self, tree: TiltedTree, alpha: Table, who: Adversary, level: str) -> None:
        self.tree = tree
        self.model: Model = tree.model
        self.alpha = alpha
        self.who = who
        level = level if level in ATTACK_RUNS else "normal"
        self.left = max(ATTACK_LEAST, int(min(ATTACK_RUNS[level], ATTACK_ENTRIES[level] / tree.effort)))
        self.left -= 1
        self._prior = tree.laws({})[1]
        self._indexed = [(n, self.model.index[n]) for n in self.model.records]

    def best(self) -> UnitAttack:
        """Return the best attack on any record."""
        found = self._promising()
        best: UnitAttack | None = None
        for k, (rough, target, pair) in enumerate(found):
            if best is not None and (self.left <= 0 or rough < 0.3 * best.leaks):
                break
            this = self._attack(target, pair, keep=self.left - self.left // (len(found) - k))
            if best is None or this.leaks > best.leaks:
                best = this
        if best is None:  # every record has one possible value: nothing can be told apart
            return UnitAttack(0.0, self.model.records[0], (0, 0), {}, {})
        own = float(self.alpha[self.model.index[best.target]])
        return replace(best, leaks=attained(self.tree, best.target, best.pair, best.known, best.tilt, own))

    def _promising(self) -> list[tuple[float, str, tuple[int, int]]]:
        """Return the records that tell most at small α, with their values.

        Hubs and records in the middle are asked first, should there be too many for the work allowed.
        """
        near, middle = self.tree.neighbours, len(self.model.nodes) / 2.0
        index = self.model.index
        order = sorted(self.model.records, key=lambda n: (-near[n], abs(index[n] - middle), index[n]))
        cases: list[dict[str, int]] = []
        for n in order:
            if cases and self._price(len(cases)) > self.left // 2:
                break
            cases.extend({n: x} for x in np.flatnonzero(self._prior[n] > 0).tolist())
        laws = self._given(cases)
        found = []
        for target in dict.fromkeys(n for case in cases for n in case):
            rows = {case[target]: k for k, case in enumerate(cases) if target in case}
            pairs = [(x, y) for x in rows for y in rows if x != y]
            if pairs:
                rough = self._rough(target, laws, *np.array([(rows[x], rows[y]) for x, y in pairs]).T)
                best = int(np.argmax(rough))
                found.append((float(rough[best]), target, pairs[best]))
        found.sort(key=lambda item: (-item[0], index[item[1]]))
        return found[:ATTACK_TARGETS]

    def _attack(self, target: str, pair: tuple[int, int], keep: int) -> UnitAttack:
        """Attack one record, until ``keep`` propagations are left for others."""
        ((leaks, tilt),) = self._ascend(target, pair, [{}])
        known: dict[str, int] = {}
        if self.who.name != "prior":
            leaks, known, tilt = self._learn(target, pair, leaks, tilt, keep)
        return UnitAttack(leaks, target, pair, known, tilt)

    def _price(self, cases: int) -> int:
        """Return what many cases at once cost, in propagations: little where the overhead is most of it."""
        return 1 + int(cases * min(1.0, max(0.05, self.tree.size / self.tree.effort)))

    def _given(self, cases: list[dict[str, int]]) -> dict[str, Table]:
        self.left -= self._price(len(cases))
        return self.tree.laws_given(cases)

    def _rough(self, target: str, laws: Mapping[str, Table], first: Rows, second: Rows) -> Table:
        """Return α_i + Σ α_j TV_j, the leakage at small α, for pairs of rows."""
        total = np.full(len(first), float(self.alpha[self.model.index[target]]))
        for n in self.model.records:
            if n != target:
                apart = 0.5 * np.abs(laws[n][first] - laws[n][second]).sum(axis=1)
                total += float(self.alpha[self.model.index[n]]) * apart
        return total

    def _ascend(
        self,
        target: str,
        pair: tuple[int, int],
        known: Sequence[Mapping[str, int]],
        rounds: int = ATTACK_ROUNDS,
    ) -> list[tuple[float, dict[str, Table]]]:
        """Return for all that may be known the leakage and the mechanism that coordinate ascent reaches.

        The leakages are those of a quick propagation: they rank attacks.
        """
        own = float(self.alpha[self.model.index[target]])
        best: list[tuple[float, dict[str, Table]]] = [(own, {}) for _ in known]
        tilts: list[dict[str, Table]] = [{} for _ in known]
        going = list(range(len(known)))
        untold: dict[int, Table] = {}  # ln E without a mechanism, under both values
        for turn in range(rounds + 1 if known else 0):
            cases = [{**known[k], target: x} for k in going for x in pair]
            means, laws = self.tree.laws_tilted(cases, [tilts[k] for k in going for _ in pair])
            still = []
            for place, k in enumerate(going):
                here = means[2 * place : 2 * place + 2]
                if turn == 0:
                    untold[k] = here
                else:
                    gain = here - untold[k]
                    leaks = own + float(gain[0] - gain[1])
                    if leaks > best[k][0]:
                        best[k] = (leaks, tilts[k])
                if turn == rounds:
                    continue
                new = {
                    n: np.where(laws[n][2 * place] > laws[n][2 * place + 1], self.alpha[index], 0.0)
                    for n, index in self._indexed
                    if n != target and n not in known[k]
                }
                self.left -= 4
                if turn == 0 or not all(np.array_equal(new[n], tilts[k][n]) for n in new):
                    still.append(k)
                tilts[k] = new
            going = still
            if not going:
                break
        return best

    def _learn(
        self, target: str, pair: tuple[int, int], leaks: float, tilt: dict[str, Table], keep: int
    ) -> tuple[float, dict[str, int], dict[str, Table]]:
        """Add to what is known, one record at a time, while that helps and the work lasts."""
        known: dict[str, int] = {}
        allowed = self.who.records
        others = [n for n in self.model.records if n != target and (allowed is None or n in allowed)]
        most = len(others) if self.who.at_most is None else min(len(others), self.who.at_most)
        while len(known) < most and self.left > keep:
            step: tuple[float, dict[str, int], dict[str, Table]] | None = None
            trials = self._trials(target, pair, known, others, keep)
            for trial, (reached, made) in zip(
                trials, self._ascend(target, pair, trials, rounds=2), strict=True
            ):
                if step is None or reached > step[0]:
                    step = (reached, trial, made)
            if step is None or step[0] <= leaks * (1.0 + 1e-9):
                break
            leaks, known, tilt = step
        ((more, made),) = self._ascend(target, pair, [known])
        return (more, known, made) if more > leaks else (leaks, known, tilt)

    def _trials(
        self, target: str, pair: tuple[int, int], known: dict[str, int], others: list[str], keep: int
    ) -> list[dict[str, int]]:
        """Return what might be learned next: the few values that tell most at small α."""
        self.left -= 2
        laws = self.tree.laws_given([{**known, target: x} for x in pair])
        p, q = ({n: law[row] for n, law in laws.items()} for row in (0, 1))
        trials: list[dict[str, int]] = []
        # records on which the two hypotheses disagree most are asked first, should the work end early
        for n in sorted(others, key=lambda n: (-float(np.abs(p[n] - q[n]).sum()), self.model.index[n])):
            if trials and self._price(2 * len(trials)) > self.left - keep:
                break
            if n not in known:
                both = np.flatnonzero((p[n] > 0) & (q[n] > 0)).tolist()
                trials.extend({**known, n: int(value)} for value in both)
        if not trials:
            return []
        laws = self._given([{**trial, target: x} for trial in trials for x in pair])
        rows = np.arange(len(trials), dtype=np.intp) * 2
        rough = self._rough(target, laws, rows, rows + 1)
        return [trials[k] for k in np.argsort(-rough, kind="stable")[:ATTACK_TRIALS].tolist()]
