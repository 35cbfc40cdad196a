"""Noise that other libraries know too: its measurement in OpenDP, its event and losses in dp_accounting."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, ClassVar

from quiltdp.accountant.mechanisms.contract import Mechanism, checked_order, dp_accounting
from quiltdp.accountant.mechanisms.sensitivities import positive
from quiltdp.numbers import down, round_up, up

__all__ = ["GaussianCost", "KnownToPeers"]


class KnownToPeers(Mechanism):
    """A mechanism that adds noise of a law by which others call it.

    Attributes
    ----------
    law
        Its name in dp_accounting, ``laplace``, ``gaussian`` or ``discrete_gaussian``.
    number_type
        What the query returns, ``float`` or ``int``.
    """

    law: ClassVar[str]
    number_type: ClassVar[type] = float

    def privacy_loss(self, scale: float, weight: float, interval: float) -> Any:
        """Return the distribution of a shift by ``weight``."""
        make = getattr(dp_accounting().pld.privacy_loss_distribution, f"from_{self.law}_mechanism")
        return make(scale, sensitivity=self.shift(weight), value_discretization_interval=interval)

    def shift(self, weight: float) -> float:
        """Return how far a group of this total sensitivity moves the query, rounded up."""
        return up(weight)

    def to_opendp(self, scale: float) -> Any:
        """Return OpenDP's measurement that adds this noise to one number."""
        import opendp.prelude as dp

        dp.enable_features("contrib")
        kind = self.number_type
        domain = dp.atom_domain(T=kind) if kind is int else dp.atom_domain(T=kind, nan=False)
        make = dp.m.make_laplace if self.law == "laplace" else dp.m.make_gaussian
        return make(domain, dp.absolute_distance(T=kind), scale=scale)

    def to_dp_event(self, scale: float) -> Any:
        """Return its event: noise multiplier = scale / sensitivity, rounded down."""
        if self.number_type is int:
            return super().to_dp_event(scale)  # events are of continuous noise
        event = getattr(dp_accounting(), f"{self.law.capitalize()}DpEvent")
        return event(noise_multiplier=down(scale / self.max_sensitivity))


class GaussianCost(KnownToPeers):
    """Gaussian noise, continuous or discrete: no pure α, and Δ²/(2σ²) of concentrated DP.

    Reference
    ---------
    Canonne, Kamath and Steinke, The discrete Gaussian for differential privacy, 2020, Theorem 14.
    """

    pure: ClassVar[bool] = False

    delta: float

    @property
    def target_delta(self) -> float:
        """The δ that a calibration aims at."""
        return self.delta

    def zcdp(self, scale: float) -> float:
        """Return Δ²/(2σ²), rounded up."""
        ratio = Fraction(self.max_sensitivity) / Fraction(positive(scale, "scale"))
        return round_up(ratio**2 / 2)

    def rdp(self, scale: float, order: float) -> float:
        """Return order · Δ²/(2σ²)."""
        return up(checked_order(order) * self.zcdp(scale), 4)
