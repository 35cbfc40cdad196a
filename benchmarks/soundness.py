"""Soundness campaign: every method against the exact limit, on random networks.

    python benchmarks/soundness.py --seeds 1000 [--start 0] [--docs docs/benchmarks/soundness.md]

Each seed draws a network (3 to 5 nodes, 2 or 3 states, zeros and latents now and then), an α between
0.02 and 4, and evaluates every method of both adversaries.  A violation is a bound below the limit by
more than 1e-7; the seed is printed, so that it can be drawn again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

import quiltdp as qd
from quiltdp.accountant.methods import METHODS
from quiltdp.errors import QuiltdpError


def draw(seed: int) -> tuple[qd.Model, float]:
    """Return the network and the α of a seed."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(3, 6))
    sizes = rng.integers(2, 4, count) if rng.random() < 0.5 else np.full(count, 2)
    zeros = rng.random() < 0.3
    chain = rng.random() < 0.25
    tables: dict[str, tuple[list[str], np.ndarray]] = {}
    for k in range(count):
        parents = [k - 1] if chain and k else []
        if not chain:
            most = min(k, 2)
            parents = (
                sorted(rng.choice(k, size=int(rng.integers(0, most + 1)), replace=False).tolist())
                if k
                else []
            )
        shape = [int(sizes[p]) for p in parents]
        table = rng.dirichlet(np.full(int(sizes[k]), rng.choice([0.3, 1.0, 5.0])), size=shape or None)
        table = np.maximum(table, 1e-9)
        if zeros:
            table = np.where(rng.random(table.shape) < 0.2, 0.0, table)
            dead = table.sum(axis=-1) == 0
            table[dead, 0] = 1.0
        table = table / table.sum(axis=-1, keepdims=True)
        tables[f"X{k}"] = ([f"X{p}" for p in parents], table)
    records = [f"X{k}" for k in range(count) if rng.random() < 0.85]
    return qd.Model.from_tables(tables, records or ["X0"]), float(
        np.exp(rng.uniform(np.log(0.02), np.log(4.0)))
    )


def campaign(seeds: range) -> tuple[dict[tuple[str, str], list[float]], list[str]]:
    """Return the ratios to the limit per (adversary, method), and the violations."""
    ratios: dict[tuple[str, str], list[float]] = defaultdict(list)
    violations: list[str] = []
    for seed in seeds:
        model, alpha = draw(seed)
        for adversary, methods in METHODS.items():
            limit = qd.leakage(model, alpha, "exact", adversary).per_record
            for method in ("auto", *methods):
                if method == "exact":
                    continue
                try:
                    found = qd.leakage(model, alpha, method, adversary, time_limit=10.0).per_record
                except QuiltdpError:
                    continue
                for record in model.records:
                    if found[record] < limit[record] - 1e-7 * max(1.0, limit[record]):
                        where = f"seed {seed}: {adversary}/{method} on {record}"
                        violations.append(f"{where}: {found[record]} < {limit[record]}")
                top = max(limit.values())
                if top > 0:
                    ratios[adversary, method].append(max(found.values()) / top)
    return ratios, violations


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--docs", type=Path)
    options = parser.parse_args()
    started = time.monotonic()
    seeds = range(options.start, options.start + options.seeds)
    ratios, violations = campaign(seeds)
    lines = ["| adversary | method | networks | median × limit | 95 % | worst |", "|---|---|---|---|---|---|"]
    for (adversary, method), values in sorted(ratios.items()):
        finite = np.array(values)
        q = np.quantile(finite, [0.5, 0.95])
        lines.append(
            f"| {adversary} | {method} | {len(values)} | {q[0]:.3f} | {q[1]:.3f} | {finite.max():.3f} |"
        )
    print("\n".join(lines))
    seconds = time.monotonic() - started
    said = f"seeds {seeds.start} to {seeds.stop - 1}: {len(violations)} violations, {seconds:.0f} s"
    print(said)
    print("\n".join(violations))
    if options.docs is not None:
        text = (
            "# Soundness campaign\n\n"
            "Every method against the exact limit on random networks (3 to 5 nodes, 2 or 3 states, zeros and"
            " latents now and then, α between 0.02 and 4); `make soundness` runs it.\n\n"
            f"Last run: {said}.\n\n" + "\n".join(lines) + "\n"
        )
        options.docs.write_text(text)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
