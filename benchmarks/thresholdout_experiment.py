"""The reusable-holdout experiment on rows that follow each other (Zhao 2017, Figures 2 and 3).

Rows come one after the other in time.  With probability ρ a row repeats the one before it, label and all
attributes alike; otherwise it is a new one.  So labels *and* attributes are correlated over rows, and so is
every statistic of them: ρ = 0.2, 0.5, 0.9 (labels flip with probability 0.4, 0.25, 0.05) is weak, medium,
strong.  Inside a row binary attributes come in blocks of ten, each copying its neighbour with correlation
1/2; the first attribute of a *signal* block agrees with the label a little more often than not.  Without
signal blocks nothing can be learned, and every accuracy above 1/2 is overfitting.

The analyst asks for the agreement of every attribute with the label, keeps those that are large on training
and holdout with the same sign, lets the k best vote, and asks for the accuracy of the vote.  The holdout
answers in one of four ways:

* *naive*: exactly;
* *noise for independent rows*: Thresholdout, with σ and T from ``quiltdp.plan`` for independent rows;
* *plan*: Thresholdout, with σ and T from ``quiltdp.plan`` for the chain of rows (description length: it
  promises an accuracy and no privacy); or it is refused;
* *paper*: Zhao's approach: σ from ``quiltdp.calibrate`` so that all answers say at most ε = 1 about a row to
  whoever knows the model, and from that σ the τ and T of Theorem 2; impossible where τ ≥ ½.

⊥ stays ⊥: an attribute without an answer is not chosen, an accuracy without an answer is not drawn.

    python benchmarks/thresholdout_experiment.py --repetitions 40; make figures
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from quiltdp import Thresholdout, calibrate, leakage, markov_chain, plan
from quiltdp.chain import ChainModel
from quiltdp.errors import Refused
from quiltdp.generalization import Plan
from quiltdp.mechanisms import InsecureDeterministicNoise, NoiseSource, SecureNoise, ThresholdoutMechanism
from quiltdp.parallel import each, workers

BLOCK = 10
COUNTS = (5, 10, 20, 50, 100, 200, 500)
LEVELS = {  # how often a row repeats, and how many times as many rows there are
    "weak": (0.2, 1),
    "medium": (0.5, 1),
    "strong": (0.9, 1),
    "strong, 40 times the rows": (0.9, 40),
}
WAYS = {
    "naive": "reused naively",
    "independent": "Thresholdout, noise for independent rows",
    "plan": "Thresholdout, plan by description length",
    "paper": "Thresholdout, σ calibrated to ε = 1",
}
EPSILON, SLACK, FAILURE = 1.0, 0.05, 0.05  # of the paper's approach: ε, and c and β of Theorem 2
KINDS = 64  # of rows, for the leakage about one; with ever more kinds σ rises by another 1 %


@dataclass(frozen=True)
class Setting:
    """n rows, d attributes, how strongly rows repeat, how many blocks carry signal and how much."""

    rows: int = 5_000
    attributes: int = 2_000
    repeats: float = 0.5
    signal_blocks: int = 0
    signal: float = 0.12
    budget: int = 8
    counts: tuple[int, ...] = COUNTS

    @property
    def queries(self) -> int:
        """Every attribute, and the vote of every size."""
        return self.attributes + len(self.counts)


@lru_cache(maxsize=64)
def planned(rows: int, queries: int, budget: int, repeats: float) -> Plan | str:
    """Return σ and T for rows that repeat with this probability, or why there are none.

    Only how fast rows forget enters the plan (description length, with the spectral gap), not what is in
    them: a chain of two kinds of rows that repeats as often stands for all.
    """
    other = (1 - repeats) / 2
    chain = markov_chain([[1 - other, other], [other, 1 - other]], rows)
    try:
        found = plan(chain, queries=queries, budget=budget)
    except Refused as error:
        return str(error)
    if not found.route.startswith("description length"):
        raise RuntimeError(f"the experiment is about Thresholdout, the plan is by {found.route}")
    return found


@dataclass(frozen=True)
class PaperNoise:
    """Zhao's approach: σ for ε, then τ = 12σ ln(4m/β)/(1 − c) and T = (1 + c)τ/2 of Theorem 2."""

    sigma: float
    accuracy: float
    threshold: float
    resolution: float = 0.0
    effective_sample_size: float | None = None


def chain_of_rows(repeats: float, rows: int) -> ChainModel:
    """Return rows of many kinds, each repeating the one before with this probability."""
    return markov_chain(repeats * np.eye(KINDS) + (1 - repeats) / KINDS, rows)


def of_sigma(sigma: float, queries: int) -> PaperNoise:
    """Return Theorem 2 read from σ: what it promises, and its threshold."""
    tau = 12 * sigma * math.log(4 * queries / FAILURE) / (1 - SLACK)
    return PaperNoise(sigma, tau, (1 + SLACK) * tau / 2)


@lru_cache(maxsize=64)
def paper_noise(rows: int, queries: int, budget: int, repeats: float) -> PaperNoise | str:
    """Return σ from a calibration to ε with Theorem 2's T, or at which size that is possible."""
    mechanism = Thresholdout(budget, 1.0 / rows)
    made = calibrate(chain_of_rows(repeats, rows), EPSILON, mechanism, adversary="prior", compare=False)
    found = of_sigma(made.sigma, queries)
    if found.accuracy < 0.5:
        return found
    least, tenth = (math.ceil(rows * found.accuracy / tau) for tau in (0.5, 0.1))
    return (
        f"ε = {EPSILON:g} needs σ = {made.sigma:.3g}, and Theorem 2 then promises only"
        f" ± {found.accuracy:.2g}: below ½ from {least:,} rows on, ± 0.1 from {tenth:,}"
    )


def plan_for(setting: Setting, way: str) -> Plan | PaperNoise | str | None:
    """Return σ and T of one way of answering, or why there are none; None for the naive one."""
    if way == "naive":
        return None
    if way == "paper":
        return paper_noise(setting.rows, setting.queries, setting.budget, setting.repeats)
    repeats = 0.0 if way == "independent" else setting.repeats
    return planned(setting.rows, setting.queries, setting.budget, repeats)


def random_bits(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Return fair bits as uint8, from packed random bytes."""
    packed = rng.integers(0, 256, size=(rows, (columns + 7) // 8), dtype=np.uint8)
    return np.unpackbits(packed, axis=1, count=columns)


def new_rows(rng: np.random.Generator, setting: Setting, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return n independent rows: attributes and labels; attribute p·blocks + b is number p of block b."""
    blocks = setting.attributes // BLOCK
    y = (rng.random(n) < 0.5).astype(np.uint8)
    x = np.empty((n, blocks * BLOCK), dtype=np.uint8)
    x[:, :blocks] = random_bits(rng, n, blocks)
    if setting.signal_blocks:
        wrong = rng.random((n, setting.signal_blocks)) < (1.0 - setting.signal) / 2.0
        x[:, : setting.signal_blocks] = y[:, None] ^ wrong
    for p in range(1, BLOCK):
        here, before = slice(p * blocks, (p + 1) * blocks), slice((p - 1) * blocks, p * blocks)
        x[:, here] = x[:, before] ^ (random_bits(rng, n, blocks) & random_bits(rng, n, blocks))
    return x, y


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows in order of time, each run of equal ones kept once: attributes, labels, and how long it is."""

    x: np.ndarray
    y: np.ndarray
    length: np.ndarray

    def mean(self, values: np.ndarray) -> np.ndarray:
        """Return the mean over all rows of a value per run (first axis)."""
        return np.asarray(self.length @ values / self.length.sum())


def draw(rng: np.random.Generator, setting: Setting) -> Rows:
    """Return rows that follow each other: each repeats the one before with probability ρ."""
    fresh = rng.random(setting.rows) >= setting.repeats
    fresh[0] = True
    starts = np.flatnonzero(fresh)
    length = np.diff(np.append(starts, setting.rows)).astype(np.float32)
    return Rows(*new_rows(rng, setting, len(starts)), length)


def agreement(data: Rows) -> np.ndarray:
    """Return, per attribute, the part of rows where it equals the label: a query with values in [0, 1]."""
    sign = np.where(data.y == 1, data.length, -data.length)
    zeros = float(data.length[data.y == 0].sum())
    total = np.zeros(data.x.shape[1])
    for part in range(0, len(sign), 4096):
        total += sign[part : part + 4096] @ data.x[part : part + 4096].astype(np.float32)
    return np.clip((total + zeros) / float(data.length.sum()), 0.0, 1.0)


def choose(train: np.ndarray, holdout: np.ndarray, rows: int, most: int) -> np.ndarray:
    """Return the attributes kept, best on the training data first: answered, large on both, same sign."""
    a, b = 2.0 * train - 1.0, 2.0 * holdout - 1.0
    floor = 1.0 / math.sqrt(rows)
    with np.errstate(invalid="ignore"):  # an attribute without an answer compares as false
        kept = np.flatnonzero((np.abs(a) >= floor) & (np.abs(b) >= floor) & (np.sign(a) == np.sign(b)))
    return kept[np.argsort(-np.abs(a[kept]), kind="stable")][:most]


def accuracies(data: Rows, chosen: np.ndarray, signs: np.ndarray, counts: Sequence[int]) -> list[float]:
    """Return the accuracy of the signed majority of the first k chosen attributes (a tie counts half)."""
    votes = np.zeros(len(data.y), dtype=np.float32)
    target = 2 * data.y.astype(np.float32) - 1
    found, done = [], 0
    for k in counts:
        part = chosen[done:k]
        if len(part):
            sign = signs[part].astype(np.float32)
            votes += data.x[:, part].astype(np.float32) @ (2 * sign) - float(sign.sum())
        done = max(done, k)
        right = votes * target
        found.append(min(1.0, float(data.mean((right > 0) + 0.5 * (right == 0)))))
    return found


def through(
    mechanism: ThresholdoutMechanism, resolution: float, holdout: np.ndarray, train: np.ndarray
) -> np.ndarray:
    """Ask Thresholdout for a vector of queries, answers rounded as planned; ⊥ is NaN."""
    pairs = [
        (mechanism.units(float(h)), mechanism.units(float(t))) for h, t in zip(holdout, train, strict=True)
    ]
    outcomes, mechanism.state = mechanism.run(pairs, mechanism.state)
    said = np.array(train, dtype=float)
    for k, outcome in enumerate(outcomes):
        if outcome.source == "spent":
            said[k] = np.nan
        elif outcome.source == "holdout" and outcome.units is not None:
            exact = mechanism.grid.value(outcome.units)
            said[k] = round(exact / resolution) * resolution if resolution else exact
    return said


def repetition(setting: Setting, seed: int, noise: NoiseSource | None = None) -> dict[str, Any]:
    """Let all analysts work on the same data; return what they saw, heard and really have."""
    rng = np.random.default_rng([seed, 0])
    train, holdout = draw(rng, setting), draw(rng, setting)
    truth = min(setting.rows, 20_000)  # independent rows: the truth, with the least error
    fresh = Rows(*new_rows(rng, setting, truth), np.ones(truth, dtype=np.float32))
    on_train, on_holdout = agreement(train), agreement(holdout)
    signs = np.sign(on_train - 0.5)
    result: dict[str, Any] = {}
    for place, way in enumerate(WAYS):
        found = plan_for(setting, way)
        if isinstance(found, str):
            result[way] = None
            continue
        mechanism = None
        heard = on_holdout
        if found is not None:
            source = noise if noise is not None else InsecureDeterministicNoise([seed, place])
            spec = Thresholdout(setting.budget, 1.0 / setting.rows)
            mechanism = ThresholdoutMechanism(spec, found.sigma, found.threshold, noise=source)
            heard = through(mechanism, found.resolution, on_holdout, on_train)
        chosen = choose(on_train, heard, setting.rows, max(setting.counts))
        seen = accuracies(train, chosen, signs, setting.counts)
        own = accuracies(holdout, chosen, signs, setting.counts)
        said = np.array(own)
        if found is not None and mechanism is not None:
            said = through(mechanism, found.resolution, said, np.array(seen))
        result[way] = {
            "train": seen,
            "holdout": said.tolist(),
            "holdout itself": own,
            "fresh": accuracies(fresh, chosen, signs, setting.counts),
            "unanswered": float(np.mean(np.isnan(heard))),
            "spent": mechanism.state.answers if mechanism is not None else 0,
        }
    return result


def one_repetition(shared: tuple[Setting, bool], seed: int) -> dict[str, Any]:
    """Return one repetition, in whatever process."""
    setting, secure = shared
    return repetition(setting, seed, SecureNoise() if secure else None)


def summary(runs: Sequence[dict[str, Any]], way: str) -> dict[str, Any] | None:
    """Return means and standard errors over the repetitions, and how often there was no answer."""
    found = [r[way] for r in runs if r[way] is not None]
    if not found:
        return None
    told: dict[str, Any] = {"repetitions": len(found)}
    for where in ("train", "holdout", "holdout itself", "fresh"):
        table = np.array([r[where] for r in found], dtype=float)
        there = np.sum(~np.isnan(table), axis=0)
        mean = np.nansum(table, axis=0) / np.where(there > 0, there, np.nan)
        spread = np.sqrt(np.nansum((table - mean) ** 2, axis=0) / np.where(there > 1, there - 1, np.nan))
        told[where] = {
            "mean": [None if np.isnan(m) else float(m) for m in mean],
            "error": [None if np.isnan(s) else float(s) for s in spread / np.sqrt(np.maximum(there, 1))],
            "no answer": (1 - there / len(found)).tolist(),
        }
    gap = np.array([r["holdout itself"] for r in found]) - np.array([r["fresh"] for r in found])
    told["wear"] = {
        "mean": gap.mean(axis=0).tolist(),
        "error": (gap.std(axis=0, ddof=1) / len(found) ** 0.5).tolist() if len(found) > 1 else None,
    }
    told["unanswered"] = float(np.mean([r["unanswered"] for r in found]))
    told["spent"] = float(np.mean([r["spent"] for r in found]))
    return told


def promise(setting: Setting, way: str) -> dict[str, Any] | None:
    """Return what the plan promised, for the table."""
    found = plan_for(setting, way)
    if found is None:
        return None
    if isinstance(found, str):
        return {"refused": found}
    return {
        "sigma": found.sigma,
        "threshold": found.threshold,
        "resolution": found.resolution,
        "accuracy": found.accuracy,
        "effective_sample_size": found.effective_sample_size,
    }


def privacy(setting: Setting, way: str) -> float | None:
    """Return ε of one way: what its answers say about a row to whoever knows the model."""
    found = plan_for(setting, way)
    if found is None or isinstance(found, str):
        return None
    alpha = Thresholdout(setting.budget, 1.0 / setting.rows).dp_epsilon(found.sigma)
    return float(leakage(chain_of_rows(setting.repeats, setting.rows), alpha, adversary="prior").epsilon)


def settings(base: Setting) -> dict[str, Setting]:
    """Return the setting of every level of correlation."""
    return {
        level: replace(base, rows=base.rows * times, repeats=repeats)
        for level, (repeats, times) in LEVELS.items()
    }


def experiment(
    base: Setting,
    seeds: Sequence[int],
    *,
    secure: bool = False,
    minutes: float = math.inf,
    executor: Executor | None = None,
) -> dict[str, Any]:
    """Run every level of correlation; return summaries and promises, way by way."""
    start, results = time.monotonic(), {}
    for level, setting in settings(base).items():
        runs = []
        for run in each(one_repetition, seeds, shared=(setting, secure), executor=executor):
            runs.append(run)
            if time.monotonic() - start > 60 * minutes:
                break
        results[level] = {
            way: {
                "found": summary(runs, way),
                "promised": promise(setting, way),
                "epsilon": privacy(setting, way),
            }
            for way in WAYS
        }
    return results


COLOURS = {"train": "#4c72b0", "holdout": "#dd8452", "fresh": "#55a868"}


def draw_panel(axis: Any, found: dict[str, Any] | None, promised: dict[str, Any] | None, counts: Any) -> None:
    """Draw three curves with two standard errors; ⊥ as ⊥; a refusal as its reason."""
    axis.axhline(0.5, color="grey", linewidth=0.8, linestyle=":")
    if found is None:
        import textwrap

        reason = textwrap.fill("refused: " + (promised or {}).get("refused", ""), 26)
        axis.text(0.5, 0.5, reason, transform=axis.transAxes, ha="center", va="center", fontsize=7.5)
        return
    for where, colour in COLOURS.items():
        line = found[where]
        mean = np.array([np.nan if v is None else v for v in line["mean"]])
        error = np.array([0.0 if v is None else v for v in line["error"]])
        axis.plot(counts, mean, color=colour, label=where, marker="o", markersize=3)
        axis.fill_between(counts, mean - 2 * error, mean + 2 * error, color=colour, alpha=0.25, linewidth=0)
    silent = np.array(found["holdout"]["no answer"])
    for k, share in zip(counts, silent, strict=True):
        if share > 0:
            label = "⊥" if share == 1 else f"⊥ {share:.0%}"
            axis.annotate(label, (k, 0.985), ha="center", fontsize=7, color=COLOURS["holdout"])
    own = found["holdout itself"]["mean"]
    if silent.any():
        axis.plot(counts, own, color=COLOURS["holdout"], linestyle=":", linewidth=1, label="holdout, unseen")


def draw_figure(results: dict[str, Any], path: Path, counts: Sequence[int] = COUNTS) -> None:
    """Save a row per way of answering, a column per level of correlation (Figures 2 and 3)."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    ways = list(next(iter(results.values())))
    figure, axes = plt.subplots(
        len(ways),
        len(results),
        figsize=(2.4 * len(results), 0.5 + 2.3 * len(ways)),
        sharey=True,
        squeeze=False,
    )
    for row, way in zip(axes, ways, strict=True):
        for axis, (level, found) in zip(row, results.items(), strict=True):
            draw_panel(axis, found[way]["found"], found[way]["promised"], counts)
            axis.set_title(f"{level}\n(a row repeats: {LEVELS[level][0]:.0%})", fontsize=8.5)
            axis.set_xscale("log")
            axis.set_ylim(0.45, 1.03)
        row[0].set_ylabel(WAYS[way].replace(", ", ",\n") + "\naccuracy", fontsize=8.5)
    for axis in axes[-1]:
        axis.set_xlabel("number of variables")
    lines = {line.get_label(): line for axis in axes.flat for line in axis.get_legend_handles_labels()[0]}
    axes[0][0].legend(lines.values(), lines, frameon=False, fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)


def table(results: dict[str, Any], counts: Sequence[int], shown: Sequence[int]) -> list[str]:
    """Return the lines of a Markdown table: means and standard errors at some numbers of variables."""
    lines = [
        "| correlation | holdout | variables | training | it says | itself | fresh | promised |",
        "|---|---|---:|---:|---:|---:|---:|---|",
    ]

    def cell(line: dict[str, Any], k: int) -> str:
        mean, error, silent = line["mean"][k], line["error"][k], line["no answer"][k]
        value = "⊥" if mean is None else f"{mean:.3f}" + (f" ({error:.3f})" if error is not None else "")
        return value if mean is None or silent == 0 else f"{value}, ⊥ {silent:.0%}"

    for level, ways in results.items():
        for way, both in ways.items():
            found, promised = both["found"], both["promised"]
            if found is None:
                lines.append(f"| {level} | {way} | – | – | – | – | – | refused |")
                continue
            kept = "–" if promised is None else f"± {promised['accuracy']:.2g}"
            for k in (counts.index(c) for c in shown):
                cells = [cell(found[w], k) for w in ("train", "holdout", "holdout itself", "fresh")]
                lines.append(f"| {level} | {way} | {counts[k]} | {' | '.join(cells)} | {kept} |")
    return lines


def settings_table(results: dict[str, Any]) -> list[str]:
    """Return the lines of a Markdown table: σ, T, τ and ε of every curve, or why there is none."""
    lines = ["| correlation | holdout | σ | T | promised | ε about a row |", "|---|---|---:|---:|---:|---|"]
    for level, ways in results.items():
        for way, both in ways.items():
            promised = both["promised"]
            if promised is None:
                lines.append(f"| {level} | {way} | 0 | – | – | all of it |")
            elif "refused" in promised:
                lines.append(f"| {level} | {way} | – | – | – | {promised['refused']} |")
            else:
                cells = [promised["sigma"], promised["threshold"], promised["accuracy"], both["epsilon"]]
                lines.append(f"| {level} | {way} | " + " | ".join(f"{c:.3g}" for c in cells) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=40)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first repetition")
    parser.add_argument("--rows", type=int, default=Setting().rows)
    parser.add_argument("--attributes", type=int, default=Setting().attributes)
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop a level after this time")
    parser.add_argument("--workers", type=int, default=1, help="processes to work with")
    parser.add_argument("--secure", action="store_true", help="OpenDP's noise instead of seeded noise")
    parser.add_argument("--output", type=Path, default=Path("docs/benchmarks/thresholdout_experiment.json"))
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.repetitions)
    document: dict[str, Any] = {"counts": COUNTS, "levels": LEVELS}
    for name, blocks in (("no signal", 0), ("20 blocks with signal", 20)):
        base = Setting(options.rows, options.attributes, signal_blocks=blocks)
        with workers(options.workers) as executor:
            document[name] = experiment(
                base, seeds, secure=options.secure, minutes=options.minutes, executor=executor
            )
        print(name, *table(document[name], COUNTS, (20, 100, 500)), sep="\n", flush=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
