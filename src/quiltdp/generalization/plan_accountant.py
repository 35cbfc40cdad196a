"""The accountant as the planner asks it: leakage per record at a DP cost, each asked once."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.profile import LeakageProfile, analyze
from quiltdp.errors import QuiltdpError
from quiltdp.model import Model

__all__ = ["ProfileAccountant"]


class ProfileAccountant:
    """Leakage of a model from its profiles, analysed on first use and remembered per α.

    Parameters
    ----------
    model
        The model of the correlation.
    time_limit
        Seconds for the searches of each adversary.
    """

    def __init__(self, model: Model, *, time_limit: float = 30.0) -> None:
        self.model = model
        self.time_limit = time_limit
        self._known: dict[tuple[str, float], NDArray[np.float64]] = {}

    @cached_property
    def _prior(self) -> LeakageProfile:
        try:
            return analyze(self.model, adversary="prior", time_limit=self.time_limit)
        except QuiltdpError:  # too wide: the informed adversary knows more, so his bound covers it
            return self._informed

    @cached_property
    def _informed(self) -> LeakageProfile:
        return analyze(self.model, adversary="informed", time_limit=self.time_limit)

    def _ask(self, adversary: str, dp_epsilon: float) -> NDArray[np.float64]:
        key = (adversary, dp_epsilon)
        if key not in self._known:
            profile = self._prior if adversary == "prior" else self._informed
            self._known[key] = profile.leakage(dp_epsilon).per_record.values_array
        return self._known[key]

    def prior(self, dp_epsilon: float) -> NDArray[np.float64]:
        """Return the leakage to the prior adversary, one number per record."""
        return self._ask("prior", dp_epsilon)

    def informed(self, dp_epsilon: float) -> NDArray[np.float64]:
        """Return the leakage to the informed adversary, one number per record."""
        return self._ask("informed", dp_epsilon)

    def dp_epsilon(self, epsilon: float) -> float:
        """Return the largest DP cost that leaks at most ε to the informed adversary."""
        return self._informed.dp_epsilon(epsilon)
