"""A calibration as a ``dp_accounting`` event, for composition with other releases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quiltdp.accountant.specs import Gaussian, Thresholdout
from quiltdp.errors import DependencyMissing
from quiltdp.rounding import down

if TYPE_CHECKING:
    from quiltdp.accountant.calibration import Calibration

__all__ = ["to_dp_event"]


def to_dp_event(calibration: Calibration) -> Any:
    """Return the event of one release: noise multiplier = scale / sensitivity.

    Thresholdout becomes a discrete Laplace event of sensitivity 1 with the α of its whole budget.  Its
    privacy loss is ±α, that of binary randomized response, so it dominates every α-DP algorithm (a
    Laplace event of that α would not).  Randomized response itself is no use here: the accountant of
    ``dp_accounting`` takes it for other neighbours only, and forgets how often it was repeated.

    The sensitivity is that of *replacing* a record: use the accountant with its own default
    neighbours, which shift the query by one sensitivity.  Compose events first, then convert once.

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
        from dp_accounting import dp_event
    except ImportError:
        raise DependencyMissing("events need dp-accounting: pip install 'quiltdp[accounting]'") from None
    spec = calibration.mechanism
    if isinstance(spec, Thresholdout):
        alpha = spec.dp_epsilon(calibration.sigma)
        largest = max(alpha.values()) if isinstance(alpha, dict) else alpha
        return dp_event.DiscreteLaplaceDpEvent(noise_parameter=largest, sensitivity=1)
    multiplier = down(calibration.sigma / spec.max_sensitivity)
    if isinstance(spec, Gaussian):
        return dp_accounting.GaussianDpEvent(noise_multiplier=multiplier)
    return dp_accounting.LaplaceDpEvent(noise_multiplier=multiplier)
