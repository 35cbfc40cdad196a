"""The soundness campaign: every bound against the exact limit on random small networks.

Run with ``python benchmarks/soundness.py [--seeds 1000] [--first 0]``, or ``make soundness SEEDS=…``.  Seed s
makes one network (2 to 5 nodes, 2 or 3 states, random arrows; some with exact zeros, some with latents) and
one α.  For both adversaries every method is compared, record by record, with the exact limit: what the worst
α-DP mechanism leaks.  A bound below it is a violation, printed with its seed; then the exit code is 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field

import numpy as np

import quiltdp as qd
from quiltdp.accountant.methods import METHODS
from quiltdp.accountant.profile import analyze
from quiltdp.errors import QuiltdpError

SLACK = 1e-7  # of the linear programs behind the limit


@dataclass
class Tally:
    """What one method did over all networks."""

    ratios: list[float] = field(default_factory=list)
    refused: int = 0
    violations: int = 0
    worst_seed: int = -1


def random_model(seed: int) -> tuple[qd.Model, float]:
    """Return the network and the α of a seed."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 6))
    sizes = rng.integers(2, 4 if n < 5 else 3, size=n)
    zeros = float(rng.choice([0.0, 0.0, 0.25]))
    tables: dict[str, tuple[list[str], np.ndarray]] = {}
    for k in range(n):
        parents = [j for j in range(k) if rng.random() < 0.5][:3]
        table = rng.gamma(float(rng.choice([0.3, 1.0, 3.0])), size=(*sizes[parents], sizes[k])) + 1e-6
        mask = rng.random(table.shape) < zeros
        np.put_along_axis(mask, rng.integers(sizes[k], size=(*sizes[parents], 1)), False, axis=-1)
        table[mask] = 0.0
        tables[f"X{k}"] = ([f"X{j}" for j in parents], table / table.sum(axis=-1, keepdims=True))
    records = [x for x in tables if rng.random() < 0.8] if rng.random() < 0.4 else list(tables)
    return qd.Model.from_tables(tables, records or ["X0"]), float(rng.choice([0.03, 0.1, 0.3, 1.0]))


def compare(seed: int, adversary: str, tallies: dict[str, Tally]) -> None:
    """Compare every method with the exact limit on one network."""
    model, alpha = random_model(seed)
    limit = analyze(model, method="exact", adversary=adversary).leakage(alpha).per_record
    for name in METHODS[adversary]:
        tally = tallies.setdefault(name, Tally())
        try:
            bound = analyze(model, method=name, adversary=adversary).leakage(alpha).per_record
        except QuiltdpError:  # chains only, positive tables only, …: no number was claimed
            tally.refused += 1
            continue
        for record in limit:
            if bound[record] < limit[record] * (1 - SLACK) - SLACK:
                tally.violations += 1
                print(f"VIOLATION seed {seed}, {adversary}, {name}, record {record}, α = {alpha}:", end=" ")
                print(f"bound {bound[record]!r} < limit {limit[record]!r}", flush=True)
            ratio = bound[record] / limit[record] if limit[record] > 0 else 1.0
            if not tally.ratios or ratio > max(tally.ratios):
                tally.worst_seed = seed
            tally.ratios.append(ratio)


def table(adversary: str, tallies: dict[str, Tally]) -> None:
    """Print how far above the limit each method was."""
    head = ["records", "median of bound / limit", "worst", "its seed", "refused", "violations"]
    print(f"\n| {adversary} adversary | {' | '.join(head)} |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, t in tallies.items():
        if t.ratios:
            middle, worst = float(np.median(t.ratios)), max(t.ratios)
            shown = f"{middle:.3f} | {worst:.3f} | {t.worst_seed}"
        else:
            shown = "– | – | –"
        print(f"| {name} | {len(t.ratios):,} | {shown} | {t.refused} | {t.violations} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many networks")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    start = time.perf_counter()
    tallies: dict[str, dict[str, Tally]] = {"informed": {}, "prior": {}}
    seeds = range(options.first, options.first + options.seeds)
    for done, seed in enumerate(seeds, 1):
        for adversary, found in tallies.items():
            compare(seed, adversary, found)
        if done % 50 == 0:
            print(f"{done} networks, {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    violations = sum(t.violations for found in tallies.values() for t in found.values())
    print(f"Seeds {seeds.start} to {seeds.stop - 1}: {len(seeds)} networks, {violations} violations.")
    for adversary, found in tallies.items():
        table(adversary, found)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
