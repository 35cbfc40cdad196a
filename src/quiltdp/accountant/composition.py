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
from quiltdp.accountant.mechanisms import Mechanism
from quiltdp.accountant.mechanisms.contract import checked_times
from quiltdp.accountant.result import Leakage
from quiltdp.accountant.units import positive_epsilon
from quiltdp.errors import InvalidArgument
from quiltdp.numbers import down, round_up, shown_up

__all__ = ["ORDERS", "Concentrated", "Split", "compose", "compose_gaussian", "split"]


_MOST_RELEASES = 10**6


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
    >>> from quiltdp import compose
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
            named = _added(named, cost, k)
        else:
            flat += Fraction(positive_epsilon(cost, f"cost {k}", zero=True))
    if named is None:
        return round_up(flat)
    return {record: round_up(total + flat) for record, total in named.items()}


def _added(named: dict[str, Fraction] | None, cost: Mapping[str, float], k: int) -> dict[str, Fraction]:
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


def _sum_up(values: Iterable[float]) -> float:
    return round_up(sum(map(Fraction, values), Fraction(0)))


@dataclass(frozen=True)
class Concentrated:
    """Concentrated DP of several releases in one record, before any correlation: for other accountants.

    Attributes
    ----------
    each, together
        ρ of zCDP, of the dearest release and of all of them.
    curve
        (order, Rényi DP of the dearest release, of all of them).
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


@dataclass(frozen=True)
class Split:
    """A calibrated budget shared by several releases.

    Attributes
    ----------
    calibration
        What is shared.
    scales
        The noise scale of every release.
    disjoint
        Whether every record is read by at most one of the releases.
    """

    calibration: Calibration
    scales: tuple[float, ...]
    disjoint: bool = False

    @property
    def releases(self) -> int:
        """How many there are."""
        return len(self.scales)

    @property
    def sigma(self) -> float:
        """The noise scale of every release, if they are alike."""
        if len(set(self.scales)) > 1:
            raise InvalidArgument("the releases have different shares: see scales")
        return self.scales[0]

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism of every release."""
        return self.calibration.mechanism

    def dp_epsilon(self, k: int = 0) -> float | dict[str, float] | None:
        """Return α of release k alone; ``None`` where there is none."""
        return self.mechanism.dp_epsilon(self.scales[k]) if self.mechanism.pure else None

    def zcdp(self, k: int = 0) -> float:
        """Return ρ of release k alone: plain zCDP in one record, before any correlation."""
        return self.mechanism.single().zcdp(self.scales[k])

    def rdp(self, order: float, k: int = 0) -> float:
        """Return the Rényi DP of release k alone, in one record."""
        return self.mechanism.single().rdp(self.scales[k], order)

    def concentrated(self, orders: Sequence[float] = ORDERS) -> Concentrated:
        """Return zCDP and Rényi DP of one release and of all: they add up, unless no record is read twice."""
        one = self.mechanism.single()
        together = max if self.disjoint else _sum_up
        rho = [one.zcdp(s) for s in dict.fromkeys(self.scales)]
        curve = []
        for order in orders:
            each = {s: one.rdp(s, order) for s in dict.fromkeys(self.scales)}
            curve.append((float(order), max(each.values()), together([each[s] for s in self.scales])))
        known = dict(zip(dict.fromkeys(self.scales), rho, strict=True))
        return Concentrated(max(rho), together([known[s] for s in self.scales]), tuple(curve))

    def shares(self) -> tuple[Fraction, ...]:
        """Return the part of the budget that every release takes, exactly; together they fit."""
        own = self.calibration
        return tuple(self.mechanism.share(s, own.mechanism, own.sigma) for s in self.scales)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        alike = len(set(self.scales)) == 1
        return {
            "count": self.releases,
            "disjoint": self.disjoint,
            "sigma": self.scales[0] if alike else list(self.scales),
            "zcdp": self.zcdp() if alike else [self.zcdp(k) for k in range(self.releases)],
            "zcdp_together": self.concentrated(()).together,
        }

    def __str__(self) -> str:
        """Read as one line."""
        alike = len(set(self.scales)) == 1
        scales = shown_up(self.scales[0]) if alike else ", ".join(map(shown_up, self.scales))
        records = "disjoint records" if self.disjoint else "the same records"
        return f"{self.releases} releases on {records}: σ = {scales}" + (" each" if alike else "")


def split(calibration: Calibration, releases: int | Sequence[float], *, disjoint: bool = False) -> Split:
    """Return the noise scale of every release when several share what was calibrated.

    On the *same* records costs add up: α for pure DP, so that σ grows with the number of releases, and
    (Δ/σ)² for Gaussian noise, so that it grows with its root.  Releases that read *disjoint* records are
    one vector: no record pays twice, and every release has the calibrated scale (which must have been
    found on the model of all the records together).  The guarantee for all of them is the calibration's.

    Parameters
    ----------
    calibration
        The budget.
    releases
        How many equal releases, or the relative size of each one's share.
    disjoint
        Whether every record is read by at most one of them.

    Examples
    --------
    >>> import quiltdp as qd
    >>> m = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=100)
    >>> cal = qd.calibrate(m, epsilon=1.0, mechanism=qd.Laplace(sensitivity=1.0))
    >>> print(cal.split(12))
    12 releases on the same records: σ = 106.897 each
    >>> print(cal.split(12, disjoint=True))
    12 releases on disjoint records: σ = 8.90801 each
    """
    parts = _parts(releases)
    if disjoint:
        return Split(calibration, (calibration.sigma,) * len(parts), disjoint=True)
    mechanism, sigma = calibration.mechanism, calibration.sigma
    if len(set(parts)) == 1:
        return Split(calibration, (mechanism.repeated(sigma, len(parts)),) * len(parts))
    whole = sum(parts, Fraction(0))
    return Split(calibration, tuple(mechanism.scaled(sigma, p / whole) for p in parts))


def _parts(releases: int | Sequence[float]) -> list[Fraction]:
    """Return the relative sizes of the shares."""
    if isinstance(releases, (list, tuple)):
        if not releases:
            raise InvalidArgument("releases: give at least one share")
        return [Fraction(positive_epsilon(r, f"share {k}")) for k, r in enumerate(releases)]
    count = checked_times(releases)
    if count > _MOST_RELEASES:
        raise InvalidArgument(f"releases: at most {_MOST_RELEASES:,}, not {count:,}")
    return [Fraction(1)] * count
