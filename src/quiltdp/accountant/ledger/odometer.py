"""The odometer: what has been spent so far, and what it tells each adversary about each record."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from quiltdp.accountant.units import without_partial_answer
from quiltdp.errors import InvalidArgument, option
from quiltdp.numbers import down, up

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
    total, once; for Gaussian noise they are the ε at the calibration's δ of the one release that all
    releases so far amount to.  They are None when no model was given, and for noise without such a total
    (discrete Gaussian).  ``asked`` queries, answered or charged without an answer, count towards the
    ``query_limit`` of the plan (None without one).  ``failed`` queries broke on the holdout and were
    charged like answers; ``lost`` answers were charged and never told, because something interrupted them.
    """

    share: Fraction
    spent_dp_epsilon: float | Mapping[str, float] | None
    remaining_dp_epsilon: float | Mapping[str, float] | None
    answers: int
    queries: int
    remaining: int | None
    failed: int
    lost: int
    asked: int = 0
    query_limit: int | None = None
    informed: AdversaryReading | None = None
    prior: AdversaryReading | None = None


def read_adversaries(
    model: Model, terms: Terms, share: Fraction, spent: float | Mapping[str, float] | None, **options: Any
) -> tuple[AdversaryReading, AdversaryReading] | tuple[None, None]:
    """Return the leakage of all releases so far against the informed and the prior adversary.

    ``spent`` is their total α.  Without one they are Gaussian: releases whose shares (Δ/σ)² sum to a part s
    of the calibrated one's tell no more than one release with noise σ/√s.
    """
    if model.fingerprint != terms.fingerprint:
        raise InvalidArgument(
            f"this model ({model.fingerprint[:12]}…) is not the one the ledger was made for"
            f" ({terms.fingerprint[:12]}…)"
        )
    if spent is None and terms.mechanism.as_gaussian(terms.sigma) is None:
        return None, None
    informed, prior = (_reading(model, terms, share, spent, adversary, options) for adversary in ADVERSARIES)
    return informed, prior


@without_partial_answer()
def _reading(
    model: Model,
    terms: Terms,
    share: Fraction,
    spent: float | Mapping[str, float] | None,
    adversary: str,
    options: Mapping[str, Any],
) -> AdversaryReading:
    if share == 0:
        return AdversaryReading(adversary, 0.0, dict.fromkeys(model.records, 0.0))
    from quiltdp import leakage
    from quiltdp.accountant.verify import leakage_of

    if spent is not None:
        result = leakage(model, dp_epsilon=spent, adversary=adversary, **options)
    else:
        result = leakage_of(
            model, terms.mechanism.single(), _one_gaussian(terms, share), adversary=adversary, **options
        )
    if result.protected != terms.protected:
        raise InvalidArgument(
            f"the calibration protects {terms.protected}, this reading would be for {result.protected}:"
            f" give the same {option('protect')} or {option('window')}"
        )
    return AdversaryReading(adversary, float(result.epsilon), result.per_record)


def _one_gaussian(terms: Terms, share: Fraction) -> float:
    """Return σ, rounded down, of the one release that tells as much as this share of the calibrated one."""
    whole = terms.mechanism.as_gaussian(terms.sigma)
    assert whole is not None  # read_adversaries has looked
    return down(down(whole) / up(math.sqrt(up(float(share)))))
