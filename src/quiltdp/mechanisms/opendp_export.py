"""A calibration as an OpenDP measurement: the noise, ready to be chained with a query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quiltdp.accountant.calibration import Calibration

__all__ = ["to_opendp"]


def to_opendp(calibration: Calibration) -> Any:
    """Return ``make_laplace`` or ``make_gaussian`` over one float, with the calibrated scale.

    OpenDP's own privacy map then tells the *plain* DP cost, α = Δ/σ for Laplace: the certified
    leakage is the calibration's, not OpenDP's.

    Raises
    ------
    InvalidArgument
        For Thresholdout, which is not one release of noise: use :class:`quiltdp.ReusableHoldout`.

    Examples
    --------
    >>> import quiltdp as qd
    >>> m = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=100)
    >>> cal = qd.calibrate(m, epsilon=1.0, mechanism=qd.Laplace(sensitivity=1.0))
    >>> measurement = cal.to_opendp()
    >>> round(measurement.map(1.0), 4), type(measurement(42.0)).__name__
    (0.1123, 'float')
    """
    return calibration.mechanism.to_opendp(calibration.sigma)
