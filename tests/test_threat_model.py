"""Every claim of the threat model names a test, and every test it names exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "threat_model.md").read_text(encoding="utf-8")


def test_every_test_that_is_named_exists() -> None:
    defined = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        defined |= set(re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 60
    assert sorted(named - defined) == []


def test_every_row_names_a_test() -> None:
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    for section in sections:
        if section.split("\n")[0] in ("Asking", "Charging", "Faults", "Over the network"):
            table = section[section.index("| attempt |") :] if "| attempt |" in section else section
            rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
            assert rows
            assert [row for row in rows if "`test_" not in row] == []
