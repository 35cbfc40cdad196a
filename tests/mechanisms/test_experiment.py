"""The reusable-holdout experiment at a small size."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "thresholdout_experiment.py"


@pytest.fixture(scope="module")
def experiment() -> ModuleType:
    spec = importlib.util.spec_from_file_location("thresholdout_experiment", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["thresholdout_experiment"] = module
    spec.loader.exec_module(module)
    return module


def small(experiment: ModuleType, **options: object) -> object:
    return experiment.Setting(
        rows=1000, attributes=2000, threshold=0.1, sigma=0.003, budget=40, counts=(10, 50, 150), **options
    )


def test_naive_reuse_overfits_and_thresholdout_does_not(experiment: ModuleType) -> None:
    runs = [experiment.repetition(small(experiment), seed) for seed in range(4)]
    found = experiment.summary(runs)
    fresh = found["naive_fresh"]["mean"][-1]
    assert abs(fresh - 0.5) < 0.03
    assert found["naive_holdout"]["mean"][-1] > fresh + 0.08
    assert abs(found["thresholdout_holdout"]["mean"][-1] - found["thresholdout_fresh"]["mean"][-1]) < 0.04
    assert found["spent_max"] < 40


def test_signal_is_found_through_thresholdout(experiment: ModuleType) -> None:
    setting = small(experiment, signal_blocks=20, signal=0.2)
    found = experiment.summary([experiment.repetition(setting, seed) for seed in range(2)])
    assert found["thresholdout_fresh"]["mean"][0] > 0.6
    assert found["thresholdout_fresh"]["mean"][0] > found["naive_fresh"]["mean"][0] - 0.03


def test_the_data_are_as_described(experiment: ModuleType) -> None:
    setting = experiment.Setting(rows=20_000, attributes=100, signal_blocks=5, signal=0.2)
    x, y = experiment.draw(np.random.default_rng(0), setting)
    assert abs(np.mean(y[1:] != y[:-1]) - 0.25) < 0.02
    same = experiment.agreement(x, y)
    assert np.allclose(same, [np.mean(x[:, j] == y) for j in range(100)])
    assert np.allclose(same[:5], 0.6, atol=0.02)  # first of the signal blocks
    assert np.allclose(same[10:15], 0.55, atol=0.02)  # their neighbours: half the correlation
    assert np.allclose(same[5:10], 0.5, atol=0.02)
    assert abs(np.mean(x[:, 7] == x[:, 17]) - 0.75) < 0.02


def test_the_figures_are_drawn(experiment: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    setting = experiment.Setting(rows=200, attributes=100, counts=(1, 5, 10))
    results = {"no signal": experiment.summary([experiment.repetition(setting, 0)])}
    experiment.draw_figure(results, "naive", setting.counts, "test", tmp_path / "naive.png")
    assert (tmp_path / "naive.png").stat().st_size > 5000
