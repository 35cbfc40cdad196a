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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.bounds.chain_contraction import PathUnits
from quiltdp.accountant.bounds.contract import ALL, Bounds, Need, Problem, Vector
from quiltdp.accountant.bounds.transport import SURE
from quiltdp.accountant.trade_offs import MQM_BESIDE, MQM_TABLES
from quiltdp.chain import as_chain
from quiltdp.errors import ModelTooWide, option
from quiltdp.inference.chains import ChainLaws
from quiltdp.inference.workspace import Workspace
from quiltdp.numbers import is_constant, up_array
from quiltdp.work import WorkBudget

Check: TypeAlias = Callable[[], None]


@dataclass(frozen=True, eq=False)
class ChainInfluences:
    """Influences at distance 1, 2, …: on the left, on the right, and of both together.

    ``left[p, a]``, ``right[p, b]``, ``both[p, a, b]`` with index 0 = "no quilt on this side"; p runs
    over positions, or is 0 for all when the chain is in its stationary law.  Where ``both`` is unknown the
    sum of the two sides stands for it.
    """

    left: Vector
    right: Vector
    both: Vector | None = None


class MarkovQuiltChainBound:
    """MQM-exact (method ``"published"``, prior adversary) on chains.

    Parameters
    ----------
    problem
        One chain; a window's two ends count separately.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp import markov_chain
    >>> from quiltdp.accountant.bounds.contract import ready
    >>> bound = ready(MarkovQuiltChainBound, markov_chain([[0.9, 0.1], [0.1, 0.9]], length=100))
    >>> round(float(bound.evaluate(np.full(100, 1 / 31.74)).values.max()), 3)
    1.0
    """

    name = "published"
    times = 1.0
    """How many times the influence of a quilt counts."""

    def __init__(self, problem: Problem) -> None:
        self._nodes = problem.model.nodes
        self._segment, self._units = as_chain(problem.model).segments[0], PathUnits(problem)
        self._listed = problem.units is not None

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Compute the influences of every distance."""
        self._check = workspace.guard.check
        self._influences = _influences_by_distance(ChainLaws(self._segment), budget, self._check)

    def evaluate(self, alpha: Vector, need: Need = ALL) -> Bounds:
        """Return min over quilts of Σ_C α + I for every unit."""
        a, first, last = np.asarray(alpha, dtype=np.float64), self._units.first, self._units.last
        count, edge, alike = len(first), self._influences.left.shape[1], len(self._influences.left) == 1
        if self._listed or not alike or not is_constant(a) or count <= 2 * edge + 2:
            sums = _running_sums(a)
            values = np.array([self.best(int(f), int(t), sums)[0] for f, t in zip(first, last, strict=True)])
        else:  # far from both ends units have the same quilts, and whole sides that cost more and more
            wide = int(last[0]) + 1
            sums = np.longdouble(a[0]) * np.arange(2 * edge + wide + 1)
            ways = [(x, y) for x in (np.inf, 0.0) for y in (np.inf, 0.0)]
            best = [self.best(edge, edge + wide - 1, sums, whole)[0] for whole in ways]
            places = np.arange(count)
            if need.limited:  # only the largest decides: it is where both sides weigh the same
                middle = (count - 1 + (best[1] - best[2]) / a[0]) / 2
                middle = int(np.clip(middle, edge + 1, count - edge - 2))
                places = np.r_[:edge, middle - 1 : middle + 2, count - edge : count]
            left, right = a[0] * places, a[0] * (count - 1 - places)
            values = np.minimum(best[0], np.minimum(right + best[1], left + best[2]))
            for k in range(edge):
                values[k] = self.best(k, k + wide - 1, sums, (left[k], right[k]))[0]
                values[~k] = self.best(2 * edge - k, 2 * edge + wide - 1 - k, sums, (left[~k], right[~k]))[0]
            np.minimum(values, a[0] * len(a), out=values)
            values = values.max(keepdims=True) if need.limited else values
        slack = float(4.0 * np.finfo(np.longdouble).eps * len(a) ** 2 * a.max())
        values = np.broadcast_to(up_array(values + slack), count)
        return Bounds(values, self.name, "published", _BestQuilts(self, a), partial=values.strides == (0,))

    def quilt(self, k: int, alpha: Vector) -> dict[str, object]:
        """Return the best quilt of a unit: its separator, |N|, and the influence b."""
        first, last, n = int(self._units.first[k]), int(self._units.last[k]), len(alpha)
        _, a, b, influence = self.best(first, last, _running_sums(alpha))
        start, stop = first - a if a else -1, last + b if b else n
        separator = [str(self._nodes[t]) for t in (start, stop) if 0 <= t < n]
        nearby = stop - start - 2 - (last - first)
        return {"separator": separator, "nearby_records": nearby, "b": influence / self.times, "exact": True}

    def best(
        self, first: int, last: int, sums: NDArray[np.longdouble], whole: tuple[float, float] | None = None
    ) -> tuple[float, int, int, float]:
        """Return the smallest over quilts of one window, the distances to its separator, and its influence.

        Distance 0 is no quilt: a whole side is nearby.  ``whole`` is what the sides cost where the chain is
        longer than ``sums``.
        """
        self._check()
        found, n = self._influences, len(sums) - 1
        width, many = found.left.shape[1] - 1, len(found.left) > 1
        back, ahead = np.arange(1, min(width, first) + 1), np.arange(1, min(width, n - 1 - last) + 1)
        sides = (sums[first], sums[n] - sums[last + 1]) if whole is None else whole
        left = np.concatenate([[sides[0]], sums[first] - sums[first - back + 1]]).astype(np.float64)
        right = np.concatenate([[sides[1]], sums[last + ahead] - sums[last + 1]]).astype(np.float64)
        before = found.left[first if many else 0, : len(left)]
        after = found.right[last if many else 0, : len(right)]
        a, b = int((left + before).argmin()), int((right + after).argmin())
        value, influence = float(left[a] + before[a] + (right[b] + after[b])), float(before[a] + after[b])
        if found.both is not None and first == last:
            # quilts that hold more than the best so far costs need not be compared
            most = [max(1, int(np.searchsorted(side[1:], value)) + 1) for side in (left, right)]
            both = found.both[first if many else 0, : most[0], : most[1]]
            joint = left[: most[0], None] + right[: most[1]] + both
            if joint.min() < value:
                a, b = (int(k) for k in np.unravel_index(int(joint.argmin()), joint.shape))
                value, influence = float(joint[a, b]), float(both[a, b])
        value += float(sums[last + 1] - sums[first])
        if whole is not None or value < float(sums[n]):
            return value, a, b, influence
        return float(sums[n]), 0, 0, 0.0


def _running_sums(alpha: Vector) -> NDArray[np.longdouble]:
    return np.concatenate([[0.0], np.cumsum(alpha, dtype=np.longdouble)])


class _BestQuilts(Mapping[int, Mapping[str, object]]):
    """The best quilt of every unit, looked up when somebody asks for it."""

    def __init__(self, bound: MarkovQuiltChainBound, alpha: Vector) -> None:
        self._bound, self._alpha = bound, alpha

    def __getitem__(self, k: int) -> Mapping[str, object]:
        return self._bound.quilt(k, self._alpha)

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    def __len__(self) -> int:
        return len(self._bound._units.first)


def _influences_by_distance(laws: ChainLaws, budget: WorkBudget, check: Check) -> ChainInfluences:
    """Return the influence tables of one chain (α-independent), as many as the work budget allows."""
    n, size = laws.length, len(laws.segment.initial)

    def ratio(rows: Vector | None, count: int) -> Vector:
        check()
        return _log_ratio(rows, count)

    if laws.segment.homogeneous and laws.stationary:
        width = min(n - 1, 400 if size <= 8 else 2 * budget.quilts)
        law = laws.limit if laws.limit is not None else laws.marginal(0)
        alive = law > 0
        count = int(alive.sum())
        ahead = [ratio(laws.steps(0, b)[alive], count) for b in range(1, width + 1)]
        back = [ratio(laws.reversed_rows(law, laws.steps(0, a), alive), count) for a in range(1, width + 1)]
        return _largest_influences([back], [ahead], laws.slack(width + size), check)
    width = min(n - 1, 64, max(2, int((2e7 / n) ** 0.5)), max(2, int((3e8 / n) ** 0.5 / size)))
    most = MQM_TABLES * budget.entries
    if budget.is_comparison:
        most = min(most, int(MQM_BESIDE / size**3))
    if 2 * n * width > most:
        raise ModelTooWide(
            f"the quilts of {n:,} different steps need {2 * n * width:,} tables, the limit is {most:,}",
            f"raise {option('work')}",
        )
    return _largest_influences(*_step_ratios(laws, width, check), laws.slack(n), check, width)


def _step_ratios(laws: ChainLaws, width: int, check: Check) -> tuple[list[list[Vector]], list[list[Vector]]]:
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


def _largest_influences(
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
    left, right, both = left + 2 * slack, right + 2 * slack, both + 2 * slack
    left[:, 0] = right[:, 0] = both[:, 0, 0] = 0.0  # no quilt tells nothing
    return ChainInfluences(left, right, both)


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

    times = 4.0

    def __init__(self, problem: Problem) -> None:
        problem.require_singles("published")
        super().__init__(problem)

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Take four times the influences."""
        super().prepare(workspace, budget)
        found = self._influences
        both = None if found.both is None else self.times * found.both
        self._influences = ChainInfluences(self.times * found.left, self.times * found.right, both)
