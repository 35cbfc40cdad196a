"""The reusable-holdout experiment: a linear threshold classifier that chooses its variables on the data.

Rows are consecutive in time: their labels form a Markov chain (flip 1/4), so records are correlated.
Binary attributes come in blocks of ten: inside a block each attribute copies its neighbour with
correlation 1/2; the first attribute of a *signal* block agrees with the label a little more often than
not.  Without signal blocks nothing can be learned, and every accuracy above 1/2 is overfitting.

The analyst correlates every attribute with the label on training and holdout, keeps those that are
large on both with the same sign, takes the k best, and asks the holdout for the accuracy of the
majority vote.  *Naive*: the holdout answers exactly.  *Thresholdout*: it answers through the mechanism.

    python benchmarks/thresholdout_experiment.py --repetitions 100
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from quiltdp import Thresholdout
from quiltdp.mechanisms import InsecureDeterministicNoise, NoiseSource, SecureNoise, ThresholdoutMechanism

BLOCK = 10
COUNTS = (1, 5, 10, 20, 30, 45, 70, 100, 150, 200, 300, 400, 500)


@dataclass(frozen=True)
class Setting:
    """n rows, d attributes, how many blocks carry signal and how much; Thresholdout's parameters."""

    rows: int = 10_000
    attributes: int = 10_000
    signal_blocks: int = 0
    signal: float = 0.06
    threshold: float = 0.05
    sigma: float = 0.003
    budget: int = 50
    counts: tuple[int, ...] = COUNTS


def random_bits(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Return fair bits as uint8, from packed random bytes."""
    packed = rng.integers(0, 256, size=(rows, (columns + 7) // 8), dtype=np.uint8)
    return np.unpackbits(packed, axis=1, count=columns)


def draw(rng: np.random.Generator, setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """Return attributes (bits) and labels; attribute p·blocks + b is number p of block b."""
    n, blocks = setting.rows, setting.attributes // BLOCK
    y = np.bitwise_xor.accumulate((rng.random(n) < 0.25).astype(np.uint8))
    x = np.empty((n, blocks * BLOCK), dtype=np.uint8)
    x[:, :blocks] = random_bits(rng, n, blocks)
    if setting.signal_blocks:
        wrong = rng.random((n, setting.signal_blocks)) < (1.0 - setting.signal) / 2.0
        x[:, : setting.signal_blocks] = y[:, None] ^ wrong
    for p in range(1, BLOCK):
        here, before = slice(p * blocks, (p + 1) * blocks), slice((p - 1) * blocks, p * blocks)
        x[:, here] = x[:, before] ^ (random_bits(rng, n, blocks) & random_bits(rng, n, blocks))
    return x, y


def agreement(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return, per attribute, the part of rows where it equals the label: a query with values in [0, 1]."""
    ones = y.astype(bool)
    same = (
        x[ones].sum(axis=0, dtype=np.int64) + np.count_nonzero(~ones) - x[~ones].sum(axis=0, dtype=np.int64)
    )
    return same / len(y)


def choose(train: np.ndarray, holdout: np.ndarray, rows: int, most: int) -> np.ndarray:
    """Return the attributes kept, best on the training data first: large on both with the same sign."""
    a, b = 2.0 * train - 1.0, 2.0 * holdout - 1.0
    floor = 1.0 / math.sqrt(rows)
    kept = np.flatnonzero((np.abs(a) >= floor) & (np.abs(b) >= floor) & (np.sign(a) == np.sign(b)))
    return kept[np.argsort(-np.abs(a[kept]), kind="stable")][:most]


def accuracies(
    x: np.ndarray, y: np.ndarray, chosen: np.ndarray, signs: np.ndarray, counts: Sequence[int]
) -> list[float]:
    """Return the accuracy of the signed majority of the first k chosen attributes (a tie counts half)."""
    votes = np.zeros(len(y), dtype=np.int32)
    target = 2 * y.astype(np.int32) - 1
    found, done = [], 0
    for k in counts:
        part = chosen[done:k]
        if len(part):
            sign = signs[part].astype(np.int32)
            votes += x[:, part].astype(np.int32) @ (2 * sign) - int(sign.sum())
        done = max(done, k)
        right = votes * target
        found.append(float(np.mean((right > 0) + 0.5 * (right == 0))))
    return found


def repetition(setting: Setting, seed: int, noise: NoiseSource | None = None) -> dict[str, Any]:
    """Run both analysts once on the same data; return their accuracies and what was spent."""
    rng = np.random.default_rng([seed, 0])
    train, holdout = draw(rng, setting), draw(rng, setting)
    on_train, on_holdout = agreement(*train), agreement(*holdout)
    spec = Thresholdout(setting.budget, 1.0 / setting.rows)
    mechanism = ThresholdoutMechanism(
        spec,
        setting.sigma,
        setting.threshold,
        noise=noise if noise is not None else InsecureDeterministicNoise([seed, 1]),  # a stream of its own
    )
    answered = through(mechanism, on_holdout, on_train)
    plans = {
        "naive": choose(on_train, on_holdout, setting.rows, max(setting.counts)),
        "thresholdout": choose(on_train, answered, setting.rows, max(setting.counts)),
    }
    signs = np.sign(on_train - 0.5)
    result: dict[str, Any] = {}
    for name, chosen in plans.items():
        result[name] = {
            "train": accuracies(*train, chosen, signs, setting.counts),
            "holdout": accuracies(*holdout, chosen, signs, setting.counts),
        }
    del train, holdout
    told = result["thresholdout"]
    told["holdout"] = through(mechanism, np.array(told["holdout"]), np.array(told["train"])).tolist()
    fresh = draw(rng, setting)
    for name, chosen in plans.items():
        result[name]["fresh"] = accuracies(*fresh, chosen, signs, setting.counts)
    result["spent"] = mechanism.state.answers
    return result


def through(mechanism: ThresholdoutMechanism, holdout: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Ask Thresholdout for a vector of queries; ⊥ becomes the training value, which costs nothing."""
    pairs = [
        (mechanism.units(float(h)), mechanism.units(float(t))) for h, t in zip(holdout, train, strict=True)
    ]
    outcomes, mechanism.state = mechanism.run(pairs, mechanism.state)
    return np.array(
        [
            mechanism.grid.value(o.units) if o.source == "holdout" and o.units is not None else t
            for o, t in zip(outcomes, train, strict=True)
        ]
    )


def summary(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return mean and standard deviation over the repetitions."""
    found: dict[str, Any] = {
        "repetitions": len(runs),
        "spent_mean": float(np.mean([r["spent"] for r in runs])),
    }
    found["spent_max"] = int(max(r["spent"] for r in runs))
    for analyst in ("naive", "thresholdout"):
        for where in ("train", "holdout", "fresh"):
            table = np.array([r[analyst][where] for r in runs])
            found[f"{analyst}_{where}"] = {
                "mean": table.mean(axis=0).tolist(),
                "std": table.std(axis=0).tolist(),
            }
    return found


def draw_figure(results: dict[str, Any], analyst: str, counts: Sequence[int], title: str, path: Path) -> None:
    """Save train, holdout and fresh accuracy against the number of variables, without and with signal."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        1, len(results), figsize=(4.8 * len(results), 3.6), sharey=True, squeeze=False
    )
    colours = {"train": "#4c72b0", "holdout": "#dd8452", "fresh": "#55a868"}
    for axis, (name, found) in zip(axes[0], results.items(), strict=True):
        for where, colour in colours.items():
            line = found[f"{analyst}_{where}"]
            mean, std = np.array(line["mean"]), np.array(line["std"])
            axis.plot(counts, mean, color=colour, label=where, marker="o", markersize=3)
            axis.fill_between(counts, mean - std, mean + std, color=colour, alpha=0.2, linewidth=0)
        axis.axhline(0.5, color="grey", linewidth=0.8, linestyle=":")
        axis.set_title(name)
        axis.set_xlabel("number of variables")
    axes[0][0].set_ylabel("accuracy")
    axes[0][0].legend(frameon=False)
    figure.suptitle(f"{title} ({next(iter(results.values()))['repetitions']} repetitions)")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


TITLES = {"naive": "Holdout reused naively", "thresholdout": "Holdout behind Thresholdout"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first repetition")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--attributes", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after this time")
    parser.add_argument("--secure", action="store_true", help="OpenDP's noise instead of seeded noise")
    parser.add_argument("--figures", type=Path, default=Path("docs/figures"))
    parser.add_argument("--output", type=Path, default=Path("docs/benchmarks/thresholdout_experiment.json"))
    options = parser.parse_args()
    settings = {
        "no signal": Setting(options.rows, options.attributes),
        "20 blocks with signal": Setting(options.rows, options.attributes, signal_blocks=20),
    }
    start, runs = time.monotonic(), {name: [] for name in settings}
    for seed in range(options.first, options.first + options.repetitions):
        for name, setting in settings.items():
            runs[name].append(repetition(setting, seed, SecureNoise() if options.secure else None))
        elapsed = time.monotonic() - start
        print(f"seed {seed}: {elapsed:.0f} s", flush=True)
        if elapsed > 60 * options.minutes:
            break
    results = {name: summary(found) for name, found in runs.items()}
    options.figures.mkdir(parents=True, exist_ok=True)
    for analyst, title in TITLES.items():
        draw_figure(results, analyst, COUNTS, title, options.figures / f"holdout_{analyst}.png")
    document = {"counts": COUNTS, "seconds": round(time.monotonic() - start), **results}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(document, indent=1) + "\n")
    for name, found in results.items():
        last = {k: round(v["mean"][-1], 4) for k, v in found.items() if isinstance(v, dict)}
        print(name, last, "spent", found["spent_mean"], "of", Setting().budget)


if __name__ == "__main__":
    main()
