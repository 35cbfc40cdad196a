"""Soundness campaign: every method against attacks by brute force, on random models.

    python benchmarks/soundness.py --seeds 20000 --large 300 [--state build/soundness] [--docs PAGE.md]

Each seed draws a scenario (Bayesian network, Markov network or chain; 2 to 4 states; zeros, latents,
unequal α; an adversary; sets that are protected together) and every method must be at least as large
as what an explicit mechanism attains.  The large ones have 8 to 13 records.  The work is done in
chunks that are kept: an interrupted campaign goes on where it stopped.  A violation prints its seed.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator
from functools import reduce
from typing import Any

import numpy as np
from campaigns import add_options, kept, merged
from soundness_attacks import ascend, joint_of_records, strongest
from soundness_models import Scenario, draw, draw_large

import quiltdp as qd
import quiltdp.papers  # importing it registers the comparisons
from quiltdp.accountant.methods import method_names
from quiltdp.errors import QuiltdpError
from quiltdp.parallel import workers

CHUNK, LARGE_CHUNK = 200, 10
SLACK = 1e-11
SLOW = ("auto", "exact")
"""Methods that enumerate; each is run on every third small model."""


def bounds(scene: Scenario, seed: int, *, large: bool = False) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield (method, leakage per unit) of every method that applies."""
    for k, method in enumerate(method_names(scene.adversary)):
        skip = method != "auto" if large else (seed + k) % 3
        if method in SLOW and skip:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = qd.leakage(
                    scene.model, scene.dp_epsilon, method, scene.adversary, time_limit=20.0, **scene.options
                )
        except QuiltdpError:
            continue
        yield method, dict(found.per_record)


def small(seed: int) -> tuple[Scenario, list[float]]:
    """Return the scenario and what is attained about each of its units."""
    scene = draw(seed)
    who, most = scene.may_know
    return scene, [strongest(scene.model, scene.alpha, unit, who, most).leakage for unit in scene.units]


def large(seed: int) -> tuple[Scenario, list[float]]:
    """Return a scenario of 8 to 13 records and what product mechanisms attain about each."""
    scene = draw_large(seed)
    joint = joint_of_records(scene.model)
    rng = np.random.default_rng([14, seed])
    costs = [scene.alpha[r] for r in scene.model.records]
    attained = []
    for target in range(joint.ndim):
        best = ascend(joint, costs, target, {})
        for _ in range(12 if scene.adversary == "informed" else 0):
            others = [k for k in range(joint.ndim) if k != target]
            chosen = rng.choice(others, size=int(rng.integers(1, 5)), replace=False)
            best = max(best, ascend(joint, costs, target, {int(k): int(rng.integers(2)) for k in chosen}))
        attained.append(best)
    return scene, attained


def judge(scene: Scenario, attained: list[float], seed: int, *, big: bool = False) -> dict[str, Any]:
    """Return the ratios to what is attained per method, and the violations."""
    ratios, violations, checks = {}, [], 0
    for method, found in bounds(scene, seed, large=big):
        for (unit, value), truth in zip(found.items(), attained, strict=True):
            checks += 1
            if value < truth - SLACK * max(1.0, truth):
                violations.append(
                    f"{'large ' if big else ''}seed {seed}, {scene.shape}: {scene.adversary}/{method}"
                    f" on {unit}: {value!r} < {truth!r}"
                )
        top = max(attained)
        if top > 1e-9 and max(found.values()) < np.inf:
            ratios[f"{scene.adversary.split('=')[0].split(':')[0]}/{method}"] = max(found.values()) / top
    return {"ratios": ratios, "violations": violations, "checks": checks}


def chunk(kind: str, seeds: range) -> dict[str, Any]:
    """Return the sums of some seeds."""
    sums: dict[str, Any] = {
        "ratios": defaultdict(list),
        "violations": [],
        "checks": 0,
        "scenes": defaultdict(int),
    }
    for seed in seeds:
        scene, attained = (small if kind == "small" else large)(seed)
        one = judge(scene, attained, seed, big=kind == "large")
        for name, value in one["ratios"].items():
            sums["ratios"][name].append(round(value, 6))
        sums["violations"] += one["violations"]
        sums["checks"] += one["checks"]
        tags = [scene.shape, scene.adversary.split("=")[0].split(":")[0]]
        tags += ["sets"] if scene.options else []
        tags += ["unequal α"] if isinstance(scene.dp_epsilon, dict) else []
        tags += ["latents"] if scene.model.latents else []
        tags += ["zeros"] if any((np.asarray(f.table) == 0).any() for f in scene.model.factors) else []
        for tag in tags:
            sums["scenes"][tag] += 1
    return {**sums, "models": {kind: len(seeds)}}


def chunks(start: int, seeds: int, large_seeds: int) -> Iterator[tuple[str, range]]:
    """Yield (kind, seeds) alternately, so that an interrupted campaign has some of both."""
    ends, large_ends = start + seeds, start + large_seeds
    a = [("small", range(k, min(k + CHUNK, ends))) for k in range(start, ends, CHUNK)]
    b = [("large", range(k, min(k + LARGE_CHUNK, large_ends))) for k in range(start, large_ends, LARGE_CHUNK)]
    for one, other in itertools.zip_longest(a, b):
        yield from (part for part in (one, other) if part is not None)


def page(total: dict[str, Any], start: int) -> str:
    """Return the page of the documentation."""
    lines = [
        "| adversary | method | models | median × attained | 95 % | worst |",
        "|---|---|---|---|---|---|",
    ]
    for name, values in sorted(total["ratios"].items()):
        q = np.quantile(values, [0.5, 0.95])
        who, method = name.split("/")
        lines.append(f"| {who} | {method} | {len(values):,} | {q[0]:.3f} | {q[1]:.3f} | {max(values):.3f} |")
    count = total["models"]
    scenes = ", ".join(f"{name} {n:,}" for name, n in sorted(total["scenes"].items(), key=lambda x: -x[1]))
    small_count, large_count = count.get("small", 0), count.get("large", 0)
    wrong = len(total["violations"])
    found = "".join(f"\n- {v}" for v in total["violations"])
    return f"""# Soundness campaign

Every method and adversary against explicit mechanisms, by brute force written from the definition
(`benchmarks/soundness_attacks.py` asks the library for no bound): the adversary's evidence is enumerated,
a linear program finds the worst mechanism, and what that mechanism *attains* is evaluated. A certified
number below it, by more than a part in 10¹¹, is a violation. Records by the thousand are beyond brute
force: with 8 to 13 of them product mechanisms attack. `make soundness` runs it and goes on where it
stopped; `make test` runs a short form on other seeds.

{small_count:,} random models (seeds {start:,} to {start + small_count - 1:,}) and {large_count:,} with
8 to 13 records: {total["checks"]:,} certified numbers compared, **{wrong} violations**,
{total["seconds"]:,.0f} s of processor time, {len(total["versions"])} version(s) of the sources.
{found}
Scenarios: {scenes}.

{chr(10).join(lines)}
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20_000)
    parser.add_argument("--large", type=int, default=300)
    add_options(parser, "build/soundness")
    options = parser.parse_args()
    with workers(options.workers) as executor:
        parts = chunks(options.start, options.seeds, options.large)
        total = reduce(merged, kept(parts, chunk, options.state, executor), {})
    text = page(total, options.start)
    print(text)
    if options.docs is not None:
        before = options.docs.read_text(encoding="utf-8") if options.docs.exists() else ""
        others = before[before.index("\n## ") :] if "\n## " in before else ""  # other campaigns' sections
        options.docs.write_text(text + others, encoding="utf-8")
    return 1 if total["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
