"""The reusable-holdout experiment at a small size."""

from __future__ import annotations

import importlib.util
import json
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


def setting(experiment: ModuleType, **options: object) -> object:
    return experiment.Setting(**{"rows": 4000, "attributes": 500, "counts": (10, 50, 150), **options})


@pytest.fixture(scope="module")
def runs(experiment: ModuleType) -> dict[float, list[dict[str, object]]]:
    levels = {repeats: setting(experiment, repeats=repeats) for repeats in (0.2, 0.9)}
    return {r: [experiment.repetition(s, seed) for seed in range(4)] for r, s in levels.items()}


def test_naive_reuse_overfits(experiment: ModuleType, runs: dict[float, list[dict[str, object]]]) -> None:
    """Figure 2, and the more the stronger the rows are correlated: the correlation is felt."""
    gaps = {}
    for repeats, found in runs.items():
        naive = experiment.summary(found, "naive")
        assert abs(naive["fresh"]["mean"][-1] - 0.5) < 0.03
        gaps[repeats] = naive["holdout"]["mean"][-1] - naive["fresh"]["mean"][-1]
        assert gaps[repeats] > 0.05
    assert gaps[0.9] > gaps[0.2] + 0.1


def test_a_planned_holdout_does_not(
    experiment: ModuleType, runs: dict[float, list[dict[str, object]]]
) -> None:
    """Figure 3: weakly correlated, it keeps its promise; strongly, it is refused with the reason."""
    promised = experiment.promise(setting(experiment, repeats=0.2), "plan")
    kept = experiment.summary(runs[0.2], "plan")
    for said, fresh in zip(kept["holdout"]["mean"], kept["fresh"]["mean"], strict=True):
        assert abs(said - fresh) <= promised["accuracy"]
    assert abs(kept["wear"]["mean"][-1]) < 0.03
    assert experiment.summary(runs[0.9], "plan") is None
    assert "answering ½" in experiment.promise(setting(experiment, repeats=0.9), "plan")["refused"]


def test_noise_for_independent_rows_fails_on_rows_that_repeat(
    experiment: ModuleType, runs: dict[float, list[dict[str, object]]]
) -> None:
    """The budget is gone on questions that were honest, and ⊥ stays ⊥."""
    weak, strong = (experiment.summary(runs[r], "independent") for r in (0.2, 0.9))
    assert weak["unanswered"] == 0.0
    assert None not in weak["holdout"]["mean"]
    assert strong["spent"] == 8
    assert strong["unanswered"] > 0.2
    assert strong["holdout"]["mean"] == [None] * 3
    assert strong["holdout"]["no answer"] == [1.0] * 3


def test_signal_is_found_through_thresholdout(experiment: ModuleType) -> None:
    with_signal = setting(experiment, repeats=0.2, signal_blocks=20, signal=0.2)
    found = experiment.summary([experiment.repetition(with_signal, seed) for seed in range(2)], "plan")
    assert found["fresh"]["mean"][0] > 0.6


def test_labels_and_attributes_follow_each_other(experiment: ModuleType) -> None:
    """Every statistic feels the correlation: the agreement of an attribute with the label does too."""
    made = experiment.Setting(rows=40_000, attributes=100, repeats=0.9, signal_blocks=5, signal=0.2)
    data = experiment.draw(np.random.default_rng(0), made)
    assert data.length.sum() == 40_000
    x, y = (np.repeat(a, data.length.astype(int), axis=0) for a in (data.x, data.y))
    for column in (y, x[:, 3], x[:, 60], x[:, 60] ^ y):
        assert abs(np.mean(column[1:] != column[:-1]) - 0.05) < 0.01
    same = experiment.agreement(data)
    assert np.allclose(same, [np.mean(x[:, j] == y) for j in range(100)], atol=1e-6)
    new, label = experiment.new_rows(np.random.default_rng(1), made, 40_000)
    fresh = experiment.agreement(experiment.Rows(new, label, np.ones(40_000, dtype=np.float32)))
    assert np.allclose(fresh[:5], 0.6, atol=0.02)  # first of the signal blocks
    assert np.allclose(fresh[10:15], 0.55, atol=0.02)  # their neighbours: half the correlation
    assert np.allclose(fresh[5:10], 0.5, atol=0.02)
    assert abs(np.mean(new[:, 7] == new[:, 17]) - 0.75) < 0.02
    noise = np.arange(100) % 10 >= 5  # blocks without signal: what is luck among repeated rows
    assert np.std(same[noise]) > 2.5 * np.std(fresh[noise])


def test_noise_comes_from_the_plan(experiment: ModuleType) -> None:
    made = setting(experiment, repeats=0.2)
    found = experiment.plan_for(made, "plan")
    assert found.sigma > 0
    assert found.queries == 503
    assert experiment.plan_for(made, "independent").accuracy < found.accuracy
    assert experiment.plan_for(made, "naive") is None


def test_the_figures_and_the_table(
    experiment: ModuleType, runs: dict[float, list[dict[str, object]]], tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    results = {}
    for level, repeats in (("weak", 0.2), ("strong", 0.9)):
        made = setting(experiment, repeats=repeats)
        results[level] = {
            way: {
                "found": experiment.summary(runs[repeats], way),
                "promised": experiment.promise(made, way),
            }
            for way in experiment.WAYS
        }
    experiment.draw_figure(results, tmp_path / "holdout.png", (10, 50, 150))
    assert (tmp_path / "holdout.png").stat().st_size > 5000
    lines = experiment.table(results, (10, 50, 150), (50,))
    assert any("⊥" in line for line in lines)
    assert any("refused" in line for line in lines)


@pytest.mark.slow
def test_the_recorded_noise_of_the_papers_approach(experiment: ModuleType) -> None:
    """Figure 3: σ for ε = 1, impossible with 5,000 rows, possible with 40 times as many."""
    document = json.loads((SCRIPT.parents[1] / "docs/benchmarks/thresholdout_experiment.json").read_text())
    for level, made in experiment.settings(experiment.Setting()).items():
        recorded = document["no signal"][level]["paper"]
        assert ("refused" in recorded["promised"]) == (made.rows == 5000)
        if level in ("weak", "strong, 40 times the rows"):
            assert experiment.promise(made, "paper") == recorded["promised"]
    assert recorded["epsilon"] == pytest.approx(1.0)
    assert recorded["promised"]["threshold"] == pytest.approx(1.05 * recorded["promised"]["accuracy"] / 2)
