"""What a ledger belongs to, and what a release costs as a share of the whole.

The account is kept in exact fractions of the privacy that was calibrated for.  For pure DP a share is
α(release) / α(calibration), the largest over the records; for Gaussian noise the squares
(Δ/std)² add, so a share is the ratio of squares.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from quiltdp.accountant.ledger.entries import read_double
from quiltdp.errors import InvalidArgument, LedgerCorrupt, option
from quiltdp.mechanisms import Mechanism, mechanism_from_dict
from quiltdp.numbers import round_up

if TYPE_CHECKING:
    from quiltdp.model import Model

__all__ = [
    "Terms",
    "binding_of",
    "calibration_document",
    "checked_calibration",
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

    mechanism: Mechanism
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
                read_double(binding["sigma"]),
                read_double(binding["epsilon"]),
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
        return {k: read_double(v) for k, v in value.items()}
    return None if value is None else read_double(value)


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


def checked_calibration(calibration: Any, model: Model | None = None, **options: Any) -> str:
    """Refuse a calibration that cannot be true; return how far it was checked: ``cost`` or ``model``.

    Without the model: its fingerprint is one, the mechanism at σ costs no more than the α that was
    certified, and no record leaks less than its own cost, so α ≤ ε (for Gaussian noise: one record
    alone keeps (ε, δ)).  With the model everything is certified anew.  ``options`` say what the
    calibration protects, ``protect`` or ``window``, if that is not single records.
    """
    if not re.fullmatch("[0-9a-f]{64}", str(calibration.fingerprint)):
        raise InvalidArgument(
            "calibration: it does not say which model it was made for (no fingerprint); calibrate again"
        )
    total = total_dp_epsilon(calibration)
    if total is None:
        alone = calibration.mechanism.group_profile(calibration.sigma)
        delta = alone.delta(calibration.epsilon, calibration.mechanism.max_sensitivity)
        possible = delta <= calibration.delta
    else:
        largest = max(total.values()) if isinstance(total, Mapping) else total
        possible = largest <= calibration.epsilon
    if model is None and not possible:
        raise InvalidArgument(
            f"calibration: σ = {calibration.sigma:.6g} is too little noise for ε = {calibration.epsilon:g}"
            f" even if records were independent; it was changed: calibrate again, or give {option('model')}"
        )
    if model is None:
        return "cost"
    _certify(calibration, model, options)
    return "model"


def _certify(calibration: Any, model: Model, options: Mapping[str, Any]) -> None:
    """Refuse a calibration that its own search, repeated, does not confirm."""
    from quiltdp.accountant.verify import leakage_of

    certified = leakage_of(model, calibration, **options)
    if certified.epsilon > calibration.epsilon:
        raise InvalidArgument(
            f"calibration: σ = {calibration.sigma:.6g} leaks up to {certified.epsilon:.6g} on this model,"
            f" more than its ε = {calibration.epsilon:g}; calibrate again"
        )


def total_dp_epsilon(calibration: Any) -> float | dict[str, float] | None:
    """Return the α that the whole ledger may spend: one number, a mapping, or None for Gaussian noise.

    Raises
    ------
    InvalidArgument
        If the mechanism at the calibrated σ costs more than the calibrated α: such a calibration
        was not made by this library.
    """
    spec = calibration.mechanism
    if not spec.pure:
        return None
    cost = spec.dp_epsilon(calibration.sigma)
    promised = calibration.dp_epsilon
    if isinstance(cost, Mapping):
        for name, record_cost in cost.items():
            allowed = promised.get(name, -1.0) if isinstance(promised, Mapping) else promised
            if not record_cost <= allowed:
                raise InvalidArgument(
                    f"calibration: σ costs record {name!r} dp_epsilon {record_cost!r} > {allowed!r}"
                )
        return dict(cost)
    if isinstance(promised, Mapping):
        promised = min(promised.values())
    if not 0.0 < promised < math.inf or cost > promised:
        raise InvalidArgument(f"calibration: its σ costs dp_epsilon {cost!r}, above its own {promised!r}")
    return float(promised)


def spend_share(dp_epsilon: Any, total: float | Mapping[str, float] | None) -> Fraction:
    """Return the share of one spend of ``dp_epsilon``.

    Refused are negative, NaN and infinite amounts, one number where some record must not pay, and a
    mapping that does not name exactly the records of the calibration.
    """
    if total is None:
        raise InvalidArgument("this ledger counts Gaussian noise: charge a mechanism, not a dp_epsilon")
    if isinstance(dp_epsilon, Mapping):
        return _mapped_share(dp_epsilon, total)
    if isinstance(total, Mapping):
        never = next((name for name, record_total in total.items() if record_total == 0.0), None)
        if never is not None:
            raise InvalidArgument(
                f"dp_epsilon: the calibration says record {never!r} is never read, one number charges"
                " every record; give one amount per record, 0 for that one"
            )
        return max(_ratio(dp_epsilon, record_total, None) for record_total in set(total.values()))
    return _ratio(dp_epsilon, total, None)


def _mapped_share(amounts: Mapping[str, Any], total: float | Mapping[str, float]) -> Fraction:
    if not isinstance(total, Mapping):
        raise InvalidArgument(
            "this ledger counts one dp_epsilon for every record: give one number (or one sensitivity),"
            " the largest of any record"
        )
    unknown = next((n for n in amounts if n not in total), None)
    if unknown is not None:
        raise InvalidArgument(f"dp_epsilon: the calibration has no record {unknown!r}")
    missing = next((n for n in total if n not in amounts), None)
    if missing is not None:
        raise InvalidArgument(f"dp_epsilon: record {missing!r} is missing; give 0 if it is not read")
    return max(_ratio(amount, total[name], name) for name, amount in amounts.items())


def _ratio(amount: Any, total: float, record: str | None) -> Fraction:
    where = "dp_epsilon" if record is None else f"dp_epsilon of record {record!r}"
    if isinstance(amount, bool) or not isinstance(amount, (int, float, Fraction)):
        raise InvalidArgument(f"{where} must be a number, not {amount!r}")
    if isinstance(amount, float) and not math.isfinite(amount):
        raise InvalidArgument(f"{where} must be finite and not negative, {amount!r} was asked for")
    if amount < 0:
        raise InvalidArgument(f"{where} must be finite and not negative")
    if amount == 0:
        return Fraction(0)
    if total == 0.0:
        raise InvalidArgument(f"{where}: the calibration says this record is never read")
    return Fraction(amount) / Fraction(total)


_EQUAL = Fraction(1, 2**50)
"""How far a scale computed in doubles (12 · σ, √12 · σ) may be from the one that was meant."""

_MOST_PARTS = 2**20


def mechanism_share(
    spec: Mechanism, scale: float, calibration: Any, total: float | Mapping[str, float] | None
) -> Fraction:
    """Return the share of one use of a mechanism at a scale.

    A scale that is k · σ (for Gaussian noise √k · σ) up to a few roundings of doubles is read as
    exactly that, and costs 1/k: k equal releases fit k times.  The mechanisms of this library draw
    noise that is larger by more than those roundings.
    """
    calibrated: Mechanism = calibration.mechanism
    refuse_other_query(calibrated, spec)
    if total is not None:
        if not spec.pure:
            raise InvalidArgument(
                f"this ledger was calibrated for {calibrated.kind} noise, and {spec!r} has no pure cost"
            )
        return _whole_part(spend_share(spec.exact_dp_epsilon(scale), total))
    if isinstance(spec.deltas, Mapping):  # the records must be the calibration's own
        _mapped_share(spec.deltas, calibrated.deltas)
    return _whole_part(calibrated.spent_share_of(spec, scale, calibration.sigma))


def refuse_other_query(calibrated: Mechanism, use: Mechanism | None) -> None:
    """Refuse a use that may be of another sum than the one whose values the calibration is certified for."""
    values = getattr(calibrated.single(), "values", None)
    if values is not None and (use is None or getattr(use.single(), "values", None) != values):
        raise InvalidArgument(
            "this ledger was calibrated for one sum, by the values of its records: charge"
            " Laplace(values=…) with the same values, or calibrate for any query, by its sensitivity"
        )


def _whole_part(share: Fraction) -> Fraction:
    """Return 1/k for a share that differs from 1/k by roundings of doubles only."""
    if not 0 < share <= 1 + _EQUAL:
        return share
    parts = round(1 / share)
    equal = parts <= _MOST_PARTS and abs(share * parts - 1) <= _EQUAL
    return Fraction(1, parts) if equal else share


def part_of(total: float | Mapping[str, float], share: Fraction) -> float | dict[str, float]:
    """Return share · α, rounded up, for one number or for every record."""
    if isinstance(total, Mapping):
        rounded = {t: round_up(share * Fraction(t)) for t in set(total.values())}
        return {n: rounded[t] for n, t in total.items()}
    return round_up(share * Fraction(total))
