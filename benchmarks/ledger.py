"""What one answer of the reusable holdout costs, split into noise, ledger and query; one by one and in batch.

    python benchmarks/ledger.py [--folder DIR] [--chunk 10] [--batch 500]

``--folder`` decides which disk is measured: a ledger entry costs what a durable commit costs there.
"""

from __future__ import annotations

import argparse
import platform
import sqlite3
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from quiltdp import ReusableHoldout, Thresholdout
from quiltdp.accountant.ledger import Ledger, Outcome, Request, Terms
from quiltdp.mechanisms import SecureNoise

ROWS = 10_000


def timed(work: Callable[[], Any], answers: int = 1, *, chunk: int = 1, repeat: int = 15) -> float:
    """Return microseconds per answer: the best of ``repeat`` runs of ``chunk`` calls, after a warm-up.

    The best run is the one that other processes of the machine disturbed least.
    """
    work()
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        for _ in range(chunk):
            work()
        best = min(best, time.perf_counter() - start)
    return 1e6 * best / (chunk * answers)


def query(table: np.ndarray) -> np.ndarray:
    return table[:, 0] < 0.5


def holdout(path: Path | str, budget: int) -> ReusableHoldout:
    rng = np.random.default_rng(0)
    spec = Thresholdout(budget, 1 / ROWS)
    terms = Terms(spec, 0.003, 1e6, spec.dp_epsilon(0.003), 0.0, "informed", "benchmark", "0" * 64)
    return ReusableHoldout(rng.random((ROWS, 2)), rng.random((ROWS, 2)), terms, 0.1, path)


def measure(folder: Path, chunk: int, batch: int) -> dict[str, float]:
    """Return microseconds per answer."""
    made = holdout(folder / "study.db", 100_000)
    noise, scale = SecureNoise(), made._mechanism._scales[2]

    def book(count: int) -> None:
        with made.ledger.visit() as visit:
            reserved = visit.reserve([Request("query")] * count, Fraction(0), 0)
            reserved.settle([Outcome("train", value=0.5)] * count, None)

    def read() -> None:
        made._tables.on_holdout(query, made._on_training(query, None))

    memory = holdout(":memory:", 100_000)
    found = {
        "one by one": timed(lambda: made.ask(query), chunk=chunk),
        "noise": timed(lambda: noise.laplace([0], scale), chunk=chunk),
        "query": timed(read, chunk=chunk),
        "ledger": timed(lambda: book(1), chunk=chunk),
        "batch": timed(lambda: made.ask_many([query] * batch), batch),
        "batch: noise": timed(lambda: noise.laplace([0] * batch, scale), batch),
        "batch: query": timed(lambda: [read() for _ in range(batch)], batch),
        "batch: ledger": timed(lambda: book(batch), batch),
        "one by one, ledger in memory": timed(lambda: memory.ask(query), chunk=chunk),
    }
    entries = made.ledger.head.seq
    found["opening and verifying, per entry"] = timed(
        lambda: Ledger.open(made.ledger.path), entries, repeat=3
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--chunk", type=int, default=10, help="single questions per run")
    parser.add_argument("--batch", type=int, default=500, help="questions per batch")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        found = measure(Path(folder), options.chunk, options.batch)
    print(f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {platform.machine()}")
    print("| | µs per answer |\n|---|---:|")
    for name, cost in found.items():
        print(f"| {name} | {cost:,.1f} |")
    print(f"\nbatch is {found['one by one'] / found['batch']:.0f} times cheaper per answer")


if __name__ == "__main__":
    main()
