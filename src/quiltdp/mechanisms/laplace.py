"""The Laplace mechanism."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms.additive import AdditiveMechanism, AdditiveNoise
from quiltdp.mechanisms.contract import Mechanism, PureMechanism, checked_order, register
from quiltdp.mechanisms.noise import charged_scale
from quiltdp.mechanisms.profiles import GroupProfile, PureProfile
from quiltdp.mechanisms.sensitivities import (
    Sensitivity,
    Values,
    frozen_sensitivity,
    frozen_values,
    value_spread,
)
from quiltdp.numbers import EPS, down, round_up, up, up_array

if TYPE_CHECKING:
    from quiltdp.model import Model

__all__ = ["Laplace", "LaplaceMechanism", "LaplaceProfile"]


@register("laplace", says="query + Lap(σ): pure DP with α = Δ/σ")
@dataclass(frozen=True)
class Laplace(AdditiveNoise, PureMechanism):
    """The Laplace mechanism: query + Lap(σ) is α-DP with α = Δ / σ.

    Parameters
    ----------
    sensitivity
        Δ, how far one record moves the query (in the L1 norm for a vector), or ``record -> Δ_j``.
    values
        Instead of it, for a sum over records: what each state of a record adds, in the order of the model's
        states; one list for all records, or ``record -> list`` (all people behind a record included).  A
        change of a record from x to x' then costs |v(x) − v(x')| / σ, not always Δ / σ: less noise is enough,
        for this query.

    Examples
    --------
    >>> import quiltdp as qd
    >>> from quiltdp import Laplace
    >>> Laplace(sensitivity=0.5).dp_epsilon(scale=2.0)
    0.25
    >>> Laplace(sensitivity={"ann": 1.0, "bob": 0.0}).dp_epsilon(scale=4.0)
    {'ann': 0.25, 'bob': 0.0}
    >>> m = qd.pedigree("models/pedigree/examples/trio.ped", allele_frequency=0.1)
    >>> any_query, alleles = (qd.calibrate(m, 1.0, x) for x in (Laplace(2.0), Laplace(values=[0, 1, 2])))
    >>> round(any_query.sigma, 2), round(alleles.sigma, 2), str(alleles.certificate).rpartition("; ")[2]
    (5.66, 4.0, 'for a sum of these values only')
    """

    law: ClassVar[str] = "laplace"

    sensitivity: Sensitivity = None  # type: ignore[assignment]  # None: as the values say
    values: Values | None = None

    def __post_init__(self) -> None:
        """Refuse a sensitivity that is no positive finite number or mapping, and one beside other values."""
        if self.values is not None:
            object.__setattr__(self, "values", frozen_values(self.values))
            moves = value_spread(self.values)  # type: ignore[arg-type]  # frozen above
            if self.sensitivity is not None and self.sensitivity != moves:
                raise InvalidArgument("values say how far a record moves their sum: leave sensitivity out")
            object.__setattr__(self, "sensitivity", moves)
        object.__setattr__(self, "sensitivity", frozen_sensitivity(self.sensitivity))

    def __repr__(self) -> str:
        """Show the values where there are some, else the sensitivity."""
        return (
            f"Laplace({'sensitivity' if self.values is None else 'values'}={self.values or self.sensitivity})"
        )

    def prices(self, model: Model) -> Mapping[str, NDArray[np.float64]]:
        """Return |v(x) − v(x')| / Δ for every record whose values are known, rounded up."""
        if self.values is None:
            return {}
        shared = None if isinstance(self.values, Mapping) else self.values
        tables: dict[Any, NDArray[np.float64]] = {}
        by_record = {}
        for record in model.records:
            values = self.values.get(record) if isinstance(self.values, Mapping) else shared
            if values is None or min(values) == max(values):
                continue
            if len(values) != model.cardinality(record):
                raise InvalidArgument(
                    f"values: record {record!r} has {model.cardinality(record)} states, not {len(values)}"
                )
            if values not in tables:
                tables[values] = _relative_differences(np.array(values))
            by_record[record] = tables[values]
        return by_record

    @property
    def smallest_change(self) -> float:
        """The least difference of two values of a record, 0 aside."""
        if self.values is None:
            return super().smallest_change
        lists = set(self.values.values()) if isinstance(self.values, Mapping) else {self.values}
        steps = np.concatenate([np.diff(np.unique(values)) for values in lists])
        return down(float(steps.min()))

    def with_sensitivity(self, sensitivity: Sensitivity) -> Mechanism:
        """Return the same noise for another sensitivity, of a query of which nothing else is known."""
        return Laplace(sensitivity)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description; values are in it where there are some."""
        document = super().to_dict()
        values = document.pop("values")
        if values is None:
            return document
        listed = {n: list(v) for n, v in values.items()} if isinstance(values, Mapping) else list(values)
        return {**document, "values": listed}

    def _cost_factor(self) -> Fraction:
        return Fraction(1)

    def group_profile(self, scale: float) -> GroupProfile:
        """Return δ_k(ε) of Laplace noise."""
        return LaplaceProfile(round_up(self._alpha_per_unit(scale)))

    def rdp(self, scale: float, order: float) -> float:
        """Return ln( a/(2a−1) e^{(a−1)α} + (a−1)/(2a−1) e^{−aα} ) / (a−1), a the order.

        Reference
        ---------
        Mironov, Rényi differential privacy, 2017, Table II.
        """
        a, alpha = checked_order(order), self._largest_alpha(scale)
        grown = (a - 1.0) * alpha
        rest = a / (2.0 * a - 1.0) + (a - 1.0) / (2.0 * a - 1.0) * math.exp(-(2.0 * a - 1.0) * alpha)
        value = (grown + math.log(rest)) / (a - 1.0)
        slack = 8.0 * EPS * (1.0 + grown) / (a - 1.0)  # two terms that cancel for small α
        return min(super().rdp(scale, order), up(max(value, 0.0) + slack))


@dataclass(frozen=True)
class LaplaceProfile(PureProfile):
    """Laplace noise of one scale: δ = 1 − e^{(ε − w/σ)/2} for a group of total sensitivity w, |ε| ≤ w/σ.

    Exact for one number.  For a vector with L1 sensitivity w it is a bound: shift one coordinate at a
    time; the trade-off functions of the shifts compose to that of one shift of length w.

    Reference
    ---------
    Dong, Roth and Su, Gaussian differential privacy, 2022, Theorem 2.14 (group privacy) and
    Proposition A.3 (shifts of log-concave noise).
    """

    def _delta_below_alpha(self, epsilon: float, alpha: float) -> float:
        return -math.expm1(0.5 * (epsilon - alpha))


def _relative_differences(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the differences of all pairs as shares of the largest, rounded up."""
    apart = np.abs(values[:, None] - values)
    return np.minimum(1.0, up_array(apart / apart.max(), 4.0))


class LaplaceMechanism(AdditiveMechanism):
    """Release numbers with discrete Laplace noise on a grid; one release costs Δ / scale.

    Examples
    --------
    >>> from quiltdp import Laplace
    >>> from quiltdp.mechanisms import LaplaceMechanism
    >>> mechanism = LaplaceMechanism(Laplace(sensitivity=1.0), scale=2.0)
    >>> mechanism.dp_epsilon, mechanism.release(41.3) in mechanism.grid
    (0.5, True)
    """

    of = Laplace

    @property
    def dp_epsilon(self) -> float | dict[str, float]:
        """α of one release."""
        return self.spec.dp_epsilon(self.scale)

    @property
    def noise_scale(self) -> float:
        """The Laplace scale that is drawn: the stated one and the price of rounding."""
        return self._units * self.grid.step

    def _drawn_scale(self) -> float:
        return charged_scale(self.scale, self.grid, self._smallest, self.dimension)

    def _add_drawn_noise(self, centres: list[int]) -> list[int]:
        return self._noise.laplace(centres, self._units)
