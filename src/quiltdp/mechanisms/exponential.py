"""The exponential mechanism over finitely many candidates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms.additive import read_numbers, refuse_missing
from quiltdp.mechanisms.noise import Grid, NoiseSource, SecureNoise, charged_scale
from quiltdp.numbers import round_up

__all__ = ["ExponentialMechanism"]

Candidate = TypeVar("Candidate")


class ExponentialMechanism:
    r"""Choose a candidate with probability ∝ exp(dp_epsilon · score / 2Δ): dp_epsilon-DP.

    Candidates and their number must not depend on the data.  Drawn as the largest score plus Gumbel
    noise, by OpenDP's exact comparison, on scores rounded to the grid (and charged for it).

    Parameters
    ----------
    sensitivity
        Δ: how far one record moves any score.
    dp_epsilon
        α of one choice.
    noise
        Keyword for tests; leave it out for real releases.

    Reference
    ---------
    McSherry and Talwar, Mechanism design via differential privacy, 2007.

    Examples
    --------
    >>> from quiltdp.mechanisms import ExponentialMechanism
    >>> ExponentialMechanism(sensitivity=1.0, dp_epsilon=50.0).choose(["a", "b"], [0.0, 100.0])
    'b'
    """

    def __init__(self, sensitivity: float, dp_epsilon: float, *, noise: NoiseSource | None = None) -> None:
        for name, value in (("sensitivity", sensitivity), ("dp_epsilon", dp_epsilon)):
            if not 0.0 < value < math.inf:
                raise InvalidArgument(f"{name} must be positive and finite, not {value!r}")
        self.sensitivity = float(sensitivity)
        self.dp_epsilon = float(dp_epsilon)
        scale = 2 * Fraction(self.sensitivity) / Fraction(self.dp_epsilon)
        self.scale = round_up(scale)
        self.grid = Grid.finer_than(self.sensitivity, self.scale)
        self._units = charged_scale(scale, self.grid, self.sensitivity)
        self._noise: NoiseSource = noise if noise is not None else SecureNoise()

    def index(self, scores: ArrayLike) -> int:
        """Return the index of the chosen score."""
        array = read_numbers(scores, "scores")
        if array.ndim != 1 or not array.size:
            raise InvalidArgument(f"scores must be a non-empty list of numbers, their shape is {array.shape}")
        refuse_missing(array, "score {} is missing (masked, NA or NaN) or infinite")
        return self._noise.choose([self.grid.units(float(s)) for s in array], self._units)

    def choose(self, candidates: Sequence[Candidate], scores: ArrayLike) -> Candidate:
        """Return the chosen candidate."""
        if len(candidates) != np.size(np.asarray(scores)):
            raise InvalidArgument(f"{len(candidates)} candidates have {np.size(np.asarray(scores))} scores")
        return candidates[self.index(scores)]

    def regret(self, candidates: int, failure: float) -> float:
        """Return r with P[chosen score < best − r] ≤ failure: r = 2Δ/α · ln(candidates / failure).

        Examples
        --------
        >>> from quiltdp.mechanisms import ExponentialMechanism
        >>> round(ExponentialMechanism(1.0, 1.0).regret(10, 0.1), 3)
        9.21
        """
        if candidates < 1 or not 0.0 < failure < 1.0:
            raise InvalidArgument("regret needs candidates ≥ 1 and failure strictly between 0 and 1")
        return self._units * self.grid.step * math.log(candidates / failure) + self.grid.step

    def expected_regret(self, candidates: int) -> float:
        """Return a bound on best − E[chosen score]: 2Δ/α · ln(candidates), plus one grid step."""
        if candidates < 1:
            raise InvalidArgument(f"candidates must be at least 1, not {candidates}")
        return self._units * self.grid.step * math.log(candidates) + self.grid.step
