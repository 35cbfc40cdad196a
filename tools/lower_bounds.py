"""Print the lower bounds of pyproject.toml as constraints: ``numpy>=2.0`` becomes ``numpy==2.0.*``.

``make test-lowest`` installs these and runs the tests, so that every lower bound is one that works.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def lower_bounds() -> list[str]:
    """Return one constraint per dependency with a lower bound, extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    found = {}
    for requirement in (r for group in groups for r in group):
        match = re.fullmatch(r"([A-Za-z0-9._-]+)(?:\[.*\])?>=([0-9.]+)", requirement)
        if match:
            found[match[1]] = f"{match[1]}=={match[2]}.*"
    return [found[name] for name in sorted(found)]


if __name__ == "__main__":
    print("\n".join(lower_bounds()))
