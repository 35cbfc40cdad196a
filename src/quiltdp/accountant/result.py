"""What the accountant answers with: a leakage, who forces it, and how it was certified."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from quiltdp import edges
from quiltdp.accountant.bounds.contract import Vector
from quiltdp.chain_views import ChainIndex, ChainNodes
from quiltdp.numbers import format_up
from quiltdp.printable import json_text, printable


@dataclass(frozen=True)
class Binding:
    """The unit with the largest leakage, and what forces it.

    ``witness`` holds what the winning method can tell: the quilt (``closed``, ``separator``), the
    known records, the values told apart.
    """

    unit: str
    epsilon: float
    method: str
    witness: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        return {**vars(self), "witness": dict(self.witness)}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Binding:
        """Read back what :meth:`to_dict` wrote."""
        unit, method, witness = given["unit"], given["method"], dict(given["witness"])
        lists = [witness.get(name) or [] for name in ("separator", "known")]
        if not (
            isinstance(unit, str) and isinstance(method, str) and all(isinstance(x, list) for x in lists)
        ):
            raise TypeError("binding")
        return cls(unit, float(given["epsilon"]), method, witness)

    def __str__(self) -> str:
        """Read as one line."""
        quilt = self.witness.get("separator")
        behind = f", quilt separator {{{', '.join(map(str, quilt))}}}" if quilt else ""
        known = self.witness.get("known")
        knows = f", adversary knows {{{', '.join(map(str, known))}}}" if known else ""
        return printable(f"{self.unit} (by {self.method}{behind}{knows})")


@dataclass(frozen=True)
class Certificate:
    """How a number was obtained.

    ``kind`` is ``exact`` (nothing sound is below it, up to the stated rounding), ``certified bound``
    (sound, rounded up), or ``published`` (the papers' formula, for comparison).  ``work`` is the work
    budget, ``stage`` the last stage that was finished, ``asked`` the method that was asked for: with them the
    number comes out again.
    """

    kind: str
    statement: str
    work: Mapping[str, Any] = field(default_factory=dict)
    stage: str = ""
    asked: str = "auto"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        return {**vars(self), "work": dict(self.work)}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Certificate:
        """Read back what :meth:`to_dict` wrote."""
        texts = (given["kind"], given["statement"], given.get("stage", ""), given.get("asked", "auto"))
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("certificate")
        kind, statement, stage, asked = texts
        return cls(kind, statement, dict(given.get("work", {})), stage, asked)

    def __str__(self) -> str:
        """Read as one line."""
        return f"{self.kind}: {self.statement}"


class PerUnit(Mapping[str, float]):
    """Leakage per unit, a read-only mapping over one array (:attr:`values_array`)."""

    def __init__(self, names: Sequence[str], values: Vector) -> None:
        self._names = names
        self.values_array = np.array(values, dtype=np.float64)
        self.values_array.flags.writeable = False
        self._index: Mapping[str, int] | None = None

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __getitem__(self, name: str) -> float:
        if self._index is None:
            names = self._names
            self._index = (
                ChainIndex(names) if isinstance(names, ChainNodes) else {n: k for k, n in enumerate(names)}
            )
        return float(self.values_array[self._index[name]])

    def top(self, count: int = 10) -> list[tuple[str, float]]:
        """Return the units with the largest leakage, the first of equal ones."""
        values, count = self.values_array, min(max(count, 0), len(self))
        if not count:
            return []
        least = np.partition(values, -count)[-count]
        above, equal = np.flatnonzero(values > least), np.flatnonzero(values == least)
        places = [*above[np.argsort(-values[above], kind="stable")], *equal[: count - len(above)]]
        return [(str(self._names[k]), float(values[k])) for k in places]

    def __repr__(self) -> str:
        """Show a few."""
        shown = ", ".join(f"{n!r}: {v:.6g}" for n, v in self.top(4))
        return f"<leakage of {len(self)} units, largest first: {shown}{', …' if len(self) > 4 else ''}>"


@dataclass(frozen=True, eq=False)
class Leakage:
    """How much an α-DP mechanism gives away about each protected unit.

    Attributes
    ----------
    epsilon
        The largest leakage: the Bayesian DP guarantee, rounded up.
    per_record
        Leakage per unit.
    binding
        The unit that has it, and why.
    method
        The method that gave ``epsilon``.
    certificate
        How it was obtained.
    by_method
        The largest leakage of any unit according to every method that was tried, over the whole model:
        in components where a method was not tried, the best of those that were stands in for it.
    """

    epsilon: float
    dp_epsilon: float | Mapping[str, float]
    per_record: PerUnit
    binding: Binding
    method: str
    certificate: Certificate
    adversary: str
    fingerprint: str
    by_method: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    protected: str = "single records"

    def __post_init__(self) -> None:
        """NaN is an error, ∞ a value; freeze the mappings."""
        if math.isnan(self.epsilon) or self.epsilon < 0:
            raise ValueError(f"leakage came out as {self.epsilon}")
        object.__setattr__(self, "by_method", MappingProxyType(dict(self.by_method)))

    def __str__(self) -> str:
        """Read as a short paragraph."""
        alpha = "unequal α" if isinstance(self.dp_epsilon, Mapping) else f"α = {self.dp_epsilon:.6g}"
        return "\n".join(
            [
                f"leakage ≤ {format_up(self.epsilon)} at {alpha} against the {self.adversary} adversary",
                f"  binding    {self.binding}",
                f"  certified  {self.certificate}",
                *(f"  note       {printable(n)}" for n in self.notes),
            ]
        )

    def plot(self, *, top: int = 20, ax: Any = None) -> Any:
        """Draw the units that leak most; return matplotlib axes."""
        return edges.plot_leakage(self, top=top, ax=ax)

    def _repr_html_(self) -> str:
        """Show in a notebook."""
        told = [
            ("adversary", self.adversary),
            ("binding", str(self.binding)),
            ("certified", str(self.certificate)),
        ]
        return str(edges.leakage_table(f"leakage ≤ {format_up(self.epsilon)}", told, self.per_record.top(10)))

    def to_dict(self, top: int | None = None) -> dict[str, Any]:
        """Return a JSON-ready dictionary; ``top`` keeps only that many units."""
        shown = dict(self.per_record.top(top)) if top is not None else dict(self.per_record)
        return {
            "epsilon": self.epsilon,
            "dp_epsilon": dict(self.dp_epsilon) if isinstance(self.dp_epsilon, Mapping) else self.dp_epsilon,
            "adversary": self.adversary,
            "protected": self.protected,
            "method": self.method,
            "certificate": self.certificate.to_dict(),
            "binding": self.binding.to_dict(),
            "per_record": shown,
            "by_method": dict(self.by_method),
            "fingerprint": self.fingerprint,
            "notes": list(self.notes),
        }

    def to_json(self) -> str:
        """Return one JSON object with stable keys; ∞ is written as the string "inf"."""
        return json_text(jsonable(self.to_dict()), indent=2)


def jsonable(value: Any) -> Any:
    """Return ``value`` with ∞ as "inf" and containers as plain lists and dicts."""
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, Mapping):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(v) for v in value]
    if isinstance(value, (set, frozenset)):
        return [jsonable(v) for v in sorted(value)]
    if isinstance(value, np.generic):
        return jsonable(value.item())
    return value
