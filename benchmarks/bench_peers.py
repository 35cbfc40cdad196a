"""Influence and reading beside pgmpy and pyAgrum, in rounds: each round measures everybody once."""

from __future__ import annotations

import gzip
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import influence as quilts
import numpy as np
import readers

import quiltdp as qd
from quiltdp.inference.influence import quilt_influences

PEERS = {
    "pgmpy by definition": quilts.with_pgmpy_conditionals,
    "pgmpy by known set": quilts.with_pgmpy_known_sets,
    "pgmpy by quilt": quilts.with_pgmpy_joint,
    "pyAgrum by quilt": quilts.with_pyagrum,
}
SLOW = "pgmpy by definition"


def spread(numbers: list[float]) -> list[float] | None:
    """Return median, least and most."""
    return [float(np.median(numbers)), min(numbers), max(numbers)] if numbers else None


def influence(quick: bool) -> list[dict[str, Any]]:
    rows = []
    rounds = 3 if quick else 9
    for name, sample in (
        (("asia", 40), ("child", 30)) if quick else (("asia", 79), ("child", 90), ("alarm", 90))
    ):
        path = quilts.MODELS / f"{name}.bif"
        model = qd.load_model(path)
        every = [
            q for q in quilts.nontrivial_quilts(model, 2) if quilts.joint_size(model, q) <= quilts.JOINT_LIMIT
        ]
        chosen = every[:: max(1, len(every) // sample)]
        quilt_influences(qd.load_model(path), chosen)  # imports are not what is measured
        ratios: dict[str, list[float]] = {peer: [] for peer in PEERS}
        ours = []
        for k in range(rounds):
            mine, numbers = quilts.timed_batch(path, every)
            ours.append(mine / len(every))
            for peer, make in PEERS.items():
                if peer == SLOW and k:
                    continue
                try:
                    theirs, other = quilts.timed(make(model, path), chosen)
                except ImportError:
                    continue
                known = dict(zip(every, numbers, strict=True))
                for q, his in zip(chosen, other, strict=True):
                    assert all(map(quilts.same, known[q], his)), f"{name}: {peer} disagrees on {q}"
                ratios[peer].append(theirs / len(chosen) / ours[-1])
        rows.append([name, len(every), spread([1e6 * t for t in ours]), *(spread(ratios[p]) for p in PEERS)])
    return [
        {
            "title": "b and swing of every quilt with at most two nearby records",
            "says": "Ours: one call of `quilt_influences` for all quilts, on a model read afresh, the mean of"
            " five. Theirs: an even sample of quilts, on a model read once, the mean of all of them. Median"
            f" (least–most) of {rounds} rounds (by definition: one). Every number they returned agreed with"
            " ours to 1e-7.",
            "columns": ["network", "quilts", "ours, µs a quilt", *(f"× {p}" for p in PEERS)],
            "rows": rows,
        }
    ]


def reading(quick: bool) -> list[dict[str, Any]]:
    rows, refused = [], {}
    names = ("asia", "alarm") if quick else ("asia", "child", "alarm", "hepar2")
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            file = next(
                p for p in (quilts.MODELS / f"{name}.bif", quilts.MODELS / f"{name}.bif.gz") if p.exists()
            )
            data = file.read_bytes()
            plain = Path(folder) / f"{name}.bif"
            plain.write_bytes(gzip.decompress(data) if file.suffix == ".gz" else data)
            peers = {"pyAgrum": readers.with_pyagrum, "pgmpy": readers.with_pgmpy}
            ours: list[float] = []
            ratios: dict[str, list[float]] = {peer: [] for peer in peers}
            for k in range(4):
                mine = min(clocked(lambda p=plain: qd.load_model(p)) for _ in range(3))
                for peer, read in peers.items():
                    try:
                        theirs = min(clocked(lambda p=plain, r=read: r(p)) for _ in range(3))
                    except Exception as error:  # a peer that fails is a dash, not the end
                        theirs = math.nan
                        refused[f"{peer} on {name}"] = type(error).__name__
                    if k and not math.isnan(theirs):  # the first pays for imports
                        ratios[peer].append(theirs / mine)
                ours.append(mine)
            rows.append([name, spread([1e3 * t for t in ours]), *(spread(ratios[p]) for p in peers)])
    return [
        {
            "title": "From a file to a checked model",
            "says": "The same plain BIF file for everybody, the least of three readings each, in three rounds"
            " after one that pays for imports.",
            "columns": ["network", "ours, ms", "× pyAgrum", "× pgmpy"],
            "rows": rows,
            "after": "".join(f"{who}: not read ({why}). " for who, why in refused.items()).strip(),
        }
    ]


def clocked(work: Any) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
