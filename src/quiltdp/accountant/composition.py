"""Composition: DP costs are added first, and converted to leakage once.

Leakage is not additive: converting each release and adding the results can understate the whole (a
rare flag and its copies: 1.43 at α = 1, 5.43 at α = 2).  So nothing here adds leakages, and
:func:`compose` refuses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from quiltdp.accountant.calibration import Calibration
from quiltdp.accountant.result import Leakage
from quiltdp.accountant.specs import round_up
from quiltdp.accountant.units import positive_epsilon
from quiltdp.errors import InvalidArgument
from quiltdp.rounding import down

__all__ = ["compose", "compose_gaussian"]


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
