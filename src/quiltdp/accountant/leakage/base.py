"""One signature for every leakage bound.

A bound is built once for a model and its protected units (all work that does not depend on the
mechanism), and then evaluated at any α: ``bound.evaluate(alpha).epsilon[k]`` is a certified upper
bound on the leakage of unit ``k``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bound", "RecordBounds", "Vector"]

Vector: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RecordBounds:
    """What one bound says at one α.

    Parameters
    ----------
    epsilon
        One leakage per protected unit, rounded up; ``inf`` is a value, NaN is refused.
    method
        The bound's name, e.g. ``"clique-tree"``.
    witnesses
        For some units, what forces the value (quilt, states, …); may be empty.
    notes
        What fell back to a looser bound, for people to read.
    """

    epsilon: Vector
    method: str
    witnesses: Mapping[int, Mapping[str, object]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Freeze a copy of the values; refuse NaN and negative ones."""
        values = np.array(self.epsilon, dtype=np.float64)
        if values.ndim != 1 or np.isnan(values).any() or (values < 0).any():
            raise ValueError(f"{self.method}: leakages must be a vector of numbers in [0, ∞]")
        values.flags.writeable = False
        object.__setattr__(self, "epsilon", values)

    def witness(self, unit: int) -> Mapping[str, object]:
        """Return what forces the value of ``unit`` (may be empty)."""
        return self.witnesses.get(unit, {})


class Bound(Protocol):
    """A sound leakage bound for one adversary; the constructor did all α-independent work."""

    @property
    def name(self) -> str:
        """The method's name."""
        ...

    @property
    def adversary(self) -> str:
        """``"informed"`` or ``"prior"``."""
        ...

    def evaluate(self, alpha: Vector) -> RecordBounds:
        """Return the leakage of every unit; ``alpha`` is aligned with ``model.nodes``, 0 for latents."""
        ...
