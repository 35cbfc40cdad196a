"""Chains whose matrices repeat (day after day): a short chain that stands for a long one.

Claim.  If the matrices of a chain repeat with period p, whatever is read off the d steps around a step is the
same p steps later.  A chain of the same first steps whose length differs by whole periods has the same tables
at its beginning, at its end and, in every phase, in between.

Claim (laws).  Let m be the computed law of step T, m' that of step T + p, M the product of the matrices in
between, δ the spread of ln m'/m, e the spread by which computing m' from m may be off, c the spread of M over
possible states.  In the Hilbert metric, where d(x, y) is the spread of ln x/y, every matrix brings laws
nearer and M does so by the factor τ = tanh(c/4) (Birkhoff).  So the true law of step T + k p is at most
max(d(law of T, m), (δ + e)/(1 − τ)) away from m, for every k: with d_k that distance,
d_{k+1} ≤ d(law M, m M) + d(m M, m') + d(m', m) ≤ τ d_k + e + δ.  The steps in between only bring laws nearer.

Assumes.  Matrices that are the same objects where they are equal; for laws, possible ones that doubles hold.

Cost.  Nothing but p products of matrices.

Reference.  docs/theory.md, chains; Birkhoff 1957.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from quiltdp.chain import ChainSegment
from quiltdp.inference.chains import ChainLaws, Path
from quiltdp.inference.plan import LAW_PERIODS, PERIODS, PERIODS_KEPT
from quiltdp.inference.spread import spread_of_rows
from quiltdp.model import Table
from quiltdp.numbers import UNDERFLOW

__all__ = ["period_of", "settled_law", "short_length", "shortened_path", "shortened_segment"]


def period_of(tables: Sequence[Table]) -> int:
    """Return the smallest p with ``tables[i + p] is tables[i]`` for every i; 0 where none is found.

    Examples
    --------
    >>> import numpy as np
    >>> day, night = np.eye(2), np.full((2, 2), 0.5)
    >>> period_of([day, day, night] * 4), period_of([day, night, night, night])
    (3, 0)
    """
    ids = np.fromiter(map(id, tables), dtype=np.int64, count=len(tables))
    for p in (1 + np.flatnonzero(ids[1:] == ids[:1])[:PERIODS]).tolist():
        if 3 * p <= len(ids) and np.array_equal(ids[p:], ids[:-p]):
            return int(p)
    return 0


def short_length(length: int, period: int, reach: int) -> int:
    """Return the length, shorter by whole periods, of a chain on which nothing reaches over a few of them."""
    least = reach + PERIODS_KEPT * period + 1
    return length if period == 0 or length <= least else least + (length - least) % period


def shortened_path(path: Path, reach: int) -> Path:
    """Return the shorter path of a repeating one, or the path itself."""
    length = len(path.nodes)
    short = length if len(path.tables) == 1 else short_length(length, period_of(path.tables), reach)
    return (
        path if short == length else replace(path, nodes=path.nodes[:short], tables=path.tables[: short - 1])
    )


def shortened_segment(segment: ChainSegment, reach: int) -> ChainSegment:
    """Return the shorter chain of a repeating one, or the chain itself."""
    length = segment.length
    moves = segment.transitions
    short = length if len(moves) == 1 else short_length(length, period_of(moves), reach)
    if short == length:
        return segment
    return ChainSegment(segment.prefix, short, segment.initial, moves[: short - 1])


def settled_law(laws: ChainLaws, period: int, near: float) -> int | None:
    """Return a T such that the law of every step t + k p, t ≥ T, is within ``near`` of the computed one of t.

    Distances are spreads of logarithms, beside the rounding errors of the law of step t itself; ``None``
    where no such T is found.
    """
    last = min(laws.length - 1, LAW_PERIODS * period)
    for t in range(0, last - period + 1, period):
        before, after = laws.marginal(t), laws.marginal(t + period)
        possible = laws.possible(t)
        if not np.array_equal(possible, laws.possible(t + period)):
            continue
        if min(before[possible].min(), after[possible].min()) < UNDERFLOW:
            return None
        ratio = np.log(after[possible] / before[possible])
        moved = float(np.ptp(ratio)) + laws.slack(period)
        if moved <= near and moved <= near * (1.0 - _contraction(laws, t, period)):
            return t
    return None


def _contraction(laws: ChainLaws, t: int, period: int) -> float:
    """Return tanh(c/4), rounded up, of the product of a period's matrices from step t; 1 if c is ∞."""
    rows = laws.steps(t, period)[laws.possible(t)]
    if np.any((rows > 0) & (rows < UNDERFLOW)):
        return 1.0
    spread = float(spread_of_rows(rows)) + 4.0 * laws.slack(period)
    return 1.0 if math.isinf(spread) else min(1.0, math.tanh(0.25 * spread) * (1.0 + 1e-12))
