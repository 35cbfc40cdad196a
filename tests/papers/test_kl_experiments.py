"""Figure 2 of Wang, Lei and Fienberg, redrawn: KL = γ × generalization error, far below the ε of DP."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "kl_privacy_experiments.py"
GAMMAS = np.array([0.3, 3.0, 30.0])


@pytest.fixture(scope="module")
def figure():
    spec = importlib.util.spec_from_file_location("kl_privacy_experiments", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["kl_privacy_experiments"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("example", ["private_mean", "regression"])
def test_kl_is_gamma_times_the_gap(figure, example):
    found = getattr(figure, example)(GAMMAS, np.random.default_rng(1), 1500)
    off = np.abs(found["KL"] - GAMMAS * found["gap"])
    assert np.all(off <= 4 * (found["KL error"] + GAMMAS * found["gap error"]))
    assert found["DP"] == pytest.approx((4 if example == "private_mean" else 64) * GAMMAS)
    assert np.all(found["KL"] < found["DP"] / 10)
    assert np.all(np.diff(found["excess"]) < 0)  # less noise, better answers


def test_the_mean_has_a_closed_form(figure):
    """E[γd + e^{−γd} − 1] for d = |Z − Z'|, nearly half a normal of variance 2 · 0.774/100."""
    found = figure.private_mean(GAMMAS, np.random.default_rng(2), 6000)
    std = (2 * 0.7737 / 100) ** 0.5
    d = np.abs(np.random.default_rng(3).normal(scale=std, size=400_000))
    for k, gamma in enumerate(GAMMAS):
        exact = np.mean(gamma * d + np.expm1(-gamma * d))
        assert found["KL"][k] == pytest.approx(exact, rel=0.08)


def test_the_figure_is_drawn(figure, tmp_path):
    pytest.importorskip("matplotlib")
    panels = {"one": figure.private_mean(GAMMAS, np.random.default_rng(4), 500)}
    panels["two"] = figure.regression(GAMMAS, np.random.default_rng(4), 200)
    figure.draw(panels, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000
