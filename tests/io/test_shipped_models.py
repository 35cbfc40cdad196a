"""Everything in models/ is small, has a source, and can be read."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from quiltdp import load_model

MODELS = Path(__file__).parents[2] / "models"
FILES = sorted(p for p in MODELS.rglob("*") if p.is_file() and p.name != "SOURCES.md")


def sources(file: Path) -> Path:
    """Return the SOURCES.md that speaks for a file."""
    top = file.relative_to(MODELS).parts[0]
    return (MODELS / top if (MODELS / top).is_dir() else MODELS) / "SOURCES.md"


@pytest.mark.parametrize("file", FILES, ids=lambda p: p.relative_to(MODELS).as_posix())
def test_every_file_has_a_source(file):
    page = sources(file)
    patterns = re.findall(r"[\w./*-]+\.(?:\w+)", page.read_text(encoding="utf-8"))
    name = file.relative_to(page.parent).as_posix()
    assert any(fnmatch(name, pattern) for pattern in patterns)


def test_the_models_are_small():
    assert sum(p.stat().st_size for p in FILES) < 6e6


@pytest.mark.parametrize(
    "file", [p for p in FILES if p.parent == MODELS and p.suffix != ".gz"], ids=lambda p: p.name
)
def test_networks_and_chains_can_be_read(file):
    model = load_model(file)
    assert len(model.records) == len(model.nodes)
    assert model.provenance["file"] == str(file)
