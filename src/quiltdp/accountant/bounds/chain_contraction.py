"""Chains by one number per step: what remains where messages on pairs of states are too much work.

Read a side of a path outwards-in: position 0 is its end, a_j the α of position j.  If C_{k,d}(o) bounds what
a likelihood whose logarithm moves by at most o at position k − d says about position k, then the records
beyond position k say at most

    V_k = min( Σ_{j<k} a_j,  min_d  Σ_{k−d<j<k} a_j + C_{k,d}( a_{k−d} + V_{k−d} ) ),

and a run of steps leaks at most its own α's, plus V at its last step from the side after it, plus V at its
first step from the side before it.  *Why.*  The d − 1 records in between cost their own α each; what remains
depends on position k − d through a function whose logarithm moves by at most a_{k−d} + V_{k−d}.

*Informed*: C = Φ(c_d, ·), c_d the spread of the d-step table; a known record in between costs only the α's
before it, a farther one cannot widen the table.  *Prior*: also Λ, the threshold curve of the d-step laws.

*Where tables and α's repeat* one value per phase serves all later positions.  Every bound on V_{k−d} gives a
bound on V_k, so going around from above, from Σ α, is sound at every turn: nothing has to be certified.

*Assumes*: a model that is one path; for Λ, laws that doubles hold.  *Cost*: a spread (states³) per distinct
d-step table, then one pass over positions and distances.  *Reference*: docs/theory.md, section 8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.bounds.contract import ALL, Bounds, Need, Problem, Vector
from quiltdp.accountant.bounds.contraction import phi
from quiltdp.accountant.bounds.threshold import ThresholdCurve
from quiltdp.accountant.trade_offs import CHAIN_CURVES, CHAIN_DISTANCE, CHAIN_ROUNDS, CHAIN_WALKED
from quiltdp.errors import InvalidArgument
from quiltdp.inference.chains import Path, StepFamily, StepSpreads, path_of, step_families, step_spreads
from quiltdp.inference.workspace import Workspace
from quiltdp.numbers import EPS, UNDERFLOW, up, up_array
from quiltdp.work import WorkBudget

if TYPE_CHECKING:
    from quiltdp.inference.uncertain import SetChain, TableErrors

Ints = NDArray[np.intp]
Check = Callable[[], None]

_SETTLED = 1e-9  # how far, in logarithms, laws that count as settled may still move, beside their rounding
_LAW_STEPS = 2000  # after which the law of a step is taken not to settle
_FEW_STEPS = 32  # the farthest step with a threshold curve


class PathUnits:
    """A path, and the protected units as runs of its positions; the gaps of a set count as its own.

    Raises
    ------
    InvalidArgument
        If the model is not one path.
    """

    def __init__(self, problem: Problem) -> None:
        path = path_of(problem.model)
        if path is None:
            raise InvalidArgument("the chain solver needs a model that is one connected path")
        model, self.path, self.length = problem.model, path, len(path.nodes)
        self.order: Ints | None = None
        self.record = np.ones(self.length, dtype=bool)
        place = model.index
        if path.nodes is not model.nodes:
            self.order = np.array([model.index[n] for n in path.nodes], dtype=np.intp)
            self.record = np.array([model.is_record(n) for n in path.nodes])
            place = {n: k for k, n in enumerate(path.nodes)}
        self.gaps = False
        """Whether some unit is no run of consecutive steps."""
        if problem.window > 1:
            self.first = np.arange(max(1, self.length - problem.window + 1))
            self.last = np.minimum(self.first + problem.window, self.length) - 1
        elif problem.units is None:
            every = np.arange(self.length) if self.order is None else [place[r] for r in model.records]
            self.first = self.last = np.asarray(every, dtype=np.intp)
        else:
            runs = [sorted(place[n] for n in unit) for unit in problem.units]
            self.first = np.array([run[0] for run in runs], dtype=np.intp)
            self.last = np.array([run[-1] for run in runs], dtype=np.intp)
            self.gaps = any(run[-1] - run[0] >= len(run) for run in runs)

    def costs(self, alpha: Vector) -> Vector:
        """Return the α of every position."""
        return np.asarray(alpha if self.order is None else alpha[self.order], dtype=np.float64)


class ContractionBound:
    """The scalar recursion for every unit.

    Parameters
    ----------
    problem
        One connected path; every unit a set of its steps.
    errors
        What is allowed to be wrong about the tables: spreads are raised by it, and Λ is not used.

    Examples
    --------
    >>> from quiltdp import markov_chain
    >>> from quiltdp.accountant.bounds.contract import ready
    >>> bound = ready(ContractionBound, markov_chain([[0.9, 0.1], [0.1, 0.9]], length=100))
    >>> bool(0.99 < bound.evaluate(np.full(100, 1 / 8.91)).values.max() < 1.001)
    True
    """

    def __init__(
        self, problem: Problem, units: PathUnits | None = None, errors: TableErrors | None = None
    ) -> None:
        self._units = units if units is not None else PathUnits(problem)
        self._prior = problem.adversary.knows_nothing and errors is None
        self._errors = errors

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Compute the spreads of the d-step tables, and the laws where nothing is known."""
        self._check = workspace.guard.check
        short, period = self._units.path.shortened(CHAIN_DISTANCE)
        spreads = step_spreads(short, max_distance=CHAIN_DISTANCE, check=self._check)
        if self._errors is not None:
            from quiltdp.inference.uncertain import raised_steps  # for tables known roughly only

            wobble = self._errors.largest_step(self._units.path.nodes, workspace.model)
            spreads = raised_steps(spreads, self._errors, wobble)
        few = {}
        if self._prior:
            few = dict(step_families(short, _FEW_STEPS, CHAIN_CURVES))
        self._sides = tuple(
            ScalarSide.of_path(self._units.length, short, spreads, period, few, after)
            for after in (True, False)
        )

    def evaluate(self, alpha: Vector, need: Need = ALL) -> Bounds:
        """Return the leakage of every unit."""
        a, first, last = self._units.costs(alpha), self._units.first, self._units.last
        after = self._sides[0].leakages(a[::-1], self._check)[::-1]
        before = self._sides[1].leakages(a, self._check)
        sums, slack = _running_sums(a)
        own = np.where(first == last, a[first], (sums[last + 1] - sums[first]).astype(np.float64) + slack)
        value = up_array(own + after[last] + before[first])
        return Bounds(np.minimum(value, up(float(sums[-1]) + slack)), "chain")


def _running_sums(a: Vector) -> tuple[NDArray[np.longdouble], float]:
    """Return running sums of α's, and how far a difference of two of them may be off."""
    sums = np.concatenate([[0.0], np.cumsum(a, dtype=np.longdouble)])
    return sums, float(4 * np.finfo(np.longdouble).eps * len(a) * sums[-1])


class ScalarSide:
    """The recursion of one side.

    Parameters
    ----------
    length
        How many positions there are.
    distances, spreads
        The distances d, ascending, and c_d of every position (a row each); ∞ where the path ends before.
    period
        So many last rows stand, phase by phase, for all later positions; 0: every position has its own.
    laws
        The laws of the side where nothing is known.

    Examples
    --------
    >>> side = ScalarSide(5, np.array([1]), np.array([[2.0]]), 1)
    >>> side.leakages(np.full(5, 0.5)).round(4).tolist()
    [0.0, 0.2301, 0.3345, 0.3813, 0.4021]
    """

    def __init__(
        self, length: int, distances: Ints, spreads: Vector, period: int, laws: FreeLaws | None = None
    ) -> None:
        self.length, self._distances, self._period = length, distances, period
        self._spreads, self._laws = spreads, laws

    @classmethod
    def of_path(
        cls,
        length: int,
        short: Path,
        spreads: StepSpreads,
        period: int,
        few: dict[int, StepFamily],
        after: bool,
    ) -> ScalarSide:
        """Return the side after (or before) every step of a path that a shorter one stands for."""
        rows = spreads.forward[:, ::-1].T if after else spreads.backward.T
        laws = FreeLaws(short, length, few, period, after) if few else None
        return cls(length, spreads.distances, np.ascontiguousarray(rows), period, laws)

    def leakages(self, a: Vector, check: Check = lambda: None) -> Vector:
        """Return V_k for every position; ``check`` is called now and then and may raise."""
        n, equal = self.length, bool(np.all(a == a[0]))
        again = self._period if equal else 0
        listed = n if not again else min(n, CHAIN_WALKED + self._period)
        sums, slack = _running_sums(a)
        value = np.zeros(listed)
        for k in range(1, listed):
            if k % 256 == 0:
                check()
            d = self._distances[: int(np.searchsorted(self._distances, k, side="right"))]
            passed = (sums[k] - sums[k - d + 1]).astype(np.float64) + slack
            value[k] = min(float(sums[k]) + slack, self._best_distance(k, passed, a[k - d] + value[k - d]))
        if listed == n:
            return value
        check()
        phases = self._bound_phases(listed, float(a[0]), value)
        later = phases[np.arange(n - listed) % again]
        return np.concatenate([value, np.minimum(later, sums[listed:n].astype(np.float64) + slack)])

    def _bound_phases(self, listed: int, cost: float, value: Vector) -> Vector:
        """Return a bound for every phase of the positions that are not listed, from above."""
        d, period = self._distances[self._distances <= listed], self._period
        start, passed = listed % period, up_array((d - 1).astype(np.float64) * cost)
        floor = np.array([value[(start + q) % period :: period].max(initial=0.0) for q in range(period)])
        phases = np.full(period, up(cost * self.length))
        for _ in range(CHAIN_ROUNDS):
            before = phases.copy()
            for q in range(period):
                at = (q - d) % period
                beyond = cost + np.maximum(phases[at], floor[at])
                phases[q] = min(phases[q], self._best_distance(listed + q, passed, beyond))
            if (before <= phases * (1.0 + 1e-12)).all():
                break
        return phases

    def _best_distance(self, k: int, passed: Vector, beyond: Vector) -> float:
        """Return min_d of what is passed + C_{k,d}(beyond) for the first distances."""
        if not len(passed):
            return np.inf
        rows = len(self._spreads)
        row = k if k < rows else rows - self._period + (k - rows) % self._period
        beyond = up_array(beyond, 4)
        best = float((passed + phi(self._spreads[row, : len(passed)], beyond)).min())
        if self._laws is not None:
            for j, d in enumerate(self._laws.distances[: len(passed)]):
                if passed[j] >= best:
                    break
                best = min(best, float(passed[j]) + self._laws.leakage_at(k, d, float(beyond[j])))
        return up(best, 8)


class FreeLaws:
    """The laws of the steps beyond a position where nothing is known, as threshold curves Λ.

    The law of position k − d given that of k is ∝ table(x, y) g(y), g(y) the weight of all beyond: near the
    end g is computed position by position; where it has settled one curve serves all later positions of a
    phase.  In between that curve serves too: tilts within e^r of each other move Λ by at most 2 r.
    """

    def __init__(
        self, short: Path, length: int, few: dict[int, StepFamily], period: int, after: bool
    ) -> None:
        self._few, self._rows, self._after = few, len(short.nodes), after
        self._same, self._period = short.homogeneous, period
        end = np.asarray(short.end if after else short.start, dtype=np.float64)
        states = max(len(end), *(max(t.shape) for t in short.tables))
        curves = CHAIN_CURVES / states**3
        self.distances = list(few)[: max(1, int(curves / (period or length)))]
        self._own = max(8, int(curves / len(self.distances)))
        self._slack, self._drift = 2.0 * EPS * (states + 4), 0.0
        self._tilts, self._settled = [end / end.max()], False
        for j in range(1, min(length, max(_LAW_STEPS, 4 * period))):
            table, support = self._transition_between(j, 1)
            tilt = table @ self._tilts[-1]
            tilt = tilt / tilt.max()
            reached = (support & (self._tilts[-1] > 0)).any(axis=1)  # Boolean: a product may underflow to 0
            if np.any(reached & (tilt < UNDERFLOW)):
                break
            self._tilts.append(tilt)
            if period and j >= 2 * period:
                turns, rounding = length / period, self._slack * period
                self._drift = turns * (_ratio_range(tilt, self._tilts[j - period]) + rounding)
                self._settled = self._drift <= _SETTLED + 2.0 * turns * rounding
                if self._settled:
                    break
        self._curves: dict[tuple[int, int, bool], ThresholdCurve | None] = {}

    def leakage_at(self, k: int, d: int, beyond: float) -> float:
        """Return Λ_{k,d}; ∞ where it is not known."""
        last, position, extra = len(self._tilts) - 1, k - d, 0.0
        late = last - (last - position) % self._period if self._settled else -1
        if position <= last:
            extra = 2.0 * _ratio_range(self._tilts[position], self._tilts[late]) if self._settled else np.inf
        own = extra > _SETTLED and k < self._own
        if not own:  # the last positions of every phase stand for all others
            if late < 0 or extra == np.inf:
                return np.inf
            k = late + d
        key = (k, d, own)
        if key not in self._curves:
            self._curves[key] = self._threshold_curve(k, d)
        curve = self._curves[key]
        return np.inf if curve is None else curve(beyond) + (0.0 if own else extra)

    def _transition_between(self, k: int, d: int) -> tuple[Vector, NDArray[np.bool_]]:
        """Return the table from position k to k − d, a row for every state of k, and what is possible."""
        family, rows, period = self._few[d], self._rows, self._period
        row = k if k < rows or not period else rows - period + (k - rows) % period
        start = 0 if self._same else rows - 1 - row if self._after else row - d
        table, support = family.tables[int(family.which[start])]
        return (table, support) if self._after else (table.T, support.T)

    def _threshold_curve(self, k: int, d: int) -> ThresholdCurve | None:
        table, support = self._transition_between(k, d)
        if np.any(support & (table < UNDERFLOW)):
            return None
        rows = table * self._tilts[k - d]
        if np.any(support & (self._tilts[k - d] > 0) & (rows < UNDERFLOW)):
            return None
        total = rows.sum(axis=1, keepdims=True)
        rows = (rows / np.where(total > 0, total, 1.0))[total[:, 0] > 0]
        return ThresholdCurve(rows, slack=self._slack * (k + 4) + self._drift)


def _ratio_range(one: Vector, other: Vector) -> float:
    """Return the range of ln(one / other) over the possible states; ∞ if these differ."""
    possible = one > 0
    if not np.array_equal(possible, other > 0):
        return np.inf
    return float(np.ptp(np.log(one[possible] / other[possible])))


class SetChainBound:
    """An upper bound on the leakage, the same for all transition matrices of a set.

    With ĉ_d ≥ the spread of every d-step table in the set, the recursion above with Φ(ĉ_d, ·): Φ increases
    in its first argument, so the bound for any member is below this one.

    Parameters
    ----------
    chain
        The set; every step of every chain uses a matrix of it, and starts as it likes.
    lengths
        The lengths of the separate chains that share it.
    window
        The protected unit: this many consecutive steps (1: each step).

    Reference
    ---------
    D. J. Hartfiel, Markov Set-Chains, 1998.
    """

    def __init__(
        self, chain: SetChain, lengths: Sequence[int], *, window: int = 1, max_distance: int = 64
    ) -> None:
        if not lengths or any(n < 1 for n in lengths):
            raise InvalidArgument("set chain: every chain needs at least one step")
        if window < 1:
            raise InvalidArgument(f"window must be at least 1 step, not {window}")
        from quiltdp.inference.uncertain import set_chain_spreads

        self.lengths = tuple(int(n) for n in lengths)
        self.window = window
        self.distances, self.spreads = set_chain_spreads(chain, max_distance)

    def evaluate(self, alpha: Vector, need: Need = ALL) -> Bounds:
        """Return one bound per chain (its worst window); every step must cost the same α.

        Raises
        ------
        InvalidArgument
            If the α's differ.
        """
        costs = np.unique(np.asarray(alpha, dtype=np.float64))
        if len(costs) != 1 or not costs[0] >= 0:
            raise InvalidArgument("set chain: every step must have the same dp_epsilon")
        made = {n: self._worst_window(n, float(costs[0])) for n in set(self.lengths)}
        return Bounds(np.array([made[n] for n in self.lengths]), "set-chain")

    def _worst_window(self, length: int, alpha: float) -> float:
        """Return the largest bound of a window in a chain of this length."""
        run = min(self.window, length)
        side = ScalarSide(length, self.distances, self.spreads[None], 1).leakages(np.full(length, alpha))
        both = side[::-1][run - 1 :] + side[: length - run + 1]  # after and before, window by window
        return min(up(run * alpha + float(both.max())), up(length * alpha))
