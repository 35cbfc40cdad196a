"""Noise added to numbers: what other libraries call it, and releases on a grid, charged to a ledger first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms.contract import Mechanism, import_dp_accounting
from quiltdp.mechanisms.noise import Grid, NoiseSource, SecureNoise, import_opendp
from quiltdp.mechanisms.sensitivities import Sensitivity, check_positive, whole_at_least_one
from quiltdp.numbers import down, up


class AdditiveNoise(Mechanism):
    """A mechanism that adds noise of a law which other libraries know too.

    Attributes
    ----------
    law
        Its name in dp_accounting, ``laplace``, ``gaussian`` or ``discrete_gaussian``.
    number_type
        What the query returns, ``float`` or ``int``.
    """

    law: ClassVar[str]
    number_type: ClassVar[type] = float

    @property
    def smallest_change(self) -> float:
        """The least that any change moves the query, 0 aside: rounding must be charged to that change too."""
        return smallest_sensitivity(self.deltas)

    def privacy_loss(self, scale: float, weight: float, interval: float) -> Any:
        """Return the distribution of a shift by ``weight``."""
        make = getattr(import_dp_accounting().pld.privacy_loss_distribution, f"from_{self.law}_mechanism")
        return make(scale, sensitivity=self.shifted_distance(weight), value_discretization_interval=interval)

    def shifted_distance(self, weight: float) -> float:
        """Return how far a group of this total sensitivity moves the query, rounded up."""
        return up(weight)

    def to_opendp(self, scale: float) -> Any:
        """Return OpenDP's measurement that adds this noise to one number."""
        dp, kind = import_opendp(), self.number_type
        domain = dp.domains.atom_domain(T=kind, **({} if kind is int else {"nan": False}))
        make = dp.measurements.make_laplace if self.law == "laplace" else dp.measurements.make_gaussian
        return make(domain, dp.metrics.absolute_distance(T=kind), scale=scale)

    def to_dp_event(self, scale: float) -> Any:
        """Return its event: noise multiplier = scale / sensitivity, rounded down."""
        if self.number_type is int:
            return super().to_dp_event(scale)  # events are of continuous noise
        event = getattr(import_dp_accounting(), f"{self.law.capitalize()}DpEvent")
        return event(noise_multiplier=down(scale / self.max_sensitivity))


class _Account(Protocol):
    """What a release asks of a ledger."""

    @property
    def path(self) -> Any: ...
    @property
    def settings(self) -> Mapping[str, Any]: ...
    def charge_mechanism(self, spec: Mechanism, scale: float, *, label: str | None = None) -> Any: ...


def smallest_sensitivity(sensitivity: Sensitivity) -> float:
    """Return the smallest positive Δ: rounding must be charged to that record too."""
    if isinstance(sensitivity, Mapping):
        return min(d for d in sensitivity.values() if d > 0.0)
    return sensitivity


def read_numbers(values: ArrayLike, what: str) -> NDArray[np.float64]:
    """Return values as doubles, NaN where one is missing; refuse texts, times and complex numbers."""
    from quiltdp.mechanisms.cells import unmasked

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
    """Release numbers with noise of the calibrated scale, rounded to a grid.

    Parameters
    ----------
    spec
        The sensitivity of the whole vector, in the L1 norm for Laplace noise and in L2 for Gaussian.
    scale
        The scale that was calibrated.  The noise drawn is a little larger: that pays for the rounding to
        :attr:`grid`.
    dimension
        How many numbers one release has.
    smallest
        The least that a change moves the whole vector, where that is less than the specification knows.
    noise
        Keyword for tests; leave it out for real releases.
    """

    of: ClassVar[type[AdditiveNoise]]
    """The specification that it takes."""

    def __init__(
        self,
        spec: Mechanism,
        scale: float,
        *,
        dimension: int = 1,
        smallest: float | None = None,
        noise: NoiseSource | None = None,
    ) -> None:
        one = spec.single() if isinstance(spec, Mechanism) else spec  # of several releases each is made alone
        if not isinstance(one, self.of):
            raise InvalidArgument(
                f"{type(self).__name__} needs a {self.of.__name__} specification, not {spec!r}"
            )
        self.spec = one
        self.scale = check_positive(scale, "scale")
        self.dimension = whole_at_least_one(dimension, "dimension")
        self._smallest = one.smallest_change if smallest is None else min(smallest, one.smallest_change)
        self.grid = Grid.finer_than(self._smallest / self.dimension, self.scale)
        self._noise: NoiseSource = noise if noise is not None else SecureNoise()
        self._units = self._drawn_scale()

    @abstractmethod
    def _drawn_scale(self) -> float:
        """Return the scale that is drawn, in grid steps: the stated one and the price of rounding."""

    @abstractmethod
    def _add_drawn_noise(self, centres: list[int]) -> list[int]:
        """Return noisy grid points around the given ones."""

    def release(
        self, values: ArrayLike, *, ledger: _Account | None = None, label: str | None = None
    ) -> float | NDArray[np.float64]:
        """Return the values with noise; a ledger is charged, durably, before any noise is drawn.

        What does not depend on the numbers is refused before the charge; a NaN or an infinity after it,
        because that refusal tells something about the data.
        """
        self._add_drawn_noise([])  # the sampler is built before anything is charged
        array = read_numbers(values, "the values to release")
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
        noisy = self._add_drawn_noise([self.grid.units(v) for v in array.ravel()])
        if array.ndim == 0:
            return self.grid.value(noisy[0])
        return np.array([self.grid.value(u) for u in noisy]).reshape(array.shape)
