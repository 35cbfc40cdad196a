"""Cost per quilt from 1,000 to 100,000 nodes: it must stay flat.

Run with ``python benchmarks/quilts.py [--targets 20] [--repeat 5]``.  For every family of graphs and every
size, all quilts with at most K nearby records of some targets are listed, their separator and nearby sets
named, and the processor time divided by their number.  The trivial quilt is among them; its nearby nodes,
the whole component, are not named.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable

import numpy as np

import quiltdp as qd
from quiltdp.graph.types import DependencyGraph

SIZES = (1_000, 3_162, 10_000, 31_623, 100_000)


def path_graph(n: int, rng: np.random.Generator) -> DependencyGraph:
    return qd.moralize(qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=n))


def binary_tree(n: int, rng: np.random.Generator) -> DependencyGraph:
    child = np.arange(1, n)
    return from_pairs(n, np.stack(((child - 1) // 2, child), axis=1))


def grid(n: int, rng: np.random.Generator) -> DependencyGraph:
    side = int(n**0.5)
    place = np.arange(side * side).reshape(side, side)
    right = np.stack((place[:, :-1].ravel(), place[:, 1:].ravel()), axis=1)
    down = np.stack((place[:-1].ravel(), place[1:].ravel()), axis=1)
    return from_pairs(side * side, np.concatenate((right, down)))


def pedigree(n: int, rng: np.random.Generator) -> DependencyGraph:
    """Generations of 100: every child has two parents of the generation before, married to each other."""
    size = 100
    parts = []
    for start in range(size, n - size + 1, size):
        couples = rng.permutation(size).reshape(-1, 2) + start - size
        parents = couples[rng.integers(0, len(couples), size)]
        child = np.arange(start, start + size)
        parts += [parents, np.stack((parents[:, 0], child), 1), np.stack((parents[:, 1], child), 1)]
    return from_pairs(n, np.concatenate(parts))


def from_pairs(n: int, pairs: np.ndarray) -> DependencyGraph:
    names = [f"N{k}" for k in range(n)]
    index = {name: k for k, name in enumerate(names)}
    return DependencyGraph.from_pairs(names, index, pairs.astype(np.int64), np.ones(n, dtype=bool))


FAMILIES: dict[str, tuple[Callable[[int, np.random.Generator], DependencyGraph], int]] = {
    "chain": (path_graph, 20),
    "binary tree": (binary_tree, 6),
    "grid": (grid, 5),
    "pedigree": (pedigree, 3),
}


def measure(graph: DependencyGraph, targets: list[str], nearby: int) -> tuple[int, float]:
    """Return the number of quilts of the targets and the seconds it took to list them."""
    graph.component_labels  # noqa: B018 - once per graph, not per quilt
    start = time.process_time()
    found = 0
    for target in targets:
        for quilt in qd.quilts(graph, target, max_nearby=nearby):
            found += 1
            if not quilt.is_trivial:
                _ = quilt.separator, quilt.nearby
    return found, time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, {options.targets} targets per graph, ", end="")
    print(f"processor time, best of {options.repeat} runs.\n")
    print("| graph | nearby at most | nodes | quilts | µs per quilt |")
    print("|---|---:|---:|---:|---:|")
    for name, (make, nearby) in FAMILIES.items():
        for size in SIZES:
            rng = np.random.default_rng(7)
            graph = make(size, rng)
            # Targets from the middle, so that no size has more of the cheap ones at the rim.
            middle = rng.integers(len(graph) // 4, 3 * len(graph) // 8, options.targets)
            targets = [graph.nodes[k] for k in middle.tolist()]
            runs = [measure(graph, targets, nearby) for _ in range(options.repeat)]
            found, seconds = min(runs, key=lambda r: r[1])
            print(
                f"| {name} | {nearby} | {len(graph):,} | {found:,} | {1e6 * seconds / found:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
