"""Soundness of (ε, δ): certified δ against the exact δ of explicit mechanisms on random models.

    python benchmarks/soundness_delta.py --records 5000 [--start 0] [--state DIR] [--docs PAGE.md]

Each seed draws a model, sensitivities, a noise scale and an ε.  The parts:

* networks of 3 to 5 nodes and loops of six records (zeros, latents, 2 or 3 states, unequal sensitivities)
  against the prior adversary;
* the same networks against the informed adversary with random evidence;
* chains of 2 to 6 steps (zeros, laws that are not stationary, now and then a table per step) against the
  informed adversary with random evidence, and the prior one.

The work is done in chunks that are kept: an interrupted campaign goes on where it stopped.

The mechanism is a sum of one term per record plus noise: Gaussian, Laplace (through its dp-accounting
event), discrete Gaussian, or two discrete Laplace answers composed (through their event).  The output is a
mixture, so δ is integrated exactly between the places where the two densities cross, or summed over all
outputs.  Queries: the one aligned with the two hypotheses, its opposite, and random ones.  A third of the
models takes weights in coarse bins.
A violation is a certified δ below an attained one by more than 1e-9 of it and 1e-13.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import numpy as np
from campaigns import add_options, kept, merged, part_at, write_section
from scipy.special import ndtr

import quiltdp as qd
from quiltdp.accountant.approximate import DeltaProfile
from quiltdp.accountant.bounds import approximate
from quiltdp.mechanisms import DiscreteGaussianProfile, GaussianProfile, GroupProfile
from quiltdp.mechanisms.group_profiles import EventProfile
from quiltdp.parallel import workers

HEADING = "## (ε, δ): explicit mechanisms"


def joint(model: qd.Model) -> np.ndarray:
    """Return P over all nodes, axes in node order, by multiplying every factor."""
    names = list(model.nodes)
    table = np.ones([model.cardinality(n) for n in names])
    for factor in model.factors:
        order = sorted(range(len(factor.scope)), key=lambda a: names.index(factor.scope[a]))
        shape = [model.cardinality(n) if n in factor.scope else 1 for n in names]
        table = table * np.transpose(factor.table, order).reshape(shape)
    return table / table.sum()


def exact_delta(
    p: np.ndarray, q: np.ndarray, means: np.ndarray, noise: str, scale: float, epsilon: float
) -> float:
    """Return ∫ (Σ p A_m − e^ε Σ q A_m)₊ for noise A around every mean, by bisection of every crossing."""
    if noise in ("discrete gaussian", "twice discrete"):
        return summed_delta(p, q, means, noise, scale, epsilon)
    means, where = np.unique(np.round(means, 12), return_inverse=True)
    p, q = np.bincount(where, p), np.bincount(where, q)
    signed = p - math.exp(epsilon) * q

    def density(t: np.ndarray) -> np.ndarray:
        z = (np.asarray(t)[..., None] - means) / scale
        return (np.exp(-0.5 * z * z) if noise == "gaussian" else np.exp(-np.abs(z))) @ signed

    def below(t: float) -> np.ndarray:
        z = (t - means) / scale
        if noise == "gaussian":
            return np.asarray(ndtr(z))
        return np.where(z < 0, 0.5 * np.exp(-np.abs(z)), 1.0 - 0.5 * np.exp(-np.abs(z)))

    reach = 12 * scale if noise == "gaussian" else 40 * scale
    grid = np.union1d(np.linspace(means.min() - reach, means.max() + reach, 800), means)
    sign = density(grid) > 0.0
    turns = np.flatnonzero(sign[1:] != sign[:-1])
    low, high, first = grid[turns], grid[turns + 1], sign[turns]
    for _ in range(50):
        middle = 0.5 * (low + high)
        same = (density(middle) > 0.0) == first
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    edges = [-math.inf, *low.tolist(), math.inf]
    total, positive = 0.0, bool(sign[0])
    for a, b in itertools.pairwise(edges):
        if positive:
            total += float((below(b) - below(a)) @ signed)
        positive = not positive
    return total


def summed_delta(
    p: np.ndarray, q: np.ndarray, means: np.ndarray, noise: str, scale: float, epsilon: float
) -> float:
    """Return Σ (Σ p A_m − e^ε Σ q A_m)₊ over all whole outputs (or pairs of them) for discrete noise A."""
    shift = means.astype(int)
    assert np.array_equal(shift, means)
    signed = np.bincount(shift, p) - math.exp(epsilon) * np.bincount(shift, q)
    reach = int((9 if noise == "discrete gaussian" else 30) * scale) + 4
    x = np.arange(-reach - len(signed), reach + len(signed) + 1)
    if noise == "discrete gaussian":
        law = np.exp(-0.5 * (x / scale) ** 2)
        law /= law.sum()
        total = sum(w * np.roll(law, m) for m, w in enumerate(signed))
        return float(np.maximum(total, 0.0).sum())
    laws = [np.exp(-np.abs(x) / s) * math.tanh(0.5 / s) for s in (scale, 1.5 * scale)]
    both = sum(w * np.outer(np.roll(laws[0], m), np.roll(laws[1], m)) for m, w in enumerate(signed))
    return float(np.maximum(both, 0.0).sum())


def drawn_noise(rng: np.random.Generator, scale: float) -> tuple[str, GroupProfile]:
    """Return a kind of noise and its profile."""
    import dp_accounting as dpa

    kind = rng.random()
    if kind < 0.5:
        return "gaussian", GaussianProfile(scale)
    if kind < 0.65:
        return "laplace", EventProfile(dpa.LaplaceDpEvent(scale))
    if kind < 0.85:
        return "discrete gaussian", DiscreteGaussianProfile(scale)
    parts = [dpa.dp_event.DiscreteLaplaceDpEvent(1 / s, 1) for s in (scale, 1.5 * scale)]
    return "twice discrete", EventProfile(dpa.ComposedDpEvent(parts))


def rows(rng: np.random.Generator, shape: tuple[int, ...], zeros: bool) -> np.ndarray:
    """Return random conditional tables, with zeros now and then."""
    table = rng.dirichlet(np.full(shape[-1], 10 ** rng.uniform(-1.0, 1.0)), size=shape[:-1])
    if zeros:
        table = np.where(rng.random(table.shape) < 0.25, 0.0, table)
        table = np.where(table.sum(axis=-1, keepdims=True) > 0, table, 1.0)
    return np.asarray(table / table.sum(axis=-1, keepdims=True))


def loop_of_six(rng: np.random.Generator) -> qd.Model:
    """Return six binary records in a ring, one table per neighbours, zeros now and then."""
    names = [f"N{k}" for k in range(6)]
    zeros, sharp = bool(rng.random() < 0.3), 10 ** rng.uniform(-0.5, 0.5)
    potentials = []
    for k in range(6):
        table = np.exp(sharp * rng.normal(size=(2, 2)))
        table = np.where(rng.random((2, 2)) < 0.15, 0.0, table) if zeros else table
        table[0, 0] = 1.0  # somebody is possible
        potentials.append(((names[k], names[(k + 1) % 6]), table))
    return qd.Model.from_potentials(dict.fromkeys(names, 2), potentials)


def network(rng: np.random.Generator) -> qd.Model:
    """Return a random network with loops, zeros and latents, or a loop of six records."""
    if rng.random() < 0.08:
        return loop_of_six(rng)
    names = [f"N{k}" for k in range(int(rng.integers(3, 6)))]
    ternary = rng.random() < 0.25
    sizes = {n: int(rng.integers(2, 4)) if ternary else 2 for n in names}
    tables = {}
    for k, name in enumerate(names):
        parents = [p for p in names[:k] if rng.random() < (0.7 if len(names) < 5 else 0.5)][-3:]
        shape = (*(sizes[p] for p in parents), sizes[name])
        tables[name] = (parents, rows(rng, shape, rng.random() < 0.3))
    records = [n for n in names if rng.random() < 0.85]
    return qd.Model.from_tables(tables, records=records or names)


def chain(rng: np.random.Generator) -> qd.Model:
    """Return a random chain: few states, zeros, any first law, now and then a table per step."""
    states, length = int(rng.integers(2, 4)), int(rng.integers(2, 7 if rng.random() < 0.5 else 5))
    zeros = bool(rng.random() < 0.3)
    if rng.random() < 0.5:
        moves: list[np.ndarray] | np.ndarray = rows(rng, (states, states), zeros)
    else:
        moves = [rows(rng, (states, states), zeros) for _ in range(length - 1)]
    return qd.markov_chain(moves, length, initial=rng.dirichlet(np.ones(states)))


def sensitivities(rng: np.random.Generator, model: qd.Model, whole: bool) -> np.ndarray:
    """Return Δ of every node: all 1, or unequal, latents 0; whole numbers where the noise is discrete."""
    kind = rng.random()
    found = np.zeros(len(model.nodes))
    for k, n in enumerate(model.nodes):
        if model.is_record(n):
            found[k] = 1.0 if kind < 0.4 else rng.choice([0.0, 0.5, 1.0]) if kind < 0.7 else rng.random()
    if whole:
        found = np.ceil(found * rng.integers(1, 3))
    if not found.any():
        found[model.index[model.records[0]]] = 1.0
    return found


def queries(
    rng: np.random.Generator,
    states: np.ndarray,
    p: np.ndarray,
    q: np.ndarray,
    deltas: np.ndarray,
    extra: int,
    whole: bool,
) -> Iterator[np.ndarray]:
    """Yield sums of one term in [0, Δ_j] per record: aligned with the hypotheses, opposite, random."""
    sizes = states.max(axis=0) + 1
    columns = range(states.shape[1])
    aligned = [
        np.bincount(states[:, j], p, sizes[j]) > np.bincount(states[:, j], q, sizes[j]) for j in columns
    ]
    yield sum(deltas[j] * aligned[j][states[:, j]] for j in columns)  # type: ignore[misc]
    for _ in range(extra):
        terms = [
            a
            if rng.random() < 0.6
            else ~a
            if rng.random() < 0.5
            else rng.random(len(a)) > 0.5
            if whole
            else rng.random(len(a))
            for a in aligned
        ]
        yield sum(deltas[j] * terms[j][states[:, j]] for j in columns)  # type: ignore[misc]


def hypotheses(states: np.ndarray, mass: np.ndarray, target: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the laws of all states under two values of one node."""
    laws = {}
    for value in np.unique(states[mass > 0, target]).tolist():
        own = np.where(states[:, target] == value, mass, 0.0)
        laws[value] = own / own.sum()
    for x, y in itertools.permutations(laws, 2):
        yield laws[x], laws[y]


class Tally:
    """Records, integrals, violations and how far certified stands above attained."""

    def __init__(self) -> None:
        self.records: dict[str, int] = defaultdict(int)
        self.integrals: dict[str, int] = defaultdict(int)
        self.ratios: dict[str, list[float]] = defaultdict(list)
        self.kinds: dict[str, int] = defaultdict(int)
        self.violations: list[str] = []

    def compare(
        self, part: str, noise: str, where: str, certified: float, attained: float, integrals: int
    ) -> None:
        """Count one record."""
        self.records[part] += 1
        self.kinds[noise] += 1
        self.integrals[part] += integrals
        if attained > certified * (1 + 1e-9) + 1e-13:
            self.violations.append(
                f"{part}, {noise}, {where}: certified {certified!r}, attained {attained!r}"
            )
        if attained > 1e-9:
            self.ratios[part].append(round(certified / attained, 6))


def try_model(tally: Tally, part: str, seed: int) -> None:
    """Draw one model and compare every record of it."""
    rng = np.random.default_rng([seed, len(part)])
    model = network(rng) if part.startswith("networks") else chain(rng)
    adversary, method = PARTS[part]
    scale, epsilon = 10 ** rng.uniform(-0.3, 0.8), 10 ** rng.uniform(-0.8, 0.6)
    noise, profile = drawn_noise(rng, scale)
    whole = noise in ("discrete gaussian", "twice discrete")
    deltas = sensitivities(rng, model, whole)
    exact = approximate.WEIGHTS_EXACT
    if seed % 3 == 0:
        approximate.WEIGHTS_EXACT = 8  # coarse bins even on small models
    try:
        bounds = DeltaProfile(model, adversary=adversary, method=method)
        certified = dict(zip(bounds.units.names, bounds.deltas(profile, epsilon, deltas), strict=True))
    finally:
        approximate.WEIGHTS_EXACT = exact
    table = joint(model)
    states = np.array(list(itertools.product(*map(range, table.shape))))
    nodes = list(model.nodes)
    for record in model.records:
        attained, integrals = 0.0, 0
        for known in _known_sets(rng, model, record, adversary):
            mass = table.ravel().copy()
            if known:
                seen = states[rng.choice(len(mass), p=mass / mass.sum())]
                at = [nodes.index(n) for n in known]
                mass = np.where((states[:, at] == seen[at]).all(axis=1), mass, 0.0)
            free = np.where(np.isin(nodes, known), 0.0, deltas)  # what is known is a constant
            for p, q in hypotheses(states, mass, nodes.index(record)):
                for query in queries(rng, states, p, q, free, 2, whole):
                    integrals += 1
                    attained = max(attained, exact_delta(p, q, query, noise, scale, epsilon))
        tally.compare(part, noise, f"seed {seed}, {record}", certified[record], attained, integrals)
        if part.startswith("networks") and not model.directed:
            tally.kinds[f"{part}: loops of six"] += 1
        if model.cardinality(record) > 2:
            tally.kinds[f"{part}: three states"] += 1


def _known_sets(rng: np.random.Generator, model: qd.Model, record: str, adversary: str) -> list[list[str]]:
    if adversary == "prior":
        return [[]]
    others = [n for n in model.records if n != record]
    return [[], *([n for n in others if rng.random() < share] for share in (0.2, 0.4, 0.4, 0.6))]


PARTS = {
    "networks, prior": ("prior", "transport"),
    "networks, informed": ("informed", "transport"),
    "chains, informed": ("informed", "transport"),
    "chains, prior": ("prior", "transport"),
}
"""Every part with its adversary and the method whose δ is compared."""
CHUNK = 10


def work(part: str, seeds: range) -> dict[str, Any]:
    """Return the sums of some seeds of one part."""
    tally = Tally()
    for seed in seeds:
        try_model(tally, part, seed)
    return vars(tally)


def campaign(
    records: int,
    start: int = 0,
    state: Path | None = None,
    parts: Collection[str] = tuple(PARTS),
    executor: Executor | None = None,
) -> dict[str, Any]:
    """Return the sums of at least ``records`` records in every part, seeds from ``start`` on.

    Of parts that are not asked for, what ``state`` holds is counted.
    """
    total: dict[str, Any] = {"ends": {}}
    for part in PARTS:
        own: dict[str, Any] = {}
        ends = range(start, sys.maxsize, CHUNK)
        seeds = ((part, range(k, k + CHUNK)) for k in ends)
        done = kept(seeds, work, state, executor)
        for end in ends:
            enough = own.get("records", {}).get(part, 0) >= records or part not in parts
            if enough and part_at(state, (part, range(end, end + CHUNK))) is None:
                break
            own = merged(own, next(done))
        done.close()
        if own:
            total = merged(total, own | {"ends": {part: end - 1}})
    return total


def summary(total: dict[str, Any], start: int) -> str:
    """Return the table of a campaign, and what was asked."""
    lines = [
        "| part | seeds | records | of loops of six | with three states | integrals | violations"
        " | median certified / attained | 95 % |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for part in total["ends"]:
        q = np.quantile(total["ratios"][part], [0.5, 0.95])
        kinds = [total["kinds"].get(f"{part}: {kind}", 0) for kind in ("loops of six", "three states")]
        wrong = sum(v.startswith(f"{part}, ") for v in total["violations"])
        lines.append(
            f"| {part} | {start}–{total['ends'][part]} | {total['records'][part]:,} |"
            f" {kinds[0]:,} | {kinds[1]:,} | {total['integrals'][part]:,} | {wrong} |"
            f" {q[0]:.3f} | {q[1]:.3g} |"
        )
    noises = sorted((k, n) for k, n in total["kinds"].items() if ":" not in k)
    said = (
        f"Last run: {sum(total['records'].values()):,} records, **{len(total['violations'])} violations**;"
        f" {total['seconds']:,.0f} s of processor time, {len(total['versions'])} version(s) of the sources."
        f" Records by noise: {', '.join(f'{k} {n:,}' for k, n in noises)}."
    )
    return "\n".join([*lines, "", said, *(f"- {v}" for v in total["violations"])])


INTRODUCTION = """\
Certified δ against the exact δ of explicit mechanisms: sums of one term per record with Gaussian,
Laplace (through its dp-accounting event) or discrete Gaussian noise, or two discrete Laplace
answers composed (through their event), integrated between the places where densities cross or
summed over all outputs. Random networks (3 to 5 nodes, zeros, latents, 2 or 3 states, unequal
sensitivities) and loops of six records against the prior adversary and the
informed one with random evidence; chains against both. A third of the models takes weights in
coarse bins. `python benchmarks/soundness_delta.py` draws them
and goes on where it stopped; the tests run a short form.
"""
FOUND_BEFORE = """\
Earlier campaigns with other seeds (from 0, 10,000, 20,000, 400,000, 410,000, 420,000 and 500,000):
12,536 records, 0 violations: networks 3,555 prior and 4,221 informed, chains 2,689 informed and
2,071 prior.

Reading the proofs again before the first campaign found one hole that no small model shows:
laws of more than 2,048 units of weight are kept in coarse steps, and mixing them counted coarse
steps as fine ones. A hub with 99 near copies of unequal sensitivities had a certified δ of
0.093 where 0.848 is attained. It was fixed, and has its test; the coarse steps in a third of
the models are there for that.
"""


def main() -> int:
    """Run the campaign; exit 1 if anything is below what is attained."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=5000, help="in every part")
    parser.add_argument(
        "--part", action="append", choices=list(PARTS), help="only this one (may be repeated)"
    )
    add_options(parser, "build/soundness-delta")
    options = parser.parse_args()
    parts = options.part or tuple(PARTS)
    with workers(options.workers) as executor:
        total = campaign(options.records, options.start, options.state, parts, executor)
    told = summary(total, options.start)
    print(told)
    if options.docs is not None:
        write_section(options.docs, HEADING, f"{HEADING}\n\n{INTRODUCTION}\n{told}\n\n{FOUND_BEFORE}")
    return 1 if total["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
