"""The direct solver for chains, with blocks.

With c_d→ the spread of the d-step forward table and c_d← of the backward one,

    F_i = min( Σ_{j>i} α_j,  min_d  Σ_{i<j<i+d} α_j + Φ( c_d→(i), α_{i+d} + F_{i+d} ) ),
    B_i the mirror image,     Leakage(i) ≤ α_i + F_i + B_i,

and a run of consecutive steps costs its own α's plus F at its right end plus B at its left end.  A
known record at i+e costs only the α's before it; otherwise the d-step table is the right one.  As
α → 0 this is α·(1 + Σ contraction): no additive floor.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quiltdp.accountant.leakage.base import RecordBounds, Vector
from quiltdp.accountant.leakage.contraction import phi
from quiltdp.errors import InvalidArgument
from quiltdp.inference.path import path_of, step_spreads
from quiltdp.model import Model
from quiltdp.rounding import EPS, up, up_array

__all__ = ["ChainBound", "runs_of"]

_RECURSION = 4096  # positions from an end that are solved one by one; further in, the fixed point


class ChainBound:
    """The chain solver for every step, or for runs of consecutive steps.

    Parameters
    ----------
    model
        One connected path: a Markov chain, or any model whose graph is a path.
    units
        The protected sets, each a run of consecutive steps; ``None`` for every record alone.
    window
        Protect every run of this many steps instead (with ``units=None``).

    Raises
    ------
    InvalidArgument
        If the model is not one path, or a unit is not a run of consecutive steps.
    """

    name = "chain"
    adversary = "informed"

    def __init__(
        self,
        model: Model,
        units: Sequence[tuple[str, ...]] | None = None,
        *,
        window: int = 1,
        max_work: float = 2e9,
    ) -> None:
        path = path_of(model)
        if path is None:
            raise InvalidArgument("the chain solver needs a model that is one connected path")
        self.model = model
        self.length = len(path.nodes)
        self._order = None
        if tuple(path.nodes[:2]) != tuple(model.nodes[:2]) or not path.homogeneous:
            self._order = np.array([model.index[n] for n in path.nodes], dtype=np.intp)
        self._spreads = step_spreads(path, max_work=max_work) if self.length > 1 else None
        where = None if self._order is None else {n: k for k, n in enumerate(path.nodes)}
        self._left, self._right = runs_of(model, where, units)
        if window > 1:
            self._left = np.arange(max(1, self.length - window + 1), dtype=np.intp)
            self._right = np.minimum(self._left + window, self.length) - 1

    def evaluate(self, alpha: Vector) -> RecordBounds:
        """Return α's of the run + F at its right end + B at its left end, for every unit."""
        a = alpha if self._order is None else alpha[self._order]
        total = up(float(a.sum()), self.length + 8.0)
        if self._spreads is None:
            return RecordBounds(np.full(len(self._left), total), self.name)
        c = self._spreads
        forward = _side(c.distances, c.forward, a)
        backward = _side(c.distances, c.backward[:, ::-1], a[::-1])[::-1]
        sums = np.concatenate([[0.0], np.cumsum(a)])
        own = sums[self._right + 1] - sums[self._left] + sums[-1] * (self.length * EPS)
        if np.all(a == a[0]):  # exact where every α is the same
            own = (self._right - self._left + 1) * a[0]
        value = up_array(own + forward[self._right] + backward[self._left])
        return RecordBounds(np.minimum(value, total), self.name)


def runs_of(
    model: Model, where: dict[str, int] | None, units: Sequence[tuple[str, ...]] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and last position of every unit, which must be a run of steps."""
    place = model.index if where is None else where
    if units is None:
        if where is None and len(model.records) == len(model.nodes):
            every = np.arange(len(model.nodes), dtype=np.intp)
        else:
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


def _side(distances: np.ndarray, spreads: np.ndarray, alpha: Vector) -> Vector:
    """Return F for every position of the path."""
    if spreads.shape[1] == 1 and np.all(alpha == alpha[0]):
        return _uniform(distances, spreads[:, 0], float(alpha[0]), len(alpha))
    return _recursion(distances, spreads, alpha)


def _uniform(distances: np.ndarray, spreads: Vector, alpha: float, length: int) -> Vector:
    """Homogeneous chain, equal α: recursion near the end, a certified fixed point further in."""
    before: Vector = (distances - 1.0) * alpha
    left: Vector = np.arange(length - 1.0, -1.0, -1.0) * alpha  # group privacy of everything to the right
    if np.isinf(spreads).all() or alpha == 0.0:
        return up_array(left)
    value = np.zeros(length)
    stop = max(0, length - _RECURSION)
    for i in range(length - 2, stop - 1, -1):
        reach = int(np.searchsorted(distances, length - 1 - i, side="right"))
        ahead = alpha + value[i + distances[:reach]]
        best = float(np.min(up_array(before[:reach] + phi(spreads[:reach], up_array(ahead)))))
        value[i] = min(float(left[i]) * (1 + 4 * EPS), best)
        if i + 1 < length - 1 and value[i] <= value[i + 1] * (1 + 1e-14):
            stop = i + 1
            break
    if stop > 0:
        limit = _fixed_point(before, spreads, alpha, float(left[0]))
        value[:stop] = np.minimum(up_array(left[:stop]), limit)
    return value


def _fixed_point(before: Vector, spreads: Vector, alpha: float, cap: float) -> float:
    """Return f with g(f) ≤ f, g(f) = min_d (d−1)α + Φ(c_d, α + f), as small as bisection finds it.

    g is concave and increasing, so the points with g(f) ≤ f are everything from the fixed point up;
    the returned one was checked with g rounded up.
    """

    def g(f: float) -> float:
        return float(np.min(up_array(before + phi(spreads, up(alpha + f)))))

    high = up(cap)
    if g(high) > high:
        return high
    low = 0.0
    f = g(0.0)
    for _ in range(200):  # climb from below: fast where the chain forgets fast
        new = g(f)
        if new <= f * (1 + 1e-13):
            break
        low, f = f, new
    trial = f * (1 + 1e-12)
    if trial < high and g(trial) <= trial:
        return g(trial)
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        if g(middle) <= middle:
            high = middle
        else:
            low = middle
    return high


def _recursion(distances: np.ndarray, spreads: np.ndarray, alpha: Vector) -> Vector:
    """Return F by one pass from the end, for unequal α or one table per step."""
    length = len(alpha)
    sums = np.concatenate([[0.0], np.cumsum(alpha)])
    slack = sums[-1] * (length * EPS)
    value = np.zeros(length)
    shared = spreads.shape[1] == 1
    for i in range(length - 2, -1, -1):
        reach = int(np.searchsorted(distances, length - 1 - i, side="right"))
        d = distances[:reach]
        before = np.maximum(sums[i + d] - sums[i + 1], 0.0) + np.where(d > 1, slack, 0.0)
        c = spreads[:reach, 0] if shared else spreads[:reach, i]
        best = float(np.min(up_array(before + phi(c, up_array(alpha[i + d] + value[i + d])))))
        value[i] = min(sums[-1] - sums[i + 1] + slack, best)
    return value
