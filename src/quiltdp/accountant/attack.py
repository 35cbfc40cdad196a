"""The attack: an explicit mechanism and adversary, and what they give away; no bound can be below it.

Claim.  For ln h_j between 0 and α_j the likelihood h(x) = Π_j h_j(x_j) is that of an output of some
α-DP mechanism.  Against an adversary who knows x_S it leaks about record i

    α_i + ln E[ Π_{j≠i} h_j | x_i, x_S ] − ln E[ Π_{j≠i} h_j | x_i', x_S ],

two propagations in the junction tree for each expectation.  Coordinate ascent: set ln h_j(x) to α_j where
the tilted law given x_i exceeds the one given x_i', else to 0, and repeat.  What the adversary knows is
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

from quiltdp.accountant.adversaries import Adversary, adversary_from
from quiltdp.accountant.attack_search import AttackSearch, attained
from quiltdp.accountant.known_records import check_known
from quiltdp.accountant.result import jsonable
from quiltdp.accountant.units import DpEpsilon, alpha_vector
from quiltdp.chain import ChainModel, ChainSegment
from quiltdp.errors import InvalidArgument
from quiltdp.inference.marginals import TiltedTree
from quiltdp.model import Model
from quiltdp.numbers import shown_down
from quiltdp.printable import json_text
from quiltdp.work import WorkBudget

__all__ = ["Attack", "attack", "attackable"]

_STEPS = 401  # of a long chain, the steps that the attack reads
_GLANCE = 64  # the same in passing


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
        part = attackable(model)
        names = {n: part.states[n] for n in part.nodes}
        known = {n: names[n].index(v) for n, v in self.knows.items()}
        tilt = {n: np.array([t[s] for s in names[n]]) for n, t in self.mechanism.items() if n != self.target}
        pair = tuple(names[self.target].index(v) for v in self.values)
        own = float(alpha[model.index[self.target]])
        return attained(TiltedTree(part), self.target, (pair[0], pair[1]), known, tilt, own)

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
                f"leakage ≥ {shown_down(self.leakage)} is attained against the {self.adversary} adversary",
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
    alpha = alpha_vector(model, dp_epsilon)
    part = attackable(model, steps or (_GLANCE if in_passing else _STEPS))
    own = np.array([alpha[model.index[n]] for n in part.nodes])
    tree = TiltedTree(part, max_entries=max_entries)
    found = AttackSearch(tree, own, who, "passing" if in_passing else WorkBudget.named(work).level).best()
    target, pair, known = found.target, found.pair, found.known
    states = part.states
    tilt = {
        **found.tilt,
        target: np.where(np.arange(len(states[target])) == pair[0], own[part.index[target]], 0.0),
    }
    mechanism = {n: dict(zip(states[n], t.tolist(), strict=True)) for n, t in tilt.items() if n not in known}
    return Attack(
        found.leaks,
        target,
        (states[target][pair[0]], states[target][pair[1]]),
        {n: states[n][v] for n, v in known.items()},
        mechanism,
        who.name,
        dict(dp_epsilon) if isinstance(dp_epsilon, Mapping) else float(dp_epsilon),
        model.fingerprint,
    )


def attackable(model: Model, steps: int = _STEPS) -> Model:
    """Return the model, or the first steps of its longest chain."""
    if not isinstance(model, ChainModel) or len(model.nodes) <= steps:
        return model
    longest = max(model.segments, key=lambda s: s.length)
    length = min(longest.length, steps)
    moves = longest.transitions if longest.homogeneous else longest.transitions[: length - 1]
    part = ChainSegment(longest.prefix, length, longest.initial, moves)
    return ChainModel([part], model.states[model.nodes[0]])
