from __future__ import annotations

from quiltdp.accountant.ledger import Terms
from quiltdp.mechanisms import Thresholdout


def terms(
    budget: int = 5, sensitivity: float = 1e-3, dp_epsilon: float = 1.0, fingerprint: str = "f" * 64
) -> Terms:
    """Return a hand-made calibration of Thresholdout, as calibrate would make for that α."""
    spec = Thresholdout(budget, sensitivity)
    sigma = spec.scale(dp_epsilon)
    return Terms(spec, sigma, 2 * dp_epsilon, dp_epsilon, 0.0, "informed", "test", fingerprint)
