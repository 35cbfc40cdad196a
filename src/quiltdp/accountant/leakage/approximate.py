"""(ε, δ) Bayesian DP from a mechanism's group-privacy profile.

With δ_k(ε) the mechanism's profile for k records changing together, every quilt of a unit gives

    δ_BDP(ε) ≤ max_L δ_{|C∖L|}( ε − s_i(C, L) ),

because p' ≥ e^{−s} p: no factor e^s is needed.  The smallest over quilts counts for each unit, the
largest over units for the model.  ε − s may be negative; δ is cut at 1.

On a path with spreads c_d of its d-step tables, the quilt {i−a, i+b} has swing at most c_a + c_b and
a + b − 1 records inside; near an end a one-sided quilt has fewer records and less swing, so one pair
(a, b) serves every position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from quiltdp.accountant.leakage.base import Vector
from quiltdp.accountant.leakage.quilts import QuiltLimits, SwingBound
from quiltdp.inference.path import path_of, step_spreads
from quiltdp.model import Model
from quiltdp.rounding import EPS

__all__ = ["DeltaBound", "GroupProfile"]

_MOST_DISTANCES = 48


class GroupProfile(Protocol):
    """δ of a mechanism when a group of records changes together."""

    def delta(self, epsilon: float, weight: float) -> float:
        """Return δ, rounded up, for a group whose sensitivities sum to ``weight``; ε may be negative."""
        ...


class DeltaBound:
    """δ_BDP(ε) of every unit of a connected model.

    Parameters
    ----------
    model, units, window
        As for the pure bounds.
    seconds
        How long the search for quilts may take.
    """

    def __init__(
        self,
        model: Model,
        units: Sequence[tuple[str, ...]] | None = None,
        *,
        window: int = 1,
        seconds: float = 15.0,
    ) -> None:
        self.count = len(model.records) if units is None else len(units)
        if window > 1:
            self.count = max(1, len(model.nodes) - window + 1)
        path = path_of(model) if units is None or all(len(u) == 1 for u in units) else None
        self._window = window
        self._path: tuple[np.ndarray, Vector, Vector] | None = None
        self._order: np.ndarray | None = None
        self._quilts: SwingBound | None = None
        if path is not None and len(path.nodes) > 1:
            c = step_spreads(path)
            keep = np.unique(np.linspace(0, len(c.distances) - 1, _MOST_DISTANCES).astype(int))
            d = c.distances[keep]
            self._path = (
                d,
                _reached(c.forward[keep], d, forward=True),
                _reached(c.backward[keep], d, forward=False),
            )
            self._order = np.array([model.index[n] for n in path.nodes], dtype=np.intp)
        elif len(model.nodes) > 1:
            self._quilts = SwingBound(model, units, limits=QuiltLimits(seconds=seconds))
        self._seen: set[float] = set()

    def evaluate(self, profile: GroupProfile, weights: Vector, epsilon: float) -> Vector:
        """Return δ of every unit; ``weights`` are the sensitivities of the nodes, 0 for latents."""
        unit = _unit_error(weights)
        whole = float(weights.sum()) * (1 + len(weights) * unit)
        trivial = profile.delta(epsilon, whole)
        if self._path is not None:
            return np.full(self.count, min(trivial, self._along_path(profile, weights, epsilon)))
        if self._quilts is None:
            return np.full(self.count, trivial)
        self._look_around(weights, epsilon)
        values = np.full(self.count, trivial)
        for k in range(self.count):
            own = sum(float(weights[j]) for j in self._quilts.members(k)) * (1 + 8 * unit)
            for term in self._quilts.terms(k):
                inside = (own + term.unknown @ weights[term.near]) * (1 + 8 * len(weights) * unit)
                worst = _largest(profile, epsilon, term.swing, inside, float(values[k]))
                values[k] = min(values[k], worst)
        return values

    def _look_around(self, weights: Vector, epsilon: float) -> None:
        """Let the pure bound look for quilts at a few strengths of noise."""
        top = float(weights.max())
        for share in (1.0, 0.3, 0.1, 0.03):
            guide = epsilon * share
            if guide not in self._seen and top > 0 and self._quilts is not None:
                self._seen.add(guide)
                self._quilts.evaluate(weights * (guide / top))

    def _along_path(self, profile: GroupProfile, weights: Vector, epsilon: float) -> float:
        """Return the smallest δ over two-sided quilts, the same for every position."""
        assert self._path is not None
        distances, forward, backward = self._path
        best = 1.0
        sums = _RunSums(weights[self._order])
        for a, left in zip(distances.tolist(), backward.tolist(), strict=True):
            for b, right in zip(distances.tolist(), forward.tolist(), strict=True):
                if left + right >= epsilon + 40.0:
                    continue
                inside = sums(a + b - 2 + self._window)
                best = min(best, profile.delta(epsilon - (left + right) * (1 + 4 * EPS), inside))
        return best


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


def _largest(profile: GroupProfile, epsilon: float, swing: Vector, inside: Vector, cut: float) -> float:
    """Return max_L δ, or ``cut`` as soon as that is reached."""
    worst = 0.0
    for s, w in zip(swing.tolist(), inside.tolist(), strict=True):
        worst = max(worst, 1.0 if np.isinf(s) else profile.delta(epsilon - s, w))
        if worst >= cut:
            return cut
    return worst
