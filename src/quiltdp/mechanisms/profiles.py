"""Group profiles: δ of a mechanism, at one noise scale, when a group of records changes together.

That of a pure mechanism has a formula; others come from ``dp_accounting``'s privacy-loss distributions (its
pessimistic estimates).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from quiltdp.mechanisms.sensitivities import round_up_whole
from quiltdp.numbers import up

__all__ = ["GroupProfile", "PrivacyLossProfile", "PureProfile", "ScalarProfile", "Vector"]

Vector: TypeAlias = NDArray[np.float64]

_FINEST, _POINTS = 1e-4, 8_000  # of a discretized privacy loss
_CONVOLVED = 1e-13  # more than the rounding of convolutions by Fourier transform
_WEIGHTS_EXACT = 250  # whole weights up to it are taken as they are: the grid would be coarser
_WEIGHTS_GRID = 0.004  # share by which weights are rounded up, so that distributions are made once
_LOSSES_KEPT = 400  # distributions: memory for time


class GroupProfile(Protocol):
    """δ of a mechanism, at one noise scale, when a group of records changes together."""

    def delta(self, epsilon: float, weight: float) -> float:
        """Return δ, rounded up, for a group whose sensitivities sum to ``weight``; ε may be negative."""
        ...

    def deltas(self, epsilon: Vector, weight: Vector) -> Vector:
        """Return δ for many pairs (ε, weight) at once; the same numbers up to rounding, rounded up."""
        ...


class ScalarProfile(ABC):
    """A profile without a formula for arrays: ``deltas`` calls ``delta``."""

    @abstractmethod
    def delta(self, epsilon: float, weight: float) -> float:
        """Return δ of one pair."""

    def deltas(self, epsilon: Vector, weight: Vector) -> Vector:
        """Return δ for many pairs (ε, weight), one by one."""
        pairs = zip(np.asarray(epsilon).tolist(), np.asarray(weight).tolist(), strict=True)
        return np.array([self.delta(e, w) for e, w in pairs], dtype=np.float64)

    def _swapped_delta(self, epsilon: float, weight: float) -> float:
        """Return δ(ε) for ε < 0 by the swapped pair: 1 − e^ε + e^ε δ(−ε), rounded up."""
        return min(1.0, up(-math.expm1(epsilon) + math.exp(epsilon) * self.delta(-epsilon, weight)))


@dataclass(frozen=True)
class PureProfile(ScalarProfile):
    """Any α-DP mechanism: δ = (e^α − e^ε) / (1 + e^α) for |ε| ≤ α, that of randomized response.

    ``rate`` is α per unit of sensitivity: a group of total sensitivity w has α = rate · w.
    """

    rate: float

    def delta(self, epsilon: float, weight: float) -> float:
        """Return δ(ε), rounded up and at most 1."""
        alpha = up(self.rate * weight) if weight > 0.0 else 0.0
        if epsilon >= alpha:
            return 0.0
        inside = epsilon >= -alpha
        return min(1.0, up(self._delta_below_alpha(epsilon, alpha) if inside else -math.expm1(epsilon)))

    def _delta_below_alpha(self, epsilon: float, alpha: float) -> float:
        """Return δ(ε) for |ε| ≤ α: (1 − e^{ε−α}) / (1 + e^{−α})."""
        return -math.expm1(epsilon - alpha) / (1.0 + math.exp(-alpha))


@dataclass(frozen=True, eq=False)
class PrivacyLossProfile(ScalarProfile):
    """δ(ε) for groups: one distribution per weight, on a grid of weights that are rounded up.

    Parameters
    ----------
    loss
        (weight, interval) → the distribution for a group of that total sensitivity.
    loss_range
        weight → about the range of its losses, from which the interval is chosen.
    kept
        Distributions made so far; they change no answer.
    key
        Whose distributions these are, inside ``kept``.
    whole
        Whether weights are whole numbers.
    scale
        What weights are divided by, where the losses depend on their ratio only.
    pure
        What holds of the mechanism as a pure one: a bound too.
    """

    loss: Callable[[float, float], Any]
    loss_range: Callable[[float], float]
    kept: dict[Any, Any]
    key: Hashable = None
    whole: bool = False
    scale: float = 1.0
    pure: PureProfile | None = None

    def delta(self, epsilon: float, weight: float) -> float:
        """Return δ(ε), rounded up and at most 1; for ε < 0 by δ(−ε) of the swapped pair."""
        if epsilon < 0.0:
            return self._swapped_delta(epsilon, weight)
        if weight <= 0.0:
            return 0.0
        raised = self._grid_weight(weight if self.scale == 1.0 else up(weight / self.scale))
        key = (self.key, raised)
        if key not in self.kept:
            while len(self.kept) >= _LOSSES_KEPT:
                self.kept.pop(next(iter(self.kept)))
            interval = max(_FINEST, self.loss_range(raised) / _POINTS)
            self.kept[key] = self.loss(raised, interval)
        composed = up(max(float(self.kept[key].get_delta_for_epsilon(epsilon)), 0.0)) + _CONVOLVED
        return min(self.pure.delta(epsilon, weight) if self.pure else 1.0, composed)

    def _grid_weight(self, weight: float) -> float:
        """Return the weight of the grid that stands for this one."""
        near = round_up_whole(weight)
        if near <= _WEIGHTS_EXACT and self.whole:
            return float(near)  # a whole number that arrived raised by a few units in its last place
        if near <= _WEIGHTS_EXACT and abs(weight - near) <= 1e-9 * near:
            return near * (1.0 + 1e-9)
        raised = math.exp(_WEIGHTS_GRID * math.ceil(math.log(weight) / _WEIGHTS_GRID - 1e-9)) * (1.0 + 1e-11)
        return float(math.ceil(raised)) if self.whole else raised
