"""(ε, δ) on a path, by pairings: the smallest δ over the rate λ (theorem in ``paired``).

Long homogeneous chains with equal sensitivities take one pairing for every position; paths of up to
:data:`STEP_BY_STEP` nodes are paired position by position; longer ones with one table per step or unequal
sensitivities are treated as the homogeneous chain with the largest spread and sensitivity of any step.

Against the informed adversary tolls come from spreads (any evidence is allowed for).  Against the prior
adversary they come from the model's own conditionals: of pairs of states on chains of few states in
their stationary law, of threshold curves otherwise.

*Assumes*: a path.  *Cost*: that of its pairings (:mod:`.paired_chain`, :mod:`.paired_states`) at each λ
tried.  *Reference*: docs/theory.md, section 11.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import INFORMED, PRIOR
from quiltdp.accountant.bounds import Bounds, Problem, Vector
from quiltdp.accountant.delta_bounds import register_delta
from quiltdp.accountant.leakage.chain_contraction import runs_of
from quiltdp.accountant.leakage.paired import (
    RATES,
    Pairing,
    WeightLaw,
    joined,
    rate_near,
    smallest_over_rates,
    units_of,
)
from quiltdp.accountant.leakage.paired_chain import BlockSide, SideLaws, endless_side, side_laws
from quiltdp.accountant.leakage.paired_curves import PathCurves, PriorCurves, StateRows
from quiltdp.accountant.leakage.paired_states import StateSide, state_side
from quiltdp.accountant.trade_offs import RATE_PAIRS, RATE_POSITIONS, STEP_BY_STEP
from quiltdp.errors import InvalidArgument
from quiltdp.inference.chains import path_of
from quiltdp.inference.workspace import Workspace
from quiltdp.mechanisms import GroupProfile
from quiltdp.numbers import EPS
from quiltdp.work import WorkBudget

__all__ = ["STEP_BY_STEP", "PairedChainBound", "PairedPriorChainBound"]


_SHARE = 0.8  # of ε: about the toll of the best rate, where the search begins
_LARGEST_TOLL = 100.0
_KEPT_SIDES, _KEPT_LAWS = 8, 4000  # by rate, and by rate and position

Ints = NDArray[np.intp]
Curves = Callable[[Vector], Vector]


@register_delta(
    "paired", against=INFORMED, says="pairings along the chain: contraction by spreads, whatever is known"
)
class PairedChainBound:
    """δ of every run of steps of a path, against the informed adversary.

    Raises
    ------
    InvalidArgument
        If the model is not one path of at least two nodes, or a unit is not a run of its steps.
    """

    _curves: type[PathCurves] = PathCurves

    def __init__(self, problem: Problem) -> None:
        path = path_of(problem.model)
        if path is None or len(path.nodes) < 2:
            raise InvalidArgument("pairings along a chain need a model that is one connected path")
        self._model, self._path = problem.model, path
        where = None if path.nodes is problem.model.nodes else {n: k for k, n in enumerate(path.nodes)}
        self._order = np.arange(len(path.nodes))
        if where is not None:
            self._order = np.array([problem.model.index[n] for n in path.nodes], dtype=np.intp)
        self._left, self._right = map(np.asarray, runs_of(problem.model, where, problem.units))
        if problem.window > 1:
            self._left = np.arange(problem.count, dtype=np.intp)
            self._right = np.minimum(self._left + problem.window, len(path.nodes)) - 1

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Find spreads or conditionals."""
        self._workspace = workspace
        name = self._curves.__name__
        self._found = workspace.keep("path curves", name, lambda: self._curves(self._model, self._path))

    def weigh(self, weights: Vector) -> WeighedChain:
        """Return the pairings for given sensitivities, whatever the noise and ε."""
        along = np.asarray(weights, dtype=np.float64)[self._order]
        name, count = self._curves.__name__, len(self._left)
        if not along.any():
            return WeighedChain(1.0, np.zeros(1), np.zeros(count, dtype=np.intp), None)
        unit, units = units_of(along)
        sums = np.concatenate([[0], np.cumsum(units)])
        own = (sums[self._right + 1] - sums[self._left]) * unit
        top = int(units.max())
        alike = self._found.uniform and bool((units == top).all())
        pairings: Endless | StepByStep
        if len(units) > (STEP_BY_STEP // 2 if alike else STEP_BY_STEP):
            distinct, where = np.unique(own, return_inverse=True)
            pairings = self._workspace.keep(
                "endless pairings", (name, top), lambda: Endless(self._found, top, self._workspace)
            )
            return WeighedChain(unit, distinct, where.astype(np.intp), pairings)
        key = (name, units.tobytes(), self._left.tobytes(), self._right.tobytes())
        pairings = self._workspace.keep(
            "pairings",
            key,
            lambda: StepByStep(self._found, units, self._left, self._right, self._workspace),
            lambda _: 2**25,
        )
        return WeighedChain(unit, own, np.arange(count, dtype=np.intp), pairings)


@dataclass(frozen=True, eq=False)
class WeighedChain:
    """Pairings of a path with given sensitivities; ``own`` is the weight of every class of units."""

    unit: float
    own: Vector
    where: Ints
    pairings: Endless | StepByStep | None

    def evaluate(self, profile: GroupProfile, epsilon: float) -> Bounds:
        """Return δ of every class: the smallest over rates."""
        if self.pairings is None:  # nothing is read
            return Bounds(np.full(len(self.own), profile.delta(epsilon, 0.0)), "paired")
        if epsilon <= 0.0:
            return Bounds(np.ones(len(self.own)), "paired")
        return Bounds(self.pairings.deltas(profile, epsilon, self.unit, self.own), "paired")


@register_delta(
    "paired-prior",
    against=PRIOR,
    says="pairings along the chain: contraction by its own conditionals",
    costly=True,
)
class PairedPriorChainBound(PairedChainBound):
    """δ of every run of steps of a path, against the prior adversary."""

    _curves = PriorCurves


@dataclass(eq=False)
class Endless:
    """Pairings that serve every position of a long chain, kept by rate; ``units`` is one record's weight."""

    curves: PathCurves
    units: int
    workspace: Workspace
    kept: dict[int, tuple[tuple[float, WeightLaw], ...]] = field(default_factory=dict)
    tolls: dict[int, float] = field(default_factory=dict)
    sides: dict[int, tuple[StateSide, StateSide] | None] = field(default_factory=dict)

    def deltas(self, profile: GroupProfile, epsilon: float, unit: float, own: Vector) -> Vector:
        """Return δ for every weight of a unit."""
        return np.array([self._delta(profile, epsilon, unit, float(w)) for w in own])

    def _delta(self, profile: GroupProfile, epsilon: float, unit: float, own: float) -> float:
        def at(k: int, most: int = RATE_PAIRS) -> float:
            pairs = sorted(self._at(k), key=lambda pair: -pair[0])[:most]
            if not pairs or pairs[0][0] >= epsilon + 1.0:
                return 1.0
            return max(Pairing(t, law, own).delta(profile, epsilon, RATES[k], unit) for t, law in pairs)

        best, _ = smallest_over_rates(at, self._start(epsilon))
        return at(best, len(self._at(best)))

    def _start(self, epsilon: float) -> int:
        """Return the rate at which to begin: its toll is about a certain share of ε (a multiple of 8)."""
        first = rate_near(self._toll, _SHARE * epsilon)
        if self.curves.states is None or not self._at(first):
            return first
        dearest = max(toll for toll, _ in self._at(first))  # tolls of pairs of states are smaller
        return first + 8 * max(0, round(math.log(_SHARE * epsilon / dearest) / (8 * RATES.spacing)))

    def _toll(self, k: int) -> float:
        """Return the toll of both sides by blocks and spreads, ∞ if there is none."""
        if k not in self.tolls:
            sides = self._blocks(RATES[k] * self.units, *self.curves.by_spreads())
            self.tolls[k] = math.inf if sides is None else sides[0].toll + sides[1].toll
        return self.tolls[k]

    def _blocks(self, cost: float, after: Curves, before: Curves) -> tuple[BlockSide, BlockSide] | None:
        d = self.curves.distances.tolist()
        one = endless_side(after, d, cost, _LARGEST_TOLL)
        two = one if after is before else endless_side(before, d, cost, _LARGEST_TOLL)
        return None if one is None or two is None else (one, two)

    def _at(self, k: int) -> tuple[tuple[float, WeightLaw], ...]:
        """Return toll and law of every pair of states at one rate, or one pair for all; none if too dear."""
        if k not in self.kept:
            self.workspace.guard.check()
            states = self.curves.states
            self.kept[k] = self._of_states(states, k) if states is not None else self._of_blocks(k)
        return self.kept[k]

    def _of_blocks(self, k: int) -> tuple[tuple[float, WeightLaw], ...]:
        cost = RATES[k] * self.units * (1.0 + 4.0 * EPS)
        sides = self._blocks(cost, *self.curves.anywhere())
        if sides is None:
            return ()
        one, two = sides
        toll = (one.toll + two.toll) * (1.0 + EPS)
        if one == two:
            return ((toll, one.twice(self.units)),)
        return ((toll, joined(one.law(self.units), two.law(self.units))),)

    def _sides(self, rows: StateRows, k: int) -> tuple[StateSide, StateSide] | None:
        """Return both sides at one rate: every eighth from nothing, the others from the one below."""
        if k not in self.sides:
            cost = RATES[k] * self.units * (1.0 + 4.0 * EPS)
            like = self._sides(rows, k - k % 8) if k % 8 else None
            one, two = (None, None) if like is None else like
            after = state_side(rows.forward, cost, _LARGEST_TOLL, rows.drift, one)
            before = after
            if not rows.reversible:
                before = state_side(rows.backward, cost, _LARGEST_TOLL, rows.drift, two)
            self.sides[k] = None if after is None or before is None else (after, before)
        return self.sides[k]

    def _of_states(self, rows: StateRows, k: int) -> tuple[tuple[float, WeightLaw], ...]:
        sides = self._sides(rows, k)
        if sides is None:
            return ()
        after, before = sides
        found = []
        for x, y in sorted(after.laws):
            toll = (after.tolls[x, y] + before.tolls[x, y]) * (1.0 + EPS)
            law = joined(after.law(x, y, self.units), before.law(x, y, self.units))
            found.append((float(toll), law))
        return tuple(found)


@dataclass(eq=False)
class StepByStep:
    """Pairings of every position of a short path, kept by rate."""

    curves: PathCurves
    units: NDArray[np.int64]
    left: Ints
    right: Ints
    workspace: Workspace
    sides: dict[int, tuple[SideLaws, SideLaws]] = field(default_factory=dict)
    joint: dict[tuple[int, int, int], tuple[float, WeightLaw]] = field(default_factory=dict)
    tolls: dict[int, float] = field(default_factory=dict)

    def deltas(self, profile: GroupProfile, epsilon: float, unit: float, own: Vector) -> Vector:
        """Return δ of every unit, by the rate that is best for a sample of them."""
        left, right = self.left, self.right

        def at(k: int, j: int) -> float:
            toll, law = self._at(k, int(left[j]), int(right[j]))
            return Pairing(toll, law, float(own[j])).delta(profile, epsilon, RATES[k], unit)

        sample = np.unique(np.linspace(0, len(left) - 1, RATE_POSITIONS).round().astype(np.intp)).tolist()
        start = rate_near(self._toll, _SHARE * epsilon)
        best, _ = smallest_over_rates(lambda k: max(at(k, j) for j in sample), start)
        return np.array([at(best, j) for j in range(len(left))])

    def _toll(self, k: int) -> float:
        """Return the largest toll of any position."""
        if k not in self.tolls:
            after, before = self._sides(k)
            self.tolls[k] = float((after.tolls[::-1] + before.tolls).max())
        return self.tolls[k]

    def _sides(self, k: int) -> tuple[SideLaws, SideLaws]:
        if k not in self.sides:
            self.workspace.guard.check()
            while len(self.sides) >= _KEPT_SIDES:
                self.sides.pop(next(iter(self.sides)))
            rate = RATES[k] * (1.0 + 4.0 * EPS)
            d, u = self.curves.distances.tolist(), self.units.tolist()
            after = side_laws(self.curves.after, d, u[::-1], rate)
            self.sides[k] = (after, side_laws(self.curves.before, d, u, rate))
        return self.sides[k]

    def _at(self, k: int, left: int, right: int) -> tuple[float, WeightLaw]:
        if (k, left, right) not in self.joint:
            while len(self.joint) >= _KEPT_LAWS:
                self.joint.pop(next(iter(self.joint)))
            after, before = self._sides(k)
            there = len(self.units) - 1 - right
            toll = float(after.tolls[there] + before.tolls[left]) * (1.0 + EPS)
            self.joint[k, left, right] = (toll, joined(after.laws[there], before.laws[left]))
        return self.joint[k, left, right]
