"""What one answer of the reusable holdout costs, split into noise, ledger and query; one by one and in batch.

    python benchmarks/ledger.py [--folder DIR] [--single 200] [--batch 2000]

``--folder`` decides which disk is measured: a ledger entry costs what a durable commit costs there.
"""

from __future__ import annotations

import argparse
import platform
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from quiltdp import ReusableHoldout, Thresholdout
from quiltdp.accountant.ledger import Ledger, Terms
from quiltdp.mechanisms import SecureNoise

ROWS = 10_000


def timed(work: Callable[[], Any], repeat: int) -> float:
    """Return the mean time of one call, in microseconds."""
    work()
    start = time.perf_counter()
    for _ in range(repeat):
        work()
    return 1e6 * (time.perf_counter() - start) / repeat


def query(table: np.ndarray) -> np.ndarray:
    return table[:, 0] < 0.5


def holdout(path: Path | str, budget: int) -> ReusableHoldout:
    rng = np.random.default_rng(0)
    spec = Thresholdout(budget, 1 / ROWS)
    terms = Terms(spec, 0.003, 1.0, spec.dp_epsilon(0.003), 0.0, "informed", "benchmark", "0" * 64)
    return ReusableHoldout(rng.random((ROWS, 2)), rng.random((ROWS, 2)), terms, 0.1, path)


def measure(folder: Path, single: int, batch: int) -> dict[str, float]:
    """Return microseconds per answer."""
    made = holdout(folder / "single.db", 10_000)
    made.ask(query)
    found = {"one by one": timed(lambda: made.ask(query), single)}
    scales, noise = made._mechanism._scales, SecureNoise()
    found["  noise"] = timed(lambda: noise.laplace([0], scales[2]), single)
    found["  query"] = timed(lambda: made._units(query), single)

    def book() -> None:
        with made.ledger.transaction() as work:
            work.append("train", value=0.5)

    found["  ledger"] = timed(book, single)
    repeat = 3
    many = [query] * batch
    found["batch"] = timed(lambda: made.ask_many(many), repeat) / batch
    found["  batch noise"] = timed(lambda: noise.laplace([0] * batch, scales[2]), repeat) / batch
    found["  batch query"] = timed(lambda: [made._units(query) for _ in range(batch)], repeat) / batch

    def book_many() -> None:
        with made.ledger.transaction() as work:
            for _ in range(batch):
                work.append("train", value=0.5)

    found["  batch ledger"] = timed(book_many, repeat) / batch
    memory = holdout(":memory:", 10_000)
    memory.ask(query)
    found["one by one, ledger in memory"] = timed(lambda: memory.ask(query), single)
    entries = made.ledger.head.seq
    found["opening and verifying, per entry"] = timed(lambda: Ledger.open(made.ledger.path), 3) / entries
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--single", type=int, default=200)
    parser.add_argument("--batch", type=int, default=2000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        found = measure(Path(folder), options.single, options.batch)
    print(f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {platform.machine()}")
    print("| | µs per answer |\n|---|---:|")
    for name, cost in found.items():
        print(f"| {name} | {cost:,.1f} |")
    print(f"\nbatch is {found['one by one'] / found['batch']:.0f} times cheaper per answer")


if __name__ == "__main__":
    main()
