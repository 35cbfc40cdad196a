"""The attack: an explicit mechanism and adversary, and what they give away; no bound can be below it.

Claim.  For ln h_j between 0 and α_j the likelihood h(x) = Π_j h_j(x_j) is that of an output of some
α-DP mechanism.  Against an adversary who knows x_S it leaks about record i

    α_i + ln E[ Π_{j≠i} h_j | x_i, x_S ] − ln E[ Π_{j≠i} h_j | x_i', x_S ],

two propagations in the junction tree for each expectation.  Coordinate ascent: set ln h_j(x) to α_j where
the tilted law given x_i exceeds the one given x_i', else to 0, and repeat.  What the adversary knows is
looked for by local search, one record at a time.

Assumes.  A junction tree of affordable width; a long chain is attacked through its first steps, which is
a mechanism that reads no others.

Cost.  A few hundred propagations, counted by the work budget.

Reference.  docs/theory.md, the attack.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from quiltdp.accountant.adversaries import Adversary, adversary_from
from quiltdp.accountant.result import jsonable
from quiltdp.accountant.units import DpEpsilon, alpha_vector
from quiltdp.chain import ChainModel, ChainSegment
from quiltdp.errors import InvalidArgument
from quiltdp.inference.tilted import TiltedTree
from quiltdp.model import Model, Table
from quiltdp.numbers import down
from quiltdp.printable import json_text
from quiltdp.work import WorkBudget

__all__ = ["Attack", "attack"]

_STEPS = 401  # of a long chain, the steps that the attack reads
_ROUNDS = 12  # of coordinate ascent; it settles after three or four
_RUNS = {"quick": 400, "normal": 2_000, "thorough": 40_000}  # propagations
_MARGIN = 1e-11  # more than the rounding error of a difference of four logarithms


@dataclass(frozen=True, eq=False)
class Attack:
    """What an explicit mechanism and adversary attain.

    Attributes
    ----------
    leakage
        Attained, rounded down: no certified bound can be below it.
    target, values
        The record, and the two values of it that are told apart.
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

    def __post_init__(self) -> None:
        """Freeze the mappings."""
        object.__setattr__(self, "knows", MappingProxyType(dict(self.knows)))
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
        alpha = alpha_vector(model, self.dp_epsilon)
        for name, table in self.mechanism.items():
            if not all(0.0 <= v <= alpha[model.index[name]] for v in table.values()):
                raise InvalidArgument(f"the mechanism reads record {name!r} more sharply than its α allows")
        part = _attackable(model)
        names = {n: part.states[n] for n in part.nodes}
        known = {n: names[n].index(v) for n, v in self.knows.items()}
        tilt = {n: np.array([t[s] for s in names[n]]) for n, t in self.mechanism.items() if n != self.target}
        pair = tuple(names[self.target].index(v) for v in self.values)
        own = float(alpha[model.index[self.target]])
        return _attained(TiltedTree(part), self.target, (pair[0], pair[1]), known, tilt, own)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        return {
            "leakage": self.leakage,
            "target": self.target,
            "values": list(self.values),
            "knows": dict(self.knows),
            "mechanism": {n: dict(t) for n, t in self.mechanism.items()},
            "adversary": self.adversary,
            "dp_epsilon": self.dp_epsilon,
            "fingerprint": self.fingerprint,
        }

    def to_json(self) -> str:
        """Return one JSON object with stable keys."""
        return json_text(jsonable(self.to_dict()), indent=2)

    def __str__(self) -> str:
        """Read as a short paragraph."""
        known = ", ".join(f"{n} = {v}" for n, v in self.knows.items()) or "nothing"
        read = sum(1 for t in self.mechanism.values() if len(set(t.values())) > 1)
        return "\n".join(
            [
                f"leakage ≥ {self.leakage:.6g} is attained against the {self.adversary} adversary",
                f"  about      {self.target}: {self.values[0]} or {self.values[1]}",
                f"  knowing    {known}",
                f"  mechanism  reads {read} records, each by at most its α",
            ]
        )


def attack(
    model: Model,
    dp_epsilon: DpEpsilon,
    adversary: str | Adversary = "informed",
    *,
    work: str | WorkBudget = "normal",
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
    work
        How many propagations the search may take: ``quick``, ``normal`` or ``thorough``.

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
    who = adversary_from(adversary)
    alpha = alpha_vector(model, dp_epsilon)
    part = _attackable(model)
    own = np.array([alpha[model.index[n]] for n in part.nodes])
    search = _Search(part, own, who, _RUNS.get(WorkBudget.named(work).level, _RUNS["normal"]))
    target, pair, known, tilt, leaks = search.best()
    states = part.states
    tilt = {**tilt, target: np.where(np.arange(len(states[target])) == pair[0], own[part.index[target]], 0.0)}
    mechanism = {n: dict(zip(states[n], t.tolist(), strict=True)) for n, t in tilt.items() if n not in known}
    return Attack(
        leaks,
        target,
        (states[target][pair[0]], states[target][pair[1]]),
        {n: states[n][v] for n, v in known.items()},
        mechanism,
        who.name,
        dict(dp_epsilon) if isinstance(dp_epsilon, Mapping) else float(dp_epsilon),
        model.fingerprint,
    )


def _attackable(model: Model) -> Model:
    """Return the model, or the first steps of its longest chain."""
    if not isinstance(model, ChainModel) or len(model.nodes) <= _STEPS:
        return model
    longest = max(model.segments, key=lambda s: s.length)
    length = min(longest.length, _STEPS)
    moves = longest.transitions if longest.homogeneous else longest.transitions[: length - 1]
    part = ChainSegment(longest.prefix, length, longest.initial, moves)
    return ChainModel([part], model.states[model.nodes[0]])


def _attained(
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


class _Search:
    """Targets by what they tell at small α, then ascent, then what the adversary may know."""

    def __init__(self, model: Model, alpha: Table, who: Adversary, runs: int) -> None:
        self.tree = TiltedTree(model)
        self.model = model
        self.alpha = alpha
        self.who = who
        self.left = runs
        self._prior = self._laws({}, {})

    def best(self) -> tuple[str, tuple[int, int], dict[str, int], dict[str, Table], float]:
        """Return target, values, what is known, the mechanism, and the leakage."""
        found = [(self._alone(i), i) for i in self.model.records]
        ranked = sorted(found, key=lambda item: (-item[0][0], self.model.index[item[1]]))
        best: tuple[float, str, tuple[int, int], dict[str, int], dict[str, Table]] | None = None
        for (rough, pair), target in ranked[:6]:
            if pair is None:
                continue
            if best is not None and (self.left <= 0 or rough < 0.3 * best[0]):
                break
            leaks, tilt = self._ascend(target, pair, {})
            known: dict[str, int] = {}
            if self.who.name != "prior":
                leaks, known, tilt = self._learn(target, pair, leaks, tilt)
            if best is None or leaks > best[0]:
                best = (leaks, target, pair, known, tilt)
        if best is None:  # every record has one possible value: nothing can be told apart
            first = self.model.records[0]
            return first, (0, 0), {}, {}, 0.0
        leaks, target, pair, known, tilt = best
        return target, pair, known, tilt, leaks

    def _laws(self, known: Mapping[str, int], tilt: Mapping[str, Table]) -> dict[str, Table]:
        self.left -= 1
        fixed = self.tree.evidence(known)
        free = {n: w for n, w in tilt.items() if n not in fixed}
        return self.tree.laws({**fixed, **free})[1]

    def _alone(self, target: str) -> tuple[float, tuple[int, int] | None]:
        """Return the largest α_i + Σ α_j TV_j over pairs of values, and the pair."""
        states = np.flatnonzero(self._prior[target] > 0).tolist()
        laws = {x: self._laws({target: x}, {}) for x in states}
        best: tuple[float, tuple[int, int] | None] = (0.0, None)
        for x in states:
            for y in states:
                if x != y:
                    value = self._rough(target, laws[x], laws[y])
                    if value > best[0] + 1e-15 or best[1] is None:
                        best = (value, (x, y))
        return best

    def _rough(self, target: str, p: Mapping[str, Table], q: Mapping[str, Table]) -> float:
        total = float(self.alpha[self.model.index[target]])
        for n in self.model.records:
            if n != target:
                total += float(self.alpha[self.model.index[n]]) * 0.5 * float(np.abs(p[n] - q[n]).sum())
        return total

    def _ascend(
        self, target: str, pair: tuple[int, int], known: Mapping[str, int], rounds: int = _ROUNDS
    ) -> tuple[float, dict[str, Table]]:
        """Return the leakage and the mechanism that coordinate ascent reaches."""
        tilt: dict[str, Table] = {}
        own = float(self.alpha[self.model.index[target]])
        best: tuple[float, dict[str, Table]] = (_rounded(own), {})
        for _ in range(rounds):
            p, q = (self._laws({**known, target: x}, tilt) for x in pair)
            new = {}
            for n in self.model.records:
                if n != target and n not in known:
                    new[n] = np.where(p[n] > q[n], self.alpha[self.model.index[n]], 0.0)
            self.left -= 4
            leaks = _attained(self.tree, target, pair, known, new, own)
            if leaks > best[0]:
                best = (leaks, new)
            if tilt and all(np.array_equal(new[n], tilt[n]) for n in new):
                break
            tilt = new
        return best

    def _learn(
        self, target: str, pair: tuple[int, int], leaks: float, tilt: dict[str, Table]
    ) -> tuple[float, dict[str, int], dict[str, Table]]:
        """Add to what is known, one record at a time, while that helps and the work lasts."""
        known: dict[str, int] = {}
        allowed = self.who.records
        others = [n for n in self.model.records if n != target and (allowed is None or n in allowed)]
        most = len(others) if self.who.at_most is None else min(len(others), self.who.at_most)
        while len(known) < most and self.left > 0:
            step: tuple[float, dict[str, int], dict[str, Table]] | None = None
            p, q = (self._laws({**known, target: x}, {}) for x in pair)
            for n in others:
                if n in known or self.left <= 0:
                    continue
                for value in np.flatnonzero((p[n] > 0) & (q[n] > 0)).tolist():
                    trial = {**known, n: int(value)}
                    reached, made = self._ascend(target, pair, trial, rounds=1)
                    if step is None or reached > step[0]:
                        step = (reached, trial, made)
            if step is None or step[0] <= leaks * (1.0 + 1e-9):
                break
            leaks, known, tilt = step
            more, made = self._ascend(target, pair, known)
            if more > leaks:
                leaks, tilt = more, made
        return leaks, known, tilt
