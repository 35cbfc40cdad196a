"""Where the optional, unshipped files are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with data that may not be shipped; tests that need it are skipped without it."""
    root = Path(__file__).parents[3]
    for place in (os.environ.get("QUILTDP_SHARED"), root.parent / "shared"):
        if place and (Path(place) / "data").is_dir():
            return Path(place) / "data"
    pytest.skip("the unshipped data is not here")
