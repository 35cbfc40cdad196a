"""The attack: an explicit mechanism and adversary, and what they give away; no bound can be below it.

Claim.  For ln h_j between 0 and α_j the likelihood h(x) = Π_j h_j(x_j) is that of an output of some
α-DP mechanism.  Against an adversary who knows x_S it leaks about a protected set T (one record, as a rule)

    Σ_{t∈T} α_t·1[x_t ≠ x_t'] + ln E[ Π_{j∉T} h_j | x_T, x_S ] − ln E[ Π_{j∉T} h_j | x_T', x_S ],

two propagations in the junction tree for each expectation.  Coordinate ascent: set ln h_j(x) to α_j where
the tilted law given x_T exceeds the one given x_T', else to 0, and repeat.  What the adversary knows is
looked for by local search, one record at a time (``attack_search``).

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

from quiltdp.accountant.adversaries import Adversary, adversary_from, check_known
from quiltdp.accountant.attack_search import AttackSearch, attained, total_cost
from quiltdp.accountant.result import jsonable
from quiltdp.accountant.units import DpEpsilon, Protect, Units, alphas, make_units, unit_name
from quiltdp.chain import ChainModel, ChainSegment, as_chain
from quiltdp.errors import InvalidArgument
from quiltdp.inference.sums import WeightedSums
from quiltdp.interface import any_model
from quiltdp.model import Model
from quiltdp.numbers import format_down
from quiltdp.printable import json_text
from quiltdp.work import WorkBudget

__all__ = ["Attack", "attack", "attackable"]

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
        part = attackable(model)
        names = {n: part.states[n] for n in part.nodes}
        known = {n: names[n].index(v) for n, v in self.knows.items()}
        first, second = ({n: names[n].index(v) for n, v in side.items()} for side in self.told)
        tilt = {n: np.array([t[s] for s in names[n]]) for n, t in self.mechanism.items() if n not in first}
        costs = [float(alpha[model.index[n]]) for n in first if first[n] != second[n]]
        return attained(WeightedSums(part), (first, second), known, tilt, total_cost(costs))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        return {
            "leakage": self.leakage,
            "target": self.target,
            "values": list(self.values),
            "told": [dict(side) for side in self.told],
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
    who = check_known(adversary_from(adversary), model)
    alpha = alphas(model, dp_epsilon)
    part = attackable(model, steps or (_GLANCE if in_passing else _STEPS))
    own = np.array([alpha[model.index[n]] for n in part.nodes])
    sums = WeightedSums(part, max_entries=max_entries)
    level = "passing" if in_passing else WorkBudget.named(work).level
    units = _units_of(part, make_units(model, protect, window))
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
        (_text(told[0]), _text(told[1])),
        {n: states[n][v] for n, v in found.known.items()},
        mechanism,
        who.name,
        dict(dp_epsilon) if isinstance(dp_epsilon, Mapping) else float(dp_epsilon),
        model.fingerprint,
        (told[0], told[1]),
    )


def _text(values: Mapping[str, str]) -> str:
    """Return the values of a unit as people read them: of one record, its value."""
    return (
        next(iter(values.values()))
        if len(values) == 1
        else ", ".join(f"{n} = {v}" for n, v in values.items())
    )


def _units_of(part: Model, units: Units) -> list[tuple[str, ...]] | None:
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


def attackable(model: Model, steps: int = _STEPS) -> Model:
    """Return the model, or the first steps of its longest chain."""
    if not isinstance(model, ChainModel) or len(model.nodes) <= steps:
        return model
    longest = max(model.segments, key=lambda s: s.length)
    length = min(longest.length, steps)
    moves = longest.transitions if longest.homogeneous else longest.transitions[: length - 1]
    part = ChainSegment(longest.prefix, length, longest.initial, moves)
    return ChainModel([part], model.states[model.nodes[0]])
