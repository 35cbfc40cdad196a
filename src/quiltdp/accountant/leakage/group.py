"""Group privacy: the bound of last resort, sound for every model and adversary.

Leakage(T) ≤ Σ α_j over the records of T's connected components: an α-DP mechanism cannot tell two
databases apart by more than the α's of the records in which they differ, and records in other
components do not depend on T.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quiltdp.accountant.leakage.base import RecordBounds, Vector
from quiltdp.model import Model
from quiltdp.rounding import up

__all__ = ["GroupBound"]


class GroupBound:
    """Σ α over a connected model, for every unit.

    Parameters
    ----------
    model
        One connected component.
    units
        The protected sets; only their number matters.
    window
        Protect runs of this many steps instead.
    """

    name = "group"
    adversary = "informed"

    def __init__(
        self, model: Model, units: Sequence[tuple[str, ...]] | None = None, *, window: int = 1
    ) -> None:
        self._count = len(model.records) if units is None else len(units)
        if window > 1:
            self._count = max(1, len(model.nodes) - window + 1)

    def evaluate(self, alpha: Vector) -> RecordBounds:
        """Return the sum of all α for every unit."""
        total = up(float(alpha.sum()), len(alpha) + 8.0) if alpha.any() else 0.0
        return RecordBounds(np.full(self._count, total), self.name)
