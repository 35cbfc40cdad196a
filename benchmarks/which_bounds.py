"""Which bounds ``auto`` would miss: how often each one alone is the smallest, and what is lost without it.

    python benchmarks/which_bounds.py [--random 300] [--golden 30] [--delta 100] [--out counts.json]

Every bound that ``auto`` takes is evaluated by itself at the same α (pure) or noise and ε (approximate).  A
bound *wins* a record where it is smaller than every other one by more than 1e-9; the *factor* is how much the
largest leakage of the worst model would grow if the bound were taken away (for δ: its logarithm + 700).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from soundness_models import draw, draw_large

import quiltdp as qd
from quiltdp.accountant.approximate import DeltaProfile
from quiltdp.accountant.leakage import analyze
from quiltdp.mechanisms import GaussianProfile
from quiltdp.work import GuardReached

ROOT = Path(__file__).parents[1]
SAME = 1e-9
Values = Mapping[str, NDArray[np.float64]]


@dataclass
class Count:
    """What one bound was worth."""

    models: int = 0
    records: int = 0
    wins: int = 0
    models_won: int = 0
    matters: int = 0
    lost: float = 1.0
    where: str = ""

    def add(self, model: str, own: NDArray[np.float64], others: NDArray[np.float64]) -> None:
        """Count one model: this bound's values, and the smallest of all others."""
        better = int(
            (own < others - SAME * np.maximum(1.0, np.where(np.isfinite(others), others, 1.0))).sum()
        )
        self.models += 1
        self.records += len(own)
        self.wins += better
        self.models_won += bool(better)
        with_it, without = float(np.minimum(own, others).max()), float(others.max())
        if without > with_it + SAME * max(1.0, with_it):
            self.matters += 1
            factor = without / with_it if with_it > 0 else float("inf")
            if factor > self.lost:
                self.lost, self.where = factor, model


def count(found: dict[str, Count], model: str, values: Values) -> None:
    """Add what every bound says about the units of one component."""
    size = len(next(iter(values.values())))
    for name, own in values.items():
        rest = [v for other, v in values.items() if other != name]
        found[name].add(model, own, np.minimum.reduce(rest) if rest else np.full(size, np.inf))


def pure(
    model: qd.Model, adversary: str, alpha: object, limit: float = 60.0, **options: object
) -> Iterator[Values]:
    """Yield, for every component, what each prepared bound says by itself."""
    from quiltdp.accountant.units import alpha_vector

    profile = analyze(model, adversary=adversary, time_limit=limit, **options)
    costs = alpha_vector(model, alpha)
    for piece in profile._pieces:
        component, values = piece.component, {}
        for entry, bound in component.bounds:
            component.workspace.guard.restart()
            try:
                values[f"{adversary_of(adversary)}: {entry.name}"] = bound.evaluate(
                    costs[piece.found.copies[0]]
                ).values
            except GuardReached:
                continue
        if values:
            yield values


def adversary_of(name: str) -> str:
    """Return the kind of adversary."""
    return "knows" if name.startswith("knows") else name


def approximate(model: qd.Model, adversary: str, std: float, epsilon: float) -> Iterator[Values]:
    """Yield, for every component, the δ of each bound."""
    profile = DeltaProfile(model, adversary=adversary, time_limit=15.0)
    weights = profile.weigh()
    for piece in dict.fromkeys(p for p, _, _ in weights.parts):
        values = {}
        for (entry, bound), pick in zip(piece.bounds, piece.picks, strict=True):
            try:
                found = np.minimum(bound.evaluate(GaussianProfile(std), epsilon).values, 1.0)[pick]
            except GuardReached:
                continue
            values[f"{adversary}: {entry.name}"] = np.log(np.maximum(found, 1e-300)) + 700.0
        yield values


def random_model(seed: int) -> tuple[qd.Model, str]:
    """Return a model of ten to sixty nodes: a chain, a tree, a network with loops, or one with latents."""
    rng = np.random.default_rng([77, seed])
    kind = ["chain", "tree", "loops", "latents"][seed % 4]
    size = int(rng.integers(10, 60))
    states = int(rng.integers(2, 5))

    def table(parents: int) -> NDArray[np.float64]:
        drawn = rng.dirichlet(np.full(states, rng.choice([0.3, 1.0, 5.0])), size=[states] * parents or None)
        drawn = np.maximum(drawn, 1e-6)
        return np.asarray(drawn / drawn.sum(axis=-1, keepdims=True))

    if kind == "chain":
        return qd.markov_chain(table(1), size), kind
    most = 1 if kind == "tree" else 2
    tables = {}
    for k in range(size):
        near = list(range(max(0, k - 6), k))
        chosen = (
            rng.choice(near, size=min(len(near), int(rng.integers(1, most + 1))), replace=False)
            if near
            else []
        )
        tables[f"X{k}"] = ([f"X{p}" for p in chosen], table(len(chosen)))
    records = [n for n in tables if rng.random() < 0.6] if kind == "latents" else None
    return qd.Model.from_tables(tables, records), kind


def golden() -> Iterator[tuple[str, qd.Model]]:
    """Yield the bundled models of the golden test."""
    sys.path.insert(0, str(ROOT / "tests" / "golden"))
    from test_golden import BEFORE, load

    for path in sorted(BEFORE, key=lambda p: (ROOT / p).stat().st_size):
        yield Path(path).name, load(path)


def random_scenarios(found: dict[str, Count], number: int, out: Path | None) -> None:
    """Small, middle and larger random models; both adversaries, known records, protected sets."""
    for seed in range(number):
        for scenario in (draw(seed), draw_large(seed)):
            for values in pure(scenario.model, scenario.adversary, scenario.dp_epsilon, **scenario.options):
                count(found, f"{scenario.shape} {seed}", values)
        model, kind = random_model(seed)
        adversary = ("informed", "prior", "knows:1")[seed // 4 % 3]
        for alpha in (0.03, 0.5):
            for values in pure(model, adversary, alpha):
                count(found, f"{kind} {seed}", values)
        show(found, out)


def main() -> None:
    """Run, and print one row per bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--golden", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--delta", type=int, default=0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    found: dict[str, Count] = defaultdict(Count)
    random_scenarios(found, args.random, args.out)
    for name, model in golden() if args.golden else ():
        for adversary in ("informed", "prior"):
            for values in pure(model, adversary, 0.1, limit=args.golden):
                count(found, name, values)
            show(found, args.out)
    for seed in range(args.delta):
        model, kind = random_model(seed) if seed % 3 else (draw_large(seed).model, "large")
        std = float(np.exp(np.random.default_rng([78, seed]).uniform(np.log(2.0), np.log(60.0))))
        for adversary in ("informed", "prior"):
            for values in approximate(model, adversary, std, 1.0):
                count(found, f"{kind} {seed}, σ = {std:.3g}", {f"δ {n}": v for n, v in values.items()})
        show(found, args.out)
    show(found, args.out)


def show(found: Mapping[str, Count], out: Path | None) -> None:
    """Print the table, and keep the counts."""
    head = "adversary: bound", "components", "records", "alone smallest", "in components", "largest grows"
    lines = [(*head, "factor", "where"), ("---", *["---:"] * 6, "---")]
    for name, c in sorted(found.items()):
        lines.append((name, c.models, c.records, c.wins, c.models_won, c.matters, f"{c.lost:.4g}", c.where))
    rows = [f"| {' | '.join(map(str, line))} |" for line in lines]
    print("\n".join(rows), flush=True)
    if out is not None:
        out.write_text(json.dumps({n: vars(c) for n, c in sorted(found.items())}, indent=1))


if __name__ == "__main__":
    main()
