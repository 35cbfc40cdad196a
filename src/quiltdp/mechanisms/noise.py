"""Secure noise: OpenDP's exact samplers on a stated grid.

Every released number is a multiple of a *grid* step, a power of two.  The query value is rounded to
the grid first, then discrete noise is drawn exactly (integer arithmetic, the operating system's
entropy), so the low-order bits of a release say nothing.  Rounding may move two neighbouring values
further apart, by at most one step; :func:`charged_scale` raises the noise scale by exactly that
much, so the cost promised for the stated scale holds for what is released.  Noise is drawn around
zero and added in whole numbers of any size: no value is too large for the grid.

Tests pass ``noise=InsecureDeterministicNoise(seed)``.  Nothing else makes noise predictable: there is
no global seed and no environment variable, and a ledger remembers what kind of noise it was made for.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, ClassVar, Protocol

from quiltdp.errors import InvalidArgument
from quiltdp.numbers import round_up

__all__ = ["Grid", "InsecureDeterministicNoise", "NoiseSource", "SecureNoise", "charged_scale"]

GRID_BITS = 20
"""The grid is at least 2**20 times finer than the sensitivity and the noise scale."""

WIDEST = 2.0**53
"""In grid steps, more than 2³² sensitivities.  OpenDP draws 64-bit numbers; noise of this scale leaves them
with probability e⁻¹⁰²⁴, and a wider one is refused before anything is charged."""

MARGIN = 1 + Fraction(1, 2**48)
"""The noise drawn is larger by this factor than what is charged for, so that a scale computed in
doubles (12 · σ, √12 · σ) is covered by the exact one, see ``mechanism_share``."""


@dataclass(frozen=True)
class Grid:
    """The multiples of ``step = 2**exponent``.

    Examples
    --------
    >>> from quiltdp.mechanisms.noise import Grid
    >>> grid = Grid.finer_than(1e-3)
    >>> grid.exponent, grid.units(0.25) == 0.25 / grid.step, grid.value(3) / grid.step
    (-30, True, 3.0)
    """

    exponent: int

    def __post_init__(self) -> None:
        if not isinstance(self.exponent, int) or not -1000 <= self.exponent <= 900:
            raise InvalidArgument(f"the grid exponent must lie in -1000…900, not {self.exponent!r}")

    @classmethod
    def finer_than(cls, *amounts: float) -> Grid:
        """Return the grid whose step is at least 2**20 times smaller than every amount."""
        smallest = min(amounts)
        if not 0.0 < smallest < math.inf:
            raise InvalidArgument(f"a grid needs positive finite amounts, not {smallest!r}")
        return cls(math.frexp(smallest)[1] - 1 - GRID_BITS)

    @property
    def step(self) -> float:
        """The distance of neighbouring grid points."""
        return math.ldexp(1.0, self.exponent)

    @property
    def exact_step(self) -> Fraction:
        """The step as an exact rational."""
        return Fraction(2) ** self.exponent

    def units(self, value: float | Fraction) -> int:
        """Return the nearest grid point in steps (ties to even); nothing is clipped."""
        top, bottom = value.as_integer_ratio()
        if self.exponent < 0:
            top <<= -self.exponent
        else:
            bottom <<= self.exponent
        whole, rest = divmod(top, bottom)
        if 2 * rest > bottom or (2 * rest == bottom and whole % 2):
            whole += 1
        return whole

    def value(self, units: int) -> float:
        """Return the grid point as a double (a double beyond 2**53 steps is on a coarser grid)."""
        try:
            return math.ldexp(float(units), self.exponent)
        except OverflowError:  # the whole number is beyond doubles, the grid point perhaps not
            exact, largest = units * self.exact_step, Fraction(sys.float_info.max)
            return float(max(-largest, min(largest, exact)))

    def __contains__(self, value: object) -> bool:
        """Return whether a number is a grid point."""
        return isinstance(value, (int, float)) and (Fraction(value) / self.exact_step).denominator == 1


def charged_scale(
    scale: float | Fraction, grid: Grid, sensitivity: float, rounding_steps: Fraction | int = 1
) -> float:
    """Return the noise scale in grid steps that keeps the cost Δ/scale after rounding to the grid.

    Rounding lets neighbours differ by Δ + r·step instead of Δ, so the scale becomes
    scale · (1 + r·step/Δ) · (1 + 2⁻⁴⁸), in steps, rounded up: (Δ + r·step) / charged < Δ / scale.

    Parameters
    ----------
    scale
        The scale that was calibrated.
    sensitivity
        The smallest positive Δ of any record.
    rounding_steps
        r: 1 for a number, the number of coordinates for a vector in the L1 norm, its root in L2.

    Examples
    --------
    >>> from quiltdp.mechanisms.noise import Grid, charged_scale
    >>> round(charged_scale(0.5, Grid(-21), sensitivity=1.0), 3)  # 2**20 steps, and half a step for rounding
    1048576.5
    """
    exact = Fraction(scale)
    if exact <= 0:
        raise InvalidArgument(f"the noise scale must be positive, not {scale!r}")
    step = grid.exact_step
    return round_up(exact * (1 + rounding_steps * step / Fraction(sensitivity)) * MARGIN / step)


class NoiseSource(Protocol):
    """Adds discrete noise to whole numbers of grid steps."""

    secure: ClassVar[bool]

    def laplace(self, values: Sequence[int], scale: float) -> list[int]:
        """Return every value plus discrete Laplace noise, P(z) ∝ exp(−|z| / scale)."""
        ...

    def gaussian(self, values: Sequence[int], std: float) -> list[int]:
        """Return every value plus discrete Gaussian noise, P(z) ∝ exp(−z² / 2 std²)."""
        ...

    def choose(self, scores: Sequence[int], scale: float) -> int:
        """Return index k with probability ∝ exp(scores[k] / scale)."""
        ...


class SecureNoise:
    """OpenDP's exact samplers, fed by the operating system: the only source for real releases.

    Examples
    --------
    >>> from quiltdp.mechanisms.noise import SecureNoise
    >>> len(SecureNoise().laplace([0, 0, 0], scale=2.0**20))
    3
    """

    secure: ClassVar[bool] = True

    def laplace(self, values: Sequence[int], scale: float) -> list[int]:
        """Return every value plus discrete Laplace noise."""
        return _add_noise(values, "laplace", scale)

    def gaussian(self, values: Sequence[int], std: float) -> list[int]:
        """Return every value plus discrete Gaussian noise."""
        return _add_noise(values, "gaussian", std)

    def choose(self, scores: Sequence[int], scale: float) -> int:
        """Return an index by the exponential mechanism: the largest score + Gumbel(scale)."""
        best = max(scores)  # only differences matter; one of 2**62 is never made up for
        return int(_sampler("choice", _checked_scale(scale))([max(s - best, -(2**62)) for s in scores]))

    def __repr__(self) -> str:
        """Name the source."""
        return "SecureNoise()"


def _add_noise(values: Sequence[int], law: str, scale: float) -> list[int]:
    """Add noise, drawn around zero, to whole numbers of any size: 64 bits hold the noise, not the sum."""
    draw = _sampler(law, _checked_scale(scale))
    return [int(v) + int(z) for v, z in zip(values, draw([0] * len(values)) if values else (), strict=True)]


def _checked_scale(scale: float) -> float:
    if not 0.0 < scale < math.inf:
        raise InvalidArgument(f"the noise scale must be positive and finite, not {scale!r}")
    if scale > WIDEST:
        raise InvalidArgument(
            "the noise is more than 4,000,000,000 times as wide as what a record changes:"
            " no answer says anything under it; allow more leakage, or ask a query with a larger sensitivity"
        )
    return float(scale)


def import_opendp() -> Any:
    """Return what samplers need of OpenDP; its prelude would import scikit-learn and pandas too."""
    from opendp import domains, measurements, measures, metrics, mod

    mod.enable_features("contrib")  # OpenDP asks its callers to opt in before it samples
    return SimpleNamespace(domains=domains, measurements=measurements, measures=measures, metrics=metrics)


@lru_cache(maxsize=256)
def _sampler(law: str, scale: float) -> Any:
    """Return OpenDP's measurement on 64-bit numbers: ``laplace``, ``gaussian`` or ``choice``."""
    dp = import_opendp()
    domain = dp.domains.vector_domain(dp.domains.atom_domain(T="i64"))
    if law == "laplace":
        return dp.measurements.make_laplace(domain, dp.metrics.l1_distance(T="i64"), scale=scale)
    if law == "gaussian":
        return dp.measurements.make_gaussian(domain, dp.metrics.l2_distance(T="i64"), scale=scale)
    # with this measure OpenDP perturbs by Gumbel noise, which is the exponential mechanism;
    # its pure cost 2Δ/scale is the classical one, stated by ExponentialMechanism
    gumbel = dp.measures.zero_concentrated_divergence()
    return dp.measurements.make_noisy_max(domain, dp.metrics.linf_distance(T="i64"), gumbel, scale=scale)


class InsecureDeterministicNoise:
    """Predictable noise for tests and simulations.  Never private: who knows the seed knows the data.

    Parameters
    ----------
    seed
        The same seed gives the same noise.  Simulated data must come from another stream, so give
        a sequence like ``[seed, 1]`` where the data have ``[seed, 0]``.

    Examples
    --------
    >>> from quiltdp.mechanisms.noise import InsecureDeterministicNoise
    >>> a, b = InsecureDeterministicNoise(7), InsecureDeterministicNoise(7)
    >>> a.laplace([0, 5], 100.0) == b.laplace([0, 5], 100.0)
    True
    """

    secure: ClassVar[bool] = False

    def __init__(self, seed: int | Sequence[int]) -> None:
        import numpy as np

        self._generator = np.random.default_rng(seed)

    def laplace(self, values: Sequence[int], scale: float) -> list[int]:
        """Return every value plus the difference of two geometric variables."""
        p = -math.expm1(-1.0 / _checked_scale(scale))
        draws = self._generator.geometric(p, size=(2, len(values)))
        return [int(v) + int(d) for v, d in zip(values, draws[0] - draws[1], strict=True)]

    def gaussian(self, values: Sequence[int], std: float) -> list[int]:
        """Return every value plus rounded Gaussian noise."""
        draws = self._generator.normal(0.0, _checked_scale(std), size=len(values))
        return [int(v) + round(float(d)) for v, d in zip(values, draws, strict=True)]

    def choose(self, scores: Sequence[int], scale: float) -> int:
        """Return the index of the largest score + Gumbel(scale)."""
        import numpy as np

        draws = self._generator.gumbel(0.0, _checked_scale(scale), size=len(scores))
        best = max(scores)
        return int(np.argmax(np.asarray([s - best for s in scores], dtype=np.float64) + draws))

    def __repr__(self) -> str:
        """Name the source."""
        return "InsecureDeterministicNoise(…)"
