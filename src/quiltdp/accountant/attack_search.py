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

__all__ = ["AttackSearch", "Told", "UnitAttack", "attained", "total_cost"]

Rows = NDArray[np.intp]

_MARGIN = 1e-11  # more than the rounding error of a difference of four logarithms


Told = tuple[dict[str, int], dict[str, int]]
"""The two values of a unit that are told apart: both name its records."""


@dataclass(frozen=True, eq=False)
class UnitAttack:
    """The two values of a unit, what is known, the mechanism (ln h_j, the unit left out), the leakage."""

    leaks: float
    told: Told
    known: dict[str, int]
    tilt: dict[str, Table]


def attained(
    tree: TiltedTree, told: Told, known: Mapping[str, int], tilt: Mapping[str, Table], own: float
) -> float:
    """Return Σ α of the records that differ + ln E[h | x_T, x_S] − ln E[h | x_T', x_S], rounded down."""
    value = own
    for sign, values in zip((1.0, -1.0), told, strict=True):
        fixed = tree.evidence({**known, **values})
        free = {n: w for n, w in tilt.items() if n not in fixed}
        value += sign * (tree.log_mean({**fixed, **free}) - tree.log_mean(fixed))
    return _rounded(value)


def total_cost(costs: Sequence[float]) -> float:
    """Return the sum of what the records of a unit cost, rounded down."""
    return costs[0] if len(costs) == 1 else max(0.0, down(sum(costs), 4.0 + 4.0 * len(costs)))


def _rounded(value: float) -> float:
    """Return a leakage rounded down by more than its rounding error."""
    return max(0.0, down(value - _MARGIN * (1.0 + abs(value))))


class AttackSearch:
    """The best attack that a bounded, deterministic search finds.

    ``units`` are sets of records that are protected together; default: every record by itself.
    """

    def __init__(
        self,
        tree: TiltedTree,
        alpha: Table,
        who: Adversary,
        level: str,
        units: Sequence[tuple[str, ...]] | None = None,
    ) -> None:
        self.tree = tree
        self.model: Model = tree.model
        self.alpha = alpha
        self.who = who
        self.units = units
        level = level if level in ATTACK_RUNS else "normal"
        self.left = max(ATTACK_LEAST, int(min(ATTACK_RUNS[level], ATTACK_ENTRIES[level] / tree.effort)))
        self.left -= 1
        self._prior = tree.laws({})[1]
        self._indexed = [(n, self.model.index[n]) for n in self.model.records]

    def best(self) -> UnitAttack:
        """Return the best attack on any unit."""
        found = self._records() if self.units is None else self._sets(self.units)
        found.sort(key=lambda item: (-item[0], self.model.index[next(iter(item[1][0]))]))
        found = found[:ATTACK_TARGETS]
        best: UnitAttack | None = None
        for k, (rough, told) in enumerate(found):
            if best is not None and (self.left <= 0 or rough < 0.3 * best.leaks):
                break
            this = self._attack(told, keep=self.left - self.left // (len(found) - k))
            if best is None or this.leaks > best.leaks:
                best = this
        if best is None:  # every unit has one possible value: nothing can be told apart
            some = dict.fromkeys(self.units[0] if self.units else self.model.records[:1], 0)
            return UnitAttack(0.0, (some, some), {}, {})
        leaks = attained(self.tree, best.told, best.known, best.tilt, self.own(best.told))
        return replace(best, leaks=leaks)

    def own(self, told: Told) -> float:
        """Return Σ α of the records in which the two values differ, rounded down."""
        return total_cost(
            [float(self.alpha[self.model.index[n]]) for n in told[0] if told[0][n] != told[1][n]]
        )

    def _records(self) -> list[tuple[float, Told]]:
        """Return the records with the values that tell most at small α, and how much that is.

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
        found: list[tuple[float, Told]] = []
        for target in dict.fromkeys(n for case in cases for n in case):
            rows = {case[target]: k for k, case in enumerate(cases) if target in case}
            pairs = [(x, y) for x in rows for y in rows if x != y]
            if pairs:
                told = ({target: 0}, {target: 1})
                rough = self._rough(told, laws, *np.array([(rows[x], rows[y]) for x, y in pairs]).T)
                best = int(np.argmax(rough))
                found.append((float(rough[best]), ({target: pairs[best][0]}, {target: pairs[best][1]})))
        return found

    def _sets(self, units: Sequence[tuple[str, ...]]) -> list[tuple[float, Told]]:
        """Return the sets with two values of each: its records one after the other, each as tells most."""
        found: list[tuple[float, Told]] = []
        for unit in units:
            if found and self.left <= 0:
                break
            first: dict[str, int] = {}
            second: dict[str, int] = {}
            rough = 0.0
            for n in unit:
                rough = self._extend(first, second, n, unit)
            if first != second:
                found.append((rough, (first, second)))
        return found

    def _extend(self, first: dict[str, int], second: dict[str, int], n: str, unit: Sequence[str]) -> float:
        """Add a record to both values of a set; return what the whole tells at small α."""
        here = self._given([first, second])[n]
        sides = [np.flatnonzero(row > 0).tolist() for row in here]
        cases = [{**side, n: x} for side, states in zip((first, second), sides, strict=True) for x in states]
        laws = self._given(cases)
        pairs = [(j, len(sides[0]) + k) for j in range(len(sides[0])) for k in range(len(sides[1]))]
        skip = dict.fromkeys(unit, 0)
        rows = np.array(pairs).T
        rough = self._rough((skip, skip), laws, rows[0], rows[1])
        rough += np.array([self.own((cases[j], cases[k])) for j, k in pairs])
        best = pairs[int(np.argmax(rough))]
        first[n], second[n] = cases[best[0]][n], cases[best[1]][n]
        return float(rough.max())

    def _attack(self, told: Told, keep: int) -> UnitAttack:
        """Attack one unit, until ``keep`` propagations are left for others."""
        ((leaks, tilt),) = self._ascend(told, [{}])
        known: dict[str, int] = {}
        if not self.who.knows_nothing:
            leaks, known, tilt = self._learn(told, leaks, tilt, keep)
        return UnitAttack(leaks, told, known, tilt)

    def _price(self, cases: int) -> int:
        """Return what many cases at once cost, in propagations: little where the overhead is most of it."""
        return 1 + int(cases * min(1.0, max(0.05, self.tree.size / self.tree.effort)))

    def _given(self, cases: list[dict[str, int]]) -> dict[str, Table]:
        self.left -= self._price(len(cases))
        return self.tree.laws_given(cases)

    def _rough(self, told: Told, laws: Mapping[str, Table], first: Rows, second: Rows) -> Table:
        """Return Σ α of what differs + Σ α_j TV_j, the leakage at small α, for pairs of rows."""
        total = np.full(len(first), self.own(told))
        for n in self.model.records:
            if n not in told[0]:
                apart = 0.5 * np.abs(laws[n][first] - laws[n][second]).sum(axis=1)
                total += float(self.alpha[self.model.index[n]]) * apart
        return total

    def _ascend(
        self, told: Told, known: Sequence[Mapping[str, int]], rounds: int = ATTACK_ROUNDS
    ) -> list[tuple[float, dict[str, Table]]]:
        """Return for all that may be known the leakage and the mechanism that coordinate ascent reaches.

        The leakages are those of a quick propagation: they rank attacks.
        """
        own = self.own(told)
        best: list[tuple[float, dict[str, Table]]] = [(own, {}) for _ in known]
        tilts: list[dict[str, Table]] = [{} for _ in known]
        going = list(range(len(known)))
        untold: dict[int, Table] = {}  # ln E without a mechanism, under both values
        for turn in range(rounds + 1 if known else 0):
            cases = [{**known[k], **values} for k in going for values in told]
            means, laws = self.tree.laws_tilted(cases, [tilts[k] for k in going for _ in told])
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
                    if n not in told[0] and n not in known[k]
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
        self, told: Told, leaks: float, tilt: dict[str, Table], keep: int
    ) -> tuple[float, dict[str, int], dict[str, Table]]:
        """Add to what is known, one record at a time, while that helps and the work lasts."""
        known: dict[str, int] = {}
        allowed = self.who.records
        others = [n for n in self.model.records if n not in told[0] and (allowed is None or n in allowed)]
        most = len(others) if self.who.at_most is None else min(len(others), self.who.at_most)
        while len(known) < most and self.left > keep:
            step: tuple[float, dict[str, int], dict[str, Table]] | None = None
            trials = self._trials(told, known, others, keep)
            for trial, (reached, made) in zip(trials, self._ascend(told, trials, rounds=2), strict=True):
                if step is None or reached > step[0]:
                    step = (reached, trial, made)
            if step is None or step[0] <= leaks * (1.0 + 1e-9):
                break
            leaks, known, tilt = step
        ((more, made),) = self._ascend(told, [known])
        return (more, known, made) if more > leaks else (leaks, known, tilt)

    def _trials(
        self, told: Told, known: dict[str, int], others: list[str], keep: int
    ) -> list[dict[str, int]]:
        """Return what might be learned next: the few values that tell most at small α."""
        self.left -= 2
        laws = self.tree.laws_given([{**known, **values} for values in told])
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
        laws = self._given([{**trial, **values} for trial in trials for values in told])
        rows = np.arange(len(trials), dtype=np.intp) * 2
        rough = self._rough(told, laws, rows, rows + 1)
        return [trials[k] for k in np.argsort(-rough, kind="stable")[:ATTACK_TRIALS].tolist()]
