"""What a ledger belongs to, and what a release costs as a share of the whole.

The account is kept in exact fractions of the calibrated budget.  For pure DP a share is
α(release) / α(calibration), the largest over the records; for Gaussian noise the squares
(Δ/std)² add, so a share is the ratio of squares.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from quiltdp.accountant.specs import Gaussian, MechanismSpec, mechanism_from_dict, round_up
from quiltdp.errors import InvalidArgument, LedgerCorrupt

__all__ = [
    "Terms",
    "binding_of",
    "calibration_document",
    "mechanism_share",
    "spend_share",
    "total_dp_epsilon",
]

SINGLE_RECORDS = "single records"


def binding_of(calibration: Any) -> dict[str, Any]:
    """Return the parts of a calibration that identify it; a ledger is bound to all of them."""
    return {
        "mechanism": calibration.mechanism.to_dict(),
        "sigma": float(calibration.sigma).hex(),
        "epsilon": float(calibration.epsilon).hex(),
        "dp_epsilon": _hex(calibration.dp_epsilon),
        "delta": _hex(calibration.delta),
        "adversary": calibration.adversary,
        "method": calibration.method,
        "protected": getattr(calibration, "protected", SINGLE_RECORDS),
        "fingerprint": calibration.fingerprint,
    }


@dataclass(frozen=True)
class Terms:
    """What a ledger knows of its calibration; stands in for it wherever only these are needed."""

    mechanism: MechanismSpec
    sigma: float
    epsilon: float
    dp_epsilon: float | dict[str, float] | None
    delta: float | None
    adversary: str
    method: str
    fingerprint: str
    protected: str = SINGLE_RECORDS

    @classmethod
    def from_binding(cls, binding: Mapping[str, Any]) -> Terms:
        """Read back what :func:`binding_of` wrote."""
        try:
            return cls(
                mechanism_from_dict(binding["mechanism"]),
                float.fromhex(binding["sigma"]),
                float.fromhex(binding["epsilon"]),
                _unhex(binding["dp_epsilon"]),
                _unhex(binding["delta"]),
                binding["adversary"],
                binding["method"],
                binding["fingerprint"],
                binding["protected"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerCorrupt(f"the ledger's calibration cannot be read: {error}") from None


def _unhex(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: float.fromhex(v) for k, v in value.items()}
    return None if value is None else float.fromhex(value)


def _hex(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {str(k): float(v).hex() for k, v in value.items()}
    return float(value).hex()


def calibration_document(calibration: Any) -> Any:
    """Return the calibration as plain JSON data."""
    if isinstance(calibration, Terms):
        return binding_of(calibration)
    document = calibration.to_json()
    return json.loads(document) if isinstance(document, str) else document


def total_dp_epsilon(calibration: Any) -> float | dict[str, float] | None:
    """Return the α that the whole ledger may spend: one number, a mapping, or None for Gaussian noise.

    Raises
    ------
    InvalidArgument
        If the mechanism at the calibrated σ costs more than the calibrated α: such a calibration
        was not made by this library.
    """
    spec = calibration.mechanism
    if isinstance(spec, Gaussian):
        return None
    cost = spec.dp_epsilon(calibration.sigma)
    promised = calibration.dp_epsilon
    if isinstance(cost, Mapping):
        for name, own in cost.items():
            allowed = promised[name] if isinstance(promised, Mapping) else promised
            if not own <= allowed:
                raise InvalidArgument(
                    f"calibration: σ costs record {name!r} dp_epsilon {own!r} > {allowed!r}"
                )
        return dict(cost)
    if isinstance(promised, Mapping):
        promised = min(promised.values())
    if not 0.0 < promised < math.inf or cost > promised:
        raise InvalidArgument(f"calibration: its σ costs dp_epsilon {cost!r}, above its own {promised!r}")
    return float(promised)


def spend_share(dp_epsilon: Any, total: float | Mapping[str, float] | None) -> Fraction:
    """Return the share of one spend of ``dp_epsilon``; refuse negative, NaN, infinite amounts."""
    if total is None:
        raise InvalidArgument("this ledger counts Gaussian noise: charge a mechanism, not a dp_epsilon")
    if isinstance(dp_epsilon, Mapping):
        shares = [
            _ratio(a, total[n] if isinstance(total, Mapping) else total, n) for n, a in dp_epsilon.items()
        ]
        return max(shares, default=Fraction(0))
    if isinstance(total, Mapping):
        positive = [t for t in total.values() if t > 0.0]
        return max(_ratio(dp_epsilon, t, None) for t in positive)
    return _ratio(dp_epsilon, total, None)


def _ratio(amount: Any, total: float, record: str | None) -> Fraction:
    where = "dp_epsilon" if record is None else f"dp_epsilon of record {record!r}"
    if isinstance(amount, bool) or not isinstance(amount, (int, float, Fraction)):
        raise InvalidArgument(f"{where} must be a number, not {amount!r}")
    if not math.isfinite(amount) or amount < 0:
        raise InvalidArgument(f"{where} must be finite and not negative, {amount!r} was asked for")
    if amount == 0:
        return Fraction(0)
    if total == 0.0:
        raise InvalidArgument(f"{where}: the calibration says this record is never read")
    return Fraction(amount) / Fraction(total)


def mechanism_share(
    spec: MechanismSpec, scale: float, calibration: Any, total: float | Mapping[str, float] | None
) -> Fraction:
    """Return the share of one use of a mechanism at a scale."""
    if not isinstance(spec, Gaussian):
        if total is None:
            raise InvalidArgument("this ledger was calibrated for Gaussian noise, not for " + repr(spec))
        return spend_share(spec.exact_dp_epsilon(scale), total)
    own = calibration.mechanism
    if not isinstance(own, Gaussian):
        raise InvalidArgument("this ledger was calibrated for pure DP: Gaussian noise has no pure cost")
    if not 0.0 < scale < math.inf:
        raise InvalidArgument(f"the scale must be positive and finite, not {scale!r}")
    if isinstance(spec.sensitivity, Mapping) or isinstance(own.sensitivity, Mapping):
        if spec.sensitivity != own.sensitivity:
            raise InvalidArgument("Gaussian releases must have the calibration's own sensitivities")
        relative = Fraction(1)
    else:
        relative = Fraction(spec.sensitivity) / Fraction(own.sensitivity)
    return (relative * Fraction(calibration.sigma) / Fraction(scale)) ** 2


def part_of(total: float | Mapping[str, float], share: Fraction) -> float | dict[str, float]:
    """Return share · α, rounded up, for one number or for every record."""
    if isinstance(total, Mapping):
        made = {t: round_up(share * Fraction(t)) for t in set(total.values())}
        return {n: made[t] for n, t in total.items()}
    return round_up(share * Fraction(total))
