"""Before and after the work budgets: σ, the leakage of every record, and processor seconds.

python benchmarks/golden.py [--only asia,child] [--docs docs/benchmarks/golden.md]

Before is ``tests/golden/answers.json`` (every model × ε × adversary, 30 seconds per question on an idle
machine); after is measured now.  Both columns of records are at the old σ, so that like is compared with
like; a ratio above 1 is an answer that grew.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import quiltdp as qd
from quiltdp.accountant.calibration import calibrate_profile

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "golden"))
from test_golden import BEFORE, leakages, load  # noqa: E402 - the test's own reading of the file

HEAD = """# Golden answers, before and after

Written by `benchmarks/golden.py`. *σ* is the ratio after / before; *largest* and *any record* are ratios of
leakages at the old σ: of the largest, and of the record whose answer grew most (1 or less: none did). Seconds
are processor time, before on an idle machine, after {when}.
"""
COLUMNS = ["model", "adversary", "ε", "σ before", "σ", "largest", "any record", "s before", "s after"]


def rows(path: str) -> Iterator[list[str]]:
    """Yield one line per adversary and ε."""
    model = load(path)
    name = Path(path).name.partition(".")[0]
    for adversary in ("informed", "prior"):
        started = time.process_time()
        profile = qd.analyze(model, adversary=adversary)
        prepared = time.process_time() - started
        for _, epsilon, before in (row for row in BEFORE[path] if row[0] == adversary):
            started = time.process_time()
            sigma = calibrate_profile(profile, epsilon, qd.Laplace(sensitivity=1.0), compare=False).sigma
            spent = prepared + time.process_time() - started
            then = leakages(before["leakage"])
            now = profile.leakage(1.0 / before["sigma"]).per_record.values_array[: len(then)]
            yield [name, adversary, f"{epsilon:g}", *_cells(before, sigma, then, now, spent)]


def _cells(
    before: dict[str, Any], sigma: float, then: np.ndarray, now: np.ndarray, spent: float
) -> list[str]:
    with np.errstate(invalid="ignore", divide="ignore"):
        each = np.where(now <= then, np.minimum(now / np.maximum(then, 1e-300), 1.0), now / then)
    return [
        f"{before['sigma']:.6g}",
        f"{sigma / before['sigma']:.4f}",
        f"{now.max() / then.max():.4f}",
        f"{each.max():.4f}",
        f"{before.get('seconds', before.get('cpu', float('nan'))):.1f}",
        f"{spent:.1f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--when", default="now", help="what to say about the machine")
    parser.add_argument("--docs", type=Path)
    given = parser.parse_args()
    chosen = {n for n in given.only.split(",") if n}
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for path in BEFORE:
        if chosen and Path(path).name.partition(".")[0] not in chosen:
            continue
        for row in rows(path):
            lines.append("| " + " | ".join(row) + " |")
            print(lines[-1], flush=True)
            if given.docs is not None:
                given.docs.write_text(
                    "\n".join([HEAD.format(when=given.when), *lines]) + "\n", encoding="utf-8"
                )


if __name__ == "__main__":
    main()
