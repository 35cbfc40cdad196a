"""Gibbs dependence: how far the rest of the data moves one record, on average over records."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from quiltdp.chain import ChainModel, ChainSegment
from quiltdp.errors import ModelTooWide
from quiltdp.model import Model

__all__ = ["gibbs_dependence"]

TABLE_LIMIT = 2_000_000


def gibbs_dependence(model: Model) -> float:
    """Bound ψ = sup_x (1/n) Σ_i TV(X_i, X_i | x_{−i}) from above, over records i.

    The supremum is taken record by record over the states of the Markov blanket, so the value is an
    upper bound; given latent nodes too, the conditional moves at least as far.

    Raises
    ------
    ModelTooWide
        If a blanket has too many states.

    Examples
    --------
    >>> from quiltdp import markov_chain
    >>> round(gibbs_dependence(markov_chain([[0.9, 0.1], [0.1, 0.9]], length=1000)), 4)
    0.4876
    >>> gibbs_dependence(markov_chain([[0.5, 0.5], [0.5, 0.5]], length=1000))
    0.0
    """
    if isinstance(model, ChainModel):
        total = math.fsum(_chain_total(s) for s in model.segments)
        return min(1.0, total / len(model.records))
    from quiltdp.inference.trees import junction_tree

    tree = junction_tree(model)
    total = math.fsum(_distance(model, n, np.asarray(tree.marginal([n]))) for n in model.records)
    return min(1.0, total / len(model.records))


def _chain_total(segment: ChainSegment) -> float:
    """Sum over the steps; steps with equal marginals and tables are looked up."""
    law = np.asarray(segment.initial)
    seen: dict[tuple[bytes, int, int], float] = {}
    total = 0.0
    for t in range(segment.length):
        if t > 0:
            law = law @ segment.transition(t - 1)
        before = segment.transition(t - 1) if t > 0 else None
        after = segment.transition(t) if t + 1 < segment.length else None
        key = (np.round(law, 12).tobytes(), id(before), id(after))
        if key not in seen:
            seen[key] = _chain_distance(law, before, after)
        total += seen[key]
        settled = segment.homogeneous and 0 < t < segment.length - 1
        if settled and np.abs(law @ segment.transition(0) - law).max() < 1e-14:
            rest = segment.length - 2 - t  # every further interior step is the same
            if rest > 0:
                total += rest * seen[key] + _chain_distance(law, before, None)
                break
    return total


def _chain_distance(
    law: NDArray[np.float64], before: NDArray[np.float64] | None, after: NDArray[np.float64] | None
) -> float:
    """Return the largest total variation between the marginal and P(x | both neighbours)."""
    left = before if before is not None else law[None, :]
    right = after.T if after is not None else np.ones((1, len(law)))
    joint = left[:, None, :] * right[None, :, :]
    mass = joint.sum(axis=-1, keepdims=True)
    possible = mass[..., 0] > 0
    given = joint[possible] / mass[possible]
    found = float(np.abs(given - law).sum(axis=-1).max()) / 2
    return found if found > 1e-13 else 0.0


def _distance(model: Model, node: str, law: NDArray[np.float64]) -> float:
    """Return the largest total variation between the marginal and P(x | blanket states)."""
    factors = [model.factors[k] for k in model.factors_of[node]]
    blanket = list(dict.fromkeys(n for f in factors for n in f.scope if n != node))
    shape = (*(len(model.states[n]) for n in blanket), len(law))
    if math.prod(shape) > TABLE_LIMIT:
        raise ModelTooWide(
            f"node {node!r}: its {len(blanket)} blanket nodes have {math.prod(shape):.1e} states together,"
            f" the limit is {TABLE_LIMIT:.0e}"
        )
    scope = [*blanket, node]
    joint = np.ones(shape)
    for f in factors:
        order = sorted(range(len(f.scope)), key=lambda k: scope.index(f.scope[k]))
        have = {f.scope[k]: f.table.shape[k] for k in order}
        joint = joint * f.table.transpose(order).reshape([have.get(n, 1) for n in scope])
    mass = joint.sum(axis=-1, keepdims=True)
    possible = mass[..., 0] > 0
    given = joint[possible] / mass[possible]
    found = float(np.abs(given - law).sum(axis=-1).max()) / 2
    return found if found > 1e-13 else 0.0
