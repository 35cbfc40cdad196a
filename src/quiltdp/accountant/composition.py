"""Composition: DP costs are added first, and converted to leakage once.

Leakage is not additive: converting each release and adding the results can understate the whole (a
rare flag and its copies: 1.43 at α = 1, 5.43 at α = 2).  So nothing here adds leakages, and
:func:`compose` refuses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from quiltdp.accountant.calibration import Calibration
from quiltdp.accountant.result import Leakage
from quiltdp.accountant.units import positive_epsilon
from quiltdp.errors import InvalidArgument
from quiltdp.numbers import down, round_up


def compose(costs: Iterable[float | Mapping[str, float]]) -> float | dict[str, float]:
    """Return the DP cost of several pure-DP releases together: α's add, rounded up.

    Costs are numbers (the same α for every record) or mappings record → α_j; if one is a mapping the
    result is one, and every mapping must name the same records.

    Raises
    ------
    InvalidArgument
        For a negative or infinite cost, for mappings over different records, and for a leakage:
        leakages never add.

    Examples
    --------
    >>> from quiltdp.accountant.composition import compose
    >>> compose([0.25, 0.5])
    0.75
    >>> compose([{"ann": 0.25, "bob": 0.0}, 0.5])
    {'ann': 0.75, 'bob': 0.5}
    """
    if isinstance(costs, (str, Leakage)) or not isinstance(costs, Iterable):
        raise InvalidArgument(f"costs must be a list of DP costs, not {costs!r}")
    flat = Fraction(0)
    named: dict[str, Fraction] | None = None
    for k, cost in enumerate(costs):
        if isinstance(cost, Leakage):
            raise InvalidArgument(
                "leakages do not add: compose the DP costs first, then convert their sum once"
            )
        if isinstance(cost, Calibration):
            raise InvalidArgument(f"cost {k} is a calibration: give the dp_epsilon of its release")
        if isinstance(cost, Mapping):
            named = _add_costs(named, cost, k)
        else:
            flat += Fraction(positive_epsilon(cost, f"cost {k}", zero=True))
    if named is None:
        return round_up(flat)
    return {record: round_up(total + flat) for record, total in named.items()}


def _add_costs(named: dict[str, Fraction] | None, cost: Mapping[str, float], k: int) -> dict[str, Fraction]:
    exact = {
        r: Fraction(positive_epsilon(a, f"cost {k} of record {r!r}", zero=True)) for r, a in cost.items()
    }
    if named is None:
        return exact
    if named.keys() != exact.keys():
        odd = sorted(named.keys() ^ exact.keys())[0]
        raise InvalidArgument(f"cost {k}: record {odd!r} is not in every cost; give 0 where it is not read")
    return {r: named[r] + exact[r] for r in named}


def compose_gaussian(releases: Iterable[tuple[float, float]]) -> float:
    """Return the standard deviation of the one Gaussian release that costs as much as all of these.

    ``releases`` are pairs (sensitivity, gaussian_std); the result is for sensitivity 1:
    1 / √Σ (Δ/s)², rounded down, and holds for every group size at once.

    Examples
    --------
    >>> from quiltdp.accountant.composition import compose_gaussian
    >>> round(compose_gaussian([(1.0, 4.0)] * 4), 12)
    2.0
    """
    total = Fraction(0)
    for k, (sensitivity, std) in enumerate(releases):
        d = positive_epsilon(sensitivity, f"sensitivity of release {k}")
        s = positive_epsilon(std, f"gaussian_std of release {k}")
        total += (Fraction(d) / Fraction(s)) ** 2
    if total == 0:
        raise InvalidArgument("there are no releases to compose")
    return down(float(total) ** -0.5)


ORDERS = (1.25, 1.5, 2.0, 3.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""The orders at which Rényi DP is told."""


@dataclass(frozen=True)
class Concentrated:
    """Concentrated DP of several releases in one record, before any correlation: for other accountants.

    Attributes
    ----------
    each, together
        ρ of zCDP, of one release and of all of them.
    curve
        (order, Rényi DP of one release, of all of them).
    """

    each: float
    together: float
    curve: tuple[tuple[float, float, float], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        return {
            "zcdp": {"each": self.each, "together": self.together},
            "rdp": [{"order": a, "each": e, "together": t} for a, e, t in self.curve],
        }

    def __str__(self) -> str:
        """Read as one line."""
        every = f" each, {self.together:.6g} together" if self.together != self.each else ""
        return f"ρ = {self.each:.6g}{every} (zCDP in one record, before any correlation)"


def concentrated(calibration: Calibration, orders: Sequence[float] = ORDERS) -> Concentrated:
    """Return zCDP and Rényi DP of one release and of all: they add up, unless no record is read twice.

    Examples
    --------
    >>> import quiltdp as qd
    >>> m = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=100)
    >>> print(qd.calibrate(m, 1.0, qd.Gaussian(1.0, delta=1e-6), releases=12).concentrated())
    ρ = 3.11067e-05 each, 0.000373281 together (zCDP in one record, before any correlation)
    """
    one, sigma, times = calibration.mechanism.single(), calibration.sigma, calibration.mechanism.releases

    def total(each: float) -> float:
        return round_up(times * Fraction(each))

    rho, curve = one.zcdp(sigma), [(float(a), one.rdp(sigma, a)) for a in orders]
    return Concentrated(rho, total(rho), tuple((a, each, total(each)) for a, each in curve))
