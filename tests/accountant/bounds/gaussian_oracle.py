"""δ(ε) of a Gaussian query on a small model, exactly: normal mixtures, integrated between crossings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from quiltdp.model import Model


def joint(model: Model) -> np.ndarray:
    """Return P over all nodes, axes in node order, by multiplying every factor."""
    names = list(model.nodes)
    table = np.ones([model.cardinality(n) for n in names])
    for factor in model.factors:
        order = sorted(range(len(factor.scope)), key=lambda a: names.index(factor.scope[a]))
        shape = [model.cardinality(n) if n in factor.scope else 1 for n in names]
        table = table * np.transpose(factor.table, order).reshape(shape)
    return table / table.sum()


def hockey_stick(p: np.ndarray, q: np.ndarray, means: np.ndarray, std: float, epsilon: float) -> float:
    """Return ∫ (Σ p N(m, s²) − e^ε Σ q N(m, s²))₊ for two laws on the same means."""
    means, where = np.unique(np.round(means, 12), return_inverse=True)
    p, q = np.bincount(where, p), np.bincount(where, q)
    factor = math.exp(epsilon)

    def excess(t: np.ndarray | float) -> np.ndarray:
        z = np.exp(-0.5 * ((np.asarray(t)[..., None] - means) / std) ** 2)
        return z @ p - factor * (z @ q)

    grid = np.linspace(means.min() - 12 * std, means.max() + 12 * std, 1500)
    sign = excess(grid) > 0.0
    turns = np.flatnonzero(sign[1:] != sign[:-1])
    edges = [-math.inf, *(brentq(excess, grid[k], grid[k + 1], xtol=1e-14) for k in turns), math.inf]
    total, positive = 0.0, bool(sign[0])
    for a, b in itertools.pairwise(edges):
        if positive:
            mass = ndtr((b - means) / std) - ndtr((a - means) / std)
            total += float(mass @ p - factor * (mass @ q))
        positive = not positive
    return total


def hypotheses(
    table: np.ndarray, unit: Sequence[int], known: Mapping[int, int]
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield (states, p, q): all joint states, and their laws under two values of a unit and what is known."""
    shape = table.shape
    states = np.array(list(itertools.product(*map(range, shape))))
    mass = table.ravel().copy()
    for node, value in known.items():
        mass[states[:, node] != value] = 0.0
    values = {tuple(s) for s in states[mass > 0][:, list(unit)].tolist()}
    laws = {}
    for v in sorted(values):
        own = np.where((states[:, list(unit)] == v).all(axis=1), mass, 0.0)
        laws[v] = own / own.sum()
    for v, w in itertools.permutations(sorted(values), 2):
        yield states, laws[v], laws[w]


def aligned_query(states: np.ndarray, p: np.ndarray, q: np.ndarray, deltas: np.ndarray) -> np.ndarray:
    """Return Σ_j Δ_j 1[the value of node j is likelier under p]: the natural query to attack with."""
    total = np.zeros(len(states))
    for j in range(states.shape[1]):
        size = int(states[:, j].max()) + 1
        above = np.bincount(states[:, j], p, size) > np.bincount(states[:, j], q, size)
        total += deltas[j] * above[states[:, j]]
    return total


def random_query(rng: np.random.Generator, states: np.ndarray, deltas: np.ndarray) -> np.ndarray:
    """Return Σ_j Δ_j c_j(x_j) with random c_j ∈ [0, 1], mostly at the ends."""
    total = np.zeros(len(states))
    for j in range(states.shape[1]):
        c = rng.random(int(states[:, j].max()) + 1)
        if rng.random() < 0.8:
            c = (c > 0.5).astype(float)
        total += deltas[j] * c[states[:, j]]
    return total
