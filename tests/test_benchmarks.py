"""The benchmarks run, say what they measured, and give the same numbers in workers."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module", autouse=True)
def beside_each_other() -> None:
    sys.path.append(str(ROOT / "benchmarks"))


@pytest.fixture
def bench() -> ModuleType:
    import bench

    return bench


def test_tables_are_markdown(bench: ModuleType) -> None:
    rows = [["x", 0.123456], ["y", None], ["z", [2.0, 1.0, 4.0]]]
    block = {"title": "T", "says": "S.", "columns": ["a", "b"], "rows": rows, "after": "E."}
    assert bench.markdown(block).splitlines() == [
        "### T", "", "S.", "", "| a | b |", "|---|---:|", "| x | 0.1235 |", "| y | – |",
        "| z | 2 (1–4) |", "", "E.",
    ]  # fmt: skip


def test_noise_is_compared_with_every_rival() -> None:
    import bench_noise

    for adversary, methods in bench_noise.COLUMNS.items():
        found = bench_noise.row("chains", "short", bench_noise.chain(0.45, 5), adversary)
        ours, exact, *others, group, limit, attained, _ = found[2:]
        assert len(others) == len(methods)
        assert ours == pytest.approx(exact, rel=1e-6)
        assert all(o is None or o >= ours * (1 - 1e-9) for o in (*others, group))
        assert attained >= 1.0 - 1e-9
        assert 0.99 * exact <= limit <= exact  # where an attack leaks ε, no method may pass


def test_slopes_are_exponents_of_growth() -> None:
    import bench_scaling

    assert bench_scaling.slope([1, 10, 100, 1000], [1.0, 3.0, 30.0, 300.0]) == pytest.approx(1.0)


def test_families_of_a_study_are_all_different() -> None:
    import family_shapes

    counts = [len(family_shapes.descents(people)) for people in range(1, 8)]
    assert counts == [1, 0, 1, 1, 3, 4, 10]  # counted by hand to five people
    some = family_shapes.families(500)
    lines = {tuple(family_shapes.fam_lines("F", one)) for one in some}
    assert len(lines) == 500
    assert {len(one.people) for one in some} <= set(range(4, 14))


def test_a_study_that_is_killed_goes_on(tmp_path: Path) -> None:
    import genome_study

    parts = genome_study.study(tmp_path, most=4, loci=20, workers=1)
    assert [size for size, _ in parts] == [2, 4]
    assert sum(run.families for _, runs in parts for run in runs) == 4
    assert "| 4 | 2 |" in genome_study.told(parts, 20, 1)


def test_the_report_in_the_documentation_is_of_this_form(bench: ModuleType) -> None:
    document = json.loads((ROOT / "docs" / "benchmarks" / "bench.json").read_text(encoding="utf-8"))
    assert set(document["sections"]) == set(bench.SECTIONS)
    stored = (ROOT / "docs" / "benchmarks" / "bench.md").read_text(encoding="utf-8")
    assert stored == bench.page(document)


def test_repetitions_and_seeds_in_workers_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import soundness
    import thresholdout_experiment as holdout
    from campaigns import kept

    monkeypatch.setattr(holdout, "LEVELS", {"weak": (0.2, 1)})
    base = holdout.Setting(rows=200, attributes=100, counts=(10, 20))
    with ThreadPoolExecutor(2) as pool:
        assert str(holdout.experiment(base, [0, 1], executor=pool)) == str(holdout.experiment(base, [0, 1]))
    parts = [("small", range(k, k + 1)) for k in (1_000_100, 1_000_101)]
    with ThreadPoolExecutor(2) as pool:
        here, there = (list(kept(parts, soundness.chunk, None, e)) for e in (None, pool))
    assert [{**one, "seconds": 0} for one in here] == [{**one, "seconds": 0} for one in there]


@pytest.mark.slow
def test_two_workers_in_the_soundness_campaign(tmp_path: Path) -> None:
    for count in ("1", "2"):
        words = ["--seeds", "400", "--large", "0", "--workers", count, "--state", str(tmp_path / count)]
        subprocess.run([sys.executable, str(ROOT / "benchmarks" / "soundness.py"), *words], check=True)
    for path in sorted((tmp_path / "1").iterdir()):
        one, two = (json.loads((tmp_path / count / path.name).read_text()) for count in ("1", "2"))
        assert {**one, "seconds": 0} == {**two, "seconds": 0}


def test_cold_starts_are_timed_with_what_they_answer(tmp_path: Path) -> None:
    import bench_startup

    words = bench_startup.calibrate("models/two_families.json", "prior")
    seconds, answer = bench_startup.child_seconds([*words, "--method", "group"], ROOT, str(tmp_path))
    assert answer is not None
    assert seconds > 0
    assert bench_startup.sigma(answer) == pytest.approx(10.0)
    assert bench_startup.child_seconds(["-c", "raise SystemExit(2)"], ROOT, str(tmp_path))[1] is None
    assert bench_startup.spread([2.0, 1.0, 4.0]) == [2.0, 1.0, 4.0]
    assert bench_startup.spread([]) is None
