"""The search behind an attack: targets by what they tell at small α, then ascent, then what is known.

Deterministic, and bounded in propagations: fewer of them where the tree is large, so that the entries
that are touched are bounded too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
from quiltdp.inference.sums import WeightedSums
from quiltdp.model import Table
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
    sums: WeightedSums, told: Told, known: Mapping[str, int], tilt: Mapping[str, Table], own: float
) -> float:
    """Return Σ α of the records that differ + ln E[h | x_T, x_S] − ln E[h | x_T', x_S], rounded down."""
    first, second = ({**known, **values} for values in told)
    cases, tilts = [first, first, second, second], [tilt, {}, tilt, {}]
    one, alone, two, alone_two = sums.log_means(sums.weights(cases, tilts)).tolist()
    value = own + (one - alone) - (two - alone_two)
    return max(0.0, down(value - _MARGIN * (1.0 + abs(value))))


def total_cost(costs: Sequence[float]) -> float:
    """Return the sum of what the records of a unit cost, rounded down."""
    return costs[0] if len(costs) == 1 else max(0.0, down(sum(costs), 4.0 + 4.0 * len(costs)))


class AttackSearch:
    """The best attack that a bounded, deterministic search finds.

    ``units`` are sets of records that are protected together; default: every record by itself.
    """

    def __init__(
        self,
        sums: WeightedSums,
        alpha: Table,
        who: Adversary,
        level: str,
        units: Sequence[tuple[str, ...]] | None = None,
    ) -> None:
        self._sums, self._model, self._who = sums, sums.model, who
        self._alpha = {n: float(alpha[self._model.index[n]]) for n in self._model.records}
        level = level if level in ATTACK_RUNS else "normal"
        self.left = max(ATTACK_LEAST, int(min(ATTACK_RUNS[level], ATTACK_ENTRIES[level] / sums.effort)))
        if (
            units is None
        ):  # hubs and records in the middle first, should there be too many for the work allowed
            near, middle, index = sums.neighbours, len(self._model.nodes) / 2.0, self._model.index
            order = sorted(self._model.records, key=lambda n: (-near[n], abs(index[n] - middle), index[n]))
            units = [(n,) for n in order]
        self._units = units

    def best(self) -> UnitAttack:
        """Return the best attack on any unit."""
        nothing = dict.fromkeys(self._units[0], 0)
        best = UnitAttack(0.0, (nothing, nothing), {}, {})  # where every unit has one possible value
        targets = self._targets()
        for k, (rough, told) in enumerate(targets):
            if k and (self.left <= 0 or rough < 0.3 * best.leaks):
                break
            this = self._attack(told, keep=self.left - self.left // (len(targets) - k))
            best = this if this.leaks > best.leaks else best
        if best.told[0] == best.told[1]:
            return best
        return replace(
            best, leaks=attained(self._sums, best.told, best.known, best.tilt, self._own(best.told))
        )

    def _own(self, told: Told) -> float:
        """Return Σ α of the records in which the two values differ, rounded down."""
        return total_cost([self._alpha[n] for n in told[0] if told[0][n] != told[1][n]])

    def _price(self, cases: int) -> int:
        """Return what many cases at once cost, in propagations: little where the overhead is most of it."""
        return 1 + int(cases * max(0.05, self._sums.size / self._sums.effort))

    def _laws(self, cases: Sequence[Mapping[str, int]]) -> tuple[Table, dict[str, Table]]:
        """Return ln P and the laws of many cases at once, and count them."""
        self.left -= self._price(len(cases))
        return self._sums.laws(self._sums.weights(cases))

    def _rough(self, unit: Collection[str], laws: Mapping[str, Table], first: Rows, second: Rows) -> Table:
        """Return Σ_j α_j TV_j of the records outside a unit for pairs of rows: what they tell at small α."""
        total = np.zeros(len(first))
        for n, a in self._alpha.items():
            if n not in unit:
                total += 0.5 * a * np.abs(laws[n][first] - laws[n][second]).sum(axis=1)
        return total

    def _targets(self) -> list[tuple[float, Told]]:
        """Return the units that tell most at small α, each with two values, and how much that is.

        The records of a unit get their values one after the other, each as tells most.
        """
        units: list[tuple[str, ...]] = []
        planned = 0
        for unit in self._units:
            planned += (1 if len(unit) == 1 else 2) * sum(map(self._model.cardinality, unit))
            if units and self._price(planned) > self.left // 2:
                break
            units.append(unit)
        told: list[Told] = [({}, {}) for _ in units]
        rough = np.zeros(len(units))
        for place in range(max(map(len, units))):
            cases: list[dict[str, int]] = []
            rows: dict[int, tuple[int, int]] = {}
            for k, unit in enumerate(units):
                if place < len(unit):
                    sides, states = told[k][: 2 if place else 1], range(self._model.cardinality(unit[place]))
                    rows[k] = len(cases), len(cases) + len(states) * (len(sides) - 1)
                    cases += [{**side, unit[place]: x} for side in sides for x in states]
            means, laws = self._laws(cases)
            for k, (one, two) in rows.items():
                count = self._model.cardinality(units[k][place])
                x, y = (a.ravel() for a in np.indices((count, count)))
                tells = self._rough(units[k], laws, one + x, two + y)
                tells += [self._own((cases[one + i], cases[two + j])) for i, j in zip(x, y, strict=True)]
                tells[(means[one + x] == -np.inf) | (means[two + y] == -np.inf)] = -1.0
                top = int(np.argmax(tells))
                told[k], rough[k] = (cases[one + x[top]], cases[two + y[top]]), tells[top]
        found = [(float(r), t) for r, t in zip(rough, told, strict=True) if t[0] != t[1]]
        found.sort(key=lambda item: (-item[0], self._model.index[next(iter(item[1][0]))]))
        return found[:ATTACK_TARGETS]

    def _ascend(
        self, told: Told, known: Sequence[Mapping[str, int]], rounds: int = ATTACK_ROUNDS
    ) -> list[tuple[float, dict[str, Table]]]:
        """Return for all that may be known the leakage and the mechanism that coordinate ascent reaches.

        The leakages are those of a quick propagation: they rank attacks.
        """
        cases = [{**facts, **values} for facts in known for values in told]
        tilts: list[dict[str, Table]] = [{} for _ in known]
        best = [(self._own(told), tilt) for tilt in tilts]
        untold = np.zeros(len(known))  # ln E under one value less ln E under the other, without a mechanism
        for turn in range(rounds + 1 if known else 0):
            self.left -= 4 * len(known)
            means, laws = self._sums.laws(self._sums.weights(cases, [tilt for tilt in tilts for _ in told]))
            gain = means[::2] - means[1::2]
            untold = untold if turn else gain
            for k, leaks in enumerate((self._own(told) + gain - untold).tolist()):
                best[k] = (leaks, tilts[k]) if leaks > best[k][0] else best[k]
            raised = {
                n: (law[::2] > law[1::2]) * self._alpha[n] for n, law in laws.items() if n in self._alpha
            }
            new = [{n: raised[n][k] for n in raised if n not in cases[2 * k]} for k in range(len(known))]
            if turn and all(np.array_equal(a[n], b[n]) for a, b in zip(new, tilts, strict=True) for n in a):
                break
            tilts = new
        return best

    def _attack(self, told: Told, keep: int) -> UnitAttack:
        """Attack one unit until ``keep`` propagations are left for others.

        What the adversary knows grows by one record at a time, while that helps.
        """
        ((leaks, tilt),) = self._ascend(told, [{}])
        best = UnitAttack(leaks, told, {}, tilt)
        allowed = self._alpha if self._who.records is None else self._who.records
        others = [n for n in self._alpha if n not in told[0] and n in allowed]
        most = len(others) if self._who.at_most is None else self._who.at_most
        while len(best.known) < most and self.left > keep:
            trials = self._trials(told, best.known, others, keep)
            reached = [
                UnitAttack(leaks, told, known, tilt)
                for known, (leaks, tilt) in zip(trials, self._ascend(told, trials, rounds=2), strict=True)
            ]
            step = max(reached, key=lambda found: found.leaks, default=best)
            if step.leaks <= best.leaks * (1.0 + 1e-9):
                break
            best = step
        ((leaks, tilt),) = self._ascend(told, [best.known]) if best.known else [(0.0, {})]
        return UnitAttack(leaks, told, best.known, tilt) if leaks > best.leaks else best

    def _trials(
        self, told: Told, known: Mapping[str, int], others: Sequence[str], keep: int
    ) -> list[dict[str, int]]:
        """Return what might be learned next: the few values that tell most at small α."""
        laws = self._laws([{**known, **values} for values in told])[1]
        # records on which the two hypotheses disagree most are asked first, should the work end early
        apart = {n: -float(np.abs(laws[n][0] - laws[n][1]).sum()) for n in others if n not in known}
        trials: list[dict[str, int]] = []
        for n in sorted(apart, key=lambda n: (apart[n], self._model.index[n])):
            if not trials or self._price(2 * len(trials)) <= self.left - keep:
                trials += [{**known, n: x} for x in np.flatnonzero((laws[n] > 0).all(axis=0)).tolist()]
        if not trials:
            return []
        laws = self._laws([{**trial, **values} for trial in trials for values in told])[1]
        rows = np.arange(len(trials), dtype=np.intp) * 2
        rough = self._rough(told[0], laws, rows, rows + 1)
        return [trials[k] for k in np.argsort(-rough, kind="stable")[:ATTACK_TRIALS].tolist()]
