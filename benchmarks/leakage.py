"""Noise and time of the leakage bounds: against the Markov Quilt Mechanism's own numbers, and scaling.

python benchmarks/leakage.py [--quick] [--docs docs/benchmarks/leakage.md]
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import resource
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import quiltdp as qd
import quiltdp.papers  # importing it registers the comparisons
from quiltdp.accountant.leakage import analyze

ROOT = Path(__file__).parents[1]


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    started = time.process_time()
    value = work()
    return value, time.process_time() - started


def table(columns: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join([*lines, *("| " + " | ".join(r) + " |" for r in rows)]) + "\n"


def markov_quilt_mechanism(every: int) -> str:
    """Noise of binary chains of length 100 beside what the mechanism's authors' program prints."""
    path = ROOT / "tests" / "data" / "reference" / "mqm_binary_T100_eps1.csv"
    with path.open() as file:
        cases = list(csv.DictReader(file))[::every]
    rows, prior_ratio, informed_ratio = [], [], {1.0: [], 0.2: []}
    for case in cases:
        p01, p11 = float(case["p01"]), float(case["p11"])
        chain = qd.markov_chain([[1 - p01, p01], [1 - p11, p11]], 100)
        theirs = float(case["mqm_exact"])
        prior = 1 / qd.dp_epsilon(chain, 1.0, adversary="prior")
        informed = 1 / qd.dp_epsilon(chain, 1.0)
        published = {e: 1 / qd.dp_epsilon(chain, e, "published", "prior") for e in informed_ratio}
        prior_ratio.append(theirs / prior)
        informed_ratio[1.0].append(published[1.0] / informed)
        informed_ratio[0.2].append(published[0.2] * qd.dp_epsilon(chain, 0.2))
        rows.append(
            [
                case["p01"],
                case["p11"],
                f"{theirs:.3f}",
                f"{published[1.0]:.3f}",
                f"{prior:.3f}",
                f"{informed:.3f}",
            ]
        )
    shown = rows[:: max(1, len(rows) // 12)]
    columns = ["p01", "p11", "their program", "ours, published", "prior", "informed"]
    prior, one, fifth = (np.median(r) for r in (prior_ratio, informed_ratio[1.0], informed_ratio[0.2]))
    said = (
        f"{len(rows)} chains.  Their noise over ours, prior adversary: median {prior:.2f},"
        f" least {min(prior_ratio):.3f}.  Their noise over ours against the *stronger* informed"
        f" adversary: median {one:.2f} at ε = 1 and {fifth:.2f} at ε = 0.2.\n\n"
    )
    return said + table(columns, shown) + "\n\n" + newest_bound(cases)


def newest_bound(cases: list[dict[str, str]]) -> str:
    """Noise of the newest published bound on chains (``lange``: α + 4 ln γ) over ours, informed adversary."""
    silent, ratios = 0, []
    for case in cases:
        p01, p11 = float(case["p01"]), float(case["p11"])
        chain = qd.markov_chain([[1 - p01, p01], [1 - p11, p11]], 100)
        try:
            ratios.append(qd.dp_epsilon(chain, 4.0) / qd.dp_epsilon(chain, 4.0, "lange"))
        except qd.QuiltdpError:
            silent += 1
    return (
        f"Lange et al. (2025), α + 4 ln γ, says nothing at ε = 4 on {silent} of {len(cases)} of these chains"
        f" (at ε = 1 on none does it say anything); elsewhere its noise over ours is {min(ratios):.2f} to"
        f" {max(ratios):.2f} times, median {np.median(ratios):.2f}."
    )


def long_chains(quick: bool) -> str:
    rng = np.random.default_rng(0)
    rows = []
    for length in (1_000, 100_000, 1_000_000):
        for states in (2, 10, 50):
            p = rng.dirichlet(np.full(states, 0.5), size=states) * 0.98 + 0.02 / states
            for adversary in ("informed", "prior"):
                if quick and length > 1_000 and states > 10:
                    continue
                chain = qd.markov_chain(p, length)
                alpha, seconds = timed(lambda c=chain, a=adversary: qd.dp_epsilon(c, 1.0, adversary=a))
                rows.append([f"{length:,}", str(states), adversary, f"{1 / alpha:.4g}", f"{seconds:.2f}"])
    return table(["steps", "states", "adversary", "noise 1/α at ε = 1", "seconds"], rows)


def trees(quick: bool) -> str:
    rows = []
    for count in (1_000, 10_000, 100_000) if quick else (1_000, 10_000, 100_000, 1_000_000):
        rng = np.random.default_rng(1)
        cpt = np.array([[0.7, 0.3], [0.3, 0.7]])
        tables: dict[str, tuple[list[str], object]] = {"n0": ([], [0.5, 0.5])}
        for k in range(1, count):
            tables[f"n{k}"] = ([f"n{rng.integers(max(0, k - 50), k)}"], cpt)
        model = qd.Model.from_tables(tables)
        profile, build = timed(lambda m=model: analyze(m, method="propagation"))  # type: ignore[arg-type]
        found, once = timed(lambda p=profile: p.epsilon(0.01))
        rows.append(
            [
                f"{count:,}",
                f"{build:.2f}",
                f"{once:.2f}",
                f"{1e6 * (build + once) / count:.1f}",
                f"{found / 0.01:.1f}",
            ]
        )
    return table(["nodes", "analysis, s", "one α, s", "µs per node", "leakage / α"], rows)


NETWORKS = (
    *("cancer", "earthquake", "survey", "asia", "sachs", "child", "alarm", "insurance", "hepar2"),
    *("pigs", "andes", "mildew", "barley", "munin1", "pathfinder", "link", "diabetes"),
    *("munin2", "munin4", "munin3", "munin"),
)


def networks(quick: bool, journal: Path | None = None) -> str:
    """Certified and attained on every bundled network, both adversaries; a journal lets it go on later."""
    known: dict[tuple[str, str], dict[str, Any]] = {}
    if journal is not None and journal.exists():
        for line in journal.read_text().splitlines():
            row = json.loads(line)
            known[row["network"], row["adversary"]] = row
    for name in NETWORKS[: 6 if quick else None]:
        for adversary in ("informed", "prior"):
            if (name, adversary) not in known:
                known[name, adversary] = row = bracketed(name, adversary)
                print(row, flush=True)
                if journal is not None:
                    with journal.open("a") as file:
                        file.write(json.dumps(row) + "\n")
    return network_table(list(known.values()))


def bracketed(name: str, adversary: str) -> dict[str, Any]:
    """Return what one network needs at ε = 1, and what an attack at that α attains."""
    path = next((ROOT / "models").glob(f"{name}.bif*"))
    model = qd.load_model(path)
    started = time.process_time()
    profile = analyze(model, adversary=adversary)
    alpha = profile.dp_epsilon(1.0)
    found = profile.leakage(alpha)
    seconds = time.process_time() - started
    attained: float | None = None
    with suppress(qd.QuiltdpError):
        attained = qd.attack(model, alpha, adversary).leakage
    return {
        "network": name,
        "adversary": adversary,
        "records": len(model.records),
        "group": max(len(c) for c in qd.moralize(model).components()),
        "sigma": 1 / alpha,
        "certified": found.epsilon,
        "attained": attained,
        "method": found.method,
        "seconds": seconds,
        "attack_seconds": time.process_time() - started - seconds,
    }


def network_table(found: list[dict[str, Any]]) -> str:
    """Return the table, in the order of the networks."""
    order = {name: k for k, name in enumerate(NETWORKS)}
    rows = []
    for row in sorted(found, key=lambda r: (order[r["network"]], r["adversary"])):
        attained = row["attained"]
        rows.append(
            [
                row["network"],
                str(row["records"]),
                row["adversary"],
                str(row["group"]),
                f"{row['sigma']:.4g}",
                f"{row['certified']:.4f}",
                "–" if attained is None else f"{attained:.4f}",
                "–" if attained is None else f"{row['certified'] / attained:.3f}",
                row["method"],
                f"{row['seconds']:.1f}",
                f"{row['attack_seconds']:.1f}",
            ]
        )
    head = ["network", "records", "adversary", "group privacy", "σ", "certified ≤", "attained ≥", "ratio"]
    said = (
        "σ is the Laplace scale at ε = 1 for a query that every record moves by 1. *certified* is the leakage"
        " at that σ, *attained* what an explicit, replayable attack leaks at the same α (`quiltdp attack`,"
        " normal work), *ratio* their quotient: no bound can be smaller than σ divided by about as much."
        " Seconds are processor seconds of the bound and of the attack; – where the junction tree is too"
        " wide to attack.\n\n"
    )
    return said + table([*head, "method", "s", "s, attack"], rows)


def loopy_network(seed: int) -> qd.Model:
    """Return a random network of twelve binary nodes, each with one or two parents."""
    rng = np.random.default_rng(seed)
    tables = {}
    for k in range(12):
        few = min(k, int(rng.integers(1, 3))) if k else 0
        parents = [f"X{p}" for p in sorted(rng.choice(k, size=few, replace=False).tolist())] if k else []
        tables[f"X{k}"] = (parents, rng.dirichlet(np.ones(2), size=[2] * len(parents) or None))
    return qd.Model.from_tables(tables)


def loopy_networks(quick: bool) -> str:
    """Random networks with loops, informed adversary: what is certified, attained, and was before."""
    rows = []
    for seed in range(2 if quick else 6):
        model = loopy_network(seed)
        alpha, seconds = timed(lambda m=model: qd.dp_epsilon(m, 1.0))
        found = qd.leakage(model, alpha)
        before = min(1 / qd.dp_epsilon(model, 1.0, method=m) for m in ("group", "propagation", "swing"))
        tree = 1 / qd.dp_epsilon(model, 1.0, method="worst-evidence")
        attained = qd.attack(model, alpha).leakage
        told = [f"{before:.4g}", f"{tree:.4g}", f"{1 / alpha:.4g}", f"{1 / alpha / before:.3f}"]
        rows.append([str(seed), *told, f"{found.epsilon / attained:.3f}", found.method, f"{seconds:.1f}"])
    head = ["seed", "swing, propagation, group", "worst-evidence", "σ", "σ over the first"]
    said = (
        "Twelve binary nodes, one or two parents each, tables drawn evenly; σ at ε = 1, informed adversary."
        " *certified / attained* is at that σ.\n\n"
    )
    return said + table([*head, "certified / attained", "method", "s"], rows)


def gaussian(quick: bool) -> str:
    """Standard deviations of Gaussian noise on chains, ε = 1, δ = 1e-6, both adversaries."""
    walk = np.array([[0.75, 0.25, 0.0], [0.25, 0.5, 0.25], [0.0, 0.25, 0.75]])
    cells = 0.95 * np.kron(walk, walk) + 0.05 / 9
    chains: list[tuple[str, np.ndarray, int]] = [
        (f"two states, flip {flip}", np.array([[1 - flip, flip], [flip, 1 - flip]]), 10_000)
        for flip in (0.45, 0.3, 0.1)
    ]
    chains.append(("lazy walk on three cells (zeros)", walk, 10_000))
    if not quick:
        chains.append(("nine cells, a year of 5-minute steps", cells, 105_120))
    rows = []
    spec = qd.Gaussian(sensitivity=1.0, delta=1e-6)
    for name, matrix, length in chains:
        chain = qd.markov_chain(matrix, length)
        row = [name, f"{length:,}"]
        for adversary in ("informed", "prior"):
            sigma, seconds = timed(lambda c=chain, a=adversary: qd.calibrate(c, 1.0, spec, adversary=a).sigma)
            row += [f"{sigma:.4g}", f"{seconds:.1f}"]
        rows.append(row)
    head = ["chain", "steps", "informed", "s", "prior", "s"]
    return (
        table(head, rows) + "\nIndependent records need 4.22; group privacy 4.22 times the number of steps.\n"
    )


def gaussian_networks(quick: bool) -> str:
    """Standard deviations of Gaussian noise on networks and families, with what an attack attains at each."""
    names = ("cancer", "earthquake", "survey", "asia", "sachs", "child", "alarm", "hepar2", "insurance")
    models = {n: qd.load_model(f"models/{n}.bif") for n in (names[:4] if quick else names)}
    models["two_families"] = qd.load_model("models/two_families.json")
    for family in () if quick else ("ceph1463.fam", "ceph/1340.ped"):
        models[family] = qd.load_model(f"models/pedigree/{family}", allele_frequency=0.1)
    rows = []
    spec = qd.Gaussian(sensitivity=1.0, delta=1e-6)
    for (name, model), adversary in itertools.product(models.items(), ("informed", "prior")):
        cal, seconds = timed(lambda m=model, a=adversary: qd.calibrate(m, 1.0, spec, adversary=a))
        found, attack = timed(cal.bracket)
        group = f"{cal.compared['group']:.4g}"
        told = [f"{cal.sigma:.4g}", f"{found.attained:.4f}", f"{found.certified / found.attained:.3f}"]
        rows.append(
            [
                name,
                str(len(model.records)),
                adversary,
                group,
                *told,
                cal.method,
                f"{seconds:.1f}",
                f"{attack:.1f}",
            ]
        )
    head = ["model", "records", "adversary", "group privacy", "σ", "attained ≥", "ratio", "method"]
    return table([*head, "s", "s, attack"], rows)


def replace_part(body: str, title: str, page: Path | None) -> None:
    """Print one part, and put it in the place of the one on the page."""
    print(body)
    if page is not None:
        before, _, rest = page.read_text().partition(f"## {title}\n")
        _, mark, after = rest.partition("\n## ")
        page.write_text(f"{before}## {title}\n\n{body}{mark}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--docs", type=Path)
    parser.add_argument("--only", help="one part, by its title; on the page it alone is replaced")
    parser.add_argument("--journal", type=Path, help="where finished networks are kept, to go on later")
    options = parser.parse_args()
    parts = [
        ("Against the Markov Quilt Mechanism", lambda: markov_quilt_mechanism(6 if options.quick else 1)),
        ("Long chains", lambda: long_chains(options.quick)),
        ("Propagation on trees", lambda: trees(options.quick)),
        ("Networks", lambda: networks(options.quick, options.journal)),
        ("Random networks with loops", lambda: loopy_networks(options.quick)),
        ("Gaussian noise", lambda: gaussian(options.quick)),
        ("Gaussian noise on networks and families", lambda: gaussian_networks(options.quick)),
    ]
    if options.only is not None:
        replace_part(dict(parts)[options.only](), options.only, options.docs)
        return
    text = [
        "# Leakage bounds: noise and time\n",
        "`python benchmarks/leakage.py`, one run on 2 cores; seconds are processor seconds of one thread.\n",
    ]
    for title, part in parts:
        print(f"## {title}", flush=True)
        body = part()
        print(body, flush=True)
        text.append(f"## {title}\n\n{body}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    text.append(f"Peak memory of the whole run: {peak:.1f} GB.\n")
    print(text[-1])
    if options.docs is not None:
        options.docs.write_text("\n".join(text))


if __name__ == "__main__":
    main()
