"""The attack: an explicit mechanism and adversary, and what they give away; no bound can be below it.

Claim.  For ln h_j between 0 and α_j the likelihood h(x) = Π_j h_j(x_j) is that of an output of some
α-DP mechanism.  Against an adversary who knows x_S it leaks about a protected set T (one record, as a rule)

    Σ_{t∈T} α_t·1[x_t ≠ x_t'] + ln E[ Π_{j∉T} h_j | x_T, x_S ] − ln E[ Π_{j∉T} h_j | x_T', x_S ],

two propagations in the junction tree for each expectation.  Coordinate ascent: set ln h_j(x) to α_j where
the tilted law given x_T exceeds the one given x_T', else to 0, and repeat.  What the adversary knows is
looked for by local search, one record at a time.

Assumes.  A junction tree of affordable width; a long chain is attacked through its first steps, which is
a mechanism that reads no others.

Cost.  A few hundred propagations, counted by the work budget.

Reference.  docs/theory.md, the attack.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import Adversary, check_known_records, parse_adversary
from quiltdp.accountant.result import jsonable
from quiltdp.accountant.trade_offs import (
    ATTACK_ENTRIES,
    ATTACK_LEAST,
    ATTACK_ROUNDS,
    ATTACK_RUNS,
    ATTACK_TARGETS,
    ATTACK_TRIALS,
)
from quiltdp.accountant.units import DpEpsilon, Protect, Units, alphas, make_units, unit_name
from quiltdp.chain import ChainModel, ChainSegment, as_chain
from quiltdp.errors import InvalidArgument
from quiltdp.inference.sums import WeightedSums
from quiltdp.interface import any_model
from quiltdp.model import Model, Table
from quiltdp.numbers import down, format_down
from quiltdp.printable import json_text
from quiltdp.work import WorkBudget

Rows = NDArray[np.intp]

_MARGIN = 1e-11  # more than the rounding error of a difference of four logarithms

Told = tuple[dict[str, int], dict[str, int]]
"""The two values of a unit that are told apart: both name its records."""

_STEPS = 401  # of a long chain, the steps that the attack reads
_GLANCE = 64  # the same in passing
_PLACES = (0.5, 0.0, 1.0, 0.25, 0.75)  # where in a segment runs of steps are attacked
_MOST_RUNS = 12


@dataclass(frozen=True, eq=False)
class Attack:
    """What an explicit mechanism and adversary attain.

    Attributes
    ----------
    leakage
        Attained, rounded down: no certified bound can be below it.
    target, values
        The record, and the two values of it that are told apart; of a set its name and both values as texts.
    told
        The two values of the protected set, record by record.
    knows
        What the adversary knows: record → value.
    mechanism
        ln h_j(x): for every record that the mechanism reads, by state, between 0 and α_j.
    """

    leakage: float
    target: str
    values: tuple[str, str]
    knows: Mapping[str, str]
    mechanism: Mapping[str, Mapping[str, float]]
    adversary: str
    dp_epsilon: float | Mapping[str, float]
    fingerprint: str
    told: tuple[Mapping[str, str], Mapping[str, str]]

    def __post_init__(self) -> None:
        """Freeze the mappings."""
        object.__setattr__(self, "knows", MappingProxyType(dict(self.knows)))
        object.__setattr__(self, "told", tuple(MappingProxyType(dict(side)) for side in self.told))
        object.__setattr__(self, "mechanism", MappingProxyType(dict(self.mechanism)))

    def replay(self, model: Model) -> float:
        """Return the leakage computed anew from the mechanism and the adversary, rounded down.

        Raises
        ------
        InvalidArgument
            If the model is another one, or the mechanism costs more than it says.
        """
        if model.fingerprint != self.fingerprint:
            raise InvalidArgument("this attack was found on another model")
        alpha = alphas(model, self.dp_epsilon)
        for name, table in self.mechanism.items():
            if not all(0.0 <= v <= alpha[model.index[name]] for v in table.values()):
                raise InvalidArgument(f"the mechanism reads record {name!r} more sharply than its α allows")
        part = attackable_part(model)
        names = {n: part.states[n] for n in part.nodes}
        known = {n: names[n].index(v) for n, v in self.knows.items()}
        first, second = ({n: names[n].index(v) for n, v in side.items()} for side in self.told)
        tilt = {n: np.array([t[s] for s in names[n]]) for n, t in self.mechanism.items() if n not in first}
        costs = [float(alpha[model.index[n]]) for n in first if first[n] != second[n]]
        return attained(WeightedSums(part), (first, second), known, tilt, total_cost(costs))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        told, mechanism = [dict(side) for side in self.told], {n: dict(t) for n, t in self.mechanism.items()}
        shown = {"values": list(self.values), "told": told, "knows": dict(self.knows), "mechanism": mechanism}
        return {**vars(self), **shown}

    def to_json(self) -> str:
        """Return one JSON object with stable keys."""
        return json_text(jsonable(self.to_dict()), indent=2)

    def __str__(self) -> str:
        """Read as a short paragraph."""
        known = ", ".join(f"{n} = {v}" for n, v in self.knows.items()) or "nothing"
        read = sum(1 for t in self.mechanism.values() if len(set(t.values())) > 1)
        return "\n".join(
            [
                f"leakage ≥ {format_down(self.leakage)} is attained against the {self.adversary} adversary",
                f"  about      {self.target}: {self.values[0]} or {self.values[1]}",
                f"  knowing    {known}",
                f"  mechanism  reads {read} records, each by at most its α",
            ]
        )


@any_model
def attack(
    model: Model,
    dp_epsilon: DpEpsilon,
    adversary: str | Adversary = "informed",
    *,
    protect: Protect = None,
    window: int = 1,
    work: str | WorkBudget = "normal",
    max_entries: int = 2**23,
    in_passing: bool = False,
    steps: int | None = None,
) -> Attack:
    """Return the strongest product-form attack that a deterministic search finds.

    Parameters
    ----------
    model
        The model of the correlation.
    dp_epsilon
        α of the mechanism: one number, or one per record.
    adversary
        ``informed``, ``prior``, or one who knows some records.
    protect, window
        What is protected: single records by default, named sets of them, or runs of steps of a chain.
    work
        How long to search, in propagations: ``quick``, ``normal`` or ``thorough``.
    max_entries
        The most entries of a table of the junction tree.
    in_passing
        Search less than ``quick``, and read fewer steps of a chain: beside another answer, which should not
        wait for it.
    steps
        Of a longer chain, the steps that the attack reads.

    Raises
    ------
    ModelTooWide
        If the model has no junction tree of affordable width.

    Examples
    --------
    >>> import quiltdp as qd
    >>> chain = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=5)
    >>> found = qd.attack(chain, dp_epsilon=0.1)
    >>> round(found.leakage, 4), round(found.replay(chain), 4)
    (0.3877, 0.3877)
    """
    who = check_known_records(parse_adversary(adversary), model)
    alpha = alphas(model, dp_epsilon)
    part = attackable_part(model, steps or (_GLANCE if in_passing else _STEPS))
    own = np.array([alpha[model.index[n]] for n in part.nodes])
    sums = WeightedSums(part, max_entries=max_entries)
    level = "passing" if in_passing else WorkBudget.named(work).level
    units = _units_inside(part, make_units(model, protect, window))
    found = AttackSearch(sums, own, who, level, units).best()
    first, second = found.told
    states = part.states
    tilt = dict(found.tilt)
    for n in first:
        raised = (np.arange(len(states[n])) == first[n]) & (first[n] != second[n])
        tilt[n] = np.where(raised, own[part.index[n]], 0.0)
    mechanism = {
        n: dict(zip(states[n], t.tolist(), strict=True)) for n, t in tilt.items() if n not in found.known
    }
    told = tuple({n: states[n][x] for n, x in side.items()} for side in found.told)
    return Attack(
        found.leaks,
        unit_name(first),
        (_format_values(told[0]), _format_values(told[1])),
        {n: states[n][v] for n, v in found.known.items()},
        mechanism,
        who.name,
        dict(dp_epsilon) if isinstance(dp_epsilon, Mapping) else float(dp_epsilon),
        model.fingerprint,
        (told[0], told[1]),
    )


def _format_values(values: Mapping[str, str]) -> str:
    """Return the values of a unit as people read them: of one record, its value."""
    return (
        next(iter(values.values()))
        if len(values) == 1
        else ", ".join(f"{n} = {v}" for n, v in values.items())
    )


def _units_inside(part: Model, units: Units) -> list[tuple[str, ...]] | None:
    """Return the sets to attack, ``None`` for every record; of runs of steps, a few of them."""
    if units.members is not None:
        inside = [u for u in units.members if all(n in part.index for n in u)]
        if not inside:
            raise InvalidArgument("no protected set lies within the steps that the attack reads")
        return inside
    if units.window == 1:
        return None
    found: dict[int, tuple[str, ...]] = {}
    start = 0
    for segment in as_chain(part).segments:
        length = min(units.window, segment.length)
        for share in _PLACES:
            at = start + round(share * (segment.length - length))
            found.setdefault(at, tuple(part.nodes[at : at + length]))
        start += segment.length
        if len(found) >= _MOST_RUNS:
            break
    return list(found.values())


def attackable_part(model: Model, steps: int = _STEPS) -> Model:
    """Return the model, or the first steps of its longest chain."""
    if not isinstance(model, ChainModel) or len(model.nodes) <= steps:
        return model
    longest = max(model.segments, key=lambda s: s.length)
    length = min(longest.length, steps)
    moves = longest.transitions if longest.homogeneous else longest.transitions[: length - 1]
    part = ChainSegment(longest.prefix, length, longest.initial, moves)
    return ChainModel([part], model.states[model.nodes[0]])


# -- the search ----------------------------------------------------------------------------
# Targets by what they tell at small α, then ascent, then what is known.  Deterministic, and bounded in
# propagations: fewer of them where the tree is large, so that the entries that are touched are bounded too.


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
        targets = self._rank_targets()
        for k, (rough, told) in enumerate(targets):
            if k and (self.left <= 0 or rough < 0.3 * best.leaks):
                break
            this = self._attack_unit(told, keep=self.left - self.left // (len(targets) - k))
            best = this if this.leaks > best.leaks else best
        if best.told[0] == best.told[1]:
            return best
        return replace(
            best, leaks=attained(self._sums, best.told, best.known, best.tilt, self._own_cost(best.told))
        )

    def _own_cost(self, told: Told) -> float:
        """Return Σ α of the records in which the two values differ, rounded down."""
        return total_cost([self._alpha[n] for n in told[0] if told[0][n] != told[1][n]])

    def _propagations(self, cases: int) -> int:
        """Return what many cases at once cost, in propagations: little where the overhead is most of it."""
        return 1 + int(cases * max(0.05, self._sums.size / self._sums.effort))

    def _record_laws(self, cases: Sequence[Mapping[str, int]]) -> tuple[Table, dict[str, Table]]:
        """Return ln P and the laws of many cases at once, and count them."""
        self.left -= self._propagations(len(cases))
        return self._sums.laws(self._sums.weights(cases))

    def _weak_leakage(
        self, unit: Collection[str], laws: Mapping[str, Table], first: Rows, second: Rows
    ) -> Table:
        """Return Σ_j α_j TV_j of the records outside a unit for pairs of rows: what they tell at small α."""
        total = np.zeros(len(first))
        for n, a in self._alpha.items():
            if n not in unit:
                total += 0.5 * a * np.abs(laws[n][first] - laws[n][second]).sum(axis=1)
        return total

    def _rank_targets(self) -> list[tuple[float, Told]]:
        """Return the units that tell most at small α, each with two values, and how much that is.

        The records of a unit get their values one after the other, each as tells most.
        """
        units: list[tuple[str, ...]] = []
        planned = 0
        for unit in self._units:
            planned += (1 if len(unit) == 1 else 2) * sum(map(self._model.cardinality, unit))
            if units and self._propagations(planned) > self.left // 2:
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
            means, laws = self._record_laws(cases)
            for k, (one, two) in rows.items():
                count = self._model.cardinality(units[k][place])
                x, y = (a.ravel() for a in np.indices((count, count)))
                tells = self._weak_leakage(units[k], laws, one + x, two + y)
                tells += [self._own_cost((cases[one + i], cases[two + j])) for i, j in zip(x, y, strict=True)]
                tells[(means[one + x] == -np.inf) | (means[two + y] == -np.inf)] = -1.0
                top = int(np.argmax(tells))
                told[k], rough[k] = (cases[one + x[top]], cases[two + y[top]]), tells[top]
        found = [(float(r), t) for r, t in zip(rough, told, strict=True) if t[0] != t[1]]
        found.sort(key=lambda item: (-item[0], self._model.index[next(iter(item[1][0]))]))
        return found[:ATTACK_TARGETS]

    def _ascend_tilts(
        self, told: Told, known: Sequence[Mapping[str, int]], rounds: int = ATTACK_ROUNDS
    ) -> list[tuple[float, dict[str, Table]]]:
        """Return for all that may be known the leakage and the mechanism that coordinate ascent reaches.

        The leakages are those of a quick propagation: they rank attacks.
        """
        cases = [{**facts, **values} for facts in known for values in told]
        tilts: list[dict[str, Table]] = [{} for _ in known]
        best = [(self._own_cost(told), tilt) for tilt in tilts]
        untold = np.zeros(len(known))  # ln E under one value less ln E under the other, without a mechanism
        for turn in range(rounds + 1 if known else 0):
            self.left -= 4 * len(known)
            means, laws = self._sums.laws(self._sums.weights(cases, [tilt for tilt in tilts for _ in told]))
            gain = means[::2] - means[1::2]
            untold = untold if turn else gain
            for k, leaks in enumerate((self._own_cost(told) + gain - untold).tolist()):
                best[k] = (leaks, tilts[k]) if leaks > best[k][0] else best[k]
            raised = {
                n: (law[::2] > law[1::2]) * self._alpha[n] for n, law in laws.items() if n in self._alpha
            }
            new = [{n: raised[n][k] for n in raised if n not in cases[2 * k]} for k in range(len(known))]
            if turn and all(np.array_equal(a[n], b[n]) for a, b in zip(new, tilts, strict=True) for n in a):
                break
            tilts = new
        return best

    def _attack_unit(self, told: Told, keep: int) -> UnitAttack:
        """Attack one unit until ``keep`` propagations are left for others.

        What the adversary knows grows by one record at a time, while that helps.
        """
        ((leaks, tilt),) = self._ascend_tilts(told, [{}])
        best = UnitAttack(leaks, told, {}, tilt)
        allowed = self._alpha if self._who.records is None else self._who.records
        others = [n for n in self._alpha if n not in told[0] and n in allowed]
        most = len(others) if self._who.at_most is None else self._who.at_most
        while len(best.known) < most and self.left > keep:
            trials = self._most_telling_known_values(told, best.known, others, keep)
            reached = [
                UnitAttack(leaks, told, known, tilt)
                for known, (leaks, tilt) in zip(
                    trials, self._ascend_tilts(told, trials, rounds=2), strict=True
                )
            ]
            step = max(reached, key=lambda found: found.leaks, default=best)
            if step.leaks <= best.leaks * (1.0 + 1e-9):
                break
            best = step
        ((leaks, tilt),) = self._ascend_tilts(told, [best.known]) if best.known else [(0.0, {})]
        return UnitAttack(leaks, told, best.known, tilt) if leaks > best.leaks else best

    def _most_telling_known_values(
        self, told: Told, known: Mapping[str, int], others: Sequence[str], keep: int
    ) -> list[dict[str, int]]:
        """Return what might be learned next: the few values that tell most at small α."""
        laws = self._record_laws([{**known, **values} for values in told])[1]
        # records on which the two hypotheses disagree most are asked first, should the work end early
        apart = {n: -float(np.abs(laws[n][0] - laws[n][1]).sum()) for n in others if n not in known}
        trials: list[dict[str, int]] = []
        for n in sorted(apart, key=lambda n: (apart[n], self._model.index[n])):
            if not trials or self._propagations(2 * len(trials)) <= self.left - keep:
                trials += [{**known, n: x} for x in np.flatnonzero((laws[n] > 0).all(axis=0)).tolist()]
        if not trials:
            return []
        laws = self._record_laws([{**trial, **values} for trial in trials for values in told])[1]
        rows = np.arange(len(trials), dtype=np.intp) * 2
        rough = self._weak_leakage(told[0], laws, rows, rows + 1)
        return [trials[k] for k in np.argsort(-rough, kind="stable")[:ATTACK_TRIALS].tolist()]
