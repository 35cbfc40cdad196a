"""Builds the navigation from the pages that exist: the well-known first, then the rest by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

FIRST = (
    "index",
    "guide",
    "accountant",
    "report",
    "fit",
    "formats",
    "pedigrees",
    "traces",
    "holdout",
    "threat_model",
    "scaling",
    "generalization",
    "faq",
    "theory",
)
LAST = ("papers", "errata", "benchmarks", "architecture", "by_hand", "api", "reference")


def on_config(config: Any) -> Any:
    """Fill ``nav`` before the site is built."""
    config["nav"] = entries(Path(config["docs_dir"]), Path(config["docs_dir"]))
    return config


def entries(folder: Path, root: Path) -> list[Any]:
    """Return the pages of a folder and, as sections, its folders that hold pages."""
    found: list[Any] = []
    for path in sorted(folder.iterdir(), key=rank):
        if path.suffix == ".md":
            found.append(path.relative_to(root).as_posix())
        elif path.is_dir():
            inner = entries(path, root)
            if inner:
                found.append({path.name.replace("_", " ").capitalize(): inner})
    return found


def rank(path: Path) -> tuple[int, str]:
    """Order by place in the lists above, then by name."""
    if path.stem in FIRST:
        return FIRST.index(path.stem), ""
    if path.stem in LAST:
        return 1000 + LAST.index(path.stem), ""
    return 100, path.stem
