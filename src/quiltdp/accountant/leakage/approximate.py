"""(ε, δ) Bayesian DP from a mechanism's group-privacy profile.

With δ_k(ε) the mechanism's profile for k records changing together, every quilt of a unit gives

    δ_BDP(ε) ≤ max_L δ_{|C∖L|}( ε − s_i(C, L) ),

because p' ≥ e^{−s} p: no factor e^s is needed.  The smallest over quilts counts for each unit, the
largest over units for the model.  ε − s may be negative; δ is cut at 1.

On a path with spreads c_d of its d-step tables, the quilt {i−a, i+b} has swing at most c_a + c_b and
a + b − 1 records inside; near an end a one-sided quilt has fewer records and less swing, so one pair
(a, b) serves every position.

*Assumes*: a mechanism with a group-privacy profile; any model, any evidence.  *Cost*: the swings of the
quilts that are looked at, then one profile per quilt and ε.  *Reference*: docs/theory.md, section 11.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import INFORMED
from quiltdp.accountant.bounds import Bounds, Problem, Vector
from quiltdp.accountant.delta_bounds import register_delta
from quiltdp.accountant.leakage.quilts import QuiltTerm, SwingBound, pairs_around
from quiltdp.accountant.trade_offs import SWING_DISTANCES
from quiltdp.errors import InvalidArgument, ModelTooWide, option
from quiltdp.inference.chains import path_of, step_spreads
from quiltdp.inference.workspace import Workspace
from quiltdp.mechanisms import GroupProfile
from quiltdp.numbers import EPS
from quiltdp.work import WorkBudget

__all__ = ["GroupDelta", "SwingDelta"]


@register_delta("group", against=INFORMED, says="group privacy: every record of the component counts")
class GroupDelta:
    """δ of the whole component as one group, for every unit."""

    def __init__(self, problem: Problem) -> None:
        self._count = problem.count

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Nothing is to be done."""

    def weigh(self, weights: Vector) -> WeighedGroup:
        """Add up all sensitivities."""
        whole = float(weights.sum()) * (1 + len(weights) * _unit_error(weights))
        return WeighedGroup(whole, np.zeros(self._count, dtype=np.intp))


@dataclass(frozen=True, eq=False)
class WeighedGroup:
    """One group of this weight, whatever the unit."""

    whole: float
    where: NDArray[np.intp]

    def evaluate(self, profile: GroupProfile, epsilon: float) -> Bounds:
        """Return δ of the group."""
        return Bounds(np.array([profile.delta(epsilon, self.whole)]), "group")


@register_delta("swing", against=INFORMED, says="group profiles inside the best quilt, at ε less its swing")
class SwingDelta:
    """δ of every unit of a connected model from quilts and their swings.

    Raises
    ------
    InvalidArgument
        For a model of one node: there are no quilts.
    ModelTooWide
        If the quilts around single records would compare more pairs than the work budget allows.
    """

    def __init__(self, problem: Problem) -> None:
        model = problem.model
        if len(model.nodes) < 2:
            raise InvalidArgument("a model of one node has no quilts")
        self.count = problem.count
        self._problem = problem
        self._path = path_of(model) if problem.units is None or problem.singles else None
        self._quilts: SwingBound | None = None

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Find the spreads of a path, or what quilts are made of."""
        model = self._problem.model
        self._workspace = workspace
        if self._path is None:
            self._quilts = SwingBound(self._problem)
            pairs = pairs_around(self._problem, budget.entries)
            if pairs > budget.pairs:  # a unit without quilts forces group privacy: none is begun
                raise ModelTooWide(
                    f"quilts compare about {pairs:,.0f} pairs, the limit is {budget.pairs:,}",
                    f"raise {option('work')}",
                )
            self._quilts.prepare(workspace, budget)
            return
        c = step_spreads(self._path)
        keep = np.unique(np.linspace(0, len(c.distances) - 1, SWING_DISTANCES).astype(int))
        d = c.distances[keep]
        self._spreads = (
            d,
            _reached(c.forward[keep], d, forward=True),
            _reached(c.backward[keep], d, forward=False),
        )
        self._order = np.arange(len(self._path.nodes))
        if self._path.nodes is not model.nodes:
            self._order = np.array([model.index[n] for n in self._path.nodes], dtype=np.intp)

    def weigh(self, weights: Vector) -> WeighedPath | WeighedQuilts:
        """Return the quilts of a path, or those of every unit."""
        if self._quilts is not None:
            return WeighedQuilts(self._quilts, self._workspace, self._problem, weights)
        distances, forward, backward = self._spreads
        length = (distances[:, None] + distances[None, :] - 2 + self._problem.window).ravel()
        sums = _RunSums(weights[self._order])
        known = {k: sums(k) for k in np.unique(length).tolist()}
        inside = np.array([known[k] for k in length.tolist()])
        swing = (backward[:, None] + forward[None, :]).ravel() * (1 + 4 * EPS)
        return WeighedPath(swing, inside, np.zeros(self.count, dtype=np.intp))


@dataclass(frozen=True, eq=False)
class WeighedPath:
    """Two-sided quilts of a path, the same for every position: their swings and what is inside."""

    swing: Vector
    inside: Vector
    where: NDArray[np.intp]

    def evaluate(self, profile: GroupProfile, epsilon: float) -> Bounds:
        """Return the smallest δ over quilts."""
        near = self.swing < epsilon + 40.0
        found = profile.deltas(epsilon - self.swing[near], self.inside[near]) if near.any() else np.ones(1)
        return Bounds(np.array([found.min()]), "swing")


@dataclass(frozen=True, eq=False)
class WeighedQuilts:
    """The quilts of every unit that a search at a few strengths of noise looks at."""

    quilts: SwingBound
    workspace: Workspace
    problem: Problem
    weights: Vector
    tables: dict[float, tuple[Vector, Vector, NDArray[np.intp], NDArray[np.intp]]] = field(
        default_factory=dict
    )

    @property
    def where(self) -> NDArray[np.intp]:
        """Every unit by itself."""
        return np.arange(self.problem.count, dtype=np.intp)

    def evaluate(self, profile: GroupProfile, epsilon: float) -> Bounds:
        """Return the smallest δ over quilts, for every unit."""
        near = 2.0 ** round(math.log2(min(max(epsilon, 1e-3), 1e3)))  # neighbouring ε share their quilts
        if near not in self.tables:
            self.tables[near] = self._table(near)
        swing, inside, first, unit = self.tables[near]
        values = np.ones(self.problem.count)
        if len(swing):
            found = profile.deltas(epsilon - swing, inside)
            np.minimum.at(values, unit, np.maximum.reduceat(found, first))
        return Bounds(values, "swing")

    def _table(self, near: float) -> tuple[Vector, Vector, NDArray[np.intp], NDArray[np.intp]]:
        """Return swing and weight of every quilt and known set, where quilts begin, and their units."""
        weights, error = self.weights, _unit_error(self.weights)
        swings, insides, units = [np.zeros(0)], [np.zeros(0)], []
        for k in range(self.problem.count):
            own = sum(float(weights[j]) for j in self.quilts.members(k)) * (1 + 8 * error)
            for term in self._terms(near, k):
                swings.append(np.where(np.isinf(term.swing), 1e300, term.swing))
                insides.append((own + term.unknown @ weights[term.near]) * (1 + 8 * len(weights) * error))
                units.append(k)
        first = np.cumsum([0, *map(len, swings[1:-1])]) if units else np.zeros(0)
        return (
            np.concatenate(swings),
            np.concatenate(insides),
            first.astype(np.intp),
            np.array(units, dtype=np.intp),
        )

    def _terms(self, near: float, k: int) -> tuple[QuiltTerm, ...]:
        """Let the pure bound look for quilts of a unit at a few strengths of noise."""
        top = float(self.weights.max(initial=0.0))
        relative = self.weights / top if top > 0.0 else self.weights

        def look() -> tuple[QuiltTerm, ...]:
            found: dict[frozenset[int], QuiltTerm] = {}
            for share in (1.0, 0.3, 0.1, 0.03) if top > 0.0 else ():
                for term in self.quilts.quilts_at(relative * (near * share), k):
                    found.setdefault(term.closed, term)
            return tuple(found.values())

        key = (relative.tobytes(), near, k, self.problem.units)
        return self.workspace.keep("quilts of a unit", key, look, lambda t: sum(q.size for q in t) + 256)


def _reached(spreads: np.ndarray, distances: np.ndarray, *, forward: bool) -> Vector:
    """Return the largest spread over the positions from which the path reaches that far."""
    if spreads.shape[1] == 1:
        return np.asarray(spreads[:, 0], dtype=np.float64)
    n = spreads.shape[1]
    rows = [row[: n - d] if forward else row[d:] for row, d in zip(spreads, distances.tolist(), strict=True)]
    return np.array([float(row.max()) for row in rows])


def _unit_error(weights: Vector) -> float:
    """Return the relative error of one addition: none between whole numbers (k records count as k)."""
    whole = bool(np.all(weights == np.floor(weights))) and float(weights.sum()) < 2.0**52
    return 0.0 if whole else EPS


class _RunSums:
    """The largest sum of weights over a run of a given length."""

    def __init__(self, weights: Vector) -> None:
        self._weights = weights
        self._flat = bool(np.all(weights == weights[0]))
        self._sums = np.concatenate([[0.0], np.cumsum(weights)])
        self._known: dict[int, float] = {}
        self._error = 4 * len(weights) * _unit_error(weights)

    def __call__(self, length: int) -> float:
        n = len(self._weights)
        length = min(length, n)
        if length not in self._known:
            if self._flat:
                value = length * float(self._weights[0])
            else:
                value = float((self._sums[length:] - self._sums[: n - length + 1]).max())
            self._known[length] = value * (1 + self._error)
        return self._known[length]
