"""Mechanism specifications: what one use of a mechanism costs in DP, before any noise is drawn.

Every file of this package that registers a mechanism is found by itself: a new mechanism is one file.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from quiltdp.accountant.mechanisms.contract import (
    GroupProfile,
    Mechanism,
    PureMechanism,
    check_mechanism,
    mechanism_from_dict,
    mechanism_from_options,
    mechanism_kinds,
    register,
)
from quiltdp.accountant.mechanisms.discrete_gaussian import DiscreteGaussian, DiscreteGaussianProfile
from quiltdp.accountant.mechanisms.gaussian import Gaussian, GaussianProfile, gaussian_delta
from quiltdp.accountant.mechanisms.laplace import Laplace
from quiltdp.accountant.mechanisms.repeated import PureRepeated, Repeated, several
from quiltdp.accountant.mechanisms.sensitivities import Sensitivities
from quiltdp.accountant.mechanisms.thresholdout import Thresholdout

for _found in iter_modules(__path__):
    import_module(f"{__name__}.{_found.name}")

__all__ = [
    "DiscreteGaussian",
    "DiscreteGaussianProfile",
    "Gaussian",
    "GaussianProfile",
    "GroupProfile",
    "Laplace",
    "Mechanism",
    "PureMechanism",
    "PureRepeated",
    "Repeated",
    "Sensitivities",
    "Thresholdout",
    "check_mechanism",
    "gaussian_delta",
    "mechanism_from_dict",
    "mechanism_from_options",
    "mechanism_kinds",
    "register",
    "several",
]
