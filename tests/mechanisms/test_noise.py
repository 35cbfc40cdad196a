from __future__ import annotations

import math
import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms import (
    Gaussian,
    Grid,
    InsecureDeterministicNoise,
    Laplace,
    SecureNoise,
    gaussian_delta,
)
from quiltdp.mechanisms.additive import AdditiveMechanism, smallest_sensitivity
from quiltdp.mechanisms.exponential import ExponentialMechanism
from quiltdp.mechanisms.gaussian import GaussianMechanism
from quiltdp.mechanisms.laplace import LaplaceMechanism
from quiltdp.mechanisms.noise import charged_scale

# Goodness-of-fit on fresh secure noise: each test below is allowed to fail by chance once in 10^6 runs.
FALSE_ALARM = 1e-6


class NeverCharged:
    """A ledger that nothing may ask."""


@settings(deadline=None)
@given(st.floats(-1e6, 1e6), st.integers(-60, 10))
def test_grid_rounds_to_the_nearest_point(value: float, exponent: int) -> None:
    grid = Grid(exponent)
    units = grid.units(value)
    assert units == round(Fraction(value) / grid.exact_step)
    assert abs(units * grid.exact_step - Fraction(value)) <= grid.exact_step / 2
    assert grid.value(units) in grid


def test_grid_is_fine_enough_and_refuses_nonsense() -> None:
    grid = Grid.finer_than(1e-3, 5.0)
    assert grid.step <= 1e-3 * 2.0**-20
    assert grid.step > 1e-3 * 2.0**-22
    assert 0.1 not in grid
    for bad in (0.0, math.inf, math.nan):
        with pytest.raises(InvalidArgument):
            Grid.finer_than(bad)


@settings(deadline=None)
@given(st.floats(1e-6, 1e3), st.floats(1e-6, 1e3), st.integers(1, 50))
def test_rounding_is_charged(sensitivity: float, scale: float, steps: int) -> None:
    """(Δ + r·step) / drawn scale never exceeds Δ / stated scale."""
    grid = Grid.finer_than(sensitivity / steps, scale)
    drawn = Fraction(charged_scale(scale, grid, sensitivity, steps)) * grid.exact_step
    cost = (Fraction(sensitivity) + steps * grid.exact_step) / drawn
    assert cost <= Fraction(sensitivity) / Fraction(scale)
    assert drawn <= Fraction(scale) * (1 + Fraction(1, 2**18))


@settings(deadline=None, max_examples=30)
@given(st.floats(0.0, 1.0), st.floats(0.0, 1e-3))
def test_neighbouring_values_stay_within_the_charged_distance(value: float, change: float) -> None:
    grid = Grid.finer_than(1e-3)
    distance = abs(grid.units(value) - grid.units(value + change)) * grid.exact_step
    assert distance <= abs(Fraction(value + change) - Fraction(value)) + grid.exact_step


def ks_distance(sample: np.ndarray, cdf: np.ndarray) -> float:
    """Return the largest gap between the empirical law and a law given at the sample points."""
    n = len(sample)
    return float(max(np.max(np.arange(1, n + 1) / n - cdf), np.max(cdf - np.arange(n) / n)))


def ks_limit(n: int) -> float:
    """Return the distance exceeded with probability ≤ FALSE_ALARM (Dvoretzky–Kiefer–Wolfowitz–Massart)."""
    return math.sqrt(math.log(2 / FALSE_ALARM) / (2 * n))


@pytest.mark.parametrize("source", [SecureNoise(), InsecureDeterministicNoise(1)])
def test_laplace_noise_has_the_right_law(source: SecureNoise) -> None:
    scale, n = 2.0**24, 4000
    sample = np.sort(np.array(source.laplace([0] * n, scale), dtype=float)) / scale
    cdf = np.where(sample < 0, 0.5 * np.exp(sample), 1 - 0.5 * np.exp(-sample))
    assert ks_distance(sample, cdf) < ks_limit(n)


@pytest.mark.parametrize("source", [SecureNoise(), InsecureDeterministicNoise(2)])
def test_gaussian_noise_has_the_right_law(source: SecureNoise) -> None:
    from scipy.special import ndtr

    std, n = 2.0**22, 3000
    sample = np.sort(np.array(source.gaussian([0] * n, std), dtype=float)) / std
    assert ks_distance(sample, ndtr(sample)) < ks_limit(n)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize(
    ("sensitivity", "scale", "value"),
    [
        (1e-9, 1e-8, 50_000.0),  # once clipped to 4,096
        (1e-9, 1e-8, -1e300),
        (1e-9, 4.0, 50_000.0),
        (1e100, 1e101, 1e308),
    ],
)
def test_no_value_is_too_large(kind: str, sensitivity: float, scale: float, value: float) -> None:
    mechanism: LaplaceMechanism | GaussianMechanism = (
        LaplaceMechanism(Laplace(sensitivity), scale)
        if kind == "laplace"
        else GaussianMechanism(Gaussian(sensitivity, 1e-6), scale)
    )
    released = [float(mechanism.release(value)) for _ in range(40)]  # type: ignore[arg-type]
    assert all(abs(x - value) <= 60 * scale + 1e-15 * abs(value) for x in released)
    if scale > 1e-10 * abs(value):
        assert len(set(released)) > 30
        assert max(abs(x - value) for x in released) > scale / 2


@pytest.mark.parametrize(("sensitivity", "scale"), [(1e-12, 1.0), (1e-9, 1e9), (1e-200, 1e-2)])
@pytest.mark.parametrize("source", [SecureNoise(), InsecureDeterministicNoise(3)])
def test_noise_too_wide_for_64_bits_is_refused(source: SecureNoise, sensitivity: float, scale: float) -> None:
    """It was once drawn from the ends of the 64-bit numbers."""
    for mechanism in (
        LaplaceMechanism(Laplace(sensitivity), scale, noise=source),
        GaussianMechanism(Gaussian(sensitivity, 1e-6), scale, noise=source),
    ):
        with pytest.raises(InvalidArgument, match="allow more leakage"):
            mechanism.release(3.0, ledger=NeverCharged())  # type: ignore[arg-type]


def test_scores_of_any_size_are_chosen_by_their_differences() -> None:
    mechanism = ExponentialMechanism(1e-9, 1.0)
    assert mechanism.index([1e6, 1e6 + 1.0, 0.0]) == 1  # once all clipped to one value
    counts = np.bincount([mechanism.index([1e6, 1e6]) for _ in range(60)], minlength=2)
    assert counts.min() > 5


def test_small_scales_are_discrete_laplace() -> None:
    n = 4000
    zeros = SecureNoise().laplace([0] * n, 0.7).count(0)
    p = math.tanh(1 / 1.4)
    assert abs(zeros / n - p) < math.sqrt(math.log(2 / FALSE_ALARM) / (2 * n))


@pytest.mark.parametrize("source", [SecureNoise(), InsecureDeterministicNoise(3)])
def test_exponential_mechanism_has_the_right_law(source: SecureNoise) -> None:
    mechanism = ExponentialMechanism(sensitivity=1.0, dp_epsilon=1.0, noise=source)
    scores, n = np.array([0.0, 1.0, 3.0]), 1500
    counts = np.bincount([mechanism.index(scores) for _ in range(n)], minlength=3)
    law = np.exp(scores / 2) / np.exp(scores / 2).sum()
    # three coordinates, Hoeffding each
    assert np.max(np.abs(counts / n - law)) < math.sqrt(math.log(6 / FALSE_ALARM) / (2 * n))


@pytest.mark.parametrize("value", [0.0, 1 / 3, 0.1 + 0.2, math.pi, 12345.678])
def test_releases_lie_on_the_stated_grid(value: float) -> None:
    """The floating-point attack reads the last bits of a release: here they are always the grid's."""
    laplace = LaplaceMechanism(Laplace(1e-3), scale=0.01, dimension=50)
    gaussian = GaussianMechanism(Gaussian(1e-3, 1e-6), scale=0.01, dimension=50)
    for mechanism in (laplace, gaussian):
        released = mechanism.release(np.full(50, value))
        assert isinstance(released, np.ndarray)
        assert all(float(x) in mechanism.grid for x in released)
        assert len(set(released.tolist())) > 25


def test_mechanisms_state_their_cost_and_shape() -> None:
    mechanism = LaplaceMechanism(Laplace({"a": 1.0, "b": 0.5, "c": 0.0}), scale=2.0, dimension=4)
    assert mechanism.dp_epsilon == {"a": 0.5, "b": 0.25, "c": 0.0}
    assert mechanism.noise_scale >= 2.0
    matrix = mechanism.release(np.zeros((2, 2)))
    assert isinstance(matrix, np.ndarray)
    assert matrix.shape == (2, 2)
    with pytest.raises(InvalidArgument, match="4 numbers"):
        mechanism.release([1.0, 2.0])
    with pytest.raises(InvalidArgument, match="NaN"):
        mechanism.release([1.0, 2.0, math.nan, 0.0])
    with pytest.raises(InvalidArgument):
        LaplaceMechanism(Gaussian(1.0, 1e-5), 1.0)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        GaussianMechanism(Laplace(1.0), 1.0)  # type: ignore[arg-type]
    assert GaussianMechanism(Gaussian(1.0, 1e-5), 3.0).noise_std >= 3.0


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_scales_are_checked(bad: float) -> None:
    for source in (SecureNoise(), InsecureDeterministicNoise(0)):
        for draw in (source.laplace, source.gaussian):
            with pytest.raises(InvalidArgument):
                draw([0], bad)
    with pytest.raises(InvalidArgument):
        ExponentialMechanism(1.0, bad)


def test_exponential_mechanism_checks_its_scores_and_bounds_its_regret() -> None:
    mechanism = ExponentialMechanism(0.01, 1.0)
    for bad in ([], [math.nan], [[1.0]]):
        with pytest.raises(InvalidArgument):
            mechanism.index(bad)
    with pytest.raises(InvalidArgument, match="2 candidates"):
        mechanism.choose(["a", "b"], [1.0])
    bound = mechanism.regret(3, FALSE_ALARM)
    assert [0.0, 0.5, 1.0][mechanism.index([0.0, 0.5, 1.0])] >= 1.0 - bound


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_processes_draw_different_noise() -> None:
    SecureNoise().laplace([0], 2.0**40)
    found = set()
    for _ in range(4):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(write, repr(SecureNoise().laplace([0], 2.0**40)).encode())
            os._exit(0)
        os.close(write)
        found.add(os.read(read, 100))
        os.close(read)
        os.waitpid(child, 0)
    assert len(found) == 4


def test_production_noise_cannot_be_seeded_by_accident() -> None:
    np.random.seed(0)  # noqa: NPY002 - what a careless script would do
    first = SecureNoise().laplace([0] * 4, 2.0**40)
    np.random.seed(0)  # noqa: NPY002
    assert SecureNoise().laplace([0] * 4, 2.0**40) != first
    with pytest.raises(TypeError):
        SecureNoise(0)  # type: ignore[call-arg]


def test_gaussian_noise_pays_for_its_grid() -> None:
    mechanism = GaussianMechanism(Gaussian(1e-3, 1e-6), scale=0.01, dimension=9)
    step = mechanism.grid.exact_step
    inner = Fraction(0.01) * (1 + 3 * step / Fraction(1e-3))
    assert (Fraction(mechanism._units) * step) ** 2 >= inner**2 + 36 * step**2


@pytest.mark.parametrize("std", [4.0, 10.0, 50.0])
@pytest.mark.parametrize("epsilon", [-0.5, 0.0, 0.3, 1.0, 3.0])
def test_discrete_gaussian_is_covered_by_the_continuous_profile(std: float, epsilon: float) -> None:
    """With 36 added to its variance (in steps), the discrete law is within the analytic δ(ε)."""
    z = np.arange(-1500, 1501)
    law = np.exp(-(z**2) / (2 * (std**2 + 36)))
    law /= law.sum()
    for shift in (1, 3, 20):
        moved = np.roll(law, shift)
        delta = float(np.maximum(law - math.exp(epsilon) * moved, 0).sum())
        assert delta <= gaussian_delta(epsilon, shift / std) + 1e-15


def test_rounding_is_charged_to_the_record_that_moves_least() -> None:
    assert smallest_sensitivity({"a": 0.0, "b": 0.5, "c": 2.0}) == 0.5
    unequal: AdditiveMechanism = LaplaceMechanism(Laplace({"a": 0.0, "b": 0.5, "c": 2.0}), 3.0)
    assert unequal.grid == LaplaceMechanism(Laplace(0.5), 3.0).grid


def test_secure_noise_imports_no_data_science_stack() -> None:
    """`holdout ask` waits for these imports: of OpenDP only what samples is loaded."""
    code = (
        "import sys; from quiltdp.mechanisms.noise import SecureNoise; SecureNoise().laplace([0], 2.0**20);"
        "print(sorted({'sklearn', 'pandas', 'polars', 'scipy'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
