"""Group-privacy profiles: δ_k(ε) of mechanisms without a pure guarantee."""

from __future__ import annotations

import math
from typing import Any

from quiltdp.accountant.mechanisms import GaussianProfile
from quiltdp.accountant.mechanisms.contract import OneByOne
from quiltdp.errors import DependencyMissing, InvalidArgument
from quiltdp.numbers import up

__all__ = ["EventProfile", "GaussianProfile"]


class EventProfile(OneByOne):
    """Any mechanism described by a ``dp_accounting`` event, through group privacy.

    The event's δ(ε) for one record comes from the privacy-loss-distribution accountant (its
    pessimistic estimate); for k records δ_k(ε) ≤ (e^ε − 1) / (e^{ε/k} − 1) · δ(ε/k).

    Parameters
    ----------
    event
        A ``dp_accounting.DpEvent``; composed events are composed first, as they must be.
    """

    def __init__(self, event: Any) -> None:
        try:
            from dp_accounting import pld
        except ImportError:
            raise DependencyMissing("events need dp-accounting: pip install 'quiltdp[accounting]'") from None
        accountant = pld.PLDAccountant()
        if not accountant.supports(event):
            raise InvalidArgument(f"the accountant does not support the event {event!r}")
        self._accountant = accountant.compose(event)

    def delta(self, epsilon: float, weight: float) -> float:
        """Return δ_k(ε) for a group of ``weight`` records (rounded up to a whole number).

        Sums of weights arrive raised by a few units in the last place; that is no further record.
        """
        k = math.ceil(weight * (1.0 - 1e-9))
        if k <= 0:
            return 0.0 if epsilon >= 0 else up(-math.expm1(epsilon))
        if epsilon < 0:
            return 1.0
        one = float(self._accountant.get_delta(epsilon / k))
        factor = math.expm1(epsilon) / math.expm1(epsilon / k) if epsilon > 0 else float(k)
        return min(1.0, up(factor * one))
