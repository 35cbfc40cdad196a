"""Nodes with one possible value: nothing can be told about them, whoever asks.

Possible values are narrowed table by table: a value of a node is kept while some entry of every table that
holds it is positive, the other nodes having values that are kept.  What is left may be too much, never
too little, so a node with one value left has no other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from quiltdp.chain import ChainModel
from quiltdp.model import Model

__all__ = ["determined_nodes"]

_PASSES = 4  # over all tables; a Bayesian network listed in its order needs one
_MOST_TABLES = 100_000

Flags = NDArray[np.bool_]


def determined_nodes(model: Model) -> frozenset[str]:
    """Return nodes that have one possible value; some may be missed, none is wrong.

    Examples
    --------
    >>> from quiltdp import Model
    >>> determined_nodes(Model.from_tables({"A": ([], [1.0, 0.0]), "B": (["A"], [[0.5, 0.5], [0.1, 0.9]])}))
    frozenset({'A'})
    """
    if isinstance(model, ChainModel):
        return _first_steps(model)
    if len(model.factors) > _MOST_TABLES:
        return frozenset()
    left = {n: np.ones(model.cardinality(n), dtype=bool) for n in model.nodes}
    for _ in range(_PASSES):
        changed = False
        for factor in model.factors:
            table = np.asarray(factor.table)
            if table.all():
                continue
            possible = table > 0
            for axis, n in enumerate(factor.scope):
                possible = possible & left[n].reshape([-1 if k == axis else 1 for k in range(table.ndim)])
            for axis, n in enumerate(factor.scope):
                others = tuple(k for k in range(table.ndim) if k != axis)
                seen: Flags = np.asarray(possible.any(axis=others))
                changed = changed or bool((seen != left[n]).any())
                left[n] = seen
        if not changed:
            break
    return frozenset(n for n, values in left.items() if values.sum() == 1)


def _first_steps(model: ChainModel) -> frozenset[str]:
    """Return the steps of every chain before the first that may take several values."""
    found: set[str] = set()
    for segment in model.segments:
        now: Flags = np.asarray(segment.initial) > 0
        for t in range(segment.length):
            if now.sum() != 1 or len(found) >= _MOST_TABLES:
                break
            found.add(f"{segment.prefix}{t}")
            if t + 1 < segment.length:
                now = np.asarray((np.asarray(segment.transition(t))[now] > 0).any(axis=0))
    return frozenset(found)
