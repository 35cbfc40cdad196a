"""The (ε, δ) soundness campaign in short form (benchmarks/soundness_delta.py)."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "soundness_delta.py"


@pytest.fixture(scope="module")
def campaign():
    sys.path.append(str(PATH.parent))
    spec = importlib.util.spec_from_file_location("soundness_delta", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("part", range(4))
def test_no_explicit_mechanism_beats_a_certified_delta(campaign, part: int) -> None:
    tally = campaign.Tally()
    for seed in range(3):
        campaign.try_model(tally, list(campaign.PARTS)[part], 90_000 + seed)
    assert tally.violations == []
    assert sum(tally.records.values()) > 3


def test_the_integral_is_that_of_the_profile(campaign) -> None:
    """Two databases that differ by one shift: δ is known in closed form."""
    from quiltdp.mechanisms import gaussian_delta

    p, q, means = np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.array([1.5, 0.0])
    found = campaign.exact_delta(p, q, means, "gaussian", 2.0, 0.7)
    assert found == pytest.approx(gaussian_delta(0.7, 0.75), rel=1e-9)
    laplace = campaign.exact_delta(p, q, means, "laplace", 2.0, 0.3)
    assert laplace == pytest.approx(1.0 - math.exp((0.3 - 0.75) / 2.0), rel=1e-9)


def test_the_sum_is_that_of_the_profile(campaign) -> None:
    """The same for discrete noise, one answer and two."""
    from quiltdp.mechanisms import DiscreteGaussianProfile

    p, q, means = np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.array([2.0, 0.0])
    found = campaign.exact_delta(p, q, means, "discrete gaussian", 2.0, 0.7)
    assert found == pytest.approx(DiscreteGaussianProfile(2.0).delta(0.7, 2), rel=1e-9)
    twice = campaign.exact_delta(p, q, means, "twice discrete", 1.5, 0.4)
    once = 1.0 - math.exp((0.4 - 2.0 / 1.5) / 2.0)
    assert once < twice < 1.0


def test_a_bound_that_is_too_small_is_noticed(campaign) -> None:
    tally = campaign.Tally()
    tally.compare("networks, prior", "gaussian", "here", certified=1e-3, attained=2e-3, integrals=1)
    assert len(tally.violations) == 1
