"""Group profiles from ``dp_accounting``'s privacy-loss distributions (its pessimistic estimates)."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from quiltdp.accountant.mechanisms.contract import OneByOne
from quiltdp.accountant.mechanisms.sensitivities import whole
from quiltdp.accountant.trade_offs import LOSSES_KEPT, WEIGHTS_EXACT, WEIGHTS_GRID
from quiltdp.numbers import up

if TYPE_CHECKING:
    from quiltdp.accountant.mechanisms.contract import Mechanism

__all__ = ["LossProfile", "Losses"]

_FINEST, _POINTS = 1e-4, 8_000  # of a discretized privacy loss
_CONVOLVED = 1e-13  # more than the rounding of convolutions by Fourier transform


@dataclass(frozen=True, eq=False)
class Losses(OneByOne):
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
    """

    loss: Callable[[float, float], Any]
    loss_range: Callable[[float], float]
    kept: dict[Any, Any]
    key: Hashable = None
    whole: bool = False

    def delta(self, epsilon: float, weight: float) -> float:
        """Return δ(ε), rounded up and at most 1; for ε < 0 by δ(−ε) of the swapped pair."""
        if weight <= 0.0:
            return 0.0 if epsilon >= 0 else min(1.0, up(-math.expm1(epsilon)))
        if epsilon < 0.0:
            other = self.delta(-epsilon, weight)
            return min(1.0, up(-math.expm1(epsilon) + math.exp(epsilon) * other))
        raised = self._raised(weight)
        key = (self.key, raised)
        if key not in self.kept:
            while len(self.kept) >= LOSSES_KEPT:
                self.kept.pop(next(iter(self.kept)))
            interval = max(_FINEST, self.loss_range(raised) / _POINTS)
            self.kept[key] = self.loss(raised, interval)
        found = float(self.kept[key].get_delta_for_epsilon(epsilon))
        return min(1.0, up(max(found, 0.0)) + _CONVOLVED)

    def _raised(self, weight: float) -> float:
        """Return the weight of the grid that stands for this one."""
        near = whole(weight)
        if near <= WEIGHTS_EXACT and self.whole:
            return float(near)  # a whole number that arrived raised by a few units in its last place
        if near <= WEIGHTS_EXACT and abs(weight - near) <= 1e-9 * near:
            return near * (1.0 + 1e-9)
        found = math.exp(WEIGHTS_GRID * math.ceil(math.log(weight) / WEIGHTS_GRID - 1e-9)) * (1.0 + 1e-11)
        return float(math.ceil(found)) if self.whole else found


@dataclass(frozen=True, eq=False)
class LossProfile(OneByOne):
    """``times`` uses of a mechanism whose privacy loss depends on weight / scale only."""

    base: Mechanism
    scale: float
    times: int = 1
    made: dict[Any, Any] = field(default_factory=dict)

    def delta(self, epsilon: float, weight: float) -> float:
        """Return δ(ε), rounded up and at most 1."""
        return self._losses().delta(epsilon, up(weight / self.scale) if weight > 0.0 else 0.0)

    def _losses(self) -> Losses:
        def loss(ratio: float, interval: float) -> Any:
            one = self.base.privacy_loss(1.0, ratio, interval)
            return one if self.times == 1 else one.self_compose(self.times)

        return Losses(loss, lambda ratio: self.times * ratio, self.made)
