"""What pairings along a path are fed with: how far one step, or d steps, let a difference through.

Against the informed adversary C_d = Φ(c_d, o), c_d the spread of the d-step table, whatever is known.
Against the prior adversary C_d is the threshold curve of P(X_{i+d} | X_i) and of P(X_{i−d} | X_i); backward
conditionals belong to their position (those of the stationary law are wrong for a chain that is not in
it), so a long chain that is not stationary falls back to spreads for that side.

*Assumes*: a path.  *Cost*: the tables of up to d steps and their spreads or threshold curves, once per
chain.  *Reference*: docs/theory.md, sections 8 and 11.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.leakage.contraction import phi
from quiltdp.accountant.leakage.paired import Vector
from quiltdp.accountant.leakage.threshold import ThresholdCurve
from quiltdp.accountant.trade_offs import PAIRED_SORTED, PAIRED_STATES
from quiltdp.chain import ChainModel
from quiltdp.inference.chains import ChainLaws, Path, StepSpreads, step_spreads
from quiltdp.model import Model

__all__ = ["PathCurves", "PriorCurves", "StateRows"]

Curve = Callable[[Vector], Vector]

_FEW_STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_STATIONARY = 4e-12  # more than the distance up to which a law counts as stationary


@dataclass(frozen=True, eq=False)
class StateRows:
    """One-step laws of a stationary chain, forward and backward, and how exact their logarithms are."""

    forward: Vector
    backward: Vector
    drift: float

    @property
    def reversible(self) -> bool:
        """Whether both directions have the same law, to less than the drift."""
        a, b = self.forward, self.backward
        return bool(np.array_equal(a > 0, b > 0) and np.allclose(a, b, rtol=1e-13, atol=0.0))


class PathCurves:
    """The informed adversary: spreads of d-step tables.

    Side positions count from the end: position k of the side after a step is node n − 1 − k, of the
    side before it node k.
    """

    def __init__(self, model: Model, path: Path) -> None:
        self.length = len(path.nodes)
        self.uniform = path.homogeneous
        self._spreads: StepSpreads = step_spreads(path)
        self.distances: NDArray[np.intp] = self._spreads.distances

    states: StateRows | None = None

    def after(self, k: int, d: NDArray[np.intp], o: Vector) -> Vector:
        """Return C of position k of the side after a step, for the first distances."""
        c = self._spreads.forward
        return phi(c[: len(d), 0 if self._spreads.homogeneous else self.length - 1 - k], o)

    def before(self, k: int, d: NDArray[np.intp], o: Vector) -> Vector:
        """Return C of position k of the side before a step."""
        c = self._spreads.backward
        return phi(c[: len(d), 0 if self._spreads.homogeneous else k], o)

    @cached_property
    def _largest(self) -> tuple[Vector, Vector]:
        """The largest spreads of any position from which the path reaches that far."""
        s, n = self._spreads, self.length
        if s.homogeneous:
            return s.forward[:, 0], s.backward[:, 0]
        d = s.distances.tolist()
        return (
            np.array([row[: n - k].max() for row, k in zip(s.forward, d, strict=True)]),
            np.array([row[k:].max() for row, k in zip(s.backward, d, strict=True)]),
        )

    def by_spreads(self) -> tuple[Curve, Curve]:
        """Return C for every distance from spreads alone, good at every position and for any evidence."""
        after, before = self._largest

        def first(o: Vector) -> Vector:
            return phi(after, o)

        def second(o: Vector) -> Vector:
            return phi(before, o)

        return first, (first if np.array_equal(after, before) else second)

    def anywhere(self) -> tuple[Curve, Curve]:
        """Return C for every distance, good at every position: after and before a step."""
        return self.by_spreads()


class PriorCurves(PathCurves):
    """The prior adversary: the model's own conditionals, where they are known; spreads elsewhere."""

    def __init__(self, model: Model, path: Path) -> None:
        super().__init__(model, path)
        self._laws = ChainLaws(model.segments[0]) if isinstance(model, ChainModel) else None
        most = max((len(t) for t in path.tables), default=1)
        work = most**3 * (len(_FEW_STEPS) if self.uniform else min(self.length, 600) * 4)
        if self._laws is None or work > PAIRED_SORTED:
            self._laws = None
        else:
            few = np.isin(self.distances, _FEW_STEPS if self.uniform else _FEW_STEPS[:6])
            self._few = np.flatnonzero(few)
        self._made: dict[tuple[str, int, int], ThresholdCurve | None] = {}
        if self._laws is not None and self.uniform and self._laws.stationary:
            self.states = self._state_rows(self._laws)

    @staticmethod
    def _state_rows(laws: ChainLaws) -> StateRows | None:
        possible = laws.possible(0)
        if int(possible.sum()) > PAIRED_STATES or laws.length < 2:
            return None
        back = laws.backward(1, 1)
        if back is None or not np.array_equal(possible, laws.possible(1)):
            return None
        drift = _STATIONARY + laws.slack(len(possible))
        return StateRows(laws.forward(0, 1)[:, possible], back[:, possible], drift)

    def _curve(self, side: str, node: int, d: int) -> ThresholdCurve | None:
        """Return the threshold curve of d steps away from a node, made once."""
        assert self._laws is not None
        settled = self.uniform and (side == "after" or self._laws.stationary)
        key = (side, -1 if settled else node, d)
        if key not in self._made:
            start = (d if side == "before" else 0) if settled else node
            rows = self._laws.forward(start, d) if side == "after" else self._laws.backward(start, d)
            if settled and side == "after":
                rows = self._laws.steps(0, d)[self._laws.reachable > 0]
            slack = self._laws.slack(d if settled else self.length) + (_STATIONARY if settled else 0.0)
            self._made[key] = None if rows is None else ThresholdCurve(rows, slack=slack)
        return self._made[key]

    def _improved(self, side: str, node: int, d: NDArray[np.intp], o: Vector, value: Vector) -> Vector:
        """Return the smaller of the spread's C and the threshold curve's, at the few distances."""
        if self._laws is None:
            return value
        for j in self._few[self._few < len(d)].tolist():
            curve = self._curve(side, node, int(d[j]))
            if curve is not None:
                value[j] = min(value[j], curve(float(o[j])))
        return value

    def after(self, k: int, d: NDArray[np.intp], o: Vector) -> Vector:
        """Return C of position k of the side after a step, for the first distances."""
        return self._improved("after", self.length - 1 - k, d, o, super().after(k, d, o))

    def before(self, k: int, d: NDArray[np.intp], o: Vector) -> Vector:
        """Return C of position k of the side before a step."""
        return self._improved("before", k, d, o, super().before(k, d, o))

    def anywhere(self) -> tuple[Curve, Curve]:
        """Return C for every distance, good at every position: after and before a step."""
        after, before = super().anywhere()
        if self._laws is None or not self.uniform:
            return after, before
        d = self.distances

        def after_prior(o: Vector) -> Vector:
            return self._improved("after", 0, d, o, after(o))

        def before_prior(o: Vector) -> Vector:
            return self._improved("before", 0, d, o, before(o))

        return after_prior, (before_prior if self._laws.stationary else before)
