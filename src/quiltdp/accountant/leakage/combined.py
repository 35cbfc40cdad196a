"""Several bounds as one: the smallest is sound, because each is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.leakage.base import Bound, Vector
from quiltdp.accountant.leakage.forward_backward import ForwardBackwardBound
from quiltdp.accountant.leakage.limit import ExactBound
from quiltdp.accountant.leakage.quilts import QuiltsBound

__all__ = ["Combined", "CombinedBounds"]


@dataclass(frozen=True, eq=False)
class CombinedBounds:
    """The smallest bound of every unit, which method gave it, and what each method says."""

    epsilon: Vector
    winner: NDArray[np.intp]
    names: tuple[str, ...]
    largest: Mapping[str, float]
    witnesses: Mapping[int, Mapping[str, object]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Combined:
    """Evaluate bounds one after the other and keep the smallest value of every unit.

    Parameters
    ----------
    bounds
        Sound bounds for the same model and units, cheapest first.
    """

    def __init__(self, bounds: Sequence[Bound]) -> None:
        self.bounds = tuple(bounds)

    def evaluate(self, alpha: Vector, *, floor: float = 0.0, enough: float = math.inf) -> CombinedBounds:
        """Return the smallest bound of every unit.

        ``floor`` lets expensive bounds pass over units that are known to leak no more than it;
        ``enough`` lets them stop once something leaks more than it (see :class:`ExactBound`).
        """
        best: Vector | None = None
        winner = np.zeros(0, dtype=np.intp)
        witnesses: dict[int, Mapping[str, object]] = {}
        largest: dict[str, float] = {}
        notes: list[str] = []
        for k, bound in enumerate(self.bounds):
            if best is not None and best.max(initial=0.0) <= floor:
                break  # nothing left to tell apart
            if isinstance(bound, ExactBound):
                found = bound.evaluate(alpha, floor=floor, enough=enough, ceiling=best)
            elif isinstance(bound, QuiltsBound):
                found = bound.evaluate(alpha, floor=floor)
            elif isinstance(bound, ForwardBackwardBound):
                found = bound.evaluate(alpha, floor=floor, enough=enough)
            else:
                found = bound.evaluate(alpha)
            notes.extend(n for n in found.notes if n not in notes)
            top = float(found.epsilon.max(initial=0.0))
            largest[bound.name] = min(top, largest.get(bound.name, top))
            better = np.arange(len(found.epsilon)) if best is None else np.flatnonzero(found.epsilon < best)
            if best is None:
                best, winner = np.array(found.epsilon), np.zeros(len(found.epsilon), dtype=np.intp)
            best[better] = found.epsilon[better]
            winner[better] = k
            for unit in better.tolist() if len(better) < 10_000 else list(found.witnesses):
                if found.epsilon[unit] == best[unit]:
                    witnesses[unit] = found.witness(unit)
        assert best is not None, "at least one bound"
        names = tuple(b.name for b in self.bounds)
        return CombinedBounds(best, winner, names, largest, witnesses, tuple(notes))

    def group(self, count: int, total: float) -> CombinedBounds:
        """Return the α's of the whole component for every unit: group privacy, without any work."""
        names = tuple(b.name for b in self.bounds)
        zeros = np.zeros(count, dtype=np.intp)
        return CombinedBounds(np.full(count, total), zeros, names, dict.fromkeys(names, total))
