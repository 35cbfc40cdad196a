"""The soundness campaign in short; ``make soundness`` runs the long form (docs/benchmarks/soundness.md)."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import quiltdp as qd

ROOT = Path(__file__).parents[2]
FRESH = 1_000_000  # seeds that the long form does not reach


@pytest.fixture(scope="module")
def campaign() -> ModuleType:
    sys.path.append(str(ROOT / "benchmarks"))
    import soundness

    return soundness


@pytest.mark.parametrize("seed", range(FRESH + 8, FRESH + 30))
def test_no_method_is_below_an_attack(campaign: ModuleType, seed: int) -> None:
    scene, attained = campaign.small(seed)
    found = campaign.judge(scene, attained, seed)
    assert found["checks"] > 0
    assert found["violations"] == []


@pytest.mark.parametrize("seed", [FRESH, FRESH + 1])
def test_no_method_is_below_an_attack_on_many_records(campaign: ModuleType, seed: int) -> None:
    scene, attained = campaign.large(seed)
    assert campaign.judge(scene, attained, seed, big=True)["violations"] == []


def test_a_bound_that_is_too_small_is_noticed(campaign: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    scene, attained = campaign.small(FRESH)
    low = {
        str(unit): math.nextafter(0.999 * value, 0) for unit, value in zip(scene.units, attained, strict=True)
    }
    monkeypatch.setattr(campaign, "bounds", lambda *_, **__: [("made up", low)])
    assert len(campaign.judge(scene, attained, FRESH)["violations"]) == sum(v > 0 for v in attained)


def test_attacks_attain_what_is_known(campaign: ModuleType) -> None:
    """Copies leak twice α; two coins of correlation 1 − 2s leak α + Φ; a product mechanism finds both."""
    copies = qd.Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[1, 0], [0, 1]])})
    near = qd.Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.8, 0.2], [0.2, 0.8]])})
    alpha = {"A": 0.7, "B": 0.7}
    expected = 0.7 + math.log((0.8 * math.exp(0.7) + 0.2) / (0.2 * math.exp(0.7) + 0.8))
    for model, value in ((copies, 1.4), (near, expected)):
        assert campaign.strongest(model, alpha, ["A"], [], 0).leakage == pytest.approx(value, rel=1e-12)
        joint = campaign.joint_of_records(model)
        assert campaign.ascend(joint, [0.7, 0.7], 0, {}) == pytest.approx(value, rel=1e-12)
    known = campaign.strongest(near, alpha, ["A"], ["B"], 1)
    assert known.leakage == pytest.approx(expected, rel=1e-12)
    assert np.isclose(campaign.joint_of_records(near).sum(), 1.0)


def test_a_campaign_goes_on_where_it_stopped(
    campaign: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "CHUNK", 2)
    page = tmp_path / "page.md"
    for seeds in (2, 4):
        monkeypatch.setattr(
            sys, "argv",
            ["x", "--seeds", str(seeds), "--large", "0", "--state", str(tmp_path / "s"), "--docs", str(page)],
        )  # fmt: skip
        assert campaign.main() == 0
    assert len(list((tmp_path / "s").glob("small-*.json"))) == 2
    assert "4 random models" in page.read_text()
    assert "**0 violations**" in page.read_text()
