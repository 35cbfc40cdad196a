"""Every picture of the documentation carries the data it was drawn from, and they are today's."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
DIGITS = 1e-6  # no picture prints more than six digits
NAMES = sorted(path.stem for path in (ROOT / "docs" / "figures").glob("*.png"))
SLOW = {"kl_privacy_figure2"}


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    pytest.importorskip("PIL")
    spec = importlib.util.spec_from_file_location("figures", ROOT / "tools" / "figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["figures"] = module
    spec.loader.exec_module(module)
    return module


def leaves(data: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every number and word of a document with its place."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from leaves(value, f"{at}/{key}")
    elif isinstance(data, list | tuple):
        for k, value in enumerate(data):
            yield from leaves(value, f"{at}/{k}")
    else:
        yield at, data


def test_every_picture_has_what_computes_it(figures: ModuleType) -> None:
    assert sorted(figures.PICTURES) == NAMES


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in NAMES])
def test_pictures_show_what_the_program_computes(figures: ModuleType, name: str) -> None:
    """A difference: draw the picture anew with ``make figures`` and look at it."""
    path = ROOT / "docs" / "figures" / f"{name}.png"
    shown, now = (dict(leaves(d)) for d in (figures.drawn_from(path), figures.PICTURES[name][0]()))
    for at, value in now.items():
        expected = pytest.approx(value, rel=DIGITS) if isinstance(value, float) else value
        assert shown.get(at) == expected, at
