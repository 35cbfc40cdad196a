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

from quiltdp.accountant.mechanisms import Gaussian, Mechanism
from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms.additive import AdditiveMechanism
from quiltdp.mechanisms.noise import NoiseSource, charged_units
from quiltdp.numbers import round_up

__all__ = ["GaussianMechanism"]

_RANDOM_ROUNDING = 6
"""Deviation, in steps, of the random rounding in the argument above."""


class GaussianMechanism(AdditiveMechanism):
    """Release numbers with Gaussian noise; one release has the profile ``spec.profile(ε, scale)``.

    Parameters
    ----------
    spec
        The sensitivity of the whole vector in the L2 norm, and the δ aimed at.
    scale
        The standard deviation that was calibrated; :attr:`noise_std` is a little larger.
        ``gaussian_std`` is another name for it.
    dimension
        How many numbers one release has.
    noise
        Keyword for tests; leave it out for real releases.

    Examples
    --------
    >>> from quiltdp import Gaussian
    >>> from quiltdp.mechanisms import GaussianMechanism
    >>> mechanism = GaussianMechanism(Gaussian(sensitivity=1.0, delta=1e-6), scale=5.0, dimension=2)
    >>> mechanism.release([3.0, 4.0]).shape
    (2,)
    """

    def __init__(
        self,
        spec: Mechanism,
        scale: float | None = None,
        *,
        dimension: int = 1,
        noise: NoiseSource | None = None,
        gaussian_std: float | None = None,
    ) -> None:
        one = spec.single() if isinstance(spec, Mechanism) else spec  # of several releases each is made alone
        if not isinstance(one, Gaussian):
            raise InvalidArgument(f"GaussianMechanism needs a Gaussian specification, not {spec!r}")
        given = gaussian_std if scale is None else scale
        if given is None or not 0.0 < float(given) < math.inf:
            raise InvalidArgument(f"scale must be positive and finite, not {given!r}")
        super().__init__(one, given, dimension, noise)
        root = math.isqrt(self.dimension - 1) + 1  # ≥ √dimension
        inner = Fraction(charged_units(self.scale, self.grid, self._smallest, root))
        # √(x² + 36) ≤ x + 18/x
        self._units = round_up(inner + Fraction(_RANDOM_ROUNDING**2, 2) / inner)

    @property
    def gaussian_std(self) -> float:
        """Another name for the scale."""
        return self.scale

    @property
    def noise_std(self) -> float:
        """The standard deviation that is drawn: the stated one and the price of the grid."""
        return self._units * self.grid.step

    def _draw(self, centres: list[int]) -> list[int]:
        return self._noise.gaussian(centres, self._units)
