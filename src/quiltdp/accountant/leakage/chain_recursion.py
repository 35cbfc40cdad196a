"""One side of a chain: how much the records beyond a step say about it.

Claim.  Read a side outwards-in: position 0 is the end of the chain (nothing beyond it), a_j the α of
position j.  If Λ_{k,d}(o) bounds what a likelihood with logarithm of spread o at position k − d says
about position k, then the records beyond position k say at most

    V_k = min( Σ_{j<k} a_j,  min_d  Σ_{k−d<j<k} a_j + Λ_{k,d}( a_{k−d} + V_{k−d} ) ).

The d − 1 records in between cost their own α each; what remains depends on position k − d through a
function whose logarithm moves by at most a_{k−d} + V_{k−d}.  Leaving distances d out loses tightness,
never soundness.

Assumes.  Against the informed adversary Λ_{k,d}(o) = Φ(c_d(k), o) with the spread of the d-step table
(a known record at k − e costs only the α's before it); against the prior adversary the threshold
curve of the d-step conditionals.

Cost.  One pass, a handful of curves a step; a homogeneous chain with equal α stops when the values
have settled.  From there on any u with min_d (d−1)a + Λ_d(a + u) ≤ u that is above the values computed
so far is above all later ones (induction): that u is the certificate.

Reference.  docs/theory.md, chains.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.bounds import Vector
from quiltdp.accountant.leakage.contraction import phi_at
from quiltdp.accountant.trade_offs import CHAIN_FULL, CHAIN_PERIODS, CHAIN_WALKED
from quiltdp.numbers import EPS, up, up_array

__all__ = ["Curve", "Curves", "PhiCurve", "Side"]

Curve = Callable[[float], float]

_BITS = 80  # α's are added as whole multiples of 2^−80 of the largest: sums without error


@dataclass(frozen=True)
class PhiCurve:
    """Λ(o) = Φ(c, o): what a table of spread c lets through."""

    spread: float

    def __call__(self, o: float) -> float:
        """Return Φ(c, o), rounded up."""
        return phi_at(self.spread, o)


@dataclass(frozen=True, eq=False)
class Curves:
    """Which curve serves which position and distance.

    Attributes
    ----------
    distances
        The distances d, ascending.
    made
        The distinct curves.
    which
        ``which[k, j]`` says which curve is Λ_{k,d} for d = ``distances[j]``; −1 for none.  After row
        ``settled`` the last rows repeat: position k ≥ settled has row settled + (k − settled) mod period,
        with period = rows − settled.
    settled
        See ``which``; equal to the length of the chain if nothing repeats.
    """

    distances: tuple[int, ...]
    made: tuple[Curve, ...]
    which: NDArray[np.intp]
    settled: int

    @classmethod
    def constant(cls, distances: Sequence[int], made: Sequence[Curve]) -> Curves:
        """Return the curves of a chain on which every position has the same ones."""
        return cls(tuple(map(int, distances)), tuple(made), np.arange(len(made))[None, :], 0)

    @classmethod
    def by_position(cls, distances: Sequence[int], made: Sequence[Curve], which: NDArray[np.intp]) -> Curves:
        """Return the curves of a chain with one row per position; a repeating end is found and cut."""
        _, label = np.unique(which, axis=0, return_inverse=True)
        settled, period = _repeating_end(label.ravel())
        return cls(tuple(map(int, distances)), tuple(made), which[: settled + period], settled)

    @property
    def period(self) -> int:
        """How many rows repeat."""
        return max(1, len(self.which) - self.settled)

    def covers(self, length: int) -> bool:
        """Return whether there is a row for every position of a side of this length."""
        return len(self.which) > self.settled or self.settled >= length

    def row(self, k: int) -> int:
        """Return the row of ``which`` that serves position k."""
        return k if k < self.settled else self.settled + (k - self.settled) % self.period


def _repeating_end(label: NDArray[np.intp]) -> tuple[int, int]:
    """Return (settled, period): from ``settled`` on, the labels repeat with the smallest such period."""
    n = len(label)
    for period in (n - 1 - np.flatnonzero(label[:-1] == label[-1])[::-1][:CHAIN_PERIODS]).tolist():
        differ = np.flatnonzero(label[period:] != label[:-period])
        settled = int(differ[-1]) + 1 if len(differ) else 0
        if settled + 3 * period <= n:
            return settled, period
    return n, 0


def _pass() -> None:
    """Nothing is to be checked."""


class Side:
    """The recursion of one side.

    Parameters
    ----------
    length, curves
        How many positions there are, and the Λ of each.
    exact
        Whether positions are walked until their values repeat bit for bit; where they need only settle, they
        are raised by a hair and stand for all later ones sooner.

    Examples
    --------
    >>> import numpy as np
    >>> side = Side(5, Curves.constant([1], [PhiCurve(2.0)]))
    >>> side.leak(np.full(5, 0.5)).round(4).tolist()
    [0.0, 0.2301, 0.3345, 0.3813, 0.4021]
    """

    def __init__(self, length: int, curves: Curves, *, exact: bool = False) -> None:
        self.length = length
        self._exact = exact
        self._curves = curves
        self._rows = curves.which.tolist()

    def leak(self, a: Vector, check: Callable[[], None] = _pass) -> Vector:
        """Return V_k for every position; ``check`` is called now and then and may raise."""
        if not a.any():
            return 0.0 * a
        curves, equal = self._curves, bool(np.all(a == a[0]))
        if not equal or curves.settled >= self.length:
            return np.array(self._walk(a, self.length, check, settling=False))
        stop = min(self.length, curves.settled + CHAIN_WALKED) if curves.period == 1 else self.length
        start = self._walk(a[:stop], stop, check, settling=True)
        cost, period = float(a[0]), curves.period
        if len(start) == self.length:
            return np.array(start)
        if period == 1:
            return self._constant_end(start, cost)
        left = np.arange(len(start), self.length)
        later = np.array(start[-period:])[(left - len(start)) % period]
        return np.concatenate([start, np.minimum(_all_before(cost, left), later)])

    def _constant_end(self, start: list[float], cost: float) -> Vector:
        """Return the first values and, for all later positions, the fixed point; group privacy where less."""
        later = self._fixed_point(cost, max(start))
        left = range(len(start), self.length)
        reached = bisect_left(left, True, key=lambda k: bool(_all_before(cost, np.array(k)) >= later))
        less = _all_before(cost, np.array(left[:reached]))
        found = np.full(self.length, later)
        found[: len(start)], found[len(start) : len(start) + reached] = start, less
        return found

    def _walk(self, a: Vector, stop: int, check: Callable[[], None], *, settling: bool) -> list[float]:
        """Walk the first positions one by one; with ``settling``, only until the values repeat for good."""
        cost, sums = a.tolist(), _equal_sums(float(a[0])) if settling else _exact_sums(a)
        distances, made, curves = self._curves.distances, self._curves.made, self._curves
        one_row = self._rows[0] if len(self._rows) == 1 else None
        value = [0.0] * stop
        best_at = 0
        for k in range(1, stop):
            if k % 1024 == 0:
                check()
            row = self._rows[curves.row(k)] if one_row is None else one_row
            reach = min(bisect_right(distances, k), len(row))
            full = one_row is None or k < 4 * CHAIN_FULL or k % CHAIN_FULL == 0
            tried = range(reach) if full else range(max(0, best_at - 1), min(reach, best_at + 2))
            best = sums.between(0, k)
            for j in tried:
                d = distances[j]
                passed = sums.between(k - d + 1, k)
                if passed >= best:
                    break  # longer distances pass over more records still
                if row[j] >= 0:
                    total = up(passed + made[row[j]](up(cost[k - d] + value[k - d], 4)), 4)
                    if total < best:
                        best, best_at = total, j
            value[k] = best
            if (
                settling
                and (k + 1) % max(CHAIN_FULL, curves.period) == 0
                and self._repeats(value, k, cost[0])
            ):
                return value[: k + 1]
        return value

    def _repeats(self, value: list[float], k: int, a: float) -> bool:
        """Return whether the last period of values, raised by a hair, holds for all later positions.

        They do if g maps them below themselves, by induction; the raised values are put in place.
        """
        period, reach = self._curves.period, self._curves.distances[-1]
        lag = max(period, CHAIN_FULL if period == 1 else 0)
        turns = 1 + -(-reach // period)
        first = k + 1 - turns * period  # all that later positions can look back to
        if self._exact and period > 1:  # the same curves of the same values give the same values for ever
            repeat = value[first : k + 1 - period] == value[first + period : k + 1]
            return first >= self._curves.settled and repeat
        if first < self._curves.settled or any(
            value[j] > value[j - lag] * (1.0 + 1e-13) for j in range(k - period + 1, k + 1)
        ):
            return False
        if period == 1:
            return True  # the fixed point is looked for by itself
        seen = np.array(value[first : k + 1]).reshape(turns, period).max(axis=0)
        raised = (seen * (1.0 + 1e-12)).tolist()
        for r in range(period):
            # mypy infers no type for an r that is bound by its default
            if self._step(k + 1 + r, a, lambda d, r=r: raised[(r - d) % period]) > raised[r]:  # type: ignore[misc]
                return False
        value[k - period + 1 : k + 1] = raised
        return True

    def _step(self, k: int, a: float, before: Callable[[int], float]) -> float:
        """Return min_d (d−1)a + Λ_{k,d}(a + V_{k−d}) with equal α, V_{k−d} = ``before(d)``."""
        best = math.inf
        for d, j in zip(self._curves.distances, self._rows[self._curves.row(k)], strict=False):
            cost = (d - 1.0) * a
            if cost >= best:
                break
            if j >= 0:
                best = min(best, up(cost + self._curves.made[j](up(a + before(d), 4)), 4))
        return best

    def _fixed_point(self, a: float, least: float) -> float:
        """Return u ≥ ``least`` with g(u) ≤ u, g(u) = min_d (d−1)a + Λ_d(a + u), as small as is found."""

        def g(u: float) -> float:
            return self._step(self.length - 1, a, lambda _: u)

        low, cap = up(least), up(a * self.length)
        if g(low) <= low:
            return low
        u = low
        for _ in range(50):  # climb from below: quick where the chain forgets quickly
            new = g(u)
            if new <= u * (1.0 + 1e-13):
                break
            low, u = u, min(new, cap)
        trial = u * (1.0 + 1e-12)
        if trial < cap and g(trial) <= trial:
            return trial
        high = min(2.0 * trial, cap)
        while high < cap and g(high) > high:
            low, high = high, min(2.0 * high, cap)
        if g(high) > high:
            return cap
        while high > low * (1.0 + 1e-12):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if g(middle) <= middle else (middle, high)
        return high


def _all_before(cost: float, positions: NDArray[np.intp]) -> Vector:
    """Return what all records beyond some positions pay, rounded up, where each pays the same."""
    return up_array(np.asarray(cost * positions, dtype=np.float64))


@dataclass(frozen=True)
class _Sums:
    """Sums of runs of α's, each rounded up once."""

    totals: list[int]
    shift: int

    def between(self, first: int, last: int) -> float:
        """Return Σ_{first ≤ j < last} a_j, rounded up."""
        whole = self.totals[last] - self.totals[first]
        return math.ldexp(whole, -self.shift) * (1.0 + 2.0 * EPS) if whole else 0.0


@dataclass(frozen=True)
class _EqualSums:
    """Sums of equal α's, each rounded up once: those of :class:`_Sums` without a list."""

    unit: int
    shift: int

    def between(self, first: int, last: int) -> float:
        """Return Σ_{first ≤ j < last} a_j, rounded up."""
        whole = (last - first) * self.unit
        return math.ldexp(whole, -self.shift) * (1.0 + 2.0 * EPS) if whole else 0.0


def _equal_sums(a: float) -> _EqualSums:
    """Return running sums of equal α's."""
    shift = _BITS - math.frexp(a)[1]
    return _EqualSums(_unit(a, shift), shift)


def _unit(value: float, shift: int) -> int:
    """Return an α as a whole multiple of 2^−shift, rounded up."""
    top, bottom = value.as_integer_ratio()
    return -(-(top << max(shift, 0)) // (bottom << max(-shift, 0)))


def _exact_sums(a: Vector) -> _Sums:
    """Return running sums in whole numbers: every α is rounded up to a multiple of 2^−80 of the largest."""
    shift = _BITS - math.frexp(float(a.max()))[1]
    totals, total = [0], 0
    units: dict[float, int] = {}
    for value in a.tolist():
        unit = units.get(value)
        if unit is None:
            unit = units[value] = _unit(value, shift)
        total += unit
        totals.append(total)
    return _Sums(totals, shift)
