"""How much one parent can move its child: total variation between rows of a conditional table."""

from __future__ import annotations

import numpy as np

from quiltdp.model import Factor, Table

__all__ = ["contraction", "parent_distances"]

ROUNDING = 1e-15


def parent_distances(factor: Factor) -> tuple[float, ...]:
    """Return θ_{p→j} for every parent p of a CPT, in the order of its axes, rounded up.

    θ_{p→j} is the largest total variation between two rows of j's table that differ only in p:
    all rows count, also those of impossible parent combinations.

    Examples
    --------
    >>> from quiltdp import Model
    >>> m = Model.from_tables({"A": ([], [0.3, 0.7]), "B": (["A"], [[0.9, 0.1], [0.2, 0.8]])})
    >>> [round(theta, 9) for theta in parent_distances(m.factors[1])]
    [0.7]
    """
    table = factor.table
    found = []
    for axis in range(table.ndim - 1):
        rows = np.moveaxis(table, axis, 0).reshape(table.shape[axis], -1, table.shape[-1])
        worst = 0.0
        for a in range(len(rows) - 1):
            worst = max(worst, float(np.abs(rows[a + 1 :] - rows[a]).sum(axis=-1).max()) / 2)
        found.append(min(1.0, worst + ROUNDING * table.shape[-1]) if worst > 0 else 0.0)
    return tuple(found)


def contraction(transition: Table) -> float:
    """Return the largest total variation between two rows of a transition matrix, rounded up.

    Examples
    --------
    >>> import numpy as np
    >>> round(contraction(np.array([[0.9, 0.1], [0.1, 0.9]])), 9)
    0.8
    """
    worst = 0.0
    for a in range(len(transition) - 1):
        worst = max(worst, float(np.abs(transition[a + 1 :] - transition[a]).sum(axis=-1).max()) / 2)
    return min(1.0, worst + ROUNDING * transition.shape[1]) if worst > 0 else 0.0
