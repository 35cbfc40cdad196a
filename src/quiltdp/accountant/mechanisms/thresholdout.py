"""Thresholdout, the mechanism of the reusable holdout."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from quiltdp.accountant.mechanisms.contract import (
    GroupProfile,
    OneByOne,
    PureMechanism,
    dp_accounting,
    register,
)
from quiltdp.accountant.mechanisms.sensitivities import Sensitivity, frozen_sensitivity, positive
from quiltdp.errors import InvalidArgument, option
from quiltdp.numbers import up

__all__ = ["PureProfile", "Thresholdout"]


@register("thresholdout", says="the reusable holdout: pure DP with α = 9 B Δ/(4σ) for B noisy answers")
@dataclass(frozen=True)
class Thresholdout(PureMechanism):
    """The reusable holdout: α = 9 B Δ / (4 σ) for a budget of B noisy answers, and this is tight.

    Each spend costs Δ/σ for the threshold, 2Δ/(2σ) for the comparison and Δ/(4σ) for the answer.

    Parameters
    ----------
    budget
        B, how many answers may come from the holdout.
    sensitivity
        Δ of every query: 1/n for the mean of n values in [0, 1], or ``record -> Δ_j``.

    Examples
    --------
    >>> from quiltdp import Thresholdout
    >>> Thresholdout(budget=10, sensitivity=0.001).scale(dp_epsilon=0.9)
    0.025...
    """

    budget: int
    sensitivity: Sensitivity

    def __post_init__(self) -> None:
        """Refuse a budget below 1 and a sensitivity that is no positive finite number or mapping."""
        if isinstance(self.budget, bool) or not hasattr(self.budget, "__index__"):
            raise InvalidArgument(f"{option('budget')} must be a whole number, not {self.budget!r}")
        object.__setattr__(self, "budget", int(self.budget.__index__()))
        if self.budget < 1:
            raise InvalidArgument(f"{option('budget')} must be at least 1, not {self.budget}")
        object.__setattr__(self, "sensitivity", frozen_sensitivity(self.sensitivity))

    @property
    def answers(self) -> int:
        """How many answers may come from the holdout."""
        return self.budget

    def _factor(self) -> Fraction:
        return Fraction(9 * self.budget, 4)

    def group_profile(self, scale: float) -> GroupProfile:
        """Return δ_k(ε) of any algorithm with this α."""
        return PureProfile(up(float(self._factor()) / positive(scale, "scale")))

    def to_opendp(self, scale: float) -> Any:
        """Refuse: Thresholdout is not one release of noise."""
        raise InvalidArgument("Thresholdout is an algorithm, not one release: use quiltdp.ReusableHoldout")

    def to_dp_event(self, scale: float) -> Any:
        """Return a discrete Laplace event of sensitivity 1 with the α of the whole budget.

        Its privacy loss is ±α, that of binary randomized response, so it dominates every α-DP
        algorithm (a Laplace event of that α would not).  Randomized response itself is no use here:
        the accountant of ``dp_accounting`` takes it for other neighbours only, and forgets how often
        it was repeated.
        """
        alpha = self.dp_epsilon(scale)
        largest = max(alpha.values()) if isinstance(alpha, dict) else alpha
        event = dp_accounting().dp_event
        return event.DiscreteLaplaceDpEvent(noise_parameter=largest, sensitivity=1)

    @classmethod
    def default_sensitivity(cls, *, most: int, people: int) -> float:
        """Return Δ of a mean over all people: ``most`` of them stand behind one record."""
        return most / people


@dataclass(frozen=True)
class PureProfile(OneByOne):
    """Any α-DP mechanism: δ = (e^α − e^ε) / (1 + e^α) for |ε| ≤ α, that of randomized response.

    ``rate`` is α per unit of sensitivity: a group of total sensitivity w has α = rate · w.
    """

    rate: float

    def delta(self, epsilon: float, weight: float) -> float:
        """Return δ(ε), rounded up and at most 1."""
        alpha = up(self.rate * weight) if weight > 0.0 else 0.0
        if epsilon >= alpha:
            return 0.0
        if epsilon < -alpha:
            return min(1.0, up(-math.expm1(epsilon)))
        # (1 − e^{ε−α}) / (1 + e^{−α})
        return min(1.0, up(-math.expm1(epsilon - alpha) / (1.0 + math.exp(-alpha))))
