"""A calibration as a ``dp_accounting`` event, for composition with other releases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quiltdp.accountant.calibration import Calibration

__all__ = ["to_dp_event"]


def to_dp_event(calibration: Calibration) -> Any:
    """Return the event of one release: noise multiplier = scale / sensitivity.

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
    return calibration.mechanism.to_dp_event(calibration.sigma)
