"""Golden answers: σ and the leakage of every record on the bundled models, beside an earlier version.

python benchmarks/golden.py [--only asia,child] [--before FILE] [--docs PAGE] [--write FILE]

*before* is a file of answers (``tests/golden/answers.json`` unless ``--before`` names another), *after* is
measured now.  Leakages of both are at the old σ, so that like is compared with like; a ratio above 1 is an
answer that grew.  ``--write`` writes what was measured in the same format; models that were not measured
keep their answers.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

import quiltdp as qd
from quiltdp.accountant.calibration import calibrate_profile
from quiltdp.accountant.leakage import analyze

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "golden"))
from test_golden import BEFORE, leakages, load  # noqa: E402 - the test's own reading of the file

HEAD = """# Golden answers, before and after

Written by `benchmarks/golden.py`. *before* is the version before the one engine for messages on pairs of
states, *after* the version with it. *ratio* is σ after / before; *largest* and *any record* are ratios of
leakages at the σ before: of the largest, and of the record whose answer grew most (1 or less: none did).
Seconds are processor time of one thread, on a machine with other work.
"""
COLUMNS = ["model", "adversary", "ε", "σ before", "σ after", "ratio", "largest", "any record", "s before"]


def measured(path: str, before: list[Any]) -> Iterator[tuple[list[Any], list[str]]]:
    """Yield the answer and the line of the page, per adversary and ε."""
    model = load(path)
    name = Path(path).name.partition(".")[0]
    for adversary in ("informed", "prior"):
        started = time.process_time()
        profile = analyze(model, adversary=adversary, time_limit=3600.0)
        prepared = time.process_time() - started
        for _, epsilon, old in (row for row in before if row[0] == adversary):
            started = time.process_time()
            sigma = calibrate_profile(profile, epsilon, qd.Laplace(sensitivity=1.0), compare=False).sigma
            spent = prepared + time.process_time() - started
            found = profile.leakage(1.0 / sigma)
            answer = {
                "sigma": sigma,
                "cpu": round(spent, 2),
                "method": found.method,
                "leakage": runs(found.per_record.values_array),
            }
            then = leakages(old["leakage"])
            now = profile.leakage(1.0 / old["sigma"]).per_record.values_array[: len(then)]
            line = [name, adversary, f"{epsilon:g}", *cells(old, answer, then, now)]
            yield [adversary, epsilon, answer], line


def runs(values: np.ndarray) -> list[Any]:
    """Return leakages with eight digits, rounded up; equal neighbours once, with their count."""
    short = (float(f"{v * (1 + 5e-8):.8g}") for v in values)
    counted = [[value, len(list(group))] for value, group in groupby(short)]
    return [run if run[1] > 1 else run[0] for run in counted]


def cells(old: dict[str, Any], new: dict[str, Any], then: np.ndarray, now: np.ndarray) -> list[str]:
    with np.errstate(invalid="ignore", divide="ignore"):
        each = np.where(now <= then, np.minimum(now / np.maximum(then, 1e-300), 1.0), now / then)
    return [
        f"{old['sigma']:.6g}",
        f"{new['sigma']:.6g}",
        f"{new['sigma'] / old['sigma']:.4f}",
        f"{now.max() / then.max():.4f}",
        f"{each.max():.4f}",
        f"{old.get('cpu', math.nan):.1f}",
        f"{new['cpu']:.1f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="names of models, with commas")
    parser.add_argument("--before", type=Path, help="answers to compare with")
    parser.add_argument("--docs", type=Path, help="the page to write")
    parser.add_argument("--write", type=Path, help="where to write the answers")
    options = parser.parse_args()
    before = BEFORE if options.before is None else json.loads(options.before.read_text())
    chosen = {n for n in options.only.split(",") if n}
    lines = ["| " + " | ".join([*COLUMNS, "s after"]) + " |", "|" + "---|" * (len(COLUMNS) + 1)]
    answers = dict(before)
    for path in before:
        if chosen and Path(path).name.partition(".")[0] not in chosen:
            continue
        answers[path] = []
        for answer, row in measured(path, before[path]):
            answers[path].append(answer)
            lines.append("| " + " | ".join(row) + " |")
            print(lines[-1], flush=True)
        if options.docs is not None:
            options.docs.write_text("\n".join([HEAD, *lines]) + "\n", encoding="utf-8")
        if options.write is not None:
            options.write.write_text(written(answers), encoding="utf-8")


def written(answers: dict[str, list[Any]]) -> str:
    """Return the answers as a file, one line for each."""
    models = []
    for path, rows in answers.items():
        told = (json.dumps(row, separators=(",", ":")) for row in rows)
        models.append(f"  {json.dumps(path)}: [\n" + ",\n".join(f"    {line}" for line in told) + "\n  ]")
    return "{\n" + ",\n".join(models) + "\n}\n"


if __name__ == "__main__":
    main()
