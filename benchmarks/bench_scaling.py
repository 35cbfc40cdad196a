"""How time grows with nodes, states, width, loci and families; what workers cost and gain."""

from __future__ import annotations

import logging
import math
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import quiltdp as qd
from quiltdp.accountant.leakage import analyze
from quiltdp.chain import ChainModel, ChainSegment
from quiltdp.parallel import Workers, each

_SHAPES = 600  # families of up to twelve people, of which the first ones are taken

ROOT = Path(__file__).resolve().parents[1]


def clocked(work: Callable[[], Any]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def slope(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the exponent of growth: the slope of a line through logarithms, the largest half of sizes."""
    half = len(sizes) // 2
    x, y = np.log(sizes[half - 1 :]), np.log(np.maximum(seconds[half - 1 :], 1e-6))
    return float(np.polyfit(x, y, 1)[0])


def chain_of_length(length: int) -> Callable[[], Any]:
    matrix = np.random.default_rng(0).dirichlet(np.full(9, 0.5), size=9) * 0.98 + 0.02 / 9
    return lambda: qd.dp_epsilon(qd.markov_chain(matrix, length), 1.0, adversary="prior")


def hours_of_length(length: int) -> Callable[[], Any]:
    rng = np.random.default_rng(0)
    day = [rng.dirichlet(np.full(9, 0.5), size=9) * 0.9 + 0.1 / 9 for _ in range(24)]
    steps = [day[(12 * k // 12) % 24] for k in range(length - 1)]
    return lambda: qd.dp_epsilon(qd.markov_chain(steps, length, initial=np.full(9, 1 / 9)), 1.0)


def chain_of_states(states: int) -> Callable[[], Any]:
    matrix = np.random.default_rng(0).dirichlet(np.full(states, 0.5), size=states) * 0.98 + 0.02 / states
    return lambda: qd.dp_epsilon(qd.markov_chain(matrix, 10_000), 1.0)


def tree_of_nodes(count: int) -> Callable[[], Any]:
    rng = np.random.default_rng(1)
    cpt = np.array([[0.7, 0.3], [0.3, 0.7]])
    tables: dict[str, tuple[list[str], object]] = {"n0": ([], [0.5, 0.5])}
    tables |= {f"n{k}": ([f"n{rng.integers(max(0, k - 50), k)}"], cpt) for k in range(1, count)}
    model = qd.Model.from_tables(tables)
    return lambda: analyze(model, method="propagation").epsilon(0.01)


def grid_of_width(width: int) -> Callable[[], Any]:
    """A grid of 8 columns: its junction tree is as wide as its rows are many, 2 ** width states a clique."""
    rng = np.random.default_rng(2)
    tables: dict[str, tuple[list[str], object]] = {}
    for column in range(8):
        for row in range(width):
            parents = [f"x{row - 1}.{column}"] * (row > 0) + [f"x{row}.{column - 1}"] * (column > 0)
            tables[f"x{row}.{column}"] = (parents, rng.dirichlet([2.0, 2.0], size=(2,) * len(parents)))
    model = qd.Model.from_tables(tables)
    return lambda: qd.leakage(model, 0.01, "coupling", "prior", work="thorough")


def panel_of_loci(count: int) -> Callable[[], Any]:
    from quiltdp.domains.pedigree.genome import account_families, count_frequencies

    path = genome_file(count)
    family = qd_family()

    def run() -> Any:
        return list(account_families([family], count_frequencies(path), epsilon=1.0, nodes=8))

    return run


@cache
def folder() -> Any:
    """Return a temporary folder that is gone when the run ends."""
    return tempfile.TemporaryDirectory(prefix="quiltdp-bench-")


def genome_file(count: int) -> Path:
    """Write a table of frequencies, six digits each, into a temporary folder."""
    path = Path(folder().name) / f"{count}.afreq"
    values = np.random.default_rng(0).beta(0.6, 0.6, count).clip(1e-3, 1 - 1e-3)
    with path.open("w") as file:
        file.write("#CHROM\tID\tREF\tALT\tALT_FREQS\tOBS_CT\n")
        file.writelines(f"{1 + k % 22}\trs{k}\tA\tG\t{p:.6f}\t2000\n" for k, p in enumerate(values))
    return path


def qd_family() -> Any:
    from quiltdp.domains.pedigree import Pedigree, Person

    return Pedigree((Person("dad"), Person("mum"), *(Person(f"kid{k}", "dad", "mum") for k in range(3))))


def different_families(count: int) -> Sequence[Any]:
    """Return families of different shapes, 4 to 12 people each."""
    from family_shapes import families

    return families(_SHAPES)[:count]


def families_of(count: int) -> Callable[[], Any]:
    from quiltdp.domains.pedigree.genome import account_families, count_frequencies

    path = genome_file(1_000)
    some = different_families(count)
    return lambda: list(account_families(iter(some), count_frequencies(path), epsilon=1.0, nodes=4))


def walk(states: int, seed: int = 0) -> np.ndarray:
    """A walk between cells on a line, with a little of everything: the matrix of a city's cells."""
    steps = np.exp(-0.5 * np.abs(np.subtract.outer(np.arange(states), np.arange(states))))
    steps *= np.random.default_rng(seed).uniform(0.5, 1.5, steps.shape)
    return 0.95 * steps / steps.sum(axis=1, keepdims=True) + 0.05 / states


def many_users(users: int, steps: int, cells: int) -> qd.Model:
    matrix, start = walk(cells), np.full(cells, 1.0 / cells)
    return ChainModel([ChainSegment(f"user{k}_", steps, start, (matrix,)) for k in range(users)])


def by_hour(steps: int, an_hour: int, cells: int) -> qd.Model:
    day = [walk(cells, seed) for seed in range(24)]
    moves = tuple(day[k // an_hour % 24] for k in range(steps - 1))
    return ChainModel([ChainSegment("step", steps, np.full(cells, 1.0 / cells), moves)])


CHAINS: dict[str, Callable[[], qd.Model]] = {
    "a week of 5-minute steps, 9 cells": lambda: qd.markov_chain(walk(9), 2_016),
    "a year of 5-minute steps, 9 cells": lambda: qd.markov_chain(walk(9), 105_120),
    "ten years of 5-minute steps, 9 cells": lambda: qd.markov_chain(walk(9), 1_051_200),
    "100 users, 14 days of 5-minute steps, 274 cells": lambda: many_users(100, 4_032, 274),
    "a matrix per hour, a year of hours, 9 cells": lambda: by_hour(8_760, 1, 9),
    "a matrix per hour, 14 days of 5-minute steps, 9 cells": lambda: by_hour(4_032, 12, 9),
    "a matrix per hour, a year of 5-minute steps, 9 cells": lambda: by_hour(105_120, 12, 9),
}


def chains(quick: bool) -> dict[str, Any]:
    """Return what chains that people have cost, the model included."""
    rows = []
    for name, make in list(CHAINS.items())[: 3 if quick else None]:
        row: list[Any] = [name]
        for adversary in ("informed", "prior"):
            times = [
                clocked(
                    lambda make=make, adversary=adversary: qd.dp_epsilon(make(), 1.0, adversary=adversary)
                )
                for _ in range(2)
            ]
            row += [float(np.median(times)), f"{min(times):.3g}–{max(times):.3g}"]
        rows.append(row)
    return {
        "title": "Chains",
        "says": "Seconds to make the model and to find the largest α at ε = 1: median and spread of two.",
        "columns": ["chain", "informed, s", "least–most", "prior, s", "least–most"],
        "rows": rows,
    }


GROWTH: dict[str, tuple[Callable[[int], Callable[[], Any]], tuple[int, ...], tuple[int, ...], str]] = {
    "steps of a chain (9 states, prior)": (
        chain_of_length, (1_000, 10_000, 100_000), (1_000, 10_000, 100_000, 1_000_000, 10_000_000), "0",
    ),
    "steps, a matrix per hour (9 states)": (hours_of_length, (240, 960, 3840), (240, 960, 3840, 8760), "≤ 1"),
    "states of a chain": (chain_of_states, (5, 10, 20, 40), (10, 20, 40, 80, 160), "≤ 3"),
    "nodes of a tree (propagation)": (tree_of_nodes, (1_000, 4_000, 16_000), (1_000, 10_000, 100_000), "1"),
    "loci of a genome": (panel_of_loci, (1_000, 10_000, 50_000), (1_000, 10_000, 100_000, 500_000), "≤ 1"),
    "families × 1,000 loci": (families_of, (2, 4), (8, 16, 32, 64), "1"),
}  # fmt: skip
WIDTH: tuple[tuple[int, ...], tuple[int, ...]] = ((2, 3, 4), (2, 3, 4, 5, 6))


def scaling(quick: bool) -> list[dict[str, Any]]:
    rows = []
    for name, (make, few, many, theory) in GROWTH.items():
        sizes = few if quick else many
        seconds = [min(clocked(make(n)) for _ in range(2)) for n in sizes]
        shown = ", ".join(f"{n:,}: {s:.3g}" for n, s in zip(sizes, seconds, strict=True))
        rows.append([name, shown, slope(sizes, seconds), theory])
    widths = WIDTH[0] if quick else WIDTH[1]
    seconds = [clocked(grid_of_width(w)) for w in widths]
    per = float(np.exp(np.polyfit(widths, np.log(seconds), 1)[0]))
    shown = ", ".join(f"{w}: {s:.3g}" for w, s in zip(widths, seconds, strict=True))
    rows.append(["width of a grid (prior)", shown, f"× {per:.3g} a step", "exponential"])
    return [
        {
            "title": "Growth",
            "says": "Seconds by size, best of a few; the slope is that of the logarithms over the larger"
            " sizes.",
            "columns": ["what grows", "size: seconds", "slope", "theory"],
            "rows": rows,
        },
        chains(quick),
    ]


# -- workers ---------------------------------------------------------------------------------------------


def nothing(_: object, k: int) -> int:
    return k


def burn(_: object, k: int) -> int:
    """Work for about a tenth of a second, in this process alone."""
    total = 0
    for j in range(1_500_000):
        total += j & k
    return total


def workers(quick: bool) -> list[dict[str, Any]]:
    count = os.cpu_count() or 1
    rows = []
    with Workers(count) as pool:
        local = partial(local_times, pool, count)
        began = time.perf_counter()
        list(each(nothing, range(count), executor=pool))
        start = time.perf_counter() - began
        calls = 500 if quick else 2_000
        overhead = clocked(lambda: list(each(nothing, range(calls), executor=pool))) / calls
        chunked = (
            clocked(lambda: list(each(nothing, range(calls * 10), executor=pool, chunk=100))) / calls / 10
        )
        rows.append(["plain loop", *gain(loop(16 if quick else 64), pool, local, count, quick)])
        rows.append(
            ["families × 1,000 loci", *gain(families(16 if quick else 96), pool, local, count, quick)]
        )
        rows.append(["components of a model", *gain(components(), pool, local, count, quick)])
    rows.append(["families × 1,000 loci, Dask", *on_dask(families(16 if quick else 96), count, quick)])
    return [
        {
            "title": f"One process and {count} workers",
            "says": "Wall-clock seconds; and, because others may use the machine, processor seconds alone"
            f" over those of the sender plus 1/{count} of those of all workers: the speed-up on {count} idle"
            " cores, overhead included; *slope* is that of its logarithm in the logarithm of the workers (1"
            " is ideal). Medians of three rounds (of one with --quick), each a question of its own, alone and"
            " with workers in turns. Dask: a cluster of as many processes here, its scheduler counted with"
            " the sender. Answers are compared and equal.",
            "columns": [
                "part", "one process, s", f"{count} workers, s", "speed-up", "processor s alone",
                "sender", "workers together", "speed-up, idle", "least–most", "slope",
            ],
            "rows": rows,
            "after": f"Starting {count} workers took {start:.2f} s; a task costs the sender"
            f" {1e6 * overhead:.0f} µs, in chunks of 100 {1e6 * chunked:.1f} µs a task.",
        }
    ]  # fmt: skip


Part = Callable[[Executor | None, float], Any]
Times = Callable[[], dict[int, float]]
"""The processor seconds of every worker so far, by its process."""

WARM, ROUNDS = 0.2, (0.1, 0.11, 0.12)


def gain(work: Part, pool: Executor, times: Times, count: int, quick: bool) -> list[Any]:
    """Return wall and processor seconds, alone and with workers, and the speed-ups they mean.

    The second argument of ``work`` makes every call another question; the first ones pay for imports.
    """
    work(None, WARM)
    work(pool, WARM)
    rounds = [one_round(work, pool, times, count, ask) for ask in ROUNDS[: 1 if quick else None]]
    *seconds, faster = np.median(rounds, axis=0).tolist()
    alone, wall, spent, mine, others = seconds
    spread = [r[-1] for r in rounds]
    growth = math.log(faster) / math.log(max(count, 2))
    between = f"{min(spread):.3g}–{max(spread):.3g}"
    return [alone, wall, alone / wall, spent, mine, others, faster, between, growth]


def one_round(work: Part, pool: Executor, times: Times, count: int, ask: float) -> tuple[float, ...]:
    began, spent = time.perf_counter(), time.process_time()
    here = work(None, ask)
    alone, spent = time.perf_counter() - began, time.process_time() - spent
    before = times()
    mine, began = time.process_time(), time.perf_counter()
    there = work(pool, ask)
    wall, mine = time.perf_counter() - began, time.process_time() - mine
    after = times()
    others = sum(after.values()) - sum(before.values())
    assert there == here
    return alone, wall, spent, mine, others, spent / (mine + others / count)


def on_dask(work: Part, count: int, quick: bool) -> list[Any]:
    """Return the same for a Dask cluster of separate processes."""
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        return [None] * 9
    single: dict[str, Any] = {"n_workers": count, "threads_per_worker": 1, "processes": True}
    quiet: dict[str, Any] = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with LocalCluster(**single, **quiet) as cluster, Client(cluster) as client:

        def times() -> dict[int, float]:
            return dict(client.run(processor_time).values())

        return gain(work, client.get_executor(), times, count, quick)


def loop(count: int) -> Part:
    return lambda pool, _: list(each(burn, range(count), executor=pool))


def local_times(pool: Workers, count: int) -> dict[int, float]:
    """Return the processor seconds of the processes."""
    seen: dict[int, float] = {}
    while len(seen) < count:
        seen.update(f.result() for f in [pool.submit(processor_time) for _ in range(4 * count)])
    return seen


def processor_time() -> tuple[int, float]:
    time.sleep(0.01)
    return os.getpid(), time.process_time()


def families(count: int) -> Part:
    from quiltdp.domains.pedigree.genome import account_families, count_frequencies

    path = genome_file(1_000)

    def run(pool: Executor | None, epsilon: float) -> Any:
        some = iter(different_families(count))
        return list(account_families(some, count_frequencies(path), epsilon=epsilon, nodes=4, executor=pool))

    return run


def components() -> Part:
    """Forty-eight families in one model, each of another shape, against the prior adversary."""
    from quiltdp.domains.pedigree import Pedigree, Person

    rng = np.random.default_rng(17)
    people = []
    for k in range(48):
        couples = [(f"{k}.a", f"{k}.b")]
        people += [Person(name) for name in couples[0]]
        while len(people) < 16 * (k + 1):
            mother, father = couples[rng.integers(len(couples))]
            child = f"{k}.{len(people)}"
            people.append(Person(child, father, mother))
            if rng.random() < 0.3:
                people.append(Person(f"{child}s"))
                couples.append((child, f"{child}s"))
    models = {p: qd.pedigree(Pedigree(tuple(people)), p) for p in (WARM, *ROUNDS)}
    return lambda pool, p: qd.dp_epsilon(models[p], 1.0, "coupling", "prior", executor=pool)
