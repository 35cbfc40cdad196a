"""The Laplace mechanism at run time: rounded to the grid, discrete Laplace noise, charged first."""

from __future__ import annotations

from quiltdp.accountant.mechanisms import Laplace, Mechanism
from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms.additive import AdditiveMechanism
from quiltdp.mechanisms.noise import NoiseSource, charged_units

__all__ = ["LaplaceMechanism"]


class LaplaceMechanism(AdditiveMechanism):
    """Release numbers with Laplace noise; one release costs Δ / scale.

    Parameters
    ----------
    spec
        The sensitivity of the whole vector in the L1 norm.
    scale
        σ, usually ``calibration.sigma``.  The noise actually drawn has the scale
        :attr:`noise_scale`, larger by less than one part in half a million: that pays for the
        rounding to :attr:`grid`.
    dimension
        How many numbers one release has.
    noise
        Keyword for tests; leave it out for real releases.

    Examples
    --------
    >>> from quiltdp import Laplace
    >>> from quiltdp.mechanisms import LaplaceMechanism
    >>> mechanism = LaplaceMechanism(Laplace(sensitivity=1.0), scale=2.0)
    >>> mechanism.dp_epsilon, mechanism.release(41.3) in mechanism.grid
    (0.5, True)
    """

    def __init__(
        self, spec: Mechanism, scale: float, *, dimension: int = 1, noise: NoiseSource | None = None
    ) -> None:
        one = spec.single() if isinstance(spec, Mechanism) else spec  # of several releases each is made alone
        if not isinstance(one, Laplace):
            raise InvalidArgument(f"LaplaceMechanism needs a Laplace specification, not {spec!r}")
        super().__init__(one, scale, dimension, noise)
        self.dp_epsilon = one.dp_epsilon(scale)
        self._units = charged_units(self.scale, self.grid, self._smallest, self.dimension)

    @property
    def noise_scale(self) -> float:
        """The Laplace scale that is drawn: the stated one and the price of rounding."""
        return self._units * self.grid.step

    def _draw(self, centres: list[int]) -> list[int]:
        return self._noise.laplace(centres, self._units)
