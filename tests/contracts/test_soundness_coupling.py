"""The campaign of sequential coupling in short form, and what campaigns share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

campaigns = pytest.importorskip("campaigns")
coupling = pytest.importorskip("soundness_coupling")


@pytest.mark.parametrize(
    ("part", "seeds"), [("forms", range(990_000, 990_008)), ("left-out", range(990_000, 990_016))]
)
def test_no_explicit_mechanism_beats_any_form(part: str, seeds: range) -> None:
    found = coupling.work(part, seeds)
    assert found["violations"] == []
    assert sum(found["leakages"].values()) > 3


def test_an_interrupted_campaign_goes_on_and_counts_the_same(tmp_path: Path) -> None:
    asked: list[range] = []

    def work(name: str, seeds: range) -> dict[str, object]:
        asked.append(seeds)
        return {"n": len(seeds), "of": {name: [float(s) for s in seeds]}, "violations": []}

    parts = [("a", range(2)), ("a", range(2, 5))]
    campaigns.kept(parts[:1], work, tmp_path)
    whole = campaigns.kept(parts, work, tmp_path)
    assert asked == [range(2), range(2, 5)]
    assert (whole["n"], whole["of"]) == (5, {"a": [0.0, 1.0, 2.0, 3.0, 4.0]})
    assert whole["versions"] == {campaigns.version(): 2}


def test_a_section_takes_the_place_of_the_older_one() -> None:
    page = "# P\n\n## A\n\nold\n\n## B\n\nkept\n"
    assert campaigns.section(page, "## A", "## A\n\nnew\n") == "# P\n\n## A\n\nnew\n\n## B\n\nkept\n"
    assert campaigns.section(page, "## B", "## B\n\nnew") == "# P\n\n## A\n\nold\n\n## B\n\nnew\n"
    assert campaigns.section("# P\n", "## C", "## C\n\nnew") == "# P\n\n## C\n\nnew\n"
