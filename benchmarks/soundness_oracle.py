"""The largest Bayesian leakage of small models from its definition, written apart from everything else.

    python benchmarks/soundness_oracle.py --seeds 200 [--start 0]

Every assignment is multiplied out, every set and value of known records is conditioned on, and for every two
values of a unit one dense linear program finds the worst likelihoods, constrained between *all* pairs of
cells of the joint metric; what its solution attains, made feasible, is a leakage.  No hypothesis is passed
over, so this is slow (models of at most about 40 joint states), and simple enough to be read in a minute.
The faster yardstick of ``soundness_bounds.py`` is compared with it, and every bound of a name.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterable, Mapping

import numpy as np
import soundness_bounds
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog

import quiltdp as qd
from quiltdp.errors import QuiltdpError
from quiltdp.inference.workspace import Workspace
from quiltdp.work import WorkBudget

Array = NDArray[np.float64]
Cell = tuple[int, ...]
LARGEST = 40  # joint states of the records
AGREE = 1e-7


def law_of(model: qd.Model) -> dict[Cell, float]:
    """Return the probability of every possible assignment of the records."""
    index = {n: k for k, n in enumerate(model.nodes)}
    found: dict[Cell, float] = {}
    for x in itertools.product(*(range(model.cardinality(n)) for n in model.nodes)):
        weight = 1.0
        for f in model.factors:
            weight *= float(np.asarray(f.table)[tuple(x[index[n]] for n in f.scope)])
        cell = tuple(x[index[r]] for r in model.records)
        found[cell] = found.get(cell, 0.0) + weight
    total = sum(found.values())
    return {cell: weight / total for cell, weight in found.items() if weight > 0}


def leakage(
    model: qd.Model,
    alpha: Mapping[str, float],
    prices: Mapping[str, ArrayLike],
    unit: Iterable[str],
    may_know: Iterable[str],
    most: int,
) -> float:
    """Return the largest leakage about a unit to somebody who knows at most ``most`` records of some.

    Examples
    --------
    >>> chain = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], 2)
    >>> round(leakage(chain, {"X0": 1.0, "X1": 1.0}, {}, ["X0"], [], 0), 4)
    1.7761
    """
    records, law, best = list(model.records), law_of(model), 0.0
    states = [model.cardinality(r) for r in records]
    price = [
        alpha[r] * np.asarray(prices.get(r, 1.0 - np.eye(k)), dtype=np.float64)
        for r, k in zip(records, states, strict=True)
    ]
    own, may = [records.index(r) for r in unit], [records.index(r) for r in may_know]
    others = [k for k in may if k not in own]
    for known in itertools.chain.from_iterable(
        itertools.combinations(others, size) for size in range(min(most, len(others)) + 1)
    ):
        rest = [k for k in range(len(records)) if k not in known and k not in own]
        cells = list(itertools.product(*(range(states[k]) for k in rest)))
        place = {cell: k for k, cell in enumerate(cells)}
        distance = np.zeros((len(cells), len(cells)))
        for axis, k in enumerate(rest):
            at = [cell[axis] for cell in cells]
            distance += price[k][np.ix_(at, at)]
        laws: dict[Cell, dict[Cell, Array]] = {}
        for cell, weight in law.items():
            by = laws.setdefault(tuple(cell[k] for k in known), {})
            mass = by.setdefault(tuple(cell[k] for k in own), np.zeros(len(cells)))
            mass[place[tuple(cell[k] for k in rest)]] += weight
        for by in laws.values():
            for x, y in itertools.permutations(by, 2):
                apart = sum(float(price[k][a, b]) for k, a, b in zip(own, x, y, strict=True))
                best = max(best, worst(by[x] / by[x].sum(), by[y] / by[y].sum(), distance, apart))
    return best


def worst(p: Array, q: Array, distance: Array, apart: float) -> float:
    """Return the largest ln E_p h / E_q g: ln h and ln g change by at most the distance, + ``apart`` between.

    The program has both functions as its unknowns.  Of its solution only g is kept: g is made feasible, and h
    the largest function that g allows.
    """
    count = len(p)
    both = np.block([[distance, distance + apart], [distance + apart, distance]])
    one, other = np.nonzero(~np.eye(2 * count, dtype=bool))
    rows = np.zeros((len(one), 2 * count))
    rows[np.arange(len(one)), one] = 1.0
    rows[np.arange(len(one)), other] = -np.exp(both[one, other])
    found = linprog(
        -np.r_[p, np.zeros(count)],
        A_ub=rows,
        b_ub=np.zeros(len(one)),
        A_eq=np.r_[np.zeros(count), q][None],
        b_eq=[1.0],
        method="highs",
    )
    g = np.ones(count) if found.x is None else np.maximum(found.x[count:], 1e-300)
    g = (np.exp(-distance) * g[None]).max(axis=1)
    h = (np.exp(apart + distance) * g[None]).min(axis=1)
    return float(np.log(p @ h) - np.log(q @ g))


def main() -> int:
    """Compare; exit 1 if a bound is below, or the fast yardstick attains more or clearly less."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--start", type=int, default=0)
    options = parser.parse_args()
    models = units = numbers = less = failed = 0
    for seed in range(options.start, options.start + options.seeds):
        scene = soundness_bounds.draw(seed)
        truth = scene.truth()
        if truth.joint.size > LARGEST:
            continue
        models += 1
        vector = np.array([scene.alpha.get(n, 0.0) for n in scene.model.nodes])
        attained = np.array(
            [
                leakage(scene.model, scene.alpha, scene.prices, unit, truth.may_know, truth.most)
                for unit in scene.units
            ]
        )
        fast = np.array([truth.attained(unit) for unit in scene.units])
        units, less = units + len(fast), less + int((fast < attained - AGREE).sum())
        if (fast > attained + AGREE).any():
            failed += 1
            print(f"seed {seed}: the fast yardstick attains {fast}, the programs {attained}")
        for name, make in soundness_bounds.bounds(scene, seed):
            try:
                bound = make(scene.problem)
                bound.prepare(Workspace(scene.model), WorkBudget())
                found = bound.evaluate(vector).values
            except QuiltdpError:
                continue
            numbers += len(found)
            for k in np.flatnonzero(~(found >= attained * (1 - 1e-11) - 1e-11)).tolist():
                failed += 1
                print(f"seed {seed}, {name}, {scene.units[k]}: {found[k]!r} < {attained[k]!r}")
    print(
        f"{models} models, {units} units, {numbers} numbers, {failed} failures;"
        f" the fast yardstick attains less of {less}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
