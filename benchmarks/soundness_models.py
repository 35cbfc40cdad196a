"""Random models, costs, adversaries and protected sets: one scenario per seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import quiltdp as qd

__all__ = ["Scenario", "draw", "draw_large"]

MOST_STATES = 72


@dataclass(frozen=True)
class Scenario:
    """What is asked: a model, what each record pays, who attacks, and what is protected."""

    shape: str
    model: qd.Model
    alpha: dict[str, float]
    adversary: str
    units: tuple[tuple[str, ...], ...]
    options: dict[str, Any]

    @property
    def dp_epsilon(self) -> float | dict[str, float]:
        """One number where all pay the same, as a caller would write it."""
        costs = set(self.alpha.values())
        return costs.pop() if len(costs) == 1 else self.alpha

    @property
    def may_know(self) -> tuple[Sequence[str], int]:
        """The records that may be known, and how many at once."""
        if self.adversary.startswith("knows="):
            named = self.adversary.removeprefix("knows=").split(",")
            return named, len(named)
        if self.adversary.startswith("knows:"):
            return self.model.records, int(self.adversary.removeprefix("knows:"))
        return self.model.records, 0 if self.adversary == "prior" else len(self.model.records)


def _table(rng: np.random.Generator, shape: list[int], states: int, zeros: bool) -> NDArray[np.float64]:
    """Return rows of probabilities, now and then with zeros, never a row of zeros."""
    table = rng.dirichlet(np.full(states, rng.choice([0.3, 1.0, 5.0])), size=shape or None)
    table = np.maximum(table, 1e-9)
    if zeros:
        table = np.where(rng.random(table.shape) < 0.2, 0.0, table)
        dead = table.sum(axis=-1) == 0
        table[dead, 0] = 1.0
    return np.asarray(table / table.sum(axis=-1, keepdims=True))


def _sizes(rng: np.random.Generator, count: int) -> list[int]:
    """Return numbers of states, 2 to 4, whose product is small enough for brute force."""
    sizes = rng.choice([2, 2, 2, 3, 3, 4], size=count)
    while np.prod(sizes) > MOST_STATES:
        sizes[int(np.argmax(sizes))] -= 1
    return [int(s) for s in sizes]


def _parents(rng: np.random.Generator, k: int, most: int) -> list[int]:
    if k == 0:
        return []
    count = int(rng.integers(0 if k > 2 else min(1, k), min(k, most) + 1))
    return sorted(rng.choice(k, size=count, replace=False).tolist())


def _bayes(rng: np.random.Generator, sizes: list[int], zeros: bool, records: list[str]) -> qd.Model:
    tables = {}
    for k, size in enumerate(sizes):
        parents = _parents(rng, k, 2)
        tables[f"X{k}"] = (
            [f"X{p}" for p in parents],
            _table(rng, [sizes[p] for p in parents], size, zeros),
        )
    return qd.Model.from_tables(tables, records)


def _markov(rng: np.random.Generator, sizes: list[int], zeros: bool, records: list[str]) -> qd.Model:
    """Return a Markov network: a loop, or random pairs and triples; some state is always possible."""
    count = len(sizes)
    scopes = [(k, (k + 1) % count) for k in range(count)] if count > 2 else [(0, 1)]
    if rng.random() < 0.5:
        scopes = [tuple(sorted(rng.choice(count, size=2, replace=False))) for _ in range(count)]
        scopes += [tuple(sorted(rng.choice(count, size=3, replace=False)))] if count > 2 else []
        scopes += [(k,) for k in range(count)]
    potentials = []
    for scope in scopes:
        table = np.exp(rng.normal(0, rng.choice([0.3, 1.0, 3.0]), [sizes[k] for k in scope]))
        if zeros:
            table = np.where(rng.random(table.shape) < 0.15, 0.0, table)
            table[(0,) * table.ndim] = 1.0
        potentials.append(([f"X{k}" for k in scope], table * 10.0 ** rng.integers(-3, 4)))
    return qd.Model.from_potentials({f"X{k}": s for k, s in enumerate(sizes)}, potentials, records)


def _chain(rng: np.random.Generator, zeros: bool) -> qd.Model:
    states = int(rng.integers(2, 5))
    length = int(rng.integers(2, {2: 7, 3: 5, 4: 4}[states]))
    if rng.random() < 0.5:
        matrices = [_table(rng, [states], states, zeros) for _ in range(length - 1)]
        return qd.markov_chain(matrices, initial=_table(rng, [], states, zeros))
    matrix = _table(rng, [states], states, False)
    return qd.markov_chain(matrix, length, "stationary" if rng.random() < 0.5 else "uniform")


def _costs(rng: np.random.Generator, records: Sequence[str]) -> dict[str, float]:
    high = 4.0 if rng.random() < 0.95 else 40.0
    sizes = np.exp(rng.uniform(np.log(0.02), np.log(high), len(records)))
    if rng.random() < 0.5:
        sizes[:] = sizes[0]
    elif rng.random() < 0.4:
        sizes[int(rng.integers(len(records)))] = 0.0
    return {r: float(a) for r, a in zip(records, sizes, strict=True)}


def _adversary(rng: np.random.Generator, records: Sequence[str]) -> str:
    kind = rng.choice(["informed", "prior", "set", "count"], p=[0.4, 0.3, 0.15, 0.15])
    if kind == "set":
        count = int(rng.integers(1, len(records) + 1))
        return "knows=" + ",".join(sorted(rng.choice(records, size=count, replace=False)))
    return f"knows:{int(rng.integers(1, 3))}" if kind == "count" else str(kind)


def draw(seed: int) -> Scenario:
    """Return the scenario of a seed: at most 5 nodes, small enough for every attack."""
    rng = np.random.default_rng([12, seed])
    shape = str(rng.choice(["network", "potentials", "chain"], p=[0.5, 0.25, 0.25]))
    zeros = bool(rng.random() < 0.3)
    if shape == "chain":
        model = _chain(rng, zeros)
    else:
        count = int(rng.choice([2, 3, 4, 5], p=[0.1, 0.4, 0.35, 0.15]))
        records = [f"X{k}" for k in range(count) if rng.random() < 0.85] or ["X0"]
        build = _bayes if shape == "network" else _markov
        model = build(rng, _sizes(rng, count), zeros, records)
    records = list(model.records)
    units, options = tuple((r,) for r in records), {}
    if rng.random() < 0.25 and len(records) > 2:
        if shape == "chain" and rng.random() < 0.5:
            options = {"window": 2}
            units = tuple((records[k], records[k + 1]) for k in range(len(records) - 1))
        else:
            chosen = sorted(rng.choice(records, size=2, replace=False).tolist(), key=records.index)
            units = (tuple(chosen), *((r,) for r in records if r not in chosen))
            options = {"protect": [list(u) for u in units]}
    return Scenario(shape, model, _costs(rng, records), _adversary(rng, records), units, options)


def draw_large(seed: int) -> Scenario:
    """Return a network of 8 to 13 records, for explicit mechanisms."""
    rng = np.random.default_rng([13, seed])
    count = int(rng.integers(8, 14))
    sizes = [2] * count
    zeros = bool(rng.random() < 0.3)
    if rng.random() < 0.3:
        model = _markov(rng, sizes, zeros, [f"X{k}" for k in range(count)])
    else:
        model = _bayes(rng, sizes, zeros, [f"X{k}" for k in range(count)])
    records = list(model.records)
    adversary = "informed" if rng.random() < 0.5 else "prior"
    alpha = dict.fromkeys(records, float(np.exp(rng.uniform(np.log(0.02), np.log(2.0)))))
    if rng.random() < 0.3:
        alpha = {r: a * float(rng.choice([0.25, 1.0, 2.0])) for r, a in alpha.items()}
    return Scenario("large", model, alpha, adversary, tuple((r,) for r in records), {})
