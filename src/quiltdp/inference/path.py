"""Models that are one path: their pairwise tables, and the spreads of their d-step tables.

A Markov chain, homogeneous or not, and any model whose moral graph is a path (directed either way,
or a Markov network) has one table per step.  The d-step table is the product of d of them; its
spread says how far x_{i+d} can move the odds of x_i when nothing in between is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from quiltdp.chain import ChainModel, ChainSegment, stationary_distribution
from quiltdp.errors import InvalidArgument
from quiltdp.inference.spread import spread_of_rows
from quiltdp.model import Model, Table
from quiltdp.rounding import EPS

__all__ = ["Path", "StepSpreads", "path_of", "spectral_gap", "step_spreads"]

_UNDERFLOW = 1e-280  # below it a product has lost digits: treat the entry as unknown


@dataclass(frozen=True, eq=False)
class Path:
    """Nodes in path order and the table of each step (a single one if every step is the same)."""

    nodes: Sequence[str]
    tables: tuple[Table, ...]

    @property
    def homogeneous(self) -> bool:
        """Whether one table serves every step."""
        return len(self.tables) == 1 and len(self.nodes) != 2

    def table(self, step: int) -> Table:
        """Return the table between nodes ``step`` and ``step + 1``."""
        return self.tables[0] if len(self.tables) == 1 else self.tables[step]


@dataclass(frozen=True, eq=False)
class StepSpreads:
    """Spreads of d-step tables.

    ``forward[a, i]`` is the spread, in the state of node i, of the table from i to
    ``i + distances[a]``; ``backward[a, i]`` of the table from ``i − distances[a]`` to i.  For a
    homogeneous path there is one column, which holds for every i.
    """

    distances: NDArray[np.intp]
    forward: Table
    backward: Table

    @property
    def homogeneous(self) -> bool:
        """Whether one column holds for every node."""
        return bool(self.forward.shape[1] == 1)


def path_of(model: Model) -> Path | None:
    """Return the model as a path of pairwise tables, or ``None`` if it is not one connected path."""
    if isinstance(model, ChainModel):
        return _chain_path(model) if len(model.segments) == 1 else None
    pairs: dict[frozenset[str], list[Table]] = {}
    near: dict[str, set[str]] = {n: set() for n in model.nodes}
    unary: dict[str, list[Table]] = {}
    for factor in model.factors:
        if len(factor.scope) > 2:
            return None
        if len(factor.scope) == 1:
            (n,) = factor.scope
            unary.setdefault(n, []).append(factor.table)
            continue
        a, b = factor.scope
        near[a].add(b)
        near[b].add(a)
        oriented = factor.table if a < b else factor.table.T
        pairs.setdefault(frozenset(factor.scope), []).append(oriented)
    order = _walk(near)
    if order is None:
        return None
    tables = []
    for step, (a, b) in enumerate(pairwise(order)):
        parts = [t if a < b else t.T for t in pairs[frozenset((a, b))]]
        parts += unary.get(b, [])  # the tables of a single node go into the step that leads to it
        if step == 0:
            parts += [t[:, None] for t in unary.get(a, [])]
        table = _product(parts)
        if table is None:
            return None
        tables.append(table)
    return Path(tuple(order), tuple(tables))


def _product(parts: Sequence[Table]) -> Table | None:
    """Return the product of a step's tables up to a constant; ``None`` if a possible entry underflows."""
    if len(parts) == 1:
        return parts[0]
    product = reduce(np.multiply, [t / float(t.max()) for t in parts])
    support = reduce(np.logical_and, [t > 0 for t in parts])
    return None if np.any(support & (product < _UNDERFLOW)) else np.asarray(product)


def _chain_path(model: ChainModel) -> Path:
    """Return the steps of a chain, restricted to the states it can ever reach."""
    segment = model.segments[0]
    if not segment.homogeneous:
        return Path(model.nodes, segment.transitions)
    matrix = segment.transitions[0]
    reached = segment.initial > 0
    while True:
        wider = reached | (matrix[reached] > 0).any(axis=0)
        if (wider == reached).all():
            break
        reached = wider
    return Path(model.nodes, (matrix[np.ix_(reached, reached)],))


def _walk(near: dict[str, set[str]]) -> list[str] | None:
    """Return the nodes along the path, or ``None`` if the graph is not a single path."""
    ends = [n for n, others in near.items() if len(others) <= 1]
    if len(near) > 1 and len(ends) != 2:
        return None
    order = [ends[0]]
    before = ""
    while True:
        onward = [n for n in near[order[-1]] if n != before]
        if len(onward) > 1:
            return None
        if not onward:
            break
        before = order[-1]
        order.append(onward[0])
    return order if len(order) == len(near) else None


def step_spreads(path: Path, *, max_distance: int = 4096, max_work: float = 2e9) -> StepSpreads:
    """Return the spreads of the d-step tables for a growing list of distances d, rounded up.

    Distances are 1, 2, 3, … and then grow by a few per cent (homogeneous), or 1, 2, 3, 4, 6, 8,
    12, … (one table per step).  Leaving distances out loses tightness, never soundness.

    Parameters
    ----------
    max_distance
        The longest distance looked at.
    max_work
        Stop before about this many table operations have been spent.
    """
    if path.homogeneous:
        return _homogeneous(path.tables[0], min(max_distance, len(path.nodes) - 1), max_work)
    return _per_step(path, max_distance, max_work)


def _distances(limit: int) -> list[int]:
    """Return 1, 2, …, 32 and then steps of about 4 per cent."""
    found: list[int] = []
    d = 1
    while d <= limit:
        found.append(d)
        d = max(d + 1, int(d * 1.04))
    return found


def _homogeneous(matrix: Table, limit: int, max_work: float) -> StepSpreads:
    size = len(matrix)
    support = matrix > 0
    grown, reach = matrix / max(float(matrix.max()), 1.0), support
    distances, forward, backward = [], [], []
    wanted = _distances(limit)
    d, work = 1, 0.0
    for target in wanted:
        while d < target:
            grown, reach = _times(grown, reach, matrix, support)
            d += 1
            work += size**3
        work += size**3
        distances.append(d)
        forward.append(_certified(grown, reach, d))
        backward.append(_certified(grown.T, reach.T, d))
        if work > max_work or max(forward[-1], backward[-1]) < 1e-10 * d:
            break
    return StepSpreads(np.array(distances, dtype=np.intp), _column(forward), _column(backward))


def _column(values: list[float]) -> Table:
    return np.array(values, dtype=np.float64)[:, None]


def _times(
    left: Table, left_support: NDArray[np.bool_], right: Table, right_support: NDArray[np.bool_]
) -> tuple[Table, NDArray[np.bool_]]:
    """Multiply two step tables, and their supports; rescaled so that nothing overflows."""
    product = left @ right
    support: NDArray[np.bool_] = (left_support.astype(np.float32) @ right_support.astype(np.float32)) > 0
    top = float(product.max())
    return product / top if top > 0 else product, support


def _certified(table: Table, support: NDArray[np.bool_], steps: int) -> float:
    """Return the spread of a product of ``steps`` tables, raised by its rounding errors.

    Every entry is a sum of non-negative products, so its relative error is at most
    (steps + 4)·(states + 3) units; four of them enter a spread.  An entry that the support calls possible
    but that underflowed makes the spread ∞.
    """
    if np.any(support & (table < _UNDERFLOW)):
        return float("inf")
    found = spread_of_rows(np.where(support, table, 0.0))
    if steps == 1 and found == 0.0:
        return 0.0  # rows that agree entry by entry: the neighbours are independent
    return float(found + 4 * (steps + 4) * (max(table.shape) + 3) * EPS)


def _per_step(path: Path, max_distance: int, max_work: float) -> StepSpreads:
    n = len(path.nodes)
    first = [(path.table(i) / float(path.table(i).max()), path.table(i) > 0) for i in range(n - 1)]
    cube = sum(t.shape[0] * t.shape[1] * max(t.shape) for t, _ in first)
    rows: list[tuple[int, list[float], list[float]]] = []
    families = {1: first}
    done = 0.0
    d = 1
    queue = [1, 2, 3]
    while queue:
        d = queue.pop(0)
        if d > min(max_distance, n - 1) or done > max_work:
            break
        if d not in families:
            half = d - 1 if d == 3 else d // 2
            shift = d - half
            families[d] = [_times(*families[half][i], *families[shift][i + half]) for i in range(n - d)]
            done += cube
        rows.append((d, *_spreads_along(families[d], d, n)))
        done += cube
        if d > 1:
            queue = sorted([*queue, 2 * d])
    distances = np.array([r[0] for r in rows], dtype=np.intp)
    return StepSpreads(distances, np.array([r[1] for r in rows]), np.array([r[2] for r in rows]))


def _spreads_along(
    family: list[tuple[Table, NDArray[np.bool_]]], d: int, n: int
) -> tuple[list[float], list[float]]:
    """Return forward and backward spreads of all d-step tables, ∞ where the path ends before."""
    forward, backward = [np.inf] * n, [np.inf] * n
    known: dict[tuple[int, int], tuple[float, float]] = {}
    for i, (table, support) in enumerate(family):
        key = (id(table), id(support))
        if key not in known:
            known[key] = (_certified(table, support, d), _certified(table.T, support.T, d))
        forward[i], backward[i + d] = known[key]
    return forward, backward


def spectral_gap(segment: ChainSegment) -> tuple[float, float]:
    """Return (g, ρ) = (1 − |λ₂|, min π) of a homogeneous reversible chain in its stationary law.

    Raises
    ------
    InvalidArgument
        If the chain is none of these, saying which.
    """
    if not segment.homogeneous:
        raise InvalidArgument("the spectral gap needs a homogeneous chain")
    p = segment.transitions[0]
    law = stationary_distribution(p)
    if law.min() <= 0 or not np.allclose(segment.initial, law, rtol=1e-9, atol=1e-12):
        raise InvalidArgument("the spectral gap needs a chain in a positive stationary law")
    flow = law[:, None] * p
    if not np.allclose(flow, flow.T, rtol=1e-9, atol=1e-12):
        raise InvalidArgument("the spectral gap needs a reversible chain")
    root = np.sqrt(law)
    values = np.sort(np.abs(np.linalg.eigvalsh(root[:, None] * p / root[None, :])))
    return 1.0 - (float(values[-2]) if len(values) > 1 else 0.0), float(law.min())
