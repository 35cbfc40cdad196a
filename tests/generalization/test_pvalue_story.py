"""The p-value story at a small size: without correction the level is a joke, with it it holds."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "pvalue_story.py"


@pytest.fixture(scope="module")
def story():
    spec = importlib.util.spec_from_file_location("pvalue_story", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["pvalue_story"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("flip", [0.4, 0.05])
def test_false_positives(story, flip):
    found = story.rejections(flip, 0.0, 120, 7, rows=300)
    assert found["as if independent"]["rejected"] > 0.85
    assert found["for these rows"]["rejected"] > 0.7  # the right law for the rows does not undo the choice
    assert found["corrected"]["rejected"] <= 0.05


def test_an_effect_is_still_found(story):
    found = story.rejections(0.25, 0.5, 40, 8, rows=600)
    assert found["chose the true one"] > 0.9
    assert found["corrected"]["rejected"] > 0.9


def test_the_law_of_the_agreement_is_right(story):
    """A hypothesis fixed beforehand: the exact p-value is uniform, the one for independent rows is not."""
    rng = np.random.default_rng(9)
    rows, flip = 200, 0.05
    data = story.chains(rng, rows, 4000, flip)
    agree = (data[:, ::2] == data[:, 1::2]).sum(axis=0)
    p = story.two_sided(rows, flip)[agree]
    for level in (0.05, 0.3):
        assert np.mean(p <= level) <= level + 4 * (level / 2000) ** 0.5
        assert np.mean(p <= level) >= level - 0.05
    assert np.all(np.diff(story.two_sided(rows, flip)[: rows // 2 + 1]) >= -1e-12)
    assert story.table({"x": story.rejections(0.4, 0.0, 5, 1, rows=50)})[-1].startswith("| x |")
