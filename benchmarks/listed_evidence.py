"""Every adversary by itself, against the truth: leakages of small loopy models, by enumeration.

    python benchmarks/listed_evidence.py --seeds 1500 [--start 0] [--state DIR] [--docs PAGE.md]

The models are those of benchmarks/worst_evidence.py: four to six nodes with loops, two or three states,
zeros, near zeros and extreme tables, latents, equal and unequal α between 0.01 and 5.  The leakage of every
record, of one pair of records, and of one record against somebody who may know two declared records, or any
one, is compared with what some mechanism attains against somebody (tests/loopy_truth.py).  A bound that lies
below by more than 1e-9 is a violation; its seed is printed.  A campaign goes on where it stopped.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import loopy_truth as truth
from campaigns import loopy

from quiltdp.accountant.adversaries import INFORMED, Adversary, knows
from quiltdp.accountant.bounds.contract import ready
from quiltdp.accountant.bounds.listed_evidence import ListedEvidenceBound
from quiltdp.errors import ModelTooWide

HEADING = "## Listed evidence"
_TOLERANCE = 1e-9
CHUNK = 25


@dataclass
class Tally:
    """What was compared so far, what was refused, and what failed."""

    models: int = 0
    refused: int = 0
    ratios: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    compared: int = 0
    loops_of_six: int = 0
    violations: list[str] = field(default_factory=list)


def compare(seed: int, tally: Tally) -> None:
    """Add everything about one seed."""
    model, alpha = truth.drawn(seed)
    records = list(model.records)
    pair = [(records[0], records[-1])] if len(records) > 2 else []
    some = [(records[seed % len(records)],)]
    declared = records[seed % 2 :: 2][:2]
    asked: list[tuple[str, Adversary, list[tuple[str, ...]], list[str], int | None]] = [
        ("informed", INFORMED, [*((n,) for n in records), *pair], records, None),
        ("two declared records", knows(*declared), some, declared, None),
        ("any one record", knows(1), some, records, 1),
    ]
    vector = np.array([alpha.get(n, 0.0) for n in model.nodes])
    tally.models += 1
    for who, adversary, units, named, most in asked:
        try:
            bound = ready(ListedEvidenceBound, model, units, adversary=adversary)
        except ModelTooWide:
            tally.refused += 1
            return
        for unit, value in zip(units, bound.evaluate(vector).values.tolist(), strict=True):
            rest = [n for n in records if n not in unit]
            found = truth.attained(model, alpha, unit, rest, own=True, most=most, may_know=named)
            real = found.get(((), ()), 0.0)
            tally.compared += 1
            tally.loops_of_six += truth.shape_of(seed) == "loop of six"
            if value < real - _TOLERANCE:
                tally.violations.append(
                    f"seed {seed}: {unit}, {who}, leaks {real:.9g}, the bound says {value:.9g}"
                )
            if real > 1e-9:
                tally.ratios["pairs of records" if len(unit) > 1 else who].append(round(value / real, 6))


def work(_: str, seeds: range) -> dict[str, Any]:
    """Return the sums of some seeds."""
    tally = Tally()
    for seed in seeds:
        compare(seed, tally)
    return vars(tally)


def page(total: dict[str, Any], seeds: range) -> str:
    """Return the section of the documentation."""
    rows = [
        f"| {kind} | {len(r):,} | {np.median(r):.4f} | {np.quantile(r, 0.9):.3f} | {max(r):.2f} |"
        for kind, r in sorted(total["ratios"].items())
    ]
    listed = "".join(f"\n- {v}" for v in total["violations"])
    head = f"""{HEADING}

`python benchmarks/listed_evidence.py` compares the bound with enumeration on the same models: every record,
one pair of records, and adversaries who may know two declared records, or any one.

Last run: seeds {seeds.start} to {seeds.stop - 1}: {total["models"]:,} models ({total["refused"]:,} refused:
masses out of the range of doubles), {total["compared"]:,} leakages
({total["loops_of_six"]:,} of loops of six), **{len(total["violations"])} violations**;
{total["seconds"]:,.0f} s of processor time, {len(total["versions"])} version(s) of the sources.
{listed}
| adversary | leakages | median × attained | 90 % | worst |
|---|---|---|---|---|
"""
    return head + "\n".join(rows) + "\n"


def main() -> int:
    """Run the campaign; exit 1 if anything is below the truth."""
    return loopy(__doc__, 1500, "build/listed-evidence", CHUNK, work, HEADING, page)


if __name__ == "__main__":
    sys.exit(main())
