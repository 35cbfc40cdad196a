"""Sequential coupling in all its forms against explicit mechanisms, on small networks with loops.

    python benchmarks/soundness_coupling.py --seeds 2400 [--start 0] [--state DIR] [--docs PAGE.md]

Each seed draws a Bayesian network of two to six nodes (two or three states, zeros, latents, unequal α), and
every fourth seed a Markov network that is a loop of six records.  Every form of the bound must be at least
as large as what an explicit mechanism attains about each record, found by a linear program over all α-DP
likelihoods and made exactly feasible (``soundness_attacks``, which asks the library for nothing).
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from campaigns import add_options, campaign, told
from soundness_attacks import strongest

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "accountant" / "bounds"))

import loopy
from prior_oracle import alphas, random_dag

from quiltdp import Model
from quiltdp.accountant.bounds.contract import Problem, ready
from quiltdp.accountant.bounds.coupling import AllPairs, CouplingBound, Prices
from quiltdp.inference.schedule import schedule
from quiltdp.parallel import workers
from quiltdp.work import NO_GUARD

HEADING = "## Sequential coupling in all its forms (prior adversary)"
FORMS = (
    "all pairs",
    "all pairs, one node at a time",
    "few pairs: single changes, and mass above 0.1",
    "few pairs: single changes, and those of the unit",
)
SLACK = 1e-12
CHUNK = 50
Unit = tuple[str, ...]


def drawn(seed: int) -> tuple[str, Model, np.ndarray]:
    """Return the kind, the model and the α of a seed."""
    if seed % 4 == 3:
        rng = np.random.default_rng([seed, 6])
        states = 3 if rng.random() < 0.3 else 2
        kind = loopy.KINDS[seed // 4 % len(loopy.KINDS)]
        model = loopy.loopy(
            seed, "loop of six", kind, states=states, latents=bool(rng.random() < 0.2), joint_states=108
        )
        equal = rng.random() < 0.6
        costs = rng.choice([0.05, 0.3, 1.0, 3.0], None if equal else len(model.nodes))
        return "loops of six", model, alphas(model, costs)
    model, alpha = random_dag(seed, max_joint=96 if seed % 4 == 2 else 32)
    return "networks", model, alpha


def units_of(model: Model, seed: int) -> list[Unit]:
    """Return every record, and now and then two of them as one."""
    units: list[Unit] = [(r,) for r in model.records]
    return [*units, (model.records[0], model.records[-1])] if seed % 5 == 0 and len(units) > 2 else units


def truth(model: Model, alpha: np.ndarray, units: list[Unit]) -> np.ndarray:
    """Return what is attained about every unit, less the attack's own rounding."""
    costs = {r: float(alpha[model.index[r]]) for r in model.records}
    found = [strongest(model, costs, unit, (), 0, programs=4).leakage for unit in units]
    return np.array(found) * (1 - 1e-12) - 1e-14


def forms(model: Model, alpha: np.ndarray, units: list[Unit]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the leakages by every form."""
    yield FORMS[0], ready(CouplingBound, model, units).evaluate(alpha).values
    walk = schedule(model, units)
    orders = [[task.order()] for task in walk.tasks]
    yield FORMS[1], AllPairs(walk, orders, NO_GUARD).leakages(Prices(Problem(model), alpha))
    yield FORMS[2], ready(CouplingBound, model, units, sparse=0.1).evaluate(alpha).values
    yield FORMS[3], ready(CouplingBound, model, units, sparse=1.0).evaluate(alpha).values


def work(name: str, seeds: range) -> dict[str, Any]:
    """Return what the seeds of one part give."""
    found: dict[str, Any] = {
        "leakages": defaultdict(int),
        "ratios": defaultdict(list),
        "kinds": defaultdict(int),
        "models": 0,
        "violations": [],
    }
    for seed in seeds:
        kind, model, alpha = drawn(seed)
        units = units_of(model, seed)
        values = list(forms(model, alpha, units))
        found["models"] += 1
        attained = truth(model, alpha, units)
        ternary = max(model.cardinality(n) for n in model.nodes) > 2
        for form, certified in values:
            wrong = np.flatnonzero(certified < attained - SLACK)
            found["violations"] += [
                f"seed {seed}, {form}, {units[k]}: {certified[k]!r} < {attained[k]!r}" for k in wrong
            ]
            told = attained > 1e-9
            found["leakages"][form] += int(told.sum())
            found["ratios"][form] += np.round(certified[told] / attained[told], 6).tolist()
            for tag in (kind, "ternary" if ternary else "binary"):
                found["kinds"][f"{form}: {tag}"] += int(told.sum())
    return found


def page(total: dict[str, Any], ranges: dict[str, range]) -> str:
    """Return the section of the documentation."""
    rows = []
    for form in FORMS:
        if not total["leakages"].get(form):
            continue
        seeds = ranges["forms"]
        median, most = np.quantile(total["ratios"][form], [0.5, 0.9])
        wrong = sum(f", {form}, " in v for v in total["violations"])
        kinds = [total["kinds"].get(f"{form}: {tag}", 0) for tag in ("loops of six", "ternary")]
        rows.append(
            f"| {form} | {seeds.start}–{seeds.stop - 1} | {total['leakages'][form]:,} | {kinds[0]:,} |"
            f" {kinds[1]:,} | {wrong} | {median:.3f} | {most:.3g} |"
        )
    listed = "".join(f"\n- {v}" for v in total["violations"])
    return f"""{HEADING}

Random Bayesian networks of two to six nodes (two or three states, zeros, latents, unequal α) and loops of
six records, each value against what the worst explicit mechanism attains on that network: a linear program
over all α-DP likelihoods, its solution made exactly feasible. `python benchmarks/soundness_coupling.py`
draws them and goes on where it stopped; the slow tests of `test_coupling.py` and `test_sparse_coupling.py`
draw 5,000 more records each with seeds of their own. Leakages of records about which nothing can be
attained are checked, and not counted.

Last run: {total["models"]:,} models, {sum(total["leakages"].values()):,} leakages,
**{len(total["violations"])} violations**; {total["seconds"]:,.0f} s of processor time,
{len(total["versions"])} version(s) of the sources.
{listed}
| form | seeds | leakages | of loops of six | with three states | violations | median × attained | 90 % |
|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}

The largest ratios are of records that hardly leak: nobody reads them, or their states have masses near the
smallest double.
"""


def main() -> int:
    """Run the campaign; exit 1 if anything is below the truth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2400, help="networks")
    add_options(parser, "build/soundness-coupling")
    options = parser.parse_args()
    ranges = {"forms": range(options.start, options.start + options.seeds)}
    with workers(options.workers) as executor:
        total = campaign(ranges, CHUNK, work, options.state, executor)
    return told(total, HEADING, page(total, ranges), options.docs)


if __name__ == "__main__":
    sys.exit(main())
