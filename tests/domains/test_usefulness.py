"""``quiltdp.domains.usefulness``: a table is judged by what its reader sees."""

from __future__ import annotations

import math

import numpy as np
import pytest

from quiltdp.domains.pedigree import Pedigree, Person
from quiltdp.domains.pedigree.panel import analyze_panel
from quiltdp.domains.pedigree.panel_calibration import calibrate_panel
from quiltdp.domains.usefulness import judge_noise, judge_table, noise_reach


def test_the_interval_is_the_exact_quantile_and_the_largest_is_the_largest() -> None:
    one, largest = noise_reach(3.0, 506)
    assert math.exp(-one / 3.0) == pytest.approx(0.05)  # P(|Laplace(σ)| > t) = exp(−t/σ)
    drawn = np.abs(np.random.default_rng(1).laplace(scale=3.0, size=(4000, 506))).max(axis=1)
    assert np.median(drawn) == pytest.approx(largest, rel=0.1)


def test_a_table_of_noise_is_called_that() -> None:
    """σ = 2352 over 506 cells, the largest true count 3,046: no cell can be told from noise."""
    rng = np.random.default_rng(2)
    true = np.zeros(506)
    true[:40] = np.linspace(3046, 10, 40)
    found = [judge_table(true + rng.laplace(scale=2352.0, size=506), 2352.0) for _ in range(200)]
    assert np.mean([above > 0 for above, _ in found]) < 0.1
    none = next(said for above, said in found if not above)
    assert (
        none
        == "none of the 506 cells stands above the noise (each ± 7,046 in 95 %, the largest about 16,275,"
        " at most 20,060 in 95 %)"
    )
    true[:3] = 60_000
    above, said = judge_table(true + rng.laplace(scale=2352.0, size=506), 2352.0)
    assert (above, said.startswith("3 of the 506 cells stand above the noise")) == (3, True)


@pytest.mark.parametrize("cells", [1, 2, 30, 506])
def test_noise_alone_stands_above_itself_in_one_table_of_twenty(cells: int) -> None:
    scales = np.geomspace(1.0, 1000.0, cells)
    drawn = np.random.default_rng(cells).laplace(scale=scales, size=(4000, cells))
    assert np.mean([judge_table(table, scales)[0] > 0 for table in drawn]) < 0.06


def test_every_number_is_judged_by_its_own_noise() -> None:
    assert judge_table([[50.0], [50.0]], [[1.0], [100.0]])[0] == 1


def test_before_a_release_only_what_is_public_counts() -> None:
    assert "± 270 (95 %), and none can exceed 100" in str(judge_noise(90.0, 5, 100.0))
    assert "the largest of 1,000,000 noise values" in str(judge_noise(5.0, 1_000_000, 100.0))
    assert judge_noise(5.0, 5, 100.0) is None


def test_five_loci_with_much_noise_are_warned_about() -> None:
    people = tuple(Person(f"p{k}") for k in range(50))  # counts of at most 100
    profile = analyze_panel(Pedigree(people), {f"rs{k}": 0.3 for k in range(5)})
    found = calibrate_panel(profile, 10.0 / 90.0)
    assert (found.sigma, profile.largest_count, found.useless) == (pytest.approx(90, rel=0.01), 100, True)
    assert not calibrate_panel(profile, 4.0).useless
