"""One side of a chain: the recursion F from its end, for any α, with a certified tail.

A side is read outwards-in: position 0 is the end of the chain (nothing beyond it), and

    V_k = min( Σ_{j<k} a_j,  min_{d ≤ k} Σ_{k−d<j<k} a_j + Λ_{k,d}(a_{k−d} + V_{k−d}) ).

On homogeneous chains Λ_{k,d} does not depend on k from some position on.  With equal a the values
then rise to a fixed point, and any u with min_d (d−1)a + Λ_d(a + u) ≤ u that is above the values
computed so far is above all later ones (induction): that u is the certificate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from quiltdp.accountant.leakage.base import Vector
from quiltdp.accountant.leakage.contraction import phi
from quiltdp.accountant.leakage.threshold import ThresholdCurve
from quiltdp.inference.chain_laws import ChainLaws
from quiltdp.rounding import up, up_array

__all__ = ["Side", "backward_side", "forward_side"]

Curve = Callable[[float], float]
_STEPWISE = 20_000  # longest chain with unequal α that is walked step by step
_WARM = 400  # steps walked before looking for the fixed point


@dataclass(frozen=True)
class TailCurve:
    """Λ for all late steps of a homogeneous chain whose law is only near its limit.

    Each conditional is within e^{±drift} of the limit's, so Λ grows by at most 2·drift; and whatever
    the law, Λ ≤ Φ(spread, o), because the spread of a reversed table needs no prior.
    """

    curve: ThresholdCurve | None
    drift: float
    spread: float

    def __call__(self, o: float) -> float:
        """Return the smaller of the two bounds."""
        by_law = self.curve(o) + 2.0 * self.drift if self.curve is not None else np.inf
        return min(float(by_law), float(phi(self.spread, o)))


class Side:
    """The recursion of one side.

    Parameters
    ----------
    length
        The number of steps.
    head
        ``head[k][d − 1]`` is Λ_{k,d} for the first positions.
    tail
        ``tail[d − 1]`` is Λ_d for all positions ``≥ len(head)`` (empty: there are none).
    """

    def __init__(self, length: int, head: Sequence[Sequence[Curve]], tail: Sequence[Curve]) -> None:
        self.length = length
        self._head = head
        self._tail = tail

    def leak(self, a: Vector) -> Vector:
        """Return V_k for every position."""
        if len(a) and np.all(a == a[0]):
            return self._equal(float(a[0]))
        if self.length <= _STEPWISE or not self._tail:
            return self._walk(a, self.length)
        return self._sweep(a)

    def _curves(self, k: int) -> Sequence[Curve]:
        return self._head[k] if k < len(self._head) else self._tail

    def _walk(self, a: Vector, stop: int) -> Vector:
        """Walk the first ``stop`` positions one by one."""
        value = np.zeros(stop)
        cap = 0.0
        for k in range(1, stop):
            cap = up(cap + a[k - 1], 4)
            best, between = cap, 0.0
            for d, curve in enumerate(self._curves(k)[:k], start=1):
                if between >= best:
                    break
                best = min(best, up(between + curve(float(a[k - d] + value[k - d])), 4))
                between = up(between + a[k - d], 4)
            value[k] = best
        return value

    def _equal(self, a: float) -> Vector:
        """Equal α: walk a little, then certify one value for all later positions."""
        stop = min(self.length, len(self._head) + _WARM)
        start = self._walk(np.full(stop, a), stop)
        if stop == self.length:
            return start
        top = self._fixed_point(a, start)
        rest = np.minimum(up_array(a * np.arange(stop, self.length, dtype=np.float64)), top)
        return np.concatenate([start, rest])

    def _fixed_point(self, a: float, start: Vector) -> float:
        """Return u ≥ every computed value the tail can reach with g(u) ≤ u, as small as bisection finds."""
        steps = self._tail
        low = up(float(start.max()))

        def g(u: float) -> float:
            return min((up(d * a + curve(a + u), 4) for d, curve in enumerate(steps)), default=np.inf)

        if g(low) <= low:
            return low
        high = low + a
        while g(high) > high:
            high = 2.0 * high
            if high > a * self.length:
                return float("inf")
        while high > low * (1.0 + 1e-12):
            middle = 0.5 * (low + high)
            if g(middle) <= middle:
                high = middle
            else:
                low = middle
        return high

    def _sweep(self, a: Vector) -> Vector:
        """Unequal α on a long chain: lower a bound that is already certified, all steps at once."""
        caps = up_array(np.concatenate([[0.0], np.cumsum(a[:-1])]), float(self.length))
        value = np.minimum(self._equal(float(a.max())), caps)
        curves = [_GridCurve(curve) for curve in self._tail[:2]]
        first = max(len(self._head), len(curves))
        for _ in range(40):
            new, between = value.copy(), np.zeros(self.length)
            for d, curve in enumerate(curves, start=1):
                reach = between[d:] + curve(a[:-d] + value[:-d])
                new[first:] = np.minimum(new[first:], up_array(reach[first - d :]))
                between[d:] = up_array(between[d:] + a[:-d])
            done = bool(np.all(new >= value * (1.0 - 1e-4)))
            value = new
            if done:
                break
        return value


class _GridCurve:
    """A curve for arrays: o is rounded up to a grid of 4096 points per octave."""

    def __init__(self, curve: Curve) -> None:
        self._curve = curve
        self._known: dict[int, float] = {}

    def __call__(self, o: Vector) -> Vector:
        """Return curve(o') for o' the grid point above each o."""
        with np.errstate(divide="ignore"):
            place = np.ceil(np.maximum(np.log2(o), -1000.0) * 4096.0 + 1e-6).astype(np.int64)
        low = int(place.min())
        table = np.full(int(place.max()) - low + 1, np.nan)
        for k in np.flatnonzero(np.bincount(place - low)).tolist():
            if k + low not in self._known:
                self._known[k + low] = up(self._curve(up(2.0 ** ((k + low) / 4096.0))), 4)
            table[k] = self._known[k + low]
        return table[place - low]


def forward_side(laws: ChainLaws, *, max_step: int) -> Side:
    """Return the side after each step: position k is step length − 1 − k."""
    n = laws.length
    if laws.segment.homogeneous:
        rows = laws.reachable > 0
        steps = min(_steps(int(rows.sum()), max_step), n - 1)
        curves = [ThresholdCurve(laws.steps(0, d)[rows], slack=laws.slack(d)) for d in range(1, steps + 1)]
        return Side(n, [[]], curves)
    steps = _few_steps(n, max_step)
    made = _CurveCache(laws.slack(steps))
    head = [[made(laws.forward(n - 1 - k, d)) for d in range(1, min(k, steps) + 1)] for k in range(n)]
    return Side(n, head, ())


def backward_side(laws: ChainLaws, *, max_step: int) -> Side:
    """Return the side before each step: position k is step k."""
    n = laws.length
    if not laws.segment.homogeneous:
        steps = _few_steps(n, max_step)
        made = _CurveCache(laws.slack(n))
        head = [[made(laws.backward(k, d)) for d in range(1, min(k, steps) + 1)] for k in range(n)]
        return Side(n, head, ())
    size = len(laws.segment.initial)
    steps = min(_steps(size, max_step), max(n - 1, 1))
    if laws.stationary:
        return Side(n, [[]], _tail_curves(laws, steps, 1e-12))
    burn = _burn_in(laws)
    early = min(steps, max(1, 20_000 // (max(burn, 1) * size)))
    made = _CurveCache(laws.slack(burn))
    head = [[made(laws.backward(k, d)) for d in range(1, min(k, early) + 1)] for k in range(burn)]
    if burn >= n:
        return Side(n, head, ())
    return Side(n, head, _tail_curves(laws, min(steps, burn), laws.distance(max(burn - steps, 0))))


def _tail_curves(laws: ChainLaws, steps: int, distance: float) -> list[TailCurve]:
    """Return Λ_d of the reversed limit chain, widened by how far the law still is from it."""
    curves = []
    for d in range(1, steps + 1):
        law = laws.limit if np.isfinite(distance) else None
        curve = _limit_curve(laws, law, d) if law is not None else None
        wide = laws.backward_spread(d)
        curves.append(TailCurve(curve, 2.0 * distance if curve is not None else np.inf, wide))
    return curves


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
    return max(1, min(max_step, 1 + 4000 // size**2 if size > 12 else max_step))


def _few_steps(length: int, max_step: int) -> int:
    """Return the largest d when every position has its own tables."""
    return max(1, min(max_step, 8000 // max(length, 1)))


def _limit_curve(laws: ChainLaws, law: Vector, d: int) -> ThresholdCurve | None:
    """Return Λ_d of the chain in its limit, run backwards; ``None`` if a possible state underflows."""
    rows = laws.reversed_rows(law, laws.steps(0, d), law > 0)
    return None if rows is None else ThresholdCurve(rows, slack=laws.slack(d + len(law)))


def _unknown(o: float) -> float:
    """Say nothing: the α's of the side itself are the bound."""
    return float("inf")


class _CurveCache:
    """Makes curves, the same object for equal tables; one that says nothing where a table is lost."""

    def __init__(self, slack: float) -> None:
        self._slack = slack
        self._made: dict[bytes, ThresholdCurve] = {}

    def __call__(self, rows: Vector | None) -> Curve:
        if rows is None:
            return _unknown
        key = np.asarray(rows.shape).tobytes() + np.ascontiguousarray(rows).tobytes()
        if key not in self._made:
            self._made[key] = ThresholdCurve(rows, slack=self._slack)
        return self._made[key]
