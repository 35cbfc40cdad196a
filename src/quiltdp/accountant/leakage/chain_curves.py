"""Threshold curves of a chain without evidence: what the prior adversary's recursion is fed with.

Claim.  Against an adversary who knows no record, Λ_{k,d} of the chain recursion is the threshold curve
of the d-step conditionals: P(X_{i+d} | X_i = x) on the side after step i, P(X_{i−d} | X_i = x) on the
side before it, over the possible x.

Assumes.  Conditionals of a homogeneous chain that is not in its limit are taken one by one while the
law still moves; afterwards each is within e^{±s} of the limit's, so Λ grows by at most 2s, and
whatever the law, Λ ≤ Φ(spread, o), because the spread of a reversed table needs no prior.  With one
matrix per step, equal tables met by laws that agree to 1e-11 share a curve, which pays for it.  Where the
matrices repeat and the law has settled (:mod:`quiltdp.inference.periodic`), the curves of one period serve
all later ones, and pay for the law of a later step the same.

Cost.  A curve costs (states)³; a homogeneous chain needs a few dozen whatever its length, one whose matrices
repeat those of a few periods.

Reference.  docs/theory.md, chains; docs/prior_adversary.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.bounds import Vector
from quiltdp.accountant.leakage.chain_recursion import Curve, Curves, PhiCurve, Side
from quiltdp.accountant.leakage.contraction import phi_at
from quiltdp.accountant.leakage.threshold import ThresholdCurve
from quiltdp.accountant.trade_offs import CHAIN_CURVES, CHAIN_SORTED
from quiltdp.inference.chains import ChainLaws, Path, step_families
from quiltdp.inference.periodic import period_of, settled_law, short_length, shortened_segment
from quiltdp.numbers import LEAST

__all__ = ["backward_side", "forward_side"]

_SAME_LAW = 1e-11  # laws this close, in logarithms, are treated as one


@dataclass(frozen=True)
class TailCurve:
    """Λ for all late steps of a homogeneous chain whose law is only near its limit."""

    curve: ThresholdCurve | None
    drift: float
    spread: float

    def __call__(self, o: float) -> float:
        """Return the smaller of the two bounds."""
        by_law = self.curve(o) + 2.0 * self.drift if self.curve is not None else np.inf
        return min(by_law, phi_at(self.spread, o))


def forward_side(laws: ChainLaws, *, max_step: int, check: Callable[[], None]) -> Side:
    """Return the side after each step: position k is step length − 1 − k."""
    n = laws.length
    if not laws.segment.homogeneous:
        return _side_by_position(laws, max_step, check, forward=True)
    rows = laws.reachable > 0
    steps = min(_steps(int(rows.sum()), max_step), n - 1)
    made = [ThresholdCurve(laws.steps(0, d)[rows], slack=laws.slack(d)) for d in range(1, steps + 1)]
    return Side(n, Curves.constant(range(1, steps + 1), made))


def backward_side(laws: ChainLaws, *, max_step: int, check: Callable[[], None]) -> Side:
    """Return the side before each step: position k is step k."""
    n = laws.length
    if not laws.segment.homogeneous:
        return _side_by_position(laws, max_step, check, forward=False)
    size = len(laws.segment.initial)
    steps = min(_steps(size, max_step), max(n - 1, 1))
    if laws.stationary:
        return Side(n, Curves.constant(range(1, steps + 1), _tail_curves(laws, steps, 1e-12)))
    burn = _burn_in(laws)
    early = min(steps, max(1, 20_000 // (max(burn, 1) * size)))
    made: list[Curve] = []
    which = np.full((burn, steps), -1, dtype=np.intp)
    for k in range(burn):
        for d in range(1, min(k, early) + 1):
            rows = laws.backward(k, d)
            if rows is not None:
                which[k, d - 1] = len(made)
                made.append(ThresholdCurve(rows, slack=laws.slack(burn)))
    if burn < n:
        late = min(steps, burn)
        row = np.full((1, steps), -1, dtype=np.intp)
        row[0, :late] = len(made) + np.arange(late)
        which = np.concatenate([which, row])
        made.extend(_tail_curves(laws, late, laws.distance(max(burn - steps, 0))))
    return Side(n, Curves(tuple(range(1, steps + 1)), tuple(made), which, min(burn, n)))


def _tail_curves(laws: ChainLaws, steps: int, distance: float) -> list[TailCurve]:
    """Return Λ_d of the reversed limit chain, widened by how far the law still is from it."""
    curves = []
    for d in range(1, steps + 1):
        law = laws.limit if np.isfinite(distance) else None
        curve = _limit_curve(laws, law, d) if law is not None else None
        wide = laws.backward_spread(d)
        curves.append(TailCurve(curve, 2.0 * distance if curve is not None else np.inf, wide))
    return curves


def _limit_curve(laws: ChainLaws, law: Vector, d: int) -> ThresholdCurve | None:
    """Return Λ_d of the chain in its limit, run backwards; ``None`` if a possible state underflows."""
    rows = laws.reversed_rows(law, laws.steps(0, d), law > 0)
    return None if rows is None else ThresholdCurve(rows, slack=laws.slack(d + len(law)))


def _burn_in(laws: ChainLaws) -> int:
    """Return how many steps to treat one by one before the chain has (almost) reached its limit."""
    size = len(laws.segment.initial)
    most = int(min(laws.length, 2000, max(8, 15_000_000 // size**3)))
    for t in range(0, most, 4):
        if laws.distance(t) <= 1e-12:
            return min(most, t + 40)
    return most


def _steps(size: int, max_step: int) -> int:
    """Return the largest d worth building for tables of this size."""
    return max(1, min(max_step, int(CHAIN_SORTED / size**3)))


# -- one matrix per step -------------------------------------------------------------------------


def _side_by_position(laws: ChainLaws, max_step: int, check: Callable[[], None], *, forward: bool) -> Side:
    """Return a side of a chain with one matrix per step; where they repeat, a few periods tell all of it."""
    n, period = laws.length, period_of(laws.segment.transitions)
    late = None if forward or not period else settled_law(laws, period, 2.0 * _SAME_LAW)
    if period and (forward or late is not None):
        first = 0 if late is None else late + period
        short = short_length(n, period, first + max_step)
        if short < n:
            few = ChainLaws(shortened_segment(laws.segment, first + max_step))
            curves = _curves_by_position(few, max_step, check, forward, (first, period))
            if curves.covers(n):
                return Side(n, curves, exact=not forward)
    return Side(n, _curves_by_position(laws, max_step, check, forward))


def _curves_by_position(
    laws: ChainLaws,
    max_step: int,
    check: Callable[[], None],
    forward: bool,
    repeats: tuple[int, int] | None = None,
) -> Curves:
    """Return the curves of every step; equal tables met by equal laws share one.

    ``repeats`` are a step and a period: from that step on, the law of a step is that of a period earlier.
    """
    n = laws.length
    initial = laws.segment.initial
    path = Path(range(n), laws.segment.transitions, initial, initial)  # type: ignore[arg-type]  # only counted
    possible = _labels([laws.possible(t) for t in range(n)])
    settled = n  # from here on laws are known no less
    law = possible if forward else _labels([_rounded_log(laws.marginal(t)) for t in range(n)])
    if repeats is not None and not forward:
        start, period = repeats
        settled = start
        law[start:] = law[start - period : start][np.arange(n - start) % period]
    distances: list[int] = []
    columns: list[NDArray[np.intp]] = []
    made: list[Curve] = []
    work = 0.0
    for d, family in step_families(path, max_step, CHAIN_CURVES):
        spreads = family.spreads(d)[0 if forward else 1]
        met = np.column_stack([family.which, law[: n - d], possible[d:] if not forward else law[: n - d]])
        _, first, which = np.unique(met, axis=0, return_index=True, return_inverse=True)
        column = np.full(n, -1, dtype=np.intp)
        place = n - 1 - np.arange(n - d) if forward else np.arange(d, n)
        column[place] = len(made) + which.ravel()
        last = np.zeros(len(first), dtype=np.intp)  # whose law is known least: what the curve must pay for
        np.maximum.at(last, which.ravel(), np.minimum(np.arange(n - d), settled))
        for t, latest in zip(first.tolist(), last.tolist(), strict=True):
            check()
            table, support = family.tables[int(family.which[t])]
            table = np.where(support, np.maximum(table, LEAST), 0.0)
            work += float(table.size) * len(table)
            slack = laws.slack(d if forward else latest + d)
            made.append(_curve_at(laws, table, t, d, float(spreads[t]), forward, slack, work <= CHAIN_CURVES))
        distances.append(d)
        columns.append(column)
    if not columns:
        return Curves.constant([], [])
    return Curves.by_position(distances, made, np.stack(columns, axis=1))


def _curve_at(
    laws: ChainLaws,
    table: Vector,
    t: int,
    d: int,
    spread: float,
    forward: bool,
    slack: float,
    affordable: bool,
) -> Curve:
    """Return Λ of P(X_{t+d} | X_t) or P(X_t | X_{t+d}); Φ of the spread where that is too dear or lost."""
    rows: Vector | None
    if forward:
        rows = table[laws.possible(t)]
        rows = rows / rows.sum(axis=1, keepdims=True)
    else:
        rows = laws.reversed_rows(laws.marginal(t), table, laws.possible(t + d))
        slack += 2.0 * _SAME_LAW
    if rows is None or not affordable:
        return PhiCurve(spread)
    return _Both(ThresholdCurve(rows, slack=slack), spread)


def _rounded_log(law: Vector) -> Vector:
    """Return the logarithms of a law on a grid: laws with the same ones agree to the grid's width."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.rint(np.maximum(np.log(law), -1e4) / _SAME_LAW))


def _labels(rows: Sequence[NDArray[Any]]) -> NDArray[np.intp]:
    """Return a number for every row, the same for equal rows."""
    if len({len(r) for r in rows}) > 1:
        keys: dict[bytes, int] = {}
        return np.array([keys.setdefault(r.tobytes(), len(keys)) for r in rows], dtype=np.intp)
    _, label = np.unique(np.stack(rows), axis=0, return_inverse=True)
    return label.ravel().astype(np.intp)


@dataclass(frozen=True)
class _Both:
    """The smaller of a threshold curve and Φ of the table's spread."""

    curve: ThresholdCurve
    spread: float

    def __call__(self, o: float) -> float:
        """Return the smaller bound."""
        return min(self.curve(o), phi_at(self.spread, o))
