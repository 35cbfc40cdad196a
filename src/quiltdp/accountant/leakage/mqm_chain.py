"""The Markov Quilt Mechanism on chains (Song, Wang, Chaudhuri 2017).

MQM-exact: Leakage(i) ≤ min over quilts Q of |C| α + I(X_Q ⇝ X_i), with Q = {i−a, i+b}, one-sided or
empty, |C| the records strictly between (i included), and I the max-influence.  Given x_i the two
sides are independent, so I({i−a, i+b}) = max_{x,x'} back_a(x, x') + ahead_b(x, x') with
ahead_b(x, x') = max_y ln P(X_{i+b} = y | x) / P(X_{i+b} = y | x').

*Assumes*: a Markov chain, no evidence.  *Cost*: one influence per distinct d-step table and direction, then
a search over (a, b).

References
----------
S. Song, Y. Wang, K. Chaudhuri, Pufferfish Privacy Mechanisms for Correlated Data, SIGMOD 2017.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.bounds import Bounds, Problem, Vector
from quiltdp.accountant.leakage.chain_units import ChainUnits, as_chain
from quiltdp.accountant.leakage.kernel import SURE
from quiltdp.accountant.trade_offs import MQM_BESIDE, MQM_TABLES
from quiltdp.chain import ChainModel
from quiltdp.errors import InvalidArgument, ModelTooWide, option
from quiltdp.inference.chains import ChainLaws
from quiltdp.inference.workspace import Workspace
from quiltdp.numbers import up_array
from quiltdp.work import WorkBudget

__all__ = ["ChainInfluences", "MarkovQuiltChainBound", "PublishedChainBound"]

Ints: TypeAlias = NDArray[np.int64]
Check: TypeAlias = Callable[[], None]


@dataclass(frozen=True, eq=False)
class ChainInfluences:
    """Influences at distance 1, 2, …: on the left, on the right, and of both together.

    ``left[p, a]``, ``right[p, b]``, ``both[p, a, b]`` with index 0 = "no quilt on this side"; p runs
    over positions, or is 0 for all when the chain is in its stationary law.
    """

    left: Vector
    right: Vector
    both: Vector
    frontiers: dict[tuple[int, int, int, int], tuple[Vector, Vector]] = field(default_factory=dict)


class MarkovQuiltChainBound:
    """MQM-exact (method ``"published"``, prior adversary) on chains.

    Parameters
    ----------
    problem
        As in :class:`~.chain_prior.ChainPriorBound`; a window's two ends count separately.
    max_width
        The furthest quilt searched; the default is the whole chain up to 400 steps.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp import markov_chain
    >>> from quiltdp.accountant.bounds import ready
    >>> bound = ready(MarkovQuiltChainBound, markov_chain([[0.9, 0.1], [0.1, 0.9]], length=100))
    >>> round(float(bound.evaluate(np.full(100, 1 / 31.74)).values.max()), 3)
    1.0
    """

    name = "published"

    def __init__(self, problem: Problem, *, max_width: int | None = None) -> None:
        self._model = as_chain(problem.model)
        self._units = ChainUnits(self._model, problem.units, problem.window)
        self._max_width = max_width

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Compute the influences of every distance, once for equal chains."""
        self._influences: list[ChainInfluences] = []
        made: dict[object, ChainInfluences] = {}
        for segment in self._model.segments:
            key = (segment.length, id(segment.initial), tuple(map(id, segment.transitions)))
            if key not in made:
                check = workspace.guard.check
                made[key] = _influences(ChainLaws(segment), self._max_width, budget, check)
            self._influences.append(made[key])
        self._check = workspace.guard.check

    def evaluate(self, alpha: Vector) -> Bounds:
        """Return the leakage of every unit."""
        alpha = np.asarray(alpha, dtype=np.float64)
        return Bounds(up_array(self._best(alpha)), self.name, "published")

    def _best(self, alpha: Vector) -> Vector:
        """Return the best quilts of every unit, chain by chain (a unit in two chains pays both)."""
        units, check = self._units, self._check
        spans = list(zip(units.spans, self._influences, strict=True))
        if units.single:
            every = [_of_steps(found, alpha[start:stop], check) for (start, stop), found in spans]
            return every[0] if len(every) == 1 else np.concatenate(every)
        total = np.zeros(units.count)
        for (start, stop), found in spans:
            here = (units.first >= start) & (units.last < stop)
            first, last = units.first[here] - start, units.last[here] - start
            np.add.at(total, units.owner[here], _best_quilts(found, alpha[start:stop], first, last, check))
        return total


def _of_steps(found: ChainInfluences, alpha: Vector, check: Check) -> Vector:
    """Return the best quilts of every step of one chain; those far from both ends have the same."""
    check()
    n, far = len(alpha), found.left.shape[1]
    if np.all(alpha == alpha[0]) and len(found.left) == 1 and n > 2 * far:
        some = np.concatenate([np.arange(far + 1), np.arange(n - far, n)])
        value = _best_of_kinds(found, float(alpha[0]), n, some, some)
        every = np.full(n, value[far])
        every[:far], every[n - far :] = value[:far], value[far + 1 :]
        return every
    steps = np.arange(n)
    return _best_quilts(found, alpha, steps, steps, check)


def _best_quilts(found: ChainInfluences, alpha: Vector, first: Ints, last: Ints, check: Check) -> Vector:
    """Return min over quilts of Σ_C α + I for every window [first, last] of one chain."""
    if not len(first):
        return np.zeros(0)
    if np.all(alpha == alpha[0]) and len(found.left) == 1:
        return _best_of_kinds(found, float(alpha[0]), len(alpha), first, last)
    return _best_quilts_each(found, alpha, first, last, check)


def _best_of_kinds(found: ChainInfluences, alpha: float, n: int, first: Ints, last: Ints) -> Vector:
    """Equal α and stationary: windows with the same room on both sides have the same quilts.

    For each kind the smallest influence of a quilt with k nearby records is found once, whatever α.
    """
    width = found.left.shape[1] - 1
    room = np.minimum(np.column_stack([first, n - 1 - last]), width + 1)
    least = int((last - first).min())
    sizes = (width + 2, width + 2, int((last - first).max()) - least + 1)
    codes = np.ravel_multi_index((*room.T, last - first - least), sizes)
    kind, where = np.unique(codes, return_inverse=True)
    values = np.empty(len(kind))
    for row, (left, right, wider) in enumerate(np.column_stack(np.unravel_index(kind, sizes)).tolist()):
        extra = wider + least
        key = (left, right, extra, n if min(left, right) <= width else 0)
        if key not in found.frontiers:
            found.frontiers[key] = _frontier(found, left, right, extra, n)
        counts, influence = found.frontiers[key]
        values[row] = min(float((counts * alpha + influence).min(initial=np.inf)), n * alpha)
    return values[where] * (1 + 8 * np.finfo(np.float64).eps)


def _frontier(found: ChainInfluences, left: int, right: int, extra: int, n: int) -> tuple[Vector, Vector]:
    """Return the numbers of records inside quilts, and the smallest influence for each number."""
    width = found.left.shape[1] - 1
    sides = []
    for space in (left, right):
        reach = np.arange(0, min(space, width) + 1)
        cost = (reach - 1).astype(np.float64)  # records strictly inside at distance d
        cost[0] = space if space <= width else np.inf  # no quilt on this side: all of it is nearby
        sides.append((reach, cost))
    (a, near_a), (b, near_b) = sides
    count = near_a[:, None] + near_b[None, :] + 1 + extra
    if found.both.size > 1 and extra == 0:
        influence = found.both[0][np.ix_(a, b)]
    else:
        influence = found.left[0, a][:, None] + found.right[0, b][None, :]
    usable = np.isfinite(count) & np.isfinite(influence) & (count < n)
    order = count[usable].astype(np.intp)
    best = np.full(2 * width + extra + 4, np.inf)
    np.minimum.at(best, order, influence[usable])
    kept = np.flatnonzero(np.isfinite(best))
    return kept.astype(np.float64), best[kept]


def _best_quilts_each(found: ChainInfluences, alpha: Vector, first: Ints, last: Ints, check: Check) -> Vector:
    n, width = len(alpha), found.left.shape[1] - 1
    width = min(width, max(2, int((6e7 / len(first)) ** 0.5)))
    sums = np.concatenate([[0.0], np.cumsum(alpha, dtype=np.longdouble)])
    result = np.empty(len(first))
    chunk = max(1, 4_000_000 // (width + 1) ** 2)
    for s in range(0, len(first), chunk):
        check()
        f, t = first[s : s + chunk], last[s : s + chunk]
        left, right = _side_costs(sums, f, t, width)
        at = (f, t) if len(found.left) > 1 else (0 * f, 0 * t)
        ends = (found.left[at[0], : width + 1], found.right[at[1], : width + 1])
        value = (left + ends[0]).min(axis=1) + (right + ends[1]).min(axis=1)
        one = f == t
        if found.both.size > 1 and one.any():
            both = found.both[at[0][one], : width + 1, : width + 1]
            joint = left[one][:, :, None] + right[one][:, None, :] + both
            value[one] = np.minimum(value[one], joint.min(axis=(1, 2)))
        own = (sums[t + 1] - sums[f]).astype(np.float64)
        result[s : s + chunk] = np.minimum(value + own, float(sums[-1]))
    return result + float(4.0 * np.finfo(np.longdouble).eps * n * sums[-1])


def _side_costs(sums: Any, first: Ints, last: Ints, width: int) -> tuple[Vector, Vector]:
    """Return the α of the records nearby on each side; column 0: no quilt, the whole side is nearby.

    Where a side is longer than ``width`` column 0 is not offered (the empty quilt is added later).
    """
    n = len(sums) - 1
    reach = np.arange(1, width + 1)
    f, t = first[:, None], last[:, None]
    whole_left = np.where(f <= width, sums[f], np.inf)
    whole_right = np.where(n - 1 - t <= width, sums[n] - sums[t + 1], np.inf)
    left = np.where(f >= reach, sums[f] - sums[np.maximum(f - reach + 1, 0)], np.inf)
    right = np.where(t + reach < n, sums[np.minimum(t + reach, n)] - sums[t + 1], np.inf)
    return (
        np.concatenate([whole_left, left], axis=1).astype(np.float64),
        np.concatenate([whole_right, right], axis=1).astype(np.float64),
    )


def _influences(laws: ChainLaws, max_width: int | None, budget: WorkBudget, check: Check) -> ChainInfluences:
    """Return the influence tables of one chain (α-independent), as many as the work budget allows."""
    n, size = laws.length, len(laws.segment.initial)

    def ratio(rows: Vector | None, count: int) -> Vector:
        check()
        return _log_ratio(rows, count)

    if laws.segment.homogeneous and laws.stationary:
        width = min(n - 1, max_width or (400 if size <= 8 else 2 * budget.quilts))
        law = laws.limit if laws.limit is not None else laws.marginal(0)
        alive = law > 0
        count = int(alive.sum())
        ahead = [ratio(laws.steps(0, b)[alive], count) for b in range(1, width + 1)]
        back = [ratio(laws.reversed_rows(law, laws.steps(0, a), alive), count) for a in range(1, width + 1)]
        return _combine([back], [ahead], laws.slack(width + size), check)
    width = min(n - 1, max_width or 64, max(2, int((2e7 / n) ** 0.5)), max(2, int((3e8 / n) ** 0.5 / size)))
    most = MQM_TABLES * budget.entries
    if budget.beside:
        most = min(most, int(MQM_BESIDE / size**3))
    if 2 * n * width > most:
        raise ModelTooWide(
            f"the quilts of {n:,} different steps need {2 * n * width:,} tables, the limit is {most:,}",
            f"raise {option('work')}",
        )
    return _combine(*_by_step(laws, width, check), laws.slack(n), check, width)


def _by_step(laws: ChainLaws, width: int, check: Check) -> tuple[list[list[Vector]], list[list[Vector]]]:
    """Return the ratios behind and ahead of every step, at distances 1, 2, … up to ``width``.

    The tables that start at a step are made once, each from the one before, and serve both directions.
    """
    n = laws.length
    back: list[list[Vector]] = []
    ahead: list[list[Vector]] = []
    recent: deque[list[Vector]] = deque(maxlen=width)  # tables that start at the last steps, by distance
    for t in range(n):
        check()
        possible = laws.possible(t)
        count = int(possible.sum())
        behind = enumerate(reversed(recent), start=1)
        rows = [laws.reversed_rows(laws.marginal(t - a), tables[a - 1], possible) for a, tables in behind]
        back.append([_log_ratio(r, count) for r in rows])
        tables = laws.tables_from(t, min(width, n - 1 - t))
        ahead.append([_log_ratio(table[possible], count) for table in tables])
        recent.append(tables)
    return back, ahead


def _combine(
    back: Sequence[Sequence[Vector]],
    ahead: Sequence[Sequence[Vector]],
    slack: float,
    check: Check,
    width: int | None = None,
) -> ChainInfluences:
    """Return the largest influence of each side and of both sides, rounded up."""
    w = width if width is not None else len(back[0])
    left = np.full((len(back), w + 1), np.inf)
    right, both = left.copy(), np.full((len(back), w + 1, w + 1), np.inf)
    for p, (bs, fs) in enumerate(zip(back, ahead, strict=True)):
        check()
        size = (bs or fs or [np.zeros((1, 1))])[0].shape
        b = np.array([np.zeros(size), *bs])
        f = np.array([np.zeros(size), *fs])
        left[p, : len(b)] = b.max(axis=(1, 2))
        right[p, : len(f)] = f.max(axis=(1, 2))
        for a in range(len(b)):
            both[p, a, : len(f)] = (b[a] + f).max(axis=(1, 2))
    return ChainInfluences(left + 2 * slack, right + 2 * slack, both + 2 * slack)


def _log_ratio(rows: Vector | None, count: int) -> Vector:
    """Return max_y ln P(y | x) / P(y | x') for every ordered pair of rows (0/0 skipped, p/0 = ∞).

    A possible entry that has lost its digits counts as 0 below and as 1e-290 above.  ``None`` stands
    for a table of ``count`` rows that was lost to underflow: ∞ everywhere.
    """
    if rows is None:
        return np.full((count, count), np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        above, below = np.log(np.maximum(rows, SURE)), np.log(np.where(rows < SURE, 0.0, rows))
        found = np.empty((len(rows), len(rows)))
        for x, (row, possible) in enumerate(zip(above, rows > 0, strict=True)):  # one that fits the cache
            found[x] = np.where(possible, row - below, -np.inf).max(axis=1)
    return found


class PublishedChainBound(MarkovQuiltChainBound):
    """Lemma 2 on chains: quilts {i−a, i+b}, one-sided or empty, |C| α + 4 b.

    On a chain the maximum of b over what is known nearby is at L = ∅: a known record on one side
    only removes that side's influence.
    """

    def __init__(self, problem: Problem) -> None:
        if not isinstance(problem.model, ChainModel):
            raise InvalidArgument("this form of Lemma 2 is for Markov chains")
        problem.require_singles("published")
        super().__init__(problem)

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Take four times the influences."""
        super().prepare(workspace, budget)
        self._influences = [type(f)(4.0 * f.left, 4.0 * f.right, 4.0 * f.both) for f in self._influences]
