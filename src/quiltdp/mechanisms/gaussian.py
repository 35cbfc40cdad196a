r"""The Gaussian mechanism at run time: discrete Gaussian noise that is covered by the analytic profile.

The profile δ_k(ε) of :class:`quiltdp.Gaussian` is that of *continuous* noise of standard deviation s.
What is drawn is discrete, on the grid, with variance s'² + (6·step)².  Draw a continuous Gaussian of
deviation s' around the (rounded) value and round the result at random, to a discrete Gaussian of
parameter 6 steps around it: that is post-processing, and by Poisson summation the outcome is the
discrete Gaussian with the two variances added, up to a factor 1 ± 4·exp(−2π²·36) < 1 ± 10⁻³⁰⁷.
So the continuous profile holds, and s' = s·(1 + √d·step/Δ) charges the rounding of the values.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quiltdp.accountant.specs import Gaussian, round_up
from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms.laplace import checked_dimension, checked_values, released, smallest_sensitivity
from quiltdp.mechanisms.noise import Grid, NoiseSource, SecureNoise, charged_units

if TYPE_CHECKING:
    from quiltdp.accountant.ledger import Ledger

__all__ = ["GaussianMechanism"]

_RANDOM_ROUNDING = 6
"""Deviation, in steps, of the random rounding in the argument above."""


class GaussianMechanism:
    """Release numbers with Gaussian noise; one release has the profile ``spec.profile(ε, gaussian_std)``.

    Parameters
    ----------
    spec
        The sensitivity of the whole vector in the L2 norm, and the δ aimed at.
    gaussian_std
        The standard deviation that was calibrated; :attr:`noise_std` is a little larger.
    dimension
        How many numbers one release has.
    noise
        Keyword for tests; leave it out for real releases.

    Examples
    --------
    >>> from quiltdp import Gaussian
    >>> from quiltdp.mechanisms import GaussianMechanism
    >>> mechanism = GaussianMechanism(Gaussian(sensitivity=1.0, delta=1e-6), gaussian_std=5.0, dimension=2)
    >>> mechanism.release([3.0, 4.0]).shape
    (2,)
    """

    def __init__(
        self,
        spec: Gaussian,
        gaussian_std: float,
        *,
        dimension: int = 1,
        noise: NoiseSource | None = None,
    ) -> None:
        if not isinstance(spec, Gaussian):
            raise InvalidArgument(f"GaussianMechanism needs a Gaussian specification, not {spec!r}")
        self.spec = spec
        self.gaussian_std = float(gaussian_std)
        if not 0.0 < self.gaussian_std < math.inf:
            raise InvalidArgument(f"gaussian_std must be positive and finite, not {gaussian_std!r}")
        self.dimension = checked_dimension(dimension)
        smallest = smallest_sensitivity(spec.sensitivity)
        self.grid = Grid.finer_than(smallest / self.dimension, self.gaussian_std)
        root = math.isqrt(self.dimension - 1) + 1  # ≥ √dimension
        inner = Fraction(charged_units(self.gaussian_std, self.grid, smallest, root))
        # √(x² + 36) ≤ x + 18/x
        self._units = round_up(inner + Fraction(_RANDOM_ROUNDING**2, 2) / inner)
        self._noise: NoiseSource = noise if noise is not None else SecureNoise()

    @property
    def noise_std(self) -> float:
        """The standard deviation that is drawn: the stated one and the price of the grid."""
        return self._units * self.grid.step

    def release(
        self, values: ArrayLike, *, ledger: Ledger | None = None, label: str | None = None
    ) -> float | NDArray[np.float64]:
        """Return the values with noise; a ledger is charged, durably, before any noise is drawn."""
        array = checked_values(values, self.dimension)
        if ledger is not None:
            ledger.charge_mechanism(self.spec, self.gaussian_std, label=label)
        noisy = self._noise.gaussian([self.grid.units(v) for v in array.ravel()], self._units)
        return released(noisy, self.grid, array)
