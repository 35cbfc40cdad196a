"""Rows that break the rule they are said to follow: refused, or the promise kept; and rows that follow it.

    python benchmarks/rows.py --seeds 100

Errors come in regimes (label and guess each look independent in time) or come again after some rows.  A
table is *refused* by ``fit_rows``, or the holdout's own mean of ``guess == label`` is compared with the
population's: *kept* within what a plan for 1,000 queries with budget 5 promises, else *missed*.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable

import numpy as np

import quiltdp as qd
from quiltdp.domains.series.rows import fit_rows
from quiltdp.errors import InvalidArgument

Table = dict[str, np.ndarray]
WRONG = 0.25


def guessed(rng: np.random.Generator, label: np.ndarray, wrong: np.ndarray | float) -> Table:
    return {"label": label, "guess": label ^ (rng.random(len(label)) < wrong)}


def regimes(length: int, apart: float) -> Callable[[np.random.Generator, int], Table]:
    """Return a draw whose errors have rate 0.25 ± apart, in turns of so many rows."""

    def draw(rng: np.random.Generator, rows: int) -> Table:
        turn = (np.arange(rows) + rng.integers(2 * length)) // length % 2
        return guessed(rng, rng.integers(0, 2, rows), WRONG - apart + 2 * apart * turn)

    return draw


def again(lag: int, keep: float) -> Callable[[np.random.Generator, int], Table]:
    """Return a draw in which an error is that of so many rows earlier with some probability."""

    def draw(rng: np.random.Generator, rows: int) -> Table:
        wrong, copied = rng.random(rows) < WRONG, rng.random(rows) < keep
        for t in np.flatnonzero(copied[lag:]) + lag:
            wrong[t] = wrong[t - lag]
        return guessed(rng, rng.integers(0, 2, rows), wrong.astype(float))

    return draw


def chain(stay: float) -> Callable[[np.random.Generator, int], Table]:
    """Return a draw of a label that stays with some probability; errors are independent."""

    def draw(rng: np.random.Generator, rows: int) -> Table:
        return guessed(rng, (np.cumsum(rng.random(rows) > stay) + rng.integers(2)) % 2, WRONG)

    return draw


KINDS = {
    **{
        f"regimes of {n:,}, ± {a}": regimes(n, a) for n in (300, 1000, 3000, 10_000) for a in (0.2, 0.1, 0.05)
    },
    **{f"again after {n}, {k}": again(n, k) for n in (2, 5, 7, 24, 100, 1000) for k in (0.3, 0.1)},
    "independent": chain(0.5),
    "label chain 0.8": chain(0.8),
    "label chain 0.9": chain(0.9),
}


def judged(kind: str, seed: int, rows: int) -> str:
    """Return what became of one table."""
    rng = np.random.default_rng([seed, sum(map(ord, kind))])
    try:
        model = fit_rows(KINDS[kind](rng, rows), "time")
    except InvalidArgument:
        return "refused"
    fresh = KINDS[kind](rng, rows)
    off = abs(np.mean(fresh["guess"] == fresh["label"]) - (1 - WRONG))
    if off < 0.01:  # no plan promises less
        return "kept"
    return "kept" if off <= qd.plan(model, queries=1000, budget=5).accuracy else "missed"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--rows", type=int, default=20_000)
    given = parser.parse_args()
    print("| rows | refused | kept | missed |\n|---|---:|---:|---:|")
    for kind in KINDS:
        found = Counter(judged(kind, seed, given.rows) for seed in range(given.seeds))
        print(f"| {kind} | {found['refused']} | {found['kept']} | {found['missed']} |", flush=True)


if __name__ == "__main__":
    main()
