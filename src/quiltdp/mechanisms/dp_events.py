"""A calibration as a ``dp_accounting`` event, for composition with other releases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quiltdp.accountant.specs import Gaussian, Thresholdout
from quiltdp.errors import DependencyMissing

if TYPE_CHECKING:
    from quiltdp.accountant.calibration import Calibration

__all__ = ["to_dp_event"]


def to_dp_event(calibration: Calibration) -> Any:
    """Return the event of one release: noise multiplier = scale / sensitivity.

    Thresholdout becomes the Laplace event of its whole budget, with noise multiplier 4σ/(9BΔ): pure
    DP of that α is no worse.  Compose events first, then convert once.

    Examples
    --------
    >>> import quiltdp as qd
    >>> m = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=100)
    >>> cal = qd.calibrate(m, epsilon=1.0, mechanism=qd.Laplace(sensitivity=2.0))
    >>> cal.to_dp_event()
    LaplaceDpEvent(noise_multiplier=8.908...)
    """
    try:
        import dp_accounting
    except ImportError:
        raise DependencyMissing("events need dp-accounting: pip install 'quiltdp[accounting]'") from None
    spec = calibration.mechanism
    multiplier = calibration.sigma / spec.max_sensitivity
    if isinstance(spec, Gaussian):
        return dp_accounting.GaussianDpEvent(noise_multiplier=multiplier)
    if isinstance(spec, Thresholdout):
        multiplier = 4.0 * multiplier / (9.0 * spec.budget)
    return dp_accounting.LaplaceDpEvent(noise_multiplier=multiplier)
