"""The exact law of a sum of one whole number per node, by elimination with a counting axis.

Every table gets one more axis, the value of the partial sum; multiplying tables convolves it and
summing a node out shifts it by the node's own number.  The cost is that of ordinary elimination
times the square of the range of the sum, so models of small width are exact at any length.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quiltdp.chain import ChainModel, ChainSegment
from quiltdp.errors import InvalidArgument, ModelTooWide
from quiltdp.interface import any_model
from quiltdp.model import Model

Array = NDArray[np.float64]
TABLE_LIMIT = 20_000_000


@dataclass(frozen=True, eq=False)
class SumLaw:
    """P(S = lowest + k) = ``chances[k]``."""

    lowest: int
    chances: Array

    @property
    def values(self) -> NDArray[np.int64]:
        """The values of the sum."""
        return np.arange(self.lowest, self.lowest + len(self.chances))

    @property
    def mean(self) -> float:
        """E S."""
        return float(self.values @ self.chances)

    def tail(self, t: float) -> float:
        """Return P[|S − E S| ≥ t], up to rounding of double precision."""
        far = np.abs(self.values - self.mean) >= t - 1e-9 * max(1.0, t)
        return float(min(1.0, self.chances[far].sum()))


@any_model
def sum_law(model: Model, weights: Mapping[str, Sequence[int]]) -> SumLaw:
    """Compute the exact law of Σ_j w_j(X_j), w_j a whole number for every state of node j.

    It shows how loose a bound of :func:`~quiltdp.generalization.concentration.concentration` is.

    Parameters
    ----------
    model
        Any model of small width; chains of tens of thousands of steps are fine.
    weights
        ``node -> one whole number per state``; nodes left out count 0.

    Raises
    ------
    ModelTooWide
        If a table with its counting axis would pass the limit, naming the clique.
    InvalidArgument
        If a weight is not a whole number or their count is wrong.

    Examples
    --------
    >>> from quiltdp import markov_chain
    >>> m = markov_chain([[0.9, 0.1], [0.1, 0.9]], length=3)
    >>> sum_law(m, {node: (0, 1) for node in m.nodes}).chances.round(4).tolist()
    [0.405, 0.095, 0.095, 0.405]
    """
    model.require(weights)
    for node, values in weights.items():
        if len(values) != len(model.states[node]):
            raise InvalidArgument(
                f"node {node!r} has {len(model.states[node])} states, {len(values)} weights are given"
            )
        if any(isinstance(v, bool) or not isinstance(v, (int, np.integer)) for v in values):
            raise InvalidArgument(f"node {node!r}: the weights must be whole numbers; scale the query first")
    if isinstance(model, ChainModel):
        parts = [_chain_sum_law(s, weights) for s in model.segments]
        lowest, chances = parts[0]
        for low, more in parts[1:]:
            lowest, chances = lowest + low, np.convolve(chances, more)
        return SumLaw(lowest, chances / chances.sum())
    return _eliminate_nodes(model, weights)


def _chain_sum_law(segment: ChainSegment, weights: Mapping[str, Sequence[int]]) -> tuple[int, Array]:
    """Walk along one chain with a (state, sum) table."""
    number = [
        weights.get(f"{segment.prefix}{t}", (0,) * segment.cardinality(t)) for t in range(segment.length)
    ]
    span = sum(max(w) - min(w) for w in number)
    size = max(segment.cardinality(t) for t in range(segment.length))
    if (span + 1) * size * segment.length > 100 * TABLE_LIMIT:
        raise ModelTooWide(
            f"chain {segment.prefix!r}: {segment.length} steps with sums up to {span} need"
            f" {(span + 1) * size * segment.length:.1e} operations, the limit is {100 * TABLE_LIMIT:.0e}"
        )
    low, table = _shift_sums(segment.initial[:, None], number[0])
    for t in range(1, segment.length):
        low_t, table = _shift_sums(segment.transition(t - 1).T @ table, number[t])
        low += low_t
    return low, table.sum(axis=0)


def _shift_sums(table: Array, number: Sequence[int]) -> tuple[int, Array]:
    """Add ``number[x]`` to the sum of row x; return the lowest shift and the wider table."""
    low, high = int(min(number)), int(max(number))
    wide = np.zeros((*table.shape[:-1], table.shape[-1] + high - low))
    for x, w in enumerate(number):
        start = int(w) - low
        wide[x, ..., start : start + table.shape[-1]] = table[x]
    return low, wide


def _eliminate_nodes(model: Model, weights: Mapping[str, Sequence[int]]) -> SumLaw:
    """Sum the nodes out one by one, the one with the smallest new table first."""
    pool: list[tuple[tuple[str, ...], Array]] = [(f.scope, f.table[..., None]) for f in model.factors]
    left = set(model.nodes)
    lowest = 0
    while left:
        node = min(left, key=lambda v: (_elimination_cost(model, pool, v), model.index[v]))
        touching = [item for item in pool if node in item[0]]
        pool = [item for item in pool if node not in item[0]]
        scope, table = _multiply_tables(model, node, touching)
        low, table = _shift_sums(table, weights.get(node, (0,) * model.cardinality(node)))
        lowest += low
        pool.append((scope[1:], _rescale(table.sum(axis=0))))
        left.discard(node)
    chances = np.ones(1)
    for _, table in pool:
        chances = _rescale(np.convolve(chances, table))
    return SumLaw(lowest, chances / chances.sum())


def _rescale(table: Array) -> Array:
    """Keep the largest entry near 1, so that long products do not underflow."""
    top = float(table.max())
    return table / top if top > 0 else table


def _elimination_cost(model: Model, pool: list[tuple[tuple[str, ...], Array]], node: str) -> float:
    scope: set[str] = {node}
    span = 0
    for names, table in pool:
        if node in names:
            scope.update(names)
            span += table.shape[-1]
    return math.prod(len(model.states[n]) for n in scope) * max(span, 1)


def _multiply_tables(
    model: Model, node: str, touching: list[tuple[tuple[str, ...], Array]]
) -> tuple[tuple[str, ...], Array]:
    """Multiply tables with their counting axes convolved; ``node`` becomes the first axis."""
    others = sorted({n for names, _ in touching for n in names if n != node}, key=lambda n: model.index[n])
    scope = (node, *others)
    shape = tuple(len(model.states[n]) for n in scope)
    span = 1 + sum(table.shape[-1] - 1 for _, table in touching)
    if math.prod(shape) * span > TABLE_LIMIT:
        raise ModelTooWide(
            f"the table over {scope} with sums up to {span - 1} has {math.prod(shape) * span:.1e} entries,"
            f" the limit is {TABLE_LIMIT:.0e}: use the concentration bound instead"
        )
    result = np.ones((*shape, 1))
    for names, table in touching:
        order = sorted(range(len(names)), key=lambda k: scope.index(names[k]))
        view = table.transpose([*order, len(names)])
        have = dict(zip(names, table.shape[:-1], strict=True))
        view = view.reshape([have.get(n, 1) for n in scope] + [table.shape[-1]])
        wide = np.zeros((*shape, result.shape[-1] + view.shape[-1] - 1))
        for k in range(view.shape[-1]):
            wide[..., k : k + result.shape[-1]] += result * view[..., k : k + 1]
        result = wide
    return scope, result
