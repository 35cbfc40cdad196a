"""Hypotheses chosen after looking, on rows that follow each other: false positives, corrected or not.

A label and 64 attributes, each a chain of fair bits over the rows (flip 0.4, 0.25, 0.05), all independent of
each other: every null hypothesis "this attribute has nothing to do with the label" is true.  The analyst
looks at all of them, takes the one that agrees or disagrees with the label most, and tests it on the same
rows at level 0.05, in three ways:

* *as if the rows were independent*: a normal test of n fair coins;
* *for these rows*: the exact law of the agreement of two such chains;
* *corrected*: the same p-value, for an analysis that chose one of 64 (6 bits; Rogers et al., Theorem C.1).

With an effect the chosen attribute is a true one, and rejecting is right.

    python benchmarks/pvalue_story.py --repetitions 1000
"""

from __future__ import annotations

import argparse
import json
import math
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import erfc

from quiltdp import correct_p_values, markov_chain
from quiltdp.generalization import MaxInformation
from quiltdp.generalization.max_information import description_length_max_information
from quiltdp.generalization.sum_law import sum_law

ATTRIBUTES = 64
ROWS = 1_000
LEVEL = 0.05
FLIPS = {"weak": 0.4, "medium": 0.25, "strong": 0.05}
TESTS = ("as if independent", "for these rows", "corrected")


def chains(rng: np.random.Generator, rows: int, columns: int, flip: float) -> np.ndarray:
    """Return independent chains of fair bits, one per column."""
    moves = rng.random((rows, columns)) < flip
    moves[0] = rng.random(columns) < 0.5
    return np.bitwise_xor.accumulate(moves.astype(np.uint8), axis=0)


@lru_cache(maxsize=8)
def two_sided(rows: int, flip: float) -> np.ndarray:
    """Return P[|S − n/2| ≥ |s − n/2|] for every s, S the number of rows on which two such chains agree."""
    together = 2 * flip * (1 - flip)  # their agreement is a chain too
    model = markov_chain([[1 - together, together], [together, 1 - together]], rows)
    law = sum_law(model, dict.fromkeys(model.nodes, (0, 1)))
    far = np.abs(law.values - rows / 2)
    order = np.argsort(-far, kind="stable")
    beyond = np.cumsum(law.chances[order])
    last = np.searchsorted(-far[order], -far - 1e-9, side="left")
    equal = np.searchsorted(-far[order], -far + 1e-9, side="right") - 1
    return np.minimum(1.0, beyond[np.maximum(last, equal)])


def bounds(choices: int = ATTRIBUTES) -> list[MaxInformation]:
    """Return what choosing one of so many says about the data, at many β."""
    bits = math.log2(choices)
    return [description_length_max_information(bits, 10.0 ** (-k / 8)) for k in range(8, 120)]


def p_values(
    rng: np.random.Generator, flip: float, effect: float, rows: int = ROWS
) -> tuple[float, float, bool]:
    """Look, choose, test: the two p-values, and whether the chosen attribute is a true one."""
    data = chains(rng, rows, ATTRIBUTES + 1, flip)
    label, attributes = data[:, 0], data[:, 1:]
    if effect:  # the first attribute is the label itself on a share of the rows
        follow = rng.random(rows) < effect
        attributes[:, 0] = np.where(follow, label, attributes[:, 0])
    agree = (attributes == label[:, None]).sum(axis=0)
    chosen = int(np.argmax(np.abs(agree - rows / 2)))
    z = abs(agree[chosen] - rows / 2) / (math.sqrt(rows) / 2)
    return float(erfc(z / math.sqrt(2))), float(two_sided(rows, flip)[agree[chosen]]), chosen == 0


def rejections(flip: float, effect: float, repetitions: int, seed: int, rows: int = ROWS) -> dict[str, Any]:
    """Return how often each test rejects, with standard errors, and how often the choice was right."""
    found = [p_values(np.random.default_rng([seed, r]), flip, effect, rows) for r in range(repetitions)]
    plain, exact = (np.array([f[k] for f in found]) for k in (0, 1))
    corrected = correct_p_values(exact, max_information=bounds())
    told: dict[str, Any] = {"chose the true one": float(np.mean([f[2] for f in found]))}
    for name, values in zip(TESTS, (plain, exact, corrected), strict=True):
        share = float(np.mean(values <= LEVEL))
        told[name] = {"rejected": share, "error": math.sqrt(share * (1 - share) / repetitions)}
    return told


def table(results: dict[str, dict[str, Any]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [f"| rows | {' | '.join(TESTS)} |", "|---|" + "---:|" * len(TESTS)]
    for name, found in results.items():
        cells = [f"{found[t]['rejected']:.3f} ({found[t]['error']:.3f})" for t in TESTS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=2016)
    parser.add_argument("--output", type=Path, default=Path("docs/benchmarks/pvalues.json"))
    options = parser.parse_args()
    results = {}
    for name, flip in FLIPS.items():
        results[f"{name} (flip {flip:g})"] = rejections(flip, 0.0, options.repetitions, options.seed)
        results[f"{name}, an effect"] = rejections(flip, 0.5, options.repetitions // 4, options.seed + 1)
    print(*table(results), sep="\n")
    options.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
