"""The old name of :mod:`quiltdp.accountant.mechanisms`; it goes with the next version."""

from __future__ import annotations

from quiltdp.accountant.mechanisms import (
    Gaussian,
    Laplace,
    Mechanism,
    Sensitivities,
    Thresholdout,
    gaussian_delta,
    mechanism_from_dict,
)
from quiltdp.rounding import round_up

MechanismSpec = Mechanism

__all__ = [
    "Gaussian",
    "Laplace",
    "MechanismSpec",
    "Sensitivities",
    "Thresholdout",
    "gaussian_delta",
    "mechanism_from_dict",
    "round_up",
]
