"""The odometer: what has been spent so far, and what it tells each adversary about each record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from quiltdp.errors import InvalidArgument, option

if TYPE_CHECKING:
    from quiltdp.accountant.ledger.account import Terms
    from quiltdp.model import Model

__all__ = ["AdversaryReading", "Odometer", "read_adversaries"]

ADVERSARIES = ("informed", "prior")


@dataclass(frozen=True)
class AdversaryReading:
    """The Bayesian DP ε of everything spent so far, against one adversary."""

    adversary: str
    epsilon: float
    per_record: Mapping[str, float] = field(repr=False)


@dataclass(frozen=True)
class Odometer:
    """The state of an account.

    ``spent_dp_epsilon`` is an *ex-post* bound: for the transcript that really happened, no record's
    change alters its probability by more than e^spent.  ``informed`` and ``prior`` convert that one
    total, once; they are None when no model was given, or for Gaussian noise.  ``failed`` queries
    broke on the holdout and were charged like answers; ``lost`` answers were charged and never
    told, because something interrupted them.
    """

    share: Fraction
    spent_dp_epsilon: float | Mapping[str, float] | None
    remaining_dp_epsilon: float | Mapping[str, float] | None
    answers: int
    queries: int
    remaining: int | None
    failed: int
    lost: int
    informed: AdversaryReading | None = None
    prior: AdversaryReading | None = None


def read_adversaries(
    model: Model, terms: Terms, spent: float | Mapping[str, float], **options: Any
) -> tuple[AdversaryReading, AdversaryReading]:
    """Return the leakage of a total α against the informed and the prior adversary."""
    if model.fingerprint != terms.fingerprint:
        raise InvalidArgument(
            f"this model ({model.fingerprint[:12]}…) is not the one the ledger was made for"
            f" ({terms.fingerprint[:12]}…)"
        )
    informed, prior = (_reading(model, terms, spent, adversary, options) for adversary in ADVERSARIES)
    return informed, prior


def _reading(
    model: Model,
    terms: Terms,
    spent: float | Mapping[str, float],
    adversary: str,
    options: Mapping[str, Any],
) -> AdversaryReading:
    most = max(spent.values()) if isinstance(spent, Mapping) else spent
    if most == 0.0:
        return AdversaryReading(adversary, 0.0, dict.fromkeys(model.records, 0.0))
    from quiltdp import leakage

    found = leakage(model, dp_epsilon=spent, adversary=adversary, **options)
    if found.protected != terms.protected:
        raise InvalidArgument(
            f"the calibration protects {terms.protected}, this reading would be for {found.protected}:"
            f" give the same {option('protect')} or {option('window')}"
        )
    return AdversaryReading(adversary, float(found.epsilon), found.per_record)
