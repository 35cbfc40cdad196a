"""The campaign of sequential coupling in short form, and what campaigns share."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

campaigns = pytest.importorskip("campaigns")
coupling = pytest.importorskip("soundness_coupling")


def test_no_explicit_mechanism_beats_any_form() -> None:
    found = coupling.work("forms", range(990_000, 990_008))
    assert found["violations"] == []
    assert sum(found["leakages"].values()) > 3


def test_an_interrupted_campaign_goes_on_and_counts_the_same(tmp_path: Path) -> None:
    asked: list[range] = []

    def work(name: str, seeds: range) -> dict[str, object]:
        asked.append(seeds)
        return {"n": len(seeds), "of": {name: [float(s) for s in seeds]}, "violations": []}

    parts = [("a", range(2)), ("a", range(2, 4))]
    assert len(list(campaigns.kept(parts[:1], work, tmp_path))) == 1
    whole = campaigns.campaign({"a": range(6)}, 2, work, tmp_path)
    assert asked == [range(2), range(2, 4), range(4, 6)]
    (torn, *_) = sorted(tmp_path.iterdir())
    torn.write_text(torn.read_text()[:-20])
    again = campaigns.campaign({"a": range(6)}, 2, work, tmp_path)
    assert asked[3:] == [range(2)]  # what was torn is done again
    assert {**again, "seconds": 0} == {**whole, "seconds": 0}
    assert (whole["n"], whole["of"]) == (6, {"a": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]})
    assert whole["versions"] == {campaigns.version(): 3}


def test_a_section_takes_the_place_of_the_older_one() -> None:
    page = "# P\n\n## A\n\nold\n\n## B\n\nkept\n"
    assert campaigns.section(page, "## A", "## A\n\nnew\n") == "# P\n\n## A\n\nnew\n\n## B\n\nkept\n"
    assert campaigns.section(page, "## B", "## B\n\nnew") == "# P\n\n## A\n\nold\n\n## B\n\nnew\n"
    assert campaigns.section("# P\n", "## C", "## C\n\nnew") == "# P\n\n## C\n\nnew\n"


@pytest.mark.parametrize("wrong", ["0", "-1", "x", "1.5"])
def test_a_wrong_number_of_workers_is_one_line(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    campaigns.add_options(parser, "build/none")
    with pytest.raises(SystemExit):
        parser.parse_args([f"--workers={wrong}"])
    assert "is no number of processes" in capsys.readouterr().err
