"""Group-privacy profiles δ_k(ε) of any mechanism: from a ``dp_accounting`` event, or from δ of one record.

All that the (ε, δ) bounds for correlated records ask of a mechanism is δ_w(ε), an upper bound on the
hockey-stick divergence between its outputs on any two databases that differ in records of total weight w;
no shape of the noise is used.  An event of shifted noise (Gaussian, Laplace, discrete Laplace, and whatever
is composed of them) has it exactly: w records shift the query w times as far.  Any other mechanism has it
from its own δ(ε) by :class:`SteppedProfile`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms.contract import import_dp_accounting
from quiltdp.mechanisms.gaussian import gaussian_delta
from quiltdp.mechanisms.profiles import PrivacyLossProfile, ScalarProfile, Vector
from quiltdp.mechanisms.sensitivities import round_up_whole
from quiltdp.numbers import EPS, round_up, up

_CONVOLVED = 1e-13  # more than the rounding of convolutions by Fourier transform
_FARTHEST = 80.0  # largest ε of a table; beyond it the last value holds
_NEAREST, _GROWTH = 1e-3, 1.25  # where a step may have nothing left, looked for by bisection
_LARGEST = 600.0  # largest ε whose exponential is taken
_FINE, _MOST_POINTS = 48, 4096  # points of one step's range, and of a table
_NEGLIGIBLE = 1e-18
_MOST_STEPS = 4000  # of a group whose tables are made; beyond, equal steps: tightness for time


class EventProfile(ScalarProfile):
    """Any mechanism that a ``dp_accounting`` event describes, for groups of records.

    Parameters
    ----------
    event
        A ``dp_accounting.DpEvent``; composed events are composed first, as they must be.  A noise
        multiplier is noise / sensitivity, the sensitivity that of *replacing* a record.  Events that are
        not shifted noise (sampled ones, for instance) are about adding or removing a record, as the
        accountant's own default is: a record that is replaced counts as two.

    Examples
    --------
    >>> import dp_accounting
    >>> from quiltdp.mechanisms.group_profiles import EventProfile
    >>> count, sums = dp_accounting.GaussianDpEvent(8.0), dp_accounting.LaplaceDpEvent(9.0)
    >>> year = dp_accounting.ComposedDpEvent([count, dp_accounting.SelfComposedDpEvent(sums, 3)])
    >>> EventProfile(year).delta(1.0, weight=2.0) < 0.01
    True
    """

    def __init__(self, event: Any) -> None:
        accounting = import_dp_accounting()
        accountant = accounting.pld.PLDAccountant()
        if not accountant.supports(event):
            raise InvalidArgument(f"the accountant does not support the event {event!r}")
        self._shifts = _ShiftedNoise.from_event(event, accounting)
        self._profile: ScalarProfile
        if self._shifts is None:
            composed = accountant.compose(event)
            self._profile = SteppedProfile(lambda e: float(composed.get_delta(e)) + _CONVOLVED, steps=2)
        else:
            self._profile = PrivacyLossProfile(self._shifts.loss, self._shifts.loss_range, {})

    @property
    def counts_records(self) -> bool:
        """Whether only whole records have a cost: where the event is not shifted noise."""
        return self._shifts is None

    def delta(self, epsilon: float, weight: float) -> float:
        """Return δ(ε), rounded up, for a group of this weight, any ε.

        Weights are records; fractions of one only for shifted noise.
        """
        if self._shifts is not None and self._shifts.public and weight > 0.0:
            return 1.0
        if self._shifts is not None and not self._shifts.others:  # Gaussian releases are one
            shift = weight * self._shifts.gaussian
            return gaussian_delta(epsilon, up(shift) if shift > 0.0 else 0.0)
        return self._profile.delta(epsilon, weight)


class _ShiftedNoise:
    """A composition of shifted noise: Gaussian releases as one, the others by kind, and how often."""

    def __init__(self, accounting: Any) -> None:
        self._accounting = accounting
        self._squares = Fraction(0)
        self.public = False
        self.others: dict[tuple[str, float, int], int] = {}

    @classmethod
    def from_event(cls, event: Any, accounting: Any) -> _ShiftedNoise | None:
        """Return the parts of an event, or ``None`` if one of them is something else."""
        shifts = cls(accounting)
        return shifts if shifts._add_event(event, 1) else None

    def _add_event(self, event: Any, times: int) -> bool:
        a = self._accounting.dp_event
        if isinstance(event, a.NoOpDpEvent) or times == 0:
            return True
        if isinstance(event, a.ComposedDpEvent):
            return all(self._add_event(part, times) for part in event.events)
        if isinstance(event, a.SelfComposedDpEvent):
            return self._add_event(event.event, times * int(event.count))
        if isinstance(event, a.NonPrivateDpEvent):
            self.public = True
            return True
        if isinstance(event, a.GaussianDpEvent):
            self.public |= event.noise_multiplier == 0
            if event.noise_multiplier:
                self._squares += times / Fraction(event.noise_multiplier) ** 2
            return True
        if isinstance(event, a.LaplaceDpEvent):
            return self._add_noise("laplace", event.noise_multiplier, 1, times)
        if isinstance(event, a.DiscreteLaplaceDpEvent):
            return self._add_noise("discrete_laplace", event.noise_parameter, event.sensitivity, times)
        return False

    def _add_noise(self, kind: str, noise: float, sensitivity: int, times: int) -> bool:
        self.public |= noise == 0
        key = (kind, float(noise), int(sensitivity))
        self.others[key] = self.others.get(key, 0) + times
        return True

    @property
    def gaussian(self) -> float:
        """Sensitivity over noise of the one Gaussian release that all of them are."""
        return up(math.sqrt(round_up(self._squares))) if self._squares else 0.0

    def loss_range(self, weight: float) -> float:
        """Return about the range of the losses of a group."""
        shift = weight * self.gaussian
        total = shift * (shift + 20.0)
        for (kind, noise, sensitivity), times in self.others.items():
            total += times * weight * (1.0 / noise if kind == "laplace" else noise * sensitivity)
        return total

    def loss(self, weight: float, interval: float) -> Any:
        """Return the privacy-loss distribution of a group of this weight."""
        pld = self._accounting.pld.privacy_loss_distribution
        whole = pld.identity(value_discretization_interval=interval)
        if self._squares:
            shift = up(weight * self.gaussian)
            whole = whole.compose(
                pld.from_gaussian_mechanism(1.0, sensitivity=shift, value_discretization_interval=interval)
            )
        for (kind, noise, sensitivity), times in self.others.items():
            make = getattr(pld, f"from_{kind}_mechanism")
            moved = up(weight) if kind == "laplace" else math.ceil(weight * (1.0 - 1e-8)) * sensitivity
            one = make(noise, sensitivity=moved, value_discretization_interval=interval)
            whole = whole.compose(one if times == 1 else one.self_compose(times))
        return whole


class SteppedProfile(ScalarProfile):
    """Groups of k records from the δ(ε) of one record alone, for any mechanism.

    For every e, negative ones too, δ_{a+b}(ε) ≤ δ_a(e) + e^e δ_b(ε − e): change a records, then b.  Taken
    over all e this is the group privacy of trade-off functions, and exact for Gaussian and Laplace noise;
    every e is a proof, so those on a grid are.  δ is convex in e^ε, so a chord of its values is one too.

    Parameters
    ----------
    one
        δ(ε) for ε ≥ 0, an upper bound in both directions (x to x', and back); asked a few hundred times at
        the beginning, and never again.
    steps
        How many such steps replace one record.

    Reference
    ---------
    Dong, Roth and Su, Gaussian differential privacy, 2022, Theorem 2.14.

    Examples
    --------
    >>> from quiltdp.mechanisms.group_profiles import SteppedProfile
    >>> from quiltdp.mechanisms import gaussian_delta
    >>> four = SteppedProfile(lambda e: gaussian_delta(e, 0.2)).delta(1.0, weight=4)
    >>> 1.0 <= four / gaussian_delta(1.0, 0.8) < 1.05
    True
    """

    counts_records = True
    """A group is its records, however little each moves: parts of several records are not one record."""

    def __init__(self, one: Callable[[float], float], *, steps: int = 1) -> None:
        self._steps = steps
        reach = _largest_epsilon(one)
        self._width = reach / _FINE
        points = min(_MOST_POINTS, math.ceil(_FARTHEST / self._width))
        self._grid: Vector = self._width * np.arange(points + 1, dtype=np.float64)
        self._knots, self._values = _tabulate(one, self._grid[: _FINE + 1])
        first = np.full(points + 1, self._values[-1])
        first[: _FINE + 1] = self._values[np.searchsorted(self._knots, self._grid[: _FINE + 1])]
        self._tables = [first]

    def delta(self, epsilon: float, weight: float) -> float:
        """Return δ_k(ε) for a group of ``weight`` records, rounded up to a whole number."""
        if epsilon < 0.0:
            return self._swapped_delta(epsilon, weight)
        k = round_up_whole(weight) * self._steps
        if k <= 0:
            return 0.0
        epsilon = min(epsilon, _LARGEST)  # δ falls: what holds there holds beyond
        return min(1.0, self._delta_by_equal_steps(epsilon, k), self._delta_by_table(epsilon, k))

    def _delta_by_equal_steps(self, epsilon: float, k: int) -> float:
        """Return Σ_j e^{jε/k} δ(ε/k)."""
        factor = math.expm1(epsilon) / math.expm1(epsilon / k) if epsilon > 0 else float(k)
        return up(factor * self._delta_of_step(epsilon / k * (1.0 - EPS)))

    def _delta_of_step(self, epsilon: float) -> float:
        """Return δ(ε) of one step for ε ≥ 0, by the chord of the two values around it."""
        j = int(np.searchsorted(self._knots, epsilon, side="right")) - 1
        if j >= len(self._knots) - 1:
            return float(self._values[-1])
        share = math.expm1(epsilon - self._knots[j]) / math.expm1(self._knots[j + 1] - self._knots[j])
        return up(float(self._values[j]) * (1.0 - share) + float(self._values[j + 1]) * share)

    def _delta_by_table(self, epsilon: float, k: int) -> float:
        """Return the chord of the table around ε: δ is convex in e^ε."""
        if k > _MOST_STEPS:
            return 1.0
        while len(self._tables) < k:
            self._tables.append(self._next_table(self._tables[-1]))
        table = self._tables[k - 1]
        j = int(epsilon / self._width)
        if j >= len(table) - 1:
            return float(table[-1]) if epsilon >= self._grid[-1] else float(table[len(table) - 2])
        low, high = float(self._grid[j]), float(self._grid[j + 1])
        if not low <= epsilon <= high:  # rounding of the quotient
            return float(table[max(j - 1, 0)])
        share = math.expm1(epsilon - low) / math.expm1(high - low)
        return up(float(table[j]) * (1.0 - share) + float(table[j + 1]) * share + 8.0 * EPS * float(table[j]))

    def _next_table(self, table: Vector) -> Vector:
        """Return the table of one step more: the least over what the first step takes of ε."""
        m = len(table)
        signed = np.concatenate(
            [_swapped_deltas(table[1 : _FINE + 1], self._grid[1 : _FINE + 1])[::-1], table]
        )
        one = self._tables[0]
        smallest = np.ones(m)
        back = _swapped_deltas(one[1 : _FINE + 1], self._grid[1 : _FINE + 1])
        for j in range(-_FINE, _FINE + 1):
            first = float(one[j]) if j >= 0 else float(back[-j - 1])
            # ε − e for every point of the grid, e = j steps; points beyond the end take the last value
            at = np.minimum(np.arange(m) - j, m - 1) + _FINE
            smallest = np.minimum(smallest, first + math.exp(j * self._width) * signed[at])
        return np.minimum.accumulate(np.minimum(1.0, smallest * (1.0 + 16.0 * EPS)))


def _largest_epsilon(one: Callable[[float], float]) -> float:
    """Return about the smallest ε beyond which δ(ε) has nothing left, or falls no further."""
    floor = max(_NEGLIGIBLE, 1.01 * one(_FARTHEST))
    low, high = 0, math.ceil(math.log(_FARTHEST / _NEAREST, _GROWTH))
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if one(_NEAREST * _GROWTH**middle) > floor else (low, middle)
    return float(min(_NEAREST * _GROWTH**low, _FARTHEST))


def _tabulate(one: Callable[[float], float], grid: Vector) -> tuple[Vector, Vector]:
    """Return δ(ε), rounded up, at the points of a grid and at three more where it falls by a part in fifty.

    Each value may take a pass over a privacy-loss distribution, so none is asked for twice.
    """

    def rounded_deltas(points: Vector) -> list[float]:
        return [min(1.0, up(max(one(float(e)), 0.0))) for e in points]

    coarse = rounded_deltas(grid)
    knots, deltas = [grid[0]], [coarse[0]]
    for low, high, above, below in zip(grid, grid[1:], coarse, coarse[1:], strict=False):
        if above > 1.02 * below:
            inner = low + (high - low) * np.array([0.25, 0.5, 0.75])
            knots.extend(inner)
            deltas.extend(rounded_deltas(inner))
        knots.append(high)
        deltas.append(below)
    return np.array(knots), np.minimum.accumulate(deltas)


def _swapped_deltas(values: Vector, epsilon: Vector) -> Vector:
    """Return δ(−ε) = 1 − e^{−ε} + e^{−ε} δ(ε), rounded up."""
    return np.minimum(1.0, (-np.expm1(-epsilon) + np.exp(-epsilon) * values) * (1.0 + 16.0 * EPS))
