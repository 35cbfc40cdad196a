"""Noise added to numbers on a grid: checked, charged to a ledger first, then drawn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms.cells import unmasked
from quiltdp.mechanisms.noise import Grid, NoiseSource, SecureNoise

if TYPE_CHECKING:
    from quiltdp.accountant.ledger import Ledger

__all__ = ["AdditiveMechanism", "numbers", "refuse_missing", "smallest_sensitivity"]


def smallest_sensitivity(sensitivity: float | Mapping[str, float]) -> float:
    """Return the smallest positive Δ: rounding must be charged to that record too."""
    if isinstance(sensitivity, Mapping):
        return min(d for d in sensitivity.values() if d > 0.0)
    return sensitivity


def numbers(values: ArrayLike, what: str) -> NDArray[np.float64]:
    """Return values as doubles, NaN where one is missing; refuse texts, times and complex numbers."""
    try:
        array = np.asarray(unmasked(values))
        if array.dtype.kind in "mMcSUV":  # which numpy would turn into numbers
            raise TypeError
        return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgument(f"{what} must be numbers") from None


def refuse_missing(array: NDArray[np.float64], what: str) -> None:
    """Refuse an array with a NaN or an infinity; ``what`` says it, ``{}`` in it is the place."""
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        place = tuple(map(int, bad[0]))
        raise InvalidArgument(what.format(place if len(place) > 1 else sum(place)))


class AdditiveMechanism(ABC):
    """What releases of numbers have in common: the grid, the charge, and the noise on whole steps.

    A subclass says how many steps its noise has (``_units``) and how it is drawn.
    """

    _units: float

    def __init__(self, spec: Any, scale: float, dimension: int, noise: NoiseSource | None) -> None:
        self.spec = spec
        self.scale = float(scale)
        if isinstance(dimension, bool) or not hasattr(dimension, "__index__") or dimension < 1:
            raise InvalidArgument(f"dimension must be a whole number ≥ 1, not {dimension!r}")
        self.dimension = int(dimension)
        self._smallest = smallest_sensitivity(spec.sensitivity)
        self.grid = Grid.finer_than(self._smallest / self.dimension, self.scale)
        self._noise: NoiseSource = noise if noise is not None else SecureNoise()

    @abstractmethod
    def _draw(self, centres: list[int]) -> list[int]:
        """Return noisy grid points around the given ones."""

    def release(
        self, values: ArrayLike, *, ledger: Ledger | None = None, label: str | None = None
    ) -> float | NDArray[np.float64]:
        """Return the values with noise; a ledger is charged, durably, before any noise is drawn."""
        self._draw([])  # the sampler is built before anything is charged
        array = self._charged(values, ledger, label)
        noisy = self._draw([self.grid.units(v) for v in array.ravel()])
        if array.ndim == 0:
            return self.grid.value(noisy[0])
        return np.array([self.grid.value(u) for u in noisy]).reshape(array.shape)

    def _charged(self, values: ArrayLike, ledger: Ledger | None, label: str | None) -> NDArray[np.float64]:
        """Return the values as an array, all finite, once the ledger is charged for their release.

        What does not depend on the numbers is refused before the charge; a NaN or an infinity after it,
        because that refusal tells something about the data.
        """
        array = numbers(values, "the values to release")
        if array.size != self.dimension:
            raise InvalidArgument(
                f"the mechanism was built for {self.dimension} numbers, {array.size} were given"
            )
        if ledger is not None:
            if not self._noise.secure and ledger.settings.get("noise", "secure") == "secure":
                raise InvalidArgument(f"{ledger.path}: predictable noise must not be charged to this ledger")
            ledger.charge_mechanism(self.spec, self.scale, label=label)
        charged = "" if ledger is None else "; the release is charged"
        refuse_missing(array, "value {} to release is missing (masked, NA or NaN) or infinite" + charged)
        return array
