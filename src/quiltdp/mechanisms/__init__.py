"""Mechanisms: what one use costs in DP, which scale a cost asks for, and the noise that is drawn.

A mechanism is one file: its cost registers itself, its sampler stands beside it.  The accountant reads the
costs; the reusable holdout stands on the accountant and is imported from its own file.
"""

from __future__ import annotations

from quiltdp.mechanisms.contract import (
    Mechanism,
    PureMechanism,
    check_mechanism,
    mechanism_from_dict,
    mechanism_from_options,
    mechanism_kinds,
    register,
)
from quiltdp.mechanisms.discrete_gaussian import DiscreteGaussian, DiscreteGaussianProfile
from quiltdp.mechanisms.exponential import ExponentialMechanism
from quiltdp.mechanisms.gaussian import Gaussian, GaussianMechanism, GaussianProfile, gaussian_delta
from quiltdp.mechanisms.laplace import Laplace, LaplaceMechanism
from quiltdp.mechanisms.monitor import Monitor, MonitorResult
from quiltdp.mechanisms.noise import Grid, InsecureDeterministicNoise, NoiseSource, SecureNoise
from quiltdp.mechanisms.profiles import GroupProfile
from quiltdp.mechanisms.repeated import PureRepeated, Repeated, several
from quiltdp.mechanisms.sensitivities import Sensitivities
from quiltdp.mechanisms.thresholdout import Thresholdout, ThresholdoutMechanism, ThresholdoutState

__all__ = [
    "DiscreteGaussian",
    "DiscreteGaussianProfile",
    "ExponentialMechanism",
    "Gaussian",
    "GaussianMechanism",
    "GaussianProfile",
    "Grid",
    "GroupProfile",
    "InsecureDeterministicNoise",
    "Laplace",
    "LaplaceMechanism",
    "Mechanism",
    "Monitor",
    "MonitorResult",
    "NoiseSource",
    "PureMechanism",
    "PureRepeated",
    "Repeated",
    "SecureNoise",
    "Sensitivities",
    "Thresholdout",
    "ThresholdoutMechanism",
    "ThresholdoutState",
    "check_mechanism",
    "gaussian_delta",
    "mechanism_from_dict",
    "mechanism_from_options",
    "mechanism_kinds",
    "register",
    "several",
]
