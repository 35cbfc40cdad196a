"""Mechanisms that draw noise: Laplace, Gaussian, exponential, Thresholdout, the Monitor."""

from __future__ import annotations

from quiltdp.mechanisms.exponential import ExponentialMechanism
from quiltdp.mechanisms.gaussian import GaussianMechanism
from quiltdp.mechanisms.laplace import LaplaceMechanism
from quiltdp.mechanisms.monitor import Monitor, MonitorResult
from quiltdp.mechanisms.noise import Grid, InsecureDeterministicNoise, NoiseSource, SecureNoise
from quiltdp.mechanisms.thresholdout import ThresholdoutMechanism, ThresholdoutState

__all__ = [
    "ExponentialMechanism",
    "GaussianMechanism",
    "Grid",
    "InsecureDeterministicNoise",
    "LaplaceMechanism",
    "Monitor",
    "MonitorResult",
    "NoiseSource",
    "SecureNoise",
    "ThresholdoutMechanism",
    "ThresholdoutState",
]
