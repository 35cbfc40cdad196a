"""The direct solver for chains, with blocks.

With c_d→ the spread of the d-step forward table and c_d← of the backward one,

    F_i = min( Σ_{j>i} α_j,  min_d  Σ_{i<j<i+d} α_j + Φ( c_d→(i), α_{i+d} + F_{i+d} ) ),
    B_i the mirror image,     Leakage(i) ≤ α_i + F_i + B_i,

and a run of consecutive steps costs its own α's plus F at its right end plus B at its left end.  A
known record at i+e costs only the α's before it; otherwise the d-step table is the right one.  As
α → 0 this is α·(1 + Σ contraction): no additive floor.

*Assumes*: a model that is one path; nothing is assumed of what is known.  *Cost*: one spread per distinct
d-step table (states³), then one pass over steps and distances; where matrices repeat, over a few periods of
them, whatever the length.  *Reference*: docs/theory.md, section 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from quiltdp.accountant.bounds import Bounds, Problem, Vector
from quiltdp.accountant.leakage.chain_recursion import Curves, PhiCurve, Side
from quiltdp.accountant.trade_offs import CHAIN_DISTANCE
from quiltdp.errors import InvalidArgument
from quiltdp.graph.components import Places
from quiltdp.inference.chains import Path, StepSpreads, path_of, step_spreads
from quiltdp.inference.periodic import shortened_path
from quiltdp.inference.workspace import Workspace
from quiltdp.model import Model
from quiltdp.numbers import EPS, up, up_array
from quiltdp.work import WorkBudget

if TYPE_CHECKING:
    from quiltdp.inference.uncertain import TableErrors

__all__ = ["ContractionBound", "runs_of"]


class ContractionBound:
    """The chain solver for every step, or for runs of consecutive steps.

    Parameters
    ----------
    problem
        One connected path (a Markov chain, or any model whose graph is a path); every unit a run of
        consecutive steps.

    Raises
    ------
    InvalidArgument
        If the model is not one path, or a unit is not a run of consecutive steps.
    """

    def __init__(self, problem: Problem, *, max_work: float = 2e9) -> None:
        model, units, window = problem.model, problem.units, problem.window
        path = path_of(model)
        if path is None:
            raise InvalidArgument("the chain solver needs a model that is one connected path")
        self._path = path
        self._max_work = max_work
        self.length = len(path.nodes)
        self._order = None
        other = tuple(path.nodes[:2]) != tuple(model.nodes[:2]) or not path.homogeneous
        if path.nodes is not model.nodes and other:
            self._order = np.array([model.index[n] for n in path.nodes], dtype=np.intp)
        where = None if self._order is None else {n: k for k, n in enumerate(path.nodes)}
        self._left, self._right = runs_of(model, where, units)
        if window > 1:
            self._left = range(max(1, self.length - window + 1))
            self._right = range(min(window, self.length) - 1, self.length)

    @classmethod
    def widened(cls, problem: Problem, errors: TableErrors) -> ContractionBound:
        """Return the bound for every chain within the errors: spreads are raised, nothing is added."""
        return _RaisedContraction(problem, errors)

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Find the spreads of the d-step tables."""
        self._workspace = workspace
        self._forward = self._backward = None
        if self.length > 1:
            short = shortened_path(self._path, CHAIN_DISTANCE)
            sides = self._sides(workspace, short)
            if any(not side.covers(self.length) for side in sides):  # it repeats otherwise than it seemed
                sides = self._sides(workspace, self._path)
            self._forward, self._backward = (Side(self.length, side) for side in sides)

    def _sides(self, workspace: Workspace, path: Path) -> tuple[Curves, Curves]:
        """Return the curves of both sides of every step of a path."""
        c = self._spreads(workspace, path)
        return _phi_curves(c.distances, c.forward[:, ::-1]), _phi_curves(c.distances, c.backward)

    def _spreads(self, workspace: Workspace, path: Path) -> StepSpreads:
        """Return the spreads of the d-step tables."""
        check = workspace.guard.check
        return step_spreads(path, max_distance=CHAIN_DISTANCE, max_work=self._max_work, check=check)

    def evaluate(self, alpha: Vector) -> Bounds:
        """Return α's of the run + F at its right end + B at its left end, for every unit."""
        a = alpha if self._order is None else alpha[self._order]
        left, right = self._left, self._right
        total = up(float(a.sum()), self.length + 8.0)
        if self._forward is None or self._backward is None:
            return Bounds(np.full(len(left), total), "chain")
        forward = self._forward.leak(a[::-1], self._workspace.guard.check)[::-1]
        backward = self._backward.leak(a, self._workspace.guard.check)
        if not np.all(a == a[0]):
            sums = np.concatenate([[0.0], np.cumsum(a)])
            own = sums[np.asarray(right) + 1] - sums[np.asarray(left)] + sums[-1] * (self.length * EPS)
        elif isinstance(left, range) and isinstance(right, range):  # exact where every α is the same
            own = (right.start - left.start + 1) * a[0]
        else:
            own = (np.asarray(right) - np.asarray(left) + 1) * a[0]
        value = own + _at(forward, right)
        value += _at(backward, left)
        value = up_array(value)
        return Bounds(np.minimum(value, total, out=value), "chain")


def _at(values: Vector, places: np.ndarray | range) -> Vector:
    return values[places.start : places.stop] if isinstance(places, range) else values[places]


def _phi_curves(distances: np.ndarray, spreads: np.ndarray) -> Curves:
    """Return Φ(c_d(k), ·) for every position (columns, outwards-in) and distance (rows)."""
    if spreads.shape[1] == 1:
        return Curves.constant(distances.tolist(), [PhiCurve(float(c)) for c in spreads[:, 0]])
    values, which = np.unique(spreads.T, return_inverse=True)
    made = [PhiCurve(float(c)) for c in values]
    return Curves.by_position(distances.tolist(), made, which.reshape(spreads.T.shape).astype(np.intp))


def runs_of(
    model: Model, where: dict[str, int] | None, units: Sequence[tuple[str, ...]] | None
) -> tuple[Places, Places]:
    """Return the first and last position of every unit, which must be a run of steps."""
    place = model.index if where is None else where
    if units is None:
        if where is None and len(model.records) == len(model.nodes):
            return range(len(model.nodes)), range(len(model.nodes))
        every = np.array([place[r] for r in model.records], dtype=np.intp)
        return every, every
    left, right = [], []
    for unit in units:
        steps = sorted(place[n] for n in unit)
        if steps[-1] - steps[0] + 1 != len(steps):
            raise InvalidArgument(f"the unit {unit} is not a run of consecutive steps")
        left.append(steps[0])
        right.append(steps[-1])
    return np.array(left, dtype=np.intp), np.array(right, dtype=np.intp)


class _RaisedContraction(ContractionBound):
    """The chain solver for every chain within the errors."""

    def __init__(self, problem: Problem, errors: TableErrors) -> None:
        super().__init__(problem)
        self._errors = errors

    def _spreads(self, workspace: Workspace, path: Path) -> StepSpreads:
        from quiltdp.inference.uncertain import raised_steps  # for tables known roughly only

        found = super()._spreads(workspace, path)
        return raised_steps(found, self._errors, self._errors.largest_step(self._path.nodes, workspace.model))
