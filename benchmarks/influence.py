"""Influence and swing of quilts: quiltdp beside pgmpy and pyAgrum, then what those cannot do.

    python benchmarks/influence.py                 the side-by-side table
    python benchmarks/influence.py --hard          the quilts whose joint no peer can hold
    python benchmarks/influence.py --growth        time against |N|, |Q| and states

pgmpy is used in three ways, on an engine built once per network: *by definition*, one query
P(X_Q | x_i, x_L) per set L and values x_i, x_L; *by known set*, one query per L for the joint of target, L
and separator; and *by joint*, one query per quilt for the joint of target, nearby and separator, every L
then being a sum over axes in numpy (the shrewdest use, possible only while the joint fits).  pyAgrum's
LazyPropagation is asked for the joint as well.  CPU time of one process.
"""

from __future__ import annotations

import argparse
import math
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np

import quiltdp as qd
from quiltdp.errors import ModelTooWide
from quiltdp.graph.quilt import Quilt
from quiltdp.inference.influence import quilt_influences
from quiltdp.inference.workspace import Workspace

MODELS = Path(__file__).resolve().parent.parent / "models"
JOINT_LIMIT = 10**6

Numbers = tuple[float, float]


def nontrivial_quilts(model: qd.Model, max_nearby: int) -> Iterator[Quilt]:
    graph = qd.moralize(model)
    for node in model.nodes:
        for quilt in qd.quilts(graph, node, max_nearby=max_nearby):
            if quilt.separator and quilt.nearby_records <= max_nearby:
                yield quilt


def joint_size(model: qd.Model, quilt: Quilt) -> int:
    return math.prod(model.cardinality(n) for n in {quilt.target} | quilt.nearby | quilt.separator)


def read_off(joint: np.ndarray, nearby: int, *, every_set: bool = True) -> Numbers:
    """b and swing from P(x, x_N, x_Q), for every L by summing axes (or for L = N), as a user would."""
    b = swing = 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        for size in range(0 if every_set else nearby, nearby + 1):
            for known in combinations(range(1, 1 + nearby), size):
                gone = tuple(a for a in range(1, 1 + nearby) if a not in known)
                table = np.moveaxis(
                    joint.sum(axis=gone).reshape(joint.shape[0], -1, _tail(joint, nearby)), 1, 0
                )
                mass = table.sum(axis=2)
                for p, m in zip(table, mass, strict=True):
                    rows = p[m > 0] / m[m > 0, None]
                    logs = np.log(rows)
                    for x, y in combinations(range(len(rows)), 2):
                        seen = (rows[x] > 0) | (rows[y] > 0)
                        ratio = (logs[x] - logs[y])[seen]
                        b = max(b, ratio.max(), -ratio.min())
                        swing = max(swing, ratio.max() - ratio.min())
    return float(b), float(swing)


def _tail(joint: np.ndarray, nearby: int) -> int:
    return int(np.prod(joint.shape[1 + nearby :]))


def timed_batch(path: Path, quilts: Sequence[Quilt], rounds: int = 5) -> tuple[float, list[Numbers]]:
    """The mean of a few batches, each on a model loaded afresh."""
    spent, found = 0.0, ()
    for _ in range(rounds):
        model = qd.load_model(path)
        start = time.process_time()
        found = quilt_influences(model, quilts)
        spent += time.process_time() - start
    return spent / rounds, [(f.b, f.swing) for f in found]


def pgmpy_network(model: qd.Model) -> Any:
    from pgmpy.factors.discrete import TabularCPD
    from pgmpy.models import DiscreteBayesianNetwork

    network = DiscreteBayesianNetwork()
    network.add_nodes_from(model.nodes)
    for f in model.factors:
        network.add_edges_from((p, f.child) for p in f.parents)
    for f in model.factors:
        columns = f.table.reshape(-1, f.table.shape[-1]).T
        network.add_cpds(TabularCPD(f.child, columns.shape[0], columns, f.parents, f.table.shape[:-1]))
    return network


def with_pgmpy_joint(model: qd.Model, path: Path) -> Callable[[Quilt], Numbers]:
    """One query per quilt, for the joint of target, nearby and separator."""
    from pgmpy.inference import VariableElimination

    engine = VariableElimination(pgmpy_network(model))

    def ask(quilt: Quilt) -> Numbers:
        names = [quilt.target, *sorted(quilt.nearby), *sorted(quilt.separator)]
        found = engine.query(names, show_progress=False)
        joint = found.values.transpose([found.variables.index(n) for n in names])
        return read_off(joint, len(quilt.nearby))

    return ask


def with_pgmpy_known_sets(model: qd.Model, path: Path) -> Callable[[Quilt], Numbers]:
    """One query per known set L, for the joint of target, L and separator."""
    from pgmpy.inference import VariableElimination

    engine = VariableElimination(pgmpy_network(model))

    def ask(quilt: Quilt) -> Numbers:
        b = swing = 0.0
        near = sorted(quilt.nearby)
        for known in (k for size in range(len(near) + 1) for k in combinations(near, size)):
            names = [quilt.target, *known, *sorted(quilt.separator)]
            found = engine.query(names, show_progress=False)
            joint = found.values.transpose([found.variables.index(n) for n in names])
            here = read_off(joint, len(known), every_set=False)
            b, swing = max(b, here[0]), max(swing, here[1])
        return b, swing

    return ask


def with_pgmpy_conditionals(model: qd.Model, path: Path) -> Callable[[Quilt], Numbers]:
    """One query P(X_Q | x_i, x_L) per known set and values, as the definition of b reads."""
    from pgmpy.inference import VariableElimination

    engine = VariableElimination(pgmpy_network(model))

    def row(quilt: Quilt, evidence: dict[str, int]) -> np.ndarray | None:
        names = sorted(quilt.separator)
        found = engine.query(names, evidence=evidence, show_progress=False)
        values = found.values.transpose([found.variables.index(n) for n in names]).ravel()
        return None if np.isnan(values).any() else values

    def ask(quilt: Quilt) -> Numbers:
        b = swing = 0.0
        near = sorted(quilt.nearby)
        for known in (k for size in range(len(near) + 1) for k in combinations(near, size)):
            scope = [quilt.target, *known]
            found = engine.query(scope, show_progress=False)
            mass = found.values.transpose([found.variables.index(n) for n in scope])
            for values in product(*(range(model.cardinality(n)) for n in known)):
                fixed = dict(zip(known, values, strict=True))
                states = range(model.cardinality(quilt.target))
                # pgmpy answers impossible evidence with some law or other: leave it out
                rows = [row(quilt, {quilt.target: x, **fixed}) for x in states if mass[(x, *values)] > 0]
                for p, q in combinations([r for r in rows if r is not None], 2):
                    seen = (p > 0) | (q > 0)
                    with np.errstate(divide="ignore"):
                        ratio = np.log(p[seen]) - np.log(q[seen])
                    b = max(b, ratio.max(), -ratio.min())
                    swing = max(swing, ratio.max() - ratio.min())
        return float(b), float(swing)

    return ask


def with_pyagrum(model: qd.Model, path: Path) -> Callable[[Quilt], Numbers]:
    import pyagrum as gum

    network = gum.BayesNet()
    for k, n in enumerate(model.nodes):
        network.add(gum.LabelizedVariable(f"v{k}", "", model.cardinality(n)))
    for f in model.factors:
        for p in f.parents:
            network.addArc(model.index[p], model.index[f.child])
    for f in model.factors:
        cpt = network.cpt(model.index[f.child])
        order = [
            next(k for k, n in enumerate(f.scope) if model.index[n] == int(v[1:])) for v in cpt.names[::-1]
        ]
        cpt.fillWith(f.table.transpose(order).ravel().tolist())

    def ask(quilt: Quilt) -> Numbers:
        names = [quilt.target, *sorted(quilt.nearby), *sorted(quilt.separator)]
        engine = gum.LazyPropagation(network)
        wanted = {model.index[n] for n in names}
        engine.addJointTarget(wanted)
        found = engine.jointPosterior(wanted)
        array = found.toarray()
        axes = list(found.names)[::-1]
        joint = array.transpose([axes.index(f"v{model.index[n]}") for n in names])
        return read_off(joint, len(quilt.nearby))

    return ask


def timed(ask: Callable[[Quilt], Numbers], quilts: Sequence[Quilt]) -> tuple[float, list[Numbers]]:
    start = time.process_time()
    found = [ask(q) for q in quilts]
    return time.process_time() - start, found


def same(a: float, b: float) -> bool:
    return a == b or math.isclose(a, b, rel_tol=1e-7, abs_tol=1e-7)


def side_by_side(names: Sequence[str], sample: int | None) -> None:
    peers = {
        "pgmpy by definition": with_pgmpy_conditionals,
        "pgmpy by known set": with_pgmpy_known_sets,
        "pgmpy by joint": with_pgmpy_joint,
        "pyAgrum by joint": with_pyagrum,
    }
    titles = ["network", "quilts", "quiltdp", *peers, *(f"× {p}" for p in peers), "peak MB"]
    print("| " + " | ".join(titles) + " |\n|---" + "|---:" * (len(titles) - 1) + "|")
    for name in names:
        path = MODELS / f"{name}.bif"
        model = qd.load_model(path)
        quilts = [q for q in nontrivial_quilts(model, 2) if joint_size(model, q) <= JOINT_LIMIT]
        quilt_influences(qd.load_model(path), quilts[:20])  # imports are not what is measured
        ours, numbers = timed_batch(path, quilts)
        cells, factors = [], []
        for peer, make in peers.items():
            step = 1 if sample is None else max(1, len(quilts) // sample)
            chosen = quilts[::step]
            try:
                theirs, other = timed(make(model, path), chosen)
            except ImportError:
                cells.append("not installed")
                factors.append("–")
                continue
            for q, mine, his in zip(chosen, numbers[::step], other, strict=True):
                if not all(map(same, mine, his)):
                    raise SystemExit(f"{peer} disagrees on {q}: {mine} here, {his} there")
            total = theirs * len(quilts) / len(chosen)
            cells.append(f"{total:.2f} s")
            factors.append(f"{total / ours:.0f}" if total / ours > 10 else f"{total / ours:.1f}")
        row = (name, len(quilts), f"{ours:.4f} s", *cells, *factors, peak())
        print("| " + " | ".join(map(str, row)) + " |", flush=True)


def hard(cases: Sequence[tuple[str, int]], every: int, seconds: float) -> None:
    """Time the quilts in an even order; stop after ``seconds`` and scale the time up to all of them."""
    titles = "network, nearby ≤, quilts, asked, largest separator, largest joint, time for all, slowest"
    columns = [*titles.split(", "), "exact", "bounds", "peak MB"]
    print("| " + " | ".join(columns) + " |\n|---" + "|---:" * (len(columns) - 1) + "|")
    for name, nearby in cases:
        model = qd.load_model(MODELS / f"{name}.bif")
        space = Workspace(model)
        quilts = list(nontrivial_quilts(model, nearby))
        exact = bounds = 0
        times: list[float] = []
        order = np.random.default_rng(1).permutation(len(quilts))[::every]
        for k in order:
            start = time.process_time()
            found = qd.quilt_influence(model, quilts[k], workspace=space)
            times.append(time.process_time() - start)
            exact, bounds = exact + found.exact, bounds + (not found.exact)
            if sum(times) > seconds:
                break
        spent = sum(times) * len(quilts) / len(times)
        widest = max(len(q.separator) for q in quilts)
        joint = max(joint_size(model, q) for q in quilts)
        cells = (name, nearby, len(quilts), len(times), widest, f"{joint:.0e}", f"{spent:.0f} s")
        print(
            "| " + " | ".join(map(str, (*cells, f"{max(times):.1f} s", exact, bounds, peak()))) + " |",
            flush=True,
        )


def growth() -> None:
    """A target on a ladder of binary or k-state nodes: time per quilt as one thing grows."""
    print("| |N| | |Q| | states | entries of the joint | ms per quilt | exact |")
    print("|---:|---:|---:|---:|---:|---|")
    for nearby, separator, states in (
        *((n, 4, 2) for n in (0, 2, 4, 6, 8, 10, 12, 13)),
        *((2, q, 2) for q in (2, 4, 8, 16, 32, 64)),
        *((2, 4, k) for k in (2, 4, 8, 16, 32)),
    ):
        spent = math.inf
        for _ in range(4):  # the best of four new models: the first call also imports
            model, quilt = star(nearby, separator, states)
            start = time.process_time()
            try:
                answer = str(qd.quilt_influence(model, quilt).exact)
            except ModelTooWide as error:
                answer = f"too wide: {error}"
            spent = min(spent, time.process_time() - start)
        entries = f"{float(states) ** (1 + nearby + separator):.0e}"
        print(
            f"| {nearby} | {separator} | {states} | {entries} | {1000 * spent:.1f} | {answer} |", flush=True
        )


def star(nearby: int, separator: int, states: int) -> tuple[qd.Model, Quilt]:
    """A target, a chain of nearby nodes after it, and separator children spread over them."""
    rng = np.random.default_rng(1)
    inner = ["T", *(f"N{k}" for k in range(nearby))]
    tables: dict[str, tuple[list[str], np.ndarray]] = {}
    for k, n in enumerate(inner):
        parents = [inner[k - 1]] if k else []
        tables[n] = (parents, rng.dirichlet(np.ones(states), size=(states,) * len(parents)))
    for k in range(separator):
        tables[f"Q{k}"] = ([inner[k % len(inner)]], rng.dirichlet(np.ones(states), size=(states,)))
    model = qd.Model.from_tables(tables)
    around = [f"Q{k}" for k in range(separator)]
    return model, Quilt(qd.moralize(model), "T", around, inner[1:], [])


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hard", action="store_true")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--networks", nargs="*", default=["asia", "child", "alarm"])
    parser.add_argument("--sample", type=int, help="give the peers only about this many quilts, scaled up")
    parser.add_argument("--every", type=int, default=1, help="with --hard: every n-th quilt, time scaled up")
    parser.add_argument("--seconds", type=float, default=600, help="with --hard: stop a network after this")
    parser.add_argument("--cases", nargs="*", default=["child:4", "insurance:2", "alarm:4", "hepar2:2"])
    options = parser.parse_args()
    if options.hard:
        hard([(c.split(":")[0], int(c.split(":")[1])) for c in options.cases], options.every, options.seconds)
    elif options.growth:
        growth()
    else:
        side_by_side(options.networks, options.sample)


if __name__ == "__main__":
    main()
