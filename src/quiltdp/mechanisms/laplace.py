"""The Laplace mechanism at run time: rounded to the grid, discrete Laplace noise, charged first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quiltdp.accountant.mechanisms import Laplace
from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms.noise import Grid, NoiseSource, SecureNoise, charged_units

if TYPE_CHECKING:
    from quiltdp.accountant.ledger import Ledger

__all__ = ["LaplaceMechanism"]


class LaplaceMechanism:
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
        self, spec: Laplace, scale: float, *, dimension: int = 1, noise: NoiseSource | None = None
    ) -> None:
        if not isinstance(spec, Laplace):
            raise InvalidArgument(f"LaplaceMechanism needs a Laplace specification, not {spec!r}")
        self.spec = spec
        self.scale = float(scale)
        self.dimension = checked_dimension(dimension)
        self.dp_epsilon = spec.dp_epsilon(scale)
        smallest = smallest_sensitivity(spec.sensitivity)
        self.grid = Grid.finer_than(smallest / self.dimension, self.scale)
        self._units = charged_units(self.scale, self.grid, smallest, self.dimension)
        self._noise: NoiseSource = noise if noise is not None else SecureNoise()

    @property
    def noise_scale(self) -> float:
        """The Laplace scale that is drawn: the stated one and the price of rounding."""
        return self._units * self.grid.step

    def release(
        self, values: ArrayLike, *, ledger: Ledger | None = None, label: str | None = None
    ) -> float | NDArray[np.float64]:
        """Return the values with noise; a ledger is charged, durably, before any noise is drawn."""
        self._noise.laplace([], self._units)  # the sampler is built before anything is charged
        array = charged_values(values, self, self._noise, ledger, label)
        noisy = self._noise.laplace([self.grid.units(v) for v in array.ravel()], self._units)
        return released(noisy, self.grid, array)


def smallest_sensitivity(sensitivity: float | Mapping[str, float]) -> float:
    """Return the smallest positive Δ: rounding must be charged to that record too."""
    if isinstance(sensitivity, Mapping):
        return min(d for d in sensitivity.values() if d > 0.0)
    return sensitivity


def checked_dimension(dimension: Any) -> int:
    """Return a whole number ≥ 1."""
    if isinstance(dimension, bool) or not hasattr(dimension, "__index__") or dimension < 1:
        raise InvalidArgument(f"dimension must be a whole number ≥ 1, not {dimension!r}")
    return int(dimension)


class _Charged(Protocol):
    spec: Any
    scale: float
    dimension: int


def charged_values(
    values: ArrayLike, mechanism: _Charged, noise: NoiseSource, ledger: Ledger | None, label: str | None
) -> NDArray[np.float64]:
    """Return the values as an array, all finite, once the ledger is charged for their release.

    What does not depend on the numbers is refused before the charge; a NaN or an infinity after it,
    because that refusal tells something about the data.
    """
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgument("the values to release must be numbers") from None
    if array.size != mechanism.dimension:
        raise InvalidArgument(
            f"the mechanism was built for {mechanism.dimension} numbers, {array.size} were given"
        )
    if ledger is not None:
        if not noise.secure and ledger.settings.get("noise", "secure") == "secure":
            raise InvalidArgument(f"{ledger.path}: predictable noise must not be charged to this ledger")
        ledger.charge_mechanism(mechanism.spec, mechanism.scale, label=label)
    if not np.all(np.isfinite(array)):
        charged = "" if ledger is None else "; the release is charged"
        raise InvalidArgument(f"a value to release is NaN or infinite{charged}")
    return array


def released(units: list[int], grid: Grid, like: NDArray[np.float64]) -> float | NDArray[np.float64]:
    """Return grid points as a number or an array shaped like the input."""
    if like.ndim == 0:
        return grid.value(units[0])
    return np.array([grid.value(u) for u in units]).reshape(like.shape)
